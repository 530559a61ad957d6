//! Tests of addresses that are added and removed during an association (RFC 5061).

use std::net::IpAddr;

use base::Carrier;
use bytes::Bytes;
use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use sctp::{
    AddressChange, AddressError, AssociationConfig, AuthConfig, CloseReason, EndpointConfig, Event,
    Extension, Extensions, PathState, StateName,
};
use sim::{
    Change, Close, Conversation, Fate, HostId, InTheClear, LinkConfig, Loss, World, chunk_names, packet,
};
use wire::{
    Abort, Asconf, AsconfAck, AsconfSerial, Cause, Causes, Chunk, ErrorChunk, Heartbeat, Parameter,
    Parameters,
};

use crate::forge::Forger;
use crate::support::{Two, describe, drop_all, messages, route, seconds, sends};

const KEY: &[u8] = b"address key";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn config() -> AssociationConfig {
    AssociationConfig {
        extensions: Extensions::NONE.with(Extension::Auth).with(Extension::AddressReconfiguration),
        auth: AuthConfig {
            keys: [(1, Bytes::from_static(KEY))].into(),
            active_key: 1,
            ..AuthConfig::default()
        },
        ..AssociationConfig::default()
    }
}

/// Creates two hosts and three links. `a` announces only its first address, and `b` both of its addresses. Each link connects one address
/// of `a` with both addresses of `b`.
fn world(seed: u64, link: LinkConfig) -> Two {
    let mut world = World::new(seed);
    world.recording = true;
    let endpoint = EndpointConfig { association: config(), ..EndpointConfig::default() };
    let a = world.add_host(&["10.0.1.1", "10.0.2.1", "10.0.3.1"], endpoint.clone());
    let b = world.add_host(&["10.0.1.2", "10.0.2.2"], endpoint);
    world.host_mut(a).addresses.truncate(1);
    let links = (1..=3)
        .map(|i| {
            let link = world.add_link(link.clone());
            ["10.0.1.2", "10.0.2.2"].iter().for_each(|b| world.join(link, &format!("10.0.{i}.1"), b));
            link
        })
        .collect();
    Two { world, a, b, links }
}

