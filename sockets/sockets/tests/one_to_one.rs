//! Sockets of two hosts in virtual time. The expected errors are Linux' own, as its SCTP gives them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::{Carrier, Ecn, Route, Time};
use bytes::Bytes;
use sctp::{Endpoint, EndpointConfig};
use sockets::{Caller, Config, Errno, Network, Output, Sent, SocketKey, Sockets};
use sockproto::abi::{SOL_SCTP, option, sinfo};
use sockproto::{DataHeader, Kind, SockAddr, flag};

const USER: Caller = Caller { uid: 1000, may_bind_low: false };
const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PORT: u16 = 5000;
const ALL_EVENTS: [u8; 14] = [1; 14];

struct Host {
    sockets: Sockets,
    engine: Endpoint,
    address: IpAddr,
    outputs: Vec<Output>,
}

/// A host with one address.
struct OneAddress(IpAddr);

impl Network for OneAddress {
    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr> {
        if remote.is_loopback() { Some(remote) } else { Some(self.0) }
    }
}

impl Host {
    fn new(address: Ipv4Addr) -> Host {
        let mut sockets = Sockets::new(Config::default(), 7);
        sockets.set_addresses(vec![address.into()]);
        let engine = Endpoint::new(Time::ZERO, EndpointConfig::default(), [address.octets()[3]; 32]);
        Host { sockets, engine, address: address.into(), outputs: Vec::new() }
    }

    fn socket(&mut self) -> SocketKey {
        self.sockets.open(libc::AF_INET, libc::SOCK_STREAM, USER).unwrap()
    }

    fn bind(&mut self, key: SocketKey, address: Ipv4Addr, port: u16) -> Result<(), Errno> {
        self.sockets.bind(key, name(address, port).as_bytes(), USER)
    }

    fn listener(&mut self) -> SocketKey {
        let key = self.socket();
        self.bind(key, Ipv4Addr::UNSPECIFIED, PORT).unwrap();
        self.sockets.listen(key, 5).unwrap();
        key
    }

    fn connect(&mut self, now: Time, key: SocketKey, to: Ipv4Addr, port: u16) -> Result<i32, Errno> {
        let mut network = OneAddress(self.address);
        self.sockets.connect(now, &mut self.engine, key, name(to, port).as_bytes(), &mut network)
    }

    fn set(&mut self, key: SocketKey, option: i32, value: &[u8]) {
        self.sockets.set_option(Time::ZERO, &mut self.engine, key, (SOL_SCTP, option), value).unwrap();
    }

    fn get(&mut self, key: SocketKey, option: i32, length: usize) -> Result<Vec<u8>, Errno> {
        self.sockets.option(&self.engine, key, (SOL_SCTP, option), &vec![0; length])
    }

    fn error(&mut self, key: SocketKey) -> i32 {
        let value =
            self.sockets.option(&self.engine, key, (libc::SOL_SOCKET, libc::SO_ERROR), &[0; 4]).unwrap();
        i32::from_ne_bytes(value.try_into().unwrap())
    }

    fn send(&mut self, now: Time, key: SocketKey, text: &'static [u8]) -> Sent {
        self.sockets.send(now, &mut self.engine, key, &DataHeader::new(Kind::Data), Bytes::from_static(text))
    }

    /// Reads everything there is: texts, notifications as their type and state, errors, the end.
    fn read_all(&mut self, now: Time, key: SocketKey) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(next) = self.sockets.next(now, &mut self.engine, key) {
            let (header, bytes) = next;
            all.push(match header.kind {
                Kind::Ended => "end".to_owned(),
                Kind::Failed => format!("error {}", header.context),
                Kind::Notification => {
                    assert_eq!(bytes.len(), usize::from(bytes[4]), "the length that it tells");
                    format!("{:02x}{:02x} state {}", bytes[1], bytes[0], bytes.get(8).unwrap())
                }
                _ => String::from_utf8(bytes.to_vec()).unwrap(),
            });
        }
        all
    }

    fn accepted(&mut self) -> SocketKey {
        let found = self.outputs.iter().find_map(|output| match output {
            Output::Accepted { socket, .. } => Some(*socket),
            _ => None,
        });
        self.outputs.retain(|output| !matches!(output, Output::Accepted { .. }));
        found.expect("an association was accepted")
    }
}

fn name(address: Ipv4Addr, port: u16) -> SockAddr {
    SockAddr::of(SocketAddr::new(address.into(), port), false)
}

/// Two hosts on one link without delay.
struct World {
    hosts: [Host; 2],
    now: Time,
}

impl World {
    fn new() -> World {
        World { hosts: [Host::new(A), Host::new(B)], now: Time::ZERO }
    }

