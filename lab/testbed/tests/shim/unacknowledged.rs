//! Test of a program that sends to a peer that acknowledges nothing. The test checks limits on the data that
//! the program can write, and on the memory growth of the program's daemon.

use crate::world::{LIMIT, PORT, World};
use nix::sys::signal::Signal;
use testbed::cpu;

const CONNECTIONS: usize = 100;
/// Port of beta that no rule names.
const PLAIN_PORT: u16 = PORT + 1;
/// Limit on the bytes that a program can write on a connection over SCTP, in addition to the bytes that it
/// can write over plain TCP. The daemon's sockets hold the additional bytes.
const MORE: u64 = 512 << 10;
/// Limit on the memory growth of the daemon for each connection, in KiB. The daemon stores a message and the
/// connection's state.
const DAEMON_KIB: u64 = 16;

/// Accepts argv[2] connections on port argv[1], and waits for a byte on the first one. Then writes to all
/// connections until no connection accepts data for two seconds. Prints the total number of written bytes.
const WRITER: &str = "
import socket, sys, time
listener = socket.create_server(('', int(sys.argv[1])), backlog=1024)
print('listening', flush=True)
streams = [listener.accept()[0] for _ in range(int(sys.argv[2]))]
streams[0].recv(1)
time.sleep(1)
for stream in streams: stream.setblocking(False)
sent, last = 0, time.time()
while time.time() < last + 2:
    for stream in streams:
        try:
            sent += stream.send(bytes(65536))
            last = time.time()
        except BlockingIOError: pass
    time.sleep(0.01)
print(sent, flush=True)
";

/// Opens argv[3] connections to argv[1]:argv[2], sends a byte on the first one, and reads nothing.
const READER: &str = "
import socket, sys, time
streams = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
streams[0].send(b'x')
print('connected', flush=True)
time.sleep(60)
";

/// Returns the average number of bytes that the program on beta could write on a connection, and the growth
/// of beta's daemon in KiB. The program on alpha reads nothing. If `port` is [`PORT`], alpha's daemon is also
/// stopped once all connections are established.
fn sent(port: u16) -> (u64, u64) {
    let world = World::new();
    let (address, port_text, count) =
        (world.link.right_v4().to_string(), port.to_string(), CONNECTIONS.to_string());
    let writer = world.serve("python3", &["-u", "-c", WRITER, &port_text, &count]);
    let command = world.client("python3", &["-c", READER, &address, &port_text, &count]);
    let mut reader = world.alpha.spawn("reader", command).unwrap();
    reader.wait_until("connected", LIMIT, |process| process.stdout().contains("connected")).unwrap();
    let expected = if port == PORT { CONNECTIONS as u64 } else { 0 };
    assert_eq!(world.connects_sctp(), expected, "{}", world.fallbacks());
    let memory = || cpu::anonymous_memory_kib(&world.beta, "sctpifyd").unwrap();
    let before = memory();
    if port == PORT {
        world.alphas.signal(Signal::SIGSTOP).unwrap();
    }
    let output = writer.finish(LIMIT).unwrap().good().unwrap().stdout;
    let grown = memory().saturating_sub(before);
    if port == PORT {
        world.alphas.signal(Signal::SIGCONT).unwrap();
    }
    let bytes: u64 = output.lines().last().and_then(|line| line.parse().ok()).unwrap();
    (bytes / CONNECTIONS as u64, grown)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn writes_to_a_silent_peer_are_limited_as_over_tcp_and_the_daemon_buffers_little() {
    let ((plain, _), (bytes, grown)) = (sent(PLAIN_PORT), sent(PORT));
    println!("{bytes} bytes on each connection, over TCP {plain}; the daemon grew by {grown} KiB");
    assert!(bytes < plain + MORE, "{bytes} bytes on each connection, over TCP {plain}");
    assert!(grown < CONNECTIONS as u64 * DAEMON_KIB, "the daemon grew by {grown} KiB");
}
