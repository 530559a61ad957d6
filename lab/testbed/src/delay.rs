//! Links with a delay, a rate or loss. The frames of such a [`Link`] pass through a host in the middle, which
//! applies the delay, the rate or the loss.
//!
//! Not every kernel has netem, so the project's `linkemu` emulates the link. Its flags describe the link, and
//! can be changed while frames pass. Begin with [`DelayedLink::emulated`], or, if both interfaces already
//! exist, with [`Emulator::between`].

use crate::host::{Host, output_of};
use crate::lab::Lab;
use crate::link::{Link, Offloads, make_pair};
use crate::process::Process;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limit on the time for the start of `linkemu`.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Name of the link within `linkemu`.
const NAME: &str = "delay";

/// Running `linkemu` that passes frames between two interfaces of one host. The program ends when this value
/// is dropped.
#[derive(Debug)]
pub struct Emulator {
    middle: Host,
    name: &'static str,
    linkemu: PathBuf,
    _program: Process,
}

/// Link, with the program that emulates it. The program ends when this value is dropped.
#[derive(Debug)]
pub struct DelayedLink {
    /// The link, with the names and addresses that module [`link`](crate::link) describes.
    pub link: Link,
    emulator: Emulator,
}

impl Emulator {
    /// Joins two interfaces of a host. Both interfaces must be up. A frame that arrives on one interface
    /// leaves on the other. The flags in `settings` describe delay, rate and loss. `name` must be unique
    /// within the host. `linkemu` is the program's path.
    ///
    /// # Errors
    /// When the program is missing, or rejects the flags.
    pub fn between(
        middle: &Host,
        [left, right]: [&str; 2],
        name: &'static str,
        settings: &[&str],
        linkemu: &Path,
    ) -> Result<Self> {
        ensure!(linkemu.is_file(), "{} is missing: cargo build --package linkemu", linkemu.display());
        let mut command = middle.command(linkemu);
        command.arg("--dir").arg(middle.dir()?).args(["run", left, right, "--name", name]).args(settings);
        let mut program = middle.spawn("linkemu", command)?;
        program.wait_until("ready", START_LIMIT, |process| process.stdout().contains("ready"))?;
        Ok(Self { middle: middle.clone(), name, linkemu: linkemu.to_owned(), _program: program })
    }

    /// Changes settings with the flags of [`Emulator::between`]. The change applies from the next frame on.
    ///
    /// # Errors
    /// When the program has ended, or rejects the flags.
    pub fn set(&self, settings: &[&str]) -> Result<()> {
        self.ask(&[&["set", self.name], settings].concat()).map(drop)
    }

    /// Returns the output of `linkemu show --json` for the link: its settings and packet counters.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn show(&self) -> Result<Value> {
        let output = self.ask(&["show", self.name, "--json"])?;
        serde_json::from_str(&output).with_context(|| format!("linkemu show reported no JSON: {output}"))
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = self.middle.command(&self.linkemu);
        command.arg("--dir").arg(self.middle.dir()?).args(words);
        output_of(command)
    }
}

impl DelayedLink {
    /// Joins two hosts with link `number`, which delays each frame by `one_way`. `linkemu` is the program's
    /// path.
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
        let delay = format!("{}us", one_way.as_micros());
        Self::emulated(lab, left, right, number, &["--delay", &delay], linkemu)
    }

    /// Joins two hosts with link `number`, and passes flags to `linkemu` such as `["--rate", "10mbit",
    /// "--ab", "loss=3%"]`. Flags with `ab` apply from left to right, flags with `ba` from right to left.
    /// `linkemu` is the program's path.
    ///
    /// # Errors
    /// When a tool fails, or the program is missing or rejects the flags.
    pub fn emulated(
        lab: &Lab,
        left: &Host,
        right: &Host,
        number: u8,
        settings: &[&str],
        linkemu: &Path,
    ) -> Result<Self> {
        let middle = lab.host(&format!("delay{number}"))?;
        let link = gap(left, right, number, &middle)?;
        let emulator = Emulator::between(&middle, ["left", "right"], NAME, settings, linkemu)?;
        Ok(Self { link, emulator })
    }

    /// Changes settings with the flags of [`DelayedLink::emulated`]. The change applies from the next frame
    /// on.
    ///
    /// # Errors
    /// When the program has ended, or rejects the flags.
    pub fn set(&self, settings: &[&str]) -> Result<()> {
        self.emulator.set(settings)
    }

    /// Returns the output of `linkemu show --json` for the link: its settings and packet counters.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn show(&self) -> Result<Value> {
        self.emulator.show()
    }

    /// Sets a queueing discipline for frames from left to right, in the notation of tc(8), at the host in the
    /// middle. A queue at the left host would not be a realistic bottleneck. At the sending host, TCP Small
    /// Queues limits each connection to two frames, and TCP notices drops at once.
    ///
    /// # Errors
    /// When tc(8) fails.
    pub fn queue_to_right(&self, discipline: &[&str]) -> Result<()> {
        self.emulator
            .middle
            .tool("tc", &[&["qdisc", "replace", "dev", "right", "root"], discipline].concat())?;
        Ok(())
    }
}

/// Sets up link `number` of two hosts as two separate pairs of interfaces. At the host in the middle, the
/// left host's pair ends at interface `left`, and the right host's pair ends at interface `right`.
///
/// # Errors
/// When a tool fails.
pub fn gap(left: &Host, right: &Host, number: u8, middle: &Host) -> Result<Link> {
    let link = Link::planned(left, right, number);
    make_pair(left, &link.name(), middle, "left")?;
    make_pair(right, &link.name(), middle, "right")?;
    for (host, interface) in
        [(left, &*link.name()), (right, &*link.name()), (middle, "left"), (middle, "right")]
    {
        // Frames must be as on a wire: segmented, and with their checksums.
        host.tool("ethtool", &["-K", interface, "tx", "off"])?;
    }
    link.configure(Offloads::Off)?;
    for interface in ["left", "right"] {
        middle.ip(&["link", "set", interface, "up"])?;
    }
    Ok(link)
}
