//! One link: two directions, each with a queue, a rate, a delay, and faults.
//!
//! A link decides when a packet arrives, how often, and whether damaged; it never holds packets. Begin at
//! [`Link::offer`].

use std::time::Duration;

use base::{Ecn, Time};
use rand::RngExt;
use rand_chacha::ChaCha12Rng;

/// What a link is like, the same both ways.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Bits per second; 0 is infinitely fast.
    pub rate: u64,
    /// One-way delay.
    pub delay: Duration,
    /// Bytes that may wait for the wire; what comes on top is dropped (tail drop).
    pub queue_bytes: usize,
    /// Packets that may wait for the wire.
    pub queue_packets: usize,
    /// Random loss.
    pub loss: Loss,
    /// Probability that a packet is late by up to [`reorder_by`](Self::reorder_by).
    pub reorder: f64,
    /// How late a reordered packet may be.
    pub reorder_by: Duration,
    /// Probability that a packet comes twice.
    pub duplicate: f64,
    /// Probability that a bit of a packet is flipped.
    pub corrupt: f64,
    /// Longest IP packet, in bytes.
    pub mtu: usize,
    /// Bytes in the queue from which on an ECN-capable packet is marked CE (RFC 3168); `None`: never.
    pub mark_above: Option<usize>,
    /// Whether the link takes the ECN bits off all packets.
    pub bleaches: bool,
    /// Whether the link drops packets that are ECN-capable.
    pub drops_ect: bool,
    /// Whether a packet too long is answered by ICMP; if not, it vanishes.
    pub reports_mtu: bool,
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            rate: 100_000_000,
            delay: Duration::from_millis(10),
            queue_bytes: 256 * 1024,
            queue_packets: 1000,
            loss: Loss::None,
            reorder: 0.0,
            reorder_by: Duration::ZERO,
            duplicate: 0.0,
            corrupt: 0.0,
            mtu: 1500,
            mark_above: None,
            bleaches: false,
            drops_ect: false,
            reports_mtu: true,
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
}

/// A direction of a link, by the order in which [`World::join`](crate::World::join) was told the addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// From the first address to the second.
    Forward,
    /// From the second address to the first.
    Backward,
}

/// What a link counts, both ways together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Packets that went in.
    pub offered: u64,
    /// Packets lost: by chance, by a full queue, by a cut, or for their length.
    pub lost: u64,
    /// Packets that were damaged.
    pub corrupted: u64,
    /// Packets that came twice.
    pub duplicated: u64,
    /// Packets marked CE.
    pub marked: u64,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    cut: bool,
    /// The longest IP packet this way, if that is another than the link's.
    mtu: Option<usize>,
    in_burst: bool,
    /// When the wire is free.
    free_at: Time,
    /// Last bits on the wire, and lengths, of the packets that wait.
    waiting: std::collections::VecDeque<(Time, usize)>,
    waiting_bytes: usize,
}

/// A link between addresses.
#[derive(Clone, Debug)]
pub struct Link {
    /// What it is like; may be changed while it runs.
    pub config: LinkConfig,
    /// What it counted.
    pub counters: LinkCounters,
    lanes: [Lane; 2],
}

/// One arrival of a packet; `flip` is the bit to be flipped, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Time,
    pub(crate) ecn: Ecn,
    pub(crate) flip: Option<usize>,
}

impl Link {
    pub(crate) fn new(config: LinkConfig) -> Link {
        Link { config, counters: LinkCounters::default(), lanes: [Lane::default(), Lane::default()] }
    }

    pub(crate) fn set_cut(&mut self, direction: Direction, cut: bool) {
        self.lanes[direction as usize].cut = cut;
    }

    pub(crate) fn set_mtu(&mut self, direction: Direction, mtu: usize) {
        self.lanes[direction as usize].mtu = Some(mtu);
    }

    /// The longest IP packet that goes this way, in bytes.
    pub fn mtu(&self, direction: Direction) -> usize {
        self.lanes[direction as usize].mtu.unwrap_or(self.config.mtu)
    }

    /// Whether this direction is cut.
    pub fn is_cut(&self, direction: Direction) -> bool {
        self.lanes[direction as usize].cut
    }

    /// A packet of `length` bytes goes in: when it comes out, how often, and how marked.
    pub(crate) fn offer(
        &mut self,
        now: Time,
        direction: Direction,
        length: usize,
        ecn: Ecn,
        rng: &mut ChaCha12Rng,
    ) -> Vec<Arrival> {
        self.counters.offered += 1;
        let lane = &mut self.lanes[direction as usize];
        let is_capable = ecn != Ecn::NotEct;
        let lost_by_chance = lane.loses(self.config.loss, rng) || (is_capable && self.config.drops_ect);
        let sent = lane.enqueue(now, length, &self.config);
        let (Some(sent), false, false) = (sent, lane.cut, lost_by_chance) else {
            self.counters.lost += 1;
            return Vec::new();
        };
        let is_long =
            self.config.mark_above.is_some_and(|most| self.lanes[direction as usize].waiting_bytes > most);
        let ecn = match ecn {
            _ if self.config.bleaches => Ecn::NotEct,
            Ecn::Ect0 | Ecn::Ect1 if is_long => Ecn::Ce,
            other => other,
        };
        self.counters.marked += u64::from(ecn == Ecn::Ce);
        let copies = 1 + usize::from(chance(self.config.duplicate, rng));
        self.counters.duplicated += copies as u64 - 1;
        (0..copies).map(|_| self.arrival(sent, length, ecn, rng)).collect()
    }

