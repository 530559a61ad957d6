//! Settings of the kernel's ends, and of the links between them.

use std::time::Duration;

use sched::Policy;

/// Settings of both ends of an association.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelConfig {
    /// User bytes of a full DATA chunk.
    pub payload: usize,
    /// Bytes of a packet's headers and advertisement, from the IP header on.
    pub header: usize,
    /// Path MTU in bytes, the unit of the congestion window's growth.
    pub mtu: usize,
    /// First congestion window, in bytes.
    pub first_window: usize,
    /// Window that the receiver advertises, in bytes: half of its buffer.
    pub receive_window: usize,
    /// Limit on the packets that one burst may add to the packets in flight; 0 means no limit.
    pub burst: usize,
    /// T3 before the first round trip is measured.
    pub rto_initial: Duration,
    /// Minimum of T3.
    pub rto_min: Duration,
    /// Maximum of T3.
    pub rto_max: Duration,
    /// Delay of a SACK that waits for a second packet.
    pub sack_delay: Duration,
    /// Number of packets after which a SACK leaves immediately.
    pub sack_every: u32,
    /// Bytes that the program hands over in one write.
    pub write: usize,
    /// Number of unacknowledged bytes at or below which the program can write again.
    pub low: usize,
}

impl KernelConfig {
    /// Returns the defaults of Linux 4.6, with the 2016 report's writes of 128 KiB into a buffer of 212,992 bytes.
    pub fn linux_4_6() -> KernelConfig {
        KernelConfig {
            payload: 1448,
            header: 52,
            mtu: 1500,
            first_window: 4380,
            receive_window: 106_496,
            burst: 4,
            rto_initial: Duration::from_secs(3),
            rto_min: Duration::from_secs(1),
            rto_max: Duration::from_secs(60),
            sack_delay: Duration::from_millis(200),
            sack_every: 2,
            write: 131_072,
            low: 60_235,
        }
    }
}

/// Topology of all flows: a separate link for each flow, then the router.
#[derive(Clone, PartialEq, Debug)]
pub struct Bottleneck {
    /// Rate of each host's own link, in bits per second.
    pub host_rate: u64,
    /// Rate of the link behind the queue, in bits per second.
    pub rate: u64,
    /// Bytes that may pass in one burst after a pause (a token bucket). With 0, the bottleneck is a plain link.
    pub burst: usize,
    /// Policy of the queue.
    pub policy: Policy,
    /// Round trip without queueing.
    pub round_trip: Duration,
    /// Greatest random delay of a packet before the queue. Packets of a flow keep their order.
    pub jitter: Duration,
}
