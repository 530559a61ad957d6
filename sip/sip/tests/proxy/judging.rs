//! Tests of rejections (RFC 3261 section 16.3, RFC 5393, RFC 4475 sections 3.3.2 to 3.3.11).

use std::time::Duration;

use sip::Name;
use sip::proxy::{Access, ProxyConfig, ProxyLimits};

use crate::world::*;

fn status_of(world: &mut World, text: &str) -> String {
    let sent = world.put(udp(ALICE), text);
    sent.iter().rfind(|sent| sent.to() == ALICE).map(Sent::what).unwrap_or_default()
}

fn options(uri: &str, more: &str) -> String {
    request("OPTIONS", uri, "alice", "bob", "o1", udp(ALICE), more)
}

#[test]
fn a_request_for_the_proxy_itself_is_answered() {
    let mut world = World::new(config());
    assert_eq!(status_of(&mut world, &options("sip:example.com", "")), "200");
}

#[test]
fn a_request_that_may_not_go_further_gets_483() {
    for (hops, status) in [("0", "483"), ("1", "404")] {
        let mut world = World::new(config());
        let text = options("sip:bob@example.com", &format!("Max-Forwards: {hops}\n"));
        assert_eq!(status_of(&mut world, &text), status);
    }
}

#[test]
fn a_request_that_comes_back_unchanged_is_a_loop() {
    let mut world = World::new(config());
    let text = request("INVITE", "sip:zoe@other.example", "alice", "bob", "i5", udp(ALICE), "");
    let sent = world.put(udp(ALICE), &text);
    let back = world.put_message(tcp(OTHER, 5), &sent[1].message);
    assert_eq!(summary(&back), pairs(&[("482", OTHER)]));
}

#[test]
fn a_request_that_comes_back_for_another_user_is_a_spiral_and_goes_on() {
    let mut world = World::new(config());
    world.register("bob", udp(BOB), "");
    let text = request("INVITE", "sip:zoe@other.example", "alice", "bob", "i5", udp(ALICE), "");
    let mut spiral = world.put(udp(ALICE), &text).remove(1).message;
    let sip::Start::Request { uri, .. } = &mut spiral.start else { panic!("no request") };
    *uri = "sip:bob@example.com".into();
    let sent = world.put_message(tcp(OTHER, 5), &spiral);
    assert_eq!(summary(&sent), pairs(&[("100", OTHER), ("INVITE", BOB)]));
}

#[test]
fn extensions_that_a_proxy_would_have_to_know_get_420() {
    let mut world = World::new(config());
    let sent = world.put(udp(ALICE), &options("sip:bob@example.com", "Proxy-Require: one, two\n"));
    assert_eq!(summary(&sent), pairs(&[("420", ALICE)]));
    assert_eq!(sent[0].value(Name::Unsupported), "one,two");
}

#[test]
fn sips_without_tls_and_unknown_schemes_get_416_and_unknown_domains_500() {
    for (uri, status) in [
        ("sips:zoe@other.example", "416"),
        ("sip:zoe@nowhere.example", "500"),
        ("sip:zoe@192.0.2.9;transport=foo", "500"),
        ("nobodyKnowsThisScheme:totallyopaquecontent", "416"),
        ("tel:+358-555-1234567", "416"),
    ] {
        let mut world = World::new(config());
        assert_eq!(status_of(&mut world, &options(uri, "")), status, "{uri}");
    }
}

#[test]
fn requests_from_unknown_users_to_other_domains_get_403() {
    let mut world = World::new(config());
    let text = options("sip:zoe@other.example", "").replace("alice@example.com", "mallory@evil.example");
    assert_eq!(status_of(&mut world, &text), "403");
}

#[test]
fn a_malformed_request_is_answered_and_forgotten() {
    let mut world = World::new(config());
    let text = options("sip:bob@example.com", "").replace("CSeq: 1 ", "CSeq: x ");
    assert_eq!(status_of(&mut world, &text), "400");
    assert_eq!(world.proxy.transactions(), (0, 0));
}

