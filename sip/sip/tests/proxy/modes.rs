//! Tests of the modes other than the stateful proxy: the redirect server (RFC 3261 section 8.3) and the stateless proxy (section 16.11).

use sip::proxy::{Mode, ProxyConfig};
use sip::{Message, Name};

use crate::world::*;

fn world(mode: Mode) -> World {
    World::new(ProxyConfig { mode, ..config() })
}

/// Returns the CANCEL for an INVITE, or the ACK for the rejection of an INVITE. `method` replaces the method, and `to_tag` is appended to
/// the To value.
fn like_invite(method: &str, invite: &str, to_tag: &str) -> String {
    let to = format!("To: <sip:bob@example.com>{to_tag}");
    invite.replace("INVITE", method).replace("To: <sip:bob@example.com>", &to)
}

fn contacts(sent: &Sent) -> Vec<String> {
    sent.message.elements(Name::Contact).map(|c| String::from_utf8_lossy(c).into_owned()).collect()
}

#[test]
fn a_redirect_server_answers_with_the_users_contacts() {
    let mut world = world(Mode::Redirect);
    world.register("bob", udp(BOB), "");
    let second = format!("Contact: <sip:bob@{CAROL};transport=tcp>;q=0.5;expires=120\n");
    world.register("bob", udp(BOB), &second);
    let asked = invite(udp(ALICE), "");
    let sent = world.put(udp(ALICE), &asked);
    assert_eq!(summary(&sent), pairs(&[("302", ALICE)]));
    let expected = [
        format!("<sip:bob@{BOB};transport=udp>;q=1.000;expires=3600"),
        format!("<sip:bob@{CAROL};transport=tcp>;q=0.500;expires=120"),
    ];
    assert_eq!(contacts(&sent[0]), expected);
    assert!(sent[0].value(Name::To).contains(";tag="));
    // A retransmission of the INVITE gets the same response. The ACK for this response is not forwarded.
    let again = world.put(udp(ALICE), &asked);
    assert_eq!(again[0].message, sent[0].message);
    let tag = sent[0].value(Name::To).split(";tag=").nth(1).unwrap().to_owned();
    assert!(world.put(udp(ALICE), &like_invite("ACK", &asked, &format!(";tag={tag}"))).is_empty());
    let stray = like_invite("ACK", &invite(udp(ALICE), ""), ";tag=other").replace("i1", "i2");
    assert!(world.put(udp(ALICE), &stray).is_empty(), "an ACK for an unknown INVITE is not forwarded");
}

#[test]
fn a_redirect_server_forwards_nothing() {
    let mut world = world(Mode::Redirect);
    let answer = |world: &mut World, uri: &str, method: &str| {
        let text = request(method, uri, "alice", "bob", &format!("b{method}{}", uri.len()), udp(ALICE), "");
        let sent = world.put(udp(ALICE), &text);
        assert_eq!(sent.len(), 1, "{uri}");
        assert_eq!(sent[0].to(), ALICE);
        sent[0].what()
    };
    assert_eq!(answer(&mut world, "sip:nobody@example.com", "INVITE"), "404");
    assert_eq!(answer(&mut world, "sip:bob@other.example", "INVITE"), "403");
    assert_eq!(answer(&mut world, "sip:example.com", "OPTIONS"), "200");
    assert_eq!(answer(&mut world, "sip:nobody@example.com", "CANCEL"), "481");
}

#[test]
fn a_redirect_omits_contacts_that_the_caller_cannot_reach_and_the_proxys_own_address() {
    let mut world = world(Mode::Redirect);
    // The first contact is behind a NAT, the second contact has a Path, and the third contact is the proxy's own address.
    world.register("bob", udp(BOB), "Contact: <sip:bob@10.0.0.7:5060>\n");
    let by_path = "Contact: <sip:bob@192.0.2.77:5060>\nSupported: path\nPath: <sip:192.0.2.66;lr>\n";
    world.register("bob", udp(BOB), by_path);
    world.register("bob", udp(BOB), "Contact: <sip:bob@192.0.2.100:5060>\n");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("480", ALICE)]));
    world.register("carol", udp(CAROL), "");
    let secure = invite(udp(ALICE), "").replace("sip:bob@", "sips:carol@").replace("i1", "i2");
    assert_eq!(
        world.put(udp(ALICE), &secure)[0].what(),
        "480",
        "the URI is a SIPS URI, and carol has no SIPS contact"
    );
}

#[test]
fn a_stateless_proxy_forwards_a_call_and_keeps_no_state_of_the_call() {
    let mut world = world(Mode::Stateless);
    world.register("bob", udp(BOB), "");
    world.pass(std::time::Duration::from_secs(60));
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("INVITE", BOB)]), "the proxy sends no 100");
    assert_eq!(sent[0].value(Name::MaxForwards), "69");
    for status in [100, 180, 200] {
        let back = world.put_message(udp(BOB), &sent[0].answer(status));
        assert_eq!(summary(&back), pairs(&[(&status.to_string(), ALICE)]));
        assert_eq!(back[0].message.all(Name::Via).count(), 1);
    }
    assert_eq!(world.proxy.transactions(), (0, 0));
    assert_eq!(world.proxy.kept_bytes(), 0);
    // Alice's ACK and BYE have the proxy's Record-Route value as their Route.
    let ack = world.put(udp(ALICE), &from_alice("ACK", 1, &sent[0]));
    assert_eq!(summary(&ack), pairs(&[("ACK", BOB)]));
    let bye = world.put(udp(ALICE), &from_alice("BYE", 2, &sent[0]));
    assert_eq!(summary(&bye), pairs(&[("BYE", BOB)]));
    assert_eq!(world.proxy.transactions(), (0, 0));
}

