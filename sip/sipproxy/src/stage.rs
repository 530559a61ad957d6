//! The stages of shutdown.
//!
//! On SIGTERM the program drains until no work is pending or the time limit has passed. Then it closes its connections. SIGINT skips the
//! drain. Each further signal advances the program by one stage at once.

use std::time::Duration;

use base::Time;

/// Time limit for closing connections.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// The meaning of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// SIGTERM: end once pending work has ended.
    End,
    /// SIGINT: end now.
    EndNow,
}

/// The stage of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Normal operation.
    Running,
    /// No new work is accepted, and pending work must end by `until`.
    Draining { until: Time },
    /// The connections are being closed, and must end by `until`.
    Leaving { until: Time },
}

impl Stage {
    /// Returns the stage after a signal. `patience` is the time limit for draining.
    pub(crate) fn after(self, wish: Wish, now: Time, patience: Duration) -> Stage {
        match (self, wish) {
            (Stage::Running, Wish::End) => Stage::Draining { until: now + patience },
            (Stage::Running, Wish::EndNow) | (Stage::Draining { .. }, _) => Stage::leaving(now),
            (Stage::Leaving { .. }, _) => Stage::Leaving { until: now },
        }
    }

    /// Returns the stage that follows draining.
    pub(crate) fn leaving(now: Time) -> Stage {
        Stage::Leaving { until: now + LEAVE_LIMIT }
    }

    /// Returns the time at which this stage ends, even if work is still pending.
    pub(crate) fn next_timeout(self) -> Time {
        match self {
            Stage::Running => Time::NEVER,
            Stage::Draining { until } | Stage::Leaving { until } => until,
        }
    }

    /// Returns the stage's name in the output of `status`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Stage::Running => "running",
            Stage::Draining { .. } => "draining",
            Stage::Leaving { .. } => "leaving",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(32);

    fn s(s: u64) -> Time {
        Time::from_millis(1000 * s)
    }

    fn after(wishes: &[Wish]) -> Stage {
        wishes.iter().zip(1..).fold(Stage::Running, |stage, (wish, at)| stage.after(*wish, s(at), PATIENCE))
    }

    #[test]
    fn sigterm_begins_a_drain_and_a_second_signal_ends_it() {
        use Wish::{End, EndNow};
        assert_eq!(after(&[]).next_timeout(), Time::NEVER);
        assert_eq!(after(&[End]), Stage::Draining { until: s(33) });
        for second in [End, EndNow] {
            assert_eq!(after(&[End, second]), Stage::Leaving { until: s(4) });
            assert_eq!(after(&[End, second, End]), Stage::Leaving { until: s(3) });
        }
    }

    #[test]
    fn sigint_closes_connections_without_a_drain() {
        assert_eq!(after(&[Wish::EndNow]), Stage::Leaving { until: s(3) });
    }
}
