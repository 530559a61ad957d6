//! The programs to package: builds them, or takes them from a directory.
//!
//! The programs use the glibc of their host, or are static programs with musl. A static glibc would load the host's modules for users and
//! names, and crash if these belong to another version.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::sbom::{self, Licences};
use super::target::{Target, newest_glibc};
use super::tree;
use crate::tools::{cargo, has, output, root, succeeds};

/// Packages with the programs.
pub(super) const PACKAGES: [&str; 5] = ["sctpifyd", "cli", "linkemu", "router", "sipproxy"];
/// Package with the library for preloading.
pub(super) const LIBRARY_PACKAGE: &str = "libsctpify";
/// Library that `sctpify run --sctp` preloads.
pub(super) const LIBRARY: &str = "libsctpify.so";
/// Licence of this project.
pub(super) const LICENCE: &str = "MIT OR Apache-2.0";
/// Place of the requirements of builds for other hosts.
const HELP: &str = "see \"Packages for other hosts\" in docs/quick-start.md";
/// Newest minor version of glibc 2 that the programs of a release may need. RHEL 9, Ubuntu 22.04 and Debian 12 have 34 or more.
const GLIBC_MAX: u32 = 34;

/// The programs and the library.
pub(super) struct Build {
    directory: PathBuf,
    target: Target,
    version: String,
    epoch: String,
    /// Licences of the crates in the programs; empty if they are not known.
    crates: Licences,
}

impl Build {
    /// Takes the programs and the library from a directory.
    ///
    /// # Errors
    /// If a program does not run, or git does not report the time of the commit.
    pub(super) fn of(directory: &Path) -> Result<Build> {
        // The repository may belong to another user than the one who builds.
        let time = ["-c", "safe.directory=*", "log", "-1", "--format=%ct"];
        let target = Target::of(&directory.join("sctpify"))?;
        Ok(Build {
            crates: Licences::default(),
            directory: directory.to_owned(),
            target,
            // Both package managers sort 0.2.0~rc.1 before 0.2.0.
            version: version_of(target.command(&directory.join("sctpify"))?)?.replace('-', "~"),
            epoch: output(Command::new("git").args(time).current_dir(root()))?.trim().to_owned(),
        })
    }

    /// Builds optimised programs for this host.
    ///
    /// # Errors
    /// If a program does not build.
    pub(super) fn here() -> Result<Build> {
        ensure!(
            succeeds(cargo(&optimised("build")).args(["--package", LIBRARY_PACKAGE]))?,
            "the programs do not build"
        );
        Build::of(&target_dir().join("release"))
    }

    /// Builds optimised programs that do not depend on the directory of the sources, so two builds of one commit are equal. For static
    /// programs there is no library for preloading.
    ///
    /// # Errors
    /// If a program does not build, or needs a newer C library than other distributions have.
    pub(super) fn release(target: Target) -> Result<Build> {
        let (triple, directory) = (target.triple(), target_dir().join("release-build"));
        let mut flags = remapped(&directory)?;
        let c_flags = flags.join(" ").replace("--remap-path-prefix", "-ffile-prefix-map");
        let mut command = cargo(&optimised(if target.is_static() { "zigbuild" } else { "build" }));
        if target.is_static() {
            ensure!(
                has("cargo-zigbuild"),
                "cargo-zigbuild, which builds static programs, is missing: {HELP}"
            );
            // The C library is zig's, not the one that comes with Rust.
            flags.push("-Clink-self-contained=no".into());
        } else {
            command.args(["--package", LIBRARY_PACKAGE]);
        }
        command.args(["--target", &triple, "--target-dir"]).arg(&directory);
        command.env("CFLAGS", c_flags).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        let linker = format!("CARGO_TARGET_{}_LINKER", triple.replace('-', "_").to_uppercase());
        if let Some(name) = target.linker().filter(|_| std::env::var_os(&linker).is_none()) {
            command.env(linker, name);
        }
        ensure!(succeeds(&mut command)?, "the programs do not build for {triple}: {HELP}");
        let mut build = Build::of(&directory.join(&triple).join("release"))?;
        ensure!(
            build.target == target,
            "cargo built programs for {} instead of {triple}",
            build.target.triple()
        );
        for name in tree::programs().chain(build.library().is_some().then_some(LIBRARY)) {
            let needed = newest_glibc(&build.program(name))?.unwrap_or_default();
            ensure!(needed <= GLIBC_MAX, "{name} needs glibc 2.{needed}, newer than 2.{GLIBC_MAX}");
        }
        build.crates = sbom::licences()?;
        Ok(build)
    }

    /// Returns the path of a program.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the path of the library for preloading; `None` for static programs, which have none.
    pub(super) fn library(&self) -> Option<PathBuf> {
        (!self.target.is_static()).then(|| self.directory.join(LIBRARY))
    }

    /// Returns the version that the programs report. Each package has the same version.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the kind of host that the programs are for.
    pub(super) fn target(&self) -> Target {
        self.target
    }

    /// Returns the texts of the licences of the crates in the programs, if the crates are known.
    pub(super) fn notices(&self) -> Option<&str> {
        Some(&*self.crates.texts).filter(|texts| !texts.is_empty())
    }

    /// Returns the licence of the programs with all their crates, as an SPDX expression.
    pub(super) fn licence(&self) -> &str {
        if self.crates.expression.is_empty() { LICENCE } else { &self.crates.expression }
    }

    /// Returns the time of the commit, in seconds since 1970, as in SOURCE_DATE_EPOCH. It is the time of all packaged files.
    pub(super) fn epoch(&self) -> &str {
        &self.epoch
    }
}

/// Returns the directory of cargo's output.
pub(super) fn target_dir() -> PathBuf {
    let dir = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    std::path::absolute(&dir).unwrap_or(dir)
}

/// Returns cargo's arguments that build the programs with the subcommand `build`.
fn optimised(build: &'static str) -> Vec<&'static str> {
    let mut words = vec![build, "--release", "--quiet", "--locked"];
    PACKAGES.iter().for_each(|package| words.extend(["--package", package]));
    words
}

/// Returns the compiler's flags that replace the paths of this host by paths that are the same on every host.
fn remapped(target: &Path) -> Result<Vec<String>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let crates = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let mut replaced = vec![(root(), "/sctpify")];
    // The name of this directory depends on the address of the registry.
    let registries = std::fs::read_dir(&crates).with_context(|| crates.display().to_string())?;
    for registry in registries {
        replaced.push((registry?.path(), "/crates"));
    }
    // The last flag that matches a path counts, so the target directory may lie below the sources.
    replaced.push((target.to_owned(), "/target"));
    Ok(replaced.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect())
}

fn version_of(mut program: Command) -> Result<String> {
    let output = output(program.arg("--version"))?;
    Ok(output.split_whitespace().nth(1).context("the program reports no version")?.to_owned())
}
