//! Tests of links that pass HEARTBEATs but silently drop longer packets ("black holes"), during a bulk transfer and small messages both
//! ways.

use std::time::Duration;

use sctp::{Heartbeats, PathOptions, PathState};
use sim::{Change, Direction};

use crate::alternating::{IPV4, IPV6, joined, longest_silence, talk, transfer};
use crate::support::{Two, messages, seconds, sends};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Limits the IP packets on all links to `mtu` bytes after the time `after`.
fn narrow(t: &mut Two, after: Duration, mtu: usize) {
    let at = t.world.now() + after;
    for link in t.links.clone() {
        t.world.at(at, Change::Mtu(link, Direction::Forward, mtu));
        t.world.at(at, Change::Mtu(link, Direction::Backward, mtu));
    }
}

/// Creates two hosts during a transfer and a talk. No link reports that packets are too long for it.
fn busy(seed: u64, families: &[&str]) -> Two {
    let mut t = joined(seed, families);
    for link in t.links.clone() {
        t.world.link_mut(link).config.reports_mtu = false;
    }
    talk(&mut t, seconds(1));
    transfer(&mut t);
    talk(&mut t, seconds(2));
    // The seed shifts the time at which the test continues.
    t.world.run_for(MS(seed * 37));
    t
}

/// Continues the talk for `long`. In the last five seconds, the transfer must reach at least half the rate of one link. Returns the longest
/// silence.
fn go_on(t: &mut Two, long: Duration) -> Duration {
    talk(t, long - seconds(5));
    let before = t.talk(t.b).received_bytes;
    talk(t, seconds(5));
    let rate = (t.talk(t.b).received_bytes - before) * 8 / 5;
    assert!(rate > 10_000_000, "{rate} bit/s in the end");
    longest_silence(t)
}

/// Cases: the address families, and the successive MTUs of all links. The first family carries the data. Each case leaves paths that carry
/// the minimum size of their family: 576 bytes for IPv4, 1,280 bytes for IPv6.
const HOLES: [(&[&str], &[usize]); 8] = [
    (&[IPV4], &[1400]),
    (&[IPV4], &[1280, 600]),
    (&[IPV6], &[1400, 1280]),
    (&[IPV4, IPV6], &[1280, 600]),
    (&[IPV4, IPV6], &[600]),
    (&[IPV6, IPV4], &[1280, 600]),
    (&[IPV6, IPV4], &[1232]),
    (&[IPV6, IPV4], &[600]),
];

#[test]
//= rfc8899#4.3-1
fn data_goes_on_within_a_second_by_any_path_that_takes_the_least_size() {
    for ((families, mtus), seed) in HOLES.into_iter().flat_map(|hole| [1, 2, 3].map(|seed| (hole, seed))) {
        let mut t = busy(seed, families);
        for (after, mtu) in [Duration::ZERO, seconds(5)].into_iter().zip(mtus) {
            narrow(&mut t, after, *mtu);
        }
        let silence = go_on(&mut t, seconds(12));
        assert!(silence < seconds(1), "{families:?} {mtus:?}, seed {seed}: {silence:?}");
    }
}

#[test]
//= rfc8899#4.3-1
fn data_continues_within_a_second_after_cut_links_return_with_smaller_mtus() {
    for ((families, mtus), seed) in HOLES.into_iter().flat_map(|hole| [1, 2, 3].map(|seed| (hole, seed))) {
        let mut t = busy(seed, families);
        let now = t.world.now();
        for link in t.links.clone() {
            t.world.at(now, Change::CutBoth(link, true));
            t.world.at(now + MS(1500), Change::CutBoth(link, false));
        }
        narrow(&mut t, Duration::ZERO, mtus[mtus.len() - 1]);
        let silence = go_on(&mut t, seconds(10));
        assert!(silence < MS(2500), "{families:?} {mtus:?}, seed {seed}: {silence:?}");
    }
}

