//! Grants SCTP to listeners whose own programs request it (the papers' ENABLE_MANUAL, for servers). A grant lasts as long as
//! the requester's control connection is open and a socket of the grant listens.
//!
//! A user gets grants only for his own listeners. A grant covers single sockets, which are identified by the kernel's inode and
//! owner. A grant does not cover the port: a later listener on the same port has no grant. At each connection, the daemon
//! checks the grant ([`Manual::has`]) and the rules: `local-disable` and the setting `enable` override the grant. Begin at
//! [`Manual::ask`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::Time;

use crate::listeners::Listed;

/// Limits on the grants in force: all grants together, and the grants of one user who may not make rules.
const HELD_MAX: usize = 64;
const HELD_OF_USER_MAX: usize = 8;
/// Limit on the grants of all users who may not make rules. The other grants are reserved for users who may make rules.
const HELD_OF_USERS_MAX: usize = 48;
/// Limit on the sockets of one request. Some programs have one socket for each thread (SO_REUSEPORT) or address.
const SOCKETS_MAX: usize = 64;
/// Limit on one user's requests in a second, both granted and refused ones. Users who may make rules are exempt.
const ASKED_MAX: u32 = 10;
const ASKED_PERIOD: Duration = Duration::from_secs(1);
/// Maximum age of the list of listening sockets against which grants are checked.
const SEEN_FOR: Duration = Duration::from_secs(2);
/// User id that the kernel reports for every user who is unknown in this user namespace.
const UNKNOWN_USER: u32 = 65_534;

/// The user of the process that requests a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    /// True for root and the daemon's own user. They may also make rules.
    pub(crate) may_change: bool,
}

/// A listening socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Socket {
    pub(crate) inode: u32,
    pub(crate) uid: u32,
}

/// Reason for which a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// The user sends requests too often.
    #[error("more than {max} requests of one user in a second: retry", max = ASKED_MAX)]
    TooOften,
    /// No program listens on the port.
    #[error("no program listens there: send the request after listen()")]
    NobodyListens,
    /// Only other users' programs listen on the port.
    #[error("the program that listens there is another user's: only its owner or root may expose it")]
    NotOwn,
    /// Too many sockets listen on the port.
    #[error("more than {max} sockets listen there: name one address", max = SOCKETS_MAX)]
    ManySockets,
    /// A limit on grants is reached.
    #[error("limits: {own} exposed listeners per user, {all} in total", own = HELD_OF_USER_MAX, all = HELD_MAX)]
    Full,
}

/// All grants, shared by the packet loop and the threads that grant.
#[derive(Clone, Default)]
pub(crate) struct Manual(Arc<Mutex<Held>>);

struct Granted {
    to: Caller,
    sockets: Vec<Socket>,
}

#[derive(Default)]
struct Held {
    grants: BTreeMap<u64, Granted>,
    last: u64,
    /// Number of requests of each user in the current period.
    asked: BTreeMap<u32, u32>,
    asked_since: Time,
    /// Sockets that listened at the last check of any grant.
    seen: BTreeSet<Socket>,
    seen_at: Option<Time>,
}

/// A grant. It ends when this value is dropped.
pub(crate) struct Grant {
    manual: Manual,
    number: u64,
    /// The grant's sockets were missing at the last check.
    missed: bool,
}

impl Manual {
    /// Grants SCTP to the caller's listeners on a port. If the caller may make rules, the grant covers all users' listeners on
    /// the port. If an address is given, the grant covers only listeners on that address. `listed` returns all listeners of the
    /// host.
    pub(crate) fn ask(
        &self,
        now: Time,
        caller: Caller,
        (address, port): (Option<IpAddr>, u16),
        listed: impl FnOnce() -> Vec<Listed>,
    ) -> Result<Grant, AskError> {
        self.lock().count(now, caller)?;
        // The list is read without the lock, because the packet loop waits for the lock.
        let wanted = |l: &Listed| {
            l.address.port() == port
                && address.is_none_or(|ip| ip.to_canonical() == l.address.ip().to_canonical())
        };
        let there: Vec<Listed> = listed().into_iter().filter(wanted).collect();
        let is_own =
            |l: &&Listed| caller.may_change || (l.socket.uid == caller.uid && caller.uid != UNKNOWN_USER);
        let sockets: Vec<Socket> = there.iter().filter(is_own).map(|l| l.socket).collect();
        match (there.len(), sockets.len()) {
            (0, _) => return Err(AskError::NobodyListens),
            (_, 0) => return Err(AskError::NotOwn),
            (_, count) if count > SOCKETS_MAX => return Err(AskError::ManySockets),
            _ => {}
        }
        let mut held = self.lock();
        let of_user = held.grants.values().filter(|granted| granted.to.uid == caller.uid).count();
        let of_users = held.grants.values().filter(|granted| !granted.to.may_change).count();
        let is_over = of_user >= HELD_OF_USER_MAX || of_users >= HELD_OF_USERS_MAX;
        if held.grants.len() >= HELD_MAX || (!caller.may_change && is_over) {
            return Err(AskError::Full);
        }
        held.last += 1;
        let number = held.last;
        held.grants.insert(number, Granted { to: caller, sockets });
        Ok(Grant { manual: self.clone(), number, missed: false })
    }

