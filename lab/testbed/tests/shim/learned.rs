//! Tests of the learned table. The first connection to a destination detects that the destination has no
//! SCTP. Later connections use TCP at once, and send no SCTP packet. A background probe detects when SCTP
//! works again.

use crate::streams::warm_up;
use crate::world::{BULK, LIMIT, PORT, World, drop_sctp};
use std::time::Duration;
use testbed::process::{now, wait_for};
use testbed::{Capture, Daemon, Programs, Seen};

/// Default of the race timer.
const RACE: Duration = Duration::from_millis(250);
/// Limit on a connect that does not wait for the race timer. It allows for a busy machine.
const AT_ONCE: Duration = Duration::from_millis(200);
/// Time that a connect may take in addition to the race timer, on a busy machine. The time is shorter than a
/// second, after which TCP would retransmit its SYN.
const SLACK: Duration = Duration::from_millis(600);
/// Limit on the time until a probe detects SCTP.
const PROBE_LIMIT: Duration = Duration::from_secs(15);

/// Creates a world in which only alpha has a daemon, with this configuration.
fn without_sctp(configuration: &str) -> World {
    World::with(configuration, false)
}

fn connect(world: &World) -> Duration {
    let connect = world.client(BULK, &["connect", &world.target(), "1"]);
    let output = world.alpha.run("connect", connect, LIMIT).unwrap().good().unwrap().stdout;
    Duration::from_micros(output.trim().parse().unwrap())
}

/// Connects once while alpha's link is captured. Returns the duration of the connect, and the content of the
/// capture.
fn connect_captured(world: &World) -> (Duration, Seen) {
    let capture = Capture::start(&world.alpha, "connect", &[&world.link.name()]).unwrap();
    let took = connect(world);
    (took, capture.judge().unwrap())
}

fn explained(world: &World) -> String {
    world.alphas.sctpify(&["explain", &world.target()]).unwrap().good().unwrap().stdout
}

fn listed(world: &World) -> String {
    world.alphas.shimrules(&["-L"]).unwrap().good().unwrap().stdout
}

/// Asserts that the next connection uses TCP at once, without any SCTP packet on the link.
fn assert_the_next_is_plain_tcp(world: &World) {
    let (took, seen) = connect_captured(world);
    assert_eq!((seen.sctp, seen.tcp > 0), (0, true), "{seen:?}");
    assert!(took < AT_ONCE, "{took:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_that_drops_sctp_delays_only_the_first_connect_by_the_race_timer() {
    let world = without_sctp("");
    drop_sctp(&world.beta);
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let first = connect(&world);
    assert!(first >= RACE && first < RACE + SLACK, "{first:?}: {}", world.fallbacks());
    assert_the_next_is_plain_tcp(&world);
    let report = explained(&world);
    assert!(
        report.contains("cached as not supporting SCTP (no answer)") && report.contains("probed in "),
        "{report}"
    );
    let row = listed(&world);
    assert!(row.contains("disable  no answer"), "{row}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn if_a_host_with_a_shared_association_loses_sctp_a_connect_waits_one_race_timer() {
    let world = World::new();
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    warm_up(&world, world.client(BULK, &["connect", &world.target(), "1"]));
    drop_sctp(&world.beta);
    let first = connect(&world);
    assert!(first >= RACE && first < RACE + RACE, "once: {first:?}: {}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_that_rejects_sctp_with_icmp_delays_only_the_first_connect_by_a_round_trip() {
    let world = without_sctp("");
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let first = connect(&world);
    assert!(first < AT_ONCE, "ICMP ends the wait: {first:?}");
    assert_the_next_is_plain_tcp(&world);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_learned_entry_survives_a_restart_until_it_is_forgotten() {
    let mut world = without_sctp("");
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    connect(&world);
    world.alphas.stop();
    world.alphas = Daemon::restart(&world.alpha, &Programs::find().unwrap()).unwrap();
    assert_the_next_is_plain_tcp(&world);
    let host = world.link.right_v4().to_string();
    world.alphas.sctpify(&["forget", &host]).unwrap().good().unwrap();
    assert!(connect_captured(&world).1.sctp > 0, "a forgotten host is tried again");
    world.alphas.shimrules(&["-B"]).unwrap().good().unwrap();
    assert!(connect_captured(&world).1.sctp > 0, "with -B what was learned is not heeded");
}

/// Accepts connections on port argv[1]. After each connection, prints the number of connections so far.
const COUNT: &str = "
import socket, sys
listener, count = socket.create_server(('', int(sys.argv[1]))), 0
print('listening')
while True:
    listener.accept()[0].close()
    count += 1
    print('accepted', count)
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_server_that_gains_sctpify_is_found_without_delaying_a_connect() {
    let world = without_sctp("learned_hold_s = 1\nlearned_hold_max_s = 2\n");
    let server = world.serve("python3", &["-u", "-c", COUNT, &PORT.to_string()]);
    connect(&world);
    let mut made = 1;
    let port = PORT.to_string();
    let betas = Daemon::start(&world.beta, &Programs::find().unwrap(), "").unwrap();
    betas.shimrules(&["-A", "-c", "local", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    let start = now();
    while world.connects_sctp() == 0 {
        assert!(start.elapsed() < PROBE_LIMIT, "not found: {}", listed(&world));
        let took = connect(&world);
        assert!(took < AT_ONCE, "an application waited: {took:?}");
        made += 1;
        std::thread::sleep(Duration::from_millis(200));
    }
    let count = format!("accepted {made}");
    assert!(wait_for(LIMIT, || server.stdout().contains(&count)), "{}", server.stdout());
    assert!(!server.stdout().contains(&format!("accepted {}", made + 1)), "a probe was seen as a connection");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_server_that_loses_sctpify_is_kept_on_tcp_after_three_failures() {
    let mut world = World::new();
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    connect(&world);
    assert_eq!(world.connects_sctp(), 1);
    world.betas.take().unwrap().stop();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1_100));
        assert!(connect_captured(&world).1.sctp > 0, "what worked a moment ago is tried again");
    }
    assert_the_next_is_plain_tcp(&world);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_rule_that_names_the_host_beats_what_was_learned() {
    let world = without_sctp("");
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    connect(&world);
    assert_the_next_is_plain_tcp(&world);
    let (host, port) = (world.link.right_v4().to_string(), PORT.to_string());
    world.alphas.shimrules(&["-D", "-c", "remote", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    world
        .alphas
        .shimrules(&["-A", "-c", "remote", "-p", "enable", "-d", &host, "-P", &port])
        .unwrap()
        .good()
        .unwrap();
    assert!(connect_captured(&world).1.sctp > 0, "the operator's word counts more");
    let output = explained(&world);
    assert!(output.contains("a rule that names the host overrides its learned entry"), "{output}");
}
