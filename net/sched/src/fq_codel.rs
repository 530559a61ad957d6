//! Fair queueing with CoDel (RFC 8290), as in Linux: `tc qdisc add … fq_codel`.
//!
//! Flows are hashed into queues. New queues precede old ones for one quantum. Each queue has its own CoDel state. When a limit is
//! exceeded, the queue with the most bytes loses half of its bytes from its head, but no more than 64 packets. Invariant: a queue
//! is in one of the two lists, or it has no packets. Begin at [`FqCodel::new`].

use std::collections::VecDeque;
use std::time::Duration;

use base::{Ecn, Time};

use crate::codel::{Codel, Verdict};
use crate::hash::FlowHash;
use crate::packet::Packet;
use crate::queue::{Backlog, Counters, Queue};

/// Limit on the packets that are dropped together when a limit is exceeded.
const BATCH: u32 = 64;

/// Size and delay settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FqCodelConfig {
    /// Limit on the packets in all queues together.
    pub packets: usize,
    /// Limit on the bytes in all queues together.
    pub bytes: usize,
    /// Number of queues.
    pub queues: usize,
    /// Quantum: bytes of one turn, from the IP header on.
    pub quantum: usize,
    /// Length of the longest packet in bytes. CoDel drops nothing while all queues together hold no more bytes than this length.
    pub mtu: usize,
    /// Target delay of packets.
    pub target: Duration,
    /// Time for which the delay may exceed the target before packets are dropped.
    pub interval: Duration,
    /// True if ECN-capable packets are marked instead of being dropped.
    pub marks: bool,
}

impl Default for FqCodelConfig {
    /// Returns the defaults of `tc`'s `fq_codel` on Ethernet. Lengths leave out the Ethernet header.
    fn default() -> Self {
        FqCodelConfig {
            packets: 10_240,
            bytes: 32 << 20,
            queues: 1024,
            quantum: 1500,
            mtu: 1500,
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            marks: true,
        }
    }
}

#[derive(Debug)]
struct FlowQueue<T> {
    packets: VecDeque<(Time, Packet<T>)>,
    bytes: usize,
    /// Bytes left of the queue's turn. The last packet may make the value negative.
    deficit: i64,
    is_listed: bool,
    codel: Codel,
}

/// Queue with fair queueing and CoDel.
#[derive(Debug)]
pub struct FqCodel<T> {
    config: FqCodelConfig,
    hash: FlowHash,
    queues: Vec<FlowQueue<T>>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    backlog: Backlog,
    counters: Counters,
}

impl<T> FqCodel<T> {
    /// Creates an empty queue. `seed` initialises the hash.
    pub fn new(config: FqCodelConfig, seed: u64) -> FqCodel<T> {
        let queue = |_| FlowQueue {
            packets: VecDeque::new(),
            bytes: 0,
            deficit: 0,
            is_listed: false,
            codel: Codel::new(config.target, config.interval),
        };
        FqCodel {
            hash: FlowHash::new(seed),
            queues: (0..config.queues.max(1)).map(queue).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            backlog: Backlog::default(),
            counters: Counters::default(),
            config,
        }
    }

    fn pop(&mut self, queue: usize) -> Option<(Time, Packet<T>)> {
        let queue = &mut self.queues[queue];
        let (since, packet) = queue.packets.pop_front()?;
        queue.bytes -= packet.length;
        self.backlog.remove(packet.length);
        Some((since, packet))
    }

    /// Drops half of the longest queue's bytes from its head, but no more than [`BATCH`] packets.
    fn drop_batch(&mut self) {
        let longest = (0..self.queues.len()).max_by_key(|n| (self.queues[*n].bytes, std::cmp::Reverse(*n)));
        let Some(longest) = longest else { return };
        let enough = self.queues[longest].bytes / 2;
        let (mut bytes, mut dropped) = (0, 0);
        while let Some((_, packet)) = self.pop(longest) {
            bytes += packet.length;
            dropped += 1;
            self.counters.on_dropped(&packet);
            if bytes >= enough || dropped == BATCH {
                break;
            }
        }
        self.queues[longest].codel.on_dropped_otherwise(dropped);
    }

    /// Takes packets from the head of a queue, and returns the first one that CoDel does not drop.
    fn next_of(&mut self, queue: usize, now: Time) -> Option<Packet<T>> {
        let mut is_first = true;
        loop {
            let Some((since, mut packet)) = self.pop(queue) else {
                self.queues[queue].codel.on_empty();
                return None;
            };
            let is_short = self.backlog.bytes <= self.config.mtu;
            if self.queues[queue].codel.judge(now, since, is_short, is_first) == Verdict::Pass {
                return Some(packet);
            }
            if self.config.marks && packet.ecn != Ecn::NotEct {
                packet.ecn = Ecn::Ce;
                self.counters.marked += 1;
                return Some(packet);
            }
            self.counters.on_dropped(&packet);
            is_first = false;
        }
    }

