//! Tests of a path that becomes slow but loses nothing: data in its queue is acknowledged ever later.

use std::time::Duration;

use sctp::TraceEvent;

use crate::alternating::{IPV4, joined, longest_silence, talk, transfer};
use crate::failover::{in_use, switches};
use crate::support::{Two, seconds};

const MS: fn(u64) -> Duration = Duration::from_millis;
const FIRST: &str = "10.0.1.1";

/// Sets the rate of a link in bit/s, and its queue in packets.
fn set_rate(t: &mut Two, link: usize, rate: u64, queue: usize) {
    let link = t.links[link];
    let config = &mut t.world.link_mut(link).config;
    (config.rate, config.queue_packets) = (rate, queue);
}

/// Creates two hosts with links of 10 Mbit/s and 200 packets, during a talk and, with `transfers`, a bulk transfer.
fn busy(seed: u64, transfers: bool) -> Two {
    let mut t = joined(seed, &[IPV4]);
    (0..2).for_each(|link| set_rate(&mut t, link, 10_000_000, 200));
    talk(&mut t, seconds(1));
    if transfers {
        transfer(&mut t);
    }
    talk(&mut t, seconds(3));
    // The seed shifts the time at which the test continues.
    t.world.run_for(MS(seed * 37));
    trace(&mut t);
    t
}

fn trace(t: &mut Two) {
    t.world.host_mut(t.a).endpoint.set_tracing(true);
    t.world.recording = true;
}

/// Returns how often the transferring host left a path because it was slow. The other host is not counted. It also leaves slow paths,
/// because the acknowledgements of its messages wait behind the transfer's data.
fn times_left(t: &Two) -> usize {
    let is_slow = |event: &TraceEvent| matches!(event, TraceEvent::PathSlow { .. });
    t.world.traces.iter().filter(|(host, record)| *host == t.a && is_slow(&record.event)).count()
}

/// Returns the rate in bit/s at which `b` receives for `long` seconds.
fn rate(t: &mut Two, long: u64) -> u64 {
    let before = t.talk(t.b).received_bytes;
    talk(t, seconds(long));
    (t.talk(t.b).received_bytes - before) * 8 / long
}

#[test]
fn a_transfer_and_a_talk_leave_a_path_that_becomes_slow_and_come_back() {
    for (slow, seed) in
        [50_000, 200_000, 1_000_000].into_iter().flat_map(|rate| [1, 2].map(|seed| (rate, seed)))
    {
        let mut t = busy(seed, true);
        set_rate(&mut t, 0, slow, 200);
        let meanwhile = rate(&mut t, 8);
        assert!(meanwhile > 7_000_000, "to {slow} bit/s, seed {seed}: {meanwhile} bit/s");
        set_rate(&mut t, 0, 10_000_000, 200);
        // Packets that are already in the queue still leave at the old rate.
        talk(&mut t, seconds(70));
        let silence = longest_silence(&t);
        assert!(silence < MS(500), "to {slow} bit/s, seed {seed}: {silence:?}");
        let seen = (times_left(&t), switches(&t), in_use(&t));
        assert_eq!(seen, (1, 2, FIRST.to_owned()), "to {slow} bit/s, seed {seed}");
    }
}

#[test]
fn a_talk_leaves_a_path_that_others_fill() {
    let mut t = busy(1, false);
    // The growing delay models a queue that other traffic fills.
    let link = t.links[0];
    for step in 1..=70 {
        t.world.link_mut(link).config.delay = MS(5 + step * 10);
        talk(&mut t, MS(300));
    }
    assert_eq!((times_left(&t), in_use(&t).as_str()), (1, "10.0.2.1"));
    assert!(longest_silence(&t) < seconds(1), "{:?}", longest_silence(&t));
}

#[test]
fn long_queues_that_a_transfer_fills_itself_move_no_data() {
    for slow in [300_000, 1_000_000, 3_000_000] {
        let mut t = joined(1, &[IPV4]);
        (0..2).for_each(|link| set_rate(&mut t, link, slow, 1000));
        trace(&mut t);
        transfer(&mut t);
        talk(&mut t, seconds(60));
        let waits = t.info(t.a).paths.iter().find(|path| path.in_use).and_then(|path| path.srtt);
        assert!(waits > Some(MS(300)), "{slow} bit/s: no queue, {waits:?}");
        assert_eq!(times_left(&t), 0, "{slow} bit/s");
    }
}

#[test]
fn of_two_links_that_become_slow_neither_is_left_again_and_again() {
    for slow in [200_000, 1_000_000] {
        let mut t = busy(1, true);
        (0..2).for_each(|link| set_rate(&mut t, link, slow, 200));
        talk(&mut t, seconds(120));
        // The engine remembers the rate of the other link for a minute.
        assert!(times_left(&t) <= 2, "{slow} bit/s: {} times in two minutes", times_left(&t));
    }
}
