//! Tests of successive attempts (RFC 3261 sections 16.6 and 18.1.1, RFC 3263 section 4.3). The tests cover serial forking by q, the
//! change to TCP for messages that are too long for UDP, and the addresses to which a name resolves.

use std::time::Duration;

use sip::Transport;
use sip::proxy::{LostRequest, ProxyConfig, ResolvedTarget};

use crate::world::*;

/// Calls bob, who has two contacts with different q. Returns the messages that the proxy sends.
fn preferred() -> (World, Vec<Sent>) {
    let mut world = World::new(config());
    world.register("bob", udp(CAROL), &format!("Contact: <sip:bob@{CAROL}>;q=0.5\n"));
    world.register("bob", udp(BOB), &format!("Contact: <sip:bob@{BOB}>;q=0.51\n"));
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", BOB)]));
    (world, sent)
}

#[test]
fn a_contact_of_less_preference_is_tried_when_the_first_has_refused() {
    let (mut world, sent) = preferred();
    let after = world.put_message(udp(BOB), &sent[1].answer(486));
    assert_eq!(summary(&after), pairs(&[("ACK", BOB), ("INVITE", CAROL)]));
    assert_ne!(after[1].branch(), sent[1].branch());
    let after = world.put_message(udp(CAROL), &after[1].answer(404));
    assert_eq!(summary(&after), pairs(&[("ACK", CAROL), ("486", ALICE)]), "the best of both");
}

#[test]
fn nothing_more_is_tried_after_success_or_6xx_or_cancel() {
    let (mut world, sent) = preferred();
    assert_eq!(summary(&world.put_message(udp(BOB), &sent[1].answer(200))), pairs(&[("200", ALICE)]));
    let (mut world, sent) = preferred();
    let after = world.put_message(udp(BOB), &sent[1].answer(603));
    assert_eq!(summary(&after), pairs(&[("ACK", BOB), ("603", ALICE)]));
    let (mut world, sent) = preferred();
    world.put_message(udp(BOB), &sent[1].answer(180));
    let cancel = request("CANCEL", "sip:bob@example.com", "alice", "bob", "i1", udp(ALICE), "");
    assert_eq!(summary(&world.put(udp(ALICE), &cancel)), pairs(&[("200", ALICE), ("CANCEL", BOB)]));
    let after = world.put_message(udp(BOB), &sent[1].answer(487));
    assert_eq!(summary(&after), pairs(&[("ACK", BOB), ("487", ALICE)]));
}

#[test]
fn an_invalid_q_value_is_refused_with_400() {
    for (q, what) in
        [("0", "200"), ("1.000", "200"), ("0.123", "200"), ("1.1", "400"), ("0.1234", "400"), ("x", "400")]
    {
        let mut world = World::new(config());
        let contact = format!("Contact: <sip:bob@{BOB}>;q={q}\n");
        assert_eq!(world.register("bob", udp(BOB), &contact).what(), what, "{q}");
    }
}

#[test]
fn a_request_too_long_for_udp_goes_by_tcp_and_back_to_udp_if_nobody_listens_there() {
    for (filling, transport) in [(700, Transport::Udp), (1300, Transport::Tcp)] {
        let mut world = World::new(config());
        world.register("bob", udp(BOB), "");
        // The explicit Contact makes calls use bob's address instead of the flow of the REGISTER.
        world.register("bob", udp(CAROL), &format!("Contact: <sip:bob@{BOB};transport=udp>\n"));
        let long = format!("X-Long: {}\n", "x".repeat(filling));
        let sent = world.put(udp(ALICE), &invite(udp(ALICE), &long));
        assert_eq!((sent[1].hop.transport, sent[1].to().as_str()), (transport, BOB), "{filling}");
        if transport == Transport::Tcp {
            assert!(sent[1].value(sip::Name::Via).starts_with("SIP/2.0/TCP "));
            world.proxy.handle_send_failure(world.now, sent[1].on_failure.unwrap());
            let again = world.sent();
            assert_eq!((again[0].what().as_str(), again[0].hop.transport), ("INVITE", Transport::Udp));
            let refused = world.put_message(udp(BOB), &again[0].answer(486));
            assert_eq!(summary(&refused), pairs(&[("ACK", BOB), ("486", ALICE)]));
        }
    }
}

