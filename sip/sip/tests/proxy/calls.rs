//! Tests of calls: forwarding, forking, CANCEL and timers (RFC 3261 sections 16.6 to 16.11).

use std::time::Duration;

use sip::proxy::Counters;
use sip::{Name, Transport};

use crate::world::*;

#[test]
fn a_call_goes_to_the_registered_contact_and_its_answers_come_back() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    // alice -> INVITE -> proxy -> INVITE -> bob
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), "X-Unknown :  keep   this\n"));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", BOB)]));
    let forwarded = &sent[1];
    assert_eq!(forwarded.message.request_uri(), format!("sip:bob@{BOB};transport=udp").as_bytes());
    assert_eq!(forwarded.value(Name::MaxForwards), "69");
    assert!(forwarded.value(Name::RecordRoute).starts_with("<sip:192.0.2.100:5060;transport=udp;lr;dialog="));
    let bytes = forwarded.message.to_bytes();
    assert!(bytes.windows(26).any(|w| w == b"X-Unknown :  keep   this\r\n"));
    // alice <- 180, 200 <- proxy <- bob
    for status in [180, 200] {
        let sent = world.put_message(udp(BOB), &forwarded.answer(status));
        assert_eq!(summary(&sent), pairs(&[(&status.to_string(), ALICE)]));
        assert_eq!(sent[0].message.all(Name::Via).count(), 1);
    }
    assert_eq!(world.proxy.counters().calls, 1);
}

