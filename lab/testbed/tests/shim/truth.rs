//! Tests that each end sees the actions of the far end: a refusal, a reset, a half-close, a reader that does
//! not read.

use crate::world::{HTTP_PORT, LIMIT, PORT, World};
use testbed::programs::{Roundtrip, roundtrip};

/// Listens on port argv[1], accepts one connection, and reads a byte. Then resets the connection if argv[2] is
/// 'reset'. Otherwise, reads nothing more.
const SERVER: &str = "
import socket, struct, sys, time
listener = socket.create_server(('', int(sys.argv[1])))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
print('listening', flush=True)
connection, peer = listener.accept()
connection.recv(1)
if sys.argv[2] == 'reset':
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    connection.close()
else:
    time.sleep(1000)
";

/// Connects to argv[1]:argv[2], writes one byte, and prints the outcome of reading.
const READER: &str = "
import errno, socket, sys
try:
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
    connection.sendall(b'x')
    print('end of file' if connection.recv(1) == b'' else 'data')
except OSError as error:
    print(errno.errorcode.get(error.errno, error))
";

/// Connects to argv[1]:argv[2]. Writes until a write blocks for more than 2 s. Prints the number of written bytes.
const WRITER: &str = "
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
written = 0
try:
    while written < 1 << 30:
        written += connection.send(bytes(1 << 16))
except TimeoutError:
    pass
print(written)
";

/// Limit on the bytes in one direction of a connection that the shims of both hosts hold:
///
/// - at the writer's host: 2 MiB in a socket, and 16 MiB in the send buffer of an association
/// - at the reader's host: 16 MiB in the receive buffer of the association, and 1 MiB in a socket
///
/// Buffers adapt to the path's throughput, so the shims usually hold a fifth of this limit.
const SHIM_MAX: u64 = 35 << 20;
/// Limit on the bytes in the programs' own sockets, each of which requests buffers of 128 KiB.
const PROGRAMS_MAX: u64 = 1 << 20;

