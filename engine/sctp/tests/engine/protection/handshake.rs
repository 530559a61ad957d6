//! Tests of associations before they have keys: packets in the clear, and data that waits.

use std::time::Duration;

use bytes::Bytes;
use sctp::{
    AddressChange, AssociationConfig, CloseReason, EndpointConfig, Event, Extension, Extensions, KeyRole,
    StateName,
};
use sim::{Conversation, Fate, HostId, InTheClear, LinkConfig, World, chunk_names, packet};
use wire::{Cause, Causes, ChecksumMode, Chunk, ChunkType, Data, Packet, Ppid, Ssn, StreamId, Tsn};

use super::{announced, config, is_protected, is_sealed, offer, send, two_sealed, up};
use crate::keyed::keyed;
use crate::support::{
    Two, a_route, at_seconds, b_route, content, messages, seconds, sends, sends_then_closes, two_with,
};

/// Creates two hosts whose association is up but has no keys, because the server's first answer is lost.
fn up_without_keys(seed: u64, config: AssociationConfig) -> Two {
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut t = two_with(seed, LinkConfig::default(), endpoint);
    t.world.recording = true;
    let mut is_lost = false;
    let b = b_route().local;
    t.world.set_filter(move |record| {
        let is_answer = record.route.local == b && chunk_names(&record.packet).ends_with("DATA");
        if is_answer && !std::mem::replace(&mut is_lost, true) { Fate::Drop } else { Fate::Pass }
    });
    t.connect_with(config, Conversation::default());
    let (a, b) = (t.a, t.b);
    let is_up = |w: &World, host: HostId| {
        let endpoint = &w.host(host).endpoint;
        endpoint.associations().any(|id| endpoint.state(id) == Some(StateName::Established))
    };
    assert!(t.world.run_until(at_seconds(5), |w| is_up(w, a) && is_up(w, b)));
    assert!(!is_protected(&t, a) && !is_protected(&t, b));
    t
}

/// Returns a DATA chunk with a whole message.
fn data(tsn: u32, stream: u16, ssn: u16, ppid: u32) -> Chunk<'static> {
    Chunk::Data(Data {
        immediate: true,
        unordered: false,
        begin: true,
        end: true,
        tsn: Tsn(tsn),
        stream: StreamId(stream),
        ssn: Ssn(ssn),
        ppid: Ppid(ppid),
        payload: b"forged",
    })
}

#[test]
fn data_injected_before_the_keys_is_not_delivered_and_displaces_no_sealed_data() {
    // Every observer of the handshake knows the tags and TSNs.
    for is_client in [true, false] {
        let mut t = up_without_keys(5, config(true));
        let (init, init_ack) = (announced(&t.world, "INIT"), announced(&t.world, "INIT ACK"));
        let (host, peer, tag, first, ports, route) = match is_client {
            true => (t.a, t.b, init.0, init_ack.1, (7, 40_000), a_route()),
            false => (t.b, t.a, init_ack.0, init.1, (40_000, 7), b_route()),
        };
        for ahead in 0..40 {
            for (stream, ppid) in [(9, 0), (9, 4242), (0, 0), (60_000, 0)] {
                let chunk = data(first.wrapping_add(ahead), stream, 0, ppid);
                t.world.inject(host, route, &packet(ports.0, ports.1, tag, &[chunk]));
            }
        }
        t.world.run_for(seconds(10));
        assert!(is_protected(&t, t.a) && is_protected(&t, t.b), "client {is_client}");
        let sent: Vec<Bytes> = (0..30).map(|n| content(n, 100)).collect();
        sent.iter().for_each(|message| send(&mut t, peer, 9, message.clone()));
        t.world.run_for(seconds(10));
        let received: Vec<Bytes> = t.talk(host).received.iter().map(|m| m.bytes.clone()).collect();
        assert_eq!(received, sent, "client {is_client}");
    }
}

