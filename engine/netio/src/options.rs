//! Sets the socket options of both carriers: information about arrivals, fragmentation and the sizes of buffers.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys;

/// Wanted size of the kernel's receive buffer in bytes: the data of 8 ms at 8 Gbit/s.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;
/// Wanted size of the kernel's send buffer in bytes.
const SEND_BUFFER: libc::c_int = 4 << 20;

/// Sets all options of a socket that receives and sends, including the options of [`set_for_sending`]. The kernel then delivers
/// each packet with its destination address, its interface and its traffic class (ECN). ICMP errors go to the error queue.
///
/// # Errors
/// The errors of setsockopt(2).
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

/// Sets the options of a socket that only sends: no fragments ([`forbid_fragments`]), and a large send buffer.
///
/// SCTP finds the path MTU itself (RFC 8899). For its probes, the kernel must send packets longer than the MTU that an ICMP
/// message reported. `IP_PMTUDISC_DO` would refuse packets longer than the kernel's cached path MTU. `IP_PMTUDISC_PROBE` refuses
/// only packets longer than the interface's MTU.
pub(crate) fn set_for_sending(fd: BorrowedFd<'_>, is_v4: bool) -> io::Result<()> {
    set_fragmenting(fd, is_v4, false)?;
    set_send_buffer(fd)
}

/// Sets DF on the datagrams of a UDP socket, and makes the kernel ignore its cached path MTU. A send call fails with EMSGSIZE if
/// a packet exceeds the interface's MTU. A packet that exceeds only the MTU in an ICMP message is sent, so the packet can probe
/// the path.
///
/// # Errors
/// The errors of setsockopt(2).
pub fn forbid_fragments(socket: BorrowedFd<'_>, is_v4: bool) -> io::Result<()> {
    set_fragmenting(socket, is_v4, false)
}

/// Requests a receive buffer of `bytes` bytes. The kernel may grant less.
pub(crate) fn set_receive_buffer(fd: BorrowedFd<'_>, bytes: libc::c_int) -> io::Result<()> {
    set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)
}

/// Requests a send buffer of [`SEND_BUFFER`] bytes. The kernel may grant less.
pub(crate) fn set_send_buffer(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER)
}

/// Allows or forbids IP fragmentation of the socket's packets. If fragmentation is allowed over IPv4, this host fragments packets
/// longer than its interface's MTU. Routers fragment packets that are too long for a later link. Over IPv6, routers never
/// fragment. If fragmentation is allowed over IPv6, this host fragments to the path MTU that ICMPv6 has reported to the kernel.
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

/// Sets a buffer size. With CAP_NET_ADMIN, the size may exceed the system's limit. Otherwise, the kernel reduces the size to the
/// limit.
fn set_buffer(
    fd: BorrowedFd<'_>,
    forced: libc::c_int,
    plain: libc::c_int,
    bytes: libc::c_int,
) -> io::Result<()> {
    sys::set_int(fd, libc::SOL_SOCKET, forced, bytes)
        .or_else(|_| sys::set_int(fd, libc::SOL_SOCKET, plain, bytes))
}
