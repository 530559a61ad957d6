//! The client side: a held SYN becomes an association, or goes on as plain TCP.
//!
//! The steps are: decision ([`policy`](crate::policy)), INIT sent, INIT ACK received ([`Shard::on_init_ack`]),
//! association established ([`Shard::on_client_up`]), connection claimed ([`Shard::on_arrival`]). A failure
//! before INIT ACK releases the SYN. A later failure first sends ABORT and then releases it, so the server
//! has forgotten the association before the same addresses arrive as TCP.

use std::time::Duration;

use base::{Carrier, Time};
use control::{FallbackReason, KeyFault, Role, ShimState, ShimStep};
use intercept::{Arrival, FourTuple, HeldSyn, Verdict};
use relay::{Peer, Role as RelayRole};
use rules::{Failure, Settings};
use sctp::{AssociationId, CloseReason, Connect, ConnectError};

use crate::connection::{Connection, ConnectionId, Stage};
use crate::evidence::{evidence, fallback_reason};
use crate::history::Occurrence;
use crate::interception::Applicant;
use crate::policy::{Plain, is_privileged};
use crate::racing;
use crate::shard::Shard;
use crate::shared::Ends;
use crate::timers::Timer;
use crate::timing;

/// Time limit for the handshake after INIT ACK.
pub(crate) const COOKIE_LIMIT: Duration = Duration::from_secs(3);
/// The same limit with a shared key: a peer with a different key does not answer.
const KEYED_COOKIE_LIMIT: Duration = Duration::from_secs(1);
/// A peer that requires a key gives no other sign.
const NO_COOKIE_ACK: &str = "no COOKIE ACK came; the peer may require a key (its setting peer_keys)";
/// Time after the check during which a program is assumed to still wait.
const AT_ONCE: Duration = Duration::from_millis(2);
/// Time limit for a released SYN to arrive in the private namespace.
const CLAIM_LIMIT: Duration = Duration::from_secs(2);
impl Shard {
    /// Handles a held SYN.
    pub(crate) fn on_syn(&mut self, syn: HeldSyn) {
        if self.interception.judge_again(&syn) {
            return;
        }
        self.history.count(Occurrence::ConnectSeen);
        self.forget_flow(&syn.flow);
        match self.begin(&syn) {
            Ok(()) => {}
            Err(plain) => self.go_plain(&syn, plain),
        }
    }

    /// Lets a SYN go on as plain TCP.
    pub(crate) fn go_plain(&mut self, syn: &HeldSyn, plain: Plain) {
        match plain {
            Plain::ByRule => {
                self.history.count(Occurrence::ConnectByRuleTcp);
                self.interception.release(syn);
            }
            Plain::Learned => {
                self.history.count(Occurrence::ConnectLearnedTcp);
                self.interception.release(syn);
            }
            Plain::Because(reason) => self.fall_back(syn, Tried::NOT, reason, None),
        }
    }

    /// Forgets an earlier connection with the same addresses.
    fn forget_flow(&mut self, flow: &FourTuple) {
        if let Some(old) = self.connections.of_client(flow) {
            self.drop_connection(old);
        }
        self.interception.end_diversion(flow);
    }

    fn begin(&mut self, syn: &HeldSyn) -> Result<(), Plain> {
        if self.interception.is_name_server(syn.flow.remote().ip()) {
            return Err(Plain::ByRule);
        }
        let (is_enclosed, connections) = (self.interception.is_enclosed(), self.connections.len());
        let (settings, shim) = self.policy.decide(&syn.flow, syn.mark, is_enclosed, connections)?;
        match self.interception.find_client(syn) {
            Ok(Applicant::Waits) => {}
            // Nobody waits for this connection; the sender of the SYN gets plain TCP.
            Ok(Applicant::Gone) => return Err(Plain::ByRule),
            Ok(Applicant::IsBound) => return Err(Plain::Because(FallbackReason::DeviceBoundSocket)),
            Err(error) => return Err(Plain::by_error(&error)),
        }
        if self.join_shared(syn, &settings, shim) {
            return Ok(());
        }
        self.begin_alone(syn, &settings, shim, Held { since: self.now, round_trip: Duration::ZERO })
    }

    /// Starts a separate association for the connection; `shim` is the state that it was in at the decision.
    pub(crate) fn begin_alone(
        &mut self,
        syn: &HeldSyn,
        settings: &Settings,
        shim: ShimState,
        held: Held,
    ) -> Result<(), Plain> {
        let association = self.connect(syn, settings)?;
        let (patience, _) = timing::init_patience(settings);
        let stage = Stage::Init(*syn);
        let mut connection = Connection::new(association, Role::Client, syn.flow, held.since, stage, shim);
        connection.asked_later = held.since < self.now;
        let id = self.connections.insert(connection);
        // Wait for an answer that is already on its way.
        let race = (held.since + patience).max(self.now + held.round_trip * 3 / 2);
        self.timers.set(race, Timer::Race(id));
        self.timers.set(held.since + racing::attempt_delay(settings), Timer::AttemptDelay(id));
        Ok(())
    }