#[test]
fn an_association_ends_if_something_in_the_clear_has_taken_a_tsn() {
    for is_interleaved in [false, true] {
        let interleaving = Extensions::NONE.with(Extension::Interleaving);
        let extensions = if is_interleaved { interleaving } else { Extensions::NONE };
        let association = AssociationConfig { extensions, ..config(true) };
        let mut t = up_without_keys(5, association);
        let (init, init_ack) = (announced(&t.world, "INIT"), announced(&t.world, "INIT ACK"));
        // This key-management message in the clear uses the TSN after the client's own messages.
        let parts =
            t.world.records.iter().filter(|r| chunk_names(&r.packet).starts_with("COOKIE ECHO")).count();
        let late = data(init.1.wrapping_add(parts as u32), 0, 0, 4242);
        let late = match late {
            Chunk::Data(data) if is_interleaved => Chunk::IData(wire::IData {
                immediate: data.immediate,
                unordered: data.unordered,
                end: true,
                tsn: data.tsn,
                stream: data.stream,
                mid: wire::Mid(0),
                fragment: wire::Fragment::First(data.ppid),
                payload: data.payload,
            }),
            other => other,
        };
        t.world.inject(t.b, b_route(), &packet(40_000, 7, init_ack.0, &[late]));
        t.world.run_for(seconds(10));
        let closed = t.talk(t.b).closed.clone();
        let is_clear = |cause: &sctp::AbortCause| cause.reason.starts_with(b"data in the clear");
        assert!(
            matches!(closed, Some(CloseReason::Aborted(ref cause)) if is_clear(cause)),
            "interleaved {is_interleaved}: {closed:?}"
        );
        assert!(!is_protected(&t, t.b));
    }
}

#[test]
fn a_server_notices_that_its_answer_was_cut_into_more_chunks() {
    let mut t = two_sealed(1, LinkConfig::default());
    let (a, b) = (a_route().local, b_route().local);
    let mut is_lost = false;
    t.world.set_filter(move |record| {
        // The filter drops the client's first sealed packet, with its SACK.
        if record.route.local == a && is_sealed(&record.packet) && !std::mem::replace(&mut is_lost, true) {
            return Fate::Drop;
        }
        let parsed = Packet::parse(&record.packet, ChecksumMode::Ignore).unwrap();
        let mut chunks: Vec<Chunk<'_>> = parsed.chunks().map_while(Result::ok).collect();
        match chunks.last().copied() {
            Some(Chunk::Data(end)) if record.route.local == b && end.end && !is_sealed(&record.packet) => {
                chunks.pop();
                let (one, other) = end.payload.split_at(10);
                chunks.push(Chunk::Data(Data { payload: one, end: false, ..end }));
                chunks.push(Chunk::Data(Data { payload: other, begin: false, tsn: end.tsn.next(), ..end }));
                let header = parsed.header;
                Fate::Replace(packet(header.source_port, header.destination_port, header.tag.0, &chunks))
            }
            _ => Fate::Pass,
        }
    });
    t.connect_with(config(true), sends(messages(3, 100, 1)));
    t.world.run_for(seconds(10));
    let closed = t.talk(t.b).closed.clone();
    let is_other =
        |cause: &sctp::AbortCause| cause.reason.starts_with(b"the peer has taken or sent other data");
    assert!(matches!(closed, Some(CloseReason::Aborted(ref cause)) if is_other(cause)), "{closed:?}");
}