fn python(world: &World, program: &str, port: u16) -> String {
    let args = ["-c", program, &world.link.right_v4().to_string(), &port.to_string()];
    let output = world.alpha.run("python", world.client("python3", &args), LIMIT).unwrap().good().unwrap();
    output.stdout.trim().to_owned()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_port_where_nothing_listens_refuses() {
    assert_eq!(python(&World::new(), READER, HTTP_PORT), "ECONNREFUSED");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_reset_at_the_server_is_a_reset_at_the_client_and_no_end_of_file() {
    let world = World::new();
    let _server = world.serve("python3", &["-c", SERVER, &PORT.to_string(), "reset"]);
    assert_eq!(python(&world, READER, PORT), "ECONNRESET");
    assert_eq!(world.connects_sctp(), 1);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_reader_that_does_not_read_stops_the_writer() {
    let world = World::new();
    let _server = world.serve("python3", &["-c", SERVER, &PORT.to_string(), "sleep"]);
    let written: u64 = python(&world, WRITER, PORT).parse().unwrap();
    assert_eq!(world.connects_sctp(), 1);
    assert!((1..SHIM_MAX + PROGRAMS_MAX).contains(&written), "{written} bytes were taken from the writer");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_half_closed_connection_still_carries_the_answer_by_ipv4_and_ipv6() {
    let world = World::new();
    let roundtrip = Roundtrip::build(world.lab.dir()).unwrap();
    let _server = roundtrip.serve(&world.beta, PORT).unwrap();
    for to in [(world.link.right_v4(), PORT).into(), (world.link.right_v6(), PORT).into()] {
        let output = world
            .alpha
            .run("go", roundtrip.go_client(&world.alpha, to, 1 << 20), LIMIT)
            .unwrap()
            .good()
            .unwrap();
        assert!(roundtrip::saw_the_client(&output), "{output:?}");
    }
    assert_eq!(world.connects_sctp(), 2);
}

/// Listens on port argv[1], sends 10 KiB to each client, and closes the connection at once.
const SPEAKS_AND_CLOSES: &str = "
import socket, sys
listener = socket.create_server(('', int(sys.argv[1])), backlog=100)
print('listening', flush=True)
while True:
    connection, peer = listener.accept()
    connection.send(bytes(10240))
    connection.close()
";

/// Connects 300 times to argv[1]:argv[2], reads each connection to the end of file, and prints the total number
/// of bytes.
const LISTENS: &str = "
import socket, sys
count = 0
for number in range(300):
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
    while piece := connection.recv(65536): count += len(piece)
    connection.close()
print(count)
";

/// The server's end of file may reach the client's host before the connection is established there.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_server_that_speaks_and_closes_at_once_is_heard_to_its_end() {
    let world = World::new();
    let _server = world.serve("python3", &["-c", SPEAKS_AND_CLOSES, &PORT.to_string()]);
    assert_eq!(python(&world, LISTENS, PORT), (300 * 10240).to_string());
    assert_eq!(world.connects_sctp(), 300);
}

/// Listens on port argv[1], reads a byte from each client, sends a word, and resets the connection.
const SPEAKS_AND_RESETS: &str = "
import socket, struct, sys
listener = socket.create_server(('', int(sys.argv[1])), backlog=100)
print('listening', flush=True)
while True:
    connection, peer = listener.accept()
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    connection.send(b'enough')
    connection.close()
";

/// Connects to argv[1]:argv[2] 30 times, and reads a second later. Prints how often it got the word before the
/// reset. Also prints the outcomes that do not end with a reset.
const READS_LATE: &str = "
import socket, sys, time
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) for number in range(30)]
for connection in connections: connection.send(b'x')
time.sleep(1)
def read(connection):
    received = b''
    try:
        while piece := connection.recv(100): received += piece
        return received + b' end of file'
    except ConnectionResetError: return received + b' reset'
endings = [read(connection).decode() for connection in connections]
print(endings.count('enough reset'), set(endings) - {'enough reset', ' reset'})
";

/// Of the 30 words, more than this number must arrive. If a reset discarded the data written before it, no word would
/// arrive. If the ABORT did not wait until this data is sent, 15 words would arrive.
const LEAST: u32 = 25;

/// A reset may overtake data that was written before the reset. Over TCP, a reset overtakes data if packets are lost.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn data_written_before_a_reset_mostly_arrives_before_it() {
    for streams in ["own", "shared"] {
        let world = World::with(&format!("streams = \"{streams}\"\n"), true);
        let _server = world.serve("python3", &["-c", SPEAKS_AND_RESETS, &PORT.to_string()]);
        let report = python(&world, READS_LATE, PORT);
        let (count, others) = report.split_once(' ').unwrap();
        assert_eq!(others, "set()", "{streams}");
        assert!(count.parse::<u32>().unwrap() > LEAST, "{streams}: {count} of 30");
        assert_eq!(world.connects_sctp(), 30);
    }
}

/// Listens on port argv[1] with urgent data in line. Returns to each client the data that arrives within a
/// second.
const READS_URGENT_IN_LINE: &str = "
import socket, sys, time
listener = socket.create_server(('', int(sys.argv[1])))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
print('listening', flush=True)
while True:
    connection, peer = listener.accept()
    time.sleep(1)
    connection.sendall(connection.recv(100))
    connection.close()
";

/// Connects to argv[1]:argv[2], sends "ABOR!" with its last byte urgent, as FTP clients do, and prints the
/// answer.
const SPEAKS_URGENTLY: &str = "
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
connection.send(b'ABOR!', socket.MSG_OOB)
print(connection.recv(100).decode())
";

/// SCTP has no urgent data. An urgent byte arrives at its place in the stream, without the urgent mark.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_urgent_byte_comes_in_its_place_in_the_stream() {
    let world = World::new();
    let _server = world.serve("python3", &["-c", READS_URGENT_IN_LINE, &PORT.to_string()]);
    assert_eq!(python(&world, SPEAKS_URGENTLY, PORT), "ABOR!");
    assert_eq!(world.connects_sctp(), 1);
}
