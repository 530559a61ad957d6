//! Reassembly of fragments into messages, and of messages into the order of their streams (RFC 9260 sections 6.5, 6.6 and
//! 6.9, RFC 8260 section 2.2).
//!
//! Fragments of DATA belong together by consecutive TSNs ([`ByTsn`]). Fragments of I-DATA belong together by message
//! number and fragment number ([`ByMid`]). An association has only one of the two kinds. A message that arrives whole and
//! in turn passes straight through. Begin at [`Reassembly::insert`].

mod by_mid;
mod by_tsn;
mod order;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use wire::{Data, Fragment, Fsn, IData, Ppid, StreamId, Tsn};

use crate::event::Message;
use crate::tx::Seq;
use by_mid::ByMid;
use by_tsn::ByTsn;

/// A DATA or I-DATA chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) immediate: bool,
    pub(crate) unordered: bool,
    pub(crate) begin: bool,
    pub(crate) end: bool,
    pub(crate) tsn: Tsn,
    pub(crate) stream: StreamId,
    /// SSN of DATA, or MID of I-DATA.
    pub(crate) number: u32,
    /// Zero in DATA.
    pub(crate) fsn: Fsn,
    /// Zero in all fragments of I-DATA after the first.
    pub(crate) ppid: Ppid,
    pub(crate) payload: &'a [u8],
}

impl Piece<'_> {
    /// Returns the piece without its bytes.
    pub(crate) fn header(&self) -> Piece<'static> {
        let Piece { immediate, unordered, begin, end, tsn, stream, number, fsn, ppid, payload: _ } = *self;
        Piece { immediate, unordered, begin, end, tsn, stream, number, fsn, ppid, payload: &[] }
    }
}

impl<'a> From<&Data<'a>> for Piece<'a> {
    #[inline]
    fn from(data: &Data<'a>) -> Self {
        Piece {
            immediate: data.immediate,
            unordered: data.unordered,
            begin: data.begin,
            end: data.end,
            tsn: data.tsn,
            stream: data.stream,
            number: data.ssn.0.into(),
            fsn: Fsn(0),
            ppid: data.ppid,
            payload: data.payload,
        }
    }
}

impl<'a> From<&IData<'a>> for Piece<'a> {
    fn from(data: &IData<'a>) -> Self {
        //= rfc8260#section-2.1
        //# If the B bit is set, this field contains the PPID of the user message. [...] In this case, the FSN is implicitly
        //# considered to be 0.
        let (begin, fsn, ppid) = match data.fragment {
            Fragment::First(ppid) => (true, Fsn(0), ppid),
            Fragment::Later(fsn) => (false, fsn, Ppid(0)),
        };
        Piece {
            immediate: data.immediate,
            unordered: data.unordered,
            begin,
            end: data.end,
            tsn: data.tsn,
            stream: data.stream,
            number: data.mid.0,
            fsn,
            ppid,
            payload: data.payload,
        }
    }
}

/// Entry of a FORWARD TSN or I-FORWARD-TSN for one stream: messages up to this number will not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Skip {
    pub(crate) stream: StreamId,
    pub(crate) unordered: bool,
    /// SSN in a FORWARD TSN, or MID in an I-FORWARD-TSN.
    pub(crate) number: u32,
}

/// Outcome of placing a chunk's bytes.
#[derive(Debug)]
pub(crate) struct Placed {
    /// True if the bytes lie in memory directly behind the preceding piece, and became a part of that piece.
    pub(crate) joined: bool,
    /// Bytes that cannot be placed, because the peer used their numbers for other bytes before.
    pub(crate) unplaceable: Option<Message>,
}

impl Placed {
    /// Returns the outcome for bytes that did not join a piece. `unplaceable` are the bytes that could not be placed.
    fn refused(unplaceable: Option<Message>) -> Placed {
        Placed { joined: false, unplaceable }
    }
}

/// Appends the bytes of the next fragment. Returns whether they joined the preceding piece.
fn push_or_join(pieces: &mut SmallVec<[BytesMut; 2]>, payload: BytesMut) -> bool {
    match pieces.last_mut().filter(|last| last.as_ptr_range().end == payload.as_ptr()) {
        Some(last) => {
            last.unsplit(payload);
            true
        }
        None => {
            pieces.push(payload);
            false
        }
    }
}

