//! Tests of two proxies that share one association (RFC 4168). The thesis that added SCTP to Partysip leaves such sharing open (chapter 6).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::pair::Tools;
use testbed::process::wait_for;
use testbed::{Capture, DelayedLink, Host, Lab, Link, Offloads, Process};

use crate::framed::{Message, messages};
use crate::world::{LIMIT, Site};

/// Two sites joined by two links. SIPp and the proxies' listeners use the addresses of the first link.
pub(crate) struct Pair {
    pub(crate) a: Site,
    pub(crate) b: Site,
    pub(crate) links: [Link; 2],
    _emulators: Vec<DelayedLink>,
    // Last field: the lab owns the sites' hosts, and must be dropped after them.
    _lab: Lab,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::joined(|lab, a, b| {
            ([1, 2].map(|number| lab.join(a, b, number, Offloads::Off).unwrap()), Vec::new())
        })
    }

    /// Creates a pair whose links have a delay, like links between real proxies.
    fn apart() -> Pair {
        let linkemu = Tools::find().unwrap().linkemu;
        Pair::joined(|lab, a, b| {
            let emulators = [1, 2].map(|number| {
                DelayedLink::between(lab, a, b, number, Duration::from_millis(5), &linkemu).unwrap()
            });
            (emulators.each_ref().map(|emulator| emulator.link.clone()), emulators.into())
        })
    }

    fn joined(join: impl FnOnce(&Lab, &Host, &Host) -> ([Link; 2], Vec<DelayedLink>)) -> Pair {
        let lab = Lab::new().unwrap();
        let a = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
        let b = Site::new(&lab, "beta", "10.77.1.2", "b.example");
        let (links, emulators) = join(&lab, &a.host, &b.host);
        Pair { a, b, links, _emulators: emulators, _lab: lab }
    }

    /// Starts the proxy of `site`, which reaches the other site over SCTP. `sctp` are further lines of the table `[sctp]`.
    pub(crate) fn proxy(&self, site: &Site, other: &Site, sctp: &str) -> Process {
        let next_hop = format!(
            "[[next_hop]]\ndomain = \"{}\"\ntransport = \"sctp\"\naddress = \"{}:5060\"\n",
            other.domain, other.address
        );
        let second = site.address.replace("10.77.1.", "10.77.2.");
        let sctp = format!("[sctp]\naddresses = [\"{second}\"]\n{sctp}");
        site.proxy(&[site.with_control(), site.listen("udp"), site.listen("sctp"), next_hop, sctp])
    }

    /// Returns the first proxy's path between the two addresses of a link, or null if there is no such path.
    fn path(&self, link: usize) -> Value {
        let told: Value = serde_json::from_str(&self.a.told(&["connections", "--json"])).unwrap();
        let ends = (self.links[link].left_v4().to_string(), self.links[link].right_v4().to_string());
        let rows = told["connections"].as_array().unwrap().iter();
        let mut paths = rows.flat_map(|row| row["paths"].as_array().unwrap());
        let found = paths.find(|path| path["local"] == ends.0 && path["remote"] == ends.1);
        found.cloned().unwrap_or_default()
    }

    fn proxies(&self, sctp: &str) -> [Process; 2] {
        [self.proxy(&self.a, &self.b, sctp), self.proxy(&self.b, &self.a, sctp)]
    }
}

fn associations(proxy: &Process) -> usize {
    proxy.stderr().matches("association up").count()
}

