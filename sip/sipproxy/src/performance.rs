//! SIP performance metrics (RFC 6076): JSON for the control socket, metrics for Prometheus, and a table for people.
//!
//! Only the table contains ratios. Programs can compute them from the counts, over any period (docs/sip.md). Begin with
//! [`Performance::of`].

use std::collections::BTreeMap;
use std::time::Duration;

use ops::MetricsText;
use serde::{Deserialize, Serialize};
use sip::proxy::{self, Attempt, Attempts};

/// All metrics since the start of the proxy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Performance {
    /// Numbers of REGISTERs, by outcome.
    registrations: BTreeMap<String, u64>,
    /// Numbers of INVITEs outside of dialogs, by outcome.
    sessions: BTreeMap<String, u64>,
    registration_request_delay: Histogram,
    session_request_delay: Times,
    session_disconnect_delay: Times,
    session_duration: Times,
}

/// Durations of successes and of failures.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Times {
    successful: Histogram,
    failed: Histogram,
}

/// A histogram of durations.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Histogram {
    /// Upper bounds of the buckets, in milliseconds. The last bucket has no bound.
    bounds_ms: Vec<u64>,
    /// Number of durations in each bucket, not cumulative.
    counts: Vec<u64>,
    /// Sum of all durations, in microseconds.
    sum_us: u64,
}

impl Histogram {
    fn of(histogram: &proxy::Histogram) -> Histogram {
        Histogram {
            bounds_ms: histogram.bounds_ms().to_vec(),
            counts: histogram.counts().to_vec(),
            sum_us: u64::try_from(histogram.sum().as_micros()).unwrap_or(u64::MAX),
        }
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn to_text(&self) -> String {
        match self.count() {
            0 => "none".to_owned(),
            count => format!("{count}, mean {:.1} ms", self.sum_us as f64 / 1e3 / count as f64),
        }
    }

    fn add_to(&self, out: &mut MetricsText, name: &str, labels: &[(&str, &dyn std::fmt::Display)]) {
        let bounds: Vec<_> = self.bounds_ms.iter().copied().map(Duration::from_millis).collect();
        out.histogram(name, labels, &bounds, &self.counts, Duration::from_micros(self.sum_us));
    }
}

impl Times {
    fn of(times: &proxy::Times) -> Times {
        Times { successful: Histogram::of(&times.successful), failed: Histogram::of(&times.failed) }
    }
}

fn counts(attempts: &Attempts) -> BTreeMap<String, u64> {
    Attempt::ALL.map(|attempt| (attempt.as_str().to_owned(), attempts.of(attempt))).into()
}

/// Returns the number of attempts whose outcome is in `outcomes`.
fn ended(attempts: &BTreeMap<String, u64>, outcomes: &[Attempt]) -> u64 {
    outcomes.iter().filter_map(|outcome| attempts.get(outcome.as_str())).sum()
}

impl Performance {
    /// Converts the core's metrics.
    pub(crate) fn of(performance: &proxy::Performance) -> Performance {
        Performance {
            registrations: counts(&performance.registrations),
            sessions: counts(&performance.sessions),
            registration_request_delay: Histogram::of(&performance.registration_request_delay),
            session_request_delay: Times::of(&performance.session_request_delay),
            session_disconnect_delay: Times::of(&performance.session_disconnect_delay),
            session_duration: Times::of(&performance.session_duration),
        }
    }

