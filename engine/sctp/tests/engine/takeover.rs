//! Tests of takeover attempts. Neither an observer of the handshake nor a host at another UDP port of the peer's address can take over or
//! end an association.

use std::net::IpAddr;
use std::time::Duration;

use base::{Carrier, Route};
use bytes::Bytes;
use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use sctp::{
    AddressChange, AddressError, AddressProof, AssociationConfig, AuthConfig, CloseReason, EndpointConfig,
    Event, Extension, Extensions, PathError, PathState, StateName, Timing, Unreachable,
};
use sim::{
    Change, Close, Conversation, Fate, HostId, InTheClear, LinkConfig, Listen, Loss, World, chunk_names,
    packet,
};
use wire::{
    Abort, Asconf, AsconfSerial, Causes, ChecksumMode, Chunk, CookieEcho, Heartbeat, Packet, Parameter,
    Parameters,
};

use crate::forge::Forger;
use crate::stranger::{Stranger, address, init, names, read};
use crate::support::{Two, UDP, describe, drop_all, messages, route, seconds, sends, two, two_with};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// Address of the attacker.
const EVIL: &str = "10.0.9.9";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn by_udp(local: &str, remote: &str, peer_port: u16) -> Route {
    Route { carrier: Carrier::Udp { peer_port }, ..route(local, remote) }
}

/// Returns settings under which addresses may change. Without a key, a new address must be proven.
fn strict() -> AssociationConfig {
    AssociationConfig {
        extensions: Extensions::NONE.with(Extension::Auth).with(Extension::AddressReconfiguration),
        address_proof: AddressProof::ConfirmedPath,
        timing: Timing::quick(),
        ..AssociationConfig::default()
    }
}

fn keyed() -> AssociationConfig {
    let keys = [(1, Bytes::from_static(b"a key"))].into();
    AssociationConfig { auth: AuthConfig { keys, active_key: 1, ..AuthConfig::default() }, ..strict() }
}

/// Creates two hosts and three links. `a` has one address on each link, and announces only the first one. `b` announces two addresses. Each
/// link leads to `b`'s address of its own family.
fn world_with(seed: u64, link: LinkConfig, from_a: &AssociationConfig, from_b: &AssociationConfig) -> Two {
    let mut world = World::new(seed);
    world.recording = true;
    let endpoint = |config: &AssociationConfig| EndpointConfig {
        association: config.clone(),
        ..EndpointConfig::default()
    };
    let a = world.add_host(&["10.0.1.1", "10.0.2.1", "fd00:3::1"], endpoint(from_a));
    let b = world.add_host(&["10.0.1.2", "fd00:1::2"], endpoint(from_b));
    world.host_mut(a).addresses.truncate(1);
    let links = ["10.0.1.1", "10.0.2.1", "fd00:3::1"]
        .map(|own| {
            let link = world.add_link(link.clone());
            world.join(link, own, if own.contains(':') { "fd00:1::2" } else { "10.0.1.2" });
            link
        })
        .to_vec();
    Two { world, a, b, links }
}

fn established(from_a: &AssociationConfig, from_b: &AssociationConfig) -> Two {
    let mut t = world_with(1, LinkConfig::default(), from_a, from_b);
    t.world.connect(t.a, t.b, UDP, from_a.clone(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(2));
    t
}

fn change(t: &mut Two, change: AddressChange) -> Result<(), AddressError> {
    let (now, id) = (t.world.now(), t.id(t.a));
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    match change {
        AddressChange::Add(address) => endpoint.add_local_address(now, id, address),
        AddressChange::Remove(address) => endpoint.remove_local_address(now, id, address),
        AddressChange::SetPrimary(address) => endpoint.set_peer_primary(now, id, address),
        AddressChange::MoveTo(address) => endpoint.move_to_local_address(now, id, address),
        AddressChange::SetUse(address, usage) => endpoint
            .set_local_uses(now, id, &[(address, usage)])
            .and_then(|()| endpoint.tell_local_use(now, id, address)),
    }
}

/// Returns the state of `b`'s path to this address, or `None` without such a path.
fn seen_by_b(t: &Two, remote: &str) -> Option<PathState> {
    t.info(t.b).paths.iter().find(|p| p.route.remote == ip(remote)).map(|p| p.state)
}

fn wishes(t: &Two) -> Vec<AddressChange> {
    let wish = |e: &&Event| match e {
        Event::PeerAddressChange(change) => Some(*change),
        _ => None,
    };
    t.events(t.b).iter().filter_map(wish).collect()
}

/// Sends `b` an ASCONF from this address, signed with the empty key. Returns the chunk names of the packets that `b` sends at once.
fn forge(t: &mut Two, source: &str, offset: u32, changes: &[Parameter<'_>]) -> Vec<String> {
    let (forger, info) = (Forger::without_key(&t.world), t.info(t.b));
    let first = Packet::parse(&t.world.records[0].packet, ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::Init(init))) = first.chunks().next() else { panic!("the first packet is the INIT") };
    let asconf = Asconf {
        serial: AsconfSerial(init.initial_tsn.0.wrapping_add(offset)),
        address: ip("10.0.1.1"),
        parameters: Parameters::from(changes),
    };
    let bytes = forger.packet((info.remote_port, info.local_port), info.local_tag, &[Chunk::Asconf(asconf)]);
    let from = t.world.records.len();
    t.world.inject(t.b, by_udp("10.0.1.2", source, 9899), &bytes);
    t.world.records[from..].iter().map(|r| chunk_names(&r.packet)).collect()
}

fn add(text: &str) -> Parameter<'static> {
    Parameter::AddIp { correlation: 1, address: ip(text) }
}