/// Forwards alice's INVITE to two contacts of bob.
fn forked() -> (World, Vec<Sent>) {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    world.register("bob", udp(CAROL), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", BOB), ("INVITE", CAROL)]));
    (world, sent)
}

#[test]
fn when_one_branch_answers_the_other_is_cancelled() {
    let (mut world, sent) = forked();
    world.put_message(udp(CAROL), &sent[2].answer(180));
    let after = world.put_message(udp(BOB), &sent[1].answer(200));
    assert_eq!(summary(&after), pairs(&[("200", ALICE), ("CANCEL", CAROL)]));
    assert_eq!(after[1].branch(), sent[2].branch());
    assert_eq!(after[1].value(Name::CSeq), "1 CANCEL");
    // The proxy sends carol the ACK for her 487. Alice does not get the 487.
    assert!(world.put_message(udp(CAROL), &after[1].answer(200)).is_empty());
    let acked = world.put_message(udp(CAROL), &sent[2].answer(487));
    assert_eq!(summary(&acked), pairs(&[("ACK", CAROL)]));
    assert_eq!(acked[0].branch(), sent[2].branch());
}

#[test]
fn cancel_waits_for_a_provisional_response() {
    let (mut world, sent) = forked();
    let after = world.put_message(udp(BOB), &sent[1].answer(200));
    assert_eq!(summary(&after), pairs(&[("200", ALICE)]));
    let after = world.put_message(udp(CAROL), &sent[2].answer(100));
    assert_eq!(summary(&after), pairs(&[("CANCEL", CAROL)]));
}

#[test]
fn a_second_2xx_goes_back_too() {
    let (mut world, sent) = forked();
    world.put_message(udp(BOB), &sent[1].answer(200));
    let after = world.put_message(udp(CAROL), &sent[2].answer(200));
    assert_eq!(summary(&after), pairs(&[("200", ALICE)]));
    // RFC 6026: retransmissions of a 2xx are also forwarded.
    let again = world.put_message(udp(BOB), &sent[1].answer(200));
    assert_eq!(summary(&again), pairs(&[("200", ALICE)]));
}

#[test]
fn the_best_refusal_goes_back_when_all_branches_have_ended() {
    for (first, second, best) in
        [(486, 404, "486"), (404, 603, "603"), (503, 486, "486"), (404, 401, "401"), (500, 302, "302")]
    {
        let (mut world, sent) = forked();
        world.put_message(udp(CAROL), &sent[2].answer(180));
        let one = world.put_message(udp(BOB), &sent[1].answer(first));
        assert_eq!(summary(&one), pairs(&[("ACK", BOB)]), "{first} waits");
        let two = world.put_message(udp(CAROL), &sent[2].answer(second));
        assert_eq!(summary(&two), pairs(&[("ACK", CAROL), (best, ALICE)]), "{first}, {second}");
    }
}

#[test]
fn a_6xx_cancels_the_other_branches_and_waits_for_them() {
    let (mut world, sent) = forked();
    world.put_message(udp(CAROL), &sent[2].answer(180));
    let after = world.put_message(udp(BOB), &sent[1].answer(600));
    assert_eq!(summary(&after), pairs(&[("ACK", BOB), ("CANCEL", CAROL)]));
    let after = world.put_message(udp(CAROL), &sent[2].answer(487));
    assert_eq!(summary(&after), pairs(&[("ACK", CAROL), ("600", ALICE)]));
}

#[test]
fn challenges_of_all_branches_are_put_together() {
    let (mut world, sent) = forked();
    for (at, address, realm) in [(1, BOB, "one"), (2, CAROL, "two")] {
        let mut challenge = sent[at].answer(407);
        challenge.push(sip::Header::new(Name::ProxyAuthenticate, &format!("Digest realm=\"{realm}\"")));
        let after = world.put_message(udp(address), &challenge);
        if at == 2 {
            assert_eq!(after[1].message.all(Name::ProxyAuthenticate).count(), 2);
        }
    }
}

#[test]
fn the_callers_cancel_is_answered_and_cancels_the_branches() {
    let (mut world, sent) = forked();
    for (at, address) in [(1, BOB), (2, CAROL)] {
        world.put_message(udp(address), &sent[at].answer(180));
    }
    let cancel = invite(udp(ALICE), "").replace("INVITE", "CANCEL");
    let after = world.put(udp(ALICE), &cancel);
    assert_eq!(summary(&after), pairs(&[("200", ALICE), ("CANCEL", BOB), ("CANCEL", CAROL)]));
    world.put_message(udp(BOB), &sent[1].answer(487));
    let last = world.put_message(udp(CAROL), &sent[2].answer(487));
    assert_eq!(summary(&last), pairs(&[("ACK", CAROL), ("487", ALICE)]));
    // alice -> ACK -> proxy, where the ACK ends.
    let ack = invite(udp(ALICE), "").replace("INVITE", "ACK");
    assert!(world.put(udp(ALICE), &ack).is_empty());
    assert!(world.pass(Duration::from_secs(4)).iter().all(|sent| sent.to() != ALICE));
}

#[test]
fn a_cancel_for_nothing_gets_481() {
    let mut world = World::new(config());
    let cancel = invite(udp(ALICE), "").replace("INVITE", "CANCEL");
    assert_eq!(summary(&world.put(udp(ALICE), &cancel)), pairs(&[("481", ALICE)]));
}

#[test]
fn a_callee_that_says_nothing_is_asked_seven_times_and_the_caller_gets_408() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    world.put(udp(ALICE), &invite(udp(ALICE), ""));
    let sent = world.pass(Duration::from_secs(31));
    assert_eq!(summary(&sent), pairs(&[("INVITE", BOB); 5]));
    let sent = world.pass(Duration::from_secs(1));
    assert_eq!(summary(&sent), pairs(&[("INVITE", BOB), ("408", ALICE)]));
}

#[test]
fn a_slow_non_invite_request_gets_100_but_no_408() {
    // For non-INVITE requests, RFC 4320 section 4.1 permits a late 100, and forbids 408.
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    for (from, branch) in [(udp(ALICE), "o1"), (tcp(ALICE, 3), "o2")] {
        let options = request("OPTIONS", "sip:bob@example.com", "alice", "bob", branch, from, "");
        world.put(from, &options);
        let to_alice = |sent: Vec<Sent>| summary(&sent).into_iter().filter(|(_, to)| to == ALICE).collect();
        let mut pass = |ms| -> Vec<_> { to_alice(world.pass(Duration::from_millis(ms))) };
        assert_eq!((pass(3499), pass(1)), (vec![], pairs(&[("100", ALICE)])));
        assert_eq!(summary(&world.put(from, &options)), pairs(&[("100", ALICE)]), "the same again");
        assert_eq!(to_alice(world.pass(Duration::from_secs(60))), []);
        assert_eq!(world.proxy.transactions(), (0, 0));
    }
}

