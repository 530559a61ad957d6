//! Settings of one direction of a link.

use std::time::Duration;

/// Settings of one direction of a link. Lengths are lengths of IP packets.
#[derive(Clone, PartialEq, Debug)]
pub struct DirectionConfig {
    /// Rate in bits per second; 0 means unlimited.
    pub rate: u64,
    /// Bytes that may pass in one burst after a pause (a token bucket). With 0, the rate applies from the first packet on.
    pub burst: usize,
    /// Bytes that each packet occupies on the wire in addition to the IP packet.
    pub overhead: usize,
    /// One-way delay.
    pub delay: Duration,
    /// Variation of the delay: the greatest deviation for [`Distribution::Uniform`], else the standard deviation.
    pub jitter: Duration,
    /// Distribution of the delay.
    pub distribution: Distribution,
    /// Correlation of the delays of consecutive packets, from 0 to below 1.
    pub correlation: f64,
    /// True if packets keep their order although the delay varies. Otherwise a packet may overtake another.
    pub keep_order: bool,
    /// Limit on the bytes in the queue, including the packet on the wire. A packet beyond the limit is dropped (tail drop).
    pub queue_bytes: usize,
    /// Limit on the packets in the queue, including the packet on the wire.
    pub queue_packets: usize,
    /// Random loss.
    pub loss: Loss,
    /// Place of random loss.
    pub loss_place: LossPlace,
    /// Probability that a packet is delayed further, by up to [`reorder_by`](Self::reorder_by).
    pub reorder: f64,
    /// Greatest extra delay of a reordered packet.
    pub reorder_by: Duration,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Longest IP packet, in bytes.
    pub mtu: usize,
    /// Queue length in bytes above which an ECN-capable packet is marked CE (RFC 3168); `None` means never.
    pub mark_above: Option<usize>,
    /// True if the link clears the ECN bits of all packets.
    pub bleaches: bool,
    /// True if the link drops ECN-capable packets.
    pub drops_ect: bool,
    /// True if ICMP answers a packet that was dropped because of the MTU.
    pub reports_mtu: bool,
    /// True if the direction passes no packets.
    pub cut: bool,
}

impl DirectionConfig {
    /// Settings that pass every packet unchanged and without delay.
    pub const TRANSPARENT: DirectionConfig = DirectionConfig {
        rate: 0,
        burst: 0,
        overhead: 0,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        distribution: Distribution::Uniform,
        correlation: 0.0,
        keep_order: false,
        queue_bytes: usize::MAX,
        queue_packets: 1000,
        loss: Loss::None,
        loss_place: LossPlace::BeforeQueue,
        reorder: 0.0,
        reorder_by: Duration::ZERO,
        duplicate: 0.0,
        corrupt: 0.0,
        mtu: usize::MAX,
        mark_above: None,
        bleaches: false,
        drops_ect: false,
        reports_mtu: true,
        cut: false,
    };
}

impl Default for DirectionConfig {
    /// Returns a direction of 100 Mbit/s and 10 ms, with a queue of 256 KiB, an MTU of 1500 bytes, and no faults. Random loss, if
    /// it is set later, happens on the wire.
    fn default() -> Self {
        DirectionConfig {
            rate: 100_000_000,
            delay: Duration::from_millis(10),
            queue_bytes: 256 * 1024,
            loss_place: LossPlace::OnTheWire,
            mtu: 1500,
            ..DirectionConfig::TRANSPARENT
        }
    }
}

/// Random loss.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Loss {
    /// No loss.
    None,
    /// Loss of each packet with this probability.
    Uniform(f64),
    /// Bursts, which begin and end with these probabilities per packet. All packets of a burst are lost.
    Bursts {
        /// Probability that a burst begins.
        begin: f64,
        /// Probability that a burst ends.
        end: f64,
    },
    /// Gilbert-Elliott model: bad times begin and end with these probabilities per packet. Packets are lost with one probability
    /// in bad times, and with another probability in good times.
    GilbertElliott {
        /// Probability that a bad time begins.
        begin: f64,
        /// Probability that a bad time ends.
        end: f64,
        /// Probability that a packet is lost in a bad time.
        bad: f64,
        /// Probability that a packet is lost in a good time.
        good: f64,
    },
}

/// Places of random loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossPlace {
    /// Before the queue: a lost packet uses no time of the link, as in Linux netem and Dummynet.
    BeforeQueue,
    /// On the wire: a lost packet has waited in the queue and used transmission time, as on a radio link.
    OnTheWire,
}

/// Distribution of the delay around its mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Uniform: all values within the jitter are equally likely.
    Uniform,
    /// Normal distribution.
    Normal,
    /// Pareto distribution with shape 3, cut off at about 10 standard deviations above the mean, and shifted to mean 0. Most
    /// packets arrive a little early, and a few arrive very late.
    Pareto,
}
