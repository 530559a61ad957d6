//! Checks whether the running kernel has the features that the shim needs.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use control::{Check, Level};

/// Limit on the bytes that are read from the unpacked kernel configuration.
const MAX_CONFIG_BYTES: u64 = 8 << 20;
/// Oldest kernel version (major, minor) in which a socket can own nf_tables tables.
const MIN_VERSION: (u32, u32) = (5, 12);

/// A configuration option of the kernel, and the module that the option builds. `module` is `None` if the option never builds a module.
struct Part {
    option: &'static str,
    module: Option<&'static str>,
}

/// A feature that the shim needs.
struct Feature {
    name: &'static str,
    why: &'static str,
    /// Alternative lists of parts. The feature needs all parts of one list.
    alternatives: &'static [&'static [Part]],
}

const fn part(option: &'static str, module: &'static str) -> Part {
    Part { option, module: Some(module) }
}

const FEATURES: &[Feature] = &[
    Feature {
        name: "nf_tables",
        why: "diverts connections",
        alternatives: &[&[part("CONFIG_NF_TABLES", "nf_tables")]],
    },
    Feature {
        name: "NFQUEUE",
        why: "holds SYNs during the SCTP attempt",
        alternatives: &[&[part("CONFIG_NETFILTER_NETLINK_QUEUE", "nfnetlink_queue")]],
    },
    Feature {
        name: "queue target",
        why: "sends SYNs to NFQUEUE",
        alternatives: &[
            &[part("CONFIG_NFT_QUEUE", "nft_queue")],
            &[
                part("CONFIG_NFT_COMPAT", "nft_compat"),
                part("CONFIG_NETFILTER_XT_TARGET_NFQUEUE", "xt_NFQUEUE"),
            ],
        ],
    },
    Feature {
        name: "TPROXY",
        why: "accepts diverted connections with their original addresses",
        alternatives: &[&[part("CONFIG_NFT_TPROXY", "nft_tproxy")]],
    },
    Feature {
        name: "veth",
        why: "connects to the private namespace",
        alternatives: &[&[part("CONFIG_VETH", "veth")]],
    },
    Feature {
        name: "sock_diag",
        why: "finds listeners",
        alternatives: &[&[part("CONFIG_INET_DIAG", "inet_diag"), part("CONFIG_INET_TCP_DIAG", "tcp_diag")]],
    },
    Feature {
        name: "policy routing",
        why: "routes marked packets to the private namespace",
        alternatives: &[&[Part { option: "CONFIG_IP_MULTIPLE_TABLES", module: None }]],
    },
];

/// Delivery of peers' connections to local programs. Without this feature, connections of peers over SCTP are refused, and everything else
/// works.
const DELIVERY: Feature = Feature {
    name: "delivery",
    why: "delivers peers' connections through the interface of the peer's packets",
    alternatives: &[&[
        Part { option: "CONFIG_BPF_SYSCALL", module: None },
        part("CONFIG_NET_SCH_INGRESS", "sch_ingress"),
        part("CONFIG_NET_CLS_BPF", "cls_bpf"),
        part("CONFIG_NET_CLS_U32", "cls_u32"),
        part("CONFIG_NET_ACT_MIRRED", "act_mirred"),
    ]],
};

/// Availability of a part or feature, from best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Presence {
    Present,
    Loadable,
    Unknown,
    Absent,
}

/// Known facts about a kernel.
#[derive(Default)]
struct Kernel {
    release: String,
    /// Kernel configuration; empty if unknown.
    config: String,
    /// Text of `modules.builtin`, the list of built-in modules; empty if unknown.
    builtin: String,
    /// Text of `modules.dep`, the list of loadable modules; empty if unknown.
    loadable: String,
}

