//! `sctpify-lab ttcp` between two hosts. The tests need root.

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use testbed::{Host, Lab, Link, Offloads};

const LIMIT: Duration = Duration::from_secs(30);

fn hosts() -> (Lab, Host, Host, Link) {
    let lab = Lab::new().unwrap();
    let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
    let link = lab.join(&alpha, &beta, 1, Offloads::On).unwrap();
    (lab, alpha, beta, link)
}

fn ttcp(host: &Host, words: &str) -> Command {
    let mut command = host.command(env!("CARGO_BIN_EXE_sctpify-lab"));
    command.arg("ttcp").args(words.split(' '));
    command
}

/// Runs both ends, and returns the output of the receiver and of the transmitter.
fn exchange(receiver: &str, transmitter: &str) -> [String; 2] {
    let (_lab, alpha, beta, link) = hosts();
    let mut server = beta.spawn("receiver", ttcp(&beta, receiver)).unwrap();
    server.wait_until("listening", LIMIT, |process| process.stderr().contains("listening")).unwrap();
    let sender = ttcp(&alpha, &format!("{transmitter} {}", link.right_v4()));
    let sent = alpha.run("transmitter", sender, LIMIT).unwrap().good().unwrap();
    [server.finish(LIMIT).unwrap().good().unwrap().stdout, sent.stdout]
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn every_transport_that_loses_nothing_moves_all_buffers() {
    for over in ["tcp", "mptcp", "sctp", "sctp-udp"] {
        let common = format!("-s -l 1000 --over {over} --json");
        let output = exchange(&format!("-r {common}"), &format!("-t -n 3000 {common}"));
        for json in output {
            let report: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(report["bytes"], 3_000_000, "{over}: {report}");
            assert!(report["real_s"].as_f64().unwrap() > 0.0 && report["calls"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_papers_command_lines_over_udp_end_at_both_ends_and_print_ttcps_words() {
    let [received, sent] = exchange("-r -s -u -l 512 -fm", "-t -s -n 100 -fm -l 512 -u");
    assert!(sent.starts_with("ttcp-t: 51200 bytes in "), "{sent}");
    assert!(sent.contains("Mbit/sec +++") && sent.contains("ttcp-t: 100 I/O calls"), "{sent}");
    assert!(received.starts_with("ttcp-r: 51200 bytes in "), "{received}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn standard_input_comes_out_at_the_other_end_as_it_was() {
    let (_lab, alpha, beta, link) = hosts();
    let mut server = beta.spawn("receiver", ttcp(&beta, "-r --over sctp-udp")).unwrap();
    server.wait_until("listening", LIMIT, |process| process.stderr().contains("listening")).unwrap();
    let mut sender = ttcp(&alpha, &format!("-t -l 100 --over sctp-udp {}", link.right_v4()));
    let text = "a line that is not a block long\n".repeat(1000);
    let file = alpha.dir().unwrap().join("text");
    std::fs::write(&file, &text).unwrap();
    sender.stdin(std::fs::File::open(&file).unwrap());
    alpha.run("transmitter", sender, LIMIT).unwrap().good().unwrap();
    assert_eq!(server.finish(LIMIT).unwrap().good().unwrap().stdout, text);
}
