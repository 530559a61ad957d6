//! Computes the destinations whose connections may be carried over SCTP. The result is a list of non-overlapping ranges of
//! addresses and ports, because a firewall's sets can contain such ranges.
//!
//! The result agrees with [`Rulebook::explain`] for every destination. If the result would need more than [`DESTINATIONS_MAX`]
//! ranges, it is [`Tried::Everything`]. A range never mixes destinations on which different rules decide. Begin with
//! [`Rulebook::tried`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Chain, IpNet, Policy, Rule, Rulebook};

/// Limit on the ranges. The kernel takes too long to load more ranges.
pub const DESTINATIONS_MAX: usize = 1024;
/// Limit on the comparisons of two ranges. It bounds the time of the computation to a few milliseconds.
const COMPARISONS_MAX: usize = 1 << 20;

/// Destinations that the rules may send over SCTP. For other destinations, a packet mark may request SCTP (setting
/// `manual_mark`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tried {
    /// All destinations. This is also the result if the rules would need too many ranges.
    Everything,
    /// Only these destinations.
    Only(Vec<Destinations>),
    /// All destinations except these.
    AllBut(Vec<Destinations>),
}

/// A range of addresses of one family, with a range of ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Destinations {
    /// First and last address, as numbers. An IPv4 address uses the lower 32 bits.
    addresses: (u128, u128),
    ports: (u16, u16),
    is_ipv4: bool,
}

impl Destinations {
    fn of_network(address: IpAddr, prefix_len: u8, ports: (u16, u16)) -> Destinations {
        let (first, bits) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let hosts = 1u128.checked_shl(bits - u32::from(prefix_len)).map_or(u128::MAX, |size| size - 1);
        Destinations { addresses: (first, first | hosts), ports, is_ipv4: address.is_ipv4() }
    }

    /// Returns the destinations that a rule matches, in one range for each address family.
    fn of_rule(rule: &Rule) -> impl Iterator<Item = Destinations> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let ports = rule.ports.map_or((0, u16::MAX), crate::PortRange::ends);
        let networks = match rule.address {
            Some(net) => [Some((net.address(), net.prefix_len())), None],
            None => any.map(|address| Some((address, 0))),
        };
        networks.into_iter().flatten().map(move |(address, length)| Self::of_network(address, length, ports))
    }

    /// Returns the first and last address.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        let (first, last) = self.addresses;
        let address = |bits: u128| match self.is_ipv4 {
            // An IPv4 address uses only the lower 32 bits.
            true => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
            false => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        };
        (address(first), address(last))
    }

    /// Returns the first and last port.
    pub const fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// Reports whether the range contains this destination.
    pub fn contains(&self, address: IpAddr, port: u16) -> bool {
        let host = IpNet::host(address);
        self.overlaps(&Self::of_network(host.address(), host.prefix_len(), (port, port)))
    }

    fn overlaps(&self, other: &Destinations) -> bool {
        self.is_ipv4 == other.is_ipv4
            && self.addresses.0 <= other.addresses.1
            && other.addresses.0 <= self.addresses.1
            && self.ports.0 <= other.ports.1
            && other.ports.0 <= self.ports.1
    }

    /// Adds to `rest` the part of this range that is not in `other`, in up to four ranges.
    fn without(self, other: &Destinations, rest: &mut Vec<Destinations>) {
        if !self.overlaps(other) {
            rest.push(self);
            return;
        }
        let ((first, last), (low, high)) = (self.addresses, self.ports);
        // No addition or subtraction here overflows, because each result lies within this range.
        if first < other.addresses.0 {
            rest.push(Destinations { addresses: (first, other.addresses.0 - 1), ..self });
        }
        if other.addresses.1 < last {
            rest.push(Destinations { addresses: (other.addresses.1 + 1, last), ..self });
        }
        let common =
            Destinations { addresses: (first.max(other.addresses.0), last.min(other.addresses.1)), ..self };
        if low < other.ports.0 {
            rest.push(Destinations { ports: (low, other.ports.0 - 1), ..common });
        }
        if other.ports.1 < high {
            rest.push(Destinations { ports: (other.ports.1 + 1, high), ..common });
        }
    }
}