#[test]
fn a_server_notices_that_the_clients_hello_was_cut_into_more_chunks_or_fewer() {
    for is_cut in [true, false] {
        let mut t = two_sealed(1, LinkConfig::default());
        let a = a_route().local;
        // The payload of the last part but one, the last TSN that the client has sent, and the number of parts.
        let (mut kept, mut last_sent, mut parts): (Option<Vec<u8>>, Option<Tsn>, u32) = (None, None, 0);
        t.world.set_filter(move |record| {
            let parsed = Packet::parse(&record.packet, ChecksumMode::Ignore).unwrap();
            let mut chunks: Vec<Chunk<'_>> = parsed.chunks().map_while(Result::ok).collect();
            let is_clients = record.route.local == a;
            for chunk in &mut chunks {
                if let (Chunk::Sack(sack), false, Some(last)) = (chunk, is_clients, last_sent) {
                    sack.cumulative_tsn = last;
                }
            }
            let joined: Vec<u8>;
            if let Some(Chunk::Data(data)) = chunks.last().copied()
                && is_clients
                && last_sent.is_none()
            {
                parts += 1;
                if !data.end && !is_cut && parts == 3 {
                    kept = Some(data.payload.to_vec());
                    return Fate::Drop;
                }
                if data.end {
                    last_sent = Some(data.tsn);
                    chunks.pop();
                    if is_cut {
                        let (one, other) = data.payload.split_at(10);
                        let tsn = data.tsn.next();
                        chunks.push(Chunk::Data(Data { payload: one, end: false, ..data }));
                        chunks.push(Chunk::Data(Data { payload: other, begin: false, tsn, ..data }));
                    } else {
                        joined = [&kept.take().unwrap(), data.payload].concat();
                        chunks.push(Chunk::Data(Data { payload: &joined, tsn: data.tsn.prev(), ..data }));
                    }
                }
            }
            if is_sealed(&record.packet) {
                return Fate::Pass;
            }
            let header = parsed.header;
            Fate::Replace(packet(header.source_port, header.destination_port, header.tag.0, &chunks))
        });
        t.connect_with(config(true), sends(messages(3, 100, 1)));
        t.world.run_for(seconds(40));
        // With one more chunk, the last flight seems to be a duplicate, so no keys are ever agreed on.
        let reason = if is_cut { "no keys were agreed on" } else { "the peer has taken or sent other data" };
        let closed = t.talk(t.b).closed.clone();
        let is_noticed = |cause: &sctp::AbortCause| cause.reason.starts_with(reason.as_bytes());
        assert!(
            matches!(closed, Some(CloseReason::Aborted(ref cause)) if is_noticed(cause)),
            "cut {is_cut}: {closed:?}"
        );
        assert!(t.talk(t.b).received.is_empty());
        assert!(!is_protected(&t, t.b));
    }
}

#[test]
fn an_injected_key_message_is_reported_as_unsealed_and_ends_the_association() {
    let mut t = two_sealed(1, LinkConfig::default());
    let b = b_route().local;
    // An attacker adds a message after the server's answer.
    t.world.set_filter(move |record| {
        let parsed = Packet::parse(&record.packet, ChecksumMode::Verify).unwrap();
        let mut chunks: Vec<Chunk<'_>> = parsed.chunks().map_while(Result::ok).collect();
        let Some(Chunk::Data(end)) = chunks.last().copied().filter(|_| record.route.local == b) else {
            return Fate::Pass;
        };
        if !end.end {
            return Fate::Pass;
        }
        let payload: &[u8] = &[1, 2, 3];
        let (tsn, ssn) = (end.tsn.next(), Ssn(end.ssn.0 + 1));
        chunks.push(Chunk::Data(Data { tsn, ssn, payload, begin: true, ..end }));
        let header = parsed.header;
        Fate::Replace(packet(header.source_port, header.destination_port, header.tag.0, &chunks))
    });
    t.connect_with(config(true), sends(messages(3, 100, 1)));
    t.world.run_for(seconds(10));
    let unsealed = |event: &&&Event| matches!(event, Event::KeyMessage { sealed: false, .. });
    assert_eq!(t.events(t.a).iter().filter(unsealed).count(), 2);
    assert_eq!(t.world.host(t.a).app.keying.refused, 1);
    assert!(matches!(t.talk(t.a).closed, Some(CloseReason::Aborted(_))));
    assert!(t.talk(t.b).received.is_empty());
}

