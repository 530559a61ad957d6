//! The real clocks. No other module of the daemon reads them.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base::Time;
use rules::UnixMs;

/// Monotonic clock that counts from its start.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "the one place where the daemon reads the clock")]
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::from_nanos(nanos)
    }
}

/// Returns the wall-clock time since 1970, for data that outlives the daemon.
pub(crate) fn today() -> UnixMs {
    UnixMs(unix_ms())
}

/// Returns the wall-clock time since 1970 in milliseconds, for users and logs.
#[allow(clippy::disallowed_methods, reason = "the one place where the daemon reads the clock")]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
