//! Changes of this host's links to peers, and of the paths that data takes.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::link::title_of;

/// A change of a link to a peer, or of the path that data takes. `Display` gives a sentence for people. An event does not change after the
/// daemon has reported it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathEvent {
    /// Number of the event; the first event after the daemon's start has number 1.
    pub number: u64,
    /// Time of the event, in milliseconds since 1970.
    pub when_unix_ms: u64,
    /// The peer's address with which the association began; 0.0.0.0 if an older daemon does not report the address.
    #[serde(default = "crate::status::unspecified")]
    pub peer: IpAddr,
    /// Number of this peer's events that a rate limit suppressed before this event. Moves of data and changes of links have separate limits
    /// and numbers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// The change.
    #[serde(flatten)]
    pub change: PathChange,
    /// The cause of the change.
    #[serde(flatten)]
    pub reason: PathReason,
    /// Number of this host's links over which the peer can be reached now.
    pub links_up: u64,
    /// Number of this host's links to the peer that have been confirmed since the peer's oldest association began, including failed links.
    pub links: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A change of a link or path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PathChange {
    /// Data takes another path.
    Switched {
        /// The path that was left.
        from: PathEnds,
        /// The path that is used now.
        to: PathEnds,
    },
    /// A link failed: for at least one association with the peer, none of the link's confirmed paths works now.
    Down {
        /// A path of the link.
        path: PathEnds,
    },
    /// A link works again after a failure, or a new link works after all other links have failed.
    Up {
        /// A path of the link.
        path: PathEnds,
    },
}

/// A path, identified by its ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathEnds {
    /// Interface of the path on this host; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The operator's name for the link, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address of this host; `None` if the kernel chooses it.
    pub local: Option<IpAddr>,
    /// The peer's address.
    pub remote: IpAddr,
}

/// The cause of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum PathReason {
    /// The peer answers on the path.
    Answer,
    /// Data or a heartbeat was not answered within the retransmission timeout.
    Timeout,
    /// The path was silent while the peer answered on another one.
    Silence,
    /// The path lost too much of its data.
    Loss {
        /// Share of lost packets, in percent.
        percent: u64,
    },
    /// The path became slow.
    Delay {
        /// Time that the path would need to deliver its data in flight, in milliseconds.
        delay_ms: u64,
    },
    /// ICMP or this host's firewall reported that the peer cannot be reached over the path.
    Unreachable,
    /// This host could not send over the path.
    NoRoute,
    /// The link of this host's address went down.
    LinkDown,
    /// One of the path's addresses was removed from the association.
    AddressRemoved,
    /// The primary path works again, and has worked for long enough.
    PrimaryReturned,
    /// The policy of the path's link prefers the path, and the path works.
    Preferred,
    /// Another path became the primary path.
    PrimaryChosen,
}

/// Number of changes of one kind and reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathChangeCount {
    /// Name of the kind in JSON, as in [`PathChange`].
    pub event: String,
    /// Name of the reason in JSON, as in [`PathReason`].
    pub reason: String,
    /// Number of changes, summed over all associations.
    pub count: u64,
}

impl PathChange {
    /// Returns the name of the kind in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            PathChange::Switched { .. } => "switched",
            PathChange::Down { .. } => "down",
            PathChange::Up { .. } => "up",
        }
    }
}

impl PathReason {
    /// Names of all reasons in JSON.
    pub const NAMES: [&'static str; 12] = [
        "answer",
        "timeout",
        "silence",
        "loss",
        "delay",
        "unreachable",
        "no_route",
        "link_down",
        "address_removed",
        "primary_returned",
        "preferred",
        "primary_chosen",
    ];

    /// Returns the name of the reason in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            PathReason::Answer => "answer",
            PathReason::Timeout => "timeout",
            PathReason::Silence => "silence",
            PathReason::Loss { .. } => "loss",
            PathReason::Delay { .. } => "delay",
            PathReason::Unreachable => "unreachable",
            PathReason::NoRoute => "no_route",
            PathReason::LinkDown => "link_down",
            PathReason::AddressRemoved => "address_removed",
            PathReason::PrimaryReturned => "primary_returned",
            PathReason::Preferred => "preferred",
            PathReason::PrimaryChosen => "primary_chosen",
        }
    }
}

