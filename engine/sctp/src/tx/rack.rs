//! Deadline after which an overtaken chunk counts as lost (RACK, RFC 8985 section 6.2).
//!
//! Keeps values of one path, among them the sending time of the delivered chunk that was sent last, the minimum RTT, and the
//! reordering window. The chunks themselves are in `Transmissions`. Start at [`Rack::on_delivered`] and [`Rack::deadline`].

use std::num::NonZeroU32;
use std::time::Duration;

use base::Time;

use super::Seq;

/// Threshold of chunks acknowledged above a hole. At this number, the hole gets no reordering window (DupThresh, RFC 8985 section 6.2 step
/// 4). A path on which reordering was seen keeps its reordering window.
pub(super) const DUP_THRESHOLD: usize = 3;

/// Span of time over which the minimum RTT is taken. While samples arrive, a value is forgotten after one to two
/// spans.
const MIN_RTT_SPAN: Duration = Duration::from_secs(60);

/// Limit on the widening of the reordering window, in quarters of the minimum RTT.
const MAX_WIDENING: u8 = 16;

/// Number of recoveries without a spurious loss after which the reordering window is narrow again (RFC 8985 section 6.2 step 4).
const WIDENING_PERSISTS: u8 = 16;

/// Minimum of recent values.
#[derive(Clone, Copy, Debug, Default)]
struct WindowedMin {
    now: Option<Duration>,
    before: Option<Duration>,
    since: Time,
}

impl WindowedMin {
    fn get(&self) -> Option<Duration> {
        [self.now, self.before].into_iter().flatten().min()
    }

    fn add(&mut self, value: Duration, now: Time) {
        if now - self.since > MIN_RTT_SPAN {
            self.before = self.now.take();
            self.since = now;
        }
        self.now = Some(self.now.map_or(value, |least| least.min(value)));
    }
}

/// Loss detection by time, for one path.
#[derive(Debug, Default)]
pub(super) struct Rack {
    /// Sending time and sequence of the delivered chunk that was sent last.
    newest: Option<(Time, Seq)>,
    /// Round-trip time of the chunk in `newest`.
    rtt: Duration,
    min_rtt: WindowedMin,
    /// Round-trip time of a HEARTBEAT, in microseconds.
    us_without_data: Option<NonZeroU32>,
    /// Highest sequence that was delivered.
    highest: Seq,
    reordering_seen: bool,
    /// Width of the reordering window beyond the first quarter, in quarters of the minimum RTT.
    widening: u8,
    widened_in: Option<u64>,
    persists: u8,
}

impl Rack {
    /// Handles the delivery of a chunk sent at `sent_at`. `once` is set if the chunk was sent only once.
    #[inline]
    pub(super) fn on_delivered(&mut self, seq: Seq, sent_at: Time, once: bool, now: Time) {
        let rtt = now - sent_at;
        if once {
            self.min_rtt.add(rtt, now);
            // RFC 8985 section 6.2 step 3: a chunk sent once that arrives below the highest sequence was reordered.
            self.reordering_seen |= seq < self.highest;
        } else if self.is_too_soon(rtt) {
            // Step 2: an earlier transmission was delivered.
            return;
        }
        self.highest = self.highest.max(seq);
        if self.newest.is_none_or(|newest| newest < (sent_at, seq)) {
            self.newest = Some((sent_at, seq));
            self.rtt = rtt;
        }
    }

