//! Tests SIGTERM: a ringing call is still answered, new calls are rejected, and a second signal ends the calls that still ring.

use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::process::wait_for;
use testbed::{Lab, Process};

use crate::world::{LIMIT, Site};

struct World {
    site: Site,
    proxy: Process,
    _lab: Lab,
}

impl World {
    /// Starts a proxy over UDP. Its time limit for draining exceeds the duration of the test.
    fn new() -> World {
        let lab = Lab::new().unwrap();
        let site = Site::alone(&lab);
        let head = site.with_control() + "drain_s = 600\n";
        let proxy = site.proxy(&[head, site.listen("udp")]);
        World { site, proxy, _lab: lab }
    }

    fn agent(&self, user: &str, port: u16, words: &[&str]) -> Command {
        let mut command = self.site.host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
        command.args(["--local", &format!("127.0.0.1:{port}"), "--proxy", "127.0.0.1:5060", "--log", "info"]);
        command.args(["--user", &format!("{user}@example.com"), "--rtp-port", &format!("{}", port + 1000)]);
        command.args(words);
        command
    }

    /// Starts the agent of a user, which answers after `ring` seconds.
    fn callee(&self, user: &str, port: u16, ring: &str) -> Process {
        let mut callee = self.site.host.spawn(user, self.agent(user, port, &["--ring", ring])).unwrap();
        callee.wait_until("registered", LIMIT, |callee| callee.stderr().contains("Registered")).unwrap();
        callee
    }

    /// Starts a call that is hung up as soon as it is answered.
    fn call(&self, user: &str, port: u16, to: &str) -> Process {
        let to = format!("sip:{to}@example.com");
        let command = self.agent(user, port, &["--no-register", "--call", &to, "--duration", "0"]);
        self.site.host.spawn(user, command).unwrap()
    }
}

/// Returns the number of calls that a caller has hung up, and the status of its last failure.
fn outcome(caller: Process) -> (u64, Value) {
    let told = caller.finish(LIMIT).unwrap();
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    (told["calls_hung_up"]["count"].as_u64().unwrap(), told["last_failure"].clone())
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_ringing_call_survives_sigterm_and_a_second_sigterm_ends_the_rest() {
    let world = World::new();
    let (_bob, _dave) = (world.callee("bob", 5071, "5"), world.callee("dave", 5072, "1000"));
    let (alice, carol) = (world.call("alice", 5073, "bob"), world.call("carol", 5074, "dave"));
    assert!(wait_for(LIMIT, || world.site.told(&["dialogs"]).matches("call early").count() == 2));
    world.proxy.signal(Signal::SIGTERM).unwrap();
    assert!(
        wait_for(LIMIT, || world.site.told(&["status"]).contains("draining")),
        "{}",
        world.site.told(&["status"])
    );
    let status = world.site.told(&["status"]);
    assert!(status.contains("transactions left") && status.contains("drain ends in s"), "{status}");
    assert_eq!(outcome(world.call("erin", 5075, "bob")), (0, Value::from(503)));
    // The call is answered, acknowledged and hung up while the proxy drains.
    assert_eq!(outcome(alice), (1, Value::Null));
    assert!(world.site.told(&["status"]).contains("draining"));
    world.proxy.signal(Signal::SIGTERM).unwrap();
    let stopped = world.proxy.finish(LIMIT).unwrap().good().unwrap();
    assert!(stopped.stderr.contains("refused the remaining requests"), "{}", stopped.stderr);
    assert_eq!(outcome(carol), (0, Value::from(503)));
}
