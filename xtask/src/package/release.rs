//! `./x release`: all files of a release, in `target/release-files`: a Debian package, an RPM package, an archive, a list of the crates in the
//! programs, and `SHA256SUMS`.
//!
//! The programs run on every Linux distribution of this architecture with glibc 2.34 or later. With `--target TRIPLE`, which can be repeated,
//! the files are for other kinds of hosts. A target with musl has static programs, and only an archive. With `--twice`, the command makes
//! the files a second time on this machine, from a copy of the sources in another directory, and compares. With `--bins DIR`, it builds
//! nothing, packages the programs in DIR, and makes no list of their crates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::build::{Build, target_dir};
use super::target::Target;
use super::{archive, deb, rpm, sbom, tree};
use crate::Outcome;
use crate::tools::{cargo, output, root, succeeds};

const SUMS: &str = "SHA256SUMS";

const USAGE: &str = "usage: ./x release [--target TRIPLE]... [--twice], or ./x release --bins DIR";

/// Runs `./x release [--target TRIPLE]... [--twice]` or `./x release --bins DIR`.
pub(crate) fn run(args: &[String]) -> Result<Outcome> {
    let out = target_dir().join("release-files");
    if let [flag, dir] = args
        && flag == "--bins"
    {
        make(&[Build::of(Path::new(dir))?], &out, false)?;
        return Ok(Outcome::Good);
    }
    let (mut targets, mut is_twice, mut words) = (Vec::new(), false, args.iter());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--twice" => is_twice = true,
            "--target" => targets.push(Target::named(words.next().context(USAGE)?)?),
            _ => bail!(USAGE),
        }
    }
    if targets.is_empty() {
        targets.push(Target::host()?);
    }
    if is_twice {
        is_clean()?;
    }
    let builds: Vec<Build> = targets.iter().map(|target| Build::release(*target)).collect::<Result<_>>()?;
    let first = make(&builds, &out, true)?;
    if is_twice {
        let (elsewhere, second) = made_elsewhere(&targets)?;
        let kept = elsewhere.display();
        ensure!(first == second, "the second build differs, and is kept in {kept}:\n{first}\n{second}");
        fs::remove_dir_all(&elsewhere)?;
        println!("release: a second build in another directory has the same files");
    }
    Ok(Outcome::Good)
}

/// Makes all files. Prints their paths, and returns the checksums.
fn make(builds: &[Build], out: &Path, has_list: bool) -> Result<String> {
    tree::empty(out)?;
    let mut files = Vec::new();
    for build in builds {
        if !build.target().is_static() {
            files.extend([deb::make(build, out)?, rpm::make(build, out)?]);
        }
        files.push(archive::make(build, out)?);
    }
    if has_list {
        files.extend(builds.first().map(|build| sbom::make(build, out)).transpose()?);
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
fn made_elsewhere(targets: &[Target]) -> Result<(PathBuf, String)> {
    let dir: PathBuf = tempfile::tempdir_in(target_dir())?.keep();
    let copy = dir.join("sources");
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet"]).arg(root()).arg(&copy);
    ensure!(succeeds(&mut clone)?, "git cannot copy the sources");
    let mut again = cargo(&["run", "--quiet", "--package", "xtask", "--", "release"]);
    for target in targets {
        again.args(["--target", &target.triple()]);
    }
    again.current_dir(&copy).env_remove("CARGO_TARGET_DIR");
    ensure!(succeeds(&mut again)?, "the second build failed");
    let sums = fs::read_to_string(copy.join("target/release-files").join(SUMS))?;
    Ok((dir, sums))
}
