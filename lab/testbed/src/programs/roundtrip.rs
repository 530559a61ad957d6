//! Roundtrip programs: a static Go server and client, and a Python asyncio client. The header of
//! `programs/go/roundtrip.go` describes the programs.

use crate::host::Host;
use crate::process::{Finished, Process};
use anyhow::{Context, Result, bail, ensure};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PYTHON_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/python/roundtrip.py");
/// Limit on the time until the server listens.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Builds `programs/go/<name>.go` into `dir` without cgo, and returns the program's path. Go's build cache speeds up
/// later builds.
///
/// # Errors
/// When Go is missing, or the build fails.
pub fn build_go(name: &str, dir: &Path) -> Result<PathBuf> {
    let binary = dir.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/go").join(format!("{name}.go"));
    let mut command = Command::new("go");
    command.args(["build", "-o"]).arg(&binary).arg(source);
    command.envs([("CGO_ENABLED", "0"), ("GO111MODULE", "off")]);
    let output = command.output().context("cannot start go: `./x setup` installs it")?;
    if !output.status.success() {
        bail!("go build failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(binary)
}

/// The built Go program.
#[derive(Debug, Clone)]
pub struct Roundtrip {
    binary: PathBuf,
}

impl Roundtrip {
    /// Builds the Go program into `dir`.
    ///
    /// # Errors
    /// When Go is missing, the build fails, or the result is not static.
    pub fn build(dir: &Path) -> Result<Self> {
        let binary = build_go("roundtrip", dir)?;
        let loader = Command::new("ldd").arg(&binary).output().context("cannot start ldd")?;
        ensure!(
            !loader.status.success(),
            "the Go program is not static: {}",
            String::from_utf8_lossy(&loader.stdout)
        );
        Ok(Self { binary })
    }

    /// Starts the server on a port of all addresses.
    ///
    /// # Errors
    /// When the server does not listen within 10 s.
    pub fn serve(&self, host: &Host, port: u16) -> Result<Process> {
        let mut command = host.command(&self.binary);
        command.args(["serve", &format!(":{port}")]);
        let mut process = host.spawn("roundtrip-server", command)?;
        process.wait_until("listening", START_LIMIT, |process| process.stdout().contains("listening"))?;
        Ok(process)
    }

    /// Returns the command of the Go client, which exchanges `bytes` bytes with the server at `to`.
    pub fn go_client(&self, host: &Host, to: SocketAddr, bytes: u64) -> Command {
        let mut command = host.command(&self.binary);
        command.args(["send", &to.to_string(), &bytes.to_string()]);
        command
    }
}

/// Returns the command of the Python client, which exchanges `bytes` bytes with the server at `to`.
pub fn python_client(host: &Host, to: SocketAddr, bytes: u64) -> Command {
    let mut command = host.command("python3");
    command.args([PYTHON_SOURCE, &to.ip().to_string(), &to.port().to_string(), &bytes.to_string()]);
    command
}

/// Reports whether the server saw the client's own address and port.
pub fn saw_the_client(finished: &Finished) -> bool {
    let ends = finished
        .stdout
        .trim()
        .strip_prefix("address here ")
        .and_then(|rest| rest.split_once(", seen by the server "));
    ends.is_some_and(|(here, seen)| here == seen)
}
