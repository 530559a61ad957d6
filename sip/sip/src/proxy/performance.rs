//! SIP performance metrics (RFC 6076) of the registrations and sessions that pass this proxy.
//!
//! The RFC defines the metrics for user agents. Here, a delay begins when the request arrives at this proxy, and ends when the response is
//! sent back. If the proxy or a next hop challenges a request, the delay begins with the challenged request, not with its repetition.
//! Invariant: no more than [`CHALLENGED_MAX`] challenged requests are remembered. Begin with [`Performance::note_final`].

use std::collections::HashMap;
use std::time::Duration;

use base::Time;

use super::dialog_number;
use crate::essentials::Essentials;
use crate::message::Method;

/// Limit on challenged requests whose arrival times are remembered. For requests beyond the limit, a delay begins with the authenticated
/// request.
const CHALLENGED_MAX: usize = 100_000;
/// Upper bounds of the delay buckets, in milliseconds. The lowest bound is above the round trip to a nearby host. The highest bound is
/// twice the time-out 64 × T1 of 32 s.
const DELAYS_MS: [u64; 14] = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000];
/// Upper bounds of the buckets for session durations, in milliseconds.
const DURATIONS_MS: [u64; 12] = [
    1000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
    14_400_000,
];

/// The outcome of an attempt to register, or to begin a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// 2xx.
    Successful,
    /// 3xx.
    Redirected,
    /// 401, 402 or 407. The client repeats the attempt with credentials.
    Challenged,
    /// 480, 486, 600 or 603. The attempt was effective (RFC 6076 section 4.7), but the callee was absent, busy or unwilling.
    Declined,
    /// 408, 500, 503 or 504. The attempt was ineffective (section 4.8).
    Ineffective,
    /// Any other status.
    Failed,
}

impl Attempt {
    /// All outcomes.
    pub const ALL: [Attempt; 6] = [
        Attempt::Successful,
        Attempt::Redirected,
        Attempt::Challenged,
        Attempt::Declined,
        Attempt::Ineffective,
        Attempt::Failed,
    ];

    /// Returns the outcome for a final response.
    pub fn of(status: u16) -> Attempt {
        match status {
            200..=299 => Attempt::Successful,
            300..=399 => Attempt::Redirected,
            401 | 402 | 407 => Attempt::Challenged,
            480 | 486 | 600 | 603 => Attempt::Declined,
            408 | 500 | 503 | 504 => Attempt::Ineffective,
            _ => Attempt::Failed,
        }
    }

    /// Returns the outcome's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Attempt::Successful => "successful",
            Attempt::Redirected => "redirected",
            Attempt::Challenged => "challenged",
            Attempt::Declined => "declined",
            Attempt::Ineffective => "ineffective",
            Attempt::Failed => "failed",
        }
    }
}

/// Number of attempts by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attempts([u64; 6]);

impl Attempts {
    /// Returns the number of attempts with this outcome.
    pub fn of(&self, attempt: Attempt) -> u64 {
        self.0[attempt as usize]
    }

    fn note(&mut self, attempt: Attempt) {
        self.0[attempt as usize] += 1;
    }
}

/// A histogram of durations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    bounds_ms: &'static [u64],
    counts: Box<[u64]>,
    sum: Duration,
}

impl Histogram {
    fn new(bounds_ms: &'static [u64]) -> Histogram {
        Histogram { bounds_ms, counts: vec![0; bounds_ms.len() + 1].into(), sum: Duration::ZERO }
    }

    /// Returns the upper bounds of the buckets in milliseconds. The last bucket has no upper bound.
    pub fn bounds_ms(&self) -> &'static [u64] {
        self.bounds_ms
    }

    /// Returns the number of durations in each bucket. The numbers are not cumulative.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    fn note(&mut self, time: Duration) {
        let is_within = |bound: &u64| time <= Duration::from_millis(*bound);
        let bucket = self.bounds_ms.iter().position(is_within).unwrap_or(self.bounds_ms.len());
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(time);
    }
}

/// Two histograms of a metric: durations of successes, and durations of failures. RFC 6076 sections 4.3 to 4.5 require separate results.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Times {
    /// Durations of successes.
    pub successful: Histogram,
    /// Durations of failures.
    pub failed: Histogram,
}

impl Times {
    fn new(bounds_ms: &'static [u64]) -> Times {
        Times { successful: Histogram::new(bounds_ms), failed: Histogram::new(bounds_ms) }
    }
}

/// All metrics so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Performance {
    /// Outcomes of REGISTERs.
    pub registrations: Attempts,
    /// Outcomes of INVITEs outside of dialogs.
    pub sessions: Attempts,
    /// RRD (section 4.1): time from REGISTER to its 2xx.
    pub registration_request_delay: Histogram,
    /// SRD (section 4.3): time from INVITE to the first provisional response other than 100. Without such a response, the time to the
    /// final response.
    pub session_request_delay: Times,
    /// SDD (section 4.4): time from BYE to its 2xx. For a failure, the time from BYE to its time-out.
    pub session_disconnect_delay: Times,
    /// SDT (section 4.5): time from the 2xx of INVITE to BYE. For a failure, the time from the 2xx to the time-out of the BYE.
    pub session_duration: Times,
    /// Arrival times of challenged requests, by dialog number.
    challenged: HashMap<u32, Time>,
}

