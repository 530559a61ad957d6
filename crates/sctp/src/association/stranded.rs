//! A link or an address of ours has gone with data in flight from there: most of that had left this host before, and only the answers
//! are lost.
//!
//! To send all of it again would fill the other path's small window with duplicates for a round trip. So the earliest goes once more
//! and asks for a SACK at once, new data follows it, and the rest waits for that SACK, which names what is missing; for a round trip
//! and a quarter at most. If all was lost the program's peer still hears the earliest chunk at once, and the rest a round trip
//! later. What the kernel refused to send is known not to have left: it goes instead of the earliest, all of it before new data, for
//! the peer's program hears nothing of what comes behind it. Begin at [`Association::on_link_lost`], [`Association::on_address_lost`]
//! and [`Association::on_unsent`].

use std::net::IpAddr;

use base::{Route, Time};
use wire::{ChecksumMode, Chunk, Packet, Tsn};

use super::doubt::LEAST_PATIENCE;
use super::{Association, Context};
use crate::info::PathState;
use crate::path::{Path, PathIndex};
use crate::trace::TraceEvent;
use crate::tx::{Fragment, PathAcks, Seq};

/// What was in flight on a path.
struct Flight {
    route: Route,
    bytes: usize,
}

/// Losses, most of which are presumed only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranded {
    /// What goes first: who has acknowledged it has told of the others.
    seq: Seq,
    /// The kernel refused to send that, and what came after it.
    is_unsent: bool,
    question: Option<Question>,
    /// After that the others are lost.
    until: Time,
}

/// What goes first has been sent again.
#[derive(Clone, Copy, Debug)]
struct Question {
    by: PathIndex,
    /// What comes before this is no answer, but has been under way since before.
    answer_from: Time,
}

impl Stranded {
    fn may_be_answered(&self, now: Time) -> bool {
        self.question.is_some_and(|question| question.answer_from <= now)
    }
}

impl Association {
    /// The link of a path has gone down, as its own host says.
    pub(super) fn on_link_lost(&mut self, index: PathIndex, ctx: &Context<'_>) {
        self.on_no_way(index, None, ctx.now);
    }

    /// This host has no way for a path's packets: of those that have not left `packet` is the first.
    pub(super) fn on_unsent(&mut self, index: PathIndex, packet: &[u8], ctx: &Context<'_>) {
        let first = self.outstanding.first();
        let unsent = first_tsn(packet).and_then(|tsn| first.nearest(self.initial_tsn, tsn));
        // What follows a chunk that was sent before may have left long ago.
        let unsent = unsent.filter(|seq| self.outstanding.was_sent_once(*seq));
        self.on_no_way(index, unsent, ctx.now);
    }

    /// This host has lost one of its addresses.
    pub(super) fn on_address_lost(&mut self, address: IpAddr, now: Time) {
        let is_gone = |path: &Path| path.route.local == address;
        self.leave(address, |_, path| is_gone(path), |this| this.retire_paths(is_gone), None, now);
    }

    fn on_no_way(&mut self, index: PathIndex, unsent: Option<Seq>, now: Time) {
        let local = self.paths.get(index).route.local;
        self.leave(local, |it, _| it == index, |this| this.on_dead_path(index), unsent, now);
    }

    /// The paths that are left from `local` carry no more, which `mark` notes.
    fn leave(
        &mut self,
        local: IpAddr,
        is_left: impl Fn(PathIndex, &Path) -> bool,
        mark: impl FnOnce(&mut Self),
        unsent: Option<Seq>,
        now: Time,
    ) {
        let leaves_current =
            |this: &Self| is_left(this.paths.current(), this.paths.get(this.paths.current()));
        let (was_current, had_lost) = (leaves_current(self), self.outstanding.has_lost());
        let left = self.paths.iter().filter(|(index, path)| is_left(*index, path));
        let flight = left.filter_map(|(index, _)| self.flight_on(index)).max_by_key(|flight| flight.bytes);
        mark(self);
        if was_current {
            self.paths.on_local_loss(local);
        }
        if let Some(flight) = flight.filter(|_| !had_lost && !leaves_current(self)) {
            self.strand(flight, unsent, now);
        }
    }

