//! `./x release`: all files of a release, in `target/release-files`: a Debian package, an RPM package, an archive, a list of the crates in the
//! programs, and `SHA256SUMS`.
//!
//! The programs run on every Linux distribution of this architecture with glibc 2.34 or later. With `--twice`, the command makes the files a second time on this machine, from a copy of the sources in another directory, and compares. With `--bins DIR`, it builds
//! nothing, packages the programs in DIR, and makes no list of their crates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::build::{Build, target_dir};
use super::{archive, deb, rpm, sbom, tree};
use crate::Outcome;
use crate::tools::{cargo, output, root, succeeds};

const SUMS: &str = "SHA256SUMS";

/// Runs `./x release [--twice | --bins DIR]`.
pub(crate) fn run(args: &[String]) -> Result<Outcome> {
    let out = target_dir().join("release-files");
    match args {
        [] => {
            make(&Build::release()?, &out, true)?;
        }
        [flag] if flag == "--twice" => {
            is_clean()?;
            let first = make(&Build::release()?, &out, true)?;
            let (elsewhere, second) = made_elsewhere()?;
            let kept = elsewhere.display();
            ensure!(first == second, "the second build differs, and is kept in {kept}:\n{first}\n{second}");
            fs::remove_dir_all(&elsewhere)?;
            println!("release: a second build in another directory has the same files");
        }
        [flag, dir] if flag == "--bins" => {
            make(&Build::of(Path::new(dir))?, &out, false)?;
        }
        _ => bail!("usage: ./x release [--twice | --bins DIR]"),
    }
    Ok(Outcome::Good)
}

/// Makes all files. Prints their paths, and returns the checksums.
fn make(build: &Build, out: &Path, has_list: bool) -> Result<String> {
    tree::empty(out)?;
    let mut files = vec![deb::make(build, out)?, rpm::make(build, out)?, archive::make(build, out)?];
    if has_list {
        files.push(sbom::make(build, out)?);
    }
    let names = files.iter().map(|file| file.file_name().context("a file without a name"));
    let names: Vec<_> = names.collect::<Result<_>>()?;
    let sums = output(Command::new("sha256sum").args(names).current_dir(out))?;
    fs::write(out.join(SUMS), &sums)?;
    files.push(out.join(SUMS));
    files.iter().for_each(|file| println!("{}", file.display()));
    Ok(sums)
}

/// Checks that the sources are those of the commit.
fn is_clean() -> Result<()> {
    let changed = output(Command::new("git").args(["status", "--porcelain"]).current_dir(root()))?;
    ensure!(
        changed.is_empty(),
        "the sources differ from their commit, so there is nothing to compare:\n{changed}"
    );
    Ok(())
}

/// Makes the files from a copy of the commit in another directory. Returns this directory and the checksums of the files.
fn made_elsewhere() -> Result<(PathBuf, String)> {
    let dir: PathBuf = tempfile::tempdir_in(target_dir())?.keep();
    let copy = dir.join("sources");
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet"]).arg(root()).arg(&copy);
    ensure!(succeeds(&mut clone)?, "git cannot copy the sources");
    let mut again = cargo(&["run", "--quiet", "--package", "xtask", "--", "release"]);
    again.current_dir(&copy).env_remove("CARGO_TARGET_DIR");
    ensure!(succeeds(&mut again)?, "the second build failed");
    let sums = fs::read_to_string(copy.join("target/release-files").join(SUMS))?;
    Ok((dir, sums))
}