impl Default for Performance {
    fn default() -> Performance {
        Performance {
            registrations: Attempts::default(),
            sessions: Attempts::default(),
            registration_request_delay: Histogram::new(&DELAYS_MS),
            session_request_delay: Times::new(&DELAYS_MS),
            session_disconnect_delay: Times::new(&DELAYS_MS),
            session_duration: Times::new(&DURATIONS_MS),
            challenged: HashMap::new(),
        }
    }
}

/// The purpose of a request, for the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Registration,
    /// INVITE outside of a dialog.
    Session,
    /// BYE.
    Disconnect,
    Other,
}

impl Purpose {
    fn of(known: &Essentials) -> Purpose {
        match known.cseq.method {
            Method::Register => Purpose::Registration,
            Method::Invite if known.to_tag.is_none() => Purpose::Session,
            Method::Bye => Purpose::Disconnect,
            _ => Purpose::Other,
        }
    }
}

/// The end of a session, for the metrics.
#[derive(Clone, Copy, Debug)]
pub(super) enum SessionEnd {
    /// A BYE that arrived at this time and was answered with 2xx.
    By(Time),
    /// A BYE that timed out, got 408, or could not be delivered.
    Unheard,
}

/// The state of a measured request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    purpose: Purpose,
    /// Arrival time of the request. If an earlier request of the same attempt was challenged, the arrival time of the earlier request.
    began: Time,
    /// Time of the first response other than 100.
    indicated: Option<Time>,
}

impl Measured {
    /// Returns the arrival time of the request, or of the challenged request before it.
    pub(super) fn began(&self) -> Time {
        self.began
    }

    /// Records that a response other than 100 is sent back.
    pub(super) fn note_indication(&mut self, now: Time) {
        self.indicated.get_or_insert(now);
    }
}

impl Performance {
    /// Records a new request.
    pub(super) fn begin(&mut self, now: Time, known: &Essentials, dialog: u32) -> Measured {
        let purpose = Purpose::of(known);
        let may_be_challenged = matches!(purpose, Purpose::Registration | Purpose::Session);
        let first = may_be_challenged.then(|| self.challenged.remove(&dialog)).flatten();
        Measured { purpose, began: first.unwrap_or(now), indicated: None }
    }

    /// Records the final response to a request.
    pub(super) fn note_final(&mut self, now: Time, measured: Measured, dialog: u32, status: u16) {
        let Measured { purpose, began, indicated } = measured;
        let attempt = Attempt::of(status);
        let delay = now.since(began);
        match (purpose, attempt) {
            (Purpose::Other, _) => return,
            (Purpose::Disconnect, Attempt::Successful) => {
                self.session_disconnect_delay.successful.note(delay)
            }
            (Purpose::Disconnect, _) => {}
            (Purpose::Registration, Attempt::Successful) => self.registration_request_delay.note(delay),
            (Purpose::Session, Attempt::Successful) => {
                self.session_request_delay.successful.note(indicated.unwrap_or(now).since(began));
            }
            (Purpose::Registration | Purpose::Session, Attempt::Challenged) => {
                if self.challenged.len() < CHALLENGED_MAX {
                    self.challenged.insert(dialog, began);
                }
            }
            (Purpose::Session, Attempt::Declined | Attempt::Ineffective | Attempt::Failed) => {
                self.session_request_delay.failed.note(indicated.unwrap_or(now).since(began));
            }
            (Purpose::Registration | Purpose::Session, _) => {}
        }
        match purpose {
            Purpose::Registration => self.registrations.note(attempt),
            Purpose::Session => self.sessions.note(attempt),
            Purpose::Disconnect | Purpose::Other => {}
        }
    }

    /// Records a request that was rejected without keeping state.
    pub(super) fn note_refused(&mut self, now: Time, known: &Essentials, status: u16) {
        let dialog = dialog_number(&known.call_id);
        let measured = self.begin(now, known, dialog);
        self.note_final(now, measured, dialog, status);
    }

    /// Records that a non-INVITE request timed out. The proxy sends no response to such a request (RFC 4320).
    pub(super) fn note_silence(&mut self, now: Time, measured: Measured) {
        if measured.purpose == Purpose::Disconnect {
            self.session_disconnect_delay.failed.note(now.since(measured.began));
        }
    }

    /// Records the end of a session whose 2xx arrived at `answered`.
    pub(super) fn note_session(&mut self, now: Time, answered: Time, end: SessionEnd) {
        match end {
            SessionEnd::By(bye) => self.session_duration.successful.note(bye.since(answered)),
            SessionEnd::Unheard => self.session_duration.failed.note(now.since(answered)),
        }
    }

    /// Forgets challenged requests that arrived at least `patience` ago.
    pub(super) fn forget(&mut self, now: Time, patience: Duration) {
        self.challenged.retain(|_, began| now.since(*began) < patience);
        if self.challenged.len() < self.challenged.capacity() / 4 {
            self.challenged.shrink_to(2 * self.challenged.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_it_does_not_exceed() {
        let mut histogram = Histogram::new(&[5, 10]);
        for us in [0, 5000, 5001, 10_000, 10_001] {
            histogram.note(Duration::from_micros(us));
        }
        assert_eq!((histogram.counts(), histogram.sum().as_micros()), (&[2, 2, 1][..], 30_002));
    }

    #[test]
    fn every_outcome_has_its_own_count() {
        let mut attempts = Attempts::default();
        for status in [200, 302, 407, 486, 503, 404] {
            attempts.note(Attempt::of(status));
        }
        assert_eq!(Attempt::ALL.map(|attempt| attempts.of(attempt)), [1; 6]);
    }
}
