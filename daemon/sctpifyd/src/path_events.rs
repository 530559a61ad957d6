//! Collects the latest changes of links and paths, for `status` and for programs that follow the events.
//!
//! The engine's events are collected during a turn. They are published after the turn's packets have been sent, so a failure of
//! many associations at once delays no packet. Invariants: up to [`KEPT`] events are kept, numbered without gaps. A published
//! event does not change. Begin at [`PathEvents::note_switch`] and [`PathEvents::note_change`].

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use base::{Route, Time};
use control::{PathChange, PathChangeCount, PathEnds, PathEvent};
use sctp::{AssociationId, AssociationInfo, PathReason, PathState};

use crate::clock::unix_ms;
use crate::log_rate::LogRate;
use crate::peer_links::{LinkChange, LinkStates, PeerId, PeerLinks};

/// Limit on the recorded events.
const KEPT: usize = 512;
/// Limit on the events that `status` shows.
const SHOWN: usize = 32;
/// Time within which equal moves of data count as one event. Associations with the same peer share the links, so they often
/// move data between the same paths for the same reason.
const TOGETHER: Duration = Duration::from_secs(1);
/// Limit on the entries of `PathEvents::rates`. At the limit, all entries are cleared.
const RATES_MAX: usize = 4096;
/// Limit on the moves of data that one turn collects. Further moves count in the totals, but cause no event.
const MOVES_MAX: usize = 4096;

/// The latest events, newest first, and the changes that this turn has collected.
#[derive(Default)]
pub(crate) struct PathEvents {
    latest: VecDeque<(Time, PeerId, PathEvent)>,
    /// Number of events so far.
    count: u64,
    /// Number of path changes so far, by kind and reason, over all associations.
    counts: BTreeMap<(&'static str, &'static str), u64>,
    links: PeerLinks,
    /// Rates of events by peer. They limit a peer's events, because a peer can move its data as often as it likes. Moves of
    /// data (true) and changes of links (false) have separate rates.
    rates: BTreeMap<(PeerId, bool), LogRate>,
    /// Paths that lose packets or are slow. Data has moved to other paths, but the links of these paths still work.
    poor: BTreeMap<AssociationId, Vec<Route>>,
    moves: VecDeque<Move>,
    /// Associations whose paths have changed in this turn, each with the changed paths and the reasons.
    touched: BTreeMap<AssociationId, Vec<(Route, PathReason)>>,
    /// Associations that have ended in this turn.
    ended: Vec<AssociationId>,
}

/// A move of an association's data.
pub(crate) struct Move {
    pub(crate) association: AssociationId,
    pub(crate) from: Route,
    pub(crate) to: Route,
    pub(crate) reason: PathReason,
}

/// The daemon's functions that describe parts of events.
pub(crate) struct EventContext<'a> {
    /// Function that describes a path.
    pub(crate) ends: &'a dyn Fn(&Route) -> PathEnds,
    /// Function that returns the operator's name for the link of an interface.
    pub(crate) name: &'a dyn Fn(&str) -> Option<String>,
    /// Function that returns an association's paths.
    pub(crate) info: &'a dyn Fn(AssociationId) -> Option<AssociationInfo>,
    /// Function that returns an association's peer.
    pub(crate) peer: &'a dyn Fn(AssociationId) -> Option<PeerId>,
}

impl PathEvents {
    /// Collects a move of data.
    pub(crate) fn note_switch(
        &mut self,
        association: AssociationId,
        from: Route,
        to: Route,
        reason: PathReason,
    ) {
        *self.counts.entry(("switched", reason_of(reason).name())).or_default() += 1;
        self.touched.entry(association).or_default();
        if self.moves.len() < MOVES_MAX {
            self.moves.push_back(Move { association, from, to, reason });
        }
    }

    /// Collects a change of a path's state.
    pub(crate) fn note_change(
        &mut self,
        association: AssociationId,
        route: Route,
        (from, to): (PathState, PathState),
        reason: PathReason,
    ) {
        let kind = match (from, to) {
            // A path begins as unconfirmed. Its confirmation is not a change of a link.
            (PathState::Unconfirmed, _) | (_, PathState::Unconfirmed) => None,
            (_, PathState::Active) => Some("up"),
            (PathState::Active, _) => Some("down"),
            _ => None,
        };
        if let Some(kind) = kind {
            *self.counts.entry((kind, reason_of(reason).name())).or_default() += 1;
        }
        if matches!(reason, PathReason::Loss { .. } | PathReason::Delay { .. }) {
            self.poor.entry(association).or_default().push(route);
        } else {
            self.touched.entry(association).or_default().push((route, reason));
        }
        if to == PathState::Active
            && let Some(poor) = self.poor.get_mut(&association)
        {
            poor.retain(|known| *known != route);
        }
    }

