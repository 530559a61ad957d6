//! Tests of shared associations in unusual conditions: a host's address changes, a NAT is on the path, both
//! hosts open a shared association at the same time, or a daemon dies during transfers.

use crate::deaths::{SEND_TO_ALL, Victims, kill_processes, victim};
use crate::roaming::share_key;
use crate::streams::{CLIENT, SERVER, client, host, serving, serving_in, shared, warm_up};
use crate::world::{LIMIT, PORT, World, status};
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Lab, Offloads, Process, Programs};

/// Starts a client on alpha with `body` after the prelude [`CLIENT`], and waits until it prints "ready".
fn start(world: &World, body: &str) -> Process {
    let program = format!("{CLIENT}\n{body}");
    let command = world.client("python3", &["-c", &program, &host(world), &PORT.to_string()]);
    let mut process = world.alpha.spawn("client", command).unwrap();
    process.wait_until("ready", LIMIT, |process| process.stdout().contains("ready")).unwrap();
    process
}

/// Sends a word on each of five channels, twenty times per second for six seconds, and checks each answer.
const SPEAK: &str = "
channels = [connect(b'e') for n in range(5)]
def hear(channel, count):
    data = b''
    while len(data) < count: data += channel.recv(count - len(data))
    return data
print('ready', flush=True)
for n in range(120):
    for channel in channels: channel.sendall(b'%04d' % n)
    assert all(hear(channel, 4) == b'%04d' % n for channel in channels)
    time.sleep(0.05)
print('heard all')";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn channels_survive_an_address_change_and_new_connections_show_the_new_address() {
    let world = World::new();
    // Without a key, beta would not accept that alpha replaces its only address.
    share_key(&world);
    let (world, _server) = serving_in(world);
    let talk = start(&world, SPEAK);
    let name = world.link.name();
    world.alpha.ip(&["addr", "flush", "dev", &name, "scope", "global"]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    world.alpha.ip(&["addr", "add", "10.77.1.99/24", "dev", &name]).unwrap();
    let output = talk.finish(LIMIT).unwrap().good().unwrap().stdout;
    assert!(output.contains("heard all"), "{output}");
    assert_eq!(shared(&world), 5);
    let output = client(&world, "print(ended(connect(b'n')).decode().split()[0])");
    assert_eq!(output, "10.77.1.99");
    assert_eq!((shared(&world), world.connects_sctp()), (6, 7), "{}", world.fallbacks());
}

/// Creates a world in which a NAT hides alpha from beta.
fn behind_nat() -> World {
    const MASQUERADE: &str =
        "add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; };
        add rule ip nat post oifname path2 masquerade";
    let (programs, lab) = (Programs::find().unwrap(), Lab::new().unwrap());
    let [alpha, nat, beta] = ["alpha", "nat", "beta"].map(|name| lab.host(name).unwrap());
    let inner = lab.join(&alpha, &nat, 1, Offloads::On).unwrap();
    let link = lab.join(&nat, &beta, 2, Offloads::On).unwrap();
    nat.tool("sysctl", &["-q", "-w", "net.ipv4.ip_forward=1"]).unwrap();
    nat.tool("nft", &[MASQUERADE]).unwrap();
    alpha.ip(&["route", "add", "default", "via", &inner.right_v4().to_string()]).unwrap();
    let [alphas, betas] = [&alpha, &beta].map(|host| Daemon::start(host, &programs, "").unwrap());
    let rule = |daemon: &Daemon, chain| {
        let words = ["-A", "-c", chain, "-p", "enable", "-P", &PORT.to_string()];
        daemon.shimrules(&words).unwrap().good().unwrap();
    };
    rule(&alphas, "remote");
    rule(&betas, "local");
    World { alpha, beta, link, alphas, betas: Some(betas), lab }
}

/// Behind a NAT, the client's own address differs from the address that the server's host has confirmed. A
/// connection can use a channel only if these addresses are equal.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_client_address_that_the_peer_has_not_proven_gets_no_channel_but_an_association_of_its_own() {
    let world = behind_nat();
    let _server = world.serve("python3", &["-c", SERVER, &PORT.to_string()]);
    let first = format!("{CLIENT}\nended(connect(b'n'))");
    let first = world.client("python3", &["-c", &first, &host(&world), &PORT.to_string()]);
    warm_up(&world, first);
    let body = "for n in range(3): print(ended(connect(b'n')).decode().split()[0])";
    let outside = world.link.left_v4();
    assert_eq!(client(&world, body), format!("{outside}\n{outside}\n{outside}"));
    assert_eq!((shared(&world), world.connects_sctp()), (0, 4), "{}", world.fallbacks());
    let betas = world.betas.as_ref().unwrap();
    assert!(betas.log().contains("reason=Unproven"), "{}", betas.log());
    let doctor = world.alphas.sctpify(&["doctor", &host(&world)]).unwrap().stdout;
    assert!(doctor.contains("the peer sees 10.77.1.1 of this host as another address"), "{doctor}");
}