fn targets(all: &[(Transport, &str)]) -> Vec<ResolvedTarget> {
    let target = |(transport, address): &(_, &str)| ResolvedTarget {
        transport: *transport,
        address: address.parse().unwrap(),
    };
    all.iter().map(target).collect()
}

/// Calls a domain that must be looked up. Returns the messages that the proxy sends.
fn named(uri: &str) -> (World, Vec<Sent>) {
    let mut world = World::new(ProxyConfig { names: true, ..config() });
    let sent = world.put(udp(ALICE), &request("INVITE", uri, "alice", "zoe", "i1", udp(ALICE), ""));
    (world, sent)
}

#[test]
fn a_request_waits_for_dns_and_tries_the_next_target_if_a_target_fails() {
    let (mut world, sent) = named("sip:zoe@Far.Example");
    assert_eq!(summary(&sent), pairs(&[("100", ALICE)]));
    let lookup = world.lookups.pop().unwrap();
    assert_eq!((lookup.name.as_str(), lookup.port, lookup.transport), ("far.example", None, None));
    let both = targets(&[
        (Transport::Sctp, "192.0.2.66:5060"),
        (Transport::Tcp, "192.0.2.7:5060"),
        (Transport::Udp, "192.0.2.8:5060"),
        (Transport::Udp, "192.0.2.9:5060"),
    ]);
    world.proxy.handle_resolved(world.now, lookup, both, Duration::from_secs(60));
    let sent = world.sent();
    assert_eq!(summary(&sent), pairs(&[("INVITE", "192.0.2.7:5060")]), "there is no listener for SCTP");
    world.proxy.handle_send_failure(world.now, sent[0].on_failure.unwrap());
    let sent = world.sent();
    assert_eq!(summary(&sent), pairs(&[("INVITE", "192.0.2.8:5060")]));
    let sent = world.put_message(udp("192.0.2.8:5060"), &sent[0].answer(503));
    assert_eq!(summary(&sent), pairs(&[("ACK", "192.0.2.8:5060"), ("INVITE", "192.0.2.9:5060")]));
    // A resolved name is used again while it is valid.
    let again = request("OPTIONS", "sip:zoe@far.example", "alice", "zoe", "o2", udp(ALICE), "");
    assert_eq!(summary(&world.put(udp(ALICE), &again)), pairs(&[("OPTIONS", "192.0.2.7:5060")]));
    world.pass(Duration::from_secs(61));
    let again = again.replace("o2", "o3");
    assert!(world.put(udp(ALICE), &again).is_empty());
    assert_eq!(world.lookups.len(), 1);
}

/// Calls a domain that resolves to these hops. Returns the INVITE to the first hop.
fn resolved(hops: &[&str]) -> (World, Sent) {
    let (mut world, _) = named("sip:zoe@far.example");
    let all: Vec<_> = hops.iter().map(|hop| (Transport::Udp, *hop)).collect();
    let lookup = world.lookups.pop().unwrap();
    world.proxy.handle_resolved(world.now, lookup, targets(&all), Duration::from_secs(60));
    let sent = world.sent().remove(0);
    (world, sent)
}

/// Reports that the association of a request has failed. Returns the messages that the proxy sends.
fn lose(world: &mut World, sent: &Sent, may_resend: bool) -> Vec<(String, String)> {
    let lost = LostRequest { on_failure: sent.on_failure.unwrap(), may_resend };
    world.proxy.handle_lost_request(world.now, lost);
    summary(&world.sent())
}

const HOPS: [&str; 2] = ["192.0.2.8:5060", "192.0.2.9:5060"];

