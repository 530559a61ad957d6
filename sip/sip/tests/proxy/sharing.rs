//! Tests of two proxies that share users in a store. A request may reach one proxy for a user who is registered with the other. The store may be
//! slow, have newer records, or fail.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use sip::proxy::{Finding, Listener, Presence, ProxyConfig, Record, RecordName, Shared, Wanted};
use sip::{Name, Transport};

use crate::secure::{tls, with_tls};
use crate::world::*;

/// Addresses of the two proxies.
const PROXIES: [&str; 2] = ["192.0.2.100:5060", "192.0.2.101:5060"];

/// A correct store, and two proxies that use it.
struct Pair {
    worlds: [World; 2],
    records: BTreeMap<String, Record>,
    /// Highest use count of each nonce.
    nonces: BTreeMap<String, u32>,
    version: u64,
    is_gone: bool,
}

fn config_at(address: &str, base: ProxyConfig) -> ProxyConfig {
    let own: SocketAddr = address.parse().unwrap();
    let address = |listener: &Listener| SocketAddr::new(own.ip(), listener.address.port());
    let listeners = base.listeners.iter().map(|l| Listener { address: address(l), ..*l }).collect();
    let shared = Some(Shared { origin: Duration::from_secs(1_700_000_000) });
    ProxyConfig { listeners, shared, dialog_secret: Some([9; 32]), ..base }
}

impl Pair {
    fn new(base: fn() -> ProxyConfig) -> Pair {
        let mut seed = 0;
        let worlds = PROXIES.map(|address| {
            seed += 1;
            World::with_seed(config_at(address, base()), [seed; 32])
        });
        Pair { worlds, records: BTreeMap::new(), nonces: BTreeMap::new(), version: 0, is_gone: false }
    }

    /// Answers the queries of a proxy from the store until the proxy has no more queries. Returns the messages that the proxy sends.
    fn serve(&mut self, at: usize) -> Vec<Sent> {
        let mut sent = Vec::new();
        while !self.worlds[at].queries.is_empty() {
            for query in std::mem::take(&mut self.worlds[at].queries) {
                let finding = if self.is_gone { Finding::Failed } else { self.find(query.wanted) };
                let now = self.worlds[at].now;
                self.worlds[at].proxy.handle_found(now, query.ticket, finding);
            }
            sent.extend(self.worlds[at].sent());
        }
        sent
    }

    fn find(&mut self, wanted: Wanted) -> Finding {
        let record = |user: &String| self.records.get(user).cloned().unwrap_or_default();
        match wanted {
            Wanted::Replace { user, version, mut bindings } if version == record(&user).version => {
                self.version += 1;
                // A store does not keep the listener and the connection of a flow, because only one proxy knows them.
                bindings.iter_mut().for_each(|binding| {
                    (binding.flow.listener, binding.flow.connection) = (0, None);
                });
                self.records.insert(user, Record { version: self.version, bindings });
                Finding::Replaced(self.version)
            }
            Wanted::Read { user } | Wanted::Replace { user, .. } => Finding::Is(record(&user)),
            Wanted::Use { nonce, count, .. } => {
                let highest = self.nonces.entry(nonce).or_default();
                let is_first = count > *highest;
                *highest = count.max(*highest);
                Finding::IsFirst(is_first)
            }
        }
    }

    /// Passes all records of the store to a proxy.
    fn tell(&mut self, at: usize) {
        for (user, record) in &self.records {
            self.worlds[at].proxy.handle_record(user, record.clone());
        }
    }

    /// Sends a REGISTER to a proxy, and returns the answer.
    fn register(&mut self, at: usize, user: &str, number: u32, from: sip::Hop, more: &str) -> Sent {
        let transport = from.transport.as_lower_str();
        let contact = format!("Contact: <sip:{user}@{};transport={transport}>\n", from.address);
        let more = if more.contains("Contact:") { more.to_owned() } else { contact + more };
        let branch = format!("{user}{number}");
        let text = request("REGISTER", "sip:example.com", user, user, &branch, from, &more);
        let mut sent = self.worlds[at].put(from, &text);
        sent.extend(self.serve(at));
        sent.pop().unwrap()
    }

