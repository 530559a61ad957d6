//! Test of an off-path attacker that knows addresses and ports. It forges packets that claim that the server
//! has no SCTP.

use crate::world::{LIMIT, PORT};
use std::time::Duration;
use testbed::{Daemon, DelayedLink, Lab, Offloads, Programs};

/// Source ports of connections. The forger knows these ports. It must guess only the verification tag.
const FROM: [u16; 3] = [40_000, 40_001, 40_002];
/// One-way delay of the link. The forger can send many packets before the delayed INIT ACK arrives. The
/// round trip is shorter than the race timer.
const ONE_WAY: Duration = Duration::from_millis(50);

/// Forges packets without end. argv[1] is the client's address, argv[2] the server's address, argv[3] the
/// server's port. The other arguments are the client's ports.
const FORGER: &str = "
import random, socket, struct, sys, time
client, server, port = socket.inet_aton(sys.argv[1]), socket.inet_aton(sys.argv[2]), int(sys.argv[3])
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8): crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
def inet(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def ip(protocol, source, to, body):
    return struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(body), 0, 0, 64, protocol, 0) + source + to + body
def send(protocol, body): out.sendto(ip(protocol, server, client, body), (sys.argv[1], 0))
def abort(to, tag, flags):
    packet = struct.pack('!HHII', port, to, tag, 0) + struct.pack('!BBH', 6, flags, 4)
    packet = packet[:8] + struct.pack('<I', crc32c(packet)) + packet[12:]
    send(132, packet)
    send(17, struct.pack('!HHHH', 9899, 9899, 8 + len(packet), 0) + packet)
def icmp(to, code, protocol, length, chunk):
    init = struct.pack('!HHII', to, port, 0, 0) + struct.pack('!BBHI', chunk, 0, 20, random.getrandbits(32))
    quoted = init[:length]
    if protocol == 17: quoted = struct.pack('!HHHH', 9899, 9899, 300, 0) + quoted
    body = struct.pack('!BBHI', 3, code, 0, 0) + ip(protocol, client, server, quoted)
    send(1, body[:2] + struct.pack('!H', inet(body)) + body[4:])
print('ready', flush=True)
while True:
    for to in map(int, sys.argv[4:]):
        for tag, flags in (0, 0), (0, 1), (random.getrandbits(32), 0), (random.getrandbits(32), 1):
            abort(to, tag, flags)
        for length, chunk in (0, 1), (8, 1), (12, 1), (20, 1), (20, 0):
            icmp(to, 3, 17, length, chunk)
            icmp(to, 2, 132, length, chunk)
    time.sleep(0.002)
";

/// Connects to argv[1]:argv[2] from port argv[3], reads once, and prints the data.
const CLIENT: &str = "
import socket, sys
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20, ('', int(sys.argv[3])))
print(stream.recv(100))
";

/// Sends a greeting to each client on port argv[1].
const SERVER: &str = "
import socket, sys
listener = socket.create_server(('', int(sys.argv[1])))
print('listening')
while True:
    client = listener.accept()[0]
    client.sendall(b'hello')
    client.close()
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn forged_aborts_and_icmp_errors_cause_no_fallback_and_no_false_cache_entry() {
    let programs = Programs::find().unwrap();
    let lab = Lab::new().unwrap();
    let [alpha, beta, forger] = ["alpha", "beta", "forger"].map(|name| lab.host(name).unwrap());
    let linkemu = programs.path("linkemu");
    let delayed = DelayedLink::between(&lab, &alpha, &beta, 1, ONE_WAY, &linkemu).unwrap();
    let (client, server) = (delayed.link.left_v4().to_string(), delayed.link.right_v4().to_string());
    let side = lab.join(&alpha, &forger, 3, Offloads::Off).unwrap();
    forger.ip(&["route", "add", "default", "via", &side.left_v4().to_string()]).unwrap();
    let (alphas, betas) =
        (Daemon::start(&alpha, &programs, "").unwrap(), Daemon::start(&beta, &programs, "").unwrap());
    let port = PORT.to_string();
    alphas.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    betas.shimrules(&["-A", "-c", "local", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    let python = |host: &testbed::Host, args: &[&str]| {
        let mut command = host.command("python3");
        command.args(["-u", "-c"]).args(args);
        command
    };
    let mut serving = beta.spawn("server", python(&beta, &[SERVER, &port])).unwrap();
    serving.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    let ports = FROM.map(|port| port.to_string());
    let args: Vec<&str> =
        [FORGER, &client, &server, &port].into_iter().chain(ports.iter().map(|p| &**p)).collect();
    let mut forging = forger.spawn("forger", python(&forger, &args)).unwrap();
    forging.wait_until("ready", LIMIT, |process| process.stdout().contains("ready")).unwrap();
    for from in &ports {
        let output = alpha
            .run("client", python(&alpha, &[CLIENT, &server, &port, from]), LIMIT)
            .unwrap()
            .good()
            .unwrap();
        assert_eq!(output.stdout, "b'hello'\n", "from port {from}");
    }
    assert!(forging.is_running(), "{}", forging.stderr());
    let status = alphas.sctpify(&["status"]).unwrap().good().unwrap().stdout;
    assert!(status.contains("connects: 3 seen, 3 over SCTP, 0 fell back"), "{status}");
    let listed = alphas.shimrules(&["-L"]).unwrap().good().unwrap().stdout;
    assert!(listed.contains(&format!("{server}    enable")), "{listed}");
}
