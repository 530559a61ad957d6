//! Network namespaces for tests. The namespaces have unique names, and are removed on drop. The tests need root, iproute2 and
//! ethtool.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::fs::File;
use std::net::IpAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::{Carrier, Ecn, Route};
use netio::{PathErrorKind, RawCarrier, Received, SendError, Train, UdpCarrier};

/// Number of polls after which a test gives up. A test polls once a millisecond.
const PATIENCE: usize = 3000;

/// A network namespace, deleted on drop.
pub struct Namespace(String);

impl Namespace {
    pub fn new() -> Namespace {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace(format!("netio-{}-{number}", std::process::id()));
        run(&format!("ip netns add {}", namespace.0));
        namespace.ip("link set lo up");
        namespace
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, arguments: &str) {
        run(&format!("ip -n {} {arguments}", self.0));
    }

    /// Runs a program in the namespace.
    pub fn exec(&self, command: &str) {
        run(&format!("ip netns exec {} {command}", self.0));
    }

    /// Runs a program in the namespace. The arguments may contain spaces.
    pub fn exec_words(&self, words: &[&str]) {
        let output = Command::new("ip").args(["netns", "exec", &self.0]).args(words).output();
        let output = output.expect("the program is installed");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Returns the output of a program in the namespace.
    pub fn read(&self, command: &str) -> String {
        let words = ["netns", "exec", &self.0].into_iter().chain(command.split_whitespace());
        let output = Command::new("ip").args(words).output().expect("the program is installed");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs `f` on a thread in the namespace. Sockets that `f` opens stay in the namespace.
    pub fn within<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.0)).expect("the namespace exists");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).expect("setns, as root");
                f()
            });
            thread.join().expect("no panic inside")
        })
    }

    /// Gives the interface an IPv4 and an IPv6 address of subnet `net` that end in `host`. Then sets the interface up.
    pub fn address(&self, interface: &str, net: u8, host: u8) {
        self.ip(&format!("addr add 10.9.{net}.{host}/24 dev {interface}"));
        self.ip(&format!("addr add fd09:{net}::{host}/64 dev {interface} nodad"));
        self.ip(&format!("link set {interface} up"));
    }

    pub fn ifindex(&self, interface: &str) -> u32 {
        self.read_sys(interface, "ifindex").parse().expect("an interface index")
    }

    /// Returns the bytes that the interface has received so far.
    pub fn received_by(&self, interface: &str) -> u64 {
        self.read_sys(interface, "statistics/rx_bytes").parse().expect("a number")
    }

    /// Waits until the interface is up, because the kernel drops packets for a moment after a link was set up.
    fn wait_until_up(&self, interface: &str) {
        let is_up = || self.read_sys(interface, "operstate") == "up";
        let came_up = (0..PATIENCE / 10).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            is_up()
        });
        assert!(came_up, "{interface} does not come up");
    }

    fn read_sys(&self, interface: &str, file: &str) -> String {
        self.read(&format!("cat /sys/class/net/{interface}/{file}")).trim().to_owned()
    }

    pub fn udp(&self) -> UdpCarrier {
        self.udp_at(netio::SCTP_OVER_UDP_PORT)
    }

    pub fn udp_at(&self, port: u16) -> UdpCarrier {
        self.within(|| UdpCarrier::bind(port)).expect("the port is free in a namespace of our own")
    }

    pub fn raw(&self) -> RawCarrier {
        self.within(RawCarrier::open).expect("raw sockets, as root")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Joins two namespaces by a veth pair, whose ends have the same name. The ends are hosts 1 and 2 of subnet `net`.
pub fn join(a: &Namespace, b: &Namespace, interface: &str, net: u8) {
    a.ip(&format!("link add {interface} type veth peer name {interface} netns {}", b.name()));
    a.address(interface, net, 1);
    b.address(interface, net, 2);
    a.wait_until_up(interface);
    b.wait_until_up(interface);
}

/// Returns two namespaces joined by one link.
pub fn pair() -> (Namespace, Namespace) {
    let (a, b) = (Namespace::new(), Namespace::new());
    join(&a, &b, "left", 1);
    (a, b)
}

/// Addresses of the far end of [`two_uplinks`] that are on neither link.
pub const FAR: [&str; 2] = ["10.9.8.1", "fd09:8::1"];

/// Returns two namespaces joined by links `left` (subnet 1) and `right` (subnet 2). Routes to [`FAR`] prefer `left`.
pub fn two_uplinks() -> (Namespace, Namespace) {
    let (a, b) = pair();
    join(&a, &b, "right", 2);
    for (net, metric) in [(1, 1), (2, 50)] {
        a.ip(&format!("route add 10.9.8.0/24 via 10.9.{net}.2 metric {metric}"));
        a.ip(&format!("route add fd09:8::/64 via fd09:{net}::2 metric {metric}"));
    }
    b.ip("addr add 10.9.8.1/32 dev lo");
    b.ip("addr add fd09:8::1/128 dev lo nodad");
    (a, b)
}

/// Returns two namespaces with a router between them. The router is the second value. The link `far`, from the router to the last
/// namespace, has the MTU `far_mtu`.
pub fn routed(far_mtu: u32) -> (Namespace, Namespace, Namespace) {
    let (a, router, b) = (Namespace::new(), Namespace::new(), Namespace::new());
    join(&a, &router, "near", 1);
    join(&router, &b, "far", 2);
    router.exec("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    router.ip(&format!("link set far mtu {far_mtu}"));
    a.ip("route add 10.9.2.0/24 via 10.9.1.2");
    a.ip("route add fd09:2::/64 via fd09:1::2");
    b.ip("route add 10.9.1.0/24 via 10.9.2.1");
    b.ip("route add fd09:1::/64 via fd09:2::1");
    (a, router, b)
}

pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().expect("the program is installed");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn udp_route(local: &str, remote: &str) -> Route {
    Route { local: ip(local), remote: ip(remote), carrier: Carrier::Udp { peer_port: 9899 } }
}

pub fn raw_route(local: &str, remote: &str) -> Route {
    Route { local: ip(local), remote: ip(remote), carrier: Carrier::Ip }
}

/// Returns a train whose packets must not be fragmented.
pub fn train<'a>(
    route: &Route,
    source_ifindex: Option<u32>,
    ecn: Ecn,
    segment_size: usize,
    bytes: &'a [u8],
) -> Train<'a> {
    Train { route: *route, source_ifindex, ecn, segment_size, may_fragment: false, bytes }
}

