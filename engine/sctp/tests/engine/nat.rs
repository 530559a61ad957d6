//! Tests of outages behind NATs. All links of the client are cut for a while. The NATs, at the far ends of the links, forget silent flows
//! and answer with ICMP errors. As with TCP, the association must continue.

use std::time::Duration;

use sctp::{CloseReason, EndpointConfig, StateName};
use sim::{Change, Close, Conversation, LinkConfig, LinkId, NatConfig, NatId, World};

use crate::failover::config;
use crate::support::{Two, UDP, describe, messages, seconds};

/// Durations of the outages, in seconds.
const OUTAGES: [u64; 5] = [5, 15, 60, 200, 600];
/// Limit on the time after an outage until both ends receive data. During an outage, attempts are up to one RTO.Max (5 s) apart. The limit
/// adds a margin of one second.
const RECOVERY: Duration = Duration::from_secs(6);
/// Number of messages that each end sends, and the length of each in bytes. They take 1.6 s at the links' rate.
const COUNT: usize = 400;
const LENGTH: usize = 1000;
const RATE: u64 = 2_000_000;

/// The network between a client and a server.
#[derive(Clone, Copy, Debug)]
struct Site {
    /// Number of the client's addresses, each with its own link.
    inner: usize,
    /// Number of NATs: one for all of the client's addresses, or one per address.
    boxes: usize,
    /// Number of the server's addresses.
    outer: usize,
}

const SITES: [Site; 6] = [
    Site { inner: 1, boxes: 1, outer: 1 },
    Site { inner: 1, boxes: 1, outer: 2 },
    Site { inner: 2, boxes: 1, outer: 1 },
    Site { inner: 2, boxes: 1, outer: 2 },
    Site { inner: 2, boxes: 2, outer: 1 },
    Site { inner: 2, boxes: 2, outer: 2 },
];

/// Returns three NATs: the NAT of Linux, a NAT that does only what RFC 4787 requires, and a NAT that also forgets flows early. The third
/// one has other hosts at the inner addresses.
fn boxes() -> [NatConfig; 3] {
    let linux = NatConfig::default();
    let least = NatConfig { keeps_by_inbound: false, preserves_ports: false, ..linux };
    [linux, least, NatConfig { memory: seconds(30), has_strangers: true, ..least }]
}

/// Creates a client and a server with these conversations, and the NATs between them.
fn behind(site: Site, nat: NatConfig, from_a: Conversation, from_b: Conversation) -> (Two, Vec<NatId>) {
    fn names(all: &[String]) -> Vec<&str> {
        all.iter().map(String::as_str).collect()
    }
    let mut world = World::new(1);
    let list = |prefix: &str, count| (1..=count).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
    let (inner, outer) = (list("10.0.0.", site.inner), list("192.0.2.", site.outer));
    let endpoint = EndpointConfig { association: config(), ..EndpointConfig::default() };
    let [a, b] = [&inner, &outer].map(|own| world.add_host(&names(own), endpoint.clone()));
    let settings = LinkConfig {
        delay: Duration::from_millis(10),
        rate: RATE,
        queue_packets: 50,
        ..LinkConfig::default()
    };
    let links: Vec<LinkId> = inner.iter().map(|_| world.add_link(settings.clone())).collect();
    for (address, &link) in inner.iter().zip(&links) {
        outer.iter().for_each(|server| world.join(link, address, server));
    }
    let nats = inner
        .chunks(site.inner / site.boxes)
        .zip(1..)
        .map(|(own, n)| world.add_nat(nat, &format!("198.51.100.{n}"), &names(own)))
        .collect();
    world.host_mut(b).app.template = from_b;
    world.connect(a, b, UDP, config(), from_a);
    let mut two = Two { world, a, b, links };
    two.run_to_established();
    two.world.run_for(seconds(3));
    (two, nats)
}

/// Cuts all links for `outage`, and runs until its end.
fn suffer(t: &mut Two, outage: Duration) {
    let (now, end) = (t.world.now(), t.world.now() + outage);
    for &link in &t.links.clone() {
        t.world.at(now, Change::CutBoth(link, true));
        t.world.at(end, Change::CutBoth(link, false));
    }
    t.world.run_until(end, |_| false);
}

/// Queues more messages at both ends, from message number `from` on.
fn speak(t: &mut Two, counts: [usize; 2], from: usize) {
    for (host, count) in [t.a, t.b].into_iter().zip(counts) {
        let id = t.id(host);
        let talk = t.world.host_mut(host).app.conversations.get_mut(&id).expect("a conversation");
        talk.outgoing.extend(messages(from + count, LENGTH, 1).into_iter().skip(from));
    }
    t.world.run_for(Duration::ZERO);
}

fn numbers(t: &Two) -> [usize; 2] {
    [t.a, t.b].map(|host| t.talk(host).received.len())
}

