//! Tests of requests within dialogs: their permitted senders, and their routes (RFC 3261 sections 12.2 and 16.4).

use std::collections::BTreeMap;

use sip::proxy::{Listener, ProxyConfig, RecordName};
use sip::{Hop, Name, Transport};

use crate::world::*;

/// Calls bob as alice. `bob` is the hop to bob's user agent. Returns the INVITE that bob got.
fn called(world: &mut World, bob: sip::Hop) -> Sent {
    world.register("bob", bob, "");
    world.put(udp(ALICE), &invite(udp(ALICE), "")).pop().unwrap()
}

/// Returns a request from alice within the dialog.
fn within(method: &str, uri: &str, routes: &str) -> String {
    let text = request(method, uri, "alice", "bob", &format!("{method}2"), udp(ALICE), routes);
    text.replace("bob@example.com>", "bob@example.com>;tag=t")
}

#[test]
fn requests_of_a_dialog_follow_the_record_route() {
    let mut world = World::new(config());
    let routes = callers_routes(&called(&mut world, udp(BOB)));
    for method in ["ACK", "BYE"] {
        let sent = world.put(udp(ALICE), &within(method, &format!("sip:bob@{BOB}"), &routes));
        assert_eq!(summary(&sent), pairs(&[(method, BOB)]));
        assert_eq!(sent[0].message.all(Name::Route).count(), 0);
    }
}

#[test]
fn a_callees_bye_needs_no_password_if_the_dialog_key_matches() {
    for (dialog_secret, what) in [(Some([9; 32]), "BYE"), (None, "407")] {
        let mut world = World::new(ProxyConfig { dialog_secret: Some([9; 32]), ..config() });
        let routes = callers_routes(&called(&mut world, udp(BOB)));
        let bye = request("BYE", &format!("sip:alice@{ALICE}"), "bob", "alice", "b9", udp(BOB), &routes);
        let bye = bye.replace(";tag=f", ";tag=t").replace("alice@example.com>", "alice@example.com>;tag=f");
        let mut asking = World::new(ProxyConfig {
            dialog_secret,
            relay_networks: everywhere().relay_networks,
            ..with_password()
        });
        assert_eq!(asking.put(udp(BOB), &bye)[0].what(), what);
    }
}

#[test]
fn where_transports_differ_both_sides_are_recorded() {
    let mut world = World::new(config());
    let forwarded = called(&mut world, tcp(BOB, 9));
    let routes: Vec<_> = forwarded.message.elements(Name::RecordRoute).collect();
    assert!(routes[0].starts_with(b"<sip:192.0.2.100:5060;transport=tcp;lr;"));
    assert!(routes[1].starts_with(b"<sip:192.0.2.100:5060;transport=udp;lr;"));
    assert_eq!((forwarded.hop.transport, forwarded.hop.connection), (Transport::Tcp, tcp(BOB, 9).connection));
    // The proxy removes both of its Routes from a request within the dialog.
    let bye = within("BYE", &format!("sip:bob@{BOB};transport=tcp"), &callers_routes(&forwarded));
    let sent = world.put(udp(ALICE), &bye);
    assert_eq!(summary(&sent), pairs(&[("BYE", BOB)]));
    assert_eq!(sent[0].message.all(Name::Route).count(), 0);
}

#[test]
fn a_client_whose_tcp_is_translated_to_sctp_gets_a_tcp_record_route() {
    let mut sctp = config();
    sctp.listeners.push(Listener { transport: Transport::Sctp, ..sctp.listeners[1] });
    let mut world = World::new(sctp);
    world.register("bob", udp(BOB), "");
    let from = Hop { listener: 2, transport: Transport::Sctp, ..tcp(ALICE, 3) };
    for (via, recorded) in [("SCTP", "sctp"), ("TCP", "tcp"), ("UDP", "sctp")] {
        let invite =
            invite(from, "").replace("2.0/SCTP", &format!("2.0/{via}")).replace("bKi1", &format!("bK{via}"));
        let sent = world.put(from, &invite.replace("Call-ID: call", &format!("Call-ID: {via}")));
        let routes: Vec<_> = sent[1].message.elements(Name::RecordRoute).collect();
        let expected = format!("<sip:192.0.2.100:5060;transport={recorded};lr;");
        assert!(routes[1].starts_with(expected.as_bytes()), "{via}: {routes:?}");
    }
}

