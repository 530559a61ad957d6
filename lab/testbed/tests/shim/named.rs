//! Tests that the kernel holds only SYNs that a rule can match. The tests count the packets that enter the
//! queue, while all kinds of rule changes happen.

use crate::world::{BULK, LIMIT, PORT, World, status};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testbed::process::{now, wait_for};
use testbed::{Host, Offloads, Process};

/// Port that no rule of [`World`] names.
const OTHER: u16 = 7001;
/// Limit on the time until the clients have made enough connections while rules change.
const CHANGES_LIMIT: Duration = Duration::from_secs(60);

/// Connects once if argv[5] is "once", otherwise repeatedly until its input ends. Prints each outcome and its
/// duration in seconds. argv[1] to argv[4] are the address, the port, the mark and the source port. If
/// argv[3] is 0, sets no mark. If argv[4] is 0, the kernel chooses the source port.
const CONNECT: &str = "
import errno, os, select, socket, sys, time
to, port, mark, source, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
print('listening', flush=True)
def connect():
    family = socket.AF_INET6 if ':' in to else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(10)
        if mark: client.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        if source:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client.bind(('', source))
        began = time.monotonic()
        try:
            client.connect((to, port))
            how = 'connected'
        except OSError as error:
            how = errno.errorcode.get(error.errno, str(error))
        print(how, f'{time.monotonic() - began:.3f}', flush=True)
if mode == 'once':
    connect()
else:
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        connect()
";

/// Connects once from `host`. Returns the outcome, and the duration in seconds.
fn connect_with(host: &Host, to: &str, port: u16, mark: u32, source: u16) -> (String, f64) {
    let mut command = host.command("python3");
    command.args(["-c", CONNECT, to, &port.to_string(), &mark.to_string(), &source.to_string(), "once"]);
    let output = host.run("connect", command, LIMIT).unwrap().good().unwrap().stdout;
    let line = output.lines().nth(1).unwrap();
    let (how, took) = line.split_once(' ').unwrap();
    (how.to_owned(), took.parse().unwrap())
}

fn connect(world: &World, to: &str, port: u16) -> String {
    connect_with(&world.alpha, to, port, 0, 0).0
}

/// Connects once with a program that starts quickly. After a rule change, this connect comes before the
/// update of the kernel's sets. Returns `None` on success, otherwise the error.
fn connect_at_once(world: &World, to: &str, port: u16) -> Option<String> {
    let to = if to.contains(':') { format!("[{to}]:{port}") } else { format!("{to}:{port}") };
    let output = world.alpha.run("connect", world.client(BULK, &["connect", &to, "1"]), LIMIT).unwrap();
    (!output.status.success()).then_some(output.stderr)
}

