//! Tests of the accepting side: listeners, spoofed connections, and both sides together.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use intercept::{FourTuple, Interceptor, ListenerState, SpoofedConnection};
use nix::poll::PollFlags;

use crate::Test;
use crate::client::blocking;
use crate::world::*;

pub(crate) const TESTS: &[Test] = &[
    ("a program sees the client's address as its peer, IPv4", peer_is_client_v4),
    ("a program sees the client's address as its peer, IPv6", peer_is_client_v6),
    ("a dual-stack listener sees an IPv4 client as v4-mapped", peer_is_client_dual_stack),
    ("a client that this host has no route to can be spoofed", unroutable_client),
    ("a closed port refuses a spoofed connection, IPv4", refused_v4),
    ("a closed port refuses a spoofed connection, IPv6", refused_v6),
    ("a spoofed connection carries bytes both ways and ends in order", bytes_both_ways),
    ("a program that marks its connection is heard until that is forgotten, IPv4", marked_v4),
    ("a program that marks its connection is heard until that is forgotten, IPv6", marked_v6),
    ("a spoofed connection that is closed without a word is reset at the program", armed_is_reset),
    ("a client's port in use for the same program gives another port", port_in_use),
    ("a client's port can be used again while our end is in TIME-WAIT", port_out_of_time_wait),
    ("a client whose port is the transparent listener's gets another port", port_of_the_listener),
    ("sock_diag tells what a connection would meet", listener_of_a_connection),
    ("strict reverse path filtering lets both directions pass", strict_reverse_path_filter),
    ("a connection arrives by its uplink, IPv4", arrives_by_uplink_v4),
    ("a connection arrives by its uplink, IPv6", arrives_by_uplink_v6),
    ("a connection moves to another uplink when its own is gone", moves_to_another_uplink),
    ("an uplink that is not there is refused", no_such_uplink),
    ("two hosts' interceptors join an application and a program", two_hosts),
];

const PORT: u16 = 8080;
const CLIENT_PORT: u16 = 5000;

/// Waits until the connection is established or has failed.
fn finish(connection: SpoofedConnection) -> std::io::Result<TcpStream> {
    assert!(
        wait(connection.stream.as_fd(), PollFlags::POLLOUT, PATIENCE),
        "the connection neither came nor failed"
    );
    match connection.stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(blocking(connection.stream)),
    }
}

/// Connects to a listener in alpha on `bound`, as the client in beta. Returns the peer that the program's `accept` reported.
fn peer_of(bound: &str, client: SocketAddr, server: SocketAddr) -> SocketAddr {
    let world = World::new();
    let listener = listen(&world.alpha, bound);
    let mut interceptor = world.intercept_alpha();
    let uplink = Some(index(&world.alpha, "path0"));
    let connection = interceptor.connect_as(client, server, uplink).expect("a connection");
    assert_eq!(connection.client, client);
    finish(connection).expect("a connection");
    listener.accept().expect("a connection").1
}

fn peer_is_client_v4() {
    let client = at(BETA4, CLIENT_PORT);
    assert_eq!(peer_of(&format!("{ALPHA4}:{PORT}"), client, at(ALPHA4, PORT)), client);
}

fn peer_is_client_v6() {
    let client = at(BETA6, CLIENT_PORT);
    assert_eq!(peer_of(&format!("[{ALPHA6}]:{PORT}"), client, at(ALPHA6, PORT)), client);
}

fn peer_is_client_dual_stack() {
    let peer = peer_of(&format!("[::]:{PORT}"), at(BETA4, CLIENT_PORT), at(ALPHA4, PORT));
    assert_eq!(peer, at(&format!("::ffff:{BETA4}"), CLIENT_PORT));
}

fn unroutable_client() {
    for (client, server) in [("192.0.2.9", ALPHA4), ("2001:db8:99::9", ALPHA6)] {
        let client = at(client, CLIENT_PORT);
        assert_eq!(peer_of(&at(server, PORT).to_string(), client, at(server, PORT)), client);
    }
}

