//! Cache and queue for domain names that must be resolved (RFC 3263). The driver performs the lookups. This module keeps the answers
//! until they expire, and queues the requests that wait for an answer.
//!
//! Invariants: a name whose lookup is in progress is not queried again. No more than [`NAMES_MAX`] answers are kept, and no more than
//! [`WAITING_MAX`] requests wait. Begin with [`Names::wait`] and [`Names::answer`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;

use super::Output;
use super::asked::{Ack, Asked};
use super::lookup::{Lookup, ResolvedTarget, UNRESOLVED};
use super::outbox::Outbox;
use crate::address::Address;
use crate::fault::Fault;
use crate::header::Name;
use crate::message::Message;
use crate::transport::Transport;
use crate::uri::Uri;

/// Limit on cached answers.
const NAMES_MAX: usize = 4096;
/// Limit on requests that wait for answers.
const WAITING_MAX: usize = 10_000;
/// Minimum lifetime of an answer. With a shorter lifetime, an answer could expire before its first use.
const GOOD_MIN: Duration = Duration::from_secs(1);
/// Cached answers and waiting requests.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<Lookup, (Time, Vec<ResolvedTarget>)>,
    waiting: BTreeMap<Lookup, Vec<Waiting>>,
}

/// A request that waits for a name.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A request with a server transaction.
    Request(Asked),
    /// An ACK, which has no transaction.
    Ack(Ack),
}

impl Names {
    /// Returns the addresses of a name, or `None` if the name must be looked up.
    pub(super) fn targets(&self, now: Time, lookup: &Lookup) -> Option<&[ResolvedTarget]> {
        let (until, targets) = self.known.get(lookup)?;
        (*until > now).then_some(&targets[..])
    }

    /// Returns a name that has resolved to this address with the transport TLS. The answer may have expired since.
    pub(super) fn name_of(&self, address: SocketAddr) -> Option<&str> {
        let leads_there =
            |target: &ResolvedTarget| target.transport == Transport::Tls && target.address == address;
        let mut found = self.known.iter().filter(|(_, (_, targets))| targets.iter().any(leads_there));
        found.next().map(|(lookup, _)| lookup.name.as_str())
    }

    /// Keeps the answer to a query, and returns the requests that waited for it.
    pub(super) fn answer(
        &mut self,
        now: Time,
        lookup: &Lookup,
        targets: Vec<ResolvedTarget>,
        good_for: Duration,
    ) -> Vec<Waiting> {
        if self.known.len() >= NAMES_MAX {
            self.known.retain(|_, (until, _)| *until > now);
        }
        if self.known.len() >= NAMES_MAX {
            self.known.pop_first();
        }
        self.known.insert(lookup.clone(), (now + good_for.max(GOOD_MIN), targets));
        self.waiting.remove(lookup).unwrap_or_default()
    }

    /// Returns the query for which a request must wait. Fails if too many requests wait, or if the next hop is not a name.
    pub(super) fn lookup_for(&self, request: &Message) -> Result<Lookup, Fault> {
        if self.waiting.values().map(Vec::len).sum::<usize>() >= WAITING_MAX {
            return Err(Fault { status: 503, reason: "Too Many Requests Wait For Names" });
        }
        next_uri(request).and_then(|uri| Lookup::of(&uri)).ok_or(UNRESOLVED)
    }

    /// Queues a request until [`Names::answer`] is called for `lookup`. The first request in the queue of a lookup triggers the query.
    pub(super) fn wait(&mut self, lookup: Lookup, waiting: Waiting, outbox: &mut Outbox) {
        let queue = self.waiting.entry(lookup.clone()).or_default();
        if queue.is_empty() {
            outbox.push(Output::Resolve(lookup));
        }
        queue.push(waiting);
    }
}

/// Returns the URI that decides the next hop of a request: the URI of the first Route, or else the Request-URI.
fn next_uri(request: &Message) -> Option<Uri<'_>> {
    match request.elements(Name::Route).next() {
        Some(route) => Uri::parse(Address::parse(route).ok()?.uri).ok(),
        None => Uri::parse(request.request_uri()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{asked, request};

    const HOUR: Duration = Duration::from_secs(3600);

    fn lookup(name: &str) -> Lookup {
        Lookup { name: name.into(), port: None, transport: None, is_secure: false }
    }

    fn tls() -> ResolvedTarget {
        ResolvedTarget { transport: Transport::Tls, address: "192.0.2.60:5061".parse().unwrap() }
    }

    #[test]
    fn a_dns_answer_is_kept_for_its_lifetime_but_at_least_for_1_s() {
        let mut names = Names::default();
        for (good_for, until) in [(HOUR, HOUR), (Duration::ZERO, GOOD_MIN)] {
            names.answer(Time::ZERO, &lookup("example.com"), vec![tls()], good_for);
            let before = Time::ZERO + (until - Duration::from_millis(1));
            assert_eq!(names.targets(before, &lookup("example.com")), Some(&[tls()][..]));
            assert_eq!(names.targets(Time::ZERO + until, &lookup("example.com")), None);
        }
        assert_eq!(names.name_of(tls().address), Some("example.com"));
    }

    #[test]
    fn a_name_is_queried_once_for_all_that_wait_for_it() {
        let (mut names, mut outbox) = (Names::default(), Outbox::default());
        for server in 0..2 {
            let asked = asked(server, "OPTIONS sip:a@Example.com.");
            let lookup = names.lookup_for(&asked.request).unwrap();
            names.wait(lookup, Waiting::Request(asked), &mut outbox);
        }
        assert_eq!(outbox.next(), Some(Output::Resolve(lookup("example.com"))));
        assert_eq!(outbox.next(), None);
        assert_eq!(names.answer(Time::ZERO, &lookup("example.com"), Vec::new(), HOUR).len(), 2);
        assert!(names.answer(Time::ZERO, &lookup("example.com"), Vec::new(), HOUR).is_empty());
    }

    #[test]
    fn answers_beyond_the_limit_replace_others() {
        let mut names = Names::default();
        for number in 0..=NAMES_MAX {
            names.answer(Time::ZERO, &lookup(&format!("{number:05}.example")), Vec::new(), HOUR);
        }
        assert_eq!(names.targets(Time::ZERO, &lookup("00000.example")), None);
        assert_eq!(names.known.len(), NAMES_MAX);
    }

    #[test]
    fn an_address_is_not_looked_up() {
        let lookup = Names::default().lookup_for(&request("OPTIONS sip:a@192.0.2.9"));
        assert_eq!(lookup, Err(UNRESOLVED));
    }
}
