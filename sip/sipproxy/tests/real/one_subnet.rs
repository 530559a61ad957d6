//! Tests the network of figure 5.9 of the thesis that added SCTP to Partysip. A proxy with two network cards and a proxy with one card
//! share a hub and a subnet. A cable is pulled at the hub.

use std::time::Duration;

use testbed::process::wait_for;
use testbed::{Host, Lab, Process};

use crate::world::{LIMIT, Site};

/// Addresses of the first proxy's cards.
const CARDS: [&str; 2] = ["10.77.1.1", "10.77.1.3"];
/// Number of calls.
const CALLS: u32 = 400;
/// Calls per second.
const RATE: u32 = 50;

/// Two hosts on a hub.
struct World {
    two_cards: Site,
    one_card: Site,
    hub: Host,
    // Last field: the lab owns the hosts, and must be dropped after them.
    _lab: Lab,
}

impl World {
    fn new() -> World {
        let lab = Lab::new().unwrap();
        let two_cards = Site::new(&lab, "alpha", CARDS[0], "a.example");
        let one_card = Site::new(&lab, "beta", "10.77.1.2", "b.example");
        let hub = lab.host("hub").unwrap();
        hub.ip(&["link", "add", "hub", "type", "bridge"]).unwrap();
        hub.ip(&["link", "set", "hub", "up"]).unwrap();
        let world = World { two_cards, one_card, hub, _lab: lab };
        world.plug(&world.two_cards.host, "port1", "card1", CARDS[0]);
        world.plug(&world.two_cards.host, "port2", "card2", CARDS[1]);
        world.plug(&world.one_card.host, "port3", "card1", &world.one_card.address);
        world
    }

    /// Connects a host's card to a port of the hub.
    fn plug(&self, host: &Host, port: &str, card: &str, address: &str) {
        self.hub
            .ip(&["link", "add", port, "type", "veth", "peer", "name", card, "netns", host.namespace()])
            .unwrap();
        self.hub.ip(&["link", "set", port, "master", "hub", "up"]).unwrap();
        host.ip(&["address", "add", &format!("{address}/24"), "dev", card]).unwrap();
        host.ip(&["link", "set", card, "up"]).unwrap();
    }

    fn proxy(&self, site: &Site, other: &Site, addresses: &[&str]) -> Process {
        let next_hop = format!(
            "[[next_hop]]\ndomain = \"{}\"\ntransport = \"sctp\"\naddress = \"{}:5060\"\n",
            other.domain, other.address
        );
        let sctp = format!("[sctp]\naddresses = {addresses:?}\n");
        site.proxy(&[site.listen("udp"), site.listen("sctp"), next_hop, sctp])
    }

    /// Makes calls through both proxies, and pulls the cable of the first proxy's first card during the calls. `addresses` are further SCTP
    /// addresses of the first proxy. Returns whether all calls succeeded, and the log of the first proxy.
    fn calls_while_a_cable_is_pulled(&self, addresses: &[&str]) -> (bool, String) {
        let a = self.proxy(&self.two_cards, &self.one_card, addresses);
        let _b = self.proxy(&self.one_card, &self.two_cards, &[]);
        let _callee = self.one_card.callee("udp");
        self.one_card.register("bob", "udp");
        let command = self.two_cards.caller("bob", self.one_card.domain, "udp", CALLS, RATE);
        let caller = self.two_cards.host.spawn("caller", command).unwrap();
        assert!(wait_for(LIMIT, || a.stderr().contains("association up")), "{}", a.stderr());
        std::thread::sleep(Duration::from_secs(3));
        self.hub.ip(&["link", "set", "port1", "down"]).unwrap();
        let is_good = caller.finish(LIMIT).unwrap().good().is_ok();
        (is_good, a.stderr())
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn calls_go_on_by_the_second_card_when_the_cable_of_the_first_is_pulled_at_the_hub() {
    let (is_good, log) = World::new().calls_while_a_cable_is_pulled(&CARDS[1..]);
    assert!(is_good && log.contains("SCTP path switched"), "{log}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn calls_fail_when_the_cable_of_the_only_card_in_use_is_pulled() {
    let (is_good, log) = World::new().calls_while_a_cable_is_pulled(&[]);
    assert!(!is_good && log.contains("LostContact"), "{log}");
}
