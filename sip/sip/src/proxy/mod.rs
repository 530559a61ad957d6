//! The core of a proxy and registrar (RFC 3261 sections 10 and 16, with RFC 6026, 5393, 3581, 3327 and 5658).
//!
//! The driver calls [`Proxy::handle_message`], [`Proxy::handle_timeout`] and [`Proxy::handle_send_failure`]. After each call, the driver
//! polls [`Proxy::poll_output`] until the result is `None`. The driver then reads [`Proxy::next_timeout`]. Invariants: a server
//! transaction gets one final response, a branch ends once, and [`ProxyLimits`] limits all state of requests and dialogs.
//!
//! [`Proxy`] mediates between parts that own their state:
//!
//! - `transactions`: requests in progress, their timers, and their memory;
//! - `dialogs`, `names`, `cluster`, `registrar`: knowledge of dialogs, names, other proxies and users;
//! - `access`, `auth`: the admission of requests;
//! - `loops`, `marks`, `flows`, `tags`, `stateless_via`: one secret key per module, and the values that are computed with this key;
//! - `outbox`: actions for the driver, and counters.
//!
//! Two views borrow these parts for one event. `routing` reads them to find the next hop. `stateful` forwards requests and responses in
//! transactions. Begin with `inbound`, then `route`. `stateless` and `redirect` implement the other modes.

mod access;
mod asked;
mod auth;
mod cluster;
mod config;
mod copies;
mod dialogs;
mod flows;
mod hop_by_hop;
mod inbound;
mod keys;
mod leg;
mod lookup;
mod loops;
mod marks;
mod matching;
mod memory_budget;
mod names;
mod ours;
mod outbox;
mod own_routes;
mod performance;
mod plan;
mod redirect;
mod refusal;
mod registrar;
mod route;
mod routing;
mod shared;
mod stateful;
mod stateless;
mod stateless_via;
mod tags;
mod target;
#[cfg(test)]
mod testing;
mod tokens;
mod transactions;

pub use access::Access;
pub(crate) use auth::Proof;
pub use cluster::Presence;
pub use config::{
    Authentication, Expiry, Listener, Mode, NextHop, ProxyConfig, ProxyLimits, RecordName, Shared,
};
pub use dialogs::Dialog;
pub use keys::fingerprint;
pub use lookup::{Lookup, ResolvedTarget};
pub use outbox::{Counters, LostRequest, Outgoing, Output};
pub use performance::{Attempt, Attempts, Histogram, Performance, Times};
pub use shared::{Finding, Query, Record, Wanted};

pub(crate) use hop_by_hop::hop_request;
pub(crate) use matching::{response_hop, server_key};

use std::net::SocketAddr;

use base::Time;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use self::access::AccessControl;
use self::auth::Authenticator;
use self::cluster::Cluster;
use self::dialogs::Dialogs;
use self::flows::Flows;
use self::leg::Leg;
use self::loops::Loops;
use self::marks::DialogMarks;
use self::names::Names;
use self::outbox::Outbox;
use self::registrar::Registrar;
use self::routing::Routing;
use self::stateful::Stateful;
use self::stateless_via::StatelessVia;
use self::tags::Tags;
use self::target::Target;
use self::tokens::HopTokens;
use self::transactions::{Due, Transactions};
use crate::digest::Nonces;
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::location::{Change, Location};
use crate::message::Message;
use crate::transport::Hop;

/// The number of a server or client transaction. A number is never reused.
type Id = u64;

/// A proxy with its registrar.
#[derive(Debug)]
pub struct Proxy {
    config: ProxyConfig,
    authenticator: Authenticator,
    loops: Loops,
    marks: DialogMarks,
    flows: Flows,
    tags: Tags,
    stateless_via: StatelessVia,
    registrar: Registrar,
    cluster: Cluster,
    transactions: Transactions,
    dialogs: Dialogs,
    access_control: AccessControl,
    names: Names,
    outbox: Outbox,
}

impl Proxy {
    /// Creates a proxy without bindings. `seed` must be unpredictable.
    pub fn new(now: Time, config: ProxyConfig, seed: [u8; 32]) -> Proxy {
        let mut rng = ChaCha12Rng::from_seed(seed);
        let mut secret = || {
            let mut bytes = [0; 32];
            rng.fill_bytes(&mut bytes);
            bytes
        };
        let (nonce_secret, loop_secret, own) = (secret(), secret(), secret());
        let dialog_secret = config.dialog_secret.unwrap_or(own);
        let nonces = match config.shared {
            None => Nonces::new(nonce_secret),
            Some(Shared { origin }) => {
                Nonces::shared(keys::derived(&dialog_secret, "nonces"), origin, rng.next_u64())
            }
        };
        let registrar = Registrar::new(config.location);
        let dialogs = Dialogs::new(config.limits.dialogs);
        let run = rng.next_u64();
        Proxy {
            config,
            authenticator: Authenticator::new(nonces),
            loops: Loops::new(loop_secret),
            marks: DialogMarks::new(dialog_secret),
            flows: Flows::new(HopTokens::new(keys::derived(&dialog_secret, "flows"), run)),
            tags: Tags::new(&keys::derived(&dialog_secret, "tags")),
            stateless_via: StatelessVia::new(&dialog_secret, run),
            registrar,
            cluster: Cluster::default(),
            transactions: Transactions::new(now, rng),
            dialogs,
            access_control: AccessControl::default(),
            names: Names::default(),
            outbox: Outbox::default(),
        }
    }

    /// Applies a change that was read from a store.
    pub fn restore(&mut self, change: &Change) {
        self.registrar.restore(change);
    }

