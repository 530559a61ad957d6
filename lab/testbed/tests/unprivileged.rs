//! Tests of `sctpify run` by an unprivileged user, on a host without a daemon. The server's host has a daemon
//! with a rule for [`PORT`].
//!
//! The tests need root to create the two hosts. They also need the programs, built next to the tests or in
//! SCTPIFY_BIN_DIR.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Finished, Host, Lab, Link, Offloads, Process, Programs};

/// Port of beta whose connections use SCTP.
const PORT: u16 = 7000;
/// Port whose connections are plain TCP.
const PLAIN_PORT: u16 = 7001;
const NOBODY_LISTENS: u16 = 7002;
const DATAGRAMS: u16 = 7003;
const LIMIT: Duration = Duration::from_secs(60);
/// Id of a user, and of a group, that own nothing.
const NOBODY: &str = "65534";

/// Answers each connection on port argv[1] with the number of received bytes and the client's address.
const SERVER: &str = "
import socket, sys
listener = socket.create_server(('', int(sys.argv[1])))
print('listening', flush=True)
while True:
    connection, peer = listener.accept()
    heard = b''
    while piece := connection.recv(65536): heard += piece
    connection.sendall(f'{len(heard)} bytes from {peer[0]}'.encode())
    connection.close()
";

/// Returns each datagram in capitals.
const ECHO: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', int(sys.argv[1])))
print('listening', flush=True)
while True:
    datagram, peer = s.recvfrom(65536)
    s.sendto(datagram.upper(), peer)
";

/// Connects to argv[1]:argv[2], sends 1 MiB, shuts down its sending side, and prints the answer. If a call
/// fails, prints the error instead.
const CLIENT: &str = "
import errno, socket, sys
try:
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    connection.sendall(bytes(1 << 20))
    connection.shutdown(socket.SHUT_WR)
    answer = b''
    while piece := connection.recv(65536): answer += piece
    print(answer.decode())
except OSError as error:
    print(errno.errorcode.get(error.errno, error))
";

const ASK: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
for word in (b'one', b'two'):
    s.sendto(word, (sys.argv[1], int(sys.argv[2])))
    print(s.recvfrom(100)[0].decode())
";

/// Runs the command in argv, waits for its first line, and sends SIGINT to the process alone. Prints the output and the
/// exit status.
const INTERRUPT: &str = "
import signal, subprocess, sys
command = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
command.stdout.readline()
command.send_signal(signal.SIGINT)
print(command.communicate()[0].strip(), command.returncode)
";

/// Prints the number of SIGINTs that arrive in a second.
const COUNT_INTERRUPTS: &str = "n=0; trap 'n=$((n+1))' INT; echo ready; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; echo $n; exit 3";

struct World {
    alpha: Host,
    link: Link,
    betas: Daemon,
    programs: Programs,
    servers: Vec<Process>,
    lab: Lab,
}

impl World {
    fn new() -> Self {
        Self::with("")
    }

    /// Creates a world with beta's configuration.
    fn with(configuration: &str) -> Self {
        let lab = Lab::new().unwrap();
        let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
        let link = lab.join(&alpha, &beta, 1, Offloads::On).unwrap();
        let found = Programs::find().unwrap();
        let betas = Daemon::start(&beta, &found, configuration).unwrap();
        let rule = ["-A", "-c", "local", "-p", "enable", "-P", &PORT.to_string()];
        betas.shimrules(&rule).unwrap().good().unwrap();
        let servers = [(SERVER, PORT), (SERVER, PLAIN_PORT), (ECHO, DATAGRAMS)];
        let servers = servers.map(|(program, port)| serve(&beta, program, port)).into();
        let programs = copy_for_all(&lab, &found);
        Self { alpha, link, betas, programs, servers, lab }
    }

    /// Runs a command with `sctpify run` on alpha, as an unprivileged user, and returns its result. `before`
    /// has environment variables, or a command that runs `sctpify`. These words precede `sctpify` on the
    /// command line.
    fn run(&self, before: &[&str], words: &[&str]) -> Finished {
        let mut command = self.alpha.command("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs", "env"]);
        command.arg(format!("HOME={}", self.lab.dir().join("home").display())).arg("XDG_RUNTIME_DIR=");
        command.args(before).arg(self.programs.path("sctpify")).args(["run", "--"]).args(words);
        self.alpha.run("run", command, LIMIT).unwrap()
    }

    fn python(&self, program: &str, port: u16) -> String {
        let to = self.link.right_v4().to_string();
        self.run(&[], &["python3", "-c", program, &to, &port.to_string()]).good().unwrap().stdout
    }

    /// Returns the number of connections that beta accepted over SCTP.
    fn accepts(&self) -> u64 {
        let output = self.betas.sctpify(&["status", "--json"]).unwrap().good().unwrap();
        let status: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        status["counters"]["accepts"].as_u64().unwrap()
    }
}

