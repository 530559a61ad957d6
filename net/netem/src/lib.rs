//! One direction of a link as a machine: rate, delay, jitter, queue, loss, and other faults.
//!
//! [`LinkDirection`] decides what becomes of a packet at the moment it goes in, and holds none: a simulator plans the arrival itself.
//! [`Line`] is a direction that holds the packets, for programs that work in real time: packets go in by [`Line::enqueue`] and come
//! out by [`Line::dequeue`] when their time has come. Both are told the time, get their randomness from a seed, and give the
//! same fates for the same inputs. Neither looks into a packet: flipping the bit, sending the ICMP message and marking are
//! the caller's, who knows the headers. Settings in words, for flags and files, are in [`Spec`].
//!
//! Decisions are final: a change of settings holds for later packets.

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
