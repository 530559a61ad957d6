//! System calls of packet sockets, each in one small function.

#![allow(unsafe_code, reason = "system calls, each with its SAFETY line")]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_void, iovec, mmsghdr, socklen_t};

use super::FRAMES_PER_CALL;

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn index(ifindex: u32) -> io::Result<c_int> {
    c_int::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Binds a packet socket to an interface. With protocol 0, the socket receives nothing.
pub(super) fn bind(fd: BorrowedFd<'_>, ifindex: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain old data; all zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index(ifindex)?;
    // SAFETY: the address lives through the call, with its true size; bind only reads it.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            size_of::<libc::sockaddr_ll>() as socklen_t,
        )
    };
    check(result as isize).map(drop)
}

/// Puts the interface into promiscuous mode while the socket exists.
pub(super) fn listen_to_all_addresses(fd: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index(ifindex)?,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: the request lives through the call, with its true size; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast::<c_void>(),
            size_of::<libc::packet_mreq>() as socklen_t,
        )
    };
    check(result as isize).map(drop)
}

/// Reports whether an interface is up. `fd` is any socket of its network namespace.
pub(super) fn is_up(fd: BorrowedFd<'_>, ifindex: u32) -> io::Result<bool> {
    // SAFETY: ifreq is plain old data; all zeroes is a valid request.
    let mut request: libc::ifreq = unsafe { zeroed() };
    request.ifr_ifru.ifru_ifindex = index(ifindex)?;
    // SAFETY: the request lives through the call; SIOCGIFNAME reads the index and writes a name within it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFNAME as _, &raw mut request) } as isize)?;
    // SAFETY: as before; SIOCGIFFLAGS reads the name just written and writes the flags.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) } as isize)?;
    // SAFETY: a successful SIOCGIFFLAGS leaves the flags in the union; any bytes are a c_short.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(c_int::from(flags) & libc::IFF_UP != 0)
}

/// Returns the number of frames dropped for lack of buffer space since the last call.
pub(super) fn take_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: tpacket_stats is plain old data; all zeroes is a valid value.
    let mut stats: libc::tpacket_stats = unsafe { zeroed() };
    let mut len = size_of::<libc::tpacket_stats>() as socklen_t;
    // SAFETY: stats and len live through the call; the kernel writes at most len bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast::<c_void>(),
            &raw mut len,
        )
    };
    check(result as isize)?;
    Ok(stats.tp_drops)
}

/// Sends up to [`FRAMES_PER_CALL`] frames over a bound socket. Returns the number of sent frames, which is at least one.
pub(super) fn send_each(fd: BorrowedFd<'_>, frames: &[&[u8]]) -> io::Result<usize> {
    let empty = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut iovs = [empty; FRAMES_PER_CALL];
    // SAFETY: mmsghdr is plain old data; all zeroes is a valid, empty header.
    let mut headers: [mmsghdr; FRAMES_PER_CALL] = unsafe { zeroed() };
    let mut count = 0;
    for ((frame, iov), header) in frames.iter().zip(&mut iovs).zip(&mut headers) {
        *iov = iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        header.msg_hdr.msg_iov = iov;
        header.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    // SAFETY: the first `count` headers point at iovs and frames that live through the call; sendmmsg writes only the
    // headers' msg_len.
    check(unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) }
        as isize)
}

/// Gives the calling thread real-time priority (SCHED_FIFO, priority 1). The kernel then runs this thread before all threads
/// without real-time priority.
///
/// # Errors
/// The errors of sched_setscheduler(2), such as EPERM without CAP_SYS_NICE.
pub fn run_realtime() -> io::Result<()> {
    let priority: c_int = 1;
    // SAFETY: `struct sched_param` is one int, which lives through the call; 0 is the calling thread. This is a direct system
    // call, because musl lacks the library function.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority) };
    check(result as isize).map(drop)
}
