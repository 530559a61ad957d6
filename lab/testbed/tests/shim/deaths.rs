//! Tests in which SIGKILL ends a daemon during a transfer. Established connections get an error at both ends, never a
//! clean end of file. New connections use plain TCP at once.

use crate::world::{BULK, LIMIT, PORT, World};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Host, cpu};

/// Time after a daemon's death within which new connections may fail.
const RECOVERY_LIMIT: Duration = Duration::from_millis(1_500);
/// Time within which both ends of an established connection must get an error.
const ERROR_LIMIT: Duration = Duration::from_secs(20);

/// Processes of the daemon that a test kills.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Victims {
    All,
    First,
    AllButFirst,
}

pub(crate) fn kill_processes(host: &Host, daemon: &Daemon, victims: Victims) {
    let first = daemon.id();
    let chosen = |id: &u32| match victims {
        Victims::All => true,
        Victims::First => *id == first,
        Victims::AllButFirst => *id != first,
    };
    let ids: Vec<u32> = cpu::processes(host, "sctpifyd").unwrap().into_iter().filter(chosen).collect();
    assert!(!ids.is_empty(), "nobody to kill");
    for id in ids {
        kill(Pid::from_raw(id.try_into().unwrap()), Signal::SIGKILL).unwrap();
    }
}

/// Kills the processes that `victims` selects, during a transfer. Checks that both ends of the transfer get an error,
/// and that new connections work.
fn a_death_is_an_error_for_live_connections_and_tcp_for_new_ones(is_at_alpha: bool, victims: Victims) {
    after_a_death(is_at_alpha, |world| {
        let (host, daemon) = victim(world, is_at_alpha);
        kill_processes(host, daemon, victims);
    });
}

pub(crate) fn victim(world: &World, is_at_alpha: bool) -> (&Host, &Daemon) {
    if is_at_alpha { (&world.alpha, &world.alphas) } else { (&world.beta, world.betas.as_ref().unwrap()) }
}

