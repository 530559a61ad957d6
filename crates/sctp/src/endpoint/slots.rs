//! Where associations live, and how they are found: by id, by our tag, by the peer, by their next timer.
//!
//! Invariants: every index leads to a live slot, and every live slot is in the indices that suit it.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::net::IpAddr;

use base::Time;
use siphasher::sip::SipHasher13;
use slab::Slab;
use wire::VerificationTag;

use crate::association::{Association, Opening};

/// Names an association for as long as the endpoint lives: an id is never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AssociationId {
    generation: u64,
    index: usize,
}

impl AssociationId {
    /// A number that no other association of the endpoint has, for people to read.
    pub fn number(self) -> u64 {
        self.generation
    }
}

/// What an id stands for.
pub(crate) enum Slot {
    /// INIT sent.
    Opening(Box<Opening>),
    /// Beyond the INIT.
    Association(Box<Association>),
    /// Over without ever having known its peer.
    Finished,
}

struct Entry {
    generation: u64,
    slot: Slot,
    timeout: Time,
    ready: bool,
    memory: usize,
    tag: Option<VerificationTag>,
    peers: Vec<Peer>,
}

type Peer = (u16, u16, IpAddr);

/// Hashes with a key of the endpoint's own, since peers choose ports and addresses.
#[derive(Clone, Debug)]
pub(super) struct KeyedHash(pub(super) u64);

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, !self.0)
    }
}

/// Spreads tags over a table. Those that are kept are random, chosen by us.
#[derive(Clone, Copy, Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, tag: u32) {
        // The golden ratio's bits: the highest and the lowest of the product both depend on the whole tag.
        let product = u128::from(self.0 ^ u64::from(tag)) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) struct Slots {
    entries: Slab<Entry>,
    generation: u64,
    by_tag: HashMap<u32, AssociationId, BuildHasherDefault<TagHasher>>,
    by_peer: HashMap<Peer, AssociationId, KeyedHash>,
    timeouts: BTreeSet<(Time, AssociationId)>,
    /// Bytes of all.
    memory: usize,
}

