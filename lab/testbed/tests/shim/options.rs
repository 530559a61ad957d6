//! Tests of socket options and TCP options over SCTP: each row of docs/tcp-options.md.

use crate::cases::{Difference, PLAIN_PORT, compare};
use crate::world::{LIMIT, PORT, World};
use std::time::Duration;

/// Complete list of the differences between SCTP and TCP. docs/tcp-options.md documents them for users.
const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "SO_LINGER-close",
        by_sctp: "close waits for the peer: no",
        why: "the own shim has taken what was written",
    },
    Difference {
        case: "SIOCOUTQ",
        by_sctp: "before the peer reads: empty",
        why: "the own shim has taken what was written",
    },
];

#[test]
#[ignore = "needs root: makes network namespaces"]
fn socket_options_over_sctp_behave_as_over_tcp_except_where_listed() {
    compare("streams = \"own\"\n", "options", &[], DIFFERENCES);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn socket_options_on_a_shared_association_behave_as_over_tcp_except_where_listed() {
    compare("streams = \"shared\"\n", "options", &[], DIFFERENCES);
}

/// Listens on port argv[1] in mode argv[2]. Sends each client's word back, followed by "True" if data was
/// readable at the accept, otherwise by "False". Prints the number of served connections.
const LISTENER: &str = "
import select, socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if sys.argv[2] == 'defer': listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
if sys.argv[2] == 'fastopen': listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
if sys.argv[2] == 'share': listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(('', int(sys.argv[1])))
listener.listen(100)
print('listening', flush=True)
served = 0
while True:
    connection, peer = listener.accept()
    has_data = bool(select.select([connection], [], [], 0)[0])
    served += 1
    print('served', served, flush=True)
    connection.sendall(connection.recv(100) + f' {has_data}'.encode())
    connection.close()
";

/// Connects argv[3] times to argv[1]:argv[2]. Each time, waits for 0.2 s, sends a word and prints the answer.
const LATE_SPEAKER: &str = "
import socket, sys, time
for number in range(int(sys.argv[3])):
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
    time.sleep(0.2)
    connection.sendall(b'word')
    print(connection.makefile().read())
";

fn speak_late(world: &World, times: u8) -> String {
    let (to, port) = (world.link.right_v4().to_string(), PORT.to_string());
    let client = world.client("python3", &["-c", LATE_SPEAKER, &to, &port, &times.to_string()]);
    world.alpha.run("speaker", client, LIMIT).unwrap().good().unwrap().stdout
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_server_that_defers_accepting_gets_connections_that_have_spoken() {
    let world = World::new();
    let _server = world.serve("python3", &["-c", LISTENER, &PORT.to_string(), "defer"]);
    assert_eq!(speak_late(&world, 2), "word True\nword True\n");
    assert_eq!(world.connects_sctp(), 2, "{:?}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_server_that_does_not_defer_accepting_gets_connections_before_they_speak() {
    let world = World::new();
    let _server = world.serve("python3", &["-c", LISTENER, &PORT.to_string(), "fastopen"]);
    assert_eq!(speak_late(&world, 1), "word False\n");
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_servers_that_share_a_port_share_its_connections() {
    let world = World::new();
    let servers = [(); 2].map(|()| world.serve("python3", &["-c", LISTENER, &PORT.to_string(), "share"]));
    assert_eq!(speak_late(&world, 24).lines().count(), 24);
    let served = servers.each_ref().map(|server| server.stdout().matches("served").count());
    // Each connection goes to one of two servers at random. The probability that one server gets none of the
    // 24 connections is 1 in 8 million.
    assert!(served[0] > 0 && served[1] > 0 && served[0] + served[1] == 24, "{served:?}");
    assert_eq!(world.connects_sctp(), 24, "{:?}", world.fallbacks());
}

/// Connects to argv[1]:argv[2] on a socket bound to the interface argv[3], sends a word and prints the answer.
const BOUND: &str = "
import socket, sys
connection = socket.socket()
connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[3].encode())
connection.connect((sys.argv[1], int(sys.argv[2])))
connection.sendall(b'word')
print(connection.makefile().read())
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_socket_that_is_bound_to_an_interface_stays_plain_tcp_and_the_operator_is_told() {
    let world = World::new();
    let _server = world.serve("python3", &["-c", LISTENER, &PORT.to_string(), "plain"]);
    let (to, port) = (world.link.right_v4().to_string(), PORT.to_string());
    let client = world.client("python3", &["-c", BOUND, &to, &port, &world.link.name()]);
    let output = world.alpha.run("bound", client, LIMIT).unwrap().good().unwrap();
    assert!(output.stdout.starts_with("word"), "{output:?}");
    assert_eq!(world.connects_sctp(), 0);
    let why = world.fallbacks().to_string();
    assert!(why.contains("device"), "{why}");
}

/// Connects to argv[1]:argv[2]. Sets keepalive and the user timeout to end the connection after two seconds of
/// silence. Prints "connected", and then the outcome of reading.
const WANTS_SIGNS: &str = "
import errno, socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
connection.settimeout(None)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option in socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT:
    connection.setsockopt(socket.IPPROTO_TCP, option, 1)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2000)
connection.sendall(b'x')
print('connected', flush=True)
try: print('data' if connection.recv(1) else 'end')
except OSError as error: print(errno.errorcode[error.errno])
";

/// Listens on port argv[1], and answers its client seven seconds after the first byte.
const ANSWERS_LATER: &str = "
import socket, sys, time
listener = socket.create_server(('', int(sys.argv[1])))
print('listening', flush=True)
connection, peer = listener.accept()
connection.recv(1)
time.sleep(7)
connection.sendall(b'x')
time.sleep(1000)
";

/// Duration of the link's silence. It is longer than the client's limit on silence, and shorter than the
/// server's delay.
const SILENCE: Duration = Duration::from_secs(5);

/// The program's keepalive probes reach only the shim on the same host, which always answers them. Between
/// the hosts, heartbeats probe the peer, and tolerate a longer silence than the program's limit.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn sctp_survives_a_silence_that_ends_tcp_through_keepalive_and_user_timeout() {
    let world = World::new();
    let to = world.link.right_v4().to_string();
    let begin = |port: u16| {
        let server = world.serve("python3", &["-c", ANSWERS_LATER, &port.to_string()]);
        let client = world.client("python3", &["-c", WANTS_SIGNS, &to, &port.to_string()]);
        let mut client = world.alpha.spawn("client", client).unwrap();
        client.wait_until("connected", LIMIT, |process| process.stdout().contains("connected")).unwrap();
        (server, client)
    };
    let (by_tcp, by_sctp) = (begin(PLAIN_PORT), begin(PORT));
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
    world.link.silence().unwrap();
    std::thread::sleep(SILENCE);
    world.link.restore().unwrap();
    assert_eq!(by_tcp.1.finish(LIMIT).unwrap().stdout, "connected\nETIMEDOUT\n");
    assert_eq!(by_sctp.1.finish(LIMIT).unwrap().stdout, "connected\ndata\n");
}
