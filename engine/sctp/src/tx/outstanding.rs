//! DATA chunks that were sent and are not yet cumulatively acknowledged.
//!
//! Tracks the fate of each chunk (in flight, lost, acknowledged or abandoned), the bytes in flight on each path, and the chunks to
//! retransmit. Losses are found by time (RACK, RFC 8985): see `rack`. This module never sends. Invariants:
//!
//! - `flight` is the sum over the chunks in flight.
//! - `lost` holds exactly the lost chunks.
//! - Each chunk in flight is in a burst of its path's `Transmissions`.
//!
//! Start at [`Outstanding::on_sack`].

mod acks;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use base::Time;
use smallvec::SmallVec;

pub(crate) use self::acks::{Acks, PathAcks};
use super::rack::DUP_THRESHOLD;
use super::transmissions::Transmissions;
use super::{Fragment, Seq};
use crate::memory::{list, tree};
use crate::path::PathIndex;

/// Limit on the retransmitted chunks that are remembered until the peer reports them as duplicates.
const MAX_REMEMBERED: usize = 4096;

/// Minimum number of gap blocks in a SACK that may be truncated. Linux sends up to 16 gap blocks. Other implementations send as many gap
/// blocks as fit into the packet.
const MAYBE_CUT_SHORT: usize = 16;

/// Limit on outstanding chunks. Under this limit, no two outstanding messages of a stream have the same SSN, and outstanding TSNs can be
/// compared in spite of their wrap.
pub(crate) const MAX_CHUNKS: usize = u16::MAX as usize;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    InFlight,
    Lost,
    Acknowledged,
    /// Abandoned: treated as acknowledged, but without credit (RFC 3758 section 3.5, A2).
    Abandoned,
}

/// Number of a chunk's transmissions, and the cause of the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    Once,
    /// Retransmitted after a declared loss. All transmissions used the same path.
    Again,
    /// Transmitted on more than one path. The acknowledgement may answer a transmission on an earlier path.
    Moved,
    /// Sent again as a tail-loss probe.
    AsProbe,
    /// Sent once or more, then acknowledged, then reneged by the peer.
    Reneged,
}

#[derive(Debug)]
struct SentChunk {
    fragment: Fragment,
    path: PathIndex,
    sent_at: Time,
    fate: Fate,
    sent: Sent,
    /// True if other paths carried copies of the chunk. The acknowledgement may then answer a copy.
    copied: bool,
}

/// Fault of a SACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SackError {
    /// The SACK acknowledges data that was never sent.
    BeyondSent,
}

/// Chunks declared lost on one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) chunks: usize,
    /// User bytes.
    pub(crate) bytes: usize,
    /// Number of lost chunks that had been retransmitted before.
    pub(crate) again: usize,
    /// Time at which the newest lost chunk was sent.
    pub(crate) newest: Time,
    /// Time at which the next chunk counts as lost, unless it is acknowledged before.
    pub(crate) next_at: Option<Time>,
}

/// Chunks in flight, lost, acknowledged out of order, or abandoned.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    /// The first chunk that is not cumulatively acknowledged.
    first: Seq,
    chunks: VecDeque<SentChunk>,
    bytes: usize,
    lost: BTreeSet<Seq>,
    by_path: Vec<Transmissions>,
    /// Retransmitted chunks, each with the path on which it was declared lost. If the peer reports one of these chunks as a duplicate, its
    /// retransmission was needless.
    again: BTreeMap<Seq, PathIndex>,
    /// Ranges acknowledged by gap blocks, ends included.
    gaps: Vec<(Seq, Seq)>,
    /// The highest chunk that the last SACK covers, if this SACK may be truncated. Chunks above the highest one may have arrived.
    horizon: Option<Seq>,
}

impl Outstanding {
    /// Returns the first sequence that is not cumulatively acknowledged.
    pub(crate) fn first(&self) -> Seq {
        self.first
    }

