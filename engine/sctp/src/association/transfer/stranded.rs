//! Recovery after loss of one of our links or addresses with data in flight. Most of that data has already
//! left this host, and only the answers are lost.
//!
//! Retransmitting all of it would fill the other path's small window with duplicates for a round trip. So
//! only the earliest chunk is retransmitted and requests an immediate SACK; new data follows it, and the rest
//! waits up to a round trip and a quarter for that SACK, which shows what is missing. If all was lost, the
//! peer's program still gets the earliest chunk at once, and the rest a round trip later. Data that the
//! kernel refused to send certainly has not left: it goes in place of the earliest chunk, and entirely before
//! new data, which the peer's program could not receive before it. Start at [`Transfer::on_link_lost`],
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

/// Losses, most of them only presumed.
#[derive(Clone, Copy, Debug)]
struct Losses {
    /// The chunk to send first; its acknowledgement also reports on the others.
    seq: Seq,
    /// Set if the kernel refused to send that chunk and those after it.
    is_unsent: bool,
    question: Option<Question>,
    /// The time after which the other chunks count as lost.
    until: Time,
}

/// The retransmission of the first chunk.
#[derive(Clone, Copy, Debug)]
struct Question {
    by: PathIndex,
    /// Acknowledgements before this time were already under way and are no answer.
    answer_from: Time,
}

impl Losses {
    fn may_be_answered(&self, now: Time) -> bool {
        self.question.is_some_and(|question| question.answer_from <= now)
    }
}

/// The flight that was lost with a link or address, until it is known which of it has arrived.
#[derive(Debug, Default)]
pub(crate) struct Stranded(Option<Box<Losses>>);

impl Stranded {
    /// Reports whether an answer about the flight is still wanted.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the next chunk that counts as lost, unless a SACK is awaited that may report on it.
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

    /// Records that the first chunk was written into a packet for `path`, whose round trips take `srtt`.
    pub(crate) fn on_asked(&mut self, path: PathIndex, srtt: Option<Duration>, now: Time) {
        if let Some(losses) = self.0.as_mut().filter(|losses| losses.question.is_none()) {
            let answer_from = now + srtt.unwrap_or_default() * 3 / 4;
            losses.question = Some(Question { by: path, answer_from });
        }
    }

    /// Ends the wait for an answer if the retransmission was abandoned with its path.
    pub(crate) fn on_given_up(&mut self, path: PathIndex) {
        self.0.take_if(|losses| losses.question.is_some_and(|question| question.by == path));
    }

    /// Handles a SACK for the first chunk. Other SACKs may still arrive over the lost link or address and
    /// cover what went that way.
    pub(crate) fn on_acks(&mut self, acks: &[PathAcks], outstanding: &Outstanding, now: Time) {
        let acknowledges = |path: PathIndex| acks.get(path.get()).is_some_and(|acks| acks.bytes > 0);
        self.0.take_if(|losses| {
            losses.may_be_answered(now)
                && losses.question.is_some_and(|question| acknowledges(question.by))
                && outstanding.is_done(losses.seq)
        });
    }

    /// Handles the duplicates that a SACK reports.
    pub(crate) fn on_duplicates(&mut self, duplicates: &[Seq], now: Time) {
        self.0.take_if(|losses| losses.may_be_answered(now) && duplicates.contains(&losses.seq));
    }

    /// Time at which the wait for the rest ends.
    pub(crate) fn until(&self) -> Time {
        self.0.as_ref().map_or(Time::NEVER, |losses| losses.until)
    }

    pub(crate) fn expire(&mut self, now: Time) {
        self.0.take_if(|losses| losses.until <= now);
    }
}

impl Transfer {
    /// Handles the loss of a path's link, as reported by its host.
    pub(crate) fn on_link_lost(&mut self, index: PathIndex, ctx: &Context<'_>) {
        self.on_no_way(index, PathReason::LinkDown, None, ctx.now);
    }

    /// Handles packets of a path that this host could not send; `packet` is the first of them.
    pub(crate) fn on_unsent(&mut self, index: PathIndex, packet: &[u8], ctx: &Context<'_>) {
        let first = self.tx.outstanding.first();
        let unsent = first_tsn(packet).and_then(|tsn| first.nearest(self.negotiated.initial_tsn(), tsn));
        // Chunks after a retransmitted one may have left long ago.
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

    /// Abandons paths from `local`, which `mark` records as unusable.
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

    /// Sets up the recovery of a flight just presumed lost, unless data was lost before, which would wait for
    /// nothing. Chunks from `unsent` on are certainly lost.
    fn strand(&mut self, Flight { route, bytes }: Flight, unsent: Option<Seq>, now: Time) {
        let path = self.paths.get(self.paths.current());
        let Some(srtt) = path.srtt().filter(|_| path.state() == PathState::Active) else { return };
        let Some((earliest, ..)) = self.tx.outstanding.first_lost() else { return };
        // With data on several paths, their windows are already open.
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

/// Returns the TSN of the first DATA in a packet.
fn first_tsn(packet: &[u8]) -> Option<Tsn> {
    let packet = Packet::parse(packet, ChecksumMode::Ignore).ok()?;
    packet.chunks().find_map(|chunk| match chunk {
        Ok(Chunk::Data(data)) => Some(data.tsn),
        Ok(Chunk::IData(data)) => Some(data.tsn),
        _ => None,
    })
}
