//! Tests of the state transitions in Figure 4 of the first shim paper ("Transparent TCP-to-SCTP Translation Shim
//! Layer"). `sctpify status` of running daemons reports the states. Also tests which users may request SCTP manually.
//!
//! | from | to | here |
//! |---|---|---|
//! | NOTINIT | READY | `states::a_listener_follows_the_rules_…` |
//! | READY | ENABLE_SRULES | `states::a_connection_is_enable_srules_…`, `states::a_taken_udp_port_…` |
//! | ENABLE_SRULES | ACTIVE, LISTEN, READY | `states::a_connection_is_active_…`, `states::a_listener_follows_…`, `states::a_connection_is_enable_srules_…` |
//! | READY | ENABLE_MANUAL | clients and servers below |
//! | ENABLE_MANUAL | ACTIVE, READY | clients below |
//! | ENABLE_MANUAL | LISTEN | servers below |

use crate::states::{Client, SHOWN_LIMIT, betas, field, serve, set, wait_listener, with_taken_port};
use crate::world::{LIMIT, World, drop_sctp, status};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use testbed::process::wait_for;
use testbed::{Daemon, Host, Process, Programs};

/// Port that no rule names.
const PORT: u16 = 7001;
/// Another port that no rule names.
const OTHER_PORT: u16 = 7002;
/// Id of a user.
const ALICE: u32 = 4201;
/// Id of another user.
const BOB: u32 = 4202;
/// Id of a group with access to the control socket.
const LOOKERS: u32 = 4200;

/// Listens on port argv[1] until SIGTERM. If argv[2] is given, requests SCTP for this port on control socket argv[2].
const SERVER: &str = "
import json, signal, socket, sys
listener = socket.create_server(('', int(sys.argv[1])), backlog=8)
if len(sys.argv) > 2:
    control = socket.socket(socket.AF_UNIX)
    control.connect(sys.argv[2])
    control.sendall(json.dumps({'schema': 1, 'request': 'expose', 'address': None, 'port': int(sys.argv[1])}).encode() + b'\\n')
    print(control.makefile().readline(), end='', flush=True)
print('listening', flush=True)
signal.pause()
";

