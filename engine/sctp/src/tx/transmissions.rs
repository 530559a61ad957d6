//! Transmissions on one path, in the order of sending.
//!
//! `Transmissions` holds the transmissions as bursts: runs of chunks that left at the same time. Each transmission is added once and
//! removed once, so the cost of finding losses is constant per chunk. This module never sends and owns no chunks.
//! [`Outstanding`](super::Outstanding) knows whether a transmission is still in flight. Invariant: bursts are sorted by time. Start at
//! [`Transmissions::on_sent`].

use std::collections::VecDeque;
use std::time::Duration;

use base::Time;

use super::Seq;
use super::rack::Rack;
use crate::memory::list;

/// Run of consecutive chunks that were sent at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    /// The first chunk whose transmission may still be in flight.
    pub(super) first: Seq,
    /// The sequence after the last chunk.
    pub(super) end: Seq,
    pub(super) at: Time,
    /// The path's [`Delivery`] when the burst left.
    delivery: Delivery,
}

/// Bytes delivered until a given time, from which delivery rates are computed.
#[derive(Clone, Copy, Debug, Default)]
struct Delivery {
    bytes: u64,
    at: Time,
    /// Sending time of the chunk that was delivered at `at`.
    sent_at: Time,
    /// True if the program supplied too little data to fill the path.
    app_limited: bool,
}

/// Delivery rate over about one round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RateSample {
    /// Bytes per second.
    pub(crate) rate: u64,
    /// True if the program supplied too little data, so the path may be faster.
    pub(crate) app_limited: bool,
}

/// Transmissions on one path.
#[derive(Debug, Default)]
pub(super) struct Transmissions {
    /// User bytes in flight.
    pub(super) flight: usize,
    /// Chunks acknowledged by gap blocks only.
    pub(super) above: usize,
    pub(super) rack: Rack,
    /// Time at which T3 expired. This is `None` after a chunk is acknowledged, or after a chunk of the lost flight is sent on another path.
    pub(super) timed_out_at: Option<Time>,
    /// Number of chunks that were declared lost too early. Counts the chunks found since the last SACK.
    pub(super) spurious: usize,
    pub(super) bursts: VecDeque<Burst>,
    delivery: Delivery,
    /// Number of delivered bytes up to which rate samples count as limited by the program.
    app_limited_until: u64,
    round: u64,
    round_began: Time,
}

impl Transmissions {
    /// Returns the bytes of memory in use, without the struct itself.
    pub(super) fn memory(&self) -> usize {
        list::<Burst>(self.bursts.capacity())
    }

    /// Records a chunk that leaves.
    #[inline]
    pub(super) fn on_sent(&mut self, seq: Seq, length: usize, now: Time) {
        if self.flight == 0 {
            self.delivery.at = now;
            self.delivery.sent_at = now;
        }
        self.flight += length;
        self.note_sent(seq, now);
    }

    /// Records a further transmission of a chunk that is in flight.
    pub(super) fn note_sent(&mut self, seq: Seq, now: Time) {
        if let Some(last) = self.bursts.back_mut().filter(|b| b.end == seq && b.at == now) {
            last.end = seq.next();
            return;
        }
        let app_limited = self.delivery.bytes < self.app_limited_until;
        let delivery = Delivery { app_limited, ..self.delivery };
        self.bursts.push_back(Burst { first: seq, end: seq.next(), at: now, delivery });
    }

    /// Records that the program has nothing more to send although the path has room.
    pub(super) fn on_app_limited(&mut self) {
        self.app_limited_until = self.delivery.bytes + self.flight as u64 + 1;
    }

    /// Handles the delivery of `bytes` more user bytes; the newest of their chunks was sent at `newest`. Returns the delivery rate, and
    /// whether a round trip has ended.
    #[inline]
    pub(super) fn on_delivered(
        &mut self,
        bytes: usize,
        newest: Time,
        now: Time,
    ) -> (Option<RateSample>, bool) {
        self.delivery.bytes += bytes as u64;
        self.delivery.at = now;
        let index = self.bursts.partition_point(|b| b.at < newest);
        let burst = self.bursts.get(index).filter(|b| b.at == newest).map(|b| b.delivery);
        let sample = burst.and_then(|then| {
            let acknowledging = now - then.at;
            let sending = newest - then.sent_at;
            let elapsed = acknowledging.max(sending);
            let bytes = self.delivery.bytes - then.bytes;
            Some(RateSample { rate: per_second(bytes, elapsed)?, app_limited: then.app_limited })
        });
        self.delivery.sent_at = newest;
        let round_over = newest >= self.round_began;
        if round_over {
            self.round += 1;
            self.round_began = now;
        }
        (sample, round_over)
    }

    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// Reports whether T3 expired so recently that an acknowledgement at `now` must answer a transmission from before the expiry.
    pub(super) fn timed_out_too_early(&self, now: Time) -> bool {
        self.timed_out_at.is_some_and(|at| self.rack.is_too_soon(now - at))
    }
}

/// Returns bytes per second, or `None` if no time has passed.
fn per_second(bytes: u64, elapsed: Duration) -> Option<u64> {
    let rate = u128::from(bytes) * 1_000_000_000 / Some(elapsed.as_nanos()).filter(|&n| n > 0)?;
    u64::try_from(rate).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    #[test]
    fn chunks_that_leave_together_are_one_burst() {
        let mut on_path = Transmissions::default();
        (0..5).for_each(|n| on_path.on_sent(Seq(n), 100, MS(1)));
        on_path.on_sent(Seq(5), 100, MS(2));
        on_path.on_sent(Seq(2), 100, MS(2));
        let runs: Vec<_> = on_path.bursts.iter().map(|b| (b.first.0, b.end.0)).collect();
        assert_eq!(runs, [(0, 5), (5, 6), (2, 3)]);
    }

    #[test]
    fn a_steady_flow_is_measured_at_its_rate() {
        let mut on_path = Transmissions::default();
        (0..10).for_each(|n| on_path.on_sent(Seq(n), 1000, MS(n)));
        let mut last = None;
        for n in 0..10 {
            on_path.flight -= 1000;
            last = on_path.on_delivered(1000, MS(n), MS(100 + n)).0;
            on_path.on_sent(Seq(10 + n), 1000, MS(100 + n));
        }
        assert!(last.is_some());
        let sample = on_path.on_delivered(1000, MS(109), MS(209)).0.unwrap();
        assert_eq!(sample, RateSample { rate: 1000 * 1000 / 100, app_limited: false });
    }

    #[test]
    fn a_round_ends_when_something_sent_in_it_is_delivered() {
        let mut on_path = Transmissions::default();
        on_path.on_sent(Seq(0), 1000, MS(1));
        on_path.on_sent(Seq(1), 1000, MS(2));
        assert!(on_path.on_delivered(1000, MS(1), MS(50)).1);
        assert!(!on_path.on_delivered(1000, MS(2), MS(51)).1);
        on_path.on_sent(Seq(2), 1000, MS(51));
        assert!(on_path.on_delivered(1000, MS(51), MS(101)).1);
    }
}
