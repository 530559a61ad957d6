//! Reports of `doctor` and `ping`: missing requirements of a host with their remedies, and tests of its links to a peer.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::link::title_of;

/// Findings, in the order in which they should be read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DoctorReport {
    /// One entry for each check.
    pub checks: Vec<Check>,
    /// Tests of this host's links to the peer; empty if no peer is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkTest>,
    /// This host's addresses for connections to the peer; empty if no peer is named. The address with which an association would begin
    /// comes first, and unused addresses of uplinks come last. The commands test these addresses, and print the results of the tests
    /// instead of the addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<OwnAddress>,
}

/// An address of this host, and its link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnAddress {
    /// The address.
    pub local: IpAddr,
    /// Interface of the address; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The operator's name for the link, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The link is down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_down: bool,
    /// Reason why connections to the peer do not use the address; `None` if they use it, or if the link is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
}

/// Test of a link: INITs from one address of this host to one address of the peer, and their answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkTest {
    /// This host's address and its link.
    #[serde(flatten)]
    pub own: OwnAddress,
    /// The peer's address.
    pub remote: IpAddr,
    /// The peer's UDP port.
    pub udp_port: u16,
    /// Number of INITs sent.
    pub sent: u64,
    /// Number of INITs that were answered in time.
    pub answered: u64,
    /// Round-trip times; `None` before the first answer.
    pub rtt: Option<RoundTrips>,
    /// Largest tested size of an IP packet that was answered, in bytes; `None` without a test or an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// The local address is private and the peer's address is not, so a NAT is on the path.
    pub nat: bool,
    /// Reason why the latest unanswered INIT got no answer, if the reason is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Round-trip times, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Latest round-trip time.
    pub last_us: u64,
    /// Shortest round-trip time.
    pub min_us: u64,
    /// Mean of all round-trip times.
    pub mean_us: u64,
    /// Longest round-trip time.
    pub max_us: u64,
}

/// The tests of links so far.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PingReport {
    /// One entry for each pair of an address of this host and an address of the peer.
    pub links: Vec<LinkTest>,
}

impl OwnAddress {
    /// Returns the name of the link for people: the interface, followed by the operator's name in parentheses if there is one. If the
    /// interface is unknown, returns the address.
    pub fn title(&self) -> String {
        title_of(self.interface.as_deref(), self.name.as_deref()).unwrap_or_else(|| self.local.to_string())
    }
}

impl LinkTest {
    /// Returns the share of INITs without an answer, in percent, rounded down. Returns 100 if nothing was answered, even if no INIT was
    /// sent.
    pub fn loss_percent(&self) -> u64 {
        let lost = self.sent.saturating_sub(self.answered);
        if self.answered == 0 { 100 } else { lost * 100 / self.sent.max(1) }
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The check found no fault.
    Ok,
    /// The subject of the check works, but not as well as it could, or not in all cases.
    Warning,
    /// The subject of the check does not work.
    Missing,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Name of the check, in a word or two.
    pub name: String,
    /// Severity of the finding.
    pub level: Level,
    /// The finding.
    pub found: String,
    /// The remedy.
    pub remedy: Option<String>,
}

impl Check {
    /// Creates a check that found no fault.
    pub fn ok(name: &str, found: impl Into<String>) -> Check {
        Check { name: name.into(), level: Level::Ok, found: found.into(), remedy: None }
    }

    /// Creates a check with a fault and its remedy.
    pub fn bad(name: &str, level: Level, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name: name.into(), level, found: found.into(), remedy: Some(remedy.into()) }
    }
}

impl DoctorReport {
    /// Returns the names of the checks at [`Level::Missing`].
    pub fn missing(&self) -> Vec<&str> {
        let missing = self.checks.iter().filter(|check| check.level == Level::Missing);
        missing.map(|check| check.name.as_str()).collect()
    }
}