    /// Returns the sequence of the next new chunk.
    pub(crate) fn next(&self) -> Seq {
        Seq(self.first.0 + self.chunks.len() as u64)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Reports whether the limit is reached: no new chunk may be sent before an outstanding chunk is cumulatively acknowledged.
    pub(crate) fn is_full(&self) -> bool {
        //= rfc9260#6.1-22 6.1-23
        //= rfc8260#2.1-4
        self.chunks.len() >= MAX_CHUNKS
    }

    /// Returns the user bytes that are kept until they are cumulatively acknowledged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of the chunks and of their list.
    #[inline]
    pub(crate) fn measure(&self) -> usize {
        self.bytes + list::<SentChunk>(self.chunks.capacity())
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        let by_path = self.by_path.iter().map(Transmissions::memory).sum::<usize>();
        self.measure()
            + list::<Transmissions>(self.by_path.capacity())
            + by_path
            + tree(self.lost.len(), size_of::<Seq>())
            + tree(self.again.len(), size_of::<(Seq, PathIndex)>())
            + list::<(Seq, Seq)>(self.gaps.capacity())
    }

    /// Returns the user bytes in flight on `path`.
    pub(crate) fn flight(&self, path: PathIndex) -> usize {
        self.by_path.get(path.get()).map_or(0, |on_path| on_path.flight)
    }

    /// Returns the recent minimum RTT of `path`.
    pub(crate) fn least_round_trip(&self, path: PathIndex) -> Option<Duration> {
        self.by_path.get(path.get()).and_then(|on_path| on_path.rack.least_round_trip())
    }

    /// Returns the path of the last transmission of an outstanding chunk.
    pub(crate) fn path_of(&self, seq: Seq) -> Option<PathIndex> {
        self.get(seq).map(|chunk| chunk.path)
    }

    /// Reports whether a chunk is outstanding and was sent exactly once.
    pub(crate) fn was_sent_once(&self, seq: Seq) -> bool {
        self.get(seq).is_some_and(|chunk| chunk.sent == Sent::Once)
    }

    /// Reports whether a chunk that was sent has arrived by its first transmission. Returns `None` as long as this is not known, and false
    /// if the chunk is lost, abandoned, or has left again.
    pub(crate) fn arrived_at_once(&self, seq: Seq) -> Option<bool> {
        let Some(chunk) = self.get(seq) else { return Some(true) };
        match (chunk.fate, chunk.sent == Sent::Once && !chunk.copied) {
            (Fate::InFlight, true) => None,
            (fate, is_only) => Some(is_only && fate == Fate::Acknowledged),
        }
    }

    /// Returns the user bytes in flight on all paths.
    pub(crate) fn total_flight(&self) -> usize {
        self.by_path.iter().map(|on_path| on_path.flight).sum()
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Records a new chunk as sent and returns its sequence.
    pub(crate) fn push(&mut self, fragment: Fragment, path: PathIndex, now: Time) -> Seq {
        let seq = self.next();
        let length = fragment.payload.len();
        self.bytes += length;
        self.on_path(path).on_sent(seq, length, now);
        self.chunks.push_back(SentChunk {
            fragment,
            path,
            sent_at: now,
            fate: Fate::InFlight,
            sent: Sent::Once,
            copied: false,
        });
        seq
    }

    /// Returns the new chunk that was sent last, unless it is cumulatively acknowledged.
    pub(crate) fn newest(&self) -> Option<&Fragment> {
        self.chunks.back().map(|chunk| &chunk.fragment)
    }

    /// Returns the first lost chunk, and the path of its last transmission.
    pub(crate) fn first_lost(&self) -> Option<(Seq, &Fragment, PathIndex)> {
        self.known_lost(*self.lost.first()?)
    }

    /// Returns the first lost chunk from `first` on, and the path of its last transmission.
    pub(crate) fn first_lost_from(&self, first: Seq) -> Option<(Seq, &Fragment, PathIndex)> {
        self.known_lost(*self.lost.range(first..).next()?)
    }

    fn known_lost(&self, seq: Seq) -> Option<(Seq, &Fragment, PathIndex)> {
        let chunk = self.get(seq)?;
        Some((seq, &chunk.fragment, chunk.path))
    }

    /// Records the retransmission of a lost chunk.
    pub(crate) fn on_retransmit(&mut self, seq: Seq, path: PathIndex, now: Time) {
        self.lost.remove(&seq);
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        let given_up_on = std::mem::replace(&mut chunk.path, path);
        chunk.fate = Fate::InFlight;
        chunk.sent_at = now;
        chunk.sent = if given_up_on == path && chunk.sent != Sent::Moved { Sent::Again } else { Sent::Moved };
        let (length, copied) = (chunk.fragment.payload.len(), chunk.copied);
        self.on_path(path).on_sent(seq, length, now);
        if given_up_on != path {
            self.on_path(given_up_on).timed_out_at = None;
        }
        // Duplicates of a chunk with copies do not prove that its retransmission was needless.
        if !copied {
            self.remember(seq, given_up_on);
        }
    }

    /// Records that other paths carry copies of a chunk.
    pub(crate) fn on_copied(&mut self, seq: Seq) {
        if let Some(index) = self.index(seq) {
            self.chunks[index].copied = true;
        }
    }

    /// Reports whether a chunk is acknowledged or abandoned.
    pub(crate) fn is_done(&self, seq: Seq) -> bool {
        self.get(seq).is_none_or(|c| matches!(c.fate, Fate::Acknowledged | Fate::Abandoned))
    }

    /// Returns a chunk, unless it is acknowledged or abandoned.
    pub(crate) fn unfinished(&self, seq: Seq) -> Option<&Fragment> {
        self.get(seq).filter(|_| !self.is_done(seq)).map(|c| &c.fragment)
    }

    fn remember(&mut self, seq: Seq, given_up_on: PathIndex) {
        if self.again.len() >= MAX_REMEMBERED {
            self.again.pop_first();
        }
        self.again.insert(seq, given_up_on);
    }

    /// Returns the chunk in flight that was sent last on `path`.
    pub(crate) fn last_sent(&mut self, path: PathIndex) -> Option<(Seq, &Fragment)> {
        let mut bursts = std::mem::take(&mut self.by_path.get_mut(path.get())?.bursts);
        let mut found = None;
        while let Some(last) = bursts.back_mut() {
            let live = (last.first.0..last.end.0).rev().map(Seq).find(|&s| self.is_live(s, path, last.at));
            if let Some(seq) = live {
                found = Some(seq);
                break;
            }
            bursts.pop_back();
        }
        self.by_path[path.get()].bursts = bursts;
        let seq = found?;
        Some((seq, &self.get(seq)?.fragment))
    }

    /// Records that a chunk in flight was sent again on its path as a tail-loss probe (RFC 8985 section 7.3).
    pub(crate) fn on_probe(&mut self, seq: Seq, now: Time) {
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        chunk.sent_at = now;
        chunk.sent = Sent::AsProbe;
        let path = chunk.path;
        self.on_path(path).note_sent(seq, now);
        self.remember(seq, path);
    }

    /// Returns the first outstanding chunk, its length in user bytes and its path, if that chunk is in flight.
    pub(crate) fn first_in_flight(&self) -> Option<(Seq, usize, PathIndex)> {
        let chunk = self.chunks.front().filter(|c| c.fate == Fate::InFlight)?;
        Some((self.first, chunk.fragment.payload.len(), chunk.path))
    }

    /// Returns the earliest sent chunk in flight on `path`.
    pub(crate) fn earliest_in_flight(&self, path: PathIndex) -> Option<Seq> {
        self.earliest_of(path).map(|(seq, _)| seq)
    }

    /// Returns the sending time of the earliest sent chunk in flight on `path`.
    pub(crate) fn earliest_sent_at(&self, path: PathIndex) -> Option<Time> {
        self.earliest_of(path).map(|(_, sent_at)| sent_at)
    }

    /// Declares a chunk lost if it is in flight.
    pub(crate) fn mark_lost(&mut self, seq: Seq) {
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        if chunk.fate == Fate::InFlight {
            chunk.fate = Fate::Lost;
            self.by_path[chunk.path.get()].flight -= chunk.fragment.payload.len();
            self.lost.insert(seq);
        }
    }

    /// Abandons a chunk and frees its payload.
    //= rfc3758#section-3.5
    //# When a data chunk is "abandoned", the sender MUST treat the data chunk as being finally acked and no longer
    //# outstanding.
    //= rfc3758#3.5-2 3.5-3
    pub(crate) fn abandon(&mut self, seq: Seq) {
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        let length = std::mem::take(&mut chunk.fragment.payload).len();
        self.bytes -= length;
        match std::mem::replace(&mut chunk.fate, Fate::Abandoned) {
            Fate::InFlight => self.by_path[chunk.path.get()].flight -= length,
            Fate::Lost => {
                self.lost.remove(&seq);
            }
            // An abandoned chunk was not delivered, so it is no evidence that chunks sent earlier were lost.
            Fate::Acknowledged => self.by_path[chunk.path.get()].above -= 1,
            Fate::Abandoned => {}
        }
    }

    pub(crate) fn is_abandoned(&self, seq: Seq) -> bool {
        self.get(seq).is_some_and(|c| c.fate == Fate::Abandoned)
    }

    /// Returns all outstanding chunks in order, abandoned ones included.
    pub(crate) fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.chunks.iter().map(|c| &c.fragment)
    }

    /// Returns the ranges from `first` on that gap blocks acknowledged.
    pub(crate) fn gaps_from(&self, first: Seq) -> Vec<(Seq, Seq)> {
        self.gaps.iter().filter(|g| g.1 >= first).map(|g| (g.0.max(first), g.1)).collect()
    }

    /// Records that the program supplies too little data to fill `path`.
    pub(crate) fn on_app_limited(&mut self, path: PathIndex) {
        if let Some(on_path) = self.by_path.get_mut(path.get()) {
            on_path.on_app_limited();
        }
    }

    /// Records the expiry of T3 on `path`. The caller then declares the flight of `path` lost.
    pub(crate) fn on_t3(&mut self, path: PathIndex, now: Time) {
        self.on_path(path).timed_out_at = Some(now);
    }

    /// Declares the whole flight of `path` lost (after the expiry of T3, RFC 9260 section 6.3.3, E3). Returns the number of chunks.
    //= rfc9260#6.3.3-2
    pub(crate) fn give_up(&mut self, path: PathIndex) -> usize {
        let Some(on_path) = self.by_path.get(path.get()) else { return 0 };
        let mut live: Vec<Seq> = Vec::new();
        for burst in &on_path.bursts {
            let all = (burst.first.0..burst.end.0).map(Seq);
            live.extend(all.filter(|&s| self.is_live(s, path, burst.at)));
        }
        let before = self.lost.len();
        live.iter().for_each(|&seq| self.mark_lost(seq));
        self.lost.len() - before
    }

    /// Puts chunks back in flight if the last timeout declared them lost and they were not retransmitted since (RFC 5682 section 3.1).
    fn undo_timeout(&mut self, path: PathIndex) {
        let mut back: Vec<Seq> = Vec::new();
        for burst in &self.by_path[path.get()].bursts {
            let given_up = |&seq: &Seq| {
                let chunk = self.get(seq);
                chunk.is_some_and(|c| c.fate == Fate::Lost && c.path == path && c.sent_at == burst.at)
            };
            back.extend((burst.first.0..burst.end.0).map(Seq).filter(given_up));
        }
        for seq in back {
            // A chunk sent twice at the same time is in two bursts.
            let Some(index) = self.index(seq).filter(|_| self.lost.remove(&seq)) else { continue };
            self.chunks[index].fate = Fate::InFlight;
            self.by_path[path.get()].flight += self.chunks[index].fragment.payload.len();
        }
    }

    /// Handles the peer's report that it received these chunks more than once. If such a chunk was retransmitted, the earlier transmission
    /// was not lost.
    pub(crate) fn on_duplicates(&mut self, duplicates: impl Iterator<Item = Seq>) {
        for seq in duplicates {
            if let Some(path) = self.again.remove(&seq) {
                self.note_spurious(path);
            }
        }
    }

    fn note_spurious(&mut self, path: PathIndex) {
        let on_path = self.on_path(path);
        on_path.spurious += 1;
        on_path.rack.on_spurious(on_path.round());
    }

    /// Records the round trip of an answered HEARTBEAT on `path`. Loss detection uses this round trip only until the path has delivered a
    /// chunk that was sent once.
    pub(crate) fn on_round_trip(&mut self, path: PathIndex, rtt: Duration) {
        // Paths that have carried no data have no state here.
        if let Some(on_path) = self.by_path.get_mut(path.get()) {
            on_path.rack.on_round_trip(rtt);
        }
    }

    /// Records that a recovery begins on `path`.
    pub(crate) fn on_recovery(&mut self, path: PathIndex) {
        self.on_path(path).rack.on_recovery();
    }

    /// Reports whether a SACK with these gap blocks is older than the last one applied: its cumulative TSN is the same, and its last gap
    /// block ends lower.
    pub(crate) fn is_stale(&self, first: Seq, gaps: &[(Seq, Seq)]) -> bool {
        first == self.first && gaps.last().map(|g| g.1) < self.gaps.last().map(|g| g.1)
    }

    /// Applies a SACK, which acknowledges everything before `first` and the ranges of `gaps` (both ends included).
    ///
    /// A SACK with a lower cumulative TSN than one already applied changes nothing. A SACK of data that was never sent returns an error and
    /// changes nothing.
    pub(crate) fn on_sack(&mut self, first: Seq, gaps: &[(Seq, Seq)], now: Time) -> Result<Acks, SackError> {
        let highest = gaps.iter().map(|g| g.1.next()).fold(first, Seq::max);
        if highest > self.next() {
            return Err(SackError::BeyondSent);
        }
        let mut acks = Acks::from_elem(PathAcks::default(), self.by_path.len());
        if first < self.first {
            return Ok(acks);
        }
        let advanced = first > self.first;
        let fronts: SmallVec<[Option<(Seq, Time)>; 2]> =
            (0..self.by_path.len()).map(|i| self.earliest_of(PathIndex::new(i))).collect();
        if advanced {
            self.renege(first, gaps, now);
        }
        if !self.is_stale(first, gaps) {
            // With a single path, each gap is a loss. So a truncated SACK needs no special treatment.
            let several =
                self.by_path.iter().filter(|on_path| on_path.flight + on_path.above > 0).count() > 1;
            let is_cut = several && gaps.len() >= MAYBE_CUT_SHORT;
            self.horizon = gaps.last().filter(|_| is_cut).map(|last| last.1);
        }
        self.acknowledge_cumulative(first, now, &mut acks);
        self.acknowledge_gaps(gaps, now, &mut acks);
        self.note_gaps(gaps, advanced);
        for (index, acks) in acks.iter_mut().enumerate() {
            acks.front_moved = acks.bytes > 0 && self.earliest_of(PathIndex::new(index)) != fronts[index];
            self.finish_acks(PathIndex::new(index), acks, now);
        }
        Ok(acks)
    }

    /// Replaces the known gap blocks if the SACK moved the cumulative TSN. Otherwise adds these blocks, because the SACK may be older than
    /// the last one.
    fn note_gaps(&mut self, gaps: &[(Seq, Seq)], advanced: bool) {
        if advanced || self.gaps.is_empty() {
            self.gaps.clear();
            self.gaps.extend_from_slice(gaps);
            return;
        }
        let known = std::mem::take(&mut self.gaps);
        let (mut a, mut b) = (known.iter().peekable(), gaps.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.0 <= y.0 => a.next(),
                (_, Some(_)) => b.next(),
                (Some(_), None) => a.next(),
                (None, None) => break,
            };
            let Some(&(start, end)) = next else { break };
            match self.gaps.last_mut().filter(|last| start <= last.1.next()) {
                Some(last) => last.1 = last.1.max(end),
                None => self.gaps.push((start, end)),
            }
        }
    }

