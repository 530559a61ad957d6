//! A link with a delay: the frames of a [`Link`] pass through a host between its ends, which holds each back.
//!
//! The kernel's own netem is not in every kernel, so our `linkemu` does it. Constant delay, no rate, no loss.

use crate::host::Host;
use crate::lab::Lab;
use crate::link::{Link, Offloads, make_pair};
use crate::process::Process;
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Duration;

/// How long the program may take to begin.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A link and the program that delays its frames for as long as this lives.
#[derive(Debug)]
pub struct DelayedLink {
    /// The link, with the usual names and addresses.
    pub link: Link,
    middle: Host,
    _program: Process,
}

impl DelayedLink {
    /// Joins two hosts by link `number`, each frame arriving `one_way` later than without the delay. `linkemu` is the program.
    ///
    /// # Errors
    /// When a tool fails, or the program is missing.
    pub fn between(
        lab: &Lab,
        left: &Host,
        right: &Host,
        number: u8,
        one_way: Duration,
        linkemu: &Path,
    ) -> Result<Self> {
        ensure!(linkemu.is_file(), "there is no {}: cargo build --package linkemu", linkemu.display());
        let middle = lab.host(&format!("delay{number}"))?;
        let link = Link::planned(left, right, number);
        make_pair(left, &link.name(), &middle, "left")?;
        make_pair(right, &link.name(), &middle, "right")?;
        for (host, interface) in
            [(left, &*link.name()), (right, &*link.name()), (&middle, "left"), (&middle, "right")]
        {
            // A frame is taken as it would be on a wire: cut to size, its checksum filled in.
            host.tool("ethtool", &["-K", interface, "tx", "off"])?;
        }
        link.configure(Offloads::Off)?;
        for interface in ["left", "right"] {
            middle.ip(&["link", "set", interface, "up"])?;
        }
        let mut command = middle.command(linkemu);
        command.arg("--dir").arg(middle.dir()?).args(["run", "left", "right", "--name", "delay"]);
        command.args(["--delay", &format!("{}us", one_way.as_micros())]);
        let mut program = middle.spawn("linkemu", command)?;
        program.wait_until("delaying", START_LIMIT, |process| process.stdout().contains("ready"))?;
        Ok(Self { link, middle, _program: program })
    }

    /// Puts a queueing discipline, in the words of tc(8), where frames to the right leave the host between the ends. There, and
    /// not at the left end, it is a bottleneck as others know it: of what waits in a host's own queue TCP lets each
    /// connection have two frames (TCP small queues), and is told at once what is dropped there.
    ///
    /// # Errors
    /// When tc(8) fails.
    pub fn queue_to_right(&self, discipline: &[&str]) -> Result<()> {
        self.middle.tool("tc", &[&["qdisc", "replace", "dev", "right", "root"], discipline].concat())?;
        Ok(())
    }
}
