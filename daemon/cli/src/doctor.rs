//! Requirements of sctpify that this host lacks, found without a daemon; and the daemon's own findings.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use control::{Check, DoctorReport, Level, Request, Response};

use crate::commands::resolve_host;
use crate::daemon::find_daemon;
use crate::session::{Session, unexpected};
use crate::{CliError, kernel, probe, show};
use rules::Settings;

/// The SCTP port to probe at a peer: ssh, which most hosts have; a refusal is an answer as well.
const ANY_SCTP_PORT: u16 = 22;
/// The name of the check that the daemon also makes.
const NAT: &str = "NAT";

/// Checks, prints, and fails if something is missing.
pub(crate) fn run(session: Session<'_>, host: Option<&str>) -> Result<(), CliError> {
    let mut report = DoctorReport { checks: local_checks() };
    let peer = host.map(resolve_host).transpose()?;
    match session.ask(&Request::Doctor { peer }) {
        Ok(Response::Doctor(found)) => {
            report.checks.push(Check::ok("daemon", format!("answers on {}", session.control.display())));
            report.checks.retain(|ours| found.checks.iter().all(|theirs| theirs.name != ours.name));
            report.checks.extend(found.checks);
            if let Some(peer) = peer {
                // The daemon's observations count for more than the kind of the addresses.
                let is_known = report.checks.iter().any(|check| check.name == NAT);
                report.checks.extend(nat(peer).filter(|_| !is_known));
                report.checks.extend(way_to(session, peer));
            }
        }
        Ok(other) => return Err(unexpected(&other)),
        Err(CliError::NoDaemon(text)) if host.is_some() => return Err(CliError::NoDaemon(text)),
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

/// Checks the route to a peer, with the UDP port that this host uses: both ends have the same.
fn way_to(session: Session<'_>, peer: IpAddr) -> Vec<Check> {
    let told = session.ask(&Request::Get { name: "udp_port".into() });
    let port = match told {
        Ok(Response::Settings(report)) => report.settings.first().and_then(|row| row.value.parse().ok()),
        _ => None,
    };
    let port = port.unwrap_or(Settings::default().udp_port);
    probe::checks(peer, port, ANY_SCTP_PORT)
}

/// Checks for a NAT by the addresses at both ends; none if this host has no route to the peer.
fn nat(peer: IpAddr) -> Option<Check> {
    let any: IpAddr = if peer.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Sends nothing: the kernel picks the route, and with it the address.
    socket.connect((peer, ANY_SCTP_PORT)).ok()?;
    Some(nat_between(socket.local_addr().ok()?.ip(), peer))
}

fn nat_between(ours: IpAddr, peer: IpAddr) -> Check {
    if !is_private(ours) || is_private(peer) {
        return Check::ok(NAT, format!("no sign of one between {ours} and {peer}"));
    }
    let found = format!("{ours} of this host is private and {peer} is not: a NAT is on the path");
    let remedy = "nothing for outgoing connections, which use UDP; for incoming ones, forward UDP 9899 (docs/networks.md)";
    Check::bad(NAT, Level::Warning, found, remedy)
}

/// Reports whether the address is valid only within its own network: RFC 1918, 6598, 3927, 4193, 4291.
fn is_private(address: IpAddr) -> bool {
    const SHARED: (u32, u32) = (0x6440_0000, 0xffc0_0000);
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local() || u32::from(v4) & SHARED.1 == SHARED.0,
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
    }
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

    #[test]
    fn a_private_address_here_and_a_public_one_there_need_a_nat() {
        let level = |ours: &str, peer: &str| nat_between(ours.parse().unwrap(), peer.parse().unwrap()).level;
        for ours in ["10.1.2.3", "172.31.0.1", "192.168.0.1", "100.127.255.1", "169.254.1.1"] {
            assert_eq!(level(ours, "203.0.113.7"), Level::Warning, "{ours}");
            assert_eq!(level(ours, "10.9.9.9"), Level::Ok, "{ours}");
        }
        assert_eq!(level("100.128.0.1", "203.0.113.7"), Level::Ok);
        assert_eq!(level("fd00::1", "2001:db8::1"), Level::Warning);
    }
}
