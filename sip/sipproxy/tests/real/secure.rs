//! Tests of TLS: calls over TLS, and certificates that openssl creates and inspects.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use testbed::process::wait_for;
use testbed::{Lab, Process};

use crate::world::{LIMIT, Site};

fn openssl(dir: &Path, words: &str, more: &[&str]) {
    let mut command = Command::new("openssl");
    command.args(words.split(' ')).args(more).current_dir(dir).stderr(Stdio::null());
    assert!(command.status().unwrap().success(), "openssl {words}");
}

const KEY: &str = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test";

/// Creates a root certificate in `dir`.
pub(crate) fn make_root(dir: &Path) {
    openssl(dir, KEY, &["-keyout", "root.key", "-out", "root.pem"]);
}

/// Creates a certificate with these names, signed by the root.
pub(crate) fn make(dir: &Path, file: &str, names: &str) {
    let words =
        ["-keyout", &format!("{file}.key"), "-out", &format!("{file}.pem"), "-CA", "root.pem", "-CAkey"];
    let names = format!("subjectAltName={names}");
    let more = ["root.key", "-addext", &names, "-addext", "basicConstraints=critical,CA:FALSE"];
    openssl(dir, KEY, &[&words[..], &more[..]].concat());
}

/// Returns the configuration of a TLS listener at port 5061, with the certificate of this name.
pub(crate) fn tls(site: &Site, file: &str) -> String {
    let path = |name: &str| site.dir.join(name).display().to_string();
    let (certificate, key, roots) =
        (path(&format!("{file}.pem")), path(&format!("{file}.key")), path("root.pem"));
    format!(
        "[[listen]]\ntransport = \"tls\"\naddress = \"{}:5061\"\n\
         [tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\nroots = \"{roots}\"\n",
        site.address
    )
}

/// Returns a command for a user agent that reaches its proxy over TLS.
pub(crate) fn agent(site: &Site, user: &str, port: u16, more: &[&str]) -> Command {
    let mut command = site.host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
    let address = &site.address;
    command.args(["--transport", "tls", "--roots"]).arg(site.dir.join("root.pem"));
    command.args(["--local", &format!("{address}:{port}"), "--proxy", &format!("{address}:5061")]);
    command.args(["--user", &format!("{user}@{}", site.domain), "--rtp-port", &(port + 1000).to_string()]);
    command.args(["--log", "info"]).args(more);
    command
}

pub(crate) fn bob(site: &Site) -> Process {
    let mut bob = site.host.spawn("bob", agent(site, "bob", 5070, &[])).unwrap();
    bob.wait_until("registered", LIMIT, |bob| bob.stderr().contains("Registered")).unwrap();
    bob
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn agents_register_and_call_over_tls_and_udp_callers_reach_them() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    make_root(&site.dir);
    make(&site.dir, "own", "URI:sip:example.com,DNS:other.example");
    let _proxy = site.proxy(&[site.listen("udp"), tls(&site, "own")]);
    let _bob = bob(&site);
    let call = ["--call", "sips:bob@example.com", "--calls", "20", "--rate", "20", "--duration", "0"];
    site.host.run("alice", agent(&site, "alice", 5080, &call), LIMIT).unwrap().good().unwrap();
    // Callers over UDP also reach Bob through his connection.
    site.call("bob", site.domain, "udp", 20);
    let mut probe = site.host.command("sh");
    probe.args(["-c", "printf 'OPTIONS sip:example.com SIP/2.0\\r\\nVia: SIP/2.0/TLS 127.0.0.1;branch=z9hG4bK1\\r\\n\
        Max-Forwards: 70\\r\\nFrom: <sip:x@y>;tag=1\\r\\nTo: <sip:example.com>\\r\\nCall-ID: 1\\r\\nCSeq: 1 OPTIONS\\r\\n\
        Content-Length: 0\\r\\n\\r\\n' | timeout 5 openssl s_client -quiet -connect 127.0.0.1:5061 -ign_eof"]);
    let told = site.host.run("probe", probe, LIMIT).unwrap();
    assert!(told.stdout.contains("SIP/2.0 200 OK"), "{told:?}");
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_peer_has_to_prove_the_domain_that_a_call_is_for() {
    for (names, is_good) in [
        ("URI:sip:b.example", true),
        ("DNS:b.example", true),
        ("DNS:evil.example", false),
        ("DNS:*.example", false),
        // A SIP URI is decisive: DNS names in the same certificate belong to other services.
        ("URI:sip:evil.example,DNS:b.example", false),
    ] {
        let lab = Lab::new().unwrap();
        let a = Site::new(&lab, "sip", "127.0.0.1", "a.example");
        make_root(&a.dir);
        make(&a.dir, "a", "URI:sip:a.example");
        make(&a.dir, "b", names);
        let hop = "[[next_hop]]\ndomain = \"b.example\"\ntransport = \"tls\"\naddress = \"127.0.0.2:5061\"\n";
        let near = a.proxy(&[a.listen("udp"), hop.to_owned(), tls(&a, "a")]);
        let b = a.beside("127.0.0.2", "b.example");
        let _far = b.proxy(&[b.listen("udp"), tls(&b, "b")]);
        let _callee = b.callee("udp");
        b.register("bob", "udp");
        let caller = a.caller("bob", "b.example", "udp", 1, 1);
        let told = a.host.run("caller", caller, LIMIT).unwrap();
        assert_eq!(told.status.success(), is_good, "{names}: {}", near.stderr());
        assert_eq!(near.stderr().contains("NotValidForName"), !is_good, "{names}: {}", near.stderr());
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn sighup_takes_another_certificate_and_keeps_connections() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    make_root(&site.dir);
    make(&site.dir, "own", "URI:sip:example.com");
    let proxy = site.proxy(&[site.listen("udp"), tls(&site, "own")]);
    let _bob = bob(&site);
    let serial = || {
        let script =
            "openssl s_client -connect 127.0.0.1:5061 </dev/null 2>/dev/null | openssl x509 -noout -serial";
        site.host.tool("sh", &["-c", script]).unwrap()
    };
    let before = serial();
    make(&site.dir, "own", "URI:sip:example.com");
    proxy.signal(Signal::SIGHUP).unwrap();
    assert!(wait_for(LIMIT, || proxy.stderr().contains("reloaded")), "{}", proxy.stderr());
    assert_ne!(before, serial());
    site.call("bob", site.domain, "udp", 1);
    std::fs::write(site.dir.join("own.pem"), "no certificate").unwrap();
    proxy.signal(Signal::SIGHUP).unwrap();
    assert!(wait_for(LIMIT, || proxy.stderr().contains("not reloaded")), "{}", proxy.stderr());
}