/// Calls `cause` during a transfer. `cause` must make a daemon die. Checks that new connections work soon, and that
/// both ends of the transfer get an error. Returns the world.
pub(crate) fn after_a_death(is_at_alpha: bool, cause: impl FnOnce(&World)) -> World {
    let world = World::new();
    let port = PORT.to_string();
    let receiver = world.serve(BULK, &["receive", &port]);
    let target = world.target();
    let sender = world.alpha.spawn("sender", world.client(BULK, &["send", &target, "60", "65536"])).unwrap();
    assert!(wait_for(LIMIT, || world.connects_sctp() == 1), "the connection is not carried over SCTP");
    // The receiver occupies the port until it has accepted its connection.
    let listeners = || world.beta.tool("ss", &["-Hltn", "sport", "=", &format!(":{port}")]).unwrap();
    assert!(wait_for(LIMIT, || listeners().trim().is_empty()), "{}", listeners());
    let server = world.serve(BULK, &["accept", &port]);
    cause(&world);
    let connects = || world.client(BULK, &["connect", &target, "1"]);
    let is_well = || world.alpha.run("connect", connects(), LIMIT).unwrap().status.success();
    assert!(
        wait_for(RECOVERY_LIMIT, is_well),
        "at alpha {is_at_alpha}: new connections still fail {RECOVERY_LIMIT:?} after the death"
    );
    let (sent, received) = (sender.finish(ERROR_LIMIT).unwrap(), receiver.finish(ERROR_LIMIT).unwrap());
    assert!(!sent.status.success(), "the sender saw no error: {sent:?}");
    assert!(!received.status.success(), "the receiver took a cut stream for a whole one: {received:?}");
    server.stop();
    world
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn death_of_the_clients_daemon_fails_live_connections_but_not_new_ones() {
    a_death_is_an_error_for_live_connections_and_tcp_for_new_ones(true, Victims::All);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn death_of_the_servers_daemon_fails_live_connections_but_not_new_ones() {
    a_death_is_an_error_for_live_connections_and_tcp_for_new_ones(false, Victims::All);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn death_of_the_clients_worker_fails_live_connections_but_not_new_ones() {
    a_death_is_an_error_for_live_connections_and_tcp_for_new_ones(true, Victims::AllButFirst);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn death_of_the_servers_worker_fails_live_connections_but_not_new_ones() {
    a_death_is_an_error_for_live_connections_and_tcp_for_new_ones(false, Victims::AllButFirst);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn death_of_the_clients_supervisor_fails_live_connections_but_not_new_ones() {
    a_death_is_an_error_for_live_connections_and_tcp_for_new_ones(true, Victims::First);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn death_of_the_servers_supervisor_fails_live_connections_but_not_new_ones() {
    a_death_is_an_error_for_live_connections_and_tcp_for_new_ones(false, Victims::First);
}

/// Times from a transfer's start to the kill. The daemon dies during the handshake, early in the stream, late in the
/// stream, or after the stream's end.
const MOMENTS_MS: [u64; 7] = [0, 1, 3, 20, 60, 150, 400];

/// Sends argv[2] bytes to each client on port argv[1], and closes the connection.
pub(crate) const SEND_TO_ALL: &str = "
import socket, sys, threading
def send(client):
    try: client.sendall(bytes(int(sys.argv[2])))
    except OSError: pass
    client.close()
listener = socket.create_server(('', int(sys.argv[1])))
print('listening')
while True: threading.Thread(target=send, args=(listener.accept()[0],)).start()
";

/// Reads from argv[1]:argv[2] to the end of file, and prints the number of bytes. An error ends the program
/// with a nonzero exit status.
const COUNT_TO_THE_END: &str = "
import socket, sys
stream, count = socket.create_connection((sys.argv[1], int(sys.argv[2]))), 0
while piece := stream.recv(65536): count += len(piece)
print(count)
";

/// Only the end of file marks the end of the stream. If a death caused a clean end of file, the reader would take a
/// part of the stream for the whole.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn at_any_moment_a_death_means_the_whole_file_or_an_error() {
    const LENGTH: u64 = 64 << 20;
    let port = PORT.to_string();
    for moment in MOMENTS_MS {
        for is_at_alpha in [true, false] {
            let world = World::new();
            let _server = world.serve("python3", &["-u", "-c", SEND_TO_ALL, &port, &LENGTH.to_string()]);
            let server = world.link.right_v4().to_string();
            let fetch = world.client("python3", &["-c", COUNT_TO_THE_END, &server, &port]);
            let client = world.alpha.spawn("client", fetch).unwrap();
            std::thread::sleep(Duration::from_millis(moment));
            let (host, daemon) = victim(&world, is_at_alpha);
            kill_processes(host, daemon, Victims::All);
            let output = client.finish(ERROR_LIMIT).unwrap();
            let whole = output.stdout.trim() == LENGTH.to_string();
            assert_eq!(
                output.status.success(),
                whole,
                "after {moment} ms, at alpha {is_at_alpha}: {output:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_stopped_daemon_leaves_no_routing_rule_nftables_table_or_interface() {
    let world = World::new();
    let seen = |args: &[&str]| world.alpha.tool(args[0], &args[1..]).unwrap();
    let queries: [&[&str]; 4] =
        [&["ip", "rule"], &["ip", "-6", "rule"], &["nft", "list", "tables"], &["ip", "-o", "link"]];
    let running = queries.map(seen).concat();
    world.alphas.stop();
    let stopped = queries.map(seen);
    assert_ne!(running, stopped.concat(), "a running daemon shows in the host");
    assert!(!stopped[0].contains("fwmark") && !stopped[1].contains("fwmark"), "{stopped:?}");
    assert_eq!(stopped[2], "", "tables left");
    assert!(!stopped[3].contains("shim"), "{stopped:?}");
}