fn delete(text: &str) -> Parameter<'static> {
    Parameter::DelIp { correlation: 2, address: ip(text) }
}

/// Returns the value of the HEARTBEAT that is a packet's first chunk.
fn asked(bytes: &[u8]) -> Option<Vec<u8>> {
    match Packet::parse(bytes, ChecksumMode::Ignore).ok()?.chunks().next()? {
        Ok(Chunk::Heartbeat(heartbeat)) => Some(heartbeat.info.to_vec()),
        _ => None,
    }
}

/// For the time `for_long`, answers each HEARTBEAT of `b` to this address and port within 5 ms. Returns the chunk names of all packets of
/// `b` to this address and port.
fn answer_all(t: &mut Two, remote: &str, port: u16, for_long: Duration) -> Vec<String> {
    let (mut at, begun) = (t.world.records.len(), t.world.records.len());
    let (end, info) = (t.world.now() + for_long, t.info(t.b));
    let there = by_udp("10.0.1.2", remote, port);
    let is_there = |r: &sim::Record| r.route == there;
    while t.world.now() < end {
        t.world.run_for(MS(5));
        let new = t.world.records.len();
        let questions: Vec<_> = t.world.records[at..new]
            .iter()
            .filter(|r| is_there(r))
            .filter_map(|r| asked(&r.packet))
            .collect();
        at = new;
        for info_of_it in questions {
            let ack = Chunk::HeartbeatAck(Heartbeat { info: &info_of_it });
            let bytes = packet(info.remote_port, info.local_port, info.local_tag, &[ack]);
            t.world.inject(t.b, there, &bytes);
        }
    }
    t.world.records[begun..].iter().filter(|r| is_there(r)).map(|r| chunk_names(&r.packet)).collect()
}

// ASCONF.

#[test]
fn an_asconf_with_the_empty_key_counts_only_by_a_confirmed_path() {
    let _clear = InTheClear::begin();
    let mut t = established(&strict(), &strict());
    let moved = [add("0.0.0.0"), delete("0.0.0.0")];
    assert_eq!(forge(&mut t, EVIL, 0, &moved), [""; 0]);
    assert_eq!(forge(&mut t, EVIL, 0, &[add("0.0.0.0")]), [""; 0]);
    // Neither request has counted. A request on the confirmed path counts.
    t.world.run_for(seconds(1));
    assert_eq!(wishes(&t), []);
    assert_eq!(forge(&mut t, "10.0.1.1", 0, &[add(EVIL)])[0], "AUTH ASCONF-ACK");
    assert_eq!(wishes(&t), [AddressChange::Add(ip(EVIL))]);
    // The added address is not confirmed, so a request from there does not count.
    assert_eq!(forge(&mut t, EVIL, 1, &[delete("10.0.1.1")]), [""; 0]);
    assert_eq!(seen_by_b(&t, "10.0.1.1"), Some(PathState::Active));
}

#[test]
fn an_asconf_with_the_empty_key_from_another_port_of_the_peer_does_not_count() {
    let _clear = InTheClear::begin();
    let mut t = established(&strict(), &strict());
    let (forger, info) = (Forger::without_key(&t.world), t.info(t.b));
    let parameters = [add(EVIL)];
    for (port, expected) in [(666, 0), (9899, 1)] {
        let serial = AsconfSerial(initial_tsn(&t));
        let asconf =
            Asconf { serial, address: ip("10.0.1.1"), parameters: Parameters::from(&parameters[..]) };
        let bytes =
            forger.packet((info.remote_port, info.local_port), info.local_tag, &[Chunk::Asconf(asconf)]);
        t.world.inject(t.b, by_udp("10.0.1.2", "10.0.1.1", port), &bytes);
        assert_eq!(wishes(&t).len(), expected, "from port {port}");
    }
}

fn initial_tsn(t: &Two) -> u32 {
    let first = Packet::parse(&t.world.records[0].packet, ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::Init(init))) = first.chunks().next() else { panic!("the first packet is the INIT") };
    init.initial_tsn.0
}

