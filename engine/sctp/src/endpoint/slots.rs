//! Table of associations, with indices by id, local tag, peer, host and next timer. The table also counts the memory of the
//! associations.
//!
//! Invariants: every entry of an index leads to a live slot. Every live slot that has a tag, a peer, a host or a timer has an entry
//! in the index by this value.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::net::{IpAddr, Ipv6Addr};

use base::Time;
use siphasher::sip::SipHasher13;
use slab::Slab;
use wire::VerificationTag;

use crate::association::{Association, Opening};
use crate::memory::{COST_BASE, COST_MOST, Pressure, heap};

/// Identifier of an association. The endpoint never uses an id twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AssociationId {
    generation: u64,
    index: usize,
}

impl AssociationId {
    /// Returns a number that no other association of the endpoint has, for display.
    pub fn number(self) -> u64 {
        self.generation
    }
}

/// State behind an association's id.
pub(crate) enum Slot {
    /// An association that has sent INIT (COOKIE-WAIT).
    Opening(Box<Opening>),
    /// An association after INIT ACK or COOKIE ECHO.
    Association(Box<Association>),
    /// An association that ended before INIT ACK.
    Finished,
}

struct Entry {
    generation: u64,
    slot: Slot,
    timeout: Time,
    /// Time under which the slot is in the queue of timeouts. It is never later than `timeout`.
    queued: Time,
    ready: bool,
    memory: usize,
    /// Bytes of `memory` that the driver holds.
    user_memory: usize,
    /// Bytes of user data that the slot had buffered when `memory` was counted, or later at the end of a turn if that was more.
    buffered: usize,
    /// Value of [`Slot::measure`] that `memory` covers. It is the value at the last full count, plus the increases since then that
    /// were added to `memory`. Before the first count, it is [`NOT_COUNTED`].
    measure: usize,
    /// Sum of the increases of `measure` since the last full count.
    raised: u16,
    /// Turns since the last full count.
    turns: u8,
    /// Number of calls in this turn that may have changed the slot, modulo 256.
    works: u8,
    /// Index of the host that is charged for `memory`; [`NO_HOST`] if there is no such host.
    host: usize,
    tag: Option<VerificationTag>,
    peers: Vec<Peer>,
}

impl Entry {
    /// Returns the bytes of the slot's entries in the table and in the indices. Hash tables and lists may have room for twice as
    /// many entries as needed.
    fn names_memory(&self) -> usize {
        const SLOT: usize = 2 * (size_of::<Entry>() + size_of::<(u32, AssociationId)>())
            + 3 * size_of::<(Time, AssociationId)>()
            + 2 * (size_of::<HostUse>() + size_of::<(Host, usize)>());
        SLOT + heap(self.peers.capacity() * size_of::<Peer>())
            + self.peers.len() * 2 * size_of::<(Peer, AssociationId)>()
    }

    /// Returns the bytes of the slot, of its entries, and of the driver's memory for it.
    fn whole_memory(&self) -> usize {
        self.slot.memory() + self.names_memory() + self.user_memory
    }

    /// Reports whether the slot's measure exceeds the measure at the last count by `step` or more.
    fn outgrew(&self, step: usize) -> bool {
        self.slot.measure() >= self.measure + step
    }
}

/// Bytes by which the count may be too low between full counts.
const COUNTED_MARGIN: usize = 512 * 1024;
/// Bytes by which the count may be too high between full counts.
const COUNTED_EXCESS: usize = COST_MOST * COUNTED_SHRINKAGE + COUNTED_MARGIN;

/// Turns after which the memory of an association is counted again, independent of its measure.
const COUNTED_TURNS: u8 = 32;

/// Bytes by which the buffered data may grow within a turn before the memory is counted again.
const COUNTED_GROWTH: usize = 16 * 1024;
/// Bytes by which the buffered data may shrink within a turn before the memory is counted again.
const COUNTED_SHRINKAGE: usize = 64 * 1024;

/// Interval between checks of the measure within a turn, in calls that may change the slot.
const MEASURED_WORKS: u8 = 16;

/// Interval between checks of the measure, in turns. The measure is also checked if the buffered data has grown since the last
/// check, or has shrunk by more than [`TURN_STEP`].
const MEASURED_TURNS: u8 = 4;