    fn flight_on(&self, index: PathIndex) -> Option<Flight> {
        let (route, bytes) = (self.paths.get(index).route, self.outstanding.flight(index));
        (bytes > 0).then_some(Flight { route, bytes })
    }

    /// What was in flight there has just been presumed lost, and nothing was before, which would wait for nothing; from `unsent` on it is
    /// lost.
    fn strand(&mut self, Flight { route, bytes }: Flight, unsent: Option<Seq>, now: Time) {
        let path = self.paths.get(self.paths.current());
        let Some(srtt) = path.srtt().filter(|_| path.state() == PathState::Active) else { return };
        let Some((earliest, ..)) = self.outstanding.first_lost() else { return };
        // Where data goes by several paths at once their windows are open.
        if self.is_concurrent() {
            return;
        }
        self.note(TraceEvent::FlightStranded { route, bytes });
        let until = now + srtt * 5 / 4 + LEAST_PATIENCE;
        let unsent = unsent.filter(|seq| self.outstanding.first_lost_from(*seq).is_some());
        let (seq, is_unsent) = (unsent.unwrap_or(earliest), unsent.is_some());
        self.stranded = Some(Box::new(Stranded { seq, is_unsent, question: None, until }));
    }

    /// The next chunk that counts as lost, unless a SACK is waited for that tells whether it is.
    #[inline]
    pub(super) fn next_lost(&self) -> Option<(Seq, &Fragment, PathIndex)> {
        if !self.outstanding.has_lost() {
            return None;
        }
        match self.stranded.as_deref() {
            Some(Stranded { is_unsent: false, question: Some(_), .. }) => None,
            Some(Stranded { seq, .. }) => self.outstanding.first_lost_from(*seq),
            None => self.outstanding.first_lost(),
        }
    }

    /// Whether what is sent again now asks for the others.
    pub(super) fn asks_for_word(&self) -> bool {
        self.stranded.is_some()
    }

    /// A packet with the chunk that goes first was written for `path`.
    pub(super) fn on_asked(&mut self, path: PathIndex, now: Time) {
        let srtt = self.paths.get(path).srtt().unwrap_or_default();
        if let Some(stranded) = self.stranded.as_mut().filter(|stranded| stranded.question.is_none()) {
            stranded.question = Some(Question { by: path, answer_from: now + srtt * 3 / 4 });
        }
    }

    /// What a path carried was given up: if the question was, no answer is waited for.
    pub(super) fn on_given_up(&mut self, path: PathIndex) {
        let went_by = |it: &Stranded| it.question.is_some_and(|question| question.by == path);
        self.stranded.take_if(|it| went_by(it));
    }

    /// A SACK acknowledged this. Others may still come by the lost link, or to the lost address: theirs is what went that way.
    pub(super) fn hear_of_stranded(&mut self, acks: &[PathAcks], now: Time) {
        let acknowledges = |path: PathIndex| acks.get(path.0).is_some_and(|acks| acks.bytes > 0);
        let is_answered = |it: &Stranded| {
            it.may_be_answered(now)
                && it.question.is_some_and(|question| acknowledges(question.by))
                && self.outstanding.is_done(it.seq)
        };
        self.stranded.take_if(|it| is_answered(it));
    }

    /// A SACK tells that these came twice.
    pub(super) fn hear_twice_of_stranded(&mut self, duplicates: &[Seq], now: Time) {
        let is_told = |it: &Stranded| it.may_be_answered(now) && duplicates.contains(&it.seq);
        self.stranded.take_if(|it| is_told(it));
    }

    /// When the rest is waited for no longer.
    pub(super) fn stranded_until(&self) -> Time {
        self.stranded.as_ref().map_or(Time::NEVER, |stranded| stranded.until)
    }

    pub(super) fn expire_stranded(&mut self, now: Time) {
        self.stranded.take_if(|stranded| stranded.until <= now);
    }
}

/// The TSN of the first DATA in a packet.
fn first_tsn(packet: &[u8]) -> Option<Tsn> {
    let packet = Packet::parse(packet, ChecksumMode::Ignore).ok()?;
    packet.chunks().find_map(|chunk| match chunk {
        Ok(Chunk::Data(data)) => Some(data.tsn),
        Ok(Chunk::IData(data)) => Some(data.tsn),
        _ => None,
    })
}
