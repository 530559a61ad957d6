//! Tests of encrypted associations (keys `secure`, `host_key` and `peer` in `[sctp]`).

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{Capture, Finished, Lab, Process};

use crate::association::Pair;
use crate::world::{LIMIT, Site};

/// Returns a valid key that no host of these tests has.
fn other_key() -> String {
    keying::HostKey::generate().unwrap().public().to_string()
}

/// Returns the lines of `[sctp]` that set the encryption and the site's key file.
fn secured(site: &Site, when: &str) -> String {
    format!(
        "secure = \"{when}\"\nhost_key = \"{}\"\n",
        site.dir.join(format!("{}.key", site.domain)).display()
    )
}

/// Returns the block for a known peer.
fn known(peer: &str, key: &str) -> String {
    format!("[[sctp.peer]]\naddress = \"{peer}\"\nkey = \"{key}\"\n")
}

/// Returns the public key of the site's proxy, as the command `key` prints it. The command creates the key.
fn key_of(site: &Site) -> String {
    let mut command =
        site.proxy_command("unused", &[site.listen("sctp"), format!("[sctp]\n{}", secured(site, "require"))]);
    command.arg("key");
    site.host.run("key", command, LIMIT).unwrap().good().unwrap().stdout.trim().to_owned()
}

/// Returns the encryption of the site's first association, or null.
fn encryption(site: &Site) -> Value {
    let told: Value = serde_json::from_str(&site.told(&["connections", "--json"])).unwrap();
    let rows = told["connections"].as_array().unwrap();
    rows.iter()
        .find(|row| row["transport"] == "sctp")
        .map(|row| row["encryption"].clone())
        .unwrap_or_default()
}

fn call(pair: &Pair, calls: u32) -> Finished {
    let command = pair.a.caller("bob", pair.b.domain, "udp", calls, 50);
    pair.a.host.run("call", command, LIMIT).unwrap()
}

/// Starts both proxies with keys that know each other.
fn acquainted(pair: &Pair) -> [Process; 2] {
    let [a, b] = [&pair.a, &pair.b].map(key_of);
    let with = |site: &Site, peer: &Site, key: &str| {
        secured(site, "require") + "known_peers_only = true\n" + &known(&peer.address, key)
    };
    [
        pair.proxy(&pair.a, &pair.b, &with(&pair.a, &pair.b, &b)),
        pair.proxy(&pair.b, &pair.a, &with(&pair.b, &pair.a, &a)),
    ]
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn calls_between_proxies_with_each_others_keys_are_encrypted_and_survive_a_dead_path() {
    let pair = Pair::new();
    let _proxies = acquainted(&pair);
    let capture = |link: usize| {
        Capture::start(&pair.a.host, &format!("link{link}"), &[&pair.links[link].name()]).unwrap()
    };
    let captures = [capture(0), capture(1)];
    let _callee = pair.b.callee("udp");
    pair.b.register("bob", "udp");
    call(&pair, 20).good().unwrap();
    for (site, peer) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        let found = encryption(site);
        assert_eq!(
            (&found["verified"], found["peer_key"].as_str()),
            (&Value::Bool(true), Some(&key_of(peer)[..]))
        );
    }
    let text = pair.a.told(&["connections"]);
    assert!(text.contains("encrypted, peer verified, sctpify1:"), "{text}");
    pair.links[0].silence().unwrap();
    call(&pair, 20).good().unwrap();
    for capture in captures {
        let packets = capture.dissect(&["-Y", "sctp", "-T", "json", "-x"]).unwrap();
        assert!(packets.contains("frame_raw"), "no packets: {packets}");
        for clear in ["SIP/2.0", "INVITE", "b.example"] {
            let hex: String = clear.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(!packets.contains(&hex), "{clear} in the clear");
        }
    }
}

