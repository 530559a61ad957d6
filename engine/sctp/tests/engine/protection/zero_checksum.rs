//! The checksum of sealed packets (RFC 9653): zero for data over UDP, and only there.

use base::Route;
use sctp::EDMID_DTLS_CHUNK;

use super::*;

/// Runs a protected association over `carrier` from the handshake to the shutdown, and records its packets.
fn whole_life(carrier: Carrier, a: AssociationConfig, b: AssociationConfig) -> Two {
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.restart(t.b, EndpointConfig { association: b, ..EndpointConfig::default() });
    t.world.recording = true;
    t.world.connect(t.a, t.b, carrier, a, sends_then_closes(messages(50, 2000, 2)));
    assert_eq!(t.run_to_end(seconds(20)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 50);
    t
}

fn has_zero(packet: &[u8]) -> bool {
    packet[8..12] == [0; 4]
}

/// Reports whether a packet consists of one DTLS chunk.
fn is_one_record(packet: &[u8]) -> bool {
    in_the_clear(packet) == [ChunkType::DTLS]
}

/// Reports whether a packet carries only data and acknowledgements, according to its chunks' names.
fn is_of_data(packet: &[u8]) -> bool {
    chunk_names(packet).split(' ').all(|name| matches!(name, "DATA" | "SACK"))
}

#[test]
//= rfc9653#5.2-1 5.2-2 5.2-3
fn sealed_packets_have_a_checksum_of_zero_over_udp_only() {
    for (carrier, expected) in [(UDP, true), (Carrier::Ip, false)] {
        let t = whole_life(carrier, config(true), config(true));
        let (sealed, clear): (Vec<_>, Vec<_>) =
            t.world.records.iter().partition(|record| is_one_record(&record.packet));
        assert!(sealed.len() > 50 && clear.len() > 5);
        for record in &sealed {
            let names = chunk_names(&record.packet);
            let is_zero = has_zero(&record.packet);
            assert!(!is_zero || (expected && is_of_data(&record.packet)), "{carrier:?} {names}");
        }
        let zeros = sealed.iter().filter(|record| has_zero(&record.packet)).count();
        assert!(if expected { zeros > 50 } else { zeros == 0 }, "{carrier:?}: {zeros}");
        assert!(clear.iter().all(|record| !has_zero(&record.packet)), "{carrier:?}");
    }
}

#[test]
//= rfc9653#5.2-1
fn a_peer_that_announces_another_method_or_none_gets_checksums() {
    let other = AssociationConfig { zero_checksum: Some(EDMID_DTLS_CHUNK + 1), ..config(true) };
    let own = AssociationConfig { zero_checksum: Some(EDMID_DTLS_CHUNK), ..config(true) };
    for (a, b, expected) in
        [(config(true), other.clone(), false), (other, config(true), false), (config(true), own, true)]
    {
        let t = whole_life(UDP, a, b);
        assert_eq!(t.world.records.iter().any(|record| has_zero(&record.packet)), expected);
    }
    // Without protection, the method has no meaning.
    let named = AssociationConfig { zero_checksum: Some(EDMID_DTLS_CHUNK), ..AssociationConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.protection = None;
    t.world.restart(t.b, EndpointConfig { association: named.clone(), ..EndpointConfig::default() });
    t.world.recording = true;
    t.world.connect(t.a, t.b, UDP, named, sends(messages(5, 100, 1)));
    t.world.run_for(seconds(3));
    assert_eq!(t.talk(t.b).received.len(), 5);
    assert!(!t.world.records.iter().any(|record| has_zero(&record.packet)));
}

#[test]
//= rfc9653#5.3-1 5.3-2
fn a_checksum_of_zero_is_accepted_only_from_a_sealed_packet_of_the_association() {
    let mut t = two_sealed(1, LinkConfig::default());
    let (a, b) = (t.a, t.b);
    t.world.recording = true;
    t.world.connect(a, b, UDP, config(true), Conversation::default());
    t.world.run_for(seconds(3));
    let route = Route { carrier: UDP, ..b_route() };
    let malformed = |t: &Two| t.world.host(b).endpoint.counters().malformed;
    let first = |t: &Two, name: &str| {
        t.world.records.iter().find(|r| chunk_names(&r.packet).starts_with(name)).unwrap().packet.clone()
    };
    // Unsealed packets of the association, and a sealed one with another port.
    let mut other_port = t.world.records.iter().find(|r| is_one_record(&r.packet)).unwrap().packet.clone();
    other_port[1] ^= 1;
    for mut packet in [first(&t, "INIT"), first(&t, "COOKIE ECHO"), first(&t, "SACK"), other_port] {
        packet[8..12].fill(0);
        let before = malformed(&t);
        t.world.inject(b, route, &packet);
        assert_eq!(malformed(&t), before + 1, "{}", chunk_names(&packet));
    }
    // A changed record with a checksum of zero passes the parser, and does not open.
    send(&mut t, a, 0, content(1, 100));
    t.world.set_filter(|record| {
        let mut packet = record.packet.clone();
        packet[30] ^= 1;
        Fate::Replace(packet)
    });
    let before = (malformed(&t), t.world.host(b).endpoint.counters().not_opened);
    t.world.run_for(Duration::from_millis(300));
    let after = (malformed(&t), t.world.host(b).endpoint.counters().not_opened);
    assert!(after.0 == before.0 && after.1 > before.1, "{before:?} {after:?}");
    assert!(t.talk(b).received.is_empty());
}

#[test]
fn an_advertisement_in_the_clear_keeps_the_checksum() {
    let advertised =
        SendBufferConfig { cadence: SendBufferCadence::EveryPacket, ..SendBufferConfig::default() };
    let settings = AssociationConfig { advertisement: Some(advertised), ..config(true) };
    let t = whole_life(UDP, settings.clone(), settings);
    let (mut advertising, mut others) = (0, 0);
    for record in t.world.records.iter().filter(|r| in_the_clear(&r.packet).contains(&ChunkType::DTLS)) {
        let is_alone = is_one_record(&record.packet);
        *(if is_alone { &mut others } else { &mut advertising }) += 1;
        assert!(is_alone || !has_zero(&record.packet));
    }
    assert!(advertising > 20 && others > 20, "{advertising} {others}");
}

#[test]
//= rfc9653#5.2-4
fn a_sealed_packet_with_asconf_has_its_checksum() {
    let extensions = Extensions::NONE.with(Extension::Auth).with(Extension::AddressReconfiguration);
    let settings = AssociationConfig { extensions, ..config(true) };
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    let (a, b) = (t.a, t.b);
    t.world.restart(b, EndpointConfig { association: settings.clone(), ..EndpointConfig::default() });
    t.world.recording = true;
    t.world.connect(a, b, UDP, settings, Conversation::default());
    t.world.run_for(seconds(3));
    let (now, id) = (t.world.now(), t.id(a));
    t.world.host_mut(a).endpoint.add_local_address(now, id, "10.0.1.77".parse().unwrap()).unwrap();
    t.world.run_for(seconds(1));
    let asconf = t.world.records.iter().find(|r| chunk_names(&r.packet).contains("ASCONF"));
    assert!(!has_zero(&asconf.expect("an ASCONF").packet));
    assert!(t.world.records.iter().any(|r| has_zero(&r.packet)));
}

#[test]
fn data_arrives_if_the_network_drops_packets_with_a_checksum_of_zero() {
    let mut t = two_sealed(1, LinkConfig::default());
    let (a, b) = (t.a, t.b);
    t.world.recording = true;
    t.world.set_filter(|record| if has_zero(&record.packet) { Fate::Drop } else { Fate::Pass });
    t.world.connect(a, b, UDP, config(true), sends_then_closes(messages(60, 2000, 2)));
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(b).received.len(), 60);
    let zeros = t.world.records.iter().filter(|record| has_zero(&record.packet)).count();
    assert!((1..100).contains(&zeros), "{zeros}");
}

#[test]
fn packets_of_a_shutdown_and_heartbeats_have_a_checksum() {
    let mut t = two_sealed(1, LinkConfig::default());
    let (a, b) = (t.a, t.b);
    t.world.recording = true;
    t.world.connect(a, b, UDP, config(true), sends_then_closes(messages(200, 2000, 2)));
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    for name in ["SHUTDOWN", "HEARTBEAT"] {
        let named = t.world.records.iter().filter(|r| chunk_names(&r.packet).contains(name));
        assert!(named.map(|r| assert!(!has_zero(&r.packet))).count() > 0, "{name}");
    }
}

#[test]
fn data_arrives_if_the_network_begins_to_drop_packets_with_a_checksum_of_zero() {
    for sent_before in [0, 5_000] {
        let mut t = two_sealed(1, LinkConfig::default());
        let (a, b) = (t.a, t.b);
        t.world.connect(a, b, UDP, config(true), sends(messages(sent_before, 1200, 2)));
        t.world.run_for(seconds(60));
        assert_eq!(t.talk(b).received.len(), sent_before);
        t.world.recording = true;
        t.world.set_filter(|record| if has_zero(&record.packet) { Fate::Drop } else { Fate::Pass });
        for n in 0..200 {
            send(&mut t, a, 0, content(n, 1200));
            t.world.run_for(Duration::from_millis(100));
        }
        t.world.run_for(seconds(5));
        assert_eq!(t.talk(b).received.len(), sent_before + 200);
        let zeros: Vec<base::Time> =
            t.world.records.iter().filter(|record| has_zero(&record.packet)).map(|r| r.at).collect();
        let (first, last) = (zeros[0], zeros[zeros.len() - 1]);
        assert!(last.since(first) < seconds(8), "{first:?} {last:?}");
    }
}

#[test]
fn losses_by_congestion_do_not_end_checksums_of_zero() {
    let loss = sim::Loss::Uniform(0.02);
    let link = LinkConfig { rate: 2_000_000, queue_packets: 20, loss, ..LinkConfig::default() };
    let mut t = two_sealed(1, link);
    let (a, b) = (t.a, t.b);
    t.world.connect(a, b, UDP, config(true), sends(messages(12_000, 1200, 2)));
    t.world.run_for(seconds(40));
    t.world.recording = true;
    t.world.run_for(seconds(20));
    let repeated = t.info(a).counters.data_retransmitted;
    assert!(repeated > 200, "{repeated}");
    let zeros = t.world.records.iter().filter(|record| has_zero(&record.packet)).count();
    assert!(zeros > 1000, "{zeros}");
}

#[test]
fn an_acknowledgement_alone_has_a_checksum() {
    let t = whole_life(UDP, config(true), config(true));
    let alone =
        t.world.records.iter().filter(|r| is_one_record(&r.packet) && chunk_names(&r.packet) == "SACK");
    assert!(alone.map(|r| assert!(!has_zero(&r.packet))).count() > 5);
}

#[test]
fn abandoned_data_counts_as_not_arrived() {
    let extensions = Extensions::NONE.with(Extension::PartialReliability);
    let settings = AssociationConfig { extensions, ..config(true) };
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    let (a, b) = (t.a, t.b);
    t.world.restart(b, EndpointConfig { association: settings.clone(), ..EndpointConfig::default() });
    t.world.recording = true;
    t.world.connect(a, b, UDP, settings, Conversation::default());
    t.world.run_for(seconds(3));
    t.world.set_filter(|record| if has_zero(&record.packet) { Fate::Drop } else { Fate::Pass });
    for n in 0..200 {
        let (id, now) = (t.id(a), t.world.now());
        let reliability = sctp::Reliability::Retransmissions(0);
        let options = sctp::SendOptions { reliability, ..Default::default() };
        let endpoint = &mut t.world.host_mut(a).endpoint;
        endpoint.send(now, id, StreamId(0), Ppid(0), content(n, 100), options).unwrap();
        t.world.run_for(Duration::from_millis(50));
    }
    t.world.run_for(seconds(2));
    let received = t.talk(b).received.len();
    assert!((100..200).contains(&received), "{received}");
}