#[test]
fn a_user_whose_tcp_contact_is_translated_to_sctp_gets_a_tcp_route() {
    for (named, recorded) in [(";transport=tcp", "tcp"), (";transport=sctp", "sctp"), ("", "sctp")] {
        let mut sctp = config();
        sctp.listeners.push(Listener { transport: Transport::Sctp, ..sctp.listeners[1] });
        let mut world = World::new(sctp);
        let flow = Hop { listener: 2, transport: Transport::Sctp, ..tcp(BOB, 3) };
        world.register("bob", flow, &format!("Contact: <sip:bob@192.0.2.2:5070{named}>\n"));
        let sent = world.put(udp(ALICE), &invite(udp(ALICE), ""));
        assert_eq!(sent[1].hop.transport, Transport::Sctp);
        let route = sent[1].value(Name::RecordRoute);
        let expected = format!("<sip:192.0.2.100:5060;transport={recorded};lr;");
        assert!(route.starts_with(&expected), "{named}: {route}");
    }
}

/// Returns settings that permit requests within dialogs to any address.
fn everywhere() -> ProxyConfig {
    ProxyConfig { relay_networks: vec!["0.0.0.0/0".parse().unwrap()], ..config() }
}

/// Returns a request from an unknown user to a user who is unrelated to this proxy.
fn strangers(method: &str, route: &str, tag: &str) -> String {
    let text = request(method, "sip:victim@198.51.100.7", "m", "v", "m7", udp(ALICE), route);
    let text = text.replace("sip:v@example.com>", "sip:v@elsewhere.example>;tag=t");
    text.replace("sip:m@example.com>;tag=f", &format!("sip:m@evil.example>;tag={tag}"))
}

#[test]
fn a_made_up_dialog_is_relayed_nowhere() {
    let own = "sip:192.0.2.100:5060;transport=udp;lr";
    for route in [format!("<{own}>"), format!("<{own};dialog>"), format!("<{own};dialog={:032x}>", 1)] {
        let mut world = World::new(config());
        let route = format!("Route: {route}\n");
        assert_eq!(summary(&world.put(udp(ALICE), &strangers("BYE", &route, "f"))), pairs(&[("403", ALICE)]));
        assert!(world.put(udp(ALICE), &strangers("ACK", &route, "f").replace("m7", "m8")).is_empty());
        assert_eq!(world.proxy.counters().dropped, 1);
    }
}

#[test]
fn the_mark_of_one_dialog_is_no_good_in_another() {
    for (call, tag, what) in
        [("call", "f", "BYE"), ("call", "g", "403"), ("other", "f", "403"), ("cal", "lf", "403")]
    {
        let mut world = World::new(everywhere());
        let routes = callers_routes(&called(&mut world, udp(BOB)));
        let text = strangers("BYE", &routes, tag).replace("Call-ID: call", &format!("Call-ID: {call}"));
        assert_eq!(world.put(udp(ALICE), &text)[0].what(), what, "{call} {tag}");
    }
}

#[test]
fn an_ack_outside_a_dialog_is_dropped_even_from_our_own_users() {
    let mut world = World::new(with_password());
    let ack = within("ACK", "sip:zoe@198.51.100.7", "");
    assert!(world.put(udp(ALICE), &ack).is_empty());
}

#[test]
fn users_who_make_up_a_dialog_are_asked_for_the_password() {
    let mut world = World::new(with_password());
    let bye = within("BYE", "sip:zoe@198.51.100.7", "Route: <sip:192.0.2.100:5060;lr>\n");
    assert_eq!(summary(&world.put(udp(ALICE), &bye)), pairs(&[("407", ALICE)]));
}

#[test]
fn a_strict_routers_request_is_known_by_the_mark_in_its_request_uri() {
    let mut world = World::new(config());
    let forwarded = called(&mut world, udp(BOB));
    let own = forwarded.value(Name::RecordRoute);
    let own = own.trim_start_matches('<').trim_end_matches('>');
    let bye = within("BYE", own, &format!("Route: <sip:bob@{BOB}>\n"));
    let bye = bye.replace("alice@example.com", "zoe@other.example");
    assert_eq!(summary(&world.put(udp(ALICE), &bye)), pairs(&[("BYE", BOB)]));
}

