//! A compressed tar archive, for hosts without a package of their distribution. It can be unpacked to `/usr/local`, or anywhere else. It has
//! no directories, because tar would change the modes of directories that exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::build::Build;
use super::tree::{self, Layout, compress, write};
use crate::tools::succeeds;

const LAYOUT: Layout = Layout {
    programs: "bin",
    installed: "/usr/local/bin",
    zsh: "share/zsh/site-functions",
    licences: "share/doc/sctpify",
};

/// Makes the archive in the directory `out`, and returns its path. The archive has one directory, with the archive's name.
pub(super) fn make(build: &Build, out: &Path) -> Result<PathBuf> {
    let kind = if build.target().is_static() { "-static" } else { "" };
    let name = format!("sctpify-{}-linux-{}{kind}", build.version(), build.target().architecture());
    let tree = out.join(&name);
    tree::empty(&tree)?;
    tree::fill(&tree, build, &LAYOUT)?;
    let (archive, list) = (out.join(format!("{name}.tar")), out.join("files"));
    let files = tree::files(&tree)?;
    let lines: Vec<String> = files.iter().map(|file| format!("{name}/{}\n", file.display())).collect();
    write(&list, &lines.concat(), 0o644)?;
    let mut pack = Command::new("tar");
    pack.args(["--owner=0", "--group=0", "--numeric-owner", "--format=gnu", "--create", "--file"])
        .arg(&archive);
    pack.arg(format!("--mtime=@{}", build.epoch()))
        .arg("--directory")
        .arg(out)
        .arg("--files-from")
        .arg(&list);
    ensure!(succeeds(&mut pack)?, "tar failed");
    fs::remove_file(&list)?;
    compress(&archive)?;
    fs::remove_dir_all(&tree)?;
    Ok(archive.with_extension("tar.gz"))
}
