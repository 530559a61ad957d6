//! Results of a dumbbell.

use std::time::Duration;

use base::Time;
use sched::Counters;

/// Results of all flows.
#[derive(Clone, Debug, Default)]
pub struct DumbbellReport {
    /// The flows, in the order of their plans.
    pub flows: Vec<FlowReport>,
    /// Counters of the router.
    pub queue: Counters,
    /// Senders' packets that contained an advertisement on arrival at the router.
    pub advertisements: u64,
    /// Packets of both directions.
    pub packets: u64,
    /// Time at which the run ended.
    pub ended: Time,
}

/// Result of one flow.
#[derive(Clone, Debug, Default)]
pub struct FlowReport {
    /// Time at which the association was established at the sender.
    pub established: Option<Time>,
    /// Time at which the receiver had all bytes of a file; `None` for other loads.
    pub finished: Option<Time>,
    /// User bytes received in all, without duplicates.
    pub received: u64,
    /// User bytes received in the flow's own time: the duration of a bulk load, from the set-up on.
    pub in_own_time: u64,
    /// User bytes that the program handed over.
    pub handed_over: u64,
    /// User bytes received in the common window.
    pub in_window: u64,
    /// DATA chunks received, without duplicates.
    pub data: u64,
    /// DATA chunks received more than once.
    pub duplicates: u64,
    /// DATA chunks sent again.
    pub retransmitted: u64,
    /// Expiries of T3.
    pub timeouts: u64,
    /// Longest time in which the receiver read nothing, from the set-up on.
    pub longest_pause: Duration,
    /// Delays of messages from program to program, in the order of arrival.
    pub latencies: Vec<Duration>,
    /// Samples of the send buffer, at the requested interval.
    pub samples: Vec<Sample>,
}

/// A sender's buffer and windows at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Time of the sample.
    pub at: Time,
    /// User bytes that were handed over and are not yet acknowledged.
    pub buffered: usize,
    /// Congestion window in bytes.
    pub cwnd: usize,
    /// The receiver's window beyond the data in flight, in bytes.
    pub peer_rwnd: usize,
}
