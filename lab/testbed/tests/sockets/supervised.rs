//! Tests of programs without the preloaded library. The seccomp supervisor performs the SCTP calls of these programs
//! (`--seccomp`).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::world::{LIMIT, PORT, PRELUDE, World};

/// Directory in which `scripts/setup.sh` installs programs for tests.
const BROUGHT: &str = "/usr/local/lib/sctpify-tests";
const GO_MODULE: &str = "github.com/ishidawataru/sctp";

/// Runs the tests of a Go package for SCTP sockets, built as a static program.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_tests_of_a_go_package_for_sctp_pass() {
    let world = World::new(1);
    let binary = world.lab.dir().join("sctp.test");
    let mut go = Command::new("go");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop/go-sctp"));
    go.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
    go.env("GOMODCACHE", format!("{BROUGHT}/go")).args(["test", "-c", "-o"]).arg(&binary).arg(GO_MODULE);
    if !go.output().is_ok_and(|output| output.status.success()) {
        return testbed::skip("the Go module ishidawataru/sctp is missing (scripts/setup.sh)");
    }
    let mut list = Command::new(&binary);
    let names = String::from_utf8(list.args(["-test.list", "."]).output().unwrap().stdout).unwrap();
    assert_eq!(names.lines().count(), 14);
    for name in names.lines() {
        // The tests run one by one. One test leaves a descriptor to Go's garbage collector. If tests ran concurrently,
        // the late close could hit a reused descriptor of another test.
        let mut command = world.sctp(&world.alpha);
        command.arg(&binary).args(["-test.v", "-test.run", &format!("^{name}$")]);
        let output = world.alpha.run(name, command, LIMIT).unwrap();
        let told = format!("{}{}", output.stdout, output.stderr);
        assert!(told.contains(&format!("--- PASS: {name}")) && output.good().is_ok(), "{told}");
    }
}

/// Sends each message back.
const ECHO: &str = "
s, _ = listen(sys.argv[1]).accept()
while message := s.recv(100): s.send(message)
";

/// Checks that signals reach a thread that waits in a call. The handler runs, and `SA_RESTART` decides whether the call
/// continues. Also checks that frequent signals neither lose nor duplicate messages.
const SIGNALS: &str = "
import signal, struct
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
handled = []
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGALRM, stop); signal.setitimer(signal.ITIMER_REAL, 0.2)
try: s.recv(1)
except Stop: print('stopped')
signal.signal(signal.SIGALRM, lambda *_: handled.append(1)); signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.2)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 1, 0))
print(error(s.recv, 1), len(handled))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 0))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
for n in range(1000):
    s.send(str(n).encode())
    assert s.recv(100) == str(n).encode(), n
signal.setitimer(signal.ITIMER_REAL, 0)
print('in step', len(handled) > 10)
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn signals_reach_a_thread_that_waits_and_harm_no_message() {
    let world = World::supervised(1);
    let _server = world.serve(ECHO);
    let client = world.ask(SIGNALS, &[]).good().unwrap();
    assert_eq!(client.stdout, "stopped\nEAGAIN 1\nin step True\n", "{}", client.stderr);
}

/// Checks that copies of a descriptor are SCTP sockets, too. A copy to a number below 512 is refused, because the
/// supervisor does not see calls on descriptors below 512.
const COPIES: &str = "
import fcntl
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
copy, again = s.dup(), socket.socket(fileno=fcntl.fcntl(s, fcntl.F_DUPFD_CLOEXEC, 700))
print(s.fileno() >= 512, copy.fileno() >= 512, again.fileno() >= 700, error(os.dup2, s.fileno(), 40), error(os.dup2, s.fileno(), 900))
s.close()
copy.send(b'by a copy'); print(again.recv(100), os.read(900, 1) if select.select([900], [], [], 0.1)[0] else 'nothing')
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn copies_of_a_descriptor_are_sockets_too() {
    let world = World::supervised(1);
    let _server = world.serve(ECHO);
    let client = world.ask(COPIES, &[]).good().unwrap();
    let expected = "True True True EINVAL 900\nb'by a copy' nothing\n";
    assert_eq!(client.stdout, expected, "{}", client.stderr);
}

