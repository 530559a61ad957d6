//! Tests of the connecting side: held SYNs, plain TCP, diversion.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use intercept::{Arrival, ClientState, Config, FourTuple, Interceptor, Verdict, disarm_linger};

use crate::Test;
use crate::world::*;

pub(crate) const TESTS: &[Test] = &[
    ("a held SYN that is accepted becomes plain TCP", accepted_is_plain_tcp),
    ("no connection is made while the SYN is held", nothing_happens_while_held),
    ("a diverted connection over IPv4 arrives with both addresses", diverted_v4),
    ("a diverted connection over IPv6 arrives with both addresses", diverted_v6),
    ("a diverted connection of a v4-mapped socket arrives as IPv4", diverted_v4_mapped),
    ("bytes and half-close pass through a diverted connection", bytes_and_half_close),
    ("an armed connection that is closed without a word is reset at the application", armed_is_reset),
    ("urgent data sent before the connection is accepted arrives in line", urgent_data_in_line),
    ("a disarmed connection that is closed ends in order", disarmed_is_end_of_stream),
    ("a SYN that finds the queue full passes as plain TCP", full_queue_passes),
    ("a SYN that is dropped is sent again a second later", dropped_is_retransmitted),
    ("a connection that is no longer diverted goes out as plain TCP", undiverted_is_plain_tcp),
    ("undiverting twice, or what was not diverted, is no error", twice_is_no_error),
    ("a released SYN keeps the marks of others", marks_of_others_stay),
    ("a full set takes no other until one has ended", full_set),
    ("an application that closed while it was held is gone", closed_while_held_is_gone),
    ("a socket bound to a device is recognised", bound_device_is_found),
    ("a connection to a link-local address is recognised as bound", link_local_is_bound),
    ("the user of a held SYN is known", user_is_known),
    ("loopback and the host's own addresses are not held", own_addresses_are_not_held),
    ("a socket with the daemon's own mark is not held", own_mark_is_not_held),
    ("four numbers can be diverted again at once after a reset", again_after_reset),
    ("four numbers can be diverted again while our end is in TIME-WAIT", again_in_time_wait),
    ("one source port to two destinations makes two diverted connections", one_port_two_destinations),
];

const PORT: u16 = 8080;

/// Makes a diverted connection from alpha to `server`. Returns both ends.
fn connect_diverted(
    world: &World,
    interceptor: &mut Interceptor,
    server: SocketAddr,
) -> (std::net::TcpStream, Arrival) {
    let client = connect(&world.alpha, server);
    let syn = held(interceptor);
    let arrival = divert(interceptor, &syn);
    (connected(client), arrival)
}

fn accepted_is_plain_tcp() {
    let world = World::new();
    let server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let client = connect(&world.alpha, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    interceptor.queue().verdict(syn.id, Verdict::Accept).expect("a verdict");
    let client = connected(client);
    let (_, peer) = server.accept().expect("a connection");
    assert_eq!(client.local_addr().expect("an address"), peer);
    assert_eq!(syn.flow, FourTuple::new(peer, at(BETA4, PORT)).expect("one family"));
    assert!(syn.mss.is_some_and(|mss| mss > 500), "{syn:?}");
}

fn nothing_happens_while_held() {
    let world = World::new();
    let server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let client = connect(&world.alpha, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    let readable = nix::poll::PollFlags::POLLIN;
    assert!(!wait(server.as_fd(), readable, Duration::from_millis(300)), "the SYN went out");
    assert!(!client.is_finished());
    interceptor.queue().verdict(syn.id, Verdict::Accept).expect("a verdict");
    let client = connected(client);
    assert!(!has_retransmitted(&world.alpha, &client), "the SYN that was held is not the one that went out");
}

fn full_queue_passes() {
    const LENGTH: u32 = 3;
    let world = World::new();
    let _server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let mut interceptor = intercept(&world.alpha, Config { queue_length: LENGTH, ..Config::default() });
    let _held: Vec<_> = (0..LENGTH).map(|_| begin(&world.alpha, at(BETA4, PORT))).collect();
    let passed = connected(connect(&world.alpha, at(BETA4, PORT)));
    assert!(!has_retransmitted(&world.alpha, &passed), "its first SYN was lost");
    for _ in 0..LENGTH {
        held(&mut interceptor);
    }
    assert_eq!(interceptor.queue().recv().expect("the queue"), None);
}

fn diverted_v4() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    // No program listens in beta. If a packet went to beta, the client would be refused.
    let (client, arrival) = connect_diverted(&world, &mut interceptor, at(BETA4, PORT));
    assert_eq!(client.peer_addr().expect("an address"), at(BETA4, PORT));
    assert_eq!(client.local_addr().expect("an address"), arrival.flow.local());
    assert_eq!(arrival.flow.local().ip(), at(ALPHA4, 0).ip());
    assert_eq!(arrival.flow.remote(), at(BETA4, PORT));
}

fn diverted_v6() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let (client, arrival) = connect_diverted(&world, &mut interceptor, at(BETA6, PORT));
    assert_eq!(client.local_addr().expect("an address"), arrival.flow.local());
    assert_eq!(arrival.flow.local().ip(), at(ALPHA6, 0).ip());
    assert_eq!(arrival.flow.remote(), at(BETA6, PORT));
}

