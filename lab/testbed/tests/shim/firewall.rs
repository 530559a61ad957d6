//! Tests of firewalls on a host with a server. A firewall must treat a connection over SCTP like the same connection
//! over TCP. The tests use several kinds of matches, and rules of several programs: nft, iptables, firewalld, ufw,
//! dockerd.
//!
//! For each rule that closes the port, the test shows that the port is closed. Most tests have a control: a rule for
//! another interface, address or port leaves the port open, and the client reaches the server over SCTP. With a
//! default drop, the control is an accept rule for another interface, which leaves the port closed.

use crate::keys::{KEY, give_key};
use crate::promises::{ask, serve};
use crate::world::{LIMIT, PORT, World, status};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;
use testbed::process::{now, wait_for};
use testbed::{Daemon, Host, Offloads, Process, Programs};

/// Sends each client the client's address.
const GREETER: &str = "
import socket, sys
listener = socket.create_server(('', int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    stream, peer = listener.accept()
    stream.sendall(b'in from ' + peer[0].removeprefix('::ffff:').encode() + b'\\n')
    stream.close()
";
/// Interface on which alpha's packets arrive.
const UPLINK: &str = "path1";
/// Interface without traffic.
const OTHER: &str = "path9";
/// Limit on the time of a connection. It allows for the race timer and for the start of programs.
const IN_TIME: Duration = Duration::from_secs(2);

/// World with a greeting server on beta.
struct Site {
    world: World,
    _server: Process,
}

impl Site {
    fn new() -> Site {
        // With the learned table, a connection would still use plain TCP after a rule has opened the port.
        let world = World::with("learn = false\n", true);
        let server = serve(&world, "python3", &["-c", GREETER, &PORT.to_string()], "", "in");
        Site { world, _server: server }
    }

    fn servers(&self) -> [IpAddr; 2] {
        [self.world.link.right_v4().into(), self.world.link.right_v6().into()]
    }

    fn ask(&self, server: IpAddr) -> String {
        ask(&self.world.alpha, &server.to_string(), "")
    }

    /// Asserts that alpha reaches beta's program at once over SCTP, and that the program sees alpha's own address.
    fn is_open(&self, server: IpAddr) {
        let (before, begin) = (self.world.connects_sctp(), now());
        let own: IpAddr = match server {
            IpAddr::V4(_) => self.world.link.left_v4().into(),
            IpAddr::V6(_) => self.world.link.left_v6().into(),
        };
        assert_eq!(self.ask(server), format!("in from {own}"), "{}", self.log());
        assert_eq!(self.world.connects_sctp(), before + 1, "not by SCTP: {:?}", self.world.fallbacks());
        assert!(begin.elapsed() < IN_TIME, "{:?}", begin.elapsed());
    }

    /// Asserts that alpha does not reach beta's program. The connection must end with `outcome`, as it would over plain
    /// TCP.
    fn is_closed(&self, server: IpAddr, outcome: &str) {
        let before = self.world.connects_sctp();
        assert_eq!(self.ask(server), outcome, "{}", self.log());
        assert_eq!(self.world.connects_sctp(), before);
        assert!(ask(&self.world.beta, "127.0.0.1", "").contains("in from"), "the server is there");
    }

    fn log(&self) -> String {
        self.world.betas.as_ref().unwrap().log()
    }

    fn nft(&self, ruleset: &str) {
        let file = self.world.beta.dir().unwrap().join("firewall.nft");
        fs::write(&file, ruleset).unwrap();
        self.world.beta.tool("nft", &["-f", file.to_str().unwrap()]).unwrap();
    }

    /// Replaces beta's firewall with one chain of these rules.
    fn chain(&self, hook: &str, rules: &str) {
        let clear = "table inet firewall\ndelete table inet firewall\n";
        self.nft(&format!(
            "{clear}table inet firewall {{ chain c {{ type filter hook {hook}; {rules}\n }}\n}}\n"
        ));
    }

    /// Tests a rule over IPv4 and IPv6. An interface's name replaces `{}` in the rule. With the interface on which the
    /// packets arrive, the rule must close the port. With another interface, the rule must leave the port open.
    fn goes_by_interface(&self, hook: &str, rule: &str, outcome: &str) {
        for server in self.servers() {
            self.chain(hook, &rule.replace("{}", OTHER));
            self.is_open(server);
            self.chain(hook, &rule.replace("{}", UPLINK));
            self.is_closed(server, outcome);
        }
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_nftables_drop_by_interface_applies_over_sctp() {
    let site = Site::new();
    site.goes_by_interface(
        "input priority filter; policy accept",
        "iifname {} tcp dport 7000 drop",
        "TimeoutError",
    );
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_drop_before_connection_tracking_applies_over_sctp() {
    let site = Site::new();
    site.goes_by_interface("prerouting priority raw", "iifname {} tcp dport 7000 drop", "TimeoutError");
    let reject = "iifname {} tcp dport 7000 reject with tcp reset";
    site.goes_by_interface("prerouting priority dstnat", reject, "ConnectionRefusedError");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_drop_in_the_netdev_ingress_hook_applies_over_sctp() {
    let site = Site::new();
    let chain = |rule: &str| {
        let clear = "table netdev firewall\ndelete table netdev firewall\n";
        let hook = format!("type filter hook ingress device {UPLINK} priority 0");
        site.nft(&format!("{clear}table netdev firewall {{ chain c {{ {hook}; {rule}\n }}\n}}\n"));
    };
    for server in site.servers() {
        chain("tcp dport 7001 drop");
        site.is_open(server);
        chain("tcp dport 7000 drop");
        site.is_closed(server, "TimeoutError");
    }
}

/// Tests the usual form of a firewall: it drops packets by default, and accepts them by interface. This firewall needs
/// no rule for the daemon's own interface.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_default_drop_firewall_that_accepts_by_interface_needs_no_rule_for_shim0() {
    let site = Site::new();
    let hook = "input priority filter; policy drop";
    let rules = |interface: &str| {
        format!(
            "ct state established,related accept; iifname lo accept; \
             iifname {UPLINK} meta l4proto {{ icmp, ipv6-icmp }} accept; \
             iifname {UPLINK} udp dport 9899 accept; iifname {UPLINK} meta l4proto sctp accept; \
             iifname {interface} tcp dport 7000 accept"
        )
    };
    for server in site.servers() {
        site.chain(hook, &rules(UPLINK));
        site.is_open(server);
        site.chain(hook, &rules(OTHER));
        site.is_closed(server, "TimeoutError");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_drop_by_destination_or_source_address_applies_over_sctp() {
    let site = Site::new();
    let hook = "input priority filter; policy accept";
    let server: IpAddr = site.world.link.right_v4().into();
    for selector in ["ip daddr", "ip saddr"] {
        let address = if selector == "ip daddr" { server } else { site.world.link.left_v4().into() };
        site.chain(hook, &format!("{selector} 10.99.99.99 tcp dport 7000 drop"));
        site.is_open(server);
        site.chain(hook, &format!("{selector} {address} tcp dport 7000 drop"));
        site.is_closed(server, "TimeoutError");
    }
}

/// The client connects to an address of one interface of the server, and the packets arrive on another interface. Linux
/// allows this. The rules for the interface on which the packets arrive must apply.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn rules_for_the_arrival_interface_apply_to_connections_to_any_address_of_the_host() {
    let site = Site::new();
    let (alpha, beta) = (&site.world.alpha, &site.world.beta);
    beta.ip(&["link", "add", "lan0", "type", "veth", "peer", "name", "lan1"]).unwrap();
    for link in ["lan0", "lan1"] {
        beta.ip(&["link", "set", link, "up"]).unwrap();
    }
    beta.ip(&["addr", "add", "10.77.9.1/24", "dev", "lan0"]).unwrap();
    alpha.ip(&["route", "add", "10.77.9.1", "via", &site.world.link.right_v4().to_string()]).unwrap();
    let server: IpAddr = [10, 77, 9, 1].into();
    let hook = "input priority filter; policy accept";
    site.chain(hook, "iifname lan0 tcp dport 7000 drop");
    site.is_open(server);
    site.chain(hook, &format!("iifname {UPLINK} tcp dport 7000 drop"));
    site.is_closed(server, "TimeoutError");
}

/// Tests strict reverse path filters together with the kernel's setting `src_valid_mark`. VPNs use this setting.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn strict_reverse_path_filters_let_sctp_connections_pass() {
    let site = Site::new();
    let names = ["all.rp_filter", "path1.rp_filter", "all.src_valid_mark"];
    for setting in names.map(|name| format!("net.ipv4.conf.{name}=1")) {
        site.world.beta.tool("sysctl", &["-q", "-w", &setting]).unwrap();
    }
    let rule = "fib saddr . mark . iif oif missing drop";
    site.chain("prerouting priority filter; policy accept", rule);
    for server in site.servers() {
        site.is_open(server);
    }
}

/// The first connection opens a shared association. A firewall must also apply to the later connections in this
/// association.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_drop_by_interface_holds_for_connections_that_share_an_association() {
    let site = Site::new();
    let server: IpAddr = site.world.link.right_v4().into();
    let shared = || status(&site.world.alphas)["counters"]["connects_shared"].as_u64().unwrap();
    assert!(wait_for(LIMIT, || {
        site.is_open(server);
        shared() > 0
    }));
    site.chain("input priority filter", &format!("iifname {UPLINK} tcp dport 7000 drop"));
    site.is_closed(server, "TimeoutError");
    let fallback = &site.world.fallbacks()[0];
    assert!(fallback.to_string().contains("did not accept the connection"), "{fallback}");
    assert!(fallback["held_us"].as_u64().unwrap() < 1_000_000, "{fallback}");
}

/// The fallback to plain TCP begins within a second. The log gives the reason. `sctpify doctor` gives the address and
/// the interface.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connection_that_a_firewall_drops_falls_back_in_time_and_is_logged() {
    let site = Site::new();
    let server: IpAddr = site.world.link.right_v4().into();
    site.chain("input priority filter", &format!("iifname {UPLINK} tcp dport 7000 drop"));
    site.is_closed(server, "TimeoutError");
    let fallback = &site.world.fallbacks()[0];
    assert!(fallback.to_string().contains("firewall does not answer"), "{fallback}");
    assert!(fallback["held_us"].as_u64().unwrap() < 1_000_000, "{fallback}");
    assert!(site.log().contains("firewall rules may drop it"), "{}", site.log());
    let doctor = site.world.betas.as_ref().unwrap().sctpify(&["doctor"]).unwrap().stdout;
    assert!(
        doctor.contains(&format!("{server}:{PORT} through {UPLINK}: no answer to 1 connections")),
        "{doctor}"
    );
}

/// If a key is required, the association is established before the server's kernel answers. When the firewall then
/// drops the connection, it is too late for plain TCP, so the client's program sees a reset. After two such refusals,
/// connections use plain TCP. Refusals within one second count as one refusal.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_firewall_drop_resets_two_keyed_connections_and_later_ones_use_plain_tcp() {
    let site = Site::new();
    let server: IpAddr = site.world.link.right_v4().into();
    give_key(&site.world.alpha, &site.world.alphas, Some(KEY));
    give_key(&site.world.beta, site.world.betas.as_ref().unwrap(), Some(KEY));
    site.is_open(server);
    site.chain("input priority filter", &format!("iifname {UPLINK} tcp dport 7000 drop"));
    // Without this setting, later connections would share an association. A channel opens only after the server's
    // kernel has answered, so no reset would occur.
    site.world.alphas.sctpify(&["set", "streams=own"]).unwrap().good().unwrap();
    for _ in 0..2 {
        assert_eq!(site.ask(server), "ConnectionResetError");
        std::thread::sleep(Duration::from_secs(1));
    }
    for _ in 0..2 {
        site.is_closed(server, "TimeoutError");
    }
}

/// Program that starts the real daemon with a failing bpf(2), as in a container without privileges.
const WITHOUT_BPF: &str = "#!/usr/bin/env python3
import ctypes, os, struct, sys
number = {'x86_64': 321, 'aarch64': 280}[os.uname().machine]
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
program = struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(code))
assert ctypes.CDLL(None).prctl(22, 2, program) == 0
os.execv(os.environ['REAL_SCTPIFYD'], sys.argv)
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn without_bpf_peers_are_refused_unless_the_setting_deliver_by_shim_is_on() {
    let mut world = World::with("learn = false\n", false);
    let _server = serve(&world, "python3", &["-c", GREETER, &PORT.to_string()], "", "in");
    let programs = Programs::find().unwrap();
    let dir = world.beta.dir().unwrap().join("programs");
    fs::create_dir_all(&dir).unwrap();
    for name in ["sctpify", "shimrules"] {
        std::os::unix::fs::symlink(programs.path(name), dir.join(name)).unwrap();
    }
    let wrapper = dir.join("sctpifyd");
    fs::write(&wrapper, WITHOUT_BPF).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let real = programs.path("sctpifyd");
    let wrapped = Programs::in_dir(&dir).unwrap();
    fs::create_dir_all(world.beta.dir().unwrap().join("sctpifyd")).unwrap();
    let betas = Daemon::restart_with(&world.beta, &wrapped, &[("REAL_SCTPIFYD", &real)]).unwrap();
    betas.shimrules(&["-A", "-c", "local", "-p", "enable", "-P", &PORT.to_string()]).unwrap().good().unwrap();
    world.betas = Some(betas);
    let site = Site { world, _server };
    let server = site.world.link.right_v4().into();
    let betas = site.world.betas.as_ref().unwrap();
    assert!(site.ask(server).starts_with("in from"), "by TCP");
    assert_eq!(site.world.connects_sctp(), 0);
    let doctor = || betas.sctpify(&["doctor"]).unwrap().stdout;
    assert!(doctor().contains("Peers' connections over SCTP are refused, and use plain TCP"), "{}", doctor());
    betas.sctpify(&["set", "deliver_by_shim=1"]).unwrap().good().unwrap();
    site.is_open(server);
    assert!(doctor().contains("Peers' connections arrive through shim0"), "{}", doctor());
}

/// If a program accepts slowly, its backlog fills up. Its kernel then drops SYNs, as a firewall does. The client must
/// wait for the retransmitted SYNs.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_program_with_a_full_backlog_is_waited_for() {
    let world = World::new();
    let slow = "
import socket, sys, time
listener = socket.create_server(('', int(sys.argv[1])), backlog=1)
print('listening', flush=True)
time.sleep(1.5)
streams = [listener.accept() for _ in range(4)]
print('took them', flush=True)
time.sleep(60)
";
    let mut server = world.serve("python3", &["-c", slow, &PORT.to_string()]);
    let many = "
import select, socket, sys
streams = [socket.socket() for _ in range(4)]
for stream in streams:
    stream.setblocking(False)
    stream.connect_ex((sys.argv[1], int(sys.argv[2])))
for stream in streams:
    select.select([], [stream], [], 20)
    stream.getpeername()
";
    let to = world.link.right_v4().to_string();
    let client = world.client("python3", &["-c", many, &to, &PORT.to_string()]);
    world.alpha.run("many", client, LIMIT).unwrap().good().unwrap();
    server.wait_until("take them", LIMIT, |server| server.stdout().contains("took them")).unwrap();
    assert_eq!(world.connects_sctp(), 4, "{:?}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_iptables_drop_by_interface_applies_over_sctp() {
    let site = Site::new();
    for (program, server) in ["iptables", "ip6tables"].into_iter().zip(site.servers()) {
        let rule = |what: &str, interface: &str| {
            let words = [what, "INPUT", "-i", interface, "-p", "tcp", "--dport", "7000", "-j", "DROP"];
            site.world.beta.tool(program, &words).unwrap();
        };
        rule("-A", OTHER);
        site.is_open(server);
        rule("-A", UPLINK);
        site.is_closed(server, "TimeoutError");
    }
}

/// Runs the real ufw with its own configuration. ufw writes iptables rules.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn ufw_rules_by_interface_apply_over_sctp() {
    let site = Site::new();
    let dir = site.world.beta.dir().unwrap();
    let script = format!(
        "set -e
         for kept in /etc/ufw /etc/default; do
           copy={}/$(basename $kept); [ -d $copy ] || cp -a $kept $copy; mount --bind $copy $kept
         done
         ufw \"$@\"",
        dir.display()
    );
    let ufw = |words: &[&str]| {
        let mut command = site.world.beta.command("unshare");
        command.args(["--mount", "sh", "-c", &script, "ufw"]).args(words);
        site.world.beta.run("ufw", command, LIMIT).unwrap().good().unwrap();
    };
    ufw(&["allow", "9899/udp"]);
    ufw(&["allow", "in", "on", OTHER, "to", "any", "port", "7000", "proto", "tcp"]);
    ufw(&["--force", "enable"]);
    let [v4, v6] = site.servers();
    site.is_closed(v4, "TimeoutError");
    ufw(&["allow", "in", "on", UPLINK, "to", "any", "port", "7000", "proto", "tcp"]);
    site.is_open(v4);
    site.is_open(v6);
}

