//! Transports and hops as the proxy core sees them: no sockets, only sources and destinations of messages.

use std::net::SocketAddr;

/// A transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transport {
    /// UDP: one message, one datagram.
    Udp,
    /// TCP: consecutive messages, delimited by Content-Length.
    Tcp,
    /// TLS over TCP (RFC 3261 section 26.2.1).
    Tls,
    /// SCTP (RFC 4168): one message, one SCTP message.
    Sctp,
}

impl Transport {
    /// All of them.
    pub const ALL: [Transport; 4] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Sctp];

    /// Returns the name in Via.
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
            Transport::Sctp => "SCTP",
        }
    }

    /// Returns the name in URIs and the configuration.
    pub fn as_lower_str(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Sctp => "sctp",
        }
    }

    /// Parses either form.
    pub fn from_bytes(name: &[u8]) -> Option<Transport> {
        Transport::ALL.into_iter().find(|t| name.eq_ignore_ascii_case(t.as_str().as_bytes()))
    }

    /// Returns the default port (RFC 3261 section 19.1.2).
    pub fn default_port(self) -> u16 {
        if self == Transport::Tls { 5061 } else { 5060 }
    }

    /// Reports whether it retransmits lost data (RFC 3261 section 17; RFC 4168 section 4).
    pub fn is_reliable(self) -> bool {
        self != Transport::Udp
    }
}

/// A connection or association, by the driver's number for it; numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// The source or destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Our listener, by its index in the configuration.
    pub listener: usize,
    /// The transport.
    pub transport: Transport,
    /// The peer's address.
    pub address: SocketAddr,
    /// The connection it came by; if that is gone, or `None`, the driver uses another one to `address`.
    pub connection: Option<ConnectionId>,
}
