//! Recognises addresses that are valid only within their own network.

use std::net::IpAddr;

/// Reports whether packets between these addresses must pass a NAT: our address is private, and the peer's address is not.
pub(crate) fn is_behind_nat(ours: IpAddr, peer: IpAddr) -> bool {
    is_private(ours) && !is_private(peer)
}

/// Reports whether the address is valid only within its own network: RFC 1918, 6598, 3927, 4193, 4291.
fn is_private(address: IpAddr) -> bool {
    const SHARED: (u32, u32) = (0x6440_0000, 0xffc0_0000);
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local() || u32::from(v4) & SHARED.1 == SHARED.0,
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_address_here_and_a_public_one_there_need_a_nat() {
        let needs = |ours: &str, peer: &str| is_behind_nat(ours.parse().unwrap(), peer.parse().unwrap());
        for ours in ["10.1.2.3", "172.31.0.1", "192.168.0.1", "100.127.255.1", "169.254.1.1"] {
            assert!(needs(ours, "203.0.113.7"), "{ours}");
            assert!(!needs(ours, "10.9.9.9"), "{ours}");
        }
        assert!(!needs("100.128.0.1", "203.0.113.7"));
        assert!(needs("fd00::1", "2001:db8::1"));
    }
}
