//! Tests of addresses and links on a real kernel, in network namespaces.

mod common;

use std::time::Duration;

use common::*;
use netio::{AddressEvent, FoundRoute, LinkKind, Monitor, Routes, Scope, addresses};

const NONE: [&str; 0] = [];

/// Waits until the monitor has reported an event that `is` accepts.
fn wait_for(monitor: &mut Monitor, is: impl Fn(&AddressEvent) -> bool) -> AddressEvent {
    let mut all = Vec::new();
    for _ in 0..3000 {
        monitor.poll(|event| all.push(event)).unwrap();
        if let Some(event) = all.iter().find(|event| is(event)) {
            return event.clone();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("only {all:?} after 3 s");
}

#[test]
fn usable_addresses_are_listed_with_their_interfaces() {
    let (a, _b) = two_uplinks();
    a.ip("addr add 169.254.7.7/16 dev left");
    a.ip("addr add fd09:9::1/64 dev left preferred_lft 0 nodad");
    a.ip("link set right mtu 1400");
    let found = a.within(|| addresses(&NONE)).unwrap();
    let list: Vec<_> =
        found.iter().map(|f| (f.addr.to_string(), f.prefix_len, &*f.ifname, f.mtu, f.scope)).collect();
    let private = Scope::Private;
    let expected = [
        ("10.9.1.1".to_owned(), 24, "left", 1500, private),
        ("fd09:1::1".to_owned(), 64, "left", 1500, private),
        ("10.9.2.1".to_owned(), 24, "right", 1400, private),
        ("fd09:2::1".to_owned(), 64, "right", 1400, private),
    ];
    assert_eq!(list, expected);
    assert!(found.iter().all(|f| f.is_up && f.ifindex == a.ifindex(&f.ifname)));
}

#[test]
fn interfaces_are_left_out_by_the_beginning_of_their_names() {
    let (a, _b) = two_uplinks();
    let found = a.within(|| addresses(&["rig", "docker"])).unwrap();
    assert!(found.len() == 2 && found.iter().all(|f| f.ifname == "left"), "{found:?}");
}

#[test]
fn the_monitor_sees_an_address_come_and_go() {
    let (a, _b) = pair();
    let mut monitor = a.within(|| Monitor::open(&NONE)).unwrap();
    let ifindex = a.ifindex("left");
    for addr in ["10.9.77.1", "fd09:77::1"] {
        let length = if addr.contains(':') { "64 nodad" } else { "24" };
        a.ip(&format!("addr add {addr}/{length} dev left"));
        wait_for(&mut monitor, |e| matches!(e, AddressEvent::AddressAdded(l) if l.addr == ip(addr)));
        a.ip(&format!("addr del {addr}/{} dev left", &length[..2]));
        wait_for(&mut monitor, |e| *e == AddressEvent::AddressRemoved { addr: ip(addr), ifindex });
    }
}

#[test]
fn the_monitor_sees_a_link_lose_its_carrier_come_back_and_disappear() {
    let (a, b) = pair();
    let mut monitor = a.within(|| Monitor::open(&NONE)).unwrap();
    let link = (a.ifindex("left"), "left".to_owned());
    let is_down = |e: &AddressEvent| *e == AddressEvent::LinkDown { ifindex: link.0, ifname: link.1.clone() };
    b.ip("link set left down");
    wait_for(&mut monitor, is_down);
    assert!(a.within(|| addresses(&NONE)).unwrap().iter().all(|address| !address.is_up));
    b.ip("link set left up");
    wait_for(&mut monitor, |e| *e == AddressEvent::LinkUp { ifindex: link.0, ifname: link.1.clone() });
    a.ip("link del left");
    wait_for(&mut monitor, is_down);
}

#[test]
fn the_monitor_reports_nothing_of_interfaces_that_are_left_out() {
    let (a, _b) = pair();
    let mut monitor = a.within(|| Monitor::open(&["left"])).unwrap();
    a.ip("addr add 10.9.77.1/24 dev left");
    a.ip("link set left down");
    a.ip("link add seen type veth peer name unseen");
    a.ip("addr add 10.9.78.1/24 dev seen");
    let mut all = Vec::new();
    let is_seen = |e: &AddressEvent| matches!(e, AddressEvent::AddressAdded(l) if l.ifname == "seen");
    for _ in 0..3000 {
        monitor.poll(|event| all.push(event)).unwrap();
        if all.iter().any(is_seen) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(all.len() == 1 && is_seen(&all[0]), "{all:?}");
}

#[test]
fn bridges_and_tunnels_are_told_from_other_interfaces() {
    let (a, _b) = pair();
    a.ip("link add name br7 type bridge");
    a.ip("addr add 10.8.1.1/24 dev br7");
    a.ip("tuntap add dev tun7 mode tun");
    a.ip("addr add 10.8.2.1/24 dev tun7");
    let found = a.within(|| addresses(&NONE)).unwrap();
    let kind = |name| found.iter().find(|f| f.ifname == name).map(|f| f.kind);
    assert_eq!(
        ["left", "br7", "tun7"].map(kind),
        [LinkKind::Other, LinkKind::Bridge, LinkKind::Tunnel].map(Some)
    );
}

#[test]
fn a_route_is_found_only_if_a_routing_entry_uses_the_given_interface() {
    let (a, _b) = two_uplinks();
    let [left, right] = ["left", "right"].map(|name| a.ifindex(name));
    let find = |local: &str, ifindex, remote: &str| {
        a.within(|| Routes::open().unwrap().find(ip(local), ifindex, ip(remote)).unwrap())
    };
    let neighbour = |prefix_len| Some(FoundRoute { prefix_len, has_gateway: false });
    assert_eq!(find("10.9.1.1", left, "10.9.1.2"), neighbour(24));
    assert_eq!(find("fd09:1::1", left, "fd09:1::2"), neighbour(64));
    assert_eq!(find("10.9.2.1", right, "10.9.1.2"), None, "no entry leads there by the other interface");
    assert_eq!(find("10.9.1.1", left, "192.0.2.1"), None);
    assert_eq!(find("10.9.1.1", left, "fd09:1::2"), None, "another family");
    a.ip("route add default via 10.9.1.2");
    a.ip("route add default via 10.9.2.2 metric 900");
    a.ip("-6 route add default via fd09:2::2");
    let default = Some(FoundRoute { prefix_len: 0, has_gateway: true });
    assert_eq!(find("10.9.1.1", left, "192.0.2.1"), default);
    assert_eq!(find("10.9.2.1", right, "192.0.2.1"), default, "the second default route counts");
    assert_eq!(find("fd09:2::1", right, "2001:db8::1"), default);
    a.ip("route del default via 10.9.2.2 metric 900");
    a.ip("route add default via 10.9.2.2 table 77");
    a.ip("rule add from 10.9.2.1 lookup 77");
    assert_eq!(find("10.9.2.1", right, "192.0.2.1"), default, "a routing rule leads to it");
}
