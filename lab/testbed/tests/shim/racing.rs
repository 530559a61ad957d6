//! Tests of connection racing: a connection begins while its first path has failed. The path's link is up,
//! but loses every packet.

use crate::world::{BULK, LIMIT, PORT, TwoUplinks, World};
use std::time::Duration;
use testbed::{Host, Offloads};

/// Limit on the duration of a connect. TCP would retransmit its SYN after a second, and then wait for minutes.
const NOT_STALLED: Duration = Duration::from_millis(900);

fn connect_time(from: &Host, target: &str) -> Duration {
    let mut command = from.command(BULK);
    command.args(["connect", target, "1"]);
    let output = from.run("connect", command, Duration::from_secs(10)).unwrap().good().unwrap().stdout;
    Duration::from_micros(output.trim().parse().unwrap())
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn if_one_uplink_is_silent_an_unknown_server_is_reached_over_the_other() {
    let world = TwoUplinks::new();
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    world.uplinks[0].silence().unwrap();
    let took = connect_time(&world.alpha, &world.target());
    assert!(took < NOT_STALLED, "{took:?}");
    let status = world.alphas.sctpify(&["status"]).unwrap().good().unwrap().stdout;
    assert!(status.contains("1 over SCTP"), "{status}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn if_a_known_servers_address_is_silent_a_connect_uses_another_of_its_addresses() {
    let world = World::new();
    world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
    let port = PORT.to_string();
    let receiver = world.serve(BULK, &["receive", &port]);
    let send = world.client(BULK, &["send", &world.target(), "2", "65536"]);
    world.alpha.run("send", send, LIMIT).unwrap().good().unwrap();
    receiver.finish(LIMIT).unwrap().good().unwrap();
    let _server = world.serve(BULK, &["accept", &port]);
    world.link.silence().unwrap();
    let took = connect_time(&world.alpha, &world.target());
    assert_eq!(world.connects_sctp(), 2, "{}", world.fallbacks());
    assert!(took < NOT_STALLED, "{took:?}");
}
