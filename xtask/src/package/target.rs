//! Kinds of hosts that the programs are built for: an architecture, and either glibc or no shared C library at all.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::tools::{has, output};

/// A kind of host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    architecture: &'static Architecture,
    is_static: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Architecture {
    name: &'static str,
    debian: &'static str,
    /// The name by `readelf --file-header`.
    machine: &'static str,
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture { name: "x86_64", debian: "amd64", machine: "X86-64" },
    Architecture { name: "aarch64", debian: "arm64", machine: "AArch64" },
];

impl Target {
    /// Returns the kind of this host.
    ///
    /// # Errors
    /// If the programs do not support this architecture.
    pub(super) fn host() -> Result<Target> {
        let name = std::env::consts::ARCH;
        let architecture = ARCHITECTURES.iter().find(|architecture| architecture.name == name);
        let architecture = architecture.with_context(|| format!("no packages for {name}"))?;
        Ok(Target { architecture, is_static: false })
    }

    /// Returns the kind that a target triple of Rust names.
    ///
    /// # Errors
    /// If the programs do not support the target.
    pub(super) fn named(triple: &str) -> Result<Target> {
        let all = ARCHITECTURES
            .iter()
            .flat_map(|architecture| [false, true].map(|is_static| Target { architecture, is_static }));
        let known: Vec<Target> = all.collect();
        let names = || known.iter().map(Target::triple).collect::<Vec<_>>().join(", ");
        known
            .iter()
            .find(|target| target.triple() == triple)
            .copied()
            .with_context(|| format!("no target `{triple}`: {}", names()))
    }

    /// Returns the kind of host that a program was built for.
    ///
    /// # Errors
    /// If the file is not a program, or the program is for another architecture.
    pub(super) fn of(program: &Path) -> Result<Target> {
        let header = readelf("--file-header", program)?;
        let is_for = |architecture: &&Architecture| header.contains(architecture.machine);
        let architecture = ARCHITECTURES.iter().find(is_for);
        let architecture = architecture
            .with_context(|| format!("{} is not a program for a known architecture", program.display()))?;
        Ok(Target { architecture, is_static: libraries(program)?.is_empty() })
    }

    /// Returns the name that rustc has for this kind.
    pub(super) fn triple(&self) -> String {
        let library = if self.is_static { "musl" } else { "gnu" };
        format!("{}-unknown-linux-{library}", self.architecture.name)
    }

    /// Returns the name of the architecture that Linux has (`uname -m`).
    pub(super) fn architecture(&self) -> &'static str {
        self.architecture.name
    }

    /// Returns the name of the architecture that dpkg has.
    pub(super) fn debian_architecture(&self) -> &'static str {
        self.architecture.debian
    }

    /// Reports whether the programs need no shared C library.
    pub(super) fn is_static(&self) -> bool {
        self.is_static
    }

    /// Returns a command that runs a program: itself, or with QEMU if it is for another architecture.
    ///
    /// # Errors
    /// If QEMU's emulator for user programs is missing.
    pub(super) fn command(&self, program: &Path) -> Result<Command> {
        if self.is_of_this_host() {
            return Ok(Command::new(program));
        }
        let name = self.architecture.name;
        let emulator = format!("qemu-{name}-static");
        ensure!(
            has(&emulator),
            "{emulator} is missing, which runs programs for {name}: install qemu-user-static"
        );
        let mut command = Command::new(emulator);
        command.args(["-L", &format!("/usr/{name}-linux-gnu")]).arg(program);
        Ok(command)
    }

    /// Returns the program that removes symbols from programs of this kind.
    pub(super) fn strip(&self) -> String {
        if self.is_of_this_host() {
            "strip".into()
        } else {
            format!("{}-linux-gnu-strip", self.architecture.name)
        }
    }

    /// Returns the linker that cargo calls for this kind, if the user names none.
    pub(super) fn linker(&self) -> Option<String> {
        let is_cross = !self.is_of_this_host() && !self.is_static;
        is_cross.then(|| format!("{}-linux-gnu-gcc", self.architecture.name))
    }

    fn is_of_this_host(&self) -> bool {
        self.architecture.name == std::env::consts::ARCH
    }
}

/// Returns the names of the shared libraries that a program needs.
pub(super) fn libraries(program: &Path) -> Result<Vec<String>> {
    let dynamic = readelf("--dynamic", program)?;
    let name =
        |line: &str| Some(line.split_once("(NEEDED)")?.1.split_once('[')?.1.split_once(']')?.0.to_owned());
    Ok(dynamic.lines().filter_map(name).collect())
}

/// Returns the newest minor version of glibc 2 whose symbols a program uses; `None` for static programs.
pub(super) fn newest_glibc(program: &Path) -> Result<Option<u32>> {
    let versions = readelf("--version-info", program)?;
    let minor = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    Ok(versions.split("GLIBC_2.").skip(1).filter_map(minor).max())
}

fn readelf(what: &str, program: &Path) -> Result<String> {
    if !program.is_file() {
        bail!("no program {}", program.display());
    }
    // Programs of all architectures, unlike objdump and ldd.
    output(Command::new("readelf").args(["--wide", what]).arg(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_the_names_of_rust_and_an_unknown_one_is_refused_with_all_names() {
        for triple in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "aarch64-unknown-linux-musl"]
        {
            assert_eq!(Target::named(triple).unwrap().triple(), triple);
        }
        let refused = Target::named("riscv64gc-unknown-linux-gnu").unwrap_err().to_string();
        assert!(refused.contains("x86_64-unknown-linux-musl, aarch64-unknown-linux-gnu"), "{refused}");
    }

    #[test]
    fn the_target_libraries_and_glibc_of_a_program_are_read_from_the_program() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(Target::of(&own).unwrap(), Target::host().unwrap());
        assert!(libraries(&own).unwrap().contains(&"libc.so.6".to_owned()));
        assert!(newest_glibc(&own).unwrap().is_some_and(|minor| minor >= 17));
        assert!(Target::of(Path::new("/etc/passwd")).is_err());
    }
}
