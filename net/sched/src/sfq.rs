//! Stochastic fair queueing, as in Linux (`tc qdisc add … sfq`).
//!
//! Flows are hashed into buckets. A bucket with packets has a slot, and slots take turns of one quantum. When the queue is full,
//! the slot with the most packets loses its last packet. If no slot has two packets, the slot whose turn is next loses its only
//! packet. If a packet's bucket needs a slot and none is free, the packet is dropped. At each interval of `perturb`, the hash
//! changes and the waiting packets are sorted again.
//!
//! Invariants: a slot in use has packets. Each length has a list of the slots with that length, and free slots are in the list of
//! length 0. `longest` is the greatest length of a slot, in packets. Begin at [`Sfq::new`].

use std::collections::VecDeque;
use std::time::Duration;

use base::Time;

use crate::hash::FlowHash;
use crate::packet::Packet;
use crate::queue::{Backlog, Counters, Queue};

/// Limits and parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SfqConfig {
    /// Limit on the packets in all slots together.
    pub packets: usize,
    /// Limit on the packets in one slot.
    pub depth: usize,
    /// Limit on the buckets that have packets at the same time.
    pub slots: usize,
    /// Number of buckets.
    pub buckets: usize,
    /// Quantum: bytes of one turn, from the IP header on.
    pub quantum: usize,
    /// Interval at which the hash changes; `None`: never.
    pub perturb: Option<Duration>,
}

impl Default for SfqConfig {
    /// Returns the defaults of `tc`'s `sfq perturb 10` on Ethernet. Lengths leave out the Ethernet header. The number of slots
    /// exceeds the limit on packets by one. If the queue is full and every slot in use has one packet, a newcomer still gets a
    /// slot, and a waiting packet is dropped. The option `limit 127` would remove the additional slot.
    fn default() -> Self {
        SfqConfig {
            packets: 127,
            depth: 127,
            slots: 128,
            buckets: 1024,
            quantum: 1500,
            perturb: Some(Duration::from_secs(10)),
        }
    }
}

/// Marker of a bucket without a slot, and of the end of a list.
const NONE: usize = usize::MAX;

#[derive(Debug)]
struct Slot<T> {
    packets: VecDeque<Packet<T>>,
    bucket: usize,
    /// Bytes left of the slot's turn. The last packet may make the value negative.
    allot: i64,
    /// The slot whose turn is next, in a ring.
    next: usize,
    /// Neighbours in the list of slots with the same length.
    up: usize,
    down: usize,
}

/// Queue with stochastic fair queueing.
#[derive(Debug)]
pub struct Sfq<T> {
    config: SfqConfig,
    hash: FlowHash,
    perturb_at: Time,
    /// The slot of each bucket.
    buckets: Vec<usize>,
    slots: Vec<Slot<T>>,
    /// The first slot of each length.
    by_length: Vec<usize>,
    longest: usize,
    /// The slot whose turn is last.
    tail: usize,
    backlog: Backlog,
    counters: Counters,
}

impl<T> Sfq<T> {
    /// Creates an empty queue. `seed` initialises the hash.
    pub fn new(config: SfqConfig, seed: u64) -> Sfq<T> {
        let slots = (0..config.slots).map(|n| Slot {
            packets: VecDeque::new(),
            bucket: NONE,
            allot: 0,
            next: NONE,
            up: if n == 0 { NONE } else { n - 1 },
            down: if n + 1 == config.slots { NONE } else { n + 1 },
        });
        let mut by_length = vec![NONE; config.depth + 1];
        by_length[0] = if config.slots == 0 { NONE } else { 0 };
        Sfq {
            hash: FlowHash::new(seed),
            perturb_at: config.perturb.map_or(Time::NEVER, |every| Time::ZERO + every),
            buckets: vec![NONE; config.buckets],
            slots: slots.collect(),
            by_length,
            longest: 0,
            tail: NONE,
            backlog: Backlog::default(),
            counters: Counters::default(),
            config,
        }
    }

    /// Removes a slot from the list of its length.
    fn unlink(&mut self, slot: usize) {
        let (up, down, length) = (self.slots[slot].up, self.slots[slot].down, self.length(slot));
        match up {
            NONE => self.by_length[length] = down,
            up => self.slots[up].down = down,
        }
        if down != NONE {
            self.slots[down].up = up;
        }
    }

