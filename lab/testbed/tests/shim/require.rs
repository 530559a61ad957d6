//! Tests of destinations to which a rule requires SCTP. If SCTP does not reach the destination, a connect
//! must fail soon, whatever the cause.

use crate::world::{BULK, LIMIT, PORT, World, status};
use nix::sys::signal::Signal;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Host, Offloads, Programs};

/// Connects to argv[1]:argv[2], and prints the outcome.
const CONNECT: &str = "
import errno, socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
    print('connected')
except OSError as error:
    print(errno.errorcode.get(error.errno, error))
";
/// Limit on the time for a refusal: the race timer, and the start of a program.
const REFUSAL_LIMIT: Duration = Duration::from_secs(3);

fn connect(world: &World, server: &str) -> String {
    connect_from(&world.alpha, server, PORT)
}

fn connect_from(host: &Host, server: &str, port: u16) -> String {
    let mut command = host.command("python3");
    command.args(["-c", CONNECT, server, &port.to_string()]);
    let output = host.run("connect", command, LIMIT).unwrap().good().unwrap();
    assert!(output.elapsed < REFUSAL_LIMIT, "{:?}", output.elapsed);
    output.stdout.trim().to_owned()
}

/// Creates a world in which beta has a listener. Beta also has a daemon if `at_beta` is set. Alpha's rule for
/// the listener's port requires SCTP.
fn requiring(at_beta: bool) -> (World, testbed::Process) {
    let world = World::with("", at_beta);
    let server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let rule = ["-A", "-c", "remote", "-p", "enable", "-P", &PORT.to_string(), "--require"];
    world.alphas.shimrules(&rule).unwrap().good().unwrap();
    assert!(wait_for(LIMIT, || guards(&world) == 4), "no rule in the kernel");
    (world, server)
}

/// Returns the number of alpha's chains that reject plain TCP. A complete guard has four: two in each of two
/// tables.
fn guards(world: &World) -> usize {
    world.alpha.tool("nft", &["list", "ruleset"]).unwrap().matches("reject").count()
}

