//! `sctpify run --sctp`: unmodified SCTP programs on a kernel without SCTP, between two hosts, and with a guest whose kernel has SCTP.
//!
//! Needs root to create the hosts, and the programs built next to the tests or in SCTPIFY_BIN_DIR.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testbed::c_programs;
use testbed::process::wait_for;
use testbed::{Capture, Finished, Guest, Host, Lab, Link, Offloads, Process, Programs};

const PORT: &str = "7000";
const LIMIT: Duration = Duration::from_secs(60);
/// Users that own nothing.
const NOBODY: &str = "65534";
const SOMEBODY: &str = "65533";
/// Octets of a transfer that lasts long enough for a link to be cut in the middle, at [`PACED`].
const LENGTH: usize = 4 << 20;

/// Begins each program: sockets of protocol 132.
const PRELUDE: &str = "
import errno, os, select, socket, sys, time
def sctp(): return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
def listen(port, address=''):
    s = sctp(); s.bind((address, int(port))); s.listen(5)
    print('listening', flush=True)
    return s
def error(call, *arguments):
    try: return call(*arguments)
    except OSError as e: return errno.errorcode[e.errno]
";

/// Answers a connection with the number of octets that it has read, once the peer says END.
const COUNTER: &str = "
s, peer = listen(sys.argv[1]).accept()
total = 0
while (message := s.recv(65536)) != b'END': total += len(message)
s.send(f'{total} octets from {peer[0]}'.encode())
s.recv(1)
";

