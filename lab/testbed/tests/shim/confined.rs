//! Tests of the privileges and the access that a compromised daemon would have.

use crate::world::{LIMIT, PORT, World, status};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Host, Process, cpu};

/// Capabilities of the supervisor, in the format of /proc: CAP_NET_ADMIN, CAP_KILL and CAP_CHOWN.
const OF_SUPERVISOR: &str = "0000000000001021";
/// Capabilities of the worker: CAP_NET_ADMIN and CAP_NET_RAW.
const NET_ADMIN_AND_RAW: &str = "0000000000003000";

/// Returns the distinct values that this line of /proc/PID/task/TID/status has in the threads of a process.
fn of_threads(process: u32, line: &str) -> BTreeSet<String> {
    let tasks = fs::read_dir(Path::new("/proc").join(process.to_string()).join("task")).unwrap();
    let value = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("status")).unwrap();
        let found = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
        found.unwrap().trim().to_owned()
    };
    tasks.map(|task| value(task.unwrap())).collect()
}

fn is_everywhere(process: u32, line: &str, value: &str) {
    assert_eq!(of_threads(process, line), BTreeSet::from([value.to_owned()]), "{line} of {process}");
}

pub(crate) fn worker_of(host: &Host, daemon: &Daemon) -> u32 {
    let all = cpu::processes(host, "sctpifyd").unwrap();
    all.into_iter().find(|id| *id != daemon.id()).unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn all_threads_have_only_the_needed_capabilities_and_a_system_call_filter() {
    let world = World::new();
    let worker = worker_of(&world.alpha, &world.alphas);
    for (process, kept) in [(worker, NET_ADMIN_AND_RAW), (world.alphas.id(), OF_SUPERVISOR)] {
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            is_everywhere(process, set, kept);
        }
        is_everywhere(process, "CapInh", "0000000000000000");
        is_everywhere(process, "NoNewPrivs", "1");
        is_everywhere(process, "Seccomp", "2");
    }
    assert!(of_threads(worker, "Name").len() > 3, "all of its threads were looked at");
    let report = status(&world.alphas)["confinement"].take();
    assert_eq!(report["capabilities"]["left"], "net_admin, net_raw", "{report}");
    assert!(["system_calls", "files"].iter().all(|what| report[what]["state"] == "in_force"), "{report}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn settings_turn_off_each_confinement_measure() {
    let off = "confine_capabilities = false\nconfine_system_calls = false\nconfine_files = false\n\
               worker_user = \"root\"\n";
    let world = World::with(off, false);
    let worker = worker_of(&world.alpha, &world.alphas);
    is_everywhere(worker, "Seccomp", "0");
    is_everywhere(worker, "NoNewPrivs", "0");
    is_everywhere(worker, "Uid", "0\t0\t0\t0");
    let output = status(&world.alphas)["confinement"].take();
    assert!(output.as_object().unwrap().values().all(|measure| measure["state"] == "off"), "{output}");
    let doctor = world.alphas.sctpify(&["doctor"]).unwrap().stdout;
    assert!(doctor.contains("sctpify set confine_files=1"), "{doctor}");
    assert!(doctor.contains("sctpify set worker_user=,"), "{doctor}");
}

/// Returns the user id of a process. Panics unless the real, effective, saved and file system ids of all
/// threads are equal.
fn uid_of(process: u32) -> u32 {
    let report = of_threads(process, "Uid");
    let all: BTreeSet<&str> = report.iter().flat_map(|line| line.split_whitespace()).collect();
    assert_eq!(all.len(), 1, "{report:?}");
    all.first().unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_worker_and_its_sockets_belong_to_a_dedicated_unprivileged_user() {
    let world = World::new();
    let worker = worker_of(&world.alpha, &world.alphas);
    let uid = uid_of(worker);
    assert!(![0, 65_534].contains(&uid), "{uid}");
    is_everywhere(worker, "Groups", "");
    assert!(of_threads(worker, "Gid").iter().all(|line| line.split_whitespace().all(|gid| gid != "0")));
    assert_eq!(uid_of(world.alphas.id()), 0, "the supervisor");
    let output = status(&world.alphas)["confinement"]["user"]["left"].to_string();
    assert!(output.contains(&format!("uid {uid}")), "{output}");
    let doctor = world.alphas.sctpify(&["doctor"]).unwrap().stdout;
    assert!(doctor.contains(&format!("uid {uid}")), "{doctor}");
    // The UDP socket of SCTP must belong to the worker's user. The sockets that the worker opens later belong
    // to this user, and only sockets of one user can share a port.
    for table in ["udp", "udp6"] {
        let sockets = world.alpha.tool("cat", &[&format!("/proc/net/{table}")]).unwrap();
        let of_sctp = sockets.lines().find(|line| line.contains(":26AB ")).unwrap();
        assert_eq!(of_sctp.split_whitespace().nth(7), Some(uid.to_string().as_str()), "{of_sctp}");
    }
    // Root owns the worker's files in /proc, so another process of the same user can neither trace the worker
    // nor read its memory.
    assert_eq!(fs::metadata(format!("/proc/{worker}/mem")).unwrap().uid(), 0);
}

/// Starts a server of root on a UNIX socket with this mode. The server prints the user id of each process
/// that connects.
fn root_server(host: &Host, socket: &Path, mode: &str) -> Process {
    let tell = "
import os, socket, struct, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], int(sys.argv[2], 8))
listener.listen()
print('listening', flush=True)
while True:
    peer, _ = listener.accept()
    print('user', struct.unpack('3i', peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1], flush=True)
";
    let mut command = host.command("python3");
    command.args(["-c", tell]).arg(socket).arg(mode);
    let mut process = host.spawn("root-server", command).unwrap();
    process.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    process
}

