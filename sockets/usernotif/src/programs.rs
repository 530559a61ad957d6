//! The programs under the filter: their descriptors, limits, rights and signals.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::sync::mpsc::{SendError, Sender, channel};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::filter::FIRST_DESCRIPTOR;
use crate::memory::Outcome;
use crate::sockets::{Copied, Sockets, inode_of};

/// End of the descriptors that fit `fd_set`. Higher descriptors are given only if all descriptors from [`FIRST_DESCRIPTOR`] to this end are
/// in use, or were in use within the last [`SKIPS`] searches.
const END_OF_SET: u32 = 1024;
/// End of the descriptors that are given. The limit is necessary, because a process's descriptor table is as long as its highest
/// descriptor.
const END: u32 = 1 << 16;
/// Limit on processes whose next free descriptor is remembered.
const REMEMBERED: usize = 4096;
/// `PIDFD_THREAD` of pidfd_open(2), which requires Linux 6.9.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
/// Number of searches that try the numbers of `fd_set` last, after all of them were in use.
const SKIPS: u32 = 256;
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;

/// The programs under the filter.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// Hints for the search of a free descriptor, by process.
    next: HashMap<i32, Hints>,
}

/// Start of the search for a free descriptor.
#[derive(Debug)]
struct Hints {
    /// Descriptors below which the search begins: within `fd_set`, and above it.
    next: [u32; 2],
    /// Number of further searches that try the numbers of `fd_set` last, because all of them were in use.
    skips: u32,
}

impl Programs {
    /// Returns a free descriptor number for a socket, `least` or higher. Errors: `EMFILE`, and `EINVAL` if `least` reaches the program's
    /// limit on descriptors.
    ///
    /// The search begins with the highest numbers, because the kernel gives a program the lowest free numbers. If the program opens a file
    /// under the returned number meanwhile, it loses this file.
    pub(crate) fn free_number(&mut self, thread: i32, least: u32) -> Outcome<u32> {
        let limit = descriptor_limit(thread)?;
        if least >= limit {
            return Err(libc::EINVAL);
        }
        let process = process_of(thread)?;
        if self.next.len() >= REMEMBERED {
            self.next.clear();
        }
        let first = least.max(FIRST_DESCRIPTOR);
        let regions = [(first, limit.min(END_OF_SET)), (first.max(END_OF_SET), limit.min(END))];
        let fresh = || Hints { next: regions.map(|(_, end)| end), skips: 0 };
        let Hints { next, skips } = self.next.entry(process).or_insert_with(fresh);
        *skips = skips.saturating_sub(1);
        let order = if *skips > 0 { [1, 0] } else { [0, 1] };
        for region in order {
            let ((first, end), next) = (regions[region], &mut next[region]);
            let below = (first..(*next).clamp(first, end.max(first))).rev();
            let above = ((*next).max(first)..end).rev();
            for number in below.chain(above) {
                if inode_or_file(thread, number)?.is_none() {
                    *next = number;
                    return Ok(number);
                }
            }
            if region == 0 && *skips == 0 {
                *skips = SKIPS;
            }
        }
        Err(libc::EMFILE)
    }
}

/// Copies the descriptor of a socket that the supervisor has provided. Returns `None` for any other file. Errors: `EPERM` if this process
/// lacks the permission, `EMFILE` and others.
///
/// Other files are not copied, because the program determines the time that closing a copy takes (`SO_LINGER`).
pub(crate) fn copy_socket(sockets: &Sockets, thread: i32, fd: u32) -> Outcome<Option<Copied>> {
    if inode(thread, fd)?.is_none_or(|inode| !sockets.has(inode)) {
        return Ok(None);
    }
    let copy = match pidfd_getfd(handle(thread)?, fd.cast_signed(), PidfdGetfdFlags::empty()) {
        Ok(copy) => copy,
        Err(rustix::io::Errno::BADF) => return Ok(None),
        Err(error) => return Err(error.raw_os_error()),
    };
    if let Some(inode) = inode_of(&copy).filter(|inode| sockets.has(*inode)) {
        return Ok(Some(Copied { fd: copy, inode }));
    }
    // Another thread of the program has replaced the socket meanwhile.
    close_elsewhere(copy);
    Ok(None)
}

