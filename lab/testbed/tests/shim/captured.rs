//! Tests of `sctpify capture`; tshark verifies its output.

use crate::world::{BULK, LIMIT, PORT, World};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use testbed::capture::judge_file;
use testbed::process::wait_for;
use testbed::{Offloads, Process, Programs};

/// Duration of captures, in seconds.
const SECONDS: &str = "5";

/// Starts a capture on alpha, and returns it with its file.
fn capture(world: &World) -> (Process, PathBuf) {
    let dir = world.alpha.dir().unwrap();
    let file = dir.join("capture.pcapng");
    let mut command = world.alpha.command(Programs::find().unwrap().path("sctpify"));
    command.args(["capture", "--seconds", SECONDS, "-o"]).arg(&file);
    command.env("SCTPIFY_CONTROL", dir.join("sctpifyd/control.sock"));
    let mut process = world.alpha.spawn("capture", command).unwrap();
    process.wait_until("file", LIMIT, |_| file.exists()).unwrap();
    (process, file)
}

/// Returns the destination and the comment of each commented packet in a capture file.
fn comments(file: &PathBuf) -> String {
    let mut command = Command::new("tshark");
    let fields = ["ip.dst", "ipv6.dst", "frame.comment"];
    command
        .args(["-n", "-T", "fields", "-Y", "frame.comment"])
        .args(fields.iter().flat_map(|field| ["-e", field]));
    command.arg("-r");
    let output = command.arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_capture_contains_the_sctp_packets_of_a_transfer_without_faults() {
    let world = World::new();
    let (process, file) = capture(&world);
    let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let send = world.client(BULK, &["send", &world.target(), "0.3", "65536"]);
    world.alpha.run("sender", send, LIMIT).unwrap().good().unwrap();
    receiver.finish(LIMIT).unwrap().good().unwrap();
    let output = process.finish(LIMIT).unwrap().good().unwrap().stdout;
    let seen = judge_file(&file).unwrap();
    assert!(seen.sctp > 50 && output.starts_with(&format!("{} packets", seen.sctp)), "{output} {seen:?}");
    assert_eq!((seen.carrier(), seen.faulty), ("sctp-udp", 0), "{:?}", seen.faults);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_capture_marks_the_first_packet_after_a_path_switch_with_a_comment() {
    let world = World::new();
    let second = world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
    let _receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let send = world.client(BULK, &["send", &world.target(), "60", "1000"]);
    let _sender = world.alpha.spawn("sender", send).unwrap();
    assert!(wait_for(LIMIT, || world.connects_sctp() == 1));
    // During this pause, both hosts confirm both paths.
    std::thread::sleep(Duration::from_secs(2));
    let (process, file) = capture(&world);
    world.link.silence().unwrap();
    process.finish(LIMIT).unwrap().good().unwrap();
    let output = comments(&file);
    // The data may move to either family of the second link.
    let families: [[IpAddr; 2]; 2] = [
        [second.left_v4().into(), second.right_v4().into()],
        [second.left_v6().into(), second.right_v6().into()],
    ];
    let is_marked = |[from, to]: [IpAddr; 2]| {
        let mark = format!("sctpify: data now uses {from} → {to}");
        output
            .lines()
            .any(|line| line.contains(&mark) && line.split('\t').any(|field| field == to.to_string()))
    };
    assert!(families.into_iter().any(is_marked), "{output}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_second_capture_is_refused_while_one_runs_and_not_afterwards() {
    let world = World::with("", false);
    let (process, file) = capture(&world);
    let second = ["capture", "--seconds", "1", "-o", "/dev/null"];
    let output = world.alphas.sctpify(&second).unwrap();
    assert!(!output.status.success() && output.stderr.contains("another capture is running"), "{output:?}");
    process.signal(nix::sys::signal::Signal::SIGINT).unwrap();
    process.finish(LIMIT).unwrap().good().unwrap();
    assert_eq!(judge_file(&file).unwrap().sctp, 0);
    assert!(wait_for(LIMIT, || world.alphas.sctpify(&second).unwrap().status.success()));
}