fn servers(world: &World) -> [String; 2] {
    [world.link.right_v4().to_string(), world.link.right_v6().to_string()]
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_required_destination_with_sctp_is_reached() {
    let (world, _server) = requiring(true);
    for server in servers(&world) {
        assert_eq!(connect(&world, &server), "connected");
    }
    assert_eq!(world.connects_sctp(), 2, "{:?}", world.fallbacks());
    let output = world.alphas.sctpify(&["explain", &world.target()]).unwrap().stdout;
    assert!(output.contains("a rule requires it"), "{output}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_program_that_tries_on_and_on_leaves_few_lines_in_the_log() {
    const TRY: &str = "
import select, socket, sys
tried = {}
for _ in range(300):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((sys.argv[1], int(sys.argv[2])))
    tried[one.fileno()] = one
end = select.poll()
for one in tried: end.register(one, select.POLLOUT)
while tried:
    for one, _ in end.poll():
        if not tried[one].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR): sys.exit('connected')
        end.unregister(one)
        del tried[one]
";
    let (world, _server) = requiring(false);
    let mut command = world.alpha.command("python3");
    command.args(["-c", TRY, &world.link.right_v4().to_string(), &PORT.to_string()]);
    let tried = world.alpha.run("try", command, LIMIT).unwrap().good().unwrap();
    let log = world.alphas.log();
    let lines = log.lines().filter(|line| line.contains(" refused ")).count();
    let periods = 1 + tried.elapsed.as_secs() as usize / 10;
    // For each reason, the log gets up to twenty lines in ten seconds. Two reasons occur: no answer, and the
    // entry in the learned table that follows from it.
    assert!((20..=2 * 20 * (periods + 1)).contains(&lines), "{lines} lines in {:?}", tried.elapsed);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn with_sctp_required_a_host_without_sctp_stays_unreachable_despite_learned_entries() {
    let (world, _server) = requiring(false);
    for server in servers(&world) {
        for _ in 0..2 {
            let report = connect(&world, &server);
            assert_eq!(report, "EHOSTUNREACH", "{server}: {}", status(&world.alphas));
        }
    }
    assert_eq!(world.fallbacks()[0]["reason"]["kind"], "required");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn with_sctp_required_a_killed_daemon_leaves_the_host_unreachable_until_a_restart() {
    let (mut world, _server) = requiring(true);
    let server = world.link.right_v4().to_string();
    world.alphas.signal(Signal::SIGKILL).unwrap();
    assert!(wait_for(LIMIT, || !world.alphas.is_running()));
    assert_eq!(connect(&world, &server), "EHOSTUNREACH");
    world.alphas = Daemon::restart(&world.alpha, &Programs::find().unwrap()).unwrap();
    assert!(wait_for(LIMIT, || connect(&world, &server) == "connected"));
    assert!(world.connects_sctp() > 0);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn with_sctp_required_a_hung_daemon_lets_no_connection_pass() {
    let (world, _server) = requiring(true);
    world.alphas.signal(Signal::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_millis(2_300));
    assert_eq!(connect(&world, &world.link.right_v4().to_string()), "EHOSTUNREACH");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn after_an_nftables_flush_required_sctp_holds_and_the_rules_are_restored() {
    let (world, _server) = requiring(false);
    world.alpha.tool("nft", &["flush", "ruleset"]).unwrap();
    assert_eq!(connect(&world, &world.link.right_v4().to_string()), "EHOSTUNREACH");
    assert!(wait_for(LIMIT, || guards(&world) == 4));
    assert!(world.alphas.log().contains("they are restored"));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn without_the_rule_or_the_daemon_plain_tcp_passes_again() {
    let (world, _server) = requiring(false);
    let server = world.link.right_v4().to_string();
    let rule = ["-A", "-c", "remote", "-p", "enable", "-P", &PORT.to_string(), "--require"];
    world.alphas.shimrules(&["-D", "-c", "remote", "-p", "enable", "-P", &PORT.to_string()]).unwrap();
    assert!(wait_for(LIMIT, || guards(&world) == 0));
    assert_eq!(connect(&world, &server), "connected");
    world.alphas.shimrules(&rule).unwrap().good().unwrap();
    assert!(wait_for(LIMIT, || guards(&world) == 4));
    let World { alphas, .. } = world;
    alphas.stop();
    assert_eq!(world.alpha.tool("nft", &["list", "tables"]).unwrap(), "");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_kernel_enforces_required_sctp_for_the_maximum_number_of_rules() {
    const MOST: usize = 4096;
    let world = World::with("", false);
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let other =
        |n: usize| format!("-A -c remote -p enable -d 10.{}.{}.1 -P 22 --require\n", n / 256, n % 256);
    let last = format!("-A -c remote -p enable -d {} -P {PORT} --require\n", world.link.right_v4());
    let rules = (1..MOST).map(other).collect::<String>() + &last;
    std::fs::write(world.alpha.dir().unwrap().join("sctpifyd/rules"), rules).unwrap();
    world.alphas.sctpify(&["reload"]).unwrap().good().unwrap();
    assert!(!world.alphas.log().contains("not refused"), "{}", world.alphas.log());
    let server = world.link.right_v4().to_string();
    assert_eq!(connect(&world, &server), "EHOSTUNREACH");
    world.alphas.signal(Signal::SIGKILL).unwrap();
    assert_eq!(connect(&world, &server), "EHOSTUNREACH");
}

/// Forwarded traffic comes from a container, a guest or a routed host. The daemon does not carry forwarded
/// traffic over SCTP.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn forwarded_traffic_cannot_reach_a_required_port_even_without_the_daemon() {
    let (world, _server) = requiring(true);
    let _other = world.serve(BULK, &["accept", "7001"]);
    let behind = world.lab.host("behind").unwrap();
    let link = world.lab.join(&world.alpha, &behind, 2, Offloads::On).unwrap();
    for family in ["ipv4.ip_forward", "ipv6.conf.all.forwarding"] {
        world.alpha.tool("sysctl", &["-q", "-w", &format!("net.{family}=1")]).unwrap();
    }
    let routes: [(String, String, String, String); 2] = [
        ("-4".into(), link.left_v4().to_string(), "10.77.2.0/24".into(), world.link.left_v4().to_string()),
        ("-6".into(), link.left_v6().to_string(), "fd77:2::/64".into(), world.link.left_v6().to_string()),
    ];
    for (family, by, network, back_by) in &routes {
        behind.ip(&[family, "route", "add", "default", "via", by]).unwrap();
        world.beta.ip(&[family, "route", "add", network, "via", back_by]).unwrap();
    }
    let look = |world: &World| {
        for server in servers(world) {
            assert_eq!(connect_from(&behind, &server, PORT), "EHOSTUNREACH", "{server}");
            assert_eq!(connect_from(&behind, &server, 7001), "connected", "{server}");
        }
    };
    look(&world);
    world.alphas.signal(Signal::SIGKILL).unwrap();
    look(&world);
}
