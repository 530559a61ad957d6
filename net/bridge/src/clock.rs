//! The kernel's clocks, and the precision of wake-ups. No other module of the crate reads a clock.

use std::time::Duration;

use base::Time;
use nix::time::{ClockId, clock_gettime};

use crate::error::BridgeError;

/// Limit on the age of a frame's time stamp. An older time stamp is not used, because it comes from another
/// clock, or because the clock was set in the meantime.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Returns the time of the monotonic clock, which never jumps.
pub fn now() -> Time {
    Time::from_nanos(nanos(ClockId::CLOCK_MONOTONIC))
}

/// Converts `seen_at`, the time of day at which the kernel saw a frame, to the time of the monotonic clock.
/// Returns the current time if the time stamp is missing, in the future, or a second old or older.
pub fn time_of(seen_at: Option<Duration>) -> Time {
    let now = now();
    let today = Duration::from_nanos(nanos(ClockId::CLOCK_REALTIME));
    match seen_at.and_then(|seen| today.checked_sub(seen)) {
        Some(age) if age < AGE_MAX => Time::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64)),
        _ => now,
    }
}

/// Returns the time of a clock in nanoseconds, or 0 if it cannot be read. Linux has had both clocks since
/// version 2.6.
fn nanos(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// Makes the kernel wake the calling thread as precisely as it can. Returns true if the thread also has
/// real-time priority, and thus runs before all ordinary threads.
///
/// # Errors
/// Returns an error if the timer slack cannot be set.
pub fn be_exact() -> Result<bool, BridgeError> {
    nix::sys::prctl::set_timerslack(1).map_err(BridgeError::system("set the timer slack"))?;
    Ok(netio::run_realtime().is_ok())
}
