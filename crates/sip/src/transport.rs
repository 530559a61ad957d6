//! Transports and hops as the proxy core sees them: no sockets, only where a message came from or goes to.

use std::net::SocketAddr;

/// What carries messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transport {
    /// UDP: one message, one datagram.
    Udp,
    /// TCP: messages one after the other, by Content-Length.
    Tcp,
    /// TLS over TCP (RFC 3261 section 26.2.1).
    Tls,
    /// SCTP (RFC 4168): one message, one SCTP message.
    Sctp,
}

impl Transport {
    /// All of them.
    pub const ALL: [Transport; 4] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Sctp];

    /// As Via has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
            Transport::Sctp => "SCTP",
        }
    }

    /// As URIs and the configuration have it.
    pub fn as_lower_str(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Sctp => "sctp",
        }
    }

    /// From either form.
    pub fn from_bytes(name: &[u8]) -> Option<Transport> {
        Transport::ALL.into_iter().find(|t| name.eq_ignore_ascii_case(t.as_str().as_bytes()))
    }

    /// The port where none is said (RFC 3261 section 19.1.2).
    pub fn default_port(self) -> u16 {
        if self == Transport::Tls { 5061 } else { 5060 }
    }

    /// Whether it repeats what is lost (RFC 3261 section 17; RFC 4168 section 4).
    pub fn is_reliable(self) -> bool {
        self != Transport::Udp
    }
}

/// A connection or association, by the number that the driver gave it; numbers are not used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// Where a message came from, or is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Which of our listeners, by its place in the configuration.
    pub listener: usize,
    /// What carries it.
    pub transport: Transport,
    /// The peer's address.
    pub address: SocketAddr,
    /// The connection it came by; where it is gone, or none, the driver takes another one to `address`.
    pub connection: Option<ConnectionId>,
}
