//! This host's links to each peer, with figures over all associations.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::status::{Association, Path, PathState};

/// Rank of an address for data, as the owner of the address sets it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressUse {
    /// The address carries data while it works.
    Primary,
    /// The address carries data while no primary address works.
    #[default]
    Secondary,
    /// The address carries data only while no other address works.
    Backup,
}

impl AddressUse {
    /// Returns the name of the use in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            AddressUse::Primary => "primary",
            AddressUse::Secondary => "secondary",
            AddressUse::Backup => "backup",
        }
    }
}

/// The state of a link to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// The peer can be reached over the link.
    Up,
    /// The link worked before, but does not work now.
    Down,
    /// The link is not confirmed yet.
    Unproven,
}

impl LinkState {
    /// Returns the name of the state in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            LinkState::Up => "up",
            LinkState::Down => "down",
            LinkState::Unproven => "unproven",
        }
    }
}

/// A link of this host to a peer. The byte counts include ended associations; the other figures describe the current associations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerLink {
    /// The peer's address with which the associations began.
    pub peer: IpAddr,
    /// Interface of the link; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The operator's name for the link, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Rank for data: backup if the peer's policy makes the link a backup, or else the rank by this host's policy.
    #[serde(rename = "use")]
    pub usage: AddressUse,
    /// State of the link.
    pub state: LinkState,
    /// New data uses the link.
    pub in_use: bool,
    /// Smoothed round-trip time of the link's quickest path to the peer, in microseconds; `None` before the first measurement.
    pub srtt_us: Option<u64>,
    /// Bytes of SCTP packets sent over the link since the daemon's start.
    pub sent_bytes: u64,
    /// Bytes of SCTP packets received over the link since the daemon's start.
    pub received_bytes: u64,
}

/// Bytes of SCTP packets over a link of this host, to and from all peers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkBytes {
    /// Interface of the link; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The operator's name for the link, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

/// Use of a link after its cap is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtCap {
    /// The link carries data only while no other link works.
    Backup,
    /// The link carries no SCTP.
    Never,
}

impl AtCap {
    /// Returns the name of the use in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            AtCap::Backup => "backup",
            AtCap::Never => "never",
        }
    }
}

/// The traffic of a link with a cap in the current month.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkCap {
    /// Interface of the link.
    pub interface: String,
    /// The operator's name for the link, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// First day of the month (UTC), as in 2026-12-31.
    pub since: String,
    /// Bytes that the interface has received and sent in this month, also without SCTP.
    pub bytes: u64,
    /// The cap.
    pub cap_bytes: u64,
    /// Use of the link after the cap is reached.
    pub at_cap: AtCap,
    /// The cap is reached.
    pub is_reached: bool,
}

impl LinkCap {
    /// Returns the name of the link for people, like [`PeerLink::title`].
    pub fn title(&self) -> String {
        title_of(Some(&self.interface), self.name.as_deref()).unwrap_or_default()
    }
}

/// Returns the links over which these associations reach their peers, in the order of peers and interfaces. The byte counts are sums over
/// these associations.
pub fn links_of(associations: &[Association]) -> Vec<PeerLink> {
    let mut sum = LinkSum::default();
    associations.iter().for_each(|association| sum.add(association));
    sum.into_links()
}

/// The links of the associations that were added.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkSum(BTreeMap<(IpAddr, Option<String>), PeerLink>);

impl LinkSum {
    /// Adds an association.
    pub fn add(&mut self, association: &Association) {
        for path in &association.paths {
            let new = link_of(association.peer, path);
            let known = self.0.entry((association.peer, path.interface.clone()));
            known.and_modify(|known| known.join(&new)).or_insert(new);
        }
    }

    /// Returns the links, as [`links_of`] does.
    pub fn into_links(self) -> Vec<PeerLink> {
        self.0.into_values().collect()
    }
}