#[test]
fn beyond_the_limit_requests_get_503_with_a_time_to_try_again() {
    let limits = ProxyLimits { transactions: 1, retry_after: 9, ..ProxyLimits::default() };
    let mut world = World::new(ProxyConfig { limits, ..config() });
    assert_eq!(status_of(&mut world, &options("sip:example.com", "")), "200");
    let sent = world.put(udp(ALICE), &options("sip:example.com", "").replace("o1", "o2"));
    assert_eq!(summary(&sent), pairs(&[("503", ALICE)]));
    assert_eq!(sent[0].value(Name::RetryAfter), "9");
    // After 32 s, the transaction has ended, and a new transaction is possible.
    world.pass(Duration::from_secs(33));
    assert_eq!(status_of(&mut world, &options("sip:example.com", "").replace("o1", "o3")), "200");
}

#[test]
fn responses_go_where_rfc_3581_and_via_say() {
    // The source port is 40000, and the port in sent-by is 5060.
    let source = udp("192.0.2.1:40000");
    for (via, port) in [(";rport", "192.0.2.1:40000"), ("", "192.0.2.1:5060")] {
        let mut world = World::new(config());
        let text = options("sip:example.com", "").replace("branch", &format!("{via};branch"));
        let text = text.replace(";;", ";");
        let sent = world.put(source, &text);
        assert_eq!(sent[0].to(), port, "{via}");
    }
}

#[test]
fn an_invite_from_a_local_user_without_credentials_gets_407() {
    let mut world = World::new(with_password());
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("407", ALICE)]));
    let challenges: Vec<_> = sent[0].message.all(Name::ProxyAuthenticate).collect();
    assert_eq!(challenges.len(), 2);
    assert!(challenges[0].value.ends_with(b"algorithm=SHA-256"));
}

#[test]
fn a_denied_address_gets_403_and_a_flood_503_with_retry_after() {
    let access = Access { deny: vec!["192.0.2.1".parse().unwrap()], ..Access::default() };
    let mut world = World::new(ProxyConfig { access, ..config() });
    assert_eq!(status_of(&mut world, &options("sip:example.com", "")), "403");
    let access = Access { rate: 1, burst: 1, ..Access::default() };
    let mut world = World::new(ProxyConfig { access, ..config() });
    let mut ask = |branch: &str| {
        let text = options("sip:example.com", "").replace("z9hG4bKo1", branch);
        let sent = world.put(udp(ALICE), &text);
        sent.first().map(|sent| (sent.what(), sent.value(Name::RetryAfter))).unwrap_or_default()
    };
    let pair = |what: &str, after: &str| (what.to_owned(), after.to_owned());
    assert_eq!(ask("z9hG4bKp1"), pair("200", ""));
    assert_eq!(ask("z9hG4bKp2"), pair("503", "5"));
    assert_eq!(ask("z9hG4bKp3"), pair("", ""));
    assert_eq!((world.proxy.counters().limited, world.proxy.transactions().0), (2, 1));
}

/// Sends alice's INVITE, which the proxy rejects with `status`. After the time `later`, sends her ACK twice: with the proxy's To tag, and
/// with a To tag that the proxy has not issued. Returns the messages that the proxy sends for each ACK.
fn after_refusal(world: &mut World, invite: &str, status: &str, later: Duration) -> [Vec<Sent>; 2] {
    let sent = world.put(udp(ALICE), invite);
    let refusal = sent.last().unwrap();
    assert_eq!(refusal.what(), status);
    let to = refusal.value(Name::To);
    world.pass(later);
    let ack = invite.replace("INVITE", "ACK").replace("Max-Forwards: x\n", "");
    let ack = |to: &str| ack.replace("To: <sip:bob@example.com>", &format!("To: {to}"));
    [&to[..], "<sip:bob@example.com>;tag=0123456789abcdef"].map(|to| world.put(udp(ALICE), &ack(to)))
}

