//! Chooses the uplink of a connection to a local program. The connection arrives through this interface, on which the client's
//! own packets also arrive.
//!
//! Therefore, regardless of the carrier, the host's firewall sees the same interface, zone and addresses as if the client used
//! TCP. For a connection with a separate association, the uplink is the interface of the packet that opened the association.
//! For a channel, the uplink is the interface of the path between the connection's two addresses. If the uplink is unknown, the
//! daemon refuses the connection. The client then falls back from a separate association to plain TCP, or from a channel to a
//! separate association.
//!
//! Connections of the host to itself arrive through the shim's own interface. In an enclosed namespace, all connections arrive
//! through this interface, because the namespace has no other interface.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base::{Route, Time};
use control::{Check, Level};
use intercept::FourTuple;
use sctp::Endpoint;

use super::Interception;
use crate::addresses::AddressBook;
use crate::carriers::PacketIo;
use crate::connection::{Connection, ConnectionId, Connections};
use crate::history::{History, Line};
use crate::policy::Policy;
use crate::rules_store::RulesStore;

/// Limit on the pairs of a program and an interface in [`Unanswered`]. A new pair replaces the pair that was noted longest ago.
const UNANSWERED_MAX: usize = 32;

/// Connections that local programs did not answer. For each pair of a program's address and an interface: the number of
/// connections, and the time of the last one.
#[derive(Default)]
pub(super) struct Unanswered {
    seen: BTreeMap<(SocketAddr, Option<u32>), (u64, Time)>,
}

impl Unanswered {
    fn note(&mut self, server: SocketAddr, uplink: Option<u32>, now: Time) {
        let key = (server, uplink);
        if self.seen.len() >= UNANSWERED_MAX
            && !self.seen.contains_key(&key)
            && let Some(oldest) = self.seen.iter().min_by_key(|(_, (_, last))| *last).map(|(key, _)| *key)
        {
            self.seen.remove(&oldest);
        }
        let entry = self.seen.entry(key).or_insert((0, now));
        *entry = (entry.0 + 1, now);
    }
}

impl Interception {
    /// Returns true if the kernel cannot deliver connections from other hosts through their uplinks, and the setting
    /// `deliver_by_shim` is off.
    pub(crate) fn is_cut_off(&self, rules: &RulesStore) -> bool {
        !self.is_enclosed()
            && self.interceptor.lacks_for_uplinks().is_some()
            && !rules.settings().deliver_by_shim
    }

