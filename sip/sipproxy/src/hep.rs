//! Mirrors messages to a collector such as Homer (HEP version 3).
//!
//! Each message is sent in one datagram, complete and with all secrets, because the collector is trusted. Sending never blocks, and nothing
//! is retransmitted. A datagram that the kernel or the collector does not accept is lost. Begin with [`Hep::open`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use sip::Transport;

use crate::clock::since_1970;
use crate::trace::Direction;

/// Limit on the length of a datagram, in bytes. Longer datagrams are not sent.
const DATAGRAM_MAX: usize = 65_507;

/// Types of the HEP chunks with vendor ID 0.
mod chunk {
    pub(super) const FAMILY: u16 = 1;
    pub(super) const PROTOCOL: u16 = 2;
    pub(super) const FROM_V4: u16 = 3;
    pub(super) const TO_V4: u16 = 4;
    pub(super) const FROM_V6: u16 = 5;
    pub(super) const TO_V6: u16 = 6;
    pub(super) const FROM_PORT: u16 = 7;
    pub(super) const TO_PORT: u16 = 8;
    pub(super) const SECONDS: u16 = 9;
    pub(super) const MICROSECONDS: u16 = 10;
    pub(super) const KIND: u16 = 11;
    pub(super) const AGENT: u16 = 12;
    pub(super) const PAYLOAD: u16 = 15;
}

/// Value of [`chunk::KIND`] that denotes SIP.
const SIP: u8 = 1;

/// The socket to a collector.
#[derive(Debug)]
pub(crate) struct Hep {
    socket: UdpSocket,
    agent: u32,
}

impl Hep {
    /// Opens the socket to a collector, which distinguishes capture agents by the number `agent`.
    ///
    /// # Errors
    /// If the kernel cannot open a socket, or has no route to the collector.
    pub(crate) fn open(collector: SocketAddr, agent: u32) -> io::Result<Hep> {
        let any: IpAddr =
            if collector.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(collector)?;
        socket.set_nonblocking(true)?;
        Ok(Hep { socket, agent })
    }

    /// Mirrors a message, unless its datagram would exceed [`DATAGRAM_MAX`].
    pub(crate) fn note(
        &self,
        direction: Direction,
        transport: Transport,
        local: SocketAddr,
        peer: SocketAddr,
        message: &[u8],
    ) {
        let (from, to) = if direction == Direction::In { (peer, local) } else { (local, peer) };
        let datagram = datagram(self.agent, since_1970(), transport, from, to, message);
        if datagram.len() <= DATAGRAM_MAX {
            // An error is ignored, because the proxy must work without a collector.
            let _ = self.socket.send(&datagram);
        }
    }
}

fn datagram(
    agent: u32,
    at: Duration,
    transport: Transport,
    from: SocketAddr,
    to: SocketAddr,
    message: &[u8],
) -> Vec<u8> {
    let mut chunks = Vec::with_capacity(message.len() + 128);
    let mut put = |kind: u16, value: &[u8]| {
        let length = u16::try_from(6 + value.len()).unwrap_or(u16::MAX);
        chunks.extend([[0; 2], kind.to_be_bytes(), length.to_be_bytes()].concat());
        chunks.extend(value);
    };
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            put(chunk::FAMILY, &[2]);
            put(chunk::FROM_V4, &from.octets());
            put(chunk::TO_V4, &to.octets());
        }
        (from, to) => {
            put(chunk::FAMILY, &[10]);
            put(chunk::FROM_V6, &in_ipv6(from).octets());
            put(chunk::TO_V6, &in_ipv6(to).octets());
        }
    }
    put(chunk::PROTOCOL, &[protocol(transport)]);
    put(chunk::FROM_PORT, &from.port().to_be_bytes());
    put(chunk::TO_PORT, &to.port().to_be_bytes());
    put(chunk::SECONDS, &u32::try_from(at.as_secs()).unwrap_or(u32::MAX).to_be_bytes());
    put(chunk::MICROSECONDS, &at.subsec_micros().to_be_bytes());
    put(chunk::KIND, &[SIP]);
    put(chunk::AGENT, &agent.to_be_bytes());
    put(chunk::PAYLOAD, message);
    let length = u16::try_from(6 + chunks.len()).unwrap_or(u16::MAX);
    [b"HEP3", &length.to_be_bytes()[..], &chunks].concat()
}

fn in_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Returns the IP protocol number of the transport.
fn protocol(transport: Transport) -> u8 {
    match transport {
        Transport::Udp => 17,
        Transport::Tcp | Transport::Tls => 6,
        Transport::Sctp => 132,
    }
}
