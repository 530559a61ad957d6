//! Tests of set-up, removal and death of an interceptor: leftovers on the host, and effects on other programs.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use intercept::{
    Config, Interceptor, Namespace, SavedSysctls, SetUpError, TearDownError, Verdict, remove_leftovers,
};
use nix::sched::{CloneFlags, setns};

use crate::world::*;
use crate::{Test, ignore};

pub(crate) const TESTS: &[Test] = &[
    ("tearing down leaves the host as it was", tear_down_leaves_nothing),
    ("dropping leaves the host as it was", drop_leaves_nothing),
    ("sysctls that were on before stay on", sysctls_that_were_on_stay_on),
    ("a SYN that is held at tearing down passes at once", held_at_tear_down_passes),
    ("no connection is delayed by setting up and tearing down", no_delay_by_set_up),
    ("a diverted connection that was never accepted is reset at tearing down", unaccepted_is_reset),
    ("a host with IPv6 disabled is served over IPv4", ipv6_disabled),
    ("a second interceptor in one namespace is refused and names the first", second_is_refused),
    ("a queue number taken by another program is named, and nothing is left", queue_number_taken),
    ("a foreign interface of our name is left alone", foreign_interface),
    ("without privileges the error says so", without_privileges),
    ("a configuration that cannot work is refused", bad_configuration),
    ("SIGKILL leaves only policy rules and sysctls, which can be removed", killed_leaves_rules),
    ("a live interceptor's rules are no leftovers", live_is_no_leftover),
    ("SIGKILL ends a diverted connection with a reset", killed_resets),
    ("a SYN that is held at SIGKILL passes by its retransmission", killed_while_holding),
    ("setting up after SIGKILL replaces the stale rules", set_up_after_kill),
    ("flushing all nftables rules leaves interception alone", flush_by_others),
];

const PORT: u16 = 8080;

/// Returns the network state of a host: output of `ip`, and the sysctls.
fn snapshot(host: &Namespace) -> Vec<String> {
    let ip = [&["rule"][..], &["-6", "rule"], &["-br", "link"], &["route", "show", "table", "all"]];
    let sysctls = host.run(SavedSysctls::read).expect("the namespace's thread").expect("sysctls");
    ip.iter().map(|words| run_ip(host, words)).chain([format!("{sysctls:?}")]).collect()
}

fn tear_down_leaves_nothing() {
    let world = World::new();
    let before = snapshot(&world.alpha);
    let interceptor = world.intercept_alpha();
    let during = snapshot(&world.alpha);
    assert!(before.iter().zip(&during).all(|(before, during)| before != during), "{during:#?}");
    interceptor.tear_down().expect("nothing left");
    assert_eq!(snapshot(&world.alpha), before);
    world.intercept_alpha();
}

fn drop_leaves_nothing() {
    let world = World::new();
    let before = snapshot(&world.alpha);
    drop(world.intercept_alpha());
    assert_eq!(snapshot(&world.alpha), before);
}

fn sysctls_that_were_on_stay_on() {
    let world = World::new();
    let path = "/proc/sys/net/ipv4/tcp_fwmark_accept";
    world.alpha.run(move || fs::write(path, "1")).expect("the namespace's thread").expect("a sysctl");
    world.intercept_alpha().tear_down().expect("nothing left");
    let value = world.alpha.run(move || fs::read_to_string(path)).expect("the namespace's thread");
    assert_eq!(value.expect("a sysctl").trim(), "1");
}

fn held_at_tear_down_passes() {
    let world = World::new();
    let _server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    let clients = [connect(&world.alpha, at(BETA4, PORT)), connect(&world.alpha, at(BETA4, PORT))];
    // One SYN has been handed out, the other has not.
    held(&mut interceptor);
    interceptor.tear_down().expect("nothing left");
    for client in clients.map(connected) {
        assert!(!has_retransmitted(&world.alpha, &client), "a SYN was lost");
    }
}