#[test]
fn provisional_responses_to_non_invite_requests_are_not_forwarded() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let text = request("MESSAGE", "sip:bob@example.com", "alice", "bob", "m1", udp(ALICE), "");
    let sent = world.put(udp(ALICE), &text);
    assert_eq!(summary(&world.put_message(udp(BOB), &sent[0].answer(183))), []);
    assert_eq!(summary(&world.put_message(udp(BOB), &sent[0].answer(200))), pairs(&[("200", ALICE)]));
}

#[test]
fn a_phone_that_rings_for_ever_is_cancelled_by_timer_c() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "Expires: 9000\n");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    world.put_message(udp(BOB), &sent[1].answer(180));
    assert!(world.pass(Duration::from_secs(180)).is_empty());
    // A further 180 restarts timer C.
    world.put_message(udp(BOB), &sent[1].answer(180));
    assert!(world.pass(Duration::from_secs(184)).is_empty());
    let sent = world.pass(Duration::from_secs(1));
    assert_eq!(summary(&sent), pairs(&[("CANCEL", BOB)]));
    // Bob does not answer the CANCEL either.
    let sent = world.pass(Duration::from_secs(40));
    assert!(sent.iter().any(|sent| sent.what() == "408" && sent.to() == ALICE));
}

#[test]
fn a_send_failure_counts_as_503_and_the_caller_gets_500() {
    let mut world = World::new(config());
    world.register("bob", tcp(BOB, 9), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    world.proxy.handle_send_failure(world.now, sent[1].on_failure.unwrap());
    assert_eq!(summary(&world.sent()), pairs(&[("500", ALICE)]));
}

#[test]
fn a_request_behind_congestion_gets_503_with_retry_after() {
    let mut world = World::new(config());
    world.register("bob", tcp(BOB, 9), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    world.proxy.handle_congestion(world.now, sent[1].on_failure.unwrap());
    let refused = world.sent();
    assert_eq!(summary(&refused), pairs(&[("503", ALICE)]));
    assert_eq!(refused[0].value(Name::RetryAfter), "5");
    assert_eq!(world.proxy.counters().overloads, 1);
    world.proxy.handle_congestion(world.now, sent[1].on_failure.unwrap());
    assert!(world.sent().is_empty(), "it is over already");
}

#[test]
fn only_an_initial_request_is_marked_as_new() {
    let mut world = World::new(config());
    world.register("bob", tcp(BOB, 9), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(sent.iter().map(|sent| sent.is_new).collect::<Vec<_>>(), [false, true]);
    let answered = world.put_message(tcp(BOB, 9), &sent[1].answer(180));
    assert!(!answered[0].is_new);
    let cancel = request("CANCEL", "sip:bob@example.com", "alice", "bob", "i1", udp(ALICE), "");
    let cancelled = world.put(udp(ALICE), &cancel);
    assert_eq!(summary(&cancelled), pairs(&[("200", ALICE), ("CANCEL", BOB)]));
    assert!(cancelled.iter().all(|sent| !sent.is_new));
    let routes = callers_routes(&sent[1]);
    let bye =
        request("BYE", &format!("sip:bob@{BOB};transport=tcp"), "alice", "bob", "b2", udp(ALICE), &routes);
    let within = world.put(udp(ALICE), &bye.replace("bob@example.com>", "bob@example.com>;tag=t"));
    assert_eq!((within[0].what().as_str(), within[0].is_new), ("BYE", false));
}

#[test]
fn an_icmp_error_for_an_invite_gives_500_and_forged_icmp_is_ignored() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    let bytes = sent[1].message.to_bytes();
    let branch = bytes.windows(8).position(|name| name == b";branch=").unwrap();
    let end_of_via = branch + bytes[branch..].iter().position(|&byte| byte == b'\r').unwrap();
    let (bob, carol) = (BOB.parse().unwrap(), CAROL.parse().unwrap());
    let forged = [&bytes[..end_of_via - 1], b"x\r\n"].concat();
    for (address, quoted) in [(carol, &bytes[..end_of_via + 2]), (bob, &forged), (bob, &bytes[..end_of_via])]
    {
        world.proxy.handle_unreachable(world.now, address, quoted);
        assert!(world.sent().is_empty());
    }
    world.proxy.handle_unreachable(world.now, bob, &bytes[..end_of_via + 2]);
    assert_eq!(summary(&world.sent()), pairs(&[("500", ALICE)]));
}

#[test]
fn a_configuration_change_does_not_affect_a_call_that_is_being_set_up() {
    let (mut world, sent) = forked();
    let other = sip::proxy::ProxyConfig { listeners: Vec::new(), next_hops: Vec::new(), ..config() };
    world.proxy.set_config(other);
    let after = world.put_message(udp(BOB), &sent[1].answer(200));
    assert_eq!(summary(&after), pairs(&[("200", ALICE)]));
    let invite = request("INVITE", "sip:zoe@other.example", "alice", "bob", "i5", udp(ALICE), "");
    assert_eq!(summary(&world.put(udp(ALICE), &invite)), pairs(&[("500", ALICE)]));
}

#[test]
fn a_repeated_invite_gets_the_last_response_again_and_is_forwarded_once() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&world.put(udp(ALICE), &invite(udp(ALICE), ""))), pairs(&[("100", ALICE)]));
    world.put_message(udp(BOB), &sent[1].answer(180));
    assert_eq!(summary(&world.put(udp(ALICE), &invite(udp(ALICE), ""))), pairs(&[("180", ALICE)]));
    let counters = world.proxy.counters();
    assert_eq!(counters.retransmissions, 2);
}

