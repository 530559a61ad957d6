//! Tests of the measurements of registrations and sessions (RFC 6076).

use std::time::Duration;

use sip::proxy::{Attempt, Attempts, Histogram};

use crate::world::*;

const NONE: (u64, u128) = (0, 0);

/// Returns the number of durations, and their sum in milliseconds.
fn measured(histogram: &Histogram) -> (u64, u128) {
    (histogram.counts().iter().sum(), histogram.sum().as_millis())
}

fn outcomes(attempts: &Attempts) -> Vec<(&'static str, u64)> {
    let all = Attempt::ALL.map(|attempt| (attempt.as_str(), attempts.of(attempt)));
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Lets bob's phone ring 250 ms after alice's call, and lets bob answer after another 5 s. Returns the INVITE that bob got.
fn answered() -> (World, Sent) {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let forwarded = world.put(udp(ALICE), &invite(udp(ALICE), "")).pop().unwrap();
    world.pass(ms(50));
    world.put_message(udp(BOB), &forwarded.answer(100));
    world.pass(ms(200));
    world.put_message(udp(BOB), &forwarded.answer(180));
    world.pass(ms(5000));
    world.put_message(udp(BOB), &forwarded.answer(200));
    world.put(udp(ALICE), &from_alice("ACK", 1, &forwarded));
    (world, forwarded)
}

#[test]
fn a_registrations_delay_has_its_challenge_in_it() {
    let mut world = World::new(with_password());
    let challenge = world.register("alice", udp(ALICE), "");
    world.pass(ms(300));
    let good = answer_to(&challenge, "alice", "secret");
    assert_eq!(world.register("alice", udp(ALICE), &good).what(), "200");
    assert_eq!(measured(&world.proxy.performance().registration_request_delay), (1, 300));
    assert_eq!(outcomes(&world.proxy.performance().registrations), [("successful", 1), ("challenged", 1)]);
}

#[test]
fn a_challenge_that_nobody_answers_is_forgotten() {
    let mut world = World::new(with_password());
    let challenge = world.register("alice", udp(ALICE), "");
    world.pass(Duration::from_secs(60));
    let good = answer_to(&challenge, "alice", "secret");
    assert_eq!(world.register("alice", udp(ALICE), &good).what(), "200");
    assert_eq!(measured(&world.proxy.performance().registration_request_delay), (1, 0));
}

#[test]
fn refused_registrations_count_as_ineffective_or_failed_and_have_no_delay() {
    let mut world = World::new(config());
    assert_eq!(world.register("bob", udp(BOB), "Expires: 59\n").what(), "423");
    world.proxy.begin_drain();
    assert_eq!(world.register("bob", udp(BOB), "").what(), "503");
    let performance = world.proxy.performance();
    assert_eq!(outcomes(&performance.registrations), [("ineffective", 1), ("failed", 1)]);
    assert_eq!(measured(&performance.registration_request_delay), NONE);
}

#[test]
fn a_sessions_request_delay_ends_with_the_first_response_but_100() {
    let (world, _) = answered();
    let delay = &world.proxy.performance().session_request_delay;
    assert_eq!((measured(&delay.successful), measured(&delay.failed)), ((1, 250), NONE));
    assert_eq!(outcomes(&world.proxy.performance().sessions), [("successful", 1)]);
}

#[test]
fn a_refused_session_has_a_failed_request_delay_and_an_outcome() {
    // A 503 from a next hop is forwarded as 500.
    for (status, outcome) in [(486, "declined"), (503, "ineffective"), (404, "failed")] {
        let mut world = World::new(config());
        world.register("bob", udp(BOB), "");
        let forwarded = world.put(udp(ALICE), &invite(udp(ALICE), "")).pop().unwrap();
        world.pass(ms(70));
        world.put_message(udp(BOB), &forwarded.answer(status));
        let performance = world.proxy.performance();
        let delay = &performance.session_request_delay;
        assert_eq!((measured(&delay.successful), measured(&delay.failed)), (NONE, (1, 70)), "{status}");
        assert_eq!(outcomes(&performance.sessions), [(outcome, 1)]);
    }
}

#[test]
fn redirection_and_challenge_are_neither_success_nor_failure() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    for (branch, status) in [("i1", 302), ("i2", 407)] {
        let invite = invite(udp(ALICE), "").replace("bKi1", &format!("bK{branch}"));
        let forwarded = world.put(udp(ALICE), &invite).pop().unwrap();
        world.put_message(udp(BOB), &forwarded.answer(status));
    }
    let performance = world.proxy.performance();
    assert_eq!(outcomes(&performance.sessions), [("redirected", 1), ("challenged", 1)]);
    assert_eq!(measured(&performance.session_request_delay.failed), NONE);
    // The client repeats the call with credentials. The delay of the call began before the challenge.
    world.pass(ms(400));
    let again = invite(udp(ALICE), "").replace("bKi1", "bKi3").replace("1 INVITE", "2 INVITE");
    let forwarded = world.put(udp(ALICE), &again).pop().unwrap();
    world.put_message(udp(BOB), &forwarded.answer(200));
    assert_eq!(measured(&world.proxy.performance().session_request_delay.successful), (1, 400));
}

#[test]
fn session_duration_ends_at_bye_and_disconnect_delay_ends_at_its_response() {
    let (mut world, forwarded) = answered();
    world.pass(Duration::from_secs(90));
    let bye = world.put(udp(ALICE), &from_alice("BYE", 2, &forwarded)).pop().unwrap();
    world.pass(ms(40));
    world.put_message(udp(BOB), &bye.answer(200));
    let performance = world.proxy.performance();
    let (delay, duration) = (&performance.session_disconnect_delay, &performance.session_duration);
    assert_eq!((measured(&delay.successful), measured(&delay.failed)), ((1, 40), NONE));
    assert_eq!((measured(&duration.successful), measured(&duration.failed)), ((1, 90_000), NONE));
}

#[test]
fn a_session_counts_as_failed_when_its_bye_times_out() {
    let (mut world, forwarded) = answered();
    world.pass(Duration::from_secs(90));
    world.put(udp(ALICE), &from_alice("BYE", 2, &forwarded));
    world.pass(Duration::from_secs(40));
    let performance = world.proxy.performance();
    let (delay, duration) = (&performance.session_disconnect_delay, &performance.session_duration);
    assert_eq!((measured(&delay.successful), measured(&delay.failed)), (NONE, (1, 32_000)));
    assert_eq!((measured(&duration.successful), measured(&duration.failed)), (NONE, (1, 122_000)));
}

#[test]
fn a_second_2xx_of_a_forked_call_is_no_second_session() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    world.register("bob", udp(CAROL), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    world.put_message(udp(BOB), &sent[1].answer(200));
    world.put_message(udp(CAROL), &sent[2].answer(200));
    let performance = world.proxy.performance();
    assert_eq!(outcomes(&performance.sessions), [("successful", 1)]);
    assert_eq!(measured(&performance.session_request_delay.successful), (1, 0));
}
