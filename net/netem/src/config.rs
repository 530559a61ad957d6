//! Settings of one direction of a link.

use std::time::Duration;

/// Settings of one direction of a link. Lengths are those of the IP packet.
#[derive(Clone, PartialEq, Debug)]
pub struct DirectionConfig {
    /// Bits per second; 0 is infinitely fast.
    pub rate: u64,
    /// Bytes that may pass at once after a pause (a token bucket); 0: packets follow each other at the rate from the first on.
    pub burst: usize,
    /// Bytes that each packet takes on the wire besides its own.
    pub overhead: usize,
    /// One-way delay.
    pub delay: Duration,
    /// By how much the delay varies: half the width for [`Distribution::Uniform`], else the standard deviation.
    pub jitter: Duration,
    /// Distribution of the delay.
    pub distribution: Distribution,
    /// Correlation of the delays of two packets in a row: 0 to 1, exclusive.
    pub correlation: f64,
    /// True if packets keep their order although the delay varies. Otherwise a packet may overtake another.
    pub keep_order: bool,
    /// Bytes that may wait for the wire; what comes on top is dropped (tail drop).
    pub queue_bytes: usize,
    /// Packets that may wait for the wire.
    pub queue_packets: usize,
    /// Random loss.
    pub loss: Loss,
    /// Place of random loss.
    pub loss_place: LossPlace,
    /// Probability that a packet is late by up to [`reorder_by`](Self::reorder_by).
    pub reorder: f64,
    /// Greatest delay of a reordered packet.
    pub reorder_by: Duration,
    /// Probability that a packet comes twice.
    pub duplicate: f64,
    /// Probability that a bit of a packet is flipped.
    pub corrupt: f64,
    /// Longest IP packet, in bytes.
    pub mtu: usize,
    /// Bytes in the queue from which on an ECN-capable packet is marked CE (RFC 3168); `None`: never.
    pub mark_above: Option<usize>,
    /// True if the link clears the ECN bits of all packets.
    pub bleaches: bool,
    /// True if the link drops ECN-capable packets.
    pub drops_ect: bool,
    /// True if a packet that is too long is answered by ICMP. Otherwise it is dropped without a sign.
    pub reports_mtu: bool,
    /// True if nothing passes.
    pub cut: bool,
}

impl DirectionConfig {
    /// Packets pass at once and whole.
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
    /// 100 Mbit/s, 10 ms, room for 256 KiB, no faults; what loss is set happens on the wire.
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
    /// None.
    None,
    /// Each packet with this probability.
    Uniform(f64),
    /// In bursts: a burst begins and ends with these probabilities per packet, and loses all within.
    Bursts {
        /// Probability that a burst begins.
        begin: f64,
        /// Probability that a burst ends.
        end: f64,
    },
    /// Gilbert and Elliott's: bad times begin and end with these probabilities per packet; packets are lost with one
    /// probability in bad times and with another in good ones.
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
    /// Before the queue: a lost packet takes no time of the link, as with the Linux kernel's netem and Dummynet.
    BeforeQueue,
    /// On the wire: a lost packet has waited and used the link, as on a radio link.
    OnTheWire,
}

/// Distribution of the delay about its mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Any value within the jitter is as likely as any other.
    Uniform,
    /// The bell curve.
    Normal,
    /// Pareto's with shape 3, cut at 10 standard deviations and moved to mean 0: mostly a bit early, sometimes very late.
    Pareto,
}