impl fmt::Display for PathEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathEvent { reason, links_up, links, .. } = self;
        match &self.change {
            PathChange::Switched { from, to } => write!(f, "data left {from} for {to}: {reason}")?,
            PathChange::Down { path } => {
                write!(f, "{path} failed: {reason}; {links_up} of {links} links work")?
            }
            PathChange::Up { path } => write!(f, "{path} works again; {links_up} of {links} links work")?,
        }
        match self.left_out {
            0 => Ok(()),
            several => write!(f, " ({several} changes before are left out)"),
        }
    }
}

impl fmt::Display for PathEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(title) = title_of(self.interface.as_deref(), self.name.as_deref()) {
            write!(f, "{title} ")?;
        }
        match self.local {
            Some(local) => write!(f, "{local} → {}", self.remote),
            None => write!(f, "→ {}", self.remote),
        }
    }
}

impl fmt::Display for PathReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathReason::Answer => "the peer answers",
            PathReason::Timeout => "no answer in time",
            PathReason::Silence => "silent while the peer answered elsewhere",
            PathReason::Loss { percent } => return write!(f, "{percent} % lost"),
            PathReason::Delay { delay_ms } => return write!(f, "{delay_ms} ms late"),
            PathReason::Unreachable => "unreachable, by ICMP or a firewall",
            PathReason::NoRoute => "this host cannot send by it",
            PathReason::LinkDown => "link down",
            PathReason::AddressRemoved => "address removed",
            PathReason::PrimaryReturned => "the primary path works again",
            PathReason::Preferred => "preferred by its link's policy",
            PathReason::PrimaryChosen => "chosen as primary path",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_reasons_and_events_match_json() {
        let path = PathEnds { interface: None, name: None, local: None, remote: [10, 0, 0, 1].into() };
        let reasons = [
            PathReason::Answer,
            PathReason::Timeout,
            PathReason::Silence,
            PathReason::Loss { percent: 1 },
            PathReason::Delay { delay_ms: 1 },
            PathReason::Unreachable,
            PathReason::NoRoute,
            PathReason::LinkDown,
            PathReason::AddressRemoved,
            PathReason::PrimaryReturned,
            PathReason::Preferred,
            PathReason::PrimaryChosen,
        ];
        for reason in reasons {
            assert_eq!(serde_json::to_value(reason).unwrap()["reason"], reason.name());
        }
        assert_eq!(reasons.map(|reason| reason.name()), PathReason::NAMES);
        let changes = [
            PathChange::Switched { from: path.clone(), to: path.clone() },
            PathChange::Down { path: path.clone() },
            PathChange::Up { path },
        ];
        for change in changes {
            assert_eq!(serde_json::to_value(&change).unwrap()["event"], change.name());
        }
    }

    #[test]
    fn the_text_of_an_event_names_links_cause_and_working_links() {
        let ends = |interface: &str, net: u8| PathEnds {
            interface: Some(interface.to_owned()),
            name: (net == 1).then(|| "fibre".to_owned()),
            local: Some([10, 0, net, 1].into()),
            remote: [10, 0, net, 2].into(),
        };
        let mut event = PathEvent {
            number: 1,
            when_unix_ms: 0,
            peer: [10, 0, 1, 2].into(),
            left_out: 0,
            change: PathChange::Down { path: ends("eth1", 1) },
            reason: PathReason::Loss { percent: 7 },
            links_up: 1,
            links: 2,
        };
        assert_eq!(event.to_string(), "eth1 (fibre) 10.0.1.1 → 10.0.1.2 failed: 7 % lost; 1 of 2 links work");
        event.change = PathChange::Switched { from: ends("eth1", 1), to: ends("eth2", 2) };
        event.left_out = 3;
        assert_eq!(
            event.to_string(),
            "data left eth1 (fibre) 10.0.1.1 → 10.0.1.2 for eth2 10.0.2.1 → 10.0.2.2: 7 % lost (3 changes before are left out)"
        );
    }
}
