//! Tests of quick failover between ends that have agreed on it. Silence raises doubt about a path. Answers on other paths show whether the
//! path has failed. A failed path must work for a while before it carries data again.

use std::time::Duration;

use base::Carrier;
use sctp::{AssociationConfig, EndpointConfig, Event, Extension, Extensions, PathState, Timing};
use sim::{Change, Conversation, Direction, Fate, InTheClear, LinkConfig, LinkId, World, chunk_names};

use crate::support::{Two, messages, route, seconds, sends, sent_by};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Returns the settings that daemons agree on.
pub(crate) fn config() -> AssociationConfig {
    let extensions =
        Extensions::NONE.with(Extension::Auth).with(Extension::AddressReconfiguration).with(Extension::Ecn);
    AssociationConfig { timing: Timing::quick(), extensions, ..AssociationConfig::default() }
}

/// Creates two hosts that are joined by one link for each entry of `delays`, its one-way delay in milliseconds. Each link has a pair of
/// addresses, and all paths are confirmed.
fn joined(delays: &[u64], conversation: Conversation) -> Two {
    joined_by_chance(1, delays, conversation)
}

pub(crate) fn joined_by_chance(seed: u64, delays: &[u64], conversation: Conversation) -> Two {
    let mut world = World::new(seed);
    let addresses = |end| (1..=delays.len()).map(|i| format!("10.0.{i}.{end}")).collect::<Vec<_>>();
    let endpoint = EndpointConfig { association: config(), ..EndpointConfig::default() };
    let [a, b] = [1, 2].map(|end| {
        let own = addresses(end);
        world.add_host(&own.iter().map(String::as_str).collect::<Vec<_>>(), endpoint.clone())
    });
    let link = |(i, delay): (usize, &u64)| {
        let link = world.add_link(LinkConfig { delay: MS(*delay), ..LinkConfig::default() });
        world.join(link, &format!("10.0.{}.1", i + 1), &format!("10.0.{}.2", i + 1));
        link
    };
    let links: Vec<LinkId> = delays.iter().enumerate().map(link).collect();
    let mut t = Two { world, a, b, links };
    t.world.host_mut(b).app.template.keeps = false;
    t.world.connect(a, b, Carrier::Ip, config(), conversation);
    t.run_to_established();
    t.world.run_for(seconds(3));
    t
}

pub(crate) fn idle(delays: &[u64]) -> Two {
    joined(delays, Conversation::default())
}

/// Sends a message of 64 bytes every 100 ms, `times` times.
pub(crate) fn speak(t: &mut Two, times: usize) {
    for _ in 0..times {
        let id = t.id(t.a);
        let talk = t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation");
        talk.outgoing.extend(sends(messages(1, 64, 1)).outgoing);
        t.world.run_for(MS(100));
    }
}

/// Waits 30 ms, until the last message is acknowledged. Then cuts or restores a link.
pub(crate) fn cut(t: &mut Two, link: usize, cut: bool) {
    t.world.run_for(MS(30));
    let (now, link) = (t.world.now(), t.links[link]);
    t.world.at(now, Change::CutBoth(link, cut));
    t.world.run_for(MS(1));
}

/// Makes `a` send without end, and runs the first two seconds.
pub(crate) fn transfer(t: &mut Two) {
    let id = t.id(t.a);
    t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation").bulk = 1 << 40;
    t.world.run_for(seconds(2));
}

pub(crate) fn end_doubts(t: &mut Two) {
    let (id, now) = (t.id(t.a), t.world.now());
    let timing = Timing { doubts_silence: false, ..Timing::quick() };
    t.world.host_mut(t.a).endpoint.set_timing(now, id, timing);
}

pub(crate) fn in_use(t: &Two) -> String {
    let info = t.info(t.a);
    info.paths.iter().find(|p| p.in_use).expect("a path in use").route.local.to_string()
}

