//! Tests of packets too long for a link, on a real kernel. A packet of a train that allows fragments is fragmented. Any other
//! packet causes an error. Each test runs over UDP and over raw IP.

mod common;

use base::{Ecn, Route};
use common::*;
use netio::{PathErrorKind, RawCarrier, SendErrorKind, Train, UdpCarrier};

type Open<C> = fn(&Namespace) -> C;
type MakeRoute = fn(&str, &str) -> Route;

fn crosses_whole_and_the_next_one_has_df_again<C: AnyCarrier>(open: Open<C>, route: MakeRoute) {
    for far_mtu in [1300, 1280] {
        let (a, _router, b) = routed(far_mtu);
        let (mut sender, mut receiver) = (open(&a), open(&b));
        for (from, to) in [("10.9.1.1", "10.9.2.2"), ("fd09:1::1", "fd09:2::2")] {
            let (there, back) = (route(from, to), route(to, from));
            let index = Some(a.ifindex("near"));
            let bytes = pattern(1400);
            let whole = train(&there, index, Ecn::Ect0, 1400, &bytes);
            let cut = Train { may_fragment: true, ..whole };
            for _ in 0..2 {
                a.within(|| sender.transmit(&whole)).unwrap();
                let (reported, kind, _) = path_error(&mut sender);
                assert_eq!(
                    (reported, kind),
                    (there, PathErrorKind::FragmentationNeeded { mtu: Some(far_mtu) })
                );
                a.within(|| sender.transmit(&cut)).unwrap();
                assert_eq!(packets(&mut receiver, 1), [(back, Ecn::Ect0, bytes.clone())]);
                assert_eq!(sender.errors(), []);
            }
        }
    }
}

/// Tests a path whose router sends no ICMP errors.
fn crosses_a_smaller_link_behind_a_silent_router<C: AnyCarrier>(open: Open<C>, route: MakeRoute) {
    let (a, router, b) = routed(1280);
    let silence = "add table inet silent; add chain inet silent out { type filter hook output priority 0; }; \
        add rule inet silent out icmpv6 type packet-too-big drop; \
        add rule inet silent out icmp type destination-unreachable drop";
    router.exec_words(&["nft", silence]);
    let (mut sender, mut receiver) = (open(&a), open(&b));
    for (from, to) in [("10.9.1.1", "10.9.2.2"), ("fd09:1::1", "fd09:2::2")] {
        let (there, back) = (route(from, to), route(to, from));
        let bytes = pattern(1400);
        let whole = train(&there, None, Ecn::NotEct, 1400, &bytes);
        sender.transmit(&whole).unwrap();
        a.within(|| sender.transmit(&Train { may_fragment: true, ..whole })).unwrap();
        assert_eq!(packets(&mut receiver, 1), [(back, Ecn::NotEct, bytes.clone())]);
        assert_eq!(sender.errors(), []);
        // The next packet fits the far link, so nothing fragments it.
        sender.transmit(&train(&there, None, Ecn::NotEct, 1200, &bytes[..1200])).unwrap();
        assert_eq!(packets(&mut receiver, 1)[0].2, bytes[..1200]);
    }
}

fn crosses_a_link_of_576_bytes<C: AnyCarrier>(open: Open<C>, route: MakeRoute) {
    let (a, _router, b) = routed(576);
    let (mut sender, mut receiver) = (open(&a), open(&b));
    let (there, back) = (route("10.9.1.1", "10.9.2.2"), route("10.9.2.2", "10.9.1.1"));
    let bytes = pattern(1400);
    let cut = Train { may_fragment: true, ..train(&there, None, Ecn::NotEct, 1400, &bytes) };
    sender.transmit(&cut).unwrap();
    assert_eq!(packets(&mut receiver, 1), [(back, Ecn::NotEct, bytes)]);
}

fn meets_a_fallen_mtu_of_its_own_interface<C: AnyCarrier>(open: Open<C>, route: MakeRoute) {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (open(&a), open(&b));
    let index = Some(a.ifindex("left"));
    let bytes = pattern(2800);
    for (from, to) in families(1) {
        let there = route(&from, &to);
        a.within(|| sender.transmit(&train(&there, index, Ecn::NotEct, 1400, &bytes))).unwrap();
        packets(&mut receiver, 2);
    }
    a.ip("link set left mtu 1300");
    b.ip("link set left mtu 1300");
    for (from, to) in families(1) {
        let there = route(&from, &to);
        let long = train(&there, index, Ecn::NotEct, 1400, &bytes);
        let error = a.within(|| sender.transmit(&long)).unwrap_err();
        assert_eq!((error.kind, error.sent), (SendErrorKind::TooLarge { mtu: Some(1300) }, 0));
        let cut = Train { may_fragment: true, ..long };
        a.within(|| sender.transmit(&cut)).unwrap();
        assert_eq!(packets(&mut receiver, 2).into_iter().flat_map(|p| p.2).collect::<Vec<_>>(), bytes);
    }
}

#[test]
fn over_udp_a_fragmentable_packet_crosses_a_small_link_and_the_next_packet_has_df() {
    crosses_whole_and_the_next_one_has_df_again(Namespace::udp as Open<UdpCarrier>, udp_route);
}

#[test]
fn over_ip_a_fragmentable_packet_crosses_a_small_link_and_the_next_packet_has_df() {
    crosses_whole_and_the_next_one_has_df_again(Namespace::raw as Open<RawCarrier>, raw_route);
}

#[test]
fn over_udp_a_fragmentable_packet_crosses_a_link_of_576_bytes() {
    crosses_a_link_of_576_bytes(Namespace::udp as Open<UdpCarrier>, udp_route);
}

#[test]
fn over_ip_a_fragmentable_packet_crosses_a_link_of_576_bytes() {
    crosses_a_link_of_576_bytes(Namespace::raw as Open<RawCarrier>, raw_route);
}

#[test]
fn over_udp_a_smaller_interface_mtu_is_reported_and_fragments_still_leave() {
    meets_a_fallen_mtu_of_its_own_interface(Namespace::udp as Open<UdpCarrier>, udp_route);
}

#[test]
fn over_ip_a_smaller_interface_mtu_is_reported_and_fragments_still_leave() {
    meets_a_fallen_mtu_of_its_own_interface(Namespace::raw as Open<RawCarrier>, raw_route);
}

#[test]
fn over_udp_a_fragmentable_packet_crosses_a_small_link_whose_router_sends_no_icmp() {
    crosses_a_smaller_link_behind_a_silent_router(Namespace::udp as Open<UdpCarrier>, udp_route);
}

#[test]
fn over_ip_a_fragmentable_packet_crosses_a_small_link_whose_router_sends_no_icmp() {
    crosses_a_smaller_link_behind_a_silent_router(Namespace::raw as Open<RawCarrier>, raw_route);
}
