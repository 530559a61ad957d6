//! Programs without a library, whose calls a supervisor does (`--seccomp`).

use std::path::Path;
use std::process::Command;

use crate::world::{LIMIT, World};

/// Directory of what set-up brings (`scripts/setup.sh`).
const BROUGHT: &str = "/usr/local/lib/sctpify-tests";
const GO_MODULE: &str = "github.com/ishidawataru/sctp";

/// A Go package for SCTP sockets has tests of its own, here as a static program.
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
        // One by one: a test of them leaves a descriptor to the garbage collector, which closes another test's.
        let mut command = world.sctp(&world.alpha);
        command.arg(&binary).args(["-test.v", "-test.run", &format!("^{name}$")]);
        let output = world.alpha.run(name, command, LIMIT).unwrap();
        let told = format!("{}{}", output.stdout, output.stderr);
        assert!(told.contains(&format!("--- PASS: {name}")) && output.good().is_ok(), "{told}");
    }
}

/// Answers each message by itself.
const ECHO: &str = "
s, _ = listen(sys.argv[1]).accept()
while message := s.recv(100): s.send(message)
";

/// Signals reach a thread that waits in a call: their handler runs, and the call goes on or not, as `SA_RESTART` says. Messages are neither
/// lost nor doubled while signals come all the time.
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

/// Copies of a descriptor are sockets as well, but not those with low numbers, whose calls nobody hears of.
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

/// A program ends, and one that it has started goes on with SCTP.
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
