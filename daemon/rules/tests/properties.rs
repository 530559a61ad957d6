//! Tests properties of the rules table that hold for any rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rules::{
    Action, Advertise, Chain, IpNet, Policy, PortRange, Rule, RuleLine, Rulebook, RulesTable, Settings,
};
use rules::{parse_table, print_table};

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|a| IpAddr::V4(Ipv4Addr::from_bits(a))),
        any::<u32>().prop_map(|a| IpAddr::V6(Ipv4Addr::from_bits(a).to_ipv6_mapped())),
        any::<u128>().prop_map(|a| IpAddr::V6(Ipv6Addr::from_bits(a))),
    ]
}

fn any_net() -> impl Strategy<Value = IpNet> {
    (any_address(), any::<u8>()).prop_filter_map("prefix too long", |(a, p)| IpNet::new(a, p % 129).ok())
}

fn any_ports() -> impl Strategy<Value = PortRange> {
    (any::<u16>(), any::<u16>()).prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).unwrap())
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let words = "[^\\p{Cc}]{1,16}";
    let form = option::of(proptest::sample::select(&Advertise::ALL));
    let interval = option::of((100u32..=3_600_000).prop_map(|ms| ms.try_into().unwrap()));
    (
        option::of(any_net()),
        option::of(any_ports()),
        any::<bool>(),
        (form, interval),
        option::of(words),
        option::of(words),
    )
        .prop_map(|(address, ports, own, (advertise, interval), name, comment)| Rule {
            address,
            ports,
            own,
            advertise,
            advertise_interval: interval.filter(|_| advertise == Some(Advertise::Timer)),
            name,
            comment,
            ..Rule::default()
        })
        .prop_filter("name and comment can be kept", |r| r.check().is_ok())
}

fn any_chain() -> impl Strategy<Value = Chain> {
    prop_oneof![Just(Chain::Local), Just(Chain::Remote)]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Enable), Just(Policy::Disable)]
}

fn any_table() -> impl Strategy<Value = RulesTable> {
    vec((any_chain(), any_policy(), any_rule()), 0..12).prop_map(|rules| {
        let mut table = RulesTable::default();
        for (chain, policy, rule) in rules {
            let advertise = rule.advertise.filter(|_| policy.is_enable());
            let advertise_interval = rule.advertise_interval.filter(|_| policy.is_enable());
            let own = rule.own && (chain, policy) == (Chain::Remote, Policy::Enable);
            let rule = Rule { own, advertise, advertise_interval, ..rule };
            table.add(chain, policy, rule).unwrap();
        }
        table
    })
}

proptest! {
    #[test]
    fn printing_a_table_and_reading_it_back_is_the_identity(table in any_table()) {
        let text = print_table(&table);
        prop_assert_eq!(parse_table(&text), Ok(table), "{}", text);
    }

    #[test]
    fn reading_any_text_never_panics_and_what_is_read_prints_stably(line in "[-AcdpPD \"'a-z0-9.:/#\\\\]{0,60}|.{0,60}") {
        if let Ok(Some(read)) = RuleLine::parse(&line) {
            prop_assert_eq!(RuleLine::parse(&read.print()), Ok(Some(read)));
        }
    }

    #[test]
    fn a_network_holds_the_address_it_was_made_of(address in any_address(), prefix in 0u8..=128) {
        if let Ok(net) = IpNet::new(address, prefix) {
            prop_assert!(net.contains(address));
            prop_assert_eq!(net.to_string().parse::<IpNet>(), Ok(net));
        }
    }

    #[test]
    fn a_decision_is_the_first_matching_exception_or_else_the_default(
        table in any_table(), chain in any_chain(), address in any_address(), port: u16, enable: bool,
    ) {
        let settings = Settings { default_local_enable: enable, default_remote_enable: enable, ..Settings::default() };
        let exception = Policy::from_enabled(!enable);
        let expected = table.list(Some(chain), Some(exception)).any(|r| r.rule.matches(address, port));
        let policy = Rulebook::new(settings, table).decide(chain, address, port).policy;
        prop_assert_eq!(policy, if expected { exception } else { exception.opposite() });
    }

    #[test]
    fn deleting_the_line_that_added_a_rule_restores_the_table(
        table in any_table(), chain in any_chain(), policy in any_policy(), rule in any_rule(),
    ) {
        let line = RuleLine { action: Action::Delete, chain, policy, rule: rule.clone() };
        let mut changed = table.clone();
        if let Ok(rules::Added::New(_)) = changed.add(chain, policy, rule) {
            let read = RuleLine::parse(&line.print()).unwrap().unwrap();
            changed.delete(chain, policy, &read.rule).unwrap();
            prop_assert_eq!(changed, table);
        }
    }
}