    /// Lets the hosts exchange packets for a time.
    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            while self.exchange() {}
            let next = self.hosts.iter().map(|host| host.engine.next_timeout()).min().unwrap();
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            for host in &mut self.hosts {
                host.engine.handle_timeout(self.now);
            }
        }
        self.now = end;
    }

    /// Moves one batch of packets and events; returns whether there were any.
    fn exchange(&mut self) -> bool {
        let mut buffer = vec![0; 65_536];
        let mut has_moved = false;
        for from in [0, 1] {
            while let Some(sent) = self.hosts[from].engine.poll_transmit(self.now, &mut buffer) {
                has_moved = true;
                let to = usize::from(self.hosts[1].address == sent.route.remote);
                let route = Route {
                    local: sent.route.remote,
                    remote: sent.route.local,
                    carrier: Carrier::Udp { peer_port: 9899 },
                };
                let Host { engine, sockets, .. } = &mut self.hosts[to];
                for packet in buffer[..sent.len].chunks(sent.segment_size) {
                    engine.handle_datagram(self.now, &route, Ecn::default(), packet, sockets);
                }
            }
            let Host { engine, sockets, outputs, .. } = &mut self.hosts[from];
            while let Some((id, event)) = engine.poll_event() {
                has_moved = true;
                sockets.handle_event(self.now, engine, id, &event);
            }
            outputs.extend(std::iter::from_fn(|| sockets.poll_output()));
        }
        has_moved
    }

    /// Runs for half a second: enough for everything that no timer of seconds is needed for.
    fn settle(&mut self) {
        self.run(Duration::from_millis(500));
    }

    /// Connects A to a listener of B; returns both sockets.
    fn connected(&mut self, events: bool) -> (SocketKey, SocketKey) {
        let listener = self.hosts[1].listener();
        let client = self.hosts[0].socket();
        if events {
            self.hosts[1].set(listener, option::EVENTS, &ALL_EVENTS);
            self.hosts[0].set(client, option::EVENTS, &ALL_EVENTS);
        }
        self.hosts[0].connect(self.now, client, B, PORT).unwrap();
        self.settle();
        assert_eq!(self.hosts[0].error(client), 0);
        (client, self.hosts[1].accepted())
    }

    fn read(&mut self, host: usize, key: SocketKey) -> Vec<String> {
        self.hosts[host].read_all(self.now, key)
    }
}

#[test]
fn a_fresh_socket_answers_as_linux_does() {
    let mut host = Host::new(A);
    let key = host.socket();
    assert_eq!(host.sockets.peer_name(key), Err(libc::ENOTCONN));
    assert_eq!(host.sockets.local_name(key).unwrap(), name(Ipv4Addr::UNSPECIFIED, 0));
    assert_eq!(host.get(key, option::STATUS, 200), Err(libc::EINVAL));
    assert_eq!(host.get(key, 999, 4), Err(libc::ENOPROTOOPT));
    assert_eq!(host.send(Time::ZERO, key, b"x"), Sent::Refused);
    for (family, kind, error) in [
        (libc::AF_UNIX, libc::SOCK_STREAM, libc::EAFNOSUPPORT),
        (libc::AF_INET, libc::SOCK_SEQPACKET, libc::ESOCKTNOSUPPORT),
    ] {
        assert_eq!(host.sockets.open(family, kind, USER), Err(error));
    }
    let lengths = [
        (option::EVENTS, 100, 14),
        (option::RTOINFO, 16, 16),
        (option::ASSOCINFO, 20, 20),
        (option::INITMSG, 8, 8),
    ];
    for (name, given, told) in lengths {
        assert_eq!(host.get(key, name, given).map(|value| value.len()), Ok(told), "option {name}");
    }
    for (name, length) in
        [(option::PEER_ADDR_PARAMS, 156), (option::DEFAULT_SEND_PARAM, 32), (option::DEFAULT_SNDINFO, 16)]
    {
        assert_eq!(host.get(key, name, length).map(|value| value.len()), Ok(length), "option {name}");
        assert_eq!(host.get(key, name, length - 8), Err(libc::EINVAL), "option {name}");
    }
}

#[test]
fn a_port_is_bound_once_and_privileged_ones_are_not_for_everybody() {
    let mut host = Host::new(A);
    let (first, second, third) = (host.socket(), host.socket(), host.socket());
    assert_eq!(host.bind(first, Ipv4Addr::new(198, 51, 100, 9), 0), Err(libc::EADDRNOTAVAIL));
    assert_eq!(host.bind(first, A, PORT), Ok(()));
    assert_eq!(host.bind(first, A, 0), Err(libc::EINVAL));
    assert_eq!(host.bind(second, Ipv4Addr::UNSPECIFIED, PORT), Err(libc::EADDRINUSE));
    assert_eq!(host.bind(second, Ipv4Addr::LOCALHOST, PORT), Ok(()));
    assert_eq!(host.bind(third, A, 80), Err(libc::EACCES));
    let root = Caller { uid: 0, may_bind_low: true };
    assert_eq!(host.sockets.bind(third, name(A, 80).as_bytes(), root), Ok(()));
    host.sockets.close(Time::ZERO, &mut host.engine, first, false);
    let again = host.socket();
    assert_eq!(host.bind(again, A, PORT), Ok(()));
}

