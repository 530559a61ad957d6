//! Two engines and the network between them, in virtual time. The network loses, duplicates, delays and
//! damages packets. A random generator with a constant seed chooses the affected packets. A filter can drop
//! further packets.
//!
//! Invariant: with the same engines and the same calls, the same faults occur. Begin at
//! [`Network::run_until`].

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::stack::{Effort, End, Features, Message, Now, Stack, Who};

/// One-way delay.
const DELAY: Duration = Duration::from_millis(20);

/// Maximum number of rounds at one moment of virtual time. An engine that never advances a due timer exceeds
/// this number.
const ROUNDS_AT_ONCE: usize = 100_000;

/// Rates of faults: numbers of affected packets per thousand packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) late: u64,
    pub(crate) damaged: u64,
}

/// One end: an engine, and the simulated program that uses it.
pub(crate) struct Side {
    pub(crate) stack: Box<dyn Stack>,
    /// Messages that the program has not yet handed to the engine.
    pub(crate) outgoing: VecDeque<Message>,
    pub(crate) handed_over: usize,
    /// Received messages, by stream.
    pub(crate) received: BTreeMap<u16, Vec<Vec<u8>>>,
    pub(crate) reads: bool,
}

type Filter = Box<dyn FnMut(usize, &[u8]) -> bool>;

/// The network with its two ends. End 0 opens the association.
pub(crate) struct Network {
    pub(crate) now: Now,
    pub(crate) sides: [Side; 2],
    on_the_way: BTreeMap<(Now, u64), (usize, Vec<u8>)>,
    sequence: u64,
    faults: Faults,
    random: u64,
    /// Predicate that decides whether a packet passes. Its first argument is the number of the sending end.
    filter: Option<Filter>,
}

impl Network {
    pub(crate) fn new(who: [Who; 2], features: Features) -> Network {
        fastrand::seed(7);
        let sides = [0, 1].map(|side: u8| Side::new(who[usize::from(side)].stack(features, side)));
        let (now, sequence, random) = (Duration::from_millis(1), 0, 0x9e37_79b9_7f4a_7c15);
        let on_the_way = BTreeMap::new();
        Network { now, sides, on_the_way, sequence, faults: Faults::default(), random, filter: None }
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Drops each packet for which `passes` returns false. The first argument of `passes` is the number of
    /// the sending end.
    pub(crate) fn set_filter(&mut self, passes: impl FnMut(usize, &[u8]) -> bool + 'static) {
        self.filter = Some(Box::new(passes));
    }

    /// Replaces the engine of `side` with `stack`, which has no state yet.
    pub(crate) fn replace(&mut self, side: usize, stack: Box<dyn Stack>) {
        self.sides[side] = Side::new(stack);
    }

    /// Runs until `done` returns true, for up to `limit`. Reports whether `done` returned true.
    pub(crate) fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&[Side; 2]) -> bool) -> bool {
        let end = self.now + limit;
        let mut rounds = 0;
        loop {
            self.work();
            if done(&self.sides) {
                return true;
            }
            let next = self.next();
            if next > end {
                self.now = end;
                return false;
            }
            rounds = if next > self.now { 0 } else { rounds + 1 };
            assert!(rounds < ROUNDS_AT_ONCE, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            self.carry();
            for side in &mut self.sides {
                if side.stack.timeout().is_some_and(|at| at <= self.now) {
                    side.stack.tick(self.now);
                }
            }
        }
    }

    pub(crate) fn run_for(&mut self, duration: Duration) {
        self.run_until(duration, |_| false);
    }

    /// Opens the association, and reports whether both ends are up within five minutes.
    pub(crate) fn open(&mut self) -> bool {
        self.sides[0].stack.connect(self.now);
        self.run_until(Duration::from_mins(5), |sides| sides.iter().all(|s| s.stack.end() == End::Up))
    }

    /// Runs until the association has ended at both ends, for up to 20 minutes. Reports whether it has ended
    /// at both ends.
    pub(crate) fn run_to_end(&mut self) -> bool {
        let over = |s: &Side| matches!(s.stack.end(), End::Graceful | End::Broken);
        self.run_until(Duration::from_mins(20), |sides| sides.iter().all(over))
    }

    fn next(&self) -> Now {
        let carried = self.on_the_way.keys().next().map(|key| key.0);
        let timers = self.sides.iter().filter_map(|s| s.stack.timeout());
        timers.chain(carried).min().unwrap_or(Duration::MAX)
    }

    fn carry(&mut self) {
        while let Some(entry) = self.on_the_way.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (to, packet) = entry.remove();
            self.sides[to].stack.handle(self.now, &packet);
        }
    }

    /// Lets the programs read and write, and puts the engines' packets on the network.
    fn work(&mut self) {
        for from in 0..2 {
            self.sides[from].work(self.now);
            for packet in self.sides[from].stack.transmit(self.now) {
                self.offer(from, packet);
            }
        }
    }

    fn offer(&mut self, from: usize, mut packet: Vec<u8>) {
        let passes = self.filter.as_mut().is_none_or(|passes| passes(from, &packet));
        if !passes || self.happens(self.faults.lost) {
            return;
        }
        if self.happens(self.faults.damaged) {
            let place = usize::try_from(self.draw()).unwrap_or(0) % packet.len();
            packet[place] ^= 0x10;
        }
        let copies = 1 + usize::from(self.happens(self.faults.doubled));
        for _ in 0..copies {
            let extra = if self.happens(self.faults.late) { self.draw() % 40 } else { 0 };
            self.sequence += 1;
            let at = self.now + DELAY + Duration::from_millis(extra);
            self.on_the_way.insert((at, self.sequence), (1 - from, packet.clone()));
        }
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.draw() % 1000 < per_mille
    }

    /// Draws a random number (xorshift64*).
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20
    }
}

impl Side {
    fn new(stack: Box<dyn Stack>) -> Side {
        let (outgoing, received) = (VecDeque::new(), BTreeMap::new());
        Side { stack, outgoing, handed_over: 0, received, reads: true }
    }

    fn work(&mut self, now: Now) {
        while self.reads {
            let Some((stream, bytes)) = self.stack.recv(now) else { break };
            self.received.entry(stream).or_default().push(bytes);
        }
        while let Some(message) = self.outgoing.front().filter(|_| self.stack.end() == End::Up) {
            if !self.stack.send(now, message) {
                break;
            }
            self.outgoing.pop_front();
            self.handed_over += 1;
        }
    }

    pub(crate) fn received_bytes(&self) -> usize {
        self.received.values().flatten().map(Vec::len).sum()
    }
}

/// Returns `count` messages of `length` bytes, spread over `streams` streams in rotation. Each message starts
/// with its number as four bytes (big-endian).
pub(crate) fn messages(count: usize, length: usize, streams: u16) -> Vec<Message> {
    let numbers = (0..streams).cycle().zip(0u32..).take(count);
    let message = |(stream, number): (u16, u32)| {
        let mut bytes = vec![number.to_be_bytes()[3]; length];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        Message { stream, unordered: false, effort: Effort::Full, bytes: bytes.into() }
    };
    numbers.map(message).collect()
}
