//! Tests over real paths between network namespaces: links with a small MTU behind a router, closed ports,
//! unsupported protocols. In one test, three clients use one endpoint at the same time: over UDP, over raw
//! IP, and through a NAT.
//!
//! Host alpha is the client, host beta the server, and a router connects them. The tests need root.

use std::path::Path;
use std::time::Duration;
use testbed::{Finished, Host, Lab, Link, Offloads, Process};

const PEER: &str = env!("CARGO_BIN_EXE_peer");
const LIMIT: Duration = Duration::from_secs(30);
/// The SCTP port of every server.
const PORT: &str = "5000";
/// Time from a transfer's start to the change of the network.
const BEFORE: Duration = Duration::from_millis(400);
/// Limit on the silence after a change of the network that ICMP reports, in seconds. Without ICMP, timers
/// need a second or more to detect the change.
const SILENCE_MAX: f64 = 0.6;

/// Limit on the life of an association after the peer's host reports a closed port. Without this report,
/// timers end the association after a minute.
const SOON: Duration = Duration::from_secs(5);

/// Hosts alpha and beta, the router between them, and the two links.
struct Routed {
    alpha: Host,
    router: Host,
    beta: Host,
    near: Link,
    far: Link,
    _lab: Lab,
}

impl Routed {
    fn new() -> Routed {
        let lab = Lab::new().unwrap();
        let [alpha, router, beta] = ["alpha", "router", "beta"].map(|name| lab.host(name).unwrap());
        let near = lab.join(&alpha, &router, 1, Offloads::On).unwrap();
        let far = lab.join(&router, &beta, 2, Offloads::On).unwrap();
        router.tool("sysctl", &["-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]).unwrap();
        alpha.ip(&["route", "add", "default", "via", &near.right_v4().to_string()]).unwrap();
        alpha.ip(&["-6", "route", "add", "default", "via", &near.right_v6().to_string()]).unwrap();
        beta.ip(&["route", "add", "default", "via", &far.left_v4().to_string()]).unwrap();
        beta.ip(&["-6", "route", "add", "default", "via", &far.left_v6().to_string()]).unwrap();
        Routed { alpha, router, beta, near, far, _lab: lab }
    }

    /// Returns the addresses of alpha and beta: the IPv4 pair, then the IPv6 pair.
    fn families(&self) -> [(String, String); 2] {
        let v4 = (self.near.left_v4().to_string(), self.far.right_v4().to_string());
        [v4, (self.near.left_v6().to_string(), self.far.right_v6().to_string())]
    }

    /// Sets the MTU of the link between the router and beta, at both ends.
    fn set_far_mtu(&self, mtu: &str) {
        for host in [&self.router, &self.beta] {
            host.ip(&["link", "set", &self.far.name(), "mtu", mtu]).unwrap();
        }
    }

    fn serve(&self, options: &[&str], mode: &str) -> Process {
        let mut server = run(&self.beta, "server", &[options, &[mode, PORT]].concat());
        wait_for(&mut server, "listening");
        server
    }
}

fn run(host: &Host, name: &str, words: &[&str]) -> Process {
    let mut command = host.command(Path::new(PEER));
    command.args(words);
    host.spawn(name, command).unwrap()
}

fn wait_for(process: &mut Process, word: &str) {
    process.wait_until(word, LIMIT, |process| process.stdout().contains(word)).unwrap();
}

/// Arguments of a paced transfer of full packets: 200 messages of 3,000 octets in about 1.2 s.
const PACED: [&str; 6] = ["200", "3000", "--window", "20", "--gap", "0.006"];

fn all_came_back(finished: Finished) -> String {
    let text = finished.good().unwrap().stdout;
    assert!(text.contains(&peer::digest(200, 3000)), "{text}");
    text
}

fn longest_silence(text: &str) -> f64 {
    let after = text.split("longest silence ").nth(1).expect("the client tells its longest silence");
    after.split(' ').next().unwrap().parse().unwrap()
}

/// Starts a server and a client. On return, the transfer is in progress.
fn under_way(world: &Routed, carrier: &str, from: &str, to: &str) -> (Process, Process) {
    let server = world.serve(&["--carrier", carrier, "--local", to], "echo");
    let client = [&["--carrier", carrier, "--local", from, "client", to, PORT], &PACED[..]].concat();
    let mut client = run(&world.alpha, "client", &client);
    wait_for(&mut client, "connected");
    std::thread::sleep(BEFORE);
    assert!(client.is_running(), "{}", client.stdout());
    (client, server)
}

fn follows_a_smaller_link(carrier: &str) {
    for family in 0..2 {
        let world = Routed::new();
        let (from, to) = world.families()[family].clone();
        let (client, server) = under_way(&world, carrier, &from, &to);
        world.set_far_mtu("1300");
        let text = all_came_back(client.finish(LIMIT).unwrap());
        assert!(text.contains(&format!("MTU to {to}: ")) && text.contains("now 1300"), "{text}");
        assert!(longest_silence(&text) < SILENCE_MAX, "{text}");
        server.finish(LIMIT).unwrap().good().unwrap();
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn over_udp_an_association_adapts_to_a_smaller_mtu_that_a_router_reports() {
    follows_a_smaller_link("udp");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn over_raw_ip_an_association_adapts_to_a_smaller_mtu_that_a_router_reports() {
    follows_a_smaller_link("ip");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_transfer_survives_a_smaller_mtu_that_the_router_does_not_report() {
    for carrier in ["udp", "ip"] {
        let world = Routed::new();
        let silence = "add table inet silent; add chain inet silent out { type filter hook output priority 0; }; \
            add rule inet silent out icmpv6 type packet-too-big drop; \
            add rule inet silent out icmp type destination-unreachable drop";
        world.router.tool("nft", &[silence]).unwrap();
        for (from, to) in world.families() {
            world.set_far_mtu("1500");
            let (client, server) = under_way(&world, carrier, &from, &to);
            world.set_far_mtu("1300");
            let text = all_came_back(client.finish(LIMIT).unwrap());
            // The limit allows one timeout. Data that was segmented for the larger MTU must not cause a
            // second timeout.
            assert!(longest_silence(&text) < 2.0, "{text}");
            server.finish(LIMIT).unwrap().good().unwrap();
        }
    }
}

/// Kills the server with SIGKILL. Beta's kernel then reports over ICMP that the port is closed, or that the
/// protocol is unsupported. Checks that the client ends soon after this report.
fn ends_when_nobody_listens(carrier: &str) {
    let world = Routed::new();
    for (from, to) in world.families() {
        let (client, server) = under_way(&world, carrier, &from, &to);
        drop(server);
        let ended = client.finish(SOON).expect("it ends long before its timers would end it");
        assert!(ended.stderr.contains("LostContact"), "{}", ended.stderr);
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_association_ends_soon_when_the_peers_udp_port_is_closed() {
    ends_when_nobody_listens("udp");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_association_ends_soon_when_the_peer_does_not_speak_sctp_any_more() {
    ends_when_nobody_listens("ip");
}

/// Makes the router translate a client's UDP port 9898 to `port` in packets towards beta, and back in packets
/// towards the client. The router counts the translated packets of each direction.
fn translate(router: &Host, far: &str, port: u16) {
    // The table's name need not be unique, because this lab alone uses the router.
    let table = "table inet nat_by_hand";
    let rules = format!(
        "{table} {{}}; delete {table}; {table} {{ \
         chain out {{ type filter hook postrouting priority 0; oifname {far} udp sport 9898 counter udp sport set {port}; }}; \
         chain back {{ type filter hook prerouting priority 0; iifname {far} udp dport {port} counter udp dport set 9898; }}; }}"
    );
    router.tool("nft", &[&rules]).unwrap();
}

/// Returns the number of packets that the router translated, in each direction.
fn translated(router: &Host) -> Vec<u64> {
    let text = router.tool("nft", &["list", "table", "inet", "nat_by_hand"]).unwrap();
    let counts = text.split("counter packets ").skip(1);
    counts.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn one_endpoint_serves_udp_raw_ip_and_a_client_behind_a_nat_that_changes_its_port() {
    for family in 0..2 {
        let world = Routed::new();
        let (from, to) = world.families()[family].clone();
        translate(&world.router, &world.far.name(), 20_000);
        let _server = world.serve(&["--carrier", "both", "--local", &to], "serve");
        let client = |name: &str, options: &[&str]| {
            let words = [options, &["--local", &from, "client", &to, PORT], &PACED].concat();
            run(&world.alpha, name, &words)
        };
        let mut clients = [
            client("udp", &["--carrier", "udp"]),
            client("raw", &["--carrier", "ip"]),
            client("moved", &["--carrier", "udp", "--udp-port", "9898"]),
        ];
        clients.iter_mut().for_each(|client| wait_for(client, "connected"));
        std::thread::sleep(BEFORE);
        assert!(clients.iter_mut().all(Process::is_running));
        assert!(translated(&world.router).iter().all(|count| *count > 10), "not behind the NAT");
        translate(&world.router, &world.far.name(), 30_000);
        for client in clients {
            all_came_back(client.finish(LIMIT).unwrap());
        }
        let counts = translated(&world.router);
        assert!(counts.len() == 2 && counts.iter().all(|count| *count > 50), "{counts:?} by the new port");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_client_that_tries_both_carriers_takes_the_one_that_a_firewall_lets_through() {
    let world = Routed::new();
    for (from, to) in world.families() {
        for (blocked, free) in
            [("meta l4proto 132", "meta l4proto udp"), ("meta l4proto udp", "meta l4proto 132")]
        {
            let table = "table inet wall";
            let rules = format!(
                "{table} {{}}; delete {table}; {table} {{ chain through {{ \
                 type filter hook forward priority 0; {blocked} drop; {free} counter; }}; }}"
            );
            world.router.tool("nft", &[&rules]).unwrap();
            let server = world.serve(&["--carrier", "both", "--local", &to], "echo");
            let words =
                ["--carrier", "both", "--local", &from, "client", &to, PORT, "200", "3000", "--window", "20"];
            all_came_back(run(&world.alpha, "client", &words).finish(LIMIT).unwrap());
            server.finish(LIMIT).unwrap().good().unwrap();
        }
    }
}