    /// Collects a change of an association's addresses.
    pub(crate) fn note_addresses(&mut self, association: AssociationId) {
        self.touched.entry(association).or_default();
    }

    /// Collects the end of an association.
    pub(crate) fn note_end(&mut self, association: AssociationId) {
        self.touched.remove(&association);
        self.poor.remove(&association);
        self.ended.push(association);
    }

    /// Reports whether this turn has collected any changes.
    pub(crate) fn has_news(&self) -> bool {
        !(self.moves.is_empty() && self.touched.is_empty() && self.ended.is_empty())
    }

    /// Publishes events for all collected changes. Returns the new events, oldest first.
    pub(crate) fn tell(&mut self, now: Time, context: &EventContext<'_>) -> Vec<PathEvent> {
        let before = self.count;
        for (association, causes) in std::mem::take(&mut self.touched) {
            let (Some(info), Some(peer)) = ((context.info)(association), (context.peer)(association)) else {
                continue;
            };
            self.follow_links(now, (association, &peer), &info, &causes, context);
        }
        for Move { association, from, to, reason } in std::mem::take(&mut self.moves) {
            let Some(peer) = self.links.peer_of(association).or_else(|| (context.peer)(association)) else {
                continue;
            };
            let change = PathChange::Switched { from: (context.ends)(&from), to: (context.ends)(&to) };
            self.publish(now, &peer, change, reason_of(reason));
        }
        for association in std::mem::take(&mut self.ended) {
            let Some((peer, changes)) = self.links.forget(association) else { continue };
            for LinkChange { link, .. } in changes {
                let path = some_path(link, peer.address, context);
                self.publish(now, &peer, PathChange::Up { path }, control::PathReason::Answer);
            }
        }
        self.links.sweep(|association| (context.info)(association).is_some());
        let new = usize::try_from(self.count - before).unwrap_or(KEPT).min(self.latest.len());
        self.latest.iter().take(new).rev().map(|(.., event)| event.clone()).collect()
    }

    /// Compares the links of an association with the published links of its peer, and publishes the differences.
    fn follow_links(
        &mut self,
        now: Time,
        (association, peer): (AssociationId, &PeerId),
        info: &AssociationInfo,
        causes: &[(Route, PathReason)],
        context: &EventContext<'_>,
    ) {
        let mut states = LinkStates::new();
        let mut samples: BTreeMap<String, PathEnds> = BTreeMap::new();
        let of = |ends: &PathEnds| {
            let address = || ends.local.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
            ends.interface.clone().unwrap_or_else(address)
        };
        for path in info.paths.iter().filter(|path| path.confirmed) {
            let ends = (context.ends)(&path.route);
            let is_poor = self.poor.get(&association).is_some_and(|poor| poor.contains(&path.route));
            let is_up =
                path.state == PathState::Active || (is_poor && path.state == PathState::PotentiallyFailed);
            *states.entry(of(&ends)).or_default() |= is_up;
            samples.entry(of(&ends)).or_insert(ends);
        }
        // No path is confirmed: the peer has moved, and its new address must be confirmed first.
        if states.is_empty() && !info.paths.is_empty() {
            return;
        }
        let causes: Vec<(PathEnds, PathReason)> =
            causes.iter().map(|(route, reason)| ((context.ends)(route), *reason)).collect();
        for LinkChange { link, is_up } in self.links.update(association, peer.clone(), states) {
            let cause = causes
                .iter()
                .find(|(ends, reason)| of(ends) == link && (*reason == PathReason::Answer) == is_up);
            let path = cause.map(|(ends, _)| ends).or_else(|| samples.get(&link)).cloned();
            let path = path.unwrap_or_else(|| some_path(link, peer.address, context));
            let reason = match (cause, is_up) {
                (Some((_, reason)), _) => reason_of(*reason),
                (None, true) => control::PathReason::Answer,
                (None, false) => control::PathReason::AddressRemoved,
            };
            let change = if is_up { PathChange::Up { path } } else { PathChange::Down { path } };
            self.publish(now, peer, change, reason);
        }
    }