fn established(seed: u64) -> Two {
    let mut t = world(seed, LinkConfig::default());
    t.world.connect(t.a, t.b, Carrier::Ip, config(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(1));
    t
}

/// Requests a change of `a`'s addresses.
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

fn answers(t: &Two, host: HostId) -> Vec<(AddressChange, Option<u16>)> {
    let answer = |e: &&Event| match e {
        Event::AddressChange { change, refusal } => Some((*change, *refusal)),
        _ => None,
    };
    t.events(host).iter().filter_map(answer).collect()
}

fn wishes(t: &Two, host: HostId) -> Vec<AddressChange> {
    let wish = |e: &&Event| match e {
        Event::PeerAddressChange(change) => Some(*change),
        _ => None,
    };
    t.events(host).iter().filter_map(wish).collect()
}

/// Returns the active paths of a host, as pairs of a local and a remote address.
fn active(t: &Two, host: HostId) -> Vec<(IpAddr, IpAddr)> {
    let paths = t.info(host).paths.into_iter().filter(|p| p.state == PathState::Active);
    paths.map(|p| (p.route.local, p.route.remote)).collect()
}

#[test]
//= rfc5061#5.1-2 5.2-8 5.3-3
fn an_added_address_makes_paths_that_carry_data_when_the_first_link_dies() {
    let mut t = established(1);
    let added = AddressChange::Add(ip("10.0.2.1"));
    assert_eq!(change(&mut t, added), Ok(()));
    t.world.run_for(seconds(1));
    assert_eq!(answers(&t, t.a), [(added, None)]);
    assert_eq!(wishes(&t, t.b), [added]);
    assert_eq!((active(&t, t.a).len(), active(&t, t.b).len()), (4, 4));
    let (now, link, id) = (t.world.now(), t.links[0], t.id(t.a));
    t.world.at(now, Change::CutBoth(link, true));
    t.world.host_mut(t.a).app.conversations.get_mut(&id).unwrap().outgoing = messages(30, 1000, 2).into();
    t.world.run_for(seconds(30));
    assert_eq!(t.talk(t.b).received.len(), 30, "{}", describe(&t.world));
}

#[test]
//= rfc5061#5.3-4 5.3-3
fn new_addresses_carry_nothing_but_heartbeats_until_they_are_proven() {
    let mut t = established(2);
    let from = t.world.records.len();
    let id = t.id(t.a);
    t.world.host_mut(t.a).app.conversations.get_mut(&id).unwrap().outgoing = messages(50, 1000, 2).into();
    let link = t.links[1];
    let now = t.world.now();
    t.world.at(now, Change::CutBoth(link, true));
    assert_eq!(change(&mut t, AddressChange::Add(ip("10.0.2.1"))), Ok(()));
    t.world.run_for(seconds(10));
    let new = ip("10.0.2.1");
    for record in &t.world.records[from..] {
        if record.route.local == new || record.route.remote == new {
            assert_eq!(chunk_names(&record.packet), "HEARTBEAT");
        }
    }
    assert_eq!(t.talk(t.b).received.len(), 50);
}

#[test]
//= rfc5061#5.3-8 5.3-22 5.3-14
fn nothing_is_lost_when_the_address_in_use_is_removed() {
    let _clear = InTheClear::begin();
    let mut t = world(3, LinkConfig { rate: 5_000_000, ..LinkConfig::default() });
    let talk = Conversation { close: Close::After(0), ..sends(messages(1000, 2000, 3)) };
    t.world.connect(t.a, t.b, Carrier::Ip, config(), talk);
    t.run_to_established();
    change(&mut t, AddressChange::Add(ip("10.0.2.1"))).unwrap();
    t.world.run_for(seconds(1));
    let removed = AddressChange::Remove(ip("10.0.1.1"));
    change(&mut t, removed).unwrap();
    let from = t.world.records.len();
    t.world.run_for(seconds(1) / 4);
    assert_eq!(wishes(&t, t.b).last(), Some(&removed));
    assert!(active(&t, t.b).iter().all(|(_, remote)| *remote == ip("10.0.2.1")));
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 1000);
    // RFC 5061 section 5.3: from the request on, the removed address is not the source of any packet.
    assert!(t.world.records[from..].iter().all(|r| r.route.local != ip("10.0.1.1")));
}

#[test]
//= rfc5061#5.1-11 5.1-6 5.1-7
fn a_lost_asconf_or_asconf_ack_is_retransmitted_and_the_change_applied_once() {
    let _clear = InTheClear::begin();
    for (name, count) in [("AUTH ASCONF", 2), ("AUTH ASCONF-ACK", 2)] {
        let mut t = established(4);
        let mut left = count;
        t.world.set_filter(move |record| {
            let lost = left > 0 && chunk_names(&record.packet) == name;
            left -= usize::from(lost);
            if lost { Fate::Drop } else { Fate::Pass }
        });
        let added = AddressChange::Add(ip("10.0.2.1"));
        change(&mut t, added).unwrap();
        t.world.run_for(seconds(20));
        assert_eq!(answers(&t, t.a), [(added, None)], "{name}");
        assert_eq!(wishes(&t, t.b), [added], "{name}");
        assert_eq!(t.info(t.a).counters.asconfs_sent, 3);
    }
}

#[test]
//= rfc5061#5.1.1-2 5.1-4
fn requests_go_one_after_another() {
    let mut t = established(5);
    let changes = [AddressChange::Add(ip("10.0.2.1")), AddressChange::Add(ip("10.0.3.1"))];
    changes.into_iter().for_each(|c| change(&mut t, c).unwrap());
    assert_eq!(change(&mut t, changes[1]), Err(AddressError::Changing(ip("10.0.3.1"))));
    t.world.run_for(seconds(1));
    assert_eq!(answers(&t, t.a), changes.map(|c| (c, None)));
    assert_eq!(active(&t, t.a).len(), 6);
}

