//! Tests of several paths (RFC 9260 sections 5.4, 6.4 and 8): confirmation, failure, failover, and return.

use std::time::Duration;

use base::Carrier;
use sctp::{
    AssociationConfig, CloseReason, EndpointConfig, Event, PathError, PathState, StateName, Timing,
    Unreachable,
};
use sim::{Change, Conversation, Direction, InTheClear, LinkConfig, World, packet};
use wire::{Chunk, Heartbeat};

use crate::states::Subject;
use crate::support::{
    Two, a_route, at_seconds, describe, drop_all, messages, route, seconds, sends, sends_then_closes, two,
};

/// Creates two hosts with two links, each with IPv4 and IPv6.
fn two_links(seed: u64) -> Two {
    two_links_with(seed, &EndpointConfig::default())
}

fn two_links_with(seed: u64, config: &EndpointConfig) -> Two {
    let mut world = World::new(seed);
    let a = world.add_host(&["10.0.1.1", "10.0.2.1", "fd00:1::1", "fd00:2::1"], config.clone());
    let b = world.add_host(&["10.0.1.2", "10.0.2.2", "fd00:1::2", "fd00:2::2"], config.clone());
    let links = (1..=2)
        .map(|i| {
            let link = world.add_link(LinkConfig { rate: 10_000_000, ..LinkConfig::default() });
            world.join(link, &format!("10.0.{i}.1"), &format!("10.0.{i}.2"));
            world.join(link, &format!("fd00:{i}::1"), &format!("fd00:{i}::2"));
            link
        })
        .collect();
    Two { world, a, b, links }
}

