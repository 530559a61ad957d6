//! The programs under the filter: their descriptors, limits, users and signals.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::filter::FIRST_DESCRIPTOR;
use crate::memory::Outcome;

/// Threads that are remembered.
const REMEMBERED: usize = 4096;
/// Descriptors from here on do not fit `fd_set`: they are given if there is no other.
const END_OF_SET: u32 = 1024;

/// Longest file of proc(5) that is read, in bytes: they have half of it.
const FILE_MAX: usize = 4096;

/// The process of a thread.
#[derive(Debug)]
struct Known {
    process: i32,
    handle: OwnedFd,
    /// The descriptor at which the search for a free one begins.
    next: u32,
}

impl Known {
    /// Finds the process of a thread that waits for an answer.
    fn of(thread: i32) -> Outcome<Known> {
        let process = field(&status(thread)?, "Tgid:").and_then(|id| id.parse().ok()).ok_or(libc::ESRCH)?;
        let pid = Pid::from_raw(process).ok_or(libc::ESRCH)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| error.raw_os_error())?;
        Ok(Known { process, handle, next: FIRST_DESCRIPTOR })
    }

    fn copy(&self, fd: u32) -> Outcome<OwnedFd> {
        let copied = pidfd_getfd(&self.handle, fd.cast_signed(), PidfdGetfdFlags::empty());
        copied.map_err(|error| error.raw_os_error())
    }

    /// Returns the soft limit on descriptors.
    fn descriptor_limit(&self) -> Outcome<u32> {
        let text = read(&format!("/proc/{}/limits", self.process), libc::EMFILE)?;
        let soft = field(&text, "Max open files").and_then(|rest| rest.split_whitespace().next());
        // Without a number there is no limit.
        Ok(soft.ok_or(libc::EMFILE)?.parse().unwrap_or(u32::MAX))
    }
}

/// The programs under the filter.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    threads: HashMap<i32, Known>,
}

impl Programs {
    fn of(&mut self, thread: i32) -> Outcome<&mut Known> {
        // The number may be a thread of another process by now.
        let is_current = self.threads.get(&thread).is_some_and(|known| is_thread_of(known.process, thread));
        if !is_current {
            if self.threads.len() >= REMEMBERED {
                self.threads.clear();
            }
            self.threads.insert(thread, Known::of(thread)?);
        }
        self.threads.get_mut(&thread).ok_or(libc::ESRCH)
    }

    /// Copies a descriptor. Errors: `EBADF`; `EPERM` if this process may not.
    pub(crate) fn copy(&mut self, thread: i32, fd: u32) -> Outcome<OwnedFd> {
        match self.of(thread)?.copy(fd) {
            // The process has ended, and another one has its number.
            Err(libc::ESRCH) => {
                self.threads.remove(&thread);
                self.of(thread)?.copy(fd)
            }
            other => other,
        }
    }

    /// Returns a free descriptor number for a socket, from `least` on. Errors: `EMFILE`.
    pub(crate) fn free_number(&mut self, thread: i32, least: u32) -> Outcome<u32> {
        let first = least.max(FIRST_DESCRIPTOR);
        let known = self.of(thread)?;
        let limit = known.descriptor_limit()?;
        let next = known.next.max(first);
        let in_set = (next..END_OF_SET).chain(first..next.min(END_OF_SET));
        let mut numbers = in_set.chain(first.max(END_OF_SET)..limit).filter(|number| *number < limit);
        let free =
            numbers.find(|number| known.copy(*number).err() == Some(libc::EBADF)).ok_or(libc::EMFILE)?;
        known.next = free + 1;
        Ok(free)
    }

    /// Sends `SIGPIPE` to a thread, as the kernel does to one that sends to nobody.
    pub(crate) fn break_pipe(&mut self, thread: i32) {
        if let Ok(known) = self.of(thread) {
            // SAFETY: no pointers. The thread waits for the supervisor, so it is there.
            unsafe { libc::syscall(libc::SYS_tgkill, known.process, thread, libc::SIGPIPE) };
        }
    }
}

/// Reports whether a process has this thread.
fn is_thread_of(process: i32, thread: i32) -> bool {
    // SAFETY: signal 0 is not sent.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    result == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Reports whether a thread runs as another user than the supervisor. The server takes the supervisor for the program.
pub(crate) fn is_other_user(thread: i32) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let user = status(thread).ok().and_then(|text| {
        // Real, effective, saved and file system user.
        field(&text, "Uid:")?.split_whitespace().nth(1)?.parse::<u32>().ok()
    });
    user != Some(own)
}

/// Reports whether a signal waits for a thread that it does not block.
pub(crate) fn has_signal(thread: i32) -> bool {
    let Ok(text) = status(thread) else { return false };
    let mask = |name| field(&text, name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") != 0
}

fn status(thread: i32) -> Outcome<String> {
    read(&format!("/proc/{thread}/status"), libc::ESRCH)
}

/// Reads a file of proc(5) by one call: each makes the kernel write all of it.
fn read(path: &str, error: i32) -> Outcome<String> {
    let mut text = vec![0; FILE_MAX];
    let length = File::open(path).and_then(|mut file| file.read(&mut text)).map_err(|_| error)?;
    text.truncate(length);
    String::from_utf8(text).map_err(|_| error)
}

/// Returns what follows a name at the beginning of a line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_thread() -> i32 {
        rustix::thread::gettid().as_raw_nonzero().get()
    }

    #[test]
    fn a_thread_has_the_descriptors_of_its_process() {
        let mut programs = Programs::default();
        let thread = own_thread();
        assert!(programs.copy(thread, 0).is_ok());
        assert_eq!(programs.copy(thread, 100_000).err(), Some(libc::EBADF));
        let number = programs.free_number(thread, 600).unwrap();
        assert!(number >= 600);
        assert_eq!(programs.free_number(thread, 600), Ok(number + 1), "the next search begins behind it");
        assert!(!is_other_user(thread));
    }

    #[test]
    fn a_number_above_the_limit_is_not_given() {
        let mut programs = Programs::default();
        assert_eq!(programs.free_number(own_thread(), u32::MAX), Err(libc::EMFILE));
    }

    #[test]
    fn a_thread_that_does_not_exist_is_an_error() {
        assert_eq!(Programs::default().copy(i32::MAX, 0).err(), Some(libc::ESRCH));
    }
}
