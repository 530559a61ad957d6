//! Tests of the negotiation of extensions.

use sctp::{AssociationConfig, EndpointConfig, Extension, Extensions};
use sim::{Close, Conversation, Fate, InTheClear, LinkConfig, chunk_names};

use crate::support::{Two, b_route, messages, seconds, sends, two_with};

fn offering(extensions: Extensions) -> AssociationConfig {
    AssociationConfig { extensions, ..AssociationConfig::default() }
}

#[test]
//= rfc5061#4.2.6-2 4.2.7-4
fn only_what_both_ends_offer_is_used_and_both_know_it() {
    let [a, b] = [
        [Extension::Interleaving, Extension::StreamReconfiguration],
        [Extension::StreamReconfiguration, Extension::PartialReliability],
    ]
    .map(|list| offering(list.into_iter().collect()));
    let endpoint = EndpointConfig { association: b, ..EndpointConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), endpoint);
    t.connect_with(a, Conversation::default());
    t.world.run_for(seconds(2));
    let expected = Extensions::NONE.with(Extension::StreamReconfiguration);
    for host in [t.a, t.b] {
        let info = t.world.host(host).endpoint.info(t.id(host)).expect("an association");
        assert_eq!(info.extensions, expected);
    }
}

/// Creates an association whose ends announce these alternate error detection methods (zero checksum), and records its packets.
fn with_methods(a: Option<u32>, b: Option<u32>) -> Two {
    let config = |zero_checksum| AssociationConfig { zero_checksum, ..AssociationConfig::default() };
    let endpoint = EndpointConfig { association: config(b), ..EndpointConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), endpoint);
    t.world.recording = true;
    t.connect_with(config(a), sends(messages(20, 2000, 2)));
    t.run_to_established();
    t.world.run_for(seconds(2));
    assert_eq!(t.talk(t.b).received.len(), 20);
    t
}

fn has_zero_checksum(packet: &[u8]) -> bool {
    packet[8..12] == [0; 4]
}

#[test]
//= rfc9653#4-2 5.2-2 5.2-3
fn zero_checksum_with_a_common_method_excludes_handshake_and_shutdown_complete() {
    let mut t = with_methods(Some(1), Some(1));
    let (a, id) = (t.a, t.id(t.a));
    t.world.host_mut(a).app.conversations.get_mut(&id).unwrap().close = Close::After(0);
    t.run_to_end(seconds(10));
    for record in &t.world.records {
        let names = chunk_names(&record.packet);
        let whole =
            names.starts_with("INIT") || names.starts_with("COOKIE ECHO") || names.contains("COMPLETE");
        assert_eq!(has_zero_checksum(&record.packet), !whole, "{names}");
    }
}

#[test]
//= rfc9653#5.2-1 5.3-1 5.3-2
fn without_a_common_method_packets_have_checksums_and_zero_is_accepted_if_announced() {
    let _clear = InTheClear::begin();
    for (a, b) in [(None, None), (Some(1), None), (None, Some(1)), (Some(1), Some(2))] {
        let mut t = with_methods(a, b);
        assert!(!t.world.records.iter().any(|r| has_zero_checksum(&r.packet)));
        let data = |r: &&sim::Record| chunk_names(&r.packet).starts_with("DATA");
        let mut packet = t.world.records.iter().find(data).unwrap().packet.clone();
        packet[8..12].fill(0);
        let before = t.world.host(t.b).endpoint.counters().malformed;
        t.world.inject(t.b, b_route(), &packet);
        let refused = t.world.host(t.b).endpoint.counters().malformed - before;
        assert_eq!(refused, u64::from(b.is_none()), "{a:?} and {b:?}");
    }
}