#[test]
fn a_spoofer_who_answers_at_another_address_gets_no_data() {
    let _clear = InTheClear::begin();
    for (config, is_used) in
        [(strict(), false), (AssociationConfig { address_proof: AddressProof::Signature, ..strict() }, true)]
    {
        let mut t = established(&config, &config);
        drop_all(&mut t.world, |names, _| names.contains("ASCONF-ACK"));
        assert_eq!(forge(&mut t, "10.0.1.1", 0, &[add(EVIL)])[0], "AUTH ASCONF-ACK");
        t.world.host_mut(t.b).app.conversations.values_mut().next().unwrap().outgoing =
            messages(20, 1000, 1).into();
        let sent = answer_all(&mut t, EVIL, 9899, seconds(60));
        assert_eq!(seen_by_b(&t, EVIL) == Some(PathState::Active), is_used);
        assert!(is_used || sent.iter().all(|it| it == "HEARTBEAT"), "{sent:?}");
        // `b` asks from time to time, because the address may belong to the peer after all.
        assert!((5..100).contains(&sent.len()), "{} packets", sent.len());
        // When the path to the peer's own address fails, data moves to the attacker's address only if that address is in use.
        let link = t.links[0];
        let now = t.world.now();
        t.world.at(now, Change::CutBoth(link, true));
        t.world.host_mut(t.b).app.conversations.values_mut().next().unwrap().outgoing =
            messages(20, 1000, 1).into();
        let sent = answer_all(&mut t, EVIL, 9899, seconds(20));
        assert_eq!(sent.iter().any(|it| it.contains("DATA")), is_used, "{sent:?}");
    }
}

#[test]
fn an_address_that_the_peer_adds_is_used_a_few_round_trips_after_its_request() {
    for new in ["10.0.2.1", "fd00:3::1"] {
        let mut t = established(&strict(), &strict());
        assert_eq!(change(&mut t, AddressChange::Add(ip(new))), Ok(()));
        t.world.run_for(MS(95));
        assert_eq!(seen_by_b(&t, new), Some(PathState::Active), "{}", describe(&t.world));
        let (now, link) = (t.world.now(), t.links[0]);
        t.world.at(now, Change::CutBoth(link, true));
        t.world.host_mut(t.b).app.conversations.values_mut().next().unwrap().outgoing =
            messages(30, 1000, 1).into();
        t.world.run_for(seconds(5));
        assert_eq!(t.talk(t.a).received.len(), 30, "by {new}");
    }
}

#[test]
fn two_addresses_added_at_once_are_both_proven() {
    let mut t = established(&strict(), &strict());
    for new in ["10.0.2.1", "fd00:3::1"] {
        assert_eq!(change(&mut t, AddressChange::Add(ip(new))), Ok(()));
    }
    t.world.run_for(seconds(1));
    assert_eq!(seen_by_b(&t, "10.0.2.1"), Some(PathState::Active));
    assert_eq!(seen_by_b(&t, "fd00:3::1"), Some(PathState::Active));
}

#[test]
fn an_added_address_behind_a_nat_is_proven_at_the_port_that_it_is_heard_from() {
    let mut t = established(&strict(), &strict());
    let now = t.world.now();
    t.world.at(now, Change::Rebind(ip("10.0.2.1"), 6000));
    t.world.run_for(MS(1));
    change(&mut t, AddressChange::Add(ip("10.0.2.1"))).unwrap();
    t.world.run_for(seconds(2));
    let paths = t.info(t.b).paths;
    let path = paths.iter().find(|p| p.route.remote == ip("10.0.2.1")).unwrap();
    assert_eq!((path.state, path.route.carrier), (PathState::Active, Carrier::Udp { peer_port: 6000 }));
}

#[test]
fn proofs_get_through_although_much_is_lost_and_overtaken() {
    for seed in 0..30 {
        let link =
            LinkConfig { loss: Loss::Uniform(0.2), reorder: 0.3, duplicate: 0.1, ..LinkConfig::default() };
        let mut t = world_with(seed, link, &strict(), &strict());
        t.world.connect(t.a, t.b, UDP, strict(), Conversation::default());
        t.run_to_established();
        change(&mut t, AddressChange::Add(ip("10.0.2.1"))).unwrap();
        let (b, id) = (t.b, t.id(t.b));
        let limit = t.world.now() + seconds(60);
        let is_proven = move |w: &World| {
            let paths = w.host(b).endpoint.info(id).map_or(Vec::new(), |i| i.paths);
            paths.iter().any(|p| p.route.remote == ip("10.0.2.1") && p.state == PathState::Active)
        };
        assert!(t.world.run_until(limit, is_proven), "seed {seed}: {}", describe(&t.world));
    }
}

