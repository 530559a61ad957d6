//! Queueing policies: which packet a router sends next, and which it drops.
//!
//! A [`Queue`] takes packets and gives them back in its order. It decides by a packet's [`View`]: its flow, whether it
//! has DATA, and what the sender advertises of its send buffer. [`Policy`] names them all: FIFO, SFQ and fq_codel as Linux
//! has them, the classes of the 2016 send-buffer project, and [`Served`], which remembers what each flow was given and can
//! let those finish that have little left. [`Pace`] is the link, or a token bucket before it.
//!
//! Nothing here sends, reads a clock, or trusts what it is told: an advertisement moves its own flow only, within bounds
//! that [`Served`] names. Every queue and table has a limit. Begin at [`Policy::queue`].

#![forbid(unsafe_code)]

mod classes;
mod codel;
mod fifo;
mod flows;
mod fq_codel;
mod hash;
mod pace;
mod packet;
mod policy;
mod queue;
mod served;
mod sfq;

pub use classes::{Classes, Classifier};
pub use fifo::Fifo;
pub use fq_codel::{FqCodel, FqCodelConfig};
pub use pace::Pace;
pub use packet::{Flow, Packet, Said, View};
pub use policy::Policy;
pub use queue::{Backlog, Counters, Queue};
pub use served::{Favour, Finish, Served, ServedConfig};
pub use sfq::{Sfq, SfqConfig};

#[cfg(test)]
mod tests;
