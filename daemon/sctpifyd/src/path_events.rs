//! The latest changes of paths, for `status` and those who follow them.
//!
//! Invariant: at most [`KEPT`] are kept, by number, without gaps.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use base::{Route, Time};
use control::{PathChange, PathChangeCount, PathEnds, PathEvent};
use sctp::{AssociationInfo, PathReason, PathState};

use crate::clock::unix_ms;

/// Limit on the changes that are kept.
const KEPT: usize = 512;
/// Changes that `status` shows.
const SHOWN: usize = 32;
/// Time within which the same change of several associations is one event: they share the links.
const TOGETHER: Duration = Duration::from_secs(1);

/// The latest changes, newest first.
#[derive(Default)]
pub(crate) struct PathEvents {
    latest: VecDeque<(Time, PathEvent)>,
    /// Events so far.
    count: u64,
    /// Changes of each association so far, by kind and reason.
    counts: BTreeMap<(&'static str, &'static str), u64>,
}

impl PathEvents {
    /// Records a change of an association; `number` is the association's in reports. Returns the event, unless the same change of
    /// another association was recorded a moment ago.
    pub(crate) fn note(
        &mut self,
        now: Time,
        number: Option<u64>,
        change: PathChange,
        reason: PathReason,
        (links_up, links): (u64, u64),
    ) -> Option<&PathEvent> {
        let reason = reason_of(reason);
        *self.counts.entry((change.name(), reason.name())).or_default() += 1;
        let recent = self.latest.iter_mut().take_while(|(at, _)| now < *at + TOGETHER);
        let mut of_path = recent.map(|(_, event)| event).filter(|event| concerns(&event.change, &change));
        if let Some(event) = of_path.next().filter(|event| event.change == change && event.reason == reason) {
            event.associations += 1;
            (event.links_up, event.links) = (links_up, links);
            return None;
        }
        self.count += 1;
        self.latest.truncate(KEPT - 1);
        let event = PathEvent {
            number: self.count,
            when_unix_ms: unix_ms(),
            association: number,
            associations: 1,
            change,
            reason,
            links_up,
            links,
        };
        self.latest.push_front((now, event));
        self.latest.front().map(|(_, event)| event)
    }

    /// Returns the latest changes, newest first.
    pub(crate) fn latest(&self) -> Vec<PathEvent> {
        self.latest.iter().take(SHOWN).map(|(_, event)| event.clone()).collect()
    }

    /// Returns the changes after the one with this number, oldest first.
    pub(crate) fn after(&self, number: u64) -> Vec<PathEvent> {
        let newer = self.latest.iter().map(|(_, event)| event).take_while(|event| event.number > number);
        let mut newer: Vec<_> = newer.cloned().collect();
        newer.reverse();
        newer
    }

    /// Returns the number of changes by kind and reason.
    pub(crate) fn counts(&self) -> Vec<PathChangeCount> {
        let count = |((event, reason), count): (&(&'static str, &'static str), &u64)| PathChangeCount {
            event: (*event).to_owned(),
            reason: (*reason).to_owned(),
            count: *count,
        };
        self.counts.iter().map(count).collect()
    }

