//! Test of the cleanup after SIGKILL has ended the owner of a lab. It needs root.
//!
//! The test starts its own executable a second time as the owner. The owner creates a lab with a running
//! program, prints the lab's location, and waits until the test kills it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Host, Lab};

const OWNER: &str = "TESTBED_TEST_OWNER";
const LIMIT: Duration = Duration::from_secs(20);

/// Creates a lab, prints its directory, its namespace and the id of a program in it, and never returns.
fn own_a_lab() {
    let lab = Lab::new().unwrap();
    let host: Host = lab.host("alpha").unwrap();
    let mut command = host.command("sleep");
    command.arg("1000");
    let program = host.spawn("sleep", command).unwrap();
    println!("\nlab {} /run/netns/{} /proc/{}", lab.dir().display(), host.namespace(), program.id());
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_lab_whose_owner_is_killed_leaves_no_file_namespace_or_process() {
    if std::env::var_os(OWNER).is_some() {
        return own_a_lab();
    }
    let name = "a_lab_whose_owner_is_killed_leaves_no_file_namespace_or_process";
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--ignored", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines().map_while(Result::ok);
    let output = lines.filter_map(|line| line.strip_prefix("lab ").map(str::to_owned)).next().unwrap();
    let paths: Vec<&Path> = output.split(' ').map(Path::new).collect();
    assert_eq!(paths.iter().filter(|path| path.exists()).count(), 3, "{output}");
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(wait_for(LIMIT, || paths.iter().all(|path| !path.exists())), "left of {output}");
}
