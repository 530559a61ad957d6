//! The Linux kernel's SCTP, between two guests that have it (`tests/kernel-sctp`).
//!
//! Each guest has two cards. Their other ends are in one namespace of this machine, where a `linkemu` of the cell's own joins
//! the first ones and another the second ones. The programs are those of the other series. The kernel's settings are its
//! defaults, which are RFC 9260's where that has any (RTO.Min 1 s, Path.Max.Retrans 5, HB.interval 30 s; no ASCONF), but for
//! NODELAY. Guests are booted once for many cells, and not used again when an association is left in one. A NAT is not
//! done: a host with two addresses and a NAT on one of its ways has no association by native SCTP, for each of its packets must
//! have the same port. Begin with [`Pool::world`].

use super::Load;
use super::stage::{Stage, Victim};
use super::world::{QUEUE, RATE};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use testbed::pair::{TCP_PORT, Tools};
use testbed::process::wait_for;
use testbed::{Emulator, Guest, Host, Lab, Process};

/// The guests: who sends, and who receives.
const ALPHA: &str = "k1";
const BETA: &str = "k2";
/// Their addresses, by the order in which they were booted.
const ALPHAS: [&str; 2] = ["10.60.0.11", "10.60.1.11"];
const BETAS: [&str; 2] = ["10.60.0.12", "10.60.1.12"];
/// The ends of their cards in our namespace, by link.
const WIRES: [[&str; 2]; 2] = [["t1.0", "t2.0"], ["t1.1", "t2.1"]];
/// What the emulators call the links.
const NAMES: [&str; 2] = ["first", "second"];
/// How long a line in a guest may take, in seconds.
const LINE_S: &str = "20";
/// How much longer than told a program may run in a guest, in seconds: what guards its run is not in there.
const SLACK_S: f64 = 20.0;
/// How long a server may take to listen.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Guests that nobody uses at the moment.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Guest>>);

/// Two guests and the links between them.
pub(super) struct World<'a> {
    guests: Guest,
    pool: &'a Pool,
    flow: String,
    net: Host,
    links: [Emulator; 2],
    /// Last: it takes down what the others are in.
    _lab: Lab,
}

impl Pool {
    /// Two guests, joined by two links with this delay each way.
    ///
    /// # Errors
    /// Where no guests can be booted, or a tool fails.
    pub(super) fn world(&self, tools: &Tools, one_way: Duration, seed: u64) -> Result<World<'_>> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let guests = idle.map_or_else(boot, Ok)?;
        let lab = Lab::new()?;
        let net = lab.adopt("net", guests.namespace("net"));
        let join = |number: usize| {
            let (delay, seed) =
                (format!("{}us", one_way.as_micros()), (seed + number as u64 + 1).to_string());
            let settings = ["--rate", RATE, "--queue", QUEUE, "--delay", &delay, "--seed", &seed];
            Emulator::between(&net, WIRES[number], NAMES[number], &settings, &tools.linkemu)
        };
        let links = [join(0)?, join(1)?];
        let flow = Guest::path_inside(&tools.programs.path("flow")).display().to_string();
        let world = World { guests, pool: self, flow, net, links, _lab: lab };
        world.prepare()?;
        Ok(world)
    }
}

