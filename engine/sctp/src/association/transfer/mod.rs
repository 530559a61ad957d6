//! Data transfer over the paths of an association: transmission, choice of paths, acknowledgements, and failure of
//! paths.
//!
//! No code here depends on the handshake, address changes, stream reconfiguration or received data. The association
//! calls this module. The module never calls the association: it reports through [`Outbox`]. The submodules call each
//! other, because each affects the others ([ADR
//! 0026](../../../../../docs/adr/0026-an-association-and-its-transfer.md)). A SACK shows which paths work, a failed
//! path moves data, and moved data changes what may be sent. Sending starts at [`Transfer::fill_new_data`],
//! acknowledgements at [`Transfer::on_path_acks`], failures at [`Transfer::report_transition`].

mod acks;
pub(crate) mod advertising;
mod copying;
mod coupling;
mod credit;
pub(crate) mod doubt;
mod ecn;
mod filling;
mod hearsay;
mod heartbeats;
mod liveness;
mod local_queue;
mod lossy;
mod mtu;
mod options;
mod path_errors;
mod probes;
mod recovery;
mod schedule;
mod sender;
mod slow;
mod stranded;
mod timeouts;

use std::net::IpAddr;
use std::time::Duration;

use base::{Carrier, Route, Time};
use smallvec::SmallVec;
use wire::Tsn;

use super::integrity::Integrity;
use super::negotiated::Negotiated;
use super::outbox::Outbox;
use super::protection::Protection;
use super::{Context, Setup, State, may_reach};
use crate::config::{AssociationConfig, Scheduler, Timing};
use crate::event::{AbortCause, CloseReason, Event, PathReason};
use crate::extension::auth::{Auth, Ports};
use crate::extension::reconfig::ReconfigPolicy;
use crate::extension::zero_checksum::ZeroChecksum;
use crate::info::PathState;
use crate::path::{Path, PathIndex, Paths, Retired};
use crate::trace::TraceEvent;
use crate::tx::Seq;
use advertising::Advertising;
use credit::Credit;
use hearsay::Hearsay;
use liveness::Liveness;
pub(crate) use sender::Sender;

/// Sent data, the paths that carry the data, and the parameters on which both ends have agreed.
pub(crate) struct Transfer {
    pub(super) config: AssociationConfig,
    pub(super) negotiated: Negotiated,
    pub(super) state: State,
    pub(super) integrity: Integrity,
    pub(super) advertising: Advertising,
    pub(super) paths: Paths,
    /// Unauthenticated claims that the peer is being asked about.
    pub(super) hearsay: Hearsay,
    pub(super) tx: Sender,
    pub(super) out: Outbox,
    pub(super) liveness: Liveness,
    pub(super) credit: Credit,
}

impl Transfer {
    /// Creates the paths of an association and an empty send queue. Only the path of the handshake is confirmed.
    pub(super) fn new(setup: Setup<'_>, ctx: &mut Context<'_>) -> Self {
        let mut first = Path::new(setup.route, &setup.config, ctx.now);
        first.confirm(ctx.now, &setup.config.timing, ctx.random);
        let mut paths = Paths::new(first);
        for route in routes(&setup) {
            if paths.room(ctx.limits.paths, false) > 0 && paths.find(&route).is_none() {
                paths.push(Path::new(route, &setup.config, ctx.now));
            }
        }
        let negotiated = Negotiated::new(&setup);
        let keys_limit = setup
            .config
            .protection
            .map_or(Time::NEVER, |offer| ctx.now + Duration::from_secs(offer.limit_s.into()));
        let (local, peer) = negotiated.ports();
        let is_protected = setup.agreed.protection.is_some();
        let zero_checksum = ZeroChecksum::agreed(&setup.config, setup.agreed.zero_checksum, is_protected);
        let auth = |vectors| Box::new(Auth::new(vectors, Ports { local, peer }, &setup.config.auth));
        Transfer {
            tx: Sender::new(&setup.config, &negotiated, setup.peer_rwnd),
            negotiated,
            state: setup.state,
            integrity: Integrity::new(
                setup.agreed.key_vectors.map(auth),
                setup.agreed.protection.map(|terms| Box::new(Protection::new(terms, keys_limit))),
                zero_checksum,
            ),
            advertising: Advertising::new(setup.config.advertisement, ctx.now),
            paths,
            hearsay: Hearsay::default(),
            out: Outbox::default(),
            liveness: Liveness::new(ctx.now),
            credit: Credit::default(),
            config: setup.config,
        }
    }

