//! Tests of domains in DNS, with a foreign name server (RFC 3263).

use nix::sys::signal::Signal;
use testbed::process::wait_for;
use testbed::{Host, Lab, Link, Offloads, Process};

use crate::store_server::{KEY, Kind, PASSWORD, PORT, Server};
use crate::world::{LIMIT, Site};

/// Two sites. The first one finds the other only through DNS.
struct World {
    a: Site,
    b: Site,
    near: Process,
    _rest: (Process, Process, Process, Link, Lab),
}

const DNS: &str = "[dns]\nservers = [\"10.77.1.1:53\"]\n";

fn name_server(host: &Host, address: &str, records: &[&str]) -> Process {
    let mut command = host.command("dnsmasq");
    command.args([
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--no-resolv",
        "--no-hosts",
        "--user=root",
    ]);
    command
        .args(["--bind-interfaces", "--pid-file=", "--log-facility=-"])
        .arg(format!("--listen-address={address}"));
    command.args(records);
    let mut server = host.spawn("dnsmasq", command).unwrap();
    server.wait_until("ready", LIMIT, |server| server.stderr().contains("started, version")).unwrap();
    server
}

impl World {
    fn new(records: &[&str]) -> World {
        let lab = Lab::new().unwrap();
        let a = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
        let b = Site::new(&lab, "beta", "10.77.1.2", "b.example");
        let link = lab.join(&a.host, &b.host, 1, Offloads::On).unwrap();
        let server = name_server(
            &a.host,
            "10.77.1.1",
            &[records, &["--host-record=host.b.example,10.77.1.2"]].concat(),
        );
        let listeners = |site: &Site| ["udp", "tcp", "sctp"].map(|transport| site.listen(transport));
        let near = a.proxy(&[&listeners(&a)[..], &[DNS.to_owned()]].concat());
        let far = b.proxy(&[&listeners(&b)[..], &["[dns]\nenabled = false\n".to_owned()]].concat());
        let callee = b.callee("udp");
        b.register("bob", "udp");
        World { a, b, near, _rest: (server, far, callee, link, lab) }
    }

    /// Makes calls from Alice, and reports whether they succeeded.
    fn call(&self, uri: &str) -> bool {
        let mut command = self.a.host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
        command.args(["--local", "10.77.1.1:5070", "--proxy", "10.77.1.1:5060", "--user", "alice@a.example"]);
        command.args(["--no-register", "--call", uri, "--calls", "5", "--rate", "50", "--duration", "0"]);
        self.a.host.run("alice", command, LIMIT).unwrap().status.success()
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn naptr_and_srv_lead_to_sctp() {
    let world = World::new(&[
        "--naptr-record=b.example,20,10,s,SIP+D2U,,_sip._udp.b.example",
        "--naptr-record=b.example,10,10,s,SIP+D2S,,_sip._sctp.b.example",
        "--srv-host=_sip._sctp.b.example,host.b.example,5060,1,10",
        "--srv-host=_sip._udp.b.example,host.b.example,5999,1,10",
    ]);
    assert!(world.call("sip:bob@b.example"));
    assert!(world.near.stderr().contains("association up"), "{}", world.near.stderr());
    assert_eq!(world.b.domain, "b.example");
    // A call to a name that does not exist fails without a long wait.
    assert!(!world.call("sip:bob@nowhere.example"));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn where_the_first_target_is_not_reached_the_second_is() {
    let world = World::new(&[
        "--srv-host=_sip._tcp.b.example,host.b.example,5999,1,10",
        "--srv-host=_sip._tcp.b.example,host.b.example,5060,2,10",
    ]);
    assert!(world.call("sip:bob@b.example;transport=tcp"));
    let is_up = || {
        let list = ["-Htn", "state", "established", "( dport = :5060 )"];
        world.a.host.tool("ss", &list).unwrap().contains("10.77.1.2:5060")
    };
    assert!(wait_for(LIMIT, is_up));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn without_srv_the_names_own_address_and_the_usual_port_are_taken() {
    let world = World::new(&["--host-record=b.example,10.77.1.2"]);
    assert!(world.call("sip:bob@b.example"));
    assert!(world.call("sip:bob@b.example:5060"));
    assert!(!world.call("sip:bob@b.example:5999"));
}

/// Number of established calls when their proxy is killed.
const STANDING: usize = 5;

#[test]
#[ignore = "needs root: makes a network namespace"]
fn calls_of_a_killed_proxy_end_through_another_with_the_same_record_route_name() {
    let lab = Lab::new().unwrap();
    let one = Site::alone(&lab);
    let other = one.beside("127.0.0.2", one.domain);
    let callers = one.beside("127.0.0.3", "c.example");
    let records = [
        "--srv-host=_sip._udp.sip.example.com,one.example.com,5060,1,10",
        "--srv-host=_sip._udp.sip.example.com,other.example.com,5060,2,10",
        "--host-record=one.example.com,127.0.0.1",
        "--host-record=other.example.com,127.0.0.2",
    ];
    let _names = name_server(&one.host, "127.0.0.1", &records);
    let server = Server::new(Kind::Redis, &one);
    let _store = server.start();
    let start = |site: &Site| {
        let head = format!("{}{KEY}relay_networks = [\"127.0.0.0/8\"]\n", site.with_control());
        let listener = site.listen("udp") + "record_route = \"sip.example.com\"\n";
        site.proxy_with_store(&server.kind.url(PASSWORD, PORT), &[head, listener])
    };
    let (first, _second) = (start(&one), start(&other));
    let relay = "relay_networks = [\"127.0.0.0/8\"]\n".to_owned();
    let next_hop = "[[next_hop]]\ndomain = \"example.com\"\naddress = \"127.0.0.1:5060\"\n".to_owned();
    let _callers = callers.proxy(&[
        relay,
        callers.listen("udp"),
        next_hop,
        "[dns]\nservers = [\"127.0.0.1:53\"]\n".to_owned(),
    ]);
    let agent = |local: &str, proxy: &str, user: &str| {
        let mut command = one.host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
        command.args(["--local", local, "--proxy", proxy, "--user", user, "--log", "info"]);
        command
    };
    // SIPp is not used as the callee, because it would send responses to the source address instead of the address in Via.
    let mut bob =
        one.host.spawn("bob", agent("127.0.0.4:5070", "127.0.0.1:5060", "bob@example.com")).unwrap();
    bob.wait_until("registered", LIMIT, |bob| bob.stderr().contains("Registered")).unwrap();
    let mut command = agent("127.0.0.3:5070", "127.0.0.3:5060", "alice@c.example");
    command.args([
        "--rtp-port",
        "4100",
        "--no-register",
        "--call",
        "sip:bob@example.com",
        "--rate",
        "10",
        "--duration",
        "8",
    ]);
    command.args(["--calls", &STANDING.to_string()]);
    let alice = callers.host.spawn("alice", command).unwrap();
    let standing = || one.told(&["dialogs"]).matches("call confirmed").count() == STANDING;
    assert!(wait_for(LIMIT, standing), "{}", one.told(&["dialogs"]));
    first.signal(Signal::SIGKILL).unwrap();
    first.stop();
    alice.finish(LIMIT).unwrap().good().unwrap();
    // The other proxy received a BYE for each call, and each BYE was answered.
    let status = other.told(&["status"]);
    for heard in [
        format!("requests             {STANDING}\n"),
        format!("responses            1xx: 0, 2xx: {STANDING}, 3xx: 0"),
    ] {
        assert!(status.contains(&heard), "{status}");
    }
}