    //= rfc9260#6.7-3
    fn acknowledge_cumulative(&mut self, first: Seq, now: Time, acks: &mut Acks) {
        while self.first < first {
            self.acknowledge(self.first, now, acks);
            let Some(chunk) = self.chunks.pop_front() else { break };
            if chunk.fate != Fate::Abandoned {
                self.by_path[chunk.path.get()].above -= 1;
            }
            self.bytes -= chunk.fragment.payload.len();
            self.first = self.first.next();
        }
    }

    /// Acknowledges the chunks in `gaps`, but visits only chunks that earlier gap blocks did not cover.
    fn acknowledge_gaps(&mut self, gaps: &[(Seq, Seq)], now: Time, acks: &mut Acks) {
        let known = std::mem::take(&mut self.gaps);
        let start = self.first;
        for_each_uncovered(gaps, &known, start, |seq| self.acknowledge(seq, now, acks));
        self.gaps = known;
    }

    fn acknowledge(&mut self, seq: Seq, now: Time, acks: &mut Acks) {
        let cumulative = seq == self.first;
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        if matches!(chunk.fate, Fate::Acknowledged | Fate::Abandoned) {
            return;
        }
        let (length, path, sent_at, sent) =
            (chunk.fragment.payload.len(), chunk.path, chunk.sent_at, chunk.sent);
        let copied = chunk.copied;
        let fate = std::mem::replace(&mut chunk.fate, Fate::Acknowledged);
        let on_path = &mut self.by_path[path.get()];
        match fate {
            Fate::Acknowledged | Fate::Abandoned => return,
            Fate::InFlight => {
                on_path.flight -= length;
                //= rfc7829#3.2-17 3.2-18
                acks[path.get()].proves_path |= !copied;
                acks[path.get()].longest = acks[path.get()].longest.max(if copied { 0 } else { length });
            }
            Fate::Lost => {
                self.lost.remove(&seq);
            }
        }
        on_path.above += 1;
        let acks = &mut acks[path.get()];
        acks.bytes += length;
        acks.chunks += 1;
        acks.earliest |= cumulative;
        acks.newest_sent_at = acks.newest_sent_at.max(Some(sent_at));
        if sent == Sent::Reneged {
            return;
        }
        if sent != Sent::Moved || !on_path.rack.is_sooner_than_others(now - sent_at) {
            on_path.rack.on_delivered(seq, sent_at, sent == Sent::Once, now);
        }
        if copied {
            return;
        }
        match (fate, sent) {
            (Fate::Lost, _) => {
                acks.timeout_was_spurious |= on_path.timed_out_too_early(now);
                self.note_spurious(path);
            }
            //= rfc9260#6.3.1-4
            (_, Sent::Once) => acks.newest = Some((seq, now - sent_at)),
            (_, Sent::Again | Sent::Moved | Sent::AsProbe | Sent::Reneged) => {
                self.on_repeated_delivered(seq, path, sent, now - sent_at, acks);
            }
        }
    }

