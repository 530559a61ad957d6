//! A dumbbell in virtual time: many associations between two real engines share one bottleneck. The bottleneck's queue is a
//! policy of `sched`.
//!
//! [`World`](crate::World) supports any experiment with a few associations. A dumbbell supports one topology with thousands of
//! associations: its work per packet does not grow with the number of flows. The senders' packets wait in the queue, and pass
//! the link at the link's rate. The opposite direction has no queue and no limit on the rate. Each flow has its own round trip.
//! The same settings give the same run, bit for bit.
//!
//! The model leaves out the hosts' own links and processors, losses outside the queue, and IP fragments. Begin at [`Dumbbell`]
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
