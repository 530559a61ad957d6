//! Tests of send-buffer advertisement for unmodified programs. A rule or a setting turns the advertisement on. By
//! default, it is off.

use crate::tap::Tap;
use crate::world::{BULK, LIMIT, PORT, World};
use testbed::Daemon;

/// Types of chunks with data, as tshark prints them.
const DATA: [&str; 2] = ["0", "64"];
/// Types of COOKIE ECHO and COOKIE ACK chunks.
const COOKIES: [&str; 2] = ["10", "11"];
/// Type of advertisement chunks.
const ADVERTISEMENT: &str = "150";
/// Number of bytes that a program sends.
const SIZE: &str = "4000000";

/// Counts the packets with DATA that `sender` sent. Returns the number that begin with an advertisement, and the number
/// that do not. Handshake packets do not count: they begin with a cookie chunk.
fn count(world: &World, tap: Tap, sender: std::net::IpAddr) -> (usize, usize) {
    count_of(ADVERTISEMENT, world, tap, sender)
}

/// Like [`count`], for advertisements with chunk type `chunk_type`.
fn count_of(chunk_type: &str, world: &World, tap: Tap, sender: std::net::IpAddr) -> (usize, usize) {
    let filter = format!("sctp && ip.src == {sender} && !(ip.dst == {sender})");
    let packets = tap.fields(world, &filter, &["sctp.chunk_type"]);
    let chunks = packets.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let with_data: Vec<_> =
        chunks.filter(|all| all.iter().any(|c| DATA.contains(c)) && !COOKIES.contains(&all[0])).collect();
    let elsewhere = |chunks: &&Vec<&str>| chunks[1..].contains(&chunk_type);
    assert_eq!(with_data.iter().find(elsewhere), None, "the chunk is the first");
    let with = with_data.iter().filter(|chunks| chunks[0] == chunk_type).count();
    (with, with_data.len() - with)
}

/// Makes a program on alpha request [`SIZE`] bytes from a program on beta.
fn fetch(world: &World) {
    let command = world.client(BULK, &["fetch", &world.target(), "1", SIZE, "1"]);
    world.alpha.run("fetch", command, LIMIT).unwrap().good().unwrap();
    assert_eq!(world.fallbacks(), serde_json::json!([]));
}

fn rule(daemon: &Daemon, chain: &str, form: &str) {
    let words = ["-A", "-c", chain, "-p", "enable", "-P", &PORT.to_string(), "--advertise", form];
    daemon.shimrules(&words).unwrap().good().unwrap();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn by_default_no_program_advertises() {
    let world = World::readable();
    let _server = world.serve(BULK, &["give", &PORT.to_string()]);
    let tap = Tap::on(&world, "off");
    fetch(&world);
    let (with, without) = count(&world, tap, world.link.right_v4().into());
    assert!(with == 0 && without > 100, "{with} {without}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_server_behind_a_local_rule_advertises_in_each_packet_with_data_and_all_arrives() {
    let world = World::readable();
    rule(world.betas.as_ref().unwrap(), "local", "backlog");
    let _server = world.serve(BULK, &["give", &PORT.to_string()]);
    let tap = Tap::on(&world, "local");
    fetch(&world);
    let (with, without) = count(&world, tap, world.link.right_v4().into());
    assert!(with > 100 && without == 0, "{with} {without}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_client_under_a_remote_rule_advertises_though_a_shared_association_would_not() {
    let world = World::readable();
    let server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let connect = || {
        let command = world.client(BULK, &["connect", &world.target(), "1"]);
        world.alpha.run("connect", command, LIMIT).unwrap().good().unwrap();
    };
    connect();
    world.wait_quiet();
    drop(server);
    rule(&world.alphas, "remote", "percent");
    let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let tap = Tap::on(&world, "remote");
    let send = world.client(BULK, &["send", &world.target(), "0.3", "65536"]);
    world.alpha.run("sender", send, LIMIT).unwrap().good().unwrap();
    receiver.finish(LIMIT).unwrap().good().unwrap();
    let (with, without) = count(&world, tap, world.link.left_v4().into());
    assert!(with > 100 && without == 0, "{with} {without}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn with_the_setting_advertise_a_shared_association_also_advertises() {
    let world = World::readable();
    let betas = world.betas.as_ref().unwrap();
    betas.sctpify(&["set", "advertise=economical"]).unwrap().good().unwrap();
    let _server = world.serve(BULK, &["give", &PORT.to_string()]);
    fetch(&world);
    world.wait_quiet();
    let tap = Tap::on(&world, "shared");
    fetch(&world);
    let shared = world.betas.as_ref().map(crate::world::status).unwrap();
    let (with, without) = count(&world, tap, world.link.right_v4().into());
    // Each train has up to 64 packets, and at least one of them has an advertisement.
    assert!(with > without / 64 && with < without / 4, "{with} {without}");
    assert!(shared["associations"].as_array().unwrap().iter().any(|a| !a["shared_by"].is_null()), "{shared}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_setting_advertise_type_changes_the_chunk_type() {
    let world = World::readable();
    let betas = world.betas.as_ref().unwrap();
    for setting in ["advertise=percent", "advertise_type=151"] {
        betas.sctpify(&["set", setting]).unwrap().good().unwrap();
    }
    let _server = world.serve(BULK, &["give", &PORT.to_string()]);
    let tap = Tap::on(&world, "type");
    fetch(&world);
    let (with, without) = count_of("151", &world, tap, world.link.right_v4().into());
    assert!(with > 100 && without == 0, "{with} {without}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_idle_server_sends_separate_advertisements_at_the_interval_of_its_rule() {
    let world = World::readable();
    let words = ["--advertise", "timer", "--advertise-interval", "200"];
    let port = PORT.to_string();
    let rule = [["-A", "-c", "local", "-p", "enable", "-P", &port].as_slice(), &words].concat();
    world.betas.as_ref().unwrap().shimrules(&rule).unwrap().good().unwrap();
    let _server = world.serve(BULK, &["accept", &port]);
    let tap = Tap::on(&world, "timer");
    let stay = "import socket, sys, time; c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); time.sleep(3)";
    let command = world.client("python3", &["-c", stay, &world.link.right_v4().to_string(), &port]);
    world.alpha.run("client", command, LIMIT).unwrap().good().unwrap();
    assert_eq!(world.fallbacks(), serde_json::json!([]));
    let filter = format!("sctp.chunk_type == 150 && ip.src == {}", world.link.right_v4());
    let packets = tap.fields(&world, &filter, &["sctp.chunk_type"]);
    // An advertisement is due every 200 ms for three seconds. On a busy machine, some are late.
    let alone = packets.lines().filter(|chunks| *chunks == ADVERTISEMENT).count();
    assert!((8..=17).contains(&alone), "{packets}");
}