    /// Handles the delivery of a chunk that was sent more than once. `after` is the time since its last transmission.
    fn on_repeated_delivered(
        &mut self,
        seq: Seq,
        path: PathIndex,
        sent: Sent,
        after: Duration,
        acks: &mut PathAcks,
    ) {
        let too_soon = self.by_path[path.get()].rack.is_too_soon(after);
        if too_soon {
            acks.timeout_was_spurious |= self.by_path[path.get()].timed_out_at.is_some();
            if let Some(given_up_on) = self.again.remove(&seq)
                && matches!(sent, Sent::Again | Sent::Moved)
            {
                self.note_spurious(given_up_on);
            }
        } else if sent == Sent::AsProbe {
            // RFC 8985 section 7.4: unless the peer has reported a duplicate, the transmission before the probe was lost.
            acks.probe_mended |= self.again.contains_key(&seq);
        }
    }

    /// Computes the delivery rate, the round and the losses after all chunks of a SACK are applied.
    fn finish_acks(&mut self, path: PathIndex, acks: &mut PathAcks, now: Time) {
        let on_path = &mut self.by_path[path.get()];
        if let Some(newest) = acks.newest_sent_at {
            (acks.rate, acks.round_over) = on_path.on_delivered(acks.bytes, newest, now);
            on_path.timed_out_at = None;
        }
        acks.spurious = std::mem::take(&mut on_path.spurious);
        if acks.timeout_was_spurious {
            self.undo_timeout(path);
        }
        acks.lost = self.find_lost(path, now);
    }

