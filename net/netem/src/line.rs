//! A direction of a link that holds its packets until they are due.
//!
//! Invariants: no packet leaves before it is due. Packets that are due at the same time leave in the order in which they entered.
//! The held bytes never exceed [`HELD_BYTES_MAX`]. Begin at [`Line::enqueue`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::{Ecn, Time};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::config::DirectionConfig;
use crate::counters::Counters;
use crate::direction::{Arrival, Fate, LinkDirection, LossCause};

/// Limit on the memory of the packets that one line holds, in bytes. The memory includes packets in the queue and on the wire,
/// and 128 additional bytes for each packet. A packet is lost if the packet and a copy of it would exceed the limit
/// ([`LossCause::Room`]). The limit suffices for packets of 1,500 bytes at 10 Gbit/s with a delay of 190 ms.
pub const HELD_BYTES_MAX: usize = 256 << 20;

/// Assumed memory of a held packet in addition to its length, in bytes.
const HELD_OVERHEAD: usize = 128;

/// One direction of a link that holds packets of type `T`.
#[derive(Debug)]
pub struct Line<T> {
    config: DirectionConfig,
    direction: LinkDirection,
    rng: ChaCha12Rng,
    counters: Counters,
    held: BinaryHeap<Reverse<Held<T>>>,
    held_bytes: usize,
    sequence: u64,
}

/// A packet that leaves the line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery<T> {
    /// The packet as it was enqueued.
    pub packet: T,
    /// Time at which the packet was due.
    pub due: Time,
    /// ECN codepoint with which the packet leaves.
    pub ecn: Ecn,
    /// Bit to flip, counted from the first bit of the IP packet.
    pub flip: Option<usize>,
}

#[derive(Debug)]
struct Held<T> {
    sequence: u64,
    length: usize,
    delivery: Delivery<T>,
}

impl<T> Held<T> {
    fn key(&self) -> (Time, u64) {
        (self.delivery.due, self.sequence)
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T: Clone> Line<T> {
    /// Creates an empty line. The same seed and the same packets at the same times give the same fates.
    pub fn new(config: DirectionConfig, seed: u64) -> Line<T> {
        Line {
            config,
            direction: LinkDirection::default(),
            rng: ChaCha12Rng::seed_from_u64(seed),
            counters: Counters::default(),
            held: BinaryHeap::new(),
            held_bytes: 0,
            sequence: 0,
        }
    }

    /// Returns the settings.
    pub fn config(&self) -> &DirectionConfig {
        &self.config
    }

    /// Changes the settings. Packets that the line already holds keep their fate.
    pub fn set_config(&mut self, config: DirectionConfig) {
        self.config = config;
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the numbers of packets and bytes in the queue, including the packet on the wire.
    pub fn queue(&mut self, now: Time) -> (usize, usize) {
        self.direction.queue(now)
    }

    /// Returns the number of held packets, in the queue and on the wire.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes a packet of `length` bytes, counted from the IP header on. `now` must never go back.
    ///
    /// A packet longer than the MTU is lost. The caller may send it again in fragments.
    ///
    /// # Errors
    /// The cause of the loss.
    pub fn enqueue(&mut self, now: Time, length: usize, ecn: Ecn, packet: T) -> Result<(), LossCause> {
        if let Some(cause) = self.refuses(length) {
            self.counters.refuse(length, cause);
            return Err(cause);
        }
        let fate = self.direction.offer(now, &self.config, length, ecn, &mut self.rng, &mut self.counters);
        match fate {
            Fate::Lost(cause) => Err(cause),
            Fate::Passes(passage) => {
                if let Some(copy) = passage.copy {
                    self.hold(copy, length, passage.ecn, packet.clone());
                }
                self.hold(passage.first, length, passage.ecn, packet);
                Ok(())
            }
        }
    }

    fn refuses(&self, length: usize) -> Option<LossCause> {
        if self.config.cut {
            Some(LossCause::Cut)
        } else if length > self.config.mtu {
            Some(LossCause::Length)
        } else {
            // The packet may be duplicated, so there must be room for two packets.
            let more = 2 * (length + HELD_OVERHEAD);
            (self.held_bytes + more > HELD_BYTES_MAX).then_some(LossCause::Room)
        }
    }

    fn hold(&mut self, arrival: Arrival, length: usize, ecn: Ecn, packet: T) {
        self.held_bytes += length + HELD_OVERHEAD;
        self.sequence += 1;
        let delivery = Delivery { packet, due: arrival.at, ecn, flip: arrival.flip };
        self.held.push(Reverse(Held { sequence: self.sequence, length, delivery }));
    }

    /// Returns the time at which the next packet is due; [`Time::NEVER`] if the line is empty.
    pub fn next_wakeup(&self) -> Time {
        self.held.peek().map_or(Time::NEVER, |held| held.0.delivery.due)
    }

    /// Returns the next packet that is due; `None` if no packet is due.
    pub fn dequeue(&mut self, now: Time) -> Option<Delivery<T>> {
        if self.next_wakeup() > now {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        self.held_bytes -= held.length + HELD_OVERHEAD;
        Some(held.delivery)
    }
}

#[cfg(test)]
mod tests;