#[test]
fn addresses_come_and_go_at_random_without_a_key_and_everything_arrives() {
    for seed in 0..25 {
        let mut r = ChaCha12Rng::seed_from_u64(seed);
        let link = LinkConfig {
            rate: 3_000_000,
            loss: Loss::Uniform(r.random_range(0.0..0.03)),
            reorder: r.random_range(0.0..0.1),
            duplicate: r.random_range(0.0..0.05),
            ..LinkConfig::default()
        };
        let mut t = world_with(seed, link, &strict(), &strict());
        t.world.host_mut(t.b).app.template = sends(messages(100, 1500, 2));
        let talk = Conversation { close: Close::After(100), ..sends(messages(200, 2000, 3)) };
        t.world.connect(t.a, t.b, UDP, strict(), talk);
        t.run_to_established();
        for _ in 0..r.random_range(5..40) {
            let address = ip(["10.0.1.1", "10.0.2.1", "fd00:3::1"][r.random_range(0..3)]);
            let wish = match r.random_range(0..5) {
                0 | 1 => AddressChange::Add(address),
                2 | 3 => AddressChange::Remove(address),
                _ => AddressChange::SetPrimary(address),
            };
            // A change that makes no sense is refused.
            let _ = change(&mut t, wish);
            t.world.run_for(seconds(1) * r.random_range(1..40) / 40);
        }
        let limit = t.world.now() + seconds(600);
        let (a, b) = (t.a, t.b);
        let over = |w: &World, h: HostId| w.host(h).app.conversations.values().all(|c| c.closed.is_some());
        assert!(
            t.world.run_until(limit, |w| over(w, a) && over(w, b)),
            "seed {seed}: {}",
            describe(&t.world)
        );
        assert_eq!((t.talk(a).received.len(), t.talk(b).received.len()), (100, 200), "seed {seed}");
    }
}

#[test]
fn an_address_that_a_peer_of_another_make_adds_without_a_key_is_not_used() {
    let _clear = InTheClear::begin();
    let rfc = AssociationConfig { address_proof: AddressProof::Signature, ..strict() };
    let mut t = established(&rfc, &strict());
    change(&mut t, AddressChange::Add(ip("10.0.2.1"))).unwrap();
    t.world.run_for(seconds(20));
    assert_eq!(seen_by_b(&t, "10.0.2.1"), Some(PathState::Unconfirmed));
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
    assert_eq!(seen_by_b(&t, "10.0.1.1"), Some(PathState::Active));
}

#[test]
fn a_new_local_address_does_not_confirm_an_unproven_remote_address() {
    let _clear = InTheClear::begin();
    let mut t = established(&strict(), &strict());
    drop_all(&mut t.world, |names, _| names.contains("ASCONF-ACK"));
    assert_eq!(forge(&mut t, "10.0.1.1", 0, &[add(EVIL)])[0], "AUTH ASCONF-ACK");
    t.world.clear_filter();
    // `b` adds an address. The attacker answers all HEARTBEATs that go to its own address.
    let (now, id) = (t.world.now(), t.id(t.b));
    t.world.host_mut(t.b).endpoint.add_local_address(now, id, ip("10.0.5.2")).unwrap();
    t.world.run_for(seconds(1));
    let info = t.info(t.b);
    for _ in 0..20 {
        let asked: Vec<_> = t.world.records.iter().filter(|r| r.route.remote == ip(EVIL)).cloned().collect();
        for record in asked {
            let Some(value) = self::asked(&record.packet) else { continue };
            let ack = Chunk::HeartbeatAck(Heartbeat { info: &value });
            let bytes = packet(info.remote_port, info.local_port, info.local_tag, &[ack]);
            t.world.inject(t.b, record.route, &bytes);
        }
        t.world.run_for(MS(50));
    }
    let paths = t.info(t.b).paths;
    let strange = paths.iter().filter(|p| p.route.remote == ip(EVIL));
    assert!(
        strange.clone().count() == 2 && strange.clone().all(|p| p.state == PathState::Unconfirmed),
        "{paths:?}"
    );
}

#[test]
fn the_only_address_can_be_replaced_only_with_a_shared_key() {
    let _clear = InTheClear::begin();
    let moved = AddressChange::MoveTo(ip("10.0.2.1"));
    let mut t = established(&strict(), &strict());
    assert_eq!(change(&mut t, moved), Err(AddressError::NoKey(ip("10.0.2.1"))));
    assert_eq!(seen_by_b(&t, "10.0.1.1"), Some(PathState::Active));
    let mut t = established(&keyed(), &keyed());
    let (now, link) = (t.world.now(), t.links[0]);
    t.world.at(now, Change::CutBoth(link, true));
    assert_eq!(change(&mut t, moved), Ok(()));
    t.world.run_for(seconds(5));
    assert_eq!((seen_by_b(&t, "10.0.2.1"), seen_by_b(&t, "10.0.1.1")), (Some(PathState::Active), None));
}

#[test]
fn with_a_shared_key_an_asconf_signed_with_the_empty_key_is_ignored() {
    let mut t = established(&keyed(), &keyed());
    assert_eq!(forge(&mut t, EVIL, 0, &[add("0.0.0.0"), delete("0.0.0.0")]), [""; 0]);
    assert_eq!(wishes(&t), []);
}