    /// Declares chunks lost if their acknowledgement is overdue (RFC 8985 section 6.2 step 5).
    //= rfc9260#6.7-4
    pub(crate) fn find_lost(&mut self, path: PathIndex, now: Time) -> Losses {
        let mut losses = Losses::default();
        while let Some((seq, at)) = self.front_of(path) {
            if self.horizon.is_some_and(|horizon| seq > horizon) {
                break;
            }
            let Some(deadline) = self.deadline_of(path, seq, at) else { break };
            let on_path = &mut self.by_path[path.get()];
            if deadline > now {
                losses.next_at = Some(deadline);
                break;
            }
            let before = on_path.flight;
            on_path.bursts[0].first = seq.next();
            self.mark_lost(seq);
            losses.again += usize::from(self.get(seq).is_some_and(|c| c.sent == Sent::Again));
            losses.chunks += 1;
            losses.bytes += before - self.by_path[path.get()].flight;
            losses.newest = at;
        }
        losses
    }

    /// Returns the time at which the earliest sent chunk in flight on `path` counts as lost. Returns `None` if no chunk sent later was
    /// delivered.
    fn deadline_of(&self, path: PathIndex, seq: Seq, at: Time) -> Option<Time> {
        let on_path = &self.by_path[path.get()];
        on_path.rack.deadline(seq, at, || {
            // With a single path, all chunks that gap blocks acknowledged lie above the first hole.
            if self.by_path.len() == 1 { on_path.above } else { self.delivered_above(path, seq) }
        })
    }