/// Makes calls in both directions. Returns the messages that crossed the first link, in their order.
fn calls_both_ways(sctp: &str, carrier: &str) -> Vec<Message> {
    let pair = Pair::new();
    let [a, b] = pair.proxies(sctp);
    let _callees = [pair.a.callee("udp"), pair.b.callee("udp")];
    let capture = |name| Capture::start(&pair.a.host, name, &[&pair.links[0].name()]).unwrap();
    let (capture, places) = (capture("calls"), capture("places"));
    for (caller, callee) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        callee.register("bob", "udp");
        caller.call("bob", callee.domain, "udp", 100);
    }
    assert_eq!((associations(&a), associations(&b)), (1, 1), "one association serves both ways");
    let seen = capture.judge().unwrap();
    assert_eq!((seen.carrier(), seen.faulty), (carrier, 0), "{seen:?}");
    messages(places)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn calls_cross_one_association_over_ip_in_both_directions_each_dialog_on_its_stream() {
    let seen = calls_both_ways("", "sctp");
    // The first message is bundled with the COOKIE ECHO, on stream 0.
    assert_eq!(seen[0].method, "INVITE");
    let mut streams: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for message in &seen[1..] {
        streams.entry(&message.dialog).or_default().insert(&message.stream);
    }
    assert_eq!(streams.len(), 200);
    assert!(streams.values().all(|streams| streams.len() == 1), "a dialog has one stream: {streams:?}");
    let all: BTreeSet<_> = streams.values().flatten().collect();
    assert!(all.len() > 32, "dialogs are spread over 64 streams: {all:?}");
    assert!(seen.iter().all(|message| !message.is_unordered), "{seen:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn calls_cross_one_association_in_udp_in_both_directions() {
    calls_both_ways("carrier = \"udp\"\n", "sctp-udp");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn with_order_none_messages_are_unordered_on_stream_0() {
    let seen = calls_both_ways("order = \"none\"\n", "sctp");
    let is_as_told = |message: &Message| message.is_unordered && message.stream == "0x0000";
    // The first message is excluded, because it is bundled with the COOKIE ECHO, and such a message is ordered.
    assert!(seen.len() > 1000 && seen[1..].iter().all(is_as_told), "{seen:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn sigterm_shuts_down_a_proxys_associations_gracefully() {
    let pair = Pair::new();
    let [a, b] = pair.proxies("");
    let _callee = pair.b.callee("udp");
    pair.b.register("bob", "udp");
    pair.a.call("bob", pair.b.domain, "udp", 1);
    a.signal(Signal::SIGTERM).unwrap();
    let stopped = a.finish(LIMIT).unwrap().good().unwrap();
    assert!(stopped.stderr.contains("stopped"), "{}", stopped.stderr);
    assert!(wait_for(LIMIT, || b.stderr().contains("association over")), "{}", b.stderr());
    assert!(b.stderr().contains("Graceful"), "{}", b.stderr());
}

/// Traffic of the first proxy while it carries calls.
#[derive(Debug)]
struct Sent {
    /// Bytes of frames, by link.
    by_link: [f64; 2],
    /// Bytes of messages, by the path between the two addresses of a link.
    by_path: [f64; 2],
}

fn sent(sctp: &str) -> Sent {
    let pair = Pair::apart();
    let _proxies = pair.proxies(sctp);
    let _callee = pair.b.callee("udp");
    pair.b.register("bob", "udp");
    pair.a.call("bob", pair.b.domain, "udp", 1);
    assert!(wait_for(LIMIT, || pair.path(1)["state"] == "active"), "{}", pair.a.told(&["connections"]));
    let by_link = || [0, 1].map(|link: usize| pair.links[link].left_sent_bytes().unwrap() as f64);
    let by_path = || [0, 1].map(|link| pair.path(link)["data_sent_bytes"].as_f64().unwrap());
    let before = (by_link(), by_path());
    pair.a.call("bob", pair.b.domain, "udp", 200);
    let less = |after: [f64; 2], before: [f64; 2]| [after[0] - before[0], after[1] - before[1]];
    Sent { by_link: less(by_link(), before.0), by_path: less(by_path(), before.1) }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn messages_go_by_one_path_by_weight_or_by_all_paths_as_the_configuration_says() {
    let one = sent("");
    assert!(one.by_path[0] > 100_000.0 && one.by_path[1] == 0.0, "{one:?}");
    let weighted = sent("multipath = \"weighted\"\nmultipath_weights = \"10.77.1.1=3\"\n");
    let ratio = weighted.by_path[0] / weighted.by_path[1];
    assert!((2.5..3.5).contains(&ratio), "{ratio}: {weighted:?}");
    let redundant = sent("multipath = \"redundant\"\n");
    // Every message is sent to both addresses of the peer. Several paths may share a link, which then carries several copies.
    let ratio = redundant.by_link[0] / redundant.by_link[1];
    assert!(
        (0.2..5.0).contains(&ratio) && redundant.by_link.iter().all(|&sent| sent > 100_000.0),
        "{ratio}: {redundant:?}"
    );
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_dead_path_costs_no_call() {
    let pair = Pair::new();
    let [a, _b] = pair.proxies("");
    let _callee = pair.b.callee("udp");
    pair.b.register("bob", "udp");
    // The caller and the callee exchange UDP datagrams only with the proxy on their own host. Only SCTP crosses the links.
    let command = pair.a.caller("bob", pair.b.domain, "udp", 500, 50);
    let caller = pair.a.host.spawn("caller", command).unwrap();
    assert!(wait_for(LIMIT, || associations(&a) == 1), "an association");
    std::thread::sleep(Duration::from_secs(3));
    pair.links[0].silence().unwrap();
    caller.finish(LIMIT).unwrap().good().unwrap();
    assert!(a.stderr().contains("SCTP path switched"), "{}", a.stderr());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_call_over_an_association_that_a_restarted_proxy_has_forgotten_succeeds_over_a_new_association() {
    let pair = Pair::new();
    let [a, b] = pair.proxies("");
    let _callee = pair.b.callee("udp");
    pair.b.register("bob", "udp");
    pair.a.call("bob", pair.b.domain, "udp", 1);
    b.signal(Signal::SIGKILL).unwrap();
    b.finish(LIMIT).unwrap();
    let _b = pair.proxy(&pair.b, &pair.a, "");
    // Timer B of the INVITE would end the call after 32 s.
    let command = pair.a.caller("bob", pair.b.domain, "udp", 1, 50);
    pair.a.host.run("call", command, Duration::from_secs(20)).unwrap().good().unwrap();
    let log = a.stderr();
    assert!(log.contains("reason=PeerAborted") && associations(&a) == 2, "{log}");
}
