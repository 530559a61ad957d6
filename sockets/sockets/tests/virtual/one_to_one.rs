//! Tests of one-to-one sockets. Each expected error is the error of SCTP in the Linux kernel.

use std::net::Ipv4Addr;
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use sctp::{Endpoint, EndpointConfig, Heartbeats};
use sockets::{Caller, Config, Delivery, Output, Sent, SocketKey, Sockets};
use sockproto::abi::{option, sinfo};
use sockproto::{DataHeader, Kind, flag};

use crate::world::{A, B, Host, PORT, USER, World, name};

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
        (libc::AF_INET, libc::SOCK_DGRAM, libc::ESOCKTNOSUPPORT),
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
fn a_socket_bound_to_any_address_tells_those_of_the_host_and_of_loopback() {
    let mut host = Host::new(A);
    let key = host.socket();
    host.bind(key, Ipv4Addr::UNSPECIFIED, PORT).unwrap();
    let value = host.get(key, option::GET_LOCAL_ADDRS, 4096).unwrap();
    let addresses: Vec<_> = sockproto::read_addresses(&value[8..]).collect();
    assert_eq!(addresses, [Ok((Ipv4Addr::LOCALHOST, PORT).into()), Ok((A, PORT).into())]);
    assert_eq!(host.connect(Time::ZERO, key, B, 0), Err(libc::ECONNREFUSED), "nobody has the port 0");
    for nobody in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1)] {
        assert_eq!(host.connect(Time::ZERO, key, nobody, PORT), Err(libc::EINVAL), "{nobody}");
    }
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
    let Some(Delivery { header: got, bytes, .. }) = host.sockets.next(world.now, &mut host.engine, server)
    else {
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
    while let Some(Delivery { header, bytes, .. }) = host.sockets.next(world.now, &mut host.engine, server) {
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
    // The notifications are SCTP_COMM_UP and SCTP_AUTH_NO_AUTH.
    assert_eq!(world.read(0, client), ["8001 state 0", "8008 state 0"]);
    assert_eq!(world.read(1, server), ["8001 state 0", "8008 state 0"]);
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
fn a_program_that_has_shut_down_reads_what_is_left_and_then_has_no_association() {
    let mut world = World::new();
    let (client, server) = world.connected(false);
    world.hosts[1].send(world.now, server, b"last");
    world.settle();
    let host = &mut world.hosts[0];
    host.sockets.shut_down(world.now, &mut host.engine, client);
    world.settle();
    assert_eq!(world.read(0, client), ["last", &format!("error {}", libc::ENOTCONN)]);
    assert_eq!(world.read(1, server), ["end"]);
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
    let clients: Vec<SocketKey> = (0..3).map(|_| world.hosts[0].socket()).collect();
    for client in &clients {
        world.hosts[0].connect(world.now, *client, B, PORT).unwrap();
        world.settle();
    }
    // As in Linux, a listener queues one association more than its backlog.
    let errors: Vec<i32> = clients.iter().map(|client| world.hosts[0].error(*client)).collect();
    assert_eq!(errors, [0, 0, libc::ECONNREFUSED]);
    world.hosts[1].sockets.set_waiting(listener, 0);
    world.hosts[0].connect(world.now, clients[2], B, PORT).unwrap();
    world.settle();
    assert_eq!(world.hosts[0].error(clients[2]), 0);
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
    let Some(Delivery { header, .. }) = host.sockets.next(world.now, &mut host.engine, server) else {
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

#[test]
fn heartbeats_of_all_paths_are_switched_off_and_on_again() {
    let mut world = World::new();
    let (client, _) = world.connected(false);
    let host = &mut world.hosts[0];
    let flags_of = |flags: u32, address: &[u8]| {
        let mut value = vec![0; 152];
        value[4..4 + address.len()].copy_from_slice(address);
        value[146..150].copy_from_slice(&flags.to_ne_bytes());
        value
    };
    let is_on = |host: &mut Host| {
        let association = host.engine.associations().next().unwrap();
        let paths = host.engine.info(association).unwrap().paths;
        paths.iter().all(|path| path.options.heartbeats == Heartbeats::AsAssociation)
    };
    let [on, off] = [1, 2].map(|flags| flags_of(flags, &[]));
    assert!(is_on(host));
    host.set(client, option::PEER_ADDR_PARAMS, &off);
    assert!(!is_on(host));
    host.set(client, option::PEER_ADDR_PARAMS, &on);
    assert!(is_on(host));
    host.set(client, option::PEER_ADDR_PARAMS, &off);
    let to_peer = flags_of(1, &sockaddr(B, PORT));
    host.set(client, option::PEER_ADDR_PARAMS, &to_peer);
    host.set(client, option::RTOINFO, &[0_u32, 0, 5000, 0].map(u32::to_ne_bytes).concat());
    assert!(is_on(host), "other timers leave the heartbeats of one path");
}

/// Returns a `struct sockaddr_in`.
fn sockaddr(address: Ipv4Addr, port: u16) -> Vec<u8> {
    [&2_u16.to_ne_bytes()[..], &port.to_be_bytes(), &address.octets(), &[0; 8]].concat()
}

/// The program sets only the maximum or only the minimum of the RTO, to a value that contradicts the other limit's default.
#[test]
fn contradictory_rto_limits_do_not_stop_data() {
    for (max, min) in [(500_u32, 0_u32), (0, 70_000)] {
        let mut world = World::new();
        let (client, server) = world.connected(false);
        let value = [0, 0, max, min].map(u32::to_ne_bytes).concat();
        world.hosts[0].set(client, option::RTOINFO, &value);
        for _ in 0..3 {
            world.hosts[0].send(world.now, client, b"x");
            world.settle();
        }
        assert_eq!(world.read(1, server), ["x", "x", "x"]);
    }
}

#[test]
fn bindx_cannot_add_an_address_of_another_socket() {
    let mut host = Host::new(A);
    let (first, second) = (host.socket(), host.socket());
    assert_eq!(host.bind(first, Ipv4Addr::new(127, 0, 0, 5), PORT), Ok(()));
    assert_eq!(host.bind(second, A, PORT), Ok(()));
    for address in [A, Ipv4Addr::UNSPECIFIED] {
        let taken = host.sockets.bind_add(first, name(address, PORT).as_bytes(), USER);
        assert_eq!(taken, Err(libc::EADDRINUSE));
    }
    let own = host.sockets.bind_add(first, name(Ipv4Addr::new(127, 0, 0, 6), PORT).as_bytes(), USER);
    assert_eq!(own, Ok(()));
    let many: Vec<u8> =
        (1..100).flat_map(|n| name(Ipv4Addr::new(127, 0, 1, n), PORT).as_bytes().to_vec()).collect();
    assert_eq!(host.sockets.bind_add(first, &many, USER), Err(libc::EINVAL));
}

#[test]
fn connect_after_an_unread_refusal_makes_a_new_attempt() {
    let mut world = World::new();
    let client = world.hosts[0].socket();
    world.hosts[0].sockets.take_unfilled(client);
    world.hosts[0].connect(world.now, client, B, PORT).unwrap();
    world.settle();
    // The program has not read SO_ERROR.
    world.hosts[0].connect(world.now, client, B, PORT).unwrap();
    assert!(world.hosts[0].sockets.take_unfilled(client), "the socket must not be writable");
    world.settle();
    assert_eq!(world.hosts[0].error(client), libc::ECONNREFUSED);
}

#[test]
fn an_accepted_socket_sends_the_longest_message_as_well() {
    let mut world = World::new();
    let (client, server) = world.connected(false);
    let long: Bytes = vec![b'a'; sockproto::MESSAGE_MAX].into();
    let host = &mut world.hosts[1];
    let sent = host.sockets.send(world.now, &mut host.engine, server, &DataHeader::new(Kind::Data), long);
    assert_eq!(sent, Sent::Taken);
    let mut length = 0;
    for _ in 0..100 {
        world.settle();
        length += world.hosts[0].read_bytes(world.now, client);
    }
    assert_eq!(length, sockproto::MESSAGE_MAX);
}
