//! Two guests whose Linux kernels support SCTP (`tests/kernel-sctp`), each with two network cards.
//!
//! The other ends of the cards are in one namespace of this machine, where an experiment joins them. Many
//! cells use the same guests in succession. If an association remains in a guest, its pair is not used
//! again. Begin with [`Pool::take`].

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use testbed::{Guest, Host, Lab};

/// The guest that sends.
pub(super) const ALPHA: &str = "k1";
/// The guest that receives.
pub(super) const BETA: &str = "k2";
/// Addresses of the guest that sends, by link.
pub(super) const ALPHAS: [&str; 2] = ["10.60.0.11", "10.60.1.11"];
/// Addresses of the guest that receives, by link.
pub(super) const BETAS: [&str; 2] = ["10.60.0.12", "10.60.1.12"];
/// Other ends of the cards, in a namespace of this machine. For each link, the first end belongs to the
/// sender's card, and the second end to the receiver's card.
pub(super) const WIRES: [[&str; 2]; 2] = [["t1.0", "t2.0"], ["t1.1", "t2.1"]];
/// Limit on the run time of a shell line in a guest, in seconds.
const LINE_S: &str = "20";
/// Time that the guest adds to the limit of a program, in seconds. The caller outside the guest enforces the
/// limit without this time.
const SLACK_S: f64 = 20.0;

/// Pairs of guests that are booted and idle.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Guest>>);

/// Two guests in use.
pub(super) struct GuestPair<'a> {
    guests: Guest,
    pool: &'a Pool,
}

impl Pool {
    /// Returns two guests whose network cards are not connected yet. Boots guests if none are idle.
    ///
    /// # Errors
    /// Fails if no guests can be booted.
    pub(super) fn take(&self) -> Result<GuestPair<'_>> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(GuestPair { guests: idle.map_or_else(boot, Ok)?, pool: self })
    }
}

/// Boots two guests. Removes the cards' other ends from the bridges that join them by default.
fn boot() -> Result<Guest> {
    if let Some(what) = Guest::missing() {
        bail!("cannot boot a guest with the kernel's SCTP: {what} is missing");
    }
    ensure!(Path::new("/usr/bin/withsctp").exists(), "withsctp is missing: apt-get install lksctp-tools");
    let guests = Guest::up("lab")?;
    guests.boot(&["up", BETA])?;
    let net = guests.namespace("net");
    for wire in WIRES.as_flattened() {
        let words = ["-n", &net, "link", "set", wire, "nomaster"];
        let output = Command::new("ip").args(words).output().context("cannot start ip")?;
        ensure!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(guests)
}

impl GuestPair<'_> {
    /// Returns the namespace with the other ends of the cards, as a host of `lab`.
    pub(super) fn net(&self, lab: &Lab) -> Host {
        lab.adopt("net", self.guests.namespace("net"))
    }

    /// Runs a shell line in a guest, and returns its standard output.
    pub(super) fn line(&self, guest: &str, line: &str) -> Result<String> {
        self.guests.boot(&["exec", guest, "-t", LINE_S, line])
    }

    /// Returns a command that runs a program of this machine in a guest. The caller appends the program's
    /// arguments. `before` contains words in front of the program, such as `withsctp`. The guest limits the
    /// run time to `limit_s` plus [`SLACK_S`].
    pub(super) fn program(&self, guest: &str, limit_s: f64, before: &[&str], program: &Path) -> Command {
        let limit = (limit_s + SLACK_S).ceil().to_string();
        let mut command = self.guests.command(&["exec", guest, "-t", &limit]);
        command.args(before).arg(Guest::path_inside(program));
        command
    }

    /// Returns the guests to the pool, unless an association remains in them.
    pub(super) fn end(self) -> Result<()> {
        let left =
            [ALPHA, BETA].map(|guest| self.guests.boot(&["exec", guest, "tail -n +2 /proc/net/sctp/assocs"]));
        if left.iter().all(|left| left.as_ref().is_ok_and(|left| left.trim().is_empty())) {
            self.pool.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.guests);
        }
        left.into_iter().collect::<Result<Vec<_>>>().map(drop)
    }
}
