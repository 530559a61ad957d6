//! Tests of connections to one host that share an association. A connection in a shared association must behave exactly
//! like a connection with a separate association.

use crate::world::{BULK, HTTP_PORT, LIMIT, PORT, World, status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testbed::cpu;
use testbed::files::{make_random, sha256};
use testbed::process::wait_for;
use testbed::programs::{Nginx, curl};

const PARALLEL: usize = 100;

/// Makes a first connection with this command. Waits until the association that later connections share is established.
pub(crate) fn warm_up(world: &World, command: std::process::Command) {
    world.alpha.run("first", command, LIMIT).unwrap().good().unwrap();
    let is_there = || {
        let up = |daemon| status(daemon)["counters"]["shared_associations"].as_u64() == Some(1);
        up(&world.alphas) && world.betas.as_ref().is_none_or(up)
    };
    assert!(wait_for(LIMIT, is_there), "no association to share: {}", status(&world.alphas));
}

pub(crate) fn shared(world: &World) -> u64 {
    status(&world.alphas)["counters"]["connects_shared"].as_u64().unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_hundred_parallel_curls_share_one_association_and_arrive_whole() {
    let world = World::new();
    let nginx = Nginx::start(&world.beta).unwrap();
    let file = nginx.root().join("file");
    make_random(&file, 1 << 20).unwrap();
    let url = format!("http://{}/file", world.link.right_v4());
    warm_up(&world, curl(&world.alpha, &url, None));
    let copies = world.lab.dir().join("copies");
    std::fs::create_dir(&copies).unwrap();
    let into = copies.join("#1").display().to_string();
    let (all, url) = (PARALLEL.to_string(), format!("{url}?[1-{PARALLEL}]"));
    let parallel = ["--parallel", "--parallel-immediate", "--parallel-max", &all];
    let args = [&["--silent", "--show-error", "--fail", "--output", &into, &url], &parallel[..]].concat();
    world.alpha.run("curl", world.client("curl", &args), LIMIT).unwrap().good().unwrap();
    let hash = sha256(&file).unwrap();
    for n in 1..=PARALLEL {
        assert_eq!(sha256(&copies.join(n.to_string())).unwrap(), hash, "copy {n}");
    }
    assert_eq!(world.connects_sctp(), 1 + PARALLEL as u64, "over SCTP; others: {}", world.fallbacks());
    assert_eq!(shared(&world), PARALLEL as u64, "shared one: {}", status(&world.alphas)["counters"]);
    assert_eq!(status(&world.alphas)["counters"]["shared_associations"], 1);
    world.wait_quiet();
}

/// Serves connections to port argv[1], each in a thread. The client's first byte selects the behaviour:
///
/// - `e`: echoes the data, and sends "end" after the client's end of file
/// - `r`: resets the connection
/// - `n`: sends the client's address and port
/// - any other byte: keeps the connection open without reading
pub(crate) const SERVER: &str = "
import socket, struct, sys, threading, time
listener = socket.create_server(('', int(sys.argv[1])), backlog=64)
print('listening', flush=True)
def serve(connection):
    word = connection.recv(1)
    if word == b'e':
        while data := connection.recv(65536): connection.sendall(data)
        connection.sendall(b'end')
        connection.close()
    elif word == b'r':
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        connection.close()
    elif word == b'n':
        connection.sendall(connection.getpeername()[0].encode() + b' %d' % connection.getpeername()[1])
        connection.close()
    else:
        time.sleep(1000)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// Prelude of clients of a server at argv[1]:argv[2]. It defines two functions. `connect()` connects, and `ended()`
/// reads to the end of file.
pub(crate) const CLIENT: &str = "
import errno, socket, struct, sys, threading, time
to = (sys.argv[1], int(sys.argv[2]))
def connect(word):
    connection = socket.create_connection(to, 20)
    connection.sendall(word)
    return connection
def ended(connection):
    try:
        data = b''
        while more := connection.recv(65536): data += more
        return data
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
";

/// Creates a world with [`SERVER`] on beta and a shared association.
pub(crate) fn serving() -> (World, testbed::Process) {
    serving_in(World::new())
}

/// Like [`serving`], in an existing world.
pub(crate) fn serving_in(world: World) -> (World, testbed::Process) {
    let server = world.serve("python3", &["-c", SERVER, &PORT.to_string()]);
    let first = world.client(
        "python3",
        &["-c", &format!("{CLIENT}\nended(connect(b'n'))"), &host(&world), &PORT.to_string()],
    );
    warm_up(&world, first);
    (world, server)
}

pub(crate) fn host(world: &World) -> String {
    world.link.right_v4().to_string()
}

/// Runs a client on alpha with `body` after the prelude [`CLIENT`], and returns its output.
pub(crate) fn client(world: &World, body: &str) -> String {
    let program = format!("{CLIENT}\n{body}");
    let command = world.client("python3", &["-c", &program, &host(world), &PORT.to_string()]);
    world.alpha.run("client", command, LIMIT).unwrap().good().unwrap().stdout.trim().to_owned()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_server_sees_the_clients_own_address_and_port() {
    let (world, _server) = serving();
    let body = "c = connect(b'n'); print('%s %d' % c.getsockname() == ended(c).decode())";
    assert_eq!(client(&world, body), "True");
    assert_eq!(shared(&world), 1);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_half_closed_channel_still_carries_the_answer() {
    let (world, _server) = serving();
    let body = "
c = connect(b'e')
c.sendall(b'x' * 1000)
c.shutdown(socket.SHUT_WR)
print(ended(c) == b'x' * 1000 + b'end')";
    assert_eq!(client(&world, body), "True");
    assert_eq!(shared(&world), 1);
    world.wait_quiet();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_reset_of_one_channel_is_a_reset_there_and_nothing_to_its_neighbour() {
    let (world, _server) = serving();
    let body = "
neighbour = connect(b'e')
print(ended(connect(b'r')))
neighbour.sendall(b'still here')
neighbour.shutdown(socket.SHUT_WR)
print(ended(neighbour).decode())";
    assert_eq!(client(&world, body), "ECONNRESET\nstill hereend");
    assert_eq!(shared(&world), 2);
    world.wait_quiet();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_client_that_resets_its_channel_leaves_nothing_behind() {
    let (world, _server) = serving();
    let body = "
c = connect(b'e')
c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
c.close()
print(ended(connect(b'n')) != b'')";
    assert_eq!(client(&world, body), "True");
    world.wait_quiet();
    assert_eq!(shared(&world), 2);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_port_where_nothing_listens_refuses_although_there_is_an_association_to_share() {
    let (world, _server) = serving();
    let body = format!(
        "
try: socket.create_connection((to[0], {HTTP_PORT}), 10)
except OSError as error: print(errno.errorcode[error.errno])"
    );
    assert_eq!(client(&world, &body), "ECONNREFUSED");
    assert_eq!(shared(&world), 0);
    assert_eq!(client(&world, "print(ended(connect(b'n')) != b'')"), "True");
    assert_eq!(shared(&world), 1);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_program_that_does_not_read_stops_its_own_sender_and_nobody_else() {
    let (world, _server) = serving();
    let body = "
slow = connect(b's')
slow.settimeout(2)
written = 0
try:
    while written < 1 << 30: written += slow.send(bytes(1 << 16))
except TimeoutError: pass
quick = connect(b'e')
def send(): quick.sendall(b'y' * 20000000); quick.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
print(written < 64 << 20, ended(quick) == b'y' * 20000000 + b'end')";
    assert_eq!(client(&world, body), "True True");
    assert_eq!(shared(&world), 2);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_death_of_a_daemon_resets_every_channel() {
    for is_at_alpha in [true, false] {
        let (world, _server) = serving();
        let body = "
channels = [connect(b'e') for n in range(5)]
print('ready', flush=True)
print([ended(channel) for channel in channels] == ['ECONNRESET'] * 5)";
        let program = format!("{CLIENT}\n{body}");
        let command = world.client("python3", &["-c", &program, &host(&world), &PORT.to_string()]);
        let mut process = world.alpha.spawn("client", command).unwrap();
        process.wait_until("ready", LIMIT, |process| process.stdout().contains("ready")).unwrap();
        assert_eq!(shared(&world), 5);
        let victim = if is_at_alpha { &world.alpha } else { &world.beta };
        for id in cpu::processes(victim, "sctpifyd").unwrap() {
            kill(Pid::from_raw(id.try_into().unwrap()), Signal::SIGKILL).unwrap();
        }
        assert_eq!(process.finish(LIMIT).unwrap().good().unwrap().stdout, "ready\nTrue\n");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_association_that_nothing_uses_ends_and_the_next_connection_opens_another() {
    let (world, _server) = serving();
    world.alphas.sctpify(&["set", "shared_idle_s=1"]).unwrap().good().unwrap();
    assert_eq!(client(&world, "print(ended(connect(b'n')) != b'')"), "True");
    let is_gone = || status(&world.alphas)["associations"].as_array().is_some_and(Vec::is_empty);
    assert!(wait_for(LIMIT, is_gone), "{}", status(&world.alphas));
    assert_eq!(client(&world, "print(ended(connect(b'n')) != b'')"), "True");
    assert!(wait_for(LIMIT, || status(&world.alphas)["counters"]["shared_associations"] == 2));
    assert_eq!((shared(&world), world.connects_sctp()), (1, 3), "{}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_listener_on_one_address_has_associations_of_its_own() {
    let (world, _server) = serving();
    let bound = format!(
        "
import socket, sys
listener = socket.create_server(('{}', {HTTP_PORT}))
print('listening', flush=True)
while True: listener.accept()[0].close()",
        host(&world)
    );
    let _bound = world.serve("python3", &["-c", &bound]);
    let body =
        format!("print([socket.create_connection((to[0], {HTTP_PORT}), 10).recv(1) for n in range(3)])");
    assert_eq!(client(&world, &body), "[b'', b'', b'']");
    assert_eq!((shared(&world), world.connects_sctp()), (0, 4), "{}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_thousand_short_connections_ten_at_a_time_all_share_one_association() {
    let (world, server) = serving();
    server.stop();
    let _giver = world.serve(BULK, &["give", &PORT.to_string()]);
    let fetch = world.client(BULK, &["fetch", &world.target(), "2000", "100", "10"]);
    world.alpha.run("fetch", fetch, LIMIT).unwrap().good().unwrap();
    assert_eq!(shared(&world), 2_000, "{}", world.fallbacks());
    world.wait_quiet();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_client_port_reused_during_the_servers_time_wait_is_served_again() {
    let (world, _server) = serving();
    let body = "
for n in range(3):
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    c.bind(('', 45678))
    c.connect(to)
    c.sendall(b'n')
    print(ended(c).decode().split()[1])
    c.close()
    time.sleep(0.3)";
    assert_eq!(client(&world, body), "45678\n45678\n45678");
    assert_eq!(shared(&world), 3, "{}", world.fallbacks());
}