/// Creates two hosts of which `a` sends without end over the first path. All paths are confirmed.
fn busy(seed: u64) -> Two {
    let mut t = two_links(seed);
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect(Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t.world.run_for(seconds(2));
    t
}

fn in_use(t: &Two) -> String {
    let info = t.info(t.a);
    info.paths.iter().find(|p| p.in_use).expect("a path in use").route.local.to_string()
}

#[test]
//= rfc9260#7.2.5.2-1
fn a_path_from_another_source_address_has_a_window_of_its_own() {
    let t = busy(1);
    let paths = t.info(t.a).paths;
    let used = paths.iter().find(|p| p.in_use).expect("a path in use");
    assert!(used.cwnd > 20_000, "{}", used.cwnd);
    let others =
        paths.iter().filter(|p| p.route.remote == used.route.remote && p.route.local != used.route.local);
    assert_eq!(others.map(|p| p.cwnd).collect::<Vec<_>>(), [4404]);
}

#[test]
//= rfc9260#3.3.5-3 5.4-2 8.3-1 5.1.2-8 5.1.2-9
fn heartbeats_confirm_the_pairs_that_reach_each_other_and_no_others() {
    let mut t = two_links(1);
    t.connect(Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(1));
    for host in [t.a, t.b] {
        let paths = t.info(host).paths;
        assert_eq!(paths.len(), 8);
        for path in paths {
            let third = |a: std::net::IpAddr| a.to_string().split(['.', ':']).nth(2).map(str::to_owned);
            let fd = |a: std::net::IpAddr| a.to_string().split(':').nth(1).map(str::to_owned);
            let joined = third(path.route.local) == third(path.route.remote)
                && fd(path.route.local) == fd(path.route.remote);
            let expected = if joined { PathState::Active } else { PathState::Unconfirmed };
            assert_eq!(path.state, expected, "{:?}", path.route);
        }
    }
}

#[test]
//= rfc9260#6.4-1 6.4-4 6.4.1-1 8.2-2 8.2-3 8.3-9 8.3-3 7.2-3
//= rfc7829#3.2-2 3.2-3 3.2-4 3.2-5 3.2-14
fn a_cut_path_hands_over_within_two_timeouts_and_takes_back_when_mended() {
    let mut t = busy(1);
    assert_eq!(in_use(&t), "10.0.1.1");
    let (cut, mend) = (t.world.now(), t.world.now() + seconds(20));
    t.world.at(cut, Change::CutBoth(t.links[0], true));
    t.world.run_until(mend, |_| false);
    assert!(in_use(&t).contains('2'), "still on {}", in_use(&t));
    let silence = t.talk(t.b).longest_silence;
    assert!(silence <= Duration::from_millis(2100), "silence of {silence:?}");
    let before = t.talk(t.b).received_bytes;
    t.world.at(mend, Change::CutBoth(t.links[0], false));
    t.world.run_for(seconds(90));
    assert_eq!(in_use(&t), "10.0.1.1");
    assert!(t.talk(t.b).received_bytes > before);
}

#[test]
//= rfc9260#6.7-2 6.4-3
fn a_path_cut_one_way_hands_over_too() {
    for direction in [Direction::Forward, Direction::Backward] {
        let mut t = busy(1);
        let now = t.world.now();
        t.world.at(now, Change::Cut(t.links[0], direction, true));
        t.world.run_for(seconds(20));
        let silence = t.talk(t.b).longest_silence;
        assert!(silence <= Duration::from_millis(4100), "{direction:?}: silence of {silence:?}");
        let before = t.talk(t.b).received_bytes;
        t.world.run_for(seconds(10));
        let rate = (t.talk(t.b).received_bytes - before) * 8 / 10;
        assert!(rate > 4_000_000, "{direction:?}: {rate} bit/s\n{}", describe(&t.world));
    }
}

#[test]
//= rfc9260#8.1-1 8.1-3 8.1-4 6.1-21 6.3.3-1
//= rfc6951#5.5-2
fn with_all_paths_cut_both_sides_lose_contact() {
    let mut t = busy(1);
    let now = t.world.now();
    t.links.clone().iter().for_each(|&link| t.world.at(now, Change::CutBoth(link, true)));
    let reasons = t.run_to_end(seconds(1500));
    assert_eq!(reasons, (CloseReason::LostContact, CloseReason::LostContact));
}

#[test]
//= rfc7829#4-1 4.1-1
fn an_outage_of_ten_seconds_on_every_path_is_survived_even_with_quick_timers() {
    let _clear = InTheClear::begin();
    let mut t = two_links(1);
    let timing = sctp::Timing {
        rto_initial: Duration::from_millis(300),
        rto_min: Duration::from_millis(150),
        rto_max: seconds(5),
        sack_delay: Duration::from_millis(20),
        heartbeat_interval: seconds(1),
        path_max_retrans: 4,
        association_max_retrans: 12,
        ..sctp::Timing::default()
    };
    let config = AssociationConfig { timing, ..AssociationConfig::default() };
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.world.connect(t.a, t.b, Carrier::Ip, config, Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t.world.run_for(seconds(3));
    let now = t.world.now();
    for &link in &t.links.clone() {
        t.world.at(now, Change::CutBoth(link, true));
        t.world.at(now + seconds(10), Change::CutBoth(link, false));
    }
    t.world.run_until(now + seconds(17), |_| false);
    let before = t.talk(t.b).received_bytes;
    t.world.run_for(seconds(10));
    let rate = (t.talk(t.b).received_bytes - before) * 8 / 10;
    assert!(rate > 4_000_000, "{rate} bit/s\n{}", describe(&t.world));
}

#[test]
//= rfc9260#8.1-2 8.1-6
fn an_idle_association_outlives_dead_paths_while_one_lives() {
    let mut t = two_links(1);
    t.connect(Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(5));
    let now = t.world.now();
    t.world.at(now, Change::CutBoth(t.links[0], true));
    t.world.run_for(seconds(1800));
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
}

#[test]
//= rfc9260#8.3-13
fn an_idle_association_sends_heartbeats_at_their_interval_and_no_storm() {
    let mut t = two_links(1);
    t.connect(Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(100));
    let before = t.world.packets();
    t.world.run_for(seconds(3000));
    // Each of the two hosts has 8 paths, of which 4 answer. A path that answers gets a HEARTBEAT about every 31 s. Other paths get
    // HEARTBEATs at intervals of up to about 91 s.
    let sent = t.world.packets() - before;
    assert!((1000..2400).contains(&sent), "{sent} packets in 3,000 s");
}

#[test]
//= rfc6951#5.5-4
fn port_unreachable_on_every_path_ends_the_association_soon() {
    let mut t = busy(1);
    let now = t.world.now();
    t.world.at(now, Change::Up(t.b, false));
    t.world.run_for(seconds(30));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::LostContact), "{}", describe(&t.world));
}

#[test]
//= rfc9260#10-3 10-5
//= rfc6951#5.5-1
//= rfc8899#4.6.1-1
fn icmp_with_a_wrong_tag_is_not_believed_and_with_the_right_one_it_is() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(1);
    let (tag, rto) = (t.info(t.a).peer_tag, t.info(t.a).paths[0].rto);
    t.world.run_for(rto);
    for (tag, expected) in [(tag ^ 1, StateName::Established), (tag, StateName::Closed)] {
        let quoted = packet(40_000, 7, tag, &[Chunk::CookieAck]);
        let error = PathError::Unreachable(Unreachable::Port);
        t.world.inject_path_error(t.a, a_route(), error, &quoted);
        assert_eq!(t.state(t.a), expected);
    }
}

