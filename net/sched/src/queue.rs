//! Common interface of all queues.

use base::Time;

use crate::packet::Packet;

/// Packets that wait for a link.
pub trait Queue<T> {
    /// Takes a packet. If a limit is exceeded, this packet or others are dropped and counted. `now` must never go back.
    fn enqueue(&mut self, now: Time, packet: Packet<T>);

    /// Returns the packet that leaves next; `None` only if the queue is empty.
    fn dequeue(&mut self, now: Time) -> Option<Packet<T>>;

    /// Returns the backlog.
    fn backlog(&self) -> Backlog;

    /// Returns the counters.
    fn counters(&self) -> Counters;
}

/// Backlog of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Packets.
    pub packets: usize,
    /// Bytes, from the IP headers on.
    pub bytes: usize,
}

impl Backlog {
    pub(crate) fn add(&mut self, length: usize) {
        self.packets += 1;
        self.bytes += length;
    }

    pub(crate) fn remove(&mut self, length: usize) {
        self.packets -= 1;
        self.bytes -= length;
    }
}

impl std::ops::Add for Backlog {
    type Output = Backlog;

    fn add(self, other: Backlog) -> Backlog {
        Backlog { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

/// Counters of a queue. Invariant: offered = sent + dropped + waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets that arrived.
    pub offered: u64,
    /// Packets that left.
    pub sent: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Dropped packets that do not count as data.
    pub dropped_control: u64,
    /// Packets marked with ECN instead of being dropped.
    pub marked: u64,
}

impl Counters {
    pub(crate) fn on_dropped<T>(&mut self, packet: &Packet<T>) {
        self.dropped += 1;
        self.dropped_control += u64::from(!packet.view.has_data);
    }
}

impl std::ops::Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        Counters {
            offered: self.offered + other.offered,
            sent: self.sent + other.sent,
            dropped: self.dropped + other.dropped,
            dropped_control: self.dropped_control + other.dropped_control,
            marked: self.marked + other.marked,
        }
    }
}