#[test]
fn a_lost_request_goes_to_the_next_hop_unless_a_response_has_come() {
    for may_resend in [false, true] {
        let (mut world, sent) = resolved(&HOPS);
        assert_eq!(lose(&mut world, &sent, may_resend), pairs(&[("INVITE", HOPS[1])]));
        let (mut world, sent) = resolved(&HOPS);
        world.put_message(udp(HOPS[0]), &sent.answer(180));
        assert_eq!(lose(&mut world, &sent, may_resend), pairs(&[]));
    }
}

#[test]
fn a_lost_request_without_another_hop_is_sent_once_more_in_the_same_branch_if_the_peer_was_restarted() {
    let (mut world, sent) = resolved(&HOPS[..1]);
    assert_eq!(lose(&mut world, &sent, false), pairs(&[("500", ALICE)]));
    let (mut world, sent) = resolved(&HOPS[..1]);
    world.pass(Duration::from_millis(400));
    let lost = LostRequest { on_failure: sent.on_failure.unwrap(), may_resend: true };
    world.proxy.handle_lost_request(world.now, lost);
    let again = world.sent();
    assert_eq!((summary(&again), again[0].branch()), (pairs(&[("INVITE", HOPS[0])]), sent.branch()));
    assert!(again[0].is_new, "it begins a dialog");
    // Timer B begins anew.
    let until_timer_b = world.pass(Duration::from_millis(31_900));
    assert!(!until_timer_b.is_empty() && until_timer_b.iter().all(|sent| sent.what() == "INVITE"));
    assert_eq!(lose(&mut world, &sent, true), pairs(&[("500", ALICE)]));
}

#[test]
fn after_a_response_to_the_second_copy_a_failure_to_send_it_ends_nothing() {
    let (mut world, sent) = resolved(&HOPS[..1]);
    lose(&mut world, &sent, true);
    let ringing = world.put_message(udp(HOPS[0]), &sent.answer(180));
    assert_eq!(summary(&ringing), pairs(&[("180", ALICE)]));
    world.proxy.handle_send_failure(world.now, sent.on_failure.unwrap());
    assert_eq!(summary(&world.sent()), pairs(&[]));
}

#[test]
fn a_lost_request_that_its_caller_has_cancelled_is_not_sent_again() {
    let (mut world, sent) = resolved(&HOPS[..1]);
    let cancel = request("CANCEL", "sip:zoe@far.example", "alice", "zoe", "i1", udp(ALICE), "");
    assert_eq!(summary(&world.put(udp(ALICE), &cancel)), pairs(&[("200", ALICE)]));
    assert_eq!(lose(&mut world, &sent, true), pairs(&[("487", ALICE)]));
}

#[test]
fn a_lost_cancel_is_sent_once_more() {
    let (mut world, sent) = resolved(&HOPS[..1]);
    world.put_message(udp(HOPS[0]), &sent.answer(180));
    let cancel = request("CANCEL", "sip:zoe@far.example", "alice", "zoe", "i1", udp(ALICE), "");
    let cancelled = world.put(udp(ALICE), &cancel);
    assert_eq!(summary(&cancelled), pairs(&[("200", ALICE), ("CANCEL", HOPS[0])]));
    assert_eq!(lose(&mut world, &cancelled[1], true), pairs(&[("CANCEL", HOPS[0])]));
    assert_eq!(lose(&mut world, &cancelled[1], true), pairs(&[]));
}

#[test]
fn timer_f_of_a_request_that_is_sent_again_goes_on() {
    let mut world = World::new(ProxyConfig { names: true, ..config() });
    let options = request("OPTIONS", "sip:zoe@far.example", "alice", "zoe", "o1", udp(ALICE), "");
    world.put(udp(ALICE), &options);
    let lookup = world.lookups.pop().unwrap();
    let found = targets(&[(Transport::Udp, HOPS[0])]);
    world.proxy.handle_resolved(world.now, lookup, found, Duration::from_secs(60));
    let sent = world.sent().remove(0);
    world.pass(Duration::from_secs(20));
    assert_eq!(lose(&mut world, &sent, true), pairs(&[("OPTIONS", HOPS[0])]));
    let until_timer_f = world.pass(Duration::from_secs(13));
    assert!(!until_timer_f.is_empty() && until_timer_f.iter().all(|sent| sent.what() == "OPTIONS"));
    assert_eq!(summary(&world.pass(Duration::from_secs(20))), pairs(&[]));
}

