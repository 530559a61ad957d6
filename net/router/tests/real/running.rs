//! Tests of `sctpify-router run`: our own queues between two interfaces.

use std::time::Duration;

use crate::ends::{LIMIT, PORT};
use crate::world::World;
use serde_json::Value;

/// Returns the counters of the direction from alpha to beta, from the router's final report.
fn last_words(report: &str) -> Value {
    let line = report.lines().find(|line| line.starts_with('{')).expect(report);
    serde_json::from_str::<Value>(line).unwrap()["directions"][0].clone()
}

/// Parses the output of `bulk`: a number of bytes or of transfers, and microseconds.
fn numbers(report: &str) -> [f64; 2] {
    let line = report.lines().last().unwrap_or_default();
    let mut words = line.split_whitespace().map(|word| word.parse().expect(line));
    [words.next().expect(line), words.next().expect(line)]
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_flows_share_the_rate_alike_and_what_the_queue_counts_adds_up() {
    let world = World::gap("both", "backlog");
    let router =
        world.spawn_router(&["--json", "run", "left", "right", "--rate", "20mbit", "--metrics-port", "9896"]);
    let ports = [5003, 5004];
    let receivers = ports.map(|port| world.ends.serve(&world.ends.beta, &["receive", &port.to_string()]));
    let senders = ports.map(|port| {
        let target = format!("{}:{port}", world.link.right_v4());
        world.ends.bulk(&world.ends.alpha, &["send", &target, "4", "65536"])
    });
    for sender in senders {
        sender.finish(LIMIT).unwrap().good().unwrap();
    }
    let rates = receivers.map(|receiver| {
        let [bytes, us] = numbers(&receiver.finish(LIMIT).unwrap().good().unwrap().stdout);
        8.0 * bytes / us
    });
    let metrics = world.middle.tool("curl", &["-s", "http://127.0.0.1:9896/metrics"]).unwrap();
    let words = last_words(&world.stop(router));
    let (sum, ratio) = (rates[0] + rates[1], rates[0] / rates[1]);
    // A busy host may send less than the link carries, but never more.
    assert!((2.0..20.5).contains(&sum) && (0.8..1.25).contains(&ratio), "{rates:?}");
    let count = |key: &str| words[key].as_u64().expect(key);
    assert!(count("sent") > 1000 && count("dropped_control") == 0 && words["policy"] == "ltf", "{words}");
    assert_eq!(count("offered"), count("sent") + count("dropped") + count("waiting"), "{words}");
    let series = "sctpify_router_sent_packets_total{from=\"left\",to=\"right\",policy=\"ltf\"} ";
    let output = metrics.lines().find_map(|line| line.strip_prefix(series)).expect(&metrics);
    assert!(output.parse::<u64>().unwrap() > 500, "{metrics}");
}

/// Returns the mean time in seconds in which a program on beta fetches 400 kB from alpha, during a long transfer.
fn fetched(policy: &[&str]) -> f64 {
    let world = World::gap("udp", "backlog");
    let router = world.spawn_router(&[&["run", "left", "right", "--rate", "10mbit"], policy].concat());
    let _receiver = world.ends.serve(&world.ends.beta, &["receive", "5003"]);
    let _server = world.ends.serve(&world.ends.alpha, &["give", &PORT.to_string()]);
    let target = format!("{}:5003", world.link.right_v4());
    let _long = world.ends.bulk(&world.ends.alpha, &["send", &target, "30", "65536"]);
    std::thread::sleep(Duration::from_secs(3));
    let target = format!("{}:{PORT}", world.link.left_v4());
    let output =
        world.ends.bulk(&world.ends.beta, &["fetch", &target, "5", "400000", "1"]).finish(LIMIT).unwrap();
    let [count, us] = numbers(&output.good().unwrap().stdout);
    world.stop(router);
    us / count / 1e6
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_file_next_to_a_long_transfer_arrives_sooner_if_the_least_data_left_goes_first() {
    let (first_come, least_left) =
        (fetched(&["--policy", "fifo", "--limit", "200"]), fetched(&["--policy", "finish"]));
    eprintln!("400 kB: {first_come:.3} s first in first out, {least_left:.3} s least left first");
    assert!(least_left < 0.8 * first_come, "{least_left} {first_come}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn errors_name_unusable_interfaces_and_a_stopped_router_frees_its_interfaces() {
    let world = World::gap("udp", "off");
    let run = ["run", "left", "right", "--rate", "10mbit"];
    let router = world.spawn_router(&run);
    for (words, part) in [
        (&run[..], "left is an end of another link"),
        (&["run", "nowhere", "right", "--rate", "1mbit"], "nowhere"),
        (&["run", "/none:left", "right", "--rate", "1mbit"], "cannot enter network namespace /none"),
    ] {
        let output = world.router(words);
        assert!(!output.status.success() && output.stderr.contains(part), "{words:?}: {output:?}");
    }
    world.stop(router);
    world.middle.ip(&["link", "set", "right", "down"]).unwrap();
    assert!(world.router(&run).stderr.contains("right is down"));
    world.middle.ip(&["link", "set", "right", "up"]).unwrap();
    world.stop(world.spawn_router(&run));
}
