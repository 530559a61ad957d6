//! `./x doctor`: lists missing prerequisites of the project's commands on this host, and the way to get each. Changes nothing.

use crate::Outcome;
use crate::tools::{has, output, root};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// A prerequisite that the host has or lacks.
struct Finding {
    what: &'static str,
    is_there: bool,
    /// False if the commands work without the prerequisite, with restrictions.
    is_needed: bool,
    /// Advice that is printed if the prerequisite is missing.
    remedy: &'static str,
}

/// Runs `./x doctor`.
pub(crate) fn run(_: &[String]) -> Result<Outcome> {
    let missing = output(Command::new(root().join("scripts/setup.sh")).arg("--list"))?;
    if missing.is_empty() {
        println!("ok       packages of scripts/packages*.txt");
    } else {
        println!("missing  packages; install them with `./x setup`:\n{}", missing.trim_end());
    }
    let findings = findings();
    for finding in &findings {
        match finding.is_there {
            true => println!("ok       {}", finding.what),
            false if finding.is_needed => {
                println!("missing  {}\n           {}", finding.what, finding.remedy)
            }
            false => println!("without  {}\n           {}", finding.what, finding.remedy),
        }
    }
    let good = missing.is_empty() && findings.iter().all(|finding| finding.is_there || !finding.is_needed);
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

fn findings() -> Vec<Finding> {
    vec![
        Finding {
            what: "root",
            is_there: testbed::is_root(),
            is_needed: true,
            remedy: "the demo, the bench and the namespace tests require it: run them with sudo",
        },
        Finding {
            what: "network namespaces",
            is_there: Path::new("/proc/self/ns/net").exists(),
            is_needed: true,
            remedy: "the kernel lacks CONFIG_NET_NS: another kernel is needed",
        },
        Finding {
            what: "NFQUEUE and nf_tables",
            is_there: kernel_has("nf_tables") && kernel_has("nfnetlink_queue"),
            is_needed: true,
            remedy: "the daemon needs both: modprobe nf_tables nfnetlink_queue, or a distribution kernel",
        },
        Finding {
            what: "no SCTP in the host kernel",
            is_there: !Path::new("/proc/net/sctp").exists(),
            is_needed: false,
            remedy: "raw protocol 132 would be answered by the kernel with ABORTs: rmmod sctp, or use UDP only",
        },
        Finding {
            what: "cargo-deny (optional)",
            is_there: has("cargo-deny"),
            is_needed: false,
            remedy: "licence checks are skipped without it: cargo install cargo-deny",
        },
    ]
}

/// Reports whether a part of netfilter is built into the kernel, loaded, or loadable as a module.
fn kernel_has(module: &str) -> bool {
    let probe = match module {
        "nf_tables" => "/proc/sys/net/netfilter",
        _ => "/proc/net/netfilter/nfnetlink_queue",
    };
    let can_load = || {
        let modinfo = Command::new("modinfo").arg(module).output();
        modinfo.is_ok_and(|output| output.status.success())
    };
    Path::new(probe).exists() || can_load()
}