#[test]
fn an_asconf_that_is_never_answered_ends_the_association() {
    let mut t = established(6);
    let now = t.world.now();
    let link = t.links[0];
    t.world.at(now, Change::CutBoth(link, true));
    change(&mut t, AddressChange::Add(ip("10.0.2.1"))).unwrap();
    t.world.run_for(seconds(1000));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::LostContact));
}

#[test]
//= rfc5061#5.4-2
fn the_peer_sends_to_the_address_that_it_is_asked_to() {
    let mut t = established(7);
    change(&mut t, AddressChange::Add(ip("10.0.2.1"))).unwrap();
    t.world.run_for(seconds(1));
    let primary = AddressChange::SetPrimary(ip("10.0.2.1"));
    change(&mut t, primary).unwrap();
    t.world.run_for(seconds(1));
    assert_eq!(answers(&t, t.a).last(), Some(&(primary, None)));
    let paths = t.info(t.b).paths;
    assert_eq!(paths.iter().find(|p| p.in_use).unwrap().route.remote, ip("10.0.2.1"));
}

#[test]
//= rfc5061#5.3-11 5.4-1 4.2.1-2 4.2.2-2
fn commands_that_make_no_sense_are_refused_with_a_reason() {
    let mut t = established(8);
    let [first, other] = ["10.0.1.1", "10.0.2.1"].map(ip);
    assert_eq!(change(&mut t, AddressChange::Add(first)), Err(AddressError::Exists(first)));
    assert_eq!(change(&mut t, AddressChange::Remove(other)), Err(AddressError::Unknown(other)));
    assert_eq!(change(&mut t, AddressChange::SetPrimary(other)), Err(AddressError::Unknown(other)));
    assert_eq!(change(&mut t, AddressChange::Remove(first)), Err(AddressError::Last(first)));
    let multicast = ip("224.0.0.1");
    assert_eq!(change(&mut t, AddressChange::Add(multicast)), Err(AddressError::NotUnicast(multicast)));
    let mut plain = Two::established(8);
    let refused = change(&mut plain, AddressChange::Add(other));
    assert_eq!(refused, Err(AddressError::NotNegotiated));
}

/// Sends `b` an ASCONF from `source`, signed with the peer's key. Returns the error code in `b`'s answer to each change, or `None` without
/// an answer.
fn answer_to(t: &mut Two, source: &str, offset: u32, changes: &[Parameter<'_>]) -> Option<Vec<Option<u16>>> {
    let forger = Forger::new(&t.world, KEY);
    let info = t.info(t.b);
    let asconf = Asconf {
        serial: AsconfSerial(peer_initial_tsn(t).wrapping_add(offset)),
        address: ip("10.0.1.1"),
        parameters: Parameters::from(changes),
    };
    let bytes = forger.packet((info.remote_port, info.local_port), info.local_tag, &[Chunk::Asconf(asconf)]);
    let from = t.world.records.len();
    t.world.inject(t.b, route("10.0.1.2", source), &bytes);
    let reply = t.world.records[from..].iter().find(|r| chunk_names(&r.packet).contains("ASCONF-ACK"))?;
    assert_eq!(reply.route.remote, ip(source));
    let packet = wire::Packet::parse(&reply.packet, wire::ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::AsconfAck(ack))) = packet.chunks().nth(1) else { panic!("no ASCONF-ACK behind AUTH") };
    Some(ack.parameters.iter().map(|p| code_of(&p.unwrap())).collect())
}

fn code_of(parameter: &Parameter<'_>) -> Option<u16> {
    match parameter {
        Parameter::SuccessIndication { .. } => None,
        Parameter::ErrorCause { causes, .. } => Some(causes.iter().next().unwrap().unwrap().code()),
        other => panic!("{other:?} in an ASCONF-ACK"),
    }
}

