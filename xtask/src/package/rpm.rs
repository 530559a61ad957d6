//! An RPM package, for Fedora, RHEL, openSUSE and others. rpmbuild makes it from `packaging/sctpify.spec`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::build::Build;
use super::tree::{self, Layout, copy, write};
use crate::tools::{has, root, succeeds};

const LAYOUT: Layout = Layout { programs: "sbin", installed: "/usr/sbin", zsh: "share/zsh/site-functions" };

/// Makes the package in the directory `out`, and returns its path.
pub(super) fn make(build: &Build, out: &Path) -> Result<PathBuf> {
    ensure!(has("rpmbuild"), "rpmbuild is missing: install the package rpm");
    let (tree, work) = (out.join("rpm-tree"), out.join("rpm-work"));
    tree::empty(&tree)?;
    tree::empty(&work)?;
    tree::fill(&tree.join("usr"), build, &LAYOUT)?;
    tree::link_for_users(&tree.join("usr"))?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root().join(licence), &tree.join("usr/share/licenses/sctpify").join(licence), 0o644)?;
    }
    let list = work.join("files");
    write(&list, &files_in(&tree, &tree)?.concat(), 0o644)?;
    let mut pack = Command::new("rpmbuild");
    pack.args(["-bb", "--quiet"]).arg(root().join("packaging/sctpify.spec"));
    for (name, value) in [
        ("_topdir", work.to_string_lossy().as_ref()),
        ("_rpmdir", work.join("made").to_string_lossy().as_ref()),
        ("_build_name_fmt", "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"),
        ("_binary_payload", "w9.gzdio"),
        ("_buildhost", "localhost"),
        ("use_source_date_epoch_as_buildtime", "1"),
        ("clamp_mtime_to_source_date_epoch", "1"),
        ("sctpify_version", build.version()),
        ("sctpify_tree", tree.to_string_lossy().as_ref()),
        ("sctpify_files", list.to_string_lossy().as_ref()),
    ] {
        pack.args(["--define", &format!("{name} {value}")]);
    }
    ensure!(succeeds(pack.env("SOURCE_DATE_EPOCH", build.epoch()))?, "rpmbuild failed");
    let made = fs::read_dir(work.join("made"))?.next().context("rpmbuild made no package")??;
    let package = out.join(made.file_name());
    fs::rename(made.path(), &package)?;
    fs::remove_dir_all(&tree)?;
    fs::remove_dir_all(&work)?;
    Ok(package)
}

/// Returns the lines of the spec's file list: all files in `dir`, in the order of their names. Directories of our own belong to the package.
fn files_in(dir: &Path, tree: &Path) -> Result<Vec<String>> {
    let mut entries: Vec<_> = fs::read_dir(dir)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut lines = Vec::new();
    for entry in entries {
        let path = entry.path();
        let installed = format!("/{}", path.strip_prefix(tree)?.display());
        if entry.file_type()?.is_dir() {
            if entry.file_name() == "sctpify" {
                lines.push(format!("%dir %attr(0755,root,root) \"{installed}\"\n"));
            }
            lines.extend(files_in(&path, tree)?);
        } else {
            lines.push(format!("%attr(-,root,root) \"{installed}\"\n"));
        }
    }
    Ok(lines)
}
