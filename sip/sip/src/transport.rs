//! Transports and hops. A hop is the source or the destination of a message. Sockets belong to the driver.

use std::net::SocketAddr;

/// A transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transport {
    /// UDP, with one message in each datagram.
    Udp,
    /// TCP, with consecutive messages that Content-Length delimits.
    Tcp,
    /// TLS over TCP (RFC 3261 section 26.2.1).
    Tls,
    /// SCTP (RFC 4168), with one SIP message in each SCTP message.
    Sctp,
}

impl Transport {
    /// All transports.
    pub const ALL: [Transport; 4] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Sctp];

    /// Returns the transport's name in Via.
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
            Transport::Sctp => "SCTP",
        }
    }

    /// Returns the transport's name in URIs and in the configuration.
    pub fn as_lower_str(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Sctp => "sctp",
        }
    }

    /// Parses a transport's name. Case does not matter.
    pub fn from_bytes(name: &[u8]) -> Option<Transport> {
        Transport::ALL.into_iter().find(|t| name.eq_ignore_ascii_case(t.as_str().as_bytes()))
    }

    /// Returns the default port (RFC 3261 section 19.1.2).
    pub fn default_port(self) -> u16 {
        if self == Transport::Tls { 5061 } else { 5060 }
    }

    /// Reports whether the transport retransmits lost data (RFC 3261 section 17; RFC 4168 section 4).
    pub fn is_reliable(self) -> bool {
        self != Transport::Udp
    }
}

/// The driver's number of a connection or association. A number is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// The source or destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Index of our listener in the configuration.
    pub listener: usize,
    /// The transport.
    pub transport: Transport,
    /// The peer's address.
    pub address: SocketAddr,
    /// Connection over which the message came, or should be sent. If the value is `None`, or the connection is closed, the driver sends
    /// over another connection to `address`.
    pub connection: Option<ConnectionId>,
}
