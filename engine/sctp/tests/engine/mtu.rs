//! Tests of path MTUs (RFC 8899): decreases with and without ICMP, jumbo links, false reports, and probes lost by chance.

use std::time::Duration;

use base::{Carrier, Time};
use sctp::{AssociationConfig, EndpointConfig, Event, PathError, PathInfo};
use sim::{Change, Conversation, Direction, InTheClear, LinkConfig, Loss, World, chunk_names};

use crate::support::{Two, UDP, a_route, describe, messages, seconds, sends, sends_then_closes, two_with};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Returns a link with a round trip of 20 ms that drops packets of more than `mtu` bytes without a report.
fn silent(mtu: usize) -> LinkConfig {
    LinkConfig { mtu, reports_mtu: false, ..LinkConfig::default() }
}

fn jumbo() -> AssociationConfig {
    AssociationConfig { mtu: 9000, ..AssociationConfig::default() }
}

fn endpoint(association: AssociationConfig) -> EndpointConfig {
    EndpointConfig { association, ..EndpointConfig::default() }
}

/// Creates two hosts of which `a` sends without end over one link.
fn bulk(seed: u64, link: LinkConfig, config: &AssociationConfig) -> Two {
    let mut t = two_with(seed, link, endpoint(config.clone()));
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect_with(config.clone(), Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t
}

fn path(t: &Two) -> PathInfo {
    t.info(t.a).paths[0].clone()
}

/// Sets the MTU of both directions of the first link.
fn set_mtu(t: &mut Two, mtu: usize) {
    let now = t.world.now();
    for direction in [Direction::Forward, Direction::Backward] {
        t.world.at(now, Change::Mtu(t.links[0], direction, mtu));
    }
}

/// Returns the lengths of the recorded packets of `a` that contain a chunk with this name.
fn lengths(t: &Two, name: &str) -> Vec<usize> {
    let own = t.world.records.iter().filter(|r| r.route.local == a_route().local);
    own.filter(|r| chunk_names(&r.packet).contains(name)).map(|r| r.packet.len()).collect()
}

#[test]
//= rfc8899#3-19 5.2-1
fn on_a_usual_path_the_first_data_packet_has_full_size_and_a_short_transfer_is_not_probed() {
    let _clear = InTheClear::begin();
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.recording = true;
    t.connect(sends_then_closes(messages(2, 1440, 1)));
    t.run_to_end(seconds(5));
    assert_eq!(lengths(&t, "DATA")[0], 1468);
    assert_eq!(lengths(&t, "PAD"), []);
}

#[test]
//= rfc9260#7.3-1
//= rfc8899#3-5 6.2-1
fn a_busy_path_is_proven_by_one_probe_of_its_mtu_beside_the_data() {
    for carrier in [Carrier::Ip, UDP] {
        let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
        t.world.recording = true;
        let config = AssociationConfig::default();
        t.world.connect(t.a, t.b, carrier, config, sends(messages(100, 1400, 1)));
        t.world.run_for(seconds(2));
        assert!(path(&t).mtu_is_proven);
        let header = if carrier == UDP { 28 } else { 20 };
        assert_eq!(lengths(&t, "HEARTBEAT PAD"), [1500 - header]);
    }
}

#[test]
//= rfc6951#5.6-3
//= rfc8899#4.3-1 3-21
fn a_black_hole_in_the_middle_of_a_transfer_stops_it_for_a_few_round_trips() {
    for seed in 1..5 {
        let mut t = bulk(seed, silent(1500), &AssociationConfig::default());
        t.world.run_for(seconds(2));
        let before = t.talk(t.b).received_bytes;
        set_mtu(&mut t, 1400);
        t.world.run_for(seconds(2));
        assert_eq!(path(&t).mtu, 1400);
        assert!(t.talk(t.b).longest_silence < MS(250), "{:?}", t.talk(t.b).longest_silence);
        assert_eq!(t.info(t.a).counters.timeouts, 0);
        assert!(t.talk(t.b).received_bytes - before > 15_000_000, "{}", describe(&t.world));
    }
}

#[test]
//= rfc9260#10-6
//= rfc8899#4.6.2-2
fn with_icmp_a_transfer_adapts_to_a_smaller_mtu_within_a_few_round_trips() {
    let mut t = bulk(1, LinkConfig::default(), &AssociationConfig::default());
    t.world.run_for(seconds(2));
    set_mtu(&mut t, 1400);
    t.world.run_for(MS(300));
    assert_eq!(path(&t).mtu, 1400);
    assert!(t.talk(t.b).longest_silence < MS(80), "{:?}", t.talk(t.b).longest_silence);
}

#[test]
fn a_path_that_is_a_black_hole_from_the_start_is_found_before_the_first_timeout() {
    let mut t = bulk(1, silent(1300), &AssociationConfig::default());
    t.world.run_for(MS(800));
    assert!((1284..=1300).contains(&path(&t).mtu), "{:?}", path(&t));
    assert_eq!(t.info(t.a).counters.timeouts, 0);
    assert!(t.talk(t.b).received_bytes > 1_000_000, "{}", t.talk(t.b).received_bytes);
}

#[test]
fn a_black_hole_below_the_base_size_is_got_out_of() {
    let mut t = bulk(1, silent(1500), &AssociationConfig::default());
    t.world.run_for(seconds(1));
    set_mtu(&mut t, 900);
    t.world.run_for(seconds(5));
    assert!((880..=900).contains(&path(&t).mtu), "{:?}", path(&t));
    let before = t.talk(t.b).received_bytes;
    t.world.run_for(seconds(1));
    assert!(t.talk(t.b).received_bytes - before > 5_000_000);
}

#[test]
fn chunks_cut_for_a_larger_mtu_get_through_a_black_hole_even_as_the_last_ones() {
    let mut t = two_with(1, silent(1500), EndpointConfig::default());
    t.connect(Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(1));
    set_mtu(&mut t, 1300);
    let (a, id) = (t.a, t.id(t.a));
    let talk = t.world.host_mut(a).app.conversations.get_mut(&id).unwrap();
    *talk = Conversation { progress: talk.progress.clone(), ..sends_then_closes(messages(3, 1440, 1)) };
    // The filter also drops the first eight packets with fragments, so the delivery needs tail-loss probes and T3.
    let mut losses = 8;
    t.world.set_filter(move |record| {
        let is_lost = losses > 0 && chunk_names(&record.packet).contains("DATA");
        losses -= i32::from(is_lost);
        if is_lost { sim::Fate::Drop } else { sim::Fate::Pass }
    });
    t.run_to_end(seconds(30));
    assert_eq!(t.talk(t.b).received.len(), 3);
}

#[test]
//= rfc8899#3-21
fn ten_minutes_after_the_fall_a_path_that_was_mended_has_its_mtu_back() {
    let mut t = bulk(1, LinkConfig { rate: 1_000_000, ..silent(1500) }, &AssociationConfig::default());
    t.world.run_for(seconds(1));
    set_mtu(&mut t, 1300);
    t.world.run_for(seconds(10));
    assert!(path(&t).mtu <= 1300);
    set_mtu(&mut t, 1500);
    t.world.run_for(seconds(640));
    assert_eq!(path(&t).mtu, 1500);
}

#[test]
//= rfc9260#7.3-2
fn of_two_paths_the_one_with_the_black_hole_is_kept_and_data_does_not_go_to_and_fro() {
    let mut world = World::new(1);
    let config = EndpointConfig::default();
    let a = world.add_host(&["10.0.1.1", "10.0.2.1"], config.clone());
    let b = world.add_host(&["10.0.1.2", "10.0.2.2"], config);
    let links: Vec<_> = (1..=2)
        .map(|i| {
            let link = world.add_link(LinkConfig { delay: MS(150), ..silent(1500) });
            world.join(link, &format!("10.0.{i}.1"), &format!("10.0.{i}.2"));
            link
        })
        .collect();
    let mut t = Two { world, a, b, links };
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect(Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t.world.run_for(seconds(5));
    set_mtu(&mut t, 1400);
    t.world.run_for(seconds(20));
    let switches = t.events(a).iter().filter(|e| matches!(e, Event::PathSwitched { .. })).count();
    assert!(switches <= 2, "{switches} switches");
    let info = t.info(a);
    assert_eq!((info.paths[0].mtu, info.paths[0].in_use), (1400, true), "{:?}", info.paths);
    assert_eq!(info.paths.iter().filter(|p| p.mtu == 1500 && p.mtu_is_proven).count(), 1);
}

#[test]
fn a_jumbo_link_is_filled_after_two_round_trips() {
    let mut t = bulk(1, LinkConfig { mtu: 9000, rate: 1_000_000_000, ..silent(9000) }, &jumbo());
    t.world.run_for(MS(60));
    assert_eq!(path(&t).mtu, 9000);
    t.world.recording = true;
    t.world.run_for(MS(100));
    assert_eq!(lengths(&t, "DATA").into_iter().max(), Some(8980));
}

#[test]
fn a_jumbo_link_to_a_usual_path_loses_no_data() {
    for link in [silent(1500), LinkConfig::default()] {
        let mut t = bulk(1, link, &jumbo());
        t.world.run_for(seconds(5));
        let info = t.info(t.a);
        assert_eq!((info.paths[0].mtu, info.counters.mtu_shrunk), (1500, 0));
        assert_eq!(info.counters.timeouts, 0);
    }
}

#[test]
fn each_direction_has_an_mtu_of_its_own() {
    let mut t = bulk(1, silent(1500), &AssociationConfig::default());
    let b = t.b;
    let id = t.id(b);
    t.world.host_mut(b).app.conversations.get_mut(&id).unwrap().bulk = 1 << 40;
    t.world.run_for(seconds(1));
    t.world.at(t.world.now(), Change::Mtu(t.links[0], Direction::Backward, 1280));
    t.world.run_for(seconds(2));
    assert_eq!((t.info(t.a).paths[0].mtu, t.info(b).paths[0].mtu), (1500, 1280));
}

#[test]
//= rfc8899#3-7 3-13
fn losses_by_chance_do_not_shrink_packets_for_long() {
    for seed in 1..6 {
        for loss in [Loss::Uniform(0.05), Loss::Bursts { begin: 0.01, end: 0.2 }] {
            let mut t = bulk(seed, LinkConfig { loss, ..silent(1500) }, &AssociationConfig::default());
            t.world.run_for(seconds(20));
            let info = t.info(t.a);
            assert!(info.counters.mtu_shrunk <= 3, "seed {seed} {loss:?}: {}", info.counters.mtu_shrunk);
            assert_eq!(info.paths[0].mtu, 1500, "seed {seed} {loss:?}");
        }
    }
}

#[test]
//= rfc8899#3-7
fn a_tenth_of_all_packets_lost_shrinks_no_packets_and_one_of_500_is_a_probe() {
    for seed in 1..6 {
        let loss = Loss::Uniform(0.1);
        let mut t = bulk(seed, LinkConfig { loss, ..silent(1500) }, &AssociationConfig::default());
        t.world.run_for(seconds(60));
        let (info, path) = (t.info(t.a), path(&t));
        assert_eq!(info.counters.mtu_shrunk, 0, "seed {seed}");
        assert!(path.mtu_probes_sent * 500 < path.packets_sent, "seed {seed}: {path:?}");
    }
}

#[test]
//= rfc8899#3-7
fn where_half_of_all_packets_are_lost_probes_of_the_mtu_do_not_take_the_place_of_data() {
    for seed in 1..6 {
        let mut t = bulk(seed, silent(1500), &AssociationConfig::default());
        let mut dice = seed;
        t.world.set_filter(move |record| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let is_lost = record.route.local == a_route().local && dice >> 63 == 0;
            if is_lost { sim::Fate::Drop } else { sim::Fate::Pass }
        });
        t.world.run_for(seconds(200));
        let path = path(&t);
        assert!(path.mtu_probes_sent * 40 < path.packets_sent, "seed {seed}: {path:?}");
    }
}

#[test]
//= rfc8899#4.3-1
fn after_a_minute_of_ten_percent_loss_a_black_hole_is_found_within_seconds() {
    let silence = |seed| {
        let lossy = LinkConfig { loss: Loss::Uniform(0.1), ..silent(1500) };
        let mut t = bulk(seed, lossy, &AssociationConfig::default());
        t.world.run_for(seconds(60));
        set_mtu(&mut t, 1400);
        t.world.run_for(seconds(20));
        assert!(path(&t).mtu <= 1400, "seed {seed}");
        t.talk(t.b).longest_silence
    };
    // One packet in ten is lost, and the timers of RFC 9260 double from one second. In a few runs, several attempts in a row are lost, so
    // no limit applies to the four longest silences.
    let mut silences: Vec<Duration> = (1..=40).map(silence).collect();
    silences.sort();
    assert!(silences[20] < seconds(3) && silences[35] < seconds(7), "{silences:?}");
}

#[test]
fn a_full_queue_is_no_black_hole() {
    let shallow = LinkConfig { rate: 5_000_000, queue_bytes: 8_000, ..silent(1500) };
    let mut t = bulk(1, shallow, &AssociationConfig::default());
    t.world.run_for(seconds(20));
    assert_eq!((path(&t).mtu, t.info(t.a).counters.mtu_shrunk), (1500, 0));
}

#[test]
//= rfc8899#4.6.2-1
fn forged_icmp_costs_a_few_round_trips_of_short_packets() {
    let mut t = bulk(1, LinkConfig::default(), &AssociationConfig::default());
    t.world.run_for(seconds(1));
    let quoted = sim::packet(40_000, 7, t.info(t.a).peer_tag, &[]);
    t.world.inject_path_error(t.a, a_route(), PathError::TooBig { mtu: 600 }, &quoted);
    assert_eq!(path(&t).mtu, 576);
    t.world.run_for(MS(150));
    assert_eq!(path(&t).mtu, 1500);
}

#[test]
fn the_driver_hears_of_each_change_of_an_mtu() {
    let mut t = bulk(1, LinkConfig::default(), &AssociationConfig::default());
    t.world.run_for(seconds(1));
    set_mtu(&mut t, 1400);
    t.world.run_until(Time::ZERO + seconds(2), |_| false);
    let changes: Vec<_> = t
        .events(t.a)
        .into_iter()
        .filter_map(|e| if let Event::PathMtu { from, to, .. } = e { Some((*from, *to)) } else { None })
        .collect();
    assert_eq!(changes, [(1500, 1200), (1200, 1400)]);
}