    /// Publishes an event, unless the peer has reached its limit. A move of data is left out if it equals the peer's last move,
    /// and less than [`TOGETHER`] has passed since.
    fn publish(&mut self, now: Time, peer: &PeerId, change: PathChange, reason: control::PathReason) {
        let recent = self.latest.iter().take_while(|(at, ..)| now < *at + TOGETHER);
        let mut of_peer = recent.filter(|(_, of, _)| of == peer).map(|(.., event)| event);
        let of_peer = of_peer.find(|event| matches!(event.change, PathChange::Switched { .. }));
        let is_switch = matches!(change, PathChange::Switched { .. });
        if is_switch
            && of_peer.is_some_and(|last| last.change == change && last.reason.name() == reason.name())
        {
            return;
        }
        if self.rates.len() >= RATES_MAX {
            self.rates.clear();
        }
        let Some(left_out) = self.rates.entry((peer.clone(), is_switch)).or_default().admit(now) else {
            return;
        };
        self.count += 1;
        self.latest.truncate(KEPT - 1);
        let (links_up, links) = self.links.count(peer);
        let event = PathEvent {
            number: self.count,
            when_unix_ms: unix_ms(),
            peer: peer.address,
            left_out,
            change,
            reason,
            links_up,
            links,
        };
        self.latest.push_front((now, peer.clone(), event));
    }

    /// Returns the latest events, newest first.
    pub(crate) fn latest(&self) -> Vec<PathEvent> {
        self.latest.iter().take(SHOWN).map(|(.., event)| event.clone()).collect()
    }

    /// Returns the events after the one with this number, oldest first.
    pub(crate) fn after(&self, number: u64) -> Vec<PathEvent> {
        let newer = self.latest.iter().map(|(.., event)| event).take_while(|event| event.number > number);
        let mut newer: Vec<_> = newer.cloned().collect();
        newer.reverse();
        newer
    }

    /// Returns the number of path changes by kind and reason. Pairs of a kind and a reason that have not occurred are included,
    /// with the number 0.
    pub(crate) fn counts(&self) -> Vec<PathChangeCount> {
        let kinds = ["switched", "down", "up"];
        let all =
            kinds.into_iter().flat_map(|event| control::PathReason::NAMES.map(|reason| (event, reason)));
        // A path comes up for only one reason: an answer.
        let can_be = all.filter(|(event, reason)| *event != "up" || *reason == "answer");
        let count = |(event, reason)| PathChangeCount {
            event: String::from(event),
            reason: String::from(reason),
            count: self.counts.get(&(event, reason)).copied().unwrap_or(0),
        };
        can_be.map(count).collect()
    }

    /// Returns the number of events so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

/// Describes a link that no longer has a path to the peer.
fn some_path(link: String, peer: IpAddr, context: &EventContext<'_>) -> PathEnds {
    PathEnds { name: (context.name)(&link), interface: Some(link), local: None, remote: peer }
}

fn reason_of(reason: PathReason) -> control::PathReason {
    match reason {
        PathReason::Answer => control::PathReason::Answer,
        PathReason::Timeout => control::PathReason::Timeout,
        PathReason::Silence => control::PathReason::Silence,
        PathReason::Loss { percent } => control::PathReason::Loss { percent },
        PathReason::Delay { delay } => {
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            control::PathReason::Delay { delay_ms }
        }
        PathReason::Unreachable(_) => control::PathReason::Unreachable,
        PathReason::NoRoute => control::PathReason::NoRoute,
        PathReason::LinkDown => control::PathReason::LinkDown,
        PathReason::AddressRemoved => control::PathReason::AddressRemoved,
        PathReason::PrimaryReturned => control::PathReason::PrimaryReturned,
        PathReason::Preferred => control::PathReason::Preferred,
        PathReason::PrimaryChosen => control::PathReason::PrimaryChosen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Carrier;
    use sctp::{AssociationConfig, Connect, Endpoint, EndpointConfig};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1));

    /// Associations of an engine whose packets are never exchanged.
    struct World {
        engine: Endpoint,
        events: PathEvents,
        count: u16,
    }

    impl World {
        fn new() -> World {
            let engine = Endpoint::new(Time::ZERO, EndpointConfig::default(), [0; 32]);
            World { engine, events: PathEvents::default(), count: 0 }
        }

