//! Recovery of data in flight after this host loses a link or an address. Most of that data has already left
//! the host, and only its acknowledgements are lost.
//!
//! A retransmission of all data would fill the other path's small window with duplicates for a round trip.
//! Therefore only the earliest chunk is retransmitted, with a request for an immediate SACK. New data follows
//! this chunk. The other chunks in flight wait for the SACK, which shows the missing chunks. The wait is
//! limited to one and a quarter round trips of the other path, plus [`LEAST_PATIENCE`]. If everything was
//! lost, the peer's program gets the earliest chunk at once, and the other chunks a round trip later.
//!
//! Data that the kernel refused to send has certainly not left the host. The retransmission then begins with
//! this refused data instead of the earliest chunk. All refused data precedes new data, because the peer's
//! program could not read the new data first. Start at [`Transfer::on_link_lost`],
//! [`Transfer::on_address_lost`] and [`Transfer::on_unsent`].

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

/// The data in flight on a path.
struct Flight {
    route: Route,
    bytes: usize,
}

/// Chunks that count as lost. For most of them the loss is only presumed.
#[derive(Clone, Copy, Debug)]
struct Losses {
    /// The chunk to retransmit first. The SACK that acknowledges this chunk also reports on the other chunks.
    seq: Seq,
    /// True if the kernel refused to send this chunk and the chunks after it.
    is_unsent: bool,
    /// Retransmission of `seq`; `None` until it has been sent.
    question: Option<Question>,
    /// Time at which the wait ends. The other chunks then count as lost.
    until: Time,
}

/// The retransmission of the first chunk, which asks the peer for a SACK.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// Path of the retransmission.
    by: PathIndex,
    /// Earliest time of an answer. If an acknowledgement arrives earlier, the peer sent it before the
    /// retransmission arrived.
    answer_from: Time,
}

impl Losses {
    fn may_be_answered(&self, now: Time) -> bool {
        self.question.is_some_and(|question| question.answer_from <= now)
    }
}

/// The flight that was lost with a link or address. It is kept until a SACK shows which of its chunks have
/// arrived.
#[derive(Debug, Default)]
pub(crate) struct Stranded(Option<Box<Losses>>);

impl Stranded {
    /// Reports whether an answer about the flight is still awaited.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the next lost chunk to retransmit. Returns `None` while the answer is awaited, because the
    /// SACK may show that the chunk has arrived.
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

    /// Records that the first chunk was written into a packet for `path`. `srtt` is the smoothed round-trip
    /// time of that path.
    pub(crate) fn on_asked(&mut self, path: PathIndex, srtt: Option<Duration>, now: Time) {
        if let Some(losses) = self.0.as_mut().filter(|losses| losses.question.is_none()) {
            let answer_from = now + srtt.unwrap_or_default() * 3 / 4;
            losses.question = Some(Question { by: path, answer_from });
        }
    }

    /// Ends the wait for an answer if the retransmission was sent on `path`, which is now abandoned.
    pub(crate) fn on_given_up(&mut self, path: PathIndex) {
        self.0.take_if(|losses| losses.question.is_some_and(|question| question.by == path));
    }

    /// Ends the wait if a SACK acknowledges the first chunk, and acknowledges bytes on the path of the
    /// retransmission. An acknowledgement that the peer sent earlier is no answer: it covers only data sent
    /// over the lost link or address.
    pub(crate) fn on_acks(&mut self, acks: &[PathAcks], outstanding: &Outstanding, now: Time) {
        let acknowledges = |path: PathIndex| acks.get(path.get()).is_some_and(|acks| acks.bytes > 0);
        self.0.take_if(|losses| {
            losses.may_be_answered(now)
                && losses.question.is_some_and(|question| acknowledges(question.by))
                && outstanding.is_done(losses.seq)
        });
    }

    /// Ends the wait if a SACK reports the first chunk as a duplicate.
    pub(crate) fn on_duplicates(&mut self, duplicates: &[Seq], now: Time) {
        self.0.take_if(|losses| losses.may_be_answered(now) && duplicates.contains(&losses.seq));
    }

    /// Returns the time at which the wait ends, even without an answer; [`Time::NEVER`] if nothing waits.
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

    /// Handles packets of a path that the kernel refused to send. `packet` is the first of them.
    pub(crate) fn on_unsent(&mut self, index: PathIndex, packet: &[u8], ctx: &Context<'_>) {
        let first = self.tx.outstanding.first();
        let unsent = first_tsn(packet).and_then(|tsn| first.nearest(self.negotiated.initial_tsn(), tsn));
        // If the first chunk was a retransmission, the chunks after it may have left long ago.
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

    /// Abandons the paths that `is_left` selects; all of them use our address `local`. `mark` records these
    /// paths as unusable.
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

    /// Sets up the recovery of a flight that is presumed lost. Chunks from `unsent` on are certainly lost.
    /// The caller must make sure that no chunk was lost before. Chunks that are known to be lost must not
    /// wait for an answer.
    fn strand(&mut self, Flight { route, bytes }: Flight, unsent: Option<Seq>, now: Time) {
        let path = self.paths.get(self.paths.current());
        let Some(srtt) = path.srtt().filter(|_| path.state() == PathState::Active) else { return };
        let Some((earliest, ..)) = self.tx.outstanding.first_lost() else { return };
        // If data uses several paths at once, the windows of the other paths are already open. All lost data
        // can then be retransmitted at once.
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
