//! Reassembly of messages from fragments, and delivery of messages in the order of their streams (RFC 9260 sections 6.5,
//! 6.6 and 6.9, RFC 8260 section 2.2).
//!
//! In DATA chunks, consecutive TSNs connect the fragments of a message ([`ByTsn`]). In I-DATA chunks, the message number
//! and the fragment number connect the fragments ([`ByMid`]). An association uses only DATA or only I-DATA. A message
//! that arrives whole and in turn is delivered without storage in this module. Begin at [`Reassembly::insert`].

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
    /// Fragment number of I-DATA; zero in DATA.
    pub(crate) fsn: Fsn,
    /// Payload protocol identifier; zero in all fragments of an I-DATA message after the first fragment.
    pub(crate) ppid: Ppid,
    pub(crate) payload: &'a [u8],
}

impl Piece<'_> {
    /// Returns the piece without its payload.
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

/// Entry of a FORWARD TSN or I-FORWARD-TSN for one stream: incomplete messages up to `number` will not arrive.
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
    /// True if the bytes became a part of the preceding piece, because they follow this piece directly in memory.
    pub(crate) joined: bool,
    /// Message with the bytes that cannot be placed, because their numbers are impossible or the peer has already used
    /// them.
    pub(crate) unplaceable: Option<Message>,
}

impl Placed {
    /// Returns the outcome for bytes that did not join a piece. `unplaceable` has the bytes that could not be placed, if
    /// any.
    fn refused(unplaceable: Option<Message>) -> Placed {
        Placed { joined: false, unplaceable }
    }
}

/// Appends the bytes of the next fragment to `pieces`. Returns whether the bytes joined the preceding piece.
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

    /// Returns the number of messages and runs of fragments that wait for other chunks.
    pub(crate) fn parked(&self) -> usize {
        match self {
            Reassembly::Data(r) => r.parked(),
            Reassembly::Interleaved(r) => r.parked(),
        }
    }

    /// Returns the memory of the next numbers of all streams in bytes. This memory is not released when messages are
    /// delivered.
    #[inline]
    pub(crate) fn turns_memory(&self) -> usize {
        match self {
            Reassembly::Data(r) => r.turns_memory(),
            Reassembly::Interleaved(r) => r.turns_memory(),
        }
    }

    /// Returns the memory of the bookkeeping for waiting messages and fragments in bytes, without the pieces.
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
    /// (RFC 9260 section 6.9: partial delivery). For DATA, only the message whose fragments end directly before
    /// `first_missing` is a candidate.
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

    /// Restarts `streams` with number 0, or all streams if `streams` is empty. Chunks before `before` have numbers from
    /// before the reset. Returns the bytes of messages that will never be whole.
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

    /// Returns the number of buffered bytes, with `overhead` bytes added for each piece.
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

/// Returns the last, empty part of a message that was delivered in part and will not be completed.
fn aborted(stream: StreamId, ppid: Ppid, unordered: bool) -> Message {
    Message { stream, ppid, unordered, begin: false, end: true, aborted: true, pieces: SmallVec::new() }
}
