//! Tests of `sctpify demo`.

use std::process::Command;
use std::thread;
use testbed::Programs;
use testbed::process::wait_for;

use crate::world::LIMIT;

/// Runs the demo. Returns its process ID, its output, and whether it succeeded.
fn demo() -> (u32, String, bool) {
    let mut command = Command::new(Programs::find().unwrap().path("sctpify"));
    let child = command.arg("demo").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let output = child.wait_with_output().unwrap();
    (id, String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
}

/// Returns the command lines of this host's processes.
fn command_lines() -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_demos_at_once_survive_the_pulled_cable_and_leave_nothing() {
    let other = thread::spawn(demo);
    for (id, output, is_good) in [demo(), other.join().unwrap()] {
        assert!(is_good, "{output}");
        let (_, pulled) = output.split_once("is pulled").unwrap();
        assert!(pulled.contains("eth1 DOWN\n  eth2 up, carries the data"), "{output}");
        assert!(output.contains("numbers came back in order, on one connection, over SCTP"), "{output}");
        let directory = format!("/tmp/sctpify-demo-{id}");
        assert!(!std::path::Path::new(&directory).exists());
        let is_left = || command_lines().iter().any(|line| line.contains(&directory));
        assert!(wait_for(LIMIT, || !is_left()), "{:?}", command_lines());
    }
}