#[test]
fn data_sent_before_a_shutdown_waits_for_the_keys() {
    let mut t = two_sealed(1, LinkConfig::default());
    let b = b_route().local;
    let mut is_lost = false;
    t.world.set_filter(move |record| {
        let is_answer = record.route.local == b && chunk_names(&record.packet).ends_with("DATA");
        if is_answer && !std::mem::replace(&mut is_lost, true) { Fate::Drop } else { Fate::Pass }
    });
    let host = t.world.host_mut(t.a);
    let connect = sctp::Connect {
        local_port: 5000,
        remote_port: 7,
        init_routes: vec![a_route()],
        local_addresses: host.addresses.clone(),
        config: config(true),
    };
    let id = host.endpoint.connect_and_send(base::Time::ZERO, connect, Ppid(0), content(7, 200)).unwrap();
    host.app.keying.begin(base::Time::ZERO, id, &mut host.endpoint);
    host.app.conversations.insert(id, Conversation::default());
    let (a, established) = (t.a, Some(StateName::Established));
    assert!(t.world.run_until(at_seconds(5), |w| w.host(a).endpoint.state(id) == established));
    let now = t.world.now();
    t.world.host_mut(a).endpoint.shutdown(now, id);
    assert_eq!(t.run_to_end(seconds(20)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received[0].bytes, content(7, 200));
}

#[test]
fn forged_shutdown_chunks_before_the_keys_do_not_end_the_association() {
    let mut t = up_without_keys(2, config(true));
    let (ours, theirs) = (announced(&t.world, "INIT"), announced(&t.world, "INIT ACK"));
    let shutdown = Chunk::Shutdown(wire::Shutdown { cumulative_tsn: Tsn(ours.1.wrapping_add(1)) });
    let complete = Chunk::ShutdownComplete(wire::ShutdownComplete { tag_reflected: false });
    let forge = |t: &mut Two| {
        for chunk in [shutdown, Chunk::ShutdownAck, complete, shutdown] {
            t.world.inject(t.b, b_route(), &packet(40_000, 7, theirs.0, &[chunk]));
            t.world.inject(t.a, a_route(), &packet(7, 40_000, ours.0, &[chunk]));
        }
    };
    forge(&mut t);
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.shutdown(now, id);
    forge(&mut t);
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::ShutdownPending, StateName::Established));
    assert_eq!(t.run_to_end(seconds(10)), (CloseReason::Graceful, CloseReason::Graceful));
    assert!(is_protected(&t, t.a) && is_protected(&t, t.b));
}

#[test]
fn changes_of_addresses_and_streams_wait_for_the_keys() {
    let extensions = [Extension::Auth, Extension::AddressReconfiguration, Extension::StreamReconfiguration];
    let extensions = extensions.into_iter().fold(Extensions::NONE, Extensions::with);
    let association = AssociationConfig { extensions, ..config(true) };
    let endpoint = EndpointConfig { association: association.clone(), ..EndpointConfig::default() };
    let mut t = two_with(3, LinkConfig::default(), endpoint);
    t.world.recording = true;
    let mut is_lost = false;
    let b = b_route().local;
    t.world.set_filter(move |record| {
        let is_answer = record.route.local == b && chunk_names(&record.packet).ends_with("DATA");
        if is_answer && !std::mem::replace(&mut is_lost, true) { Fate::Drop } else { Fate::Pass }
    });
    t.connect_with(association, Conversation::default());
    let (a, id, established) = (t.a, t.id(t.a), Some(StateName::Established));
    assert!(t.world.run_until(at_seconds(5), |w| w.host(a).endpoint.state(id) == established));
    assert!(!is_protected(&t, t.a));
    let now = t.world.now();
    let engine = &mut t.world.host_mut(a).endpoint;
    engine.add_local_address(now, id, "10.0.1.77".parse().unwrap()).unwrap();
    engine.reset_streams(now, id, sctp::StreamDirection::Outgoing, &[StreamId(1)]).unwrap();
    // An attacker claims that the peer does not know ASCONF.
    let cause = Cause::UnrecognizedChunkType(&[ChunkType::ASCONF.0, 0, 0, 4]);
    let causes = [cause];
    let error = Chunk::Error(wire::ErrorChunk { causes: Causes::from(&causes[..]) });
    let ours = announced(&t.world, "INIT").0;
    t.world.inject(a, a_route(), &packet(7, 40_000, ours, &[error]));
    t.world.run_for(seconds(10));
    assert!(is_protected(&t, t.a));
    let has = |event: &&&Event| matches!(event, Event::PeerAddressChange(AddressChange::Add(_)));
    assert_eq!(t.events(t.b).iter().filter(has).count(), 1);
    let is_change = |r: &&sim::Record| {
        let names = chunk_names(&r.packet);
        names.contains("ASCONF") || names.contains("RE-CONFIG")
    };
    let changes: Vec<_> = t.world.records.iter().filter(is_change).collect();
    let names: Vec<_> = changes.iter().map(|r| (chunk_names(&r.packet), is_sealed(&r.packet))).collect();
    assert!(changes.len() >= 3 && names.iter().all(|(_, is_sealed)| *is_sealed), "{names:?}");
}

