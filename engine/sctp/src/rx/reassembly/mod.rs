//! Fragments into messages, messages into the order of their streams (RFC 9260 sections 6.5, 6.6 and 6.9, RFC 8260
//! section 2.2).
//!
//! DATA fragments belong together by consecutive TSNs ([`ByTsn`]), I-DATA fragments by message number and fragment number
//! ([`ByMid`]); an association has one kind only. A message that came whole and in turn passes straight through. Begin at
//! [`Reassembly::insert`].

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
    /// SSN or MID.
    pub(crate) number: u32,
    /// Zero in DATA.
    pub(crate) fsn: Fsn,
    /// Zero in the later fragments of I-DATA.
    pub(crate) ppid: Ppid,
    pub(crate) payload: &'a [u8],
}

impl Piece<'_> {
    /// The same, but for the bytes.
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

/// A FORWARD TSN's or I-FORWARD-TSN's entry for one stream: messages up to this one will not come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Skip {
    pub(crate) stream: StreamId,
    pub(crate) unordered: bool,
    /// SSN or MID.
    pub(crate) number: u32,
}

/// Outcome of placing a chunk's bytes.
#[derive(Debug)]
pub(crate) struct Placed {
    /// They lie in memory just behind the piece before them, and became a part of it.
    pub(crate) joined: bool,
    /// Bytes that cannot be placed, because the peer numbered them as others.
    pub(crate) unplaceable: Option<Message>,
}

impl Placed {
    /// They did not join others; `unplaceable` are those that could not be placed.
    fn refused(unplaceable: Option<Message>) -> Placed {
        Placed { joined: false, unplaceable }
    }
}

/// Adds the bytes of the next fragment; returns whether they joined those before them.
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

/// Incomplete and early messages.
#[derive(Debug)]
pub(crate) enum Reassembly {
    /// Of DATA.
    Data(ByTsn),
    /// Of I-DATA.
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

    /// Messages and fragments that wait for others.
    pub(crate) fn parked(&self) -> usize {
        match self {
            Reassembly::Data(r) => r.parked(),
            Reassembly::Interleaved(r) => r.parked(),
        }
    }

    /// Bytes of the turns of all streams: these stay as long as the association does.
    #[inline]
    pub(crate) fn turns_memory(&self) -> usize {
        match self {
            Reassembly::Data(r) => r.turns_memory(),
            Reassembly::Interleaved(r) => r.turns_memory(),
        }
    }

    /// Bytes that it takes to keep what waits, but for its own pieces.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        match self {
            Reassembly::Data(r) => r.memory(),
            Reassembly::Interleaved(r) => r.memory(),
        }
    }

    /// Takes a new chunk; messages that are now whole and in turn go to `ready`.
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

    /// Gives the reader the beginning of a message that does not fit into the buffer as a whole, if there is one whose
    /// turn it is (RFC 9260 section 6.9: partial delivery). Of DATA, only what came without gaps below `first_missing`
    /// counts.
    pub(crate) fn deliver_partially(&mut self, first_missing: Seq, ready: &mut VecDeque<Message>) {
        match self {
            Reassembly::Data(r) => r.deliver_partially(first_missing, ready),
            Reassembly::Interleaved(r) => r.deliver_partially(ready),
        }
    }

    /// The peer gave up chunks before `skipped`, and everything before `first_missing` came or was given up. Returns the
    /// bytes of messages that will never be whole.
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

    /// The streams (all, if none is named) begin anew with number 0. Chunks before `before` are of the old numbering.
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

    /// Gives back memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        match self {
            Reassembly::Data(r) => r.shrink(),
            Reassembly::Interleaved(r) => r.shrink(),
        }
    }

    /// Bytes held here, with `overhead` for each piece.
    pub(crate) fn held(&self, overhead: usize) -> usize {
        match self {
            Reassembly::Data(r) => r.held(overhead),
            Reassembly::Interleaved(r) => r.held(overhead),
        }
    }

    /// Recounts what is counted.
    pub(crate) fn check_invariants(&self) {
        match self {
            Reassembly::Data(r) => r.check_invariants(),
            Reassembly::Interleaved(r) => r.check_invariants(),
        }
    }
}

/// The end of a message that was delivered in part and will not be completed.
fn aborted(stream: StreamId, ppid: Ppid, unordered: bool) -> Message {
    Message { stream, ppid, unordered, begin: false, end: true, aborted: true, pieces: SmallVec::new() }
}