        fn add(&mut self, peer: u8) -> AssociationId {
            self.count += 1;
            let connect = Connect {
                local_port: self.count,
                remote_port: 80,
                init_routes: vec![route(1, peer)],
                local_addresses: vec![HERE],
                config: AssociationConfig::default(),
            };
            self.engine.connect(Time::ZERO, connect).unwrap()
        }

        /// Publishes all collected changes. `peer` is the number of the associations' peer. This number has no effect on
        /// associations that an earlier call assigned to another peer.
        fn tell(&mut self, ms: u64, peer: u8) -> Vec<PathEvent> {
            let engine = &self.engine;
            let context = EventContext {
                ends: &|route| PathEnds {
                    interface: Some(format!("eth{}", u8::from(route.local != HERE))),
                    name: None,
                    local: Some(route.local),
                    remote: route.remote,
                },
                name: &|_| None,
                info: &|association| engine.info(association),
                peer: &|_| Some(PeerId { address: host(peer), key: None }),
            };
            self.events.tell(Time::from_millis(ms), &context)
        }
    }

    fn host(peer: u8) -> IpAddr {
        [10, 0, 9, peer].into()
    }

    fn route(net: u8, peer: u8) -> Route {
        Route { local: [10, 0, net, 1].into(), remote: host(peer), carrier: Carrier::Ip }
    }

    #[test]
    fn equal_switches_of_a_peers_associations_are_one_event_and_a_return_is_another() {
        let mut world = World::new();
        let all = [world.add(1), world.add(1), world.add(1)];
        for association in all {
            world.events.note_switch(association, route(1, 1), route(2, 1), PathReason::Silence);
        }
        assert!(world.events.has_news());
        let told = world.tell(0, 1);
        assert_eq!((told.len(), told[0].number, told[0].peer), (1, 1, host(1)));
        world.events.note_switch(all[0], route(2, 1), route(1, 1), PathReason::PrimaryReturned);
        world.events.note_switch(all[1], route(1, 1), route(2, 1), PathReason::Silence);
        assert_eq!(world.tell(10, 1).len(), 2);
        assert!(!world.events.has_news() && world.tell(20, 1).is_empty());
        let count = |reason: &str| {
            let counts = world.events.counts();
            counts.iter().find(|count| count.event == "switched" && count.reason == reason).unwrap().count
        };
        assert_eq!((count("silence"), count("primary_returned"), count("loss")), (4, 1, 0));
    }

    #[test]
    fn one_peer_cannot_drive_out_what_was_told_of_another() {
        let mut world = World::new();
        let (quiet, loud) = (world.add(1), world.add(2));
        world.events.note_switch(quiet, route(1, 1), route(2, 1), PathReason::Silence);
        world.tell(0, 1);
        for turn in 0..10_000u64 {
            let (from, to) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
            world.events.note_switch(loud, route(from, 2), route(to, 2), PathReason::PrimaryChosen);
            world.tell(turn, 2);
        }
        let kept = world.events.after(0);
        assert!(kept.iter().any(|event| event.peer == host(1)), "{} kept", kept.len());
        assert!(kept.len() < 100, "{} kept", kept.len());
        world.events.note_switch(loud, route(1, 2), route(2, 2), PathReason::PrimaryChosen);
        let told = world.tell(30_000, 2);
        assert!(told[0].left_out > 9_000, "{}", told[0]);
    }

    #[test]
    fn old_events_go_first_and_those_after_a_number_are_told_in_order() {
        let mut world = World::new();
        let all: Vec<_> =
            (0..2 * KEPT).map(|peer| (world.add((peer % 200) as u8), (peer % 200) as u8)).collect();
        for (n, (association, peer)) in all.iter().enumerate() {
            world.events.note_switch(*association, route(1, *peer), route(2, *peer), PathReason::Timeout);
            world.tell(2_000 * n as u64, *peer);
        }
        assert_eq!((world.events.latest.len(), world.events.latest().len()), (KEPT, SHOWN));
        let numbers: Vec<u64> = world.events.after(0).iter().map(|event| event.number).collect();
        assert_eq!(numbers, (KEPT as u64 + 1..=2 * KEPT as u64).collect::<Vec<_>>());
        assert_eq!(world.events.after(2 * KEPT as u64), []);
    }
}
