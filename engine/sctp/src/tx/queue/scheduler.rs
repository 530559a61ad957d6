//! Choice of the stream that sends next: the stream schedulers of RFC 8260 section 3.
//!
//! Each scheduler is a rule for the rank of a stream, and the stream with the lowest rank is served. A stream keeps its turn until its
//! message ends. If messages may be interleaved, the turn ends after each fragment. The time for a change of turn is logarithmic in the
//! number of waiting streams. While only one stream sends, its turns cost nothing. Invariants:
//!
//! - A stream is `current` or in `waiting` exactly while it has messages to send.
//! - `current` has the lowest rank, unless `held` is set.
//!
//! Start at [`Turns::keeps_turn`].

use std::collections::BTreeSet;

use wire::StreamId;

use super::MessageId;
use crate::config::Scheduler;
use crate::memory::tree;

/// Place of a stream in the order; the lowest one is served first.
pub(super) type Rank = u128;

/// Cost of one byte for a stream of weight 1, in virtual time.
const BYTE: u128 = 1 << 16;

/// Components of a stream's rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The stream's first message.
    pub(super) head: MessageId,
    pub(super) priority: u16,
    /// Virtual time up to which the stream has been served.
    pub(super) served: u128,
}

/// Order of the streams' turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    scheduler: Scheduler,
    current: Option<(Rank, StreamId)>,
    waiting: BTreeSet<(Rank, StreamId)>,
    /// True if `current` is in the middle of a message that must not be interleaved.
    held: bool,
    next_turn: u64,
    /// Virtual time at which a stream joins after it had nothing to send.
    clock: u128,
    /// Stream of the packet being filled, if streams take turns by packets.
    packet: Option<StreamId>,
}

impl Turns {
    pub(super) fn new(scheduler: Scheduler) -> Turns {
        Turns { scheduler, ..Turns::default() }
    }

    /// Returns the stream that is in the middle of a message which must not be interleaved.
    pub(super) fn held(&self) -> Option<StreamId> {
        self.current().filter(|_| self.held)
    }

    /// Returns the bytes of memory in use, without the struct itself.
    pub(super) fn memory(&self) -> usize {
        tree(self.waiting.len(), size_of::<(Rank, StreamId)>())
    }

    /// Returns the stream to serve.
    pub(super) fn current(&self) -> Option<StreamId> {
        self.current.map(|(_, stream)| stream)
    }

    /// Reports whether the packet being filled may take from the current stream.
    ///
    /// RFC 8260 section 3.3: "It bundles only DATA or I-DATA chunks referring to the same stream in a packet."
    pub(super) fn packet_takes_current(&self) -> bool {
        self.packet.is_none() || self.packet == self.current()
    }

    /// Adds a stream that has something to send again, updates its virtual time and returns its rank.
    pub(super) fn activate(&mut self, stream: StreamId, standing: &mut Standing) -> Rank {
        standing.served = standing.served.max(self.clock);
        let rank = self.rank(standing);
        match self.current {
            None => self.serve((rank, stream)),
            Some(current) if !self.held && (rank, stream) < current => {
                self.waiting.insert(current);
                self.serve((rank, stream));
            }
            Some(_) => {
                self.waiting.insert((rank, stream));
            }
        }
        rank
    }

    /// Removes a stream that has nothing more to send or that needs a new rank. Returns whether it was in the middle of a message.
    pub(super) fn deactivate(&mut self, stream: StreamId, rank: Rank) -> bool {
        if self.current() != Some(stream) {
            self.waiting.remove(&(rank, stream));
            return false;
        }
        self.current = None;
        if let Some(next) = self.waiting.pop_first() {
            self.serve(next);
        }
        std::mem::take(&mut self.held)
    }

    /// Gives the turn to a stream that is in the middle of a message.
    pub(super) fn hold(&mut self, stream: StreamId, rank: Rank) {
        if self.current() != Some(stream) {
            self.waiting.remove(&(rank, stream));
            self.waiting.extend(self.current.replace((rank, stream)));
        }
        self.held = true;
    }

    /// Handles the sending of a fragment by the current stream, which has more to send. Returns whether the stream keeps its turn. If not,
    /// the caller must call [`rotate`](Self::rotate).
    #[inline]
    pub(super) fn keeps_turn(&mut self, stream: StreamId, turn_ends: bool) -> bool {
        self.held = !turn_ends;
        if self.scheduler == Scheduler::RoundRobinPerPacket {
            self.packet = Some(stream);
            return true;
        }
        self.held || self.waiting.is_empty() && !self.is_fair()
    }

    /// Ends the packet being filled. Returns the stream whose turn ends with the packet, if any.
    #[inline]
    pub(super) fn end_packet(&mut self) -> Option<StreamId> {
        let stream = self.packet.take()?;
        (!self.held && self.current() == Some(stream)).then_some(stream)
    }

    /// Ends the turn of the current stream, and returns its new rank.
    pub(super) fn rotate(&mut self, stream: StreamId, standing: &Standing) -> Rank {
        let rank = self.rank(standing);
        match self.waiting.first() {
            Some(first) if *first < (rank, stream) => {
                self.waiting.insert((rank, stream));
                let next = self.waiting.pop_first().unwrap_or((rank, stream));
                self.serve(next);
            }
            _ => self.serve((rank, stream)),
        }
        rank
    }

    fn serve(&mut self, next: (Rank, StreamId)) {
        self.current = Some(next);
        if self.is_fair() {
            self.clock = self.clock.max(next.0);
        }
    }

    fn rank(&mut self, standing: &Standing) -> Rank {
        match self.scheduler {
            Scheduler::FirstCome => standing.head.0.into(),
            Scheduler::RoundRobin | Scheduler::RoundRobinPerPacket => self.turn().into(),
            Scheduler::Priority => Rank::from(standing.priority) << 64 | Rank::from(self.turn()),
            Scheduler::FairBandwidth | Scheduler::WeightedFair => standing.served,
        }
    }

    fn turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    /// Reports whether streams are ranked by their past service.
    pub(super) fn is_fair(&self) -> bool {
        matches!(self.scheduler, Scheduler::FairBandwidth | Scheduler::WeightedFair)
    }

    /// Returns the cost of `bytes` for a stream, in virtual time.
    pub(super) fn cost(&self, bytes: usize, weight: u16) -> u128 {
        match self.scheduler {
            Scheduler::FairBandwidth => bytes as u128 * BYTE,
            Scheduler::WeightedFair => bytes as u128 * BYTE / u128::from(weight.max(1)),
            Scheduler::FirstCome
            | Scheduler::RoundRobin
            | Scheduler::RoundRobinPerPacket
            | Scheduler::Priority => 0,
        }
    }

    /// Reports whether the scheduler knows the stream under this rank.
    pub(super) fn knows(&self, stream: StreamId, rank: Rank) -> bool {
        self.current() == Some(stream) || self.waiting.contains(&(rank, stream))
    }

    /// Returns the number of streams that have something to send.
    pub(super) fn active(&self) -> usize {
        self.waiting.len() + usize::from(self.current.is_some())
    }
}
