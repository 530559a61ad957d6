//! Tests of the program `linkemu` between two hosts. The tests observe the link through ping, iperf3, the program's output, and the
//! state of the interfaces in the kernel.

#![forbid(unsafe_code)]

mod world;

use std::time::Duration;

use linkemu::Report;
use nix::sys::signal::Signal;
use world::{LIMIT, World, ping_times};

/// Allowed excess of the median round trip over the sum of both directions' delays, in milliseconds. The excess is the time that
/// the kernel and linkemu need on the machine of both hosts.
const SLACK_MS: f64 = 1.0;

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_round_trip_takes_both_delays_over_ipv4_and_ipv6() {
    let world = World::new();
    world.add(&["--ab", "delay=20ms", "--ba", "delay=10ms"]);
    for to in ["10.9.0.2", "fd09::2"] {
        let times = ping_times(&world, &["-c", "50", "-i", "0.02", to]);
        assert_eq!(times.len(), 50, "none is lost");
        let median = world::median(&times);
        assert!((30.0..30.0 + SLACK_MS).contains(&median), "{median} ms to {to}");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn tcp_reaches_the_configured_rate_within_three_percent_and_no_frame_is_missed() {
    let world = World::new();
    world.add(&["--rate", "1.5mbit", "--delay", "35ms", "--queue", "50"]);
    let rate = world.iperf_rate(&["-t", "8", "-O", "2"]);
    // iperf3 counts payload, which is 1,448 of the 1,500 bytes of a packet.
    let on_the_link = rate * 1500.0 / 1448.0;
    assert!((on_the_link / 1.5e6 - 1.0).abs() < 0.03, "{on_the_link} bit/s");
    let report = world.show();
    let ab = &report.directions[0];
    assert!(ab.packets.offered_bytes / ab.packets.offered > 1000, "full packets: {ab:?}");
    assert_eq!((ab.frames.refused, ab.frames.unfinishable, ab.frames.missed), (0, 0, 0), "{ab:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_full_queue_and_random_loss_drop_what_the_counters_say() {
    let world = World::new();
    world.add(&["--seed", "7", "--ab", "loss=10%"]);
    let times = ping_times(&world, &["-c", "400", "-i", "0.005", "10.9.0.2"]);
    let ab = world.show().directions[0].clone();
    assert!((20..60).contains(&(400 - times.len())), "{} of 400 came back", times.len());
    assert!(ab.packets.lost_by_chance as usize >= 400 - times.len(), "{ab:?}");
    world.set(&["--ab", "loss=none,rate=1mbit,queue=3"]);
    let rate = world.iperf_rate(&["-u", "-b", "2m", "-l", "1000", "-t", "2"]);
    let ab = world.show().directions[0].clone();
    assert!((0.9e6..1.0e6).contains(&rate), "{rate} bit/s");
    assert!(ab.packets.lost_in_queue > 150, "{ab:?}");
    assert_eq!(ab.packets.offered, ab.packets.passed + ab.packets.lost());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_packet_too_long_is_answered_by_icmp_or_fragmented() {
    let world = World::new();
    world.add(&["--mtu", "1300"]);
    for to in ["10.9.0.2", "fd09::2"] {
        let said = world.ping(&["-c", "1", "-M", "do", "-s", "1400", to]);
        assert!(said.contains("1300"), "the sender hears of the MTU: {said}");
    }
    world.alpha.ip(&["route", "flush", "cache"]).unwrap();
    let times = ping_times(&world, &["-c", "3", "-i", "0.1", "-M", "dont", "-s", "1400", "10.9.0.2"]);
    assert_eq!(times.len(), 3, "fragments pass");
    let ab = world.show().directions[0].clone();
    assert!(ab.frames.mtu_reports >= 2 && ab.packets.lost_for_length >= 2, "{ab:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_cut_link_passes_nothing_until_it_is_mended() {
    let world = World::new();
    world.add(&["--cut"]);
    assert!(ping_times(&world, &["-c", "2", "-i", "0.1", "-W", "1", "10.9.0.2"]).is_empty());
    world.set(&["--cut", "no"]);
    assert_eq!(ping_times(&world, &["-c", "2", "-i", "0.1", "-W", "2", "10.9.0.2"]).len(), 2);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_killed_link_leaves_nothing_at_its_interfaces_and_its_name_is_free() {
    let world = World::new();
    world.add(&["--delay", "1ms"]);
    assert_eq!(world.promiscuity(), [1, 1]);
    world.kill(world.show().pid);
    assert_eq!(world.promiscuity(), [0, 0]);
    let output = world.linkemu(&["show"]);
    assert!(
        output.stderr.contains("link x: its process was killed") && output.stdout.is_empty(),
        "{output:?}"
    );
    let output = world.linkemu(&["show"]);
    assert!(output.stderr == "no links\n" && output.stdout.is_empty(), "{output:?}");
    world.add(&[]);
    world.linkemu(&["del", "x"]).good().unwrap();
    assert!(testbed::process::wait_for(LIMIT, || world.promiscuity() == [0, 0]));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn links_of_a_file_run_in_the_foreground_and_tell_what_they_counted_when_stopped() {
    let world = World::new();
    let file = world.write_file("links.toml", "rate = '10mbit'\n[link.ab]\ndelay = '5ms'\n");
    let mut process = world.spawn_linkemu(&["run", "-f", &file, "--queue", "20"]);
    process.wait_until("links", LIMIT, |process| process.stdout().contains("ready")).unwrap();
    let report: Report = world.show();
    assert_eq!(report.directions[0].settings["delay"], "5ms");
    assert_eq!(report.directions[1].settings["queue"], "20");
    assert_eq!(ping_times(&world, &["-c", "3", "-i", "0.1", "10.9.0.2"]).len(), 3);
    process.signal(Signal::SIGINT).unwrap();
    let finished = process.finish(Duration::from_secs(5)).unwrap().good().unwrap();
    assert!(finished.stdout.contains("delay 5ms, queue 20, rate 10mbit"), "{finished:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn errors_say_what_is_wrong_where_and_what_to_do() {
    let world = World::new();
    let middle = world.middle.namespace().to_owned();
    for (words, part) in [
        (vec!["add", "nowhere:left", "left"], "cannot enter network namespace /run/netns/nowhere"),
        (vec!["add", &format!("{middle}:no"), "left"], "no: No such device (os error 19); `ip link` lists"),
        (
            vec!["add", &format!("{middle}:left"), "x", "--delay", "5"],
            "delay = 5: not a time: expected a number and its unit",
        ),
        (vec!["set", "y", "--delay", "5ms"], "no link y in"),
    ] {
        let output = world.linkemu(&words);
        assert!(!output.status.success() && output.stderr.contains(part), "{words:?}: {output:?}");
    }
    world.add(&[]);
    let output = world.linkemu(&["set", "x", "--loss", "200%"]);
    assert!(output.stderr.contains("link x, a to b: loss = 200%: more than 1"), "{output:?}");
    let ends = [format!("{middle}:left"), format!("{middle}:right")];
    let output = world.linkemu(&["add", &ends[0], &ends[1], "--name", "w"]);
    assert!(output.stderr.contains("left is an end of another link: see `linkemu show`"), "{output:?}");
    world.middle.ip(&["link", "add", "spare", "type", "veth", "peer", "name", "end"]).unwrap();
    for name in ["spare", "end"] {
        world.middle.ip(&["link", "set", name, "up"]).unwrap();
    }
    let output = world.linkemu(&["add", "spare", &ends[1], "--name", "w"]);
    assert!(output.stderr.contains("right is an end of another link"), "{output:?}");
    world.linkemu(&["del", "x"]).good().unwrap();
    world.linkemu(&["add", "spare", &ends[1], "--name", "x"]).good().unwrap();
    let output = world.linkemu(&["add", &ends[0], "end", "--name", "x"]);
    assert!(output.stderr.contains("link x already exists"), "{output:?}");
    world.middle.ip(&["link", "set", "left", "down"]).unwrap();
    let output = world.linkemu(&["add", &ends[0], &ends[1], "--name", "z"]);
    assert!(output.stderr.contains("left is down: `ip link set INTERFACE up` first"), "{output:?}");
}
