//! Test scenarios that must succeed with the preloaded library, and also under the seccomp supervisor.

use std::path::Path;

use testbed::process::wait_for;
use testbed::{Host, c_programs};

use crate::world::{LIMIT, NOBODY, PORT, PRELUDE, SOMEBODY, World, as_user, server_in};

/// Makes two tests from each scenario: one with the library, and one under the supervisor.
macro_rules! both {
    ($($scenario:ident;)*) => {
        mod preloaded {
            $(
                #[test]
                #[ignore = "needs root: makes network namespaces"]
                fn $scenario() {
                    super::$scenario(&super::World::new(1));
                }
            )*
        }

        mod supervised {
            $(
                #[test]
                #[ignore = "needs root: makes network namespaces"]
                fn $scenario() {
                    super::$scenario(&super::World::supervised(1));
                }
            )*
        }
    };
}

both! {
    pythons_tests_of_sctp_pass;
    sendmmsg_and_recvmmsg_wait_until_all_messages_are_transferred;
    messages_go_to_their_peer_although_the_socket_is_closed_at_once;
    hundreds_of_waiting_calls_do_not_prevent_new_sockets;
    one_to_many_sockets_serve_many_peers_and_one_is_peeled_off;
    a_message_is_read_in_parts_and_by_a_child;
    four_processes_that_read_one_socket_get_each_message_once;
    a_process_that_keeps_the_lock_of_a_shared_socket_holds_up_no_other;
    streams_and_identifiers_pass_and_wrong_ones_are_refused;
    death_of_the_socket_server_gives_econnreset_once_and_enetdown_for_new_sockets;
    an_ordinary_user_has_a_server_of_its_own_and_no_privileged_port;
    messages_in_transit_arrive_although_their_association_is_peeled_off;
    each_message_that_was_taken_arrives_although_the_peer_shuts_down;
}

/// Reads one association in four processes. Prints the number of messages, and the number of different messages.
const SHARED: &str = "
s, _ = listen(sys.argv[1]).accept()
there, here = os.pipe()
for n in range(4):
    if os.fork() == 0:
        while message := s.recv(100): os.write(here, message)
        os._exit(0)
os.close(here)
messages = os.fdopen(there).read().split()
print(len(messages), len(set(messages)), flush=True)
";

/// Sends 20,000 different messages.
const NUMBERS: &str = "
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
for n in range(20000): s.send(b'%d\\n' % n)
s.close()
";

fn four_processes_that_read_one_socket_get_each_message_once(world: &World) {
    let server = world.serve(SHARED);
    world.ask(NUMBERS, &[]).good().unwrap();
    let output = server.finish(LIMIT).unwrap().good().unwrap();
    assert_eq!(output.stdout.lines().next_back(), Some("20000 20000"));
}

/// Reads a message while a child process keeps a lock of POSIX on the socket.
const LOCKED: &str = "
import fcntl
s, _ = listen(sys.argv[1]).accept()
there, here = os.pipe()
if os.fork() == 0:
    fcntl.lockf(s, fcntl.LOCK_EX)
    os.write(here, b'locked')
    time.sleep(60)
    os._exit(0)
os.read(there, 10)
print(s.recv(100), flush=True)
os._exit(0)
";

fn a_process_that_keeps_the_lock_of_a_shared_socket_holds_up_no_other(world: &World) {
    let mut server = world.serve(LOCKED);
    let client = "s = sctp(); s.connect((sys.argv[1], int(sys.argv[2]))); s.send(b'hello'); s.close()";
    world.ask(client, &[]);
    server.wait_until("read", LIMIT, |process| process.stdout().contains("b'hello'")).unwrap();
}

/// Reads a message in parts. For each part, prints whether the message ends with this part, and whether poll(2) reports
/// more to read. A child process reads the last part.
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

/// Serves clients on a one-to-many socket, and selects the association of an answer by its identifier. When the message
/// PEEL arrives, the server peels off its association to a one-to-one socket. The association's unread messages must
/// move to this socket.
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

/// Uses two one-to-many sockets that send without a connect(2). The server peels off the second socket's association.
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

/// Fills the buffers towards a peer that does not read, and peels off the association. Prints the number of octets that
/// the sends accepted.
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

/// Begins to read after six seconds. Prints the number of received octets, and the last four of them.
const LATE_READER: &str = "
s = listen(sys.argv[1]).accept()[0]
time.sleep(6)
total, last = 0, b''
while message := s.recv(65536): total, last = total + len(message), message
print(total, last[-4:], flush=True)
";

/// On each of five connections, sends until the peer shuts down. For each connection, prints the number of octets that
/// the sends accepted.
const BULK: &str = "
for _ in range(5):
    s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
    sent = 0
    try:
        while True: sent += s.send(bytes(3000))
    except BrokenPipeError: print(sent)
";

/// Shuts down each of five connections while the peer sends. Prints the number of octets that each connection received.
const SHUTTER: &str = "
listener = listen(sys.argv[1])
for n in range(5):
    s = listener.accept()[0]
    total = sum(len(s.recv(3000)) for _ in range(100 + n))
    s.shutdown(socket.SHUT_WR)
    while isinstance(message := error(s.recv, 3000), bytes): total += len(message)
    print(total, flush=True)
";

