//! Tests of the shim papers' states in `sctpify status`, and of servers with TCP and SCTP clients at the same
//! time. Also tests of the papers' settings, which change while the daemon runs.

use crate::world::{LIMIT, PORT, World, drop_sctp, status};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Lab, Link, Offloads, Process, Programs};

/// Limit on the time until the daemon's status shows a change, on a busy machine.
pub(crate) const SHOWN_LIMIT: Duration = Duration::from_secs(10);
/// Port that no rule names.
const UNNAMED_PORT: u16 = 7001;

/// Listens on argv[1]:argv[2], and accepts connections only after SIGUSR1. Prints each client's address and
/// port.
const SERVER: &str = "
import signal, socket, sys
host, port = sys.argv[1], int(sys.argv[2])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
listener = socket.create_server((host, port), backlog=8)
print('listening', flush=True)
signal.sigwait([signal.SIGUSR1])
kept = []
while True:
    connection, client = listener.accept()
    kept.append(connection)
    print('accepted', client[0], client[1], flush=True)
";

/// Connects to argv[1]:argv[2], and stays connected. Sets the packet mark argv[3], unless it is 0.
const CLIENT: &str = "
import signal, socket, sys
host, port, mark = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
if mark:
    client.setsockopt(socket.SOL_SOCKET, 36, mark)
client.connect((host, port))
print('connected', client.getsockname()[1], flush=True)
signal.pause()
";

/// Client on alpha.
pub(crate) struct Client {
    process: Process,
}

impl Client {
    pub(crate) fn begin(world: &World, port: u16, mark: u32) -> Client {
        let host = world.link.right_v4().to_string();
        let command = world.client("python3", &["-c", CLIENT, &host, &port.to_string(), &mark.to_string()]);
        Client { process: world.alpha.spawn("client", command).unwrap() }
    }

    pub(crate) fn connected(world: &World, port: u16, mark: u32) -> Client {
        let mut client = Client::begin(world, port, mark);
        client.wait_connected();
        client
    }

    pub(crate) fn wait_connected(&mut self) {
        let is_connected = |process: &Process| process.stdout().contains("connected");
        self.process.wait_until("connected", LIMIT, is_connected).unwrap();
    }

    fn port(&self) -> String {
        self.process.stdout().split_whitespace().nth(1).unwrap().to_owned()
    }
}

pub(crate) fn serve(world: &World, host: &str, port: u16) -> Process {
    world.serve("python3", &["-c", SERVER, host, &port.to_string()])
}

/// Returns the values of field `name` in a list of the status.
pub(crate) fn field(daemon: &Daemon, list: &str, name: &str) -> Vec<String> {
    let report = status(daemon);
    let rows = report[list].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row[name].as_str().unwrap_or_default().to_owned()).collect()
}

/// Waits until the listener on this port has the state `wanted`, and returns its row of the status.
pub(crate) fn wait_listener(daemon: &Daemon, port: u16, wanted: &str) -> Value {
    let of_port = || {
        let rows = status(daemon)["listeners"].take();
        let suffix = format!(":{port}");
        let rows = rows.as_array().cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["address"].as_str().is_some_and(|address| address.ends_with(&suffix)))
    };
    let is_wanted = || of_port().is_some_and(|row| row["state"] == wanted);
    assert!(wait_for(SHOWN_LIMIT, is_wanted), "{wanted} wanted: {:?}", status(daemon)["listeners"]);
    of_port().unwrap()
}

pub(crate) fn set(daemon: &Daemon, assignment: &str) {
    daemon.sctpify(&["set", assignment]).unwrap().good().unwrap();
}

pub(crate) fn betas(world: &World) -> &Daemon {
    world.betas.as_ref().unwrap()
}

/// Creates a world in which another program occupies beta's UDP port, and beta's daemon has only the carrier
/// UDP. Returns the world and that program.
pub(crate) fn with_taken_port(configuration: &str) -> (World, Process) {
    let (lab, programs) = (Lab::new().unwrap(), Programs::find().unwrap());
    let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
    let link: Link = lab.join(&alpha, &beta, 1, Offloads::On).unwrap();
    let taker = "import signal, socket; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(('::', 9899)); \
                 print('listening', flush=True); signal.pause()";
    let mut command: Command = beta.command("python3");
    command.args(["-c", taker]);
    let mut taker = beta.spawn("taker", command).unwrap();
    taker.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    let alphas =
        Daemon::start(&alpha, &programs, "learn = false\ndefault_remote_enable = true\nmanual_mark = 7\n")
            .unwrap();
    let betas = Daemon::start(&beta, &programs, &format!("carriers = \"udp\"\n{configuration}")).unwrap();
    (World { alpha, beta, link, alphas, betas: Some(betas), lab }, taker)
}

