//! Tests of two hosts that share a key, and of pairs in which one host lacks the key.

use crate::deaths::{Victims, kill_processes};
use crate::tap::Tap;
use crate::world::{BULK, LIMIT, PORT, World, status};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Host, Process};

pub(crate) const KEY: &str = "a secret of more than sixteen bytes";
const OTHER: &str = "another secret, as long as the first";
/// Type of DATA chunks, as tshark prints it.
const DATA: &str = "0";
/// Type of COOKIE ECHO chunks.
const COOKIE_ECHO: &str = "10";
/// Type of AUTH chunks.
const AUTH: &str = "15";
/// Limit on a connect to a peer with another key. The client gives up a second after the INIT ACK.
const MISMATCH_LIMIT: Duration = Duration::from_secs(3);

/// Limit on the time until a program gets its error after the peer's daemon has died. The unsigned reports of
/// the death are hearsay, which the engine verifies for about a second.
const NOTICED: Duration = Duration::from_secs(4);

pub(crate) fn give_key(host: &Host, daemon: &Daemon, key: Option<&str>) {
    let Some(key) = key else { return };
    let file = host.dir().unwrap().join("sctpifyd/keys");
    std::fs::write(&file, format!("10.77.0.0/16 {key}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    daemon.sctpify(&["set", &format!("peer_keys={}", file.display())]).unwrap().good().unwrap();
    daemon.sctpify(&["reload"]).unwrap().good().unwrap();
}

fn world(alpha: Option<&str>, beta: Option<&str>) -> (World, Process) {
    // Packets are signed, but not encrypted.
    let world = World::readable();
    give_key(&world.alpha, &world.alphas, alpha);
    give_key(&world.beta, world.betas.as_ref().unwrap(), beta);
    let server = world.serve(BULK, &["accept", &PORT.to_string()]);
    (world, server)
}

fn connect(world: &World) {
    let command = world.client(BULK, &["connect", &world.target(), "1"]);
    let output = world.alpha.run("connect", command, LIMIT).unwrap().good().unwrap();
    assert!(output.elapsed < MISMATCH_LIMIT, "{:?}", output.elapsed);
}

/// Waits until beta's daemon counts a peer without beta's key. Returns true if the daemon has also logged
/// this peer.
fn wrong_keys(world: &World) -> bool {
    let betas = world.betas.as_ref().unwrap();
    let counted = || status(betas)["counters"]["wrong_keys"].as_u64().unwrap() > 0;
    wait_for(LIMIT, counted) && betas.log().contains("another key")
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn with_one_key_connections_are_carried_over_sctp_and_each_data_chunk_is_signed() {
    let (world, _server) = world(Some(KEY), Some(KEY));
    let tap = Tap::on(&world, "keyed");
    connect(&world);
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
    world.wait_quiet();
    let packets = tap.fields(&world, "sctp", &["sctp.chunk_type"]);
    let unsigned = |line: &&str| {
        let chunks: Vec<&str> = line.split(',').collect();
        let auth = chunks.iter().position(|c| *c == AUTH).unwrap_or(usize::MAX);
        chunks.iter().position(|c| [DATA, COOKIE_ECHO].contains(c)).is_some_and(|at| at < auth)
    };
    assert!(packets.lines().filter(|line| line.contains(AUTH)).count() > 2, "{packets}");
    assert_eq!(packets.lines().find(unsigned), None, "{packets}");
    let output = world.alphas.sctpify(&["explain", &world.target()]).unwrap().stdout;
    assert!(output.contains("10.77.0.0/16"), "{output}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_peer_with_another_key_gets_no_association_and_both_sides_say_why() {
    let (world, _server) = world(Some(OTHER), Some(KEY));
    connect(&world);
    assert_eq!(world.connects_sctp(), 0);
    let reason = world.fallbacks()[0]["reason"].take();
    assert_eq!((&reason["kind"], &reason["found"]), (&"key_not_proved".into(), &"unanswered".into()));
    assert!(wrong_keys(&world));
    let logs = world.alphas.log() + &world.betas.as_ref().unwrap().log();
    assert!(!logs.contains(KEY) && !logs.contains(OTHER), "a secret in a log");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_client_without_the_required_key_gets_no_association() {
    let (world, _server) = world(None, Some(KEY));
    let command = world.client(BULK, &["connect", &world.target(), "1"]);
    world.alpha.run("connect", command, LIMIT).unwrap().good().unwrap();
    assert_eq!(world.connects_sctp(), 0);
    assert!(wrong_keys(&world));
    assert!(world.fallbacks()[0]["reason"]["cause"].as_str().unwrap().contains("may require a key"));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_client_that_requires_a_key_refuses_a_server_without_it() {
    let (world, _server) = world(Some(KEY), None);
    connect(&world);
    assert_eq!(world.connects_sctp(), 0);
    assert_eq!(world.fallbacks()[0]["reason"]["kind"], "key_not_proved");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_key_that_is_not_required_yet_keeps_nobody_out() {
    let (world, _server) = world(None, Some(KEY));
    let betas = world.betas.as_ref().unwrap();
    betas.sctpify(&["set", "peer_key_required=0"]).unwrap().good().unwrap();
    connect(&world);
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_file_of_keys_that_others_may_read_is_refused() {
    let world = World::with("", false);
    let file = world.alpha.dir().unwrap().join("sctpifyd/keys");
    std::fs::write(&file, format!("* {KEY}\n")).unwrap();
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    let is_refused = |words: &[&str]| {
        let output = world.alphas.sctpify(words).unwrap();
        !output.status.success() && output.stderr.contains("chmod 600")
    };
    let (assignment, config) = (format!("peer_keys={}", file.display()), file.with_file_name("sctpify.toml"));
    mode(0o644);
    assert!(is_refused(&["set", &assignment]));
    assert!(!std::fs::read_to_string(&config).unwrap().contains("peer_keys"), "nothing is written");
    mode(0o600);
    world.alphas.sctpify(&["set", &assignment]).unwrap().good().unwrap();
    mode(0o644);
    assert!(is_refused(&["reload"]));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn death_of_a_keyed_peers_daemon_is_noticed_in_seconds_without_a_signed_abort() {
    // In both cases, beta's kernel soon reports over ICMP that no program receives the packets. With
    // `AllButFirst`, the supervisor survives, but it cleans up and ends.
    for victims in [Victims::All, Victims::AllButFirst] {
        let (world, server) = world(Some(KEY), Some(KEY));
        server.stop();
        let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
        let command = world.client(BULK, &["send", &world.target(), "60", "65536"]);
        let sender = world.alpha.spawn("sender", command).unwrap();
        assert!(wait_for(LIMIT, || world.connects_sctp() == 1), "{:?}", world.fallbacks());
        kill_processes(&world.beta, world.betas.as_ref().unwrap(), victims);
        let output = sender.finish(NOTICED).unwrap();
        assert!(!output.status.success(), "{victims:?}: {output:?}");
        assert!(!receiver.finish(LIMIT).unwrap().status.success(), "{victims:?}");
    }
}