/// Bytes by which the measure may change since the last full count before the memory is counted again at the end of a turn.
const TURN_STEP: usize = 1024;

/// Measure of a slot that was never counted. It differs greatly from any other measure.
const NOT_COUNTED: usize = usize::MAX / 2;
/// Index that no host has.
const NO_HOST: usize = usize::MAX;

impl Slot {
    /// Returns the bytes of memory of the slot.
    fn memory(&self) -> usize {
        match self {
            Slot::Opening(opening) => opening.memory(),
            Slot::Association(association) => association.memory(),
            Slot::Finished => 0,
        }
    }

    /// Returns the bytes of user data that the slot has buffered, in both directions.
    #[inline]
    fn buffered(&self) -> usize {
        match self {
            Slot::Association(association) => association.buffered(),
            Slot::Opening(_) | Slot::Finished => 0,
        }
    }

    /// Returns a measure of the slot's memory that is cheap to compute.
    #[inline]
    fn measure(&self) -> usize {
        match self {
            Slot::Association(association) => association.measure(),
            Slot::Opening(_) | Slot::Finished => 0,
        }
    }
}

/// Memory of the associations with one host.
struct HostUse {
    host: Host,
    memory: usize,
    slots: usize,
}

/// A remote host: an IPv4 address mapped to IPv6, or the first 64 bits of an IPv6 address.
type Host = u128;

fn host_of(address: IpAddr) -> Host {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        IpAddr::V6(a) => a.to_bits() & !u128::from(u64::MAX),
    }
}

type Peer = (u16, u16, IpAddr);

/// Tag and peers that lead from a packet to its slot.
type Names = (Option<VerificationTag>, Vec<Peer>);

/// Hash function with a secret key of the endpoint, because peers choose ports and addresses.
#[derive(Clone, Debug)]
pub(super) struct KeyedHash(pub(super) u64);

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, !self.0)
    }
}

/// Hash function for tags. It needs no key, because the stored tags are our own random numbers.
#[derive(Clone, Copy, Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, tag: u32) {
        // The factor is derived from the golden ratio. So the highest and the lowest bits of the product both depend on the whole
        // tag.
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
    /// Bytes of all slots.
    memory: usize,
    /// Memory of each host.
    hosts: Slab<HostUse>,
    by_host: BTreeMap<Host, usize>,
    /// Limit on the bytes of each host.
    budget_of_host: usize,
    /// Number of hosts under memory pressure.
    pressed: usize,
}

