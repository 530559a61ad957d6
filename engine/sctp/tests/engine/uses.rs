//! Tests of the uses of addresses: the choice of the working path that carries data, and the cost of idle paths.

use std::net::IpAddr;
use std::time::Duration;

use base::Carrier;
use sctp::{
    AddressChange, AddressError, AddressProof, AddressUse, AssociationConfig, EndpointConfig, Event,
    Extensions, Multipath, PathReason, PathScheduler, Preference, Time, Timing,
};
use sim::{
    Change, Conversation, Fate, HostId, InTheClear, LinkConfig, LinkId, NatConfig, World, chunk_names,
};
use wire::ChunkType;

use crate::failover::{config, cut, idle, in_use, speak};
use crate::support::{Two, UDP, route, seconds, sent_by, without};

const MS: fn(u64) -> Duration = Duration::from_millis;

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn of(preference: Preference) -> AddressUse {
    AddressUse { preference, ..AddressUse::default() }
}

fn backup(heartbeat_s: u64) -> AddressUse {
    AddressUse { preference: Preference::Backup, heartbeat: Some(seconds(heartbeat_s)), link: 0 }
}

/// Sets the use of one of `a`'s addresses, and reports it to the peer.
fn set(t: &mut Two, address: &str, usage: AddressUse) -> Result<(), AddressError> {
    let (now, id) = (t.world.now(), t.id(t.a));
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    let outcome = endpoint.set_local_uses(now, id, &[(ip(address), usage)]);
    // A peer that has not agreed to address changes gets no report.
    let told = endpoint.tell_local_use(now, id, ip(address));
    t.world.run_for(MS(200));
    outcome.and(told.or_else(|error| if error == AddressError::NotNegotiated { Ok(()) } else { Err(error) }))
}

/// Returns the local address of the path on which the host sends new data.
fn current(t: &Two, host: HostId) -> String {
    let info = t.info(host);
    info.paths.iter().find(|p| p.in_use).expect("a path in use").route.local.to_string()
}

pub(crate) fn reasons(t: &Two, host: HostId) -> Vec<PathReason> {
    let reason = |event: &Event| match event {
        Event::PathSwitched { reason, .. } => Some(*reason),
        _ => None,
    };
    t.events(host).into_iter().filter_map(reason).collect()
}

