//! Recovery of data in flight after this host loses a link or an address. Most of that data has already left
//! the host, and only its acknowledgements are lost.
//!
//! A retransmission of all this data would fill the other path's small window with duplicates for a round
//! trip. Therefore only one packet is retransmitted, the *question*: it has the earliest chunk, and the next
//! chunks that fit. The question requests an immediate SACK, which shows the missing chunks. The other chunks
//! in flight wait for this SACK. New data follows the question without a wait.
//!
//! The wait ends one and a quarter round trips of the other path plus [`LEAST_PATIENCE`] after the loss, even
//! without a SACK. If all data was lost, the peer's program gets the question's chunks first, and the other
//! chunks one round trip later.
//!
//! Data that the kernel refused to send has certainly not left the host. The question then begins with the
//! first refused chunk instead of the earliest chunk. All refused data leaves before new data. The peer
//! delivers each stream in order, so new data of the same stream would wait for the refused data.
//!
//! Start at [`Transfer::on_link_lost`], [`Transfer::on_address_lost`] and [`Transfer::on_unsent`].

use std::net::IpAddr;
use std::time::Duration;

use base::{Route, Time};
use wire::{ChecksumMode, Chunk, Packet, Tsn};

use super::Transfer;
use super::doubt::LEAST_PATIENCE;
use crate::association::Context;
use crate::event::PathReason;
use crate::info::PathState;
use crate::path::{Path, PathIndex, Retired};
use crate::trace::TraceEvent;
use crate::tx::{Fragment, Outstanding, PathAcks, Seq};

/// Data in flight on a path.
struct Flight {
    route: Route,
    /// User bytes.
    bytes: usize,
}

/// Chunks of a lost flight, and the wait for a SACK about them. All these chunks count as lost. The loss is
/// certain only for chunks that the kernel refused to send.
#[derive(Clone, Copy, Debug)]
struct Losses {
    /// First chunk of the question. The SACK that acknowledges this chunk also reports on the other chunks.
    seq: Seq,
    /// True if the kernel refused to send the chunk `seq` and the chunks after it.
    is_unsent: bool,
    /// The question; `None` until it is written into a packet.
    question: Option<Question>,
    /// Latest end of the wait. Afterwards, all lost chunks are retransmitted.
    until: Time,
}

/// The question: the packet that retransmits the chunk [`Losses::seq`], and asks the peer for a SACK.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// Path of the question.
    by: PathIndex,
    /// Earliest arrival of the answer. An acknowledgement that arrives earlier left the peer before the
    /// question reached the peer.
    answer_from: Time,
}

impl Losses {
    fn may_be_answered(&self, now: Time) -> bool {
        self.question.is_some_and(|question| question.answer_from <= now)
    }
}

/// The flight that was lost with a link or address, while its chunks wait for a SACK. Empty at other times.
#[derive(Debug, Default)]
pub(crate) struct Stranded(Option<Box<Losses>>);

impl Stranded {
    /// Reports whether a lost flight still waits for its SACK.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the next lost chunk to retransmit. After the question, returns `None` until the wait ends,
    /// because the SACK may show that the chunk has arrived. Refused chunks do not wait: if the kernel
    /// refused chunks, returns each lost chunk from the first refused chunk on.
    #[inline]
    pub(crate) fn next_lost<'a>(
        &self,
        outstanding: &'a Outstanding,
    ) -> Option<(Seq, &'a Fragment, PathIndex)> {
        match self.0.as_deref() {
            Some(Losses { is_unsent: false, question: Some(_), .. }) => None,
            Some(Losses { seq, .. }) => outstanding.first_lost_from(*seq),
            None => outstanding.first_lost(),
        }
    }

    /// Records that the question was written into a packet for `path`. Later retransmissions change nothing.
    /// `srtt` is the smoothed round-trip time of `path`.
    pub(crate) fn on_asked(&mut self, path: PathIndex, srtt: Option<Duration>, now: Time) {
        if let Some(losses) = self.0.as_mut().filter(|losses| losses.question.is_none()) {
            let answer_from = now + srtt.unwrap_or_default() * 3 / 4;
            losses.question = Some(Question { by: path, answer_from });
        }
    }

    /// Ends the wait if the question was sent on `path`. The caller has declared all data in flight on `path`
    /// lost.
    pub(crate) fn on_given_up(&mut self, path: PathIndex) {
        self.0.take_if(|losses| losses.question.is_some_and(|question| question.by == path));
    }

    /// Ends the wait if a SACK answers the question. The SACK must not arrive before
    /// [`Question::answer_from`], and must acknowledge bytes on the question's path. The question's first
    /// chunk must be acknowledged or abandoned. An acknowledgement that the peer sent before the question
    /// arrived is no answer: it covers only data sent over the lost link or from the lost address.
    pub(crate) fn on_acks(&mut self, acks: &[PathAcks], outstanding: &Outstanding, now: Time) {
        let acknowledges = |path: PathIndex| acks.get(path.get()).is_some_and(|acks| acks.bytes > 0);
        self.0.take_if(|losses| {
            losses.may_be_answered(now)
                && losses.question.is_some_and(|question| acknowledges(question.by))
                && outstanding.is_done(losses.seq)
        });
    }

    /// Ends the wait if a SACK reports the question's first chunk as a duplicate, at
    /// [`Question::answer_from`] or later.
    pub(crate) fn on_duplicates(&mut self, duplicates: &[Seq], now: Time) {
        self.0.take_if(|losses| losses.may_be_answered(now) && duplicates.contains(&losses.seq));
    }

    /// Returns the latest end of the wait; [`Time::NEVER`] if no flight waits for a SACK.
    pub(crate) fn until(&self) -> Time {
        self.0.as_ref().map_or(Time::NEVER, |losses| losses.until)
    }

    pub(crate) fn expire(&mut self, now: Time) {
        self.0.take_if(|losses| losses.until <= now);
    }
}

