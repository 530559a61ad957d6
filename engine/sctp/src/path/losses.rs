//! Detection of a path with a loss rate that is too high for the transfer of data.
//!
//! The meter is a leaky bucket of chunks. Losses fill the bucket, and deliveries empty it. At the permitted loss rate
//! ([`Timing::loss_max`](crate::Timing::loss_max)), the bucket's level is stable. A loss rate over a fixed number of
//! chunks would be worse. With a large number, the meter would need a long time on a path with a small window. With a
//! small number, the rate would be noisy.
//!
//! One loss event adds only a limited amount to the level. A queue that overflows loses many packets at once, and the
//! window already reacts to this event. A new event begins if the newest lost chunk was sent after the last event was
//! noticed, or at the same time (as in RFC 9260 section 7.2.4).
//!
//! The meter only counts, and its caller acts on the result. Start at [`LossMeter::on_acks`], then
//! [`LossMeter::take_verdict`].

use std::time::Duration;

use base::Time;

use crate::tx::{Losses, PathAcks};

/// Number of lost chunks beyond the permitted rate that fills the bucket.
const LOSSES_FULL: i32 = 30;

/// Minimum number of loss events that fill the bucket. An initial window that overflows a long queue causes three
/// events, and must not fill the bucket.
const EVENTS_LEAST: i32 = 6;

/// Number of units of the bucket's level per chunk: one unit is 1 % of a chunk.
const WHOLE: i32 = 100;

/// Level of the full bucket.
const FULL: i32 = LOSSES_FULL * WHOLE;

/// Time for which a verdict remains valid.
const VERDICT_HOLDS: Duration = Duration::from_secs(60);

/// Meter of one path's losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossMeter {
    /// Level at the end of the last round trip, 0 to [`FULL`].
    level: i32,
    /// Amount that the current round trip will add to the level, unless the limit per loss event reduces it.
    round: i32,
    /// Time at which the last loss event was noticed.
    noticed_at: Time,
    /// Amount that the last loss event has added to the level so far.
    added: i32,
    /// Lost chunks since the bucket was last empty.
    lost: u32,
    /// Lost and delivered chunks since the bucket was last empty.
    chunks: u32,
    /// Time of the last verdict of too much loss.
    found_at: Time,
    /// Loss rate at the last verdict in percent; 0 without a verdict.
    found_percent: u8,
}

impl LossMeter {
    /// Resets the counts when data moves to this path, because the path's old losses no longer matter. Keeps the last
    /// verdict.
    pub(crate) fn begin(&mut self) {
        let LossMeter { found_at, found_percent, .. } = *self;
        *self = LossMeter { found_at, found_percent, ..LossMeter::default() };
    }

    /// Counts the losses and deliveries that a SACK reports. `allowed` is the permitted loss rate in percent.
    pub(crate) fn on_acks(&mut self, acks: &PathAcks, allowed: u8, now: Time) {
        self.add(&acks.lost, acks.chunks, allowed, now);
        // Chunks that arrived after they were declared lost do not count as losses.
        let needless = count(acks.spurious).min(self.lost);
        self.lost -= needless;
        self.round = self.round.saturating_sub(signed(needless).saturating_mul(WHOLE));
        if acks.round_over {
            self.end_round();
        }
    }

    /// Counts chunks that the reordering timer declares lost between two SACKs.
    pub(crate) fn on_lost(&mut self, lost: &Losses, allowed: u8, now: Time) {
        self.add(lost, 0, allowed, now);
    }

    fn add(&mut self, lost: &Losses, delivered: usize, allowed: u8, now: Time) {
        if lost.chunks > 0 && lost.newest >= self.noticed_at {
            self.noticed_at = now;
            self.added = 0;
        }
        let (lost, chunks) = (count(lost.chunks), count(lost.chunks + delivered));
        self.lost = self.lost.saturating_add(lost);
        self.chunks = self.chunks.saturating_add(chunks);
        let beyond = signed(lost).saturating_mul(WHOLE) - signed(chunks).saturating_mul(allowed.into());
        self.round = self.round.saturating_add(beyond);
    }

    fn end_round(&mut self) {
        let round = std::mem::take(&mut self.round).min(FULL / EVENTS_LEAST - self.added);
        self.added += round.max(0);
        self.level = (self.level + round).clamp(0, FULL);
        if self.level == 0 {
            (self.lost, self.chunks) = (0, 0);
        }
    }