    /// Returns the uplink of a client whose packets arrive on this path; `None` means the shim's own interface.
    ///
    /// # Errors
    /// Returns the reason why a connection from this client cannot be delivered.
    pub(crate) fn uplink_of(
        &self,
        route: &Route,
        policy: &Policy,
        packet_io: &PacketIo,
    ) -> Result<Option<u32>, &'static str> {
        if self.is_enclosed() || policy.addresses().is_own(route.remote) {
            return Ok(None);
        }
        if self.interceptor.lacks_for_uplinks().is_some() {
            let may = policy.settings().deliver_by_shim;
            return if may {
                Ok(None)
            } else {
                Err("it cannot arrive through the client's interface (sctpify doctor)")
            };
        }
        let came_by = packet_io.came_by(route).ok_or("the interface of the client's packets is unknown")?;
        Ok(Some(came_by))
    }

    /// Follows interfaces that have disappeared, gone down or come back. Live connections of a failed interface continue
    /// through another interface. TCP retransmits the packets that were in flight.
    ///
    /// While no interface is up, no client's packets arrive. Packets between the daemon and the program then use the shim's own
    /// interface, so neither end's TCP backs off for long.
    pub(crate) fn follow_uplinks(
        &mut self,
        connections: &mut Connections,
        engine: &Endpoint,
        addresses: &AddressBook,
        packet_io: &PacketIo,
    ) {
        let known =
            |route: &Route| packet_io.came_by(route).into_iter().chain(addresses.interface_of(route.local));
        let mut up = BTreeMap::new();
        let led = |(id, c): (ConnectionId, &Connection)| match c.uplink() {
            (Some(uplink), is_stranded) => Some((id, uplink, is_stranded)),
            (None, _) => None,
        };
        let all: Vec<_> = connections.iter().filter_map(led).collect();
        for (id, uplink, is_stranded) in all {
            let is_up = self.is_up(&mut up, uplink);
            if is_up && is_stranded {
                self.lead_by(connections, id, Some(uplink));
            } else if !is_up {
                let association = connections.get(id).map(|connection| connection.association());
                let info = association.and_then(|association| engine.info(association));
                let mut paths = info.map(|info| info.paths).unwrap_or_default();
                // The candidates begin with the uplink of the path in use.
                paths.sort_by_key(|path| !path.in_use);
                let mut candidates = paths.iter().flat_map(|path| known(&path.route));
                let other = candidates.find(|uplink| self.is_up(&mut up, *uplink));
                if other.is_some() || !is_stranded {
                    self.lead_by(connections, id, other);
                }
            }
        }
    }

    /// Reports whether an interface is up. Asks the kernel once for each interface that is not in `known`.
    fn is_up(&mut self, known: &mut BTreeMap<u32, bool>, uplink: u32) -> bool {
        *known.entry(uplink).or_insert_with(|| self.interceptor.is_uplink_up(uplink))
    }

    fn lead_by(&mut self, connections: &mut Connections, id: ConnectionId, uplink: Option<u32>) {
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(stream) = connection.stream() else { return };
        if let Err(error) = self.interceptor.set_uplink(stream, uplink) {
            tracing::warn!(flow = %connection.flow(), %error, "no other interface for a connection whose interface has gone");
            return;
        }
        tracing::debug!(flow = %connection.flow(), ?uplink, "arrives through another interface now");
        connection.set_uplink(uplink);
    }

    pub(crate) fn forget_gone_uplinks(&mut self) {
        if let Err(error) = self.interceptor.forget_gone_uplinks() {
            tracing::warn!(%error, "cannot remove filters of removed interfaces");
        }
    }

    /// Records that a local program did not answer a connection.
    pub(crate) fn note_unanswered(
        &mut self,
        now: Time,
        flow: FourTuple,
        uplink: Option<u32>,
        history: &mut History,
    ) {
        let by = self.name_of(uplink);
        if let Some(left_out) = history.admit(Line::Unanswered, now) {
            tracing::info!(%flow, %by, left_out, "no answer to a connection that arrived through this interface: firewall rules may drop it");
        }
        self.unanswered.note(flow.local(), uplink, now);
    }

    fn name_of(&mut self, uplink: Option<u32>) -> String {
        match uplink {
            None => intercept::Config::default().host_interface,
            Some(index) => self
                .interceptor
                .uplink_name(index)
                .unwrap_or_else(|| format!("interface {index}, which has gone")),
        }
    }

    /// Returns the checks of `sctpify doctor` that concern connections to local programs.
    pub(crate) fn delivery_checks(&mut self, now: Time, rules: &RulesStore) -> Vec<Check> {
        const NAME: &str = "delivery";
        if self.is_enclosed() {
            return Vec::new();
        }
        let mut checks = vec![
            match (self.interceptor.lacks_for_uplinks(), rules.settings().deliver_by_shim) {
                (None, _) => Check::ok(
                    NAME,
                    "peers' connections reach local programs through the interface of the peer's packets",
                ),
                (Some(lack), true) => Check::bad(
                    NAME,
                    Level::Warning,
                    format!(
                        "the kernel lacks or forbids {lack}. Peers' connections arrive through shim0 (deliver_by_shim=1)"
                    ),
                    "check that no firewall rule for a served port matches the interface: such rules do not apply to SCTP",
                ),
                (Some(lack), false) => Check::bad(
                    NAME,
                    Level::Warning,
                    format!(
                        "the kernel lacks or forbids {lack}. Peers' connections over SCTP are refused, and use plain TCP"
                    ),
                    "load the module, or grant the daemon the capability; deliver_by_shim=1 needs neither (docs/networks.md)",
                ),
            },
        ];
        let seen: Vec<_> = self.unanswered.seen.iter().map(|(key, entry)| (*key, *entry)).collect();
        for ((server, uplink), (count, last)) in seen {
            let (by, ago) = (self.name_of(uplink), now.since(last).as_secs());
            checks.push(Check::bad(
                NAME,
                Level::Warning,
                format!("{server} through {by}: no answer to {count} connections of peers, the last {ago} s ago"),
                format!("nothing if the firewall should close this port: those connections were refused; otherwise let it \
                         accept the port on {by}"),
            ));
        }
        checks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_least_recently_noted_server_is_forgotten_first() {
        let mut unanswered = Unanswered::default();
        let server = |port| SocketAddr::new([10, 0, 0, 1].into(), port);
        for port in 1..=UNANSWERED_MAX as u16 + 1 {
            unanswered.note(server(port), Some(2), Time::ZERO + Duration::from_secs(port.into()));
            unanswered.note(server(1), Some(2), Time::ZERO + Duration::from_secs(port.into()));
        }
        assert_eq!(unanswered.seen.len(), UNANSWERED_MAX);
        assert!(unanswered.seen.contains_key(&(server(1), Some(2))));
        assert!(!unanswered.seen.contains_key(&(server(2), Some(2))));
    }
}