/// ICMP errors from a peer's host on which no program accepts our packets.
const NOBODY: [PathError; 2] =
    [PathError::Unreachable(Unreachable::Protocol), PathError::Unreachable(Unreachable::Port)];

#[test]
//= rfc9260#10-7
//= rfc6951#5.5-4
fn port_or_protocol_unreachable_counts_once_the_peer_was_silent_for_an_rto() {
    let _clear = InTheClear::begin();
    for error in NOBODY {
        let mut t = two(1);
        t.connect(Conversation::default());
        t.run_to_established();
        let (tag, rto) = (t.info(t.a).peer_tag, t.info(t.a).paths[0].rto);
        let quoted = packet(40_000, 7, tag, &[Chunk::CookieAck]);
        t.world.inject_path_error(t.a, a_route(), error, &quoted);
        assert_eq!(t.state(t.a), StateName::Established);
        t.world.run_for(rto);
        t.world.inject_path_error(t.a, a_route(), error, &quoted);
        assert_eq!(t.state(t.a), StateName::Closed);
    }
}

#[test]
//= rfc9260#10-7
fn port_or_protocol_unreachable_for_retransmissions_ends_the_association_soon() {
    let _clear = InTheClear::begin();
    for error in NOBODY {
        let mut t = two(1);
        t.connect(sends(messages(500, 1000, 1)));
        t.run_to_established();
        t.world.run_for(Duration::from_millis(50));
        assert!(t.info(t.a).send_buffered > 0);
        let quoted = packet(40_000, 7, t.info(t.a).peer_tag, &[Chunk::CookieAck]);
        drop_all(&mut t.world, |_, _| true);
        t.world.recording = true;
        for _ in 0..300 {
            let before = t.world.records.len();
            t.world.run_for(Duration::from_millis(10));
            for _ in before..t.world.records.len() {
                t.world.inject_path_error(t.a, a_route(), error, &quoted);
            }
        }
        assert_eq!(t.talk(t.a).closed, Some(CloseReason::LostContact), "{}", describe(&t.world));
    }
}

#[test]
//= rfc9260#10-7
//= rfc6951#5.5-4
fn port_or_protocol_unreachable_on_an_unconfirmed_or_failed_path_is_ignored() {
    let timing = Timing { association_max_retrans: 250, ..Timing::quick() };
    let config = AssociationConfig { timing, ..AssociationConfig::default() };
    let mut t =
        two_links_with(1, &EndpointConfig { association: config.clone(), ..EndpointConfig::default() });
    t.world.connect(t.a, t.b, Carrier::Ip, config, Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(5));
    let now = t.world.now();
    for &link in &t.links.clone() {
        t.world.at(now, Change::CutBoth(link, true));
    }
    let is_out = |t: &Two| {
        t.info(t.a).paths.iter().all(|p| matches!(p.state, PathState::Inactive | PathState::Unconfirmed))
    };
    t.world.run_until(now + seconds(30), |_| false);
    assert!(is_out(&t), "{}", describe(&t.world));
    let quoted = packet(40_000, 7, t.info(t.a).peer_tag, &[Chunk::CookieAck]);
    for path in t.info(t.a).paths {
        for error in NOBODY {
            t.world.inject_path_error(t.a, path.route, error, &quoted);
            assert_eq!(t.state(t.a), StateName::Established, "{path:?}");
        }
    }
    for &link in &t.links.clone() {
        t.world.at(t.world.now(), Change::CutBoth(link, false));
    }
    t.world.run_for(seconds(120));
    assert!(!is_out(&t) && t.state(t.b) == StateName::Established, "{}", describe(&t.world));
}

/// Creates two hosts with two links and quick timers. Then it ends `b`'s process, and cuts the given links for `outage` seconds.
fn ended_behind(cut: &[usize], outage: u64) -> Two {
    let config = AssociationConfig { timing: Timing::quick(), ..AssociationConfig::default() };
    let mut t =
        two_links_with(1, &EndpointConfig { association: config.clone(), ..EndpointConfig::default() });
    t.world.connect(t.a, t.b, Carrier::Ip, config, Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(5));
    let now = t.world.now();
    t.world.at(now, Change::Up(t.b, false));
    for &link in cut {
        t.world.at(now, Change::CutBoth(t.links[link], true));
        t.world.at(now + seconds(outage), Change::CutBoth(t.links[link], false));
    }
    t
}

