//! Two proxies joined by one association (RFC 4168): what the thesis left open in its chapter 6.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::sys::signal::Signal;
use testbed::process::wait_for;
use testbed::{Capture, Lab, Link, Offloads, Process};

use crate::framed::{Message, messages};
use crate::world::{LIMIT, Site};

/// Two sites on two links; the first is where SIPp and the proxies are.
struct Pair {
    a: Site,
    b: Site,
    links: [Link; 2],
    // Last: the sites' hosts are its.
    _lab: Lab,
}

impl Pair {
    fn new() -> Pair {
        let lab = Lab::new().unwrap();
        let a = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
        let b = Site::new(&lab, "beta", "10.77.1.2", "b.example");
        let links = [1, 2].map(|number| lab.join(&a.host, &b.host, number, Offloads::Off).unwrap());
        Pair { a, b, links, _lab: lab }
    }

    /// The proxy of one site, which reaches the other by SCTP.
    fn proxy(&self, site: &Site, other: &Site, sctp: &str) -> Process {
        let next_hop = format!(
            "[[next_hop]]\ndomain = \"{}\"\ntransport = \"sctp\"\naddress = \"{}:5060\"\n",
            other.domain, other.address
        );
        let second = site.address.replace("10.77.1.", "10.77.2.");
        let sctp = format!("[sctp]\naddresses = [\"{second}\"]\n{sctp}");
        site.proxy(&[site.listen("udp"), site.listen("sctp"), next_hop, sctp])
    }

    fn proxies(&self, sctp: &str) -> [Process; 2] {
        [self.proxy(&self.a, &self.b, sctp), self.proxy(&self.b, &self.a, sctp)]
    }
}

fn associations(proxy: &Process) -> usize {
    proxy.stderr().matches("association up").count()
}

/// The messages that crossed, in their order.
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
    // The message that the association is made for goes with the COOKIE ECHO, on stream 0.
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
fn calls_go_through_unordered_on_stream_zero_too() {
    let seen = calls_both_ways("order = \"none\"\n", "sctp");
    let is_as_told = |message: &Message| message.is_unordered && message.stream == "0x0000";
    // But for the one with the COOKIE ECHO.
    assert!(seen.len() > 1000 && seen[1..].iter().all(is_as_told), "{seen:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_proxy_that_is_stopped_takes_leave_of_its_peers() {
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

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_dead_path_costs_no_call() {
    let pair = Pair::new();
    let [a, _b] = pair.proxies("");
    let _callee = pair.b.callee("udp");
    pair.b.register("bob", "udp");
    // The callee's answers and the caller's requests stay on their hosts; only SCTP crosses the links.
    let command = pair.a.caller("bob", pair.b.domain, "udp", 500, 50);
    let caller = pair.a.host.spawn("caller", command).unwrap();
    assert!(wait_for(LIMIT, || associations(&a) == 1), "an association");
    std::thread::sleep(Duration::from_secs(3));
    pair.links[0].silence().unwrap();
    caller.finish(LIMIT).unwrap().good().unwrap();
    assert!(a.stderr().contains("SCTP path switched"), "{}", a.stderr());
}