/// Checks the version and the features of the running kernel.
pub(crate) fn checks() -> Vec<Check> {
    let kernel = Kernel::running();
    let mut checks = vec![version(&kernel.release)];
    checks.extend(FEATURES.iter().map(|f| kernel.check(f)));
    let mut delivery = kernel.check(&DELIVERY);
    if delivery.level == Level::Missing {
        delivery.level = Level::Warning;
        delivery.found += ": peers' connections over SCTP are refused, and use plain TCP";
    }
    checks.push(delivery);
    checks
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn version(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= MIN_VERSION {
        return Check::ok("kernel", format!("Linux {release}"));
    }
    let (major, minor) = MIN_VERSION;
    let remedy =
        format!("use Linux {major}.{minor} or later (nf_tables tables that vanish with their owner)");
    Check::bad("kernel", Level::Missing, format!("Linux {release}"), remedy)
}

impl Kernel {
    fn running() -> Kernel {
        let release = read("/proc/sys/kernel/osrelease").trim().to_owned();
        let modules = format!("/lib/modules/{release}");
        Kernel {
            config: running_config(&release),
            builtin: read(&format!("{modules}/modules.builtin")),
            loadable: read(&format!("{modules}/modules.dep")),
            release,
        }
    }

    fn check(&self, feature: &Feature) -> Check {
        let of_parts =
            |parts: &[Part]| parts.iter().map(|p| self.presence(p)).max().unwrap_or(Presence::Present);
        let best = feature
            .alternatives
            .iter()
            .map(|parts| (of_parts(parts), *parts))
            .min_by_key(|(presence, _)| *presence);
        let Some((presence, needed)) = best else { return Check::ok(feature.name, "needs nothing") };
        let parts = names(needed);
        match presence {
            Presence::Present => Check::ok(feature.name, format!("present ({parts})")),
            Presence::Loadable => Check::ok(feature.name, format!("{parts}, loaded when needed")),
            Presence::Unknown => {
                let found =
                    format!("cannot determine whether this kernel has {parts}, which {}", feature.why);
                let modules: Vec<&str> = needed.iter().filter_map(|p| p.module).collect();
                let remedy = match modules.is_empty() {
                    true => format!("look for {parts}=y in the kernel's configuration"),
                    false => format!("try `modprobe -a {}` as root", modules.join(" ")),
                };
                Check::bad(feature.name, Level::Warning, found, remedy)
            }
            Presence::Absent => {
                let found = format!("this kernel lacks {parts}, which {}", feature.why);
                Check::bad(
                    feature.name,
                    Level::Missing,
                    found,
                    format!("use a kernel with {}", options(feature)),
                )
            }
        }
    }

    fn presence(&self, part: &Part) -> Presence {
        let is_builtin = self.config.lines().any(|l| l.strip_prefix(part.option) == Some("=y"));
        let file = part.module.map(|module| format!("/{module}.ko"));
        let is_in = |list: &str| file.as_ref().is_some_and(|f| list.contains(f));
        let is_loaded = part.module.is_some_and(|module| Path::new("/sys/module").join(module).exists());
        match () {
            () if is_builtin || is_loaded || is_in(&self.builtin) => Presence::Present,
            () if is_in(&self.loadable) => Presence::Loadable,
            () if self.config.is_empty() => Presence::Unknown,
            () => Presence::Absent,
        }
    }
}

fn names(parts: &[Part]) -> String {
    parts.iter().map(|p| p.module.unwrap_or(p.option)).collect::<Vec<_>>().join(" and ")
}

fn options(feature: &Feature) -> String {
    let of_parts = |parts: &&[Part]| parts.iter().map(|p| p.option).collect::<Vec<_>>().join(" and ");
    feature.alternatives.iter().map(of_parts).collect::<Vec<_>>().join(", or ")
}

/// Reads the kernel's configuration from /boot, or else from /proc/config.gz. Returns an empty text if neither exists.
fn running_config(release: &str) -> String {
    let installed = read(&format!("/boot/config-{release}"));
    if !installed.is_empty() {
        return installed;
    }
    let mut text = String::new();
    let unpack =
        Command::new("zcat").arg("/proc/config.gz").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    if let Ok(mut child) = unpack {
        if let Some(out) = child.stdout.take() {
            let _ = out.take(MAX_CONFIG_BYTES).read_to_string(&mut text);
        }
        let _ = child.wait();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_WAYS: Feature = Feature {
        name: "two ways",
        why: "is a test",
        alternatives: &[&[part("CONFIG_A", "no_a")], &[part("CONFIG_B", "no_b"), part("CONFIG_C", "no_c")]],
    };

    fn check(config: &str, loadable: &str) -> Check {
        let kernel = Kernel { config: config.into(), loadable: loadable.into(), ..Kernel::default() };
        kernel.check(&TWO_WAYS)
    }

    #[test]
    fn the_oldest_kernel_passes_and_the_one_before_does_not() {
        assert_eq!(version("5.12.0-1-amd64").level, Level::Ok);
        assert_eq!(version("5.11.22").level, Level::Missing);
        assert_eq!(version("6.1.0-rc3").level, Level::Ok);
    }

    #[test]
    fn one_complete_set_of_kernel_options_is_enough() {
        assert_eq!(check("CONFIG_A=y\n", "").found, "present (no_a)");
        let second = check("CONFIG_B=y\nCONFIG_C=m\n", "kernel/net/no_c.ko.xz: kernel/net/x.ko\n");
        assert_eq!((second.level, second.found.as_str()), (Level::Ok, "no_b and no_c, loaded when needed"));
    }

    #[test]
    fn an_incomplete_set_of_kernel_options_fails_and_the_remedy_names_all_sets() {
        let half = check("CONFIG_B=y\nCONFIG_AB=y\n", "");
        assert_eq!(half.level, Level::Missing);
        assert_eq!(half.remedy.unwrap(), "use a kernel with CONFIG_A, or CONFIG_B and CONFIG_C");
    }

    #[test]
    fn without_a_kernel_configuration_a_feature_is_a_warning() {
        let unknown = check("", "");
        assert_eq!(
            (unknown.level, unknown.remedy.unwrap().as_str()),
            (Level::Warning, "try `modprobe -a no_a` as root")
        );
    }
}
