//! The files that every package has: programs, units, manual pages, completions and examples.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::build::{Build, LIBRARY};
use crate::tools::{output, root, succeeds};

/// Programs that write manual pages and completions, each with the programs that its pages and completions describe.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("sctpify", &["sctpifyd", "sctpify", "shimrules"]),
    ("linkemu", &["linkemu"]),
    ("sctpify-router", &["sctpify-router"]),
    ("sctpify-sip", &["sctpify-sip", "sctpify-ua"]),
];
/// Examples for Prometheus and Grafana, in `packaging/prometheus`.
const EXAMPLES: [&str; 3] = ["sctpify-alerts.yml", "sctpify-alerts.test.yml", "sctpify-dashboard.json"];

/// Places of the files in a package, below its prefix.
pub(super) struct Layout {
    /// Directory of the programs.
    pub(super) programs: &'static str,
    /// Absolute directory of the installed programs, for the systemd units.
    pub(super) installed: &'static str,
    /// Directory of zsh's completions.
    pub(super) zsh: &'static str,
    /// Directory of the licences of the project and of the crates in the programs.
    pub(super) licences: &'static str,
}

/// Returns the names of all programs.
pub(super) fn programs() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().flat_map(|(_, programs)| programs.iter().copied())
}

/// Creates an empty directory.
pub(super) fn empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())
}

/// Writes the files that every package has below `prefix`.
pub(super) fn fill(prefix: &Path, build: &Build, layout: &Layout) -> Result<()> {
    for name in programs() {
        install(build, &build.program(name), &prefix.join(layout.programs).join(name), 0o755)?;
    }
    if let Some(library) = build.library() {
        install(build, &library, &prefix.join("lib/sctpify").join(LIBRARY), 0o644)?;
    }
    let packaging = root().join("packaging");
    for unit in ["sctpifyd.service", "sctpify-sip.service"] {
        let text = fs::read_to_string(packaging.join(unit))?.replace("/usr/sbin", layout.installed);
        write(&prefix.join("lib/systemd/system").join(unit), &text, 0o644)?;
    }
    copy(&packaging.join("sctpify.sysusers"), &prefix.join("lib/sysusers.d/sctpify.conf"), 0o644)?;
    let documents = prefix.join("share/doc/sctpify");
    for name in ["CHANGELOG.md", "README.md"] {
        copy(&root().join(name), &documents.join(name), 0o644)?;
    }
    for name in EXAMPLES {
        copy(&packaging.join("prometheus").join(name), &documents.join("examples").join(name), 0o644)?;
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root().join(licence), &prefix.join(layout.licences).join(licence), 0o644)?;
    }
    if let Some(notices) = build.notices() {
        write(&prefix.join(layout.licences).join("THIRD-PARTY"), notices, 0o644)?;
    }
    manual_pages(prefix, build)?;
    completions(prefix, build, layout)?;
    open_directories(prefix)
}

/// Makes all directories readable, whatever the umask of this process is.
fn open_directories(dir: &Path) -> Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_directories(&entry.path())?;
        }
    }
    Ok(())
}

/// Returns the files in a tree, relative to the tree, in the order of their names.
pub(super) fn files(tree: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut dirs) = (Vec::new(), vec![tree.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => dirs.push(entry.path()),
                false => files.push(entry.path().strip_prefix(tree)?.to_owned()),
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Links `sctpify` into `bin`, because `sbin` is not in the path of ordinary users.
pub(super) fn link_for_users(prefix: &Path) -> Result<()> {
    fs::create_dir_all(prefix.join("bin"))?;
    std::os::unix::fs::symlink("../sbin/sctpify", prefix.join("bin/sctpify"))?;
    Ok(())
}

/// Copies a program or library without its symbols.
fn install(build: &Build, from: &Path, to: &Path, mode: u32) -> Result<()> {
    copy(from, to, mode)?;
    ensure!(succeeds(Command::new(build.target().strip()).arg("--strip-unneeded").arg(to))?, "strip failed");
    Ok(())
}

/// Compresses a file without a time stamp, so the same sources produce the same package.
pub(super) fn compress(file: &Path) -> Result<()> {
    ensure!(succeeds(Command::new("gzip").arg("-9nf").arg(file))?, "gzip failed");
    Ok(())
}

fn manual_pages(prefix: &Path, build: &Build) -> Result<()> {
    let pages = prefix.join("pages");
    for (writer, _) in PROGRAMS {
        let mut command = build.target().command(&build.program(writer))?;
        ensure!(succeeds(command.arg("man").arg(&pages))?, "no manual pages by {writer}");
    }
    for page in fs::read_dir(&pages)? {
        let page = page?;
        let name = page.file_name().to_string_lossy().into_owned();
        let section = name.rsplit('.').next().unwrap_or("8").to_owned();
        let to = prefix.join(format!("share/man/man{section}/{name}"));
        copy(&page.path(), &to, 0o644)?;
        compress(&to)?;
    }
    Ok(fs::remove_dir_all(&pages)?)
}

/// Writes the completions of all programs, for all shells.
fn completions(prefix: &Path, build: &Build, layout: &Layout) -> Result<()> {
    let shells = [
        ("bash", "share/bash-completion/completions", "", ""),
        ("zsh", layout.zsh, "_", ""),
        ("fish", "share/fish/vendor_completions.d", "", ".fish"),
    ];
    for (writer, programs) in PROGRAMS {
        for (program, (shell, dir, before, after)) in
            programs.iter().flat_map(|program| shells.map(|shell| (program, shell)))
        {
            let mut command = build.target().command(&build.program(writer))?;
            let text = output(command.args(["completions", shell, "--for", program]))?;
            let file = prefix.join(dir).join(format!("{before}{program}{after}"));
            write(&file, &text, 0o644)?;
        }
    }
    Ok(())
}

pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    write_bytes(to, &bytes, mode)
}

pub(super) fn write(to: &Path, text: &str, mode: u32) -> Result<()> {
    write_bytes(to, text.as_bytes(), mode)
}

fn write_bytes(to: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}