#[test]
fn with_confirmed_path_proof_a_heartbeat_ack_confirms_only_the_path_it_arrives_on() {
    for (proof, expected) in [
        (AddressProof::ConfirmedPath, PathState::Unconfirmed),
        // RFC 9260 section 5.4 requires only the nonce.
        (AddressProof::Signature, PathState::Active),
    ] {
        let config = AssociationConfig { address_proof: proof, ..AssociationConfig::default() };
        let mut t = two_with(
            1,
            LinkConfig::default(),
            EndpointConfig { association: config, ..EndpointConfig::default() },
        );
        drop_all(&mut t.world, |_, _| true);
        let peer = Stranger::new(t.b, "10.0.1.2", "10.0.1.1", 40_000);
        let (id, answer) = peer.open(&mut t.world, &["10.0.1.1", EVIL]);
        let newest = |t: &Two| {
            let there = t.world.records.iter().filter(|r| r.route.remote == ip(EVIL));
            there.filter_map(|r| asked(&r.packet)).next_back().expect("a HEARTBEAT to the listed address")
        };
        let value = newest(&t);
        peer.send(&mut t.world, answer.tag, &[Chunk::HeartbeatAck(Heartbeat { info: &value })]);
        let state = |t: &Two| {
            let paths = t.world.host(t.b).endpoint.info(id).unwrap().paths;
            paths.iter().find(|p| p.route.remote == ip(EVIL)).unwrap().state
        };
        assert_eq!(state(&t), expected, "{proof:?}");
        let value = newest(&t);
        peer.at(EVIL).send(&mut t.world, answer.tag, &[Chunk::HeartbeatAck(Heartbeat { info: &value })]);
        assert_eq!(state(&t), PathState::Active);
    }
}

// Attackers at another UDP port of the peer's address.

/// Sends packets with the right tag from another port of the peer, and answers the HEARTBEATs that go there.
fn pull(t: &mut Two, port: u16, for_long: Duration) {
    let end = t.world.now() + for_long;
    while t.world.now() < end {
        let bytes = packet(40_000, 7, t.info(t.b).local_tag, &[Chunk::CookieAck]);
        t.world.inject(t.b, by_udp("10.0.1.2", "10.0.1.1", port), &bytes);
        answer_all(t, "10.0.1.1", port, MS(45));
    }
}

fn port_of_peer(t: &Two) -> Carrier {
    t.info(t.b).paths[0].route.carrier
}

#[test]
fn an_attacker_at_another_port_gets_no_path_while_the_peer_lives() {
    let talking = AssociationConfig { timing: Timing::quick(), ..AssociationConfig::default() };
    for (config, settle) in [(AssociationConfig::default(), 1), (talking, 5)] {
        let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
        let mut t = two_with(1, LinkConfig::default(), endpoint);
        t.world.connect(t.a, t.b, UDP, config, Conversation::default());
        t.run_to_established();
        // With the default timing, no round trip has been measured by then.
        t.world.run_for(seconds(settle));
        t.world.recording = true;
        pull(&mut t, 666, seconds(20));
        assert_eq!(port_of_peer(&t), UDP);
        assert_eq!(t.info(t.b).counters.rebindings, 0);
        assert_eq!(t.state(t.a), StateName::Established);
    }
}

#[test]
fn a_peer_regains_its_path_from_an_attackers_port_once_it_is_heard_again() {
    let _clear = InTheClear::begin();
    let config = AssociationConfig { timing: Timing::quick(), ..AssociationConfig::default() };
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), endpoint);
    t.world.connect(t.a, t.b, UDP, config, Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(5));
    t.world.recording = true;
    let (now, link) = (t.world.now(), t.links[0]);
    t.world.at(now, Change::CutBoth(link, true));
    pull(&mut t, 666, MS(400));
    assert_eq!(port_of_peer(&t), Carrier::Udp { peer_port: 666 }, "the peer was silent");
    let now = t.world.now();
    t.world.at(now, Change::CutBoth(link, false));
    pull(&mut t, 666, seconds(4));
    assert_eq!(port_of_peer(&t), UDP, "{}", describe(&t.world));
}

#[test]
fn spoofed_packets_of_a_listed_address_cause_up_to_three_times_the_attackers_bytes() {
    let mut t = two(1);
    drop_all(&mut t.world, |_, _| true);
    let evil =
        Stranger { route: by_udp("10.0.1.2", EVIL, 9899), ..Stranger::new(t.b, "10.0.1.2", EVIL, 40_000) };
    let (_, answer) = evil.open(&mut t.world, &[EVIL, "198.51.100.1"]);
    let echo = packet(40_000, 7, answer.tag, &[Chunk::CookieEcho(CookieEcho { cookie: &answer.cookie })]);
    for port in 1000..1300 {
        let carrier = Carrier::Udp { peer_port: port };
        let spoofed = Stranger { route: Route { carrier, ..evil.at("198.51.100.1").route }, ..evil };
        spoofed.send(&mut t.world, answer.tag, &[Chunk::CookieAck]);
        t.world.run_for(MS(100));
    }
    let sent = t.world.records.iter().filter(|r| r.route.remote == ip("198.51.100.1"));
    let bytes: usize = sent.map(|r| r.packet.len()).sum();
    assert!((1..=3 * echo.len()).contains(&bytes), "{bytes} bytes for {}", echo.len());
}