    /// Counts the chunks that `path` delivered above `seq`, up to the threshold of loss detection.
    fn delivered_above(&self, path: PathIndex, seq: Seq) -> usize {
        let from = self.index(seq).unwrap_or(self.chunks.len());
        let above = self.chunks.range(from..).filter(|c| c.path == path && c.fate == Fate::Acknowledged);
        above.take(DUP_THRESHOLD).count()
    }

    /// Returns the earliest sent chunk in flight on `path`, and its sending time.
    fn earliest_of(&self, path: PathIndex) -> Option<(Seq, Time)> {
        if self.flight(path) == 0 {
            return None;
        }
        self.by_path[path.get()].bursts.iter().find_map(|burst| {
            let seqs = (burst.first.max(self.first).0..burst.end.0).map(Seq);
            seqs.into_iter().find(|&s| self.is_live(s, path, burst.at)).map(|s| (s, burst.at))
        })
    }

    /// Like [`earliest_of`](Self::earliest_of), but also removes all transmissions before the returned one, because they no longer count.
    fn front_of(&mut self, path: PathIndex) -> Option<(Seq, Time)> {
        let mut bursts = std::mem::take(&mut self.by_path.get_mut(path.get())?.bursts);
        let mut found = None;
        while let Some(front) = bursts.front_mut() {
            front.first = front.first.max(self.first).min(front.end);
            while front.first < front.end && !self.is_live(front.first, path, front.at) {
                front.first = front.first.next();
            }
            if front.first < front.end {
                found = Some((front.first, front.at));
                break;
            }
            bursts.pop_front();
        }
        self.by_path[path.get()].bursts = bursts;
        found
    }

