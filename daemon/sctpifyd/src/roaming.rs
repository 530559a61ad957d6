//! Follows changes of this host's addresses while connections live.
//!
//! On the side of the peers, each new address of this host is added to every association that can move. Each lost address is
//! removed from these associations. An association that has lost all its local addresses moves to another address (RFC 5061).
//! On the side of local programs, the shim's interface keeps a lost address while TCP connections use the address, because TCP
//! cannot move. [`Roaming::follow_addresses`] compares the current state with the wanted state, so it can be called at any
//! time.

use std::collections::BTreeSet;
use std::net::IpAddr;

use base::{Route, Time};
use control::Role;
use relay::Peer;
use rules::LinkUse;
use sctp::{AddressError, AddressUse, AssociationId, AssociationInfo, Endpoint};

use crate::addresses::Asker;
use crate::connection::Connections;
use crate::interception::Interception;
use crate::policy::Policy;
use crate::shared::{Ends, SharedAssociations};

/// The parts of the daemon that a change of addresses affects.
pub(crate) struct Roaming<'a> {
    pub(crate) now: Time,
    pub(crate) engine: &'a mut Endpoint,
    pub(crate) policy: &'a mut Policy,
    pub(crate) interception: &'a Interception,
    pub(crate) connections: &'a Connections,
    pub(crate) shared: &'a SharedAssociations,
}