impl Transfer {
    /// Handles the loss of a path's link, which the driver has reported.
    pub(crate) fn on_link_lost(&mut self, index: PathIndex, ctx: &Context<'_>) {
        self.on_no_way(index, PathReason::LinkDown, None, ctx.now);
    }

    /// Handles the kernel's refusal to send packets on a path. `packet` is the first refused packet.
    pub(crate) fn on_unsent(&mut self, index: PathIndex, packet: &[u8], ctx: &Context<'_>) {
        let first = self.tx.outstanding.first();
        let unsent = first_tsn(packet).and_then(|tsn| first.nearest(self.negotiated.initial_tsn(), tsn));
        // If the packet's first chunk was a retransmission, later chunks may have left long ago. The question
        // then begins with the earliest chunk.
        let unsent = unsent.filter(|seq| self.tx.outstanding.was_sent_once(*seq));
        self.on_no_way(index, PathReason::NoRoute, unsent, ctx.now);
    }

    /// Handles the loss of one of this host's addresses.
    pub(crate) fn on_address_lost(&mut self, address: IpAddr, now: Time) -> Retired {
        let is_gone = |path: &Path| path.route.local == address;
        self.leave(address, |_, path| is_gone(path), |this| this.retire_paths(is_gone), None, now)
    }

    fn on_no_way(&mut self, index: PathIndex, reason: PathReason, unsent: Option<Seq>, now: Time) {
        let local = self.paths.get(index).route.local;
        self.leave(local, |it, _| it == index, |this| this.on_dead_path(index, reason), unsent, now);
    }

    /// Leaves the paths that `is_left` selects, all of which use our address `local`. `mark` records these
    /// paths as unusable. If data was in flight on these paths, no chunk was lost before, and data now uses
    /// another path, calls [`Self::strand`].
    fn leave<T>(
        &mut self,
        local: IpAddr,
        is_left: impl Fn(PathIndex, &Path) -> bool,
        mark: impl FnOnce(&mut Self) -> T,
        unsent: Option<Seq>,
        now: Time,
    ) -> T {
        let leaves_current =
            |this: &Self| is_left(this.paths.current(), this.paths.get(this.paths.current()));
        let (was_current, had_lost) = (leaves_current(self), self.tx.outstanding.has_lost());
        let left = self.paths.iter().filter(|(index, path)| is_left(*index, path));
        let flight = left.filter_map(|(index, _)| self.flight_on(index)).max_by_key(|flight| flight.bytes);
        let marked = mark(self);
        if was_current {
            self.paths.on_local_loss(local);
        }
        if let Some(flight) = flight.filter(|_| !had_lost && !leaves_current(self)) {
            self.strand(flight, unsent, now);
        }
        marked
    }

    fn flight_on(&self, index: PathIndex) -> Option<Flight> {
        let (route, bytes) = (self.paths.get(index).route, self.tx.outstanding.flight(index));
        (bytes > 0).then_some(Flight { route, bytes })
    }

    /// Begins the wait for a SACK about a lost flight. Chunks from `unsent` on are certainly lost. Begins no
    /// wait if the current path is not active or has no measured round trip: all chunks are then
    /// retransmitted. The caller must make sure that no chunk was lost before, because a chunk that is known
    /// to be lost must not wait.
    fn strand(&mut self, Flight { route, bytes }: Flight, unsent: Option<Seq>, now: Time) {
        let path = self.paths.get(self.paths.current());
        let Some(srtt) = path.srtt().filter(|_| path.state() == PathState::Active) else { return };
        let Some((earliest, ..)) = self.tx.outstanding.first_lost() else { return };
        // If data uses several paths at once, the other paths already have large windows, with room for all
        // lost data at once.
        if self.is_concurrent() {
            return;
        }
        self.out.note(TraceEvent::FlightStranded { route, bytes });
        let until = now + srtt * 5 / 4 + LEAST_PATIENCE;
        let unsent = unsent.filter(|seq| self.tx.outstanding.first_lost_from(*seq).is_some());
        let (seq, is_unsent) = (unsent.unwrap_or(earliest), unsent.is_some());
        self.tx.stranded = Stranded(Some(Box::new(Losses { seq, is_unsent, question: None, until })));
    }
}

/// Returns the TSN of the first DATA or I-DATA chunk in a packet.
fn first_tsn(packet: &[u8]) -> Option<Tsn> {
    let packet = Packet::parse(packet, ChecksumMode::Ignore).ok()?;
    packet.chunks().find_map(|chunk| match chunk {
        Ok(Chunk::Data(data)) => Some(data.tsn),
        Ok(Chunk::IData(data)) => Some(data.tsn),
        _ => None,
    })
}
