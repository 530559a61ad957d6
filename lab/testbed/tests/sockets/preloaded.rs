//! Tests of programs that get SCTP sockets from the preloaded library.

use std::fs;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testbed::process::wait_for;
use testbed::{Capture, Host, c_programs};

use crate::world::{LENGTH, LIMIT, NOBODY, PORT, PRELUDE, SOMEBODY, World, as_user, server_in};

/// Reads from a connection until the peer sends END. Then answers with the number of octets that it has read.
const COUNTER: &str = "
s, peer = listen(sys.argv[1]).accept()
total = 0
while (message := s.recv(65536)) != b'END': total += len(message)
s.send(f'{total} octets from {peer[0]}'.encode())
s.recv(1)
";

/// Sends argv[3] octets to argv[1]:argv[2] in messages of 8 KiB, with a pause of argv[4] milliseconds after each
/// message.
const SENDER: &str = "
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
print('connected', flush=True)
for n in range(int(sys.argv[3]) // 8192):
    s.send(bytes(8192)); time.sleep(float(sys.argv[4]) / 1000)
s.send(b'END')
print(s.recv(100).decode())
";
/// Pause after each message, in milliseconds. With it, a transfer lasts some seconds.
const PACED: &str = "5";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_file_passes_both_ways_whole_in_packets_without_a_fault() {
    let world = World::new(1);
    let dir = world.alpha.dir().unwrap();
    let file = dir.join("file");
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    fs::write(&file, &bytes).unwrap();
    let capture = Capture::start(&world.alpha, "wire", &[&world.links[0].name()]).unwrap();
    let listen = format!("SCTP-LISTEN:{PORT}");
    let connect = format!("SCTP:{}:{PORT}", world.to());
    let (from, into) = (format!("OPEN:{}", file.display()), dir.join("copy"));
    let create = format!("OPEN:{},creat,trunc", into.display());
    for (server, client) in
        [([listen.as_str(), &create], [from.as_str(), &connect]), ([&from, &listen], [&connect, &create])]
    {
        let mut command = world.sctp(&world.beta);
        command.args(["socat", "-u"]).args(server);
        let server = world.beta.spawn("server", command).unwrap();
        assert!(wait_for(LIMIT, || world.rows(&world.beta).iter().any(|row| row["state"] == "LISTEN")));
        let mut command = world.sctp(&world.alpha);
        command.args(["socat", "-u"]).args(client);
        world.alpha.run("client", command, LIMIT).unwrap().good().unwrap();
        server.finish(LIMIT).unwrap().good().unwrap();
        assert!(fs::read(&into).unwrap() == bytes, "the copy differs");
        fs::remove_file(&into).unwrap();
    }
    let seen = capture.judge().unwrap();
    assert_eq!((seen.carrier(), seen.tcp, seen.faulty), ("sctp-udp", 0, 0), "{:?}", seen.faults);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_program_does_not_notice_the_death_of_the_first_of_two_paths() {
    let world = World::new(2);
    let _server = world.serve(COUNTER);
    let length = LENGTH.to_string();
    let to = world.to();
    let command = world.python(&world.alpha, SENDER, &[&to, PORT, &length, PACED]);
    let client = world.alpha.spawn("client", command).unwrap();
    let in_use = |world: &World| {
        let rows = world.rows(&world.alpha);
        let paths = rows.iter().flat_map(|row| row["paths"].as_array().unwrap().clone());
        paths.filter(|path| path["in_use"] == true).map(|path| path["remote"].clone()).next()
    };
    assert!(wait_for(LIMIT, || in_use(&world) == Some(to.clone().into())), "the first path carries it");
    let second = world.links[1].right_v4().to_string();
    assert!(wait_for(LIMIT, || world.rows(&world.alpha)[0]["paths"]
        .as_array()
        .unwrap()
        .iter()
        .any(|path| path["remote"] == second.as_str() && path["state"] == "active")));
    world.links[0].silence().unwrap();
    assert!(
        wait_for(LIMIT, || in_use(&world) == Some(second.clone().into())),
        "{:?}",
        world.rows(&world.alpha)
    );
    let output = client.finish(LIMIT).unwrap().good().unwrap().stdout;
    assert_eq!(
        output.lines().last(),
        Some(format!("{LENGTH} octets from {}", world.links[0].left_v4()).as_str())
    );
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_killed_program_leaves_no_association() {
    let world = World::new(1);
    let mut server = world.serve(
        "
s, _ = listen(sys.argv[1]).accept()
print(error(s.recv, 10), error(s.recv, 10), flush=True)
",
    );
    let to = world.to();
    let client = "
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
print('connected', flush=True)
time.sleep(60)
";
    let mut client = world.alpha.spawn("client", world.python(&world.alpha, client, &[&to, PORT])).unwrap();
    client.wait_until("connected", LIMIT, |process| process.stdout().contains("connected")).unwrap();
    assert_eq!(world.rows(&world.alpha).len(), 1);
    let rows = world.rows(&world.alpha);
    assert_eq!(rows[0]["state"], "ESTABLISHED");
    // Kills the program itself, which is the last child process: `sctpify` has started the socket server before the
    // program.
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", client.id())).unwrap();
    let python: i32 = children.split_whitespace().last().unwrap().parse().unwrap();
    kill(Pid::from_raw(python), Signal::SIGKILL).unwrap();
    server.wait_until("end", LIMIT, |process| process.stdout().lines().count() == 2).unwrap();
    assert_eq!(server.stdout(), "listening\nb'' b''\n");
    for host in [&world.alpha, &world.beta] {
        assert!(wait_for(LIMIT, || world.rows(host).is_empty()), "{:?}", world.rows(host));
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_raw_write_that_bypasses_the_library_ends_only_its_own_association() {
    let world = World::new(1);
    let server = "
l = listen(sys.argv[1])
a, _ = l.accept(); b, _ = l.accept()
print(error(a.recv, 100), flush=True)
b.send(b'still here')
";
    let mut server = world.serve(server);
    let client = "
import ctypes
libc = ctypes.CDLL(None)
a = sctp(); a.connect((sys.argv[1], int(sys.argv[2])))
b = sctp(); b.connect((sys.argv[1], int(sys.argv[2])))
assert libc.syscall(1, a.fileno(), b'GET / HTTP/1.0', 14) == 14
print(b.recv(100), error(a.recv, 100))
";
    assert_eq!(world.ask(client, &[]).good().unwrap().stdout, "b'still here' ECONNRESET\n");
    server.wait_until("the end", LIMIT, |process| process.stdout().lines().count() == 2).unwrap();
    assert_eq!(server.stdout(), "listening\nECONNRESET\n");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_one_to_many_program_that_writes_past_the_library_loses_all_its_associations() {
    let world = World::new(1);
    let server = "
l = listen(sys.argv[1])
a, _ = l.accept()
print(a.recv(100), error(a.recv, 100), flush=True)
";
    let mut server = world.serve(server);
    let client = "
import ctypes
libc = ctypes.CDLL(None)
s = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132)
s.sendto(b'hello', (sys.argv[1], int(sys.argv[2])))
assert libc.syscall(1, s.fileno(), b'GET / HTTP/1.0', 14) == 14
time.sleep(1)
";
    world.ask(client, &[]).good().unwrap();
    server.wait_until("the end", LIMIT, |process| process.stdout().lines().count() == 2).unwrap();
    assert_eq!(server.stdout(), "listening\nb'hello' ECONNRESET\n");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_reader_that_stalls_costs_its_own_association_only() {
    let world = World::new(1);
    let server = "
l = listen(sys.argv[1])
a, _ = l.accept(); b, _ = l.accept()
while True: b.send(b.recv(100))
";
    let _server = world.serve(server);
    let client = "
a = sctp(); a.connect((sys.argv[1], int(sys.argv[2])))
b = sctp(); b.connect((sys.argv[1], int(sys.argv[2])))
a.setblocking(False)
sent, until = 0, time.monotonic() + 20
while time.monotonic() < until:
    if error(a.send, bytes(60000)) == 'EAGAIN':
        if not select.select([], [a], [], 1)[1]: break
    else: sent += 60000
b.send(b'echo')
print(4 << 20 < sent < 64 << 20, b.recv(100))
";
    assert_eq!(world.ask(client, &[]).good().unwrap().stdout, "True b'echo'\n");
}

/// Passes sockets to the socket server argv[1]. The last close of each of these sockets takes a minute. One connection
/// passes one socket in a request. Another connection passes one socket in each of two requests. A third connection
/// passes 200 descriptors of a socket in one request, which are too many.
const LINGERING: &str = "
import array, struct, threading
def lingering():
    listener = socket.socket(); listener.bind(('127.0.0.1', 0)); listener.listen()
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 60))
    s.connect(listener.getsockname()); s.setblocking(False)
    try:
        while True: s.send(bytes(65536))
    except BlockingIOError: pass
    return s, listener
keep = []
for messages, copies in ((1, 1), (2, 1), (1, 200)):
    c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); c.connect('\\0' + sys.argv[1])
    for _ in range(messages):
        s, listener = lingering(); keep.append(listener)
        rights = array.array('i', [s.fileno()] * copies)
        error(c.sendmsg, [b'x' * 16], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        threading.Thread(target=s.close, daemon=True).start()
    keep.append(c)
time.sleep(1); print('passed', flush=True); time.sleep(60)
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn descriptors_that_do_not_close_do_not_block_the_socket_server_for_other_users() {
    let world = World::new(1);
    let server = world.serve("while True: listen(sys.argv[1]).accept()[0].recv(1)");
    // The socket server of root serves all users.
    let mut attacks = Vec::new();
    for user in [NOBODY, SOMEBODY] {
        let mut command = world.beta.command("env");
        command.args(["python3", "-c", &format!("{PRELUDE}{LINGERING}"), "sctpify-sockets-0"]);
        let mut attack = world.beta.spawn("attack", as_user(user, &world.beta, &command)).unwrap();
        attack.wait_until("passed", LIMIT, |process| process.stdout().contains("passed")).unwrap();
        attacks.push(attack);
    }
    let client = "s = sctp(); s.settimeout(10); print(error(s.connect, (sys.argv[1], int(sys.argv[2]))))";
    assert_eq!(world.ask(client, &[]).good().unwrap().stdout, "None\n", "{}", server.stderr());
}

/// In eight processes, connects to the socket server argv[1] and closes the connection, repeatedly and as fast as
/// possible.
const FLOOD: &str = "
print('ready', flush=True)
for _ in range(3): os.fork()
until = time.monotonic() + 60
while time.monotonic() < until:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as c: error(c.connect, '\\0' + sys.argv[1])
";

/// Connects 3000 times to the socket server argv[1], sends nothing, and keeps 500 of the connections. Runs after
/// [`LINGERING`].
const SILENT: &str = "
silent = []
for _ in range(3000):
    c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); c.settimeout(1)
    if error(c.connect, '\\0' + sys.argv[1]): break
    if len(silent) < 500: silent.append(c)
print('silent', flush=True); time.sleep(60)
";

/// Exchanges messages on a socket that stays open, and on a new socket in each round.
const EXCHANGE: &str = "
kept = sctp(); kept.connect((sys.argv[1], int(sys.argv[2])))
for n in range(100):
    s = sctp(); s.settimeout(20); s.connect((sys.argv[1], int(sys.argv[2])))
    for each in (s, kept):
        each.send(b'%d' % n); assert each.recv(100) == b'%d' % n
    s.close()
print('done')
";

const ECHO_TO_ALL: &str = "
import threading
def echo(s):
    while message := s.recv(100): s.send(message)
l = listen(sys.argv[1])
while True: threading.Thread(target=echo, args=(l.accept()[0],), daemon=True).start()
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn messages_pass_while_another_user_floods_the_socket_server_with_connections() {
    let world = World::new(1);
    let _server = world.serve(ECHO_TO_ALL);
    let mut command = world.beta.command("env");
    command.args(["python3", "-c", &format!("{PRELUDE}{FLOOD}"), "sctpify-sockets-0"]);
    let mut flood = world.beta.spawn("flood", as_user(NOBODY, &world.beta, &command)).unwrap();
    flood.wait_until("ready", LIMIT, |process| process.stdout().contains("ready")).unwrap();
    let client = world.ask(EXCHANGE, &[]).good().unwrap();
    assert_eq!(client.stdout, "done\n", "{}", client.stderr);
    assert!(flood.is_running(), "it went on all the time: {}", flood.stderr());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn silent_connections_and_descriptors_that_do_not_close_cost_the_server_few_descriptors() {
    let world = World::new(1);
    let _server = world.serve(ECHO_TO_ALL);
    let lingering = LINGERING.rsplit_once("time.sleep(1)").unwrap().0;
    let mut command = world.beta.command("env");
    command.args(["python3", "-c", &format!("{PRELUDE}{lingering}{SILENT}"), "sctpify-sockets-0"]);
    let mut attack = world.beta.spawn("attack", as_user(NOBODY, &world.beta, &command)).unwrap();
    attack.wait_until("silent", LIMIT, |process| process.stdout().contains("silent")).unwrap();
    let client = world.ask(EXCHANGE, &[]).good().unwrap();
    assert_eq!(client.stdout, "done\n", "{}", client.stderr);
    let server = server_in(world.beta.namespace()).unwrap();
    let open = fs::read_dir(format!("/proc/{server}/fd")).unwrap().count();
    assert!(open < 800, "{open} descriptors; 256 silent connections and 403 that were passed are allowed");
}

/// Opens a socket, and waits until file argv[2] exists. Sends the stopped socket server a handmade request to bind port
/// 80, and then executes the program argv[1]. A child process prints the answer.
const BECOMES_ANOTHER: &str = "
import array, signal, struct
s = sctp(); c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if os.fork() == 0:
    while error(c.getpeername) == 'ENOTCONN': time.sleep(0.01)
    print(struct.unpack('=i', c.recv(100)[4:8])[0], flush=True); os._exit(0)
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
c.connect('\\0' + os.environ['SCTPIFY_SOCKETS'])
address = struct.pack('=H', socket.AF_INET) + struct.pack('>H', 80) + bytes(12)
request = struct.pack('=IIii', 0xd5c79e02, 2, 0, 0) + address
c.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [s.fileno()]))])
print('asked', flush=True)
os.execv(sys.argv[1], ['sleep', '20'])
";

