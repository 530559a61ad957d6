//! A dumbbell in virtual time: many associations of two real engines through one bottleneck, whose queue is a policy of `sched`.
//!
//! Beside [`World`](crate::World), which can do anything to a few associations, this does one thing to thousands: its work for a packet
//! does not grow with the number of flows. Packets of senders wait in the queue and pass the link at its rate; the way
//! back is not limited; each flow has a round trip of its own. The same settings give the same run, bit for bit.
//!
//! It leaves out the hosts' own links and processors, loss other than the queue's, and IP fragments. Begin at [`Dumbbell`]
//! and [`run`].

mod flow;
mod plan;
mod report;
mod run;

pub use plan::{Dumbbell, FlowPlan, Load};
pub use report::{DumbbellReport, FlowReport, Sample};
pub use run::run;

#[cfg(test)]
mod tests;