    /// Sets the time of the input that is handled next.
    pub(crate) fn begin_input(&mut self, now: Time) {
        self.paths.set_now(now);
    }

    /// Enters a state of the association.
    pub(crate) fn enter(&mut self, state: State) {
        self.state = state;
    }

    /// Changes the policy on the peer's requests about streams.
    pub(crate) fn set_reconfig_policy(&mut self, policy: ReconfigPolicy) {
        self.config.reconfig = policy;
    }

    /// Adds the paths between these addresses and begins to confirm them. Returns false and adds none if there is no
    /// room. The paths use the carrier of the current path unless `carrier` is given.
    pub(crate) fn add_paths(
        &mut self,
        locals: &[IpAddr],
        remotes: &[IpAddr],
        carrier: Option<Carrier>,
        ctx: &mut Context<'_>,
    ) -> bool {
        let carrier = carrier.unwrap_or(self.paths.get(self.paths.current()).route.carrier);
        let pairs = locals.iter().flat_map(|&l| remotes.iter().map(move |&r| (l, r)));
        let routes: SmallVec<[base::Route; 8]> = pairs
            .filter(|&(local, remote)| may_reach(local, remote))
            .map(|(local, remote)| base::Route { local, remote, carrier })
            .filter(|route| self.paths.find(route).is_none())
            .collect();
        // The slot of a retired path is reused only when no chunk can still be acknowledged for it.
        let reuse = self.tx.outstanding.is_empty();
        if self.paths.room(ctx.limits.paths, reuse) < routes.len() {
            return false;
        }
        for route in routes {
            let mut path = Path::new(route, &self.config, ctx.now);
            //= rfc5061#5.3-4
            path.probe_now(ctx.now);
            self.paths.add(path, reuse);
        }
        true
    }

    /// Retires paths, and moves their data in flight and their queued chunks to other paths.
    pub(crate) fn retire_paths(&mut self, leaves: impl Fn(&Path) -> bool) -> Retired {
        let paths: SmallVec<[PathIndex; 8]> =
            self.paths.iter().filter(|(_, p)| leaves(p)).map(|(i, _)| i).collect();
        let old = self.paths.get(self.paths.current()).route;
        for &index in &paths {
            self.mark_lost_on(index);
            self.paths.retire(index);
        }
        self.paths.leave_retired();
        let current = self.paths.current();
        let retired = Retired { paths, current };
        self.out.leave_paths(&retired);
        self.tx.probes.leave_paths(&retired);
        if self.paths.get(current).route != old {
            self.on_switch(old, PathReason::AddressRemoved);
        }
        retired
    }

