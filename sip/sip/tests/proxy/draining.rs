//! Tests of a draining proxy: the requests that it serves, the work that delays its end, and the rejection of unfinished work.

use std::time::Duration;

use sip::Name;

use crate::world::*;

/// Begins a drain while bob's phone rings for a call from alice. Returns the INVITE that bob got.
fn ringing() -> (World, Sent) {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let forwarded = world.put(udp(ALICE), &invite(udp(ALICE), "")).pop().unwrap();
    world.put_message(udp(BOB), &forwarded.answer(180));
    assert_eq!(world.proxy.transactions_left(), None);
    world.proxy.begin_drain();
    (world, forwarded)
}

#[test]
fn a_new_request_is_refused_with_retry_after_and_leaves_no_state() {
    let (mut world, _) = ringing();
    let before = world.proxy.transactions();
    let others = "sip:bob@example.com";
    for method in ["INVITE", "OPTIONS", "MESSAGE", "SUBSCRIBE"] {
        let text = request(method, others, "carol", "bob", "n1", udp(CAROL), "");
        let sent = world.put(udp(CAROL), &text);
        assert_eq!(summary(&sent), pairs(&[("503", CAROL)]), "{method}");
        assert_eq!(sent[0].value(Name::RetryAfter), "5");
    }
    assert_eq!(world.register("carol", udp(CAROL), "").what(), "503");
    assert_eq!((world.proxy.transactions(), world.proxy.counters().late), (before, 5));
    assert_eq!(world.proxy.location().contacts(), 1);
}

#[test]
fn a_call_that_rings_is_answered_and_acknowledged_before_the_end() {
    let (mut world, forwarded) = ringing();
    assert_eq!((world.proxy.is_drained(), world.proxy.transactions_left()), (false, Some(2)));
    // A retransmission of alice's INVITE belongs to the same transaction.
    assert_eq!(summary(&world.put(udp(ALICE), &invite(udp(ALICE), ""))), pairs(&[("180", ALICE)]));
    let sent = world.put_message(udp(BOB), &forwarded.answer(200));
    assert_eq!(summary(&sent), pairs(&[("200", ALICE)]));
    // If the proxy shut down before it forwarded the ACK, bob would retransmit his 200 and get no ACK.
    assert_eq!((world.proxy.is_drained(), world.proxy.transactions_left()), (false, Some(1)));
    let sent = world.put(udp(ALICE), &from_alice("ACK", 1, &forwarded));
    assert_eq!(summary(&sent), pairs(&[("ACK", BOB)]));
    assert_eq!((world.proxy.is_drained(), world.proxy.transactions_left()), (true, Some(0)));
    // The remaining transactions only handle retransmissions.
    assert_eq!(world.proxy.transactions(), (2, 1));
}

#[test]
fn requests_within_a_dialog_are_served_and_waited_for() {
    let (mut world, forwarded) = ringing();
    world.put_message(udp(BOB), &forwarded.answer(200));
    world.put(udp(ALICE), &from_alice("ACK", 1, &forwarded));
    let bye = world.put(udp(ALICE), &from_alice("BYE", 2, &forwarded)).pop().unwrap();
    assert_eq!((bye.what().as_str(), world.proxy.is_drained()), ("BYE", false));
    assert_eq!(summary(&world.put_message(udp(BOB), &bye.answer(200))), pairs(&[("200", ALICE)]));
    assert!(world.proxy.is_drained());
}

#[test]
fn an_ack_that_never_comes_is_waited_for_as_long_as_its_transaction() {
    let (mut world, forwarded) = ringing();
    world.put_message(udp(BOB), &forwarded.answer(200));
    world.pass(Duration::from_millis(31_999));
    assert!(!world.proxy.is_drained());
    world.pass(Duration::from_millis(1));
    assert!(world.proxy.is_drained());
}

#[test]
fn a_refusal_is_repeated_until_its_ack_has_come() {
    let (mut world, forwarded) = ringing();
    assert_eq!(
        summary(&world.put_message(udp(BOB), &forwarded.answer(486))),
        pairs(&[("ACK", BOB), ("486", ALICE)])
    );
    assert!(!world.proxy.is_drained());
    assert_eq!(summary(&world.pass(Duration::from_millis(500))), pairs(&[("486", ALICE)]));
    world.put(udp(ALICE), &invite(udp(ALICE), "").replace("INVITE", "ACK"));
    assert!(world.proxy.is_drained());
}

#[test]
fn a_call_cancelled_during_a_drain_ends_normally() {
    let (mut world, forwarded) = ringing();
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), "").replace("INVITE", "CANCEL"));
    assert_eq!(summary(&sent), pairs(&[("200", ALICE), ("CANCEL", BOB)]));
    assert!(world.put_message(udp(BOB), &sent[1].answer(200)).is_empty());
    assert_eq!(
        summary(&world.put_message(udp(BOB), &forwarded.answer(487))),
        pairs(&[("ACK", BOB), ("487", ALICE)])
    );
    world.put(udp(ALICE), &invite(udp(ALICE), "").replace("INVITE", "ACK"));
    assert!(world.proxy.is_drained());
}

#[test]
fn at_the_drain_timeout_a_ringing_call_gets_503_and_its_callee_gets_cancel() {
    let (mut world, _) = ringing();
    assert_eq!(world.proxy.cut_off(world.now), 1);
    let sent = world.sent();
    assert_eq!(summary(&sent), pairs(&[("CANCEL", BOB), ("503", ALICE)]));
    assert_eq!(sent[1].value(Name::RetryAfter), "5");
    assert_eq!((world.proxy.cut_off(world.now), world.proxy.dialog_count()), (0, 0));
    assert!(world.sent().is_empty());
}

#[test]
fn at_the_drain_timeout_a_non_invite_request_gets_503_without_cancel() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let message = request("MESSAGE", "sip:bob@example.com", "alice", "bob", "m1", udp(ALICE), "");
    let forwarded = world.put(udp(ALICE), &message).pop().unwrap();
    world.put_message(udp(BOB), &forwarded.answer(100));
    assert_eq!(world.proxy.cut_off(world.now), 1);
    assert_eq!(summary(&world.sent()), pairs(&[("503", ALICE)]));
}

#[test]
fn a_proxy_that_has_nothing_to_do_is_drained_at_once() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    assert!(!world.proxy.is_drained(), "nobody asked it to");
    world.proxy.begin_drain();
    assert!(world.proxy.is_drained());
}
