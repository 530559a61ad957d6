//! `sctpify doctor`: checks this host for the requirements of sctpify, and adds the daemon's own findings if a daemon runs.

use std::cmp::Reverse;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use control::{Check, DoctorReport, Level, LinkTest, OwnAddress, Request, Response};
use rules::{Settings, normalise};

use crate::commands::{resolve, resolve_host};
use crate::daemon::find_daemon;
use crate::private::is_behind_nat;
use crate::probe::Links;
use crate::session::{Session, unexpected};
use crate::{CliError, kernel, probe, show};

/// Name of the NAT check, which the daemon also makes.
const NAT: &str = "NAT";
/// Number of INITs for each pair of a local and a remote address.
const ROUNDS: u64 = 5;
/// Limit on the wait for each answer.
const PATIENCE: Duration = Duration::from_millis(700);

/// Runs all checks and prints the report. Fails if a requirement is missing.
pub(crate) fn run(session: Session<'_>, destination: Option<&str>) -> Result<(), CliError> {
    let mut report = DoctorReport { checks: local_checks(), links: Vec::new(), addresses: Vec::new() };
    let target = destination.map(Target::parse).transpose()?;
    match session.ask(&Request::Doctor { peer: target.map(|target| target.peer) }) {
        Ok(Response::Doctor(found)) => {
            report.checks.push(Check::ok("daemon", format!("answers on {}", session.control.display())));
            report.checks.retain(|ours| found.checks.iter().all(|theirs| theirs.name != ours.name));
            report.checks.extend(found.checks);
            if let Some(target) = target {
                test_peer(session, target, &found.addresses, &mut report);
            }
        }
        Ok(other) => return Err(unexpected(&other)),
        Err(CliError::NoDaemon(text)) if target.is_some() => return Err(CliError::NoDaemon(text)),
        Err(CliError::NoDaemon(_)) => {
            let found = format!("none answers on {}", session.control.display());
            report.checks.push(Check::bad("daemon", Level::Warning, found, "start it with `sctpify up`"));
        }
        Err(other) => report.checks.push(Check::bad(
            "daemon",
            Level::Warning,
            other.to_string(),
            "retry as root, or see its log",
        )),
    }
    let missing = report.missing().join(", ");
    session.print(&Response::Doctor(report), show::answer)?;
    if missing.is_empty() { Ok(()) } else { Err(CliError::SomethingMissing(missing)) }
}

/// Adds checks of the route to a peer, and tests of this host's links to the peer.
fn test_peer(session: Session<'_>, target: Target, own: &[OwnAddress], report: &mut DoctorReport) {
    // The daemon's NAT check takes precedence: it relies on observations, not only on address ranges.
    if report.checks.iter().all(|check| check.name != NAT) {
        report.checks.extend(nat(target.peer));
    }
    let udp_port = udp_port(session);
    let mut links = Links::open(own, target.peer, udp_port);
    links.complete(ROUNDS, target.sctp_port(), PATIENCE);
    let offered = links.add_offered();
    links.complete(ROUNDS, target.sctp_port(), PATIENCE);
    links.find_mtus(target.sctp_port());
    report.links = links.tests();
    report.links.sort_by_key(|test| Reverse(test.loss_percent()));
    let mut checks = probe::checks(target.peer, udp_port, target.port);
    if report.links.iter().any(|test| test.answered > 0) {
        // The checks use the route that the kernel chooses, but connections can use any working link. A fault on this route is therefore
        // only a warning.
        checks.iter_mut().for_each(|check| check.level = check.level.min(Level::Warning));
    }
    report.checks.extend(checks);
    if !offered.is_empty() {
        let list: Vec<String> = offered.iter().map(IpAddr::to_string).collect();
        report.checks.push(Check::ok("peer's addresses", format!("it offers {}", list.join(", "))));
    }
    report.checks.extend(verdict(&report.links));
}

