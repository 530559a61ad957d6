//! The program's clocks. No other module reads the time.

use std::time::{Duration, Instant, SystemTime};

use base::Time;

/// Clock that counts from the start of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts the clock now.
    #[allow(clippy::disallowed_methods, reason = "this program talks to real ones")]
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Returns the time since 1970-01-01 00:00 UTC.
#[allow(
    clippy::disallowed_methods,
    reason = "bindings outlive the program, so they expire by the time of day"
)]
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