fn diverted_v4_mapped() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let client = connect(&world.alpha, at(&format!("::ffff:{BETA4}"), PORT));
    let syn = held(&mut interceptor);
    assert_eq!(syn.flow.remote(), at(BETA4, PORT));
    let state = interceptor.find_client(&syn.flow, syn.out_interface).expect("sock_diag");
    assert!(matches!(state, ClientState::SynSent { bound_interface: None, .. }), "{state:?}");
    let arrival = divert(&mut interceptor, &syn);
    connected(client);
    assert_eq!(arrival.flow.remote(), at(BETA4, PORT));
}

fn bytes_and_half_close() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let (mut client, arrival) = connect_diverted(&world, &mut interceptor, at(BETA4, PORT));
    let mut daemon = blocking(arrival.stream);
    client.write_all(b"question").expect("a write");
    client.shutdown(Shutdown::Write).expect("a half-close");
    let mut question = String::new();
    daemon.read_to_string(&mut question).expect("a read");
    assert_eq!(question, "question");
    daemon.write_all(b"answer").expect("a write");
    disarm_linger(&daemon).expect("disarming");
    drop(daemon);
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("a read");
    assert_eq!(answer, "answer");
}

fn armed_is_reset() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let (mut client, arrival) = connect_diverted(&world, &mut interceptor, at(BETA4, PORT));
    drop(arrival);
    let error = client.read(&mut [0]).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

fn urgent_data_in_line() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let socket = client_socket(&world.alpha, at(BETA4, PORT));
    begin_with(&socket, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    interceptor.queue().verdict(syn.id, Verdict::Divert).expect("a verdict");
    assert!(wait(socket.as_fd(), nix::poll::PollFlags::POLLOUT, PATIENCE));
    socket.send(b"ab").expect("a write");
    socket.send_out_of_band(b"!").expect("an urgent write");
    socket.send(b"cd").expect("a write");
    drop(socket);
    let mut received = String::new();
    let mut daemon = blocking(arrival(&mut interceptor, false).stream);
    daemon.read_to_string(&mut received).expect("a read");
    assert_eq!(received, "ab!cd");
}

fn disarmed_is_end_of_stream() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let (mut client, arrival) = connect_diverted(&world, &mut interceptor, at(BETA4, PORT));
    disarm_linger(&arrival.stream).expect("disarming");
    drop(arrival);
    assert_eq!(client.read(&mut [0]).expect("an end of stream"), 0);
}

fn dropped_is_retransmitted() {
    let world = World::new();
    let _server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let client = connect(&world.alpha, at(BETA4, PORT));
    let first = held(&mut interceptor);
    interceptor.queue().verdict(first.id, Verdict::Drop).expect("a verdict");
    let second = held(&mut interceptor);
    assert_eq!((second.flow, second.isn), (first.flow, first.isn));
    assert_ne!(second.id, first.id);
    interceptor.queue().verdict(second.id, Verdict::Accept).expect("a verdict");
    let client = connected(client);
    assert!(has_retransmitted(&world.alpha, &client));
}