    /// Puts a slot at the head of the list of its length.
    fn link(&mut self, slot: usize) {
        let length = self.length(slot);
        let first = std::mem::replace(&mut self.by_length[length], slot);
        if first != NONE {
            self.slots[first].up = slot;
        }
        (self.slots[slot].up, self.slots[slot].down) = (NONE, first);
    }

    fn length(&self, slot: usize) -> usize {
        self.slots[slot].packets.len()
    }

    fn append(&mut self, slot: usize, packet: Packet<T>) {
        self.unlink(slot);
        self.backlog.add(packet.length);
        self.slots[slot].packets.push_back(packet);
        self.longest = self.longest.max(self.length(slot));
        self.link(slot);
    }

    fn remove(&mut self, slot: usize, is_first: bool) -> Option<Packet<T>> {
        self.unlink(slot);
        let packets = &mut self.slots[slot].packets;
        let packet = if is_first { packets.pop_front() } else { packets.pop_back() };
        self.link(slot);
        if self.longest > 0 && self.by_length[self.longest] == NONE {
            self.longest -= 1;
        }
        if self.length(slot) == 0 {
            self.buckets[self.slots[slot].bucket] = NONE;
        }
        self.backlog.remove(packet.as_ref()?.length);
        packet
    }

    /// Sorts a packet into the slot of its bucket. Returns the packet if it has no place.
    fn sort(&mut self, packet: Packet<T>) -> Result<(), Packet<T>> {
        let bucket = self.hash.bucket(&packet.view.flow, self.config.buckets);
        let mut slot = self.buckets[bucket];
        if slot == NONE {
            slot = self.by_length[0];
            if slot == NONE {
                return Err(packet);
            }
            self.buckets[bucket] = slot;
            self.slots[slot].bucket = bucket;
        } else if self.length(slot) >= self.config.depth {
            return Err(packet);
        }
        self.append(slot, packet);
        if self.length(slot) == 1 {
            self.slots[slot].allot = self.config.quantum as i64;
            self.join_ring(slot);
        }
        Ok(())
    }

    /// Gives a slot the last turn in the ring. If newcomers came first, other slots might never have their turn.
    fn join_ring(&mut self, slot: usize) {
        let first = match self.tail {
            NONE => slot,
            tail => std::mem::replace(&mut self.slots[tail].next, slot),
        };
        self.slots[slot].next = first;
        self.tail = slot;
    }

    /// Removes the slot whose turn it is from the ring.
    fn leave_ring(&mut self, slot: usize) {
        if self.tail == slot {
            self.tail = NONE;
        } else {
            self.slots[self.tail].next = self.slots[slot].next;
        }
    }

    /// Drops the last packet of the slot with the most packets. If no slot has two packets, the slot whose turn is next loses its
    /// only packet.
    fn drop_one(&mut self) {
        let slot = match self.longest {
            0 => return,
            1 => self.slots[self.tail].next,
            longest => self.by_length[longest],
        };
        if self.length(slot) == 1 {
            self.leave_ring(slot);
        }
        if let Some(packet) = self.remove(slot, false) {
            self.counters.on_dropped(&packet);
        }
    }

    /// Changes the hash if the interval has ended, and sorts the waiting packets again.
    fn perturb(&mut self, now: Time) {
        let Some(every) = self.config.perturb else { return };
        if now < self.perturb_at {
            return;
        }
        self.perturb_at = now + every;
        self.hash.perturb();
        let mut waiting = Vec::with_capacity(self.backlog.packets);
        for slot in 0..self.slots.len() {
            while self.length(slot) > 0 {
                waiting.extend(self.remove(slot, true));
            }
        }
        self.tail = NONE;
        for packet in waiting {
            if let Err(packet) = self.sort(packet) {
                self.counters.on_dropped(&packet);
            }
        }
    }
}

impl<T> Queue<T> for Sfq<T> {
    fn enqueue(&mut self, now: Time, packet: Packet<T>) {
        self.perturb(now);
        self.counters.offered += 1;
        match self.sort(packet) {
            Err(packet) => self.counters.on_dropped(&packet),
            Ok(()) if self.backlog.packets > self.config.packets => self.drop_one(),
            Ok(()) => {}
        }
    }

