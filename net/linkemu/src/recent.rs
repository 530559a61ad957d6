//! Counters of the last 10 to 20 seconds, for warnings about late packets and missed frames. While packets pass, a warning
//! disappears within 20 seconds after its cause has ended. The counters cover the current span of 10 seconds and the previous
//! span. Begin at [`Recent::note`].

use std::time::Duration;

use base::Time;
use serde::{Deserialize, Serialize};

use crate::lateness::LATE;

/// Length of a span. While packets pass, a counted event is forgotten one to two spans later. A span ends at the first packet or
/// report after its length, so without packets it can last longer.
const SPAN: Duration = Duration::from_secs(10);

/// Counts over the current span and the previous span.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RecentReport {
    /// Seconds that the counts cover.
    pub seconds: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// Packets that were sent more than [`LATE`] after they were due.
    pub late: u64,
    /// Greatest delay of a packet beyond its due time, in microseconds.
    pub max_us: u64,
    /// Frames that were lost because they arrived faster than the link read them. A lost frame counts from the time when a report
    /// detects the loss.
    pub missed: u64,
}

impl RecentReport {
    fn with(self, other: Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            packets: self.packets + other.packets,
            late: self.late + other.late,
            max_us: self.max_us.max(other.max_us),
            missed: self.missed + other.missed,
        }
    }
}

/// Counts of the current span and of the previous span.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    began: Time,
    running: RecentReport,
    before: RecentReport,
}

impl Recent {
    /// Counts a packet that was sent at `now`, `late` after it was due.
    pub(crate) fn note(&mut self, now: Time, late: Duration) {
        self.roll(now);
        self.running.packets += 1;
        self.running.late += u64::from(late > LATE);
        self.running.max_us = self.running.max_us.max(late.as_micros() as u64);
    }

    /// Counts lost frames whose loss was detected at `now`.
    pub(crate) fn note_missed(&mut self, now: Time, frames: u64) {
        self.roll(now);
        self.running.missed += frames;
    }

    pub(crate) fn report(&mut self, now: Time) -> RecentReport {
        self.roll(now);
        let running = RecentReport { seconds: now.since(self.began).as_secs(), ..self.running };
        self.before.with(running)
    }

    fn roll(&mut self, now: Time) {
        let age = now.since(self.began);
        if age < SPAN {
            return;
        }
        let whole = RecentReport { seconds: SPAN.as_secs(), ..self.running };
        self.before = if age < SPAN * 2 { whole } else { RecentReport::default() };
        (self.began, self.running) = (now, RecentReport::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_packets_are_reported_for_ten_seconds_and_forgotten_after_twenty() {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let mut recent = Recent::default();
        recent.note(at(100), LATE * 3);
        recent.note_missed(at(100), 7);
        for (now, late, missed) in [(100, 1, 7), (109, 1, 7), (115, 1, 7), (130, 0, 0)] {
            recent.note(at(now), Duration::ZERO);
            let report = recent.report(at(now));
            assert_eq!((report.late, report.missed), (late, missed), "{now} s");
            assert_eq!(report.max_us, late * 3000, "{now} s");
        }
    }

    #[test]
    fn late_packets_are_forgotten_even_if_no_more_packets_leave() {
        let mut recent = Recent::default();
        recent.note(Time::ZERO + SPAN, LATE * 3);
        assert_eq!(recent.report(Time::ZERO + SPAN * 4).late, 0);
    }
}