/// Incomplete messages, and messages that arrived before their turn.
#[derive(Debug)]
pub(crate) enum Reassembly {
    /// Fragments of DATA.
    Data(ByTsn),
    /// Fragments of I-DATA.
    Interleaved(ByMid),
}

impl Reassembly {
    pub(crate) fn new(interleaved: bool) -> Reassembly {
        if interleaved {
            Reassembly::Interleaved(ByMid::default())
        } else {
            Reassembly::Data(ByTsn::default())
        }
    }

    /// Returns the number of messages and runs of fragments that wait for others.
    pub(crate) fn parked(&self) -> usize {
        match self {
            Reassembly::Data(r) => r.parked(),
            Reassembly::Interleaved(r) => r.parked(),
        }
    }

    /// Returns the bytes of the next numbers of all streams. This memory stays as long as the association does.
    #[inline]
    pub(crate) fn turns_memory(&self) -> usize {
        match self {
            Reassembly::Data(r) => r.turns_memory(),
            Reassembly::Interleaved(r) => r.turns_memory(),
        }
    }

    /// Returns the bytes of bookkeeping for waiting messages and fragments, without the pieces themselves.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        match self {
            Reassembly::Data(r) => r.memory(),
            Reassembly::Interleaved(r) => r.memory(),
        }
    }

    /// Processes a new chunk. Messages that are now whole and in turn move to `ready`.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        seq: Seq,
        piece: &Piece<'_>,
        payload: BytesMut,
        ready: &mut VecDeque<Message>,
    ) -> Placed {
        match self {
            Reassembly::Data(r) => r.insert(seq, piece, payload, ready),
            Reassembly::Interleaved(r) => r.insert(piece, payload, ready),
        }
    }

    /// Delivers the beginning of a message that does not fit into the buffer as a whole, if such a message is in turn
    /// (RFC 9260 section 6.9: partial delivery). For DATA, only the fragments without gaps below `first_missing` count.
    pub(crate) fn deliver_partially(&mut self, first_missing: Seq, ready: &mut VecDeque<Message>) {
        match self {
            Reassembly::Data(r) => r.deliver_partially(first_missing, ready),
            Reassembly::Interleaved(r) => r.deliver_partially(ready),
        }
    }

    /// Handles the peer's abandonment of chunks before `skipped`. All chunks before `first_missing` have arrived or were
    /// abandoned. Returns the bytes of messages that will never be whole.
    pub(crate) fn forward(
        &mut self,
        skipped: Seq,
        first_missing: Seq,
        skips: impl Iterator<Item = Skip>,
        ready: &mut VecDeque<Message>,
    ) -> Vec<Bytes> {
        match self {
            Reassembly::Data(r) => r.forward(skipped, first_missing, skips, ready),
            Reassembly::Interleaved(r) => r.forward(skips, ready),
        }
    }

    /// Restarts these streams (all streams if none is named) with number 0. Chunks before `before` have old numbers.
    /// Returns the bytes of messages that will never be whole.
    pub(crate) fn restart(
        &mut self,
        before: Seq,
        streams: &[StreamId],
        ready: &mut VecDeque<Message>,
    ) -> Vec<Bytes> {
        match self {
            Reassembly::Data(r) => r.restart(before, streams, ready),
            Reassembly::Interleaved(r) => r.restart(streams, ready),
        }
    }

    /// Releases memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        match self {
            Reassembly::Data(r) => r.shrink(),
            Reassembly::Interleaved(r) => r.shrink(),
        }
    }

    /// Returns the bytes held here, with `overhead` for each piece.
    pub(crate) fn held(&self, overhead: usize) -> usize {
        match self {
            Reassembly::Data(r) => r.held(overhead),
            Reassembly::Interleaved(r) => r.held(overhead),
        }
    }

    /// Checks the stored counts.
    pub(crate) fn check_invariants(&self) {
        match self {
            Reassembly::Data(r) => r.check_invariants(),
            Reassembly::Interleaved(r) => r.check_invariants(),
        }
    }
}

/// Returns the end of a message that was delivered in part and will not be completed.
fn aborted(stream: StreamId, ppid: Ppid, unordered: bool) -> Message {
    Message { stream, ppid, unordered, begin: false, end: true, aborted: true, pieces: SmallVec::new() }
}