/// Runs a daemon whose `learned_store` is a server of root, on a UNIX socket with this mode. Returns the user
/// id that this server saw, and the daemon's log.
fn connect_to_a_socket_of_roots(mode: &str, more: &str) -> (Option<u32>, String) {
    // The daemon checks the store and the rules every five seconds.
    const LIMIT: Duration = Duration::from_secs(20);
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let socket = dir.path().join("root.sock");
    let configuration = format!("learned_store = \"redis+unix://{}\"\n{more}", socket.display());
    let lab = testbed::Lab::new().unwrap();
    let server = root_server(&lab.host("beta").unwrap(), &socket, mode);
    let programs = testbed::Programs::find().unwrap();
    let daemon = Daemon::start(&lab.host("alpha").unwrap(), &programs, &configuration).unwrap();
    let seen = || server.stdout().lines().find_map(|line| line.strip_prefix("user ")?.parse().ok());
    assert!(
        wait_for(LIMIT, || seen().is_some() || daemon.log().contains("learned_store: ")),
        "{}",
        daemon.log()
    );
    (seen(), daemon.log())
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_worker_cannot_connect_to_a_unix_socket_that_only_root_may_use() {
    let (seen, log) = connect_to_a_socket_of_roots("600", "");
    assert!(seen.is_none() && log.contains("Permission denied"), "{seen:?}: {log}");
    // The worker can connect to a socket that all users may use. The server sees the worker's user, not root.
    let (seen, log) = connect_to_a_socket_of_roots("666", "");
    assert!(seen.is_some_and(|uid| uid != 0), "{seen:?}: {log}");
    // The control: a worker with root as its user can connect to the socket.
    let (seen, log) = connect_to_a_socket_of_roots("600", "worker_user = \"root\"\n");
    assert_eq!(seen, Some(0), "{log}");
}

/// Returns the mode and the owner of a file.
fn of_file(path: &Path) -> (u32, u32) {
    let status = fs::metadata(path).unwrap();
    (status.mode() & 0o7777, status.uid())
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn root_can_turn_off_confinement_but_a_request_to_the_control_socket_cannot() {
    let world = World::with("# mine\n", false);
    let (dir, rules) = (world.alpha.dir().unwrap().join("sctpifyd"), "rules");
    let file = dir.join("sctpify.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // The daemon still writes its own files, and keeps their mode and owner.
    world.alphas.sctpify(&["set", "race_timer_ms=200"]).unwrap().good().unwrap();
    assert_eq!(world.alphas.sctpify(&["get", "race_timer_ms"]).unwrap().stdout.trim(), "200");
    assert!(fs::read_to_string(&file).unwrap().contains("race_timer_ms = 200"));
    assert_eq!((of_file(&file), of_file(&dir.join(rules))), ((0o600, 0), (0o600, 0)));
    // Sends the request of `sctpify set` directly to the control socket, as a compromised worker could.
    let ask = "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'{\"schema\":1,\"request\":\"set\",\"name\":\"confine_files\",\"value\":\"0\"}\\n')
print(s.makefile().readline())
";
    let socket = dir.join("control.sock");
    let command = world.client("python3", &["-c", ask, socket.to_str().unwrap()]);
    let output = world.alpha.run("ask", command, LIMIT).unwrap().good().unwrap().stdout;
    assert!(output.contains("changed only by root"), "{output}");
    assert!(!fs::read_to_string(&file).unwrap().contains("confine_files"));
    // `sctpify`, run by root, writes the setting to the file, and makes the daemon reload the file.
    world.alphas.sctpify(&["set", "confine_files=0"]).unwrap().good().unwrap();
    assert!(fs::read_to_string(&file).unwrap().contains("confine_files = false"));
    assert_eq!(of_file(&file), (0o600, 0));
    assert_eq!(world.alphas.sctpify(&["get", "confine_files"]).unwrap().stdout.trim(), "0");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn privileged_cleanup_is_done_when_the_daemon_stops() {
    let world = World::with("", false);
    let sysctl = |name: &str| world.alpha.tool("cat", &[&format!("/proc/sys/net/ipv4/{name}")]).unwrap();
    assert_eq!(sysctl("fwmark_reflect").trim(), "1");
    let socket = world.alpha.dir().unwrap().join("sctpifyd/control.sock");
    world.alphas.sctpify(&["down"]).unwrap().good().unwrap();
    assert_eq!((sysctl("fwmark_reflect").trim(), sysctl("tcp_fwmark_accept").trim()), ("0", "0"));
    assert!(!socket.exists(), "the control socket is left");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn without_a_supervisor_the_daemon_keeps_running_as_root_and_logs_a_notice() {
    let (lab, programs) = (testbed::Lab::new().unwrap(), testbed::Programs::find().unwrap());
    let alpha = lab.host("alpha").unwrap();
    let dir = alpha.dir().unwrap();
    let socket = dir.join("control.sock");
    let mut command = alpha.command(programs.path("sctpifyd"));
    command.arg("--no-supervisor").arg("--control").arg(&socket).arg("--state-dir").arg(&dir);
    command.arg("--config").arg(dir.join("sctpify.toml"));
    let mut daemon = alpha.spawn("sctpifyd", command).unwrap();
    daemon.wait_until("socket", LIMIT, |process| process.stderr().contains("sctpifyd is up")).unwrap();
    assert_eq!(uid_of(daemon.id()), 0);
    is_everywhere(daemon.id(), "Seccomp", "2");
    assert!(daemon.stderr().contains("no supervisor writes its files"), "{}", daemon.stderr());
    // Without a supervisor, the daemon itself writes its files.
    let mut set = alpha.command(programs.path("sctpify"));
    set.args(["set", "race_timer_ms=200"]).env("SCTPIFY_CONTROL", &socket);
    alpha.run("set", set, LIMIT).unwrap().good().unwrap();
    assert_eq!(of_file(&dir.join("sctpify.toml")), (0o600, 0));
}

/// Replaces the rules file by a symbolic link to a file outside the state directory. An intruder could try to
/// read that file in this way. Then reloads the rules. Returns whether the reload succeeded, and the output
/// of the reload.
fn reload_of_a_rules_file_elsewhere(configuration: &str) -> (bool, String) {
    let world = World::with(configuration, false);
    let (rules, elsewhere) =
        (world.alpha.dir().unwrap().join("sctpifyd/rules"), world.alpha.dir().unwrap().join("elsewhere"));
    fs::rename(&rules, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &rules).unwrap();
    let output = world.alphas.sctpify(&["reload"]).unwrap();
    (output.status.success(), output.stdout + &output.stderr)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_daemon_cannot_read_a_rules_file_outside_its_state_directory() {
    let (could, text) = reload_of_a_rules_file_elsewhere("");
    assert!(!could && text.contains("Permission denied"), "{text}");
    let (could, text) = reload_of_a_rules_file_elsewhere("confine_files = false\n");
    assert!(could, "{text}");
}

/// The daemon lacks the privilege to bind ports below 1024. If the client has such a port, the server must
/// still see this port as the connection's source port.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_clients_port_below_1024_is_kept() {
    const OWN_PORT: u16 = 600;
    let world = World::new();
    let tell_the_peer = "
import socket, sys
listener = socket.create_server(('', int(sys.argv[1])))
print('listening', flush=True)
client, address = listener.accept()
client.sendall(str(address[1]).encode())
";
    let ask = "
import socket, sys
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), source_address=('', int(sys.argv[3])))
print(stream.recv(9).decode())
";
    let (port, own) = (PORT.to_string(), OWN_PORT.to_string());
    let _server = world.serve("python3", &["-c", tell_the_peer, &port]);
    let client = world.client("python3", &["-c", ask, &world.link.right_v4().to_string(), &port, &own]);
    let output = world.alpha.run("client", client, LIMIT).unwrap().good().unwrap();
    assert_eq!((output.stdout.trim(), world.connects_sctp()), (own.as_str(), 1));
}