fn no_delay_by_set_up() {
    const ROUNDS: usize = 5;
    let world = World::new();
    // A namespace's first policy rule splits its routes into the tables `local` and `main`. During the split, the kernel (6.18)
    // looks up only `main` for some microseconds, and drops packets to local addresses. This rule makes the split happen before
    // the first connection.
    run_program(&world.alpha, "ip", &["rule", "add", "pref", "32000", "lookup", "main"]);
    let server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let (ended, all_served) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| server.incoming().take_while(|_| !all_served.load(Ordering::Relaxed)).count());
        let clients = scope.spawn(|| {
            // The clients need a separate thread in alpha, because the namespace's own thread is busy with the set-up.
            setns(world.alpha.as_fd(), CloneFlags::CLONE_NEWNET).expect("alpha");
            while !ended.load(Ordering::Relaxed) {
                let mut client = TcpStream::connect(at(BETA4, PORT)).expect("a connection");
                // The clients connect one at a time, so the listener's backlog never overflows.
                assert_eq!(client.read(&mut [0]).expect("the server's close"), 0);
            }
        });
        for _ in 0..ROUNDS {
            let mut interceptor = world.intercept_alpha();
            for _ in 0..ROUNDS {
                let syn = held(&mut interceptor);
                interceptor.queue().verdict(syn.id, Verdict::Accept).expect("a verdict");
            }
            interceptor.tear_down().expect("nothing left");
        }
        ended.store(true, Ordering::Relaxed);
        clients.join().expect("every client is connected");
        all_served.store(true, Ordering::Relaxed);
        connected(connect(&world.alpha, at(BETA4, PORT)));
    });
    let counters = run_program(&world.alpha, "nstat", &["-az", "TcpExtTCPSynRetrans"]);
    let count = counters.split_whitespace().skip_while(|word| *word != "TcpExtTCPSynRetrans").nth(1);
    assert_eq!(count, Some("0"), "{counters}");
}

