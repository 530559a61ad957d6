//! The kernel's clocks, and how long to wait: the only place that asks for the time.

use std::time::Duration;

use base::Time;
use nix::time::{ClockId, clock_gettime};

use crate::error::BridgeError;

/// A frame seen longer ago than this was stamped by another clock, or the clock was set.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Now, on the clock that never jumps.
pub fn now() -> Time {
    Time::from_nanos(nanos(ClockId::CLOCK_MONOTONIC))
}

/// Returns the time at which the kernel saw a frame that it stamped with the time of day.
pub fn time_of(seen_at: Option<Duration>) -> Time {
    let now = now();
    let today = Duration::from_nanos(nanos(ClockId::CLOCK_REALTIME));
    match seen_at.and_then(|seen| today.checked_sub(seen)) {
        Some(age) if age < AGE_MAX => Time::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64)),
        _ => now,
    }
}

/// A clock that cannot be read is at zero; the kernel has both since 2.6.
fn nanos(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// Has the calling thread woken as exactly as the kernel can; tells whether it goes before all ordinary ones.
///
/// # Errors
/// When the timer slack cannot be set.
pub fn be_exact() -> Result<bool, BridgeError> {
    nix::sys::prctl::set_timerslack(1).map_err(BridgeError::system("set the timer slack"))?;
    Ok(netio::run_realtime().is_ok())
}
