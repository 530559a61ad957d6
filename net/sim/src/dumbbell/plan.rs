//! Settings of a dumbbell and of its flows.

use std::time::Duration;

use sched::{Policy, Said};
use sctp::AssociationConfig;

/// A bottleneck and its flows.
#[derive(Clone, Debug)]
pub struct Dumbbell {
    /// Rate of the bottleneck, in bits per second.
    pub rate: u64,
    /// Bytes that may pass the bottleneck in one burst after a pause (a token bucket). With 0, the bottleneck is a plain link.
    pub burst: usize,
    /// Queueing policy of the router at the bottleneck.
    pub policy: Policy,
    /// Settings of both ends of each association.
    pub association: AssociationConfig,
    /// The flows.
    pub flows: Vec<FlowPlan>,
    /// Begin and end of the common window, in which all flows are measured together.
    pub window: (Duration, Duration),
    /// Interval at which the senders' buffers are sampled; `None`: never.
    pub sampling: Option<Duration>,
    /// Time at which the run ends, even if flows are unfinished.
    pub limit: Duration,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Plan of one flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowPlan {
    /// Time at which the sender opens the association.
    pub start: Duration,
    /// Round trip without queueing.
    pub round_trip: Duration,
    /// Load of the flow.
    pub load: Load,
    /// False advertisement that the router reads in place of each real one. It has no effect on a flow that does not advertise.
    pub lie: Option<Said>,
}

/// Load of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// As much data as possible, for a duration that begins when the association is established.
    Bulk {
        /// Duration of the load.
        lasting: Duration,
        /// Bytes that the program hands over in one write. With 0, the program fills the buffer whenever there is room.
        write: usize,
        /// Number of unacknowledged bytes at or below which the program can write again.
        low: usize,
    },
    /// A file of this many bytes.
    File(u64),
    /// Messages at a fixed interval.
    Messages {
        /// Length of a message in bytes. A message must fit into one packet.
        length: usize,
        /// Interval between two messages.
        every: Duration,
        /// Time of the run after which no message is sent.
        until: Duration,
    },
}
