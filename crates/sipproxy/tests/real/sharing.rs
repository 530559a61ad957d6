//! Two proxies behind one domain, with one store: a real server, which is killed, too.

use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::process::Command;

use testbed::process::wait_for;
use testbed::{Host, Lab, Process};

use crate::world::{LIMIT, Site};

/// Of the store; nobody may see it.
const PASSWORD: &str = "geheimnis";
const KEY: &str = "dialog_key = \"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"\n";

/// A server of the test's own, in a directory of its own.
struct Server {
    host: Host,
    dir: PathBuf,
}

impl Server {
    fn new(site: &Site) -> Server {
        let dir = site.dir.join("redis");
        std::fs::create_dir(&dir).unwrap();
        Server { host: site.host.clone(), dir }
    }

    fn start(&self) -> Process {
        let mut command = self.host.command("redis-server");
        command.args(["--port", "6379", "--bind", "127.0.0.1", "--requirepass", PASSWORD]);
        command.args(["--save", "", "--appendonly", "yes", "--dir"]).arg(&self.dir);
        let mut server = self.host.spawn("redis", command).unwrap();
        server.wait_until("ready", LIMIT, |server| server.stdout().contains("eady to accept")).unwrap();
        server
    }

    fn url(&self, password: &str) -> String {
        format!("redis://:{password}@127.0.0.1:6379/3")
    }
}

/// Two proxies on one host; nobody needs a password of theirs.
struct World {
    sites: [Site; 2],
    proxies: Vec<Option<Process>>,
    server: Server,
    process: Option<Process>,
    _lab: Lab,
}

impl World {
    fn new() -> World {
        let lab = Lab::new().unwrap();
        let one = Site::alone(&lab);
        let sites = [one.beside("127.0.0.1", one.domain), one.beside("127.0.0.2", one.domain)];
        let server = Server::new(&one);
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
        let head = format!("control = \"{}\"\n{KEY}", self.control(at).display());
        site.proxy_with_store(&self.server.url(PASSWORD), &[head, site.listen("udp"), site.listen("tcp")])
    }

    fn control(&self, at: usize) -> PathBuf {
        self.sites[at].dir.join(format!("control-{at}"))
    }

    fn told(&self, at: usize, what: &str) -> String {
        let mut command = self.sites[at].host.command(env!("CARGO_BIN_EXE_sctpify-sip"));
        command.arg(what).arg("--control").arg(self.control(at));
        self.sites[at].host.run("ask", command, LIMIT).unwrap().good().unwrap().stdout
    }

    fn log(&self, at: usize) -> String {
        self.proxies[at].as_ref().unwrap().stderr()
    }

    /// The store is gone without a word.
    fn kill_store(&mut self) {
        let process = self.process.take().unwrap();
        process.signal(Signal::SIGKILL).unwrap();
        process.stop();
    }

    /// A user agent of ours, registered with one of the proxies.
    fn agent(&self, at: usize, user: &str, port: u16, transport: &str) -> Process {
        let site = &self.sites[at];
        let local = format!("{}:{port}", site.address);
        let mut command = site.host.command(env!("CARGO_BIN_EXE_sctpify-ua"));
        command.args(["--local", &local, "--proxy", &site.proxy_address(), "--log", "info"]);
        command.args([
            "--transport",
            transport,
            "--user",
            &format!("{user}@{}", site.domain),
            "--ring",
            "0.05",
        ]);
        let mut agent = site.host.spawn(user, command).unwrap();
        agent.wait_until("registered", LIMIT, |agent| agent.stderr().contains("Registered")).unwrap();
        agent
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn users_of_one_proxy_are_called_through_the_other() {
    let world = World::new();
    let _callee = world.sites[0].callee("udp");
    world.sites[0].register("bob", "udp");
    // At once: whatever the news have told by then.
    world.sites[1].call("bob", "example.com", "udp", 50);
    // By the connection that only the first has.
    let _carol = world.agent(0, "carol", 5070, "tcp");
    world.sites[1].call("carol", "example.com", "udp", 50);
    world.sites[0].call("carol", "example.com", "udp", 50);
    for at in [0, 1] {
        let contacts = world.told(at, "contacts");
        assert!(contacts.contains("bob@example.com") && contacts.contains("carol@example.com"), "{contacts}");
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_store_that_is_killed_and_started_again_has_lost_nothing_and_is_found_again() {
    let mut world = World::new();
    let _callee = world.sites[0].callee("udp");
    world.sites[0].register("bob", "udp");
    assert!(wait_for(LIMIT, || world.told(1, "contacts").contains("bob@")));
    world.kill_store();
    assert!(wait_for(LIMIT, || world.log(1).contains("the store does not answer")));
    let refused = world.sites[0].sipsak(&["-C", "sip:alice@127.0.0.1:6666", "-x", "120", "-U", "-v"]);
    assert!(refused.contains("503 Location Store Unavailable"), "{refused}");
    // Who is known can be called.
    world.sites[1].call("bob", "example.com", "udp", 10);
    let status = world.told(1, "status");
    assert!(status.contains("redis://127.0.0.1:6379/3 not reachable: "), "{status}");
    assert!(status.contains("store up             false"), "{status}");
    world.process = Some(world.server.start());
    for at in [0, 1] {
        assert!(wait_for(LIMIT, || world.told(at, "status").contains("6379/3 reachable")));
    }
    world.sites[0].register("carol", "udp");
    world.sites[1].call("carol", "example.com", "udp", 10);
    world.sites[1].call("bob", "example.com", "udp", 10);
    let log = world.log(1);
    assert_eq!(log.matches("the store does not answer").count(), 1, "{log}");
    assert_eq!(log.matches("the store answers again").count(), 1, "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_store_that_does_not_let_us_in_or_is_not_there_is_an_error_at_the_start() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    let server = Server::new(&site);
    let _process = server.start();
    let failure = |url: &str| {
        let command: Command = site.proxy_command(url, &[KEY.to_owned(), site.listen("udp")]);
        let told = site.host.run("proxy", command, LIMIT).unwrap();
        assert!(!told.status.success(), "{told:?}");
        assert!(!told.stderr.contains("falsch") && !told.stdout.contains("falsch"), "{told:?}");
        told.stderr
    };
    let wrong = failure(&server.url("falsch"));
    assert!(wrong.contains("store redis://127.0.0.1:6379/3: ") && wrong.contains("assword"), "{wrong}");
    let nobody = failure("redis://:falsch@127.0.0.1:6380/");
    assert!(nobody.contains("store redis://127.0.0.1:6380/: ") && nobody.contains("refused"), "{nobody}");
}
