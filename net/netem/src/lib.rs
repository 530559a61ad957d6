//! Model of one direction of a link: rate, delay, jitter, queue, loss, and other faults.
//!
//! - [`LinkDirection`] decides the fate of a packet when the packet is offered. It holds no packets: a simulator schedules the
//!   arrivals itself.
//! - [`Line`] holds the packets, for programs that work in real time. [`Line::enqueue`] takes a packet, and [`Line::dequeue`]
//!   returns the packet when it is due.
//! - [`Spec`] holds settings as text, for flags and files.
//!
//! The caller passes the time, and a seed determines the random numbers. The same inputs therefore give the same fates. No type
//! reads the contents of a packet. The caller knows the headers. It flips the bit of a damaged packet, sends the ICMP message,
//! and sets the ECN mark.
//!
//! Decisions are final: a change of settings applies only to later packets.

#![forbid(unsafe_code)]

mod chance;
mod config;
mod counters;
mod direction;
mod line;
mod spec;
mod units;

pub use config::{DirectionConfig, Distribution, Loss, LossPlace};
pub use counters::Counters;
pub use direction::{Arrival, Fate, LinkDirection, LossCause, Passage};
pub use line::{Delivery, HELD_BYTES_MAX, Line};
pub use spec::{KEYS, Key, Spec, SpecError, Value, settings};
pub use units::{rate as parse_rate, rate_text};
