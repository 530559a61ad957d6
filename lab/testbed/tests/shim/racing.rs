//! Connection racing: a connection begins while its first path is dead: the link is up, but loses every packet.

use crate::world::{BULK, LIMIT, PORT, World};
use std::time::Duration;
use testbed::{Daemon, Host, Lab, Offloads, Programs};

/// TCP would retransmit its SYN after a second, and wait for minutes.
const NOT_STALLED: Duration = Duration::from_millis(900);

fn connect_time(from: &Host, target: &str) -> Duration {
    let mut command = from.command(BULK);
    command.args(["connect", target, "1"]);
    let output = from.run("connect", command, Duration::from_secs(10)).unwrap().good().unwrap().stdout;
    Duration::from_micros(output.trim().parse().unwrap())
}

/// A client with two uplinks to a router, and a server with one address behind it.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_unknown_server_is_reached_from_another_address_of_the_client() {
    let programs = Programs::find().unwrap();
    let lab = Lab::new().unwrap();
    let [alpha, router, beta] = ["alpha", "router", "beta"].map(|name| lab.host(name).unwrap());
    let uplinks = [1, 2].map(|number| lab.join(&alpha, &router, number, Offloads::On).unwrap());
    let behind = lab.join(&router, &beta, 3, Offloads::On).unwrap();
    router.tool("sysctl", &["-q", "-w", "net.ipv4.ip_forward=1"]).unwrap();
    beta.ip(&["route", "add", "default", "via", &behind.left_v4().to_string()]).unwrap();
    for (uplink, metric) in uplinks.iter().zip(["10", "20"]) {
        let (via, name) = (uplink.right_v4().to_string(), uplink.name());
        alpha.ip(&["route", "add", "default", "via", &via, "dev", &name, "metric", metric]).unwrap();
    }
    let (alphas, betas) =
        (Daemon::start(&alpha, &programs, "").unwrap(), Daemon::start(&beta, &programs, "").unwrap());
    let port = PORT.to_string();
    alphas.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    betas.shimrules(&["-A", "-c", "local", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    let mut accept = beta.command(BULK);
    accept.args(["accept", &port]);
    let mut server = beta.spawn("server", accept).unwrap();
    server.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    uplinks[0].silence().unwrap();
    let took = connect_time(&alpha, &format!("{}:{port}", behind.right_v4()));
    assert!(took < NOT_STALLED, "{took:?}");
    let status = alphas.sctpify(&["status"]).unwrap().good().unwrap().stdout;
    assert!(status.contains("1 over SCTP"), "{status}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_known_server_is_reached_by_another_of_its_addresses() {
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
