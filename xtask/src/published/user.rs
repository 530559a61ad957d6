//! Creates the packages as they would be uploaded, and checks a program that uses them. The program consists of the examples of
//! `sctp-engine` and `sctp-engine-tokio`. Its only other dependencies are `rand` and `tokio`.
//!
//! If the program compiles, it shows three properties:
//!
//! - Each package has all of its files.
//! - The engine re-exports the items that its API needs.
//! - Code outside of this workspace compiles against the `#[non_exhaustive]` types.
//!
//! Begin with [`packages_serve_a_user`].

use super::{CRATES, scratch};
use crate::tools::{cargo, root, succeeds};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Examples in the packages, and the module that they share. Each row has a package, and a file in the package's folder `examples`.
const SOURCES: [(&str, &str); 5] = [
    ("sctp-engine", "echo_udp.rs"),
    ("sctp-engine", "file_transfer.rs"),
    ("sctp-engine", "multihomed.rs"),
    ("sctp-engine", "udp/mod.rs"),
    ("sctp-engine-tokio", "echo.rs"),
];

/// Creates the packages, and checks the program against them. Returns false if cargo cannot create the packages or cannot compile the
/// program.
pub(crate) fn packages_serve_a_user() -> Result<bool> {
    let scratch = scratch()?;
    let target = scratch.to_string_lossy();
    // Leave out Cargo.lock: to create it, cargo would ask the registry for crates that are not published yet.
    let mut pack =
        cargo(&["package", "--quiet", "--offline", "--no-verify", "--allow-dirty", "--exclude-lockfile"]);
    pack.args(["--target-dir", &target]).args(CRATES.iter().flat_map(|one| ["--package", one.package]));
    if !succeeds(&mut pack)? {
        return Ok(false);
    }
    let dir = scratch.join("user");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
    }
    write_user(&scratch, &dir)?;
    let check = ["check", "--quiet", "--offline", "--target-dir", &target];
    succeeds(cargo(&check).current_dir(&dir))
}

/// Unpacks the packages below `dir`, and writes the program next to them.
fn write_user(scratch: &Path, dir: &Path) -> Result<()> {
    let bin = dir.join("src/bin");
    fs::create_dir_all(bin.join("udp"))?;
    let version = env!("CARGO_PKG_VERSION");
    let mut manifest = format!(
        "[package]\nname = \"user\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\nsctp-engine = \"{version}\"\n\
         sctp-engine-tokio = \"{version}\"\nrand = \"*\"\n\
         tokio = {{ version = \"1\", features = [\"io-std\", \"io-util\", \"macros\", \"rt\"] }}\n\n[patch.crates-io]\n"
    );
    for one in &CRATES {
        let name = format!("{}-{version}", one.package);
        let archive = scratch.join("package").join(format!("{name}.crate"));
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(&archive).arg("-C").arg(dir);
        ensure!(succeeds(&mut unpack)?, "cannot unpack {}", archive.display());
        writeln!(manifest, "{} = {{ path = \"{name}\" }}", one.package)?;
    }
    fs::write(dir.join("Cargo.toml"), manifest)?;
    // Use the versions of this workspace, which are all available offline.
    fs::copy(root().join("Cargo.lock"), dir.join("Cargo.lock"))?;
    for (package, source) in SOURCES {
        let example = dir.join(format!("{package}-{version}")).join("examples").join(source);
        fs::copy(example, bin.join(source)).with_context(|| format!("{package} lacks {source}"))?;
    }
    Ok(())
}