    /// Records the round trip of a HEARTBEAT. Data may take longer, so this value counts only until the round trip of data is known.
    pub(super) fn on_round_trip(&mut self, rtt: Duration) {
        self.us_without_data = NonZeroU32::new(u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX));
    }

    /// Returns the recent minimum RTT.
    pub(super) fn least_round_trip(&self) -> Option<Duration> {
        self.min_rtt.get()
    }

    /// Reports whether an acknowledgement comes too soon after a chunk's last transmission to answer this transmission. `after` is the time
    /// between the two. If so, an earlier transmission of the chunk arrived. The bound is three quarters of the minimum RTT. Without a known
    /// round trip, returns true. The last quarter allows for paths that have become quicker, and for packets that meet a shorter queue.
    pub(super) fn is_too_soon(&self, after: Duration) -> bool {
        let without_data = || self.us_without_data.map(|us| Duration::from_micros(us.get().into()));
        self.min_rtt.get().or_else(without_data).is_none_or(|least| after < least * 3 / 4)
    }

    /// Like [`is_too_soon`](Self::is_too_soon), for a chunk that another path may have carried. Also returns true if `after` is below
    /// three quarters of this path's last round trip.
    pub(super) fn is_sooner_than_others(&self, after: Duration) -> bool {
        after < self.rtt * 3 / 4 || self.is_too_soon(after)
    }

    /// Handles a chunk that was declared lost too early: the path reorders, perhaps by more than the reordering window. If reordering was
    /// seen before, widens the reordering window, once per round trip (RFC 8985 section 6.2 step 4). Otherwise only records the reordering,
    /// so three chunks above a hole no longer close the window.
    pub(super) fn on_spurious(&mut self, round: u64) {
        self.persists = WIDENING_PERSISTS;
        if self.widened_in == Some(round) {
            return;
        }
        self.widened_in = Some(round);
        if std::mem::replace(&mut self.reordering_seen, true) {
            self.widening = (self.widening + 1).min(MAX_WIDENING);
        }
    }

    /// Handles the start of a recovery.
    pub(super) fn on_recovery(&mut self) {
        self.persists = self.persists.saturating_sub(1);
        if self.persists == 0 {
            self.widening = 0;
        }
    }

    /// Returns the reordering window: the delay by which a chunk may arrive later than a chunk that was sent after it. `above` returns the
    /// number of acknowledged chunks above the hole.
    fn reordering_window(&self, above: impl FnOnce() -> usize) -> Duration {
        if !self.reordering_seen && above() >= DUP_THRESHOLD {
            return Duration::ZERO;
        }
        let least = self.min_rtt.get().unwrap_or(self.rtt);
        (least / 4 * u32::from(1 + self.widening)).min(self.rtt.max(least))
    }

    /// Returns the time at which a chunk counts as lost. Returns `None` if none of the chunks that were sent later has been delivered.
    pub(super) fn deadline(&self, seq: Seq, sent_at: Time, above: impl FnOnce() -> usize) -> Option<Time> {
        self.newest.filter(|&newest| (sent_at, seq) < newest)?;
        Some(sent_at + self.rtt + self.reordering_window(above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    /// Creates a state in which chunk 9, sent at 10 ms, was delivered after 40 ms.
    fn rack() -> Rack {
        let mut rack = Rack::default();
        rack.on_delivered(Seq(9), MS(10), true, MS(50));
        rack
    }

    #[test]
    fn only_data_sent_before_the_newest_delivery_has_a_deadline() {
        let rack = rack();
        assert_eq!(rack.deadline(Seq(8), MS(10), || 1), Some(MS(60)));
        assert_eq!(rack.deadline(Seq(10), MS(10), || 1), None);
        assert_eq!(rack.deadline(Seq(3), MS(11), || 1), None);
    }

    #[test]
    fn three_chunks_above_close_the_reordering_window_and_two_do_not() {
        let rack = rack();
        assert_eq!(rack.deadline(Seq(8), MS(9), || 2), Some(MS(59)));
        assert_eq!(rack.deadline(Seq(8), MS(9), || 3), Some(MS(49)));
    }

    #[test]
    fn once_reordering_was_seen_the_window_stays_open() {
        let mut rack = rack();
        rack.on_delivered(Seq(5), MS(12), true, MS(52));
        assert_eq!(rack.deadline(Seq(8), MS(9), || 30), Some(MS(59)));
    }

    #[test]
    fn spurious_losses_widen_the_window_once_a_round_trip_up_to_the_round_trip_itself() {
        let mut rack = rack();
        rack.on_spurious(1);
        assert_eq!(rack.deadline(Seq(8), MS(9), || 3), Some(MS(59)), "the first only opens it");
        rack.on_spurious(1);
        assert_eq!(rack.deadline(Seq(8), MS(9), || 3), Some(MS(59)));
        rack.on_spurious(2);
        assert_eq!(rack.deadline(Seq(8), MS(9), || 3), Some(MS(69)));
        (3..30).for_each(|round| rack.on_spurious(round));
        assert_eq!(rack.deadline(Seq(8), MS(9), || 3), Some(MS(89)));
        (0..16).for_each(|_| rack.on_recovery());
        assert_eq!(rack.deadline(Seq(8), MS(9), || 3), Some(MS(59)));
    }

    #[test]
    fn an_early_acknowledgement_of_a_retransmission_does_not_advance_rack() {
        let mut rack = rack();
        rack.on_delivered(Seq(12), MS(60), false, MS(89));
        assert_eq!(rack.newest, Some((MS(10), Seq(9))));
        rack.on_delivered(Seq(12), MS(60), false, MS(90));
        assert_eq!(rack.newest, Some((MS(60), Seq(12))));
    }
}
