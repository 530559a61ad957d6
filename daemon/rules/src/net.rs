//! Parses and normalises addresses and networks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address, or a network of addresses.
///
/// Invariant: host bits are zero, and an IPv4-mapped IPv6 network is stored as the IPv4 network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct IpNet {
    address: IpAddr,
    prefix_len: u8,
}

/// Fault of a text that should be a network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetError {
    /// The part before the slash is not an address.
    #[error(
        "`{0}` is not an IPv4 or IPv6 address (names are not resolved: give 10.1.2.3, 10.1.2.0/24 or 2001:db8::/32)"
    )]
    Address(String),
    /// The part after the slash is neither a prefix length nor a netmask.
    #[error("`/{0}` is neither a prefix length nor a netmask")]
    Prefix(String),
    /// The prefix length exceeds the number of bits in the address.
    #[error("prefix length {prefix_len} is out of range: {address} allows 0 to {max}")]
    TooLong {
        /// The address as given.
        address: IpAddr,
        /// The length as given.
        prefix_len: u8,
        /// The maximum length for this family.
        max: u8,
    },
    /// An IPv4-mapped prefix covers addresses beyond the IPv4-mapped block.
    #[error(
        "an IPv4-mapped network needs a prefix length of 96 to 128, not {0}: write it as an IPv4 network"
    )]
    MappedTooShort(u8),
}

/// Returns the form of the address that rules compare. An IPv4-mapped IPv6 address becomes the IPv4 address; other addresses
/// stay unchanged.
pub fn normalise(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

impl IpNet {
    /// Creates the network that contains `address` and has a prefix of `prefix_len` bits.
    ///
    /// # Errors
    /// Fails if the length does not fit the family, or the network extends beyond the IPv4-mapped block.
    pub fn new(address: IpAddr, prefix_len: u8) -> Result<IpNet, NetError> {
        let max = if address.is_ipv4() { 32 } else { 128 };
        if prefix_len > max {
            return Err(NetError::TooLong { address, prefix_len, max });
        }
        match (address, normalise(address)) {
            (IpAddr::V6(_), v4 @ IpAddr::V4(_)) => {
                let bits = prefix_len.checked_sub(96).ok_or(NetError::MappedTooShort(prefix_len))?;
                Ok(IpNet { address: clear_host_bits(v4, bits), prefix_len: bits })
            }
            _ => Ok(IpNet { address: clear_host_bits(address, prefix_len), prefix_len }),
        }
    }

    /// Returns the network's first address.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the prefix length in bits.
    pub const fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// Creates the network that contains only this address.
    pub fn host(address: IpAddr) -> IpNet {
        let address = normalise(address);
        IpNet { address, prefix_len: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Reports whether the network contains `address`. An IPv4-mapped address is compared as an IPv4 address.
    pub fn contains(self, address: IpAddr) -> bool {
        let address = normalise(address);
        address.is_ipv4() == self.address.is_ipv4()
            && clear_host_bits(address, self.prefix_len) == self.address
    }

    /// Reports whether the network is a single address.
    pub fn is_host(self) -> bool {
        self.prefix_len == if self.address.is_ipv4() { 32 } else { 128 }
    }
}

fn clear_host_bits(address: IpAddr, prefix_len: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
        }
    }
}

/// Parses a prefix length, or a netmask: `24` or `255.255.255.0`.
fn parse_prefix(text: &str) -> Result<u8, NetError> {
    if let Ok(len) = text.parse() {
        return Ok(len);
    }
    let mask: Ipv4Addr = text.parse().map_err(|_| NetError::Prefix(text.into()))?;
    let bits = mask.to_bits();
    if bits.leading_ones() + bits.trailing_zeros() < 32 {
        return Err(NetError::Prefix(text.into()));
    }
    Ok(bits.leading_ones() as u8)
}

impl FromStr for IpNet {
    type Err = NetError;

    fn from_str(text: &str) -> Result<IpNet, NetError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetError::Address(address.into()))?;
        match prefix {
            Some(prefix) => IpNet::new(address, parse_prefix(prefix)?),
            None => Ok(IpNet::host(address)),
        }
    }
}

impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            return write!(f, "{}", self.address);
        }
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl From<IpNet> for String {
    fn from(net: IpNet) -> String {
        net.to_string()
    }
}

impl TryFrom<String> for IpNet {
    type Error = NetError;
    fn try_from(text: String) -> Result<IpNet, NetError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect(text)
    }

    #[test]
    fn host_bits_are_cleared_and_netmasks_understood() {
        assert_eq!(net("10.1.2.77/24").to_string(), "10.1.2.0/24");
        assert_eq!(net("10.1.2.77/255.255.255.0"), net("10.1.2.0/24"));
        assert_eq!(net("10.1.2.77/32").to_string(), "10.1.2.77");
        assert_eq!(net("2001:db8::1/32").to_string(), "2001:db8::/32");
    }

    #[test]
    fn an_ipv4_mapped_network_is_the_ipv4_network() {
        assert_eq!(net("::ffff:10.1.2.0/120"), net("10.1.2.0/24"));
        assert_eq!(net("::ffff:10.1.2.3"), net("10.1.2.3"));
        assert!(net("10.1.2.0/24").contains("::ffff:10.1.2.9".parse().unwrap()));
    }

    #[test]
    fn a_network_holds_its_first_and_last_address_and_not_the_next() {
        let n = net("10.1.2.0/24");
        assert!(n.contains("10.1.2.0".parse().unwrap()) && n.contains("10.1.2.255".parse().unwrap()));
        assert!(!n.contains("10.1.3.0".parse().unwrap()) && !n.contains("10.1.1.255".parse().unwrap()));
    }

    #[test]
    fn all_of_ipv4_holds_no_ipv6_and_the_other_way_round() {
        assert!(net("0.0.0.0/0").contains("203.0.113.9".parse().unwrap()));
        assert!(!net("0.0.0.0/0").contains("2001:db8::1".parse().unwrap()));
        assert!(!net("::/0").contains("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert!(matches!("host.example".parse::<IpNet>(), Err(NetError::Address(_))));
        assert!(matches!("10.0.0.0/33".parse::<IpNet>(), Err(NetError::TooLong { max: 32, .. })));
        assert!(matches!("10.0.0.0/255.0.255.0".parse::<IpNet>(), Err(NetError::Prefix(_))));
        assert!(matches!("::ffff:0:0/90".parse::<IpNet>(), Err(NetError::MappedTooShort(90))));
    }
}
