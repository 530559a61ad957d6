//! DATA chunks that were sent and are not yet cumulatively acknowledged.
//!
//! Keeps each chunk's fate (in flight, lost, acknowledged), what is in flight on each path, and what must be sent
//! again. Never sends. Invariants: `flight` recounts the chunks in flight; `lost` holds just the lost ones. Begin at
//! [`Outstanding::on_sack`].

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use base::Time;
use smallvec::SmallVec;

use super::{Fragment, Seq};
use crate::path::PathIndex;

/// Reports by which a chunk counts as lost (RFC 9260 section 7.2.4).
const MISSING_REPORTS: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    InFlight,
    Lost,
    Acknowledged,
    /// Given up: as if acknowledged, but without credit (RFC 3758 section 3.5, A2).
    Abandoned,
}

#[derive(Debug)]
struct SentChunk {
    fragment: Fragment,
    path: PathIndex,
    sent_at: Time,
    fate: Fate,
    missing_reports: u8,
    retransmitted: bool,
}

/// A SACK that cannot be true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SackError {
    /// It acknowledges what was never sent.
    BeyondSent,
}

/// What a SACK did on one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathAcks {
    /// User bytes newly acknowledged.
    pub(crate) bytes: usize,
    /// The newest newly acknowledged chunk that was sent only once, and when.
    pub(crate) newest: Option<(Seq, Duration)>,
    /// Whether chunks of the path were acknowledged cumulatively: the earliest outstanding one is another now.
    pub(crate) earliest: bool,
    /// Chunks newly found lost.
    pub(crate) lost: usize,
    /// Whether a chunk was acknowledged that had not been given up on this path: the path works. One that had may have
    /// been received long before the path failed.
    pub(crate) proves_path: bool,
}

/// What a SACK did, path by path (indexed like the paths).
pub(crate) type Acks = SmallVec<[PathAcks; 8]>;

/// The chunks in flight, lost, or acknowledged out of order.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    /// The first chunk not cumulatively acknowledged.
    first: Seq,
    chunks: VecDeque<SentChunk>,
    bytes: usize,
    lost: BTreeSet<Seq>,
    flight: SmallVec<[usize; 8]>,
    /// Ranges acknowledged by the gap blocks of the last SACK, ends included.
    gaps: Vec<(Seq, Seq)>,
}

impl Outstanding {
    /// The first sequence not cumulatively acknowledged.
    pub(crate) fn first(&self) -> Seq {
        self.first
    }