/// Running firewalld on a host, with a separate message bus.
struct Firewalld {
    host: Host,
    bus: String,
    _process: Process,
}

impl Firewalld {
    fn start(host: &Host) -> Firewalld {
        let dir = host.dir().unwrap().join("firewalld");
        fs::create_dir_all(dir.join("etc")).unwrap();
        let bus = format!("unix:path={}", dir.join("bus").display());
        let configuration = format!(
            "<busconfig><type>system</type><listen>{bus}</listen><auth>EXTERNAL</auth><policy context='default'>\
             <allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/><allow own='*'/></policy></busconfig>"
        );
        fs::write(dir.join("bus.conf"), configuration).unwrap();
        let script = "dbus-daemon --config-file=$1/bus.conf --nofork --nopidfile & bus=$!
             trap 'kill $bus $firewalld' EXIT TERM
             until [ -S $1/bus ]; do sleep 0.1; done
             firewalld --nofork --nopid --system-config $1/etc --log-file $1/log & firewalld=$!
             wait $firewalld";
        let mut command = host.command("sh");
        command.args(["-c", script, "firewalld"]).arg(&dir).env("DBUS_SYSTEM_BUS_ADDRESS", &bus);
        let process = host.spawn("firewalld", command).unwrap();
        let firewalld = Firewalld { host: host.clone(), bus, _process: process };
        let is_up = || firewalld.command(&["--state"]).output().is_ok_and(|output| output.status.success());
        assert!(wait_for(LIMIT, is_up), "{}", firewalld._process.stderr());
        firewalld
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.host.command("firewall-cmd");
        command.args(words).env("DBUS_SYSTEM_BUS_ADDRESS", &self.bus);
        command
    }