/// Sends argv[3] octets in messages of 8 KiB, each after argv[4] ms.
const SENDER: &str = "
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
print('connected', flush=True)
for n in range(int(sys.argv[3]) // 8192):
    s.send(bytes(8192)); time.sleep(float(sys.argv[4]) / 1000)
s.send(b'END')
print(s.recv(100).decode())
";
/// Pause before each message of a transfer that lasts some seconds, in milliseconds.
const PACED: &str = "5";

struct World {
    alpha: Host,
    beta: Host,
    links: Vec<Link>,
    programs: Programs,
    lab: Lab,
}

impl World {
    fn new(links: u8) -> World {
        let lab = Lab::new().unwrap();
        let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
        let links =
            (1..=links).map(|number| lab.join(&alpha, &beta, number, Offloads::Off).unwrap()).collect();
        let programs = copy_for_all(lab.dir());
        World { alpha, beta, links, programs, lab }
    }

    /// Returns a command of `sctpify` on a host; the arguments follow.
    fn sctpify(&self, host: &Host) -> Command {
        host.command(self.programs.path("sctpify"))
    }

    /// Returns the command that runs a Python program with SCTP sockets.
    fn python(&self, host: &Host, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.sctpify(host);
        command
            .args(["run", "--sctp", "--", "python3", "-c", &format!("{PRELUDE}{program}")])
            .args(arguments);
        command
    }

    /// Starts a Python program on beta, and waits until it listens.
    fn serve(&self, program: &str) -> Process {
        let mut process = self.beta.spawn("server", self.python(&self.beta, program, &[PORT])).unwrap();
        process.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
        process
    }

    fn to(&self) -> String {
        self.links[0].right_v4().to_string()
    }

    /// Runs a Python program on alpha to its end; the server's address and port come before its arguments.
    fn ask(&self, program: &str, arguments: &[&str]) -> Finished {
        let to = self.to();
        let all = [&[to.as_str(), PORT], arguments].concat();
        self.alpha.run("client", self.python(&self.alpha, program, &all), LIMIT).unwrap()
    }

    /// Returns the rows of `sctpify sctp --json` on a host.
    fn rows(&self, host: &Host) -> Vec<serde_json::Value> {
        let mut command = self.sctpify(host);
        command.args(["--json", "sctp"]);
        let output = host.run("sctp", command, LIMIT).unwrap().good().unwrap().stdout;
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Copies programs and library to a place where every user can run them.
fn copy_for_all(dir: &Path) -> Programs {
    let found = Programs::find().unwrap();
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    for dir in [dir, &bin] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for name in ["sctpifyd", "sctpify", "shimrules", "libsctpify.so"] {
        fs::copy(found.path(name), bin.join(name)).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    Programs::in_dir(&bin).unwrap()
}

/// Runs a command as another user.
fn as_user(user: &str, host: &Host, command: &Command) -> Command {
    let words = command.get_args().map(|word| word.to_owned()).collect::<Vec<_>>();
    let mut other = host.command("setpriv");
    other.args(["--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs", "--"]);
    // The words of a command in a host's namespace begin with those that enter it.
    let program = words.iter().position(|word| word == "--").map_or(0, |at| at + 1);
    other.args(&words[program..]);
    other
}

/// Python's own tests of SCTP, which this kernel skips.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn pythons_tests_of_sctp_pass() {
    if !Path::new("/usr/lib/python3.11/test/test_socket.py").exists() {
        return testbed::skip("Python's own tests are not installed (libpython3.11-testsuite)");
    }
    let world = World::new(1);
    let mut command = world.sctpify(&world.alpha);
    command.args([
        "run",
        "--sctp",
        "--",
        "/usr/bin/python3.11",
        "-m",
        "unittest",
        "-k",
        "SCTP",
        "test.test_socket",
    ]);
    let output = world.alpha.run("tests", command, LIMIT).unwrap();
    let told = format!("{}{}", output.stdout, output.stderr);
    let count =
        told.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
    assert!(count.is_some_and(|count| count > 30) && told.trim_end().ends_with("\nOK"), "{told}");
}

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
        let mut command = world.sctpify(&world.beta);
        command.args(["run", "--sctp", "--", "socat", "-u"]).args(server);
        let server = world.beta.spawn("server", command).unwrap();
        assert!(wait_for(LIMIT, || world.rows(&world.beta).iter().any(|row| row["state"] == "LISTEN")));
        let mut command = world.sctpify(&world.alpha);
        command.args(["run", "--sctp", "--", "socat", "-u"]).args(client);
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

/// Reads in parts: each part says whether the record ends there, poll(2) knows of the rest, and a child reads on.
const PARTS: &str = "
s, _ = listen(sys.argv[1]).accept()
p = select.poll(); p.register(s, select.POLLIN)
for n in range(2):
    data, _, flags, _ = s.recvmsg(4); print(data, bool(flags & socket.MSG_EOR), bool(p.poll(100)))
if os.fork() == 0:
    data, _, flags, _ = s.recvmsg(100); print(data, bool(flags & socket.MSG_EOR), flush=True)
    os._exit(0)
os.wait()
print(s.recv(100), flush=True)
s.send(b'read')
";

/// Serves by a one-to-many socket, and answers by the association's identifier. The association that says PEEL goes on as a one-to-one
/// socket, with what was not read before.
const MANY_SERVER: &str = "
import ctypes, struct
s = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132)
s.setsockopt(132, 11, bytes([1]))
s.bind(('', int(sys.argv[1]))); s.listen(5)
print('accept:', error(s.accept), 'listening', flush=True)
def read():
    message, items, flags, peer = s.recvmsg(100, 100)
    return message.decode(), struct.unpack('i', items[0][2][28:])[0], peer
def answer(text, id): s.sendmsg([text.encode()], [(132, 2, struct.pack('=HHIIi', 0, 0, 0, 0, id))])
for _ in range(3):
    text, id, peer = read()
    answer(f'{text} from {peer[0]}', id)
text, id, peer = read()
assert text == 'PEEL', text
time.sleep(0.5)
# A part of a message of the association that is peeled off.
part = s.recv(2)
wanted, length = (ctypes.c_int * 2)(id, 0), ctypes.c_uint(8)
fd = ctypes.CDLL(None).getsockopt(s.fileno(), 132, 102, wanted, ctypes.byref(length))
peeled = socket.socket(fileno=fd)
unread = [(part + peeled.recv(100)).decode(), peeled.recv(100).decode()]
peeled.send(f'{unread} at {peeled.getpeername()[0]}'.encode())
s.setblocking(False)
print('gone:', error(answer, 'x', id), 'left:', read()[0], error(s.recv, 1), flush=True)
peeled.recv(1)
";

/// Two one-to-many sockets that send without having connected; the second one is peeled off at the server.
const MANY_CLIENT: &str = "
to = (sys.argv[1], int(sys.argv[2]))
def client(): return socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132)
a, b = client(), client()
print(error(a.send, b'x', socket.MSG_NOSIGNAL), error(a.recv, 1), error(a.shutdown, 2))
for each in (a, b, a):
    print(each.sendto(b'hello', to), each.recv(100).decode())
print(error(b.connect, to), error(client().connect, (to[0], 9)))
for text in (b'PEEL', b'one', b'two'): b.sendto(text, to)
time.sleep(0.1)
a.sendto(b'other', to)
print(b.recv(100).decode())
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn one_to_many_sockets_serve_many_peers_and_one_is_peeled_off() {
    let world = World::new(1);
    let server = world.serve(MANY_SERVER);
    let client = world.ask(MANY_CLIENT, &[]).good().unwrap();
    let from = world.links[0].left_v4();
    let hello = format!("5 hello from {from}\n");
    let expected = format!(
        "EPIPE ENOTCONN ENOTSUP\n{}EISCONN ECONNREFUSED\n['one', 'two'] at {from}\n",
        hello.repeat(3)
    );
    assert_eq!(client.stdout, expected, "{}", client.stderr);
    let said = server.stdout();
    assert!(said.contains("accept: ENOTSUP"), "{said}");
    assert!(
        wait_for(LIMIT, || server.stdout().contains("gone: EPIPE left: other EAGAIN")),
        "{}",
        server.stdout()
    );
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_message_is_read_in_parts_and_by_a_child() {
    let world = World::new(1);
    let mut server = world.serve(PARTS);
    let client = "
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
s.send(b'0123456789'); s.send(b'next')
print(s.recv(10))
";
    world.ask(client, &[]).good().unwrap();
    server.wait_until("read", LIMIT, |process| process.stdout().contains("next")).unwrap();
    let expected = "listening\nb'0123' False True\nb'4567' False True\nb'89' True\nb'next'\n";
    assert_eq!(server.stdout(), expected);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn streams_and_identifiers_pass_and_wrong_ones_are_refused() {
    let world = World::new(1);
    let _server = world.serve(
        "
s, _ = listen(sys.argv[1]).accept()
s.setsockopt(132, 32, 1)
s.send(b'ready')
for n in range(2):
    data, items, flags, _ = s.recvmsg(100, 200)
    s.send(repr((data, [(kind, value[:2], value[8:12]) for _, kind, value in items])).encode())
",
    );
    let client = "
import struct
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2]))); s.recv(10)
def info(stream, flags=0): return [(132, 2, struct.pack('=HHIIi', stream, flags, socket.htonl(46), 0, 0))]
print(error(s.sendmsg, [b'x'], info(999)), error(s.sendmsg, [b'x'], info(0, 0x200)), error(s.sendmsg, [b'x'], [(132, 99, bytes(8))]), error(s.send, b''))
s.sendmsg([b'a', b'b'], info(3)); print(s.recv(100).decode())
s.send(b'plain'); print(s.recv(100).decode())
";
    let output = world.ask(client, &[]).good().unwrap().stdout;
    let expected = "EINVAL EINVAL EINVAL EINVAL
