//! Compares the monthly traffic of links with their caps, and stores it in a file.
//!
//! A separate thread reads the kernel's counts of interfaces and writes the file, so the event loop waits for neither. The shard gets the
//! traffic of links with a cap ([`Command::Caps`]) and changes the use of a link whose cap is reached. Between two readings, a link may
//! exceed its cap by the traffic of [`READ_PAUSE`]. If SIGKILL ends the daemon, no traffic is lost: the file has the kernel's count at the time
//! of the last write. Begin with [`TrafficKeeper::keep`].

use std::collections::BTreeSet;
use std::time::Duration;

use control::{AtCap, DaemonArgs, LinkCap, load_traffic};
use netio::InterfaceBytes;
use rules::{LinkPolicy, LinkUse, Links, MonthTraffic, Reading, TrafficTable};

use crate::addresses::OURS;
use crate::archive::Archive;
use crate::clock::today;
use crate::commands::{Command, Handle};
use crate::rules_store::RulesStore;

/// Interval at which the kernel's counts are read.
const READ_PAUSE: Duration = Duration::from_secs(5);
/// Number of readings after which the file is written. It is also written when a cap is reached or a month begins.
const READINGS_PER_WRITE: u32 = 12;
/// Name of the loopback interface.
const LOOPBACK: &str = "lo";
/// The kernel's identifier of the current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The monthly traffic of links with a cap, and its file.
pub(crate) struct TrafficKeeper {
    table: TrafficTable,
    archive: Archive,
    /// Identifier of the current boot. The kernel's counts begin at zero with each boot.
    boot: String,
    /// The traffic at the last reading.
    caps: Vec<LinkCap>,
    readings_since_write: u32,
    /// Set if the last attempt to read or to write failed.
    failing: bool,
}

impl TrafficKeeper {
    /// Loads the traffic that an earlier daemon counted. Unreadable entries are left out, with a warning.
    pub(crate) fn load(args: &DaemonArgs, archive: Archive) -> TrafficKeeper {
        let (table, complaint) = load_traffic(&args.traffic_file());
        if let Some(complaint) = complaint {
            tracing::warn!("traffic of links: {complaint}; missing entries begin at zero");
        }
        let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
        TrafficKeeper {
            table,
            archive,
            boot: boot.trim().to_owned(),
            caps: Vec::new(),
            readings_since_write: 0,
            failing: false,
        }
    }

    /// Reads the counts every [`READ_PAUSE`] until the process ends. While no policy has a cap, reads nothing.
    pub(crate) fn keep(mut self, rules: &RulesStore, shard: &Handle) {
        loop {
            let links = rules.settings().links;
            let has_caps = links.iter().any(|policy| policy.cap().is_some());
            if has_caps || !self.caps.is_empty() {
                let outcome = netio::interface_bytes().map_err(|error| error.to_string());
                let outcome = outcome.and_then(|counts| self.take(&links, counts, shard));
                self.note_outcome(outcome);
            }
            std::thread::sleep(READ_PAUSE);
        }
    }

    /// Takes the counts of all interfaces, informs the shard, and writes the file if it is due.
    fn take(&mut self, links: &Links, counts: Vec<InterfaceBytes>, shard: &Handle) -> Result<(), String> {
        let caps = self.read(links, counts);
        let is_urgent = log_changes(&self.caps, &caps);
        self.readings_since_write += 1;
        if caps != self.caps {
            self.caps = caps.clone();
            shard.send(Command::Caps(caps));
        }
        if is_urgent || self.readings_since_write >= READINGS_PER_WRITE || self.failing {
            self.archive.save_traffic(&self.table).map_err(|error| error.to_string())?;
            self.readings_since_write = 0;
        }
        Ok(())
    }

    /// Adds the counts of interfaces with a cap to the table. Returns the traffic of these links. An interface that has gone keeps its
    /// traffic, because it may come back.
    fn read(&mut self, links: &Links, counts: Vec<InterfaceBytes>) -> Vec<LinkCap> {
        let is_ours = |interface: &str| OURS.iter().any(|ours| interface.starts_with(ours));
        let cap_of = |interface: &str| {
            // A pattern such as * also fits interfaces that are no links.
            let is_link = interface != LOOPBACK && !is_ours(interface);
            links.of(interface).filter(|_| is_link)?.cap()
        };
        let now = today();
        self.table.begin_months(now, cap_of);
        for count in counts {
            if let Some(cap) = cap_of(&count.ifname) {
                let of = format!("{}/{}", self.boot, count.ifindex);
                self.table.note(now, &count.ifname, &cap, Reading { bytes: count.bytes, of });
            }
        }
        let rows = self.table.iter().filter_map(|traffic| link_cap(links.of(&traffic.interface)?, traffic));
        rows.collect()
    }

    /// Logs the first of consecutive failures.
    fn note_outcome(&mut self, outcome: Result<(), String>) {
        if let Err(error) = &outcome
            && !self.failing
        {
            tracing::warn!(%error, "cannot keep the traffic of links with a cap; retrying");
        }
        self.failing = outcome.is_err();
    }
}

/// Returns the traffic of a link, if its policy has a cap.
fn link_cap(policy: &LinkPolicy, traffic: &MonthTraffic) -> Option<LinkCap> {
    let cap = policy.cap()?;
    Some(LinkCap {
        interface: traffic.interface.clone(),
        name: policy.name().map(str::to_owned),
        since: traffic.month.to_string(),
        bytes: traffic.bytes,
        cap_bytes: cap.bytes,
        at_cap: if cap.then == LinkUse::Never { AtCap::Never } else { AtCap::Backup },
        is_reached: traffic.bytes >= cap.bytes,
    })
}

/// Logs caps that have been reached since the last reading, and links that are used again. Reports whether there are such links, or new
/// links with a cap.
fn log_changes(before: &[LinkCap], now: &[LinkCap]) -> bool {
    let reached = |caps: &[LinkCap]| -> BTreeSet<String> {
        caps.iter().filter(|cap| cap.is_reached).map(|cap| cap.interface.clone()).collect()
    };
    let (old, new) = (reached(before), reached(now));
    for cap in now.iter().filter(|cap| cap.is_reached && !old.contains(&cap.interface)) {
        let (link, since, bytes) = (cap.title(), &cap.since, cap.bytes);
        tracing::warn!(%link, %since, bytes, cap_bytes = cap.cap_bytes, use_now = cap.at_cap.name(), "a link has reached its cap");
    }
    for interface in old.difference(&new) {
        tracing::info!(%interface, "a link is below its cap again, or has none");
    }
    old != new || before.len() != now.len()
}