    /// Reports whether the path loses too much. If it does, records the verdict and resets the counts.
    pub(crate) fn take_verdict(&mut self, now: Time) -> bool {
        if self.level < FULL {
            return false;
        }
        let percent = u64::from(self.lost) * 100 / u64::from(self.chunks.max(1));
        (self.found_at, self.found_percent) = (now, percent.clamp(1, 100) as u8);
        self.begin();
        true
    }

    /// Returns the loss rate in percent at the last verdict, unless the verdict has expired.
    pub(crate) fn known_percent(&self, now: Time) -> Option<u64> {
        let is_known = self.found_percent > 0 && now - self.found_at < VERDICT_HOLDS;
        is_known.then_some(self.found_percent.into())
    }

    /// Sets a verdict with the loss rate `percent`, for tests.
    #[cfg(test)]
    pub(super) fn set_verdict(&mut self, at: Time, percent: u8) {
        (self.found_at, self.found_percent) = (at, percent);
    }
}

fn count(chunks: usize) -> u32 {
    u32::try_from(chunks).unwrap_or(u32::MAX)
}

fn signed(chunks: u32) -> i32 {
    i32::try_from(chunks).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: u8 = 5;
    const MS: fn(u64) -> Time = Time::from_millis;

    /// Feeds the meter with a round trip of `lost` lost and `delivered` delivered chunks. The chunks were sent after
    /// the previous losses were noticed.
    fn round(meter: &mut LossMeter, at_ms: u64, lost: usize, delivered: usize) {
        let losses = Losses { chunks: lost, newest: MS(at_ms), ..Losses::default() };
        let acks = PathAcks { lost: losses, chunks: delivered, round_over: true, ..PathAcks::default() };
        meter.on_acks(&acks, ALLOWED, MS(at_ms));
    }

    /// Returns the number of chunks after which a path gets a verdict if it loses one in `one_of` chunks.
    fn found_after(one_of: usize) -> Option<usize> {
        let mut meter = LossMeter::default();
        let found = (1..10_000).find(|&n| {
            round(&mut meter, n, 1, one_of - 1);
            meter.take_verdict(MS(n))
        })?;
        Some(found as usize * one_of)
    }

    #[test]
    fn the_permitted_loss_rate_never_fills_the_bucket_and_a_higher_rate_fills_it_sooner_than_a_lower_rate() {
        assert_eq!(found_after(20), None);
        assert_eq!([19, 10, 3].map(found_after), [Some(600 * 19), Some(600), Some(36 * 3)]);
    }

    #[test]
    fn one_loss_event_raises_the_level_by_a_limited_amount_regardless_of_its_losses_and_duration() {
        let mut meter = LossMeter::default();
        let mut overflow = |sent_ms: u64, at_ms: u64| {
            let losses = Losses { chunks: 400, newest: MS(sent_ms), ..Losses::default() };
            let acks = PathAcks { lost: losses, round_over: true, ..PathAcks::default() };
            meter.on_acks(&acks, ALLOWED, MS(at_ms));
            meter.take_verdict(MS(at_ms))
        };
        assert!(
            (0..100).all(|n| !overflow(99, 100 + n)),
            "all lost chunks were sent before the first loss was noticed"
        );
        assert!((0..4).all(|n| !overflow(200 + n, 200 + n)));
        assert!(overflow(210, 210), "the sixth event fills the bucket");
    }

    #[test]
    fn losses_that_prove_spurious_never_lead_to_a_verdict() {
        let mut meter = LossMeter::default();
        for n in 1..1000 {
            round(&mut meter, 2 * n, 1, 2);
            let acks = PathAcks { spurious: 1, round_over: true, ..PathAcks::default() };
            meter.on_acks(&acks, ALLOWED, MS(2 * n + 1));
            assert!(!meter.take_verdict(MS(2 * n + 1)));
        }
    }

    #[test]
    fn a_verdict_remains_valid_for_a_minute_even_if_the_counts_are_reset() {
        let mut meter = LossMeter::default();
        let found = (1..1000).find(|&n| {
            round(&mut meter, n, 1, 3);
            meter.take_verdict(MS(n))
        });
        let at = MS(found.expect("a verdict"));
        assert_eq!(meter.known_percent(at), Some(25));
        meter.begin();
        assert_eq!(meter.known_percent(at + Duration::from_millis(59_999)), Some(25));
        assert_eq!(meter.known_percent(at + VERDICT_HOLDS), None);
    }
}