#[test]
fn an_ack_for_our_own_refusal_is_not_forwarded_even_without_a_transaction() {
    let limits = ProxyLimits { transactions: 1, ..ProxyLimits::default() };
    let rate = Access { rate: 1, burst: 1, ..Access::default() };
    let allow = Access { allow: vec!["192.0.2.2".parse().unwrap()], ..Access::default() };
    let limited = |access| ProxyConfig { access, ..config() };
    let full = ProxyConfig { limits, ..config() };
    let again = invite(udp(ALICE), "");
    let malformed = invite(udp(ALICE), "Max-Forwards: x\n");
    let looping = invite(udp(ALICE), "Max-Forwards: 0\n");
    let of_rfc_2543 = again.replace(";branch=z9hG4bKi1", "");
    let (none, over) = (Duration::ZERO, Duration::from_secs(60));
    for (config, is_ending, text, status, later) in [
        (full, false, &again, "503", none),
        (limited(rate), false, &again, "503", none),
        (limited(allow), false, &again, "403", none),
        (config(), false, &malformed, "400", none),
        (config(), true, &again, "503", none),
        (config(), true, &of_rfc_2543, "503", none),
        // The ACK also has Max-Forwards 0, so it is not forwarded with any To tag.
        (config(), false, &looping, "483", over),
    ] {
        let mut world = World::new(config);
        world.register("bob", udp(BOB), "");
        world.put(udp(ALICE), &options("sip:example.com", ""));
        if is_ending {
            world.proxy.begin_drain();
        }
        let [own, others] = after_refusal(&mut world, text, status, later);
        assert_eq!(summary(&own), [], "{status} {text}");
        assert_eq!(summary(&others).len(), usize::from(text != &looping), "{status} {text}");
    }
}

/// Returns a call from another domain to bob, with a body of this many bytes.
fn call_from_elsewhere(number: usize, body: usize) -> String {
    let text = request("INVITE", "sip:bob@example.com", "zoe", "bob", &format!("z{number}"), udp(CAROL), "");
    let text = text.replace("sip:zoe@example.com", "sip:zoe@elsewhere.example");
    let text = text.replace("Call-ID: call", &format!("Call-ID: call{number}"));
    text.replace("Content-Length: 0\n\n", &format!("Content-Length: {body}\n\n{}", "x".repeat(body)))
}

#[test]
fn a_challenge_keeps_nothing_of_the_request_and_its_ack_goes_nowhere() {
    let mut world = World::new(with_password());
    for number in 0..1000 {
        for method in ["INVITE", "REGISTER", "MESSAGE"] {
            let branch = format!("{method}{number}");
            let text = request(method, "sip:bob@example.com", "alice", "alice", &branch, udp(ALICE), "");
            let sent = world.put(udp(ALICE), &text);
            let status = if method == "REGISTER" { "401" } else { "407" };
            assert_eq!(summary(&sent), pairs(&[(status, ALICE)]));
            if method == "INVITE" {
                let to = sent[0].value(Name::To);
                let ack = text.replace("INVITE", "ACK").replace("z9hG4bKACK", "z9hG4bKINVITE");
                assert!(
                    world
                        .put(udp(ALICE), &ack.replace("To: <sip:alice@example.com>", &format!("To: {to}")))
                        .is_empty()
                );
            }
        }
    }
    assert_eq!((world.proxy.transactions(), world.proxy.kept_bytes()), ((0, 0), 0));
    assert_eq!(world.proxy.counters().responses[3], 3000);
}

#[test]
fn long_requests_beyond_the_memory_budget_get_503_and_memory_is_freed_later() {
    const BUDGET: usize = 1 << 20;
    let limits = ProxyLimits { kept_bytes: BUDGET, ..ProxyLimits::default() };
    let mut world = World::new(ProxyConfig { limits, ..config() });
    world.register("bob", udp(BOB), "");
    let (mut forwarded, mut refused) = (Vec::new(), 0);
    for number in 0..200 {
        let sent = world.put(udp(CAROL), &call_from_elsewhere(number, 20_000));
        match sent[0].what().as_str() {
            "503" => refused += 1,
            _ => forwarded.extend(sent.into_iter().filter(|sent| sent.what() == "INVITE")),
        }
        assert!(world.proxy.kept_bytes() < BUDGET + 50_000, "{}", world.proxy.kept_bytes());
    }
    assert!(forwarded.len() > 5 && refused > 100, "{} {refused}", forwarded.len());
    // The messages of a call are short, so the call is served.
    let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", BOB)]));
    world.put_message(udp(BOB), &sent[1].answer(486));
    // The budget also has no room for long answers. Such answers are forwarded, but not kept.
    for sent in &forwarded {
        let mut answer = sent.answer(486);
        answer.headers.push(sip::Header::new(Name::Unsupported, &"x".repeat(60_000)));
        let sent = world.put_message(udp(BOB), &answer);
        assert!(sent.iter().any(|sent| sent.what() == "486" && sent.to() == CAROL));
        assert!(world.proxy.kept_bytes() < BUDGET + 50_000, "{}", world.proxy.kept_bytes());
    }
    world.pass(Duration::from_secs(300));
    assert_eq!(world.proxy.kept_bytes(), 0);
}