fn undiverted_is_plain_tcp() {
    let world = World::new();
    let server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let (client, arrival) = connect_diverted(&world, &mut interceptor, at(BETA4, PORT));
    let flow = arrival.flow;
    // The connection closes without an orderly shutdown. The kernel thus resets the connection, and its ports are free.
    drop((client, arrival));
    interceptor.undivert(&[flow]).expect("an end of it");
    let again = client_socket(&world.alpha, at(BETA4, PORT));
    again.set_reuse_address(true).expect("an option");
    again.bind(&flow.local().into()).expect("the same numbers");
    begin_with(&again, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    assert_eq!(syn.flow, flow);
    interceptor.queue().verdict(syn.id, Verdict::Accept).expect("a verdict");
    server.accept().expect("a plain connection");
}

fn twice_is_no_error() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    for server in [at(BETA4, PORT), at(BETA6, PORT)] {
        let (_client, arrival) = connect_diverted(&world, &mut interceptor, server);
        let never = flow(ALPHA4, BETA4, 1);
        interceptor.undivert(&[never, arrival.flow]).expect("an end of it");
        interceptor.undivert(&[arrival.flow]).expect("nothing to end");
        interceptor.undivert(&[]).expect("nothing to end");
    }
}

fn marks_of_others_stay() {
    const THEIRS: u32 = 0x0100_0000;
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let socket = client_socket(&world.alpha, at(BETA4, PORT));
    socket.set_mark(THEIRS).expect("an option");
    begin_with(&socket, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    assert_eq!(syn.mark, THEIRS);
    let rule = format!("meta mark and 0xff000000 == {THEIRS} tcp flags & (syn | ack) == syn counter");
    run_program(&world.alpha, "nft", &["add", "table", "inet", "seen"]);
    let chain = "{ type filter hook output priority 0; }";
    run_program(&world.alpha, "nft", &["add", "chain", "inet", "seen", "c", chain]);
    run_program(&world.alpha, "nft", &["add", "rule", "inet", "seen", "c", &rule]);
    divert(&mut interceptor, &syn);
    let seen = run_program(&world.alpha, "nft", &["list", "table", "inet", "seen"]);
    assert!(seen.contains("packets 1 "), "{seen}");
}

fn full_set() {
    let world = World::new();
    let server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let mut interceptor = intercept(&world.alpha, Config { set_size: 2, ..Config::default() });
    assert_eq!(interceptor.diversions_max(), 2);
    let both = [1, 2].map(|_| connect_diverted(&world, &mut interceptor, at(BETA4, PORT)));
    let _none = begin(&world.alpha, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    interceptor.queue().verdict(syn.id, Verdict::Divert).expect("a verdict");
    let listener = &interceptor.listeners()[0];
    let readable = nix::poll::PollFlags::POLLIN;
    assert!(!wait(listener.as_fd(), readable, Duration::from_millis(200)), "the kernel counts otherwise");
    assert!(!wait(server.as_fd(), readable, Duration::ZERO), "it went out as plain TCP");
    interceptor.undivert(&[both[0].1.flow]).expect("an end of one");
    connect_diverted(&world, &mut interceptor, at(BETA4, PORT));
}

fn flow(local: &str, remote: &str, port: u16) -> FourTuple {
    FourTuple::new(at(local, port), at(remote, PORT)).expect("one family")
}

fn closed_while_held_is_gone() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let socket = begin(&world.alpha, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    let before = interceptor.find_client(&syn.flow, syn.out_interface).expect("sock_diag");
    assert_eq!(before, ClientState::SynSent { uid: 0, bound_interface: None });
    drop(socket);
    let after = interceptor.find_client(&syn.flow, syn.out_interface).expect("sock_diag");
    assert_eq!(after, ClientState::Gone);
}

fn bound_device_is_found() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let socket = client_socket(&world.alpha, at(BETA4, PORT));
    socket.bind_device(Some(b"path0")).expect("a bound socket");
    begin_with(&socket, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    let state = interceptor.find_client(&syn.flow, syn.out_interface).expect("sock_diag");
    assert_eq!(state, ClientState::SynSent { uid: 0, bound_interface: Some(syn.out_interface) });
}

fn link_local_is_bound() {
    let world = World::new();
    run_ip(&world.alpha, &["addr", "add", "fe80::71:1/64", "dev", "path0", "nodad"]);
    let mut interceptor = world.intercept_alpha();
    let index = world.alpha.run(|| nix::net::if_::if_nametoindex("path0")).expect("the namespace's thread");
    let index = index.expect("path0");
    let server = std::net::SocketAddrV6::new("fe80::71:2".parse().expect("an address"), PORT, 0, index);
    let _socket = begin(&world.alpha, server.into());
    let syn = held(&mut interceptor);
    assert_eq!(syn.out_interface, index);
    let state = interceptor.find_client(&syn.flow, syn.out_interface).expect("sock_diag");
    assert_eq!(state, ClientState::SynSent { uid: 0, bound_interface: Some(index) });
}

fn user_is_known() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let socket = client_socket(&world.alpha, at(BETA4, PORT));
    nix::unistd::fchown(&socket, Some(nix::unistd::Uid::from_raw(4711)), None).expect("another owner");
    begin_with(&socket, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    let state = interceptor.find_client(&syn.flow, syn.out_interface).expect("sock_diag");
    assert_eq!(state, ClientState::SynSent { uid: 4711, bound_interface: None });
    assert_eq!(syn.uid, Some(0), "the user who opened the socket");
}

fn own_addresses_are_not_held() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    for ip in ["127.0.0.1", ALPHA4] {
        let _server = listen(&world.alpha, &format!("{ip}:{PORT}"));
        connected(connect(&world.alpha, at(ip, PORT)));
    }
    assert_eq!(interceptor.queue().recv().expect("the queue"), None);
}

fn own_mark_is_not_held() {
    let world = World::new();
    let _server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let socket = client_socket(&world.alpha, at(BETA4, PORT));
    socket.set_mark(Config::default().marks.own | 0x55).expect("a mark");
    socket.connect(&at(BETA4, PORT).into()).expect("a connection");
    assert_eq!(interceptor.queue().recv().expect("the queue"), None);
}

/// Makes a diverted connection from `port` to `server`. Returns both ends.
fn connect_diverted_from(
    world: &World,
    interceptor: &mut Interceptor,
    port: u16,
    server: SocketAddr,
) -> (socket2::Socket, Arrival) {
    let socket = client_socket(&world.alpha, server);
    socket.set_reuse_address(true).expect("an option");
    socket.bind(&at(ALPHA4, port).into()).expect("a port");
    begin_with(&socket, server);
    let syn = held(interceptor);
    let arrival = divert(interceptor, &syn);
    assert_eq!((arrival.flow.local(), arrival.flow.remote()), (at(ALPHA4, port), server));
    (socket, arrival)
}

fn again_after_reset() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let (application, first) = connect_diverted_from(&world, &mut interceptor, 5000, at(BETA4, PORT));
    application.set_linger(Some(Duration::ZERO)).expect("an option");
    drop(application);
    let error = blocking(first.stream).read(&mut [0]).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    connect_diverted_from(&world, &mut interceptor, 5000, at(BETA4, PORT));
}

