//! Domains whose addresses have to be looked up (RFC 3263). Whoever drives the proxy does that; here is what was found, for how long it is
//! good, and which requests wait for it.
//!
//! Invariants: what is being looked up is asked for once; no more than [`NAMES_MAX`] answers are kept, and no more than [`WAITING_MAX`]
//! requests wait. Begin with [`Proxy::wait_for_name`] and [`Proxy::handle_resolved`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;

use super::acks::Ack;
use super::route::Asked;
use super::{Output, Proxy};
use crate::address::Address;
use crate::fault::Fault;
use crate::header::Name;
use crate::message::{Message, Method};
use crate::transport::Transport;
use crate::uri::{Scheme, Uri};
use crate::via::parse_ip;

/// Answers that are kept at most.
const NAMES_MAX: usize = 4096;
/// Requests that may wait for answers at once.
const WAITING_MAX: usize = 10_000;
/// How long an answer is good at least: else nobody could use it.
const GOOD_MIN: Duration = Duration::from_secs(1);
/// Nobody knows yet where this name leads: never sent as a response.
pub(super) const UNRESOLVED: Fault = Fault { status: 500, reason: "Name Not Looked Up" };

/// What is to be looked up: a URI's host with what RFC 3263 section 4 looks at beside it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lookup {
    /// The host, in lower case.
    pub name: String,
    /// The port, if given: then there is no SRV.
    pub port: Option<u16>,
    /// The transport, if given.
    pub transport: Option<Transport>,
    /// Whether nothing but TLS will do (SIPS).
    pub is_secure: bool,
}

/// One place that a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// What carries messages there.
    pub transport: Transport,
    /// Where.
    pub address: SocketAddr,
}

/// All that is known of names.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<Lookup, (Time, Vec<Place>)>,
    waiting: BTreeMap<Lookup, Vec<Waiting>>,
}

/// What waits for a name.
#[derive(Debug)]
enum Waiting {
    /// With a server transaction.
    Request(Asked),
    /// Without.
    Ack(Ack),
}

impl Names {
    /// The places of a name; `None`: it is to be looked up.
    pub(super) fn places(&self, now: Time, lookup: &Lookup) -> Option<&[Place]> {
        let (until, places) = self.known.get(lookup)?;
        (*until > now).then_some(&places[..])
    }

    /// The name that led to this address, by TLS.
    pub(super) fn name_of(&self, address: SocketAddr) -> Option<&str> {
        let leads_there = |place: &Place| place.transport == Transport::Tls && place.address == address;
        let mut found = self.known.iter().filter(|(_, (_, places))| places.iter().any(leads_there));
        found.next().map(|(lookup, _)| lookup.name.as_str())
    }

    fn keep(&mut self, now: Time, lookup: Lookup, until: Time, places: Vec<Place>) {
        if self.known.len() >= NAMES_MAX {
            self.known.retain(|_, (until, _)| *until > now);
        }
        if self.known.len() >= NAMES_MAX {
            self.known.pop_first();
        }
        self.known.insert(lookup, (until, places));
    }
}

/// What is to be looked up for a URI; `None` if its host is an address.
pub(super) fn lookup_of(uri: &Uri<'_>) -> Option<Lookup> {
    let host = uri.param("maddr").flatten().unwrap_or(uri.host);
    if parse_ip(host).is_some() {
        return None;
    }
    Some(Lookup {
        name: String::from_utf8_lossy(host).trim_end_matches('.').to_ascii_lowercase(),
        port: uri.port,
        transport: uri.transport().and_then(Transport::from_bytes),
        is_secure: uri.scheme == Scheme::Sips,
    })
}

impl Proxy {
    /// A request's next hop is a name that nobody has looked up: it goes on with [`Proxy::handle_resolved`].
    pub(super) fn wait_for_name(&mut self, now: Time, asked: Asked) -> Result<(), Fault> {
        let lookup = self.lookup_for(&asked.request)?;
        if asked.known.cseq.method == Method::Invite {
            self.reply(now, asked.server, 100, "Trying", |_| {});
        }
        self.put_in_queue(lookup, Waiting::Request(asked));
        Ok(())
    }

    /// The same for an ACK.
    pub(super) fn have_ack_wait(&mut self, ack: Ack) -> Result<(), Fault> {
        let lookup = self.lookup_for(&ack.request)?;
        self.put_in_queue(lookup, Waiting::Ack(ack));
        Ok(())
    }

    /// What a request has to wait for, if it may.
    fn lookup_for(&self, request: &Message) -> Result<Lookup, Fault> {
        if self.names.waiting.values().map(Vec::len).sum::<usize>() >= WAITING_MAX {
            return Err(Fault { status: 503, reason: "Too Many Requests Wait For Names" });
        }
        next_uri(request).and_then(|uri| lookup_of(&uri)).ok_or(UNRESOLVED)
    }

    fn put_in_queue(&mut self, lookup: Lookup, waiting: Waiting) {
        let queue = self.names.waiting.entry(lookup.clone()).or_default();
        if queue.is_empty() {
            self.outputs.push_back(Output::Resolve(lookup));
        }
        queue.push(waiting);
    }

    /// A name was looked up: the places that it leads to, the best first, none if there are none; and how long that is good.
    pub fn handle_resolved(&mut self, now: Time, lookup: Lookup, places: Vec<Place>, good_for: Duration) {
        self.names.keep(now, lookup.clone(), now + good_for.max(GOOD_MIN), places);
        for waiting in self.names.waiting.remove(&lookup).unwrap_or_default() {
            match waiting {
                Waiting::Request(asked) => self.go_on(now, asked),
                Waiting::Ack(ack) => self.route_ack(now, ack),
            }
        }
    }

    /// The name that a request waited for is known.
    fn go_on(&mut self, now: Time, asked: Asked) {
        let server = asked.server;
        if let Err(fault) = self.check_cancelled(server).and_then(|()| self.route(now, asked)) {
            self.refuse(now, server, fault);
        }
    }
}

/// The URI that says where a request goes: of the first Route, or the Request-URI.
fn next_uri(request: &Message) -> Option<Uri<'_>> {
    match request.elements(Name::Route).next() {
        Some(route) => Uri::parse(Address::parse(route).ok()?.uri).ok(),
        None => Uri::parse(request.request_uri()).ok(),
    }
}