    /// The sequence that the next new chunk gets.
    pub(crate) fn next(&self) -> Seq {
        Seq(self.first.0 + self.chunks.len() as u64)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// User bytes kept until they are cumulatively acknowledged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// User bytes in flight on `path`.
    pub(crate) fn flight(&self, path: PathIndex) -> usize {
        self.flight.get(path.0).copied().unwrap_or(0)
    }

    /// User bytes in flight on all paths.
    pub(crate) fn total_flight(&self) -> usize {
        self.flight.iter().sum()
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Notes a new chunk as sent and returns its sequence.
    pub(crate) fn push(&mut self, fragment: Fragment, path: PathIndex, now: Time) -> Seq {
        let seq = self.next();
        self.bytes += fragment.payload.len();
        self.add_flight(path, fragment.payload.len());
        self.chunks.push_back(SentChunk {
            fragment,
            path,
            sent_at: now,
            fate: Fate::InFlight,
            missing_reports: 0,
            retransmitted: false,
        });
        seq
    }

    /// The earliest lost chunk, and the path it was last sent by.
    pub(crate) fn first_lost(&self) -> Option<(Seq, &Fragment, PathIndex)> {
        let seq = *self.lost.first()?;
        let chunk = self.get(seq)?;
        Some((seq, &chunk.fragment, chunk.path))
    }

    /// Notes a lost chunk as sent again.
    pub(crate) fn on_retransmit(&mut self, seq: Seq, path: PathIndex, now: Time) {
        self.lost.remove(&seq);
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        chunk.fate = Fate::InFlight;
        chunk.path = path;
        chunk.sent_at = now;
        chunk.missing_reports = 0;
        chunk.retransmitted = true;
        let length = chunk.fragment.payload.len();
        self.add_flight(path, length);
    }

    /// The earliest chunk in flight or waiting for another, its length and path, if it is in flight.
    pub(crate) fn first_in_flight(&self) -> Option<(Seq, usize, PathIndex)> {
        let chunk = self.chunks.front().filter(|c| c.fate == Fate::InFlight)?;
        Some((self.first, chunk.fragment.payload.len(), chunk.path))
    }

    /// A chunk in flight counts as lost.
    pub(crate) fn mark_lost(&mut self, seq: Seq) {
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        if chunk.fate == Fate::InFlight {
            chunk.fate = Fate::Lost;
            self.flight[chunk.path.0] -= chunk.fragment.payload.len();
            self.lost.insert(seq);
        }
    }

    /// A chunk is given up; its bytes are let go.
    //= rfc3758#section-3.5
    //# When a data chunk is "abandoned", the sender MUST treat the data chunk as being finally acked and no longer
    //# outstanding.
    pub(crate) fn abandon(&mut self, seq: Seq) {
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        let length = std::mem::take(&mut chunk.fragment.payload).len();
        self.bytes -= length;
        match std::mem::replace(&mut chunk.fate, Fate::Abandoned) {
            Fate::InFlight => self.flight[chunk.path.0] -= length,
            Fate::Lost => {
                self.lost.remove(&seq);
            }
            Fate::Acknowledged | Fate::Abandoned => {}
        }
    }

    pub(crate) fn is_abandoned(&self, seq: Seq) -> bool {
        self.get(seq).is_some_and(|c| c.fate == Fate::Abandoned)
    }

    /// The chunks from the first one on, abandoned ones included.
    pub(crate) fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.chunks.iter().map(|c| &c.fragment)
    }

    /// The ranges above `first` that the last SACK's gap blocks acknowledged.
    pub(crate) fn gaps_from(&self, first: Seq) -> Vec<(Seq, Seq)> {
        self.gaps.iter().filter(|g| g.1 >= first).map(|g| (g.0.max(first), g.1)).collect()
    }

    /// T3 expired: all that is in flight on `path` counts as lost (RFC 9260 section 6.3.3, E3). Returns how many chunks.
    pub(crate) fn on_timeout(&mut self, path: PathIndex) -> usize {
        let mut marked = 0;
        for (offset, chunk) in self.chunks.iter_mut().enumerate() {
            if chunk.path == path && chunk.fate == Fate::InFlight {
                chunk.fate = Fate::Lost;
                self.lost.insert(Seq(self.first.0 + offset as u64));
                marked += 1;
            }
        }
        if let Some(flight) = self.flight.get_mut(path.0) {
            *flight = 0;
        }
        marked
    }

    /// Applies a SACK: everything before `first` is acknowledged, and the ranges of `gaps` (ends included).
    ///
    /// A SACK older than one already seen changes nothing. Gap blocks that are reversed, overlap or reach beyond what
    /// was sent are an error, found before anything changes.
    pub(crate) fn on_sack(&mut self, first: Seq, gaps: &[(Seq, Seq)], now: Time) -> Result<Acks, SackError> {
        let highest = gaps.iter().map(|g| g.1.next()).fold(first, Seq::max);
        if highest > self.next() {
            return Err(SackError::BeyondSent);
        }
        let mut acks = Acks::from_elem(PathAcks::default(), self.flight.len());
        if first < self.first {
            return Ok(acks);
        }
        let mut newest = None;
        self.renege(first, gaps);
        self.acknowledge_cumulative(first, now, &mut acks, &mut newest);
        self.acknowledge_gaps(gaps, now, &mut acks, &mut newest);
        self.count_missing(gaps, newest, &mut acks);
        self.gaps.clear();
        self.gaps.extend_from_slice(gaps);
        Ok(acks)
    }

    fn acknowledge_cumulative(&mut self, first: Seq, now: Time, acks: &mut Acks, newest: &mut Option<Seq>) {
        while self.first < first {
            self.acknowledge(self.first, now, acks, newest);
            let Some(chunk) = self.chunks.pop_front() else { break };
            self.bytes -= chunk.fragment.payload.len();
            self.first = self.first.next();
        }
    }

    /// Visits only what the last SACK's gap blocks did not cover already.
    fn acknowledge_gaps(
        &mut self,
        gaps: &[(Seq, Seq)],
        now: Time,
        acks: &mut Acks,
        newest: &mut Option<Seq>,
    ) {
        let known = std::mem::take(&mut self.gaps);
        let mut known = known.iter().peekable();
        for &(start, end) in gaps {
            let mut at = start.max(self.first);
            while at <= end {
                while known.next_if(|k| k.1 < at).is_some() {}
                match known.peek() {
                    Some(k) if k.0 <= at => at = k.1.next(),
                    next => {
                        let stop = next.map_or(end, |k| Seq(k.0.0 - 1)).min(end);
                        while at <= stop {
                            self.acknowledge(at, now, acks, newest);
                            at = at.next();
                        }
                    }
                }
            }
        }
    }

    fn acknowledge(&mut self, seq: Seq, now: Time, acks: &mut Acks, newest: &mut Option<Seq>) {
        let cumulative = seq == self.first;
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        let length = chunk.fragment.payload.len();
        let path = chunk.path;
        match chunk.fate {
            Fate::Acknowledged | Fate::Abandoned => return,
            Fate::InFlight => {
                self.flight[path.0] -= length;
                acks[path.0].proves_path = true;
            }
            Fate::Lost => {
                self.lost.remove(&seq);
            }
        }
        chunk.fate = Fate::Acknowledged;
        *newest = (*newest).max(Some(seq));
        let acks = &mut acks[path.0];
        acks.bytes += length;
        acks.earliest |= cumulative;
        if !chunk.retransmitted {
            acks.newest = Some((seq, now - chunk.sent_at));
        }
    }

    /// What the last SACK's gap blocks covered and these do not is missing again (RFC 9260 section 6.2.1, D iii).
    fn renege(&mut self, first: Seq, gaps: &[(Seq, Seq)]) {
        for k in 0..self.gaps.len() {
            let (start, end) = self.gaps[k];
            let mut at = start.max(first);
            while at <= end {
                match gaps.iter().find(|g| g.1 >= at) {
                    Some(g) if g.0 <= at => at = g.1.next(),
                    next => {
                        let stop = next.map_or(end, |g| Seq(g.0.0 - 1)).min(end);
                        while at <= stop {
                            self.unacknowledge(at);
                            at = at.next();
                        }
                    }
                }
            }
        }
    }

    fn unacknowledge(&mut self, seq: Seq) {
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        if chunk.fate == Fate::Acknowledged {
            chunk.fate = Fate::InFlight;
            let (path, length) = (chunk.path, chunk.fragment.payload.len());
            self.add_flight(path, length);
        }
    }

    /// The highest TSN newly acknowledged rule (RFC 9260 section 7.2.4): holes below `newest` get one report more.
    fn count_missing(&mut self, gaps: &[(Seq, Seq)], newest: Option<Seq>, acks: &mut Acks) {
        let (Some(newest), false) = (newest, gaps.is_empty()) else { return };
        let mut at = self.first;
        for &(start, end) in gaps {
            while at < start && at < newest {
                self.report_missing(at, acks);
                at = at.next();
            }
            at = at.max(end.next());
        }
    }

    fn report_missing(&mut self, seq: Seq, acks: &mut Acks) {
        let Some(index) = self.index(seq) else { return };
        let chunk = &mut self.chunks[index];
        if chunk.fate != Fate::InFlight || chunk.retransmitted {
            return;
        }
        chunk.missing_reports += 1;
        if chunk.missing_reports >= MISSING_REPORTS {
            acks[chunk.path.0].lost += 1;
            self.mark_lost(seq);
        }
    }

    fn index(&self, seq: Seq) -> Option<usize> {
        let offset = usize::try_from(seq.0.checked_sub(self.first.0)?).ok()?;
        (offset < self.chunks.len()).then_some(offset)
    }

    fn get(&self, seq: Seq) -> Option<&SentChunk> {
        self.index(seq).map(|i| &self.chunks[i])
    }

    fn add_flight(&mut self, path: PathIndex, bytes: usize) {
        if self.flight.len() <= path.0 {
            self.flight.resize(path.0 + 1, 0);
        }
        self.flight[path.0] += bytes;
    }

    /// Recounts bytes, flight and the lost set.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(
            self.bytes,
            self.chunks.iter().map(|c| c.fragment.payload.len()).sum::<usize>(),
            "kept bytes"
        );
        for (path, &flight) in self.flight.iter().enumerate() {
            let counted: usize = (self.chunks.iter())
                .filter(|c| c.path.0 == path && c.fate == Fate::InFlight)
                .map(|c| c.fragment.payload.len())
                .sum();
            assert_eq!(flight, counted, "flight on path {path}");
        }
        for (offset, chunk) in self.chunks.iter().enumerate() {
            let seq = Seq(self.first.0 + offset as u64);
            assert_eq!(self.lost.contains(&seq), chunk.fate == Fate::Lost, "lost set and fate of {seq:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wire::{Fsn, Mid, Ppid, StreamId};

    const P: PathIndex = PathIndex(0);

    fn sent(n: u64) -> Outstanding {
        let mut o = Outstanding::default();
        for i in 0..n {
            let fragment = Fragment {
                payload: Bytes::from_static(&[0; 100]),
                stream: StreamId(0),
                mid: Mid(0),
                fsn: Fsn(0),
                ppid: Ppid(0),
                unordered: false,
                begin: true,
                end: true,
            };
            assert_eq!(o.push(fragment, P, Time::from_millis(i)), Seq(i));
        }
        o
    }

    fn sack(o: &mut Outstanding, first: u64, gaps: &[(u64, u64)]) -> PathAcks {
        let gaps: Vec<_> = gaps.iter().map(|g| (Seq(g.0), Seq(g.1))).collect();
        let acks = o.on_sack(Seq(first), &gaps, Time::from_millis(1000)).unwrap();
        o.check_invariants();
        acks.first().copied().unwrap_or_default()
    }

    #[test]
    fn a_cumulative_sack_frees_what_it_covers_and_times_the_newest() {
        let mut o = sent(5);
        let acks = sack(&mut o, 3, &[]);
        assert_eq!((acks.bytes, acks.earliest), (300, true));
        assert_eq!(acks.newest, Some((Seq(2), Duration::from_millis(998))));
        assert_eq!((o.first(), o.bytes(), o.flight(P)), (Seq(3), 200, 200));
    }

    #[test]
    fn a_chunk_is_lost_at_the_third_report_and_not_at_the_second() {
        let mut o = sent(6);
        assert_eq!(sack(&mut o, 0, &[(1, 1)]).lost, 0);
        assert_eq!(sack(&mut o, 0, &[(1, 2)]).lost, 0);
        assert!(!o.has_lost());
        assert_eq!(sack(&mut o, 0, &[(1, 3)]).lost, 1);
        assert_eq!(o.first_lost().unwrap().0, Seq(0));
    }

    #[test]
    fn a_sack_that_brings_nothing_new_is_no_report() {
        let mut o = sent(6);
        for _ in 0..5 {
            sack(&mut o, 0, &[(1, 1)]);
        }
        assert!(!o.has_lost());
    }

    #[test]
    fn a_retransmitted_chunk_gives_no_round_trip_time() {
        let mut o = sent(1);
        assert_eq!(o.on_timeout(P), 1);
        o.on_retransmit(Seq(0), P, Time::from_millis(500));
        assert_eq!(sack(&mut o, 1, &[]).newest, None);
    }

    #[test]
    fn reneged_chunks_are_in_flight_again() {
        let mut o = sent(6);
        sack(&mut o, 1, &[(3, 5)]);
        assert_eq!(o.flight(P), 200);
        sack(&mut o, 1, &[(4, 4)]);
        assert_eq!(o.flight(P), 400);
        sack(&mut o, 6, &[]);
        assert!(o.is_empty() && o.flight(P) == 0 && o.bytes() == 0);
    }

    #[test]
    fn what_gap_blocks_acknowledged_stays_so_when_only_the_cumulative_tsn_is_known() {
        let mut o = sent(6);
        sack(&mut o, 1, &[(3, 5)]);
        let gaps = o.gaps_from(Seq(2));
        assert_eq!(gaps, [(Seq(3), Seq(5))]);
        o.on_sack(Seq(2), &gaps, Time::from_millis(1000)).unwrap();
        o.check_invariants();
        assert_eq!(o.flight(P), 100);
        assert_eq!(o.gaps_from(Seq(4)), [(Seq(4), Seq(5))]);
    }

    #[test]
    fn a_sack_beyond_what_was_sent_changes_nothing() {
        let mut o = sent(3);
        assert_eq!(o.on_sack(Seq(4), &[], Time::ZERO).err(), Some(SackError::BeyondSent));
        assert_eq!(o.on_sack(Seq(1), &[(Seq(2), Seq(3))], Time::ZERO).err(), Some(SackError::BeyondSent));
        assert_eq!(o.flight(P), 300);
    }

    #[test]
    fn an_older_sack_changes_nothing() {
        let mut o = sent(5);
        sack(&mut o, 3, &[]);
        assert_eq!(sack(&mut o, 1, &[(3, 4)]), PathAcks::default());
        assert_eq!(o.flight(P), 200);
    }

    #[test]
    fn an_abandoned_chunk_is_neither_in_flight_nor_lost_nor_credited() {
        let mut o = sent(3);
        o.mark_lost(Seq(1));
        o.abandon(Seq(0));
        o.abandon(Seq(1));
        o.check_invariants();
        assert_eq!((o.flight(P), o.bytes(), o.has_lost()), (100, 100, false));
        assert_eq!(sack(&mut o, 3, &[]).bytes, 100);
    }

    #[test]
    fn what_was_acknowledged_and_then_abandoned_cannot_be_reneged() {
        let mut o = sent(4);
        sack(&mut o, 0, &[(2, 3)]);
        o.abandon(Seq(2));
        sack(&mut o, 0, &[(3, 3)]);
        assert!(o.is_abandoned(Seq(2)));
        assert_eq!(o.flight(P), 200);
    }
}
