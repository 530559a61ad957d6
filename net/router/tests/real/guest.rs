//! Tests of `sctpify-router tc` on a kernel with SFQ. A guest with this kernel routes between two hosts (`tests/kernel-sctp`).

use std::process::Output;

use testbed::{Guest, Host, Lab};

use crate::ends::{Ends, LIMIT, ROUTER, counted};

/// The guest's interface to beta. Beta's interface has the same name.
const LINK: &str = "eth1";
/// Addresses of beta on this interface.
const BETA: [&str; 2] = ["10.60.1.2", "fd60:1::2"];

/// Starts daemons on two hosts next to the guest. The daemons advertise in percent.
fn ends(guest: &Guest, carriers: &str) -> Ends {
    let lab = Lab::new().unwrap();
    let hosts: [Host; 2] =
        [("alpha", "peer"), ("beta", "peer2")].map(|(name, which)| lab.adopt(name, guest.namespace(which)));
    // Bridges next to the guest also connect the hosts. Each host's interface to the other host's bridge is set down, so no
    // packet bypasses the guest.
    for (host, other) in hosts.iter().zip(["eth1", "eth0"]) {
        host.ip(&["link", "set", other, "down"]).unwrap();
    }
    Ends::new(lab, hosts, carriers, "percent", "try")
}

fn router(guest: &Guest, words: &[&str]) -> Output {
    let program = Guest::path_inside(ROUTER.as_ref());
    guest.program(LIMIT.as_secs()).arg(program).args(words).output().unwrap()
}

/// Runs the router, which must succeed, and returns its output.
fn output_of(guest: &Guest, words: &[&str]) -> String {
    let output = router(guest, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends through classes with SFQ, and compares the counters of each class with the captured packets.
fn packets_land_where_their_chunk_says(guest: &Guest, carriers: &str, to: &str, options: &[&str]) {
    let ends = ends(guest, carriers);
    let shape = [&[LINK, "--rate", "20mbit"], options].concat();
    output_of(guest, &[&["tc", "up"], &shape[..]].concat());
    output_of(guest, &[&["tc", "check"], &shape[..]].concat());
    let queues = guest.run(&format!("tc qdisc show dev {LINK}")).unwrap();
    let leaves = queues.lines().filter(|line| line.contains("qdisc sfq") && line.contains("perturb 10sec"));
    assert_eq!((leaves.count(), queues.lines().count()), (11, 12), "{queues}");
    let tap = ends.tap(LINK);
    ends.send(to.parse().unwrap(), "2");
    let captured = ends.captured(tap);
    assert_eq!(counted(&output_of(guest, &["--json", "tc", "show", LINK])), captured);
    eprintln!("{carriers} to {to}: {captured:?}");
    assert!(captured.values().sum::<u64>() > 1000 && captured.len() > 2, "{captured:?}");
    output_of(guest, &["tc", "down", LINK]);
    let left = guest.run(&format!("tc qdisc show dev {LINK}")).unwrap();
    assert!(!left.contains("htb") && !left.contains("sfq"), "{left}");
}

#[test]
#[ignore = "needs root: boots a guest with the kernel's queueing disciplines"]
fn classes_with_the_kernels_sfq_are_made_checked_counted_and_removed() {
    if let Some(what) = Guest::missing() {
        return testbed::skip(&format!("{what} is missing"));
    }
    let guest = Guest::up("router").unwrap();
    guest.boot(&["router", "k1"]).unwrap();
    packets_land_where_their_chunk_says(&guest, "udp", BETA[0], &[]);
    packets_land_where_their_chunk_says(&guest, "ip132", BETA[1], &["--match", "u32"]);
    let up = ["tc", "up", LINK, "--rate", "20mbit"];
    output_of(&guest, &up);
    guest.run(&format!("tc qdisc replace dev {LINK} parent 5ba:20 handle 99: pfifo limit 9")).unwrap();
    let checked = router(&guest, &["tc", "check", LINK, "--rate", "20mbit"]);
    let problem = String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success() && problem.contains("5ba:20 has pfifo, not sfq"), "{problem}");
}
