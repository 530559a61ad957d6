//! IP networks, for access lists: `192.0.2.0/24`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A set of all IP addresses that have the same prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    /// Length of the prefix in bits: up to 32 for IPv4, and up to 128 for IPv6.
    length: u8,
}

/// The error for a text that does not describe a network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid network `{0}`: expected an address, or ADDRESS/BITS")]
pub struct NetworkError(String);

impl Network {
    /// Reports whether the network contains an address. An IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2) counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same_bits(u128::from(own.to_bits()), u128::from(other.to_bits()), 32 - u32::from(self.length))
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                same_bits(own.to_bits(), other.to_bits(), 128 - u32::from(self.length))
            }
            _ => false,
        }
    }
}

/// Reports whether two values are equal, except for the last `tail` bits.
fn same_bits(one: u128, other: u128, tail: u32) -> bool {
    (one ^ other).checked_shr(tail).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let length = bits.map_or(Ok(max), str::parse).map_err(|_| wrong())?;
        match (address.to_canonical(), length) {
            _ if length > max => Err(wrong()),
            // A network of IPv4-mapped addresses is an IPv4 network. Its prefix follows the 96 bits of the mapping.
            (own @ IpAddr::V4(_), 96..) => Ok(Network { address: own, length: length - 96 }),
            (IpAddr::V4(_), _) if address.is_ipv6() => Err(wrong()),
            _ => Ok(Network { address, length }),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_with_its_bits() {
        for (network, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
            ("192.0.2.0/25", "::ffff:192.0.2.127", "::ffff:192.0.2.128"),
            ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("::ffff:192.0.2.0/120", "192.0.2.255", "192.0.3.0"),
            ("::ffff:0:0/96", "192.0.2.1", "2001:db8::1"),
            ("::/64", "::1", "192.0.2.1"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{inside} in {network}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{outside} in {network}");
        }
    }

    #[test]
    fn an_invalid_network_is_refused() {
        for text in [
            "",
            "::ffff:10.0.0.0/8",
            "/8",
            "192.0.2.0/33",
            "192.0.2.0/x",
            "example.com",
            "::/129",
            "192.0.2.0/-1",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
