//! An RPM package, for Fedora, RHEL, openSUSE and others. rpmbuild makes it from `packaging/sctpify.spec`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::build::Build;
use super::tree::{self, Layout, write};
use crate::tools::{has, root, succeeds};

/// In some distributions, `/usr/sbin` is a link to `bin`.
const LAYOUT: Layout = Layout {
    programs: "bin",
    installed: "/usr/bin",
    zsh: "share/zsh/site-functions",
    licences: "share/licenses/sctpify",
};

/// Makes the package in the directory `out`, and returns its path.
pub(super) fn make(build: &Build, out: &Path) -> Result<PathBuf> {
    ensure!(has("rpmbuild"), "rpmbuild is missing: install the package rpm");
    let (tree, work) = (out.join("rpm-tree"), out.join("rpm-work"));
    tree::empty(&tree)?;
    tree::empty(&work)?;
    tree::fill(&tree.join("usr"), build, &LAYOUT)?;
    let list = work.join("files");
    write(&list, &file_list(&tree)?.concat(), 0o644)?;
    let mut pack = Command::new("rpmbuild");
    pack.args(["-bb", "--quiet", "--target", build.target().architecture()])
        .arg(root().join("packaging/sctpify.spec"));
    for (name, value) in [
        ("_topdir", work.to_string_lossy().as_ref()),
        ("_rpmdir", work.join("made").to_string_lossy().as_ref()),
        ("_build_name_fmt", "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"),
        ("_binary_payload", "w9.gzdio"),
        ("_buildhost", "localhost"),
        ("use_source_date_epoch_as_buildtime", "1"),
        ("clamp_mtime_to_source_date_epoch", "1"),
        ("sctpify_version", build.version()),
        ("sctpify_license", build.licence()),
        ("sctpify_tree", tree.to_string_lossy().as_ref()),
        ("sctpify_files", list.to_string_lossy().as_ref()),
    ] {
        pack.args(["--define", &format!("{name} {value}")]);
    }
    // rpmbuild prints the target.
    pack.env("SOURCE_DATE_EPOCH", build.epoch()).stdout(Stdio::null());
    ensure!(succeeds(&mut pack)?, "rpmbuild failed");
    let made = fs::read_dir(work.join("made"))?.next().context("rpmbuild made no package")??;
    let package = out.join(made.file_name());
    fs::rename(made.path(), &package)?;
    fs::remove_dir_all(&tree)?;
    fs::remove_dir_all(&work)?;
    Ok(package)
}

/// Returns the lines of the spec's file list. Directories below a directory of our own belong to the package.
fn file_list(tree: &Path) -> Result<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    let mut owned: BTreeSet<PathBuf> = BTreeSet::new();
    for file in tree::files(tree)? {
        let parents = file.ancestors().skip(1).map(Path::to_owned);
        owned.extend(parents.filter(|dir| dir.iter().any(|part| part == "sctpify")));
        lines.push(format!("%attr(-,root,root) \"/{}\"\n", file.display()));
    }
    lines.extend(owned.iter().map(|dir| format!("%dir %attr(0755,root,root) \"/{}\"\n", dir.display())));
    Ok(lines)
}