    /// Reports whether a caller who may make rules has a grant for this socket. If `of_users` is true, the grants of other
    /// users count too.
    pub(crate) fn has(&self, socket: Socket, of_users: bool) -> bool {
        let counts = |granted: &&Granted| of_users || granted.to.may_change;
        self.lock().grants.values().filter(counts).any(|granted| granted.sockets.contains(&socket))
    }

    /// Reports whether a caller who may make rules has a grant for any socket. If `of_users` is true, the grants of other users
    /// count too.
    pub(crate) fn has_any(&self, of_users: bool) -> bool {
        self.lock().grants.values().any(|granted| of_users || granted.to.may_change)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn count(&mut self, now: Time, caller: Caller) -> Result<(), AskError> {
        if now >= self.asked_since + ASKED_PERIOD {
            self.asked.clear();
            self.asked_since = now;
        }
        let asked = self.asked.entry(caller.uid).or_default();
        *asked = asked.saturating_add(1);
        if *asked > ASKED_MAX && !caller.may_change { Err(AskError::TooOften) } else { Ok(()) }
    }
}

impl Grant {
    /// Reports whether one of the grant's sockets still listens. The kernel's list may omit a socket while the table changes,
    /// so a socket counts as gone only after two consecutive misses.
    pub(crate) fn still_listens(&mut self, now: Time, listed: impl FnOnce() -> Vec<Listed>) -> bool {
        let is_known = self.manual.lock().seen_at.is_some_and(|at| now < at + SEEN_FOR);
        if !is_known {
            let seen = listed().into_iter().map(|l| l.socket).collect();
            let mut held = self.manual.lock();
            (held.seen, held.seen_at) = (seen, Some(now));
        }
        let held = self.manual.lock();
        let own = held.grants.get(&self.number).map_or(&[][..], |granted| &granted.sockets);
        let is_there = own.iter().any(|socket| held.seen.contains(socket));
        drop(held);
        let was_missed = std::mem::replace(&mut self.missed, !is_there);
        is_there || !was_missed
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.manual.lock().grants.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(100_000);
    const ALICE: Caller = Caller { uid: 1000, may_change: false };
    const BOB: Caller = Caller { uid: 1001, may_change: false };
    const ROOT: Caller = Caller { uid: 0, may_change: true };

    fn listed(address: &str, uid: u32, inode: u32) -> Listed {
        Listed { address: address.parse().unwrap(), socket: Socket { inode, uid } }
    }

    fn host() -> Vec<Listed> {
        vec![
            listed("0.0.0.0:8000", 1000, 1),
            listed("[::]:8000", 1001, 2),
            listed("192.0.2.1:22", 0, 3),
            listed("192.0.2.1:9000", UNKNOWN_USER, 4),
        ]
    }

    fn ask(manual: &Manual, caller: Caller, port: u16) -> Result<Grant, AskError> {
        manual.ask(NOW, caller, (None, port), host)
    }

    /// Requests a grant for one listener of the caller on port 8000.
    fn ask_own(manual: &Manual, caller: Caller) -> Result<Grant, AskError> {
        manual.ask(NOW, caller, (None, 8000), || vec![listed("0.0.0.0:8000", caller.uid, 9)])
    }

    #[test]
    fn a_grant_covers_only_the_users_own_sockets_on_a_shared_port() {
        let manual = Manual::default();
        let grant = ask(&manual, ALICE, 8000).unwrap();
        assert!(manual.has(Socket { inode: 1, uid: 1000 }, true));
        assert!(!manual.has(Socket { inode: 2, uid: 1001 }, true));
        drop(grant);
        assert!(!manual.has_any(true), "it ends with its connection");
    }

    #[test]
    fn foreign_and_unused_ports_are_refused_and_root_may_ask_for_all() {
        let manual = Manual::default();
        assert_eq!(ask(&manual, ALICE, 22).err(), Some(AskError::NotOwn));
        assert_eq!(ask(&manual, ALICE, 23).err(), Some(AskError::NobodyListens));
        let of_bob = manual.ask(NOW, ALICE, (Some("::".parse().unwrap()), 8000), host);
        assert_eq!(of_bob.err(), Some(AskError::NotOwn));
        let _grant = ask(&manual, ROOT, 22).unwrap();
        assert!(manual.has(Socket { inode: 3, uid: 0 }, false));
        let _of_alice = ask(&manual, ALICE, 8000).unwrap();
        assert!(!manual.has(Socket { inode: 1, uid: 1000 }, false), "the setting was taken back");
    }

    #[test]
    fn a_user_unknown_in_the_user_namespace_gets_no_grant() {
        let unknown = Caller { uid: UNKNOWN_USER, may_change: false };
        assert_eq!(ask(&Manual::default(), unknown, 9000).err(), Some(AskError::NotOwn));
    }

    #[test]
    fn a_grant_does_not_cover_a_socket_with_another_owner_or_inode() {
        let manual = Manual::default();
        let _grant = ask(&manual, ALICE, 8000).unwrap();
        assert!(!manual.has(Socket { inode: 1, uid: 1001 }, true));
        assert!(!manual.has(Socket { inode: 5, uid: 1000 }, true));
    }

    #[test]
    fn grants_are_limited_to_8_per_user_48_for_all_users_and_64_with_root() {
        let manual = Manual::default();
        let mut of_alice: Vec<Grant> = (0..8).map(|_| ask(&manual, ALICE, 8000).unwrap()).collect();
        assert_eq!(ask(&manual, ALICE, 8000).err(), Some(AskError::Full));
        let _of_bob = ask(&manual, BOB, 8000).unwrap();
        of_alice.pop();
        let _again = ask(&manual, ALICE, 8000).unwrap();
        let others = (2000..).flat_map(|uid| [Caller { uid, may_change: false }; 8]);
        let _of_others: Vec<Grant> = others.take(39).map(|other| ask_own(&manual, other).unwrap()).collect();
        assert_eq!(ask_own(&manual, Caller { uid: 3000, may_change: false }).err(), Some(AskError::Full));
        let _of_root: Vec<Grant> = (0..16).map(|_| ask(&manual, ROOT, 22).unwrap()).collect();
        assert_eq!(ask(&manual, ROOT, 22).err(), Some(AskError::Full));
    }

    #[test]
    fn a_user_who_asks_too_often_waits_and_others_do_not() {
        let manual = Manual::default();
        for _ in 0..ASKED_MAX {
            assert_eq!(ask(&manual, ALICE, 23).err(), Some(AskError::NobodyListens));
        }
        let never = || panic!("the kernel is not asked");
        let refused = manual.ask(NOW, ALICE, (None, 8000), never);
        assert_eq!(refused.err(), Some(AskError::TooOften));
        assert!(ask(&manual, BOB, 8000).is_ok());
        assert!(manual.ask(NOW + ASKED_PERIOD, ALICE, (None, 8000), host).is_ok());
    }

    #[test]
    fn a_grant_ends_if_two_scans_miss_its_sockets_and_grants_share_scans() {
        let manual = Manual::default();
        let (mut one, mut other) = (ask(&manual, ALICE, 8000).unwrap(), ask(&manual, BOB, 8000).unwrap());
        let only_bobs = || vec![listed("[::]:8000", 1001, 2)];
        assert!(one.still_listens(NOW, host));
        let never = || panic!("it was looked just now");
        assert!(other.still_listens(NOW, never));
        let later = NOW + SEEN_FOR;
        assert!(one.still_listens(later, only_bobs), "missed once");
        assert!(!one.still_listens(later + SEEN_FOR, only_bobs));
        assert!(other.still_listens(later + SEEN_FOR, never));
    }

    #[test]
    fn a_request_that_matches_too_many_sockets_is_refused() {
        let many = || (0..=SOCKETS_MAX as u32).map(|n| listed("0.0.0.0:8000", 1000, n)).collect();
        let refused = Manual::default().ask(NOW, ALICE, (None, 8000), many);
        assert_eq!(refused.err(), Some(AskError::ManySockets));
    }
}
