//! Control messages of `sendmsg` and `recvmsg` as bytes, encoded and decoded without `unsafe`. Begin with [`Control`] for sending
//! and with [`Meta`] for receiving.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base::Ecn;
use libc::c_int;

use crate::sys::Aligned;

/// Length of `struct cmsghdr`. The header holds the message's length in its first word, and the level and type in its last eight
/// bytes.
const HEADER: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();
/// Bytes for packet info (40), traffic class and segment size (24 each), and 8 to spare.
const CAPACITY: usize = 96;

/// Control messages to send along with a packet.
pub(crate) struct Control {
    bytes: Aligned<CAPACITY>,
    len: usize,
}

impl Control {
    /// Returns an empty list.
    pub(crate) fn new() -> Control {
        Control { bytes: Aligned([0; CAPACITY]), len: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes.0[..self.len]
    }

    /// Appends a message. [`CAPACITY`] has room for one message of each `push_…` method.
    fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let out = &mut self.bytes.0[self.len..];
        out[..WORD].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        out[HEADER - 8..HEADER - 4].copy_from_slice(&level.to_ne_bytes());
        out[HEADER - 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        out[HEADER..HEADER + data.len()].copy_from_slice(data);
        self.len += HEADER + data.len().next_multiple_of(WORD);
    }

    /// Sets the source address and the interface. An unspecified address, or interface 0, leaves the choice to the kernel.
    pub(crate) fn push_source(&mut self, local: IpAddr, ifindex: u32) {
        let index = ifindex.to_ne_bytes();
        match local {
            IpAddr::V4(ip) => {
                let mut info = [0; 12];
                info[..4].copy_from_slice(&index);
                info[4..8].copy_from_slice(&ip.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(ip) => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&ip.octets());
                info[16..].copy_from_slice(&index);
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// Sets the ECN bits, and sets the DSCP to zero.
    //= rfc6951#5.8-1
    pub(crate) fn push_ecn(&mut self, is_v4: bool, ecn: Ecn) {
        let tos = c_int::from(ecn.bits()).to_ne_bytes();
        if is_v4 {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &tos);
        } else {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos);
        }
    }

    /// Makes the kernel cut the payload into UDP datagrams of `size` bytes. The last datagram may be shorter.
    pub(crate) fn push_segment_size(&mut self, size: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }
}

/// Contents of a received packet's control messages.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Destination address in the IP header.
    pub(crate) local: Option<IpAddr>,
    /// Index of the receiving interface, or None if unknown.
    pub(crate) ifindex: Option<u32>,
    /// IPv4 only: the local address to answer from (`ipi_spec_dst`). This address differs from `local` if the packet is broadcast
    /// or multicast.
    pub(crate) answer_from: Option<Ipv4Addr>,
    /// The ECN bits of the IP header.
    pub(crate) ecn: Ecn,
    /// Size in bytes of each datagram that the kernel merged into this one. The last merged datagram may be shorter.
    pub(crate) segment_size: Option<usize>,
    /// A queued error, from a read with `MSG_ERRQUEUE`.
    pub(crate) error: Option<ExtendedError>,
}

/// Four fields of `struct sock_extended_err`: origin, type, code and info.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtendedError {
    pub(crate) origin: u8,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) info: u32,
}

impl Meta {
    /// Reads the control messages. Ignores unknown types and missing data. Stops at the first invalid length.
    pub(crate) fn parse(mut bytes: &[u8]) -> Meta {
        let mut meta = Meta::default();
        while let Some((level, kind, data, rest)) = split_message(bytes) {
            meta.apply(level, kind, data);
            bytes = rest;
        }
        meta
    }

    fn apply(&mut self, level: c_int, kind: c_int, data: &[u8]) -> Option<()> {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                self.ifindex = index(data);
                self.answer_from = Some(Ipv4Addr::from(*data.get(4..)?.first_chunk::<4>()?));
                self.local = Some(Ipv4Addr::from(*data.get(8..)?.first_chunk::<4>()?).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.local = Some(Ipv6Addr::from(*data.first_chunk::<16>()?).into());
                self.ifindex = index(data.get(16..)?);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => self.ecn = Ecn::from_bits(*data.first()?),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.ecn = Ecn::from_bits(int(data)? as u8),
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment_size = usize::try_from(int(data)?).ok().filter(|size| *size > 0);
            }
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                let [_, _, _, _, origin, kind, code, _, a, b, c, d] = *data.first_chunk::<12>()?;
                self.error =
                    Some(ExtendedError { origin, kind, code, info: u32::from_ne_bytes([a, b, c, d]) });
            }
            _ => {}
        }
        Some(())
    }
}

fn int(data: &[u8]) -> Option<c_int> {
    data.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes))
}

/// Reads the index of an interface. Returns None for 0, which means that the kernel does not know the interface.
fn index(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).filter(|index| *index != 0)
}

/// Returns the level, type and data of the first message, and the remaining bytes. Returns None if no message is left, or if the
/// message's length is invalid.
pub(crate) fn split_message(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let len = usize::from_ne_bytes(*bytes.first_chunk()?);
    let data = bytes.get(HEADER..len)?;
    let level = int(&bytes[HEADER - 8..])?;
    let kind = int(&bytes[HEADER - 4..])?;
    Some((level, kind, data, bytes.get(len.next_multiple_of(WORD)..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(local: &str) -> Control {
        let local: IpAddr = local.parse().unwrap();
        let mut control = Control::new();
        control.push_source(local, 7);
        control.push_ecn(local.is_ipv4(), Ecn::Ce);
        control.push_segment_size(1400);
        control
    }

    #[test]
    fn all_control_messages_together_fit_the_buffer_and_are_decoded_unchanged() {
        for local in ["192.0.2.1", "2001:db8::1"] {
            let meta = Meta::parse(full(local).bytes());
            assert_eq!((meta.ecn, meta.ifindex), (Ecn::Ce, Some(7)));
            if local.contains(':') {
                assert_eq!(meta.local, local.parse().ok());
            } else {
                assert_eq!(meta.answer_from, local.parse().ok());
            }
        }
    }

    #[test]
    fn truncated_and_malformed_control_messages_do_not_panic_the_parser() {
        let whole = full("2001:db8::1");
        for cut in 0..whole.bytes().len() {
            Meta::parse(&whole.bytes()[..cut]);
        }
        for len in [0usize, 1, 15, 17, usize::MAX - 7, usize::MAX] {
            let mut bytes = [0xff; 32];
            bytes[..WORD].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(Meta::parse(&bytes), Meta::default());
        }
    }
}