impl Rulebook {
    /// Returns the destinations of connections that may be carried over SCTP.
    pub fn tried(&self) -> Tried {
        if !self.settings.enable {
            return Tried::Only(Vec::new());
        }
        let ranges = |policy: Policy| {
            let rules = self.table.list(Some(Chain::Remote), Some(policy));
            disjoint(rules.flat_map(|found| Destinations::of_rule(found.rule)))
        };
        match self.default_policy(Chain::Remote) {
            Policy::Disable => ranges(Policy::Enable).map(Tried::Only),
            Policy::Enable => ranges(Policy::Disable).filter(|ranges| !ranges.is_empty()).map(Tried::AllBut),
        }
        .unwrap_or(Tried::Everything)
    }
}

/// Splits the destinations into ranges that do not overlap. Each resulting range lies within the first element of `all` that
/// contains one of its destinations. Returns `None` if the split needs too many ranges or comparisons.
fn disjoint(all: impl Iterator<Item = Destinations>) -> Option<Vec<Destinations>> {
    let (mut earlier, mut found) = (Vec::new(), Vec::new());
    let mut comparisons = 0;
    for range in all {
        let mut rest = vec![range];
        for other in &earlier {
            comparisons += rest.len();
            if comparisons > COMPARISONS_MAX || rest.len() > DESTINATIONS_MAX {
                return None;
            }
            if rest.iter().any(|part| part.overlaps(other)) {
                let mut less = Vec::new();
                rest.into_iter().for_each(|part| part.without(other, &mut less));
                rest = less;
            }
        }
        earlier.push(range);
        found.extend(rest);
        if found.len() > DESTINATIONS_MAX {
            return None;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{PortRange, Settings, parse_table};

    fn book(table: &str, default: bool) -> Rulebook {
        let settings = Settings { default_remote_enable: default, ..Settings::default() };
        Rulebook::new(settings, parse_table(table).expect(table))
    }

    /// Returns the decision of a kernel whose sets contain these destinations.
    fn is_tried(tried: &Tried, address: IpAddr, port: u16) -> bool {
        let names = |ranges: &[Destinations]| ranges.iter().any(|range| range.contains(address, port));
        match tried {
            Tried::Everything => true,
            Tried::Only(ranges) => names(ranges),
            Tried::AllBut(ranges) => !names(ranges),
        }
    }

    fn shown(tried: &Tried) -> Vec<String> {
        let (Tried::Only(ranges) | Tried::AllBut(ranges)) = tried else { return vec!["everything".into()] };
        let text = |range: &Destinations| {
            let ((first, last), (low, high)) = (range.addresses(), range.ports());
            format!("{first}-{last} {low}:{high}")
        };
        ranges.iter().map(text).collect()
    }

    #[test]
    fn a_rule_without_an_address_is_of_both_families() {
        let tried = book("-A -c remote -p enable -P 22\n", false).tried();
        let all = ["0.0.0.0-255.255.255.255 22:22", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 22:22"];
        assert_eq!(shown(&tried), all);
    }

    #[test]
    fn a_later_rule_gives_only_what_no_earlier_one_has() {
        let rules = "-A -c remote -p enable -d 10.1.0.0/16 -P 22\n-A -c remote -p enable -d 10.0.0.0/15 -P 20:25\n\
                     -A -c remote -p enable -d 10.1.2.0/24 -P 21:22\n";
        let expected = [
            "10.1.0.0-10.1.255.255 22:22",
            "10.0.0.0-10.0.255.255 20:25",
            "10.1.0.0-10.1.255.255 20:21",
            "10.1.0.0-10.1.255.255 23:25",
        ];
        assert_eq!(shown(&book(rules, false).tried()), expected);
    }

    #[test]
    fn with_the_default_enable_all_is_tried_but_what_rules_disable() {
        let rules = "-A -c remote -p disable -d 2001:db8::/32\n-A -c remote -p enable -P 22 --require\n";
        let tried = book(rules, true).tried();
        assert!(matches!(tried, Tried::AllBut(_)), "{tried:?}");
        assert_eq!(shown(&tried), ["2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff 0:65535"]);
        assert_eq!(book("", true).tried(), Tried::Everything);
    }

    #[test]
    fn a_disabled_shim_or_a_remote_chain_without_rules_tries_nothing() {
        let mut off = book("-A -c remote -p enable -P 22\n", true);
        off.settings.enable = false;
        assert_eq!(off.tried(), Tried::Only(Vec::new()));
        assert_eq!(book("-A -c local -p enable -P 22\n", false).tried(), Tried::Only(Vec::new()));
    }

    #[test]
    fn more_ranges_than_the_limit_mean_that_every_destination_is_tried() {
        let rules = |count: usize| -> String {
            let rule = |n| format!("-A -c remote -p enable -d 10.{}.{}.1 -P 22\n", n / 256, n % 256);
            (0..count).map(rule).collect()
        };
        let most = book(&rules(DESTINATIONS_MAX), false).tried();
        assert_eq!(shown(&most).len(), DESTINATIONS_MAX);
        assert_eq!(book(&rules(DESTINATIONS_MAX + 1), false).tried(), Tried::Everything);
    }

    #[test]
    fn too_many_overlapping_rules_mean_that_every_destination_is_tried() {
        let ports: String =
            (0..2000).map(|n| format!("-A -c remote -p enable -d 0.0.0.0/1 -P {}\n", 2 * n)).collect();
        let networks: String = (0..2000)
            .map(|n| format!("-A -c remote -p enable -d 10.{}.{}.0/24\n", n / 256, n % 256))
            .collect();
        assert_eq!(book(&(ports + &networks), false).tried(), Tried::Everything);
    }

    /// Generates destinations from few addresses and ports, so the generated rules often overlap or adjoin.
    fn destination() -> impl Strategy<Value = (IpAddr, u16)> {
        let address = prop_oneof![
            (0u8..4, any::<bool>())
                .prop_map(|(n, last)| { IpAddr::from([10, n, 0, if last { 255 } else { 0 }]) }),
            (0u16..4).prop_map(|n| IpAddr::from([0x2001, 0xdb8, n, 0, 0, 0, 0, 1])),
            Just("0.0.0.0".parse().unwrap()),
            Just("255.255.255.255".parse().unwrap()),
            Just("::".parse().unwrap()),
            Just("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap()),
        ];
        (address, prop_oneof![0u16..6, Just(u16::MAX)])
    }

    fn rule() -> impl Strategy<Value = (Policy, Rule)> {
        let length = prop_oneof![Just(0u8), Just(8), 14u8..=17, Just(24), Just(31), Just(32)];
        let address = (destination(), length).prop_map(|((address, _), length)| {
            let length = if address.is_ipv4() { length } else { (4 * length).min(128) };
            IpNet::new(address, length).unwrap()
        });
        let ports = ((0u16..6), prop_oneof![0u16..6, Just(u16::MAX)]);
        let ports = ports.prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).unwrap());
        let (address, ports) = (proptest::option::of(address), proptest::option::of(ports));
        (any::<bool>(), any::<bool>(), address, ports).prop_map(|(enable, require, address, ports)| {
            (
                Policy::from_enabled(enable),
                Rule { address, ports, require: enable && require, ..Rule::default() },
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn sets_and_rules_agree_on_every_destination(
            rules in proptest::collection::vec(rule(), 0..12),
            default in any::<bool>(),
            asked in proptest::collection::vec(destination(), 40),
        ) {
            let mut book = book("", default);
            for (policy, rule) in rules {
                // If a rule has the same match as an earlier one, it replaces the earlier rule.
                book.table.add(Chain::Remote, policy, rule).unwrap();
            }
            let tried = book.tried();
            for (address, port) in asked {
                let decision = book.explain(Chain::Remote, address, port);
                prop_assert_eq!(
                    is_tried(&tried, address, port), decision.policy.is_enable(), "{} {}: {:?}", address, port, tried
                );
                let guard = book.guarded().into_iter().find(|guard| {
                    guard.address.is_none_or(|net| net.contains(address))
                        && guard.ports.is_none_or(|ports| ports.contains(port))
                });
                if guard.is_some_and(|guard| guard.is_refused) {
                    prop_assert!(is_tried(&tried, address, port), "{address} {port}: {tried:?}");
                }
            }
            let (Tried::Only(ranges) | Tried::AllBut(ranges)) = tried else { return Ok(()) };
            for (n, range) in ranges.iter().enumerate() {
                prop_assert!(!ranges[..n].iter().any(|other| other.overlaps(range)), "{ranges:?}");
                // The rule that decides on the first destination of a range also decides on the last one.
                let ((first, last), (low, high)) = (range.addresses(), range.ports());
                let at = |address, port| book.explain(Chain::Remote, address, port).because;
                prop_assert_eq!(at(first, low), at(last, high));
            }
        }
    }
}