    /// Reports whether the transmission of `seq` on `path` at time `at` is the one in flight.
    fn is_live(&self, seq: Seq, path: PathIndex, at: Time) -> bool {
        self.get(seq).is_some_and(|c| c.fate == Fate::InFlight && c.path == path && c.sent_at == at)
    }

    /// Puts chunks back in flight if earlier gap blocks covered them and these gap blocks do not (RFC 9260 section 6.2.1, D iii).
    fn renege(&mut self, first: Seq, gaps: &[(Seq, Seq)], now: Time) {
        let known = std::mem::take(&mut self.gaps);
        for_each_uncovered(&known, gaps, first, |seq| self.unacknowledge(seq, now));
    }

    fn unacknowledge(&mut self, seq: Seq, now: Time) {
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        if chunk.fate == Fate::Acknowledged {
            chunk.fate = Fate::InFlight;
            chunk.sent = Sent::Reneged;
            chunk.sent_at = now;
            let (path, length) = (chunk.path, chunk.fragment.payload.len());
            let on_path = self.on_path(path);
            on_path.above -= 1;
            on_path.on_sent(seq, length, now);
        }
    }

    /// Releases unused memory. With nothing outstanding, also forgets retransmissions, because no duplicate matters any more.
    pub(crate) fn shrink(&mut self) {
        self.chunks.shrink_to_fit();
        self.gaps.shrink_to_fit();
        for on_path in &mut self.by_path {
            on_path.bursts.shrink_to_fit();
        }
        if self.chunks.is_empty() {
            self.lost = BTreeSet::new();
            self.again = BTreeMap::new();
        }
    }