    /// Returns the number of bytes queued or in flight.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.tx.unacknowledged()
    }

    /// Returns the number of bytes that `send` would accept now.
    pub(crate) fn send_capacity(&self) -> usize {
        self.tx.capacity()
    }

    /// Returns the sequence after the TSN `cumulative`, if that TSN can belong to this association.
    pub(crate) fn sequence_after(&self, cumulative: Tsn) -> Option<Seq> {
        self.tx.outstanding.first().nearest(self.negotiated.initial_tsn(), cumulative.next())
    }

    /// Requests an event when there is room to send.
    pub(crate) fn notify_when_writable(&mut self) {
        self.tx.buffer.want_room();
    }

    /// Changes the stream scheduler.
    pub(crate) fn set_scheduler(&mut self, scheduler: Scheduler) {
        self.config.scheduler = scheduler;
        self.tx.queue.set_scheduler(scheduler);
    }

    pub(crate) fn set_timing(&mut self, timing: Timing, ctx: &mut Context<'_>) {
        self.config.timing = timing;
        for index in self.paths.indices() {
            self.paths.get_mut(index).on_new_timing(ctx.now, &self.config.timing, ctx.random);
        }
    }

    /// Changes the initial window of all paths. Has no effect on a path after its first acknowledgement, unless only key
    /// messages have been sent so far.
    pub(crate) fn set_initial_packets(&mut self, packets: u8) {
        self.config.initial_packets = packets;
        let awaits_data = self.integrity.protection().is_some_and(|protection| !protection.has_data());
        for index in self.paths.indices() {
            self.paths.get_mut(index).sending.begin_with(packets, awaits_data);
        }
    }

    pub(crate) fn send_abort(&mut self, cause: &AbortCause, ctx: &mut Context<'_>) {
        let route = self.paths.get(self.paths.current()).route;
        ctx.replies.abort(route, self.negotiated.header(), cause, &mut self.integrity);
    }

    pub(crate) fn close(&mut self, reason: CloseReason) {
        self.state = State::Closed;
        self.out.clear_chunks();
        self.out.emit(Event::Closed(reason));
    }

    /// Chooses the path of new data again and reports a change. Returns the previous path if it changed.
    pub(crate) fn choose_path(&mut self, reason: PathReason) -> Option<PathIndex> {
        let old = self.paths.choose()?;
        let is_by_rank = self.paths.rank(self.paths.current()) < self.paths.rank(old);
        let reason = match self.paths.get(old).state() {
            PathState::Active if is_by_rank => PathReason::Preferred,
            _ => reason,
        };
        self.on_switch(self.paths.get(old).route, reason);
        Some(old)
    }

    /// Switches new data from `from` to the current path.
    fn on_switch(&mut self, from: Route, reason: PathReason) {
        let current = self.paths.current();
        let is_idle = self.tx.outstanding.flight(current) == 0;
        let (is_concurrent, path) = (self.is_concurrent(), self.paths.get_mut(current));
        let to = path.route;
        if is_idle && path.srtt().is_some() && !is_concurrent {
            path.sending.begin_evenly();
        }
        path.losses.begin();
        path.delays.begin();
        self.out.note(TraceEvent::PathSwitched { from, to });
        self.out.emit(Event::PathSwitched { from, to, reason });
    }

    pub(crate) fn report_transition(
        &mut self,
        index: PathIndex,
        transition: Option<crate::path::Transition>,
        reason: PathReason,
    ) {
        if let Some(t) = transition {
            let (route, from, to) = (self.paths.get(index).route, t.from, t.to);
            self.out.note(TraceEvent::PathState { route, from, to });
            //= rfc7829#3.2-19
            self.out.emit(Event::PathChanged { route, from, to, reason });
            // If the primary path works again, the reported reason is `PrimaryReturned`, even if the previous path has
            // failed.
            let returns = to == PathState::Active && index == self.paths.primary();
            let left = self.choose_path(if returns { PathReason::PrimaryReturned } else { reason });
            // Data that was sent while no path worked is probably lost.
            if let Some(left) = left.filter(|_| to == PathState::Active)
                && self.paths.get(left).state() != PathState::Active
            {
                self.mark_lost_on(left);
            }
        }
        self.paths.switch_over(&self.config.timing);
    }
}

/// Returns the routes that can be paths: all pairs of our addresses and the peer's addresses between which packets can
/// pass. The route of the handshake is left out.
//= rfc9260#5.1.2-5 5.1.2-8 5.1.2-9
fn routes(setup: &Setup<'_>) -> Vec<Route> {
    let mut routes = Vec::new();
    for &remote in std::iter::once(&setup.route.remote).chain(setup.peer_addresses) {
        for &local in std::iter::once(&setup.route.local).chain(setup.local_addresses) {
            let route = Route { local, remote, carrier: setup.route.carrier };
            if may_reach(local, remote) && route != setup.route && !routes.contains(&route) {
                routes.push(route);
            }
        }
    }
    routes
}