#[test]
//= rfc9260#10-7
//= rfc6951#5.5-4
fn a_peer_that_is_gone_is_noticed_by_one_path_although_the_other_says_nothing() {
    let mut t = ended_behind(&[1], 1000);
    t.world.run_for(seconds(20));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::LostContact), "{}", describe(&t.world));
}

#[test]
//= rfc9260#10-7
//= rfc6951#5.5-4
fn a_peer_that_is_gone_is_noticed_when_its_host_is_back_after_a_while() {
    for outage in [2, 4, 10, 20] {
        let mut t = ended_behind(&[0, 1], outage);
        t.world.run_for(seconds(outage + 10));
        assert_eq!(t.talk(t.a).closed, Some(CloseReason::LostContact), "{outage} s: {}", describe(&t.world));
    }
}

#[test]
fn a_host_that_cannot_be_routed_to_for_a_while_is_waited_for() {
    let mut t = two(1);
    t.connect(sends_then_closes(messages(20, 1000, 2)));
    t.run_to_established();
    let (now, from) = (t.world.now(), t.world.records.len());
    t.world.at(now, Change::CutBoth(t.links[0], true));
    t.world.at(now + seconds(10), Change::CutBoth(t.links[0], false));
    let quoted = packet(40_000, 7, t.info(t.a).peer_tag, &[Chunk::CookieAck]);
    for _ in 0..1000 {
        t.world.run_for(Duration::from_millis(10));
        let error = PathError::Unreachable(Unreachable::Host);
        t.world.inject_path_error(t.a, a_route(), error, &quoted);
    }
    assert!(t.world.records.len() - from < 100, "{} packets into the void", t.world.records.len() - from);
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 20);
}

#[test]
//= rfc7829#3.2-19
fn icmp_about_one_path_moves_data_to_the_other() {
    let _clear = InTheClear::begin();
    let mut t = busy(1);
    let quoted = packet(40_000, 7, t.info(t.a).peer_tag, &[Chunk::CookieAck]);
    let error = PathError::Unreachable(Unreachable::Host);
    t.world.inject_path_error(t.a, route("10.0.1.1", "10.0.1.2"), error, &quoted);
    assert_ne!(in_use(&t), "10.0.1.1");
    assert!(t.events(t.a).iter().any(|e| matches!(e, Event::PathSwitched { .. })));
}

#[test]
fn a_quick_timing_makes_failover_quick() {
    let mut t = two_links(1);
    let timing = sctp::Timing {
        rto_initial: Duration::from_millis(200),
        rto_min: Duration::from_millis(100),
        sack_delay: Duration::from_millis(20),
        ..sctp::Timing::default()
    };
    let config = AssociationConfig { timing, ..AssociationConfig::default() };
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.world.connect(t.a, t.b, Carrier::Ip, config, Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t.world.run_for(seconds(3));
    let now = t.world.now();
    let path = t.info(t.a).paths[0].clone();
    t.world.at(now, Change::CutBoth(t.links[0], true));
    t.world.run_for(seconds(10));
    let silence = t.talk(t.b).longest_silence;
    // The limit on the silence has two parts. The first part is the longer one of two times: T3, or a tail-loss probe and its answer. The
    // second part is the delivery through the queue of the link.
    let expected = path.rto.max(path.srtt.unwrap() * 13 / 4) + Duration::from_millis(50);
    assert!(silence <= expected, "silence of {silence:?}, expected {expected:?}");
    assert!(expected < Duration::from_secs(1));
}

#[test]
fn a_set_up_whose_first_path_dies_right_after_goes_on_over_the_second() {
    let mut t = two_links(1);
    t.world.at(base::Time::from_millis(500), Change::CutBoth(t.links[0], true));
    t.connect(sends_then_closes(messages(2000, 1400, 4)));
    assert_eq!(t.run_to_end(seconds(100)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 2000);
    assert!(t.world.now() < at_seconds(30));
}

//= rfc9260#8.3-8
#[test]
fn a_heartbeat_is_answered_whole_if_the_answer_fits_a_packet_of_the_path() {
    let _clear = InTheClear::begin();
    let mut subject = Subject::in_state(StateName::Established);
    let tag = subject.own_tag;
    let (fits, too_long) = (vec![7; 1500 - 20 - 12 - 8], vec![7; 1500 - 20 - 12 - 4]);
    assert_eq!(subject.answer_to(tag, &Chunk::Heartbeat(Heartbeat { info: &fits })), ["HEARTBEAT ACK"]);
    let answer = subject.last_packet();
    assert!(answer.ends_with(&fits), "{} octets", answer.len());
    assert!(subject.answer_to(tag, &Chunk::Heartbeat(Heartbeat { info: &too_long })).is_empty());
}
