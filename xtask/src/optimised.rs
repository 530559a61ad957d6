//! Optimised builds of the programs for the demo and the benchmarks. A user would install the same builds.

use crate::tools::{cargo, succeeds};
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use testbed::Programs;
use testbed::pair::Tools;

/// Builds `sctpifyd`, `sctpify` and `shimrules`. If SCTPIFY_BIN_DIR names a directory, uses the programs in that directory instead.
pub(crate) fn daemon_and_commands() -> Result<Programs> {
    if std::env::var_os("SCTPIFY_BIN_DIR").is_some() {
        return Programs::find();
    }
    Programs::in_dir(&built(&["sctpifyd", "cli"])?)
}

/// Builds `sctpify` and the library that gives programs SCTP sockets. If SCTPIFY_BIN_DIR is set, uses the files in that directory instead.
/// Returns the directory.
pub(crate) fn sockets() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("SCTPIFY_BIN_DIR") {
        return Ok(PathBuf::from(dir));
    }
    println!("building cli and libsctpify (the first time takes minutes)");
    let mut command =
        cargo(&["build", "--quiet", "--release", "--package", "cli", "--package", "libsctpify"]);
    ensure!(succeeds(&mut command)?, "cli and libsctpify do not build");
    directory()
}

/// Builds the link emulator, or uses the one in SCTPIFY_BIN_DIR. Returns its path.
pub(crate) fn linkemu() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("SCTPIFY_BIN_DIR") {
        return Ok(PathBuf::from(dir).join("linkemu"));
    }
    Ok(built(&["linkemu"])?.join("linkemu"))
}

/// Builds `sctpify-router`, or uses the one in SCTPIFY_BIN_DIR. Returns its path.
pub(crate) fn router() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("SCTPIFY_BIN_DIR") {
        return Ok(PathBuf::from(dir).join("sctpify-router"));
    }
    Ok(built(&["router"])?.join("sctpify-router"))
}

/// Builds `bulk`, the plain TCP program for measurements. Returns its path.
pub(crate) fn bulk() -> Result<PathBuf> {
    Ok(built(&["testbed"])?.join("bulk"))
}

/// Builds all programs that a pair of hosts needs.
pub(crate) fn tools() -> Result<Tools> {
    Ok(Tools { programs: daemon_and_commands()?, bulk: bulk()?, linkemu: linkemu()? })
}

/// Builds the SIP programs, and all programs that a pair of hosts needs.
pub(crate) fn sip_tools() -> Result<Tools> {
    if std::env::var_os("SCTPIFY_BIN_DIR").is_some() {
        return Tools::find();
    }
    built(&["sipproxy"])?;
    tools()
}

/// Builds the lab. Returns its directory.
pub(crate) fn lab() -> Result<PathBuf> {
    built(&["lab"])
}

/// Builds the lab and all measured programs. Returns their directory.
pub(crate) fn lab_and_programs() -> Result<PathBuf> {
    built(&["lab", "sctpifyd", "cli", "linkemu", "testbed", "peer", "router", "sipproxy"])
}

/// Builds `peer`, the plain SCTP program on our stack. Returns its path.
pub(crate) fn peer() -> Result<PathBuf> {
    Ok(built(&["peer"])?.join("peer"))
}

/// Builds the program that measures our engine and others. Returns its path.
pub(crate) fn rivals() -> Result<PathBuf> {
    Ok(built(&["rivals"])?.join("rivals"))
}

/// Builds the programs of some packages. Returns the programs' directory, which is next to this program's directory.
fn built(packages: &[&str]) -> Result<PathBuf> {
    println!("building {} (the first time takes minutes)", packages.join(" and "));
    let mut command = cargo(&["build", "--quiet", "--release", "--bins"]);
    packages.iter().for_each(|package| _ = command.args(["--package", package]));
    ensure!(succeeds(&mut command)?, "{} does not build", packages.join(" and "));
    directory()
}

/// Returns the directory of optimised programs.
pub(crate) fn directory() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot determine this program's path")?;
    let target = exe.parent().and_then(|dir| dir.parent()).context("this program's path has no directory")?;
    Ok(target.join("release"))
}
