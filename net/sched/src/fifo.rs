//! First in, first out, with tail drop. Behind a [`Pace`](crate::Pace) with a burst, it acts like Linux's token bucket filter.

use std::collections::VecDeque;

use base::Time;

use crate::packet::Packet;
use crate::queue::{Backlog, Counters, Queue};

/// One queue for all packets.
#[derive(Debug)]
pub struct Fifo<T> {
    /// Limit on the packets in the queue.
    limit: usize,
    packets: VecDeque<Packet<T>>,
    backlog: Backlog,
    counters: Counters,
}

impl<T> Fifo<T> {
    /// Creates an empty queue for up to `limit` packets.
    pub fn new(limit: usize) -> Fifo<T> {
        Fifo { limit, packets: VecDeque::new(), backlog: Backlog::default(), counters: Counters::default() }
    }
}

impl<T> Queue<T> for Fifo<T> {
    fn enqueue(&mut self, _now: Time, packet: Packet<T>) {
        self.counters.offered += 1;
        if self.packets.len() >= self.limit {
            return self.counters.on_dropped(&packet);
        }
        self.backlog.add(packet.length);
        self.packets.push_back(packet);
    }

    fn dequeue(&mut self, _now: Time) -> Option<Packet<T>> {
        let packet = self.packets.pop_front()?;
        self.backlog.remove(packet.length);
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

    #[test]
    fn packets_leave_in_order_and_those_beyond_the_limit_are_dropped() {
        let mut queue = Fifo::new(3);
        (0..5).for_each(|n| queue.enqueue(Time::ZERO, data(n, 1, 100)));
        assert_eq!(queue.backlog(), Backlog { packets: 3, bytes: 300 });
        assert_eq!(drained(&mut queue), [0, 1, 2]);
        assert_eq!(queue.counters(), Counters { offered: 5, sent: 3, dropped: 2, ..Counters::default() });
    }
}