    /// Reports whether the program whose SYN is held still waits; otherwise the server would accept a dead
    /// connection. An immediate answer needs no check.
    pub(crate) fn still_waits(&mut self, id: ConnectionId, syn: &HeldSyn) -> bool {
        let began = self.connections.get(id).map(|connection| connection.began);
        began.is_some_and(|began| self.now.since(began) < AT_ONCE)
            || matches!(self.interception.find_client(syn), Ok(Applicant::Waits))
    }

    fn connect(&mut self, syn: &HeldSyn, settings: &Settings) -> Result<AssociationId, Plain> {
        let (local, remote) = (self.interception.wire_address(&syn.flow), syn.flow.remote());
        let init_routes = self.policy.init_routes(self.now, local, remote.ip(), settings, &self.packet_io);
        if init_routes.is_empty() && is_privileged(local.port()) {
            return Err(Plain::Because(FallbackReason::PrivilegedPort { port: local.port() }));
        }
        let connect = Connect {
            local_port: local.port(),
            remote_port: remote.port(),
            init_routes,
            local_addresses: self.policy.offered(self.now, local.ip(), remote.ip()),
            config: self.policy.association_config(remote.ip(), settings),
        };
        self.engine.connect(self.now, connect).map_err(|error| match error {
            ConnectError::TooMany(_) => Plain::at_limit("associations"),
            ConnectError::NoMemory { .. } | ConnectError::NoMemoryForHost { .. } => Plain::at_limit("memory"),
            error => Plain::by_error(&error),
        })
    }

    /// Handles the handshakes that received an INIT ACK; must be called before their COOKIE ECHO is
    /// transmitted.
    pub(crate) fn look_for_init_acks(&mut self) {
        for id in self.connections.take_answered(&self.engine) {
            self.on_init_ack(id);
        }
        self.probes.take_answered(self.now, &mut self.engine, &self.policy);
    }

    fn on_init_ack(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Stage::Init(syn) = connection.stage else { return };
        connection.stage = Stage::Cookie(syn);
        // If an INIT was sent later than the SYN, the round-trip time is unknown.
        connection.rtt_us =
            Some(micros(self.now.since(connection.began))).filter(|_| !connection.asked_later);
        if self.still_waits(id, &syn) {
            let has_key = self.policy.rules().keys().whose(syn.flow.remote().ip()).is_some();
            let limit = if has_key { KEYED_COOKIE_LIMIT } else { COOKIE_LIMIT };
            self.timers.set(self.now + limit, Timer::Cookie(id));
            return;
        }
        self.drop_connection(id);
        self.interception.judge(&syn, Verdict::Drop);
    }

    /// Gives up because no INIT ACK came in time.
    pub(crate) fn on_race_lost(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Stage::Init(syn) = connection.stage else { return };
        let waited = self.now.since(connection.began);
        let settings = self.policy.settings();
        let reason = match timing::init_patience(&settings) {
            (_, true) => FallbackReason::NoSctpAnswer {
                waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            },
            (_, false) => FallbackReason::InitUnanswered { inits: settings.init_rtx_max + 1 },
        };
        self.abandon(id, &syn, reason, Some(Failure::NoAnswer));
    }

    /// Gives up because the handshake stalled after INIT ACK.
    pub(crate) fn on_cookie_late(&mut self, id: ConnectionId) {
        let Some(Stage::Cookie(syn)) = self.connections.get(id).map(|connection| &connection.stage) else {
            return;
        };
        let syn = *syn;
        let reason = match self.policy.rules().keys().whose(syn.flow.remote().ip()) {
            Some(key_for) => FallbackReason::KeyNotProved { key_for, found: KeyFault::Unanswered },
            None => FallbackReason::AssociationFailed { cause: NO_COOKIE_ACK.to_owned() },
        };
        self.abandon(id, &syn, reason, Some(Failure::HandshakeFailed));
    }

    /// Sends ABORT, then releases the SYN as plain TCP.
    pub(crate) fn abandon(
        &mut self,
        id: ConnectionId,
        syn: &HeldSyn,
        reason: FallbackReason,
        failure: Option<Failure>,
    ) {
        let now = self.now;
        let tried = self.connections.get_mut(id).map(|connection| Tried {
            held: now.since(connection.began),
            shim: connection.step(ShimStep::Failed),
        });
        self.drop_connection(id);
        self.transmit();
        self.fall_back(syn, tried.unwrap_or(Tried::NOT), reason, failure);
    }

    /// Handles an association that ended before its held SYN used it.
    pub(crate) fn on_client_failed(&mut self, id: ConnectionId, syn: HeldSyn, reason: &CloseReason) {
        let stage = self.connections.get(id).map(|connection| &connection.stage);
        let was_answered = matches!(stage, Some(Stage::Cookie(_)));
        let failure = evidence(reason, was_answered);
        let key_for = self.policy.rules().keys().whose(syn.flow.remote().ip());
        self.abandon(id, &syn, fallback_reason(reason, key_for), failure);
    }