fn peer_initial_tsn(t: &Two) -> u32 {
    let packet = wire::Packet::parse(&t.world.records[0].packet, wire::ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::Init(init))) = packet.chunks().next() else { panic!("the first packet is the INIT") };
    init.initial_tsn.0
}

fn add(text: &str) -> Parameter<'static> {
    Parameter::AddIp { correlation: 1, address: ip(text) }
}

fn delete(text: &str) -> Parameter<'static> {
    Parameter::DelIp { correlation: 2, address: ip(text) }
}

#[test]
//= rfc5061#5.3-15 5.3-17 5.4-3
fn deleting_the_last_the_source_or_an_unknown_address_is_refused() {
    let _clear = InTheClear::begin();
    let mut t = established(9);
    assert_eq!(answer_to(&mut t, "10.0.1.1", 0, &[delete("10.0.1.1")]), Some(vec![Some(0xa0)]));
    assert_eq!(answer_to(&mut t, "10.0.1.1", 1, &[add("10.0.2.1")]), Some(vec![]));
    let single = [(delete("10.0.1.1"), 0xa2), (delete("10.0.9.9"), 5), (add("255.255.255.255"), 5)];
    for (n, (request, code)) in (2..).zip(single) {
        assert_eq!(answer_to(&mut t, "10.0.1.1", n, &[request]), Some(vec![Some(code)]));
    }
    // After a request has failed, the later requests in the same chunk fail too.
    let both = [delete("10.0.9.9"), delete("10.0.2.1"), add("10.0.3.1")];
    let expected = vec![Some(5), Some(0xa1), Some(0xa1)];
    assert_eq!(answer_to(&mut t, "10.0.1.1", 5, &both), Some(expected));
    assert_eq!(wishes(&t, t.b), [AddressChange::Add(ip("10.0.2.1"))]);
}

#[test]
//= rfc5061#5.1-9 5.3-6
fn a_peer_that_does_not_know_asconf_is_asked_no_more() {
    let _clear = InTheClear::begin();
    let mut t = established(17);
    drop_all(&mut t.world, |names, _| names == "AUTH ASCONF");
    let changes = [AddressChange::Add(ip("10.0.2.1")), AddressChange::Add(ip("10.0.3.1"))];
    changes.into_iter().for_each(|c| change(&mut t, c).unwrap());
    let causes = [Cause::UnrecognizedChunkType(&[0xc1, 0, 0, 4])];
    let error = Chunk::Error(ErrorChunk { causes: Causes::from(&causes[..]) });
    let tag = t.info(t.a).local_tag;
    t.inject_to_a(tag, &[error]);
    let from = t.world.records.len();
    t.world.run_for(seconds(20));
    assert_eq!(answers(&t, t.a), changes.map(|c| (c, Some(6))));
    assert!(t.world.records[from..].iter().all(|r| !chunk_names(&r.packet).contains("ASCONF")));
    assert_eq!(change(&mut t, changes[0]), Err(AddressError::NotUnderstood));
    // No request is outstanding, so the same error is ignored.
    t.inject_to_a(tag, &[error]);
    assert_eq!(t.state(t.a), StateName::Established);
}

#[test]
//= rfc5061#4.1.1-3 4.1.1-2
fn chunks_behind_an_unsigned_asconf_are_dropped_with_it() {
    let _clear = InTheClear::begin();
    let mut t = established(18);
    let (tag, from) = (t.info(t.b).local_tag, t.world.records.len());
    let parameters = [add("10.0.2.1")];
    let serial = AsconfSerial(peer_initial_tsn(&t));
    let asconf = Asconf { serial, address: ip("10.0.1.1"), parameters: Parameters::from(&parameters[..]) };
    let heartbeat = Chunk::Heartbeat(Heartbeat { info: b"abcdefgh" });
    t.inject_to_b(tag, &[Chunk::Asconf(asconf), heartbeat]);
    assert!(t.world.records[from..].is_empty());
    t.inject_to_b(tag, &[heartbeat]);
    assert_eq!(chunk_names(&t.world.records[from].packet), "HEARTBEAT ACK");
}