#[test]
fn dialogs_continue_through_another_proxy_with_the_same_dialog_key() {
    for (key, what) in [(Some([9; 32]), "BYE"), (Some([8; 32]), "403")] {
        let with = |dialog_secret| ProxyConfig { dialog_secret, ..everywhere() };
        let mut world = World::new(with(Some([9; 32])));
        let routes = callers_routes(&called(&mut world, udp(BOB)));
        let mut next = World::new(with(key));
        assert_eq!(next.put(udp(ALICE), &strangers("BYE", &routes, "f"))[0].what(), what);
    }
}

/// Lets bob answer alice's INVITE. Returns the INVITE that bob got.
fn answered(world: &mut World, bob: sip::Hop) -> Sent {
    let forwarded = called(world, bob);
    world.put_message(bob, &forwarded.answer(200));
    forwarded
}

#[test]
fn requests_within_a_dialog_reach_other_addresses_only_in_relay_networks() {
    let victim = "sip:victim@198.51.100.7:80";
    for (network, what) in [("198.51.100.0/24", "BYE"), ("203.0.113.0/24", "403")] {
        let networks = vec![network.parse().unwrap()];
        let mut world = World::new(ProxyConfig { relay_networks: networks, ..config() });
        let routes = callers_routes(&answered(&mut world, udp(BOB)));
        assert_eq!(world.put(udp(ALICE), &within("BYE", victim, &routes))[0].what(), what);
        let acks = world.put(udp(ALICE), &within("ACK", victim, &routes));
        assert_eq!(acks.len(), usize::from(what == "BYE"));
    }
}

#[test]
fn after_a_restart_requests_within_a_dialog_still_reach_users_and_next_hops() {
    let with = |dialog_secret| ProxyConfig { dialog_secret, ..config() };
    let mut world = World::new(with(Some([9; 32])));
    let routes = callers_routes(&answered(&mut world, udp(BOB)));
    let mut next = World::new(with(Some([9; 32])));
    let bye = |to: &str, branch: &str| within("BYE", to, &routes).replace("BYE2", branch);
    assert_eq!(next.put(udp(ALICE), &bye(&format!("sip:bob@{BOB}"), "a1"))[0].what(), "403");
    next.register("bob", udp(BOB), "");
    assert_eq!(next.put(udp(ALICE), &bye(&format!("sip:bob@{BOB}"), "a2"))[0].what(), "BYE");
    assert_eq!(next.put(udp(ALICE), &bye("sip:zoe@other.example", "a3"))[0].what(), "BYE");
}

#[test]
fn a_dialog_is_listed_from_its_invite_until_bye_is_answered() {
    let mut world = World::new(config());
    let forwarded = called(&mut world, udp(BOB));
    let state = |world: &World| {
        let dialogs: Vec<_> = world.proxy.dialogs(None).map(|d| (d.is_call, d.answered.is_some())).collect();
        dialogs
    };
    assert_eq!(state(&world), [(true, false)]);
    world.put_message(udp(BOB), &forwarded.answer(200));
    assert_eq!(state(&world), [(true, true)]);
    let bye = within("BYE", &format!("sip:bob@{BOB}"), &callers_routes(&forwarded));
    let bye = world.put(udp(ALICE), &bye.replace(";tag=t", ";tag=uas"));
    world.put_message(udp(BOB), &bye[0].answer(407));
    assert_eq!(state(&world), [(true, true)], "a BYE that wants a password ends nothing");
    let bye = within("BYE", &format!("sip:bob@{BOB}"), &callers_routes(&forwarded)).replace("BYE2", "BYE3");
    let bye = world.put(udp(ALICE), &bye.replace(";tag=t", ";tag=uas"));
    world.put_message(udp(BOB), &bye[0].answer(200));
    assert_eq!(state(&world), []);
}

#[test]
fn a_dialog_is_over_when_nobody_answers_its_bye() {
    let mut world = World::new(config());
    let forwarded = called(&mut world, udp(BOB));
    world.put_message(udp(BOB), &forwarded.answer(200));
    let bye = within("BYE", &format!("sip:bob@{BOB}"), &callers_routes(&forwarded));
    world.put(udp(ALICE), &bye.replace(";tag=t", ";tag=uas"));
    world.pass(std::time::Duration::from_secs(31));
    assert_eq!(world.proxy.dialog_count(), 1);
    world.pass(std::time::Duration::from_secs(2));
    assert_eq!(world.proxy.dialog_count(), 0);
}

