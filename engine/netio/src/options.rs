//! The socket options of both carriers.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys;

/// Wanted size of the kernel's receive buffer in bytes: 8 ms at 8 Gbit/s.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;
/// Wanted size of the kernel's send buffer in bytes.
const SEND_BUFFER: libc::c_int = 4 << 20;

/// Packet info, traffic class and error queue for what is received; and DF set on what is sent.
pub(crate) fn set_all(fd: BorrowedFd<'_>, is_v4: bool) -> io::Result<()> {
    let (level, options) = if is_v4 {
        (libc::IPPROTO_IP, [libc::IP_PKTINFO, libc::IP_RECVTOS, libc::IP_RECVERR])
    } else {
        (libc::IPPROTO_IPV6, [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVTCLASS, libc::IPV6_RECVERR])
    };
    options.iter().try_for_each(|name| sys::set_int(fd, level, *name, 1))?;
    set_receive_buffer(fd, RECEIVE_BUFFER)?;
    set_for_sending(fd, is_v4)
}

/// DF set, the kernel's own path MTU cache out of the way, and a large buffer. SCTP finds the path MTU itself
/// (RFC 8899) and must be able to probe above what some ICMP message claimed: DO would refuse to send what
/// exceeds the cached value, PROBE only what exceeds the interface's MTU.
pub(crate) fn set_for_sending(fd: BorrowedFd<'_>, is_v4: bool) -> io::Result<()> {
    set_fragmenting(fd, is_v4, false)?;
    set_send_buffer(fd)
}

/// Sets DF on the datagrams of a UDP socket, and keeps the kernel's path MTU cache out of the way: sending one that exceeds the interface's
/// MTU fails, and a larger path MTU than ICMP claimed can be probed for.
///
/// # Errors
/// The kernel's.
pub fn forbid_fragments(socket: BorrowedFd<'_>, is_v4: bool) -> io::Result<()> {
    set_fragmenting(socket, is_v4, false)
}

/// A receive buffer of so many bytes, or what the system allows.
pub(crate) fn set_receive_buffer(fd: BorrowedFd<'_>, bytes: libc::c_int) -> io::Result<()> {
    set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)
}

/// A large send buffer.
pub(crate) fn set_send_buffer(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER)
}

/// Lets IP fragment what is sent, or no longer. Over IPv4 the host fragments what exceeds its interface's MTU, and
/// routers the rest. Over IPv6 routers do not: the host fragments to the path MTU that ICMPv6 told the kernel.
pub(crate) fn set_fragmenting(fd: BorrowedFd<'_>, is_v4: bool, on: bool) -> io::Result<()> {
    let (level, name, value) = match (is_v4, on) {
        (true, true) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT),
        //= rfc8899#3-2 3-3 4.5-1
        (true, false) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        (false, true) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        (false, false) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
    };
    sys::set_int(fd, level, name, value)
}

/// Sets a buffer size beyond the system's limit where CAP_NET_ADMIN allows it, else up to the limit.
fn set_buffer(
    fd: BorrowedFd<'_>,
    forced: libc::c_int,
    plain: libc::c_int,
    bytes: libc::c_int,
) -> io::Result<()> {
    sys::set_int(fd, libc::SOL_SOCKET, forced, bytes)
        .or_else(|_| sys::set_int(fd, libc::SOL_SOCKET, plain, bytes))
}
