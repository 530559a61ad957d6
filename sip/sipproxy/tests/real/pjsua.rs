//! Tests with telephones made of PJSUA, PJSIP's user agent library. The telephones use UDP and TCP. In one test, the shim carries a
//! telephone's TCP connection over SCTP, which the telephone does not notice.

use testbed::process::wait_for;
use testbed::{Capture, Host, Lab, Offloads, Process};

use crate::framed::{World, are_each_one, messages};
use crate::world::{LIMIT, Site};

/// Directory into which scripts/setup.sh installs the library.
const PACKAGES: &str = "/usr/local/lib/sctpify-tests";
const PHONE: &str = include_str!("pjsua.py");
const USERS: &str = "[authentication]\nusers = { alice = \"secret\", bob = \"geheim\" }\n";

/// Returns a command for Python on a host, with access to the library.
fn python(host: &Host) -> std::process::Command {
    let mut command = host.command("python3");
    command.env("PYTHONPATH", PACKAGES);
    command
}

/// Reports whether PJSUA is installed. If not, marks the test as skipped.
fn is_there(host: &Host) -> bool {
    let mut command = python(host);
    command.args(["-c", "import pjsua2"]);
    let is_there = host.run("pjsua", command, LIMIT).unwrap().status.success();
    if !is_there {
        testbed::skip("there is no pjsua2 for this Python (scripts/setup.sh)");
    }
    is_there
}

/// Starts a user's telephone at this address. It answers calls, and calls the user `callee` if `callee` is given.
fn phone(
    host: &Host,
    (user, password): (&str, &str),
    transport: &str,
    address: &str,
    callee: Option<&str>,
) -> Process {
    let mut command = python(host);
    command.args(["-c", PHONE, "--user", user, "--password", password, "--transport", transport]);
    command.args(["--address", address, "--proxy", "10.77.1.1:5060"]);
    command.args(callee.map(|user| ["--call", user]).iter().flatten());
    host.spawn(user, command).unwrap()
}

/// Waits until a telephone has printed `words`.
fn waits(phone: &Process, words: &str) {
    assert!(wait_for(LIMIT, || phone.stdout().contains(words)), "{words}: {}", phone.stdout());
}

/// Makes a call from Alice to Bob. `alice` and `bob` are the transports of their telephones. Both users must hear each other, and Alice
/// hangs up.
fn call(alice: &str, bob: &str) {
    let lab = Lab::new().unwrap();
    let site = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
    if !is_there(&site.host) {
        return;
    }
    let far = lab.host("beta").unwrap();
    let _link = lab.join(&site.host, &far, 1, Offloads::On).unwrap();
    let _proxy = site.proxy(&[site.listen("udp"), site.listen("tcp"), USERS.to_owned()]);
    let bob = phone(&far, ("bob", "geheim"), bob, "10.77.1.2", None);
    waits(&bob, "registration 200");
    let alice = phone(&site.host, ("alice", "secret"), alice, "10.77.1.1", Some("bob"));
    for phone in [&alice, &bob] {
        waits(phone, "call CONFIRMED 200");
        waits(phone, "hears");
    }
    alice.stop();
    waits(&bob, "call DISCONNECTED 200");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn pjsua_registers_with_passwords_and_calls_by_udp_and_by_tcp_and_both_hear_each_other() {
    for (alice, bob) in [("udp", "tcp"), ("tcp", "udp")] {
        call(alice, bob);
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn pjsua_with_a_wrong_password_does_not_register() {
    let lab = Lab::new().unwrap();
    let site = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
    if !is_there(&site.host) {
        return;
    }
    let _link = lab.join(&site.host, &lab.host("beta").unwrap(), 1, Offloads::On).unwrap();
    let _proxy = site.proxy(&[site.listen("udp"), USERS.to_owned()]);
    let bob = phone(&site.host, ("bob", "wrong"), "udp", "10.77.1.1", None);
    waits(&bob, "registration 401");
    assert!(!bob.stdout().contains("registration 200"), "{}", bob.stdout());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn pjsua_calls_and_is_called_through_the_shim_with_one_sctp_message_per_sip_message() {
    let World { proxys, callers, link, .. } = &World::new();
    if !is_there(&proxys.host) {
        return;
    }
    let listeners = ["udp", "tcp", "sctp"].map(|transport| proxys.listen(transport));
    let _proxy = proxys.proxy(&[&listeners[..], &[USERS.to_owned()]].concat());
    let capture = Capture::start(&callers.host, "phone", &[&link.name()]).unwrap();
    let alice = phone(&proxys.host, ("alice", "secret"), "udp", "10.77.1.1", None);
    waits(&alice, "registration 200");
    let bob = phone(&callers.host, ("bob", "geheim"), "tcp", "10.77.1.2", Some("alice"));
    for phone in [&alice, &bob] {
        waits(phone, "call CONFIRMED 200");
        waits(phone, "hears");
    }
    alice.stop();
    waits(&bob, "call DISCONNECTED 200");
    let alice = phone(&proxys.host, ("alice", "secret"), "udp", "10.77.1.1", Some("bob"));
    let is_called = || bob.stdout().matches("call CONFIRMED 200").count() == 2;
    assert!(wait_for(LIMIT, is_called), "{}", bob.stdout());
    bob.stop();
    waits(&alice, "call DISCONNECTED 200");
    let seen = messages(capture);
    assert!(are_each_one(&seen), "{seen:?}");
    let of = |method: &str| seen.iter().filter(|message| message.method == method).count();
    for method in ["REGISTER", "INVITE", "ACK", "BYE"] {
        assert!(of(method) >= 2, "{method}: {seen:?}");
    }
}