    fn set(&self, words: &[&str]) {
        self.host.run("firewall-cmd", self.command(words), LIMIT).unwrap().good().unwrap();
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn firewalld_zones_apply_over_sctp() {
    let site = Site::new();
    let firewalld = Firewalld::start(&site.world.beta);
    for zone in ["public", "home"] {
        firewalld.set(&["--zone", zone, "--add-port=9899/udp"]);
        firewalld.set(&["--zone", zone, "--add-protocol=sctp"]);
    }
    firewalld.set(&["--zone=home", "--add-port=7000/tcp"]);
    firewalld.set(&["--zone=public", "--change-interface", UPLINK]);
    // The zone rejects unlisted ports as prohibited. IPv4 and IPv6 report this with different errors.
    for (server, outcome) in site.servers().into_iter().zip(["OSError", "PermissionError"]) {
        site.is_closed(server, outcome);
    }
    firewalld.set(&["--zone=home", "--change-interface", UPLINK]);
    for server in site.servers() {
        site.is_open(server);
    }
}

/// Tests a port that docker publishes. dockerd's rules redirect the port to the container. Before dockerd's rules, the
/// user's own rule matches the interface and drops the packets.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_drop_in_the_docker_user_chain_stops_tcp_and_sctp_to_a_container() {
    let site = Site::new();
    let (lab, beta) = (&site.world.lab, &site.world.beta);
    let container = lab.host("container").unwrap();
    let bridge = lab.join(beta, &container, 3, Offloads::On).unwrap();
    let inside = bridge.right_v4().to_string();
    container.ip(&["route", "add", "default", "via", &bridge.left_v4().to_string()]).unwrap();
    beta.tool("sysctl", &["-q", "-w", "net.ipv4.ip_forward=1"]).unwrap();
    let mut greeter = container.command("python3");
    greeter.args(["-c", &GREETER.replace("in from", "contained"), &PORT.to_string()]);
    let _contained = container.spawn("greeter", greeter).unwrap();
    let rules = format!(
        "*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 10.77.3.0/24 ! -o path3 -j MASQUERADE
-A DOCKER ! -i path3 -p tcp -m tcp --dport 7000 -j DNAT --to-destination {inside}:7000
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o path3 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o path3 -j DOCKER
-A FORWARD -i path3 ! -o path3 -j ACCEPT
-A DOCKER -d {inside}/32 ! -i path3 -o path3 -p tcp -m tcp --dport 7000 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
"
    );
    let file = beta.dir().unwrap().join("docker.rules");
    fs::write(&file, rules).unwrap();
    beta.tool("iptables-restore", &[file.to_str().unwrap()]).unwrap();
    let server: IpAddr = site.world.link.right_v4().into();
    let before = site.world.connects_sctp();
    let output = site.ask(server);
    assert!(output.contains("contained"), "the container is reached, by TCP: {output} {}", site.log());
    assert_eq!(site.world.connects_sctp(), before);
    let count = "table inet count { chain c { type filter hook prerouting priority 0; tcp dport 7000 counter\n }\n}\n";
    let file = container.dir().unwrap().join("count.nft");
    fs::write(&file, count).unwrap();
    container.tool("nft", &["-f", file.to_str().unwrap()]).unwrap();
    let drop = ["-I", "DOCKER-USER", "-i", UPLINK, "-p", "tcp", "--dport", "7000", "-j", "DROP"];
    beta.tool("iptables", &drop).unwrap();
    assert_eq!(site.ask(server), "TimeoutError");
    assert_eq!(site.world.connects_sctp(), before);
    let counted = container.tool("nft", &["list", "ruleset"]).unwrap();
    assert!(counted.contains("counter packets 0 bytes 0"), "neither TCP nor SCTP came: {counted}");
}