#[test]
fn all_requests_that_wait_for_a_name_get_500_if_its_lookup_finds_no_address() {
    let (mut world, _) = named("sip:zoe@far.example");
    let second = request("OPTIONS", "sip:yves@far.example", "alice", "yves", "o2", udp(ALICE), "");
    world.put(udp(ALICE), &second);
    assert_eq!(world.lookups.len(), 1);
    world.proxy.handle_resolved(world.now, world.lookups[0].clone(), Vec::new(), Duration::from_secs(1));
    assert_eq!(summary(&world.sent()), pairs(&[("500", ALICE), ("500", ALICE)]));
}

#[test]
fn a_call_cancelled_during_its_dns_lookup_is_not_forwarded() {
    let (mut world, _) = named("sip:zoe@far.example");
    let cancel = request("CANCEL", "sip:zoe@far.example", "alice", "zoe", "i1", udp(ALICE), "");
    assert_eq!(summary(&world.put(udp(ALICE), &cancel)), pairs(&[("200", ALICE)]));
    let found = targets(&[(Transport::Udp, "192.0.2.8:5060")]);
    world.proxy.handle_resolved(world.now, world.lookups[0].clone(), found, Duration::from_secs(1));
    assert_eq!(summary(&world.sent()), pairs(&[("487", ALICE)]));
}

/// Calls bob as alice, and sends her ACK. Returns the messages that the proxy sends for the ACK.
fn acknowledged(config: ProxyConfig, uri: &str, more: &str) -> (World, Vec<Sent>) {
    let mut world = World::new(config);
    world.register("bob", udp(BOB), "");
    let called = world.put(udp(ALICE), &invite(udp(ALICE), "")).pop().unwrap();
    let more = callers_routes(&called) + more;
    let text = request("ACK", uri, "alice", "bob", "a2", udp(ALICE), &more);
    let sent = world.put(udp(ALICE), &text.replace("bob@example.com>", "bob@example.com>;tag=t"));
    (world, sent)
}

#[test]
fn an_ack_too_long_for_udp_goes_by_tcp_and_back_to_udp_if_nobody_listens_there() {
    let uri = format!("sip:bob@{BOB}");
    let long = |filling| format!("X-Long: {}\n", "x".repeat(filling));
    let (_, sent) = acknowledged(config(), &uri, &long(700));
    assert_eq!((sent[0].hop.transport, sent[0].on_failure), (Transport::Udp, None));
    let (mut world, sent) = acknowledged(config(), &uri, &long(1300));
    assert_eq!((sent[0].hop.transport, sent[0].to().as_str()), (Transport::Tcp, BOB));
    assert!(sent[0].value(sip::Name::Via).starts_with("SIP/2.0/TCP "));
    let failed = sent[0].on_failure.unwrap();
    world.proxy.handle_send_failure(world.now, failed);
    let again = world.sent();
    assert_eq!((again[0].what().as_str(), again[0].hop.transport), ("ACK", Transport::Udp));
    assert_eq!((again[0].to().as_str(), again[0].on_failure), (BOB, None));
    world.proxy.handle_send_failure(world.now, failed);
    assert!(world.sent().is_empty(), "there is no third target");
}

#[test]
fn alternate_targets_of_an_ack_are_dropped_after_33_s() {
    let long = format!("X-Long: {}\n", "x".repeat(1300));
    let (mut world, sent) = acknowledged(config(), &format!("sip:bob@{BOB}"), &long);
    world.pass(Duration::from_secs(33));
    world.proxy.handle_send_failure(world.now, sent[0].on_failure.unwrap());
    assert!(world.sent().iter().all(|sent| sent.what() != "ACK"));
}

