//! Tests of the raw carrier's shortcuts on a real kernel: long trains that take the shortcut, and trains that must not take it.

mod common;

use base::Ecn;
use common::*;
use netio::{RawCarrier, SendErrorKind};

/// Bytes of a packet, and number of packets in a long train.
const SIZE: usize = 1400;
const LONG: usize = 20;

fn with_shortcuts(host: &Namespace, own_table: Option<&str>) -> RawCarrier {
    host.within(|| {
        let mut carrier = RawCarrier::open().expect("raw sockets, as root");
        carrier.take_shortcuts(own_table).expect("packet sockets and netlink, as root");
        carrier
    })
}

/// Sends one packet, which makes the kernel resolve the neighbour. Then sends a long train. Returns the number of packets that
/// took the shortcut.
fn exchange(a: &Namespace, sender: &mut RawCarrier, receiver: &mut RawCarrier, from: &str, to: &str) -> u64 {
    let (route, bytes) = (raw_route(from, to), pattern(SIZE * (LONG - 1) + 28));
    sender.send(&train(&route, None, Ecn::NotEct, SIZE, b"first")).unwrap();
    assert_eq!(packets(receiver, 1)[0].2, b"first");
    let before = sender.counters();
    a.within(|| sender.send(&train(&route, None, Ecn::Ect0, SIZE, &bytes))).unwrap();
    let arrived = packets(receiver, LONG);
    assert!(arrived.iter().all(|p| (p.0, p.1) == (raw_route(to, from), Ecn::Ect0)), "{arrived:?}");
    assert_eq!(arrived.into_iter().flat_map(|p| p.2).collect::<Vec<_>>(), bytes);
    let after = sender.counters();
    assert_eq!(after.packets_sent - before.packets_sent, LONG as u64);
    assert_eq!(after.bytes_sent - before.bytes_sent, bytes.len() as u64);
    after.shortcut_packets - before.shortcut_packets
}

#[test]
fn a_long_train_takes_the_shortcut_whole_in_both_families() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (with_shortcuts(&a, None), b.raw());
    for (from, to) in families(1) {
        assert_eq!(exchange(&a, &mut sender, &mut receiver, &from, &to), LONG as u64);
    }
}

#[test]
fn a_train_behind_a_router_takes_the_shortcut_to_the_router() {
    let (a, _router, b) = routed(1500);
    let (mut sender, mut receiver) = (with_shortcuts(&a, None), b.raw());
    for (from, to) in [("10.9.1.1", "10.9.2.2"), ("fd09:1::1", "fd09:2::2")] {
        assert_eq!(exchange(&a, &mut sender, &mut receiver, from, to), LONG as u64);
    }
}

#[test]
fn trains_take_no_shortcut_while_another_program_has_a_netfilter_chain() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (with_shortcuts(&a, Some("ours")), b.raw());
    let mut exchange = || {
        let [(from, to), _] = families(1);
        exchange(&a, &mut sender, &mut receiver, &from, &to)
    };
    a.exec("nft add table inet ours");
    a.exec("nft add chain inet ours out { type filter hook output priority 0 ; }");
    assert_eq!(exchange(), LONG as u64, "our own table is no filter");
    a.exec("nft add table ip theirs");
    assert_eq!(exchange(), LONG as u64, "a table without chains is no filter");
    a.exec("nft add chain ip theirs in { type filter hook input priority 0 ; }");
    assert_eq!(exchange(), 0, "a chain is a filter");
    a.exec("nft delete table ip theirs");
    assert_eq!(exchange(), LONG as u64, "the filter is gone");
}

#[test]
fn trains_take_no_shortcut_while_an_ipsec_policy_exists() {
    let (a, b) = pair();
    a.ip("xfrm policy add src 10.9.7.1 dst 10.9.7.2 dir out action allow");
    let (mut sender, mut receiver) = (with_shortcuts(&a, None), b.raw());
    let [(from, to), _] = families(1);
    assert_eq!(exchange(&a, &mut sender, &mut receiver, &from, &to), 0);
}

#[test]
fn a_policy_of_ipsec_is_noticed_within_1024_trains() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (with_shortcuts(&a, None), b.raw());
    let [(from, to), _] = families(1);
    // A change of a neighbour's state would make the shortcut repeat its lookup at once, so this neighbour entry is permanent.
    b.ip("link set left address 02:00:00:00:00:77");
    a.ip(&format!("neigh replace {to} lladdr 02:00:00:00:00:77 dev left nud permanent"));
    let mut exchange = || exchange(&a, &mut sender, &mut receiver, &from, &to);
    assert_eq!(exchange(), LONG as u64);
    a.ip("xfrm policy add src 10.9.7.1 dst 10.9.7.2 dir out action allow");
    let shortcuts: Vec<u64> = (0..1200).map(|_| exchange()).collect();
    // One train in 64 takes the kernel's way in any case, so only the trains after the limit are checked.
    assert!(shortcuts[1026..].iter().all(|packets| *packets == 0), "{shortcuts:?}");
}

#[test]
fn the_shortcut_uses_a_neighbours_new_mac_address_at_once() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (with_shortcuts(&a, None), b.raw());
    let [(from, to), _] = families(1);
    assert_eq!(exchange(&a, &mut sender, &mut receiver, &from, &to), LONG as u64);
    b.ip("link set left address 02:00:00:00:00:77");
    a.ip(&format!("neigh replace {to} lladdr 02:00:00:00:00:77 dev left"));
    assert_eq!(exchange(&a, &mut sender, &mut receiver, &from, &to), LONG as u64);
}

#[test]
fn a_train_to_a_local_address_takes_no_shortcut() {
    let (a, _b) = pair();
    let mut carrier = with_shortcuts(&a, None);
    let route = raw_route("10.9.1.1", "10.9.1.1");
    a.within(|| carrier.send(&train(&route, None, Ecn::NotEct, SIZE, &pattern(SIZE * LONG)))).unwrap();
    assert_eq!(packets(&mut carrier, LONG).len(), LONG);
    assert_eq!(carrier.counters().shortcut_packets, 0);
}

#[test]
fn one_train_in_64_takes_no_shortcut() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (with_shortcuts(&a, None), b.raw());
    let [(from, to), _] = families(1);
    let shortcuts = (0..64).map(|_| exchange(&a, &mut sender, &mut receiver, &from, &to));
    assert_eq!(shortcuts.filter(|packets| *packets == 0).count(), 1);
}

#[test]
fn with_shortcuts_a_packet_longer_than_the_interface_mtu_is_refused() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (with_shortcuts(&a, None), b.raw());
    for (from, to) in families(1) {
        exchange(&a, &mut sender, &mut receiver, &from, &to);
        let route = raw_route(&from, &to);
        let too_long = pattern(1600 * LONG);
        let error = a.within(|| sender.send(&train(&route, None, Ecn::NotEct, 1600, &too_long))).unwrap_err();
        assert_eq!((error.kind, error.sent), (SendErrorKind::TooLarge { mtu: None }, 0));
    }
}