// Restart.

/// Creates an association of `a` and `b` over UDP with port 9899.
fn up_by_udp() -> Two {
    let mut t = two(1);
    t.world.connect(t.a, t.b, UDP, AssociationConfig::default(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(2));
    t.world.recording = true;
    t
}

fn from(t: &Two, port: u16) -> Stranger {
    Stranger {
        route: by_udp("10.0.1.2", "10.0.1.1", port),
        ..Stranger::new(t.b, "10.0.1.2", "10.0.1.1", 40_000)
    }
}

fn closed(t: &Two) -> Vec<Option<CloseReason>> {
    t.world.host(t.b).app.conversations.values().map(|c| c.closed.clone()).collect()
}

#[test]
fn an_init_from_another_port_of_a_peer_that_lives_asks_the_peer_and_is_not_answered() {
    let _clear = InTheClear::begin();
    let mut t = up_by_udp();
    for _ in 0..100 {
        let answers = from(&t, 666).send(&mut t.world, 0, &[init(77, &[])]);
        assert!(answers.iter().all(|(route, p)| route.carrier == UDP && chunk_names(p) == "HEARTBEAT"));
        t.world.run_for(MS(10));
    }
    let asked = t.world.records.iter().filter(|r| r.route == by_udp("10.0.1.2", "10.0.1.1", 9899)).count();
    assert!((10..=21).contains(&asked), "{asked} HEARTBEATs in a second");
    assert_eq!((t.state(t.a), closed(&t)), (StateName::Established, vec![None]));
    // The peer itself gets an answer.
    assert!(from(&t, 9899).ask(&mut t.world, &[]).is_some());
    // An INIT over IP does not count as the peer's, either. Sending over IP requires a privilege, but another host behind the same NAT may
    // have this privilege.
    assert!(Stranger::new(t.b, "10.0.1.2", "10.0.1.1", 40_000).ask(&mut t.world, &[]).is_none());
    assert_eq!(closed(&t), vec![None]);
}

#[test]
fn a_peer_restarted_behind_another_port_is_answered_once_the_old_port_is_gone() {
    let _clear = InTheClear::begin();
    let gone = PathError::Unreachable(Unreachable::Port);
    let abort = |t: &mut Two, tag| {
        let abort = Chunk::Abort(Abort { tag_reflected: true, causes: Causes::EMPTY });
        t.world.inject(t.b, by_udp("10.0.1.2", "10.0.1.1", 9899), &packet(40_000, 7, tag, &[abort]));
    };
    let icmp = |t: &mut Two, tag| {
        let quoted = packet(7, 40_000, tag, &[Chunk::Heartbeat(Heartbeat { info: &[0; 12] })]);
        t.world.inject_path_error(t.b, by_udp("10.0.1.2", "10.0.1.1", 9899), gone, &quoted);
    };
    for answer in [&abort as &dyn Fn(&mut Two, u32), &icmp] {
        let mut t = up_by_udp();
        let tag = t.info(t.b).peer_tag;
        let config = EndpointConfig::default();
        t.world.restart(t.a, config);
        let now = t.world.now();
        t.world.at(now, Change::Rebind(ip("10.0.1.1"), 5000));
        t.world.run_for(MS(1));
        let timing = Timing { rto_initial: MS(100), ..Timing::quick() };
        let config = AssociationConfig { timing, ..AssociationConfig::default() };
        t.world.connect(t.a, t.b, UDP, config, Conversation::default());
        t.world.run_for(MS(20));
        let last = t.world.records.iter().rfind(|r| r.route.local == ip("10.0.1.2")).unwrap();
        assert_eq!((chunk_names(&last.packet), last.route.carrier), ("HEARTBEAT".to_owned(), UDP));
        answer(&mut t, tag);
        t.world.run_for(MS(150));
        assert_eq!(t.state(t.a), StateName::Established, "{}", describe(&t.world));
        assert_eq!(closed(&t).len(), 2);
        assert!(closed(&t)[0].is_some() && closed(&t)[1].is_none());
    }
}

#[test]
fn while_no_path_works_the_peer_may_restart_from_any_port() {
    let _clear = InTheClear::begin();
    let timing = Timing { association_max_retrans: 200, ..Timing::quick() };
    let config = AssociationConfig { timing, ..AssociationConfig::default() };
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), endpoint);
    t.world.connect(t.a, t.b, UDP, config, Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(2));
    drop_all(&mut t.world, |_, _| true);
    assert!(from(&t, 666).ask(&mut t.world, &[]).is_none());
    t.world.run_for(seconds(20));
    assert_eq!(t.info(t.b).paths[0].state, PathState::Inactive);
    let answer = from(&t, 666).ask(&mut t.world, &[]).expect("an INIT ACK");
    from(&t, 666).echo(&mut t.world, &answer);
    assert_eq!(closed(&t), [Some(CloseReason::Restarted), None]);
}

