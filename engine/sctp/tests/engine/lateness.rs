//! Tests of busy hosts: a late driver must not count as a fault of a path.

use std::time::Duration;

use base::Time;
use sctp::Event;
use sim::{Change, InTheClear};

use crate::alternating::{joined, longest_silence, talk, transfer};
use crate::support::{Two, seconds};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Makes both hosts, which share one machine, busy from time to time: for 20 to 120 ms, with pauses of 20 to 100 ms.
fn be_busy(t: &mut Two, long: Duration) {
    let mut at = t.world.now();
    let end = at + long;
    for turn in 0_u64.. {
        if at >= end {
            return;
        }
        let busy = MS(20 + turn * 37 % 101);
        t.world.at(at, Change::Busy(t.a, busy));
        t.world.at(at, Change::Busy(t.b, busy));
        at += busy + MS(20 + turn * 53 % 81);
    }
}

/// Returns the number of path switches at both hosts.
fn switches(t: &Two) -> usize {
    let of = |host| t.events(host).iter().filter(|event| matches!(event, Event::PathSwitched { .. })).count();
    of(t.a) + of(t.b)
}

#[test]
fn a_busy_host_whose_paths_work_stays_on_its_path() {
    let _clear = InTheClear::begin();
    for seed in 0..20 {
        let mut t = joined(seed, &["10.L.0."]);
        be_busy(&mut t, seconds(20));
        talk(&mut t, seconds(20));
        assert!(switches(&t) <= 1, "seed {seed}: {} switches", switches(&t));
    }
}

#[test]
fn a_transfer_stays_on_its_path_on_a_busy_host() {
    for seed in 0..20 {
        let mut t = joined(seed, &["10.L.0."]);
        be_busy(&mut t, seconds(20));
        transfer(&mut t);
        t.world.run_for(seconds(20));
        assert!(switches(&t) <= 1, "seed {seed}: {} switches", switches(&t));
    }
}

#[test]
fn a_busy_host_still_leaves_a_dead_path() {
    for seed in 0..20 {
        let mut t = joined(seed, &["10.L.0."]);
        be_busy(&mut t, seconds(10));
        let cut: Time = t.world.now() + seconds(2);
        t.world.at(cut, Change::CutBoth(t.links[0], true));
        talk(&mut t, seconds(10));
        assert!(longest_silence(&t) < seconds(1), "seed {seed}: {:?}", longest_silence(&t));
    }
}

#[test]
fn a_host_that_is_late_each_time_still_leaves_a_dead_path() {
    for busy in [60, 100, 200] {
        let mut t = joined(busy, &["10.L.0."]);
        let mut at = t.world.now();
        for _ in 0..50 {
            for host in [t.a, t.b] {
                t.world.at(at, Change::Busy(host, MS(busy)));
            }
            at += MS(busy + 1);
        }
        let cut: Time = t.world.now() + MS(500);
        t.world.at(cut, Change::CutBoth(t.links[0], true));
        talk(&mut t, MS(busy * 50));
        assert!(longest_silence(&t) < MS(500 + 6 * busy), "{busy} ms: {:?}", longest_silence(&t));
    }
}