    /// Returns the number of events so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

/// Reports whether two changes concern the same path in the same respect.
fn concerns(one: &PathChange, other: &PathChange) -> bool {
    use PathChange::{Down, Switched, Up};
    match (one, other) {
        (Switched { from, to }, Switched { from: other_from, to: other_to }) => {
            [from, to].iter().any(|path| [other_from, other_to].contains(path))
        }
        (Down { path } | Up { path }, Down { path: other } | Up { path: other }) => path == other,
        _ => false,
    }
}

/// Describes a path by its ends, and the interface that has our address.
pub(crate) fn ends(route: &Route, interface: impl Fn(IpAddr) -> Option<String>) -> PathEnds {
    let local = Some(route.local).filter(|address| !address.is_unspecified());
    PathEnds { interface: local.and_then(interface), local, remote: route.remote }
}

/// Returns the number of this host's links by which an association reaches its peer now, and of all that it has. `link` tells by which
/// interface a path leads: not always by that of our address, if both hosts have several.
pub(crate) fn links(info: &AssociationInfo, link: impl Fn(&Route) -> Option<String>) -> (u64, u64) {
    let mut links: Vec<(String, bool)> = Vec::new();
    // Others lead nowhere.
    let proven = info.paths.iter().filter(|path| path.state != PathState::Unconfirmed);
    for path in proven {
        let name = link(&path.route).unwrap_or_else(|| path.route.local.to_string());
        let is_up = path.state == PathState::Active;
        match links.iter_mut().find(|(known, _)| *known == name) {
            Some((_, has_path)) => *has_path |= is_up,
            None => links.push((name, is_up)),
        }
    }
    let up = links.iter().filter(|(_, is_up)| *is_up).count();
    (up as u64, links.len() as u64)
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

    fn path(net: u8) -> PathEnds {
        PathEnds { interface: None, local: Some([10, 0, net, 1].into()), remote: [10, 0, net, 2].into() }
    }

    #[test]
    fn the_same_change_of_several_associations_is_one_event_and_a_later_one_another() {
        let mut events = PathEvents::default();
        let note = |events: &mut PathEvents, ms: u64, change: PathChange, reason: PathReason| {
            let at = Time::from_millis(ms);
            events.note(at, Some(1), change, reason, (1, 2)).map(|event| event.number)
        };
        let (down, up) = (PathChange::Down { path: path(1) }, PathChange::Up { path: path(1) });
        assert_eq!(note(&mut events, 0, down.clone(), PathReason::Silence), Some(1));
        assert_eq!(note(&mut events, 900, down.clone(), PathReason::Silence), None);
        assert_eq!(note(&mut events, 900, PathChange::Down { path: path(2) }, PathReason::Silence), Some(2));
        assert_eq!(note(&mut events, 950, up, PathReason::Answer), Some(3));
        assert_eq!(
            note(&mut events, 960, down.clone(), PathReason::Silence),
            Some(4),
            "it has worked between"
        );
        assert_eq!(note(&mut events, 1950, down.clone(), PathReason::Timeout), Some(5));
        assert_eq!(note(&mut events, 3000, down, PathReason::Timeout), Some(6));
        assert_eq!(events.latest().last().unwrap().associations, 2);
        assert_eq!(events.after(4).iter().map(|event| event.number).collect::<Vec<_>>(), [5, 6]);
        assert_eq!((events.after(6), events.count()), (Vec::new(), 6));
        let silent = events.counts().into_iter().find(|count| count.reason == "silence").unwrap();
        assert_eq!((silent.event.as_str(), silent.count), ("down", 4), "each association counts");
    }

    #[test]
    fn data_that_goes_to_and_fro_is_told_each_time() {
        let mut events = PathEvents::default();
        for number in 0..10 {
            let (from, to) = if number % 2 == 0 { (path(1), path(2)) } else { (path(2), path(1)) };
            let change = PathChange::Switched { from, to };
            let at = Time::from_millis(number);
            assert!(events.note(at, Some(1), change, PathReason::PrimaryChosen, (2, 2)).is_some());
        }
        assert_eq!(events.count(), 10);
    }

    #[test]
    fn old_changes_go_first() {
        let mut events = PathEvents::default();
        for number in 0..2 * KEPT as u64 {
            let change = PathChange::Down { path: path((number % 200) as u8) };
            events.note(Time::from_millis(number * 2000), None, change, PathReason::Timeout, (0, 1));
        }
        assert_eq!((events.latest.len(), events.latest().len()), (KEPT, SHOWN));
        assert_eq!(events.after(0).first().unwrap().number, KEPT as u64 + 1);
    }
}