fn refused(client: &str, server: &str) {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let uplink = Some(index(&world.alpha, "path0"));
    let connection =
        interceptor.connect_as(at(client, CLIENT_PORT), at(server, PORT), uplink).expect("a beginning");
    let error = finish(connection).expect_err("nobody listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

fn refused_v4() {
    refused(BETA4, ALPHA4);
}

fn refused_v6() {
    refused(BETA6, ALPHA6);
}

fn bytes_both_ways() {
    let world = World::new();
    let listener = listen(&world.alpha, &format!("{ALPHA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let mut daemon = finish(connect_as_beta(&world, &mut interceptor)).expect("a connection");
    let (mut program, _) = listener.accept().expect("a connection");
    daemon.write_all(b"question").expect("a write");
    intercept::disarm_linger(&daemon).expect("disarming");
    daemon.shutdown(std::net::Shutdown::Write).expect("a half-close");
    let mut question = String::new();
    program.read_to_string(&mut question).expect("a read");
    program.write_all(b"answer").expect("a write");
    drop(program);
    let mut answer = String::new();
    daemon.read_to_string(&mut answer).expect("a read");
    assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
}

/// Tests a program that marks its connection. Without the set of served connections, the program's packets would bypass the
/// private namespace.
fn marked(client: SocketAddr, server: SocketAddr) {
    let world = World::new();
    let listener = listen(&world.alpha, &server.to_string());
    let mut interceptor = world.intercept_alpha();
    let uplink = Some(index(&world.alpha, "path0"));
    let mut daemon =
        finish(interceptor.connect_as(client, server, uplink).expect("a connection")).expect("a connection");
    let (mut program, _) = listener.accept().expect("a connection");
    socket2::SockRef::from(&program).set_mark(42).expect("a mark");
    program.write_all(b"heard").expect("a write");
    daemon.set_read_timeout(Some(PATIENCE)).expect("a limit");
    daemon.read_exact(&mut [0; 5]).expect("what the program wrote");
    let flow = FourTuple::new(server, client).expect("one family");
    let unknown = FourTuple::new(server, SocketAddr::new(client.ip(), 9)).expect("one family");
    interceptor.forget_served(&[unknown, flow]).expect("it is known");
    interceptor.forget_served(&[flow]).expect("forgetting twice is no error");
    program.write_all(b"not heard").expect("a write");
    daemon.set_read_timeout(Some(std::time::Duration::from_millis(300))).expect("a limit");
    let error = daemon.read(&mut [0]).expect_err("nothing, once it is forgotten");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

fn marked_v4() {
    marked(at(BETA4, CLIENT_PORT), at(ALPHA4, PORT));
}

fn marked_v6() {
    marked(at(BETA6, CLIENT_PORT), at(ALPHA6, PORT));
}

fn armed_is_reset() {
    let world = World::new();
    let listener = listen(&world.alpha, &format!("{ALPHA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let daemon = finish(connect_as_beta(&world, &mut interceptor)).expect("a connection");
    let (mut program, _) = listener.accept().expect("a connection");
    drop(daemon);
    let error = program.read(&mut [0]).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

fn connect_as_beta(world: &World, interceptor: &mut Interceptor) -> SpoofedConnection {
    let uplink = Some(index(&world.alpha, "path0"));
    interceptor.connect_as(at(BETA4, CLIENT_PORT), at(ALPHA4, PORT), uplink).expect("a connection")
}

fn port_in_use() {
    let world = World::new();
    let listener = listen(&world.alpha, &format!("{ALPHA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let first = connect_as_beta(&world, &mut interceptor);
    let second = connect_as_beta(&world, &mut interceptor);
    let clients = [first.client, second.client];
    let _streams = [finish(first).expect("a connection"), finish(second).expect("a connection")];
    let mut peers = [0, 1].map(|_| listener.accept().expect("a connection").1);
    peers.sort_by_key(|peer| *peer != clients[0]);
    assert_eq!(clients, peers);
    assert_eq!(clients[0], at(BETA4, CLIENT_PORT));
    assert_eq!(clients[1].ip(), at(BETA4, 0).ip());
    assert!(![0, CLIENT_PORT].contains(&clients[1].port()), "{clients:?}");
}

fn port_out_of_time_wait() {
    let world = World::new();
    let listener = listen(&world.alpha, &format!("{ALPHA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let daemon = finish(connect_as_beta(&world, &mut interceptor)).expect("a connection");
    let (mut program, _) = listener.accept().expect("a connection");
    intercept::disarm_linger(&daemon).expect("disarming");
    drop(daemon);
    assert_eq!(program.read(&mut [0]).expect("an end of stream"), 0);
    drop(program);
    let again = connect_as_beta(&world, &mut interceptor);
    assert_eq!(again.client, at(BETA4, CLIENT_PORT));
    finish(again).expect("a connection");
    assert_eq!(listener.accept().expect("a connection").1, at(BETA4, CLIENT_PORT));
}

fn port_of_the_listener() {
    let world = World::new();
    let listener = listen(&world.alpha, &format!("{ALPHA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let port = intercept::Config::default().tproxy_port;
    let connection = interceptor.connect_as(at(BETA4, port), at(ALPHA4, PORT), None).expect("a connection");
    let client = connection.client;
    finish(connection).expect("a connection");
    assert_eq!(listener.accept().expect("a connection").1, client);
    assert_eq!(client.ip(), at(BETA4, 0).ip());
    assert_ne!(client.port(), port);
}

fn listener_of_a_connection() {
    let world = World::new();
    let all = listen(&world.alpha, "0.0.0.0:1001");
    let dual = listen(&world.alpha, "[::]:1002");
    let _loopback = listen(&world.alpha, "127.0.0.1:1003");
    let one = listen(&world.alpha, &format!("{ALPHA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let mut meet = |port| {
        let flow = FourTuple::new(at(ALPHA4, port), at(BETA4, CLIENT_PORT)).expect("one family");
        interceptor.find_listener(&flow).expect("sock_diag")
    };
    use ListenerState::{Listening, Nobody};
    let met = [1001, 1002, PORT].map(&mut meet).map(|state| match state {
        Listening { on_all, uid: 0, inode } => Some((on_all, inode)),
        _ => None,
    });
    let own = [&all, &dual, &one].map(inode_of);
    assert_eq!(met, [Some((true, own[0])), Some((true, own[1])), Some((false, own[2]))]);
    assert_eq!([1003, 1004].map(&mut meet), [Nobody, Nobody]);
    let _stream = finish(connect_as_beta(&world, &mut interceptor)).expect("a connection");
    let flow = FourTuple::new(at(ALPHA4, PORT), at(BETA4, CLIENT_PORT)).expect("one family");
    let collision = interceptor.find_listener(&flow).expect("sock_diag");
    assert!(
        matches!(collision, ListenerState::Collision(state) if state.to_string() == "ESTABLISHED"),
        "{collision:?}"
    );
}

/// Returns the inode number of a listener's socket, from /proc.
fn inode_of(listener: &std::net::TcpListener) -> u32 {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).expect("a descriptor");
    let name = link.to_str().expect("text");
    name.trim_start_matches("socket:[").trim_end_matches(']').parse().expect("a number")
}

fn strict_reverse_path_filter() {
    let world = World::new();
    let names = ["all/rp_filter", "default/rp_filter", "path0/rp_filter", "all/src_valid_mark"];
    for name in names {
        let path = format!("/proc/sys/net/ipv4/conf/{name}");
        world.alpha.run(|| std::fs::write(path, "1")).expect("the namespace's thread").expect("a sysctl");
    }
    let _listener = listen(&world.alpha, &format!("{ALPHA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    finish(connect_as_beta(&world, &mut interceptor)).expect("a connection");
    let client = connect(&world.alpha, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    let _arrival = divert(&mut interceptor, &syn);
    connected(client);
}

/// Tests a connection against a firewall that accepts connections only on `path0`.
fn arrives_by_uplink(client: SocketAddr, server: SocketAddr) {
    let world = World::new();
    let listener = listen(&world.alpha, &server.to_string());
    for rule in [
        "add table inet judge",
        "add chain inet judge input { type filter hook input priority 0; policy drop; }",
        "add rule inet judge input iifname path0 tcp dport 8080 accept",
    ] {
        run_program(&world.alpha, "nft", &[rule]);
    }
    let mut interceptor = world.intercept_alpha();
    assert_eq!(interceptor.lacks_for_uplinks(), None);
    let by_veth = interceptor.connect_as(client, server, None).expect("a beginning");
    let is_answered = wait(by_veth.stream.as_fd(), PollFlags::POLLOUT, std::time::Duration::from_millis(300));
    assert!(!is_answered, "not by the veth");
    drop(by_veth);
    let uplink = index(&world.alpha, "path0");
    let connection = interceptor.connect_as(client, server, Some(uplink)).expect("a beginning");
    let mut daemon = finish(connection).expect("a connection");
    let (mut program, peer) = listener.accept().expect("a connection");
    assert_eq!(peer, client);
    // In each direction, the data needs several packets of the uplink's MTU.
    let bytes = vec![7; 1 << 20];
    let read = std::thread::spawn(move || {
        let mut got = vec![0; 1 << 20];
        program.read_exact(&mut got).map(|()| (program, got))
    });
    daemon.write_all(&bytes).expect("a write");
    let (mut program, got) = read.join().expect("a thread").expect("a read");
    assert_eq!(got, bytes);
    program.write_all(&bytes[..60_000]).expect("a write");
    daemon.read_exact(&mut vec![0; 60_000]).expect("a read");
}

fn arrives_by_uplink_v4() {
    arrives_by_uplink(at(BETA4, CLIENT_PORT), at(ALPHA4, PORT));
}

fn arrives_by_uplink_v6() {
    arrives_by_uplink(at(BETA6, CLIENT_PORT), at(ALPHA6, PORT));
}

fn moves_to_another_uplink() {
    let world = World::new();
    run_ip(&world.alpha, &["link", "add", "spare", "type", "veth", "peer", "name", "spare1"]);
    run_ip(&world.alpha, &["link", "set", "spare", "up"]);
    run_ip(&world.alpha, &["link", "set", "spare1", "up"]);
    let listener = listen(&world.alpha, &format!("0.0.0.0:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let (path0, spare) = (index(&world.alpha, "path0"), index(&world.alpha, "spare"));
    let client = at("10.71.0.9", CLIENT_PORT);
    run_ip(&world.alpha, &["addr", "add", "10.71.9.1/32", "dev", "lo"]);
    let connection = interceptor.connect_as(client, at("10.71.9.1", PORT), Some(spare)).expect("a beginning");
    let mut daemon = finish(connection).expect("a connection");
    let (mut program, _) = listener.accept().expect("a connection");
    assert!(interceptor.is_uplink_up(spare) && interceptor.is_uplink_up(path0));
    run_ip(&world.alpha, &["link", "del", "spare"]);
    assert!(!interceptor.is_uplink_up(spare));
    daemon.write_all(b"lost").expect("a write");
    interceptor.forget_gone_uplinks().expect("the kernel's answer");
    interceptor.set_uplink(&daemon, Some(path0)).expect("another uplink");
    program.set_read_timeout(Some(PATIENCE)).expect("a limit");
    program.read_exact(&mut [0; 4]).expect("what was sent again");
    run_ip(&world.alpha, &["link", "set", "path0", "down"]);
    assert!(!interceptor.is_uplink_up(path0));
    interceptor.set_uplink(&daemon, None).expect("none");
    daemon.write_all(b"veth").expect("a write");
    program.read_exact(&mut [0; 4]).expect("what came by the veth");
}

fn no_such_uplink() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let error = interceptor
        .connect_as(at(BETA4, CLIENT_PORT), at(ALPHA4, PORT), Some(9999))
        .expect_err("no such interface");
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
}

fn two_hosts() {
    let world = World::new();
    let mut alpha = world.intercept_alpha();
    let mut beta = intercept(&world.beta, intercept::Config::default());
    for (bound, server) in [(format!("{BETA4}:{PORT}"), BETA4), (format!("[{BETA6}]:{PORT}"), BETA6)] {
        let listener = listen(&world.beta, &bound);
        let client = connect(&world.alpha, at(server, PORT));
        let syn = held(&mut alpha);
        let arrival = divert(&mut alpha, &syn);
        let mut application = connected(client);
        let onward =
            beta.connect_as(arrival.flow.local(), arrival.flow.remote(), None).expect("a connection");
        let mut onward = finish(onward).expect("a connection");
        let (mut program, peer) = listener.accept().expect("a connection");
        assert_eq!(peer, application.local_addr().expect("an address"));
        let mut inward = blocking(arrival.stream);
        application.write_all(b"over").expect("a write");
        pass_four_bytes(&mut inward, &mut onward);
        let mut received = [0; 4];
        program.read_exact(&mut received).expect("a read");
        assert_eq!(&received, b"over");
    }
}

fn pass_four_bytes(from: &mut TcpStream, to: &mut TcpStream) {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes).expect("a read");
    to.write_all(&bytes).expect("a write");
}
