//! Two guests whose Linux kernel has SCTP (`tests/kernel-sctp`), each with two cards.
//!
//! The other ends of the cards are in one namespace of this machine, where an experiment joins them as it likes. Guests are booted once
//! for many cells, and not used again when an association is left in one. Begin with [`Pool::take`].

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use testbed::{Guest, Host, Lab};

/// The guests: the sender, and the receiver.
pub(super) const ALPHA: &str = "k1";
pub(super) const BETA: &str = "k2";
/// Their addresses, in the order in which they were booted.
pub(super) const ALPHAS: [&str; 2] = ["10.60.0.11", "10.60.1.11"];
pub(super) const BETAS: [&str; 2] = ["10.60.0.12", "10.60.1.12"];
/// The ends of their cards in our namespace, by link.
pub(super) const WIRES: [[&str; 2]; 2] = [["t1.0", "t2.0"], ["t1.1", "t2.1"]];
/// Limit on a shell line in a guest, in seconds.
const LINE_S: &str = "20";
/// Extra run time of a program in a guest, in seconds: the regular limit is enforced outside the guest.
const SLACK_S: f64 = 20.0;

/// Guests that nobody uses at the moment.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Guest>>);

/// Two guests in use.
pub(super) struct GuestPair<'a> {
    guests: Guest,
    pool: &'a Pool,
}

impl Pool {
    /// Two guests, whose network cards are not connected yet.
    ///
    /// # Errors
    /// When no guests can be booted.
    pub(super) fn take(&self) -> Result<GuestPair<'_>> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(GuestPair { guests: idle.map_or_else(boot, Ok)?, pool: self })
    }
}

/// Boots two guests, and takes their cards out of the bridges that would join them.
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
    /// The namespace that has the other ends of the cards, as a host of a lab.
    pub(super) fn net(&self, lab: &Lab) -> Host {
        lab.adopt("net", self.guests.namespace("net"))
    }

    /// Runs a shell line in a guest; its standard output.
    pub(super) fn line(&self, guest: &str, line: &str) -> Result<String> {
        self.guests.boot(&["exec", guest, "-t", LINE_S, line])
    }

    /// A command that runs a program of this machine in a guest, for at most so many seconds and some more; its words follow. `before` are
    /// the words in front of it, such as `withsctp`.
    pub(super) fn program(&self, guest: &str, limit_s: f64, before: &[&str], program: &Path) -> Command {
        let limit = (limit_s + SLACK_S).ceil().to_string();
        let mut command = self.guests.command(&["exec", guest, "-t", &limit]);
        command.args(before).arg(Guest::path_inside(program));
        command
    }

    /// Gives the guests back, unless an association is left in them.
    pub(super) fn end(self) -> Result<()> {
        let left =
            [ALPHA, BETA].map(|guest| self.guests.boot(&["exec", guest, "tail -n +2 /proc/net/sctp/assocs"]));
        if left.iter().all(|left| left.as_ref().is_ok_and(|left| left.trim().is_empty())) {
            self.pool.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.guests);
        }
        left.into_iter().collect::<Result<Vec<_>>>().map(drop)
    }
}