/// Closes a file in another thread, because a program may determine the time that closing takes. While the thread closes one file, later
/// files wait.
fn close_elsewhere(file: OwnedFd) {
    static CLOSER: LazyLock<Sender<OwnedFd>> = LazyLock::new(|| {
        let (sender, receiver) = channel::<OwnedFd>();
        let thread = std::thread::Builder::new().name("closer".to_owned());
        // If the thread cannot be started, sending fails.
        drop(thread.spawn(move || receiver.into_iter().for_each(drop)));
        sender
    });
    if let Err(SendError(file)) = CLOSER.send(file) {
        // The supervisor must not wait, so it keeps the descriptor.
        std::mem::forget(file);
    }
}

/// Checks that this process may access a thread's descriptors and memory. Errors: `EPERM`.
pub(crate) fn may_look_at(thread: i32) -> Outcome<()> {
    inode_or_file(thread, 0).map(drop)
}

/// Returns a pidfd of a thread, through which its descriptors are copied. Before Linux 6.9, returns a pidfd of its process.
fn handle(thread: i32) -> Outcome<OwnedFd> {
    let of = |id: i32, flags| {
        let pid = Pid::from_raw(id).ok_or(libc::ESRCH)?;
        pidfd_open(pid, flags).map_err(|error| error.raw_os_error())
    };
    match of(thread, PIDFD_THREAD) {
        Err(libc::EINVAL) => of(process_of(thread)?, PidfdFlags::empty()),
        other => other,
    }
}

/// Returns the inode of a socket. Returns `None` if the descriptor is no socket, or does not exist.
fn inode(thread: i32, fd: u32) -> Outcome<Option<u64>> {
    let link = inode_or_file(thread, fd)?;
    Ok(link.and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()))
}

