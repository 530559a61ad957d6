//! What a running daemon can still do if somebody takes it over.

use crate::world::{LIMIT, PORT, World, status};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use testbed::{Daemon, Host, cpu};

/// CAP_NET_ADMIN, and that with CAP_NET_RAW, as /proc prints sets of capabilities.
const NET_ADMIN: &str = "0000000000001000";
const NET_ADMIN_AND_RAW: &str = "0000000000003000";

/// What all threads of a process say of themselves in this line of /proc/PID/status.
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
fn all_threads_have_two_capabilities_at_most_and_a_filter_of_system_calls() {
    let world = World::new();
    let worker = worker_of(&world.alpha, &world.alphas);
    for (process, kept) in [(worker, NET_ADMIN_AND_RAW), (world.alphas.id(), NET_ADMIN)] {
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            is_everywhere(process, set, kept);
        }
        is_everywhere(process, "CapInh", "0000000000000000");
        is_everywhere(process, "NoNewPrivs", "1");
        is_everywhere(process, "Seccomp", "2");
    }
    assert!(of_threads(worker, "Name").len() > 3, "all of its threads were looked at");
    let told = status(&world.alphas)["confinement"].take();
    assert_eq!(told["capabilities"]["left"], "net_admin, net_raw", "{told}");
    assert!(["system_calls", "files"].iter().all(|what| told[what]["state"] == "in_force"), "{told}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn settings_turn_each_of_them_off() {
    let off = "confine_capabilities = false\nconfine_system_calls = false\nconfine_files = false\n";
    let world = World::with(off, false);
    let worker = worker_of(&world.alpha, &world.alphas);
    is_everywhere(worker, "Seccomp", "0");
    is_everywhere(worker, "NoNewPrivs", "0");
    let told = status(&world.alphas)["confinement"].take();
    assert!(told.as_object().unwrap().values().all(|measure| measure["state"] == "off"), "{told}");
    let doctor = world.alphas.sctpify(&["doctor"]).unwrap().stdout;
    assert!(doctor.contains("sctpify set confine_files=1"), "{doctor}");
}

/// A rules file that leads out of the state directory is one that an intruder would like to read.
fn reload_of_a_rules_file_elsewhere(configuration: &str) -> (bool, String) {
    let world = World::with(configuration, false);
    let (rules, elsewhere) =
        (world.alpha.dir().unwrap().join("sctpifyd/rules"), world.alpha.dir().unwrap().join("elsewhere"));
    fs::rename(&rules, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &rules).unwrap();
    let told = world.alphas.sctpify(&["reload"]).unwrap();
    (told.status.success(), told.stdout + &told.stderr)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_file_that_is_not_its_own_is_out_of_the_daemons_reach() {
    let (could, text) = reload_of_a_rules_file_elsewhere("");
    assert!(!could && text.contains("Permission denied"), "{text}");
    let (could, text) = reload_of_a_rules_file_elsewhere("confine_files = false\n");
    assert!(could, "{text}");
}

/// What only root may bind to is bound for such a client by a daemon that may not, and shown to the server.
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
    let told = world.alpha.run("client", client, LIMIT).unwrap().good().unwrap();
    assert_eq!((told.stdout.trim(), world.connects_sctp()), (own.as_str(), 1));
}
