//! Tests of `sctpify-router flows`: the limit on the rate of unmodified programs.

use std::time::Duration;

use crate::ends::{LIMIT, PORT};
use crate::world::World;
use serde_json::Value;

/// A receiver that reads 200 kB per second.
const SLOW: &str = "
import socket, sys, time
listener = socket.create_server(('', int(sys.argv[1])))
print('listening', flush=True)
peer = listener.accept()[0]
while peer.recv(20000):
    time.sleep(0.1)
";
/// A sender of 1000 bytes every 20 ms.
const IDLE: &str = "
import socket, sys, time
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print('not listening', flush=True)
while True:
    peer.sendall(b'x' * 1000)
    time.sleep(0.02)
";

/// Makes the router print six tables, one per second. Returns each table's verdict on the flow to this port of
/// beta, and the flow's last row.
fn verdicts(world: &World, port: u16) -> (Vec<String>, Value) {
    let words = ["--json", "flows", "left", "right", "--every", "1", "--count", "6"];
    let output = world.router(&words).good().unwrap().stdout;
    let to = world.link.right_v4().to_string();
    let rows: Vec<Value> = output
        .lines()
        .filter_map(|line| {
            let output: Value = serde_json::from_str(line).unwrap();
            output["flows"]
                .as_array()?
                .iter()
                .find(|row| row["to_port"] == port && row["to"] == to.as_str())
                .cloned()
        })
        .collect();
    let verdicts = rows.iter().map(|row| row["verdict"].as_str().unwrap().to_owned()).collect();
    (verdicts, rows.last().cloned().unwrap_or_default())
}

fn python(host: &testbed::Host, script: &str, args: &[&str]) -> testbed::Process {
    let mut command = host.command("python3");
    command.args(["-c", script]).args(args);
    let mut process = host.spawn("python", command).unwrap();
    process.wait_until("begun", LIMIT, |it| it.stdout().contains("listening")).unwrap();
    process
}

fn most(verdicts: &[String], expected: &str) -> bool {
    verdicts.iter().filter(|verdict| *verdict == expected).count() >= 4
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_sender_that_fills_the_link_is_limited_by_the_network_and_its_rate_is_the_links() {
    fills_the_link(&World::readable_gap("udp", "backlog"), "network");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_encrypted_sender_that_fills_the_link_is_limited_by_the_network_or_its_receiver() {
    fills_the_link(&World::gap("udp", "backlog"), "network-or-receiver");
}

fn fills_the_link(world: &World, limit: &str) {
    let _router = world.spawn_router(&["run", "left", "right", "--rate", "10mbit"]);
    let _receiver = world.ends.serve(&world.ends.beta, &["receive", &PORT.to_string()]);
    let target = format!("{}:{PORT}", world.link.right_v4());
    let _sender = world.ends.bulk(&world.ends.alpha, &["send", &target, "30", "65536"]);
    std::thread::sleep(Duration::from_secs(1));
    let (verdicts, row) = verdicts(world, PORT);
    assert!(most(&verdicts, limit), "{verdicts:?} {row}");
    let rate = row["bit_s"].as_f64().unwrap();
    // The rate counts packets that arrive at the router. It includes packets that the router's queue drops later.
    assert!((8e6..14e6).contains(&rate) && row["backlog"].as_u64().unwrap() > 0, "{row}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_idle_sender_is_limited_by_its_application_and_a_slow_reader_limits_its_sender() {
    let world = World::readable_gap("udp", "backlog");
    let _router = world.spawn_router(&["run", "left", "right", "--rate", "50mbit"]);
    let _slow = python(&world.ends.beta, SLOW, &["5003"]);
    let _receiver = world.ends.serve(&world.ends.beta, &["receive", &PORT.to_string()]);
    let to = world.link.right_v4().to_string();
    let _idle = python(&world.ends.alpha, IDLE, &[&to, &PORT.to_string()]);
    let _sender = world.ends.bulk(&world.ends.alpha, &["send", &format!("{to}:5003"), "40", "65536"]);
    // Waits until the buffers between the programs are full.
    std::thread::sleep(Duration::from_secs(8));
    let (output, row) = verdicts(&world, PORT);
    assert!(most(&output, "application"), "{output:?} {row}");
    let (output, row) = verdicts(&world, 5003);
    assert!(most(&output, "receiver"), "{output:?} {row}");
}