/// Stops a proxy, and returns its log.
fn stopped(proxy: Process) -> String {
    proxy.signal(Signal::SIGINT).unwrap();
    proxy.finish(LIMIT).unwrap().stderr
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_known_peer_with_another_key_or_without_encryption_gets_no_call() {
    let pair = Pair::new();
    let a = secured(&pair.a, "try") + &known(&pair.b.address, &other_key());
    let _callee = pair.b.callee("udp");
    for (b, reason) in [
        (secured(&pair.b, "try"), "the peer's address is known with another key"),
        (String::new(), "association over peer=10.77.1.2:5060 reason=Aborted"),
    ] {
        let (caller, callee) = (pair.proxy(&pair.a, &pair.b, &a), pair.proxy(&pair.b, &pair.a, &b));
        pair.b.register("bob", "udp");
        assert!(call(&pair, 1).good().is_err(), "the call must fail");
        let status: Value = serde_json::from_str(&pair.b.told(&["status", "--json"])).unwrap();
        assert_eq!(status["calls"], 0, "{status}");
        let log = stopped(caller);
        assert!(log.contains(reason), "{reason}: {log}");
        stopped(callee);
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_call_from_a_known_peer_without_encryption_or_with_another_key_is_refused() {
    let pair = Pair::new();
    let b = secured(&pair.b, "try") + &known(&pair.a.address, &other_key());
    let _callee = pair.b.callee("udp");
    for (a, reason) in [
        (String::new(), "a known peer offers no encryption"),
        (secured(&pair.a, "try"), "the peer's address is known with another key"),
    ] {
        let (caller, callee) = (pair.proxy(&pair.a, &pair.b, &a), pair.proxy(&pair.b, &pair.a, &b));
        pair.b.register("bob", "udp");
        assert!(call(&pair, 1).good().is_err(), "the call must fail");
        let log = stopped(callee);
        assert!(log.contains(reason), "{reason}: {log}");
        stopped(caller);
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_proxy_that_requires_encryption_refuses_a_peer_in_the_clear_and_a_key_that_it_does_not_know() {
    let pair = Pair::new();
    let b = secured(&pair.b, "require") + "known_peers_only = true\n" + &known("192.0.2.99", &other_key());
    let callee = pair.proxy(&pair.b, &pair.a, &b);
    let _callee = pair.b.callee("udp");
    pair.b.register("bob", "udp");
    for (a, reason) in [
        (String::new(), "association over peer=10.77.1.2:5060 reason=PeerAborted"),
        (
            secured(&pair.a, "try"),
            "reason=PeerAborted(AbortCause { code: 12, reason: b\"the peer's key is not known\" })",
        ),
    ] {
        let caller = pair.proxy(&pair.a, &pair.b, &a);
        assert!(call(&pair, 1).good().is_err(), "the call must fail");
        let log = stopped(caller);
        assert!(log.contains(reason), "{reason}: {log}");
    }
    assert!(callee.stderr().contains("the peer's key is not known"), "{}", callee.stderr());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn without_encryption_at_the_peer_optional_encryption_falls_back_to_the_clear() {
    let pair = Pair::new();
    let _proxies = [pair.proxy(&pair.a, &pair.b, &secured(&pair.a, "try")), pair.proxy(&pair.b, &pair.a, "")];
    let _callee = pair.b.callee("udp");
    pair.b.register("bob", "udp");
    call(&pair, 5).good().unwrap();
    assert_eq!(encryption(&pair.a), Value::Null);
}

/// Kills the second proxy during an established association, and starts it again without the keys of the association. A call shows the first
/// proxy that the association has gone, and succeeds. Further calls through the proxy of `caller` to the user of `callee` must succeed, too.
fn call_after_a_crash(pair: &Pair, caller: &Site, callee: &Site) {
    let [a, b] = acquainted(pair);
    let _callees = [pair.a.callee("udp"), pair.b.callee("udp")];
    [&pair.a, &pair.b].into_iter().for_each(|site| site.register("bob", "udp"));
    call(pair, 1).good().unwrap();
    b.signal(Signal::SIGKILL).unwrap();
    b.finish(LIMIT).unwrap();
    let b = secured(&pair.b, "require") + &known(&pair.a.address, &key_of(&pair.a));
    let _b = pair.proxy(&pair.b, &pair.a, &b);
    // The first INVITE is lost with the old association. It is sent again over a new one, long before its timer B (32 s).
    let probe = pair.a.caller("bob", pair.b.domain, "udp", 1, 50);
    pair.a.host.run("probe", probe, Duration::from_secs(20)).unwrap().good().unwrap();
    assert!(a.stderr().contains("association over"), "{}", a.stderr());
    let command = caller.caller("bob", callee.domain, "udp", 5, 50);
    caller.host.run("call", command, LIMIT).unwrap().good().unwrap();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn calls_in_both_directions_work_again_soon_after_a_proxy_was_killed() {
    let pair = Pair::new();
    call_after_a_crash(&pair, &pair.a, &pair.b);
    let pair = Pair::new();
    call_after_a_crash(&pair, &pair.b, &pair.a);
}

/// Returns a command of the user agent that registers with the site's proxy over SCTP.
fn agent(site: &Site, more: &[&str]) -> Command {
    let mut command = site.host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
    command.args(["--transport", "sctp", "--local", "127.0.0.2:5070"]);
    command.args([
        "--proxy",
        &site.proxy_address(),
        "--user",
        &format!("alice@{}", site.domain),
        "--stop-after",
        "2",
    ]);
    command.args(more);
    command
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_user_agent_registers_encrypted_and_only_with_a_proxy_that_has_the_key() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    let key = key_of(&site);
    let _proxy = site.proxy(&[site.listen("sctp"), format!("[sctp]\n{}", secured(&site, "require"))]);
    let register = |more: &[&str]| site.host.run("ua", agent(&site, more), LIMIT).unwrap();
    register(&["--peer-key", &key]).good().unwrap();
    register(&["--secure", "try"]).good().unwrap();
    assert!(register(&["--peer-key", &other_key()]).good().is_err(), "another key");
    assert!(register(&[]).good().is_err(), "in the clear");
    let usage = register(&["--secure", "off", "--peer-key", &key]);
    assert!(usage.stderr.contains("have no effect"), "{}", usage.stderr);
}