/// Summarises the tests of all links that connections use, in one check. A link works if one of its tests was answered.
fn verdict(tests: &[LinkTest]) -> Option<Check> {
    let mut links: Vec<(String, Vec<&LinkTest>)> = Vec::new();
    for test in tests.iter().filter(|test| test.own.unused.is_none()) {
        match links.iter_mut().find(|(title, _)| *title == test.own.title()) {
            Some((_, tests)) => tests.push(test),
            None => links.push((test.own.title(), vec![test])),
        }
    }
    let least_loss = |tests: &[&LinkTest]| tests.iter().map(|test| test.loss_percent()).min().unwrap_or(100);
    let works = links.iter().filter(|(_, tests)| least_loss(tests) < 100).count();
    let faults: Vec<String> = links
        .iter()
        .filter_map(|(title, tests)| match least_loss(tests) {
            0 => None,
            100 => {
                let fault = tests.iter().find_map(|test| test.fault.as_deref()).unwrap_or("no answer");
                Some(format!("{title}: {fault}"))
            }
            lost => Some(format!("{title} loses {lost} %")),
        })
        .collect();
    let noun = if links.len() == 1 { "link" } else { "links" };
    let found = format!("SCTP works by {works} of {} {noun}", links.len());
    let found = if faults.is_empty() { found } else { format!("{found}; {}", faults.join("; ")) };
    let level = match works {
        _ if links.is_empty() => return None,
        0 => Level::Missing,
        _ if faults.is_empty() => return Some(Check::ok("links", found)),
        _ => Level::Warning,
    };
    let remedy = "bring that link up, or allow UDP to the peer's port, in both directions, in its firewalls";
    Some(Check::bad("links", level, found, remedy))
}

/// A host to test, with a port if the user names one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) peer: IpAddr,
    port: Option<u16>,
}

impl Target {
    /// Parses HOST or HOST:PORT. If a host has several addresses, uses the first one.
    pub(crate) fn parse(text: &str) -> Result<Target, CliError> {
        let is_with_port = match text.rsplit_once(':') {
            Some((host, _)) => !host.contains(':') || host.ends_with(']'),
            None => false,
        };
        if !is_with_port {
            return Ok(Target { peer: resolve_host(text)?, port: None });
        }
        let none = || CliError::Failed(format!("{text} has no address"));
        let first = resolve(text)?.into_iter().next().ok_or_else(none)?;
        Ok(Target { peer: normalise(first.ip()), port: Some(first.port()) })
    }

    /// Returns the SCTP port to probe.
    pub(crate) fn sctp_port(self) -> u16 {
        self.port.unwrap_or(probe::ANY_SCTP_PORT)
    }
}

/// Returns the UDP port that this host uses for SCTP. The tests assume that the peer uses the same port.
pub(crate) fn udp_port(session: Session<'_>) -> u16 {
    let told = session.ask(&Request::Get { name: "udp_port".into() });
    let port = match told {
        Ok(Response::Settings(report)) => report.settings.first().and_then(|row| row.value.parse().ok()),
        _ => None,
    };
    port.unwrap_or(Settings::default().udp_port)
}

/// Infers from the addresses of both ends whether a NAT is on the path; `None` if this host has no route to the peer.
fn nat(peer: IpAddr) -> Option<Check> {
    let any: IpAddr = if peer.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // This connect sends nothing. The kernel chooses the route, and thereby the local address.
    socket.connect((peer, probe::ANY_SCTP_PORT)).ok()?;
    let ours = socket.local_addr().ok()?.ip();
    if !is_behind_nat(ours, peer) {
        return Some(Check::ok(NAT, format!("no sign of one between {ours} and {peer}")));
    }
    let found = format!("{ours} of this host is private and {peer} is not: a NAT is on the path");
    let remedy = "nothing for outgoing connections, which use UDP; for incoming ones, forward UDP 9899 (docs/networks.md)";
    Some(Check::bad(NAT, Level::Warning, found, remedy))
}

fn local_checks() -> Vec<Check> {
    let mut checks = vec![privileges(&fs::read_to_string("/proc/self/status").unwrap_or_default())];
    checks.extend(kernel::checks());
    checks.push(namespaces());
    checks.push(kernel_sctp());
    checks.push(program());
    checks
}

fn privileges(status: &str) -> Check {
    const NEEDED: [(u32, &str); 3] = [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (21, "CAP_SYS_ADMIN")];
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let lacking: Vec<&str> =
        NEEDED.iter().filter(|(bit, _)| set >> bit & 1 == 0).map(|(_, name)| *name).collect();
    if lacking.is_empty() {
        return Check::ok("privileges", "CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN");
    }
    let found = format!("this user lacks {}", lacking.join(", "));
    Check::bad("privileges", Level::Missing, found, "run `sctpify up` as root")
}