/// A program starts a second program and ends. The second program must still be able to use SCTP.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_supervisor_stays_for_a_program_whose_parent_has_ended() {
    let world = World::supervised(1);
    let _server = world.serve(ECHO);
    let client = "
if os.fork(): os._exit(7)
time.sleep(0.5)
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
s.send(b'still served'); print(s.recv(100).decode(), flush=True)
";
    let output = world.ask(client, &[]).good();
    let told = output.expect_err("the command's status is passed on").to_string();
    assert!(told.contains("exit status: 7") && told.contains("still served"), "{told}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_supervisor_inside_another_one_is_refused_with_the_reason() {
    let world = World::supervised(1);
    let mut command = world.sctp(&world.alpha);
    command.arg(world.programs.path("sctpify")).args(["run", "--sctp", "--seccomp", "--", "true"]);
    let output = world.alpha.run("inner", command, LIMIT).unwrap();
    assert!(
        output.stderr.contains("another seccomp supervisor has this process already"),
        "{}",
        output.stderr
    );
    assert!(output.good().is_err());
}

/// Starts 1100 threads in sequence, each for one message. The number of threads exceeds the default limit on a
/// process's descriptors. The kernel cuts each thread's name at 15 bytes, within a character.
const THREADS: &str = "
import ctypes, threading
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
answers = []
def once():
    ctypes.CDLL(None).prctl(15, 'Thread Nr. 123\\u00e9'.encode(), 0, 0, 0)
    s.send(b'x'); answers.append(s.recv(100))
for n in range(1100):
    t = threading.Thread(target=once); t.start(); t.join()
print(len(answers), set(answers))
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_program_may_have_any_number_of_threads_with_any_name() {
    let world = World::supervised(1);
    let _server = world.serve(ECHO);
    let client = world.ask(THREADS, &[]).good().unwrap();
    assert_eq!(client.stdout, "1100 {b'x'}\n", "{}", client.stderr);
}

/// Four threads wait while the process gets signals repeatedly. No thread may see an error that a kernel with SCTP
/// would not return.
const SHARED_SIGNAL: &str = "
import signal, threading
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
handled, seen = [], []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
def wait():
    try: seen.append(s.recv(1))
    except OSError as e: seen.append(e.errno)
threads = [threading.Thread(target=wait) for _ in range(3)]
for t in threads: t.start()
if os.fork() == 0:
    for _ in range(20): time.sleep(0.05); os.kill(os.getppid(), signal.SIGUSR1)
    time.sleep(0.2)
    for _ in range(4): s.send(b'x')
    os._exit(0)
wait()
for t in threads: t.join()
print(seen, len(handled) > 5)
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_signal_for_a_process_harms_no_thread_of_it() {
    let world = World::supervised(1);
    let _server = world.serve(ECHO);
    let client = world.ask(SHARED_SIGNAL, &[]).good().unwrap();
    assert_eq!(client.stdout, "[b'x', b'x', b'x', b'x'] True\n", "{}", client.stderr);
}

/// Kills a child process that waits for a message, twenty times. Each time, the message arrives immediately after the
/// kill, and the parent process must get the message.
const WORKERS: &str = "
import signal
s, _ = listen(sys.argv[1]).accept()
for n in range(20):
    worker = os.fork()
    if worker == 0: s.recv(100); os._exit(0)
    time.sleep(0.05)
    os.kill(worker, signal.SIGKILL); s.send(b'now')
    s.settimeout(5); s.recv(100); s.settimeout(None)
    os.waitpid(worker, 0)
print('all came', flush=True)
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_child_process_killed_while_it_receives_loses_no_message() {
    let world = World::supervised(1);
    let mut server = world.serve(WORKERS);
    let client = "
s = sctp(); s.connect((sys.argv[1], int(sys.argv[2])))
while s.recv(100) == b'now': s.send(b'here')
";
    world.ask(client, &[]).good().unwrap();
    server.wait_until("all", LIMIT, |server| server.stdout().contains("all came")).unwrap();
}