/// Boots two guests, and takes their cards out of the bridges that would join them.
fn boot() -> Result<Guest> {
    if let Some(what) = Guest::missing() {
        bail!("no guest with the kernel's SCTP can be booted here: there is no {what}");
    }
    ensure!(Path::new("/usr/bin/withsctp").exists(), "there is no withsctp: apt-get install lksctp-tools");
    let guests = Guest::up("fover")?;
    guests.boot(&["up", BETA])?;
    let net = guests.namespace("net");
    for wire in WIRES.as_flattened() {
        let words = ["-n", &net, "link", "set", wire, "nomaster"];
        let output = Command::new("ip").args(words).output().context("cannot start ip")?;
        ensure!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(guests)
}

impl World<'_> {
    /// Undoes what the last failure did to the sender, and has both ends of each link learn each other's address on the wire, as in
    /// the other worlds.
    fn prepare(&self) -> Result<()> {
        for (number, (own, other)) in ALPHAS.into_iter().zip(BETAS).enumerate() {
            let metric = 10 * (number + 1);
            self.line(
                ALPHA,
                &format!(
                    "ip addr replace {own}/24 dev eth{number} && ip link set eth{number} up && \
                     ip route replace default via {other} dev eth{number} metric {metric} && \
                     ping -q -c 1 -i 0.2 -w 5 -I eth{number} {other}"
                ),
            )?;
        }
        Ok(())
    }

    fn line(&self, guest: &str, line: &str) -> Result<String> {
        self.guests.boot(&["exec", guest, "-t", LINE_S, line])
    }

    /// A command that runs `flow` over SCTP in a guest.
    fn flow(&self, guest: &str, limit_s: f64, words: &[String]) -> Command {
        let limit = (limit_s + SLACK_S).ceil().to_string();
        let mut command = self.guests.command(&["exec", guest, "-t", &limit, "withsctp", &self.flow]);
        command.args(words).arg("sctp");
        command
    }

    /// What the sender's kernel tells of its association's addresses; nothing where there is none.
    fn peers(&self) -> Result<String> {
        self.line(ALPHA, "tail -n +2 /proc/net/sctp/remaddr")
    }

    /// Gives the guests back, unless something of this cell is left in them.
    pub(super) fn end(self) -> Result<()> {
        let Self { guests, pool, links, net, _lab, .. } = self;
        drop((links, net, _lab));
        let left =
            [ALPHA, BETA].map(|guest| guests.boot(&["exec", guest, "tail -n +2 /proc/net/sctp/assocs"]));
        if left.iter().all(|left| left.as_ref().is_ok_and(|left| left.trim().is_empty())) {
            pool.0.lock().unwrap_or_else(PoisonError::into_inner).push(guests);
        }
        left.into_iter().collect::<Result<Vec<_>>>().map(drop)
    }
}

impl Victim for World<'_> {
    fn set_link(&self, link: usize, settings: &[&str]) -> Result<()> {
        self.links[link].set(settings)
    }

    fn senders_ip(&self, words: &[&str]) -> Result<()> {
        self.line(ALPHA, &format!("ip {}", words.join(" "))).map(drop)
    }

    fn senders_end(&self, link: usize) -> Result<(String, String)> {
        Ok((format!("eth{link}"), format!("{}/24", ALPHAS[link])))
    }

    fn rebind(&self) -> Result<()> {
        bail!("native SCTP has no association with two addresses by a NAT")
    }

    fn set_nat_silent(&self, _: bool) -> Result<()> {
        self.rebind()
    }
}

impl Stage for World<'_> {
    fn receive(&self, limit_s: f64, from_s: f64) -> Result<Process> {
        let words = ["receive".to_owned(), TCP_PORT.to_string(), limit_s.to_string(), from_s.to_string()];
        let mut process = self.net.spawn("receiver", self.flow(BETA, limit_s, &words))?;
        process.wait_until("listening", START_LIMIT, |process| process.stdout().contains("listening"))?;
        Ok(process)
    }

    fn send(&self, stream_s: f64, load: Load) -> Result<Process> {
        let to = format!("{}:{TCP_PORT}", BETAS[0]);
        let words =
            ["send".to_owned(), to, stream_s.to_string(), load.size.to_string(), load.pause_us.to_string()];
        let sender = self.net.spawn("sender", self.flow(ALPHA, stream_s, &words))?;
        // A busy guest takes its time to start a program.
        ensure!(
            wait_for(START_LIMIT, || self.peers().is_ok_and(|peers| !peers.is_empty())),
            "no association in {START_LIMIT:?}"
        );
        Ok(sender)
    }

    fn ensure_second(&self) -> Result<()> {
        let peers = self.peers()?;
        ensure!(BETAS.iter().all(|address| peers.contains(address)), "not two addresses: {peers}");
        Ok(())
    }

    /// `ensure_second` saw the association: nothing else can carry the stream here.
    fn ensure_rode(&self) -> Result<()> {
        Ok(())
    }

    fn shown(&self) -> Result<Vec<Value>> {
        self.links.iter().map(Emulator::show).collect()
    }
}