impl Roaming<'_> {
    /// Applies a change of the host's addresses.
    pub(crate) fn follow_addresses(&mut self) {
        self.follow_links();
        let own = self.connections.iter().filter(|(_, c)| c.roams() && c.channel().is_none());
        let own = own.map(|(_, c)| c.association());
        let roaming: Vec<AssociationId> = own.chain(self.shared.iter().map(|(id, _)| id)).collect();
        for association in roaming {
            self.follow_addresses_of(association);
        }
    }

    /// Applies changed policies of this host's links to all associations. Then applies the resulting changes of addresses.
    pub(crate) fn follow_policies(&mut self) {
        for association in self.associations() {
            self.use_links(association);
        }
        self.follow_addresses();
    }

    /// Returns all associations, each once.
    fn associations(&self) -> Vec<AssociationId> {
        let own = self.connections.iter().filter(|(_, c)| c.channel().is_none());
        own.map(|(_, c)| c.association()).chain(self.shared.iter().map(|(id, _)| id)).collect()
    }

    /// Applies the links' policies to the local addresses of an association. If the peer runs sctpify, informs the peer.
    pub(crate) fn use_links(&mut self, association: AssociationId) {
        let Some(info) = self.engine.info(association) else { return };
        let is_shim = Peer::of_adaptation(info.adaptation) == Peer::Shim;
        let understands = is_shim || self.shared.get(association).is_some();
        let locals: BTreeSet<IpAddr> = info.paths.iter().map(|path| path.route.local).collect();
        let mut uses: Vec<(IpAddr, AddressUse)> =
            locals.into_iter().map(|local| (local, self.policy.addresses().usage(local))).collect();
        // Once the peer knows the links' numbers, the numbers stay in use. Addresses come and go, and each change of the
        // numbers costs packets.
        let is_told = info.paths.iter().any(|path| path.local_use.link != 0);
        if !is_told && !need_links(&uses) {
            uses.iter_mut().for_each(|(_, usage)| usage.link = 0);
        }
        // An error means that the association has just ended.
        let _ = self.engine.set_local_uses(self.now, association, &uses);
        for (local, usage) in uses.into_iter().filter(|_| understands) {
            // The next change of addresses or paths retries the message.
            if let Err(error) = self.engine.tell_local_use(self.now, association, local) {
                tracing::debug!(%local, ?usage, %error, "cannot tell the peer of a link's policy");
            }
        }
    }

    /// Informs the engine of links that went down or came up, so the engine need not wait for a timer.
    fn follow_links(&mut self) {
        let changes = self.policy.take_link_changes();
        if changes.is_empty() {
            return;
        }
        tracing::info!(?changes, "links of our addresses");
        for (association, (address, is_up)) in
            self.associations().iter().flat_map(|id| changes.iter().map(|change| (*id, *change)))
        {
            self.engine.set_local_link(self.now, association, address, is_up);
        }
    }

    /// Announces changed local addresses to the peer of one association.
    fn follow_addresses_of(&mut self, association: AssociationId) {
        // An address may have moved to another link.
        self.use_links(association);
        let Some(info) = self.engine.info(association) else { return };
        let has: BTreeSet<IpAddr> = info.paths.iter().map(|path| path.route.local).collect();
        let meets = |ip: &IpAddr| info.paths.iter().any(|path| path.route.remote.is_ipv4() == ip.is_ipv4());
        let offered: Vec<IpAddr> = self.offered_to(association, &info).into_iter().filter(meets).collect();
        let gone: Vec<IpAddr> = has.iter().copied().filter(|ip| self.must_leave(*ip)).collect();
        if gone.len() == has.len() {
            return self.move_association(association, offered.first());
        }
        for ip in offered.iter().filter(|ip| !has.contains(*ip)) {
            let outcome = self.engine.add_local_address(self.now, association, *ip);
            note("add", *ip, outcome);
        }
        for ip in gone {
            match self.engine.remove_local_address(self.now, association, ip) {
                // The association's other addresses are not confirmed.
                Err(AddressError::Last(_)) => {
                    return self.move_association(association, offered.iter().find(|ip| has.contains(*ip)));
                }
                outcome => note("remove", ip, outcome),
            }
        }
    }

    /// Reports whether associations must give up a local address. This is so if the host has lost the address, or the address's
    /// link must not carry SCTP any more.
    fn must_leave(&self, ip: IpAddr) -> bool {
        let addresses = self.policy.addresses();
        let is_never = addresses.link_policy(ip).is_some_and(|policy| policy.usage() == LinkUse::Never);
        !addresses.is_own(ip) || is_never
    }

    /// Returns the local addresses that may be announced to the peer of an association now.
    fn offered_to(&self, association: AssociationId, info: &AssociationInfo) -> Vec<IpAddr> {
        let Some((ends, is_dialled)) = self.handshake_of(association) else { return Vec::new() };
        let proven = info.paths.iter().filter(|path| path.confirmed);
        let others: Vec<IpAddr> = proven.map(|path| path.route.remote).collect();
        let asker = Asker { local: ends.local, remote: ends.remote, others: &others, is_dialled };
        let mut offered = self.policy.addresses().offered(self.now, asker);
        // If the host has lost the address with which the association began, that address is not offered.
        offered.retain(|ip| self.policy.addresses().usable().contains(ip) || *ip != ends.local);
        offered
    }

    /// Returns the two addresses between which an association began, and whether this host began the association.
    fn handshake_of(&self, association: AssociationId) -> Option<(Ends, bool)> {
        if let Some(state) = self.shared.get(association) {
            return Some((state.handshake(), state.role() == Role::Client));
        }
        let connection = self.connections.get(self.connections.of_association(association)?)?;
        let (local, remote) =
            (self.interception.wire_address(&connection.flow()).ip(), connection.flow().remote().ip());
        Some((Ends::new(local, remote), connection.role() == Role::Client))
    }

    /// Moves an association that has no usable address to the address `refuge`. Without a refuge, the association waits for the
    /// next address.
    fn move_association(&mut self, association: AssociationId, refuge: Option<&IpAddr>) {
        if let Some(&ip) = refuge {
            let outcome = self.engine.move_to_local_address(self.now, association, ip);
            note("move to", ip, outcome);
        }
    }

    /// Sets the weight of each path from the setting `multipath_weights`. The weight determines the path's share of the data.
    fn weigh_paths(&mut self, association: AssociationId) {
        let settings = self.policy.settings();
        if settings.multipath != rules::Multipath::Weighted {
            return;
        }
        let Some(info) = self.engine.info(association) else { return };
        for route in info.paths.iter().map(|path| &path.route) {
            let weight = settings.multipath_weights.of(route.local, route.remote);
            // An error means that the association has just ended.
            let _ = self.engine.set_path_weight(self.now, association, route.local, route.remote, weight);
        }
    }

    /// Handles a path that has begun to work. The association may now give up lost addresses that it kept because it had no
    /// other confirmed address. If this host opened the connection, the peer's address on the path is remembered for later
    /// connections.
    pub(crate) fn on_path_up(&mut self, association: AssociationId, route: &Route) {
        self.weigh_paths(association);
        self.use_links(association);
        let id = self.connections.of_association(association);
        let client = id.and_then(|id| self.connections.get(id)).filter(|c| c.role() == Role::Client);
        if let Some(connection) = client
            && self.policy.settings().learn
        {
            self.policy.learned().lock().note_address(connection.flow().remote().ip(), route.remote);
        }
        let info = self.engine.info(association);
        let is_unwanted =
            info.is_some_and(|info| info.paths.iter().any(|path| self.must_leave(path.route.local)));
        if (self.interception.keeps_addresses() || is_unwanted) && self.roams(association) {
            self.follow_addresses_of(association);
        }
    }

    /// Announces the changes of addresses that the association could not follow when they came: during its handshake, or while the removal of
    /// an address that has come back was pending.
    pub(crate) fn catch_up(&mut self, association: AssociationId) {
        match self.roams(association) {
            true => self.follow_addresses_of(association),
            false => self.use_links(association),
        }
    }

    /// Reports whether the association follows changes of this host's addresses.
    fn roams(&self, association: AssociationId) -> bool {
        let own = self.connections.of_association(association).and_then(|id| self.connections.get(id));
        self.shared.get(association).is_some() || own.is_some_and(|connection| connection.roams())
    }
}