/// Makes 300 attempts to connect. A signal ends each attempt. The attempts must leave no resources in use.
const INTERRUPTED: &str = "
import signal
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGALRM, stop)
ended = 0
for n in range(300):
    s = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        s.connect((sys.argv[1], int(sys.argv[2])))
    except Stop: ended += 1
    s.close()
print(ended, isinstance(sctp(), socket.socket))
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn interrupted_connects_leave_no_resources_behind() {
    let world = World::supervised(1);
    world.links[0].silence().unwrap();
    let client = world.ask(INTERRUPTED, &[]).good().unwrap();
    assert_eq!(client.stdout, "300 True\n", "{}", client.stderr);
}

/// Checks that calls on a descriptor above 511 work if the descriptor is not an SCTP socket: the kernel must handle
/// them. Then checks that a program gets no SCTP sockets after it has entered another network namespace.
const NAMESPACE: &str = "
import ctypes
a, b = socket.socketpair()
os.dup2(a.fileno(), 600)
print(os.write(600, b'plain'), b.recv(100), error(socket.socket(fileno=os.dup(600)).getpeername))
libc = ctypes.CDLL(None)
print(isinstance(sctp(), socket.socket), libc.unshare(0x40000000), error(sctp))
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn another_network_namespace_has_no_sockets_of_this_one() {
    let world = World::supervised(1);
    let client = world.ask(NAMESPACE, &[]).good().unwrap();
    assert_eq!(client.stdout, "5 b'plain' \nTrue 0 ENETDOWN\n", "{}", client.stderr);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_privileged_port_needs_the_programs_own_right() {
    let world = World::supervised(1);
    let mut command = world.sctp(&world.alpha);
    command.args(["setpriv", "--bounding-set", "-net_bind_service", "--", "python3", "-c"]);
    command.arg(format!("{PRELUDE}print(error(sctp().bind, ('', 80)), error(sctp().bind, ('', 7001)))"));
    let output = world.alpha.run("low", command, LIMIT).unwrap().good().unwrap();
    assert_eq!(output.stdout, "EACCES None\n", "{}", output.stderr);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_supervisor_works_inside_a_program_with_the_preloaded_library() {
    let world = World::new(1);
    let _server = world.serve(ECHO);
    let program = format!(
        "{PRELUDE}s = sctp(); s.connect(('{}', {PORT})); s.send(b'x'); print(s.fileno() >= 512, s.recv(1))",
        world.to()
    );
    let mut command = world.sctp(&world.alpha);
    command.args(["sh", "-c", "exec \"$0\" run --sctp --seccomp -- python3 -c \"$1\""]);
    command.arg(world.programs.path("sctpify")).arg(program);
    let output = world.alpha.run("inner", command, LIMIT).unwrap().good().unwrap();
    assert_eq!(output.stdout, "True b'x'\n", "{}", output.stderr);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn sctpify_run_ends_on_a_signal_that_arrives_after_its_command_has_ended() {
    let world = World::supervised(1);
    let mut command = world.sctp(&world.alpha);
    command.args(["sh", "-c", "setsid sleep 30 & echo started; exit 3"]);
    let mut run = world.alpha.spawn("run", command).unwrap();
    run.wait_until("its command", LIMIT, |run| run.stdout().contains("started")).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(run.is_running());
    run.signal(Signal::SIGTERM).unwrap();
    let ended = run.finish(Duration::from_secs(5)).unwrap();
    let told = ended.good().unwrap_err().to_string();
    assert!(told.contains("143"), "{told}");
    let mut missing = world.sctp(&world.alpha);
    missing.arg("no-such-command");
    let output = world.alpha.run("missing", missing, LIMIT).unwrap().good().unwrap_err().to_string();
    assert!(output.contains("127") && output.contains("no-such-command"), "{output}");
}
