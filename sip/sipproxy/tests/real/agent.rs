//! Tests of the project's user agent, with the proxy and with SIPp at the other end.

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{Host, Lab, Offloads, Process};

use crate::world::{LIMIT, Site};

const USERS: &str = "[authentication]\nusers = { alice = \"secret\", bob = \"geheim\" }\n";

/// A proxy over UDP, TCP and SCTP on host alpha, and another host.
struct World {
    site: Site,
    far: Host,
    _proxy: Process,
    _lab: Lab,
}

impl World {
    fn new(users: &str) -> World {
        let lab = Lab::new().unwrap();
        let site = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
        let far = lab.host("beta").unwrap();
        lab.join(&site.host, &far, 1, Offloads::On).unwrap();
        let listeners = ["udp", "tcp", "sctp"].map(|transport| site.listen(transport));
        let proxy = site.proxy(&[&listeners[..], &[users.to_owned()]].concat());
        World { site, far, _proxy: proxy, _lab: lab }
    }

    fn agent(&self, host: &Host, address: &str, user: &str, words: &[&str]) -> std::process::Command {
        let mut command = host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
        command.args(["--local", address, "--log", "info"]);
        if !words.contains(&"--proxy") {
            command.args(["--proxy", "10.77.1.1:5060"]);
        }
        command.args(["--user", &format!("{user}@a.example")]).args(words);
        command
    }

    /// Starts Bob's agent on the other host, where it answers calls.
    fn bob(&self, transport: &str) -> Process {
        let words = ["--transport", transport, "--ring", "0.05", "--tone"];
        let mut command = self.agent(&self.far, "10.77.1.2:5070", "bob", &words);
        command.env("SCTPIFY_UA_PASSWORD", "geheim");
        let mut bob = self.far.spawn("bob", command).unwrap();
        bob.wait_until("registered", LIMIT, |bob| bob.stderr().contains("Registered")).unwrap();
        bob
    }
}

/// Stops an agent, and returns its statistics.
fn stop(agent: Process) -> Value {
    agent.signal(Signal::SIGTERM).unwrap();
    let told = agent.finish(LIMIT).unwrap().good().unwrap();
    serde_json::from_str(&told.stdout).unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn agents_call_and_hear_each_other_by_each_transport() {
    let world = World::new(USERS);
    for transport in ["udp", "tcp", "sctp"] {
        let bob = world.bob(transport);
        let words =
            ["--call", "sip:bob@a.example", "--calls", "20", "--rate", "20", "--duration", "0.5", "--tone"];
        let mut alice = world.agent(&world.site.host, "10.77.1.1:5070", "alice", &words);
        alice.env("SCTPIFY_UA_PASSWORD", "secret");
        let told = world.site.host.run("alice", alice, LIMIT).unwrap().good().unwrap();
        let (alice, bob): (Value, Value) = (serde_json::from_str(&told.stdout).unwrap(), stop(bob));
        assert_eq!(
            (&alice["calls_answered"]["count"], &bob["calls_taken"]),
            (&20.into(), &20.into()),
            "{transport}"
        );
        assert_eq!(alice["calls_hung_up"]["count"], 20, "{transport}");
        for (hears, speaks) in [(&alice, &bob), (&bob, &alice)] {
            let (heard, spoken) = (&hears["rtp"]["received"], &speaks["rtp"]["sent"]);
            assert!(heard.as_u64() > Some(100) && heard.as_u64() <= spoken.as_u64(), "{heard} of {spoken}");
        }
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn sipp_and_the_agent_call_each_other() {
    let world = World::new("");
    let bob = world.bob("sctp");
    world.site.call("bob", "a.example", "udp", 50);
    assert_eq!(stop(bob)["calls_taken"], 50);
    let _callee = world.site.callee("udp");
    world.site.register("carol", "udp");
    let words = [
        "--transport",
        "sctp",
        "--call",
        "sip:carol@a.example",
        "--calls",
        "50",
        "--rate",
        "50",
        "--duration",
        "0",
    ];
    let command = world.agent(&world.far, "10.77.1.2:5070", "bob", &words);
    world.far.run("bob", command, LIMIT).unwrap().good().unwrap();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_agent_with_a_wrong_password_says_so() {
    let world = World::new(USERS);
    let mut command = world.agent(&world.far, "10.77.1.2:5070", "bob", &[]);
    command.env("SCTPIFY_UA_PASSWORD", "wrong");
    let told = world.far.run("bob", command, LIMIT).unwrap();
    assert!(!told.status.success());
    assert!(told.stderr.contains("not registered: 10.77.1.1:5060 answered 401"), "{}", told.stderr);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_agent_names_the_cause_of_a_failure_and_opens_no_rtp_port_without_tone() {
    let world = World::new("");
    let silent = world.agent(&world.far, "10.77.1.2:5070", "bob", &[]);
    let mut silent = world.far.spawn("bob", silent).unwrap();
    silent.wait_until("registered", LIMIT, |bob| bob.stderr().contains("Registered")).unwrap();
    let sockets = world.far.tool("ss", &["-Hanu"]).unwrap();
    assert!(sockets.contains(":5070") && !sockets.contains(":4000"), "{sockets}");
    let said = |address: &str, words: &[&str]| {
        let command = world.agent(&world.far, address, "carol", words);
        let told = world.far.run("carol", command, LIMIT).unwrap();
        assert!(!told.status.success(), "{}", told.stdout);
        told.stderr.lines().last().unwrap_or_default().to_owned()
    };
    let _loud = {
        let loud = world.agent(&world.far, "10.77.1.2:5071", "dave", &["--tone"]);
        let mut loud = world.far.spawn("dave", loud).unwrap();
        loud.wait_until("registered", LIMIT, |dave| dave.stderr().contains("Registered")).unwrap();
        loud
    };
    let taken = said("10.77.1.2:5070", &[]);
    assert!(
        taken.contains("cannot listen at udp 10.77.1.2:5070") && taken.ends_with("; see --local"),
        "{taken}"
    );
    let rtp = said("10.77.1.2:5072", &["--tone"]);
    assert!(
        rtp.contains("cannot listen at RTP 10.77.1.2:4000") && rtp.ends_with("; see --rtp-port"),
        "{rtp}"
    );
    let tcp = said("10.77.1.2:5073", &["--transport", "tcp", "--proxy", "10.77.1.1:5999"]);
    assert!(tcp.ends_with("not registered: no TCP connection with 10.77.1.1:5999"), "{tcp}");
    let words = ["--transport", "sctp", "--sctp-udp-port", "9901"];
    let sctp = said("10.77.1.2:5074", &words);
    assert!(sctp.contains("not registered: no SCTP association with 10.77.1.1:5060 (UDP 9901): "), "{sctp}");
    stop(silent);
}