#[test]
fn cancel_ack_and_retransmissions_have_the_branch_and_target_of_their_invite() {
    let mut world = world(Mode::Stateless);
    world.register("bob", udp(BOB), "Contact: <sip:bob@192.0.2.2:5060>;q=0.4\n");
    world.register("bob", udp(BOB), "Contact: <sip:bob@192.0.2.3:5060>;q=0.9\n");
    world.register("bob", udp(BOB), "Contact: <sip:bob@192.0.2.4:5060>;q=0.9\n");
    let asked = invite(udp(ALICE), "");
    let mut sent = world.put(udp(ALICE), &asked);
    sent.extend(world.put(udp(ALICE), &asked));
    sent.extend(world.put(udp(ALICE), &like_invite("CANCEL", &asked, "")));
    sent.extend(world.put(udp(ALICE), &like_invite("ACK", &asked, ";tag=uas")));
    let expected = ["INVITE", "INVITE", "CANCEL", "ACK"].map(|what| (what, CAROL));
    assert_eq!(
        summary(&sent),
        pairs(&expected),
        "the contact with the highest q; among contacts with equal q, the first URI in byte order"
    );
    assert!(sent.iter().all(|one| one.branch() == sent[0].branch()));
    assert_eq!(sent[0].message, sent[1].message);
    let other = world.put(udp(ALICE), &asked.replace("i1", "i2"));
    assert_ne!(other[0].branch(), sent[0].branch());
}

#[test]
fn a_response_leaves_over_the_connection_on_which_its_request_arrived() {
    let mut world = world(Mode::Stateless);
    world.register("bob", udp(BOB), "");
    let from = tcp("192.0.2.1:40000", 17);
    let sent = world.put(from, &invite(tcp("10.0.0.1:5060", 17), ""));
    let back = world.put_message(udp(BOB), &sent[0].answer(200));
    assert_eq!(back[0].hop.connection, from.connection);
    assert_eq!(back[0].hop.address.ip(), from.address.ip());
}

#[test]
fn a_response_whose_via_the_proxy_did_not_write_is_dropped() {
    let mut world = world(Mode::Stateless);
    world.register("bob", udp(BOB), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    let answer = sent[0].answer(200);
    let via = String::from_utf8(answer.first(Name::Via).unwrap().to_vec()).unwrap();
    let forge = |value: &str| {
        let mut forged: Message = answer.clone();
        forged.replace_first(Name::Via, value.as_bytes());
        forged
    };
    let token = via.split("source=").nth(1).unwrap();
    let last = token.chars().last().unwrap();
    let changed = format!("{}{}", &via[..via.len() - 1], if last == '0' { '1' } else { '0' });
    let without = via.split(";source=").next().unwrap();
    let elsewhere = via.replace("192.0.2.100", "192.0.2.101");
    for wrong in [&changed, without, &elsewhere] {
        assert!(world.put_message(udp(CAROL), &forge(wrong)).is_empty(), "{wrong}");
    }
    assert_eq!(world.proxy.counters().dropped, 3);
    // A proxy with another seed has another key, and does not accept this Via.
    let mut other = World::with_seed(ProxyConfig { mode: Mode::Stateless, ..config() }, [9; 32]);
    assert!(other.put_message(udp(BOB), &answer).is_empty());
}

#[test]
fn a_stateless_proxy_rejects_and_answers_requests_like_a_stateful_proxy() {
    let mut world = world(Mode::Stateless);
    assert_eq!(world.register("bob", udp(BOB), "").what(), "200");
    let answer = |world: &mut World, uri: &str, user: &str, more: &str| {
        let text = request("INVITE", uri, user, "bob", &format!("b{}{user}", uri.len()), udp(ALICE), more);
        world.put(udp(ALICE), &text).iter().map(|sent| (sent.what(), sent.to())).collect::<Vec<_>>()
    };
    let bob = "sip:bob@example.com";
    assert_eq!(answer(&mut world, bob, "a", "Max-Forwards: 0\n"), pairs(&[("483", ALICE)]));
    assert_eq!(answer(&mut world, bob, "b", "Proxy-Require: magic\n"), pairs(&[("420", ALICE)]));
    assert_eq!(answer(&mut world, "sip:nobody@example.com", "c", ""), pairs(&[("404", ALICE)]));
    assert_eq!(answer(&mut world, "sip:bob@other.example", "d", ""), pairs(&[("INVITE", OTHER)]));
    assert_eq!(answer(&mut world, "sip:bob@unknown.example", "e", ""), pairs(&[("500", ALICE)]));
    let foreign = request("INVITE", "sip:bob@other.example", "x", "bob", "f7", udp(ALICE), "")
        .replace("sip:x@example.com", "sip:x@elsewhere.example");
    assert_eq!(summary(&world.put(udp(ALICE), &foreign)), pairs(&[("403", ALICE)]));
    let options = request("OPTIONS", "sip:example.com", "alice", "bob", "o1", udp(ALICE), "");
    assert_eq!(summary(&world.put(udp(ALICE), &options)), pairs(&[("200", ALICE)]));
    assert_eq!(world.proxy.transactions().1, 0, "no client transaction exists");
}

#[test]
fn a_request_that_returns_to_a_stateless_proxy_gets_482() {
    let mut world = world(Mode::Stateless);
    world.register("bob", udp(BOB), "");
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    // Bob's host sends the request back to the proxy, with the original Request-URI.
    let mut back = sent[0].message.clone();
    if let sip::Start::Request { uri, .. } = &mut back.start {
        *uri = bytes::Bytes::from_static(b"sip:bob@example.com");
    }
    assert_eq!(summary(&world.put_message(udp(BOB), &back)), pairs(&[("482", BOB)]));
}
