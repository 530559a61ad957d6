//! NATs in front of hosts. A NAT replaces the source address and port of a host's UDP packets, and forgets idle mappings.
//!
//! A mapping belongs to one inner and one outer address, as in Linux. Packets from other addresses find no mapping. If the
//! setting `answers` is true, the NAT answers such packets with port unreachable. Begin at [`Nat::send`] and [`Nat::receive`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use base::Time;

use crate::world::ENCAPSULATION_PORT;

/// Port before the first port that a NAT assigns in place of the host's port.
const FIRST_PORT: u16 = 20_000;

/// Settings of a NAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatConfig {
    /// Lifetime of an idle mapping.
    pub memory: Duration,
    /// True if incoming packets also keep a mapping alive, as in Linux. RFC 4787 section 4.3 requires only that outgoing packets
    /// keep a mapping alive.
    pub keeps_by_inbound: bool,
    /// True if a new mapping gets the host's port whenever this port is free (RFC 4787 section 4.2.1). Otherwise each new mapping
    /// gets another port.
    pub preserves_ports: bool,
    /// True if the NAT answers packets without a mapping with ICMP port unreachable.
    pub answers: bool,
    /// True if other hosts outside also have the inner addresses, as in private networks, and answer packets to these addresses
    /// with ICMP.
    pub has_strangers: bool,
}

/// Settings of Linux, with the lifetime of RFC 4787, REQ-5.
impl Default for NatConfig {
    fn default() -> Self {
        NatConfig {
            memory: Duration::from_secs(120),
            keeps_by_inbound: true,
            preserves_ports: true,
            answers: true,
            has_strangers: false,
        }
    }
}

/// Inner and outer address of a mapping.
type Pair = (IpAddr, IpAddr);

#[derive(Clone, Copy, Debug)]
struct Mapping {
    port: u16,
    used: Time,
}

/// State of one NAT.
#[derive(Clone, Debug)]
pub(crate) struct Nat {
    config: NatConfig,
    mappings: BTreeMap<Pair, Mapping>,
    next_port: u16,
}

impl Nat {
    pub(crate) fn new(config: NatConfig) -> Nat {
        Nat { config, mappings: BTreeMap::new(), next_port: FIRST_PORT }
    }

    /// Handles an outgoing packet. Returns the port that the other end sees.
    pub(crate) fn send(&mut self, now: Time, inner: IpAddr, outer: IpAddr) -> u16 {
        self.expire(now);
        let port = match self.mappings.get(&(inner, outer)) {
            Some(mapping) => mapping.port,
            None => self.free_port(outer),
        };
        self.mappings.insert((inner, outer), Mapping { port, used: now });
        port
    }

    /// Handles a packet to a port of the NAT. Returns the inner address of the mapping; `None` without a mapping.
    pub(crate) fn receive(&mut self, now: Time, outer: IpAddr, port: u16) -> Option<IpAddr> {
        self.expire(now);
        let keeps = self.config.keeps_by_inbound;
        let found = self.mappings.iter_mut().find(|((_, o), mapping)| *o == outer && mapping.port == port);
        found.map(|(&(inner, _), mapping)| {
            if keeps {
                mapping.used = now;
            }
            inner
        })
    }

    /// Reports whether a packet that cannot be forwarded is answered with ICMP. `to_inner` is true if the packet was sent to an
    /// inner address, and false if it was sent to the NAT's own address.
    pub(crate) fn answers(&self, to_inner: bool) -> bool {
        if to_inner { self.config.has_strangers } else { self.config.answers }
    }

    /// Forgets all mappings, as after a restart of the NAT.
    pub(crate) fn forget(&mut self) {
        self.mappings.clear();
    }

    fn expire(&mut self, now: Time) {
        let memory = self.config.memory;
        self.mappings.retain(|_, mapping| now - mapping.used < memory);
    }

    fn free_port(&mut self, outer: IpAddr) -> u16 {
        let is_taken = |port| self.mappings.iter().any(|((_, o), m)| *o == outer && m.port == port);
        if self.config.preserves_ports && !is_taken(ENCAPSULATION_PORT) {
            return ENCAPSULATION_PORT;
        }
        self.next_port += 1;
        self.next_port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_mapping_lasts_as_long_as_packets_pass_and_is_of_one_peer() {
        for keeps_by_inbound in [true, false] {
            let mut nat = Nat::new(NatConfig { keeps_by_inbound, ..NatConfig::default() });
            let (host, peer) = (address("10.0.0.1"), address("192.0.2.1"));
            assert_eq!(nat.receive(at(0), peer, ENCAPSULATION_PORT), None);
            assert_eq!(nat.send(at(0), host, peer), ENCAPSULATION_PORT);
            assert_eq!(nat.receive(at(0), address("192.0.2.2"), ENCAPSULATION_PORT), None);
            assert_eq!(nat.receive(at(100), peer, ENCAPSULATION_PORT), Some(host));
            let kept = keeps_by_inbound.then_some(host);
            assert_eq!(nat.receive(at(200), peer, ENCAPSULATION_PORT), kept);
            assert_eq!(nat.receive(at(400), peer, ENCAPSULATION_PORT), None);
        }
    }

    #[test]
    fn hosts_behind_a_nat_get_different_ports_and_new_ones_without_port_preservation() {
        let (hosts, peer) = ([address("10.0.0.1"), address("10.0.0.2")], address("192.0.2.1"));
        let mut nat = Nat::new(NatConfig::default());
        let ports = hosts.map(|host| nat.send(at(0), host, peer));
        assert!(ports[0] == ENCAPSULATION_PORT && ports[1] != ports[0], "{ports:?}");
        assert_eq!(nat.receive(at(1), peer, ports[1]), Some(hosts[1]));
        let mut nat = Nat::new(NatConfig { preserves_ports: false, ..NatConfig::default() });
        let port = nat.send(at(0), hosts[0], peer);
        nat.forget();
        assert_eq!(nat.receive(at(1), peer, port), None);
        assert_ne!(nat.send(at(1), hosts[0], peer), port);
    }
}