/// Reports whether the peer needs the links' numbers, because the addresses alone do not show which of them share a link. The
/// peer needs the numbers if there is more than one link, and if the addresses have different families or one link has several
/// addresses. In other cases, the packets for the numbers are saved.
fn need_links(uses: &[(IpAddr, AddressUse)]) -> bool {
    let known = uses.iter().filter(|(_, usage)| usage.link != 0);
    let uses: Vec<&(IpAddr, AddressUse)> = known.collect();
    let links: BTreeSet<u8> = uses.iter().map(|(_, usage)| usage.link).collect();
    let families = uses.iter().map(|(address, _)| address.is_ipv4()).collect::<BTreeSet<_>>();
    links.len() > 1 && (families.len() > 1 || links.len() < uses.len())
}

fn note(what: &str, ip: IpAddr, outcome: Result<(), AddressError>) {
    match outcome {
        Ok(()) => tracing::info!(%ip, what, "announcing our addresses to the peer"),
        // The peer does not support the change, or an earlier change is pending. The answer to the earlier change triggers a
        // retry.
        Err(error) => tracing::debug!(%ip, what, %error, "cannot announce our addresses to the peer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_numbers_are_sent_if_addresses_do_not_show_shared_links() {
        let need = |uses: &[(&str, u8)]| {
            let uses = uses.iter().map(|(address, link)| {
                (address.parse().unwrap(), AddressUse { link: *link, ..AddressUse::default() })
            });
            need_links(&uses.collect::<Vec<_>>())
        };
        assert!(!need(&[("10.0.1.1", 1)]));
        assert!(!need(&[("10.0.1.1", 1), ("10.0.2.1", 2)]), "one address on each link");
        assert!(!need(&[("10.0.1.1", 1), ("fd00:1::1", 1)]), "one link");
        assert!(need(&[("10.0.1.1", 1), ("fd00:1::1", 1), ("10.0.2.1", 2)]));
        assert!(need(&[("10.0.1.1", 1), ("fd00:2::1", 2)]));
        assert!(need(&[("10.0.1.1", 1), ("10.0.1.7", 1), ("10.0.2.1", 2)]));
        assert!(!need(&[("10.0.1.1", 1), ("fd00:2::1", 0)]), "a link that is not known");
    }
}