(b'ab', [(3, b'\\x03\\x00', b'\\x00\\x00\\x00.')])
(b'plain', [(3, b'\\x00\\x00', b'\\x00\\x00\\x00\\x00')])
";
    assert_eq!(output, expected);
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
    // The program itself: `sctpify` waits for it, and has started the socket server before.
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", client.id())).unwrap();
    let python: i32 = children.split_whitespace().last().unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(python), nix::sys::signal::Signal::SIGKILL).unwrap();
    server.wait_until("end", LIMIT, |process| process.stdout().lines().count() == 2).unwrap();
    assert_eq!(server.stdout(), "listening\nb'' b''\n");
    for host in [&world.alpha, &world.beta] {
        assert!(wait_for(LIMIT, || world.rows(host).is_empty()), "{:?}", world.rows(host));
    }
}

/// Returns the process of the socket server in a namespace.
fn server_in(namespace: &str) -> Option<i32> {
    let output = Command::new("ip").args(["netns", "pids", namespace]).output().unwrap();
    let pids = String::from_utf8(output.stdout).unwrap();
    pids.split_whitespace().map(|pid| pid.parse().unwrap()).find(|pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"serve-sockets")
    })
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_death_of_the_server_is_an_error_once_and_new_sockets_say_that_the_network_is_down() {
    let world = World::new(1);
    let server = "
l = listen(sys.argv[1]); s, _ = l.accept()
print(error(s.recv, 10), error(s.recv, 10), error(s.recv, 10), error(s.send, b'x', socket.MSG_NOSIGNAL), error(sctp), error(l.accept), flush=True)
";
    let mut server = world.serve(server);
    let to = world.to();
    let client = "
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
print('connected', flush=True)
print(error(s.recv, 10), flush=True)
";
    let mut client = world.alpha.spawn("client", world.python(&world.alpha, client, &[&to, PORT])).unwrap();
    client.wait_until("connected", LIMIT, |process| process.stdout().contains("connected")).unwrap();
    assert!(wait_for(LIMIT, || world.rows(&world.beta).len() == 2));
    let pid = nix::unistd::Pid::from_raw(server_in(world.beta.namespace()).expect("a server"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    server.wait_until("the errors", LIMIT, |process| process.stdout().lines().count() == 2).unwrap();
    assert_eq!(server.stdout(), "listening\nECONNRESET ENOTCONN ENOTCONN EPIPE ENETDOWN ENETDOWN\n");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_program_that_writes_past_the_library_loses_its_own_association_only() {
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

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_ordinary_user_has_a_server_of_its_own_and_no_privileged_port() {
    let world = World::new(1);
    let program = "
s = sctp()
print(error(s.bind, ('', 80)), error(s.bind, ('', 7001)))
";
    let command = as_user(NOBODY, &world.alpha, &world.python(&world.alpha, program, &[]));
    let output = world.alpha.run("nobody", command, LIMIT).unwrap().good().unwrap().stdout;
    assert_eq!(output, "EACCES None\n");
    // A server refuses other users.
    let mut holder = world
        .alpha
        .spawn(
            "holder",
            as_user(NOBODY, &world.alpha, &world.python(&world.alpha, "listen(7002); time.sleep(60)", &[])),
        )
        .unwrap();
    holder.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    let mut command = world.alpha.command("env");
    let library = world.programs.path("libsctpify.so");
    command
        .arg(format!("LD_PRELOAD={}", library.display()))
        .arg(format!("SCTPIFY_SOCKETS=sctpify-sockets-{NOBODY}"));
    command.args(["python3", "-c", &format!("{PRELUDE}print(error(sctp))")]);
    let output = world.alpha.run("other", as_user(SOMEBODY, &world.alpha, &command), LIMIT).unwrap();
    assert_eq!(output.good().unwrap().stdout, "ENETDOWN\n");
}

/// Fills the buffers on the way to a peer that does not read, peels its association off, and says how many octets were taken.
const FILLER: &str = "
import ctypes, struct
s = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132)
s.connect((sys.argv[1], int(sys.argv[2])))
ids = ctypes.create_string_buffer(8)
library, length = ctypes.CDLL(None), ctypes.c_uint(8)
library.getsockopt(s.fileno(), 132, 29, ids, ctypes.byref(length))
id = struct.unpack('ii', ids.raw)[1]
s.setblocking(False)
taken, last = 0, time.monotonic()
while time.monotonic() < last + 1:
    try: taken += s.sendmsg([bytes(50000)], [(132, 2, struct.pack('=HHIIi', 0, 0, 0, 0, id))]); last = time.monotonic()
    except BlockingIOError: time.sleep(0.01)
wanted, length = (ctypes.c_int * 2)(id, 0), ctypes.c_uint(8)
peeled = socket.socket(fileno=library.getsockopt(s.fileno(), 132, 102, wanted, ctypes.byref(length)))
print('peeled', flush=True)
taken += peeled.send(b'last')
print(taken)
";

/// Begins to read after some seconds, and says how many octets came, and the last ones.
const LATE_READER: &str = "
s = listen(sys.argv[1]).accept()[0]
time.sleep(6)
total, last = 0, b''
while message := s.recv(65536): total, last = total + len(message), message
print(total, last[-4:], flush=True)
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn messages_on_their_way_go_along_when_their_association_is_peeled_off() {
    let world = World::new(1);
    let server = world.serve(LATE_READER);
    let client = world.ask(FILLER, &[]).good().unwrap().stdout;
    let taken = client.lines().last().unwrap();
    let expected = format!("listening\n{taken} b'last'\n");
    assert!(wait_for(LIMIT, || server.stdout() == expected), "{expected}{}", server.stdout());
}

/// Lengths of messages in the thesis' Figure 5.2, in octets, and how many are sent of each.
const THESIS_LENGTHS: [usize; 4] = [64, 512, 1400, 8192];
const THESIS_COUNT: usize = 2000;

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_thesis_client_and_server_move_all_messages() {
    let world = World::new(1);
    let binary = c_programs::build("sctp_throughput", world.lab.dir(), &[]).unwrap();
    let run = |host: &Host, words: &[&str]| {
        let mut command = world.sctpify(host);
        command.args(["run", "--sctp", "--"]).arg(&binary).args(words);
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

/// Sends until the peer shuts down, and says how many octets were taken.
const BULK: &str = "
for _ in range(5):
    s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
    sent = 0
    try:
        while True: sent += s.send(bytes(3000))
    except BrokenPipeError: print(sent)
";

/// Shuts each of five connections down while the peer sends, and says how many octets came in all.
const SHUTTER: &str = "
listener = listen(sys.argv[1])
for n in range(5):
    s = listener.accept()[0]
    total = sum(len(s.recv(3000)) for _ in range(100 + n))
    s.shutdown(socket.SHUT_WR)
    while isinstance(message := error(s.recv, 3000), bytes): total += len(message)
    print(total, flush=True)
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn each_message_that_was_taken_arrives_although_the_peer_shuts_down() {
    let world = World::new(1);
    let server = world.serve(SHUTTER);
    let sent = world.ask(BULK, &[]).good().unwrap().stdout;
    let received = || server.stdout().replace("listening\n", "");
    assert!(wait_for(LIMIT, || received() == sent), "sent {sent}received {}", received());
}

/// Passes the server argv[1] sockets whose last close takes a minute: in a request, in more than one by connection, and more than fit.
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
fn descriptors_that_do_not_close_keep_no_server_from_other_users() {
    let world = World::new(1);
    let server = world.serve("while True: listen(sys.argv[1]).accept()[0].recv(1)");
    // Root's server answers all users.
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

/// A program of this machine in a namespace beside the guest.
struct Beside {
    child: Child,
    output: PathBuf,
}

impl Beside {
    fn start(guest: &Guest, programs: &Programs, carriers: &str, words: &[&str]) -> Beside {
        let output = guest.dir().join("output");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &guest.namespace("peer")]).arg(programs.path("sctpify"));
        command.args(["run", "--sctp", "--carriers", carriers, "--"]).args(words);
        let file = fs::File::create(&output).unwrap();
        let child =
            command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Beside { child, output }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    fn ends(&mut self) -> bool {
        wait_for(LIMIT, || self.child.try_wait().unwrap().is_some()) && self.child.wait().unwrap().success()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The guest's addresses of both paths, and those of the namespace beside it.
const GUESTS: [&str; 2] = ["10.60.0.11", "10.60.1.11"];

#[test]
#[ignore = "needs root: makes network namespaces"]
fn files_pass_to_and_from_a_kernel_with_sctp_over_udp_and_over_ip() {
    if let Some(missing) = Guest::missing() {
        return testbed::skip(missing);
    }
    let guest = Guest::up("socks").unwrap();
    let programs = Programs::find().unwrap();
    let file = guest.dir().join("file");
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
    fs::write(&file, &bytes).unwrap();
    let inside = Guest::path_inside(&file);
    for (carriers, over_udp) in [("udp", true), ("ip", false)] {
        guest.carry_over_udp(over_udp).unwrap();
        // From here to the guest.
        let from = format!("OPEN:{}", file.display());
        let mut there = guest.program(60);
        there.args(["sh", "-c", &format!("socat -u SCTP-LISTEN:{PORT} - | sha256sum")]);
        let there = there.stdout(Stdio::piped()).spawn().unwrap();
        assert!(wait_for(LIMIT, || guest.run("cat /proc/net/sctp/eps").is_ok_and(|eps| eps.contains(PORT))));
        let to = format!("SCTP:{}:{PORT}", GUESTS[0]);
        // A server with the other carriers ends first.
        assert!(wait_for(LIMIT, || server_in(&guest.namespace("peer")).is_none()));
        let mut here = Beside::start(&guest, &programs, carriers, &["socat", "-u", &from, &to]);
        assert!(here.ends(), "{carriers}: {}", here.text());
        let told = String::from_utf8(there.wait_with_output().unwrap().stdout).unwrap();
        let sum = guest.run(&format!("sha256sum < {}", inside.display())).unwrap();
        assert_eq!(told.split_whitespace().next(), sum.split_whitespace().next(), "{carriers}");
        // And from the guest to here.
        assert!(wait_for(LIMIT, || rows_beside(&guest, &programs).is_empty()));
        let copy = guest.dir().join("copy");
        let create = format!("OPEN:{},creat,trunc", copy.display());
        let listen = format!("SCTP-LISTEN:{PORT}");
        let mut here = Beside::start(&guest, &programs, carriers, &["socat", "-u", &listen, &create]);
        assert!(wait_for(LIMIT, || rows_beside(&guest, &programs).contains("LISTEN")), "{}", here.text());
        guest.run(&format!("socat -u OPEN:{} SCTP:10.60.0.1:{PORT}", inside.display())).unwrap();
        assert!(here.ends(), "{carriers}: {}", here.text());
        assert!(fs::read(&copy).unwrap() == bytes, "{carriers}: the copy differs");
        assert!(
            wait_for(LIMIT, || server_in(&guest.namespace("peer")).is_none()),
            "the server ends when nobody uses it"
        );
    }
}

fn rows_beside(guest: &Guest, programs: &Programs) -> String {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &guest.namespace("peer")])
        .arg(programs.path("sctpify"))
        .args(["--json", "sctp"]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// Returns the first of these programs that is not installed.
fn missing_of(programs: &[&'static str]) -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&str| {
        std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
            || Path::new("/usr/sbin").join(name).is_file()
    };
    programs.iter().find(|name| !is_there(name)).copied()
}

/// Osmocom's signalling transfer point, mobile switching centre and base station controller, configured as Debian does: on one host.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn osmocoms_2g_core_speaks_m3ua() {
    const PROGRAMS: [&str; 3] = ["osmo-stp", "osmo-msc", "osmo-bsc"];
    if let Some(missing) = missing_of(&PROGRAMS) {
        return testbed::skip(missing);
    }
    let world = World::new(1);
    let ask = |port: u16, line: &str| {
        let mut command = world.alpha.command("sh");
        command.args(["-c", &format!("(echo '{line}'; sleep 0.5) | socat - TCP:127.0.0.1:{port}")]);
        world.alpha.run("vty", command, LIMIT).unwrap().stdout
    };
    let mut started = Vec::new();
    for name in PROGRAMS {
        let mut command = world.sctpify(&world.alpha);
        command.args(["run", "--sctp", "--", name, "-c", &format!("/etc/osmocom/{name}.cfg")]);
        // They keep a database where they are started.
        command.current_dir(world.alpha.dir().unwrap());
        started.push(world.alpha.spawn(name, command).unwrap());
        assert!(wait_for(LIMIT, || world.rows(&world.alpha).iter().any(|row| row["state"] == "LISTEN")));
    }
    let states = || ask(4239, "show cs7 instance 0 asp");
    assert!(wait_for(LIMIT, || states().matches("ASP_ACTIVE").count() == 2), "{}", states());
    let bsc = || ask(4254, "show bsc");
    assert!(wait_for(LIMIT, || bsc().contains("READY")), "{}", bsc());
}

/// Two Diameter nodes, each with the other as its peer, over two links, of which the first is cut.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_diameter_nodes_stay_open_when_a_path_dies() {
    if let Some(missing) = missing_of(&["freeDiameterd", "openssl"]) {
        return testbed::skip(missing);
    }
    let world = World::new(2);
    let dir = world.alpha.dir().unwrap();
    let certificates = "
set -e
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca.test -days 2
for n in alpha beta; do
    openssl req -newkey rsa:2048 -nodes -keyout $n.key -out $n.csr -subj /CN=$n.test
    openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out $n.crt -days 2
done";
    let mut command = Command::new("sh");
    command.args(["-c", certificates]).current_dir(&dir);
    assert!(command.output().unwrap().status.success());
    let start = |host: &Host, own: &str, other: &str, addresses: [String; 2], to: String| {
        let dir = dir.display();
        let listen: String = addresses.iter().map(|address| format!("ListenOn = \"{address}\";\n")).collect();
        let text = format!(
            "Identity = \"{own}.test\"; Realm = \"test\"; SecPort = 0; No_TCP; No_IPv6;\n{listen}TwTimer = 6; TcTimer = 6;
             TLS_Cred = \"{dir}/{own}.crt\", \"{dir}/{own}.key\"; TLS_CA = \"{dir}/ca.pem\";
             ConnectPeer = \"{other}.test\" {{ ConnectTo = \"{to}\"; No_TLS; No_TCP; }};\n"
        );
        let path = host.dir().unwrap().join(format!("{own}.conf"));
        fs::write(&path, text).unwrap();
        let mut command = world.sctpify(host);
        command.args(["run", "--sctp", "--", "freeDiameterd", "-c"]).arg(&path);
        host.spawn(own, command).unwrap()
    };
    let of = |side: fn(&Link) -> std::net::Ipv4Addr| [0, 1].map(|at| side(&world.links[at]).to_string());
    let (lefts, rights) = (of(Link::left_v4), of(Link::right_v4));
    let mut betas = start(&world.beta, "beta", "alpha", rights.clone(), lefts[0].clone());
    let mut alphas = start(&world.alpha, "alpha", "beta", lefts, rights[0].clone());
    for node in [&mut alphas, &mut betas] {
        node.wait_until("open", LIMIT, |node| node.stdout().contains("-> 'STATE_OPEN'")).unwrap();
    }
    let changes = |node: &Process| node.stdout().matches("'STATE_").count();
    let before = [changes(&alphas), changes(&betas)];
    world.links[0].silence().unwrap();
    let is_cut = || {
        world
            .rows(&world.alpha)
            .iter()
            .flat_map(|row| row["paths"].as_array().unwrap().clone())
            .any(|path| path["state"] == "inactive")
    };
    assert!(wait_for(LIMIT, is_cut), "{:?}", world.rows(&world.alpha));
    // Two watchdog messages of Diameter, which must be answered.
    std::thread::sleep(Duration::from_secs(14));
    assert_eq!([changes(&alphas), changes(&betas)], before, "{}", alphas.stdout());
}