pub(crate) fn switches(t: &Two) -> usize {
    t.events(t.a).iter().filter(|e| matches!(e, Event::PathSwitched { .. })).count()
}

#[test]
//= rfc7829#3.2-2
fn a_path_that_goes_silent_under_a_talk_is_left_before_its_timer_expires() {
    for (delay, longest) in [(0, 200), (10, 208), (50, 355)] {
        let mut t = idle(&[delay, delay]);
        speak(&mut t, 20);
        cut(&mut t, 0, true);
        speak(&mut t, 40);
        let silence = t.talk(t.b).longest_silence;
        assert!(silence < MS(longest), "delay {delay}: {silence:?}");
        assert_eq!((in_use(&t).as_str(), switches(&t)), ("10.0.2.1", 1));
        let state = t.info(t.a).paths[0].state;
        assert_ne!(state, PathState::Active);
        assert_eq!(t.talk(t.b).received_bytes, 60 * 64);
    }
}

#[test]
//= rfc7829#3.2-2
fn a_one_way_cut_is_detected_as_fast_as_a_cut_in_both_directions() {
    for direction in [Direction::Forward, Direction::Backward] {
        let mut t = idle(&[10, 10]);
        speak(&mut t, 20);
        t.world.run_for(MS(30));
        let now = t.world.now();
        t.world.at(now, Change::Cut(t.links[0], direction, true));
        t.world.run_for(MS(1));
        speak(&mut t, 40);
        let silence = t.talk(t.b).longest_silence;
        assert!(silence < MS(208), "{direction:?}: {silence:?}");
        assert_eq!(in_use(&t), "10.0.2.1", "{direction:?}");
    }
}

#[test]
//= rfc7829#3.2-2
fn a_path_that_goes_silent_under_a_transfer_is_left_without_any_timeout() {
    let mut t = idle(&[1, 1]);
    transfer(&mut t);
    let rto = t.info(t.a).paths[0].rto;
    cut(&mut t, 0, true);
    t.world.run_for(seconds(2));
    let silence = t.talk(t.b).longest_silence;
    assert!(silence < rto, "{silence:?} with an RTO of {rto:?}");
    assert_eq!((in_use(&t).as_str(), t.info(t.a).counters.timeouts), ("10.0.2.1", 0));
}

#[test]
fn with_doubts_off_a_silent_path_is_not_left_before_its_timer_expires() {
    let mut t = idle(&[0, 0]);
    end_doubts(&mut t);
    speak(&mut t, 20);
    cut(&mut t, 0, true);
    speak(&mut t, 40);
    assert!(t.talk(t.b).longest_silence >= MS(225), "{:?}", t.talk(t.b).longest_silence);
}

