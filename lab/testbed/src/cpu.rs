//! Processor time and memory of programs, as the kernel charges them to processes.
//!
//! The kernel charges the interrupt work for packets to the interrupted process, or to no process. No figure
//! of this module includes all interrupt work.

use crate::host::Host;
use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Length in bytes to which the kernel truncates a process's name.
const COMM_BYTES_MAX: usize = 15;

/// Returns the user and system time of all child processes of this process that have ended and that it has
/// reaped.
///
/// # Errors
/// When the kernel does not report the time.
pub fn of_ended_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage failed")?;
    let time = |value: nix::sys::time::TimeVal| {
        let micros = value.tv_sec() * 1_000_000 + value.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// Returns the user and system time that the running processes called `name` in a host have used so far.
///
/// # Errors
/// When the host is gone.
pub fn of_processes(host: &Host, name: &str) -> Result<Duration> {
    let clocks = processes(host, name)?.into_iter().filter_map(|id| {
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(id).ok()?)).ok()?;
        clock_gettime(clock).ok()
    });
    Ok(clocks.map(Duration::from).sum())
}

/// Returns the memory of the running processes called `name` in a host, in KiB: private pages, and a
/// proportional share of shared pages.
///
/// # Errors
/// When the host is gone.
pub fn memory_kib(host: &Host, name: &str) -> Result<u64> {
    of_rollups(host, name, "Pss:")
}

/// Like [`memory_kib`], but counts only anonymous memory. A share of shared pages would distort the growth,
/// because the share also grows when another process with the same program ends.
///
/// # Errors
/// When the host is gone.
pub fn anonymous_memory_kib(host: &Host, name: &str) -> Result<u64> {
    of_rollups(host, name, "Pss_Anon:")
}

/// Returns the number in the line of /proc/PID/smaps_rollup that begins with `line`, summed over the
/// processes, in KiB.
fn of_rollups(host: &Host, name: &str, line: &str) -> Result<u64> {
    let rollups = processes(host, name)?
        .into_iter()
        .filter_map(|id| std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok());
    Ok(rollups.filter_map(|rollup| kib_in(&rollup, line)).sum())
}

/// Returns the number in the line that begins with `line`.
fn kib_in(rollup: &str, line: &str) -> Option<u64> {
    let rest = rollup.lines().find_map(|found| found.strip_prefix(line))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Returns the sorted ids of the running processes called `name` in a host.
///
/// # Errors
/// When the host is gone.
pub fn processes(host: &Host, name: &str) -> Result<Vec<u32>> {
    let inode = |path: &Path| std::fs::metadata(path).map(|meta| meta.ino());
    let namespace = inode(&Path::new("/run/netns").join(host.namespace())).context("the host has gone")?;
    let entries = std::fs::read_dir("/proc")?.flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_here =
        |id: &u32| inode(Path::new(&format!("/proc/{id}/ns/net"))).is_ok_and(|inode| inode == namespace);
    let is_called =
        |id: &u32| stat(*id).is_ok_and(|stat| comm(&stat) == Some(&name[..name.len().min(COMM_BYTES_MAX)]));
    let mut ids: Vec<u32> = ids.filter(is_here).filter(is_called).collect();
    ids.sort_unstable();
    Ok(ids)
}

fn stat(id: u32) -> std::io::Result<String> {
    std::fs::read_to_string(format!("/proc/{id}/stat"))
}

/// Returns the process's name in a line of /proc/PID/stat.
fn comm(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(") ")?.0.split_once('(')?.1)
}

#[cfg(test)]
mod tests {
    use super::{comm, kib_in};

    #[test]
    fn memory_is_the_proportional_set_size_of_a_process() {
        let rollup = "5500-7ffd [rollup]\nRss:    9000 kB\nPss:            5321 kB\nPss_Dirty:  12 kB\n";
        assert_eq!(kib_in(rollup, "Pss:"), Some(5321));
        assert_eq!(kib_in("Rss: 1 kB\n", "Pss:"), None);
    }

    #[test]
    fn the_name_is_read_also_when_it_has_spaces_and_brackets() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 3 4 20 0 1 0 100 0 0";
        assert_eq!(comm(stat), Some("a) b"));
    }
}
