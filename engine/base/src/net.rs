//! Source and destination of a packet at the layer below SCTP, without SCTP's ports.

use std::fmt;
use std::net::IpAddr;

/// Encapsulation of SCTP packets: IP or UDP (RFC 6951). The enum is exhaustive, because a driver must be able to send the packets of every
/// variant. A new variant will therefore require a breaking release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Carrier {
    /// IP protocol 132, as native SCTP peers use it.
    Ip,
    /// UDP encapsulation (RFC 6951). This variant holds the peer's port. The local port is a setting of the socket.
    Udp {
        /// The peer's UDP port.
        peer_port: u16,
    },
}

/// Addresses and encapsulation of the packets between two hosts. The type will get no further fields. A struct literal may therefore name
/// all fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Local address. If this address is unspecified (`0.0.0.0` or `::`), the kernel chooses the local address.
    pub local: IpAddr,
    /// The peer's address, of the same family as `local`.
    pub remote: IpAddr,
    /// Encapsulation of the packets.
    pub carrier: Carrier,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.carrier {
            Carrier::Ip => write!(f, "{}→{}", self.local, self.remote),
            Carrier::Udp { peer_port } => write!(f, "{}→{} udp {peer_port}", self.local, self.remote),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Route {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{self:?}"))
    }
}

/// The two ECN bits of the IP header (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable, codepoint 01.
    Ect1,
    /// ECN-capable, codepoint 10.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// Reads the codepoint from the two low bits of the IPv4 TOS or IPv6 traffic class octet.
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 3 {
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            3 => Ecn::Ce,
            _ => Ecn::NotEct,
        }
    }

    /// Returns the codepoint as the two low bits of the IPv4 TOS or IPv6 traffic class octet.
    pub const fn bits(self) -> u8 {
        match self {
            Ecn::NotEct => 0,
            Ecn::Ect1 => 1,
            Ecn::Ect0 => 2,
            Ecn::Ce => 3,
        }
    }
}