    /// Sends a message to a proxy, and answers the proxy's queries. Returns the messages that the proxy sends.
    fn put(&mut self, at: usize, from: sip::Hop, text: &str) -> Vec<Sent> {
        let mut sent = self.worlds[at].put(from, text);
        sent.extend(self.serve(at));
        sent
    }

    /// Passes a message from one proxy to the other.
    fn pass(&mut self, to: usize, sent: &Sent) -> Vec<Sent> {
        let mut from = udp(PROXIES[1 - to]);
        (from.transport, from.listener) = (sent.hop.transport, sent.hop.listener);
        self.worlds[to].put_message(from, &sent.message)
    }
}

fn contacts_of(sent: &Sent) -> usize {
    sent.message.elements(Name::Contact).count()
}

#[test]
fn a_user_registered_at_one_proxy_is_called_through_the_other_proxy() {
    let mut pair = Pair::new(config);
    assert_eq!(pair.register(0, "bob", 1, udp(BOB), "").what(), "200");
    pair.tell(1);
    let sent = pair.put(1, udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", BOB)]));
}

#[test]
fn a_user_without_a_local_record_is_looked_up_in_the_store() {
    let mut pair = Pair::new(config);
    pair.register(0, "bob", 1, udp(BOB), "");
    let sent = pair.put(1, udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", BOB)]));
    // A user who is not in the store does not exist.
    let other = invite(udp(ALICE), "").replace("bob@", "carol@").replace("i1", "i2");
    assert_eq!(summary(&pair.put(1, udp(ALICE), &other)), pairs(&[("100", ALICE), ("404", ALICE)]));
}

#[test]
fn a_call_that_is_cancelled_while_the_store_is_asked_goes_nowhere() {
    let mut pair = Pair::new(config);
    pair.register(0, "bob", 1, udp(BOB), "");
    let text = invite(udp(ALICE), "");
    pair.worlds[1].put(udp(ALICE), &text);
    let cancel = text.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
    assert_eq!(summary(&pair.worlds[1].put(udp(ALICE), &cancel)), pairs(&[("200", ALICE)]));
    assert_eq!(summary(&pair.serve(1)), pairs(&[("487", ALICE)]));
}

#[test]
fn a_register_is_answered_only_after_the_store_has_the_binding() {
    let mut pair = Pair::new(config);
    let contact = format!("Contact: <sip:bob@{BOB}>\n");
    let text = request("REGISTER", "sip:example.com", "bob", "bob", "r1", udp(BOB), &contact);
    assert!(pair.worlds[0].put(udp(BOB), &text).is_empty());
    assert!(pair.worlds[0].put(udp(BOB), &text).is_empty(), "the same again");
    assert_eq!(pair.worlds[0].proxy.location().contacts(), 0);
    assert_eq!(summary(&pair.serve(0)), pairs(&[("200", BOB)]));
    assert_eq!(pair.records["bob@example.com"].bindings.len(), 1);
}

#[test]
fn cseq_order_and_contact_limits_hold_across_proxies_without_notifications() {
    let mut pair = Pair::new(|| {
        let mut config = config();
        config.location.contacts = 2;
        config
    });
    assert_eq!(pair.register(0, "bob", 5, udp(BOB), "").what(), "200");
    assert_eq!(pair.register(1, "bob", 4, udp(BOB), "").what(), "500");
    let sent = pair.register(1, "bob", 6, udp(CAROL), "");
    assert_eq!((sent.what().as_str(), contacts_of(&sent)), ("200", 2));
    assert_eq!(pair.register(0, "bob", 7, udp(ALICE), "").what(), "403");
    let sent = pair.register(0, "bob", 8, udp(BOB), "Contact: *\nExpires: 0\n");
    assert_eq!((sent.what().as_str(), contacts_of(&sent)), ("200", 0));
    assert!(pair.records["bob@example.com"].bindings.is_empty());
}

#[test]
fn a_register_that_only_asks_is_answered_by_what_the_store_has() {
    let mut pair = Pair::new(config);
    pair.register(0, "bob", 1, udp(BOB), "");
    let text = request("REGISTER", "sip:example.com", "bob", "bob", "r2", udp(BOB), "");
    assert_eq!(contacts_of(&pair.put(1, udp(BOB), &text)[0]), 1);
}

#[test]
fn a_user_is_called_through_the_proxy_that_has_the_users_connection() {
    let mut pair = Pair::new(config);
    pair.register(0, "bob", 1, tcp(BOB, 7), "");
    pair.tell(0);
    pair.tell(1);
    let sent = pair.put(1, udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", PROXIES[0])]));
    let there = pair.pass(0, &sent[1]);
    assert_eq!(there[1].what(), "INVITE");
    assert_eq!(there[1].hop, tcp(BOB, 7));
    assert_eq!(there[1].value(Name::Route), "");
    // The proxy that has the connection uses it, although the record from the store does not contain the connection.
    let own = pair.put(0, udp(ALICE), &invite(udp(ALICE), "").replace("i1", "i2"));
    assert_eq!(own[1].hop, tcp(BOB, 7));
}

#[test]
fn a_sips_request_goes_over_tls_to_the_proxy_with_the_connection_or_fails() {
    let mut pair = Pair::new(with_tls);
    pair.register(0, "bob", 1, tls(BOB, 7), "");
    pair.register(0, "carol", 1, tcp(CAROL, 8), "");
    pair.tell(1);
    let text = invite(tls(ALICE, 1), "");
    let sips = text.replace("INVITE sip:", "INVITE sips:");
    let sent = pair.put(1, tls(ALICE, 1), &sips);
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", "192.0.2.100:5061")]));
    assert_eq!((sent[1].hop.transport, sent[1].domain.as_deref()), (Transport::Tls, Some("example.com")));
    let there = pair.pass(0, &sent[1]);
    assert_eq!((there[1].what().as_str(), there[1].hop), ("INVITE", tls(BOB, 7)));
    // After a failure of the TLS connection, the request is not sent without TLS, although the contact has an address.
    let now = pair.worlds[1].now;
    pair.worlds[1].proxy.handle_send_failure(now, sent[1].on_failure.unwrap());
    let failed = pair.worlds[1].sent();
    assert!(failed.iter().all(|sent| sent.what() != "INVITE" || sent.hop.transport == Transport::Tls));
    let carols = sips.replace("bob@", "carol@").replace("i1", "i2");
    assert_eq!(summary(&pair.put(1, tls(ALICE, 1), &carols)), pairs(&[("480", ALICE)]));
    // Requests to SIP URIs go to the first listener of the other proxy.
    let sent = pair.put(1, tls(ALICE, 1), &text.replace("i1", "i3"));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", PROXIES[0])]));
}

#[test]
fn a_flow_of_a_restarted_proxy_gets_430_and_a_forged_flow_gets_403() {
    let mut pair = Pair::new(config);
    let flow = "Contact: <sip:bob@10.0.0.1>;+sip.instance=\"<urn:uuid:1>\";reg-id=1\n";
    pair.register(0, "bob", 1, tcp(BOB, 7), flow);
    pair.tell(1);
    let sent = pair.put(1, udp(ALICE), &invite(udp(ALICE), ""));
    let forged = String::from_utf8(sent[1].message.to_bytes().to_vec()).unwrap();
    let at = forged.find("Route: <sip:").unwrap() + 12;
    let digit = if &forged[at + 3..=at + 3] == "1" { "2" } else { "1" };
    let forged = format!("{}{digit}{}", &forged[..at + 3], &forged[at + 4..]).replace("z9hG4bK", "z9hG4bKx");
    assert_eq!(pair.worlds[0].put_bytes(udp(ALICE), forged.as_bytes())[0].what(), "403");
    // The first proxy restarts.
    pair.worlds[0] = World::with_seed(config_at(PROXIES[0], config()), [77; 32]);
    let there = pair.pass(0, &sent[1]);
    assert_eq!(there[0].what(), "430");
    let back = pair.worlds[1].put_message(udp(PROXIES[0]), &there[0].message);
    assert_eq!(back.last().unwrap().what(), "480");
}

#[test]
fn a_user_whose_proxy_cannot_be_reached_is_called_where_the_contact_says() {
    let mut pair = Pair::new(config);
    pair.register(0, "bob", 1, tcp(BOB, 7), "");
    pair.tell(1);
    let sent = pair.put(1, udp(ALICE), &invite(udp(ALICE), ""));
    let now = pair.worlds[1].now;
    pair.worlds[1].proxy.handle_send_failure(now, sent[1].on_failure.unwrap());
    let sent = pair.worlds[1].sent();
    assert_eq!(summary(&sent), pairs(&[("INVITE", BOB)]));
    assert_eq!(sent[0].value(Name::Route), "");
}

#[test]
fn without_the_store_registrations_get_503_and_known_users_can_be_called() {
    let mut pair = Pair::new(config);
    pair.register(0, "bob", 1, udp(BOB), "");
    pair.is_gone = true;
    let sent = pair.register(0, "bob", 2, udp(BOB), "");
    assert_eq!((sent.what().as_str(), sent.value(Name::RetryAfter).as_str()), ("503", "5"));
    let sent = pair.put(0, udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("INVITE", BOB)]));
    let sent = pair.put(0, udp(ALICE), &invite(udp(ALICE), "").replace("bob@", "carol@").replace("i1", "i2"));
    assert_eq!(summary(&sent), pairs(&[("100", ALICE), ("503", ALICE)]));
    assert_eq!(pair.worlds[0].proxy.counters().unanswered, 2);
    assert_eq!(pair.worlds[0].proxy.waiting_for_store(), 0);
}

#[test]
fn a_user_absent_from_the_store_is_forgotten_after_all_records_were_read() {
    let mut pair = Pair::new(config);
    for user in ["bob", "carol"] {
        pair.register(0, user, 1, udp(BOB), "");
    }
    pair.records.remove("bob@example.com");
    pair.worlds[0].proxy.begin_records();
    pair.tell(0);
    pair.worlds[0].proxy.end_records();
    let users: Vec<_> = pair.worlds[0].proxy.location().iter().map(|(user, _)| user.to_owned()).collect();
    assert_eq!(users, ["carol@example.com"]);
}

#[test]
fn an_outdated_store_record_changes_nothing() {
    let mut pair = Pair::new(config);
    pair.register(0, "bob", 1, udp(BOB), "");
    let old = pair.records["bob@example.com"].clone();
    pair.register(0, "bob", 2, udp(BOB), "Expires: 0\n");
    pair.register(0, "bob", 3, udp(CAROL), "");
    pair.worlds[0].proxy.handle_record("bob@example.com", old);
    let sent = pair.put(0, udp(ALICE), &invite(udp(ALICE), ""));
    assert_eq!(sent[1].to(), CAROL);
}

#[test]
fn a_dialog_continues_through_the_other_proxy_which_removes_its_route() {
    let mut pair = Pair::new(config);
    for (user, at) in [("bob", BOB), ("alice", ALICE)] {
        pair.register(0, user, 1, udp(at), "");
    }
    pair.tell(1);
    let sent = pair.put(0, udp(ALICE), &invite(udp(ALICE), ""));
    let routes = callers_routes(&sent[1]);
    let in_dialog = |method: &str, routes: &str| {
        let uri = format!("sip:bob@{BOB}");
        let text = request(method, &uri, "alice", "bob", "b2", udp(ALICE), routes);
        text.replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=uas")
    };
    let sent = pair.put(1, udp(ALICE), &in_dialog("BYE", &routes));
    assert_eq!(summary(&sent), pairs(&[("BYE", BOB)]));
    assert_eq!(sent[0].value(Name::Route), "");
    // A forged Route that names the other proxy is not removed.
    let forged = routes.replace("dialog=", "dialog=0");
    let sent = pair.put(1, udp(ALICE), &in_dialog("INFO", &forged).replace("b2", "b3"));
    assert_ne!(sent[0].value(Name::Route), "", "it is a Route of somebody else's: {sent:?}");
}

#[test]
fn a_dialog_continues_through_any_proxy_with_the_same_record_route_name() {
    let named = || ProxyConfig {
        record_names: BTreeMap::from(
            [0, 1].map(|at| (at, RecordName { host: "sip.example.com".to_owned(), port: None })),
        ),
        ..config()
    };
    let mut pair = Pair::new(named);
    for (user, at) in [("bob", BOB), ("alice", ALICE)] {
        pair.register(0, user, 1, udp(at), "");
    }
    pair.tell(1);
    let sent = pair.put(0, udp(ALICE), &invite(udp(ALICE), ""));
    let routes = callers_routes(&sent[1]);
    assert!(routes.starts_with("Route: <sip:sip.example.com;transport=udp;lr;dialog="), "{routes}");
    let via = sent[1].value(Name::Via);
    assert!(via.contains(PROXIES[0]), "answers come back to this one: {via}");
    let text = request("BYE", &format!("sip:bob@{BOB}"), "alice", "bob", "b2", udp(ALICE), &routes);
    let text = text.replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=uas");
    let sent = pair.put(1, udp(ALICE), &text);
    assert_eq!((summary(&sent), sent[0].value(Name::Route)), (pairs(&[("BYE", BOB)]), String::new()));
}

#[test]
fn credentials_for_one_proxys_nonce_are_valid_at_another_but_only_once() {
    let mut pair = Pair::new(with_password);
    let challenge = pair.register(0, "alice", 1, udp(ALICE), "");
    assert_eq!(challenge.what(), "401");
    let contact = format!("Contact: <sip:alice@{ALICE}>\n");
    let more = contact + &answer_to(&challenge, "alice", "secret");
    assert_eq!(pair.register(1, "alice", 2, udp(ALICE), &more).what(), "200");
    let replayed = pair.register(0, "alice", 3, udp(CAROL), &more);
    assert_eq!(replayed.what(), "401");
    assert!(replayed.value(Name::WwwAuthenticate).ends_with("stale=true"));
}

#[test]
fn without_the_store_a_proxy_takes_answers_to_its_own_challenges_alone() {
    let mut pair = Pair::new(with_password);
    let text = invite(udp(ALICE), "").replace("sip:bob@example.com", "sip:bob@other.example");
    let challenge = pair.put(0, udp(ALICE), &text).remove(0);
    assert_eq!(challenge.what(), "407");
    pair.is_gone = true;
    let more = answer_for(&challenge, "alice", "secret", "INVITE", "sip:bob@other.example");
    let again =
        |branch: &str| text.replace("i1", branch).replace("Content-Length", &format!("{more}Content-Length"));
    assert_eq!(pair.put(1, udp(ALICE), &again("i3"))[0].what(), "407");
    assert_eq!(pair.put(0, udp(ALICE), &again("i2"))[1].what(), "INVITE");
}

#[test]
fn calls_avoid_a_proxy_whose_heartbeats_have_stopped() {
    let mut pair = Pair::new(config);
    let flow = format!("Contact: <sip:carol@{CAROL}>;+sip.instance=\"<urn:uuid:1>\";reg-id=1\n");
    pair.register(0, "bob", 1, tcp(BOB, 7), "");
    pair.register(0, "carol", 1, tcp(CAROL, 8), &flow);
    pair.tell(1);
    let [first, second] = PROXIES.map(|address| address.parse().unwrap());
    let called = |pair: &mut Pair, branch: &str, user: &str| {
        let sent = call(pair, branch, user);
        (sent.what(), sent.to())
    };
    for s in 0..8 {
        let now = base::Time::from_millis(1000 * s);
        pair.worlds[1].proxy.handle_presence(now, second, Presence::Here);
        if s == 0 {
            pair.worlds[1].proxy.handle_presence(now, first, Presence::Here);
        }
    }
    let through = ("INVITE".to_owned(), PROXIES[0].to_owned());
    pair.worlds[1].now = base::Time::from_millis(6999);
    assert_eq!(called(&mut pair, "i2", "carol"), through);
    pair.worlds[1].now = base::Time::from_millis(7000);
    assert_eq!(called(&mut pair, "i3", "carol"), ("480".to_owned(), ALICE.to_owned()));
    assert_eq!(called(&mut pair, "i4", "bob"), ("INVITE".to_owned(), BOB.to_owned()));
}

/// Returns the result of a call from alice through the second proxy to a user who is registered with the first proxy.
fn call(pair: &mut Pair, branch: &str, user: &str) -> Sent {
    let text = invite(udp(ALICE), "").replace("i1", branch).replace("sip:bob@", &format!("sip:{user}@"));
    pair.put(1, udp(ALICE), &text).pop().unwrap()
}

#[test]
fn a_draining_proxy_is_tried_first_only_for_users_that_it_alone_can_reach() {
    let mut pair = Pair::new(config);
    let flow = format!("Contact: <sip:carol@{CAROL}>;+sip.instance=\"<urn:uuid:1>\";reg-id=1\n");
    pair.register(0, "bob", 1, tcp(BOB, 7), "");
    pair.register(0, "carol", 1, tcp(CAROL, 8), &flow);
    // Dave's connection comes from an address that is not his contact's address.
    pair.register(
        0,
        "dave",
        1,
        tcp("192.0.2.4:5060", 9),
        &format!("Contact: <sip:dave@{BOB};transport=tcp>\n"),
    );
    pair.tell(1);
    let (now, first) = (pair.worlds[1].now, PROXIES[0].parse().unwrap());
    let calls_to_all = |pair: &mut Pair, at: usize| {
        let call = |user| call(pair, &format!("i{at}{}", user), user);
        ["carol", "dave", "bob"].map(call)
    };
    assert_eq!(calls_to_all(&mut pair, 2).map(|sent| sent.to()), [PROXIES[0]; 3]);
    pair.worlds[0].proxy.begin_drain();
    pair.worlds[1].proxy.handle_presence(now, first, Presence::Draining);
    let sent = calls_to_all(&mut pair, 3);
    assert_eq!([&sent[0], &sent[1], &sent[2]].map(Sent::to), [PROXIES[0], PROXIES[0], BOB]);
    // The draining proxy still serves users whom only it can reach, and the drain waits for their calls.
    let there = pair.pass(0, &sent[0]);
    assert_eq!((there[1].what().as_str(), there[1].hop), ("INVITE", tcp(CAROL, 8)));
    assert!(!pair.worlds[0].proxy.is_drained());
    // If the contact's address cannot be reached, the call uses the connection of the draining proxy.
    pair.worlds[1].proxy.handle_send_failure(now, sent[2].on_failure.unwrap());
    let again = pair.worlds[1].sent().pop().unwrap();
    assert_eq!((again.what().as_str(), again.to().as_str()), ("INVITE", PROXIES[0]));
    let there = pair.pass(0, &again);
    assert_eq!((there[1].what().as_str(), there[1].hop), ("INVITE", tcp(BOB, 7)));
    // The draining proxy rejects other new requests, including requests with a forged token.
    let refused = pair.put(0, udp(ALICE), &invite(udp(ALICE), "").replace("i1", "i9"));
    assert_eq!(summary(&refused), pairs(&[("503", ALICE)]));
    let forged = String::from_utf8(again.message.to_bytes().to_vec()).unwrap();
    let at = forged.find("Route: <sip:").unwrap() + 12;
    let forged = forged.replace(&forged[at..at + 90], &"0".repeat(90)).replace("z9hG4bK", "z9hG4bKx");
    assert_eq!(pair.worlds[0].put_bytes(udp(PROXIES[1]), forged.as_bytes())[0].what(), "503");
    // The draining proxy announces its end. From then on, no requests are sent to it.
    pair.worlds[1].proxy.handle_presence(now, first, Presence::Gone);
    assert_eq!(calls_to_all(&mut pair, 4).map(|sent| sent.what()), ["480", "INVITE", "INVITE"]);
}
