//! Test of an attack by a peer without a key. It opens all associations that it may, and fills their receive buffers with tiny
//! fragments.

use crate::world::{BULK, LIMIT, PORT, World};
use testbed::{Offloads, cpu};

/// Number of associations: the limit on shared associations that the daemon accepts from one address.
const ASSOCIATIONS: &str = "4";
/// Number of pieces, that is, I-DATA chunks, in each association. The chunks of all associations together have at least
/// 17 MB.
const PIECES: &str = "180000";
/// Payload of a piece in octets, and limit on the daemon's memory growth in KiB. With pieces of one octet, the receive
/// window does not grow. With longer pieces, the window grows. One host's associations may use a quarter of
/// `memory_mib`.
const CASES: [(&str, u64); 2] = [("1", 32 << 10), ("16", 128 << 10)];
/// Adaptation code of a shared association (`relay::SHARED_ADAPTATION`).
const ADAPTATION: &str = "0x73637474";

/// Sends the first fragments of messages that never end, on all streams, in I-DATA chunks of SCTP over UDP.
/// Prints the number of established associations, and the number of sent octets. The arguments are:
///
/// - this host's address, and the daemon's address
/// - the number of associations, and the number of pieces in each
/// - the payload of a piece in octets
/// - the adaptation code
const FILLER: &str = "
import select, socket, struct, sys, time
own, daemon, number = sys.argv[1], (sys.argv[2], 9899), int(sys.argv[6], 0)
count, pieces, length = map(int, sys.argv[3:6])
table = []
for n in range(256):
    for _ in range(8): n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
    table.append(n)
def crc32c(data):
    crc = 0xffffffff
    for byte in data: crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xffffffff
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.bind((own, 9899))
out.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
sent = 0
def pad(data): return data + bytes(-len(data) % 4)
def tlv(kind, body): return pad(struct.pack('!HH', kind, 4 + len(body)) + body)
def chunk(kind, flags, body): return pad(struct.pack('!BBH', kind, flags, 4 + len(body)) + body)
def send(port, tag, chunks):
    global sent
    packet = struct.pack('!HHII', port, 9899, tag, 0) + chunks
    sent += len(packet)
    out.sendto(packet[:8] + struct.pack('<I', crc32c(packet)) + packet[12:], daemon)
def answer(port, kinds):
    end = time.time() + 3
    while select.select([out], [], [], max(0, end - time.time()))[0]:
        packet = out.recv(65536)
        if struct.unpack('!H', packet[2:4])[0] == port and packet[12] in kinds: return packet
def cookie_of(packet):
    at = 32
    while True:
        kind, length = struct.unpack('!HH', packet[at:at + 4])
        if kind == 7: return packet[at + 4:at + length]
        at += length + -length % 4
up = 0
for n in range(count):
    port = 20000 + n
    offers = tlv(0x8008, bytes([64, 194, 192, 193, 128, 15])) + tlv(0xc006, struct.pack('!I', number)) + tlv(0xc000, b'')
    send(port, 0, chunk(1, 0, struct.pack('!IIHHI', 1 + n, 1 << 20, 65535, 65535, 1) + offers))
    reply = answer(port, (2, 6))
    if reply is None or reply[12] != 2: break
    tag, _, _, streams = struct.unpack('!IIHH', reply[16:28])
    send(port, tag, chunk(10, 0, cookie_of(reply)))
    reply = answer(port, (11, 6))
    if reply is None or reply[12] != 11: break
    up += 1
    per_packet = 1400 // (20 + length + -length % 4)
    for first in range(0, pieces, per_packet):
        numbers = range(first, first + per_packet)
        parts = (struct.pack('!IHHII', 1 + x, x % streams, 0, x // streams, 0) + bytes(length) for x in numbers)
        send(port, tag, b''.join(chunk(64, 2, part) for part in parts))
        if first % (8 * per_packet) == 0: time.sleep(0.001)
        while select.select([out], [], [], 0)[0]: out.recv(65536)
print(up, sent)
";

/// Fills the memory of beta's daemon while a connection of alpha stays active. Returns the growth of the daemon
/// in KiB, and the output of [`FILLER`].
fn fill(payload: &str) -> (u64, String) {
    let world = World::new();
    let filler = world.lab.host("filler").unwrap();
    let side = world.lab.join(&filler, &world.beta, 3, Offloads::Off).unwrap();
    let echo = world.serve(BULK, &["echo", &PORT.to_string()]);
    // The ping program makes 20,000 round trips, so the connection is active during the attack.
    let ping =
        world.alpha.spawn("ping", world.client(BULK, &["ping", &world.target(), "20000", "100"])).unwrap();
    let memory = || cpu::anonymous_memory_kib(&world.beta, "sctpifyd").unwrap();
    let before = memory();
    let (own, daemon) = (side.left_v4().to_string(), side.right_v4().to_string());
    let mut command = filler.command("python3");
    command.args(["-c", FILLER, &own, &daemon, ASSOCIATIONS, PIECES, payload, ADAPTATION]);
    let output = filler.run("filler", command, LIMIT).unwrap().good().unwrap().stdout;
    let grown = memory().saturating_sub(before);
    let pings = ping.finish(LIMIT).unwrap().good().unwrap().stdout;
    assert_eq!(pings.lines().count(), 20_000);
    drop(echo);
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let connect = world.client(BULK, &["connect", &world.target(), "1"]);
    world.alpha.run("connect", connect, LIMIT).unwrap().good().unwrap();
    assert_eq!(world.connects_sctp(), 2, "{}", world.fallbacks());
    (grown, output)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_flood_of_tiny_fragments_takes_bounded_memory_and_other_connections_continue() {
    for (payload, most) in CASES {
        let (grown, report) = fill(payload);
        println!("pieces of {payload} octets: {grown} KiB more; associations and octets sent: {report}");
        assert!(
            grown < most,
            "memory grew by {grown} KiB; established associations and sent octets: {report}"
        );
        let up: u32 = report.split(' ').next().and_then(|up| up.parse().ok()).unwrap();
        assert_eq!(up, 4, "established associations and sent octets: {report}");
    }
}