/// Reports whether the association comes up if the INIT ACK arrives with a checksum of zero.
fn opens_by_init_ack_without_checksum(announced: Option<u32>) -> bool {
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.set_filter(|record| {
        let mut packet = record.packet.clone();
        if chunk_names(&packet) == "INIT ACK" {
            packet[8..12].fill(0);
        }
        Fate::Replace(packet)
    });
    let config = AssociationConfig { zero_checksum: announced, ..AssociationConfig::default() };
    t.connect_with(config, Conversation::default());
    t.world.run_for(seconds(2));
    !t.events(t.b).is_empty()
}

#[test]
fn an_init_ack_with_a_zero_checksum_is_accepted_only_if_the_init_announced_it() {
    assert!(opens_by_init_ack_without_checksum(Some(1)));
    assert!(!opens_by_init_ack_without_checksum(None));
}

#[test]
fn no_init_ends_in_a_parameter_of_four_octets() {
    let all = [Extension::PartialReliability, Extension::Interleaving, Extension::StreamReconfiguration];
    for extensions in [all[..1].iter().copied().collect(), all.into_iter().collect::<Extensions>()] {
        let endpoint = EndpointConfig { association: offering(extensions), ..EndpointConfig::default() };
        let mut t = two_with(1, LinkConfig::default(), endpoint);
        t.world.recording = true;
        t.connect_with(offering(extensions), Conversation::default());
        t.run_to_established();
        let inits = t.world.records.iter().filter(|r| chunk_names(&r.packet).starts_with("INIT"));
        assert_eq!(inits.map(|r| assert!(!r.packet.ends_with(&[0xc0, 0, 0, 4]))).count(), 2);
    }
}

#[test]
//= rfc9653#5.2-4
fn a_packet_with_asconf_has_its_checksum_whatever_was_agreed() {
    let _clear = InTheClear::begin();
    let config = AssociationConfig {
        zero_checksum: Some(1),
        extensions: Extensions::NONE.with(Extension::Auth).with(Extension::AddressReconfiguration),
        ..AssociationConfig::default()
    };
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), endpoint);
    t.world.recording = true;
    t.connect_with(config, Conversation::default());
    t.run_to_established();
    let (now, id) = (t.world.now(), t.id(t.a));
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    endpoint.add_local_address(now, id, "10.0.1.77".parse().unwrap()).unwrap();
    t.world.run_for(seconds(1));
    let asconf = |r: &&sim::Record| chunk_names(&r.packet).contains("AUTH ASCONF");
    let asconf = t.world.records.iter().find(asconf).expect("an ASCONF");
    assert!(!has_zero_checksum(&asconf.packet));
    assert!(t.world.records.iter().any(|r| has_zero_checksum(&r.packet)));
}

#[test]
//= rfc9653#5.3-3
fn a_wrong_checksum_that_is_not_zero_is_refused_all_the_same() {
    let mut t = with_methods(Some(1), Some(1));
    let data = |r: &&sim::Record| chunk_names(&r.packet).starts_with("DATA");
    let mut packet = t.world.records.iter().find(data).unwrap().packet.clone();
    packet[8] = 1;
    t.world.inject(t.b, b_route(), &packet);
    assert_eq!(t.world.host(t.b).endpoint.counters().malformed, 1);
}

#[test]
//= rfc9653#5.3-4
fn an_init_and_a_cookie_echo_without_checksum_are_not_taken_whatever_was_announced() {
    for unsigned in ["INIT", "COOKIE ECHO"] {
        let config = AssociationConfig { zero_checksum: Some(1), ..AssociationConfig::default() };
        let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
        let mut t = two_with(1, LinkConfig::default(), endpoint);
        t.world.set_filter(move |record| {
            let mut packet = record.packet.clone();
            if chunk_names(&packet).starts_with(unsigned) && !chunk_names(&packet).starts_with("INIT ACK") {
                packet[8..12].fill(0);
            }
            Fate::Replace(packet)
        });
        t.connect_with(config, Conversation::default());
        t.world.run_for(seconds(2));
        assert!(t.events(t.b).is_empty(), "{unsigned}");
        assert!(t.world.host(t.b).endpoint.counters().malformed > 0, "{unsigned}");
    }
}