#[test]
fn an_ack_waits_for_dns_and_goes_only_to_addresses_of_its_dialog() {
    let (near, far) = ((Transport::Udp, BOB), (Transport::Udp, "198.51.100.7:5060"));
    for (found, expected) in
        [(vec![near], vec![BOB]), (vec![near, far], vec![BOB]), (vec![far], vec![]), (vec![], vec![])]
    {
        let config = ProxyConfig { names: true, ..config() };
        let (mut world, sent) = acknowledged(config, "sip:bob@desk.far.example", "");
        assert!(sent.is_empty() && world.proxy.counters().dropped == 0);
        let lookup = world.lookups.pop().unwrap();
        assert_eq!(lookup.name, "desk.far.example");
        world.proxy.handle_resolved(world.now, lookup, targets(&found), Duration::from_secs(60));
        let sent = world.sent();
        assert!(sent.iter().all(|sent| sent.what() == "ACK" && sent.on_failure.is_none()));
        assert_eq!(sent.iter().map(Sent::to).collect::<Vec<_>>(), expected);
        assert_eq!(world.proxy.counters().dropped, u64::from(expected.is_empty()));
    }
}

/// Sends alice's INVITE with this Max-Breadth to bob, who has three contacts.
fn in_breadth(breadth: &str) -> (World, Vec<Sent>) {
    let mut world = World::new(config());
    for contact in [BOB, CAROL, OTHER] {
        world.register("bob", udp(contact), "");
    }
    let field = if breadth.is_empty() { String::new() } else { format!("Max-Breadth: {breadth}\n") };
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), &field));
    (world, sent)
}

#[test]
fn max_breadth_limits_the_number_of_parallel_branches() {
    let breadths = |sent: &[Sent]| -> Vec<String> {
        let invites = sent.iter().filter(|sent| sent.what() == "INVITE");
        invites.map(|sent| sent.value(sip::Name::MaxBreadth)).collect()
    };
    for (breadth, shares) in [
        ("", vec!["20", "20", "20"]),
        ("99999999999999999999", vec!["20", "20", "20"]),
        ("5", vec!["2", "2", "1"]),
        ("3", vec!["1", "1", "1"]),
        ("2", vec!["1", "1"]),
        ("1", vec!["1"]),
    ] {
        assert_eq!(breadths(&in_breadth(breadth).1), shares, "{breadth}");
    }
    // The third contact is tried after the first two have rejected the request.
    let (mut world, sent) = in_breadth("2");
    assert_eq!(summary(&sent[1..]), pairs(&[("INVITE", BOB), ("INVITE", CAROL)]));
    assert_eq!(summary(&world.put_message(udp(BOB), &sent[1].answer(486))), pairs(&[("ACK", BOB)]));
    let after = world.put_message(udp(CAROL), &sent[2].answer(486));
    assert_eq!(summary(&after), pairs(&[("ACK", CAROL), ("INVITE", OTHER)]));
    assert_eq!(breadths(&after), ["2"]);
    for (breadth, status) in [("0", "440"), ("x", "400")] {
        assert_eq!(in_breadth(breadth).1.pop().unwrap().what(), status);
    }
}

#[test]
fn a_request_to_a_single_target_keeps_max_breadth_and_an_ack_gets_max_breadth_60() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), "Max-Breadth: 7\n"));
    assert_eq!(sent[1].value(sip::Name::MaxBreadth), "7");
    world.put_message(udp(BOB), &sent[1].answer(200));
    let ack = world.put(udp(ALICE), &from_alice("ACK", 1, &sent[1]));
    assert_eq!((ack[0].what().as_str(), ack[0].value(sip::Name::MaxBreadth).as_str()), ("ACK", "60"));
}