fn link_of(peer: IpAddr, path: &Path) -> PeerLink {
    let is_backup = path.remote_use == AddressUse::Backup;
    PeerLink {
        peer,
        interface: path.interface.clone(),
        name: path.name.clone(),
        usage: if is_backup { AddressUse::Backup } else { path.local_use },
        state: match path.state {
            PathState::Active => LinkState::Up,
            PathState::Unconfirmed => LinkState::Unproven,
            PathState::Inactive | PathState::PotentiallyFailed => LinkState::Down,
        },
        in_use: path.in_use,
        srtt_us: path.srtt_us,
        sent_bytes: path.sent_bytes,
        received_bytes: path.received_bytes,
    }
}

impl PeerLink {
    /// Adds another path of the link. The link gets the better of its state and the path's state: up, then down, then unproven. Its use is
    /// the highest use among the paths in this state.
    fn join(&mut self, other: &PeerLink) {
        let rank = |state| match state {
            LinkState::Up => 0,
            LinkState::Down => 1,
            LinkState::Unproven => 2,
        };
        if rank(other.state) < rank(self.state) {
            (self.state, self.usage) = (other.state, other.usage);
        } else if other.state == self.state {
            self.usage = self.usage.min(other.usage);
        }
        self.in_use |= other.in_use;
        self.srtt_us = [self.srtt_us, other.srtt_us].into_iter().flatten().min();
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }

    /// Returns the name of the link for people: the interface, followed by the operator's name in parentheses if there is one.
    pub fn title(&self) -> String {
        title_of(self.interface.as_deref(), self.name.as_deref()).unwrap_or_else(|| "unknown".to_owned())
    }
}

/// Returns the interface, followed by the operator's name in parentheses if there is one; `None` for an unknown interface.
pub(crate) fn title_of(interface: Option<&str>, name: Option<&str>) -> Option<String> {
    let interface = interface?;
    Some(name.map_or_else(|| interface.to_owned(), |name| format!("{interface} ({name})")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ShimState, Via};

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn path(interface: &str, state: PathState, in_use: bool) -> Path {
        Path {
            local: None,
            remote: PEER,
            carrier: Via::Sctp,
            udp_port: None,
            state,
            primary: false,
            in_use,
            srtt_us: Some(if in_use { 20_000 } else { 50_000 }),
            rto_ms: 100,
            cwnd_bytes: 0,
            flight_bytes: 0,
            data_sent_bytes: 0,
            mtu_bytes: 1500,
            errors: 0,
            interface: Some(interface.to_owned()),
            name: None,
            local_use: AddressUse::Secondary,
            remote_use: AddressUse::Secondary,
            sent_bytes: 100,
            received_bytes: 7,
            last_switch_s: None,
        }
    }

    fn association(id: u64, paths: Vec<Path>) -> Association {
        Association {
            id,
            state: "ESTABLISHED".into(),
            peer: PEER,
            shim: ShimState::Hidden,
            local_port: 1,
            peer_port: 2,
            peer_is_sctpify: true,
            age_s: 0,
            bytes_sent: 0,
            bytes_received: 0,
            retransmissions: 0,
            queued_bytes: 0,
            peer_window_bytes: 0,
            shared_by: None,
            encryption: None,
            paths,
        }
    }

    #[test]
    fn paths_of_all_associations_are_one_link_of_a_peer_and_the_best_state_counts() {
        let backup = Path { remote_use: AddressUse::Backup, ..path("wwan0", PathState::Unconfirmed, false) };
        let failed = Path { local_use: AddressUse::Primary, ..path("eth0", PathState::Inactive, false) };
        let one = association(1, vec![failed, backup]);
        let two = association(2, vec![path("eth0", PathState::Active, true)]);
        let links = links_of(&[one, two]);
        let facts = |link: &PeerLink| (link.title(), link.usage, link.state, link.in_use, link.sent_bytes);
        assert_eq!(
            links.iter().map(facts).collect::<Vec<_>>(),
            [
                ("eth0".to_owned(), AddressUse::Secondary, LinkState::Up, true, 200),
                ("wwan0".to_owned(), AddressUse::Backup, LinkState::Unproven, false, 100),
            ]
        );
        assert_eq!((links[0].srtt_us, links[0].received_bytes), (Some(20_000), 14));
    }
}