/// Returns the addresses of both ends in subnet `net`, IPv4 first.
pub fn families(net: u8) -> [(String, String); 2] {
    [(format!("10.9.{net}.1"), format!("10.9.{net}.2")), (format!("fd09:{net}::1"), format!("fd09:{net}::2"))]
}

/// A received packet.
pub type Packet = (Route, Ecn, Vec<u8>);

/// Common interface of both carriers, for helpers and tests.
pub trait AnyCarrier: Send {
    fn transmit(&mut self, train: &Train<'_>) -> Result<(), SendError>;
    fn receive(&mut self, f: impl FnMut(&Route, Ecn, &[u8])) -> Received;
    fn errors(&mut self) -> Vec<(Route, PathErrorKind, Vec<u8>)>;
}

macro_rules! any_carrier {
    ($carrier:ty) => {
        impl AnyCarrier for $carrier {
            fn transmit(&mut self, train: &Train<'_>) -> Result<(), SendError> {
                self.send(train)
            }

            fn receive(&mut self, f: impl FnMut(&Route, Ecn, &[u8])) -> Received {
                self.recv(f).expect("receiving works")
            }

            fn errors(&mut self) -> Vec<(Route, PathErrorKind, Vec<u8>)> {
                let mut errors = Vec::new();
                self.take_errors(|e| errors.push((e.route, e.kind, e.quoted.to_vec())));
                errors
            }
        }
    };
}

any_carrier!(UdpCarrier);
any_carrier!(RawCarrier);

/// Waits until `count` packets have arrived, and returns them.
pub fn packets(carrier: &mut impl AnyCarrier, count: usize) -> Vec<Packet> {
    let mut packets: Vec<Packet> = Vec::new();
    for _ in 0..PATIENCE {
        carrier.receive(|route, ecn, bytes| packets.push((*route, ecn, bytes.to_vec())));
        if packets.len() >= count {
            return packets;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} of {count} packets after {PATIENCE} ms", packets.len());
}

/// Waits for a path error, and returns it.
pub fn path_error(carrier: &mut impl AnyCarrier) -> (Route, PathErrorKind, Vec<u8>) {
    for _ in 0..PATIENCE {
        carrier.receive(|_, _, _| {});
        if let Some(error) = carrier.errors().pop() {
            return error;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no path error after {PATIENCE} ms");
}

/// Sends packets to a closed port until an ICMP report arrives. One packet may not suffice, because a child process of another
/// test may have inherited the socket before it was closed. Until the child's exec, the inherited socket still receives packets.
pub fn report_of_closed<C: AnyCarrier>(
    carrier: &mut C,
    to: Route,
    mut send: impl FnMut(&mut C),
) -> PathErrorKind {
    for waited in 0..PATIENCE {
        if waited % 100 == 0 {
            send(carrier);
        }
        carrier.receive(|_, _, _| {});
        if let Some((_, kind, _)) = carrier.errors().into_iter().find(|(route, ..)| *route == to) {
            return kind;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no report after {PATIENCE} ms");
}

/// Returns bytes that differ from packet to packet.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 251 + i) as u8).collect()
}
