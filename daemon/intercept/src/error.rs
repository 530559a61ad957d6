//! Errors of set-up and removal, with their remedies.

use std::io;

/// Reason why an interceptor could not be set up. The failed attempt leaves nothing behind.
#[derive(thiserror::Error, Debug)]
pub enum SetUpError {
    /// The process is not allowed to administer this network namespace.
    #[error("not permitted to {doing}: run as root, or with CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    NotPermitted {
        /// The refused step.
        doing: &'static str,
    },
    /// Another live process owns the table: an interceptor already runs in this network namespace.
    #[error(
        "another sctpify runs in this network namespace: nftables table `inet shim` is owned by netlink port {}",
        port_text(.owner_port)
    )]
    AlreadyRunning {
        /// The owner's netlink port, which is usually its process id.
        owner_port: Option<u32>,
    },
    /// An nftables table `inet shim` exists, and no netlink socket owns it.
    #[error("a foreign nftables table `inet shim` conflicts: remove it with `nft delete table inet shim`")]
    ForeignTable,
    /// Another program is bound to the configured NFQUEUE.
    #[error("NFQUEUE number {number} is used by another program: set another queue number")]
    QueueNumberTaken {
        /// The queue number.
        number: u16,
    },
    /// An interface of the configured name exists and is not sctpify's.
    #[error("network interface {name} exists and is not sctpify's: rename it or set another name")]
    InterfaceExists {
        /// The name.
        name: String,
    },
    /// The kernel was built without a feature that interception needs.
    #[error("this kernel lacks {feature}")]
    MissingKernelFeature {
        /// The feature, with the kernel's configuration option.
        feature: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A value of the configuration is unusable.
    #[error("configuration: {what}")]
    Config {
        /// The fault.
        what: &'static str,
    },
    /// Another step failed.
    #[error("could not {doing}")]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

fn port_text(port: &Option<u32>) -> String {
    port.map_or_else(|| "(unknown)".to_owned(), |port| port.to_string())
}

impl SetUpError {
    /// Returns the error of the step `doing`, with the variant that fits the kernel's error.
    pub(crate) fn from_io(doing: &'static str, source: io::Error) -> SetUpError {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => SetUpError::NotPermitted { doing },
            _ => SetUpError::System { doing, source },
        }
    }

    /// Returns the error of the step `doing`, which needs the kernel's `feature`. If `source` usually means a missing feature,
    /// the result is `MissingKernelFeature`. Otherwise, the result comes from `from_io`.
    pub(crate) fn needing(feature: &'static str, doing: &'static str, source: io::Error) -> SetUpError {
        match source.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::ENOENT) => {
                SetUpError::MissingKernelFeature { feature, source }
            }
            _ => SetUpError::from_io(doing, source),
        }
    }
}

/// Reason why an interceptor, or an interceptor's leftovers, could not be removed.
#[derive(thiserror::Error, Debug)]
pub enum TearDownError {
    /// A step failed. The remaining steps were tried nevertheless.
    #[error("could not {doing}: it may be left behind on this host")]
    Step {
        /// The first step that failed.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The supposed leftovers belong to a live process. Nothing was changed.
    #[error("an sctpify still runs in this network namespace (netlink port {owner_port}): stop it first")]
    StillRunning {
        /// The owner's netlink port, which is usually its process id.
        owner_port: u32,
    },
}

impl TearDownError {
    /// Returns the error of the step `doing`.
    pub(crate) fn step(doing: &'static str) -> impl FnOnce(io::Error) -> TearDownError {
        move |source| TearDownError::Step { doing, source }
    }
}
