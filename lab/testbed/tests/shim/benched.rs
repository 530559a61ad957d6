//! Tests of `sctpify bench` between two hosts.

use crate::world::{LIMIT, PORT, World};
use serde_json::Value;
use testbed::{Process, Programs};

/// Starts `sctpify bench --serve` on beta, and waits until it serves.
fn serve(world: &World, seconds: &str) -> Process {
    let sctpify = Programs::find().unwrap().path("sctpify");
    let mut command = world.beta.command(sctpify);
    command.args(["bench", "--serve", "--port", &PORT.to_string(), "--for", seconds]);
    let mut process = world.beta.spawn("bench", command).unwrap();
    process.wait_until("serving", LIMIT, |process| process.stdout().contains("serving")).unwrap();
    process
}

fn measure(world: &World, more: &[&str]) -> testbed::Finished {
    let (to, port) = (world.link.right_v4().to_string(), PORT.to_string());
    let words = ["bench", &to, "--port", &port, "--seconds", "1", "--connects", "5"];
    world.alphas.sctpify(&[&words[..], more].concat()).unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn transports_are_measured_one_by_one_and_the_report_says_what_carried_the_bytes() {
    let world = World::new();
    let server = serve(&world, "60");
    let output = measure(&world, &["--against", "tcp,mptcp", "--json"]).good().unwrap().stdout;
    let report: Value = serde_json::from_str(&output).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let transports: Vec<_> = rows.iter().map(|row| row["transport"].as_str().unwrap()).collect();
    assert_eq!(transports, ["sctp", "tcp", "mptcp"]);
    for row in rows {
        let over_sctp = row["carried_over"] == "SCTP";
        assert_eq!(over_sctp, row["transport"] == "sctp", "{row}");
        assert!(row["connect_us"].as_u64() > Some(0) && row["bytes_per_s"].as_u64() > Some(100_000), "{row}");
    }
    // Seven connections: one to open the association, five with a measured duration, and one for the
    // transfer.
    assert_eq!(world.connects_sctp(), 7, "{}", world.fallbacks());
    server.stop();
    let output = measure(&world, &[]);
    assert!(!output.status.success() && output.stderr.contains("sctpify bench --serve"), "{output:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn serving_ends_when_its_time_is_over() {
    let world = World::with("", false);
    serve(&world, "1").finish(LIMIT).unwrap().good().unwrap();
}
