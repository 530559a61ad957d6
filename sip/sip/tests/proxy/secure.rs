//! Tests of SIPS URIs and TLS (RFC 3261 section 26.2, RFC 5630, RFC 5922).

use sip::proxy::{Listener, NextHop, ProxyConfig};
use sip::{ConnectionId, Hop, Name, Transport};

use crate::world::*;

/// Returns the usual settings, with a TLS listener at port 5061, and with secure.example as a next hop over TLS.
pub(crate) fn with_tls() -> ProxyConfig {
    let mut config = config();
    let address = "192.0.2.100:5061".parse().unwrap();
    config.listeners.push(Listener { transport: Transport::Tls, address });
    let domain = "secure.example".to_owned();
    let address = "192.0.2.200:5061".parse().unwrap();
    config.next_hops.push(NextHop { domain, transport: Transport::Tls, address });
    config
}

pub(crate) fn tls(address: &str, connection: u64) -> Hop {
    Hop { listener: 2, transport: Transport::Tls, connection: Some(ConnectionId(connection)), ..udp(address) }
}

fn sips(uri: &str) -> String {
    request("INVITE", uri, "alice", "bob", "i1", tls(ALICE, 1), "")
}

#[test]
fn a_sips_request_goes_only_to_contacts_behind_tls_and_is_recorded_as_sips() {
    let mut world = World::new(with_tls());
    world.register("bob", udp(BOB), "");
    let sent = world.put(tls(ALICE, 1), &sips("sips:bob@example.com"));
    assert_eq!(summary(&sent), pairs(&[("404", ALICE)]));
    world.register("bob", tls(CAROL, 3), "");
    let sent = world.put(tls(ALICE, 1), &sips("sips:bob@example.com").replace("i1", "i2"));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", CAROL)]));
    assert_eq!(sent[1].hop.transport, Transport::Tls);
    let recorded = sent[1].value(Name::RecordRoute);
    assert!(recorded.starts_with("<sips:192.0.2.100:5061;lr;"), "{recorded}");
}

#[test]
fn only_a_tls_next_hop_of_a_configured_domain_must_prove_its_domain() {
    let mut world = World::new(with_tls());
    for (uri, domain, transport) in [
        ("sips:zoe@secure.example", Some("secure.example"), Transport::Tls),
        ("sip:zoe@secure.example", Some("secure.example"), Transport::Tls),
        ("sip:zoe@other.example", None, Transport::Tcp),
        ("sips:zoe@192.0.2.7", None, Transport::Tls),
    ] {
        let sent = world.put(tls(ALICE, 1), &sips(uri).replace("i1", &uri.replace([':', '@'], "")));
        assert_eq!((sent[1].domain.as_deref(), sent[1].hop.transport), (domain, transport), "{uri}");
    }
    let sent = world.put(tls(ALICE, 1), &sips("sips:zoe@192.0.2.7").replace("i1", "i8"));
    assert_eq!(sent[1].to(), "192.0.2.7:5061");
}

#[test]
fn a_sips_request_is_sent_by_nothing_but_tls() {
    for uri in
        ["sips:zoe@other.example", "sips:zoe@192.0.2.7;transport=udp", "sips:zoe@192.0.2.7;transport=sctp"]
    {
        let mut world = World::new(with_tls());
        assert_eq!(summary(&world.put(tls(ALICE, 1), &sips(uri))), pairs(&[("416", ALICE)]), "{uri}");
    }
}
