//! Settings of the kernel's sender, and of the links that its packets pass.

use std::time::Duration;

use sched::Policy;

/// Both ends of an association.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelConfig {
    /// User bytes of a full DATA chunk.
    pub payload: usize,
    /// Bytes of a packet's headers, from the IP header on, with the advertisement.
    pub header: usize,
    /// Bytes by which the congestion window counts.
    pub mtu: usize,
    /// Bytes of the first congestion window.
    pub first_window: usize,
    /// Bytes that the receiver announces: half of its buffer.
    pub receive_window: usize,
    /// Packets beyond what is in flight that may leave at once; 0: any number.
    pub burst: usize,
    /// T3 before the first round trip was measured.
    pub rto_initial: Duration,
    /// The least T3.
    pub rto_min: Duration,
    /// The greatest T3.
    pub rto_max: Duration,
    /// Delay of a SACK that waits for a second packet.
    pub sack_delay: Duration,
    /// Packets after which a SACK leaves at once.
    pub sack_every: u32,
    /// Bytes that the program writes at once.
    pub write: usize,
    /// Bytes not acknowledged at which it can write again.
    pub low: usize,
}

impl KernelConfig {
    /// Linux 4.6 as it comes, with the 2016 report's writes of 128 KiB into a buffer of 212,992 bytes.
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

/// The topology of all flows: a link of its own for each, then the router.
#[derive(Clone, PartialEq, Debug)]
pub struct Bottleneck {
    /// Bits per second of each host's own link.
    pub host_rate: u64,
    /// Bits per second behind the queue.
    pub rate: u64,
    /// Bytes that may pass at once after a pause: a token bucket; 0: a plain link.
    pub burst: usize,
    /// The queue.
    pub policy: Policy,
    /// The round trip without queues.
    pub round_trip: Duration,
    /// By how much a packet may come later to the queue than it would, by chance; packets of a flow keep their order.
    pub jitter: Duration,
}