#[test]
fn a_packet_lost_on_a_path_that_works_goes_by_the_other_and_the_path_stays_in_use() {
    let mut t = idle(&[10, 10]);
    speak(&mut t, 20);
    let mut left = 1;
    t.world.set_filter(move |record| {
        let is_data = chunk_names(&record.packet).contains("DATA");
        if is_data && left > 0 {
            left -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    speak(&mut t, 20);
    let counters = t.info(t.a).counters;
    assert_eq!((counters.tail_probes, counters.timeouts, switches(&t)), (1, 0, 0));
    assert_eq!((in_use(&t).as_str(), t.info(t.a).paths[0].state), ("10.0.1.1", PathState::Active));
    assert!(t.talk(t.b).longest_silence < MS(210), "{:?}", t.talk(t.b).longest_silence);
    let paths = t.info(t.a).paths;
    let by_other = paths.iter().filter(|p| p.route.local.to_string() == "10.0.2.1");
    assert_eq!(by_other.map(|p| p.retransmissions).sum::<u64>(), 1);
}

#[test]
fn a_doubted_path_is_asked_even_while_its_data_timer_runs() {
    let mut t = idle(&[10, 10]);
    speak(&mut t, 20);
    // The doubted path works. The filter drops the peer's HEARTBEATs on it, so only an answer to our own HEARTBEAT can show that it works.
    let mut left = 1;
    t.world.set_filter(move |record| {
        let names = chunk_names(&record.packet);
        let is_lost = left > 0 && names.contains("DATA");
        left -= u32::from(is_lost);
        let is_asked = record.route.local.to_string() == "10.0.1.2" && names == "HEARTBEAT";
        if is_lost || is_asked { Fate::Drop } else { Fate::Pass }
    });
    speak(&mut t, 5);
    let info = t.info(t.a);
    assert_eq!((info.counters.tail_probes, switches(&t)), (1, 0));
    assert_eq!((in_use(&t).as_str(), info.paths[0].state), ("10.0.1.1", PathState::Active));
}

#[test]
fn where_nobody_answers_no_path_is_blamed_before_its_timer_expires() {
    let mut t = idle(&[10, 10]);
    speak(&mut t, 20);
    cut(&mut t, 0, true);
    cut(&mut t, 1, true);
    let id = t.id(t.a);
    let talk = t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation");
    talk.outgoing.extend(sends(messages(1, 64, 1)).outgoing);
    let rto = t.info(t.a).paths[0].rto;
    t.world.run_for(rto - MS(1));
    let info = t.info(t.a);
    assert!(info.counters.tail_probes > 0);
    assert_eq!(switches(&t), 0);
    assert_eq!(info.paths[0].state, PathState::Active);
}

#[test]
//= rfc9260#6.4-5
fn data_moved_to_another_dead_path_is_resent_on_the_path_that_answers() {
    // The first two links fail together, as if they were two pairs of addresses on one link. The third link is slower. So the quicker of
    // the two other paths is a wrong guess.
    let mut t = idle(&[5, 5, 20]);
    end_doubts(&mut t);
    transfer(&mut t);
    let rto = t.info(t.a).paths[0].rto;
    cut(&mut t, 0, true);
    cut(&mut t, 1, true);
    t.world.run_for(seconds(3));
    let silence = t.talk(t.b).longest_silence;
    // The limit on the silence is the sum of the timer, the round trip of a HEARTBEAT, and the delivery behind a short queue. A second
    // timer would exceed the limit.
    assert!(silence < rto + MS(95), "{silence:?} with an RTO of {rto:?}");
    assert_eq!(in_use(&t), "10.0.3.1");
}

// Both directions of the path are dead. `b` answers a message of `a`. If each end had to detect the failure itself, the detection of `b`
// would begin only after the detection of `a`.
#[test]
fn an_answer_takes_the_path_that_the_question_came_by_when_the_usual_one_has_been_silent() {
    let mut t = idle(&[50, 50]);
    cut(&mut t, 0, true);
    let (begin, b) = (t.world.now(), t.b);
    let id = t.id(t.a);
    let talk = t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation");
    talk.outgoing.extend(sends(messages(1, 64, 1)).outgoing);
    let is_asked = |w: &World| w.host(b).app.conversations.values().any(|c| c.received_bytes > 0);
    assert!(t.world.run_until(begin + seconds(2), is_asked));
    let id = t.id(b);
    let talk = t.world.host_mut(b).app.conversations.get_mut(&id).expect("a conversation");
    talk.outgoing.extend(sends(messages(1, 64, 1)).outgoing);
    let a = t.a;
    let is_answered = |w: &World| w.host(a).app.conversations.values().any(|c| c.received_bytes > 0);
    assert!(t.world.run_until(begin + seconds(2), is_answered));
    // This time covers the first end's timer or doubt, and one round trip.
    let took = t.world.now() - begin;
    assert!(took < MS(330), "{took:?}");
    let paths = t.info(t.b).paths;
    assert_ne!(paths.iter().find(|p| !p.in_use).expect("another path").state, PathState::Active);
}

#[test]
//= rfc9260#6.4-1
fn data_returns_to_the_primary_path_once_that_has_worked_for_a_while() {
    let mut t = idle(&[10, 10]);
    cut(&mut t, 0, true);
    speak(&mut t, 30);
    assert_eq!(in_use(&t), "10.0.2.1");
    cut(&mut t, 0, false);
    speak(&mut t, 45);
    assert_eq!((in_use(&t).as_str(), t.info(t.a).paths[0].state), ("10.0.2.1", PathState::Active));
    speak(&mut t, 30);
    assert_eq!(in_use(&t), "10.0.1.1");
}

#[test]
fn a_path_that_comes_and_goes_is_left_once_and_used_again_when_it_stays() {
    let mut t = idle(&[10, 10]);
    for _ in 0..5 {
        cut(&mut t, 0, true);
        speak(&mut t, 20);
        cut(&mut t, 0, false);
        speak(&mut t, 20);
    }
    assert_eq!((in_use(&t).as_str(), switches(&t)), ("10.0.2.1", 1));
    speak(&mut t, 400);
    assert_eq!(in_use(&t), "10.0.1.1");
}

#[test]
fn with_a_loss_of_thirty_percent_on_the_first_path_talk_goes_on_and_data_does_not_wander() {
    const SEEDS: u64 = 10;
    let mut wandered = 0;
    for seed in 1..=SEEDS {
        let mut t = joined_by_chance(seed, &[10, 10], Conversation::default());
        t.world.link_mut(t.links[0]).config.loss = sim::Loss::Uniform(0.3);
        speak(&mut t, 300);
        let silence = t.talk(t.b).longest_silence;
        assert!(silence < MS(300), "seed {seed}: {silence:?}");
        wandered += switches(&t);
        t.world.run_for(seconds(5));
        assert_eq!(t.talk(t.b).received_bytes, 300 * 64, "seed {seed}");
    }
    assert!(wandered <= 4 * SEEDS as usize, "{wandered} switches in {SEEDS} times 30 s");
}

#[test]
fn a_link_that_goes_down_moves_data_at_once_and_one_that_comes_up_is_asked_at_once() {
    let mut t = idle(&[10, 10]);
    speak(&mut t, 20);
    let (id, local) = (t.id(t.a), "10.0.1.1".parse().expect("an address"));
    cut(&mut t, 0, true);
    let set = |t: &mut Two, is_up| {
        let now = t.world.now();
        t.world.host_mut(t.a).endpoint.set_local_link(now, id, local, is_up);
    };
    set(&mut t, false);
    assert_eq!(t.info(t.a).paths[0].state, PathState::Inactive);
    speak(&mut t, 20);
    assert!(t.talk(t.b).longest_silence < MS(150), "{:?}", t.talk(t.b).longest_silence);
    assert_eq!(in_use(&t), "10.0.2.1");
    cut(&mut t, 0, false);
    set(&mut t, true);
    t.world.run_for(MS(50));
    assert_eq!(t.info(t.a).paths[0].state, PathState::Active);
}

/// Creates two hosts with the settings of daemons: the congestion window of each path begins with ten packets.
fn joined_daemons() -> Two {
    let mut t = idle(&[10, 10]);
    let (now, id) = (t.world.now(), t.id(t.a));
    t.world.host_mut(t.a).endpoint.set_initial_packets(now, id, 10);
    t
}

/// Sends 1,200 bytes every half millisecond for `long`.
pub(crate) fn stream(t: &mut Two, long: Duration) {
    stream_of(t, 1200, Duration::from_micros(500), long);
}

/// Sends `size` bytes every `pause` for `long`.
pub(crate) fn stream_of(t: &mut Two, size: usize, pause: Duration, long: Duration) {
    let end = t.world.now() + long;
    while t.world.now() < end {
        let id = t.id(t.a);
        let talk = t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation");
        talk.outgoing.extend(sends(messages(1, size, 1)).outgoing);
        t.world.run_for(pause);
    }
}

/// Resets the longest silence at `b`. The value so far includes silences at the start, when windows were small.
pub(crate) fn forget_silence(t: &mut Two) {
    let id = t.id(t.b);
    let talk = t.world.host_mut(t.b).app.conversations.get_mut(&id).expect("a conversation");
    talk.longest_silence = Duration::ZERO;
}

/// Reports to `a`'s endpoint that its first link is down.
fn take_down(t: &mut Two) {
    let (now, id, local) = (t.world.now(), t.id(t.a), "10.0.1.1".parse().expect("an address"));
    t.world.host_mut(t.a).endpoint.set_local_link(now, id, local, false);
}

/// Removes `a`'s first address, as a driver does when the host has lost the address.
fn take_address(t: &mut Two) {
    let (now, id, local) = (t.world.now(), t.id(t.a), "10.0.1.1".parse().expect("an address"));
    t.world.host_mut(t.a).endpoint.remove_local_address(now, id, local).expect("there is another");
}

#[test]
fn when_a_link_or_address_goes_new_data_moves_at_once_and_one_packet_is_duplicated() {
    for lose in [take_down, take_address] {
        let mut t = joined_daemons();
        stream(&mut t, MS(500));
        forget_silence(&mut t);
        let (now, link) = (t.world.now(), t.links[0]);
        t.world.at(now, Change::CutBoth(link, true));
        lose(&mut t);
        stream(&mut t, MS(500));
        // The other path's window of ten packets is spread over the round trip of 20 ms.
        let silence = t.talk(t.b).longest_silence;
        assert!(silence < MS(3), "{silence:?}");
        assert_eq!(t.info(t.b).counters.data_duplicate, 1);
    }
}

#[test]
fn sacks_that_arrive_at_a_lost_address_prevent_needless_retransmissions() {
    let mut t = idle(&[50, 50]);
    stream(&mut t, seconds(2));
    forget_silence(&mut t);
    take_address(&mut t);
    stream(&mut t, seconds(1));
    assert_eq!(t.info(t.b).counters.data_duplicate, 1);
}

#[test]
fn only_data_that_the_kernel_refused_moves_to_the_other_path_at_once() {
    let _clear = InTheClear::begin();
    let mut t = joined_daemons();
    stream(&mut t, MS(500));
    forget_silence(&mut t);
    let (now, local) = (t.world.now(), "10.0.1.1".parse().expect("an address"));
    t.world.at(now, Change::Unroutable(local, true));
    // The host reports the lost link 2 ms later.
    stream(&mut t, MS(2));
    take_down(&mut t);
    stream(&mut t, MS(500));
    let silence = t.talk(t.b).longest_silence;
    assert!(silence < MS(5), "{silence:?}");
    t.world.run_for(MS(100));
    assert_eq!(t.info(t.b).counters.data_duplicate, 0);
    assert_eq!(t.talk(t.b).received_bytes, 2004 * 1200);
}

#[test]
fn an_answer_on_another_path_does_not_count_as_life_of_a_silent_path() {
    let mut t = joined_daemons();
    stream(&mut t, MS(500));
    forget_silence(&mut t);
    let (now, link) = (t.world.now(), t.links[0]);
    t.world.at(now, Change::CutBoth(link, true));
    stream(&mut t, MS(500));
    // The path is doubted 50 ms after the cut, and the answer on the other path arrives 70 ms after the cut. The path is left by 80 ms
    // after the cut, and data arrives 10 ms later.
    let silence = t.talk(t.b).longest_silence;
    assert!(silence < MS(95), "{silence:?}");
}

#[test]
fn with_delayed_sacks_a_path_is_doubted_after_two_round_trips() {
    let mut t = idle(&[50, 50]);
    stream_of(&mut t, 64, MS(100), seconds(3));
    forget_silence(&mut t);
    let (now, link) = (t.world.now(), t.links[0]);
    t.world.at(now, Change::Cut(link, Direction::Forward, true));
    stream_of(&mut t, 64, MS(100), seconds(1));
    // The last message before the cut arrived 50 ms after it was sent. The first message after the cut leaves on the other path 200 ms
    // after its first transmission.
    let silence = t.talk(t.b).longest_silence;
    assert!(silence < MS(305), "{silence:?}");
}

#[test]
fn data_that_goes_back_to_the_first_path_is_spread_over_its_round_trip_too() {
    let mut t = joined_daemons();
    stream(&mut t, seconds(1));
    take_down(&mut t);
    stream(&mut t, MS(500));
    let (now, id, local) = (t.world.now(), t.id(t.a), "10.0.1.1".parse().expect("an address"));
    t.world.host_mut(t.a).endpoint.set_local_link(now, id, local, true);
    forget_silence(&mut t);
    stream(&mut t, seconds(7));
    assert_eq!(in_use(&t), "10.0.1.1");
    let silence = t.talk(t.b).longest_silence;
    assert!(silence < MS(4), "{silence:?}");
}

#[test]
fn a_path_that_takes_over_sends_full_packets_of_small_messages() {
    let mut t = joined_daemons();
    let small = |t: &mut Two, long| stream_of(t, 100, Duration::from_micros(50), long);
    small(&mut t, MS(500));
    t.world.recording = true;
    take_down(&mut t);
    small(&mut t, MS(20));
    let by_other = t.world.records.iter().filter(|r| r.route.local.to_string() == "10.0.2.1");
    let sizes: Vec<usize> = by_other.map(|r| r.packet.len()).filter(|size| *size > 100).collect();
    assert!((8..=16).contains(&sizes.len()), "{sizes:?}");
    assert!(sizes[2..].iter().all(|size| *size > 1200), "{sizes:?}");
}

#[test]
fn data_lost_with_a_failed_link_is_retransmitted_after_a_round_trip() {
    let mut t = joined_daemons();
    stream(&mut t, MS(500));
    forget_silence(&mut t);
    let (now, link) = (t.world.now(), t.links[0]);
    t.world.at(now, Change::CutBoth(link, true));
    stream(&mut t, MS(15));
    take_down(&mut t);
    stream(&mut t, MS(500));
    // The last packet over the link arrives 5 ms before the host reports the failure. The lost data arrives 30 ms after the report: it
    // leaves after a round trip of 20 ms, and needs 10 ms to arrive.
    let silence = t.talk(t.b).longest_silence;
    assert!(silence < MS(37), "{silence:?}");
    t.world.run_for(MS(100));
    assert_eq!(t.talk(t.b).received_bytes, 2030 * 1200);
}

#[test]
//= rfc9260#6.4-3
fn a_sack_with_duplicates_uses_their_path_even_if_newer_data_came_on_another_path() {
    let _clear = InTheClear::begin();
    let mut t = idle(&[10, 10]);
    t.world.recording = true;
    speak(&mut t, 1);
    cut(&mut t, 0, true);
    let id = t.id(t.a);
    let talk = t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation");
    talk.outgoing.extend(sends(messages(1, 64, 1)).outgoing);
    t.world.run_for(MS(5));
    let has_data = |packet: &[u8]| chunk_names(packet).contains("DATA");
    let sent: Vec<_> =
        t.world.records.iter().filter(|r| has_data(&r.packet)).map(|r| r.packet.clone()).collect();
    let [old, new] = &sent[..] else { panic!("{} packets with DATA", sent.len()) };
    let (now, before) = (t.world.now(), t.world.records.len());
    let host = t.world.host_mut(t.b);
    for (link, packet) in [(2, old), (1, new)] {
        let route = route(&format!("10.0.{link}.2"), &format!("10.0.{link}.1"));
        host.endpoint.handle_datagram(now, &route, base::Ecn::NotEct, packet, &mut host.app);
    }
    t.world.run_for(MS(1));
    assert_eq!(sent_by(&t.world, before, "10.0.2.2"), ["SACK"]);
    assert!(sent_by(&t.world, before, "10.0.1.2").iter().all(|chunks| !chunks.contains("SACK")));
}