#[test]
fn a_large_chunk_that_arrives_in_fragments_proves_no_packet_size() {
    for seed in 1..=3 {
        let mut t = joined(seed, &[IPV4, IPV6]);
        for link in t.links.clone() {
            let config = &mut t.world.link_mut(link).config;
            (config.reports_mtu, config.rate, config.delay) = (false, 100_000_000, MS(10));
        }
        stream(&mut t, seconds(2));
        narrow(&mut t, Duration::ZERO, 1000);
        stream(&mut t, seconds(2));
        let silence = longest_silence(&t);
        assert!(silence < MS(300), "seed {seed}: {silence:?}");
    }
}

/// Sends 2,400 bytes every millisecond for the time `long`. This rate is below the capacity of a link.
fn stream(t: &mut Two, long: Duration) {
    let (id, end) = (t.id(t.a), t.world.now() + long);
    while t.world.now() < end {
        let talk = t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation");
        talk.outgoing.extend(sends(messages(2, 1200, 1)).outgoing);
        t.world.run_for(MS(1));
    }
}

#[test]
fn without_heartbeats_short_messages_prove_a_path_of_the_least_size() {
    let mut t = busy(1, &[IPV6]);
    narrow(&mut t, Duration::ZERO, 1280);
    talk(&mut t, seconds(5));
    let id = t.id(t.a);
    t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation").bulk = 0;
    talk(&mut t, seconds(5));
    let (now, links) = (t.world.now(), t.links.clone());
    let off = PathOptions { heartbeats: Heartbeats::Off, ..PathOptions::default() };
    for path in t.info(t.a).paths {
        t.world.host_mut(t.a).endpoint.set_path_options(now, id, path.route.remote, off).expect("a path");
    }
    links.iter().for_each(|link| t.world.at(now, Change::CutBoth(*link, true)));
    t.world.at(now + MS(2500), Change::CutBoth(links[0], false));
    talk(&mut t, seconds(30));
    let working =
        |t: &Two| t.info(t.a).paths.iter().any(|path| path.state == PathState::Active && path.in_use);
    assert!(working(&t), "{:?}", t.info(t.a).paths);
}

#[test]
//= rfc8899#4.3-1
fn if_the_mtu_falls_below_the_ipv6_minimum_messages_continue_over_ipv4() {
    for (seed, pause) in (1..=3).flat_map(|seed| [20, 50, 100, 200].map(|pause| (seed, MS(pause)))) {
        let mut t = joined(seed, &[IPV6, IPV4]);
        t.links.clone().into_iter().for_each(|link| t.world.link_mut(link).config.reports_mtu = false);
        paced(&mut t, pause, seconds(2) + MS(seed * 7));
        narrow(&mut t, Duration::ZERO, 1000);
        paced(&mut t, pause, seconds(8));
        let silence = longest_silence(&t);
        assert!(silence < pause + MS(300), "seed {seed}, {pause:?}: {silence:?}");
    }
}

#[test]
//= rfc8899#4.3-1
fn the_last_message_does_not_go_to_and_fro_between_paths_that_drop_it() {
    for (seed, families) in (1..=5).flat_map(|seed| [[IPV4, IPV6], [IPV6, IPV4]].map(|it| (seed, it))) {
        let mut t = joined(seed, &families);
        t.links.clone().into_iter().for_each(|link| t.world.link_mut(link).config.reports_mtu = false);
        paced(&mut t, MS(100), seconds(2) + MS(seed * 7));
        narrow(&mut t, Duration::ZERO, 1000);
        t.world.run_for(MS(1));
        let before = t.talk(t.b).received_bytes;
        paced(&mut t, MS(600), MS(600));
        let came = t.talk(t.b).received_bytes - before;
        assert_eq!(came, 1200, "seed {seed}, {families:?}");
    }
}

/// Sends 1,200 bytes every `pause` for `long`.
fn paced(t: &mut Two, pause: Duration, long: Duration) {
    let (id, end) = (t.id(t.a), t.world.now() + long);
    while t.world.now() < end {
        let talk = t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation");
        talk.outgoing.extend(sends(messages(1, 1200, 1)).outgoing);
        t.world.run_for(pause);
    }
}
