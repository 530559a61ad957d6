//! Tests of the operator's view: dialogs, live messages and metrics, and the access to them.

use std::collections::BTreeMap;
use std::time::Duration;

use testbed::process::wait_for;
use testbed::{Lab, Process};

use crate::world::{LIMIT, Site};

struct World {
    site: Site,
    _proxy: Process,
    _callee: Process,
    _lab: Lab,
}

impl World {
    /// Starts a proxy with a control socket and a page, and SIPp as Bob.
    fn new() -> World {
        let lab = Lab::new().unwrap();
        let site = Site::alone(&lab);
        let operations = site.with_control() + "page_port = 9897\n";
        let hep = "[hep]\ncollector = \"127.0.0.1:9060\"\nagent = 77\n".to_owned();
        let proxy = site.proxy(&[operations, site.listen("udp"), hep]);
        let callee = site.callee("udp");
        site.register("bob", "udp");
        World { site, _proxy: proxy, _callee: callee, _lab: lab }
    }

    /// Starts a call from Alice, which lasts this number of seconds.
    fn call(&self, seconds: &str) -> Process {
        let mut command = self.site.host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
        command.args([
            "--local",
            "127.0.0.1:5070",
            "--proxy",
            "127.0.0.1:5060",
            "--user",
            "alice@example.com",
        ]);
        command.args(["--no-register", "--call", "sip:bob@example.com", "--duration", seconds]);
        self.site.host.spawn("alice", command).unwrap()
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_call_is_listed_while_it_stands_and_counted_in_the_metrics() {
    let world = World::new();
    let caller = world.call("4");
    assert!(wait_for(LIMIT, || world.site.told(&["dialogs"]).contains("call confirmed")));
    let listed = world.site.told(&["dialogs"]);
    assert!(
        listed.contains("<sip:alice@example.com>") && listed.contains("(udp 127.0.0.1:5070)"),
        "{listed}"
    );
    caller.finish(LIMIT).unwrap().good().unwrap();
    assert_eq!(world.site.told(&["dialogs"]), "no calls or subscriptions\n");
    let metrics = world.site.host.tool("curl", &["-s", "http://127.0.0.1:9897/metrics"]).unwrap();
    for line in [
        "sctpify_sip_calls_total 1\n",
        "sctpify_sip_registrations_total 1\n",
        "sctpify_sip_dialogs 0\n",
        "sctpify_sip_connections{listener=\"udp 127.0.0.1:5060\"} 0\n",
        "sctpify_sip_session_attempts_total{outcome=\"successful\"} 1\n",
        "sctpify_sip_session_duration_seconds_bucket{outcome=\"successful\",le=\"1\"} 0\n",
        "sctpify_sip_session_duration_seconds_count{outcome=\"successful\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    assert!(
        world
            .site
            .told(&["performance"])
            .contains("SER  session establishment ratio          100.00 % (1 of 1)\n")
    );
    let elsewhere = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: evil.example:9897"];
    let page = "http://127.0.0.1:9897/status.json";
    assert_eq!(world.site.host.tool("curl", &[&elsewhere[..], &[page]].concat()).unwrap(), "403");
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn messages_are_traced_as_text_and_as_a_file_that_tshark_reads() {
    let world = World::new();
    let file = world.site.dir.join("trace.pcapng");
    let text = world.site.host.spawn("text", world.site.ask(&["trace", "--method", "bye"])).unwrap();
    let saved = world.site.ask(&["trace", "--user", "alice", "--pcapng", &file.display().to_string()]);
    let saved = world.site.host.spawn("saved", saved).unwrap();
    // The file exists once the trace has begun.
    assert!(wait_for(LIMIT, || std::fs::metadata(&file).is_ok()));
    std::thread::sleep(Duration::from_millis(300));
    world.call("0").finish(LIMIT).unwrap().good().unwrap();
    assert!(wait_for(LIMIT, || text.stdout().matches("CSeq: 2 BYE").count() == 4), "{}", text.stdout());
    assert!(!text.stdout().contains("INVITE sip:"), "{}", text.stdout());
    let file = file.display().to_string();
    let methods = || {
        let fields = ["-r", &file, "-Y", "sip", "-T", "fields", "-e", "sip.Method"];
        let seen = world.site.host.tool("tshark", &fields).unwrap_or_default();
        let mut seen: Vec<_> = seen.split_whitespace().map(str::to_owned).collect();
        seen.sort();
        seen
    };
    // The file has each request twice: on arrival and on departure.
    assert!(
        wait_for(LIMIT, || methods() == ["ACK", "ACK", "BYE", "BYE", "INVITE", "INVITE"]),
        "{:?}",
        methods()
    );
    saved.stop();
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn the_control_socket_refuses_other_users_and_refuses_traces_to_its_group() {
    let world = World::new();
    let mut command = world.site.host.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args([env!("CARGO_BIN_EXE_sctpify-sip"), "status", "--control"]).arg(world.site.control());
    let told = world.site.host.run("nobody", command, LIMIT).unwrap();
    assert!(!told.status.success() && told.stderr.contains("ermission denied"), "{told:?}");
    // The socket's group may read counts, but no messages.
    let mut command = world.site.host.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "0", "--clear-groups"]);
    command.args([env!("CARGO_BIN_EXE_sctpify-sip"), "trace", "--control"]).arg(world.site.control());
    let told = world.site.host.run("group", command, LIMIT).unwrap();
    assert!(told.stderr.contains("may not trace messages"), "{told:?}");
}

/// Parses a HEP 3 datagram from hexadecimal digits. Returns its chunks by type.
fn chunks(hex: &str) -> BTreeMap<u16, Vec<u8>> {
    let bytes: Vec<u8> =
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    let be16 = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    assert_eq!((&bytes[..4], usize::from(be16(4))), (&b"HEP3"[..], bytes.len()));
    let (mut found, mut at) = (BTreeMap::new(), 6);
    while at < bytes.len() {
        let (vendor, kind, length) = (be16(at), be16(at + 2), usize::from(be16(at + 4)));
        assert_eq!(vendor, 0);
        found.insert(kind, bytes[at + 6..at + length].to_vec());
        at += length;
    }
    found
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_hep_collector_gets_each_message_with_its_addresses_and_transport() {
    let world = World::new();
    let mut command = world.site.host.command("python3");
    let script = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('127.0.0.1', 9060))\n\
                  print('ready', flush=True)\nwhile True: print(s.recv(65536).hex(), flush=True)";
    command.args(["-c", script]);
    let mut collector = world.site.host.spawn("collector", command).unwrap();
    collector.wait_until("ready", LIMIT, |collector| collector.stdout().contains("ready")).unwrap();
    world.call("0").finish(LIMIT).unwrap().good().unwrap();
    // The messages are INVITE, 100, perhaps 180, 200, ACK, BYE and its 200. Most of them are mirrored on arrival and on departure.
    assert!(wait_for(LIMIT, || collector.stdout().lines().count() > 9), "{}", collector.stdout());
    let told = collector.stdout();
    let first = chunks(told.lines().nth(1).unwrap());
    let expected: [(u16, &[u8]); 9] = [
        (1, &[2]),
        (2, &[17]),
        (3, &[127, 0, 0, 1]),
        (4, &[127, 0, 0, 1]),
        (7, &5070_u16.to_be_bytes()),
        (8, &5060_u16.to_be_bytes()),
        (11, &[1]),
        (12, &77_u32.to_be_bytes()),
        (15, b"INVITE sip:bob@example.com SIP/2.0\r\n"),
    ];
    for (kind, value) in expected {
        assert!(first[&kind].starts_with(value), "{kind}: {:?}", first[&kind]);
    }
    assert!(first.contains_key(&9) && first.contains_key(&10));
}