#[test]
//= rfc5061#5.3-10
fn an_abort_to_an_address_that_is_leaving_is_ignored() {
    let _clear = InTheClear::begin();
    let mut t = established(19);
    change(&mut t, AddressChange::Add(ip("10.0.2.1"))).unwrap();
    t.world.run_for(seconds(1));
    drop_all(&mut t.world, |names, _| names.contains("ASCONF"));
    change(&mut t, AddressChange::Remove(ip("10.0.1.1"))).unwrap();
    let info = t.info(t.a);
    let abort = Chunk::Abort(Abort { tag_reflected: false, causes: Causes::EMPTY });
    let bytes = packet(info.remote_port, info.local_port, info.local_tag, &[abort]);
    t.world.inject(t.a, route("10.0.1.1", "10.0.1.2"), &bytes);
    assert_eq!(t.state(t.a), StateName::Established);
    t.world.inject(t.a, route("10.0.2.1", "10.0.1.2"), &bytes);
    assert_eq!(t.state(t.a), StateName::Closed);
}

#[test]
//= rfc5061#5.1.1-5
fn a_request_is_answered_although_shutdown_was_sent() {
    let _clear = InTheClear::begin();
    let mut t = established(20);
    drop_all(&mut t.world, |names, _| names.contains("SHUTDOWN"));
    let (now, id) = (t.world.now(), t.id(t.b));
    t.world.host_mut(t.b).endpoint.shutdown(now, id);
    t.world.run_for(seconds(1) / 10);
    assert_eq!(t.state(t.b), StateName::ShutdownSent);
    assert_eq!(answer_to(&mut t, "10.0.1.1", 0, &[add("10.0.2.1")]), Some(vec![]));
}

#[test]
//= rfc5061#4.2.1-3 4.2.2-3 5.2-9
fn a_wildcard_asconf_moves_the_peer_to_the_source_address_of_the_packet() {
    let _clear = InTheClear::begin();
    let mut t = established(10);
    let moved = [add("0.0.0.0"), delete("0.0.0.0")];
    assert_eq!(answer_to(&mut t, "10.0.3.1", 0, &moved), Some(vec![]));
    let paths = t.info(t.b).paths;
    assert!(paths.iter().all(|p| p.route.remote == ip("10.0.3.1")), "{paths:?}");
    // Only HEARTBEATs go to the address before it is confirmed.
    assert!(paths.iter().all(|p| p.state == PathState::Unconfirmed));
}

#[test]
//= rfc5061#5.3-19
fn added_addresses_beyond_the_limit_are_refused() {
    let _clear = InTheClear::begin();
    let mut t = established(11);
    let many: Vec<Parameter<'_>> =
        (1..=20).map(|n| Parameter::AddIp { correlation: n, address: ip(&format!("10.7.0.{n}")) }).collect();
    let answer = answer_to(&mut t, "10.0.1.1", 0, &many).unwrap();
    assert_eq!(answer.iter().filter(|code| code.is_none()).count(), 15);
    assert!(answer[15..].iter().all(|code| *code == Some(0xa1)));
}