#[test]
fn the_application_cannot_send_with_the_ppid_of_key_messages() {
    let mut t = up(3);
    let (id, now) = (t.id(t.a), t.world.now());
    let engine = &mut t.world.host_mut(t.a).endpoint;
    let refused =
        engine.send(now, id, StreamId(0), sctp::KEY_PPID, Bytes::from_static(b"x"), Default::default());
    assert_eq!(refused, Err(sctp::SendError::ReservedPpid));
    let connect = sctp::Connect {
        local_port: 5000,
        remote_port: 9,
        init_routes: vec![a_route()],
        local_addresses: Vec::new(),
        config: config(false),
    };
    let refused = engine.connect_and_send(now, connect, sctp::KEY_PPID, Bytes::from_static(b"x"));
    assert_eq!(refused, Err(sctp::ConnectError::ReservedPpid));
}

/// Change to a packet by an attacker on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meddling {
    Nothing,
    /// Change of the number of outbound streams in the chunk with this name.
    Streams(&'static str),
    /// Change of the server's port from 7 to 8, in both directions.
    Port,
}

fn meddled(meddling: Meddling, packet: &[u8]) -> Fate {
    let mut bytes = packet.to_vec();
    match meddling {
        Meddling::Streams(name) if chunk_names(packet) == name => bytes[25] ^= 1,
        Meddling::Port if bytes[2..4] == [0, 7] => bytes[3] = 8,
        Meddling::Port if bytes[..2] == [0, 8] => bytes[1] = 7,
        Meddling::Nothing | Meddling::Port | Meddling::Streams(_) => return Fate::Pass,
    }
    let crc = wire::crc32c(&[&bytes[..8], &[0; 4], &bytes[12..]].concat());
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    Fate::Replace(bytes)
}

#[test]
fn a_handshake_that_somebody_changed_makes_other_keys() {
    let others = [Meddling::Streams("INIT"), Meddling::Streams("INIT ACK"), Meddling::Port];
    for meddling in [Meddling::Nothing].into_iter().chain(others) {
        let mut t = two_sealed(1, LinkConfig::default());
        t.world.set_filter(move |record| meddled(meddling, &record.packet));
        t.connect_with(config(true), sends(messages(3, 100, 1)));
        t.world.run_for(seconds(60));
        let is_intact = meddling == Meddling::Nothing;
        assert_eq!(is_protected(&t, t.b), is_intact, "{meddling:?}");
        let received: usize = t.world.host(t.b).app.conversations.values().map(|c| c.received.len()).sum();
        assert_eq!(received, if is_intact { 3 } else { 0 }, "{meddling:?}");
        let not_opened = t.world.host(t.b).endpoint.counters().not_opened;
        assert_eq!(not_opened == 0, is_intact, "{meddling:?}: {not_opened}");
    }
}

#[test]
fn an_association_without_keys_ends_in_time() {
    for name in ["COOKIE ACK SACK DATA", "DATA"] {
        let mut t = two_sealed(1, LinkConfig::default());
        let b = b_route().local;
        // In the first case, no key-management message of the server arrives. In the second case, no key-management message of either end
        // arrives.
        t.world.set_filter(move |record| {
            let names = chunk_names(&record.packet);
            let is_lost = names.contains(name) || record.route.local == b && names.contains("DATA");
            if is_lost { Fate::Drop } else { Fate::Pass }
        });
        t.connect_with(config(true), sends(messages(3, 100, 1)));
        t.world.run_for(seconds(40));
        for host in [t.a, t.b] {
            let open = t.world.host(host).app.conversations.values().any(|c| c.closed.is_none());
            assert!(!open && !is_protected(&t, host), "{name}");
        }
    }
}

