//! Test of a bottleneck on the sending host itself. The interface's queue has room for a thousand packets,
//! and each packet in it may be a train of 64 KiB.

use crate::world::{BULK, LIMIT, PORT, World, status};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;
use testbed::Host;
use testbed::process::wait_for;

/// Rate of the HTB class. The queue of a class has the queue length of the interface, 1000 packets.
const RATE: &str = "2mbit";
/// Number of queue samples, one per second.
const LOOKS: u32 = 40;
/// Limit on the backlog of the queue, in bytes. It leaves room for the burst of slow start: this burst must
/// drain before the reduced congestion window shortens the queue.
const BACKLOG_MAX: u64 = 512 << 10;

fn slow_down(host: &Host, link: &str) {
    for words in [
        &["qdisc", "add", "dev", link, "root", "handle", "1:", "htb", "default", "1"][..],
        &["class", "add", "dev", link, "parent", "1:", "classid", "1:1", "htb", "rate", RATE],
    ] {
        host.tool("tc", words).unwrap();
    }
}

/// Returns the backlog of an interface's longest queue, in bytes.
fn backlog(host: &Host, link: &str) -> u64 {
    let output = host.tool("tc", &["-s", "-j", "qdisc", "show", "dev", link]).unwrap();
    let queues: Value = serde_json::from_str(&output).unwrap();
    let all = queues.as_array().unwrap().iter();
    all.filter_map(|queue| queue["backlog"].as_u64()).max().unwrap_or(0)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_slow_link_of_the_host_itself_has_a_short_queue_and_the_connection_lasts() {
    let world = World::new();
    let link = world.link.name();
    slow_down(&world.alpha, &link);
    let _receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let sender = world.client(BULK, &["send", &world.target(), "600", "65536"]);
    let _sender = world.alpha.spawn("sender", sender).unwrap();
    assert!(wait_for(LIMIT, || backlog(&world.alpha, &link) > 0), "nothing waits at {link}");
    let backlogs: Vec<u64> = (0..LOOKS)
        .map(|_| {
            sleep(Duration::from_secs(1));
            backlog(&world.alpha, &link)
        })
        .collect();
    let report = status(&world.alphas);
    assert!(backlogs.iter().all(|bytes| *bytes <= BACKLOG_MAX), "{backlogs:?}: {report}");
    assert_eq!(report["connections"].as_array().map(Vec::len), Some(1), "{report}");
}
