//! Tests of separate sockets for peers that send much, on a real kernel, between network namespaces.

mod common;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base::{Carrier, Ecn, Route};
use common::*;
use netio::{CONNECTED_RX_MAX, Owner, PathErrorKind, Received, SendError, Train, UdpCarrier, Unreachable};
use socket2::{Domain, Socket, Type};

/// Number of trains of [`PACKETS`] packets. If each packet arrives alone, these trains exceed the number of datagrams that a peer
/// needs for a connected socket.
const TRAINS: usize = 50;
const PACKETS: usize = 64;
/// Length of a packet in bytes. A packet contains only its number.
const LENGTH: usize = 8;

/// A carrier that opens connected sockets, with its own namespace.
struct End(Namespace, UdpCarrier);

impl End {
    /// Waits until `count` packets have arrived. All of them belong to associations.
    fn packets(&mut self, count: usize) -> Vec<Packet> {
        self.packets_of(count, Owner::Association)
    }

    fn packets_of(&mut self, count: usize, owner: Owner) -> Vec<Packet> {
        self.0.within(|| packets(&mut Owned(&mut self.1, owner), count))
    }
}

/// A carrier whose packets all have the same owner.
struct Owned<'a>(&'a mut UdpCarrier, Owner);

impl AnyCarrier for Owned<'_> {
    fn transmit(&mut self, train: &Train<'_>) -> Result<(), SendError> {
        self.0.transmit(train)
    }

    fn receive(&mut self, mut f: impl FnMut(&Route, Ecn, &[u8])) -> Received {
        let taken = self.0.recv(|route, ecn, packet| {
            f(route, ecn, packet);
            self.1
        });
        taken.expect("receiving works")
    }

    fn errors(&mut self) -> Vec<(Route, PathErrorKind, Vec<u8>)> {
        self.0.errors()
    }
}

/// Returns two namespaces whose link has no offloads, and a carrier in each. The second carrier opens connected sockets.
fn ends() -> (Namespace, UdpCarrier, End) {
    let (a, b) = pair();
    b.exec("ethtool -K left gro off");
    a.exec("ethtool -K left tx-udp-segmentation off");
    let (sender, mut receiver) = (a.udp(), b.udp());
    receiver.open_connected_rx();
    (a, sender, End(b, receiver))
}

impl End {
    /// Returns the number of sockets that are bound to the local address and connected to a peer.
    fn connected(&self, local: &str) -> usize {
        let ours = if local.contains(':') { format!("[{local}]:9899") } else { format!("{local}:9899") };
        let listed = self.0.read("ss -Hun state established");
        // The columns are two queues, the local address, and the peer's address.
        listed.lines().filter(|line| line.split_whitespace().nth(2) == Some(&ours)).count()
    }
}

/// Sends enough packets from the source port `port` to get a connected socket at the receiver.
fn send_from(sender: &mut UdpCarrier, receiver: &mut End, from: &str, to: &str, port: u16) {
    for _ in 0..TRAINS {
        let bytes = [0; PACKETS * LENGTH];
        sender.send(&train(&udp_route(from, to), None, Ecn::Ect0, LENGTH, &bytes)).unwrap();
        for (route, ..) in receiver.packets(PACKETS) {
            assert_eq!(route, Route { carrier: Carrier::Udp { peer_port: port }, ..udp_route(to, from) });
        }
    }
}

/// Sends many numbered packets. Returns the numbers in the order of arrival.
fn send_much(sender: &mut UdpCarrier, receiver: &mut End, from: &str, to: &str) -> Vec<u64> {
    let mut arrived = Vec::new();
    for train_number in 0..TRAINS {
        let numbers = (0..PACKETS).map(|n| ((train_number * PACKETS + n) as u64).to_be_bytes());
        let bytes = numbers.collect::<Vec<_>>().concat();
        sender.send(&train(&udp_route(from, to), None, Ecn::Ect0, LENGTH, &bytes)).unwrap();
        for (route, ecn, bytes) in receiver.packets(PACKETS) {
            assert_eq!((route, ecn), (udp_route(to, from), Ecn::Ect0));
            arrived.push(u64::from_be_bytes(bytes.try_into().unwrap()));
        }
    }
    arrived
}

#[test]
fn packets_of_a_busy_peer_all_arrive_in_order_on_its_own_socket() {
    let (_a, mut sender, mut receiver) = ends();
    for (opened, (from, to)) in families(1).into_iter().enumerate() {
        assert_eq!(receiver.1.counters().connected_rx, opened as u64);
        let arrived = send_much(&mut sender, &mut receiver, &from, &to);
        assert!(arrived.into_iter().eq(0..(TRAINS * PACKETS) as u64));
    }
    assert_eq!(receiver.1.counters().connected_rx, 2);
}

#[test]
fn with_connected_sockets_other_peers_are_received_and_the_port_stays_taken() {
    let (a, mut sender, mut receiver) = ends();
    let mut other = a.udp_at(9900);
    for (from, to) in families(1) {
        send_much(&mut sender, &mut receiver, &from, &to);
        other.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1400, b"hello")).unwrap();
        assert_eq!(receiver.packets(1)[0].2, b"hello");
    }
    let taken =
        receiver.0.within(|| UdpCarrier::bind(netio::SCTP_OVER_UDP_PORT)).err().expect("the port is taken");
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}

#[test]
fn a_bind_fails_if_another_program_has_the_port_even_with_reuse_options() {
    let namespace = Namespace::new();
    for share in [Socket::set_reuse_address, Socket::set_reuse_port] {
        let (free, taken) = namespace.within(|| {
            let other = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
            share(&other, true).unwrap();
            // A child process of another test inherits the sockets of the previous round, and closes them only at its exec.
            let bind = || other.bind(&SocketAddr::from(([127, 0, 0, 1], 9899)).into());
            let is_bound = (0..500).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                bind().is_ok()
            });
            assert!(is_bound, "{:?}", bind());
            (UdpCarrier::bind(9900).is_ok(), UdpCarrier::bind(9899).err().map(|error| error.kind()))
        });
        assert_eq!((free, taken), (true, Some(ErrorKind::AddrInUse)));
    }
}

