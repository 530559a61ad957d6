//! ICMP errors for datagrams that this program sent, from a socket's error queue (ip(7), IP_RECVERR).
//!
//! Only the errors that RFC 3261 section 18.4 names are reported: unreachable hosts, networks, ports and protocols, and parameter problems.
//! "Source quench and TTL exceeded" are ignored. Reports of a smaller MTU are also ignored, because the kernel fragments the next datagram.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use bytes::Bytes;
use nix::libc::{EMSGSIZE, SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6, sock_extended_err};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt::Ipv4RecvErr,
    sockopt::Ipv6RecvErr,
};

/// Limit on reports per turn. Further reports stay in the queue until the next error.
const REPORTS_PER_TURN: usize = 64;
/// Limit on the bytes of a datagram to examine. ICMP quotes no more than the minimum MTU of IPv6.
const QUOTE_MAX: usize = 1280;
/// Size of the buffer for the kernel's control messages, in bytes.
const CONTROL_MAX: usize = 256;

/// Makes the kernel queue reports for a socket of this address family.
pub(super) fn enable(socket: &impl AsFd, is_ipv4: bool) -> io::Result<()> {
    let enabled =
        if is_ipv4 { setsockopt(socket, Ipv4RecvErr, &true) } else { setsockopt(socket, Ipv6RecvErr, &true) };
    Ok(enabled?)
}

/// Takes the queued reports: the destination and the beginning of each datagram.
pub(super) fn take(socket: &impl AsFd, reports: &mut Vec<(SocketAddr, Bytes)>) {
    let mut quote = [0; QUOTE_MAX];
    for _ in 0..REPORTS_PER_TURN {
        let mut control = vec![0; CONTROL_MAX];
        let mut space = [IoSliceMut::new(&mut quote)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let fd = socket.as_fd().as_raw_fd();
        let Ok(report) = recvmsg::<SockaddrStorage>(fd, &mut space, Some(&mut control), flags) else {
            return;
        };
        let is_final = report.cmsgs().is_ok_and(|mut all| all.any(|message| is_final(&message)));
        let (address, length) = (report.address.as_ref().and_then(address_of), report.bytes);
        if let Some(address) = address.filter(|_| is_final) {
            reports.push((address, Bytes::copy_from_slice(&quote[..length])));
        }
    }
}

fn is_final(message: &ControlMessageOwned) -> bool {
    let error: &sock_extended_err = match message {
        ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) => error,
        _ => return false,
    };
    let is_reported = match error.ee_origin {
        // Destination Unreachable and Parameter Problem (RFC 792; RFC 4443 sections 3.1 and 3.4).
        SO_EE_ORIGIN_ICMP => matches!(error.ee_type, 3 | 12),
        SO_EE_ORIGIN_ICMP6 => matches!(error.ee_type, 1 | 4),
        _ => false,
    };
    is_reported && error.ee_errno != EMSGSIZE as u32
}

fn address_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|address| SocketAddr::V4(SocketAddrV4::from(*address)));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddr::V6(SocketAddrV6::from(*address))))
}
