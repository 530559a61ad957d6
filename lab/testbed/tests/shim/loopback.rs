//! Tests of one host with one daemon: connections of the host to itself, with and without the setting
//! `loopback`.

use crate::world::{LIMIT, PORT, World};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;
use testbed::cpu;
use testbed::process::wait_for;

/// Sends each client on port argv[1] the address and port that the server sees as the client's.
const SERVER: &str = "
import socket, sys
listener = socket.create_server(('', int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
print('listening', flush=True)
while True:
    connection, peer = listener.accept()
    connection.sendall(f'{peer[0].removeprefix(\"::ffff:\")} {peer[1]}'.encode())
    connection.close()
";

/// Connects to argv[1]:argv[2]. Prints its own address and port, and then the address and port that the
/// server sees.
const CLIENT: &str = "
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
received = b''
while piece := connection.recv(100): received += piece
print(*connection.getsockname()[:2], 'is', received.decode())
";

/// Limit on the time for a supervisor's cleanup after its worker has ended.
const CLEAR_UP_LIMIT: Duration = Duration::from_secs(10);

fn world(configuration: &str) -> World {
    let world = World::with(configuration, false);
    let port = PORT.to_string();
    world.alphas.shimrules(&["-A", "-c", "local", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    world
}

/// Connects alpha to its own address `to`. The server must see the client's true address.
fn connect(world: &World, to: &str) {
    let client = world.client("python3", &["-c", CLIENT, to, &PORT.to_string()]);
    let output = world.alpha.run("client", client, LIMIT).unwrap().good().unwrap();
    let (own, seen) = output.stdout.trim().split_once(" is ").unwrap();
    assert_eq!(own, seen);
}

fn serve(world: &World) -> testbed::Process {
    let mut command = world.alpha.command("python3");
    command.args(["-c", SERVER, &PORT.to_string()]);
    let mut server = world.alpha.spawn("server", command).unwrap();
    server.wait_until("listening", LIMIT, |server| server.stdout().contains("listening")).unwrap();
    server
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn with_the_setting_loopback_a_host_reaches_itself_over_sctp_except_over_ipv6_loopback() {
    for encryption in ["off", "try"] {
        let world = world(&format!("loopback = true\nrace_timer_ms = 3000\nencryption = \"{encryption}\"\n"));
        let _server = serve(&world);
        let own = [world.link.left_v4().to_string(), world.link.left_v6().to_string()];
        for (to, count) in [("127.0.0.1", 1), (&own[0], 2), (&own[1], 3), ("127.9.9.9", 4), ("::1", 4)] {
            connect(&world, to);
            assert_eq!(world.connects_sctp(), count, "{to}, {encryption}: {:?}", world.fallbacks());
        }
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_reaches_itself_by_tcp_unless_told_otherwise() {
    let world = world("");
    let _server = serve(&world);
    connect(&world, "127.0.0.1");
    connect(&world, &world.link.left_v4().to_string());
    assert_eq!(world.connects_sctp(), 0);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn routing_rules_are_as_before_after_the_end_or_the_death_of_a_daemon_that_included_loopback() {
    for is_killed in [false, true] {
        let mut world = world("loopback = true\n");
        let rules = |of: &testbed::Host| ["-4", "-6"].map(|family| of.ip(&[family, "rule"]).unwrap());
        assert_ne!(rules(&world.alpha), rules(&world.beta));
        if is_killed {
            let first = world.alphas.id();
            for id in cpu::processes(&world.alpha, "sctpifyd").unwrap().into_iter().filter(|id| *id != first)
            {
                kill(Pid::from_raw(id.try_into().unwrap()), Signal::SIGKILL).unwrap();
            }
        } else {
            world.alphas.signal(Signal::SIGTERM).unwrap();
        }
        assert!(wait_for(CLEAR_UP_LIMIT, || !world.alphas.is_running()));
        assert_eq!(rules(&world.alpha), rules(&world.beta), "killed: {is_killed}");
    }
}