#[test]
fn a_restart_cookie_is_accepted_only_from_the_peers_current_port() {
    let _clear = InTheClear::begin();
    let mut t = up_by_udp();
    let answer = from(&t, 9899).ask(&mut t.world, &[]).unwrap();
    let now = t.world.now();
    t.world.at(now, Change::Rebind(ip("10.0.1.1"), 5000));
    t.world.run_for(MS(1));
    let id = t.id(t.a);
    t.world.host_mut(t.a).app.conversations.get_mut(&id).unwrap().outgoing = messages(1, 100, 1).into();
    t.world.run_for(seconds(4));
    assert_eq!(port_of_peer(&t), Carrier::Udp { peer_port: 5000 });
    from(&t, 9899).echo(&mut t.world, &answer);
    t.world.run_for(seconds(1));
    assert_eq!((closed(&t), t.state(t.a)), (vec![None], StateName::Established));
    let answer = from(&t, 5000).ask(&mut t.world, &[]).unwrap();
    from(&t, 5000).echo(&mut t.world, &answer);
    assert_eq!(closed(&t), [Some(CloseReason::Restarted), None]);
}

#[test]
fn a_restarted_association_has_the_streams_and_extensions_that_its_listener_gave_the_first() {
    let mut t = two(1);
    let few = AssociationConfig { outbound_streams: 1, inbound_streams: 1, ..AssociationConfig::default() };
    let endpoint = EndpointConfig { association: few, ..EndpointConfig::default() };
    let b = t.b;
    t.world.restart(b, endpoint);
    let extensions = Extensions::NONE.with(Extension::Interleaving);
    t.world.host_mut(b).app.listen = Listen::AcceptOn { streams: 500, extensions };
    let many = AssociationConfig {
        outbound_streams: 500,
        inbound_streams: 500,
        extensions,
        ..AssociationConfig::default()
    };
    for round in 0..3 {
        t.connect_with(many.clone(), Conversation::default());
        t.world.run_for(seconds(1));
        let id = t.world.host(b).endpoint.associations().max().unwrap();
        let info = t.world.host(b).endpoint.info(id).unwrap();
        assert_eq!(info.state, StateName::Established);
        assert_eq!((info.outbound_streams, info.inbound_streams), (500, 500), "round {round}");
        assert!(info.extensions.has(Extension::Interleaving), "round {round}");
        t.world.restart(t.a, EndpointConfig::default());
    }
    assert_eq!(closed(&t), [Some(CloseReason::Restarted), Some(CloseReason::Restarted), None]);
}

// Opening.