/// Makes each end send messages, begins an outage half a second later, and sends one more message at the end of the outage. `forgets` is
/// the time after which the NATs lose their memory.
fn go_through(site: Site, nat: NatConfig, counts: [usize; 2], outage: Duration, forgets: Option<Duration>) {
    let what = || format!("{site:?}, {nat:?}, messages {counts:?}, {outage:?}");
    let (mut t, nats) = behind(site, nat, Conversation::default(), Conversation::default());
    speak(&mut t, counts, 0);
    t.world.run_for(Duration::from_millis(500));
    for (&nat, after) in nats.iter().zip(forgets.iter().cycle()) {
        t.world.at(t.world.now() + *after, Change::Forget(nat));
    }
    suffer(&mut t, outage);
    let before = numbers(&t);
    assert!(before.iter().zip([counts[1], counts[0]]).all(|(&n, all)| n < all || all == 0), "{before:?}");
    for (from, counts) in counts.into_iter().zip([[1, 0], [0, 1]]) {
        speak(&mut t, counts, from);
    }
    let limit = t.world.now() + RECOVERY;
    let (a, b) = (t.a, t.b);
    let flows = move |w: &World| {
        [(a, before[0]), (b, before[1])].iter().all(|&(host, before)| {
            w.host(host).app.conversations.values().any(|talk| talk.received.len() > before)
        })
    };
    assert!(
        t.world.run_until(limit, flows),
        "nothing after {RECOVERY:?}: {}\n{}",
        what(),
        describe(&t.world)
    );
    // No message is lost, duplicated or reordered, and the association shuts down gracefully.
    t.world.run_for(seconds(15));
    let id = t.id(t.a);
    t.world.host_mut(a).app.conversations.get_mut(&id).expect("a conversation").close = Close::After(0);
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful), "{}", what());
    for (host, count) in [(t.b, counts[0] + 1), (t.a, counts[1] + 1)] {
        let received: Vec<_> = t.talk(host).received.iter().map(|it| it.bytes.clone()).collect();
        let sent: Vec<_> = messages(count, LENGTH, 1).into_iter().map(|it| it.bytes).collect();
        assert!(received == sent, "{} of {count} at {host:?}: {}", received.len(), what());
    }
}

fn go_through_all(counts: [usize; 2]) {
    for site in SITES {
        for nat in boxes() {
            for outage in OUTAGES {
                go_through(site, nat, counts, seconds(outage), None);
            }
        }
    }
}

#[test]
fn an_idle_association_outlives_outages_behind_nats() {
    go_through_all([0, 0]);
}

#[test]
fn a_client_that_sends_outlives_outages_behind_nats() {
    go_through_all([COUNT, 0]);
}

#[test]
fn a_server_that_sends_outlives_outages_behind_nats() {
    go_through_all([0, COUNT]);
}

#[test]
fn two_sending_hosts_outlive_outages_behind_nats() {
    go_through_all([COUNT, COUNT]);
}

#[test]
fn nats_that_lose_their_mappings_silently_or_late_end_no_association() {
    let silent = NatConfig { answers: false, ..NatConfig::default() };
    for site in SITES {
        for counts in [[0, 0], [COUNT, COUNT]] {
            for (nat, after) in [(silent, 1), (NatConfig::default(), 30)] {
                for outage in [60, 600] {
                    go_through(site, nat, counts, seconds(outage), Some(seconds(after)));
                }
            }
        }
    }
}

#[test]
//= rfc6951#5.5-4
fn a_gone_client_behind_a_nat_is_noticed_through_icmp_from_its_host() {
    for site in SITES {
        let (mut t, _) = behind(site, NatConfig::default(), Conversation::default(), Conversation::default());
        t.world.at(t.world.now(), Change::Up(t.a, false));
        t.world.run_for(seconds(20));
        assert_eq!(t.state(t.b), StateName::Closed, "{site:?}: {}", describe(&t.world));
    }
}

#[test]
fn data_lost_in_an_outage_is_retransmitted_as_soon_as_its_path_answers() {
    for site in [Site { inner: 1, boxes: 1, outer: 2 }, Site { inner: 2, boxes: 1, outer: 1 }] {
        for outage in [2, 3, 4].into_iter().chain(OUTAGES) {
            let bulk = Conversation { bulk: 1 << 40, keeps: false, ..Conversation::default() };
            let quiet = Conversation { keeps: false, ..Conversation::default() };
            let (mut t, _) = behind(site, NatConfig::default(), bulk, quiet);
            suffer(&mut t, seconds(outage));
            let before = t.talk(t.b).received_bytes;
            // A message of the server shows the client that the path works again.
            speak(&mut t, [0, 1], 0);
            t.world.run_for(seconds(1));
            assert!(t.talk(t.b).received_bytes > before, "{site:?}, {outage} s: {}", describe(&t.world));
        }
    }
}
