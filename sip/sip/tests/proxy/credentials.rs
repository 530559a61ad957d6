//! Tests that credentials are valid only for the request for which they were made (RFC 7616 section 3.4.6, RFC 3261 section 22.4).

use crate::world::*;

/// Returns a request from alice to a URI. `more` contains further fields.
fn of_alice(method: &str, uri: &str, branch: &str, more: &str) -> String {
    let contact = format!("Contact: <sip:alice@{ALICE}>\n{more}");
    request(method, uri, "alice", "bob", branch, udp(ALICE), &contact)
}

/// Returns a proxy that requires passwords, with bob registered.
fn guarded() -> World {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    world.proxy.set_config(with_password());
    world
}

/// Sends a request for `uri` with credentials that were computed for the URI `made_for`. Returns the status of the rejection, or the
/// forwarded method.
fn asked(world: &mut World, method: &str, uri: &str, made_for: &str, more: &str) -> String {
    let challenge = world.put(udp(ALICE), &of_alice(method, uri, "x1", more)).remove(0);
    assert!(["401", "407"].contains(&&*challenge.what()), "{}", challenge.what());
    let more = answer_for(&challenge, "alice", "secret", method, made_for) + more;
    let sent = world.put(udp(ALICE), &of_alice(method, uri, "x2", &more));
    sent.iter().map(Sent::what).find(|what| what != "100").unwrap_or_default()
}

#[test]
fn credentials_made_for_another_uri_get_403() {
    let leaks = [
        ("sip:+19005550100@other.example", "sip:attacker@evil.example"),
        ("sip:+19005550100@other.example", "sip:other.example"),
        ("sip:+19005550100@other.example", "sip:+19005550100@evil.example"),
        ("sip:bob@example.com", "sip:carol@example.com"),
        ("sip:bob@example.com", "sip:example.com"),
        ("sip:bob@example.com", "tel:+19005550100"),
    ];
    for method in ["INVITE", "MESSAGE"] {
        for (uri, made_for) in leaks {
            let mut world = guarded();
            assert_eq!(asked(&mut world, method, uri, made_for, ""), "403", "{method} {uri} by {made_for}");
            // A later request with credentials for its own URI is served.
            world.pass(std::time::Duration::from_secs(40));
            assert_eq!(asked(&mut world, method, uri, uri, ""), method, "{method} {uri}");
        }
    }
}

#[test]
fn credentials_refused_for_a_wrong_uri_cannot_be_used_again() {
    let mut world = World::new(with_password());
    let uri = "sip:zoe@other.example";
    let challenge = world.put(udp(ALICE), &of_alice("INVITE", uri, "x1", "")).remove(0);
    let leaked = answer_for(&challenge, "alice", "secret", "INVITE", "sip:attacker@evil.example");
    let shown = world.put(udp(CAROL), &of_alice("INVITE", uri, "x2", &leaked));
    assert_eq!(summary(&shown), pairs(&[("403", CAROL)]));
    let again = world.put(udp(CAROL), &of_alice("INVITE", "sip:attacker@evil.example", "x3", &leaked));
    assert_eq!(summary(&again), pairs(&[("407", CAROL)]));
}

#[test]
fn a_register_needs_credentials_made_for_this_registrars_uri() {
    for (made_for, status) in [
        ("sip:example.com", "200"),
        ("sip:192.0.2.100:5060", "200"),
        ("sips:EXAMPLE.com;transport=tls", "200"),
        ("sip:evil.example", "403"),
        ("sip:bob@example.com", "403"),
        ("/dir/index.html", "400"),
    ] {
        let mut world = World::new(with_password());
        let challenge = world.register("alice", udp(ALICE), "");
        let more = answer_for(&challenge, "alice", "secret", "REGISTER", made_for);
        assert_eq!(world.register("alice", udp(ALICE), &more).what(), status, "{made_for}");
    }
}

#[test]
fn credentials_survive_uri_changes_by_other_proxies() {
    let ours = "192.0.2.100:5060";
    for (uri, made_for) in [
        ("sip:zoe@other.example;transport=tcp", "sip:zoe@other.example"),
        ("sip:zoe@OTHER.example:5060", "sip:z%6fe@other.example"),
        ("sip:bob@example.com", &format!("sip:bob@{ours}")),
        ("sip:+12015550123@other.example;user=phone", "tel:+1-201-555-0123"),
    ] {
        let mut world = guarded();
        assert_eq!(asked(&mut world, "INVITE", uri, made_for, ""), "INVITE", "{uri} by {made_for}");
    }
}

#[test]
fn credentials_are_valid_with_a_loose_or_strict_route_to_this_proxy() {
    let loose = "Route: <sip:192.0.2.100:5060;lr>\n";
    let mut world = World::new(with_password());
    assert_eq!(
        asked(&mut world, "INVITE", "sip:zoe@other.example", "sip:zoe@other.example", loose),
        "INVITE"
    );
    // A strict router has put our Route URI into the Request-URI, and the real Request-URI into Route.
    let strict = "Route: <sip:zoe@other.example>\n";
    for made_for in ["sip:zoe@other.example", "sip:192.0.2.100:5060;lr"] {
        let mut world = World::new(with_password());
        let what = asked(&mut world, "INVITE", "sip:192.0.2.100:5060;lr", made_for, strict);
        assert_eq!(what, "INVITE", "{made_for}");
    }
}

#[test]
fn a_call_that_was_let_pass_is_cancelled_without_credentials() {
    let mut world = World::new(with_password());
    let uri = "sip:zoe@other.example";
    let challenge = world.put(udp(ALICE), &of_alice("INVITE", uri, "x1", "")).remove(0);
    let more = answer_for(&challenge, "alice", "secret", "INVITE", uri);
    let invite = world.put(udp(ALICE), &of_alice("INVITE", uri, "x2", &more)).remove(1);
    world.put_message(tcp(OTHER, 5), &invite.answer(180));
    let sent = world.put(udp(ALICE), &of_alice("CANCEL", uri, "x2", ""));
    assert_eq!(summary(&sent), pairs(&[("200", ALICE), ("CANCEL", OTHER)]));
}
