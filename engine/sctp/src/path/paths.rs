//! All paths of an association, and the choice of the path that carries new data.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Duration;

use base::{Route, Time};
use smallvec::SmallVec;

use super::distance::{APART_LIKELY, Distance, apart, local_distance, remote_distance};
use super::{Path, PathIndex, PathUse, Rank, congestion};
use crate::config::{AddressUse, Preference, Timing};
use crate::info::PathState;
use crate::memory::{heap, list};

/// Time for which losses move no data between paths that share the address of one end. The time begins when two such paths have
/// lost similar parts of the data.
const GUILTY_END_HOLDS: Duration = Duration::from_secs(600);

/// Paths in order of creation; never empty.
#[derive(Debug)]
pub(crate) struct Paths {
    list: Vec<Path>,
    /// Primary path.
    primary: PathIndex,
    /// Path of new data.
    current: PathIndex,
    /// True if data has moved from a failing path to a path that has not answered since the move.
    is_guess: bool,
    /// True once an address has a use that may prefer some paths to other paths, or that sets an interval of heartbeats.
    has_ranks: bool,
    /// Time until which losses move no data between paths that share the address of one end.
    guilty_end_until: Time,
    /// Time of the current input.
    now: Time,
}

/// Paths that were taken out of use together.
#[derive(Clone, Debug)]
pub(crate) struct Retired {
    pub(crate) paths: SmallVec<[PathIndex; 8]>,
    /// Current path after the removal.
    pub(crate) current: PathIndex,
}

impl Retired {
    pub(crate) fn has(&self, path: PathIndex) -> bool {
        self.paths.contains(&path)
    }
}

impl Paths {
    /// Creates the set with the path of the handshake as the primary path.
    pub(crate) fn new(first: Path) -> Paths {
        let now = first.heard();
        Paths {
            list: vec![first],
            primary: PathIndex::new(0),
            current: PathIndex::new(0),
            is_guess: false,
            has_ranks: false,
            guilty_end_until: Time::ZERO,
            now,
        }
    }

    /// Sets the time of the current input.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Appends a path.
    pub(crate) fn push(&mut self, path: Path) {
        // The list grows by one place at a time, because paths are large and new ones are rare.
        self.list.reserve_exact(1);
        self.list.push(path);
    }

    /// Returns the heap bytes of all paths.
    pub(crate) fn memory(&self) -> usize {
        list::<Path>(self.list.capacity())
            + self.list.len() * heap(congestion::LARGEST)
            + self.list.iter().map(|p| p.rebinding.memory()).sum::<usize>()
    }

    pub(crate) fn get(&self, index: PathIndex) -> &Path {
        &self.list[index.get()]
    }

    pub(crate) fn get_mut(&mut self, index: PathIndex) -> &mut Path {
        &mut self.list[index.get()]
    }

    pub(crate) fn try_get_mut(&mut self, index: PathIndex) -> Option<&mut Path> {
        self.list.get_mut(index.get())
    }

    /// Returns the number of paths that may be added if up to `max` paths may be in use at once. With `reuse`, a new path may get
    /// the index of a retired path.
    pub(crate) fn room(&self, max: usize, reuse: bool) -> usize {
        let max = max.min(PathIndex::MAX / 2);
        let used = self.iter().count();
        let places = if reuse { usize::MAX } else { (2 * max).saturating_sub(self.list.len()) };
        max.saturating_sub(used).min(places)
    }

    /// Adds a path. If `reuse` is set, the path replaces a retired path, if any. The uses of the new path's addresses are copied
    /// from other paths with these addresses.
    pub(crate) fn add(&mut self, mut path: Path, reuse: bool) {
        let with = |end: fn(&Route) -> IpAddr| {
            self.iter().find(|(_, known)| end(&known.route) == end(&path.route)).map(|(_, known)| known.usage)
        };
        let (local, remote) = (with(|route| route.local), with(|route| route.remote));
        let local = local.map_or(AddressUse::default(), |usage| usage.local());
        let remote = remote.map_or(AddressUse::default(), |usage| usage.remote());
        path.usage = PathUse::new(local, remote);
        match self.list.iter_mut().find(|p| p.retired && reuse) {
            Some(place) => *place = path,
            None => self.push(path),
        }
        self.find_spares();
    }

    /// Retires a path. The path keeps its place in the list, so the other paths keep their indices.
    pub(crate) fn retire(&mut self, index: PathIndex) {
        self.get_mut(index).retire();
    }

