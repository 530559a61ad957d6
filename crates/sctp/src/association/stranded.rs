//! A link or an address of ours has gone with data in flight from there: most of that had left this host before, and only the answers
//! are lost.
//!
//! To send all of it again would fill the other path's small window with duplicates for a round trip. So the earliest goes once more
//! and asks for a SACK at once, new data follows it, and the rest waits for that SACK, which names what is missing; for a round trip
//! and a quarter at most. If all was lost the program's peer still hears the earliest chunk at once, and the rest a round trip
//! later. Begin at [`Association::on_link_lost`] and
//! [`Association::on_address_lost`].

use std::net::IpAddr;
use std::time::Duration;

use base::{Route, Time};

use super::{Association, Context};
use crate::info::PathState;
use crate::path::{Path, PathIndex};
use crate::trace::TraceEvent;
use crate::tx::Seq;

/// How much longer than a round trip and a quarter the SACK is waited for: scheduling of both hosts.
const LEAST_PATIENCE: Duration = Duration::from_millis(5);

/// What was in flight on a path.
struct Flight {
    route: Route,
    bytes: usize,
    earliest: Seq,
}

/// Losses that are presumed only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranded {
    /// The earliest of them: who has acknowledged it has told of the others.
    seq: Seq,
    /// It has been sent again; what comes before this is no answer, but has been under way since before.
    answer_from: Option<Time>,
    /// After that the others are lost.
    until: Time,
}

impl Association {
    /// The link of a path has gone down, as its own host says.
    pub(super) fn on_link_lost(&mut self, index: PathIndex, ctx: &Context<'_>) {
        let flight = self.flight_on(index);
        self.on_dead_path(index);
        if let Some(flight) = flight.filter(|_| self.paths.current() != index) {
            self.strand(flight, ctx.now);
        }
    }

    /// This host has lost one of its addresses.
    pub(super) fn on_address_lost(&mut self, address: IpAddr, now: Time) {
        let leaves = |path: &Path| path.route.local == address;
        let gone = self.paths.iter().filter(|(_, path)| leaves(path));
        let flight = gone.filter_map(|(index, _)| self.flight_on(index)).max_by_key(|flight| flight.bytes);
        self.retire_paths(leaves);
        if let Some(flight) = flight {
            self.strand(flight, now);
        }
    }

    fn flight_on(&self, index: PathIndex) -> Option<Flight> {
        let (route, bytes) = (self.paths.get(index).route, self.outstanding.flight(index));
        self.outstanding.earliest_in_flight(index).map(|earliest| Flight { route, bytes, earliest })
    }

    /// What was in flight there has just been presumed lost.
    fn strand(&mut self, Flight { route, bytes, earliest: seq }: Flight, now: Time) {
        let path = self.paths.get(self.paths.current());
        let Some(srtt) = path.srtt().filter(|_| path.state() == PathState::Active) else { return };
        // What was lost otherwise before it waits for nothing.
        let is_first = self.outstanding.first_lost().is_some_and(|(first, ..)| first == seq);
        // Where data goes by several paths at once their windows are open.
        if !is_first || self.is_concurrent() {
            return;
        }
        self.note(TraceEvent::FlightStranded { route, bytes });
        let until = now + srtt * 5 / 4 + LEAST_PATIENCE;
        self.stranded = Some(Stranded { seq, answer_from: None, until });
    }

    /// Whether what counts as lost waits for a SACK.
    pub(super) fn awaits_word(&self) -> bool {
        self.stranded.is_some_and(|stranded| stranded.answer_from.is_some())
    }

    /// Whether what is sent again now asks for the others.
    pub(super) fn asks_for_word(&self) -> bool {
        self.stranded.is_some()
    }

    /// A packet with the earliest chunk was written for `path`.
    pub(super) fn on_asked(&mut self, path: PathIndex, now: Time) {
        let srtt = self.paths.get(path).srtt().unwrap_or_default();
        if let Some(stranded) = self.stranded.as_mut().filter(|stranded| stranded.answer_from.is_none()) {
            stranded.answer_from = Some(now + srtt * 3 / 4);
        }
    }

    /// A SACK came.
    pub(super) fn hear_of_stranded(&mut self, now: Time) {
        let is_answer = |it: &Stranded| it.answer_from.is_some_and(|from| from <= now);
        let waits = |it: &Stranded| !is_answer(it) || !self.outstanding.is_done(it.seq);
        self.stranded = self.stranded.filter(waits);
    }

    /// When the rest is waited for no longer.
    pub(super) fn stranded_until(&self) -> Time {
        self.stranded.map_or(Time::NEVER, |stranded| stranded.until)
    }

    pub(super) fn expire_stranded(&mut self, now: Time) {
        self.stranded = self.stranded.filter(|stranded| stranded.until > now);
    }
}