/// Gives file argv[1] the capability `CAP_NET_BIND_SERVICE` (capabilities(7)), effective and permitted.
const GIVE_CAPABILITY: &str = "import os, struct, sys
os.setxattr(sys.argv[1], 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 10, 0, 0, 0))";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_program_that_execs_a_privileged_one_during_a_request_gets_no_privileged_port() {
    let world = World::new(1);
    let _server = world.serve("listen(sys.argv[1]).accept()");
    let (privileged, stands) = (world.lab.dir().join("bin/sleep"), world.lab.dir().join("bin/stands"));
    fs::copy("/usr/bin/sleep", &privileged).unwrap();
    let capability = Command::new("python3").args(["-c", GIVE_CAPABILITY]).arg(&privileged).status();
    assert!(capability.unwrap().success());
    // Returns a command that runs a program as an unprivileged user, with these options of setpriv(1). The program uses
    // root's socket server.
    let python = |rights: &[&str], program: &str| {
        let mut command = world.beta.command("setpriv");
        command
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
            .args(rights)
            .args(["--", "env"]);
        command.arg(format!("LD_PRELOAD={}", world.programs.path("libsctpify.so").display()));
        command.args(["SCTPIFY_SOCKETS=sctpify-sockets-0", "python3", "-c"]);
        command.arg(format!("{PRELUDE}{program}"));
        command
    };
    let rights = ["--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service"];
    for (rights, outcome) in [(&[][..], "EACCES\n"), (&rights, "None\n")] {
        let command = python(rights, "print(error(sctp().bind, ('', 80)))");
        let told = world.beta.run("user", command, LIMIT).unwrap().good().unwrap().stdout;
        assert_eq!(told, outcome, "{rights:?}");
    }
    let mut command = python(&[], BECOMES_ANOTHER);
    command.args([&privileged, &stands]);
    let mut process = world.beta.spawn("becomes", command).unwrap();
    let server = Pid::from_raw(server_in(world.beta.namespace()).unwrap());
    let is_open = || world.rows(&world.beta).len() == 2;
    assert!(wait_for(LIMIT, is_open), "{:?}", world.rows(&world.beta));
    kill(server, Signal::SIGSTOP).unwrap();
    fs::write(&stands, "").unwrap();
    process.wait_until("asked", LIMIT, |process| process.stdout().contains("asked")).unwrap();
    let has_right = || {
        let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
        status.lines().any(|line| line == "CapEff:\t0000000000000400")
    };
    assert!(wait_for(LIMIT, has_right), "the program has the right now");
    kill(server, Signal::SIGCONT).unwrap();
    process.wait_until("answer", LIMIT, |process| process.stdout().lines().count() == 2).unwrap();
    assert_eq!(process.stdout(), format!("asked\n{}\n", nix::errno::Errno::EACCES as i32));
}

/// Lengths of messages in Figure 5.2 of the thesis "SCTP Support in SIP Proxy Server" (docs/papers.md), in octets.
const THESIS_LENGTHS: [usize; 4] = [64, 512, 1400, 8192];
/// Number of messages of each length.
const THESIS_COUNT: usize = 2000;

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_thesis_client_and_server_move_all_messages() {
    let world = World::new(1);
    let binary = c_programs::build("sctp_throughput", world.lab.dir(), &[]).unwrap();
    let run = |host: &Host, words: &[&str]| {
        let mut command = world.sctp(host);
        command.arg(&binary).args(words);
        command
    };
    for length in THESIS_LENGTHS {
        let mut server = world.beta.spawn("server", run(&world.beta, &["serve", PORT])).unwrap();
        server.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
        let (count, length) = (THESIS_COUNT.to_string(), length.to_string());
        let words = ["send", "7100", PORT, &world.to(), &count, &length];
        world.alpha.run("client", run(&world.alpha, &words), LIMIT).unwrap().good().unwrap();
        let expected = format!("received: {} octets", THESIS_COUNT * length.parse::<usize>().unwrap());
        server.wait_until("its end", LIMIT, |process| process.stdout().contains(&expected)).unwrap();
    }
}