/// Configuration that gives each connection its own association.
const OWN: &str = "streams = \"own\"\n";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connection_is_enable_srules_while_it_is_held_and_ready_after_it_fell_back() {
    let world = World::with("race_timer_ms = 3000\n", false);
    drop_sctp(&world.beta);
    let _server = serve(&world, "", PORT);
    let mut client = Client::begin(&world, PORT, 0);
    let held = || field(&world.alphas, "connections", "state") == ["ENABLE_SRULES"];
    assert!(wait_for(SHOWN_LIMIT, held), "{}", status(&world.alphas));
    client.wait_connected();
    assert_eq!(field(&world.alphas, "recent_fallbacks", "state"), ["READY"]);
    assert_eq!(field(&world.alphas, "connections", "state"), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connection_is_active_at_its_client_and_native_at_its_server_and_its_association_hidden() {
    let world = World::with(OWN, true);
    let _server = serve(&world, "", PORT);
    let _client = Client::connected(&world, PORT, 0);
    assert_eq!(field(&world.alphas, "connections", "state"), ["ACTIVE"]);
    assert_eq!(field(&world.alphas, "associations", "shim"), ["HIDDEN"]);
    assert_eq!(field(betas(&world), "connections", "state"), ["NATIVE"]);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_mark_asks_for_sctp_whatever_the_rules_say() {
    let world = World::with("manual_mark = 7\n", true);
    let port = UNNAMED_PORT.to_string();
    let enable = ["-A", "-c", "local", "-p", "enable", "-P", &port];
    betas(&world).shimrules(&enable).unwrap().good().unwrap();
    let _server = serve(&world, "", UNNAMED_PORT);
    let _unmarked = Client::connected(&world, UNNAMED_PORT, 0);
    let _marked_otherwise = Client::connected(&world, UNNAMED_PORT, 8);
    assert_eq!(world.connects_sctp(), 0);
    let _marked = Client::connected(&world, UNNAMED_PORT, 7);
    assert_eq!(world.connects_sctp(), 1, "{}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn tcp_and_sctp_clients_wait_in_the_one_accept_queue_in_the_order_they_came() {
    let world = World::new();
    let mut server = serve(&world, "", PORT);
    let clients: Vec<Client> = ["1", "0", "1", "0"]
        .into_iter()
        .map(|enable| {
            set(&world.alphas, &format!("enable={enable}"));
            Client::connected(&world, PORT, 0)
        })
        .collect();
    assert_eq!(world.connects_sctp(), 2, "{}", world.fallbacks());
    server.signal(Signal::SIGUSR1).unwrap();
    let lines = |process: &Process| process.stdout().lines().count();
    server.wait_until("four accepted", LIMIT, |process| lines(process) == 5).unwrap();
    let output = server.stdout();
    let ports: Vec<&str> = output.lines().skip(1).filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(ports, clients.iter().map(Client::port).collect::<Vec<_>>());
    let own = format!("accepted {}", world.link.left_v4());
    assert_eq!(output.matches(&own).count(), 4, "{output}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn force_bindall_offers_all_addresses_of_the_host_from_the_next_association_on() {
    let world = World::with(OWN, true);
    world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
    let _server = serve(&world, &world.link.right_v4().to_string(), PORT);
    // Returns the number of peer addresses of the latest association.
    let remotes = || {
        let output = world.alphas.sctpify(&["paths", "--json"]).unwrap().good().unwrap().stdout;
        let output: Value = serde_json::from_str(&output).unwrap();
        let paths = output["associations"].as_array().unwrap().last().unwrap()["paths"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut remotes: Vec<String> = paths.iter().map(|path| path["remote"].to_string()).collect();
        remotes.sort();
        remotes.dedup();
        remotes.len()
    };
    let _bound = Client::connected(&world, PORT, 0);
    assert_eq!(remotes(), 1, "only the bound address is offered");
    set(betas(&world), "net.inet.sctp.shim.force_bindall=1");
    let _forced = Client::connected(&world, PORT, 0);
    assert!(remotes() > 1, "all addresses are offered");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_listeners_state_follows_the_rules_and_the_setting_enable_while_it_listens() {
    let world = World::new();
    let _server = serve(&world, "", PORT);
    wait_listener(betas(&world), PORT, "LISTEN");
    set(betas(&world), "enable=0");
    wait_listener(betas(&world), PORT, "NOTINIT");
    set(betas(&world), "enable=1");
    betas(&world).shimrules(&["-D", "-c", "local", "-p", "enable", "-P", "7000"]).unwrap().good().unwrap();
    let row = wait_listener(betas(&world), PORT, "READY");
    assert!(row["because"].as_str().unwrap().contains("default"), "{row}");
    set(betas(&world), "default_local_enable=1");
    wait_listener(betas(&world), PORT, "LISTEN");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_taken_udp_port_is_shown_to_the_operator_and_no_program_notices() {
    let (world, taker) = with_taken_port("default_local_enable = true\n");
    let _server = serve(&world, "", PORT);
    let row = wait_listener(world.betas.as_ref().unwrap(), PORT, "ENABLE_SRULES");
    assert!(row["because"].as_str().unwrap().contains("UDP port 9899"), "{row}");
    let _plain = Client::connected(&world, PORT, 0);
    assert_eq!(world.connects_sctp(), 0);
    drop(taker);
    wait_listener(world.betas.as_ref().unwrap(), PORT, "LISTEN");
    let _over_sctp = Client::connected(&world, PORT, 0);
    assert_eq!(world.connects_sctp(), 1, "{}", world.fallbacks());
}