#[test]
fn a_user_cannot_take_all_sockets() {
    let config = Config { sockets_per_user: 2, ..Config::default() };
    let mut sockets = Sockets::new(config, 1);
    let mut engine = Endpoint::new(Time::ZERO, EndpointConfig::default(), [0; 32]);
    let first = sockets.open(libc::AF_INET, libc::SOCK_STREAM, USER).unwrap();
    assert!(sockets.open(libc::AF_INET, libc::SOCK_STREAM, USER).is_ok());
    assert_eq!(sockets.open(libc::AF_INET, libc::SOCK_STREAM, USER), Err(libc::EMFILE));
    assert!(sockets.open(libc::AF_INET, libc::SOCK_STREAM, Caller { uid: 1, ..USER }).is_ok());
    sockets.close(Time::ZERO, &mut engine, first, false);
    assert!(sockets.open(libc::AF_INET, libc::SOCK_STREAM, USER).is_ok());
}

#[test]
fn a_connect_to_a_closed_port_is_refused_and_can_be_repeated() {
    let mut world = World::new();
    let client = world.hosts[0].socket();
    assert!(world.hosts[0].sockets.take_unfilled(client) && !world.hosts[0].sockets.take_unfilled(client));
    world.hosts[0].connect(world.now, client, B, PORT).unwrap();
    assert_eq!(world.hosts[0].connect(world.now, client, B, PORT), Err(libc::EALREADY));
    world.settle();
    assert_eq!(world.hosts[0].outputs, [Output::Settled(client), Output::Readable(client)]);
    assert!(!world.hosts[0].sockets.take_unfilled(client), "the program has yet to see the error");
    assert_eq!([world.hosts[0].error(client), world.hosts[0].error(client)], [libc::ECONNREFUSED, 0]);
    assert!(world.hosts[0].sockets.take_unfilled(client));
    world.hosts[1].listener();
    world.hosts[0].connect(world.now, client, B, PORT).unwrap();
    world.settle();
    assert_eq!(world.hosts[0].error(client), 0);
    assert_eq!(world.hosts[0].connect(world.now, client, B, PORT), Err(libc::EISCONN));
    assert_eq!(world.hosts[0].sockets.peer_name(client), Ok(name(B, PORT)));
    assert_eq!(world.hosts[0].get(client, option::STATUS, 176).unwrap()[4], 4, "SCTP_ESTABLISHED");
}

#[test]
fn messages_keep_their_boundaries_stream_and_identifier() {
    let mut world = World::new();
    let (client, server) = world.connected(false);
    let header = DataHeader {
        flags: flag::WITH_INFO,
        stream: 3,
        ppid: 46_u32.to_be(),
        sinfo_flags: sinfo::UNORDERED,
        ..DataHeader::new(Kind::Data)
    };
    let host = &mut world.hosts[0];
    let sent = host.sockets.send(Time::ZERO, &mut host.engine, client, &header, Bytes::from_static(b"first"));
    assert_eq!(sent, Sent::Taken);
    assert_eq!(world.hosts[0].send(Time::ZERO, client, b"second"), Sent::Taken);
    world.settle();
    let host = &mut world.hosts[1];
    let Some((got, bytes)) = host.sockets.next(world.now, &mut host.engine, server) else {
        panic!("a message")
    };
    assert_eq!(
        (got.stream, got.ppid, got.sinfo_flags, &bytes[..]),
        (3, 46_u32.to_be(), sinfo::UNORDERED, &b"first"[..])
    );
    assert_eq!(world.read(1, server), ["second"]);
}

#[test]
fn a_long_message_comes_in_parts() {
    let mut world = World::new();
    let (client, server) = world.connected(false);
    let long: Bytes = vec![b'a'; 500_000].into();
    let host = &mut world.hosts[0];
    host.sockets.send(Time::ZERO, &mut host.engine, client, &DataHeader::new(Kind::Data), long);
    world.run(Duration::from_secs(5));
    let host = &mut world.hosts[1];
    let mut parts = Vec::new();
    while let Some((header, bytes)) = host.sockets.next(world.now, &mut host.engine, server) {
        parts.push((bytes.len(), header.flags & flag::MORE != 0));
    }
    assert_eq!(parts.iter().map(|(length, _)| length).sum::<usize>(), 500_000);
    assert!(parts.len() > 1 && parts.iter().all(|(length, _)| *length <= sockproto::PART_MAX));
    assert_eq!(parts.iter().filter(|(_, more)| !more).count(), 1);
    assert!(!parts.last().unwrap().1);
}

