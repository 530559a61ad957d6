//! Limits the rate of log lines that a peer can provoke in any number.
//!
//! Begin at [`LogRate::admit`].

use std::time::Duration;

use base::Time;

/// Limit on the lines that are logged in one [`PERIOD`].
const LINES: u32 = 20;
/// Period in which lines are counted.
const PERIOD: Duration = Duration::from_secs(10);

/// Count of the log lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct LogRate {
    /// Start of the current period.
    since: Time,
    lines: u32,
    left_out: u64,
}

impl LogRate {
    /// Decides whether a line may be logged now. If so, returns the number of lines left out since the last logged line;
    /// otherwise returns `None`.
    pub(crate) fn admit(&mut self, now: Time) -> Option<u64> {
        if now >= self.since + PERIOD {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines == LINES {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted_and_told_with_the_next() {
        let mut rate = LogRate::default();
        let begin = Time::default() + PERIOD;
        let admitted = (0..1000).filter_map(|_| rate.admit(begin)).collect::<Vec<_>>();
        assert_eq!(admitted, [0; LINES as usize]);
        assert_eq!(rate.admit(begin + PERIOD), Some(1000 - u64::from(LINES)));
        assert_eq!(rate.admit(begin + PERIOD), Some(0));
    }
}