fn again_in_time_wait() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let (application, first) = connect_diverted_from(&world, &mut interceptor, 5000, at(BETA4, PORT));
    disarm_linger(&first.stream).expect("disarming");
    drop(first);
    let mut application = std::net::TcpStream::from(application);
    application.set_nonblocking(false).expect("a blocking socket");
    assert_eq!(application.read(&mut [0]).expect("an end of stream"), 0);
    drop(application);
    connect_diverted_from(&world, &mut interceptor, 5000, at(BETA4, PORT));
}

fn one_port_two_destinations() {
    let world = World::new();
    run_ip(&world.beta, &["addr", "add", "10.71.0.3/24", "dev", "path0"]);
    let mut interceptor = world.intercept_alpha();
    let first = connect_diverted_from(&world, &mut interceptor, 5000, at(BETA4, PORT));
    let second = connect_diverted_from(&world, &mut interceptor, 5000, at("10.71.0.3", PORT));
    assert_ne!(first.1.flow, second.1.flow);
}

/// Converts a stream to a blocking stream of std.
pub(crate) fn blocking(stream: mio::net::TcpStream) -> std::net::TcpStream {
    let stream = std::net::TcpStream::from(std::os::fd::OwnedFd::from(stream));
    stream.set_nonblocking(false).expect("a blocking socket");
    stream
}