/// Sets up a call, and sends a BYE from alice to this contact of bob. Returns the messages that the proxy sends for the BYE.
fn bye_to(contact: &str) -> (World, Vec<Sent>) {
    let mut world = World::new(config());
    let forwarded = called(&mut world, udp(BOB));
    world.put_message(udp(BOB), &forwarded.answer(200));
    let bye = within("BYE", contact, &callers_routes(&forwarded));
    let sent = world.put(udp(ALICE), &bye.replace(";tag=t", ";tag=uas"));
    assert_eq!(world.proxy.dialog_count(), usize::from(sent[0].what() != "500"), "{sent:?}");
    (world, sent)
}

#[test]
fn a_dialog_ends_if_its_bye_fails_with_500_but_not_with_403_or_503() {
    let there = format!("sip:bob@{BOB}");
    // The proxy has no listener for this transport, so the proxy itself rejects the BYE.
    assert_eq!(summary(&bye_to(&format!("{there};transport=sctp")).1), pairs(&[("500", ALICE)]));
    assert_eq!(summary(&bye_to("sip:bob@198.51.100.7").1), pairs(&[("403", ALICE)]));
    type Happens = fn(&mut World, &Sent);
    let cases: [(Happens, &str, usize); 3] = [
        (|world, bye| world.proxy.handle_send_failure(world.now, bye.on_failure.unwrap()), "500", 0),
        (|world, bye| world.proxy.handle_congestion(world.now, bye.on_failure.unwrap()), "503", 1),
        (
            |world, bye| {
                let answer = bye.answer(503).to_bytes();
                world.proxy.handle_message(world.now, udp(BOB), answer);
            },
            "500",
            0,
        ),
    ];
    for (happens, status, dialogs) in cases {
        let (mut world, sent) = bye_to(&there);
        happens(&mut world, &sent[0]);
        assert_eq!(summary(&world.sent()), pairs(&[(status, ALICE)]));
        assert_eq!(world.proxy.dialog_count(), dialogs, "{status}");
    }
}

#[test]
fn record_route_has_the_configured_name_and_routes_with_this_name_are_removed() {
    let name = |host: &str, port| RecordName { host: host.to_owned(), port };
    let record_names =
        BTreeMap::from([(0, name("sip.example.net", None)), (1, name("sip.example.net", Some(5080)))]);
    let mut world = World::new(ProxyConfig { record_names, ..config() });
    let forwarded = called(&mut world, tcp(BOB, 9));
    let records: Vec<_> = forwarded
        .message
        .elements(Name::RecordRoute)
        .map(|route| {
            let route = String::from_utf8_lossy(route).into_owned();
            route.split(";lr").next().unwrap().to_owned()
        })
        .collect();
    assert_eq!(records, ["<sip:sip.example.net:5080;transport=tcp", "<sip:sip.example.net;transport=udp"]);
    world.put_message(tcp(BOB, 9), &forwarded.answer(200));
    let routes = callers_routes(&forwarded).replace("sip.example.net;", "SIP.Example.NET;");
    let sent = world.put(udp(ALICE), &within("BYE", &format!("sip:bob@{BOB};transport=tcp"), &routes));
    assert_eq!((summary(&sent), sent[0].value(Name::Route)), (pairs(&[("BYE", BOB)]), String::new()));
    // A Route with the same name and another port does not lead to this proxy.
    let routes = routes.replace(":5080", ":5081");
    let sent = world.put(
        udp(ALICE),
        &within("BYE", &format!("sip:bob@{BOB};transport=tcp"), &routes).replace("BYE2", "BYE3"),
    );
    assert_ne!(sent[0].what(), "BYE", "{sent:?}");
}

#[test]
fn a_call_that_is_refused_is_no_dialog() {
    let mut world = World::new(config());
    let forwarded = called(&mut world, udp(BOB));
    world.put_message(udp(BOB), &forwarded.answer(486));
    assert_eq!(world.proxy.dialog_count(), 0);
}