    /// Returns the queue whose turn it is, and whether it is a new queue.
    fn turn(&mut self) -> Option<(usize, bool)> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let queue = *list.front()?;
            if self.queues[queue].deficit > 0 {
                return Some((queue, is_new));
            }
            self.queues[queue].deficit += self.config.quantum.max(1) as i64;
            list.pop_front();
            self.old.push_back(queue);
        }
    }
}

impl<T> Queue<T> for FqCodel<T> {
    fn enqueue(&mut self, now: Time, packet: Packet<T>) {
        self.counters.offered += 1;
        let place = self.hash.bucket(&packet.view.flow, self.queues.len());
        let queue = &mut self.queues[place];
        self.backlog.add(packet.length);
        queue.bytes += packet.length;
        queue.packets.push_back((now, packet));
        if !queue.is_listed {
            queue.is_listed = true;
            queue.deficit = self.config.quantum as i64;
            self.new.push_back(place);
        }
        if self.backlog.packets > self.config.packets || self.backlog.bytes > self.config.bytes {
            self.drop_batch();
        }
    }

    fn dequeue(&mut self, now: Time) -> Option<Packet<T>> {
        loop {
            let (queue, is_new) = self.turn()?;
            if let Some(packet) = self.next_of(queue, now) {
                self.queues[queue].deficit -= packet.length as i64;
                self.counters.sent += 1;
                return Some(packet);
            }
            let list = if is_new { &mut self.new } else { &mut self.old };
            list.pop_front();
            // A new queue that became empty moves to the old queues. Otherwise its next packet would make it new again, ahead of
            // the old queues.
            if is_new && !self.old.is_empty() {
                self.old.push_back(queue);
            } else {
                self.queues[queue].is_listed = false;
            }
        }
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

    const MS: fn(u64) -> Time = Time::from_millis;

    fn queue(config: FqCodelConfig) -> FqCodel<u32> {
        FqCodel::new(FqCodelConfig { queues: 65_536, ..config }, 1)
    }

    #[test]
    fn a_new_flow_goes_before_the_old_ones_for_a_quantum() {
        let mut queue = queue(FqCodelConfig::default());
        (10..16).for_each(|n| queue.enqueue(MS(0), data(n, 1, 1500)));
        let mut order: Vec<_> = (0..2).map(|_| queue.dequeue(MS(0)).unwrap().body).collect();
        (20..23).for_each(|n| queue.enqueue(MS(0), data(n, 2, 1500)));
        order.extend(drained(&mut queue));
        assert_eq!(order, [10, 11, 20, 21, 12, 22, 13, 14, 15]);
    }

    #[test]
    fn a_new_flow_that_ran_empty_waits_for_the_old_ones() {
        let mut queue = queue(FqCodelConfig::default());
        (10..16).for_each(|n| queue.enqueue(MS(0), data(n, 1, 500)));
        queue.enqueue(MS(0), data(20, 2, 100));
        let mut order: Vec<_> = (0..5).map(|_| queue.dequeue(MS(0)).unwrap().body).collect();
        queue.enqueue(MS(0), data(21, 2, 100));
        order.extend(drained(&mut queue));
        assert_eq!(order, [10, 11, 12, 20, 13, 14, 15, 21]);
    }

    #[test]
    fn when_full_the_longest_queue_drops_half_of_its_packets_from_its_head() {
        let mut queue = queue(FqCodelConfig { packets: 10, ..FqCodelConfig::default() });
        queue.enqueue(MS(0), data(20, 2, 1000));
        (0..10).for_each(|n| queue.enqueue(MS(0), data(n, 1, 1000)));
        assert_eq!(drained(&mut queue), [20, 5, 6, 7, 8, 9]);
        assert_eq!(queue.counters().dropped, 5);
    }

    /// Serves one packet per 10 ms for two seconds, from a queue that is never empty.
    fn overloaded(ecn: Ecn) -> Counters {
        let mut queue = queue(FqCodelConfig::default());
        let packet = |n| Packet { ecn, ..data(n, 1, 1500) };
        (0..100).for_each(|n| queue.enqueue(MS(0), packet(n)));
        for n in 1..200 {
            queue.enqueue(MS(n * 10), packet(100));
            let sent = queue.dequeue(MS(n * 10)).unwrap();
            assert!(sent.ecn == ecn || sent.ecn == Ecn::Ce);
        }
        queue.counters()
    }

    #[test]
    fn packets_that_wait_too_long_are_dropped_or_marked() {
        let (dropped, marked) = (overloaded(Ecn::NotEct), overloaded(Ecn::Ect0));
        assert!(dropped.dropped > 20 && dropped.marked == 0, "{dropped:?}");
        assert!(marked.marked > 20 && marked.dropped == 0, "{marked:?}");
    }
}