    /// Formats a table with the short and long names of RFC 6076.
    pub(crate) fn to_text(&self) -> String {
        use Attempt::{Declined, Failed, Ineffective, Redirected, Successful};
        let Performance { registrations, sessions, .. } = self;
        // A challenged request is repeated with credentials, and only the repetition counts as an attempt.
        let all = [Successful, Redirected, Declined, Ineffective, Failed];
        let not_redirected = [Successful, Declined, Ineffective, Failed];
        let completed = self.session_duration.successful.count();
        let mut text = String::new();
        for (name, meaning, part, whole) in [
            (
                "IRA",
                "ineffective registration attempts",
                ended(registrations, &[Declined, Ineffective, Failed]),
                ended(registrations, &all),
            ),
            (
                "SER",
                "session establishment ratio",
                ended(sessions, &[Successful]),
                ended(sessions, &not_redirected),
            ),
            (
                "SEER",
                "session establishment effectiveness",
                ended(sessions, &[Successful, Declined]),
                ended(sessions, &not_redirected),
            ),
            ("ISA", "ineffective session attempts", ended(sessions, &[Ineffective]), ended(sessions, &all)),
            ("SCR", "session completion ratio", completed, ended(sessions, &all)),
        ] {
            let percent = match whole {
                0 => "-".to_owned(),
                _ => format!("{:.2} %", 100.0 * part as f64 / whole as f64),
            };
            text += &format!("{name:<4} {meaning:<36} {percent} ({part} of {whole})\n");
        }
        let [srd, sdd, sdt] =
            [&self.session_request_delay, &self.session_disconnect_delay, &self.session_duration];
        for (name, meaning, histogram) in [
            ("RRD", "registration request delay", &self.registration_request_delay),
            ("SRD", "session request delay, successful", &srd.successful),
            ("SRD", "session request delay, failed", &srd.failed),
            ("SDD", "session disconnect delay, successful", &sdd.successful),
            ("SDD", "session disconnect delay, failed", &sdd.failed),
            ("SDT", "session duration, successful", &sdt.successful),
            ("SDT", "session duration, failed", &sdt.failed),
        ] {
            text += &format!("{name:<4} {meaning:<36} {}\n", histogram.to_text());
        }
        text
    }

    /// Adds the counts and times for Prometheus.
    pub(crate) fn add_to(&self, out: &mut MetricsText) {
        for (name, help, attempts) in [
            ("registration", "REGISTERs by outcome (RFC 6076 section 4.2).", &self.registrations),
            ("session", "INVITEs outside dialogs by outcome (RFC 6076 sections 4.6 to 4.9).", &self.sessions),
        ] {
            let name = format!("sctpify_sip_{name}_attempts_total");
            out.head(&name, "counter", help);
            for (outcome, count) in attempts {
                out.series(&name, &[("outcome", outcome)], count);
            }
        }
        let name = "sctpify_sip_registration_request_delay_seconds";
        out.head(name, "histogram", "Time from REGISTER to its 2xx (RFC 6076 section 4.1).");
        self.registration_request_delay.add_to(out, name, &[]);
        for (name, help, times) in [
            (
                "session_request_delay",
                "Time from INVITE to the first response except 100 (RFC 6076 section 4.3).",
                &self.session_request_delay,
            ),
            (
                "session_disconnect_delay",
                "Time from BYE to its 2xx or timeout (RFC 6076 section 4.4).",
                &self.session_disconnect_delay,
            ),
            (
                "session_duration",
                "Time from the 2xx of INVITE to BYE, or to the timeout of BYE (RFC 6076 section 4.5).",
                &self.session_duration,
            ),
        ] {
            let name = format!("sctpify_sip_{name}_seconds");
            out.head(&name, "histogram", help);
            times.successful.add_to(out, &name, &[("outcome", &"successful")]);
            times.failed.add_to(out, &name, &[("outcome", &"failed")]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Performance {
        let sessions =
            [("successful", 5), ("redirected", 2), ("challenged", 9), ("declined", 1), ("failed", 2)];
        let sessions = sessions.map(|(way, count)| (way.to_owned(), count)).into();
        let successful = Histogram { bounds_ms: vec![5, 1000], counts: vec![3, 1, 0], sum_us: 500_000 };
        let session_duration = Times { successful, failed: Histogram::default() };
        Performance { sessions, session_duration, ..Performance::default() }
    }

    #[test]
    fn ratios_are_computed_as_in_rfc_6076() {
        let text = some().to_text();
        for line in [
            "IRA  ineffective registration attempts    - (0 of 0)\n",
            "SER  session establishment ratio          62.50 % (5 of 8)\n",
            "SEER session establishment effectiveness  75.00 % (6 of 8)\n",
            "ISA  ineffective session attempts         0.00 % (0 of 10)\n",
            "SCR  session completion ratio             40.00 % (4 of 10)\n",
            "SDT  session duration, successful         4, mean 125.0 ms\n",
            "SDT  session duration, failed             none\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn prometheus_gets_counts_by_outcome_and_buckets() {
        let mut out = MetricsText::default();
        some().add_to(&mut out);
        for line in [
            "sctpify_sip_session_attempts_total{outcome=\"declined\"} 1\n",
            "sctpify_sip_session_duration_seconds_bucket{outcome=\"successful\",le=\"1\"} 4\n",
            "sctpify_sip_session_duration_seconds_sum{outcome=\"successful\"} 0.5\n",
        ] {
            assert!(out.0.contains(line), "{line}{}", out.0);
        }
    }
}