/// Returns the name that proc(5) gives to a descriptor's file, or `None` if the descriptor does not exist.
fn inode_or_file(thread: i32, fd: u32) -> Outcome<Option<String>> {
    match fs::read_link(format!("/proc/{thread}/fd/{fd}")) {
        Ok(link) => Ok(Some(link.to_string_lossy().into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(libc::EPERM),
        Err(error) => Err(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Returns the soft limit on a process's descriptors.
fn descriptor_limit(thread: i32) -> Outcome<u32> {
    let text = read(&format!("/proc/{thread}/limits"))?;
    let soft = field(&text, "Max open files").and_then(|rest| rest.split_whitespace().next());
    // The limit may be the word `unlimited`.
    Ok(soft.ok_or(libc::EMFILE)?.parse().unwrap_or(u32::MAX))
}

fn process_of(thread: i32) -> Outcome<i32> {
    field(&status(thread)?, "Tgid:").and_then(|id| id.parse().ok()).ok_or(libc::ESRCH)
}

/// Sends `SIGPIPE` to a thread, as the kernel does if the thread sends on a closed connection.
pub(crate) fn break_pipe(thread: i32) {
    if let Ok(process) = process_of(thread) {
        // SAFETY: the call takes no pointers. A thread that has ended gets no signal.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGPIPE) };
    }
}

/// Reports whether a thread is in this process's network namespace, in which the server creates sockets.
pub(crate) fn is_in_own_network(thread: i32) -> bool {
    is_in_own_namespace(thread, "net")
}

fn is_in_own_namespace(thread: i32, kind: &str) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    let own = namespace("self");
    own.is_some() && own == namespace(&thread.to_string())
}

/// Reports whether a thread may bind privileged ports. The server cannot check this, because it only sees the supervisor's rights.
pub(crate) fn may_bind_low(thread: i32) -> bool {
    let capabilities = status(thread).ok().and_then(|text| mask(&text, "CapEff:"));
    capabilities.is_some_and(|mask| mask & CAP_NET_BIND_SERVICE != 0) && is_in_own_namespace(thread, "user")
}

/// Reads `net.ipv4.ip_unprivileged_port_start`.
pub(crate) fn first_unprivileged_port() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024)
}

/// Presence of a signal that a sleeping thread has to handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signalled {
    /// The thread has no signal.
    No,
    /// The thread has a signal.
    Yes,
    /// The process has a signal, which the kernel may have given to this thread or to another one.
    Perhaps,
}

/// Reports whether a thread has a pending signal that it does not block.
///
/// The kernel wakes one thread for a signal to a process. The kernel chooses the main thread, unless that thread blocks the signal or has
/// ended.
pub(crate) fn signalled(thread: i32) -> Signalled {
    let Ok(text) = status(thread) else { return Signalled::No };
    let bits = |text: &str, name| mask(text, name).unwrap_or(0);
    let taken = !bits(&text, "SigBlk:");
    let shared = bits(&text, "ShdPnd:") & taken;
    if bits(&text, "SigPnd:") & taken != 0 {
        return Signalled::Yes;
    }
    if shared == 0 {
        return Signalled::No;
    }
    let main = field(&text, "Tgid:").and_then(|id| id.parse().ok()).unwrap_or(thread);
    if main == thread {
        return Signalled::Yes;
    }
    let is_dead = |text: &str| field(text, "State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    match status(main) {
        Ok(main) if !is_dead(&main) && shared & bits(&main, "SigBlk:") == 0 => Signalled::No,
        _ => Signalled::Perhaps,
    }
}

/// Reports whether a thread has ended, or has a pending SIGKILL.
pub(crate) fn is_killed(thread: i32) -> bool {
    status(thread).map_or(true, |text| {
        let pending = ["SigPnd:", "ShdPnd:"]
            .iter()
            .filter_map(|name| mask(&text, name))
            .fold(0, |all, bits| all | bits);
        pending & (1 << (libc::SIGKILL - 1)) != 0
    })
}

fn mask(text: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(field(text, name)?, 16).ok()
}

fn status(thread: i32) -> Outcome<String> {
    read(&format!("/proc/{thread}/status"))
}

/// Reads a file of proc(5). The name of a program in the file need not be valid text.
fn read(path: &str) -> Outcome<String> {
    // The capacity suffices to read most files in one call. Further calls would be slow, because the kernel must find the position in the
    // text again.
    let mut text = Vec::with_capacity(4096);
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut text));
    read.map_err(|_| libc::ESRCH)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the rest of the line that begins with a name.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockclient::table::Facts;

    fn own_thread() -> i32 {
        rustix::thread::gettid().as_raw_nonzero().get()
    }

    #[test]
    fn only_sockets_that_were_given_are_copied() {
        let mut sockets = Sockets::default();
        let (thread, socket) = (own_thread(), std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let number = std::os::fd::AsRawFd::as_raw_fd(&socket).cast_unsigned();
        assert!(copy_socket(&sockets, thread, number).unwrap().is_none());
        sockets.note(&socket, Facts::default()).unwrap();
        assert!(copy_socket(&sockets, thread, number).unwrap().is_some());
        for (thread, number) in [(thread, 0), (thread, 100_000), (i32::MAX, number)] {
            assert!(copy_socket(&sockets, thread, number).unwrap().is_none());
        }
    }

    #[test]
    fn descriptor_numbers_are_assigned_from_the_highest_down() {
        let mut programs = Programs::default();
        let thread = own_thread();
        let number = programs.free_number(thread, 600).unwrap();
        assert!((600..END_OF_SET).contains(&number));
        assert_eq!(programs.free_number(thread, 600), Ok(number - 1), "the next search begins below it");
        assert_eq!(programs.free_number(thread, u32::MAX), Err(libc::EINVAL));
    }

    #[test]
    fn a_thread_that_has_ended_counts_as_killed() {
        assert!(!is_killed(own_thread()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(is_killed(child.id().cast_signed()));
    }

    #[test]
    fn this_process_is_in_its_own_namespaces_and_has_no_signal() {
        let thread = own_thread();
        assert!(is_in_own_network(thread));
        assert_eq!(signalled(thread), Signalled::No);
        assert!(!is_in_own_network(i32::MAX) && !may_bind_low(i32::MAX));
    }
}
