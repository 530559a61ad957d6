//! Test in which programs of other users try to bind the UDP port of a busy daemon.

use crate::world::{BULK, LIMIT, PORT, World, status};
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Host, Offloads, Process, Programs};

/// UDP port that carries SCTP.
const UDP_PORT: u16 = 9899;
/// Prelude that makes a program run as the unprivileged user `nobody`. The prelude first imports the modules, because
/// this user may lack read access to them.
const AS_NOBODY: &str = "
import errno, os, socket, sys, time
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
";
/// Number of hosts with heavy traffic to one address of beta. It equals the daemon's limit on connected receive sockets
/// for IPv4 (`netio::CONNECTED_RX_MAX`).
const BUSY: usize = 4;
/// Duration of the attack, in seconds. The duration suffices: if the port becomes free for moments, an attacker gets it
/// within a third of a second.
const SECONDS: &str = "10";
/// Minimum number of an attacker's attempts in [`SECONDS`].
const TRIES_MIN: u64 = 50_000;

/// Tries for argv[3] seconds to bind port argv[2] of each address in argv[4..], with the socket option argv[1]. The
/// program first binds a free port, to prove that it may bind ports at all.
const BINDER: &str = "
option, port, end = getattr(socket, sys.argv[1]), int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
sockets, tries = [], 0
for address in sys.argv[4:]:
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    for held in (port - 1, None):
        s = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.setsockopt(socket.SOL_SOCKET, option, 1)
        if held: s.bind((address, held)); s.close()
        else: sockets.append((s.bind, (address, port)))
print('ready', flush=True)
while time.monotonic() < end:
    for n in range(1000):
        for bind, to in sockets:
            tries += 1
            try: bind(to)
            except OSError as e:
                if e.errno != errno.EADDRINUSE: raise
            else:
                print('bound', to, 'after', tries, flush=True); sys.exit(1)
print('tries', tries)
";

/// Sends one octet repeatedly to port argv[1] of many addresses of this host (127.0.0.2, 127.0.0.3 and so on), for
/// argv[2] seconds.
const JUNK: &str = "
port, end, last = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), 2
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
print('ready', flush=True)
while time.monotonic() < end:
    to = ('127.0.%d.%d' % (last >> 8, last & 255), port)
    for n in range(2600):
        s.sendto(b'x', to)
        if n % 64 == 63: time.sleep(0.001)
    last += 1
print('addresses', last - 2)
";

/// Reads each client's data to the end.
const READER: &str = "
import socket, sys, threading
def read(client):
    while client.recv(1 << 18): pass
    client.close()
listener = socket.create_server(('', int(sys.argv[1])))
print('listening')
while True: threading.Thread(target=read, args=(listener.accept()[0],), daemon=True).start()
";

/// Starts an attacking program on a host as the user `nobody`, and waits until the program is ready.
fn attack(host: &Host, name: &str, program: &str, args: &[&str]) -> Process {
    let mut command = host.command("python3");
    command.args(["-u", "-c"]).arg(format!("{AS_NOBODY}{program}")).args(args);
    let mut process = host.spawn(name, command).unwrap();
    process.wait_until("ready", LIMIT, |process| process.stdout().contains("ready")).unwrap();
    process
}

/// Returns the number that follows `word` in an attacker's output. Panics if the attacker failed.
fn reported_number(process: Process, word: &str) -> u64 {
    let stdout = process.finish(LIMIT).unwrap().good().unwrap().stdout;
    let last = stdout.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("{stdout}"));
    last.trim().parse().unwrap()
}

/// Creates a host with a daemon and a separate link to beta. Over this link, the host reaches the address of beta that
/// all busy hosts use. The host drops its packets to beta's other addresses. Otherwise, on a busy machine, data could
/// move to a path to another address.
fn busy_host(world: &World, number: u8) -> (Host, Daemon) {
    let host = world.lab.host(&format!("busy{number}")).unwrap();
    let link = world.lab.join(&host, &world.beta, 10 + number, Offloads::Off).unwrap();
    let (to, via) = (world.link.right_v4().to_string(), link.right_v4().to_string());
    host.ip(&["route", "add", &to, "via", &via]).unwrap();
    let others =
        format!("udp dport {UDP_PORT} ip daddr != {to} drop; udp dport {UDP_PORT} meta nfproto ipv6 drop;");
    let table = format!("table inet one {{ chain out {{ type filter hook output priority 0; {others} }}; }}");
    host.tool("nft", &[&table]).unwrap();
    let daemon = Daemon::start(&host, &Programs::find().unwrap(), "").unwrap();
    let port = PORT.to_string();
    daemon.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    (host, daemon)
}

/// Returns the local address and port of each of beta's sockets that is connected to a peer.
fn connected(beta: &Host) -> Vec<String> {
    let listed = beta.tool("ss", &["-Hun", "state", "established", "sport", "=", ":9899"]).unwrap();
    listed.lines().filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned())).collect()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn other_users_cannot_bind_the_udp_port_while_the_daemon_opens_sockets_for_busy_peers() {
    let world = World::without_offloads();
    let busy: Vec<_> = (1..=BUSY as u8).map(|number| busy_host(&world, number)).collect();
    let _server = world.serve("python3", &["-u", "-c", READER, &PORT.to_string()]);
    let ours = world.link.right_v4().to_string();
    let port = UDP_PORT.to_string();
    let addresses = [&*ours, "127.0.0.1", "0.0.0.0"];
    let binders = ["SO_REUSEADDR", "SO_REUSEPORT"].map(|option| {
        let args = [&[option, &port, SECONDS], &addresses[..]].concat();
        attack(&world.beta, option, BINDER, &args)
    });
    let junk = attack(&world.beta, "junk", JUNK, &[&port, SECONDS]);
    let received_at_ours = || connected(&world.beta).iter().filter(|own| own.starts_with(&ours)).count();
    for (before, (host, daemon)) in busy.iter().enumerate() {
        let send = || {
            let mut send = host.command(BULK);
            send.args(["send", &world.target(), "0.5", "65536"]);
            host.run("send", send, LIMIT).unwrap().good().unwrap();
        };
        send();
        assert_eq!(status(daemon)["counters"]["connects_sctp"], 1, "the busy peer is served");
        // While the attackers run, data may use another path for a while.
        let has_socket = || {
            let has = received_at_ours() > before;
            if !has {
                send();
            }
            has
        };
        assert!(wait_for(LIMIT, has_socket), "{:?}", connected(&world.beta));
    }
    let get = world.client(BULK, &["connect", &world.target(), "20"]);
    world.alpha.run("honest", get, LIMIT).unwrap().good().unwrap();
    assert_eq!(world.connects_sctp(), 20, "{}", world.fallbacks());
    let [by_address, by_port] = binders.map(|binder| reported_number(binder, "tries"));
    assert!(by_address.min(by_port) > TRIES_MIN, "{by_address}, {by_port}");
    let has_all = || received_at_ours() == BUSY;
    assert!(wait_for(Duration::from_secs(5), has_all), "{:?}", connected(&world.beta));
    assert!(reported_number(junk, "addresses") > 10, "each of these would have had a socket");
    let for_junk: Vec<_> = connected(&world.beta).into_iter().filter(|own| own.starts_with("127.")).collect();
    assert!(for_junk.is_empty(), "{for_junk:?}");
}