#[test]
fn notifications_come_in_linux_order() {
    let mut world = World::new();
    let (client, server) = world.connected(true);
    assert_eq!(world.read(0, client), ["8001 state 0"]);
    assert_eq!(world.read(1, server), ["8001 state 0"]);
    world.hosts[0].send(world.now, client, b"hi");
    world.settle();
    assert_eq!(world.read(1, server), ["hi"]);
    assert!(world.read(0, client)[0].starts_with("8009"), "SCTP_SENDER_DRY_EVENT");
    let host = &mut world.hosts[0];
    host.sockets.close(world.now, &mut host.engine, client, false);
    world.settle();
    let read = world.read(1, server);
    assert!(read[0].starts_with("8005") && read[1..] == ["8001 state 3", "end"], "{read:?}");
    assert_eq!(world.hosts[0].sockets.len(), 0);
}

#[test]
fn data_comes_before_the_peers_abort_which_is_told_once() {
    let mut world = World::new();
    let (client, server) = world.connected(false);
    world.hosts[0].send(world.now, client, b"last");
    world.settle();
    let host = &mut world.hosts[0];
    let linger = [1_i32.to_ne_bytes(), 0_i32.to_ne_bytes()].concat();
    let option = (libc::SOL_SOCKET, libc::SO_LINGER);
    host.sockets.set_option(Time::ZERO, &mut host.engine, client, option, &linger).unwrap();
    host.sockets.close(world.now, &mut host.engine, client, false);
    world.settle();
    let errors = [libc::ECONNRESET, libc::ENOTCONN].map(|error| format!("error {error}"));
    assert_eq!(world.read(1, server), ["last", &errors[0], &errors[1]]);
    assert_eq!(world.hosts[1].send(world.now, server, b"x"), Sent::Refused);
}

#[test]
fn a_full_backlog_refuses_and_a_listener_that_closes_leaves_its_port() {
    let mut world = World::new();
    let listener = world.hosts[1].socket();
    world.hosts[1].bind(listener, B, PORT).unwrap();
    world.hosts[1].sockets.listen(listener, 1).unwrap();
    let clients: Vec<SocketKey> = (0..2).map(|_| world.hosts[0].socket()).collect();
    for client in &clients {
        world.hosts[0].connect(world.now, *client, B, PORT).unwrap();
        world.settle();
    }
    assert_eq!([world.hosts[0].error(clients[0]), world.hosts[0].error(clients[1])], [0, libc::ECONNREFUSED]);
    world.hosts[1].sockets.set_waiting(listener, 0);
    world.hosts[0].connect(world.now, clients[1], B, PORT).unwrap();
    world.settle();
    assert_eq!(world.hosts[0].error(clients[1]), 0);
    let host = &mut world.hosts[1];
    host.sockets.close(world.now, &mut host.engine, listener, false);
    world.hosts[1].listener();
}

#[test]
fn an_accepted_socket_has_its_listeners_options() {
    let mut world = World::new();
    let listener = world.hosts[1].listener();
    world.hosts[1].set(listener, option::RECVRCVINFO, &1_i32.to_ne_bytes());
    world.hosts[1].set(listener, option::INITMSG, &[5, 0, 7, 0, 0, 0, 0, 0]);
    let client = world.hosts[0].socket();
    world.hosts[0].connect(world.now, client, B, PORT).unwrap();
    world.settle();
    let server = world.hosts[1].accepted();
    let status = world.hosts[0].get(client, option::STATUS, 176).unwrap();
    assert_eq!([status[16], status[18]], [5, 7], "streams in and out of the client");
    world.hosts[0].send(world.now, client, b"x");
    world.settle();
    let host = &mut world.hosts[1];
    let Some((header, _)) = host.sockets.next(world.now, &mut host.engine, server) else {
        panic!("a message")
    };
    assert_eq!(header.flags, flag::WITH_RCVINFO);
    assert_eq!(world.hosts[1].get(server, option::GET_PEER_ADDRS, 100).unwrap().len(), 8 + 16);
}

#[test]
fn both_ends_on_one_host_find_each_other_over_loopback() {
    let mut world = World::new();
    let listener = world.hosts[0].listener();
    world.hosts[0].address = Ipv4Addr::LOCALHOST.into();
    let client = world.hosts[0].socket();
    world.hosts[0].connect(world.now, client, Ipv4Addr::LOCALHOST, PORT).unwrap();
    world.settle();
    let server = world.hosts[0].accepted();
    assert_ne!(server, listener);
    world.hosts[0].send(world.now, client, b"to myself");
    world.settle();
    assert_eq!(world.read(0, server), ["to myself"]);
}