#[test]
fn a_report_about_a_busy_peer_that_has_gone_is_taken() {
    let (_a, mut sender, mut receiver) = ends();
    for (from, to) in families(1) {
        send_much(&mut sender, &mut receiver, &from, &to);
    }
    drop(sender);
    for (from, to) in families(1) {
        let route = udp_route(&to, &from);
        let kind = report_of_closed(&mut receiver.1, route, |it| {
            it.send(&train(&route, None, Ecn::NotEct, 1400, b"still there?")).unwrap();
        });
        assert_eq!(kind, PathErrorKind::Unreachable(Unreachable::Port));
    }
}

#[test]
fn each_busy_peer_of_one_address_gets_a_socket_and_one_too_many_replaces_the_oldest() {
    let (a, _, mut receiver) = ends();
    // Each family has separate ports, because a child process of another test inherits the sockets of the previous family, and
    // closes them only at its exec.
    for ((from, to), first) in families(1).into_iter().zip([9900, 9950]) {
        let before = receiver.1.counters().connected_rx;
        let ports = first..=first + CONNECTED_RX_MAX as u16;
        let mut senders: Vec<_> = ports.map(|port| (port, a.udp_at(port))).collect();
        for (n, (port, sender)) in senders.iter_mut().enumerate() {
            send_from(sender, &mut receiver, &from, &to, *port);
            assert_eq!(receiver.1.counters().connected_rx - before, n as u64 + 1, "each busy peer gets one");
        }
        assert_eq!(receiver.connected(&to), CONNECTED_RX_MAX, "the oldest one has gone");
        // The packets of one peer arrive on the main socket, and the packets of the other peers on connected sockets. All packets
        // have the right route.
        for (port, sender) in &mut senders {
            send_from(sender, &mut receiver, &from, &to, *port);
        }
    }
}

#[test]
fn packets_outside_of_associations_open_no_connected_socket() {
    let (_a, mut sender, mut receiver) = ends();
    for (from, to) in families(1) {
        for _ in 0..TRAINS {
            let bytes = [0; PACKETS * LENGTH];
            sender.send(&train(&udp_route(&from, &to), None, Ecn::Ect0, LENGTH, &bytes)).unwrap();
            receiver.packets_of(PACKETS, Owner::Unknown);
        }
        assert_eq!(receiver.connected(&to), 0);
    }
    assert_eq!(receiver.1.counters().connected_rx, 0);
}

#[test]
fn packets_of_other_peers_arrive_once_while_busy_peers_get_sockets() {
    const STRANGERS: usize = 8;
    const WAITING_MAX: usize = 64;
    let (a, _, mut receiver) = ends();
    let (from, to) = families(1)[0].clone();
    let strangers: Vec<_> =
        a.within(|| (0..STRANGERS).map(|_| UdpSocket::bind((from.as_str(), 0)).unwrap()).collect());
    let ports: BTreeMap<u16, usize> =
        strangers.iter().enumerate().map(|(n, socket)| (socket.local_addr().unwrap().port(), n)).collect();
    let is_over = AtomicBool::new(false);
    let taken = AtomicUsize::new(0);
    let (sent, arrived) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sent = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                // The number of waiting datagrams fits any receive buffer, however seldom the receiver runs.
                if sent as usize * STRANGERS > taken.load(Ordering::Relaxed) + WAITING_MAX {
                    std::thread::yield_now();
                    continue;
                }
                for socket in &strangers {
                    socket.send_to(&sent.to_be_bytes(), (to.as_str(), 9899)).unwrap();
                }
                sent += 1;
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
            sent
        });
        let mut arrived = vec![Vec::new(); STRANGERS];
        let mut take = |route: &Route, packet: &[u8]| {
            let Carrier::Udp { peer_port } = route.carrier else { panic!("{route:?}") };
            let Some(&n) = ports.get(&peer_port) else { return false };
            assert_eq!((route.local, route.remote), (ip(&to), ip(&from)));
            arrived[n].push(u64::from_be_bytes(packet.try_into().unwrap()));
            taken.fetch_add(1, Ordering::Relaxed);
            true
        };
        // The number of busy peers is three times the limit, so sockets open and close all the time.
        for busy in 0..3 * CONNECTED_RX_MAX as u16 {
            let mut sender = a.udp_at(9900 + busy);
            for _ in 0..TRAINS {
                sender
                    .send(&train(&udp_route(&from, &to), None, Ecn::Ect0, LENGTH, &[0; PACKETS * LENGTH]))
                    .unwrap();
                let mut left = PACKETS;
                while left > 0 {
                    let (_, carrier) = (&receiver.0, &mut receiver.1);
                    let received = receiver.0.within(|| {
                        carrier.recv(|route, _, packet| {
                            let is_stranger = take(route, packet);
                            left -= usize::from(!is_stranger);
                            !is_stranger
                        })
                    });
                    received.unwrap();
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap();
        for _ in 0..100 {
            receiver.0.within(|| receiver.1.recv(|route, _, packet| take(route, packet))).unwrap();
        }
        (sent, arrived)
    });
    assert!(receiver.1.counters().connected_rx >= 3 * CONNECTED_RX_MAX as u64, "sockets were opened");
    assert_eq!(receiver.1.counters().discarded, 0);
    for mut numbers in arrived {
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..sent), "each of {sent} datagrams arrived once");
    }
}
