//! Checks of the published crates, as users get them: documentation, packages and public API.
//!
//! Builds offline, and never uploads. A warning of rustdoc counts as a fault. Begin with [`CRATES`].

mod api;
mod user;

use crate::tools::{cargo, root, succeeds};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(crate) use api::{faults as api_faults, run as run_api};
pub(crate) use user::packages_serve_a_user;

/// A published crate.
struct Published {
    /// Name on crates.io.
    package: &'static str,
    /// Name in code, and name of the crate's folder in `engine`.
    name: &'static str,
    /// Features with which docs.rs builds the crate's pages (`package.metadata.docs.rs`).
    features: &'static str,
}

/// The published crates. Each crate depends only on crates above it in this list.
const CRATES: [Published; 5] = [
    Published { package: "sctp-engine-base", name: "base", features: "serde" },
    Published { package: "sctp-engine-wire", name: "wire", features: "" },
    Published { package: "sctp-engine", name: "sctp", features: "serde" },
    Published { package: "sctp-engine-netio", name: "netio", features: "" },
    Published { package: "sctp-engine-tokio", name: "sctp_tokio", features: "" },
];

impl Published {
    fn folder(&self) -> PathBuf {
        root().join("engine").join(self.name)
    }
}

/// Builds the pages that docs.rs would show. Returns false if rustdoc warns, for example about a broken link.
pub(crate) fn documents() -> Result<bool> {
    let mut good = true;
    for one in &CRATES {
        let words = ["doc", "--quiet", "--no-deps", "--package", one.package, "--features", one.features];
        good &= succeeds(cargo(&words).env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(good)
}

/// Returns the directory of builds whose settings differ from the project's own. This directory is next to the project's own builds.
fn scratch() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot tell where this program lies")?;
    let target = exe.parent().and_then(Path::parent).context("this program lies nowhere")?;
    Ok(target.join("published"))
}
