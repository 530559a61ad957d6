//! Tests of two proxies behind one domain that share one store. The store is a real server, which some tests kill.

use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testbed::process::wait_for;
use testbed::{Lab, Process};

use crate::store_server::{KEY, Kind, PASSWORD, PORT, Server};
use crate::world::{LIMIT, Site};

/// A port on which nothing listens.
const NO_PORT: u16 = 7002;

/// Two proxies on one host, whose users need no passwords.
struct World {
    sites: [Site; 2],
    proxies: Vec<Option<Process>>,
    server: Server,
    process: Option<Process>,
    _lab: Lab,
}

impl World {
    fn new(kind: Kind) -> World {
        let lab = Lab::new().unwrap();
        let one = Site::alone(&lab);
        let sites = [one.beside("127.0.0.1", one.domain), one.beside("127.0.0.2", one.domain)];
        let server = Server::new(kind, &one);
        let process = Some(server.start());
        let mut world = World { sites, proxies: Vec::new(), server, process, _lab: lab };
        for at in [0, 1] {
            let proxy = world.start(at);
            world.proxies.push(Some(proxy));
        }
        world
    }

    fn start(&self, at: usize) -> Process {
        let site = &self.sites[at];
        let head = site.with_control() + "drain_s = 600\n" + KEY;
        site.proxy_with_store(
            &self.server.kind.url(PASSWORD, PORT),
            &[head, site.listen("udp"), site.listen("tcp")],
        )
    }

    fn told(&self, at: usize, what: &str) -> String {
        self.sites[at].told(&[what])
    }

    fn log(&self, at: usize) -> String {
        self.proxies[at].as_ref().unwrap().stderr()
    }

    /// Checks that the first proxy confirms no registration without the store.
    fn refuses_registrations(&self) {
        let refused = self.sites[0].sipsak(&["-C", "sip:alice@127.0.0.1:6666", "-x", "120", "-U", "-v"]);
        assert!(refused.contains("503 Location Store Unavailable"), "{refused}");
    }

    /// Waits until both proxies have reported `times` times that the store does not answer.
    fn notices(&self, times: usize) {
        let count = |at| self.log(at).matches("the store does not answer").count();
        assert!(wait_for(LIMIT, || [0, 1].map(count) == [times; 2]), "{}", self.log(1));
    }

    /// Waits until both proxies have found the store again.
    fn waits_for_store(&self) {
        let reachable = format!("{} reachable", self.server.kind.shown(PORT));
        for at in [0, 1] {
            assert!(
                wait_for(LIMIT, || self.told(at, "status").contains(&reachable)),
                "{}",
                self.told(at, "status")
            );
        }
    }

    /// Sends a signal to the store's process and to its children. The children get the signal separately, because PostgreSQL's children are
    /// in their own process groups.
    fn signal_store(&self, signal: Signal) {
        let process = self.process.as_ref().unwrap();
        let id = process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        process.signal(signal).unwrap();
        for child in children.split_whitespace() {
            // A child may have ended meanwhile.
            let _ = kill(Pid::from_raw(child.parse().unwrap()), signal);
        }
    }

    /// Kills the store without notice.
    fn kill_store(&mut self) {
        let process = self.process.take().unwrap();
        process.signal(Signal::SIGKILL).unwrap();
        process.stop();
    }

    /// Registers a user with the first proxy, and returns the response. The contact has a parameter of this length in bytes.
    fn register_long(&self, user: &str, length: usize) -> String {
        let script = format!(
            "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('127.0.0.1', 6670))\n\
             s.settimeout(20)\nlines = ['REGISTER sip:example.com SIP/2.0',\
             'Via: SIP/2.0/UDP 127.0.0.1:6670;branch=z9hG4bKlong', 'Max-Forwards: 70',\
             'From: <sip:{user}@example.com>;tag=1', 'To: <sip:{user}@example.com>', 'Call-ID: long',\
             'CSeq: 1 REGISTER', 'Contact: <sip:{user}@127.0.0.1:6670;p=' + 'x' * {length} + '>',\
             'Content-Length: 0', '', '']\n\
             s.sendto('\\r\\n'.join(lines).encode(), ('127.0.0.1', 5060))\nprint(s.recv(65536).decode())"
        );
        let mut command = self.sites[0].host.command("python3");
        command.args(["-c", &script]);
        self.sites[0].host.run("register", command, LIMIT).unwrap().good().unwrap().stdout
    }

