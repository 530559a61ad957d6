//! Decides the fate of each packet. The steps are: loss before the queue, queue and rate, cut, loss on the wire, ECN drop or ECN
//! mark, copies, delay, damage.
//!
//! A direction holds no packets. It stores only the times at which the queued packets leave. Invariant: without jitter,
//! reordering and changes of settings, packets arrive in the order in which they were offered. Begin at [`LinkDirection::offer`].

use std::collections::VecDeque;
use std::time::Duration;

use base::{Ecn, Time};
use rand::RngExt;

use crate::chance::{Wander, Weather, chance};
use crate::config::{DirectionConfig, LossPlace};
use crate::counters::Counters;

/// State of one direction of a link: its queue, and its random processes.
#[derive(Clone, Debug, Default)]
pub struct LinkDirection {
    weather: Weather,
    wander: Wander,
    /// Time at which the wire is free. If the bucket has tokens, this time lies in the past.
    free_at: Time,
    /// Packets in the queue: the time at which a packet's last bit is on the wire, and its length in bytes.
    waiting: VecDeque<(Time, usize)>,
    waiting_bytes: usize,
    /// Latest arrival so far, recorded if the setting `keep_order` is true. Later packets do not arrive before this time, except
    /// packets that the setting `reorder` delays.
    latest: Time,
}

/// Fate of a packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fate {
    /// The packet arrives.
    Passes(Passage),
    /// The packet does not arrive.
    Lost(LossCause),
}

/// Cause of a packet's loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossCause {
    /// Random loss.
    Chance,
    /// The queue was full.
    Queue,
    /// The link was cut.
    Cut,
    /// The packet was longer than the MTU.
    Length,
    /// The packet was ECN-capable, and the link drops such packets.
    Ecn,
    /// The line had no room for the packet ([`HELD_BYTES_MAX`](crate::HELD_BYTES_MAX)).
    Room,
}

/// Passage of a packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Passage {
    /// Arrival of the packet.
    pub first: Arrival,
    /// Arrival of the packet's copy.
    pub copy: Option<Arrival>,
    /// ECN codepoint of the packet after this direction.
    pub ecn: Ecn,
}

impl Passage {
    /// Returns the arrivals of the packet and of its copy.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival> + use<> {
        [Some(self.first), self.copy].into_iter().flatten()
    }
}

/// One arrival of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Time of the arrival.
    pub at: Time,
    /// Bit to flip, counted from the first bit of the IP packet.
    pub flip: Option<usize>,
}

impl LinkDirection {
    /// Decides the fate of a packet of `length` bytes, counted from the IP header on.
    ///
    /// `now` must never go back. The length is not compared with the MTU. The caller decides what happens to a packet that is too
    /// long: loss ([`LossCause::Length`]) or fragments.
    pub fn offer(
        &mut self,
        now: Time,
        config: &DirectionConfig,
        length: usize,
        ecn: Ecn,
        rng: &mut impl RngExt,
        counters: &mut Counters,
    ) -> Fate {
        counters.on_offered(length);
        let sent = match self.sent(now, config, length, ecn, rng) {
            Ok(sent) => sent,
            Err(cause) => {
                counters.on_lost(cause);
                return Fate::Lost(cause);
            }
        };
        counters.passed += 1;
        counters.passed_bytes += length as u64;
        let ecn = self.mark(config, ecn);
        counters.marked += u64::from(ecn == Ecn::Ce);
        let is_copied = chance(config.duplicate, rng);
        counters.duplicated += u64::from(is_copied);
        let first = self.arrival(sent, config, length, rng, counters);
        let copy = is_copied.then(|| self.arrival(sent, config, length, rng, counters));
        Fate::Passes(Passage { first, copy, ecn })
    }

    /// Returns the time at which the packet's last bit is on the wire, or the cause of the packet's loss.
    fn sent(
        &mut self,
        now: Time,
        config: &DirectionConfig,
        length: usize,
        ecn: Ecn,
        rng: &mut impl RngExt,
    ) -> Result<Time, LossCause> {
        let is_lost = self.weather.loses(config.loss, rng);
        if is_lost && config.loss_place == LossPlace::BeforeQueue {
            return Err(LossCause::Chance);
        }
        let sent = self.enqueue(now, length, config).ok_or(LossCause::Queue)?;
        match () {
            () if config.cut => Err(LossCause::Cut),
            () if is_lost => Err(LossCause::Chance),
            () if config.drops_ect && ecn != Ecn::NotEct => Err(LossCause::Ecn),
            () => Ok(sent),
        }
    }

    /// Returns the time at which the packet's last bit is on the wire; `None` if the queue is full.
    fn enqueue(&mut self, now: Time, length: usize, config: &DirectionConfig) -> Option<Time> {
        self.forget_sent(now);
        if config.rate == 0 {
            return Some(now);
        }
        if self.waiting.len() >= config.queue_packets
            || self.waiting_bytes.saturating_add(length) > config.queue_bytes
        {
            return None;
        }
        let credit = wire_time(config.burst, config.rate);
        let earliest = Time::ZERO + now.since(Time::ZERO).saturating_sub(credit);
        self.free_at = self.free_at.max(earliest) + wire_time(length + config.overhead, config.rate);
        let sent = self.free_at.max(now);
        self.waiting.push_back((sent, length));
        self.waiting_bytes += length;
        Some(sent)
    }

    fn forget_sent(&mut self, now: Time) {
        while let Some(&(_, length)) = self.waiting.front().filter(|waiting| waiting.0 <= now) {
            self.waiting_bytes -= length;
            self.waiting.pop_front();
        }
    }

    /// Returns the numbers of packets and bytes in the queue, including the packet on the wire.
    pub fn queue(&mut self, now: Time) -> (usize, usize) {
        self.forget_sent(now);
        (self.waiting.len(), self.waiting_bytes)
    }

    fn mark(&self, config: &DirectionConfig, ecn: Ecn) -> Ecn {
        let is_long = config.mark_above.is_some_and(|most| self.waiting_bytes > most);
        match ecn {
            _ if config.bleaches => Ecn::NotEct,
            Ecn::Ect0 | Ecn::Ect1 if is_long => Ecn::Ce,
            other => other,
        }
    }

    fn arrival(
        &mut self,
        sent: Time,
        config: &DirectionConfig,
        length: usize,
        rng: &mut impl RngExt,
        counters: &mut Counters,
    ) -> Arrival {
        let mut at = sent + self.delay(config, rng);
        if chance(config.reorder, rng) {
            at += config.reorder_by.mul_f64(rng.random::<f64>());
            counters.reordered += 1;
        } else if config.keep_order {
            at = at.max(self.latest);
            self.latest = at;
        }
        let flip = chance(config.corrupt, rng).then(|| rng.random_range(0..length.max(1) * 8));
        counters.corrupted += u64::from(flip.is_some());
        Arrival { at, flip }
    }

    /// Returns the delay of one packet. Draws a random number only if the delay varies.
    fn delay(&mut self, config: &DirectionConfig, rng: &mut impl RngExt) -> Duration {
        if config.jitter.is_zero() {
            return config.delay;
        }
        let value = self.wander.next(config.distribution, config.correlation, rng);
        let by = config.jitter.mul_f64(value.abs());
        if value < 0.0 { config.delay.saturating_sub(by) } else { config.delay.saturating_add(by) }
    }
}

/// Returns the transmission time of `bytes` bytes at `rate` bits per second.
fn wire_time(bytes: usize, rate: u64) -> Duration {
    let nanos = bytes as u128 * 8_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
