//! Tests of the promises in docs/faults.md for faults on the host itself: a process is stopped, or another
//! program changes the firewall.

use crate::confined::worker_of;
use crate::roaming::Transfer;
use crate::world::{BULK, PORT, World, drop_sctp};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;
use testbed::Host;
use testbed::process::{now, wait_for};

/// Limit on a connect while the worker is stopped. The supervisor kills the worker after two and a half
/// seconds. After the kill, the client's kernel retransmits the SYN within a second.
const HANG_LIMIT: Duration = Duration::from_secs(5);
/// Time after which a connect counts as hanging.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// Time after which the kernel itself lets new connections pass, because no process has handled held SYNs.
const LAPSE: Duration = Duration::from_millis(2_300);
/// Limit on a connect over plain TCP, including the program's start.
const PLAIN_LIMIT: Duration = Duration::from_millis(500);

fn signal(process: u32, signal: Signal) {
    kill(Pid::from_raw(process.try_into().unwrap()), signal).unwrap();
}

/// Connects once from alpha to beta, and returns the duration.
fn connect(world: &World) -> Duration {
    let start = now();
    let command = world.client(BULK, &["connect", &world.target(), "1"]);
    world.alpha.run("connect", command, CONNECT_LIMIT).unwrap().good().unwrap();
    start.elapsed()
}

/// Creates a world with a server on beta, and checks that connects use SCTP.
fn working() -> (World, testbed::Process) {
    let world = World::new();
    let server = world.serve(BULK, &["accept", &PORT.to_string()]);
    connect(&world);
    assert_eq!(world.connects_sctp(), 1, "the connection is not carried over SCTP");
    (world, server)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_worker_that_stands_still_delays_connects_for_seconds_and_is_then_killed() {
    let (mut world, _server) = working();
    signal(worker_of(&world.alpha, &world.alphas), Signal::SIGSTOP);
    let took = connect(&world);
    assert!(took < HANG_LIMIT, "{took:?}");
    assert!(connect(&world) < PLAIN_LIMIT);
    assert!(world.alphas.log().contains("no heartbeat"), "{}", world.alphas.log());
    assert!(!world.alphas.is_running());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_supervisor_that_stands_still_is_not_felt() {
    let (world, _server) = working();
    signal(world.alphas.id(), Signal::SIGSTOP);
    std::thread::sleep(LAPSE);
    assert!(connect(&world) < PLAIN_LIMIT);
    assert_eq!(world.connects_sctp(), 2);
}

/// The supervisor and the worker are stopped, as by a frozen cgroup. No running process could kill the
/// worker.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn while_worker_and_supervisor_hang_new_connections_use_tcp_and_later_sctp_again() {
    let (world, _server) = working();
    world.alphas.signal(Signal::SIGSTOP).unwrap();
    std::thread::sleep(LAPSE);
    let took = connect(&world);
    assert!(took < PLAIN_LIMIT, "{took:?}");
    std::thread::sleep(LAPSE);
    world.alphas.signal(Signal::SIGCONT).unwrap();
    let rides_again = || {
        connect(&world);
        world.connects_sctp() == 2
    };
    assert!(wait_for(CONNECT_LIMIT, rides_again), "{}", world.alphas.log());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_transfer_outlives_a_standstill_of_the_daemon() {
    let world = World::new();
    let transfer = Transfer::begin(&world);
    world.alphas.signal(Signal::SIGSTOP).unwrap();
    std::thread::sleep(LAPSE * 2);
    world.alphas.signal(Signal::SIGCONT).unwrap();
    transfer.end(&world);
}

/// Runs a transfer, and calls `what` for each of the two hosts during the transfer. The transfer must arrive
/// completely, and the next connection must also use SCTP.
fn nothing_is_felt_of(what: impl Fn(&World, &Host)) {
    let world = World::new();
    let transfer = Transfer::begin(&world);
    for host in [&world.alpha, &world.beta] {
        what(&world, host);
    }
    transfer.end(&world);
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    connect(&world);
    assert_eq!(world.connects_sctp(), 2, "{:?}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_flush_of_all_nftables_rules_is_not_felt() {
    nothing_is_felt_of(|_, host| {
        host.tool("nft", &["flush", "ruleset"]).unwrap();
    });
}

/// Ruleset that replaces all nftables rules of the host in one transaction, as nftables.service does.
const RELOADED: &str = "
flush ruleset
table inet firewall {
 chain input {
  type filter hook input priority 10; policy drop;
  ct state established,related accept
  iifname lo accept
  udp dport 9899 accept
  tcp dport 7000 accept
  meta l4proto { icmp, ipv6-icmp } accept
 }
}
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_firewall_that_is_loaded_anew_with_the_port_open_is_not_felt() {
    nothing_is_felt_of(|_, host| {
        let file = host.dir().unwrap().join("firewall.nft");
        std::fs::write(&file, RELOADED).unwrap();
        host.tool("nft", &["-f", file.to_str().unwrap()]).unwrap();
    });
}

/// Program that performs `conntrack -F` over netlink, as conntrack(8) does.
const FLUSH_CONNTRACK: &str = "
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
s.send(struct.pack('=IHHII', 20, 1 << 8 | 2, 5, 1, 0) + struct.pack('=BBH', 0, 0, 0))
assert struct.unpack_from('=i', s.recv(4096), 16)[0] == 0
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_flush_of_connection_tracking_behind_a_firewall_is_not_felt() {
    nothing_is_felt_of(|_, host| {
        let file = host.dir().unwrap().join("firewall.nft");
        std::fs::write(&file, RELOADED).unwrap();
        host.tool("nft", &["-f", file.to_str().unwrap()]).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        host.tool("python3", &["-c", FLUSH_CONNTRACK]).unwrap();
    });
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_interface_that_goes_down_for_a_second_is_survived() {
    nothing_is_felt_of(|world, host| {
        let name = world.link.name();
        host.ip(&["link", "set", &name, "down"]).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        host.ip(&["link", "set", &name, "up"]).unwrap();
    });
}

/// Connects 50 times from the same source port. Each time, closes the socket at once, before an answer.
const GIVE_UP: &str = "
import socket, sys
for _ in range(50):
    with socket.socket() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stream.bind(('', 5555))
        stream.setblocking(False)
        stream.connect_ex((sys.argv[1], int(sys.argv[2])))
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn syns_of_programs_that_gave_up_leave_the_kernels_queue() {
    let world = World::new();
    drop_sctp(&world.beta);
    let target = world.link.right_v4().to_string();
    let command = world.client("python3", &["-c", GIVE_UP, &target, &PORT.to_string()]);
    world.alpha.run("give up", command, CONNECT_LIMIT).unwrap().good().unwrap();
    // The third column is the number of packets in the queue.
    let waiting = || {
        let queues = world.alpha.tool("cat", &["/proc/net/netfilter/nfnetlink_queue"]).unwrap();
        assert!(!queues.is_empty());
        queues
            .lines()
            .map(|queue| queue.split_whitespace().nth(2).unwrap().parse::<u32>().unwrap())
            .sum::<u32>()
    };
    assert!(wait_for(CONNECT_LIMIT, || waiting() == 0), "{} are held", waiting());
}