#[test]
//= rfc5061#4.1.1-3
fn old_and_far_numbers_and_unsigned_requests_are_not_answered() {
    let _clear = InTheClear::begin();
    let mut t = established(12);
    assert_eq!(answer_to(&mut t, "10.0.1.1", 0, &[add("10.0.2.1")]), Some(vec![]));
    assert_eq!(answer_to(&mut t, "10.0.1.1", 5, &[add("10.0.3.1")]), None);
    assert_eq!(answer_to(&mut t, "10.0.1.1", u32::MAX, &[add("10.0.3.1")]), None);
    assert_eq!(answer_to(&mut t, "10.0.1.1", 0, &[delete("10.0.2.1")]), Some(vec![]), "from memory");
    assert_eq!(wishes(&t, t.b), [AddressChange::Add(ip("10.0.2.1"))]);
    let tag = t.info(t.b).local_tag;
    let parameters = [add("10.0.3.1")];
    let serial = AsconfSerial(peer_initial_tsn(&t).wrapping_add(1));
    let asconf = Asconf { serial, address: ip("10.0.1.1"), parameters: Parameters::from(&parameters[..]) };
    t.inject_to_b(tag, &[Chunk::Asconf(asconf)]);
    assert_eq!(t.info(t.b).counters.unauthenticated, 1);
    assert_eq!(wishes(&t, t.b).len(), 1);
}

#[test]
//= rfc5061#5.3-2
fn an_answer_that_nothing_asked_for_ends_the_association() {
    let _clear = InTheClear::begin();
    let mut t = established(13);
    let forger = Forger::new(&t.world, KEY);
    let info = t.info(t.a);
    let ack =
        |serial| Chunk::AsconfAck(AsconfAck { serial: AsconfSerial(serial), parameters: Parameters::EMPTY });
    let (ports, tsn) = ((info.remote_port, info.local_port), peer_initial_tsn(&t));
    let inject = |t: &mut Two, serial: u32| {
        let bytes = forger.packet(ports, info.local_tag, &[ack(serial)]);
        t.world.inject(t.a, route("10.0.1.1", "10.0.1.2"), &bytes);
        t.state(t.a)
    };
    assert_eq!(inject(&mut t, tsn.wrapping_sub(1)), StateName::Established, "an old one is passed over");
    assert_eq!(inject(&mut t, tsn), StateName::Closed);
    let closed = t.talk(t.a).closed.clone();
    assert!(matches!(closed, Some(CloseReason::Aborted(c)) if c.code == Cause::IllegalAsconfAck.code()));
}

#[test]
fn addresses_come_and_go_at_random_and_everything_arrives() {
    let _clear = InTheClear::begin();
    for seed in 0..40 {
        roam(seed);
    }
}

fn roam(seed: u64) {
    let mut r = ChaCha12Rng::seed_from_u64(seed);
    let link = LinkConfig {
        rate: 3_000_000,
        loss: Loss::Uniform(r.random_range(0.0..0.03)),
        reorder: r.random_range(0.0..0.1),
        duplicate: r.random_range(0.0..0.05),
        ..LinkConfig::default()
    };
    let mut t = world(seed, link);
    t.world.host_mut(t.b).app.template = sends(messages(100, 1500, 2));
    let talk = Conversation { close: Close::After(100), ..sends(messages(200, 2000, 3)) };
    t.world.connect(t.a, t.b, Carrier::Ip, config(), talk);
    t.run_to_established();
    for _ in 0..r.random_range(5..40) {
        let address = ip(["10.0.1.1", "10.0.2.1", "10.0.3.1"][r.random_range(0..3)]);
        let wish = match r.random_range(0..6) {
            0 | 1 => AddressChange::Add(address),
            2 | 3 => AddressChange::Remove(address),
            4 => AddressChange::MoveTo(address),
            _ => AddressChange::SetPrimary(address),
        };
        // A change that makes no sense is refused.
        let _ = change(&mut t, wish);
        t.world.run_for(seconds(1) * r.random_range(1..40) / 40);
    }
    let limit = t.world.now() + seconds(600);
    let (a, b) = (t.a, t.b);
    let over = |w: &World, h: HostId| w.host(h).app.conversations.values().all(|c| c.closed.is_some());
    assert!(t.world.run_until(limit, |w| over(w, a) && over(w, b)), "seed {seed}: {}", describe(&t.world));
    assert_eq!((t.talk(a).received.len(), t.talk(b).received.len()), (100, 200), "seed {seed}");
}