    /// Replaces the primary path and the current path if they are retired.
    pub(crate) fn leave_retired(&mut self) {
        if self.get(self.current).retired {
            let any = self.iter().next().map(|(i, _)| i);
            let next = self.best_except(self.current).or(any);
            self.set_current(next.unwrap_or(self.current));
        }
        if self.get(self.primary).retired {
            self.set_primary(self.current);
        }
    }

    fn set_primary(&mut self, index: PathIndex) {
        self.primary = index;
        self.find_spares();
    }

    /// Makes the best path to `remote` the primary path; returns false if no path leads to `remote`.
    pub(crate) fn make_primary(&mut self, remote: IpAddr) -> bool {
        let rank =
            |(i, p): &(PathIndex, &Path)| (!p.is_confirmed(), *i != self.primary, p.errors(), p.srtt());
        let best = self.iter().filter(|(_, p)| p.route.remote == remote).min_by_key(rank).map(|(i, _)| i);
        self.set_primary(best.unwrap_or(self.primary));
        best.is_some()
    }

    /// Returns the paths, except retired paths.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PathIndex, &Path)> {
        self.list.iter().enumerate().filter(|(_, p)| !p.retired).map(|(i, p)| (PathIndex::new(i), p))
    }

    /// Returns the indices of all paths, including retired ones.
    pub(crate) fn indices(&self) -> impl Iterator<Item = PathIndex> + use<> {
        (0..self.list.len()).map(PathIndex::new)
    }

    /// Returns the path's smoothed round trip as a sort key. The key puts fast paths first, and paths without a measurement last.
    #[inline]
    pub(crate) fn slowness(&self, index: PathIndex) -> Duration {
        self.get(index).srtt().unwrap_or(Duration::MAX)
    }

    /// Returns the path of new data.
    pub(crate) fn current(&self) -> PathIndex {
        self.current
    }

    /// Returns the path for a request to change addresses. If the peer may have confirmed the current path, the result is the
    /// current path.
    pub(crate) fn request_path(&self) -> PathIndex {
        let may_ask = |i: PathIndex| self.is_active(i) && self.get(i).is_known_to_peer();
        let other = || self.iter().map(|(i, _)| i).find(|i| may_ask(*i));
        Some(self.current).filter(|i| self.get(*i).is_known_to_peer()).or_else(other).unwrap_or(self.current)
    }

    /// Returns the path for a request that was not answered on `failed`. The result is another path that the peer may have
    /// confirmed, if such a path exists.
    pub(crate) fn alternate_request_path(&self, failed: PathIndex) -> PathIndex {
        let alternate = self.alternate(failed);
        if self.get(alternate).is_known_to_peer() { alternate } else { self.request_path() }
    }

    /// Replaces the path of new data; returns the previous path of new data.
    fn set_current(&mut self, index: PathIndex) -> PathIndex {
        let old = std::mem::replace(&mut self.current, index);
        if old != index {
            self.find_spares();
        }
        old
    }

    /// Marks as spare each path that carries no data, and to which data would not return.
    fn find_spares(&mut self) {
        if !self.has_ranks {
            return;
        }
        let (current, primary, rank) = (self.current.get(), self.primary.get(), self.rank(self.current));
        for (i, path) in self.list.iter_mut().enumerate() {
            let is_goal = path.rank() < rank || (path.rank() == rank && i == primary);
            path.set_spare(i != current && !is_goal, self.now);
        }
    }

    /// Sets the use of an address on all paths with this address. If `is_ours` is set, the address is ours, otherwise it is the
    /// peer's. Returns whether the use is new; `None` if no path has the address.
    pub(crate) fn set_use(&mut self, address: IpAddr, is_ours: bool, usage: AddressUse) -> Option<bool> {
        let at = |path: &Path| if is_ours { path.route.local } else { path.route.remote };
        let mut is_new = None;
        for path in self.list.iter_mut().filter(|path| !path.retired && at(path) == address) {
            *is_new.get_or_insert(false) |= path.set_use(is_ours, usage, self.now);
        }
        let is_wish = usage.preference != Preference::default() || usage.heartbeat.is_some();
        self.has_ranks |= is_new == Some(true) && is_wish;
        self.find_spares();
        is_new
    }

    /// Returns the use of one of our addresses; `None` if no path has the address.
    pub(crate) fn local_use(&self, address: IpAddr) -> Option<AddressUse> {
        self.iter().find(|(_, path)| path.route.local == address).map(|(_, path)| path.usage.local())
    }

    /// Returns whether an address has a use that may prefer some paths to other paths, or that sets an interval of heartbeats.
    pub(crate) fn have_ranks(&self) -> bool {
        self.has_ranks
    }

    /// Returns whether the path `index` may carry new data together with the current path.
    pub(crate) fn joins_current(&self, index: PathIndex) -> bool {
        self.rank(index).joins(self.rank(self.current))
    }

    /// Returns the rank of the path, which follows from the uses of its addresses.
    pub(crate) fn rank(&self, index: PathIndex) -> Rank {
        self.get(index).rank()
    }

    fn is_active(&self, index: PathIndex) -> bool {
        self.get(index).state() == PathState::Active
    }

    /// Returns the number of unconfirmed paths with an outstanding heartbeat.
    pub(crate) fn awaiting_proof(&self) -> usize {
        self.iter().filter(|(_, p)| !p.is_confirmed() && p.probe.is_some()).count()
    }

    /// If the heartbeat of an unconfirmed path is due, returns the unconfirmed path to be probed next. Paths with few errors come
    /// first, then paths with few addresses in common with confirmed paths.
    pub(crate) fn next_to_prove(&self, now: Time) -> Option<PathIndex> {
        let due = |p: &Path| !p.is_confirmed() && p.probe.is_none() && p.next_heartbeat <= now;
        let proved = || self.iter().filter(|(_, p)| p.is_confirmed()).map(|(_, p)| p.route);
        let shared = |route: &Route| {
            proved().filter(|r| r.local == route.local).count()
                + proved().filter(|r| r.remote == route.remote).count()
        };
        let rank = |(i, p): &(PathIndex, &Path)| (p.errors, shared(&p.route), *i);
        self.iter().filter(|(_, p)| due(p)).min_by_key(rank).map(|(i, _)| i)
    }

    /// Delays the heartbeats of unconfirmed paths until the first outstanding heartbeat of an unconfirmed path has timed out, but
    /// at most until `at`. [`resume_proofs`](Self::resume_proofs) ends the delay after an answer.
    pub(crate) fn put_off_proofs(&mut self, at: Time) {
        let out =
            self.list.iter().filter(|p| !p.confirmed).filter_map(|p| p.probe.map(|probe| probe.deadline()));
        let until = out.min().unwrap_or(Time::NEVER).min(at);
        for path in self.list.iter_mut().filter(|p| !p.confirmed && !p.retired && p.probe.is_none()) {
            path.next_heartbeat = path.next_heartbeat.max(until);
        }
    }

    /// Permits the heartbeats of unconfirmed paths after a heartbeat was answered.
    pub(crate) fn resume_proofs(&mut self, now: Time) {
        let waits =
            |p: &&mut Path| p.state() == PathState::Unconfirmed && p.probe.is_none() && !p.vouching.is_out();
        self.list.iter_mut().filter(waits).for_each(|p| p.probe_now(now));
    }

    /// Returns the path between the addresses of `route` with the same kind of carrier. The peer's UDP port may differ.
    pub(crate) fn find(&self, route: &Route) -> Option<PathIndex> {
        let same = |p: &Path| {
            p.route.remote == route.remote
                && p.route.local == route.local
                && std::mem::discriminant(&p.route.carrier) == std::mem::discriminant(&route.carrier)
        };
        self.iter().find(|(_, p)| same(p)).map(|(i, _)| i)
    }

    /// Returns whether `route` is the route of a confirmed path, including the UDP port.
    pub(crate) fn is_confirmed_way(&self, route: &Route) -> bool {
        self.iter().any(|(_, p)| p.is_confirmed() && p.route == *route)
    }

    /// Returns whether a confirmed path from any of our addresses leads to the remote end of `route`, including the UDP port.
    pub(crate) fn is_confirmed_end(&self, route: &Route) -> bool {
        let same = |r: &Route| r.remote == route.remote && r.carrier == route.carrier;
        self.iter().any(|(_, p)| p.is_confirmed() && same(&p.route))
    }

    /// Returns whether all confirmed paths have failed.
    pub(crate) fn have_failed(&self) -> bool {
        self.iter().all(|(_, p)| !p.is_confirmed() || p.state() == PathState::Inactive)
    }

    /// Returns the confirmed path that should vouch for another path after `tries` attempts. The candidates are the active paths
    /// or, if no path is active, all confirmed paths. Each attempt uses the next candidate in turn, and the first attempt uses the
    /// current path.
    pub(crate) fn voucher(&self, tries: usize) -> Option<PathIndex> {
        let any_is_active = self.iter().any(|(_, p)| p.is_confirmed() && p.state() == PathState::Active);
        let may = |p: &Path| p.is_confirmed() && (p.state() == PathState::Active || !any_is_active);
        let all: SmallVec<[PathIndex; 8]> = self.iter().filter(|(_, p)| may(p)).map(|(i, _)| i).collect();
        let first = all.iter().position(|i| *i == self.current).unwrap_or(0);
        all.get((first + tries) % all.len().max(1)).copied()
    }

    /// Returns whether `address` is one of the peer's addresses.
    pub(crate) fn knows_remote(&self, address: IpAddr) -> bool {
        self.iter().any(|(_, p)| p.route.remote == address)
    }

    /// Chooses the path of new data; returns the old path if it changed.
    ///
    /// The first of these paths is chosen:
    ///
    /// 1. the primary path, if it is active and not watched after a recovery
    /// 2. the current path, if it is active
    /// 3. the best active path
    /// 4. the potentially failed path with the fewest errors (RFC 7829 section 3)
    /// 5. the confirmed path with the fewest errors, if all have failed (dormant state)
    ///
    /// In cases 1 and 2, an active path with a better rank is chosen instead, if it is known to work. A path's rank follows from
    /// the uses of its addresses.
    //= rfc9260#6.4-1 6.4.1-1 8.2-4
    //= rfc7829#3.2-3 3.2-4 3.2-7
    //= rfc9260#6.4-1 6.4.1-1 8.2-4
    pub(crate) fn choose(&mut self) -> Option<PathIndex> {
        let outranks_primary = self.rank(self.current) < self.rank(self.primary);
        let is_current_active = self.is_active(self.current);
        if !is_current_active {
            self.doubt_others();
        }
        let chosen = if self.is_trusted(self.primary) && !(is_current_active && outranks_primary) {
            self.preferred_to(self.primary)
        } else if is_current_active {
            self.preferred_to(self.current)
        } else {
            self.best_except(self.current).unwrap_or(self.current)
        };
        let old = self.set_current(chosen);
        if old != chosen {
            self.is_guess = !self.is_active(old);
            self.ask_better();
        }
        (old != chosen).then_some(old)
    }

    /// Returns whether the path is active, and is not watched after a recovery.
    fn is_trusted(&self, index: PathIndex) -> bool {
        self.is_active(index) && !self.get(index).is_watched()
    }

    /// Returns the best path that has a better rank than `index` and is known to work; returns `index` if no such path exists.
    fn preferred_to(&self, index: PathIndex) -> PathIndex {
        let rank = self.rank(index);
        let works = |i: &PathIndex| self.is_trusted(*i) && !self.get(*i).is_silent();
        let is_known = |i: &PathIndex| {
            let path = self.get(*i);
            *i == self.current || !path.is_assumed() || !path.is_asked_when_idle()
        };
        let better = self.iter().map(|(i, _)| i).filter(|i| self.rank(*i) < rank);
        let order =
            |i: &PathIndex| (self.rank(*i), *i != self.primary, *i != self.current, self.slowness(*i));
        better.filter(works).filter(is_known).min_by_key(order).unwrap_or(index)
    }

    /// Records that the current path has failed. The other paths may share its link. Therefore a better rank moves data to another
    /// path only after an answer on the other path.
    fn doubt_others(&mut self) {
        let current = self.current.get();
        let others = self.list.iter_mut().enumerate().filter(|(i, _)| *i != current);
        others.for_each(|(_, path)| path.is_assumed = true);
    }

    /// Probes the paths to which data would move because of their rank, if these paths are known to work.
    fn ask_better(&mut self) {
        if !self.has_ranks {
            return;
        }
        let rank = self.rank(self.current);
        let better =
            self.list.iter_mut().filter(|path| !path.retired && path.is_assumed && path.rank() < rank);
        better.filter(|path| path.is_confirmed()).for_each(|path| path.probe_now(self.now));
    }

    /// Makes the current path the primary path, if the current path is active and the old primary path has exceeded its error limit
    /// (RFC 7829 section 5).
    //= rfc7829#5-4 5-5
    pub(crate) fn switch_over(&mut self, timing: &Timing) {
        if self.is_active(self.current) && self.get(self.primary).exceeds_switchover(timing) {
            self.set_primary(self.current);
        }
    }

    /// Returns the primary path.
    pub(crate) fn primary(&self) -> PathIndex {
        self.primary
    }

    /// Records that data moved because this host lost the address `lost`. If the current path has another local address, it does
    /// not share the failure, so the choice is no guess.
    pub(crate) fn on_local_loss(&mut self, lost: IpAddr) {
        self.is_guess &= self.get(self.current).route.local == lost;
    }

    /// Handles an answer on `index`. While the current path is only a guess, it may share the failed link with its predecessor.
    /// Therefore the first active path that answers replaces the current path. A path that has just recovered from a failure does
    /// not replace it, because even a lossy path answers now and then. If the current path changed, returns its predecessor.
    pub(crate) fn on_heard(&mut self, index: PathIndex) -> Option<PathIndex> {
        let path = self.get(index);
        if !self.is_guess || path.state() != PathState::Active || path.is_watched() {
            return None;
        }
        self.is_guess = false;
        self.doubt_others();
        let old = self.set_current(index);
        self.ask_better();
        (old != index).then_some(old)
    }

    /// Returns the path for data lost on `failed`: another active path, or the current path if no other path is active.
    pub(crate) fn alternate(&self, failed: PathIndex) -> PathIndex {
        if self.current != failed && self.get(self.current).state() == PathState::Active {
            return self.current;
        }
        let alternate = self.best_except(failed).filter(|&i| self.get(i).state() == PathState::Active);
        alternate.unwrap_or(self.current)
    }

    /// Moves new data to the path `index` if it is active; returns whether it is active.
    pub(crate) fn follow(&mut self, index: PathIndex) -> bool {
        let is_active = self.is_active(index);
        if is_active {
            self.doubt_others();
            self.set_current(index);
            self.is_guess = false;
            self.ask_better();
        }
        is_active
    }

    /// Returns the best active path other than `index`. Few links in common with `index` are one criterion of the choice.
    pub(crate) fn witness(&self, index: PathIndex) -> Option<PathIndex> {
        self.best_except(index).filter(|&i| i != index && self.is_active(i))
    }

    /// Returns the path that should replace the slow path `index`. The conditions of [`refuge`](Self::refuge) apply, except that a
    /// shared link is never permitted. If the peer's only link is slow, answers on another path over this link may still arrive
    /// early.
    pub(crate) fn quicker_refuge(&self, index: PathIndex, now: Time) -> Option<PathIndex> {
        self.refuge_where(index, now, |path, left| apart(path, left) >= APART_LIKELY)
    }

    /// Returns the path that should replace the lossy path `index`. The path must meet these conditions:
    ///
    /// * It is active, and has not just recovered from a failure.
    /// * It is not known to lose half as much as `index`, or more.
    /// * It probably shares no link with `index`. A shared link is permitted if no active path avoids this link, except for
    ///   [`GUILTY_END_HOLDS`] after [`blame_shared_end`](Self::blame_shared_end).
    ///
    /// If the links are unknown, a path of the other address family may share the lossy link. A move of data to such a path would
    /// only restart the data with a new window.
    pub(crate) fn refuge(&self, index: PathIndex, now: Time) -> Option<PathIndex> {
        self.refuge_where(index, now, |path, left| {
            apart(path, left) >= APART_LIKELY
                || (now >= self.guilty_end_until && self.is_elsewhere(path, left))
        })
    }

    fn refuge_where(
        &self,
        index: PathIndex,
        now: Time,
        is_far: impl Fn(&Path, &Path) -> bool,
    ) -> Option<PathIndex> {
        let left = self.get(index);
        let lost = left.losses.known_percent(now).unwrap_or(0);
        self.best_where(index, |i| {
            let path = self.get(i);
            let is_better = path.losses.known_percent(now).is_none_or(|percent| percent * 2 < lost);
            i != index && self.is_active(i) && !path.is_watched() && is_better && is_far(path, left)
        })
    }

    /// Returns whether `path` shares with `left` only a link that no active path avoids, for example the link of an end with only
    /// one address.
    fn is_elsewhere(&self, path: &Path, left: &Path) -> bool {
        let all_share = |end: fn(&Path, &Path) -> Distance| {
            let mut active =
                self.iter().map(|(_, path)| path).filter(|path| path.state() == PathState::Active);
            active.all(|path| end(path, left) != Distance::Apart)
        };
        match (local_distance(path, left), remote_distance(path, left)) {
            (Distance::Apart, Distance::Same) => all_share(remote_distance),
            (Distance::Same, Distance::Apart) => all_share(local_distance),
            _ => false,
        }
    }

    /// Handles the case that no path can replace the lossy path `index`. If another path loses at least half as much as `index` and
    /// shares only the link of one end with `index`, this link is to blame. Data may then return to the other path as soon as the
    /// other path answers. For [`GUILTY_END_HOLDS`], losses move no data between such paths.
    pub(crate) fn blame_shared_end(&mut self, index: PathIndex, now: Time) {
        let lossy = self.get(index);
        let lost = lossy.losses.known_percent(now).unwrap_or(0);
        let is_alike = |path: &Path| {
            path.losses.known_percent(now).is_some_and(|percent| percent * 2 >= lost)
                && self.is_elsewhere(path, lossy)
        };
        let alike: SmallVec<[PathIndex; 8]> =
            self.indices().filter(|&other| other != index && is_alike(self.get(other))).collect();
        for &other in &alike {
            self.get_mut(other).forgive();
            self.guilty_end_until = now + GUILTY_END_HOLDS;
        }
    }

    /// Returns the path after `index` in the order of creation; the first path follows the last path.
    pub(crate) fn after(&self, index: PathIndex) -> PathIndex {
        let following = self.iter().map(|(i, _)| i).find(|i| *i > index);
        following.or_else(|| self.iter().next().map(|(i, _)| i)).unwrap_or(index)
    }

    /// Returns the best confirmed path. The criteria, in this order, are:
    ///
    /// 1. active, before potentially failed, before inactive
    /// 2. not silent, that is, no tail-loss probe waits for an answer
    /// 3. few errors
    /// 4. not `avoid` itself
    /// 5. of the other address family, if `avoid` may not carry packets of the least size
    /// 6. few links in common with `avoid`
    /// 7. a better rank by the uses of the addresses
    /// 8. a short round trip
    fn best_except(&self, avoid: PathIndex) -> Option<PathIndex> {
        self.best_where(avoid, |_| true)
    }

    /// Returns the best confirmed path for which `may` returns true, by the criteria of [`best_except`](Self::best_except).
    fn best_where(&self, avoid: PathIndex, may: impl Fn(PathIndex) -> bool) -> Option<PathIndex> {
        let avoided = self.get(avoid);
        // A packet that is too long for one path is often too long for the whole address family. The cause may be a tunnel, or a router
        // that drops fragments.
        let avoids_family = avoided.pmtu.size_that_proves().is_some();
        let rank = |i: &PathIndex| {
            let path = self.get(*i);
            let state = match path.state() {
                PathState::Active => 0,
                PathState::PotentiallyFailed => 1,
                PathState::Inactive | PathState::Unconfirmed => 2,
            };
            let is_alike = avoids_family && path.route.remote.is_ipv4() == avoided.route.remote.is_ipv4();
            let (itself, apart) = (*i == avoid, apart(path, avoided));
            //= rfc7829#3.2-8 3.2-9 4-1 4-2 4.1-1 4.1-3 4.1-4
            let is_silent = path.is_silent();
            (
                state,
                is_silent,
                path.errors(),
                itself,
                is_alike,
                Reverse(apart),
                path.rank(),
                path.srtt().is_none(),
                path.srtt(),
            )
        };
        self.indices().filter(|&i| self.get(i).is_confirmed() && may(i)).min_by_key(rank)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::AssociationConfig;
    use crate::random::Random;
    use base::Carrier;

    pub(crate) fn path(local: &str, remote: &str) -> Path {
        let route =
            Route { local: local.parse().unwrap(), remote: remote.parse().unwrap(), carrier: Carrier::Ip };
        let mut path = Path::new(route, &AssociationConfig::default(), Time::ZERO);
        path.confirm(Time::ZERO, &Timing::default(), &mut Random::new([1; 32]));
        path
    }

    pub(crate) fn three_active() -> Paths {
        let mut paths = Paths::new(path("10.0.1.1", "10.0.1.2"));
        paths.push(path("10.0.1.1", "10.0.2.2"));
        paths.push(path("10.0.2.1", "10.0.2.2"));
        paths
    }

    #[test]
    //= rfc9260#6.4.1-2 8.2-4
    //= rfc7829#3.2-1 3.2-3 3.2-7 4.1-4
    fn data_moves_to_the_path_that_shares_least_with_the_failed_one_and_back_to_the_primary() {
        let mut paths = three_active();
        assert_eq!(paths.choose(), None);
        paths.get_mut(PathIndex::new(0)).on_error(&Timing::default());
        assert_eq!(paths.choose(), Some(PathIndex::new(0)));
        assert_eq!(paths.current(), PathIndex::new(2));
        paths.get_mut(PathIndex::new(0)).on_success(Time::ZERO, &Timing::default());
        assert_eq!(paths.choose(), Some(PathIndex::new(2)));
        assert_eq!(paths.current(), PathIndex::new(0));
    }

    #[test]
    fn data_leaves_a_lossy_path_for_another_link_if_the_peer_has_one_address() {
        let mut paths = Paths::new(path("10.0.1.1", "10.0.0.9"));
        paths.push(path("10.0.2.1", "10.0.0.9"));
        paths.get_mut(PathIndex::new(0)).losses.set_verdict(Time::ZERO, 30);
        let refuge = |paths: &Paths| paths.refuge(PathIndex::new(0), Time::ZERO);
        assert_eq!(refuge(&paths), Some(PathIndex::new(1)));
        assert_eq!(
            paths.quicker_refuge(PathIndex::new(0), Time::ZERO),
            None,
            "the peer's link may be the slow one"
        );
        paths.push(path("10.0.1.1", "10.0.0.10"));
        assert_eq!(refuge(&paths), None, "the address that both paths have may be that of the lossy link");
        paths.get_mut(PathIndex::new(2)).on_error(&Timing::quick());
        assert_eq!(refuge(&paths), Some(PathIndex::new(1)), "of the peer's addresses one works");
        let mut mirrored = Paths::new(path("10.0.0.9", "10.0.1.1"));
        mirrored.push(path("10.0.0.9", "10.0.2.1"));
        mirrored.get_mut(PathIndex::new(0)).losses.set_verdict(Time::ZERO, 30);
        assert_eq!(refuge(&mirrored), Some(PathIndex::new(1)), "we have one address");
    }

    #[test]
    fn data_leaves_a_lossy_path_for_the_link_without_losses() {
        let mut paths = Paths::new(path("10.0.1.1", "10.0.0.9"));
        paths.push(path("10.0.2.1", "10.0.0.9"));
        paths.push(path("10.0.3.1", "10.0.0.9"));
        for index in [0, 1] {
            paths.get_mut(PathIndex::new(index)).losses.set_verdict(Time::ZERO, 30);
        }
        assert_eq!(paths.refuge(PathIndex::new(0), Time::ZERO), Some(PathIndex::new(2)));
    }

    #[test]
    fn losses_on_both_links_to_a_peer_with_one_address_are_blamed_on_the_peers_link() {
        let timing = Timing { primary_return: Duration::from_secs(5), ..Timing::quick() };
        let mut paths = Paths::new(path("10.0.1.1", "10.0.0.9"));
        paths.push(path("10.0.2.1", "10.0.0.9"));
        let (first, second) = (PathIndex::new(0), PathIndex::new(1));
        paths.get_mut(first).losses.set_verdict(Time::ZERO, 10);
        paths.get_mut(first).on_poor();
        paths.choose();
        assert_eq!(paths.current(), second);
        paths.get_mut(second).losses.set_verdict(Time::ZERO, 10);
        assert_eq!(paths.refuge(second, Time::ZERO), None);
        paths.blame_shared_end(second, Time::ZERO);
        paths.get_mut(first).on_success(Time::ZERO, &timing);
        paths.choose();
        assert_eq!(paths.current(), first, "it is trusted at once");
        let later = Time::ZERO + Duration::from_secs(120);
        assert_eq!(paths.refuge(first, later), None, "data stays for some time");
        assert_eq!(paths.refuge(first, later + GUILTY_END_HOLDS), Some(second));
    }

    #[test]
    fn data_leaves_a_lossy_path_only_for_a_separate_stable_path_with_under_half_the_losses() {
        let quick = Timing { primary_return: std::time::Duration::from_secs(5), ..Timing::default() };
        let lossy = |paths: &mut Paths, index, percent| {
            paths.get_mut(PathIndex::new(index)).losses.set_verdict(Time::ZERO, percent);
        };
        let mut paths = three_active();
        let refuge = |paths: &Paths| paths.refuge(PathIndex::new(0), Time::ZERO);
        lossy(&mut paths, 0, 30);
        assert_eq!(refuge(&paths), Some(PathIndex::new(2)));
        lossy(&mut paths, 2, 15);
        assert_eq!(refuge(&paths), None, "it loses half as much");
        lossy(&mut paths, 2, 14);
        assert_eq!(refuge(&paths), Some(PathIndex::new(2)));
        paths.get_mut(PathIndex::new(2)).on_error(&quick);
        assert_eq!(refuge(&paths), Some(PathIndex::new(1)), "no other address of ours works");
        paths.get_mut(PathIndex::new(2)).on_success(Time::ZERO, &quick);
        assert_eq!(refuge(&paths), None, "it has just failed");
        paths.get_mut(PathIndex::new(2)).watch.end();
        let route = Route {
            local: "fd00:2::1".parse().unwrap(),
            remote: "fd00:2::2".parse().unwrap(),
            carrier: Carrier::Ip,
        };
        paths.get_mut(PathIndex::new(2)).route = route;
        paths.get_mut(PathIndex::new(1)).on_error(&quick);
        assert_eq!(refuge(&paths), None, "of the other family it may be on the same link");
    }

    #[test]
    //= rfc7829#3.2-8 3.2-9 4.1-3
    fn with_every_path_doubtful_the_one_with_fewest_errors_is_used() {
        let mut paths = three_active();
        for (index, errors) in [(0, 3), (1, 1), (2, 2)] {
            for _ in 0..errors {
                paths.get_mut(PathIndex::new(index)).on_error(&Timing::default());
            }
        }
        paths.choose();
        assert_eq!(paths.current(), PathIndex::new(1));
    }

    #[test]
    //= rfc7829#5-1 5-3 5-4 5-5 5-6
    fn beyond_the_switchover_threshold_the_path_in_use_becomes_the_primary_path() {
        // Values below PFMR count as PFMR.
        for (psmr, errors) in [(0, 1), (2, 3)] {
            let timing = Timing { primary_switchover_max_retrans: Some(psmr), ..Timing::default() };
            let mut paths = three_active();
            for _ in 0..errors {
                assert_eq!(paths.primary(), PathIndex::new(0));
                paths.get_mut(PathIndex::new(0)).on_error(&timing);
                paths.choose();
                paths.switch_over(&timing);
            }
            assert_eq!(paths.primary(), paths.current());
            paths.get_mut(PathIndex::new(0)).on_success(Time::ZERO, &Timing::default());
            assert_eq!(paths.choose(), None, "data stays");
        }
    }

    #[test]
    //= rfc7829#5-2 5-7
    fn without_the_potentially_failed_state_switchover_waits_for_the_inactive_state() {
        let timing = Timing {
            potentially_failed_max_retrans: None,
            primary_switchover_max_retrans: Some(0),
            ..Timing::default()
        };
        let mut paths = three_active();
        for errors in 1..=6 {
            paths.get_mut(PathIndex::new(0)).on_error(&timing);
            paths.choose();
            paths.switch_over(&timing);
            assert_eq!(paths.primary() == PathIndex::new(0), errors <= 5);
        }
    }

    #[test]
    fn after_a_failure_data_moves_from_an_unheard_path_to_the_first_path_that_is_heard() {
        let mut paths = three_active();
        assert_eq!(paths.on_heard(PathIndex::new(1)), None, "the primary path is no guess");
        paths.get_mut(PathIndex::new(0)).on_error(&Timing::default());
        paths.choose();
        assert_eq!(paths.on_heard(PathIndex::new(1)), Some(PathIndex::new(2)));
        assert_eq!(paths.current(), PathIndex::new(1));
        assert_eq!(paths.on_heard(PathIndex::new(2)), None, "a path that was heard stays");
    }

    #[test]
    fn after_a_local_link_failure_data_stays_on_a_path_over_another_link() {
        for (lost, place) in [("10.0.1.1", None), ("10.0.2.1", Some(PathIndex::new(2)))] {
            let mut paths = three_active();
            paths.get_mut(PathIndex::new(0)).on_error(&Timing::default());
            paths.choose();
            paths.on_local_loss(lost.parse().unwrap());
            assert_eq!(paths.on_heard(PathIndex::new(1)), place, "{lost}");
        }
    }

    #[test]
    //= rfc9260#5.4-2
    fn an_unconfirmed_path_is_never_chosen() {
        let timing = Timing::default();
        let mut paths = three_active();
        let route = Route {
            local: "10.0.3.1".parse().unwrap(),
            remote: "10.0.3.2".parse().unwrap(),
            carrier: Carrier::Ip,
        };
        paths.push(Path::new(route, &AssociationConfig::default(), Time::ZERO));
        for index in 0..3 {
            for _ in 0..10 {
                paths.get_mut(PathIndex::new(index)).on_error(&timing);
            }
        }
        paths.choose();
        assert_ne!(paths.current(), PathIndex::new(3));
        assert_ne!(paths.alternate(PathIndex::new(0)), PathIndex::new(3));
    }
}
