//! A compressed tar archive, for hosts without a package of their distribution. It can be unpacked to `/usr/local`, or anywhere else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::build::Build;
use super::tree::{self, Layout, compress, copy};
use crate::tools::{root, succeeds};

const LAYOUT: Layout =
    Layout { programs: "bin", installed: "/usr/local/bin", zsh: "share/zsh/site-functions" };

/// Makes the archive in the directory `out`, and returns its path. The archive has one directory, with the archive's name.
pub(super) fn make(build: &Build, out: &Path) -> Result<PathBuf> {
    let name = format!("sctpify-{}-linux-{}", build.version(), std::env::consts::ARCH);
    let tree = out.join(&name);
    tree::empty(&tree)?;
    tree::fill(&tree, build, &LAYOUT)?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root().join(licence), &tree.join("share/doc/sctpify").join(licence), 0o644)?;
    }
    let archive = out.join(format!("{name}.tar"));
    let mut pack = Command::new("tar");
    pack.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    pack.arg(format!("--mtime=@{}", build.epoch())).arg("--create").arg("--file").arg(&archive);
    pack.arg("--directory").arg(out).arg(&name);
    ensure!(succeeds(&mut pack)?, "tar failed");
    compress(&archive)?;
    fs::remove_dir_all(&tree)?;
    Ok(archive.with_extension("tar.gz"))
}
