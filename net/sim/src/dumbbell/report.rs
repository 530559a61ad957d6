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
    /// Packets of senders that carried an advertisement, as the router saw them.
    pub advertisements: u64,
    /// Packets of both directions.
    pub packets: u64,
    /// Time at which it was over.
    pub ended: Time,
}

/// Result of one flow.
#[derive(Clone, Debug, Default)]
pub struct FlowReport {
    /// Time at which its sender's side was set up.
    pub established: Option<Time>,
    /// Time at which its receiver had everything that the flow was to send; never for a bulk.
    pub finished: Option<Time>,
    /// User bytes received in all, without duplicates.
    pub received: u64,
    /// Those received in its own time, from set-up on as long as it lasts.
    pub in_own_time: u64,
    /// User bytes that its program handed over, until it ended them.
    pub handed_over: u64,
    /// Those received in the common window.
    pub in_window: u64,
    /// DATA chunks received, and those received more than once.
    pub data: u64,
    /// Duplicates among DATA chunks received.
    pub duplicates: u64,
    /// DATA chunks sent again.
    pub retransmitted: u64,
    /// T3 timeouts.
    pub timeouts: u64,
    /// The longest time in which its receiver read nothing, from its set-up on.
    pub longest_pause: Duration,
    /// Delays of its messages from program to program, in the order of their arrival.
    pub latencies: Vec<Duration>,
    /// Its send buffer, as often as was asked for.
    pub samples: Vec<Sample>,
}

/// A sender's buffer and windows at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// User bytes handed over and not acknowledged.
    pub buffered: usize,
    /// Congestion window in bytes.
    pub cwnd: usize,
    /// The receiver's window beyond the data in flight, in bytes.
    pub peer_rwnd: usize,
}