#[test]
fn the_dialog_that_was_silent_longest_makes_room_and_all_are_forgotten_after_a_day() {
    let limits = sip::proxy::ProxyLimits { dialogs: 2, ..Default::default() };
    let mut world = World::new(ProxyConfig { limits, ..config() });
    world.register("bob", udp(BOB), "Expires: 86400\n");
    let call = |world: &mut World, id: &str| {
        let text = invite(udp(ALICE), "").replace("Call-ID: call", &format!("Call-ID: {id}"));
        let sent = world.put(udp(ALICE), &text.replace("z9hG4bKi1", &format!("z9hG4bK{id}")));
        world.put_message(udp(BOB), &sent[1].answer(200));
    };
    ["one", "two", "three"].iter().for_each(|id| call(&mut world, id));
    let listed = |after| -> Vec<_> {
        world
            .proxy
            .dialogs(after)
            .map(|d| (String::from_utf8_lossy(&d.call_id).into_owned(), d.number()))
            .collect()
    };
    let all = listed(None);
    assert_eq!(all.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["three", "two"]);
    assert_eq!(listed(Some(all[0].1)), all[1..]);
    assert_eq!(listed(Some(all[1].1)), []);
    world.pass(std::time::Duration::from_secs(86_400 - 61));
    assert_eq!(world.proxy.dialog_count(), 2);
    world.pass(std::time::Duration::from_secs(122));
    assert_eq!(world.proxy.dialog_count(), 0);
}

/// Returns a BYE from the callee to this contact of alice.
fn bye_to_alice(contact: &str, routes: &str) -> String {
    let bye = request("BYE", contact, "bob", "alice", "b9", udp(BOB), routes);
    bye.replace(";tag=f", ";tag=t").replace("alice@example.com>", "alice@example.com>;tag=f")
}

#[test]
fn a_caller_is_reached_over_its_connection_or_nat_mapping_or_at_its_contact() {
    for (from, contact, to, connection) in [
        (tcp("192.0.2.1:40000", 7), "sip:alice@192.0.2.1:5062;transport=tcp", "192.0.2.1:5062", Some(7)),
        (tcp("192.0.2.1:40000", 7), "sip:alice@10.0.0.1:5062;transport=tcp", "192.0.2.1:40000", Some(7)),
        (udp("192.0.2.1:40000"), "sip:alice@192.0.2.1:5062", "192.0.2.1:5062", None),
        (udp("192.0.2.1:40000"), "sip:alice@192.0.2.1:5062;ob", "192.0.2.1:40000", None),
        (udp("192.0.2.1:40000"), "sip:alice@10.0.0.1:5062", "192.0.2.1:40000", None),
    ] {
        let mut world = World::new(config());
        world.register("bob", udp(BOB), "");
        let named = format!("Contact: <{contact}>\n");
        let text = request("INVITE", "sip:bob@example.com", "alice", "bob", "i1", from, &named);
        let forwarded = world.put(from, &text).pop().unwrap();
        world.put_message(udp(BOB), &forwarded.answer(200));
        let routes = forwarded.message.elements(Name::RecordRoute);
        let routes: String = routes.map(|r| format!("Route: {}\n", String::from_utf8_lossy(r))).collect();
        let sent = world.put(udp(BOB), &bye_to_alice(contact, &routes));
        assert_eq!(summary(&sent), pairs(&[("BYE", to)]), "{contact}");
        assert_eq!(sent[0].hop.connection.map(|c| c.0), connection, "{contact}");
    }
}

#[test]
fn a_callee_that_answers_with_another_contact_is_reached_by_the_connection_it_registered_by() {
    let mut world = World::new(config());
    let forwarded = called(&mut world, tcp(BOB, 9));
    let mut answer = forwarded.answer(200);
    answer.push(sip::Header::new(Name::Contact, "<sip:bob@10.0.0.2:7777;transport=tcp>"));
    world.put_message(tcp(BOB, 9), &answer);
    let bye = within("BYE", "sip:bob@10.0.0.2:7777;transport=tcp", &callers_routes(&forwarded));
    let sent = world.put(udp(ALICE), &bye);
    assert_eq!(summary(&sent), pairs(&[("BYE", BOB)]));
    assert_eq!(sent[0].hop.connection.map(|c| c.0), Some(9));
}