    /// Starts a user agent of this project. It registers with proxy `at`, and answers calls after `ring` seconds.
    fn agent(&self, at: usize, user: &str, port: u16, transport: &str, ring: &str) -> Process {
        let site = &self.sites[at];
        let local = format!("{}:{port}", site.address);
        let mut command = site.host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
        command.args(["--local", &local, "--proxy", &site.proxy_address(), "--log", "info"]);
        command.args(["--rtp-port", &(port + 1000).to_string()]);
        command.args([
            "--transport",
            transport,
            "--user",
            &format!("{user}@{}", site.domain),
            "--ring",
            ring,
        ]);
        let mut agent = site.host.spawn(user, command).unwrap();
        agent.wait_until("registered", LIMIT, |agent| agent.stderr().contains("Registered")).unwrap();
        agent
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn users_of_one_proxy_are_called_through_the_other() {
    Kind::ALL.into_iter().for_each(call_users_of_the_other);
}

fn call_users_of_the_other(kind: Kind) {
    let world = World::new(kind);
    let _callee = world.sites[0].callee("udp");
    world.sites[0].register("bob", "udp");
    // The call begins at once, even if the second proxy has not yet been notified of the registration.
    world.sites[1].call("bob", "example.com", "udp", 50);
    // The call reaches Carol over a connection that only the first proxy has.
    let _carol = world.agent(0, "carol", 5070, "tcp", "0.05");
    world.sites[1].call("carol", "example.com", "udp", 50);
    world.sites[0].call("carol", "example.com", "udp", 50);
    for at in [0, 1] {
        let contacts = world.told(at, "contacts");
        assert!(contacts.contains("bob@example.com") && contacts.contains("carol@example.com"), "{contacts}");
    }
    // The contact is too long for one of PostgreSQL's notifications.
    assert!(world.register_long("dave", 20_000).contains("SIP/2.0 200"));
    let has_all = || world.told(1, "contacts").contains(&"x".repeat(20_000));
    assert!(wait_for(LIMIT, has_all), "{}", world.told(1, "contacts"));
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_store_that_is_killed_and_started_again_has_lost_nothing_and_is_found_again() {
    Kind::ALL.into_iter().for_each(kill_the_store);
}

fn kill_the_store(kind: Kind) {
    let mut world = World::new(kind);
    let _callee = world.sites[0].callee("udp");
    world.sites[0].register("bob", "udp");
    assert!(wait_for(LIMIT, || world.told(1, "contacts").contains("bob@")));
    // The store's process is suspended, and later continues.
    world.signal_store(Signal::SIGSTOP);
    world.refuses_registrations();
    world.notices(1);
    world.signal_store(Signal::SIGCONT);
    world.waits_for_store();
    world.kill_store();
    world.notices(2);
    world.refuses_registrations();
    // A known user can still be called.
    world.sites[1].call("bob", "example.com", "udp", 10);
    let status = world.told(1, "status");
    assert!(status.contains(&format!("{} not reachable: ", kind.shown(PORT))), "{status}");
    assert!(status.contains("store up             false"), "{status}");
    world.process = Some(world.server.start());
    world.waits_for_store();
    world.sites[0].register("carol", "udp");
    world.sites[1].call("carol", "example.com", "udp", 10);
    world.sites[1].call("bob", "example.com", "udp", 10);
    // The log has a line for each failure of the store, and not for each request or each attempt to connect.
    let log = world.log(1);
    assert_eq!(log.matches("the store does not answer").count(), 2, "{log}");
    assert_eq!(log.matches("the store answers again").count(), 2, "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_proxy_does_not_start_if_the_store_is_unreachable_or_rejects_its_password() {
    Kind::ALL.into_iter().for_each(start_without_the_store);
}

fn start_without_the_store(kind: Kind) {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    let server = Server::new(kind, &site);
    let _process = server.start();
    let failure = |port: u16| {
        let url = kind.url("falsch", port);
        let command: Command = site.proxy_command(&url, &[KEY.to_owned(), site.listen("udp")]);
        let told = site.host.run("proxy", command, LIMIT).unwrap();
        assert!(!told.status.success(), "{told:?}");
        assert!(!told.stderr.contains("falsch") && !told.stdout.contains("falsch"), "{told:?}");
        let store = format!("store {}: ", kind.shown(port));
        assert!(told.stderr.contains(&store), "{}", told.stderr);
        told.stderr
    };
    let (wrong, nobody) = (failure(PORT), failure(NO_PORT));
    assert!(wrong.contains("assword"), "{wrong}");
    assert!(nobody.contains("refused"), "{nobody}");
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn proxies_with_different_keys_say_so_once() {
    Kind::ALL.into_iter().for_each(meet_a_stranger);
}

fn meet_a_stranger(kind: Kind) {
    let world = World::new(kind);
    let site = world.sites[0].beside("127.0.0.3", "example.com");
    let key = KEY.replace("0011", "1100");
    let stranger = site.proxy_with_store(&kind.url(PASSWORD, PORT), &[key, site.listen("udp")]);
    let warning = "not the same dialog_key";
    let is_told = |world: &World, at: usize| world.log(at).contains(warning);
    assert!(wait_for(LIMIT, || is_told(&world, 0) && is_told(&world, 1)), "{}", world.log(0));
    stranger.stop();
    assert_eq!(world.log(1).matches(warning).count(), 1, "{}", world.log(1));
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_proxy_that_is_killed_takes_no_registration_and_no_call_with_it() {
    Kind::ALL.into_iter().for_each(kill_a_proxy);
}

/// Number of established calls when the proxy is killed.
const STANDING: usize = 20;

fn kill_a_proxy(kind: Kind) {
    let mut world = World::new(kind);
    let site = &world.sites[0];
    let _callee = site.callee("udp");
    let _bob = site.callee_of("answer-twice.xml", "6669");
    site.register_at("bob", "udp", "6669");
    let caller = site.spawn_scenario("moves.xml", &["-p", "6668", "-s", "bob", "-m", &STANDING.to_string()]);
    let standing = || world.told(0, "dialogs").matches("call confirmed").count() == STANDING;
    assert!(wait_for(LIMIT, standing), "{}", world.told(0, "dialogs"));
    let registered = site.dir.join("registered.log");
    let words = ["-p", "6667", "-m", "4000", "-r", "500", "-l", "4000", "-trace_logs", "-log_file"];
    let registering =
        site.spawn_scenario("registers.xml", &[&words[..], &[&registered.display().to_string()]].concat());
    let count = |text: &str| text.matches("registered u").count();
    let answered = || std::fs::read_to_string(&registered).unwrap_or_default();
    assert!(wait_for(LIMIT, || count(&answered()) > 200), "{}", answered());
    let proxy = world.proxies[0].take().unwrap();
    proxy.signal(Signal::SIGKILL).unwrap();
    proxy.stop();
    registering.stop();
    let answered = answered();
    assert!(count(&answered) < 4000, "it was killed in the middle");
    // No confirmed registration is lost.
    let is_known = |contacts: &str| {
        let users = answered.lines().filter_map(|line| line.split("registered ").nth(1));
        let missing: Vec<_> = users.filter(|user| !contacts.contains(&format!("{user}@"))).collect();
        missing.is_empty()
    };
    assert!(wait_for(LIMIT, || is_known(&world.told(1, "contacts"))), "{answered}");
    // Established dialogs continue through the other proxy, with another INVITE and BYE.
    caller.finish(LIMIT).unwrap().good().unwrap();
    // Users of the killed proxy can be called, and can register again.
    world.sites[1].call("u7", "example.com", "udp", 20);
    world.sites[1].register("u7", "udp");
    // The killed proxy starts again, and knows all registrations.
    let back = world.start(0);
    assert!(is_known(&world.told(0, "contacts")));
    world.sites[0].call("u8", "example.com", "udp", 10);
    back.stop();
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn users_that_only_a_draining_proxy_reaches_are_called_through_it_until_it_ends() {
    Kind::ALL.into_iter().for_each(drain_a_proxy);
}

fn drain_a_proxy(kind: Kind) {
    let mut world = World::new(kind);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/by_connection.py");
    let mut command = world.sites[0].host.command("python3");
    command.args([script, "carol", "127.0.0.1"]);
    let mut carol = world.sites[0].host.spawn("carol", command).unwrap();
    carol.wait_until("registered", LIMIT, |carol| carol.stdout().contains("200 OK")).unwrap();
    // The proxy does not end while a call rings.
    let _dave = world.agent(0, "dave", 5071, "udp", "1000");
    let mut command = world.sites[0].host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
    command.args(["--local", "127.0.0.1:5072", "--rtp-port", "6072", "--proxy", "127.0.0.1:5060"]);
    command.args(["--no-register", "--user", "erin@example.com", "--call", "sip:dave@example.com"]);
    let _erin = world.sites[0].host.spawn("erin", command).unwrap();
    assert!(wait_for(LIMIT, || world.told(0, "dialogs").contains("call early")));
    world.proxies[0].as_ref().unwrap().signal(Signal::SIGTERM).unwrap();
    assert!(wait_for(LIMIT, || world.log(1).contains("Draining")), "{}", world.log(1));
    world.sites[1].call("carol", "example.com", "udp", 20);
    assert!(world.told(0, "status").contains("draining"), "{}", world.told(0, "status"));
    // The second signal ends the proxy and the calls that still ring.
    let proxy = world.proxies[0].take().unwrap();
    proxy.signal(Signal::SIGTERM).unwrap();
    proxy.finish(LIMIT).unwrap().good().unwrap();
    assert!(wait_for(LIMIT, || world.log(1).contains("Gone")), "{}", world.log(1));
}
