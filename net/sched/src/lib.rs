//! Queueing policies: each policy selects the packet that a router sends next, and the packets that it drops.
//!
//! A [`Queue`] takes packets and returns them in its own order. It reads only a packet's [`View`]. The view has the packet's
//! flow, the sender's advertisement of its send buffer, and whether the packet counts as data. [`Policy`] has a variant for each
//! queue:
//! - FIFO, SFQ and fq_codel as in Linux.
//! - The classes of the 2016 send-buffer project.
//! - [`Served`], which remembers the past service of each flow. It can prefer flows that have little left to send.
//!
//! [`Pace`] is the rate of the link, or of a token bucket before it. Nothing here sends packets or reads a clock. Advertisements
//! are not trusted: each advertisement affects only its own flow, within bounds that [`Served`] documents. Every queue and table
//! has a limit. Begin at [`Policy::queue`].

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
