//! Tests of the test bed itself, without a daemon: programs run, captures are accurate, links fail silently,
//! and nothing is left behind. The tests need root. Each one creates its own lab.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use testbed::files::{Growth, make_random, sha256};
use testbed::programs::{Nginx, Roundtrip, Sshd, curl, roundtrip};
use testbed::{Capture, DelayedLink, Host, Lab, Link, Offloads, Programs, c_programs};

const MIB: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(30);

fn two_hosts() -> (Lab, Host, Host, Link) {
    let lab = Lab::new().unwrap();
    let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
    let link = lab.join(&alpha, &beta, 1, Offloads::Off).unwrap();
    (lab, alpha, beta, link)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_file_from_nginx_arrives_whole_and_the_capture_shows_only_tcp() {
    let (_lab, alpha, beta, link) = two_hosts();
    let nginx = Nginx::start(&beta).unwrap();
    let (source, copy) = (nginx.root().join("file"), alpha.dir().unwrap().join("file"));
    make_random(&source, MIB).unwrap();
    for address in [link.right_v4().to_string(), format!("[{}]", link.right_v6())] {
        let capture = Capture::start(&alpha, "curl", &[&link.name()]).unwrap();
        let command = curl(&alpha, &format!("http://{address}/file"), Some(&copy));
        alpha.run("curl", command, LIMIT).unwrap().good().unwrap();
        let seen = capture.judge().unwrap();
        assert_eq!(sha256(&copy).unwrap(), sha256(&source).unwrap());
        assert!(seen.tcp > 700, "1 MiB is more than 700 packets of 1500 bytes: {seen:?}");
        assert_eq!((seen.sctp, seen.faulty, seen.missed), (0, 0, 0), "{seen:?}");
    }
    assert!(nginx.access_log().contains(&link.left_v4().to_string()));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn ssh_runs_a_command_and_scp_copies_both_ways() {
    let (lab, alpha, beta, link) = two_hosts();
    let sshd = Sshd::start(&beta).unwrap();
    let (source, there, back) = (lab.dir().join("source"), lab.dir().join("there"), lab.dir().join("back"));
    make_random(&source, MIB).unwrap();
    for to in [IpAddr::from(link.right_v4()), link.right_v6().into()] {
        let shown =
            alpha.run("ssh", sshd.ssh(&alpha, to, "echo $SSH_CONNECTION"), LIMIT).unwrap().good().unwrap();
        let client = if to.is_ipv4() { link.left_v4().to_string() } else { link.left_v6().to_string() };
        assert!(shown.stdout.starts_with(&client), "{shown:?}");
        assert!(sshd.log().contains(&format!("Accepted publickey for root from {client}")), "{}", sshd.log());
        alpha.run("scp", sshd.scp_to(&alpha, &source, to, &there), LIMIT).unwrap().good().unwrap();
        alpha.run("scp", sshd.scp_from(&alpha, to, &there, &back), LIMIT).unwrap().good().unwrap();
        assert_eq!(sha256(&back).unwrap(), sha256(&source).unwrap());
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn go_and_python_get_their_bytes_back_and_are_seen_with_their_own_address() {
    let (lab, alpha, beta, link) = two_hosts();
    let roundtrip = Roundtrip::build(lab.dir()).unwrap();
    let _server = roundtrip.serve(&beta, 7000).unwrap();
    for to in [SocketAddr::from((link.right_v4(), 7000)), SocketAddr::from((link.right_v6(), 7000))] {
        let go = alpha.run("go", roundtrip.go_client(&alpha, to, MIB), LIMIT).unwrap().good().unwrap();
        assert!(roundtrip::saw_the_client(&go), "{go:?}");
        let python =
            alpha.run("python", roundtrip::python_client(&alpha, to, MIB), LIMIT).unwrap().good().unwrap();
        assert!(roundtrip::saw_the_client(&python), "{python:?}");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_silenced_link_drops_packets_without_errors_and_stays_up() {
    let (_lab, alpha, _beta, link) = two_hosts();
    let to = link.right_v4().to_string();
    let ping = || alpha.tool("ping", &["-c", "1", "-W", "1", "-q", &to]);
    ping().unwrap();
    link.silence().unwrap();
    let error = ping().unwrap_err().to_string();
    assert!(error.contains("exit status: 1"), "ping waits in vain instead of being refused: {error}");
    assert!(alpha.ip(&["link", "show", &link.name()]).unwrap().contains("LOWER_UP"));
    link.restore().unwrap();
    ping().unwrap();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_longest_silence_of_a_growing_file_is_measured() {
    let lab = Lab::new().unwrap();
    let (alpha, file) = (lab.host("alpha").unwrap(), lab.dir().join("growing"));
    let growth = Growth::watch(&file);
    let mut command = alpha.command("sh");
    command.args(["-c", "for pause in 0 0.1 0.6 0.1; do sleep $pause; echo line; done >$0"]).arg(&file);
    alpha.run("writer", command, LIMIT).unwrap().good().unwrap();
    let silence = growth.longest_silence();
    assert!((550..900).contains(&silence.as_millis()), "{silence:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_lab_leaves_no_process_namespace_or_file_behind() {
    let (lab, _alpha, beta, _link) = two_hosts();
    let nginx = Nginx::start(&beta).unwrap();
    let (dir, namespace) = (lab.dir().to_owned(), PathBuf::from("/run/netns").join(beta.namespace()));
    assert!(dir.exists() && namespace.exists());
    assert_eq!(lab.clear_up(), Vec::<String>::new());
    assert!(!dir.exists() && !namespace.exists());
    drop(nginx);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_delayed_link_adds_its_delay_to_every_round_trip() {
    let lab = Lab::new().unwrap();
    let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
    let linkemu = Programs::find().unwrap().path("linkemu");
    let delayed = DelayedLink::between(&lab, &alpha, &beta, 1, Duration::from_millis(25), &linkemu).unwrap();
    let to = delayed.link.right_v6().to_string();
    let output = alpha.tool("ping", &["-c", "10", "-i", "0.02", "-q", &to]).unwrap();
    // The test checks the minimum round trip, because other programs on the machine delay some round trips.
    let min = output.split("= ").last().and_then(|times| times.split('/').next()?.parse::<f64>().ok());
    assert!(min.is_some_and(|min| (50.0..60.0).contains(&min)), "{output}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_emulated_link_is_as_its_settings_say_and_changes_while_it_lives() {
    let lab = Lab::new().unwrap();
    let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
    let linkemu = Programs::find().unwrap().path("linkemu");
    let settings = ["--ab", "delay=10ms", "--ba", "delay=30ms"];
    let emulated = DelayedLink::emulated(&lab, &alpha, &beta, 1, &settings, &linkemu).unwrap();
    let to = emulated.link.right_v4().to_string();
    let output = alpha.tool("ping", &["-c", "5", "-i", "0.02", "-q", &to]).unwrap();
    let min = output.split("= ").last().and_then(|times| times.split('/').next()?.parse::<f64>().ok());
    assert!(min.is_some_and(|min| (40.0..55.0).contains(&min)), "{output}");
    emulated.set(&["--cut"]).unwrap();
    assert!(alpha.tool("ping", &["-c", "3", "-i", "0.02", "-W", "1", "-q", &to]).is_err());
    let shown = emulated.show().unwrap();
    assert_eq!(shown["directions"][0]["settings"]["cut"], "yes", "{shown}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn usrsctp_moves_bytes_and_the_capture_shows_sctp_without_a_fault() {
    let (lab, alpha, beta, link) = two_hosts();
    let program = c_programs::build("usrsctp_bench", lab.dir(), &["usrsctp", "pthread"]).unwrap();
    let capture = Capture::start(&alpha, "usrsctp", &[&link.name()]).unwrap();
    let mut command = beta.command(&program);
    command.args(["receive", "5003", "9899"]);
    let mut server = beta.spawn("receiver", command).unwrap();
    server.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    let mut command = alpha.command(&program);
    command.args(["send", &link.right_v4().to_string(), "5003", "9899", "0.1", "1024"]);
    alpha.run("sender", command, LIMIT).unwrap().good().unwrap();
    let output = server.finish(LIMIT).unwrap().good().unwrap().stdout;
    let bytes: u64 = output.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    let seen = capture.judge().unwrap();
    assert!(bytes > 100_000 && seen.sctp_udp_bytes > bytes, "{bytes} bytes, {seen:?}");
    assert_eq!((seen.tcp, seen.faulty, seen.carrier()), (0, 0, "sctp-udp"), "{seen:?}");
}