/// Creates two associated hosts. `a` has one address on each of two links, and every link reaches all addresses `far` of `b`.
fn crossed(far: &[&str], config: &AssociationConfig) -> Two {
    let mut t = hosts(7, far, config);
    t.world.connect(t.a, t.b, Carrier::Ip, config.clone(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(3));
    t
}

/// Creates the hosts of [`crossed`] without an association.
pub(crate) fn hosts(seed: u64, far: &[&str], config: &AssociationConfig) -> Two {
    let mut world = World::new(seed);
    let near = ["10.0.1.1", "10.0.2.1"];
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let a = world.add_host(&near, endpoint.clone());
    let b = world.add_host(far, endpoint);
    let link = |one: &&str| {
        let link = world.add_link(LinkConfig { delay: MS(10), ..LinkConfig::default() });
        far.iter().for_each(|other| world.join(link, one, other));
        link
    };
    let links: Vec<LinkId> = near.iter().map(link).collect();
    let mut t = Two { world, a, b, links };
    t.world.host_mut(b).app.template.keeps = false;
    t
}

#[test]
fn both_ends_use_a_backup_link_only_while_the_other_link_fails() {
    let mut t = idle(&[10, 10]);
    set(&mut t, "10.0.2.1", backup(30)).unwrap();
    for host in [t.a, t.b] {
        for path in t.info(host).paths {
            let has_end = [path.route.local, path.route.remote].contains(&ip("10.0.2.1"));
            assert_eq!([path.local_use, path.remote_use].contains(&backup(30)), has_end, "{:?}", path.route);
        }
    }
    speak(&mut t, 20);
    cut(&mut t, 0, true);
    speak(&mut t, 40);
    assert_eq!((current(&t, t.a), current(&t, t.b)), ("10.0.2.1".into(), "10.0.2.2".into()));
    assert!(t.talk(t.b).longest_silence < MS(208), "{:?}", t.talk(t.b).longest_silence);
    cut(&mut t, 0, false);
    speak(&mut t, 300);
    assert_eq!((current(&t, t.a), current(&t, t.b)), ("10.0.1.1".into(), "10.0.1.2".into()));
}

#[test]
fn both_ends_leave_a_backup_as_soon_as_another_path_is_known() {
    let mut t = idle(&[10, 10]);
    set(&mut t, "10.0.1.1", backup(30)).unwrap();
    assert_eq!((current(&t, t.a), current(&t, t.b)), ("10.0.2.1".into(), "10.0.2.2".into()));
    assert_eq!(
        (reasons(&t, t.a), reasons(&t, t.b)),
        (vec![PathReason::Preferred], vec![PathReason::Preferred])
    );
    // The operator restores the default use.
    set(&mut t, "10.0.1.1", AddressUse::default()).unwrap();
    assert_eq!((current(&t, t.a), current(&t, t.b)), ("10.0.1.1".into(), "10.0.1.2".into()));
}

#[test]
fn a_primary_link_takes_the_data_back_when_it_has_worked_for_long_enough() {
    let mut t = idle(&[10, 10, 10]);
    set(&mut t, "10.0.3.1", of(Preference::Primary)).unwrap();
    assert_eq!(in_use(&t), "10.0.3.1");
    speak(&mut t, 10);
    cut(&mut t, 2, true);
    speak(&mut t, 30);
    assert_ne!(in_use(&t), "10.0.3.1");
    cut(&mut t, 2, false);
    speak(&mut t, 20);
    assert_ne!(in_use(&t), "10.0.3.1", "it is watched first");
    speak(&mut t, 280);
    assert_eq!(in_use(&t), "10.0.3.1");
    assert_eq!(reasons(&t, t.a).last(), Some(&PathReason::Preferred));
}

#[test]
fn of_two_remaining_paths_the_path_that_is_no_backup_carries_data() {
    let mut t = idle(&[10, 30, 10]);
    set(&mut t, "10.0.3.1", backup(30)).unwrap();
    speak(&mut t, 10);
    cut(&mut t, 0, true);
    speak(&mut t, 30);
    assert_eq!(in_use(&t), "10.0.2.1", "slower, but no backup");
    cut(&mut t, 1, true);
    speak(&mut t, 30);
    assert_eq!(in_use(&t), "10.0.3.1");
}

#[test]
fn a_path_that_shares_the_dead_link_is_not_preferred_to_the_backup() {
    for far in [&["10.1.0.1"][..], &["10.1.0.1", "10.1.0.2"]] {
        let mut usual = crossed(far, &config());
        speak(&mut usual, 20);
        cut(&mut usual, 0, true);
        speak(&mut usual, 20);
        let usual = usual.talk(usual.b).longest_silence;
        let mut t = crossed(far, &config());
        set(&mut t, "10.0.2.1", backup(30)).unwrap();
        speak(&mut t, 20);
        let before = reasons(&t, t.a).len();
        cut(&mut t, 0, true);
        speak(&mut t, 100);
        assert_eq!(in_use(&t), "10.0.2.1", "{far:?}");
        let moved = reasons(&t, t.a).split_off(before);
        assert_eq!(moved, [PathReason::Silence], "{far:?}");
        let silence = t.talk(t.b).longest_silence;
        assert!(silence < usual + MS(5), "{far:?}: {silence:?}, without a backup {usual:?}");
        cut(&mut t, 0, false);
        speak(&mut t, 300);
        assert_eq!(in_use(&t), "10.0.1.1", "{far:?}");
    }
}

/// Returns the bytes of SCTP that both ends have sent over the second link.
fn bytes_by_second(t: &Two) -> u64 {
    let by = |host: HostId| {
        let info = t.info(host);
        let second = info.paths.iter().filter(|p| [p.route.local, p.route.remote].contains(&ip("10.0.2.1")));
        second.map(|p| p.bytes_sent).sum::<u64>()
    };
    by(t.a) + by(t.b)
}

#[test]
fn an_idle_backup_costs_a_heartbeat_of_each_end_in_its_interval() {
    let cost = |usage: Option<AddressUse>| {
        let mut t = crossed(&["10.1.0.1"], &config());
        if let Some(usage) = usage {
            set(&mut t, "10.0.2.1", usage).unwrap();
        }
        t.world.run_for(seconds(60));
        let before = bytes_by_second(&t);
        t.world.run_for(seconds(600));
        bytes_by_second(&t) - before
    };
    let (usual, rare) = (cost(None), cost(Some(backup(30))));
    assert!(rare * 20 < usual, "{rare} of {usual} bytes in 10 minutes");
    let interval_alone = cost(Some(AddressUse { heartbeat: Some(seconds(30)), ..AddressUse::default() }));
    assert!(interval_alone * 20 < usual, "{interval_alone} of {usual} bytes in 10 minutes");
    // The bound is 50 MB per month, scaled to 10 minutes. The factor 2 covers the lower headers: 28 bytes per packet, for at least 32 bytes
    // of SCTP.
    assert!(rare * 2 < 50_000_000 / (30 * 24 * 6), "{rare} bytes in 10 minutes");
}

#[test]
fn a_backup_that_is_in_use_is_asked_as_often_as_any_other() {
    let mut t = idle(&[10, 10]);
    set(&mut t, "10.0.2.1", backup(60)).unwrap();
    let now = t.world.now();
    t.world.at(now, Change::CutBoth(t.links[0], true));
    t.world.run_for(seconds(20));
    assert_eq!(in_use(&t), "10.0.2.1");
    let before = bytes_by_second(&t);
    t.world.run_for(seconds(20));
    assert!(bytes_by_second(&t) - before > 20 * 4 * 24, "{}", bytes_by_second(&t) - before);
    t.world.recording = true;
    let from = t.world.records.len();
    speak(&mut t, 100);
    let sent = sent_by(&t.world, from, "10.0.2.1");
    let questions =
        sent.iter().filter(|names| names.replace("HEARTBEAT ACK", "").contains("HEARTBEAT")).count();
    assert!(questions < 20, "{questions} heartbeats in 10 s");
}

#[test]
fn with_all_paths_at_once_a_backup_carries_nothing_while_others_work() {
    for scheduler in [PathScheduler::LowestRtt, PathScheduler::Weighted, PathScheduler::Redundant] {
        let multipath = Multipath::Concurrent { scheduler };
        let config = AssociationConfig { multipath, ..config() };
        let mut t = crossed(&["10.1.0.1"], &config);
        set(&mut t, "10.0.2.1", backup(30)).unwrap();
        let id = t.id(t.a);
        t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation").bulk = 1 << 40;
        let before = bytes_by_second(&t);
        t.world.run_for(seconds(5));
        let (spent, all) = (bytes_by_second(&t) - before, t.talk(t.b).received_bytes);
        assert!(all > 1_000_000 && spent < 5_000, "{scheduler:?}: {spent} of {all}");
        cut(&mut t, 0, true);
        t.world.run_for(seconds(5));
        assert!(bytes_by_second(&t) - before > 1_000_000, "{scheduler:?}");
    }
}

#[test]
fn with_all_paths_at_once_a_primary_link_is_filled_first() {
    let multipath = Multipath::Concurrent { scheduler: PathScheduler::LowestRtt };
    let config = AssociationConfig { multipath, ..config() };
    let mut t = crossed(&["10.1.0.1"], &config);
    t.world.link_mut(t.links[0]).config.delay = MS(40);
    set(&mut t, "10.0.1.1", of(Preference::Primary)).unwrap();
    let before = bytes_by_second(&t);
    speak(&mut t, 100);
    let spent = bytes_by_second(&t) - before;
    assert!(spent < 100 * 64, "{spent}: small messages have room on the slower primary link");
}

#[test]
fn address_uses_apply_locally_if_the_peer_does_not_support_them() {
    let without = AssociationConfig { extensions: Extensions::NONE, timing: Timing::quick(), ..config() };
    let mut t = crossed(&["10.1.0.1"], &without);
    set(&mut t, "10.0.1.1", backup(30)).unwrap();
    assert_eq!(in_use(&t), "10.0.2.1");
    assert!(!t.events(t.a).iter().any(|e| matches!(e, Event::AddressChange { .. })));
    assert_eq!(set(&mut t, "10.9.9.9", backup(30)), Err(AddressError::Unknown(ip("10.9.9.9"))));
}

#[test]
fn each_change_of_an_address_use_is_sent_once_and_reported_by_the_peer() {
    let mut t = idle(&[10, 10]);
    for _ in 0..3 {
        set(&mut t, "10.0.2.1", backup(30)).unwrap();
    }
    let change = AddressChange::SetUse(ip("10.0.2.1"), backup(30));
    let answers: Vec<_> = t
        .events(t.a)
        .into_iter()
        .filter_map(|e| match e {
            Event::AddressChange { change, refusal } => Some((*change, *refusal)),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [(change, None)]);
    let told = t.events(t.b).into_iter().filter(|e| **e == Event::PeerAddressChange(change)).count();
    assert_eq!(told, 1);
}

#[test]
fn an_address_use_is_announced_on_a_path_that_the_peer_has_confirmed() {
    // The filter removes chunks from packets.
    let _clear = InTheClear::begin();
    let config = AssociationConfig { address_proof: AddressProof::ConfirmedPath, ..config() };
    let mut t = hosts(11, &["10.1.0.1"], &config);
    let second = route("10.1.0.1", "10.0.2.1");
    // The peer cannot confirm the path over the second link at once, and would drop a request that arrives on it.
    t.world.set_filter(move |record| {
        let is_early = record.at < Time::from_millis(1_500);
        if record.route == second && is_early {
            without(ChunkType::HEARTBEAT, &record.packet)
        } else {
            Fate::Pass
        }
    });
    t.world.connect(t.a, t.b, Carrier::Ip, config, Conversation::default());
    let is_up =
        |event: &Event| matches!(event, Event::PathChanged { route, .. } if route.local == ip("10.0.2.1"));
    let (world, host) = (&mut t.world, t.a);
    let limit = Time::from_millis(1_000);
    assert!(world.run_until(limit, |world| world.host(host).app.log.iter().any(|(_, _, e)| is_up(e))));
    set(&mut t, "10.0.1.1", backup(30)).unwrap();
    assert_eq!(in_use(&t), "10.0.2.1");
    let answers = t.events(t.a).into_iter().filter(|e| matches!(e, Event::AddressChange { .. })).count();
    assert_eq!((answers, reasons(&t, t.a)), (1, vec![PathReason::Preferred]));
}

#[test]
fn an_address_use_is_announced_as_soon_as_a_second_path_exists() {
    for seed in 1..=40 {
        let mut t = hosts(seed, &["10.1.0.1"], &config());
        t.links
            .clone()
            .into_iter()
            .for_each(|link| t.world.link_mut(link).config.delay = Duration::from_micros(20 * seed));
        t.world.connect(t.a, t.b, Carrier::Ip, config(), Conversation::default());
        let is_up = |event: &Event| matches!(event, Event::PathChanged { route, .. } if route.local == ip("10.0.2.1"));
        let host = t.a;
        let limit = Time::from_millis(1_000);
        assert!(t.world.run_until(limit, |world| world.host(host).app.log.iter().any(|(_, _, e)| is_up(e))));
        set(&mut t, "10.0.1.1", backup(30)).unwrap();
        let answers = t.events(t.a).into_iter().filter(|e| matches!(e, Event::AddressChange { .. })).count();
        assert_eq!((answers, reasons(&t, t.a)), (1, vec![PathReason::Preferred]), "{seed}");
    }
}

#[test]
fn a_request_that_is_not_answered_while_the_peer_is_heard_fails_no_path() {
    let _clear = InTheClear::begin();
    let mut t = idle(&[10, 10]);
    let mut left = 3;
    t.world.set_filter(move |record| {
        let is_dropped = left > 0 && chunk_names(&record.packet).contains("ASCONF");
        left -= usize::from(is_dropped);
        if is_dropped { without(ChunkType::ASCONF, &record.packet) } else { Fate::Pass }
    });
    speak(&mut t, 20);
    let (now, id) = (t.world.now(), t.id(t.a));
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    endpoint.set_local_uses(now, id, &[(ip("10.0.2.1"), backup(30))]).unwrap();
    endpoint.tell_local_use(now, id, ip("10.0.2.1")).unwrap();
    speak(&mut t, 100);
    let answers = t.events(t.a).into_iter().filter(|e| matches!(e, Event::AddressChange { .. })).count();
    assert_eq!((answers, reasons(&t, t.a)), (1, Vec::new()));
    assert_eq!(t.info(t.a).counters.asconfs_sent, 4);
}

#[test]
fn an_association_that_began_on_the_backup_fails_over_to_it_and_not_to_the_dead_link() {
    for far in [&["10.1.0.1"][..], &["10.1.0.1", "10.1.0.2"]] {
        let mut t = crossed(far, &config());
        // The primary path of RFC 9260 uses the backup address.
        set(&mut t, "10.0.1.1", backup(30)).unwrap();
        assert_eq!(in_use(&t), "10.0.2.1");
        speak(&mut t, 20);
        let before = reasons(&t, t.a).len();
        cut(&mut t, 1, true);
        speak(&mut t, 50);
        assert_eq!(in_use(&t), "10.0.1.1", "{far:?}");
        assert_eq!(reasons(&t, t.a)[before..], [PathReason::Silence], "{far:?}");
        cut(&mut t, 1, false);
        speak(&mut t, 300);
        assert_eq!(in_use(&t), "10.0.2.1", "{far:?}");
    }
}

#[test]
fn a_preferred_link_regains_its_data_after_a_repair_despite_rare_heartbeats() {
    let mut t = idle(&[10, 10]);
    let usage = AddressUse { preference: Preference::Primary, heartbeat: Some(seconds(600)), link: 0 };
    set(&mut t, "10.0.1.1", usage).unwrap();
    speak(&mut t, 10);
    cut(&mut t, 0, true);
    t.world.run_for(seconds(60));
    assert_eq!(in_use(&t), "10.0.2.1");
    cut(&mut t, 0, false);
    speak(&mut t, 300);
    assert_eq!(in_use(&t), "10.0.1.1");
}

#[test]
fn a_spare_path_that_becomes_the_one_of_data_is_asked_at_once() {
    let mut t = idle(&[10, 10]);
    set(&mut t, "10.0.2.1", backup(600)).unwrap();
    t.world.run_for(seconds(100));
    // The path fails, and no traffic reveals this.
    cut(&mut t, 1, true);
    set(&mut t, "10.0.2.1", of(Preference::Primary)).unwrap();
    t.world.run_for(seconds(5));
    assert_eq!(in_use(&t), "10.0.1.1");
}

#[test]
fn a_peer_cannot_have_our_backup_carry_data_while_another_link_of_ours_works() {
    let mut world = World::new(3);
    let endpoint = EndpointConfig { association: config(), ..EndpointConfig::default() };
    let a = world.add_host(&["10.0.1.1", "10.0.2.1"], endpoint.clone());
    let b = world.add_host(&["10.0.1.2", "10.0.2.2"], endpoint);
    let links: Vec<LinkId> = (1..=2)
        .map(|net| {
            let link = world.add_link(LinkConfig { delay: MS(10), ..LinkConfig::default() });
            world.join(link, &format!("10.0.{net}.1"), &format!("10.0.{net}.2"));
            link
        })
        .collect();
    let mut t = Two { world, a, b, links };
    t.world.connect(t.a, t.b, Carrier::Ip, config(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(3));
    set(&mut t, "10.0.2.1", backup(30)).unwrap();
    let (now, id) = (t.world.now(), t.id(t.b));
    let endpoint = &mut t.world.host_mut(t.b).endpoint;
    for (address, preference) in [("10.0.1.2", Preference::Backup), ("10.0.2.2", Preference::Primary)] {
        endpoint.set_local_uses(now, id, &[(ip(address), of(preference))]).unwrap();
        endpoint.tell_local_use(now, id, ip(address)).unwrap();
    }
    t.world.run_for(seconds(5));
    let known = |remote: &str| {
        let info = t.info(t.a);
        info.paths.iter().find(|p| p.route.remote == ip(remote)).map(|p| p.remote_use.preference)
    };
    let told = [known("10.0.1.2"), known("10.0.2.2")];
    assert_eq!(told, [Some(Preference::Backup), Some(Preference::Primary)]);
    assert_eq!(in_use(&t), "10.0.1.1");
}

#[test]
fn behind_a_nat_the_use_of_the_address_that_the_peer_sees_is_announced_once() {
    let mut world = World::new(5);
    let endpoint = EndpointConfig { association: config(), ..EndpointConfig::default() };
    let a = world.add_host(&["10.0.0.1"], endpoint.clone());
    let b = world.add_host(&["192.0.2.1"], endpoint);
    let link = world.add_link(LinkConfig { delay: MS(10), ..LinkConfig::default() });
    world.join(link, "10.0.0.1", "192.0.2.1");
    world.add_nat(NatConfig::default(), "198.51.100.1", &["10.0.0.1"]);
    let mut t = Two { world, a, b, links: vec![link] };
    t.world.connect(t.a, t.b, UDP, config(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(3));
    set(&mut t, "10.0.0.1", backup(30)).unwrap();
    assert_eq!(t.info(t.b).paths[0].remote_use, backup(30));
    for _ in 0..3 {
        set(&mut t, "10.0.0.1", backup(30)).unwrap();
    }
    assert_eq!(t.info(t.a).counters.asconfs_sent, 1);
}
