//! What this host lacks for sctpify, found without a daemon; and what the daemon itself finds.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use control::{Check, DoctorReport, Level, Request, Response};

use crate::commands::resolve_host;
use crate::daemon::find_daemon;
use crate::session::{Session, unexpected};
use crate::{CliError, show};

/// The oldest kernel with nf_tables tables that belong to a socket.
const MIN_KERNEL: (u32, u32) = (5, 12);

/// A kernel feature: any one of its parts will do.
struct Feature {
    name: &'static str,
    why: &'static str,
    parts: &'static [(&'static str, &'static str)],
}

/// What the shim needs of the kernel: configuration options and the modules they make.
const FEATURES: &[Feature] = &[
    Feature { name: "nf_tables", why: "diverts connections", parts: &[("CONFIG_NF_TABLES", "nf_tables")] },
    Feature {
        name: "NFQUEUE",
        why: "holds SYNs while SCTP is tried",
        parts: &[("CONFIG_NETFILTER_NETLINK_QUEUE", "nfnetlink_queue")],
    },
    Feature {
        name: "queue target",
        why: "sends SYNs to NFQUEUE",
        parts: &[("CONFIG_NFT_QUEUE", "nft_queue"), ("CONFIG_NETFILTER_XT_TARGET_NFQUEUE", "xt_NFQUEUE")],
    },
    Feature {
        name: "TPROXY",
        why: "takes diverted connections with their own addresses",
        parts: &[("CONFIG_NFT_TPROXY", "nft_tproxy")],
    },
    Feature { name: "veth", why: "leads to the private namespace", parts: &[("CONFIG_VETH", "veth")] },
];

/// Looks, prints, and fails if something is missing.
pub(crate) fn run(session: Session<'_>, host: Option<&str>) -> Result<(), CliError> {
    let mut report = DoctorReport { checks: local_checks() };
    let peer = host.map(resolve_host).transpose()?;
    match session.ask(&Request::Doctor { peer }) {
        Ok(Response::Doctor(found)) => {
            report.checks.push(Check::ok("daemon", format!("answers on {}", session.control.display())));
            report.checks.extend(found.checks);
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
            "ask again as root, or look at its log",
        )),
    }
    let worst = report.worst();
    session.print(&Response::Doctor(report), show::answer)?;
    match worst {
        Level::Missing => Err(CliError::SomethingMissing),
        Level::Ok | Level::Warning => Ok(()),
    }
}

fn local_checks() -> Vec<Check> {
    let release = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let config = kernel_config(&release);
    let mut checks = vec![privileges(&read("/proc/self/status")), kernel(&release)];
    checks.extend(FEATURES.iter().map(|f| feature(f, &release, &config)));
    checks.push(namespaces());
    checks.push(kernel_sctp());
    checks.push(program());
    checks
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
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

fn kernel(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= MIN_KERNEL {
        return Check::ok("kernel", format!("Linux {release}"));
    }
    let (major, minor) = MIN_KERNEL;
    let remedy = format!("use Linux {major}.{minor} or later (owned nf_tables tables)");
    Check::bad("kernel", Level::Missing, format!("Linux {release}"), remedy)
}

/// How a kernel has a feature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Presence {
    Present,
    Loadable,
    Unknown,
    Absent,
}

fn feature(feature: &Feature, release: &str, config: &str) -> Check {
    let parts =
        feature.parts.iter().map(|(option, module)| (presence(option, module, release, config), *module));
    let Some((presence, module)) = parts.min_by_key(|(p, _)| *p) else {
        return Check::ok(feature.name, "needs nothing");
    };
    match presence {
        Presence::Present => Check::ok(feature.name, format!("present ({module})")),
        Presence::Loadable => Check::ok(feature.name, format!("module {module}, loaded when needed")),
        Presence::Unknown => {
            let found = format!("cannot tell whether this kernel has {module}, which {}", feature.why);
            Check::bad(feature.name, Level::Warning, found, format!("try `modprobe {module}` as root"))
        }
        Presence::Absent => {
            let options: Vec<&str> = feature.parts.iter().map(|(option, _)| *option).collect();
            let remedy = format!("use a kernel with {}", options.join(" or "));
            let found = format!("this kernel lacks {module}, which {}", feature.why);
            Check::bad(feature.name, Level::Missing, found, remedy)
        }
    }
}

fn presence(option: &str, module: &str, release: &str, config: &str) -> Presence {
    if Path::new("/sys/module").join(module).exists() || has_option(config, option, 'y') {
        return Presence::Present;
    }
    let directory = format!("/lib/modules/{release}");
    let file = format!("/{module}.ko");
    if read(&format!("{directory}/modules.builtin")).contains(&file) {
        return Presence::Present;
    }
    if read(&format!("{directory}/modules.dep")).contains(&file) {
        return Presence::Loadable;
    }
    match config {
        "" => Presence::Unknown,
        _ => Presence::Absent,
    }
}

fn has_option(config: &str, option: &str, value: char) -> bool {
    let wanted = format!("{option}={value}");
    config.lines().any(|l| l == wanted)
}

/// The kernel's configuration, from /boot or from itself; empty if neither has it.
fn kernel_config(release: &str) -> String {
    let installed = read(&format!("/boot/config-{release}"));
    if !installed.is_empty() {
        return installed;
    }
    let mut text = String::new();
    let unpack =
        Command::new("zcat").arg("/proc/config.gz").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    if let Ok(mut child) = unpack {
        if let Some(out) = child.stdout.as_mut() {
            let _ = out.take(8 << 20).read_to_string(&mut text);
        }
        let _ = child.wait();
    }
    text
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
        return Check::ok("kernel SCTP", "not loaded, so protocol 132 is ours");
    }
    let found = "loaded: it answers packets of IP protocol 132 with ABORTs";
    let remedy = "`modprobe -r sctp`, or use UDP only: `sctpify set carriers=udp`";
    Check::bad("kernel SCTP", Level::Warning, found, remedy)
}

fn program() -> Check {
    match find_daemon() {
        Ok(path) => Check::ok("sctpifyd", path.display().to_string()),
        Err(e) => Check::bad("sctpifyd", Level::Missing, e.to_string(), "install it beside sctpify"),
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
    fn the_oldest_kernel_passes_and_the_one_before_does_not() {
        assert_eq!(kernel("5.12.0-1-amd64").level, Level::Ok);
        assert_eq!(kernel("5.11.22").level, Level::Missing);
        assert_eq!(kernel("6.1.0-rc3").level, Level::Ok);
    }

    #[test]
    fn a_feature_neither_loaded_nor_configured_is_absent_and_without_configuration_unknown() {
        let look = |config: &str| presence("CONFIG_NO_SUCH", "no_such_module", "0.0.0", config);
        assert_eq!(look("CONFIG_NO_SUCH=y\n"), Presence::Present);
        assert_eq!(look("CONFIG_OTHER=y\n"), Presence::Absent);
        assert_eq!(look(""), Presence::Unknown);
    }
}