fn unaccepted_is_reset() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let client = connect(&world.alpha, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    interceptor.queue().verdict(syn.id, Verdict::Divert).expect("a verdict");
    let mut application = connected(client);
    interceptor.tear_down().expect("nothing left");
    application.set_read_timeout(Some(PATIENCE)).expect("an option");
    let error = application.read(&mut [0]).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

fn ipv6_disabled() {
    let world = World::new();
    for name in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        world.alpha.run(|| fs::write(path, "1")).expect("the namespace's thread").expect("a sysctl");
    }
    let mut interceptor = world.intercept_alpha();
    let client = connect(&world.alpha, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    let _arrival = divert(&mut interceptor, &syn);
    connected(client);
}

fn second_is_refused() {
    let world = World::new();
    let first = world.intercept_alpha();
    let error = try_intercept(&world.alpha, Config::default()).err().expect("a refusal");
    let SetUpError::AlreadyRunning { owner_port: Some(_) } = error else { panic!("{error:?}") };
    first.tear_down().expect("nothing left");
    world.intercept_alpha();
}

fn queue_number_taken() {
    let world = World::new();
    let before = snapshot(&world.alpha);
    let _other = world.alpha.run(|| take_queue(132)).expect("the namespace's thread");
    let error = try_intercept(&world.alpha, Config::default()).err().expect("a refusal");
    assert!(matches!(error, SetUpError::QueueNumberTaken { number: 132 }), "{error:?}");
    assert_eq!(snapshot(&world.alpha), before);
    intercept(&world.alpha, Config { queue_number: 133, ..Config::default() });
}

/// Binds an NFQUEUE, as another program would.
fn take_queue(number: u16) -> netlink_sys::Socket {
    const QUEUE_CONFIG: u16 = 3 << 8 | 2;
    const REQUEST: u16 = 1;
    let mut socket = netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_NETFILTER).expect("a socket");
    socket.bind_auto().expect("a port");
    let mut message = 28u32.to_ne_bytes().to_vec();
    message.extend([QUEUE_CONFIG.to_ne_bytes(), REQUEST.to_ne_bytes()].concat());
    message.extend([0; 8]);
    message.extend([[0, 0], number.to_be_bytes(), 8u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
    message.extend([1, 0, 0, 0]);
    socket.send_to(&message, &netlink_sys::SocketAddr::new(0, 0), 0).expect("a request");
    socket
}

fn foreign_interface() {
    let world = World::new();
    run_ip(&world.alpha, &["link", "add", "shim0", "type", "veth", "peer", "name", "other0"]);
    let before = snapshot(&world.alpha);
    let error = try_intercept(&world.alpha, Config::default()).err().expect("a refusal");
    assert!(matches!(&error, SetUpError::InterfaceExists { name } if name == "shim0"), "{error:?}");
    assert_eq!(snapshot(&world.alpha), before);
}

fn bad_configuration() {
    let world = World::new();
    let good = Config::default();
    let mut marks = good.marks;
    marks.shim |= 1;
    for bad in [
        Config { host_interface: "a-name-of-16-byte".to_owned(), ..good.clone() },
        Config { marks, ..good.clone() },
        Config { routing_table: 254, ..good },
    ] {
        let error = try_intercept(&world.alpha, bad).err().expect("a refusal");
        assert!(matches!(error, SetUpError::Config { .. }), "{error:?}");
    }
}

/// Role of this program when a test starts it as a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Holds every SYN without a verdict.
    Hold,
    /// Diverts and keeps every connection.
    Divert,
    /// Tries to set up an interceptor, and prints the error.
    Try,
}

const ROLES: [(&str, Role); 3] =
    [("as-child-hold", Role::Hold), ("as-child-divert", Role::Divert), ("as-child-try", Role::Try)];

/// If the first argument names a child's role, runs this role and does not return.
pub(crate) fn run_as_child(arguments: &[String]) {
    let named = |(name, _): &&(&str, Role)| arguments.first().is_some_and(|word| word == name);
    let Some((_, role)) = ROLES.iter().find(named) else { return };
    let mut interceptor = match Interceptor::set_up(&Config::default()) {
        Ok(interceptor) => interceptor,
        Err(error) => {
            println!("{error}");
            std::process::exit(2)
        }
    };
    println!("ready");
    if *role == Role::Divert {
        divert_for_ever(&mut interceptor);
    }
    std::thread::sleep(Duration::from_secs(60));
    std::process::exit(0)
}

fn divert_for_ever(interceptor: &mut Interceptor) -> ! {
    let mut kept = Vec::new();
    loop {
        let syn = held_within(interceptor, Duration::from_secs(60)).expect("work to do");
        kept.push(divert(interceptor, &syn));
    }
}

/// A child process. `Drop` kills it if it still runs.
struct Holder(Child);

impl Holder {
    fn start(host: &Namespace, role: &'static str) -> Holder {
        let child = host.run(move || {
            Command::new("/proc/self/exe").arg(role).stdout(Stdio::piped()).spawn().expect("a child")
        });
        let mut holder = Holder(child.expect("the namespace's thread"));
        let mut line = String::new();
        let output = holder.0.stdout.as_mut().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("its first line");
        assert_eq!(line, "ready\n");
        holder
    }

    fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.0.kill().expect("SIGKILL");
        self.0.wait().expect("its end");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            self.end();
        }
    }
}

/// Waits until the kernel has removed a dead process's namespace together with the veth pair.
fn wait_for_veth_to_go(host: &Namespace) {
    wait_until("the veth pair is gone", || !run_ip(host, &["-br", "link"]).contains("shim0"));
}