/// Gives the group [`LOOKERS`] access to the daemon's control socket. A real host gives the group `sctpify` this
/// access.
fn open_to_group(daemon: &Daemon) {
    let socket = daemon.control_socket();
    for file in [socket.parent().unwrap(), &socket] {
        std::os::unix::fs::chown(file, None, Some(LOOKERS)).unwrap();
    }
    fs::set_permissions(socket.parent().unwrap(), fs::Permissions::from_mode(0o750)).unwrap();
    for above in socket.ancestors().skip(2).take_while(|dir| dir.starts_with(std::env::temp_dir())) {
        if above != std::env::temp_dir() {
            fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

fn as_user(
    host: &Host,
    user: u32,
    group: u32,
    program: &std::path::Path,
    words: &[&str],
) -> std::process::Command {
    let mut command = host.command("setpriv");
    command.args([
        format!("--reuid={user}"),
        format!("--regid={group}"),
        "--clear-groups".into(),
        "--".into(),
    ]);
    command.arg(program).args(words);
    command
}

/// Starts [`SERVER`] on beta as this user, and waits until it listens.
fn listens(world: &World, user: u32, words: &[&str]) -> Process {
    let words = [&["-c", SERVER], words].concat();
    let command = as_user(&world.beta, user, LOOKERS, "/usr/bin/python3".as_ref(), &words);
    let mut server = world.beta.spawn("server", command).unwrap();
    server.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    server
}

/// Starts `sctpify expose` on beta as this user, and waits for its first output.
fn exposes(world: &World, user: u32, listener: &str) -> Process {
    let programs = Programs::find().unwrap();
    let words = ["expose", listener];
    let mut command = as_user(&world.beta, user, LOOKERS, &programs.path("sctpify"), &words);
    command.env("SCTPIFY_CONTROL", betas(world).control_socket());
    let mut process = world.beta.spawn("expose", command).unwrap();
    let has_answer = |process: &Process| !process.stdout().is_empty() || !process.stderr().is_empty();
    process.wait_until("an answer", LIMIT, has_answer).unwrap();
    process
}

fn manual_world() -> World {
    let world = World::with("manual_mark = 7\n", true);
    let betas = betas(&world);
    set(betas, "manual_listen=1");
    open_to_group(betas);
    world
}

/// Makes one connection to this port. Returns the number of alpha's connections over SCTP so far.
fn connects(world: &World, port: u16) -> u64 {
    let _client = Client::connected(world, port, 7);
    world.connects_sctp()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_marked_connection_is_enable_manual_while_it_is_held_and_ready_after_it_fell_back() {
    let world = World::with("manual_mark = 7\nrace_timer_ms = 3000\n", false);
    drop_sctp(&world.beta);
    let _server = serve(&world, "", PORT);
    let mut client = Client::begin(&world, PORT, 7);
    let held = || field(&world.alphas, "connections", "state") == ["ENABLE_MANUAL"];
    assert!(wait_for(SHOWN_LIMIT, held), "{}", status(&world.alphas));
    client.wait_connected();
    assert_eq!(field(&world.alphas, "recent_fallbacks", "state"), ["READY"]);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_users_own_listener_is_reached_while_it_is_exposed_and_becomes_ready_when_that_ends() {
    let world = manual_world();
    let _server = listens(&world, ALICE, &[&PORT.to_string()]);
    wait_listener(betas(&world), PORT, "READY");
    assert_eq!(connects(&world, PORT), 0);
    let exposed = exposes(&world, ALICE, &PORT.to_string());
    let row = wait_listener(betas(&world), PORT, "LISTEN");
    assert!(row["because"].as_str().unwrap().contains("requested it"), "{row}");
    assert_eq!(connects(&world, PORT), 1, "{}", world.fallbacks());
    assert_eq!(field(&world.alphas, "recent_fallbacks", "state").len(), 1, "{}", world.fallbacks());
    drop(exposed);
    wait_listener(betas(&world), PORT, "READY");
    assert_eq!(connects(&world, PORT), 1);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_program_can_expose_its_own_listener_through_the_control_socket() {
    let world = manual_world();
    let control = betas(&world).control_socket();
    let server = listens(&world, ALICE, &[&PORT.to_string(), control.to_str().unwrap()]);
    assert!(server.stdout().contains("\"done\""), "{}", server.stdout());
    wait_listener(betas(&world), PORT, "LISTEN");
    assert_eq!(connects(&world, PORT), 1, "{}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_exposed_listener_stays_in_state_enable_manual_until_a_carrier_is_open() {
    let (world, taker) = with_taken_port("manual_listen = true\n");
    open_to_group(betas(&world));
    let _server = listens(&world, ALICE, &[&PORT.to_string()]);
    let _exposed = exposes(&world, ALICE, &format!("0.0.0.0:{PORT}"));
    let row = wait_listener(betas(&world), PORT, "ENABLE_MANUAL");
    assert!(row["because"].as_str().unwrap().contains("UDP port 9899"), "{row}");
    drop(taker);
    wait_listener(betas(&world), PORT, "LISTEN");
    assert_eq!(connects(&world, PORT), 1, "{}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_user_cannot_expose_anothers_listener_or_inherit_its_exposure_with_the_port() {
    let world = manual_world();
    let of_alice = listens(&world, ALICE, &[&PORT.to_string()]);
    let refused = exposes(&world, BOB, &PORT.to_string());
    assert!(refused.stderr().contains("another user's"), "{}", refused.stderr());
    assert_eq!(connects(&world, PORT), 0);
    let mut exposed = exposes(&world, ALICE, &PORT.to_string());
    assert_eq!(connects(&world, PORT), 1, "{}", world.fallbacks());
    // Bob now listens on the port, while the `sctpify expose` of Alice still runs.
    drop(of_alice);
    let _of_bob = listens(&world, BOB, &[&PORT.to_string()]);
    assert_eq!(connects(&world, PORT), 1, "Bob has asked for nothing");
    exposed.wait_until("its end", LIMIT, |process| process.stderr().contains("listens on")).unwrap();
    wait_listener(betas(&world), PORT, "READY");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn rules_and_the_settings_enable_and_manual_listen_override_a_users_request() {
    let world = manual_world();
    let _server = listens(&world, ALICE, &[&PORT.to_string()]);
    let _other = listens(&world, ALICE, &[&OTHER_PORT.to_string()]);
    let _exposed = exposes(&world, ALICE, &PORT.to_string());
    wait_listener(betas(&world), PORT, "LISTEN");
    let disable = ["-A", "-c", "local", "-p", "disable", "-P", "7001:7002"];
    betas(&world).shimrules(&disable).unwrap().good().unwrap();
    wait_listener(betas(&world), PORT, "READY");
    assert_eq!(connects(&world, PORT), 0);
    let by_rule = exposes(&world, ALICE, &OTHER_PORT.to_string());
    assert!(by_rule.stderr().contains("rule 1 of local-disable"), "{}", by_rule.stderr());
    betas(&world).shimrules(&["-F"]).unwrap().good().unwrap();
    set(betas(&world), "enable=0");
    wait_listener(betas(&world), PORT, "NOTINIT");
    set(betas(&world), "enable=1");
    set(betas(&world), "manual_listen=0");
    wait_listener(betas(&world), PORT, "READY");
    let by_setting = exposes(&world, ALICE, &OTHER_PORT.to_string());
    assert!(by_setting.stderr().contains("manual_listen"), "{}", by_setting.stderr());
    let of_root = exposes(&world, 0, &OTHER_PORT.to_string());
    assert!(of_root.stdout().contains("7002"), "{} {}", of_root.stdout(), of_root.stderr());
    wait_listener(betas(&world), OTHER_PORT, "LISTEN");
}