impl Slots {
    /// Creates an empty table. `budget_of_host` is the limit on the bytes of the associations with one host.
    pub(crate) fn new(key: u64, budget_of_host: usize) -> Slots {
        Slots {
            entries: Slab::new(),
            generation: 0,
            by_tag: HashMap::default(),
            by_peer: HashMap::with_hasher(KeyedHash(key)),
            timeouts: BTreeSet::new(),
            memory: 0,
            hosts: Slab::new(),
            by_host: BTreeMap::new(),
            budget_of_host,
            pressed: 0,
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
            queued: Time::NEVER,
            ready: false,
            memory: 0,
            user_memory: 0,
            buffered: 0,
            measure: NOT_COUNTED,
            raised: 0,
            turns: 0,
            works: 0,
            host: NO_HOST,
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

    /// Replaces the slot of `id`, and returns the old slot. The peer's first address has been proved, or this host connects to it.
    /// This address therefore leads to the new slot from now on. If another association already has one of the other addresses with
    /// the same ports, that address stays with it.
    pub(crate) fn replace(&mut self, id: AssociationId, slot: Slot) -> Option<Slot> {
        let known = self.set_names(id, None, Vec::new())?;
        self.forget(id, known);
        let (tag, mut peers) = names(&slot);
        if let Some(first) = peers.first() {
            self.charge(id, host_of(first.2));
        }
        if let Some(tag) = tag {
            self.by_tag.insert(tag.0, id);
        }
        if let Some(first) = peers.first() {
            self.by_peer.insert(*first, id);
        }
        peers.retain(|peer| *self.by_peer.entry(*peer).or_insert(id) == id);
        self.set_names(id, tag, peers);
        let before = std::mem::replace(&mut self.entry_mut(id)?.slot, slot);
        self.settle_memory(id);
        Some(before)
    }

    /// Updates the indices after a change of the peer's addresses. If another association already has one of the addresses with the
    /// same ports, that address stays with it.
    pub(crate) fn rename(&mut self, id: AssociationId) {
        let Some((tag, mut peers)) = self.get(id).map(names) else { return };
        if let Some(known) = self.set_names(id, None, Vec::new()) {
            self.forget(id, known);
        }
        peers.retain(|peer| !self.by_peer.contains_key(peer));
        if let Some(tag) = tag {
            self.by_tag.insert(tag.0, id);
        }
        for peer in &peers {
            self.by_peer.insert(*peer, id);
        }
        self.set_names(id, tag, peers);
        self.settle_memory(id);
    }

    /// Sets the tag and the peers of the slot, and returns the old ones. The caller must then update the count of the slot's
    /// memory.
    fn set_names(
        &mut self,
        id: AssociationId,
        tag: Option<VerificationTag>,
        peers: Vec<Peer>,
    ) -> Option<Names> {
        let entry = self.entry_mut(id)?;
        Some((std::mem::replace(&mut entry.tag, tag), std::mem::replace(&mut entry.peers, peers)))
    }

    /// Removes an ended association from the indices, so another association may use its tag and its peer's addresses.
    pub(crate) fn forget_names(&mut self, id: AssociationId) {
        let Some(entry) = self.entry(id).filter(|e| e.tag.is_some() || !e.peers.is_empty()) else { return };
        let (memory, before) = (entry.memory, entry.names_memory());
        let Some(known) = self.set_names(id, None, Vec::new()) else { return };
        self.forget(id, known);
        let after = self.entry(id).map_or(0, Entry::names_memory);
        self.count_memory(id, (memory + after).saturating_sub(before));
    }

    /// Removes these names from the indices.
    fn forget(&mut self, id: AssociationId, (tag, peers): Names) {
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
        if let Some(known) = self.set_names(id, None, Vec::new()) {
            self.forget(id, known);
        }
        self.count_memory(id, 0);
        self.discharge(id);
        if let Some(queued) = self.entry(id).map(|e| e.queued) {
            self.timeouts.remove(&(queued, id));
            self.entries.remove(id.index);
        }
    }

    /// Returns the host that is charged for the slot's memory.
    fn host_use(&self, id: AssociationId) -> Option<&HostUse> {
        self.hosts.get(self.entry(id)?.host)
    }

    /// Charges the slot's memory to `host` from now on.
    fn charge(&mut self, id: AssociationId, host: Host) {
        if self.host_use(id).is_some_and(|known| known.host == host) {
            return;
        }
        let memory = self.entry(id).map_or(0, |e| e.memory);
        if memory > 0 {
            self.count_memory(id, 0);
        }
        self.discharge(id);
        let hosts = &mut self.hosts;
        let new = || hosts.insert(HostUse { host, memory: 0, slots: 0 });
        let index = *self.by_host.entry(host).or_insert_with(new);
        let Some(entry) = self.entry_mut(id) else { return };
        entry.host = index;
        self.hosts[index].slots += 1;
        if memory > 0 {
            self.count_memory(id, memory);
        }
    }

    /// Removes the slot from its host. The caller has set the count of the slot's memory to 0.
    fn discharge(&mut self, id: AssociationId) {
        let Some(entry) = self.entry_mut(id) else { return };
        let index = std::mem::replace(&mut entry.host, NO_HOST);
        let Some(used) = self.hosts.get_mut(index) else { return };
        used.slots -= 1;
        if used.slots == 0 {
            self.by_host.remove(&used.host);
            self.hosts.remove(index);
        }
    }

    /// Puts a slot that has changed into the queue of senders. Returns true if the slot was not in the queue. If the slot's memory
    /// may have changed much, the memory is counted again. Smaller changes wait for the end of the turn.
    #[inline]
    pub(crate) fn on_work(&mut self, id: AssociationId) -> bool {
        let Some(entry) = self.entry_mut(id) else { return false };
        let is_new = !std::mem::replace(&mut entry.ready, true);
        entry.works = entry.works.wrapping_add(1);
        let buffered = entry.slot.buffered();
        let has_changed =
            buffered >= entry.buffered + COUNTED_GROWTH || buffered + COUNTED_SHRINKAGE <= entry.buffered;
        if has_changed || entry.works.is_multiple_of(MEASURED_WORKS) && entry.outgrew(COUNTED_GROWTH) {
            self.settle_memory(id);
        }
        is_new
    }

    /// Ends the turn of a slot. If its measure has grown a little, the maximum memory of this growth is added to the count. Then
    /// later turns need no new count until the measure grows again. The memory is counted again if the measure has changed more
    /// than a little, and after [`COUNTED_TURNS`] turns in any case.
    pub(crate) fn end_turn(&mut self, id: AssociationId) {
        let Some(entry) = self.entry_mut(id) else { return };
        entry.ready = false;
        entry.works = 0;
        entry.turns += 1;
        let buffered = entry.slot.buffered();
        let is_covered = entry.buffered.wrapping_sub(buffered) <= TURN_STEP;
        if is_covered && !entry.turns.is_multiple_of(MEASURED_TURNS) {
            return;
        }
        let measure = entry.slot.measure();
        let growth = measure.saturating_sub(entry.measure);
        let has_changed =
            usize::from(entry.raised) + growth > TURN_STEP || measure + TURN_STEP < entry.measure;
        if has_changed || entry.turns >= COUNTED_TURNS {
            self.settle_memory(id);
        } else if growth > 0 {
            let first = if entry.raised == 0 { COST_BASE } else { 0 };
            entry.raised += growth as u16;
            (entry.buffered, entry.measure) = (entry.buffered.max(buffered), measure);
            let memory = entry.memory + first + COST_MOST * growth;
            self.count_memory(id, memory);
        }
    }

    /// Counts the memory of a slot, and of the slot's entries in the table and the indices.
    pub(crate) fn settle_memory(&mut self, id: AssociationId) {
        let Some(entry) = self.entry_mut(id) else { return };
        (entry.buffered, entry.measure) = (entry.slot.buffered(), entry.slot.measure());
        (entry.raised, entry.turns) = (0, 0);
        let memory = entry.whole_memory();
        self.count_memory(id, memory);
    }

    /// Sets the bytes that the driver holds for the slot.
    pub(crate) fn set_user_memory(&mut self, id: AssociationId, bytes: usize) {
        let Some(entry) = self.entry_mut(id).filter(|e| e.user_memory != bytes) else { return };
        let before = std::mem::replace(&mut entry.user_memory, bytes);
        let memory = entry.memory + bytes - before;
        self.count_memory(id, memory);
    }

    #[inline]
    fn count_memory(&mut self, id: AssociationId, memory: usize) {
        let Some(entry) = self.entry_mut(id) else { return };
        let before = std::mem::replace(&mut entry.memory, memory);
        let host = entry.host;
        self.memory = self.memory + memory - before;
        if let Some(used) = self.hosts.get_mut(host) {
            let was_pressed = Pressure::of(used.memory, self.budget_of_host) > Pressure::Calm;
            used.memory = used.memory + memory - before;
            let is_pressed = Pressure::of(used.memory, self.budget_of_host) > Pressure::Calm;
            self.pressed = self.pressed + usize::from(is_pressed) - usize::from(was_pressed);
        }
    }

    /// Returns the bytes of the slots of the host with this address.
    pub(crate) fn memory_of_host(&self, address: IpAddr) -> usize {
        self.by_host.get(&host_of(address)).map_or(0, |&index| self.hosts[index].memory)
    }

    /// Returns the memory pressure on the host with this address.
    pub(crate) fn pressure_of_host(&self, address: IpAddr) -> Pressure {
        // No host holds more memory than all hosts together. So if all hosts together are within one host's budget, no lookup is
        // needed.
        if Pressure::of(self.memory, self.budget_of_host) == Pressure::Calm {
            return Pressure::Calm;
        }
        Pressure::of(self.memory_of_host(address), self.budget_of_host)
    }

    /// Returns the memory pressure on this slot's host.
    #[inline]
    pub(crate) fn pressure_beside(&self, id: AssociationId) -> Pressure {
        if self.pressed == 0 {
            return Pressure::Calm;
        }
        self.host_use(id).map_or(Pressure::Calm, |used| Pressure::of(used.memory, self.budget_of_host))
    }

    /// Returns the bytes of all slots.
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
        entry.timeout = timeout;
        // Almost every packet postpones a timer. The entry in the queue is updated only when its old time has come.
        if entry.queued <= timeout && timeout != Time::NEVER || entry.queued == timeout {
            return;
        }
        let old = std::mem::replace(&mut entry.queued, timeout);
        if old != Time::NEVER {
            self.timeouts.remove(&(old, id));
        }
        if timeout != Time::NEVER {
            self.timeouts.insert((timeout, id));
        }
    }

    /// Returns a time at or before the first timeout.
    pub(crate) fn next_timeout(&self) -> Time {
        self.timeouts.first().map_or(Time::NEVER, |t| t.0)
    }

    /// Removes from the queue the first association whose timer has expired, and returns it. The caller must set its next timer.
    pub(crate) fn pop_expired(&mut self, now: Time) -> Option<AssociationId> {
        while self.timeouts.first().is_some_and(|t| t.0 <= now) {
            let (_, id) = self.timeouts.pop_first()?;
            let Some(entry) = self.entry_mut(id) else { continue };
            if entry.timeout <= now {
                (entry.timeout, entry.queued) = (Time::NEVER, Time::NEVER);
                return Some(id);
            }
            entry.queued = entry.timeout;
            let queued = entry.queued;
            self.timeouts.insert((queued, id));
        }
        None
    }

    /// Reports whether the association waits in the queue of senders.
    pub(crate) fn is_ready(&self, id: AssociationId) -> bool {
        self.entry(id).is_some_and(|e| e.ready)
    }

    pub(crate) fn check_invariants(&self) {
        let (mut all, mut hosts) = (0, HashMap::<usize, (usize, usize)>::new());
        for (_, entry) in &self.entries {
            let (is_queued, has_timeout) = (entry.queued != Time::NEVER, entry.timeout != Time::NEVER);
            assert!(entry.queued <= entry.timeout && is_queued == has_timeout, "a timer comes too late");
            let memory = entry.memory;
            let recounted = entry.whole_memory();
            if entry.buffered != NOT_COUNTED {
                let buffered = entry.slot.buffered();
                assert!(
                    buffered < entry.buffered + COUNTED_GROWTH,
                    "{buffered} bytes buffered and not counted"
                );
                assert!(
                    buffered + COUNTED_SHRINKAGE > entry.buffered,
                    "{buffered} bytes buffered, and more counted"
                );
            }
            match (entry.turns, entry.works) {
                (0, 0) if !entry.ready => assert_eq!(memory, recounted, "bytes of an association"),
                _ => assert!(
                    memory + COUNTED_MARGIN > recounted && memory < recounted + COUNTED_EXCESS,
                    "{memory} bytes counted of {recounted}"
                ),
            }
            all += memory;
            if entry.host != NO_HOST {
                let (memory_of_host, slots) = hosts.entry(entry.host).or_default();
                (*memory_of_host, *slots) = (*memory_of_host + memory, *slots + 1);
            }
        }
        assert_eq!(self.memory, all, "bytes of all associations");
        let is_pressed = |used: &HostUse| Pressure::of(used.memory, self.budget_of_host) > Pressure::Calm;
        let pressed = self.hosts.iter().filter(|(_, used)| is_pressed(used)).count();
        assert_eq!(self.pressed, pressed, "hosts whose memory is short");
        assert_eq!((self.hosts.len(), self.by_host.len()), (hosts.len(), hosts.len()), "hosts");
        for (index, used) in &self.hosts {
            assert_eq!(
                Some(&(used.memory, used.slots)),
                hosts.get(&index),
                "bytes of {}",
                Ipv6Addr::from(used.host)
            );
            assert_eq!(self.by_host.get(&used.host), Some(&index), "the index of hosts");
        }
        for id in self.by_tag.values().chain(self.by_peer.values()).chain(self.timeouts.iter().map(|t| &t.1))
        {
            assert!(self.entry(*id).is_some(), "an index leads to {id:?}, which is gone");
        }
    }
}

/// Returns the tag and the peers that lead from a packet to the slot.
fn names(slot: &Slot) -> Names {
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