/// Makes 100 connections to the other host, four at a time. Prints two numbers: the connections in which the
/// server saw the client's own address and port, and all connections.
const CROSSWISE: &str = "
seen = []
def ask():
    for n in range(25):
        c = connect(b'n')
        name = b'%s %d' % (c.getsockname()[0].encode(), c.getsockname()[1])
        seen.append(ended(c) == name)
threads = [threading.Thread(target=ask) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(seen.count(True), len(seen))";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn hosts_that_begin_to_share_with_each_other_at_once_serve_all_connections() {
    let world = World::new();
    let (alphas, betas, port) = (&world.alphas, world.betas.as_ref().unwrap(), PORT.to_string());
    for (daemon, chain) in [(alphas, "local"), (betas, "remote")] {
        daemon.shimrules(&["-A", "-c", chain, "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    }
    let ends = [(&world.alpha, world.link.right_v4()), (&world.beta, world.link.left_v4())];
    let servers = ends.map(|(here, _)| {
        let mut command = here.command("python3");
        command.args(["-c", SERVER, &port]);
        let mut server = here.spawn("server", command).unwrap();
        server.wait_until("listening", LIMIT, |server| server.stdout().contains("listening")).unwrap();
        server
    });
    let program = format!("{CLIENT}\n{CROSSWISE}");
    let clients = ends.map(|(here, there)| {
        let mut command = here.command("python3");
        command.args(["-c", &program, &there.to_string(), &port]);
        here.spawn("client", command).unwrap()
    });
    for client in clients {
        assert_eq!(client.finish(LIMIT).unwrap().good().unwrap().stdout, "100 100\n");
    }
    for daemon in [alphas, betas] {
        let counters = status(daemon)["counters"].take();
        assert_eq!(counters["connects_sctp"], 100, "{counters}");
        assert!(counters["connects_shared"].as_u64() > Some(50), "{counters}");
    }
    drop(servers);
    world.wait_quiet();
}

/// Runs twenty transfers, and prints the outcome of each. Only the end of file marks a transfer's end.
const FETCH: &str = "
def fetch(n):
    got = 0
    try:
        while piece := channels[n].recv(65536): got += len(piece)
        ends[n] = 'whole' if got == int(LENGTH) else 'cut %d' % got
    except OSError as error: ends[n] = errno.errorcode[error.errno]
channels = [socket.create_connection(to, 20) for n in range(20)]
ends = [None] * 20
threads = [threading.Thread(target=fetch, args=(n,)) for n in range(20)]
for thread in threads: thread.start()
print('ready', flush=True)
for thread in threads: thread.join()
print(' '.join(ends))";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn death_of_a_shared_association_during_transfers_resets_every_connection() {
    const LENGTH: u64 = 256 << 20;
    for is_at_alpha in [true, false] {
        let (world, server) = serving();
        server.stop();
        let _sender =
            world.serve("python3", &["-u", "-c", SEND_TO_ALL, &PORT.to_string(), &LENGTH.to_string()]);
        let fetches = start(&world, &FETCH.replace("LENGTH", &LENGTH.to_string()));
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(shared(&world), 20, "{}", world.fallbacks());
        let (host, daemon) = victim(&world, is_at_alpha);
        kill_processes(host, daemon, Victims::All);
        let output = fetches.finish(LIMIT).unwrap().good().unwrap().stdout;
        assert_eq!(output, format!("ready\n{}\n", ["ECONNRESET"; 20].join(" ")), "at alpha {is_at_alpha}");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn one_program_of_thirty_that_does_not_read_stops_nobody_else() {
    let (world, _server) = serving();
    let body = "
slow = connect(b's')
slow.settimeout(1)
try:
    while True: slow.send(bytes(1 << 16))
except TimeoutError: pass
done = []
def echo():
    channel = connect(b'e')
    def send(): channel.sendall(b'y' * 1000000); channel.shutdown(socket.SHUT_WR)
    threading.Thread(target=send).start()
    done.append(ended(channel) == b'y' * 1000000 + b'end')
threads = [threading.Thread(target=echo) for n in range(29)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(done.count(True))";
    assert_eq!(client(&world, body), "29");
    assert_eq!(shared(&world), 30);
    assert!(wait_for(LIMIT, || status(&world.alphas)["counters"]["shared_associations"] == 1));
}