impl Slots {
    pub(crate) fn new(key: u64) -> Slots {
        Slots {
            entries: Slab::new(),
            generation: 0,
            by_tag: HashMap::default(),
            by_peer: HashMap::with_hasher(KeyedHash(key)),
            timeouts: BTreeSet::new(),
            memory: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = AssociationId> {
        self.entries.iter().map(|(index, e)| AssociationId { generation: e.generation, index })
    }

    pub(crate) fn insert(&mut self, slot: Slot) -> AssociationId {
        self.generation += 1;
        let generation = self.generation;
        let entry = Entry {
            generation,
            slot: Slot::Finished,
            timeout: Time::NEVER,
            ready: false,
            memory: 0,
            tag: None,
            peers: Vec::new(),
        };
        let id = AssociationId { generation, index: self.entries.insert(entry) };
        self.replace(id, slot);
        id
    }

    fn entry(&self, id: AssociationId) -> Option<&Entry> {
        self.entries.get(id.index).filter(|e| e.generation == id.generation)
    }

    fn entry_mut(&mut self, id: AssociationId) -> Option<&mut Entry> {
        self.entries.get_mut(id.index).filter(|e| e.generation == id.generation)
    }

    pub(crate) fn get(&self, id: AssociationId) -> Option<&Slot> {
        self.entry(id).map(|e| &e.slot)
    }

    pub(crate) fn get_mut(&mut self, id: AssociationId) -> Option<&mut Slot> {
        self.entry_mut(id).map(|e| &mut e.slot)
    }

    /// Puts `slot` in the place of what `id` stood for, and returns that. The peer's first address has proved to be its
    /// own and becomes this slot's; the others stay with the association that has them with the same ports, if any.
    pub(crate) fn replace(&mut self, id: AssociationId, slot: Slot) -> Option<Slot> {
        self.forget_names(id);
        let (tag, mut peers) = names(&slot);
        if let Some(tag) = tag {
            self.by_tag.insert(tag.0, id);
        }
        if let Some(first) = peers.first() {
            self.by_peer.insert(*first, id);
        }
        peers.retain(|peer| *self.by_peer.entry(*peer).or_insert(id) == id);
        let entry = self.entry_mut(id)?;
        (entry.tag, entry.peers) = (tag, peers);
        Some(std::mem::replace(&mut entry.slot, slot))
    }

    /// The peer's addresses have changed. One that another association has with the same ports stays with that.
    pub(crate) fn rename(&mut self, id: AssociationId) {
        self.forget_names(id);
        let Some((tag, mut peers)) = self.get(id).map(names) else { return };
        peers.retain(|peer| !self.by_peer.contains_key(peer));
        if let Some(tag) = tag {
            self.by_tag.insert(tag.0, id);
        }
        for peer in &peers {
            self.by_peer.insert(*peer, id);
        }
        if let Some(entry) = self.entry_mut(id) {
            (entry.tag, entry.peers) = (tag, peers);
        }
    }

    /// The association is over: its tag and its peer may be used by another.
    pub(crate) fn forget_names(&mut self, id: AssociationId) {
        let Some(entry) = self.entry_mut(id) else { return };
        let (tag, peers) = (entry.tag.take(), std::mem::take(&mut entry.peers));
        if let Some(tag) = tag {
            self.by_tag.remove(&tag.0);
        }
        for peer in peers {
            if self.by_peer.get(&peer) == Some(&id) {
                self.by_peer.remove(&peer);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: AssociationId) {
        self.forget_names(id);
        self.set_memory(id, 0);
        if let Some(timeout) = self.entry(id).map(|e| e.timeout) {
            self.timeouts.remove(&(timeout, id));
            self.entries.remove(id.index);
        }
    }

    /// Notes what a slot takes, in bytes.
    #[inline]
    pub(crate) fn set_memory(&mut self, id: AssociationId, memory: usize) {
        let Some(entry) = self.entry_mut(id) else { return };
        let before = std::mem::replace(&mut entry.memory, memory);
        self.memory = self.memory + memory - before;
    }

    /// Bytes that all slots take.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    pub(crate) fn by_tag(&self, tag: VerificationTag) -> Option<AssociationId> {
        self.by_tag.get(&tag.0).copied()
    }

    pub(crate) fn by_peer(&self, local_port: u16, remote_port: u16, remote: IpAddr) -> Option<AssociationId> {
        self.by_peer.get(&(local_port, remote_port, remote)).copied()
    }

    #[inline]
    pub(crate) fn set_timeout(&mut self, id: AssociationId, timeout: Time) {
        let Some(entry) = self.entry_mut(id) else { return };
        let old = std::mem::replace(&mut entry.timeout, timeout);
        if old == timeout {
            return;
        }
        self.timeouts.remove(&(old, id));
        if timeout != Time::NEVER {
            self.timeouts.insert((timeout, id));
        }
    }

    pub(crate) fn next_timeout(&self) -> Time {
        self.timeouts.first().map_or(Time::NEVER, |t| t.0)
    }

    /// Takes out the first association whose timer has expired; the caller sets its next one.
    pub(crate) fn pop_expired(&mut self, now: Time) -> Option<AssociationId> {
        let &(timeout, id) = self.timeouts.first().filter(|t| t.0 <= now)?;
        self.timeouts.remove(&(timeout, id));
        self.entry_mut(id)?.timeout = Time::NEVER;
        Some(id)
    }

    /// Notes whether the association waits in the queue of senders; returns whether that is new.
    pub(crate) fn set_ready(&mut self, id: AssociationId, ready: bool) -> bool {
        self.entry_mut(id).is_some_and(|e| std::mem::replace(&mut e.ready, ready) != ready)
    }

    /// Whether the association waits in the queue of senders.
    pub(crate) fn is_ready(&self, id: AssociationId) -> bool {
        self.entry(id).is_some_and(|e| e.ready)
    }

    pub(crate) fn check_invariants(&self) {
        let memory = self.entries.iter().map(|(_, e)| match &e.slot {
            Slot::Opening(opening) => opening.memory(),
            Slot::Association(association) => association.memory(),
            Slot::Finished => 0,
        });
        assert_eq!(self.memory, memory.sum::<usize>(), "bytes of all associations");
        for id in self.by_tag.values().chain(self.by_peer.values()).chain(self.timeouts.iter().map(|t| &t.1))
        {
            assert!(self.entry(*id).is_some(), "an index leads to {id:?}, which is gone");
        }
    }
}

/// The tag and the peers by which packets find the slot.
fn names(slot: &Slot) -> (Option<VerificationTag>, Vec<Peer>) {
    match slot {
        Slot::Opening(o) => {
            let peers = o.init_routes.iter().map(|r| (o.local_port, o.remote_port, r.remote)).collect();
            (Some(o.local_tag), peers)
        }
        Slot::Association(a) => {
            let (local, remote) = a.ports();
            let peers = a.remote_addresses().map(|address| (local, remote, address)).collect();
            (Some(a.tags().0), peers)
        }
        Slot::Finished => (None, Vec::new()),
    }
}