fn namespaces() -> Check {
    if Path::new("/proc/self/ns/net").exists() {
        return Check::ok("namespaces", "network namespaces present");
    }
    let remedy = "use a kernel with CONFIG_NET_NS";
    Check::bad("namespaces", Level::Missing, "this kernel has no network namespaces", remedy)
}

fn kernel_sctp() -> Check {
    if !Path::new("/proc/net/sctp").exists() && !Path::new("/sys/module/sctp").exists() {
        return Check::ok("kernel SCTP", "not loaded, so protocol 132 is free");
    }
    let found = "loaded: it answers packets of IP protocol 132 with ABORT";
    let remedy = "`modprobe -r sctp`, or use UDP only: `sctpify set carriers=udp`";
    Check::bad("kernel SCTP", Level::Warning, found, remedy)
}

fn program() -> Check {
    match find_daemon() {
        Ok(path) => Check::ok("sctpifyd", path.display().to_string()),
        Err(e) => Check::bad("sctpifyd", Level::Missing, e.to_string(), "install it in sctpify's directory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_capabilities_are_named() {
        assert_eq!(privileges("Name:\tx\nCapEff:\t000001ffffffffff\n").level, Level::Ok);
        let lacking = privileges("CapEff:\t0000000000001000\n");
        assert_eq!(lacking.found, "this user lacks CAP_NET_RAW, CAP_SYS_ADMIN");
    }

    fn test(interface: &str, sent: u64, answered: u64) -> LinkTest {
        let own = OwnAddress {
            local: [10, 0, 0, 1].into(),
            interface: Some(interface.into()),
            name: (interface == "wwan0").then(|| "lte".into()),
            is_down: false,
            unused: None,
        };
        let fault = (answered < sent).then(|| "no answer".into());
        let remote = [198, 51, 100, 7].into();
        LinkTest { own, remote, udp_port: 9899, sent, answered, rtt: None, mtu: None, nat: true, fault }
    }

    #[test]
    fn the_verdict_counts_links_and_names_those_that_fail_or_lose() {
        let told = |tests: &[LinkTest]| verdict(tests).map(|check| (check.level, check.found));
        let ok = |text: &str| Some((Level::Ok, text.to_owned()));
        let warning = |text: &str| Some((Level::Warning, text.to_owned()));
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[test("eth0", 5, 5)]), ok("SCTP works by 1 of 1 link"));
        let unused = |mut test: LinkTest| {
            test.own.unused = Some("private".into());
            test
        };
        let one_used = [test("eth0", 5, 5), unused(test("wwan0", 5, 0))];
        assert_eq!(told(&one_used), ok("SCTP works by 1 of 1 link"));
        let unreachable_pair = [test("eth0", 5, 5), test("eth0", 5, 0), test("wwan0", 5, 5)];
        assert_eq!(told(&unreachable_pair), ok("SCTP works by 2 of 2 links"));
        assert_eq!(
            told(&[test("wwan0", 5, 0), test("eth0", 5, 5)]),
            warning("SCTP works by 1 of 2 links; wwan0 (lte): no answer")
        );
        assert_eq!(
            told(&[test("wwan0", 5, 3), test("eth0", 5, 5)]),
            warning("SCTP works by 2 of 2 links; wwan0 (lte) loses 40 %")
        );
        assert_eq!(
            told(&[test("eth0", 5, 0)]),
            Some((Level::Missing, "SCTP works by 0 of 1 link; eth0: no answer".to_owned()))
        );
    }

    #[test]
    fn a_host_may_have_a_port() {
        let parse = |text: &str| Target::parse(text).map(|target| (target.peer.to_string(), target.port));
        assert_eq!(parse("10.1.2.3").unwrap(), ("10.1.2.3".to_owned(), None));
        assert_eq!(parse("10.1.2.3:22").unwrap(), ("10.1.2.3".to_owned(), Some(22)));
        assert_eq!(parse("[2001:db8::1]:22").unwrap(), ("2001:db8::1".to_owned(), Some(22)));
        assert_eq!(parse("2001:db8::1").unwrap(), ("2001:db8::1".to_owned(), None));
        for wrong in ["10.1.2.3:ssh", "10.1.2.3:65536", ""] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }
}