#[test]
fn where_protection_is_required_a_peer_without_it_is_refused() {
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.protection = None;
    t.world.restart(t.b, EndpointConfig::default());
    t.connect_with(config(true), sends(messages(1, 100, 1)));
    t.world.run_for(seconds(5));
    let closed = t.talk(t.a).closed.clone();
    assert!(matches!(closed, Some(CloseReason::Aborted(ref cause)) if cause.code == 100), "{closed:?}");
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.protection = None;
    offer(&mut t.world, t.b, true);
    t.connect_with(AssociationConfig::default(), sends(messages(1, 100, 1)));
    t.world.run_for(seconds(5));
    let closed = t.talk(t.a).closed.clone();
    assert!(matches!(closed, Some(CloseReason::PeerAborted(ref cause)) if cause.code == 100), "{closed:?}");
}

#[test]
fn where_protection_is_only_offered_a_peer_without_it_is_served_in_the_clear() {
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.protection = None;
    t.world.restart(t.b, EndpointConfig::default());
    t.world.recording = true;
    t.connect_with(config(false), sends_then_closes(messages(5, 100, 1)));
    assert_eq!(t.run_to_end(seconds(20)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 5);
    // A peer without protection gets no key-management message.
    assert!(t.world.records.iter().all(|r| !r.packet.windows(4).any(|w| w == 4242u32.to_be_bytes())));
}

#[test]
fn a_handshake_that_meets_another_makes_one_protected_association() {
    // Each direction takes 10 ms. The delays cover all times from the first INIT until the end of the first handshake.
    for delay in 0..25 {
        for seed in 0..4 {
            let link = LinkConfig { delay: Duration::from_millis(10), ..LinkConfig::default() };
            let mut t = two_sealed(seed, link);
            let ends = [(t.a, a_route(), (5000, 6000)), (t.b, b_route(), (6000, 5000))];
            let mut speakers = Vec::new();
            for (host, route, ports) in ends {
                let speaker = host;
                let now = t.world.now();
                let host = t.world.host_mut(host);
                let connect = sctp::Connect {
                    local_port: ports.0,
                    remote_port: ports.1,
                    init_routes: vec![route],
                    local_addresses: host.addresses.clone(),
                    config: config(true),
                };
                // The association that the peer opened may exist already.
                if let Ok(id) = host.endpoint.connect(now, connect) {
                    host.app.keying.begin(now, id, &mut host.endpoint);
                    host.app.conversations.insert(id, sends(messages(20, 500, 2)));
                    speakers.push(speaker);
                } else {
                    assert!(delay > 10, "delay {delay}");
                }
                t.world.run_for(Duration::from_millis(delay));
            }
            t.world.run_for(seconds(60));
            for host in [t.a, t.b] {
                let case = format!("delay {delay} seed {seed}: {}", crate::support::describe(&t.world));
                assert_eq!(t.world.host(host).app.conversations.len(), 1, "{case}");
                assert!(is_protected(&t, host), "{case}");
                let peer = if host == t.a { t.b } else { t.a };
                let messages = if speakers.contains(&peer) { 20 } else { 0 };
                assert_eq!(t.talk(host).received.len(), messages, "{case}");
            }
            let roles =
                [t.a, t.b].map(|host| t.world.host(host).endpoint.protection(t.id(host)).unwrap().role);
            assert!(roles.contains(&KeyRole::Client) && roles.contains(&KeyRole::Server), "seed {seed}");
        }
    }
}

#[test]
fn nobody_begins_a_protected_association_anew_without_its_keys() {
    let mut t = up(6);
    let old = t.id(t.b);
    let fresh = EndpointConfig { association: config(true), ..EndpointConfig::default() };
    // Another program at the peer's address uses the same ports, but has no keys.
    t.world.restart(t.a, fresh);
    t.connect_with(config(true), sends(messages(1, 100, 1)));
    t.world.run_for(Duration::from_millis(900));
    assert_eq!(t.world.host(t.b).endpoint.state(old), Some(StateName::Established));
    assert_eq!(t.world.host(t.b).app.conversations.len(), 1);
}

/// Returns settings with a required key and an offer of protection.
fn keyed_and_offering() -> AssociationConfig {
    AssociationConfig { protection: config(false).protection, ..keyed() }
}

#[test]
fn a_required_key_asks_for_no_signatures_where_packets_are_sealed() {
    let endpoint = EndpointConfig { association: keyed_and_offering(), ..EndpointConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), endpoint);
    t.connect_with(keyed_and_offering(), sends_then_closes(messages(5, 100, 1)));
    assert_eq!(t.run_to_end(seconds(20)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 5);
    assert!(is_protected(&t, t.a) && is_protected(&t, t.b));
}

#[test]
fn a_signed_association_is_replaced_only_by_a_peer_with_its_key() {
    let _clear = InTheClear::begin();
    for (with_key, association) in [(false, config(false)), (true, keyed_and_offering())] {
        let endpoint = EndpointConfig { association: keyed_and_offering(), ..EndpointConfig::default() };
        let mut t = two_with(1, LinkConfig::default(), endpoint);
        t.connect_with(keyed(), Conversation::default());
        t.world.run_for(seconds(5));
        let old = t.id(t.b);
        assert!(!is_protected(&t, t.b));
        // Another program runs at the peer's address, or the same one has restarted. Its daemon now offers protection.
        t.world
            .restart(t.a, EndpointConfig { association: association.clone(), ..EndpointConfig::default() });
        t.connect_with(association, sends(messages(1, 100, 1)));
        t.world.run_for(Duration::from_millis(900));
        let received: usize =
            t.world.host(t.b).app.conversations.values().map(|talk| talk.received.len()).sum();
        assert_eq!(received, usize::from(with_key));
        let state = t.world.host(t.b).endpoint.state(old);
        assert_eq!(state == Some(StateName::Established), !with_key, "{state:?}");
    }
}

#[test]
fn the_initial_window_is_for_the_applications_data_not_for_the_messages_about_keys() {
    let mut t = up(7);
    for host in [t.a, t.b] {
        let (id, now) = (t.id(host), t.world.now());
        let endpoint = &mut t.world.host_mut(host).endpoint;
        endpoint.set_initial_packets(now, id, 10);
        let path = &endpoint.info(id).unwrap().paths[0];
        assert!(path.cwnd >= 9 * usize::from(path.mtu), "{} of {}", path.cwnd, path.mtu);
    }
}

#[test]
fn a_first_message_of_the_program_waits_for_the_keys() {
    let mut t = two_sealed(1, LinkConfig::default());
    t.world.recording = true;
    let host = t.world.host_mut(t.a);
    let connect = sctp::Connect {
        local_port: 5000,
        remote_port: 7,
        init_routes: vec![a_route()],
        local_addresses: host.addresses.clone(),
        config: config(true),
    };
    let secret = content(77, 200);
    let id = host.endpoint.connect_and_send(base::Time::ZERO, connect, Ppid(0), secret.clone()).unwrap();
    host.app.keying.begin(base::Time::ZERO, id, &mut host.endpoint);
    host.app.conversations.insert(id, Conversation::default());
    t.world.run_for(seconds(5));
    assert_eq!(t.talk(t.b).received[0].bytes, secret);
    let has_it = |r: &&sim::Record| r.packet.windows(secret.len()).any(|w| w == secret);
    assert!(t.world.records.iter().filter(has_it).all(|r| is_sealed(&r.packet)));
}

#[test]
fn keys_are_agreed_on_over_a_path_that_drops_large_packets_without_a_word() {
    for mtu in [576, 1280, 1400, 1500] {
        let link = LinkConfig { mtu, reports_mtu: false, ..LinkConfig::default() };
        let mut t = two_sealed(1, link);
        t.connect_with(config(true), sends(messages(3, 100, 1)));
        let b = t.b;
        let arrived = |w: &World| w.host(b).app.conversations.values().any(|c| c.received.len() == 3);
        assert!(t.world.run_until(at_seconds(1), arrived), "{mtu}");
        // The MTU of the path is found as usual afterwards.
        let id = t.id(t.a);
        for n in 0..100 {
            let now = t.world.now();
            let engine = &mut t.world.host_mut(t.a).endpoint;
            engine.send(now, id, StreamId(0), Ppid(0), content(n, 3000), Default::default()).unwrap();
            t.world.run_for(Duration::from_millis(100));
        }
        t.world.run_for(seconds(5));
        assert_eq!(t.talk(t.b).received.len(), 103, "{mtu}");
        assert!(t.info(t.a).paths[0].mtu <= mtu as u16, "{mtu}");
    }
}
