//! Errors of a send call ([`SendError`]), and on the path to the peer ([`PathError`]).

use std::io;

use base::Route;

use crate::cmsg::ExtendedError;

/// Reason why a packet could not be handed to the kernel.
#[derive(Debug, thiserror::Error)]
#[error("sending over {route:?}: {kind}: {source}")]
pub struct SendError {
    /// The route that the packet should take.
    pub route: Route,
    /// Bytes of whole packets that the kernel accepted before the error. `&bytes[sent..]` of the train is the rest.
    pub sent: usize,
    /// The recommended reaction.
    pub kind: SendErrorKind,
    /// The kernel's own error.
    pub source: io::Error,
}

/// The kinds of [`SendError`], by the recommended reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendErrorKind {
    /// The socket's send buffer is full. Send the rest when the socket is writable.
    #[error("the send buffer is full")]
    Full,
    /// A packet exceeds the MTU of the outgoing interface. Send smaller packets.
    #[error("the packet exceeds the interface's MTU")]
    TooLarge {
        /// The interface's IP MTU in bytes at the time of the error. None if the call named no interface, or if the interface is
        /// gone.
        mtu: Option<u32>,
    },
    /// No route leads to the peer from this address and interface, or the address has left the host. Use another path.
    #[error("no route")]
    NoRoute,
    /// A local firewall forbids the packet.
    #[error("forbidden by the firewall")]
    Forbidden,
    /// The carrier or the address family was not opened.
    #[error("no such carrier")]
    NoCarrier,
    /// Another error, which `source` describes.
    #[error("the kernel refused")]
    Other,
}

impl SendErrorKind {
    pub(crate) fn of(error: &io::Error) -> SendErrorKind {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => SendErrorKind::Full,
            Some(libc::EMSGSIZE) => SendErrorKind::TooLarge { mtu: None },
            Some(libc::EPERM | libc::EACCES) => SendErrorKind::Forbidden,
            Some(
                libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::EADDRNOTAVAIL
                | libc::ENODEV
                | libc::ENXIO,
            ) => SendErrorKind::NoRoute,
            // The kernel reports EINVAL if the source address is not, or no longer, an address of this host.
            Some(libc::EINVAL) => SendErrorKind::NoRoute,
            _ => SendErrorKind::Other,
        }
    }
}

impl From<SendError> for io::Error {
    fn from(error: SendError) -> io::Error {
        io::Error::new(error.source.kind(), error)
    }
}

/// A report from a router or the peer's host about a sent packet (ICMP, ICMPv6).
///
/// The report is not authenticated. RFC 9260 section 10 requires a check of the quoted ports and verification tag before the
/// report is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathError<'a> {
    /// The route of the sent packet.
    pub route: Route,
    /// The reported error.
    pub kind: PathErrorKind,
    /// The start of the sent SCTP packet, as quoted in the report. The slice may be empty.
    pub quoted: &'a [u8],
}

/// The kinds of [`PathError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathErrorKind {
    /// The packet cannot reach the peer.
    Unreachable(Unreachable),
    /// The packet is too long for a link on the path.
    FragmentationNeeded {
        /// The IP MTU of that link in bytes, or None from routers older than RFC 1191.
        mtu: Option<u32>,
    },
}

/// The unreachable destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// The network: a router has no route to it.
    Network,
    /// The host, which does not answer.
    Host,
    /// The protocol: the host does not implement SCTP (132).
    Protocol,
    /// The UDP port, on which no program listens.
    Port,
    /// A destination that a firewall forbids.
    Admin,
}

impl PathErrorKind {
    /// Returns the kind of a report. Returns None for reports that do not concern reachability or size, such as time exceeded.
    /// Also returns None for errors of this host, because the send call reports them.
    pub(crate) fn of(error: &ExtendedError) -> Option<PathErrorKind> {
        match error.origin {
            libc::SO_EE_ORIGIN_ICMP => icmp_v4(error),
            libc::SO_EE_ORIGIN_ICMP6 => icmp_v6(error),
            _ => None,
        }
    }
}

/// Converts an ICMP error (RFC 792 and RFC 1812 section 5.2.7.1).
fn icmp_v4(error: &ExtendedError) -> Option<PathErrorKind> {
    use Unreachable::*;
    const UNREACHABLE: u8 = 3;
    if error.kind != UNREACHABLE {
        return None;
    }
    Some(PathErrorKind::Unreachable(match error.code {
        0 | 6 | 11 => Network,
        1 | 5 | 7 | 8 | 12 => Host,
        2 => Protocol,
        3 => Port,
        4 => return Some(fragmentation_needed(error.info)),
        9 | 10 | 13..=15 => Admin,
        _ => return None,
    }))
}

/// Converts an ICMPv6 error (RFC 4443 sections 3.1, 3.2 and 3.4).
fn icmp_v6(error: &ExtendedError) -> Option<PathErrorKind> {
    use Unreachable::*;
    Some(PathErrorKind::Unreachable(match (error.kind, error.code) {
        (1, 0 | 2) => Network,
        (1, 3) => Host,
        (1, 4) => Port,
        (1, 1 | 5 | 6) => Admin,
        (2, _) => return Some(fragmentation_needed(error.info)),
        (4, 1) => Protocol,
        _ => return None,
    }))
}

fn fragmentation_needed(mtu: u32) -> PathErrorKind {
    PathErrorKind::FragmentationNeeded { mtu: (mtu != 0).then_some(mtu) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(origin: u8, kind: u8, code: u8, info: u32) -> Option<PathErrorKind> {
        PathErrorKind::of(&ExtendedError { origin, kind, code, info })
    }

    #[test]
    fn both_families_name_the_same_errors_alike() {
        let (v4, v6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
        assert_eq!(of(v4, 3, 3, 0), of(v6, 1, 4, 0));
        assert_eq!(of(v4, 3, 1, 0), of(v6, 1, 3, 0));
        assert_eq!(of(v4, 3, 2, 0), of(v6, 4, 1, 0));
        assert_eq!(of(v4, 3, 13, 0), of(v6, 1, 1, 0));
        assert_eq!(of(v4, 3, 4, 1400), of(v6, 2, 0, 1400));
    }

    #[test]
    fn fragmentation_needed_without_an_mtu_is_reported_without_an_mtu() {
        let kind = of(libc::SO_EE_ORIGIN_ICMP, 3, 4, 0);
        assert_eq!(kind, Some(PathErrorKind::FragmentationNeeded { mtu: None }));
    }

    #[test]
    fn time_exceeded_and_local_errors_are_no_path_errors() {
        assert_eq!(of(libc::SO_EE_ORIGIN_ICMP, 11, 0, 0), None);
        assert_eq!(of(libc::SO_EE_ORIGIN_LOCAL, 0, 0, 1500), None);
    }
}
