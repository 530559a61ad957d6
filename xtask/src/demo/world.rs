//! The demo's world: hosts, links, servers and daemons. The world also runs programs, one at a time, while both links are captured.

use anyhow::{Context, Result};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testbed::files::{make_random, sha256};
use testbed::programs::{Nginx, Roundtrip, Sshd};
use testbed::{Capture, Daemon, Finished, Host, Lab, Link, Offloads, Process, Programs, Seen};

/// Size of the file that curl and scp transfer.
pub(crate) const FILE_BYTES: u64 = 64 << 20;
/// Port of the roundtrip server.
pub(crate) const ROUNDTRIP_PORT: u16 = 7000;
/// Port on which no program listens. A rule enables SCTP for this port.
pub(crate) const CLOSED_PORT: u16 = 7001;
/// Limit on one program's run.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// All running parts of the demo.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) alpha: Host,
    pub(crate) beta: Host,
    pub(crate) path1: Link,
    path2: Link,
    pub(crate) programs: Programs,
    pub(crate) alphas: Daemon,
    /// Beta's daemon, or `None` while it is stopped.
    pub(crate) betas: Option<Daemon>,
    pub(crate) nginx: Nginx,
    pub(crate) sshd: Sshd,
    pub(crate) roundtrip: Roundtrip,
    server: Process,
    /// File of [`FILE_BYTES`] that nginx serves.
    pub(crate) file: PathBuf,
    /// SHA-256 hash of [`World::file`].
    pub(crate) hash: String,
    captures: u32,
    lab: Lab,
}

impl World {
    /// Creates hosts, links, servers and the file, then starts both daemons with an empty configuration.
    pub(crate) fn new(programs: Programs) -> Result<Self> {
        let lab = Lab::new()?;
        let (alpha, beta) = (lab.host("alpha")?, lab.host("beta")?);
        let path1 = lab.join(&alpha, &beta, 1, Offloads::Off)?;
        let path2 = lab.join(&alpha, &beta, 2, Offloads::Off)?;
        let roundtrip = Roundtrip::build(lab.dir())?;
        let (nginx, sshd) = (Nginx::start(&beta)?, Sshd::start(&beta)?);
        let server = roundtrip.serve(&beta, ROUNDTRIP_PORT)?;
        let file = nginx.root().join("file");
        make_random(&file, FILE_BYTES)?;
        let hash = sha256(&file)?;
        println!("demo: starting sctpifyd in both");
        let alphas = Daemon::start(&alpha, &programs, "").context("sctpifyd does not run on alpha")?;
        let betas = Some(Daemon::start(&beta, &programs, "").context("sctpifyd does not run on beta")?);
        Ok(Self {
            alpha,
            beta,
            path1,
            path2,
            programs,
            alphas,
            betas,
            nginx,
            sshd,
            roundtrip,
            server,
            file,
            hash,
            captures: 0,
            lab,
        })
    }

    /// Runs one program on alpha while both links are captured. Then waits for the packets that close the program's connections, and
    /// evaluates the capture.
    pub(crate) fn observe<T>(
        &mut self,
        name: &str,
        run: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<(T, Seen)> {
        self.captures += 1;
        let name = format!("{}-{name}", self.captures);
        let capture = Capture::start(&self.alpha, &name, &[&self.path1.name(), &self.path2.name()])?;
        let result = run(self)?;
        Ok((result, capture.judge()?))
    }

    /// Runs one command on alpha to its end. The command must succeed.
    pub(crate) fn run(&self, name: &str, command: Command) -> Result<Finished> {
        self.alpha.run(name, command, LIMIT)?.good()
    }

    /// Returns beta's IPv4 address on path 1.
    pub(crate) fn beta_v4(&self) -> IpAddr {
        self.path1.right_v4().into()
    }

    /// Returns beta's IPv6 address on path 1.
    pub(crate) fn beta_v6(&self) -> IpAddr {
        self.path1.right_v6().into()
    }

    /// Returns the roundtrip server's IPv4 address on path 1.
    pub(crate) fn roundtrip_address(&self) -> SocketAddr {
        SocketAddr::new(self.beta_v4(), ROUNDTRIP_PORT)
    }

    /// Returns the name of path 2's interface.
    pub(crate) fn path2_name(&self) -> String {
        self.path2.name()
    }

    /// Reports whether a file has the hash of [`World::file`].
    pub(crate) fn is_whole(&self, copy: &Path) -> Result<bool> {
        Ok(sha256(copy)? == self.hash)
    }

    /// Returns a path in the lab's directory, which both hosts see.
    pub(crate) fn lab_file(&self, name: &str) -> PathBuf {
        self.lab.dir().join(name)
    }

    /// Shuts everything down, and returns the leftovers.
    pub(crate) fn clear_up(self) -> Vec<String> {
        let Self { alphas, betas, nginx, sshd, server, lab, .. } = self;
        for daemon in [Some(alphas), betas].into_iter().flatten() {
            daemon.stop();
        }
        nginx.stop();
        sshd.stop();
        server.stop();
        lab.clear_up()
    }
}
