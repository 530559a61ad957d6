//! Tests of REGISTER (RFC 3261 section 10.3), digest (section 22), Path (RFC 3327) and flows (RFC 5626).

use std::time::Duration;

use sip::{Change, Name};

use crate::world::*;

fn contacts(sent: &Sent) -> Vec<String> {
    sent.message.elements(Name::Contact).map(|c| String::from_utf8_lossy(c).into_owned()).collect()
}

#[test]
fn a_registration_lists_all_contacts_with_their_time_left() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "Expires: 100\n");
    world.pass(Duration::from_secs(40));
    let sent = world.register("bob", udp(CAROL), "");
    assert_eq!(sent.what(), "200");
    assert_eq!(
        contacts(&sent),
        [
            format!("<sip:bob@{BOB};transport=udp>;expires=60"),
            format!("<sip:bob@{CAROL};transport=udp>;expires=3600")
        ]
    );
    assert_eq!(world.changes.len(), 2);
}

#[test]
fn a_binding_ends_with_its_time() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "Expires: 90\n");
    world.pass(Duration::from_millis(89_999));
    assert_eq!(world.put(udp(ALICE), &invite(udp(ALICE), "")).len(), 2);
    world.pass(Duration::from_millis(1));
    let late = invite(udp(ALICE), "").replace("i1", "i2");
    assert_eq!(summary(&world.put(udp(ALICE), &late)), pairs(&[("404", ALICE)]));
    // The sweep also reports the removal to the store.
    world.pass(Duration::from_secs(60));
    assert!(matches!(world.changes.last(), Some(Change::Remove { .. })));
    assert_eq!(world.proxy.location().contacts(), 0);
}

#[test]
fn expires_zero_removes_a_contact_and_star_removes_all_contacts() {
    for more in ["Expires: 0\n", "Contact: *\nExpires: 0\n"] {
        let mut world = World::new(config());
        world.register("bob", udp(BOB), "");
        let sent = world.register("bob", udp(BOB), more);
        assert_eq!((sent.what().as_str(), contacts(&sent).len()), ("200", 0), "{more}");
    }
}

#[test]
fn an_invalid_registration_is_refused() {
    for (more, status) in [
        ("Contact: *\n", "400"),
        ("Contact: *\nContact: <sip:x@y>\nExpires: 0\n", "400"),
        // RFC 4475 section 3.1.2.13 requires a rejection.
        ("Contact: sip:user@example.com?Route=%3Csip:sip.example.com%3E\n", "400"),
        ("Expires: 59\n", "423"),
    ] {
        let mut world = World::new(config());
        let sent = world.register("bob", udp(BOB), more);
        assert_eq!(sent.what(), status, "{more}");
        assert!(world.changes.is_empty());
    }
}

#[test]
fn contacts_with_unknown_parameters_or_escaped_headers_are_accepted() {
    for contact in [
        // Sections 3.3.12 to 3.3.14.
        "Contact: sip:+19725552222@gw1.example.net;unknownparam\n",
        "Contact: <sip:+19725552222@gw1.example.net;unknownparam>\n",
        "Contact: <sip:user@example.com?Route=%3Csip:sip.example.com%3E>\n",
    ] {
        let mut world = World::new(config());
        assert_eq!(world.register("bob", udp(BOB), contact).what(), "200", "{contact}");
    }
}

#[test]
fn other_peoples_domains_cannot_be_registered() {
    let mut world = World::new(config());
    let text = request("REGISTER", "sip:example.com", "bob", "bob", "r1", udp(BOB), "");
    let text = text.replace("To: <sip:bob@example.com>", "To: <sip:bob@other.example>");
    assert_eq!(summary(&world.put(udp(BOB), &text)), pairs(&[("404", BOB)]));
}

#[test]
fn a_register_with_an_older_cseq_of_the_same_call_id_gets_500() {
    let mut world = World::new(config());
    let text = |number: u32| {
        let contact = format!("Contact: <sip:bob@{BOB}>\n");
        request("REGISTER", "sip:example.com", "bob", "bob", &format!("r{number}"), udp(BOB), &contact)
    };
    assert_eq!(world.put(udp(BOB), &text(5))[0].what(), "200");
    assert_eq!(world.put(udp(BOB), &text(4))[0].what(), "500");
    assert_eq!(world.put(udp(BOB), &text(6))[0].what(), "200");
    assert_eq!(world.proxy.location().contacts(), 1);
}

