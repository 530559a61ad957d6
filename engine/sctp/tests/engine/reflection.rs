//! Tests of attacks on associations with a required shared key. An attacker without the key returns a host's own packets, or redirects
//! them.

use base::{Carrier, Route};
use bytes::Bytes;
use sctp::{
    AssociationConfig, AssociationId, AuthConfig, Connect, EndpointConfig, Extensions, Limits, PathState,
    StateName,
};
use sim::{Change, Conversation, Fate, HostId, InTheClear, LinkConfig, Record, World, chunk_names, packet};

use crate::keyed::{
    MS, NOTICED, by, closed, endpoint, give_bulk, keyed, noise, state_of, two_links, with_checksum,
};
use crate::stranger::Stranger;
use crate::support::{Two, messages, route, seconds, sends};

/// Creates two hosts with the same key and `count` links.
fn hosts(seed: u64, count: u8) -> Two {
    let mut world = World::new(seed);
    world.recording = true;
    let [a, b] = [1, 2].map(|end| {
        let addresses: Vec<String> = (1..=count).map(|n| format!("10.0.{n}.{end}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        world.add_host(&addresses, endpoint(keyed()))
    });
    let settings = LinkConfig { delay: MS(5), rate: 20_000_000, queue_packets: 50, ..LinkConfig::default() };
    let links = (1..=count).map(|n| {
        let link = world.add_link(settings.clone());
        world.join(link, &format!("10.0.{n}.1"), &format!("10.0.{n}.2"));
        link
    });
    let links = links.collect();
    Two { world, a, b, links }
}

/// Creates two associated hosts that only count the bytes they receive.
fn joined(seed: u64) -> Two {
    let mut t = hosts(seed, 1);
    for host in [t.a, t.b] {
        t.world.host_mut(host).app.template.keeps = false;
    }
    t.world.connect(t.a, t.b, Carrier::Ip, keyed(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(1));
    t
}

/// Returns the packets sent since record `since` from addresses that end in `end`.
fn sent_by(t: &Two, end: &str, since: usize) -> Vec<Record> {
    t.world.records[since..].iter().filter(|r| r.route.local.to_string().ends_with(end)).cloned().collect()
}

fn with_ports(packet: &[u8], source: u16, destination: u16) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes[0..2].copy_from_slice(&source.to_be_bytes());
    bytes[2..4].copy_from_slice(&destination.to_be_bytes());
    with_checksum(bytes)
}

fn ports_of(packet: &[u8]) -> (u16, u16) {
    (u16::from_be_bytes([packet[0], packet[1]]), u16::from_be_bytes([packet[2], packet[3]]))
}

/// Returns a copy of a host's packet, changed as if the host's peer had sent it.
fn mirrored(packet: &[u8], tag: u32) -> Vec<u8> {
    let (source, destination) = ports_of(packet);
    let mut bytes = packet.to_vec();
    bytes[4..8].copy_from_slice(&tag.to_be_bytes());
    with_ports(&bytes, destination, source)
}

/// Delivers to `b` copies of its own packets as if `a` had sent them. Copies the packets of these kinds that `b` has sent over the first
/// link since record `since`.
fn mirror(t: &mut Two, since: usize, kinds: &[&str]) {
    let Some(id) = t.world.host(t.b).endpoint.associations().next() else { return };
    let tag = t.world.host(t.b).endpoint.info(id).expect("it is there").local_tag;
    for record in sent_by(t, ".1.2", since) {
        if kinds.contains(&&*chunk_names(&record.packet)) {
            t.world.inject(t.b, by(1), &mirrored(&record.packet, tag));
        }
    }
}

/// Makes `b` connect to `a`, and delivers an unchanged copy of each packet of `b` to `b`, as if `a` had sent the packet. Returns the hosts,
/// and the number of associations that are up at `b`.
fn self_talk(count: u8, a_lives: bool) -> (Two, usize) {
    let mut t = hosts(7, count);
    if !a_lives {
        let now = t.world.now();
        for link in t.links.clone() {
            t.world.at(now, Change::CutBoth(link, true));
        }
    }
    for host in [t.a, t.b] {
        t.world.host_mut(host).app.template = sends(messages(3, 200, 1));
    }
    t.world.connect(t.b, t.a, Carrier::Ip, keyed(), sends(messages(4, 100, 1)));
    let mut at = 0;
    for _ in 0..3000 {
        let own = sent_by(&t, ".2", at);
        at = t.world.records.len();
        for record in own {
            t.world.inject(t.b, record.route, &record.packet);
        }
        t.world.run_for(MS(1));
    }
    let engine = &t.world.host(t.b).endpoint;
    let is_up = |id: &_| engine.state(*id) == Some(StateName::Established);
    let up = engine.associations().filter(is_up).count();
    (t, up)
}

#[test]
fn no_host_that_has_the_key_is_made_to_talk_to_itself() {
    for count in [1, 2] {
        let (t, up) = self_talk(count, false);
        assert_eq!(up, 0, "{count} links");
        assert!(t.world.host(t.b).endpoint.counters().reflected > 0);
        let (t, up) = self_talk(count, true);
        assert_eq!(
            (up, t.talk(t.a).received_bytes, t.talk(t.b).received_bytes),
            (1, 400, 600),
            "{count} links"
        );
    }
}

/// `b` connects to port 7 of `a`. An attacker on the path sends a copy of each packet of `b` to port 8, and the copy arrives before the
/// original.
#[test]
fn no_connection_is_led_to_another_port() {
    let _clear = InTheClear::begin();
    let mut t = hosts(9, 1);
    t.world.host_mut(t.a).app.template = sends(messages(3, 200, 1));
    t.world.connect(t.b, t.a, Carrier::Ip, keyed(), sends(messages(4, 100, 1)));
    let mut at = 0;
    for _ in 0..3000 {
        let (from_b, from_a) = (sent_by(&t, ".2", at), sent_by(&t, ".1", at));
        at = t.world.records.len();
        for Record { packet, .. } in from_b {
            if let (source, 7) = ports_of(&packet) {
                t.world.inject(t.a, route("10.0.1.1", "10.0.1.2"), &with_ports(&packet, source, 8));
            }
        }
        for Record { packet, .. } in from_a {
            if let (8, destination) = ports_of(&packet) {
                t.world.inject(t.b, by(1), &with_ports(&packet, 7, destination));
            }
        }
        t.world.run_for(MS(1));
    }
    let engine = &t.world.host(t.a).endpoint;
    let ports: Vec<u16> = engine.associations().filter_map(|id| Some(engine.info(id)?.local_port)).collect();
    assert!(!ports.contains(&8), "{ports:?}");
    assert!(engine.counters().unauthenticated_cookies > 0);
}

#[test]
fn a_reflected_sack_does_not_end_its_senders_association() {
    let _clear = InTheClear::begin();
    for seed in 0..40 {
        let mut t = joined(seed);
        for host in [t.a, t.b] {
            let id = t.id(host);
            let talk = t.world.host_mut(host).app.conversations.get_mut(&id).expect("a conversation");
            talk.outgoing.extend(sends(messages(1, 100, 1)).outgoing);
        }
        let at = t.world.records.len();
        t.world.run_for(seconds(1));
        for (host, end, by) in [(t.a, ".1.1", route("10.0.1.1", "10.0.1.2")), (t.b, ".1.2", by(1))] {
            let (tag, before) = (t.info(host).local_tag, t.info(host).counters.auth_failed);
            let sack = sent_by(&t, end, at).into_iter().find(|r| chunk_names(&r.packet).ends_with("SACK"));
            t.world.inject(host, by, &mirrored(&sack.expect("a SACK").packet, tag));
            assert_eq!(t.info(host).counters.auth_failed, before + 1);
            t.world.run_for(MS(100));
        }
        assert_eq!((closed(&t, t.a), closed(&t, t.b)), (None, None), "seed {seed}");
    }
}

#[test]
fn heartbeats_that_come_back_hide_no_peer_that_is_gone() {
    let _clear = InTheClear::begin();
    let mut t = two_links(keyed(), keyed());
    let (a, begin, mut at) = (t.a, t.world.now(), t.world.records.len());
    t.world.restart(a, endpoint(keyed()));
    while closed(&t, t.b).is_none() {
        assert!(t.world.now() - begin < NOTICED);
        let next = t.world.records.len();
        mirror(&mut t, at, &["AUTH HEARTBEAT", "AUTH HEARTBEAT ACK"]);
        at = next;
        t.world.run_for(MS(5));
    }
}

/// Packets that the attacker sends in the name of a peer whose link is dead.
#[derive(Clone, Copy, PartialEq)]
enum Sent {
    Nothing,
    /// Copies of this host's own HEARTBEATs and HEARTBEAT ACKs, delivered on the dead path. The peer answers on the other path.
    Mirrored,
    /// Packets that need no signature.
    Noise,
}

/// Returns the number of checks, out of 5,000, in which the path over a dead link is in the state active.
fn looks_alive(sent: Sent) -> usize {
    let mut t = two_links(keyed(), keyed());
    give_bulk(&mut t, HostId(1));
    t.world.run_for(seconds(2));
    let now = t.world.now();
    t.world.at(now, Change::CutBoth(t.links[0], true));
    let noise = packet(40_000, 7, t.info(t.b).local_tag, &[noise()]);
    let (mut at, mut alive) = (t.world.records.len(), 0);
    for _ in 0..5000 {
        let next = t.world.records.len();
        match sent {
            Sent::Nothing => {}
            Sent::Mirrored => mirror(&mut t, at, &["AUTH HEARTBEAT", "AUTH HEARTBEAT ACK"]),
            Sent::Noise => t.world.inject(t.b, by(1), &noise),
        }
        at = next;
        t.world.run_for(MS(2));
        alive += usize::from(state_of(&t, 1) == Some(PathState::Active));
    }
    alive
}

#[test]
fn heartbeats_that_come_back_and_noise_keep_no_path_that_is_dead() {
    let alone = looks_alive(Sent::Nothing);
    assert_eq!([Sent::Mirrored, Sent::Noise].map(looks_alive), [alone; 2]);
}

/// Makes `a` connect to `b`. A copy of the INIT or INIT ACK, changed by an attacker, arrives before the original.
fn altered(which: &str, alter: fn(&mut Vec<u8>)) -> Two {
    let mut t = hosts(5, 1);
    t.world.connect(t.a, t.b, Carrier::Ip, keyed(), sends(messages(6, 100, 4)));
    let limit = t.world.now() + MS(200);
    let name = which.to_owned();
    assert!(t.world.run_until(limit, |w| w.records.iter().any(|r| chunk_names(&r.packet) == name)));
    let sent = t.world.records.iter().find(|r| chunk_names(&r.packet) == which).expect("it was sent").clone();
    let mut forged = sent.packet.clone();
    alter(&mut forged);
    let to = if which == "INIT" { t.b } else { t.a };
    let by = Route { local: sent.route.remote, remote: sent.route.local, ..sent.route };
    t.world.inject(to, by, &with_checksum(forged));
    t.world.run_for(seconds(60));
    t
}

fn add_to(bytes: &mut [u8], at: usize, n: i32) {
    let number = u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")).wrapping_add_signed(n);
    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
}

#[test]
fn an_init_or_init_ack_that_somebody_has_changed_leads_to_no_association() {
    let _clear = InTheClear::begin();
    const RWND: usize = 20;
    const TSN: usize = 28;
    let changes: [fn(&mut Vec<u8>); 6] = [
        |b| add_to(b, TSN, 1),
        |b| add_to(b, TSN, -1),
        |b| add_to(b, RWND, -20_000),
        |b| b[24..26].copy_from_slice(&1_u16.to_be_bytes()),
        |b| b[26..28].copy_from_slice(&1_u16.to_be_bytes()),
        // One more address, 10.66.6.6, in a chunk that is eight octets longer.
        |b| {
            let length = u16::from_be_bytes([b[14], b[15]]).next_multiple_of(4) + 8;
            b[14..16].copy_from_slice(&length.to_be_bytes());
            b.extend_from_slice(&[0, 5, 0, 8, 10, 66, 6, 6]);
        },
    ];
    for which in ["INIT", "INIT ACK"] {
        for (number, alter) in changes.into_iter().enumerate() {
            let t = altered(which, alter);
            let engine = &t.world.host(t.b).endpoint;
            let up = engine.associations().count();
            assert_eq!(up, 0, "{which}, change {number}");
            assert!(engine.counters().unauthenticated_cookies > 0, "{which}, change {number}");
        }
        // An unchanged copy does no harm.
        let t = altered(which, |_| {});
        assert_eq!(t.talk(t.b).received_bytes, 600, "{which}");
    }
}

/// Makes `a` connect from port 5000 to port 5001, or `b` in the reverse direction.
pub(crate) fn dial(t: &mut Two, host: HostId, config: AssociationConfig) -> AssociationId {
    let (by, ports) = if host == t.a {
        (route("10.0.1.1", "10.0.1.2"), (5_000, 5_001))
    } else {
        (route("10.0.1.2", "10.0.1.1"), (5_001, 5_000))
    };
    let connect = Connect {
        local_port: ports.0,
        remote_port: ports.1,
        init_routes: vec![by],
        local_addresses: vec![by.local],
        config,
    };
    let now = t.world.now();
    t.world.host_mut(host).endpoint.connect(now, connect).expect("it may")
}

#[test]
fn two_hosts_that_dial_each_other_agree_on_the_keys_of_one_handshake() {
    for (seed, later) in (0..12).flat_map(|seed| [0, 3, 6, 8, 12, 18].map(|later| (seed, later))) {
        let mut t = hosts(seed, 1);
        dial(&mut t, HostId(0), keyed());
        t.world.run_for(MS(later));
        if t.world.host(t.b).endpoint.associations().count() == 0 {
            dial(&mut t, HostId(1), keyed());
        }
        t.world.run_for(seconds(20));
        for host in [t.a, t.b] {
            let engine = &t.world.host(host).endpoint;
            let ids: Vec<_> = engine.associations().collect();
            assert_eq!(ids.len(), 1, "seed {seed}, {later} ms");
            assert_eq!(engine.state(ids[0]), Some(StateName::Established), "seed {seed}, {later} ms");
            let counters = engine.info(ids[0]).expect("it is there").counters;
            assert_eq!(counters.auth_failed, 0, "seed {seed}, {later} ms");
            assert!(counters.auth_verified > 1, "seed {seed}, {later} ms");
        }
    }
}

#[test]
fn no_keyed_association_opens_if_its_cookie_cannot_be_remembered() {
    let _clear = InTheClear::begin();
    let config =
        EndpointConfig { limits: Limits { spent_cookies: 2, ..Limits::default() }, ..endpoint(keyed()) };
    let mut world = World::new(1);
    let [a, b] = ["10.0.1.1", "10.0.1.2"].map(|address| world.add_host(&[address], config.clone()));
    let link = world.add_link(LinkConfig::default());
    world.join(link, "10.0.1.1", "10.0.1.2");
    for (begun, expected) in [(1, 1), (2, 2), (3, 2)] {
        world.connect(a, b, Carrier::Ip, keyed(), Conversation::default());
        world.run_for(seconds(1));
        assert_eq!(world.host(b).endpoint.associations().count(), expected, "{begun}");
    }
    // One cookie lifetime later.
    world.run_for(seconds(70));
    world.connect(a, b, Carrier::Ip, keyed(), Conversation::default());
    world.run_for(seconds(1));
    assert_eq!(world.host(b).endpoint.associations().count(), 3);
}

#[test]
fn without_a_key_a_host_may_dial_another_address_of_its_own() {
    let mut world = World::new(1);
    let config = crate::failover::config();
    let a = world.add_host(&["10.0.1.1", "10.0.1.2"], endpoint(config.clone()));
    let link = world.add_link(LinkConfig::default());
    world.join(link, "10.0.1.1", "10.0.1.2");
    let (now, by) = (world.now(), route("10.0.1.1", "10.0.1.2"));
    let connect = Connect {
        local_port: 40_000,
        remote_port: 7,
        init_routes: vec![by],
        local_addresses: vec![by.local],
        config,
    };
    world.host_mut(a).endpoint.connect(now, connect).expect("it may");
    world.run_for(seconds(1));
    let engine = &world.host(a).endpoint;
    let up = engine.associations().filter(|id| engine.state(*id) == Some(StateName::Established)).count();
    assert_eq!(up, 2);
}

/// Makes `a` connect from port 40,000 to port 7 of `b`, over the second link.
fn dial_again(t: &mut Two, config: AssociationConfig) {
    let by = route("10.0.2.1", "10.0.2.2");
    let connect = Connect {
        local_port: 40_000,
        remote_port: 7,
        init_routes: vec![by],
        local_addresses: vec![by.local],
        config,
    };
    let now = t.world.now();
    t.world.host_mut(t.a).endpoint.connect(now, connect).expect("it may");
}

#[test]
fn an_address_without_the_key_cannot_restart_a_keyed_association() {
    let _clear = InTheClear::begin();
    let mut t = two_links(keyed(), keyed());
    let (a, without) = (t.a, sctp::AuthConfig::default());
    t.world.host_mut(t.b).app.keys.insert("10.0.2.1".parse().unwrap(), without);
    t.world.restart(a, endpoint(crate::failover::config()));
    dial_again(&mut t, crate::failover::config());
    t.world.run_for(MS(200));
    assert_eq!(closed(&t, t.b), None);
    assert!(t.world.host(t.b).endpoint.counters().unauthenticated_cookies > 0);
}

#[test]
fn a_cookie_of_a_time_without_keys_begins_nothing_once_a_key_is_required() {
    let _clear = InTheClear::begin();
    let offering = crate::failover::config().extensions;
    for (is_required, extensions) in
        [(false, Extensions::NONE), (true, Extensions::NONE), (false, offering), (true, offering)]
    {
        let config = AssociationConfig { extensions, ..crate::failover::config() };
        let mut world = World::new(1);
        let [a, b] =
            ["10.0.1.1", "10.0.1.2"].map(|address| world.add_host(&[address], endpoint(config.clone())));
        let link = world.add_link(LinkConfig { delay: MS(5), ..LinkConfig::default() });
        world.join(link, "10.0.1.1", "10.0.1.2");
        world.connect(a, b, Carrier::Ip, config, Conversation::default());
        world.run_for(MS(12));
        if is_required {
            world.host_mut(b).app.keys.insert("10.0.1.1".parse().unwrap(), keyed().auth);
        }
        world.run_for(seconds(1));
        let engine = &world.host(b).endpoint;
        assert_eq!(engine.associations().count(), usize::from(!is_required));
        assert_eq!(engine.counters().unauthenticated_cookies > 0, is_required);
    }
}

#[test]
fn a_peer_with_another_key_replaces_a_keyed_association_only_after_a_check() {
    let _clear = InTheClear::begin();
    let mut other = keyed();
    other.auth.keys.values_mut().for_each(|key| *key = Bytes::from_static(b"the key of another host"));
    for (config, expected) in [(keyed(), 0), (other.clone(), 1)] {
        let mut t = two_links(keyed(), keyed());
        let (a, old) = (t.a, t.id(t.b));
        t.world.host_mut(t.b).app.keys.insert("10.0.2.1".parse().unwrap(), other.auth.clone());
        t.world.restart(a, endpoint(config.clone()));
        dial_again(&mut t, config);
        t.world.run_for(MS(200));
        assert_eq!(closed(&t, t.b), None, "the peer is asked first");
        t.world.run_for(seconds(10));
        let engine = &t.world.host(t.b).endpoint;
        let is_taken = |id: &_| *id != old && engine.is_keyed_by(*id, &other.auth);
        assert_eq!(engine.associations().filter(is_taken).count(), expected);
    }
}

#[test]
fn keys_set_by_command_prevent_a_restart_by_an_unsigned_init() {
    let _clear = InTheClear::begin();
    let auth = AuthConfig { chunks: keyed().auth.chunks, ..AuthConfig::default() };
    let config = AssociationConfig { auth, ..crate::failover::config() };
    for is_keyed in [false, true] {
        let mut t = two_links(config.clone(), config.clone());
        for host in [t.a, t.b] {
            let (id, now) = (t.id(host), t.world.now());
            let engine = &mut t.world.host_mut(host).endpoint;
            for number in [0, 1].into_iter().filter(|_| is_keyed) {
                engine.set_auth_key(now, id, number, b"a key of theirs").expect("AUTH was agreed on");
                engine.activate_auth_key(now, id, number).expect("it is there");
            }
        }
        t.world.run_for(seconds(1));
        let somebody = Stranger::new(t.b, "10.0.2.2", "10.0.2.1", 40_000);
        let answer = somebody.ask(&mut t.world, &[]);
        answer.iter().for_each(|answer| _ = somebody.echo(&mut t.world, answer));
        t.world.run_for(seconds(10));
        assert_eq!((answer.is_none(), closed(&t, t.b).is_none()), (is_keyed, is_keyed));
    }
}

/// Returns the INIT without its padding.
fn without_padding(init: &[u8]) -> Vec<u8> {
    const PADDING: u16 = 0x8005;
    let (mut kept, mut rest) = init.split_at(32);
    let mut bytes = kept.to_vec();
    while let [k0, k1, l0, l1, ..] = *rest {
        let length = usize::from(u16::from_be_bytes([l0, l1])).next_multiple_of(4);
        (kept, rest) = rest.split_at(length.min(rest.len()));
        if u16::from_be_bytes([k0, k1]) != PADDING {
            bytes.extend_from_slice(kept);
        }
    }
    let length = u16::try_from(bytes.len() - 12).expect("a short packet");
    bytes[14..16].copy_from_slice(&length.to_be_bytes());
    with_checksum(bytes)
}

/// An answer is up to three times as long as its INIT. So without padding, not all addresses fit.
#[test]
fn a_shortened_init_creates_no_association_with_fewer_addresses() {
    for is_shortened in [false, true] {
        let mut t = hosts(5, 6);
        t.world.host_mut(t.a).addresses.truncate(1);
        if is_shortened {
            t.world.set_filter(|r| match &*chunk_names(&r.packet) {
                "INIT" => Fate::Replace(without_padding(&r.packet)),
                _ => Fate::Pass,
            });
        }
        t.world.connect(t.a, t.b, Carrier::Ip, keyed(), Conversation::default());
        t.world.run_for(seconds(5));
        let engine = &t.world.host(t.b).endpoint;
        let paths = |id| engine.info(id).map_or(0, |info| info.paths.len());
        assert_eq!(engine.associations().map(paths).collect::<Vec<_>>(), vec![6; usize::from(!is_shortened)]);
        assert_eq!(engine.counters().inits_too_short > 0, is_shortened);
    }
}

/// Makes `a` and `b` connect to each other. An attacker changes the random number in each INIT of `a`.
#[test]
fn with_one_altered_init_a_simultaneous_open_is_up_at_both_ends_or_at_neither() {
    let mut up = 0;
    for seed in 0..20 {
        let mut t = hosts(seed, 1);
        t.world.set_filter(|r| {
            if chunk_names(&r.packet) != "INIT" || r.route.local != by(1).remote {
                return Fate::Pass;
            }
            let mut forged = r.packet.clone();
            let random = forged.windows(4).position(|w| w == [0x80, 2, 0, 36]).expect("RANDOM");
            forged[random + 4..random + 36].fill(0);
            Fate::Replace(with_checksum(forged))
        });
        dial(&mut t, HostId(0), keyed());
        dial(&mut t, HostId(1), keyed());
        t.world.run_for(seconds(5));
        let states = [t.a, t.b].map(|host| {
            let engine = &t.world.host(host).endpoint;
            engine.associations().next().and_then(|id| engine.state(id))
        });
        let is_up = states.map(|state| state == Some(StateName::Established));
        assert_eq!(is_up[0], is_up[1], "seed {seed}: {states:?}");
        up += usize::from(is_up[0]);
    }
    assert!(up > 0);
}