/// Starts a program that connects continuously until it is stopped.
fn keep_connecting(world: &World, to: &str, port: u16) -> Process {
    let mut command = world.alpha.command("sh");
    let program = format!("sleep 1000 | exec python3 -c \"$0\" {to} {port} 0 0 forever");
    command.args(["-c", &program, CONNECT]);
    let mut process = world.alpha.spawn("connecting", command).unwrap();
    process.wait_until("connecting", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    process
}

/// Returns the outcomes of a continuously connecting program.
fn outcomes(process: &Process) -> Vec<String> {
    let output = process.stdout();
    output.lines().skip(1).filter_map(|line| line.split_once(' ')).map(|(how, _)| how.to_owned()).collect()
}

/// Returns the number of SYNs that have entered alpha's queue so far.
fn queued(world: &World) -> u64 {
    const NUMBER: &str = "132";
    let output = world.alpha.tool("cat", &["/proc/net/netfilter/nfnetlink_queue"]).unwrap();
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let ours = output.lines().map(fields).find(|fields| fields[0] == NUMBER).expect("our queue");
    ours[7].parse().unwrap()
}

/// Waits until the kernel's sets are in use. Then only SYNs that these sets select enter the queue.
fn wait_named(world: &World) {
    let rules = || world.alpha.tool("nft", &["list", "chain", "inet", "shim", "held"]).unwrap();
    assert!(wait_for(LIMIT, || rules().contains("@named4")), "{}", rules());
}

fn rule(world: &World, action: &str, policy: &str, words: &[&str]) {
    let rule = [&[action, "-c", "remote", "-p", policy], words].concat();
    world.alphas.shimrules(&rule).unwrap().good().unwrap();
}

fn set(world: &World, word: &str) {
    world.alphas.sctpify(&["set", word]).unwrap().good().unwrap();
}

fn servers(world: &World) -> [String; 2] {
    [world.link.right_v4().to_string(), world.link.right_v6().to_string()]
}

fn serve(world: &World, port: u16) -> Process {
    world.serve(BULK, &["accept", &port.to_string()])
}

/// Reports whether the SYN of a connect enters the queue.
fn is_queued(world: &World, to: &str, port: u16) -> bool {
    let before = queued(world);
    connect(world, to, port);
    queued(world) > before
}

/// Installs a rule that counts the SYNs to a port that leave alpha on its link.
fn count_syns(world: &World, port: u16) {
    let table =
        "add table inet count; add chain inet count leaves { type filter hook postrouting priority 300; }";
    let rule = format!(
        "add rule inet count leaves oifname {} tcp dport {port} tcp flags & (fin | syn | rst | ack) == syn counter",
        world.link.name()
    );
    world.alpha.tool("nft", &[&format!("{table}; {rule}")]).unwrap();
}

fn syns(world: &World) -> u64 {
    let output = world.alpha.tool("nft", &["list", "table", "inet", "count"]).unwrap();
    let count = output.split("packets ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a counter");
    count.parse().unwrap()
}

fn hits(world: &World) -> Value {
    let output = world.alphas.shimrules(&["-L", "-c", "remote", "--json"]).unwrap().good().unwrap().stdout;
    serde_json::from_str(&output).unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connect_that_no_rule_names_is_not_queued_and_is_counted_all_the_same() {
    let world = World::new();
    let (_server, _other) = (serve(&world, PORT), serve(&world, OTHER));
    wait_named(&world);
    let before = status(&world.alphas)["counters"].clone();
    for server in servers(&world) {
        assert!(!is_queued(&world, &server, OTHER), "{server}");
        assert!(is_queued(&world, &server, PORT), "{server}");
    }
    assert_eq!(world.connects_sctp(), 2, "{}", world.fallbacks());
    let after = status(&world.alphas)["counters"].clone();
    let grown = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    assert_eq!((grown("connects_seen"), grown("connects_by_rule_tcp")), (4, 2));
    let report = hits(&world);
    let rules = report["rules"].as_array().unwrap();
    assert_eq!(rules.iter().map(|rule| rule["hits"].as_u64().unwrap()).sum::<u64>(), 2, "{report}");
    let default = report["defaults"].as_array().unwrap().iter().find(|d| d["chain"] == "remote").unwrap();
    assert_eq!(default["hits"], 2, "{report}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_rule_that_comes_or_goes_counts_from_the_next_connect_on() {
    let world = World::new();
    let _server = serve(&world, OTHER);
    let port = OTHER.to_string();
    let local = ["-A", "-c", "local", "-p", "enable", "-P", &port];
    world.betas.as_ref().unwrap().shimrules(&local).unwrap().good().unwrap();
    let server = world.link.right_v4().to_string();
    for round in 0..6 {
        // In every second round, the test waits before the change until the kernel's sets follow the rules.
        if round % 2 == 0 {
            wait_named(&world);
        }
        let before = world.connects_sctp();
        rule(&world, "-A", "enable", &["-d", "10.77.0.0/16", "-P", "7001:7009"]);
        assert_eq!(connect_at_once(&world, &server, OTHER), None);
        assert_eq!(world.connects_sctp(), before + 1, "{round}: {}", world.fallbacks());
        rule(&world, "-D", "enable", &["-d", "10.77.0.0/16", "-P", "7001:7009"]);
        assert_eq!(connect_at_once(&world, &server, OTHER), None);
        assert_eq!(world.connects_sctp(), before + 1, "{round}");
    }
    wait_named(&world);
    assert!(!is_queued(&world, &server, OTHER));
    set(&world, "default_remote_enable=1");
    assert!(is_queued(&world, &server, OTHER));
    set(&world, "default_remote_enable=0");
    wait_named(&world);
    assert!(!is_queued(&world, &server, OTHER));
    set(&world, "enable=0");
    wait_named(&world);
    assert!(!is_queued(&world, &server, PORT));
    set(&world, "enable=1");
    assert!(is_queued(&world, &server, PORT));
    // A reload reads the rules from the file, as a restart does.
    world.alphas.sctpify(&["reload"]).unwrap().good().unwrap();
    wait_named(&world);
    assert!(is_queued(&world, &server, PORT) && !is_queued(&world, &server, OTHER));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn networks_and_ranges_of_ports_are_queued_to_their_edges() {
    let world = World::with("", false);
    rule(&world, "-A", "enable", &["-d", "10.77.1.2/31", "-P", "7001:7003"]);
    rule(&world, "-A", "enable", &["-d", "10.77.1.0/24", "-P", "7003:7004"]);
    rule(&world, "-A", "enable", &["-d", "fd77:1::2"]);
    // While the default is to disable, this rule has no effect, and the kernel's sets do not have it.
    rule(&world, "-A", "disable", &["-P", "7002"]);
    wait_named(&world);
    let [v4, v6] = servers(&world);
    for (server, port, expected) in [
        (&v4, 7000, true),
        (&v4, 7001, true),
        (&v4, 7002, true),
        (&v4, 7003, true),
        (&v4, 7004, true),
        (&v4, 7005, false),
        (&v4, 6999, false),
        (&v6, 1, true),
        (&v6, 65535, true),
    ] {
        assert_eq!(is_queued(&world, server, port), expected, "{server} {port}");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn with_default_enable_only_disabled_connects_bypass_the_queue_and_count_as_hits() {
    let world = World::with("default_remote_enable = true\n", false);
    rule(&world, "-A", "disable", &["-P", "7001"]);
    rule(&world, "-A", "disable", &["-d", "10.77.1.0/24", "-P", "7001:7002"]);
    rule(&world, "-A", "disable", &["-d", "fd77:1::/64", "-P", "7001:7002"]);
    wait_named(&world);
    let [v4, v6] = servers(&world);
    for server in [&v4, &v6] {
        for (port, expected) in [(7001, false), (7002, false), (7003, true), (PORT, true)] {
            assert_eq!(is_queued(&world, server, port), expected, "{server} {port}");
        }
    }
    let report = hits(&world);
    let disabled = |rule: &&Value| rule["policy"] == "disable";
    let counts = report["rules"].as_array().unwrap().iter().filter(disabled).map(|rule| &rule["hits"]);
    assert_eq!(counts.collect::<Vec<_>>(), [2, 1, 1], "{report}");
    // A change of the rules does not reset the hits of the other rules.
    rule(&world, "-A", "disable", &["-P", "7009"]);
    assert_eq!(hits(&world)["rules"].as_array().unwrap().iter().find(disabled).unwrap()["hits"], 2);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn forwarded_connections_are_not_queued() {
    let world = World::with("", false);
    let _servers = [serve(&world, PORT), serve(&world, OTHER)];
    let behind = world.lab.host("behind").unwrap();
    let link = world.lab.join(&world.alpha, &behind, 2, Offloads::On).unwrap();
    world.alpha.tool("sysctl", &["-q", "-w", "net.ipv4.ip_forward=1"]).unwrap();
    behind.ip(&["route", "add", "default", "via", &link.left_v4().to_string()]).unwrap();
    world.beta.ip(&["route", "add", "10.77.2.0/24", "via", &world.link.left_v4().to_string()]).unwrap();
    rule(&world, "-A", "enable", &["-P", "7002", "--require"]);
    wait_named(&world);
    let before = queued(&world);
    let server = world.link.right_v4().to_string();
    for (port, expected) in [(PORT, "connected"), (OTHER, "connected"), (7002, "EHOSTUNREACH")] {
        assert_eq!(connect_with(&behind, &server, port, 0, 0).0, expected, "{port}");
    }
    assert_eq!(queued(&world), before);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connect_with_the_manual_mark_is_queued_although_no_rule_enables_its_destination() {
    let world = World::with("default_remote_enable = true\n", true);
    let _server = serve(&world, OTHER);
    let port = OTHER.to_string();
    let local = ["-A", "-c", "local", "-p", "enable", "-P", &port];
    world.betas.as_ref().unwrap().shimrules(&local).unwrap().good().unwrap();
    rule(&world, "-A", "disable", &["-P", &port]);
    set(&world, "manual_mark=7");
    let server = world.link.right_v4().to_string();
    for default in ["1", "0"] {
        set(&world, &format!("default_remote_enable={default}"));
        wait_named(&world);
        let before = (queued(&world), world.connects_sctp());
        assert_eq!(connect_with(&world.alpha, &server, OTHER, 8, 0).0, "connected");
        assert_eq!((queued(&world), world.connects_sctp()), before);
        assert_eq!(connect_with(&world.alpha, &server, OTHER, 7, 0).0, "connected");
        assert_eq!(world.connects_sctp(), before.1 + 1, "{}", world.fallbacks());
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn ports_of_an_ended_sctp_connection_are_reusable_over_tcp_after_the_rule_is_deleted() {
    const SOURCE: u16 = 20_000;
    let world = World::new();
    let _server = serve(&world, PORT);
    let server = world.link.right_v4().to_string();
    assert_eq!(connect_with(&world.alpha, &server, PORT, 0, SOURCE).0, "connected");
    assert_eq!(world.connects_sctp(), 1, "{}", world.fallbacks());
    world.wait_quiet();
    rule(&world, "-D", "enable", &["-P", &PORT.to_string()]);
    wait_named(&world);
    // The kernel still diverts packets with the first connection's ports to the daemon, for up to a minute.
    // Only a new SYN ends this diversion earlier.
    let (how, took) = connect_with(&world.alpha, &server, PORT, 0, SOURCE);
    assert_eq!((how.as_str(), took < 0.5), ("connected", true), "{took}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_syn_that_is_held_goes_on_when_its_rule_goes() {
    let world = World::with("race_timer_ms = 3000\n", true);
    let _server = serve(&world, PORT);
    world.beta.drop_sctp().unwrap();
    let drop = "add table inet mute; add chain inet mute in { type filter hook input priority 0; }; \
                add rule inet mute in meta l4proto 132 drop";
    world.beta.tool("nft", &[drop]).unwrap();
    let server = world.link.right_v4().to_string();
    let mut command = world.alpha.command("python3");
    command.args(["-c", CONNECT, &server, &PORT.to_string(), "0", "0", "once"]);
    let mut client = world.alpha.spawn("connect", command).unwrap();
    let held = || status(&world.alphas)["connections"].as_array().is_some_and(|all| !all.is_empty());
    assert!(wait_for(LIMIT, held));
    rule(&world, "-D", "enable", &["-P", &PORT.to_string()]);
    client.wait_until("connected", LIMIT, |client| client.stdout().contains("connected")).unwrap();
    let output = client.stdout();
    let took: f64 = output.trim().rsplit(' ').next().unwrap().parse().unwrap();
    // The connection must be up before the client's kernel retransmits the SYN.
    assert!(took < 1.0, "{output}");
    assert!(status(&world.alphas)["connections"].as_array().unwrap().is_empty());
}

/// Changes rules and settings repeatedly, with all kinds of changes.
fn change_rules(world: &World, rounds: usize) {
    for round in 0..rounds {
        rule(world, "-A", "enable", &["-d", "10.77.0.0/16", "-P", "8000:9000"]);
        rule(world, "-A", "disable", &["-d", "192.0.2.0/24"]);
        set(world, ["default_remote_enable=1", "default_remote_enable=0"][round % 2]);
        rule(world, "-A", "enable", &["-d", "10.0.0.0/8", "-P", "6990:6999"]);
        set(world, &format!("manual_mark={}", round + 1));
        if round % 3 == 0 {
            // During this pause, the kernel's sets follow the rules.
            std::thread::sleep(Duration::from_millis(160));
        }
        world.alphas.sctpify(&["reload"]).unwrap().good().unwrap();
        rule(world, "-D", "enable", &["-d", "10.77.0.0/16", "-P", "8000:9000"]);
        rule(world, "-D", "enable", &["-d", "10.0.0.0/8", "-P", "6990:6999"]);
        rule(world, "-D", "disable", &["-d", "192.0.2.0/24"]);
    }
    set(world, "default_remote_enable=0");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn required_sctp_never_becomes_plain_tcp_while_rules_change() {
    for at_beta in [true, false] {
        let world = World::with("", at_beta);
        let _server = serve(&world, PORT);
        rule(&world, "-A", "enable", &["-P", &PORT.to_string(), "--require"]);
        count_syns(&world, PORT);
        let four = servers(&world).into_iter().cycle().take(4);
        let clients: Vec<Process> = four.map(|server| keep_connecting(&world, &server, PORT)).collect();
        // Without a daemon on beta, each attempt waits for the race timer, so fewer connections suffice.
        let (expected, least) = if at_beta { ("connected", 50) } else { ("EHOSTUNREACH", 4) };
        let began = now();
        while clients.iter().any(|client| outcomes(client).len() < least) {
            assert!(began.elapsed() < CHANGES_LIMIT, "{at_beta}: too few connections");
            change_rules(&world, 20);
        }
        for client in clients {
            let ended = outcomes(&client);
            client.stop();
            assert!(ended.iter().all(|how| how == expected), "{at_beta}: {ended:?}");
        }
        assert_eq!(syns(&world), 0, "{at_beta}");
        if at_beta {
            assert!(world.connects_sctp() > 100);
        }
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_rule_that_requires_sctp_holds_from_the_moment_that_its_command_ends() {
    let world = World::with("", false);
    let _server = serve(&world, OTHER);
    let [v4, v6] = servers(&world);
    let port = OTHER.to_string();
    for round in 0..8 {
        if round % 2 == 0 {
            wait_named(&world);
        }
        count_syns(&world, OTHER);
        rule(&world, "-A", "enable", &["-P", &port, "--require"]);
        for server in [&v4, &v6] {
            let error = connect_at_once(&world, server, OTHER).expect("refused");
            assert!(error.contains("No route to host"), "{round}: {error}");
        }
        assert_eq!(syns(&world), 0, "{round}");
        world.alpha.tool("nft", &["delete", "table", "inet", "count"]).unwrap();
        rule(&world, "-D", "enable", &["-P", &port]);
        assert_eq!(connect_at_once(&world, &v4, OTHER), None, "{round}");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn concurrent_rule_changes_lose_no_rule() {
    let world = World::with("", false);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let toggle = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                set(&world, "learned_failures=2");
                rule(&world, "-A", "disable", &["-P", "1"]);
                rule(&world, "-D", "disable", &["-P", "1"]);
            }
        });
        for port in 100..140 {
            rule(&world, "-A", "enable", &["-P", &port.to_string()]);
        }
        is_done.store(true, Ordering::Relaxed);
        toggle.join().unwrap();
    });
    let report = hits(&world);
    let enabled = report["rules"].as_array().unwrap().iter().filter(|rule| rule["policy"] == "enable");
    assert_eq!(enabled.count(), 42, "{report}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn with_more_rules_than_the_kernel_sets_hold_every_connect_is_queued() {
    let world = World::with("", false);
    let path = world.alpha.dir().unwrap().join("sctpifyd/rules");
    let rules = |count: usize| -> String {
        let one = |n: usize| format!("-A -c remote -p enable -d 10.{}.{}.1 -P 22\n", n / 256, n % 256);
        (0..count).map(one).collect()
    };
    let server = world.link.right_v4().to_string();
    for (count, expected) in [(1024, false), (1025, true), (1023, false)] {
        std::fs::write(&path, rules(count)).unwrap();
        world.alphas.sctpify(&["reload"]).unwrap().good().unwrap();
        let is_so = || is_queued(&world, &server, OTHER) == expected;
        assert!(wait_for(LIMIT, is_so), "{count} rules");
        std::thread::sleep(Duration::from_millis(500));
        assert!(is_so(), "{count} rules");
    }
}
