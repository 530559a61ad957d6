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
        let (route, bytes) = (self.paths.get(index).route, self.outstanding.flight(index));
        self.on_dead_path(index);
        if self.paths.current() != index {
            self.strand(route, bytes, ctx.now);
        }
    }

    /// This host has lost one of its addresses.
    pub(super) fn on_address_lost(&mut self, address: IpAddr, now: Time) {
        let leaves = |path: &Path| path.route.local == address;
        let route = self.paths.get(self.paths.current()).route;
        let gone = self.paths.iter().filter(|(_, path)| leaves(path));
        let bytes = gone.map(|(index, _)| self.outstanding.flight(index)).sum();
        self.retire_paths(leaves);
        self.strand(route, bytes, now);
    }

    /// What was in flight from there has just been presumed lost.
    fn strand(&mut self, route: Route, bytes: usize, now: Time) {
        let path = self.paths.get(self.paths.current());
        let (Some((seq, ..)), Some(srtt)) = (self.outstanding.first_lost(), path.srtt()) else { return };
        // Where data goes by several paths at once their windows are open.
        if bytes == 0 || path.state() != PathState::Active || self.is_concurrent() {
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