#[test]
fn data_in_flight_from_a_removed_address_is_retransmitted_at_once() {
    let mut t = established(14);
    change(&mut t, AddressChange::Add(ip("10.0.2.1"))).unwrap();
    t.world.run_for(seconds(1));
    let (now, link, id) = (t.world.now(), t.links[0], t.id(t.a));
    t.world.at(now, Change::CutBoth(link, true));
    t.world.run_for(seconds(1) / 100);
    t.world.host_mut(t.a).app.conversations.get_mut(&id).unwrap().outgoing = messages(3, 1000, 1).into();
    t.world.run_for(seconds(1) / 10);
    assert!(t.talk(t.b).received.is_empty());
    change(&mut t, AddressChange::Remove(ip("10.0.1.1"))).unwrap();
    // Half a second is shorter than any timeout.
    t.world.run_for(seconds(1) / 2);
    assert_eq!(t.talk(t.b).received.len(), 3);
}

#[test]
fn data_waits_while_no_path_is_proven() {
    let _clear = InTheClear::begin();
    let mut t = established(15);
    let moved = [add("0.0.0.0"), delete("0.0.0.0")];
    let (now, link) = (t.world.now(), t.links[2]);
    t.world.at(now, Change::CutBoth(link, true));
    t.world.run_for(seconds(1));
    assert_eq!(answer_to(&mut t, "10.0.3.1", 0, &moved), Some(vec![]));
    let (from, id) = (t.world.records.len(), t.id(t.b));
    t.world.host_mut(t.b).app.conversations.get_mut(&id).unwrap().outgoing = messages(3, 1000, 1).into();
    t.world.run_for(seconds(3));
    let sent = crate::support::sent_by(&t.world, from, "10.0.1.2");
    assert!(!sent.is_empty() && sent.iter().all(|names| names == "HEARTBEAT"), "{sent:?}");
}

#[test]
fn adding_another_associations_address_does_not_take_it_from_that_association() {
    let _clear = InTheClear::begin();
    let mut t = established(16);
    let forger = Forger::new(&t.world, KEY);
    let endpoint = EndpointConfig { association: config(), ..EndpointConfig::default() };
    let c = t.world.add_host(&["10.0.9.1"], endpoint.clone());
    let link = t.links[0];
    t.world.join(link, "10.0.9.1", "10.0.1.2");
    t.world.connect(c, t.b, Carrier::Ip, config(), Conversation::default());
    t.world.run_for(seconds(1));
    let info = t.info(t.b);
    let parameters = [add("10.0.9.1")];
    let serial = AsconfSerial(peer_initial_tsn(&t));
    let asconf = Asconf { serial, address: ip("10.0.1.1"), parameters: Parameters::from(&parameters[..]) };
    let bytes = forger.packet((info.remote_port, info.local_port), info.local_tag, &[Chunk::Asconf(asconf)]);
    // The real `a` did not send the request, so it must not get the answer.
    drop_all(&mut t.world, |names, _| names == "AUTH ASCONF-ACK");
    t.world.inject(t.b, route("10.0.1.2", "10.0.1.1"), &bytes);
    t.world.run_for(seconds(1));
    assert_eq!(wishes(&t, t.b), [AddressChange::Add(ip("10.0.9.1"))]);
    // Host `c`, which owns the added address, restarts. Its own association is replaced, and the association of `a` stays.
    t.world.restart(c, endpoint);
    t.world.connect(c, t.b, Carrier::Ip, config(), Conversation::default());
    t.world.run_for(seconds(1));
    let closed: Vec<_> = t.world.host(t.b).app.conversations.values().map(|c| c.closed.clone()).collect();
    assert_eq!(closed, [None, Some(CloseReason::Restarted), None]);
}