/// Creates two hosts of which `a` has listed an address of another host.
fn listing_evil() -> Two {
    let mut t = world_with(1, LinkConfig::default(), &strict(), &strict());
    t.world.host_mut(t.a).addresses.push(ip(EVIL));
    t.world.connect(t.a, t.b, UDP, strict(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(2));
    assert_eq!(seen_by_b(&t, EVIL), Some(PathState::Unconfirmed));
    t
}

#[test]
fn with_confirmed_path_proof_an_abort_from_an_unconfirmed_address_is_ignored() {
    let _clear = InTheClear::begin();
    for reflected in [true, false] {
        let mut t = listing_evil();
        let info = t.info(t.b);
        let tag = if reflected { info.peer_tag } else { info.local_tag };
        let abort = Chunk::Abort(Abort { tag_reflected: reflected, causes: Causes::EMPTY });
        let bytes = packet(info.remote_port, info.local_port, tag, &[abort]);
        t.world.inject(t.b, by_udp("10.0.1.2", EVIL, 9899), &bytes);
        assert_eq!(t.state(t.b), StateName::Established, "T bit {reflected}");
        t.world.inject(t.b, by_udp("10.0.1.2", "10.0.1.1", 9899), &bytes);
        assert_ne!(t.state(t.b), StateName::Established, "the peer itself may");
    }
}

#[test]
fn heartbeats_from_a_new_port_of_an_unconfirmed_address_are_answered_within_credit() {
    let _clear = InTheClear::begin();
    let mut t = listing_evil();
    let info = t.info(t.b);
    let heartbeats = [Chunk::Heartbeat(Heartbeat { info: &[1; 4] }); 100];
    let bytes = packet(info.remote_port, info.local_port, info.local_tag, &heartbeats);
    t.world.recording = true;
    for _ in 0..1000 {
        t.world.inject(t.b, by_udp("10.0.1.2", EVIL, 5000), &bytes);
    }
    t.world.run_for(MS(1));
    let to = by_udp("10.0.1.2", EVIL, 5000);
    let got: usize = t.world.records.iter().filter(|r| r.route == to).map(|r| r.packet.len()).sum();
    assert!(got > 0 && got <= 4096, "{got} bytes to who has sent nothing");
}

/// Creates two hosts of which `a` has sent an INIT to `b` over UDP. All packets are dropped.
fn opening() -> Two {
    let mut t = two(1);
    t.world.recording = true;
    drop_all(&mut t.world, |_, _| true);
    t.world.connect(t.a, t.b, UDP, AssociationConfig::default(), Conversation::default());
    t
}

#[test]
fn the_tag_of_an_opening_association_is_revealed_only_to_the_port_of_our_init() {
    let mut t = opening();
    let own = u32::from_be_bytes(t.world.records[0].packet[16..20].try_into().unwrap());
    let peer = packet(7, 40_000, 0, &[init(77, &[])]);
    let at = |port| Stranger {
        route: by_udp("10.0.1.1", "10.0.1.2", port),
        ..Stranger::new(t.a, "10.0.1.1", "10.0.1.2", 7)
    };
    let [other, asked] = [at(666), at(9899)];
    assert_eq!(names(&other.send_raw(&mut t.world, &peer)), [""; 0]);
    let by_ip = Stranger::new(t.a, "10.0.1.1", "10.0.1.2", 7);
    assert_eq!(names(&by_ip.send_raw(&mut t.world, &peer)), [""; 0]);
    let answers = asked.send_raw(&mut t.world, &peer);
    assert_eq!(answers.iter().find_map(|(_, p)| read(p)).map(|answer| answer.tag), Some(own));
}

#[test]
fn an_init_ack_counts_only_from_the_port_of_our_init() {
    let mut t = opening();
    let asked = t.world.records[0].packet.clone();
    t.world.inject(t.b, by_udp("10.0.1.2", "10.0.1.1", 9899), &asked);
    let ack = t.world.records.iter().find(|r| chunk_names(&r.packet) == "INIT ACK").unwrap().packet.clone();
    t.world.inject(t.a, by_udp("10.0.1.1", "10.0.1.2", 666), &ack);
    assert_eq!(t.state(t.a), StateName::CookieWait);
    t.world.inject(t.a, by_udp("10.0.1.1", "10.0.1.2", 9899), &ack);
    assert_eq!(t.state(t.a), StateName::CookieEchoed);
}

// Unknown hosts learn nothing about the associations of an address.

#[test]
fn an_address_of_another_peer_in_an_init_is_ignored() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(1);
    let evil = Stranger::new(t.b, "10.0.1.2", EVIL, 40_000);
    let known = evil.ask(&mut t.world, &[address("10.0.1.1")]).expect("an INIT ACK");
    let unknown = evil.ask(&mut t.world, &[address("10.0.1.77")]).expect("an INIT ACK");
    assert_eq!((known.length, known.addresses), (unknown.length, unknown.addresses));
    // The cookie creates an association without that address.
    let id = {
        evil.echo(&mut t.world, &known);
        t.world.host(t.b).endpoint.associations().max().unwrap()
    };
    let paths = t.world.host(t.b).endpoint.info(id).unwrap().paths;
    assert_eq!(paths.iter().map(|p| p.route.remote).collect::<Vec<_>>(), [ip(EVIL)]);
    t.world.run_for(seconds(5));
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
    // From the peer's known address, an INIT that lists a new address is still refused.
    let peer = Stranger::new(t.b, "10.0.1.2", "10.0.1.1", 40_000);
    assert_eq!(
        names(&peer.send(&mut t.world, 0, &[init(77, &[address(EVIL), address("10.0.1.77")])])),
        ["ABORT"]
    );
}

#[test]
fn a_cookie_echo_with_a_wrong_tag_from_another_port_moves_no_path() {
    let _clear = InTheClear::begin();
    let mut t = up_by_udp();
    let answer = from(&t, 9899).ask(&mut t.world, &[]).unwrap();
    // An attacker sends a copy with another tag from another port.
    let echo = Chunk::CookieEcho(CookieEcho { cookie: &answer.cookie });
    let bytes = packet(40_000, 7, answer.tag ^ 1, &[echo]);
    t.world.inject(t.b, by_udp("10.0.1.2", "10.0.1.1", 666), &bytes);
    t.world.run_for(seconds(1));
    assert_eq!((closed(&t), port_of_peer(&t)), (vec![None], UDP));
}

#[test]
fn an_observer_can_abort_only_from_the_peers_address() {
    let _clear = InTheClear::begin();
    // The attacker sends an ABORT with the tag that it has observed.
    let mut t = established(&strict(), &strict());
    t.world.set_filter(|_| Fate::Pass);
    let info = t.info(t.b);
    let abort = Chunk::Abort(Abort { tag_reflected: false, causes: Causes::EMPTY });
    let bytes = packet(info.remote_port, info.local_port, info.local_tag, &[abort]);
    t.world.inject(t.b, by_udp("10.0.1.2", EVIL, 9899), &bytes);
    assert_eq!(t.state(t.b), StateName::Established, "from an address that is not the peer's");
    t.world.inject(t.b, by_udp("10.0.1.2", "10.0.1.1", 9899), &bytes);
    assert_eq!(t.state(t.b), StateName::Closed);
}
