//! Test of an MTU that shrinks during a transfer. Data that was segmented for the former, larger MTU must
//! still arrive.

use crate::world::{BULK, LIMIT, PORT, World};
use std::time::Duration;

/// The link's reduced MTU, in bytes.
const SMALLER: &str = "1300";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_transfer_outlives_a_fall_of_the_links_mtu() {
    let world = World::new();
    let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let send = world.client(BULK, &["send", &world.target(), "3", "65536"]);
    let sender = world.alpha.spawn("sender", send).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    for host in [&world.alpha, &world.beta] {
        host.tool("ip", &["link", "set", &world.link.name(), "mtu", SMALLER]).unwrap();
    }
    sender.finish(LIMIT).unwrap().good().unwrap();
    let output = receiver.finish(LIMIT).unwrap().good().unwrap().stdout;
    assert_eq!(world.connects_sctp(), 1, "the connection is not carried over SCTP");
    let micros: u64 = output.split_whitespace().next_back().unwrap().parse().unwrap();
    assert!(micros > 2_500_000, "nothing arrived after {micros} microseconds: {output}");
}