fn serve(host: &Host, program: &str, port: u16) -> Process {
    let mut command = host.command("python3");
    command.args(["-c", program, &port.to_string()]);
    let mut process = host.spawn("server", command).unwrap();
    process.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    process
}

/// Copies the programs to a place where every user can run them.
fn copy_for_all(lab: &Lab, programs: &Programs) -> Programs {
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let (bin, home) = (lab.dir().join("bin"), lab.dir().join("home"));
    for dir in [&bin, &home] {
        std::fs::create_dir(dir).unwrap();
    }
    for dir in [lab.dir(), &bin] {
        open(dir);
    }
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o777)).unwrap();
    for name in ["sctpifyd", "sctpify", "shimrules"] {
        std::fs::copy(programs.path(name), bin.join(name)).unwrap();
        open(&bin.join(name));
    }
    Programs::in_dir(&bin).unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_unprivileged_users_command_uses_sctp_and_the_server_sees_the_hosts_address() {
    let world = World::new();
    let expected = format!("{} bytes from {}\n", 1 << 20, world.link.left_v4());
    assert_eq!(world.python(CLIENT, PORT), expected);
    assert_eq!(world.accepts(), 1);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_command_uses_plain_tcp_with_half_close_if_the_destination_lacks_sctp() {
    let world = World::new();
    let expected = format!("{} bytes from {}\n", 1 << 20, world.link.left_v4());
    assert_eq!(world.python(CLIENT, PLAIN_PORT), expected);
    assert_eq!(world.accepts(), 0);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn errors_for_refused_connections_and_unreachable_destinations_reach_the_command() {
    let world = World::new();
    assert_eq!(world.python(CLIENT, NOBODY_LISTENS), "ECONNREFUSED\n");
    let mut nobody: [u8; 4] =
        world.link.right_v4().to_string().parse::<std::net::Ipv4Addr>().unwrap().octets();
    nobody[3] = 77;
    let nobody = std::net::Ipv4Addr::from(nobody).to_string();
    for (to, expected) in [(nobody.as_str(), "EHOSTUNREACH\n"), ("198.51.100.1", "ENETUNREACH\n")] {
        let output = world.run(&[], &["python3", "-c", CLIENT, to, "80"]).good().unwrap();
        assert_eq!(output.stdout, expected, "{to}");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn datagrams_go_and_come_and_the_commands_user_and_exit_status_are_its_own() {
    let world = World::new();
    assert_eq!(world.python(ASK, DATAGRAMS), "ONE\nTWO\n");
    let output = world.run(&[], &["sh", "-c", "id -u; exit 7"]);
    assert_eq!((output.stdout.trim(), output.status.code()), (NOBODY, Some(7)));
    let left = || std::fs::read_dir(std::env::temp_dir()).unwrap();
    let mine = || left().filter(|f| f.as_ref().is_ok_and(|f| is_of_nobody(&f.file_name()))).count();
    assert!(wait_for(LIMIT, || mine() == 0), "directories of runs are left");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_command_gets_the_interrupt_that_a_process_sends_to_sctpify() {
    let world = World::new();
    let run = world.run(&["python3", "-c", INTERRUPT], &["sh", "-c", COUNT_INTERRUPTS]);
    assert_eq!(run.good().unwrap().stdout, "1 3\n");
}

fn is_of_nobody(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with(&format!("sctpify-run-{NOBODY}-"))
}

/// Connects to argv[1]:argv[2] twelve times. Prints the number of connections over SCTP, and whether more
/// than five of them used a shared association.
const TWELVE: &str = "
import json, socket, subprocess, sys, time
for n in range(12):
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    connection.sendall(b'12345')
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(100) == f'5 bytes from {sys.argv[3]}'.encode()
    time.sleep(0.1)
status = json.loads(subprocess.run([sys.argv[4], 'status', '--json'], capture_output=True, check=True).stdout)
print(status['counters']['connects_sctp'], status['counters']['connects_shared'] > 5)
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn connections_of_a_command_share_an_association() {
    let world = World::new();
    let (to, from) = (world.link.right_v4().to_string(), world.link.left_v4().to_string());
    let sctpify = world.programs.path("sctpify").display().to_string();
    let words = ["python3", "-c", TWELVE, &to, &PORT.to_string(), &from, &sctpify];
    assert_eq!(world.run(&[], &words).good().unwrap().stdout, "12 True\n");
    assert_eq!(world.accepts(), 12);
}

/// Connects to argv[1]:argv[2]. While the connection is open, prints the number of different peer keys of the
/// associations, these keys, and the user's own key.
const ENCRYPTED: &str = "
import json, socket, subprocess, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
connection.sendall(b'x')
status = json.loads(subprocess.run([sys.argv[3], 'status', '--json'], capture_output=True, check=True).stdout)
peer = {association['encryption']['peer'] for association in status['associations']}
key = subprocess.run([sys.argv[3], 'key'], capture_output=True, check=True, text=True).stdout.split()[0]
print(len(peer), *peer, key)
# The server must not write to a connection that is closed: it would end with an error, and refuse the next one.
connection.shutdown(socket.SHUT_WR)
while connection.recv(100): pass
connection.close()
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_command_of_a_user_encrypts_with_a_key_of_that_user() {
    let world = World::with("encryption = \"try\"\n");
    let home = world.lab.dir().join("home");
    let config = home.join("sctpify.toml");
    std::fs::write(&config, "encryption = \"try\"\n").unwrap();
    let config = format!("SCTPIFY_CONFIG={}", config.display());
    let to = world.link.right_v4().to_string();
    let sctpify = world.programs.path("sctpify").display().to_string();
    let words = ["python3", "-c", ENCRYPTED, &to, &PORT.to_string(), &sctpify];
    let output = world.run(&[&config], &words).good().unwrap().stdout;
    let betas_key = world.betas.sctpify(&["key"]).unwrap().good().unwrap().stdout;
    let found: Vec<&str> = output.split_whitespace().collect();
    assert_eq!(found[..2], ["1", betas_key.lines().next().unwrap()], "{output}");
    assert_ne!(found[2], found[1]);
    let again = world.run(&[&config], &words).good().unwrap().stdout;
    assert_eq!(again, output, "the key is kept, and beta is known");
    let file = std::fs::metadata(home.join(".local/state/sctpify/host.key")).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&file).to_string();
    assert_eq!((file.permissions().mode() & 0o7777, owner.as_str()), (0o600, NOBODY));
    let peers = std::fs::read_to_string(home.join(".local/state/sctpify/peers")).unwrap();
    assert!(peers.contains(found[1]), "{peers}");
}

/// The daemon that `sctpify run` starts runs as the user of the command. It reads packets that any host may
/// send, so an attacker may take control of it.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_daemon_of_a_command_can_run_no_program_and_reach_no_other_file() {
    let world = World::new();
    let sctpify = world.programs.path("sctpify").display().to_string();
    let output = world.run(&[], &[&sctpify, "status", "--json"]).good().unwrap().stdout;
    let status: serde_json::Value = serde_json::from_str(&output).unwrap();
    let confinement = &status["confinement"];
    let measures = ["capabilities", "system_calls", "files"];
    assert!(measures.iter().all(|what| confinement[what]["state"] == "in_force"), "{confinement}");
    assert_eq!(confinement["capabilities"]["left"], "net_admin, net_raw", "{confinement}");
    let files = confinement["files"]["left"].as_str().unwrap();
    assert!(files.contains("/home/.local/state/sctpify") && !files.contains("/home,"), "{files}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_command_can_run_sctpify_doctor_and_capture_on_its_daemon() {
    let world = World::new();
    let sctpify = world.programs.path("sctpify").display().to_string();
    let output = world.run(&[], &[&sctpify, "doctor"]).good().unwrap().stdout;
    assert!(output.contains("none needed: this daemon serves one command"), "{output}");
    assert!(output.contains("listening on a UDP port of the kernel's choice"), "{output}");
    let file = world.lab.dir().join("home/packets.pcapng").display().to_string();
    let (to, port) = (world.link.right_v4().to_string(), PORT.to_string());
    let script = "$0 capture --seconds 2 -o $1 & sleep 0.5; python3 -c \"$2\" $3 $4 && wait";
    let output =
        world.run(&[], &["sh", "-c", script, &sctpify, &file, CLIENT, &to, &port]).good().unwrap().stdout;
    assert!(output.contains("packets in"), "{output}");
    let seen = testbed::capture::judge_file(std::path::Path::new(&file)).unwrap();
    assert!(seen.sctp > 20 && seen.faulty == 0, "{seen:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn where_user_namespaces_are_forbidden_nothing_runs_and_the_remedy_is_told() {
    let mut world = World::new();
    // `sctpify run` runs in a user namespace that forbids further user namespaces.
    let output = world.run(
        &[
            "unshare",
            "--user",
            "--map-root-user",
            "sh",
            "-c",
            "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"",
            "-",
        ],
        &["echo", "it ran"],
    );
    assert!(!output.stdout.contains("it ran"), "{output:?}");
    assert!(output.stderr.contains("user.max_user_namespaces"), "{output:?}");
    world.servers.clear();
}