    fn dequeue(&mut self, now: Time) -> Option<Packet<T>> {
        self.perturb(now);
        if self.tail == NONE {
            return None;
        }
        let mut slot = self.slots[self.tail].next;
        while self.slots[slot].allot <= 0 {
            self.slots[slot].allot += self.config.quantum.max(1) as i64;
            self.tail = slot;
            slot = self.slots[slot].next;
        }
        let packet = self.remove(slot, true)?;
        self.slots[slot].allot -= packet.length as i64;
        if self.length(slot) == 0 {
            self.leave_ring(slot);
        }
        self.counters.sent += 1;
        Some(packet)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{data, drained};

    fn still() -> SfqConfig {
        SfqConfig { perturb: None, buckets: 65_536, ..SfqConfig::default() }
    }

    #[test]
    fn flows_take_turns() {
        let mut queue = Sfq::new(still(), 1);
        for n in [10, 11, 12, 20, 21, 30] {
            queue.enqueue(Time::ZERO, data(n, n / 10, 1500));
        }
        assert_eq!(drained(&mut queue), [10, 20, 30, 11, 21, 12]);
    }

    #[test]
    fn a_turn_is_a_quantum_of_bytes_whatever_the_packets_lengths() {
        let mut queue = Sfq::new(SfqConfig { packets: 1000, depth: 1000, ..still() }, 1);
        for n in 0..40 {
            queue.enqueue(Time::ZERO, data(n, 1, 1500));
            (0..10).for_each(|m| queue.enqueue(Time::ZERO, data(1000 + n * 10 + m, 2, 150)));
        }
        let first: Vec<_> = drained(&mut queue).into_iter().take(200).collect();
        let long = first.iter().filter(|n| **n < 1000).count();
        assert!((16..=20).contains(&long), "{long} long packets among {} small ones", 200 - long);
    }

    #[test]
    fn when_full_the_longest_slot_loses_its_last_packet() {
        let mut queue = Sfq::new(SfqConfig { packets: 4, ..still() }, 1);
        for n in [10, 11, 12, 20, 30] {
            queue.enqueue(Time::ZERO, data(n, n / 10, 1500));
        }
        assert_eq!(drained(&mut queue), [10, 20, 30, 11]);
    }

    #[test]
    fn when_full_with_one_packet_per_flow_the_next_packet_is_dropped() {
        let mut queue = Sfq::new(SfqConfig { packets: 3, ..still() }, 1);
        (1..=4).for_each(|n| queue.enqueue(Time::ZERO, data(n, n, 100)));
        assert_eq!(drained(&mut queue), [2, 3, 4]);
    }

    #[test]
    fn with_the_defaults_of_tc_a_new_flow_among_127_one_packet_flows_is_accepted() {
        let config = SfqConfig { buckets: 65_536, ..SfqConfig::default() };
        let mut queue = Sfq::new(config, 2);
        (0..140).for_each(|n| queue.enqueue(Time::ZERO, data(n, n, 100)));
        assert_eq!(drained(&mut queue), (13..140).collect::<Vec<_>>());
    }

    #[test]
    fn without_a_slot_a_newcomer_is_dropped() {
        let mut queue = Sfq::new(SfqConfig { slots: 2, ..still() }, 1);
        (1..=3).for_each(|n| queue.enqueue(Time::ZERO, data(n, n, 100)));
        assert_eq!(drained(&mut queue), [1, 2]);
        assert_eq!(queue.counters().dropped, 1);
    }

    #[test]
    fn a_slot_is_no_deeper_than_its_depth() {
        let mut queue = Sfq::new(SfqConfig { depth: 2, ..still() }, 1);
        (1..=3).for_each(|n| queue.enqueue(Time::ZERO, data(n, 1, 100)));
        assert_eq!(drained(&mut queue), [1, 2]);
    }

    #[test]
    fn flows_in_one_bucket_share_a_turn_until_the_hash_changes() {
        let config = SfqConfig { buckets: 2, perturb: Some(Duration::from_secs(10)), ..still() };
        let together = |seed: u64, at: Time| {
            let mut queue = Sfq::new(config, seed);
            for n in [10, 11, 20, 21] {
                queue.enqueue(Time::ZERO, data(n, n / 10, 1500));
            }
            let order: Vec<_> = std::iter::from_fn(|| queue.dequeue(at)).map(|packet| packet.body).collect();
            order == [10, 11, 20, 21]
        };
        let seed =
            (0..100).find(|seed| together(*seed, Time::ZERO)).expect("two flows meet in one of two buckets");
        let apart =
            (0..100).any(|seed| together(seed, Time::ZERO) && !together(seed, Time::from_millis(10_000)));
        assert!(apart && together(seed, Time::from_millis(9_999)));
    }
}