/// Cuts the link of `a`'s only address: no packet reaches the address or leaves from it.
fn lose_first_address(t: &mut Two) {
    let (now, link) = (t.world.now(), t.links[0]);
    t.world.at(now, Change::CutBoth(link, true));
}

#[test]
fn a_host_that_lost_its_only_address_goes_on_from_another() {
    let mut t = world(17, LinkConfig { rate: 5_000_000, ..LinkConfig::default() });
    t.world.host_mut(t.b).app.template = sends(messages(300, 2000, 2));
    let talk = Conversation { close: Close::After(300), ..sends(messages(300, 2000, 3)) };
    t.world.connect(t.a, t.b, Carrier::Ip, config(), talk);
    t.run_to_established();
    t.world.run_for(seconds(1) / 5);
    lose_first_address(&mut t);
    t.world.run_for(seconds(3));
    let moved = AddressChange::MoveTo(ip("10.0.3.1"));
    assert_eq!(change(&mut t, moved), Ok(()));
    t.world.run_for(seconds(2));
    assert_eq!(answers(&t, t.a), [(moved, None)]);
    assert!(t.info(t.b).paths.iter().all(|p| p.route.remote == ip("10.0.3.1")));
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!((t.talk(t.a).received.len(), t.talk(t.b).received.len()), (300, 300));
}

#[test]
fn a_request_that_is_out_when_the_host_moves_is_answered_first() {
    let mut t = established(18);
    lose_first_address(&mut t);
    t.world.run_for(seconds(1));
    let (added, moved) = (AddressChange::Add(ip("10.0.2.1")), AddressChange::MoveTo(ip("10.0.3.1")));
    assert_eq!((change(&mut t, added), change(&mut t, moved)), (Ok(()), Ok(())));
    t.world.run_for(seconds(5));
    assert_eq!(answers(&t, t.a), [(added, None), (moved, None)]);
    let expected = [("10.0.3.1", "10.0.1.2"), ("10.0.3.1", "10.0.2.2")].map(|(l, r)| (ip(l), ip(r)));
    assert_eq!(active(&t, t.a), expected);
    assert!(t.info(t.b).paths.iter().all(|p| p.route.remote == ip("10.0.3.1")));
}

#[test]
fn a_host_that_moves_twice_before_it_is_heard_ends_at_its_last_address() {
    let mut t = established(19);
    lose_first_address(&mut t);
    let (now, link) = (t.world.now(), t.links[1]);
    t.world.at(now, Change::CutBoth(link, true));
    t.world.run_for(seconds(1));
    for address in ["10.0.2.1", "10.0.3.1"] {
        assert_eq!(change(&mut t, AddressChange::MoveTo(ip(address))), Ok(()));
        t.world.run_for(seconds(2));
    }
    t.world.run_for(seconds(3));
    assert_eq!(active(&t, t.a), [(ip("10.0.3.1"), ip("10.0.1.2")), (ip("10.0.3.1"), ip("10.0.2.2"))]);
    assert!(t.info(t.b).paths.iter().all(|p| p.route.remote == ip("10.0.3.1")));
}

#[test]
fn a_move_tries_the_peers_other_addresses() {
    let mut t = established(20);
    lose_first_address(&mut t);
    t.world.set_filter(|record| match record.route.remote == ip("10.0.1.2") {
        true => Fate::Drop,
        false => Fate::Pass,
    });
    change(&mut t, AddressChange::MoveTo(ip("10.0.3.1"))).unwrap();
    t.world.run_for(seconds(10));
    assert_eq!(active(&t, t.a), [(ip("10.0.3.1"), ip("10.0.2.2"))]);
}

#[test]
fn a_move_to_an_address_that_cannot_reach_the_peer_is_refused() {
    let mut t = established(21);
    let strange = ip("2001:db8::1");
    assert_eq!(change(&mut t, AddressChange::MoveTo(strange)), Err(AddressError::NoPeer(strange)));
    assert_eq!(active(&t, t.a).len(), 2);
}
