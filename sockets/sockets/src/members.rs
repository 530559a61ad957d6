//! The table of a one-to-many socket's associations, and the order of their deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::SocketKey;

/// The members of a one-to-many socket. A member is the [`Socket`](crate::socket::Socket) of one association. The program has no
/// descriptor for a member.
#[derive(Default)]
pub(crate) struct Members {
    by_id: BTreeMap<i32, SocketKey>,
    /// Members by the peer's address on the association's first path.
    by_peer: BTreeMap<SocketAddr, SocketKey>,
    /// Identifiers of members that may have a delivery for the program.
    readable: BTreeSet<i32>,
    /// Identifier of the member whose message was delivered in part. The program gets deliveries of other members only after the
    /// rest of this message.
    current: Option<i32>,
    /// Identifier of the member that delivered last.
    last: i32,
}

impl Members {
    pub(crate) fn add(&mut self, id: i32, peer: SocketAddr, key: SocketKey) {
        self.by_id.insert(id, key);
        self.by_peer.insert(peer, key);
    }

    pub(crate) fn remove(&mut self, id: i32, peer: Option<SocketAddr>) {
        let Some(key) = self.by_id.remove(&id) else { return };
        // If the peer already has a newer association, the entry of the peer's address belongs to the newer member and stays.
        if let Some(peer) = peer.filter(|peer| self.by_peer.get(peer) == Some(&key)) {
            self.by_peer.remove(&peer);
        }
        self.readable.remove(&id);
        self.current = self.current.filter(|current| *current != id);
    }

    pub(crate) fn by_id(&self, id: i32) -> Option<SocketKey> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn by_peer(&self, peer: SocketAddr) -> Option<SocketKey> {
        self.by_peer.get(&peer).copied()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = i32> {
        self.by_id.keys().copied()
    }

    pub(crate) fn keys(&self) -> Vec<SocketKey> {
        self.by_id.values().copied().collect()
    }

    pub(crate) fn note_readable(&mut self, id: i32) {
        self.readable.insert(id);
    }

    /// Returns the identifier of the member that delivers next. The members take turns, except between the parts of one message.
    pub(crate) fn turn(&self) -> Option<i32> {
        if let Some(current) = self.current {
            return self.readable.contains(&current).then_some(current);
        }
        let after = self.readable.range(self.last.saturating_add(1)..).next();
        after.or(self.readable.first()).copied()
    }

    /// Records a delivery of a member. `has_more` is true if further parts of the message follow.
    pub(crate) fn note_delivery(&mut self, id: i32, has_more: bool) {
        self.current = has_more.then_some(id);
        self.last = id;
    }

    /// Records that a member has no delivery now. `is_in_message` is true if the rest of a message has not arrived.
    pub(crate) fn note_empty(&mut self, id: i32, is_in_message: bool) {
        self.readable.remove(&id);
        if !is_in_message {
            self.current = self.current.filter(|current| *current != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Members {
        let mut members = Members::default();
        for id in [3, 4, 5] {
            let peer = SocketAddr::from(([192, 0, 2, 1], u16::try_from(id).unwrap()));
            members.add(id, peer, SocketKey(usize::try_from(id).unwrap()));
            members.note_readable(id);
        }
        members
    }

    #[test]
    fn members_take_turns() {
        let mut members = members();
        let mut turns = Vec::new();
        for _ in 0..4 {
            let id = members.turn().unwrap();
            members.note_delivery(id, false);
            turns.push(id);
        }
        assert_eq!(turns, [3, 4, 5, 3]);
        for id in [3, 4, 5] {
            members.note_empty(id, false);
        }
        assert_eq!(members.turn(), None);
    }

    #[test]
    fn a_message_in_parts_is_not_interrupted() {
        let mut members = members();
        members.note_delivery(3, true);
        assert_eq!(members.turn(), Some(3));
        members.note_empty(3, true);
        assert_eq!(members.turn(), None, "the rest is still to come");
        members.note_readable(3);
        assert_eq!(members.turn(), Some(3));
        members.remove(3, None);
        assert_eq!(members.turn(), Some(4), "an association that ends within a message stops nobody");
    }
}