    fn index(&self, seq: Seq) -> Option<usize> {
        let offset = usize::try_from(seq.0.checked_sub(self.first.0)?).ok()?;
        (offset < self.chunks.len()).then_some(offset)
    }

    fn get(&self, seq: Seq) -> Option<&SentChunk> {
        self.index(seq).map(|i| &self.chunks[i])
    }

    fn on_path(&mut self, path: PathIndex) -> &mut Transmissions {
        if self.by_path.len() <= path.get() {
            self.by_path.resize_with(path.get() + 1, Transmissions::default);
        }
        &mut self.by_path[path.get()]
    }

    /// Recounts bytes, flight, the lost set and the transmissions of each path.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(
            self.bytes,
            self.chunks.iter().map(|c| c.fragment.payload.len()).sum::<usize>(),
            "kept bytes"
        );
        let mut counted = vec![(0, 0, 0); self.by_path.len()];
        for (offset, chunk) in self.chunks.iter().enumerate() {
            let seq = Seq(self.first.0 + offset as u64);
            assert_eq!(self.lost.contains(&seq), chunk.fate == Fate::Lost, "lost set and fate of {seq:?}");
            let counted = &mut counted[chunk.path.get()];
            match chunk.fate {
                Fate::InFlight => {
                    counted.0 += chunk.fragment.payload.len();
                    counted.1 += 1;
                }
                Fate::Acknowledged => counted.2 += 1,
                Fate::Lost | Fate::Abandoned => {}
            }
        }
        for (path, (on_path, counted)) in self.by_path.iter().zip(counted).enumerate() {
            let path = PathIndex::new(path);
            let mut live = BTreeSet::new();
            for burst in &on_path.bursts {
                live.extend((burst.first.0..burst.end.0).filter(|&s| self.is_live(Seq(s), path, burst.at)));
            }
            assert_eq!((on_path.flight, live.len(), on_path.above), counted, "flight on {path:?}");
            assert!(on_path.bursts.iter().is_sorted_by_key(|b| b.at), "bursts are in order on {path:?}");
        }
    }
}

/// Visits the sequences from `start` on that the sorted `ranges` cover and the sorted `others` do not cover.
fn for_each_uncovered(ranges: &[(Seq, Seq)], others: &[(Seq, Seq)], start: Seq, mut visit: impl FnMut(Seq)) {
    let mut others = others.iter().peekable();
    for &(begin, end) in ranges {
        let mut at = begin.max(start);
        while at <= end {
            while others.next_if(|o| o.1 < at).is_some() {}
            match others.peek() {
                Some(o) if o.0 <= at => at = o.1.next(),
                next => {
                    let stop = next.map_or(end, |o| Seq(o.0.0 - 1)).min(end);
                    while at <= stop {
                        visit(at);
                        at = at.next();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
