//! A sleep until a packet is due, with a precision of a few microseconds. This module requests that the kernel's sleep ends 200 µs early,
//! and then polls the clock.
//!
//! The kernel wakes a thread about a hundred microseconds after the requested time. In a virtual machine, the delay is longer. Polling the
//! clock occupies a whole processor, so polling is limited to 2 ms in each window of 10 ms. If a link would need more polling, its packets
//! leave with the kernel's delay. A very busy link rests between turns even if packets are due, so each turn handles several packets.
//! Without the rest, turns of one packet each would occupy a whole processor.
//!
//! Begin at [`PreciseSleep::until`].

use std::os::fd::BorrowedFd;
use std::time::Duration;

use base::Time;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::clock;
use crate::error::BridgeError;

/// Interval from the requested end of the kernel's sleep to the due time.
const EARLY: Duration = Duration::from_micros(200);
/// Limit on the time spent on polling the clock in each window.
const LOOKING_MAX: Duration = Duration::from_millis(2);
/// Length of a window.
const WINDOW: Duration = Duration::from_millis(10);
/// Number of packets in a window that makes a link very busy: 30,000 per second.
const BUSY_PACKETS: usize = 300;
/// Rest between the turns of a very busy link. Packets that arrive during the rest keep the kernel's time stamp.
const REST: Duration = Duration::from_micros(50);
/// Limit on one sleep.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Minimum sleep in the kernel. A shorter sleep is skipped.
const SLEEP_MIN: Duration = Duration::from_micros(5);

/// The current window: its end, the time spent on polling the clock, and the packets sent.
#[derive(Debug, Default)]
pub struct PreciseSleep {
    window_ends: Time,
    looked: Duration,
    packets: usize,
    was_busy: bool,
}

impl PreciseSleep {
    /// Counts packets that left in this turn.
    pub fn note(&mut self, packets: usize) {
        self.packets += packets;
    }

    fn is_busy(&self) -> bool {
        self.was_busy || self.packets >= BUSY_PACKETS
    }

    /// Sleeps until `due`, until one of the descriptors can be read, or for about [`SLEEP_MAX`]. A signal also ends the sleep. If less than
    /// 50 µs remain until `due`, a very busy link rests for 50 µs. A readable descriptor does not end this rest. The result reports for
    /// each descriptor whether it can be read.
    ///
    /// # Errors
    /// Returns the errors of ppoll(2), except EINTR.
    pub fn until<const N: usize>(
        &mut self,
        due: Time,
        fds: [BorrowedFd<'_>; N],
    ) -> Result<[bool; N], BridgeError> {
        let now = clock::now();
        if now >= self.window_ends {
            let was_busy = self.packets >= BUSY_PACKETS;
            *self = PreciseSleep { window_ends: now + WINDOW, was_busy, ..PreciseSleep::default() };
        }
        let left = due.since(now).min(SLEEP_MAX);
        if self.is_busy() && left < REST {
            wait([], REST)?;
            return wait(fds, Duration::ZERO);
        }
        let may_look = self.looked < LOOKING_MAX;
        let early = if may_look { EARLY } else { Duration::ZERO };
        let time = left.saturating_sub(early);
        let ready = wait(fds, if time < SLEEP_MIN { Duration::ZERO } else { time })?;
        if ready.contains(&true) || !may_look {
            return Ok(ready);
        }
        self.look(due, fds)
    }

    /// Polls the clock until `due`, or until one of the descriptors can be read. Returns at once if `due` is more than [`EARLY`] away.
    fn look<const N: usize>(
        &mut self,
        due: Time,
        fds: [BorrowedFd<'_>; N],
    ) -> Result<[bool; N], BridgeError> {
        let began = clock::now();
        let mut now = began;
        let mut ready = [false; N];
        while now < due && due.since(now) <= EARLY && !ready.contains(&true) {
            ready = wait(fds, Duration::ZERO)?;
            now = clock::now();
        }
        self.looked += now.since(began);
        Ok(ready)
    }
}

fn wait<const N: usize>(fds: [BorrowedFd<'_>; N], time: Duration) -> Result<[bool; N], BridgeError> {
    let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match ppoll(&mut fds, Some(TimeSpec::from_duration(time)), None) {
        Ok(_) => Ok(fds.map(|fd| fd.any().unwrap_or(false))),
        Err(Errno::EINTR) => Ok([false; N]),
        Err(error) => Err(BridgeError::system("wait for packets")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_sleep_without_readable_descriptors_ends_no_earlier_than_its_due_time() {
        let (silent, _other) = UnixStream::pair().unwrap();
        let mut sleep = PreciseSleep::default();
        let due = clock::now() + Duration::from_millis(3);
        assert_eq!(sleep.until(due, [silent.as_fd()]).unwrap(), [false]);
        assert!(clock::now() >= due);
    }

    #[test]
    fn a_readable_descriptor_ends_a_sleep() {
        let (silent, _other) = UnixStream::pair().unwrap();
        let (loud, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"x").unwrap();
        let ready = PreciseSleep::default().until(Time::NEVER, [silent.as_fd(), loud.as_fd()]).unwrap();
        assert_eq!(ready, [false, true]);
    }

    #[test]
    fn looking_at_the_clock_has_a_limit_in_each_window() {
        let (silent, _other) = UnixStream::pair().unwrap();
        let mut sleep =
            PreciseSleep { window_ends: Time::NEVER, looked: LOOKING_MAX, ..PreciseSleep::default() };
        sleep.until(clock::now() + EARLY / 2, [silent.as_fd()]).unwrap();
        assert_eq!(sleep.looked, LOOKING_MAX, "no looking once the limit is reached");
        sleep.window_ends = Time::ZERO;
        sleep.until(clock::now() + EARLY / 2, [silent.as_fd()]).unwrap();
        assert!(sleep.looked > Duration::ZERO && sleep.window_ends > clock::now(), "{sleep:?}");
    }

    #[test]
    fn a_very_busy_link_rests_although_packets_are_due_until_a_window_has_gone_by_with_few() {
        let (silent, _other) = UnixStream::pair().unwrap();
        let mut sleep = PreciseSleep { window_ends: Time::NEVER, ..PreciseSleep::default() };
        sleep.note(BUSY_PACKETS);
        let began = clock::now();
        sleep.until(Time::ZERO, [silent.as_fd()]).unwrap();
        assert!(clock::now().since(began) >= REST);
        sleep.window_ends = Time::ZERO;
        sleep.until(Time::ZERO, [silent.as_fd()]).unwrap();
        assert!(sleep.is_busy(), "the window before was busy");
        sleep.window_ends = Time::ZERO;
        sleep.until(Time::ZERO, [silent.as_fd()]).unwrap();
        assert!(!sleep.is_busy());
    }
}