fn killed_leaves_rules() {
    let world = World::new();
    let before = snapshot(&world.alpha);
    let sysctls = world.alpha.run(SavedSysctls::read).expect("the namespace's thread").expect("sysctls");
    Holder::start(&world.alpha, "as-child-hold").kill();
    wait_for_veth_to_go(&world.alpha);
    let left = snapshot(&world.alpha);
    assert_eq!(left[2..4], before[2..4], "links and routes");
    for rules in &left[..2] {
        assert!(rules.contains("132:") && rules.contains("fwmark 0x1000000/0xf000000"), "{rules}");
    }
    let config = Config::default();
    let removed = world.alpha.run(move || remove_leftovers(&config, &sysctls));
    removed.expect("the namespace's thread").expect("nothing left");
    assert_eq!(snapshot(&world.alpha), before);
}

fn live_is_no_leftover() {
    let world = World::new();
    let sysctls = world.alpha.run(SavedSysctls::read).expect("the namespace's thread").expect("sysctls");
    let _interceptor = world.intercept_alpha();
    let during = snapshot(&world.alpha);
    let removed = world.alpha.run(move || remove_leftovers(&Config::default(), &sysctls));
    let removed = removed.expect("the namespace's thread");
    assert!(matches!(removed, Err(TearDownError::StillRunning { .. })), "{removed:?}");
    assert_eq!(snapshot(&world.alpha), during);
}

fn killed_resets() {
    let world = World::new();
    let holder = Holder::start(&world.alpha, "as-child-divert");
    let mut application = connected(connect(&world.alpha, at(BETA4, PORT)));
    let mut application6 = connected(connect(&world.alpha, at(BETA6, PORT)));
    holder.kill();
    for application in [&mut application, &mut application6] {
        application.set_read_timeout(Some(PATIENCE)).expect("an option");
        let error = application.read(&mut [0]).expect_err("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

fn killed_while_holding() {
    let world = World::new();
    let _server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let holder = Holder::start(&world.alpha, "as-child-hold");
    let client = begin(&world.alpha, at(BETA4, PORT));
    holder.kill();
    let new = connected(connect(&world.alpha, at(BETA4, PORT)));
    assert!(!has_retransmitted(&world.alpha, &new), "new connections are held");
    let writable = nix::poll::PollFlags::POLLOUT;
    assert!(wait(client.as_fd(), writable, Duration::from_millis(1500)), "the held one never came");
    assert!(client.take_error().expect("its state").is_none());
}

fn set_up_after_kill() {
    let world = World::new();
    Holder::start(&world.alpha, "as-child-hold").kill();
    let _interceptor = world.intercept_alpha();
    for family in ["-4", "-6"] {
        let rules = run_ip(&world.alpha, &[family, "rule"]);
        assert_eq!(rules.matches("fwmark 0x1000000/0xf000000").count(), 1, "{rules}");
    }
}

/// A copy of this program that every user can start. `Drop` removes it.
struct Copy(PathBuf);

impl Copy {
    fn make() -> Copy {
        let path = std::env::temp_dir().join(format!("intercept-test-{}", std::process::id()));
        fs::copy("/proc/self/exe", &path).expect("a copy of this program");
        Copy(path)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // A leftover file in the temporary directory does no harm.
        let _ = fs::remove_file(&self.0);
    }
}

fn without_privileges() {
    const NOBODY: u32 = 65534;
    let world = World::new();
    let copy = Copy::make();
    let path = copy.0.clone();
    let output =
        world.alpha.run(move || Command::new(path).arg("as-child-try").uid(NOBODY).gid(NOBODY).output());
    let output = output.expect("the namespace's thread").expect("a child");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("not permitted to ") && text.contains("run as root"), "{text}");
}

fn flush_by_others() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let flushed = world.alpha.run(|| Command::new("nft").args(["flush", "ruleset"]).status());
    match flushed.expect("the namespace's thread") {
        Err(_) => ignore("the nft program"),
        Ok(status) => assert!(status.success()),
    }
    let client = connect(&world.alpha, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    let _arrival = divert(&mut interceptor, &syn);
    connected(client);
}
