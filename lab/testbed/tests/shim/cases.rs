//! Runs each C program that uses `programs/c/cases.h` twice: over plain TCP and over SCTP. Compares the two
//! outputs line by line.

use crate::world::{HTTP_PORT, LIMIT, PORT, World};
use std::collections::BTreeMap;
use std::time::Duration;
use testbed::c_programs;
use testbed::process::wait_for;

/// Port that no rule names. Its connections therefore use plain TCP.
pub(crate) const PLAIN_PORT: u16 = 7001;
/// Port on which nothing listens, and which no rule names.
const PLAIN_CLOSED_PORT: u16 = 81;

/// Limit on the time for the server's last case after the client has ended. It is longer than the time limit
/// of a case.
const SERVER_LIMIT: Duration = Duration::from_secs(25);

/// Output line that differs between TCP and SCTP, with the reason.
pub(crate) struct Difference {
    /// Case and end: "NAME connecting" or "NAME accepting", or "NAME" for both ends.
    pub(crate) case: &'static str,
    /// Output line over SCTP.
    pub(crate) by_sctp: &'static str,
    /// Reason for the difference from TCP.
    pub(crate) why: &'static str,
}

/// Output line of each case at each end, by "NAME connecting" or "NAME accepting".
type Lines = BTreeMap<String, String>;

/// Runs `program` over plain TCP and over SCTP. `configuration` is the configuration of the connecting host's
/// daemon. Panics if:
///
/// - the output differs in a way that `differences` does not list
/// - a case fails over plain TCP
/// - a connection that should use SCTP did not use it
/// - the serving host still diverts packets of connections that have ended
pub(crate) fn compare(configuration: &str, program: &str, libraries: &[&str], differences: &[Difference]) {
    let world = World::with(configuration, true);
    let binary = c_programs::build(program, world.lab.dir(), libraries).unwrap();
    let binary = binary.to_str().unwrap();
    let by_tcp = run(&world, binary, PLAIN_PORT, PLAIN_CLOSED_PORT);
    assert_eq!(world.connects_sctp(), 0, "the port without a rule must be plain TCP");
    let failed: Vec<_> = by_tcp.iter().filter(|(_, what)| what.contains("FAILED")).collect();
    assert!(failed.is_empty(), "these fail by TCP already: {failed:#?}");
    for (case, what) in by_tcp.iter().filter(|(_, what)| what.contains("the kernel has no")) {
        eprintln!("NOT TESTED: {case}: {what}");
    }
    let by_sctp = run(&world, binary, PORT, HTTP_PORT);
    assert!(world.connects_sctp() >= by_sctp.len() as u64, "some were TCP: {:?}", world.fallbacks());
    world.wait_quiet();
    let served = world.beta.tool("nft", &["list", "set", "inet", "shim", "served4"]).unwrap();
    assert!(!served.contains("elements"), "connections that are over are still diverted: {served}");
    let wrong = unexpected(&by_tcp, &by_sctp, differences);
    assert!(wrong.is_empty(), "not by SCTP what it is by TCP:\n{}", wrong.join("\n"));
}

fn unexpected(by_tcp: &Lines, by_sctp: &Lines, differences: &[Difference]) -> Vec<String> {
    assert_eq!(by_tcp.keys().collect::<Vec<_>>(), by_sctp.keys().collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for (case, tcp) in by_tcp {
        let name = case.split(' ').next().unwrap_or_default();
        let expected = differences.iter().find(|other| other.case == case || other.case == name);
        let (want, why) = expected.map_or((tcp.as_str(), "as by TCP"), |other| (other.by_sctp, other.why));
        if by_sctp[case] != want {
            wrong
                .push(format!("{case}\n    TCP  {tcp}\n    SCTP {}\n    want {want} ({why})", by_sctp[case]));
        }
    }
    wrong
}

/// Runs all cases once, against a server on `port`. Nothing listens on `closed_port`.
fn run(world: &World, binary: &str, port: u16, closed_port: u16) -> Lines {
    let server = world.serve(binary, &["serve", &port.to_string()]);
    let (to, port, closed) = (world.link.right_v4().to_string(), port.to_string(), closed_port.to_string());
    let client = world.client(binary, &["connect", &to, &port, &closed]);
    let output = world.alpha.run("client", client, LIMIT).unwrap().good().unwrap();
    // The server prints its last line after the client has ended.
    let last = output.stdout.lines().last().unwrap_or_default();
    let name = last.split(' ').next().unwrap_or_default();
    let has_ended = || lines(&server.stdout()).keys().any(|case| case.starts_with(name));
    assert!(wait_for(SERVER_LIMIT, has_ended), "the server says nothing of {name}: {}", server.stderr());
    lines(&output.stdout).into_iter().chain(lines(&server.stdout())).collect()
}

fn lines(report: &str) -> Lines {
    report
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(case, what)| (case.into(), what.into()))
        .collect()
}
