//! Tests connections whose SYNs are held during faults. No connection waits longer than promised, and each one becomes TCP.
//!
//! These tests need root. They also need `sctpifyd`, `sctpify` and `shimrules`. The programs must be built next to the tests
//! (`./x test` builds them), or be in SCTPIFY_BIN_DIR.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testbed::programs::{Nginx, curl};
use testbed::{Daemon, Finished, Host, Lab, Link, Offloads, Programs, cpu};

const ENABLED: &str = "default_remote_enable = true\ndefault_local_enable = true\n";
const LIMIT: Duration = Duration::from_secs(20);
/// Limit on the duration of a connection whose attempt over SCTP ends with the race timer. The limit includes an allowance
/// for a loaded machine.
const RACE_LIMIT: Duration = Duration::from_millis(1_500);
/// Limit on the time until the watchdog has acted, with an allowance for a loaded machine.
const WATCHDOG_LIMIT: Duration = Duration::from_secs(5);

/// Firewall rules that drop SCTP packets at their arrival at beta. The first set drops all SCTP packets. The second set drops
/// only SCTP packets that begin with COOKIE ECHO (chunk type 10).
const DROP_ALL: &[&str] = &["udp dport 9899 drop", "meta l4proto 132 drop"];
const DROP_COOKIE_ECHO: &[&str] = &["udp dport 9899 @th,160,8 10 drop", "meta l4proto 132 @th,96,8 10 drop"];

struct World {
    alpha: Host,
    beta: Host,
    link: Link,
    alphas: Daemon,
    _betas: Daemon,
    _nginx: Nginx,
    _lab: Lab,
}

impl World {
    fn new() -> World {
        let programs = Programs::find().unwrap();
        let lab = Lab::new().unwrap();
        let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
        let link = lab.join(&alpha, &beta, 1, Offloads::On).unwrap();
        let nginx = Nginx::start(&beta).unwrap();
        std::fs::write(nginx.root().join("file"), "contents").unwrap();
        let alphas = Daemon::start(&alpha, &programs, ENABLED).unwrap();
        let betas = Daemon::start(&beta, &programs, ENABLED).unwrap();
        World { alpha, beta, link, alphas, _betas: betas, _nginx: nginx, _lab: lab }
    }

    fn drop_at_beta(&self, rules: &[&str]) {
        let chain =
            "add table inet losses; add chain inet losses arriving { type filter hook input priority 0; }";
        self.beta.tool("nft", &[chain]).unwrap();
        for rule in rules {
            self.beta.tool("nft", &[&format!("add rule inet losses arriving {rule}")]).unwrap();
        }
    }

    fn get(&self) -> Finished {
        let url = format!("http://{}/file", self.link.right_v4());
        self.alpha.run("curl", curl(&self.alpha, &url, None), LIMIT).unwrap().good().unwrap()
    }

    fn explanation(&self) -> String {
        let destination = format!("{}:80", self.link.right_v4());
        self.alphas.sctpify(&["explain", &destination]).unwrap().good().unwrap().stdout
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_peer_that_swallows_sctp_costs_the_race_timer_and_no_more() {
    let world = World::new();
    world.drop_at_beta(DROP_ALL);
    let elapsed = world.get().elapsed;
    assert!((Duration::from_millis(250)..RACE_LIMIT).contains(&elapsed), "{elapsed:?}");
    let explanation = world.explanation();
    assert!(explanation.contains("the peer did not answer over SCTP within"), "{explanation}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_handshake_that_stalls_after_init_ack_becomes_tcp() {
    let world = World::new();
    world.drop_at_beta(DROP_COOKIE_ECHO);
    world.get();
    let explanation = world.explanation();
    assert!(explanation.contains("the association failed while it was set up"), "{explanation}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_hung_worker_does_not_block_connections_and_leaves_no_routing_rule() {
    let world = World::new();
    let first = world.alphas.id();
    let workers = cpu::processes(&world.alpha, "sctpifyd").unwrap().into_iter().filter(|id| *id != first);
    for worker in workers {
        kill(Pid::from_raw(worker.try_into().unwrap()), Signal::SIGSTOP).unwrap();
    }
    let elapsed = world.get().elapsed;
    assert!(elapsed < WATCHDOG_LIMIT, "a connection hung for {elapsed:?}");
    let rules = world.alpha.ip(&["rule"]).unwrap();
    assert!(!rules.contains("fwmark"), "left behind: {rules}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn one_source_port_to_two_addresses_of_a_peer_gives_two_connections() {
    let world = World::new();
    let second = "10.77.1.3";
    world.beta.ip(&["addr", "add", &format!("{second}/24"), "dev", &world.link.name()]).unwrap();
    let program = format!(
        "import socket\n\
         for to in ('{}', '{second}') * 2:\n\
         \x20s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
         \x20s.settimeout(10); s.bind(('{}', 46000)); s.connect((to, 80))\n\
         \x20s.sendall(b'GET /file HTTP/1.0\\r\\n\\r\\n'); globals().setdefault('all', []).append(s)\n\
         \x20if len(all) == 2: [print(s.makefile().read()[-8:]) or s.close() for s in all]; break\n",
        world.link.right_v4(),
        world.link.left_v4(),
    );
    let mut python = world.alpha.command("python3");
    python.args(["-c", &program]);
    let told = world.alpha.run("python", python, LIMIT).unwrap().good().unwrap();
    assert_eq!(told.stdout, "contents\ncontents\n");
}
