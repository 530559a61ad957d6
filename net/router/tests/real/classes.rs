//! Tests of `sctpify-router tc`: the kernel's classes.

use crate::world::World;

/// Sends through the classes, and compares the counters of each class with the captured packets.
fn packets_land_where_their_chunk_says(carriers: &str, is_v6: bool, options: &[&str]) {
    let world = World::routed(carriers, "percent");
    let link = world.link.name();
    world.router(&[&["tc", "up", &link, "--rate", "20mbit"], options].concat()).good().unwrap();
    world.router(&[&["tc", "check", &link, "--rate", "20mbit"], options].concat()).good().unwrap();
    let tap = world.ends.tap(&link);
    let to = if is_v6 { world.link.right_v6().into() } else { world.link.right_v4().into() };
    world.ends.send(to, "2");
    let captured = world.ends.captured(tap);
    assert_eq!(world.counted(), captured);
    assert!(captured.values().sum::<u64>() > 1000 && captured.len() > 2, "{captured:?}");
    world.router(&["tc", "down", &link]).good().unwrap();
    let left = world.middle.tool("tc", &["qdisc", "show", "dev", &link]).unwrap();
    assert!(!left.contains("htb"), "{left}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn bpf_puts_sctp_over_udp_into_the_class_of_its_advertisement() {
    packets_land_where_their_chunk_says("udp", false, &[]);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn bpf_puts_sctp_over_ipv6_into_the_class_of_its_advertisement_with_256_leaves() {
    packets_land_where_their_chunk_says("ip132", true, &["--leaves", "hashed"]);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn u32_puts_sctp_over_ipv4_into_the_class_of_its_advertisement() {
    packets_land_where_their_chunk_says("ip132", false, &["--match", "u32", "--leaves", "pfifo"]);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn u32_puts_sctp_over_udp_in_ipv6_into_the_class_of_its_advertisement() {
    packets_land_where_their_chunk_says("udp", true, &["--match", "u32", "--leaves", "pfifo"]);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn another_root_is_left_alone_and_what_differs_is_named() {
    let world = World::routed("udp", "percent");
    let link = world.link.name();
    let up = ["tc", "up", &link, "--rate", "20mbit", "--leaves", "pfifo"];
    world.middle.tool("tc", &["qdisc", "add", "dev", &link, "root", "handle", "7:", "pfifo"]).unwrap();
    for words in [&up[..], &["tc", "down", &link], &["tc", "show", &link]] {
        let output = world.router(words);
        assert!(
            !output.status.success() && output.stderr.contains("another queueing discipline (pfifo 7:)"),
            "{output:?}"
        );
    }
    world.middle.tool("tc", &["qdisc", "del", "dev", &link, "root"]).unwrap();
    let output = world.router(&["tc", "show", &link]).stderr;
    assert!(output.contains("has no classes of sctpify-router"), "{output}");
    world.router(&up).good().unwrap();
    world.middle.tool("tc", &["filter", "del", "dev", &link, "parent", "5ba:", "prio", "10"]).unwrap();
    let leaf =
        ["qdisc", "replace", "dev", &link, "parent", "5ba:20", "handle", "99:", "bfifo", "limit", "9000"];
    world.middle.tool("tc", &leaf).unwrap();
    let output = world.router(&["tc", "check", &link, "--rate", "30mbit", "--leaves", "pfifo"]);
    for part in [
        "class 5ba:fff has rate 20mbit",
        "5ba:20 has bfifo, not pfifo",
        "BPF programs at 5ba:0 are different",
    ] {
        assert!(!output.status.success() && output.stderr.contains(part), "{part}: {output:?}");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_command_that_the_kernel_refuses_is_named_and_nothing_is_left() {
    let world = World::routed("udp", "percent");
    let link = world.link.name();
    world.middle.tool("tc", &["qdisc", "show", "dev", &link]).unwrap();
    let dry = world.router(&["tc", "up", &link, "--rate", "20mbit", "--leaves", "sfq", "--dry-run"]);
    let dry = dry.good().unwrap().stdout;
    assert!(dry.lines().all(|line| line.starts_with("tc ")) && dry.contains("sfq perturb 10"), "{dry}");
    let output = world.router(&["tc", "up", "nowhere", "--rate", "20mbit", "--leaves", "pfifo"]);
    assert!(!output.status.success() && output.stderr.contains("nowhere"), "{output:?}");
    let output = world.router(&["tc", "up", &link, "--rate", "20mbit", "--leaves", "sfq"]);
    if !output.status.success() {
        assert!(output.stderr.contains("qdisc add") && output.stderr.contains("sfq"), "{output:?}");
        let left = world.middle.tool("tc", &["qdisc", "show", "dev", &link]).unwrap();
        assert!(!left.contains("htb"), "{left}");
    }
}
