//! How far the program is from its end. SIGTERM has it drain, which ends when nothing is under way or the time is up; then it takes
//! leave of its peers. SIGINT, and each further signal, takes it a step further at once.

use std::time::Duration;

use base::Time;

/// How long peers may take to take leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// What somebody wants by a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// SIGTERM: to end when what is under way has ended.
    End,
    /// SIGINT: to end now.
    EndNow,
}

/// Where the program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Nobody wants it to end.
    Running,
    /// Nothing new is taken; what is under way has until then.
    Draining { until: Time },
    /// Peers are told that it ends, and have until then.
    Leaving { until: Time },
}

impl Stage {
    /// What a signal makes of it; `patience` is how long draining may take.
    pub(crate) fn after(self, wish: Wish, now: Time, patience: Duration) -> Stage {
        match (self, wish) {
            (Stage::Running, Wish::End) => Stage::Draining { until: now + patience },
            (Stage::Running, Wish::EndNow) | (Stage::Draining { .. }, _) => Stage::leaving(now),
            (Stage::Leaving { .. }, _) => Stage::Leaving { until: now },
        }
    }

    /// It has drained, or may not any longer.
    pub(crate) fn leaving(now: Time) -> Stage {
        Stage::Leaving { until: now + LEAVE_LIMIT }
    }

    /// When it is over without anybody's doing.
    pub(crate) fn next_timeout(self) -> Time {
        match self {
            Stage::Running => Time::NEVER,
            Stage::Draining { until } | Stage::Leaving { until } => until,
        }
    }

    /// What `status` calls it.
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
    fn sigterm_drains_and_a_second_one_ends_that() {
        use Wish::{End, EndNow};
        assert_eq!(after(&[]).next_timeout(), Time::NEVER);
        assert_eq!(after(&[End]), Stage::Draining { until: s(33) });
        for second in [End, EndNow] {
            assert_eq!(after(&[End, second]), Stage::Leaving { until: s(4) });
            assert_eq!(after(&[End, second, End]), Stage::Leaving { until: s(3) });
        }
    }

    #[test]
    fn sigint_does_not_wait() {
        assert_eq!(after(&[Wish::EndNow]), Stage::Leaving { until: s(3) });
    }
}
