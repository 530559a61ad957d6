//! The registrar (RFC 3261 section 10.3): the users' bindings, and a store that proxies may share.
//!
//! [`decision`] has the rules for one REGISTER. Without a shared store, the changes are applied at once. With a shared store, the new
//! bindings replace the user's record if its version is unchanged (optimistic locking). If another proxy has changed the record, the
//! decision is repeated from the newer record. Invariant: an older version never replaces the local copy of a user's bindings. If the
//! store answers that no record exists (version 0), the local copy is removed. Begin with [`Registrar::register`].

mod decision;
mod waiting;

pub(super) use decision::{Answer, Registration};
pub(super) use waiting::Waiter;

use base::Time;

use self::decision::{Decision, accept, decide};
use self::waiting::{Pending, StoreQueue};
use super::flows::Flows;
use super::outbox::{Event, Outbox};
use super::shared::{Finding, Record, Wanted};
use super::{Output, ProxyConfig};
use crate::fault::Fault;
use crate::location::{Binding, Change, Location, LocationLimits};

/// Limit on the decisions on one REGISTER. A decision is repeated each time another proxy has changed the record in the meantime.
const TRIES_MAX: u32 = 8;
/// The rejection of a request that needs the store while the store does not answer.
pub(super) const NO_STORE: Fault = Fault { status: 503, reason: "Location Store Unavailable" };

/// The registered users, and the requests that wait for the shared store.
#[derive(Debug)]
pub(super) struct Registrar {
    location: Location,
    store: StoreQueue,
}

impl Registrar {
    pub(super) fn new(limits: LocationLimits) -> Registrar {
        Registrar { location: Location::new(limits), store: StoreQueue::default() }
    }

