//! Tests that `sctpify explain` reports the bottleneck of an established connection: the sending program, the
//! receiving program, or the network.

use crate::world::{BULK, LIMIT, PORT, World};
use serde_json::Value;
use testbed::process::wait_for;

/// Program on beta that accepts a connection and never reads.
const DEAF: &str = "
import socket, sys, time
listener = socket.create_server(('', int(sys.argv[1])))
print('listening', flush=True)
peer = listener.accept()[0]
time.sleep(600)
";
/// Program on alpha that sends one word and stays connected.
const QUIET: &str = "
import socket, sys, time
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
peer.sendall(b'hello')
time.sleep(600)
";

/// Returns the explanation of the destination, as JSON.
fn explained(world: &World) -> Value {
    let output = world.alphas.sctpify(&["explain", &world.target(), "--json"]).unwrap().good().unwrap();
    serde_json::from_str(output.stdout.trim()).unwrap()
}

/// Waits until `expected` is the reported limit of the one connection, and returns the explanation.
fn wait_for_limit(world: &World, expected: &str) -> Value {
    let is_it = || explained(world)["limited_by"] == serde_json::json!({ expected: 1 });
    assert!(wait_for(LIMIT, is_it), "{expected}: {}", explained(world));
    explained(world)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connection_whose_program_is_silent_is_limited_by_the_application() {
    let world = World::new();
    let _deaf = world.serve("python3", &["-c", DEAF, &PORT.to_string()]);
    assert_eq!(explained(&world)["limited_by"], serde_json::json!({}));
    let to = world.link.right_v4().to_string();
    let quiet = world.client("python3", &["-c", QUIET, &to, &PORT.to_string()]);
    let _quiet = world.alpha.spawn("quiet", quiet).unwrap();
    let report = wait_for_limit(&world, "application");
    assert_eq!((&report["connections"], &report["waiting_bytes"]), (&1.into(), &0.into()), "{report}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connection_whose_peer_does_not_read_is_limited_by_the_receiver() {
    let world = World::new();
    let _deaf = world.serve("python3", &["-c", DEAF, &PORT.to_string()]);
    let sender = world.client(BULK, &["send", &world.target(), "600", "65536"]);
    let _sender = world.alpha.spawn("sender", sender).unwrap();
    wait_for_limit(&world, "receiver");
    let output = world.alphas.sctpify(&["explain", &world.target()]).unwrap().good().unwrap().stdout;
    assert!(output.contains("connections over SCTP now: 1; limited by: receiver 1"), "{output}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connection_over_a_slow_link_is_limited_by_the_network() {
    let world = World::without_offloads();
    let link = world.link.name();
    // The queue is short. In a queue of thousands of packets, packets would wait for longer than the engine's
    // retransmission timeout.
    for words in [
        &["qdisc", "add", "dev", &link, "root", "handle", "1:", "htb", "default", "1"][..],
        &["class", "add", "dev", &link, "parent", "1:", "classid", "1:1", "htb", "rate", "5mbit"],
        &["qdisc", "add", "dev", &link, "parent", "1:1", "pfifo", "limit", "50"],
    ] {
        world.alpha.tool("tc", words).unwrap();
    }
    let _receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let sender = world.client(BULK, &["send", &world.target(), "600", "65536"]);
    let _sender = world.alpha.spawn("sender", sender).unwrap();
    let output = wait_for_limit(&world, "network");
    assert!(output["waiting_bytes"].as_u64().unwrap() > 0, "{output}");
}