    /// Handles an established association: diverts the connection and releases its SYN.
    pub(crate) fn on_client_up(&mut self, id: ConnectionId, syn: HeldSyn, peer: Peer, carrier: Carrier) {
        self.policy.on_reached(self.now, syn.flow.remote().ip(), carrier);
        if let Err(error) = self.interception.begin_diversion(syn.flow) {
            self.abandon(id, &syn, FallbackReason::LocalError { error: error.to_string() }, None);
            return;
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.stage = Stage::Diverted;
        connection.step(ShimStep::Associated);
        connection.peer = peer;
        let setup_us = micros(self.now.since(connection.began));
        let rtt_us = connection.rtt_us;
        self.policy.on_success(syn.flow.remote(), rtt_us);
        self.history.succeeded(syn.flow.remote(), setup_us);
        self.interception.judge(&syn, Verdict::Divert);
        self.timers.set(self.now + CLAIM_LIMIT, Timer::Claim(id));
        if peer == Peer::Shim {
            let ends = Ends::new(self.interception.wire_address(&syn.flow).ip(), syn.flow.remote().ip());
            let (engine, timers) = (&mut self.engine, &mut self.timers);
            self.shared.want(self.now, ends, engine, &self.policy, &self.packet_io, timers);
        }
    }

    /// Handles a diverted connection that arrived in the private namespace.
    pub(crate) fn on_arrival(&mut self, arrival: Arrival) {
        let id = self.connections.of_client(&arrival.flow);
        let awaited = |id: &ConnectionId| {
            self.connections.get(*id).is_some_and(|connection| matches!(connection.stage, Stage::Diverted))
        };
        match id.filter(awaited) {
            Some(id) => self.begin_relay(id, arrival.stream, RelayRole::Initiator),
            None => self.interception.claim(arrival),
        }
    }

    /// Handles an application that went away between its SYN and the handshake.
    pub(crate) fn on_unclaimed(&mut self, id: ConnectionId) {
        if self.connections.get(id).is_some_and(|connection| matches!(connection.stage, Stage::Diverted)) {
            tracing::debug!("nobody claimed an association: aborting it");
            self.drop_connection(id);
        }
    }

    /// Ends the diversions whose time has expired.
    pub(crate) fn on_diversions_over(&mut self) {
        self.interception.on_diversions_over(self.now, &mut self.timers);
        self.release_addresses();
    }

    /// Releases a SYN as plain TCP although SCTP was allowed.
    ///
    /// `failure`: the evidence about the destination, if any.
    fn fall_back(&mut self, syn: &HeldSyn, tried: Tried, reason: FallbackReason, failure: Option<Failure>) {
        let destination = syn.flow.remote();
        let reason = self.policy.told(destination, reason);
        let is_refused = matches!(reason, FallbackReason::Required { .. });
        self.history.fell_back(self.now, destination, micros(tried.held), tried.shim, reason);
        match is_refused {
            true => self.interception.release_to_refusal(syn),
            false => self.interception.release(syn),
        }
        self.policy.on_failure(destination, failure);
    }

    /// Releases SYNs that the rules no longer send over SCTP: if sent again, they would pass.
    pub(crate) fn let_go_of_unnamed(&mut self) {
        let held: Vec<(ConnectionId, HeldSyn)> = self
            .connections
            .iter()
            .filter_map(|(id, connection)| match connection.stage {
                Stage::Init(syn) | Stage::Cookie(syn) | Stage::Asking(syn) => Some((id, syn)),
                _ => None,
            })
            .filter(|(_, syn)| !self.policy.may_use_sctp(syn.flow.remote(), syn.mark))
            .collect();
        for (id, syn) in held {
            self.drop_connection(id);
            self.transmit();
            self.go_plain(&syn, Plain::ByRule);
        }
    }

    /// Gives up every handshake because the daemon stops.
    pub(crate) fn release_all_syns(&mut self) {
        for id in self.connections.ids() {
            let syn = match self.connections.get(id).map(|connection| &connection.stage) {
                Some(Stage::Init(syn) | Stage::Cookie(syn) | Stage::Asking(syn)) => *syn,
                _ => continue,
            };
            self.abandon(id, &syn, FallbackReason::DaemonStopping, None);
        }
    }
}

/// The time since which a SYN is held, and the round-trip time to its destination if known.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) since: Time,
    pub(crate) round_trip: Duration,
}

/// The time and shim state reached before a SYN goes on as plain TCP.
#[derive(Clone, Copy)]
struct Tried {
    held: Duration,
    shim: ShimState,
}

impl Tried {
    /// Nothing beyond the decision.
    const NOT: Tried = Tried { held: Duration::ZERO, shim: ShimState::Ready };
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
