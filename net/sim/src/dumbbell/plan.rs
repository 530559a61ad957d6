//! Settings of a dumbbell and of its flows.

use std::time::Duration;

use sched::{Policy, Said};
use sctp::AssociationConfig;

/// A bottleneck and its flows.
#[derive(Clone, Debug)]
pub struct Dumbbell {
    /// Bits per second of the bottleneck.
    pub rate: u64,
    /// Bytes that may pass the bottleneck at once after a pause: a token bucket; 0: a plain link.
    pub burst: usize,
    /// Policy of the router before it.
    pub policy: Policy,
    /// Settings of both ends of all associations.
    pub association: AssociationConfig,
    /// The flows.
    pub flows: Vec<FlowPlan>,
    /// From when to when all flows are measured together.
    pub window: (Duration, Duration),
    /// Interval at which the senders' buffers are sampled; `None`: never.
    pub sampling: Option<Duration>,
    /// Time at which it ends, whatever is unfinished.
    pub limit: Duration,
    /// Of all chance in it.
    pub seed: u64,
}

/// Plan of one flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowPlan {
    /// Time at which it begins its association.
    pub start: Duration,
    /// Its round trip without queues.
    pub round_trip: Duration,
    /// Its load.
    pub load: Load,
    /// The advertisement that the router reads in place of the real one, where the flow sends advertisements.
    pub lie: Option<Said>,
}

/// Load of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// As much as it can, for so long from when it is set up.
    Bulk {
        /// Duration.
        lasting: Duration,
        /// Bytes that the program hands over at once; 0: as soon as there is room, as much as there is.
        write: usize,
        /// Bytes not acknowledged yet at which the program can write again.
        low: usize,
    },
    /// So many bytes, then the end.
    File(u64),
    /// A message every now and then.
    Messages {
        /// Bytes of each, as many as fit into one packet at most.
        length: usize,
        /// Pause.
        every: Duration,
        /// Time at which the last is sent.
        until: Duration,
    },
}