#[test]
fn responses_that_belong_to_nothing_are_dropped() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    let mut forged = sent[1].answer(200);
    let via = String::from_utf8(forged.first(Name::Via).unwrap().to_vec()).unwrap();
    let at = via.rfind('.').unwrap() - 1;
    let other = if via.as_bytes()[at] == b'0' { "1" } else { "0" };
    forged.replace_first(Name::Via, format!("{}{other}{}", &via[..at], &via[at + 1..]).as_bytes());
    assert!(world.put_message(udp(BOB), &forged).is_empty());
    assert_eq!(world.proxy.counters(), Counters { dropped: 1, ..world.proxy.counters() });
}

#[test]
fn users_may_call_another_domain_by_its_configured_proxy() {
    let mut world = World::new(config());
    let invite = request("INVITE", "sip:zoe@other.example", "alice", "bob", "i5", udp(ALICE), "");
    let sent = world.put(udp(ALICE), &invite);
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", OTHER)]));
    assert_eq!(
        (sent[1].hop.transport, sent[1].message.request_uri()),
        (Transport::Tcp, &b"sip:zoe@other.example"[..])
    );
}

#[test]
fn nothing_is_left_of_a_call_after_its_transactions_times() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    world.put_message(udp(BOB), &sent[1].answer(200));
    assert_eq!(world.proxy.transactions(), (2, 1));
    world.pass(Duration::from_secs(33));
    assert_eq!(world.proxy.transactions(), (0, 0));
}

#[test]
fn a_user_behind_a_nat_is_sent_calls_where_its_register_came_from() {
    for (contact, to) in
        [("10.1.2.3:5060", BOB), ("100.64.0.1:5060", BOB), ("198.51.100.9:5060", "198.51.100.9:5060")]
    {
        let mut world = World::new(config());
        world.register("bob", udp(BOB), &format!("Contact: <sip:bob@{contact}>\n"));
        let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
        assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", to)]));
    }
}
