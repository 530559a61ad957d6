//! The Linux kernel's SCTP, between two guests whose kernels support it.
//!
//! Each cell starts two `linkemu` processes: one joins the first network cards of the guests, and the other
//! joins the second cards. The programs are the same as in the other series of `failover`. The kernel has
//! its default settings, and the sockets have NODELAY. The defaults of RTO.Min (1 s), Path.Max.Retrans (5)
//! and HB.interval (30 s) are the values that RFC 9260 recommends. ASCONF is off.
//!
//! No cell has a NAT. A host uses one SCTP port on all paths of an association, but a NAT changes the port
//! on its path. The peer then finds no association for the packets of this path. Two addresses and a NAT on
//! one path thus exclude each other. Begin with [`world`].

use super::Load;
use super::stage::{Stage, Victim};
use super::world::{QUEUE, RATE};
use crate::experiments::guests::{ALPHA, ALPHAS, BETA, BETAS, GuestPair, Pool, WIRES};
use anyhow::{Result, bail, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use testbed::pair::{TCP_PORT, Tools};
use testbed::process::wait_for;
use testbed::{Emulator, Host, Lab, Process};

/// Names of the links in their emulators.
const NAMES: [&str; 2] = ["first", "second"];
/// Limit on two times: until the server listens, and until the association exists.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Two guests and the links between them.
pub(super) struct World<'a> {
    guests: GuestPair<'a>,
    flow: PathBuf,
    net: Host,
    links: [Emulator; 2],
    /// The last field, because its drop removes the namespaces of the other fields.
    _lab: Lab,
}

/// Joins two guests by two links with the delay `one_way` in each direction.
///
/// # Errors
/// Fails if no guests can be booted, or if a tool fails.
pub(super) fn world<'a>(pool: &'a Pool, tools: &Tools, one_way: Duration, seed: u64) -> Result<World<'a>> {
    let guests = pool.take()?;
    let lab = Lab::new()?;
    let net = guests.net(&lab);
    let join = |number: usize| {
        let (delay, seed) = (format!("{}us", one_way.as_micros()), (seed + number as u64 + 1).to_string());
        let settings = ["--rate", RATE, "--queue", QUEUE, "--delay", &delay, "--seed", &seed];
        Emulator::between(&net, WIRES[number], NAMES[number], &settings, &tools.linkemu)
    };
    let links = [join(0)?, join(1)?];
    let flow = tools.programs.path("flow");
    let world = World { guests, flow, net, links, _lab: lab };
    world.prepare()?;
    Ok(world)
}

impl World<'_> {
    /// Undoes the effects of the previous cell's failure on the sending guest. Then makes both ends of each
    /// link resolve each other's link-layer address, as in [`super::world`].
    fn prepare(&self) -> Result<()> {
        for (number, (own, other)) in ALPHAS.into_iter().zip(BETAS).enumerate() {
            let metric = 10 * (number + 1);
            self.guests.line(
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

    /// Returns a command that runs `flow` over SCTP in a guest.
    fn flow(&self, guest: &str, limit_s: f64, words: &[String]) -> Command {
        let mut command = self.guests.program(guest, limit_s, &["withsctp"], &self.flow);
        command.args(words).arg("sctp");
        command
    }

    /// Returns the addresses of the association's peer, as the sender's kernel lists them. The list is empty
    /// if no association exists.
    fn peers(&self) -> Result<String> {
        self.guests.line(ALPHA, "tail -n +2 /proc/net/sctp/remaddr")
    }

    /// Returns the guests to the pool, unless an association remains in them.
    pub(super) fn end(self) -> Result<()> {
        let Self { guests, links, net, _lab, .. } = self;
        drop((links, net, _lab));
        guests.end()
    }
}

impl Victim for World<'_> {
    fn set_link(&self, link: usize, settings: &[&str]) -> Result<()> {
        self.links[link].set(settings)
    }

    fn senders_ip(&self, words: &[&str]) -> Result<()> {
        self.guests.line(ALPHA, &format!("ip {}", words.join(" "))).map(drop)
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
        // A busy guest starts a program slowly.
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

    /// Always succeeds, because the programs in the guests use only SCTP, and `ensure_second` has checked
    /// the association.
    fn ensure_over_sctp(&self) -> Result<()> {
        Ok(())
    }

    fn shown(&self) -> Result<Vec<Value>> {
        self.links.iter().map(Emulator::show).collect()
    }
}