    fn arrival(&mut self, sent: Time, length: usize, ecn: Ecn, rng: &mut ChaCha12Rng) -> Arrival {
        let mut at = sent + self.config.delay;
        if chance(self.config.reorder, rng) {
            at += self.config.reorder_by.mul_f64(rng.random::<f64>());
        }
        let flip = chance(self.config.corrupt, rng).then(|| rng.random_range(0..length * 8));
        self.counters.corrupted += u64::from(flip.is_some());
        Arrival { at, ecn, flip }
    }
}

impl Lane {
    fn loses(&mut self, loss: Loss, rng: &mut ChaCha12Rng) -> bool {
        match loss {
            Loss::None => false,
            Loss::Uniform(p) => chance(p, rng),
            Loss::Bursts { begin, end } => {
                let turns = chance(if self.in_burst { end } else { begin }, rng);
                self.in_burst ^= turns;
                self.in_burst
            }
        }
    }

    /// When the last bit is on the wire; `None` if the queue is full.
    fn enqueue(&mut self, now: Time, length: usize, config: &LinkConfig) -> Option<Time> {
        while let Some(&(_, length)) = self.waiting.front().filter(|w| w.0 <= now) {
            self.waiting_bytes -= length;
            self.waiting.pop_front();
        }
        if config.rate == 0 {
            return Some(now);
        }
        if self.waiting.len() >= config.queue_packets || self.waiting_bytes + length > config.queue_bytes {
            return None;
        }
        let nanos = length as u64 * 8 * 1_000_000_000 / config.rate;
        self.free_at = self.free_at.max(now) + Duration::from_nanos(nanos);
        self.waiting.push_back((self.free_at, length));
        self.waiting_bytes += length;
        Some(self.free_at)
    }
}

/// True with probability `p`; draws no number if that is zero.
fn chance(p: f64, rng: &mut ChaCha12Rng) -> bool {
    p > 0.0 && rng.random::<f64>() < p
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    fn offer(link: &mut Link, now: Time, rng: &mut ChaCha12Rng) -> Vec<Time> {
        link.offer(now, Direction::Forward, 1250, Ecn::NotEct, rng).into_iter().map(|a| a.at).collect()
    }

    #[test]
    fn packets_leave_at_the_rate_and_arrive_after_the_delay_and_a_full_queue_drops() {
        let mut rng = ChaCha12Rng::from_seed([1; 32]);
        // 1,250 bytes at 10 Mbit/s take one millisecond.
        let mut link = Link::new(LinkConfig { rate: 10_000_000, queue_packets: 2, ..LinkConfig::default() });
        assert_eq!(offer(&mut link, Time::ZERO, &mut rng), [Time::from_millis(11)]);
        assert_eq!(offer(&mut link, Time::ZERO, &mut rng), [Time::from_millis(12)]);
        assert_eq!(offer(&mut link, Time::ZERO, &mut rng), []);
        assert_eq!(offer(&mut link, Time::from_millis(1), &mut rng), [Time::from_millis(13)]);
        assert_eq!(link.counters.lost, 1);
    }

    #[test]
    fn a_cut_holds_one_way() {
        let mut rng = ChaCha12Rng::from_seed([1; 32]);
        let mut link = Link::new(LinkConfig::default());
        link.set_cut(Direction::Forward, true);
        assert!(link.offer(Time::ZERO, Direction::Forward, 100, Ecn::NotEct, &mut rng).is_empty());
        assert_eq!(link.offer(Time::ZERO, Direction::Backward, 100, Ecn::NotEct, &mut rng).len(), 1);
    }

    #[test]
    fn loss_comes_as_often_as_asked() {
        let mut rng = ChaCha12Rng::from_seed([1; 32]);
        for loss in [Loss::Uniform(0.1), Loss::Bursts { begin: 1.0 / 45.0, end: 0.2 }] {
            let mut link = Link::new(LinkConfig { rate: 0, loss, ..LinkConfig::default() });
            for _ in 0..10_000 {
                link.offer(Time::ZERO, Direction::Forward, 100, Ecn::NotEct, &mut rng);
            }
            assert!((800..1200).contains(&link.counters.lost), "{loss:?} lost {}", link.counters.lost);
        }
    }
}