/// Runs Python's own tests of SCTP. On a kernel without SCTP, Python skips these tests, unless `sctpify` provides SCTP
/// sockets.
fn pythons_tests_of_sctp_pass(world: &World) {
    if !Path::new("/usr/lib/python3.11/test/test_socket.py").exists() {
        return testbed::skip("Python's own tests are not installed (libpython3.11-testsuite)");
    }
    let mut command = world.sctp(&world.alpha);
    command.args(["/usr/bin/python3.11", "-m", "unittest", "-k", "SCTP", "test.test_socket"]);
    let output = world.alpha.run("tests", command, LIMIT).unwrap();
    let told = format!("{}{}", output.stdout, output.stderr);
    let count =
        told.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
    assert!(count.is_some_and(|count| count > 30) && told.trim_end().ends_with("\nOK"), "{told}");
}

fn one_to_many_sockets_serve_many_peers_and_one_is_peeled_off(world: &World) {
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

fn a_message_is_read_in_parts_and_by_a_child(world: &World) {
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

fn streams_and_identifiers_pass_and_wrong_ones_are_refused(world: &World) {
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

fn death_of_the_socket_server_gives_econnreset_once_and_enetdown_for_new_sockets(world: &World) {
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

fn an_ordinary_user_has_a_server_of_its_own_and_no_privileged_port(world: &World) {
    let program = "
s = sctp()
print(error(s.bind, ('', 80)), error(s.bind, ('', 7001)))
";
    let command = as_user(NOBODY, &world.alpha, &world.python(&world.alpha, program, &[]));
    let output = world.alpha.run("nobody", command, LIMIT).unwrap().good().unwrap().stdout;
    assert_eq!(output, "EACCES None\n");
    // The socket server of an ordinary user refuses other users.
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

fn messages_in_transit_arrive_although_their_association_is_peeled_off(world: &World) {
    let server = world.serve(LATE_READER);
    let client = world.ask(FILLER, &[]).good().unwrap().stdout;
    let taken = client.lines().last().unwrap();
    let expected = format!("listening\n{taken} b'last'\n");
    assert!(wait_for(LIMIT, || server.stdout() == expected), "{expected}{}", server.stdout());
}

fn each_message_that_was_taken_arrives_although_the_peer_shuts_down(world: &World) {
    let server = world.serve(SHUTTER);
    let sent = world.ask(BULK, &[]).good().unwrap().stdout;
    let received = || server.stdout().replace("listening\n", "");
    assert!(wait_for(LIMIT, || received() == sent), "sent {sent}received {}", received());
}

fn sendmmsg_and_recvmmsg_wait_until_all_messages_are_transferred(world: &World) {
    let binary = c_programs::build("batches", world.lab.dir(), &[]).unwrap();
    let run = |host: &Host, words: &[&str]| {
        let mut command = world.sctp(host);
        command.arg(&binary).args(words);
        command
    };
    let mut server = world.beta.spawn("server", run(&world.beta, &["serve", PORT])).unwrap();
    server.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    let client = world.alpha.run("client", run(&world.alpha, &["ask", &world.to(), PORT]), LIMIT).unwrap();
    assert_eq!(client.good().unwrap().stdout, "16 sent by one call, read 0\n");
    let told = server.finish(LIMIT).unwrap().good().unwrap().stdout;
    let expected =
        "listening\ngetsockname EFAULT, read of nothing 0, 960000 octets, 4 messages by one call\n";
    assert_eq!(told, expected);
}

/// Sends messages on sockets that are closed at once. Then connects to an address of this host. On this connection,
/// sends to the peer, and to other destinations.
const AT_ONCE: &str = "
import ctypes, struct
storage = struct.pack('=H', socket.AF_INET) + struct.pack('>H', int(sys.argv[2])) + socket.inet_aton(sys.argv[1]) + bytes(120)
for n in range(20):
    s = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132)
    if n % 2: s.sendto(b'at once', (sys.argv[1], int(sys.argv[2])))
    else: assert ctypes.CDLL(None).sendto(s.fileno(), b'at once', 7, 0, storage, 128) == 7
    s.close()
own = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 132); own.bind((sys.argv[3], 7002)); own.listen(1)
s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 132); s.settimeout(5); s.connect((sys.argv[3], 7002))
print(error(s.sendto, b'x', ('2001:db8::1', 7002)), error(s.sendto, b'x', (sys.argv[3], 7003)), s.sendto(b'x', (sys.argv[3], 7002)))
print(own.accept()[0].recv(100), socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132).sendto(b'nobody', (sys.argv[1], 9)))
";

fn messages_go_to_their_peer_although_the_socket_is_closed_at_once(world: &World) {
    let server = world.serve(
        "
s = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132); s.bind(('', int(sys.argv[1]))); s.listen(9)
print('listening', flush=True)
print(sum(s.recv(100) == b'at once' for _ in range(20)), flush=True)
",
    );
    let own = world.links[0].left_v6().to_string();
    let client = world.ask(AT_ONCE, &[&own]).good().unwrap();
    assert_eq!(client.stdout, "EADDRNOTAVAIL EADDRNOTAVAIL 1\nb'x' 6\n", "{}", client.stderr);
    assert!(wait_for(LIMIT, || server.stdout().contains("20")), "{}", server.stdout());
}

/// Three hundred threads wait for a peer that does not answer. This number exceeds the 256 requests that a user may
/// have in progress.
const WAITING: &str = "
import threading
def wait(): error(sctp().connect, (sys.argv[1], int(sys.argv[2])))
for _ in range(300): threading.Thread(target=wait, daemon=True).start()
# ARP gives up after three seconds.
time.sleep(1.5)
print(isinstance(error(sctp), socket.socket), threading.active_count() > 290, flush=True)
os._exit(0)
";

fn hundreds_of_waiting_calls_do_not_prevent_new_sockets(world: &World) {
    world.links[0].silence().unwrap();
    let client = world.ask(WAITING, &[]).good().unwrap();
    assert_eq!(client.stdout, "True True\n", "{}", client.stderr);
}