    /// Sets the limits for future bindings.
    pub(super) fn set_limits(&mut self, limits: LocationLimits) {
        self.location.set_limits(limits);
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Applies a change that was read from a store.
    pub(super) fn restore(&mut self, change: &Change) {
        self.location.apply(change);
    }

    /// Forgets all expired bindings.
    pub(super) fn expire(&mut self, now: Time, config: &ProxyConfig, outbox: &mut Outbox) {
        note_expired(config, self.location.expire_all(now), outbox);
    }

    /// Decides a REGISTER. Returns `None` if the request waits for the store. [`Registrar::finish`] then handles the answer of the store.
    pub(super) fn register(
        &mut self,
        now: Time,
        config: &ProxyConfig,
        flows: &Flows,
        asked: Registration,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Fault> {
        let forgotten = self.location.expire(asked.user(), now);
        note_expired(config, forgotten, outbox);
        let bindings: Vec<&Binding> = self.location.of(asked.user(), now).collect();
        if config.is_shared() {
            let version = self.location.version_of(asked.user());
            let record = Record { version, bindings: bindings.into_iter().cloned().collect() };
            return self.register_by(now, config, flows, asked, record, 0, outbox);
        }
        match decide(now, config, flows, &self.location, &asked, &bindings)? {
            Decision::TooBrief(answer) => Ok(Some(answer)),
            Decision::Changes(changes) => {
                for change in changes {
                    self.location.apply(&change);
                    outbox.push(Output::Store(change));
                }
                outbox.count(Event::Registration);
                Ok(Some(accept(now, &asked, self.location.of(asked.user(), now))))
            }
        }
    }

    /// Decides a REGISTER from a record of the shared store. `tries` is the number of earlier decisions.
    #[allow(clippy::too_many_arguments, reason = "the parts of the proxy that a decision needs")]
    fn register_by(
        &mut self,
        now: Time,
        config: &ProxyConfig,
        flows: &Flows,
        asked: Registration,
        record: Record,
        tries: u32,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Fault> {
        if tries >= TRIES_MAX {
            return Err(Fault { status: 503, reason: "Too Many Registrations Of This User" });
        }
        let good: Vec<&Binding> = record.bindings.iter().filter(|binding| binding.expires > now).collect();
        let changes = match decide(now, config, flows, &self.location, &asked, &good)? {
            Decision::TooBrief(answer) => return Ok(Some(answer)),
            Decision::Changes(changes) => changes,
        };
        let user = asked.user().to_owned();
        let (wanted, bindings) = if changes.is_empty() {
            (Wanted::Read { user }, None)
        } else {
            let bindings = with(good.into_iter().cloned().collect(), changes);
            (Wanted::Replace { user, version: record.version, bindings: bindings.clone() }, Some(bindings))
        };
        let waiter = Waiter::Registration(Pending { asked: Box::new(asked), tries, bindings });
        self.ask(wanted, waiter, outbox)?;
        Ok(None)
    }

    /// Handles the store's answer to a REGISTER that waited for it. Returns `None` if the request must wait again.
    pub(super) fn finish(
        &mut self,
        now: Time,
        config: &ProxyConfig,
        flows: &Flows,
        Pending { asked, tries, bindings }: Pending,
        finding: Finding,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Fault> {
        let bindings = match (finding, bindings) {
            (Finding::Replaced(version), Some(bindings)) => {
                self.learn(asked.user(), version, &bindings);
                bindings
            }
            (Finding::Is(record), None) => {
                self.learn(asked.user(), record.version, &record.bindings);
                record.bindings
            }
            (Finding::Is(record), Some(_)) => {
                self.learn(asked.user(), record.version, &record.bindings);
                return self.register_by(now, config, flows, *asked, record, tries + 1, outbox);
            }
            (Finding::Failed | Finding::Replaced(_) | Finding::IsFirst(_), _) => return Err(NO_STORE),
        };
        outbox.count(Event::Registration);
        let good = bindings.iter().filter(|binding| binding.expires > now);
        Ok(Some(accept(now, &asked, good)))
    }

    /// Queries the shared store for a request that waits for the answer.
    pub(super) fn ask(&mut self, wanted: Wanted, waiter: Waiter, outbox: &mut Outbox) -> Result<(), Fault> {
        self.store.ask(wanted, waiter, outbox)
    }

    /// Removes and returns the request that waited for the answer to a query.
    pub(super) fn answered(&mut self, ticket: u64) -> Option<Waiter> {
        self.store.take(ticket)
    }

    /// Returns the number of requests that wait for the store.
    pub(super) fn waiting(&self) -> usize {
        self.store.len()
    }

    /// Updates the local copy of a user's bindings from the store. A version that is not newer than the local copy is ignored, except
    /// version 0 (no record).
    pub(super) fn learn(&mut self, user: &str, version: u64, bindings: &[Binding]) {
        if version == 0 || version > self.location.version_of(user) {
            self.location.replace(user, version, bindings.to_vec());
        }
    }

    /// Handles a notification from the store with a user's record. The record may be outdated.
    pub(super) fn on_record(&mut self, user: &str, record: Record) {
        if record.version > self.location.version_of(user) {
            self.location.replace(user, record.version, record.bindings);
        } else {
            self.location.confirm(user);
        }
    }

    /// Begins a full reload from the store.
    pub(super) fn begin_records(&mut self) {
        self.location.begin_round();
    }

    /// Ends the reload. Removes users without a record in the reload.
    pub(super) fn end_records(&mut self) {
        self.location.end_round();
    }
}

/// Reports expired bindings to our own store. A shared store removes expired bindings itself.
fn note_expired(config: &ProxyConfig, changes: Vec<Change>, outbox: &mut Outbox) {
    if !config.is_shared() {
        changes.into_iter().for_each(|change| outbox.push(Output::Store(change)));
    }
}

/// Returns the bindings after these changes.
fn with(mut bindings: Vec<Binding>, changes: Vec<Change>) -> Vec<Binding> {
    for change in changes {
        match change {
            Change::Remove { uri, .. } => bindings.retain(|binding| binding.uri != uri),
            Change::Put { binding, .. } => match bindings.iter_mut().find(|known| known.is_same(&binding)) {
                Some(known) => *known = binding,
                None => bindings.push(binding),
            },
        }
    }
    bindings
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::essentials::Essentials;
    use crate::proxy::Shared;
    use crate::proxy::testing::{Knowledge, hop, request};

    const USER: &str = "callee@example.org";

    struct World {
        registrar: Registrar,
        knowledge: Knowledge,
        outbox: Outbox,
    }

    impl World {
        fn new(is_shared: bool) -> World {
            let mut knowledge = Knowledge::default();
            knowledge.config.shared = is_shared.then_some(Shared { origin: Duration::ZERO });
            let registrar = Registrar::new(LocationLimits::default());
            World { registrar, knowledge, outbox: Outbox::default() }
        }

        fn register(&mut self, fields: &str) -> Result<Option<Answer>, Fault> {
            let Knowledge { config, flows, .. } = &self.knowledge;
            let request = request(&format!("REGISTER sip:example.org\n{fields}"));
            let known = Essentials::of(&request).unwrap();
            let asked = Registration::of(config, 1, hop("192.0.2.7:5060"), &request, &known).unwrap();
            self.registrar.register(Time::ZERO, config, flows, asked, &mut self.outbox)
        }

        /// Takes the next query, and returns its ticket and the version that it replaces.
        fn query(&mut self) -> (u64, Option<u64>) {
            let Some(Output::Ask(query)) = self.outbox.next() else { panic!("no query") };
            let Wanted::Replace { version, .. } = query.wanted else { return (query.ticket, None) };
            (query.ticket, Some(version))
        }

        fn finish(&mut self, ticket: u64, finding: Finding) -> Result<Option<Answer>, Fault> {
            let Knowledge { config, flows, .. } = &self.knowledge;
            let Some(Waiter::Registration(pending)) = self.registrar.answered(ticket) else { panic!() };
            self.registrar.finish(Time::ZERO, config, flows, pending, finding, &mut self.outbox)
        }
    }

    #[test]
    fn without_a_shared_store_a_registration_is_answered_at_once_and_stored() {
        let mut world = World::new(false);
        let answer = world.register("Contact: <sip:a@192.0.2.7>").unwrap().unwrap();
        assert_eq!(
            (answer.status, &answer.fields[0].value[..]),
            (200, &b"<sip:a@192.0.2.7>;expires=3600"[..])
        );
        assert!(matches!(world.outbox.next(), Some(Output::Store(Change::Put { user, .. })) if user == USER));
        assert_eq!(world.outbox.counters().registrations, 1);
    }

    #[test]
    fn an_expired_binding_is_removed_from_a_store_of_our_own_only() {
        for is_shared in [false, true] {
            let mut world = World::new(false);
            world.register("Contact: <sip:a@192.0.2.7>").unwrap();
            world.outbox.next();
            world.knowledge.config.shared = is_shared.then_some(Shared { origin: Duration::ZERO });
            let later = Time::ZERO + Duration::from_secs(3600);
            world.registrar.expire(later, &world.knowledge.config, &mut world.outbox);
            assert_eq!(world.registrar.location().contacts(), 0);
            assert_eq!(world.outbox.next().is_none(), is_shared);
        }
    }

    #[test]
    fn a_shared_record_that_another_proxy_changed_is_decided_again() {
        let mut world = World::new(true);
        assert!(world.register("Contact: <sip:a@192.0.2.7>").unwrap().is_none());
        assert_eq!((world.query(), world.registrar.waiting()), ((0, Some(0)), 1));
        let newer = Record { version: 5, bindings: Vec::new() };
        assert!(world.finish(0, Finding::Is(newer)).unwrap().is_none());
        assert_eq!(world.query(), (1, Some(5)));
        assert_eq!(world.finish(1, Finding::Replaced(6)).unwrap().unwrap().status, 200);
        assert_eq!((world.registrar.location().version_of(USER), world.registrar.waiting()), (6, 0));
    }

    #[test]
    fn a_registration_is_refused_if_the_store_fails_or_every_write_conflicts() {
        let mut world = World::new(true);
        world.register("Contact: <sip:a@192.0.2.7>").unwrap();
        let mut ticket = world.query().0;
        for version in 1..u64::from(TRIES_MAX) {
            let newer = Record { version, bindings: Vec::new() };
            assert!(world.finish(ticket, Finding::Is(newer)).unwrap().is_none());
            ticket = world.query().0;
        }
        let last = world.finish(ticket, Finding::Is(Record { version: 99, bindings: Vec::new() }));
        assert_eq!(last.unwrap_err().reason, "Too Many Registrations Of This User");
        world.register("Contact: <sip:a@192.0.2.7>").unwrap();
        let ticket = world.query().0;
        assert_eq!(world.finish(ticket, Finding::Failed).unwrap_err(), NO_STORE);
    }

    #[test]
    fn an_outdated_notification_changes_nothing() {
        let mut world = World::new(true);
        world.register("Contact: <sip:a@192.0.2.7>").unwrap();
        let ticket = world.query().0;
        world.finish(ticket, Finding::Replaced(6)).unwrap();
        world.registrar.on_record(USER, Record { version: 5, bindings: Vec::new() });
        assert_eq!(world.registrar.location().contacts(), 1);
        world.registrar.on_record(USER, Record { version: 7, bindings: Vec::new() });
        assert_eq!(world.registrar.location().contacts(), 0);
    }
}
