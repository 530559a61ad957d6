//! Processor time of programs, as the kernel accounts it to processes.
//!
//! What the kernel does in interrupts on behalf of packets is accounted to whoever happens to run, or to
//! nobody: no figure here holds all of it.

use crate::host::Host;
use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The kernel's unit of time in /proc: USER_HZ is 100 on every architecture we run on.
const TICK: Duration = Duration::from_millis(10);

/// User and system time of all child processes that have ended and been waited for.
///
/// # Errors
/// When the kernel does not tell.
pub fn of_ended_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage failed")?;
    let time = |value: nix::sys::time::TimeVal| {
        let micros = value.tv_sec() * 1_000_000 + value.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// User and system time so far of the living processes called `name` in a host; resolution 10 ms.
///
/// # Errors
/// When the host is gone.
pub fn of_processes(host: &Host, name: &str) -> Result<Duration> {
    let inode = |path: &Path| std::fs::metadata(path).map(|meta| meta.ino());
    let namespace = inode(&Path::new("/run/netns").join(host.namespace())).context("the host is gone")?;
    let processes = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    let here =
        processes.filter(|process| inode(&process.join("ns/net")).is_ok_and(|inode| inode == namespace));
    let ticks = here.filter_map(|process| ticks(&std::fs::read_to_string(process.join("stat")).ok()?, name));
    Ok(TICK * u32::try_from(ticks.sum::<u64>())?)
}

/// utime + stime of a line of /proc/PID/stat when the process has this name (the kernel keeps 15 bytes of it).
fn ticks(stat: &str, name: &str) -> Option<u64> {
    let (head, tail) = stat.rsplit_once(") ")?;
    let comm = head.split_once('(')?.1;
    let field = |n: usize| tail.split(' ').nth(n)?.parse::<u64>().ok();
    (comm == &name[..name.len().min(15)]).then_some(field(11)? + field(12)?)
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn times_are_read_also_when_the_name_has_spaces_and_brackets() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 3 4 20 0 1 0 100 0 0";
        assert_eq!(ticks(stat, "a) b"), Some(42));
        assert_eq!(ticks(stat, "other"), None);
    }
}