#[test]
fn contacts_of_one_user_are_bounded() {
    let mut config = config();
    config.location.contacts = 2;
    let mut world = World::new(config);
    for (address, status) in [(ALICE, "200"), (BOB, "200"), (CAROL, "403")] {
        assert_eq!(world.register("bob", udp(address), "").what(), status);
    }
}

#[test]
fn calls_take_the_path_of_the_registration() {
    let mut world = World::new(config());
    let sent = world.register("bob", udp(BOB), "Path: <sip:192.0.2.50;lr>\n");
    assert_eq!(sent.value(Name::Path), "<sip:192.0.2.50;lr>");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", "192.0.2.50:5060")]));
    assert_eq!(sent[1].value(Name::Route), "<sip:192.0.2.50;lr>");
}

#[test]
fn an_instance_that_moves_replaces_its_binding() {
    let mut world = World::new(config());
    for address in [BOB, CAROL] {
        let more = format!("Contact: <sip:bob@{address}>;+sip.instance=\"<urn:uuid:1>\";reg-id=1\n");
        world.register("bob", udp(address), &more);
    }
    assert_eq!(world.proxy.location().contacts(), 1);
    assert_eq!(summary(&world.put(udp(ALICE), &invite(udp(ALICE), "")))[1].1, CAROL);
}

fn authorization(challenge: &Sent, user: &str, password: &str) -> String {
    answer_to(challenge, user, password)
}

#[test]
fn only_the_right_password_registers() {
    let mut world = World::new(with_password());
    let challenge = world.register("alice", udp(ALICE), "");
    assert_eq!(challenge.what(), "401");
    for (user, password, status) in
        [("alice", "wrong", "401"), ("bob", "secret", "401"), ("alice", "secret", "200")]
    {
        let more = authorization(&challenge, user, password);
        assert_eq!(world.register("alice", udp(ALICE), &more).what(), status, "{user} {password}");
    }
    let challenge = world.register("alice", udp(ALICE), "");
    let more = authorization(&challenge, "alice", "secret");
    assert_eq!(world.register("bob", udp(BOB), &more).what(), "403");
}

#[test]
fn an_old_nonce_is_stale() {
    let mut world = World::new(with_password());
    let challenge = world.register("alice", udp(ALICE), "");
    world.pass(sip::digest::NONCE_LIFETIME + Duration::from_secs(1));
    let more = authorization(&challenge, "alice", "secret");
    let again = world.register("alice", udp(ALICE), &more);
    assert_eq!(again.what(), "401");
    assert!(again.value(Name::WwwAuthenticate).ends_with("stale=true"));
}

#[test]
fn replayed_credentials_get_401_with_stale() {
    let mut world = World::new(with_password());
    let challenge = world.register("alice", udp(ALICE), "");
    let more = authorization(&challenge, "alice", "secret");
    assert_eq!(world.register("alice", udp(ALICE), &more).what(), "200");
    let replayed = world.register("alice", udp(CAROL), &more);
    assert_eq!(replayed.what(), "401");
    assert!(replayed.value(Name::WwwAuthenticate).ends_with("stale=true"));
    assert_eq!(world.proxy.location().contacts(), 1);
}

#[test]
fn credentials_with_an_algorithm_that_was_not_offered_get_401() {
    let mut config = with_password();
    config.authentication.as_mut().unwrap().algorithms = vec![sip::digest::Algorithm::Sha256];
    let mut world = World::new(config);
    let challenge = world.register("alice", udp(ALICE), "");
    assert_eq!(challenge.message.all(Name::WwwAuthenticate).count(), 1);
    let more = authorization(&challenge, "alice", "secret");
    assert_eq!(world.register("alice", udp(ALICE), &more).what(), "401");
}

#[test]
fn require_outbound_is_returned_only_for_a_direct_tcp_outbound_registration() {
    let flow = "Contact: <sip:bob@10.0.0.1;transport=tcp>;+sip.instance=\"<urn:uuid:1>\";reg-id=1\n";
    let supported = "Supported: path, Outbound\n";
    let both = format!("{supported}{flow}");
    let edge = format!("{both}Via: SIP/2.0/TCP 192.0.2.9;branch=z9hG4bKx\n");
    for (from, more, required) in [
        (tcp(BOB, 7), both.as_str(), "outbound"),
        (tcp(BOB, 7), flow, ""),
        (tcp(BOB, 7), &both.replace(";reg-id=1", ""), ""),
        (tcp(BOB, 7), &edge, ""),
        (udp(BOB), &both, ""),
    ] {
        let sent = World::new(config()).register("bob", from, more);
        assert_eq!((sent.what().as_str(), sent.value(Name::Require).as_str()), ("200", required), "{more}");
    }
}
