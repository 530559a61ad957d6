//! `./x deb`: a Debian package of the programs, their manual pages, completions and systemd units, in `target/deb`.
//!
//! Builds optimised programs. With `--bins DIR`, the command builds nothing, and packages the programs in DIR.
//!
//! The installed package starts no daemon, because an administrator must first decide which connections may use SCTP. The environment
//! variables DEBFULLNAME and DEBEMAIL name the maintainer.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use super::build::{Build, target_dir};
use super::target::{libraries, newest_glibc};
use super::tree::{self, Layout, compress, copy, write};
use crate::Outcome;
use crate::tools::{output, root, succeeds};

const LAYOUT: Layout = Layout {
    programs: "sbin",
    installed: "/usr/sbin",
    zsh: "share/zsh/vendor-completions",
    licences: "share/doc/sctpify",
};

/// Runs `./x deb [--bins DIR]`.
pub(crate) fn run(args: &[String]) -> Result<Outcome> {
    let build = match args {
        [] => Build::here()?,
        [flag, dir] if flag == "--bins" => Build::of(Path::new(dir))?,
        _ => bail!("usage: ./x deb [--bins DIR]"),
    };
    println!("{}", make(&build, &target_dir().join("deb"))?.display());
    Ok(Outcome::Good)
}

/// Makes the package in the directory `out`, and returns its path.
pub(super) fn make(build: &Build, out: &Path) -> Result<PathBuf> {
    let architecture = build.target().debian_architecture();
    let tree = out.join("tree");
    tree::empty(&tree)?;
    tree::fill(&tree.join("usr"), build, &LAYOUT)?;
    tree::link_for_users(&tree.join("usr"))?;
    let overrides = tree.join("usr/share/lintian/overrides/sctpify");
    copy(&root().join("packaging/lintian-overrides"), &overrides, 0o644)?;
    documents(&tree.join("usr/share/doc/sctpify"), build.version())?;
    control_files(&tree, build, architecture)?;
    let package = out.join(format!("sctpify_{}_{architecture}.deb", build.version()));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--build", "--root-owner-group"]).arg(&tree).arg(&package);
    // The program's output is not ours: the last line of our output is the path.
    pack.env("SOURCE_DATE_EPOCH", build.epoch()).stdout(std::process::Stdio::null());
    ensure!(succeeds(&mut pack)?, "dpkg-deb failed");
    fs::remove_dir_all(&tree)?;
    Ok(package)
}

/// Installs the documents that every Debian package has.
fn documents(dir: &Path, version: &str) -> Result<()> {
    let changelog = dir.join("changelog");
    let date = output(Command::new("git").args(["log", "-1", "--format=%cD"]).current_dir(root()))?;
    let text = format!(
        "sctpify ({version}) unstable; urgency=medium\n\n  * What a user notices is in CHANGELOG.md, beside this file.\n\n \
         -- {}  {date}",
        maintainer()
    );
    write(&changelog, &text, 0o644)?;
    compress(&changelog)?;
    let licence = fs::read_to_string(root().join("LICENSE-MIT"))?;
    let paragraphs =
        licence.lines().map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") });
    let licence: Vec<String> = paragraphs.collect();
    let text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: sctpify\n\nFiles: *\n\
         Copyright: {} the sctpify authors\nLicense: MIT or Apache-2.0\nComment:\n The programs contain Rust crates under these \
         and other permissive licences;\n deny.toml in the sources lists the licences, Cargo.lock the crates.\n\n\
         License: MIT\n{}\n\nLicense: Apache-2.0\n On Debian systems the text is in \
         /usr/share/common-licenses/Apache-2.0.\n",
        date.split(' ').nth(3).unwrap_or_default(),
        licence.join("\n")
    );
    write(&dir.join("copyright"), &text, 0o644)
}

/// Returns the maintainer, from the environment variables of Debian's tools.
fn maintainer() -> String {
    let variable = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!(
        "{} <{}>",
        variable("DEBFULLNAME", "the sctpify project"),
        variable("DEBEMAIL", "sctpify@localhost")
    )
}

fn control_files(tree: &Path, build: &Build, architecture: &str) -> Result<()> {
    let (version, depends) = (build.version(), depends(build)?);
    let text = format!(
        "Package: sctpify\nVersion: {version}\nArchitecture: {architecture}\nSection: net\nPriority: optional\n\
         Maintainer: {}\n{depends}\
         Description: carries TCP connections over SCTP\n Carries the TCP connections of unmodified programs \
         over SCTP between hosts\n that both run it, so that they outlive the death of a path. Gives SCTP programs\n sockets where the \
         kernel has none.\n",
        maintainer()
    );
    write(&tree.join("DEBIAN/control"), &text, 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&root().join("packaging").join(script), &tree.join("DEBIAN").join(script), 0o755)?;
    }
    Ok(())
}

/// Returns the line `Depends`. It lists the packages of the libraries that the programs need.
fn depends(build: &Build) -> Result<String> {
    let (mut packages, mut glibc) = (BTreeSet::new(), None);
    for name in tree::programs() {
        let program = build.program(name);
        glibc = glibc.max(newest_glibc(&program)?);
        for library in libraries(&program)? {
            match library.as_str() {
                "libc.so.6" | "libm.so.6" => {}
                loader if loader.starts_with("ld-linux") => {}
                "libgcc_s.so.1" => drop(packages.insert("libgcc-s1".to_owned())),
                _ => bail!("{name} needs {library}, and the package that has it is not known"),
            }
        }
    }
    packages.extend(glibc.map(|minor| format!("libc6 (>= 2.{minor})")));
    let list = Vec::from_iter(packages).join(", ");
    Ok(if list.is_empty() { list } else { format!("Depends: {list}\n") })
}