    /// Changes the settings. Existing transactions keep their values of T1, T2 and T4. In all other respects, pending requests use the new
    /// settings. These settings cannot be changed: mode, listeners and their names in Record-Route, dialog secret, limits on messages, and
    /// whether users are shared.
    pub fn set_config(&mut self, config: ProxyConfig) {
        let old = std::mem::take(&mut self.config);
        self.registrar.set_limits(config.location);
        self.dialogs.set_max(config.limits.dialogs);
        let ProxyConfig { mode, listeners, record_names, messages, shared, .. } = old;
        self.config = ProxyConfig { mode, listeners, record_names, messages, shared, ..config };
    }

    /// Returns the next action.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outbox.next()
    }

    /// Returns the registered bindings.
    pub fn location(&self) -> &Location {
        self.registrar.location()
    }

    /// Returns the event counters.
    pub fn counters(&self) -> Counters {
        self.outbox.counters()
    }

    /// Returns the delays and outcomes of registrations and sessions so far.
    pub fn performance(&self) -> &Performance {
        self.outbox.performance()
    }

    /// Returns the number of server and client transactions, including transactions that only wait for retransmissions.
    pub fn transactions(&self) -> (usize, usize) {
        self.transactions.counts()
    }

    /// Returns the number of bytes of messages that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.transactions.kept_bytes()
    }

    /// Returns the view of the state from which requests are routed.
    fn routing(&self, now: Time) -> Routing<'_> {
        Routing::new(now, &self.config, &self.flows, &self.names, &self.cluster, self.registrar.location())
    }

    /// Returns the view with which the stateful core handles one event.
    fn stateful(&mut self, now: Time) -> Stateful<'_> {
        Stateful {
            now,
            config: &self.config,
            marks: &self.marks,
            tags: &self.tags,
            transactions: &mut self.transactions,
            dialogs: &mut self.dialogs,
            outbox: &mut self.outbox,
        }
    }

    /// Returns the target of a request within a dialog.
    fn target_within(
        &mut self,
        now: Time,
        leg: &Leg,
        from: Hop,
        request: &Message,
        known: &Essentials,
    ) -> Result<Target, Fault> {
        // [`Proxy::routing`] would borrow all of `self`, and `dialogs` must be borrowed mutably.
        let routing = Routing::new(
            now,
            &self.config,
            &self.flows,
            &self.names,
            &self.cluster,
            self.registrar.location(),
        );
        self.dialogs.target_within(&routing, leg, from, request, known)
    }

    /// Returns known dialogs, the most recently active first. If `after` is given, begins after the dialog with this [`Dialog::number`].
    pub fn dialogs(&self, after: Option<u64>) -> impl Iterator<Item = &Dialog> {
        self.dialogs.list(after)
    }

    /// Returns the number of known dialogs.
    pub fn dialog_count(&self) -> usize {
        self.dialogs.len()
    }

    /// Returns the number of requests that wait for the store.
    pub fn waiting_for_store(&self) -> usize {
        self.registrar.waiting()
    }

    /// Handles a notification from the store with a user's record. The record may be outdated.
    pub fn handle_record(&mut self, user: &str, record: Record) {
        self.registrar.on_record(user, record);
    }

    /// Handles a heartbeat of a proxy. `address` is the proxy's first listener. Returns true if the proxy was unknown, or its state has
    /// changed.
    pub fn handle_presence(&mut self, now: Time, address: SocketAddr, presence: Presence) -> bool {
        self.cluster.note(now, address, presence)
    }

    /// Begins a full reload after reconnecting to the store. The driver then passes all records to [`Proxy::handle_record`], and calls
    /// [`Proxy::end_records`].
    pub fn begin_records(&mut self) {
        self.registrar.begin_records();
    }

    /// Ends the reload. Removes users without a record in the reload.
    pub fn end_records(&mut self) {
        self.registrar.end_records();
    }

    /// Returns the time at which [`Proxy::handle_timeout`] must be called next.
    pub fn next_timeout(&self) -> Time {
        self.transactions.next_timeout()
    }

    /// Handles all timers that are due. The driver calls this function at [`Proxy::next_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(due) = self.transactions.next_due(now, &mut self.outbox) {
            match due {
                Due::SayTrying(id) => self.stateful(now).reply(id, 100, "Trying", Vec::new()),
                Due::TimerC(id) => self.stateful(now).on_timer_c(id),
                Due::TimedOut(id) => self.stateful(now).time_out(id),
                Due::Sweep => {
                    self.dialogs.expire(now);
                    self.outbox.performance_mut().forget(now, self.config.timers.long());
                    self.registrar.expire(now, &self.config, &mut self.outbox);
                }
            }
        }
    }

    /// Begins draining. The proxy then rejects new work with 503. Proxies that share users can still send requests to our flows.
    pub fn begin_drain(&mut self) {
        self.transactions.begin_drain();
    }

    /// Reports whether the proxy drains and no work is pending.
    pub fn is_drained(&mut self) -> bool {
        self.transactions.is_drained()
    }

    /// Returns the number of pending transactions, or `None` if the proxy does not drain.
    pub fn transactions_left(&self) -> Option<usize> {
        self.transactions.left()
    }

    /// Ends all pending work at once (RFC 3261 section 16.10). Requests without a final response get 503, and pending INVITEs at next
    /// hops get CANCEL. Returns the number of requests that got 503.
    pub fn cut_off(&mut self, now: Time) -> usize {
        self.begin_drain();
        self.stateful(now).cut_off()
    }
}

/// Returns a number that is common to all messages of a dialog: the FNV-1a hash of its Call-ID.
pub(crate) fn dialog_number(call_id: &[u8]) -> u32 {
    call_id.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
