//! The client side. A held SYN becomes an association or a channel of a shared association, or continues as plain TCP.
//!
//! A connection goes through these steps:
//!
//! 1. The policy decides ([`crate::policy`]), and the INIT is sent.
//! 2. INIT ACK arrives ([`Driver::on_init_ack`]).
//! 3. The association is established ([`Driver::on_client_up`]).
//! 4. The diverted connection arrives ([`Driver::on_arrival`]).
//!
//! A failure before INIT ACK releases the SYN. A later failure first sends ABORT, and then releases the SYN. The server has therefore
//! forgotten the association before the same addresses arrive as TCP.
//!
//! On a shared association, OPEN replaces INIT. The answer ACCEPTED diverts the connection, as establishment does for a separate
//! association. Any other answer gives the SYN a separate association. The exception is a failure that TCP would report to the program in
//! the same way: then the SYN continues as plain TCP.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base::{Carrier, Time};
use control::{EncryptionFault, FallbackReason, HostKeyText, KeyFault, Requirement, ShimState, ShimStep};
use intercept::{Arrival, FourTuple, HeldSyn, Verdict};
use nix::errno::Errno;
use relay::mux::Refusal;
use relay::{Peer, Role as RelayRole};
use rules::{Encryption, Failure};
use sctp::{AssociationId, CloseReason, ConnectError, Endpoint, PathState, StateName};

use super::Driver;
use crate::connection::{Connection, ConnectionId, Stage, micros};
use crate::encryption::{Dialled, fault_of};
use crate::evidence::{evidence, fallback_reason};
use crate::history::Occurrence;
use crate::interception::Applicant;
use crate::policy::{Plain, Terms, is_privileged};
use crate::racing;
use crate::shared::Ends;
use crate::timers::Timer;
use crate::timing;

/// Time limit for the handshake after INIT ACK.
const COOKIE_LIMIT: Duration = Duration::from_secs(3);
/// Time limit for the handshake after INIT ACK with a host that shares a key. A peer with a different key does not answer. If the backlog
/// of the peer's program is full, the peer answers only after its kernel has repeated the SYN to the program. The kernel repeats the SYN
/// after 1 s, so the limit is longer than 1 s.
const KEYED_COOKIE_LIMIT: Duration = Duration::from_millis(1500);
/// Cause of a fallback without COOKIE ACK. A peer that requires a key does not answer a COOKIE ECHO without the key.
const NO_COOKIE_ACK: &str = "no COOKIE ACK arrived; the peer may require a key (its setting peer_keys)";
/// Time after the SYN in which the daemon assumes that the program still waits.
const AT_ONCE: Duration = Duration::from_millis(2);
/// Time after the SYN before which the daemon assumes that the program has not given up. Usual connection timeouts of programs are 1 s or
/// longer.
const LONG: Duration = Duration::from_secs(1);
/// Time within which a near peer answers. The loop does not sleep for so short a time.
const NEAR: Duration = Duration::from_micros(300);
/// Time limit for a released SYN to arrive in the daemon's private network namespace, in addition to the time for which the SYN was held.
/// If the kernel has dropped the SYN, the kernel sends it again within the held time plus 1 s.
const CLAIM_LIMIT: Duration = Duration::from_secs(2);

impl Driver {
    /// Handles a held SYN.
    pub(super) fn on_syn(&mut self, syn: HeldSyn) {
        if self.interception.judge_again(&syn) {
            return;
        }
        let old = self.connections.of_client(&syn.flow);
        if let Some(connection) = old.and_then(|old| self.connections.get_mut(old)) {
            if let Some(replaced) = connection.held_syn() {
                self.interception.drop_replaced(&replaced);
            }
            // The kernel drops all held packets when any firewall removes a chain. After such a drop, the kernel retransmits this SYN.
            if connection.hold_again(syn) {
                return;
            }
        }
        self.history.count(Occurrence::ConnectSeen);
        // The program has given up an earlier connection with the same addresses.
        if let Some(old) = old {
            self.drop_connection(old);
        }
        self.interception.end_diversion(&syn.flow);
        match self.begin_connection(&syn) {
            Ok(()) => {}
            Err(plain) => self.go_plain(&syn, plain),
        }
    }

    /// Lets a SYN continue as plain TCP.
    fn go_plain(&mut self, syn: &HeldSyn, plain: Plain) {
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

    fn begin_connection(&mut self, syn: &HeldSyn) -> Result<(), Plain> {
        if self.interception.is_name_server(syn.flow.remote().ip()) {
            return Err(Plain::ByRule);
        }
        let (is_enclosed, connections) = (self.interception.is_enclosed(), self.connections.len());
        let is_order = self.refuses_plain(syn.flow.remote(), false);
        let (terms, shim) = self.policy.decide(&syn.flow, (syn.mark, is_order), is_enclosed, connections)?;
        match self.interception.find_client(syn) {
            Ok(Applicant::Waits) => {}
            // No program waits for this connection. The sender of the SYN gets plain TCP.
            Ok(Applicant::Gone) => return Err(Plain::ByRule),
            Ok(Applicant::IsBound) => return Err(Plain::Because(FallbackReason::DeviceBoundSocket)),
            Err(error) => return Err(Plain::by_error(&error)),
        }
        if self.join_shared(syn, &terms, shim) {
            return Ok(());
        }
        self.begin_alone(syn, &terms, shim, Held { since: self.now, round_trip: Duration::ZERO })
    }

    /// Starts a separate association for the connection. `shim` is the connection's shim state when the daemon decided on SCTP.
    fn begin_alone(
        &mut self,
        syn: &HeldSyn,
        terms: &Terms,
        shim: ShimState,
        held: Held,
    ) -> Result<(), Plain> {
        let (association, settings) = (self.connect(syn, terms)?, &terms.settings);
        let (patience, _) = timing::init_patience(settings);
        let stage = Stage::Init(*syn);
        let mut connection = Connection::of_client(association, syn.flow, held.since, stage, shim);
        if held.since < self.now {
            connection.note_asked_later();
        }
        let id = self.connections.insert(connection);
        // An INIT that is sent late also gets time for its answer: 3/2 of the round-trip time.
        let race = (held.since + patience).max(self.now + held.round_trip * 3 / 2);
        self.timers.set(race, Timer::Race(id));
        self.timers.set(held.since + racing::attempt_delay(settings), Timer::AttemptDelay(id));
        Ok(())
    }

    /// Reports whether the program whose SYN is held still waits. If it does not, the server would accept a dead connection. Within
    /// [`AT_ONCE`] after the SYN, returns true without a check.
    fn still_waits(&mut self, id: ConnectionId, syn: &HeldSyn) -> bool {
        let began = self.connections.get(id).map(|connection| connection.began());
        began.is_some_and(|began| self.now.since(began) < AT_ONCE)
            || matches!(self.interception.find_client(syn), Ok(Applicant::Waits))
    }

    /// Reports whether the program has given up. Programs are assumed to wait for at least [`LONG`].
    pub(super) fn has_given_up(&mut self, id: ConnectionId, syn: &HeldSyn) -> bool {
        let began = self.connections.get(id).map(|connection| connection.began());
        began.is_some_and(|began| self.now.since(began) >= LONG)
            && matches!(self.interception.find_client(syn), Ok(Applicant::Gone))
    }

    /// Drops a connection whose program no longer waits, and its held SYN.
    pub(super) fn drop_with_syn(&mut self, id: ConnectionId, syn: &HeldSyn) {
        self.drop_connection(id);
        self.interception.judge(syn, Verdict::Drop);
    }

    fn connect(&mut self, syn: &HeldSyn, terms: &Terms) -> Result<AssociationId, Plain> {
        let (settings, required) = (&terms.settings, self.required_key(terms)?);
        let (local, remote) = (self.interception.wire_address(&syn.flow), syn.flow.remote());
        let (ends, config) = ((local, remote), timing::association_config);
        let connect = self.policy.connect(self.now, ends, settings, &self.packet_io, config);
        if connect.init_routes.is_empty() && is_privileged(local.port()) {
            return Err(Plain::Because(FallbackReason::PrivilegedPort { port: local.port() }));
        }
        let begun = self.engine.connect(self.now, connect);
        if let Ok(association) = begun {
            let dialled = Dialled { address: remote.ip(), encryption: settings.encryption, required };
            self.encryption.begin(self.now, association, dialled, &self.policy);
        }
        begun.map_err(|error| match error {
            ConnectError::TooMany(_) => Plain::at_limit("associations"),
            ConnectError::NoMemory { .. } | ConnectError::NoMemoryForHost { .. } => Plain::at_limit("memory"),
            error => Plain::by_error(&error),
        })
    }

    /// Returns the key that a rule requires of the peer, if any. Fails if the rule names an unknown peer.
    fn required_key(&self, terms: &Terms) -> Result<Option<HostKeyText>, Plain> {
        let Some(peer) = &terms.peer else { return Ok(None) };
        let unknown = || Plain::not_encrypted(EncryptionFault::UnknownPeer { peer: peer.clone() });
        self.encryption.key_of(peer).map(Some).ok_or_else(unknown)
    }

    pub(super) fn on_init_ack(&mut self, id: ConnectionId) {
        let connection = self.connections.get_mut(id);
        let Some(syn) = connection.and_then(|connection| connection.on_init_ack(self.now)) else { return };
        if self.still_waits(id, &syn) {
            let has_key = self.policy.rules().keys().whose(syn.flow.remote().ip()).is_some();
            let limit = if has_key { KEYED_COOKIE_LIMIT } else { COOKIE_LIMIT };
            self.timers.set(self.now + limit, Timer::Cookie(id));
            return;
        }
        self.drop_with_syn(id, &syn);
    }

    /// Gives up because no INIT ACK arrived in time.
    pub(super) fn on_race_lost(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Stage::Init(syn) = *connection.stage() else { return };
        let waited = self.now.since(connection.began());
        let settings = self.policy.settings();
        let reason = match timing::init_patience(&settings) {
            (_, true) => FallbackReason::NoSctpAnswer {
                waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            },
            (_, false) => FallbackReason::InitUnanswered { inits: settings.init_rtx_max + 1 },
        };
        self.abandon(id, &syn, reason, Some(Failure::NoAnswer));
    }

    /// Gives up because the handshake stalled after INIT ACK. The key handshake may take longer ([`crate::encryption::Encryption::limit`]).
    pub(super) fn on_cookie_late(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Stage::Cookie(syn) = *connection.stage() else { return };
        let (association, began) = (connection.association(), connection.began());
        let has_begun = self.engine.state(association).is_some_and(|s| s != StateName::CookieEchoed);
        if has_begun && self.engine.protection(association).is_some() {
            let limit = self.encryption.limit(self.now, association);
            if self.now < began + limit {
                self.timers.set(began + limit, Timer::Cookie(id));
                return;
            }
            self.encryption.on_late(self.now, association);
            let cause = format!("the handshake took longer than {} s", limit.as_secs());
            let found = EncryptionFault::NoKeys { cause };
            // A slow key handshake is no evidence against SCTP.
            return self.abandon(id, &syn, FallbackReason::NotEncrypted { found }, None);
        }
        let reason = match self.policy.rules().keys().whose(syn.flow.remote().ip()) {
            Some(key_for) => FallbackReason::KeyNotProved { key_for, found: KeyFault::Unanswered },
            None => FallbackReason::AssociationFailed { cause: NO_COOKIE_ACK.to_owned() },
        };
        // If both ends have agreed on encryption, silence is no evidence against SCTP.
        let has_terms = self.engine.protection(association).is_some();
        self.abandon(id, &syn, reason, Some(Failure::HandshakeFailed).filter(|_| !has_terms));
    }

    /// Tries further paths when the attempt delay ends.
    pub(super) fn on_attempt_delay_over(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Stage::Init(syn) = *connection.stage() else { return };
        let (association, wire, remote) =
            (connection.association(), self.interception.wire_address(&syn.flow), syn.flow.remote().ip());
        if self.policy.addresses().is_own(remote) {
            return;
        }
        if let Some(connection) = self.connections.get_mut(id) {
            connection.note_asked_later();
        }
        let known = self.policy.learned().lock().others(remote).to_vec();
        let settings = self.policy.settings();
        let pairs =
            racing::other_pairs(wire.ip(), remote, &self.policy.offered(self.now, wire.ip(), remote), &known);
        let routes_between = |(l, r)| {
            self.policy.init_routes(self.now, SocketAddr::new(l, wire.port()), r, &settings, &self.packet_io)
        };
        let routes: Vec<_> = pairs.into_iter().flat_map(routes_between).collect();
        tracing::debug!(?routes, "no answer yet: trying other paths too");
        self.engine.add_init_routes(self.now, association, &routes);
    }

    /// Ends the attempt over SCTP: sends ABORT, then lets the SYN continue as plain TCP.
    fn abandon(&mut self, id: ConnectionId, syn: &HeldSyn, reason: FallbackReason, failure: Option<Failure>) {
        let now = self.now;
        let tried = self.connections.get_mut(id).map(|connection| Tried {
            held: now.since(connection.began()),
            shim: connection.step(ShimStep::Failed),
        });
        self.drop_connection(id);
        self.transmit();
        self.fall_back(syn, tried.unwrap_or(Tried::NOT), reason, failure);
    }

    /// Handles an association that ended before the held SYN could use it.
    pub(super) fn on_client_failed(&mut self, id: ConnectionId, syn: HeldSyn, reason: &CloseReason) {
        let stage = self.connections.get(id).map(Connection::stage);
        let was_answered = matches!(stage, Some(Stage::Cookie(_)));
        let association = self.connections.get(id).map(Connection::association);
        let fault = association.and_then(|association| self.encryption.fault(association).cloned());
        if let Some(found) = fault.or_else(|| fault_of(reason)) {
            return self.abandon(id, &syn, FallbackReason::NotEncrypted { found }, None);
        }
        // A failed key handshake is no evidence against SCTP.
        let has_terms = association.is_some_and(|association| self.engine.protection(association).is_some());
        let failure = evidence(reason, was_answered).filter(|_| !has_terms);
        let key_for = self.policy.rules().keys().whose(syn.flow.remote().ip());
        self.abandon(id, &syn, fallback_reason(reason, key_for), failure);
    }

    /// Handles an established association: diverts the connection and releases its SYN.
    pub(super) fn on_client_up(&mut self, id: ConnectionId, syn: HeldSyn, peer: Peer, carrier: Carrier) {
        self.policy.on_reached(self.now, syn.flow.remote().ip(), carrier);
        if !self.is_as_required_now(id, syn.flow.remote()) {
            return match self.connections.get(id).and_then(Connection::channel) {
                Some(_) => self.leave_shared(id),
                None => self.abandon(
                    id,
                    &syn,
                    FallbackReason::NotEncrypted { found: EncryptionFault::RulesChanged },
                    None,
                ),
            };
        }
        if let Err(error) = self.interception.begin_diversion(syn.flow) {
            self.abandon(id, &syn, FallbackReason::LocalError { error: error.to_string() }, None);
            return;
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        let held = self.now.since(connection.began());
        let (rtt_us, setup_us) = (connection.divert(peer), micros(held));
        self.policy.on_success(syn.flow.remote(), rtt_us);
        self.history.succeeded(syn.flow.remote(), setup_us);
        self.interception.judge(&syn, Verdict::Divert);
        self.timers.set(self.now + CLAIM_LIMIT + held, Timer::Claim(id));
        if peer == Peer::Shim {
            let ends = Ends::new(self.interception.wire_address(&syn.flow).ip(), syn.flow.remote().ip());
            let (engine, timers) = (&mut self.engine, &mut self.timers);
            let begun = self.shared.want(self.now, ends, engine, &self.policy, &self.packet_io, timers);
            if let Some(association) = begun {
                let encryption = self.policy.settings().encryption;
                let dialled = Dialled { address: ends.remote, encryption, required: None };
                self.encryption.begin(self.now, association, dialled, &self.policy);
            }
        }
    }

    /// Handles a diverted connection that arrived in the daemon's private network namespace.
    pub(super) fn on_arrival(&mut self, arrival: Arrival) {
        let id = self.connections.of_client(&arrival.flow);
        let awaited = |id: &ConnectionId| {
            self.connections.get(*id).is_some_and(|connection| matches!(connection.stage(), Stage::Diverted))
        };
        match id.filter(awaited) {
            Some(id) => self.begin_relay(id, arrival.stream, RelayRole::Initiator),
            None => self.interception.claim(arrival),
        }
    }

    /// Aborts a diverted connection that did not arrive in time, for example because its application has gone.
    pub(super) fn on_unclaimed(&mut self, id: ConnectionId) {
        if self.connections.get(id).is_some_and(|connection| matches!(connection.stage(), Stage::Diverted)) {
            tracing::debug!("aborting an unclaimed association");
            self.drop_connection(id);
        }
    }

    /// Requests the connection on a shared association to its destination. Returns false if no shared association can carry it.
    fn join_shared(&mut self, syn: &HeldSyn, terms: &Terms, shim: ShimState) -> bool {
        let settings = &terms.settings;
        let (local, remote) = (self.interception.wire_address(&syn.flow), syn.flow.remote());
        if !settings.streams.is_shared() {
            return false;
        }
        let Some(association) = self.shared.find(local.ip(), remote) else { return false };
        let auth = self.policy.rules().auth_for(remote.ip());
        let Some(state) = self.shared.get_mut(association).filter(|state| state.has_key(&auth)) else {
            return false;
        };
        if is_privileged(local.port()) && !state.vouches_for_ports() {
            return false;
        }
        // The association may have begun before the host's key was known or given. A rule may also require more than the setting
        // `encryption`.
        if settings.encryption.is_offered()
            && !(self.encryption.may_carry(association, remote.ip())
                && self.is_as_required(association, terms))
        {
            return false;
        }
        // The windows of the destination's host leave no room for another channel. The connection therefore gets a separate association,
        // which is granted less memory than a channel.
        if self.shared.has_granted_all(association) {
            return false;
        }
        let id = self.connections.reserve();
        let opened = self.shared.with_windows(association, |state| {
            let opened = state.mux().open(local, remote);
            if let Ok(channel) = &opened {
                state.adopt(*channel, id);
            }
            opened
        });
        let channel = match opened {
            Some(Ok(channel)) => channel,
            Some(Err(error)) => {
                tracing::debug!(%error, %remote, "not on a shared association");
                return false;
            }
            None => return false,
        };
        let stage = Stage::Asking(*syn);
        let connection = Connection::of_client(association, syn.flow, self.now, stage, shim);
        self.connections.insert_as(id, connection.on_channel(channel));
        self.shared.flush(self.now, association, &mut self.engine);
        self.is_urgent = true;
        let (patience, _) = timing::init_patience(settings);
        let (round_trip, sacks) = vital_signs(&self.engine, association);
        let wait = timing::channel_patience(patience, round_trip, has_other_path(&self.engine, association));
        self.timers.set(self.now + wait, Timer::Channel(id, sacks));
        if round_trip < NEAR {
            self.poller.stay_awake(self.now + NEAR);
        }
        true
    }

    /// Like [`is_as_required`](Self::is_as_required), for the rules now in force, which may have changed since the connection began. Also
    /// checks the shared key.
    fn is_as_required_now(&self, id: ConnectionId, remote: SocketAddr) -> bool {
        let Some(connection) = self.connections.get(id) else { return false };
        let association = connection.association();
        let terms = self.policy.terms(remote);
        terms.is_ok_and(|terms| self.is_as_required(association, &terms))
            && !self.lacks_key(association, remote.ip())
    }

    /// Reports whether an association has the encryption and the peer that the terms of a connection require.
    fn is_as_required(&self, association: AssociationId, terms: &Terms) -> bool {
        let is_required = terms.settings.encryption == Encryption::Require;
        !is_required || self.encryption.has_peer(association, terms.peer.as_deref())
    }

    pub(super) fn on_channel_accepted(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let (Some(syn), association) = (connection.asking(), connection.association()) else { return };
        if !self.still_waits(id, &syn) {
            // The reset of the channel informs the peer.
            return self.drop_with_syn(id, &syn);
        }
        let carrier = carrier_of(&self.engine, association);
        self.history.count(Occurrence::ConnectShared);
        self.on_client_up(id, syn, Peer::Shim, carrier.unwrap_or(Carrier::Ip));
    }

    pub(super) fn on_channel_refused(&mut self, id: ConnectionId, reason: Refusal) {
        let Some(connection) = self.connections.get(id) else { return };
        let Some(syn) = connection.asking() else { return };
        let (association, flow) = (connection.association(), connection.flow());
        let local = self.interception.wire_address(&flow);
        tracing::debug!(%flow, ?reason, "not on a shared association");
        if let Some(state) = self.shared.get_mut(association) {
            match reason {
                Refusal::Unproven => state.bar(local.ip()),
                Refusal::OwnAssociation => state.leave_alone(flow.remote()),
                Refusal::NotServed | Refusal::NotTaken | Refusal::Busy => {}
            }
        }
        if reason.allows_own_association() {
            return self.leave_shared(id);
        }
        let cause = match reason {
            Refusal::NotTaken => "the program there did not accept the connection",
            _ => FallbackReason::NOT_SERVED,
        };
        let failure = if reason == Refusal::NotServed { Failure::Refused } else { Failure::HandshakeFailed };
        let cause = FallbackReason::PeerAborted { cause: cause.to_owned() };
        self.abandon(id, &syn, cause, Some(failure));
    }

    /// Moves a connection that waits for the peer's answer to a separate association.
    pub(super) fn leave_shared(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Some(syn) = connection.asking() else { return };
        let (shim, began) = (connection.shim(), connection.began());
        let (round_trip, _) = vital_signs(&self.engine, connection.association());
        self.drop_connection(id);
        let terms = self.policy.terms(syn.flow.remote());
        let held = Held { since: began, round_trip };
        if let Err(plain) = terms.and_then(|terms| self.begin_alone(&syn, &terms, shim, held)) {
            self.go_plain(&syn, plain);
        }
    }

    /// Handles a request on a shared association that the peer has not answered in time. If SACKs still arrive, perhaps only the peer's
    /// program is slow, so the connection waits up to [`COOKIE_LIMIT`]. In all other cases, the connection gets a separate association.
    pub(super) fn on_channel_late(&mut self, id: ConnectionId, sacks: u64) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.asking().is_none() {
            return;
        }
        let is_heard = vital_signs(&self.engine, connection.association()).1 > sacks;
        let end = connection.began() + COOKIE_LIMIT;
        if is_heard && self.now < end {
            self.timers.set(end, Timer::Channel(id, sacks));
        } else {
            tracing::debug!(flow = %connection.flow(), "the shared association does not answer");
            if !is_heard && let Some(state) = self.shared.get_mut(connection.association()) {
                state.note_silence();
            }
            self.leave_shared(id);
        }
    }

    /// Reports whether `encryption=require` refuses plain TCP to a host. It refuses plain TCP if the host's key is known, if the hosts
    /// share a key, or if the host may be an impostor (`is_suspicious`).
    fn refuses_plain(&self, to: SocketAddr, is_suspicious: bool) -> bool {
        let host = to.ip();
        let has_key = || self.encryption.known(host).is_some() || self.policy.rules().is_keyed(host);
        let is_required =
            || self.policy.terms(to).is_ok_and(|terms| terms.settings.encryption == Encryption::Require);
        is_required() && (is_suspicious || has_key())
    }

    /// Releases a SYN as plain TCP although SCTP was allowed. If plain TCP is not allowed, refuses the SYN.
    ///
    /// `failure` is the evidence against the destination, if any.
    fn fall_back(&mut self, syn: &HeldSyn, tried: Tried, reason: FallbackReason, failure: Option<Failure>) {
        let destination = syn.flow.remote();
        let reason = self.policy.told(destination, reason);
        let is_by_rule = matches!(reason, FallbackReason::Required { .. });
        let is_by_key = self.refuses_plain(destination, reason.is_suspicious());
        let reason = match is_by_key && !is_by_rule {
            true => FallbackReason::Required { by: Requirement::Encryption, cause: Box::new(reason) },
            false => reason,
        };
        self.history.fell_back(self.now, destination, micros(tried.held), tried.shim, reason);
        match (is_by_rule, is_by_key) {
            (false, false) => self.interception.release(syn),
            (true, _) => self.interception.release_to_refusal(syn, self.policy.rules()),
            (false, true) => self.interception.refuse(syn),
        }
        // The failure of a host with a required key is not recorded. After the key is forgotten, such a record would send the host's
        // connections over plain TCP.
        self.policy.on_failure(destination, failure.filter(|_| !is_by_key));
    }

    /// Handles the outcome of a plain TCP connection that the forwarder opened for a command in an enclosed namespace. Rules that changed
    /// after the request may refuse plain TCP to the destination.
    pub(crate) fn on_opened(&mut self, flow: &FourTuple, outcome: &io::Result<()>) {
        if outcome.is_ok() && self.policy.is_required(flow.remote()) {
            let refused = io::Error::from_raw_os_error(Errno::EHOSTUNREACH as i32);
            return self.interception.on_opened(flow, &Err(refused));
        }
        self.interception.on_opened(flow, outcome);
    }

    /// Releases SYNs whose destinations the rules no longer send over SCTP. The kernel would otherwise let a retransmission of the SYN pass
    /// as plain TCP while the daemon still tries SCTP.
    pub(super) fn let_go_of_unnamed(&mut self) {
        let held: Vec<(ConnectionId, HeldSyn)> = self
            .connections
            .iter()
            .filter_map(|(id, connection)| Some((id, connection.held_syn()?)))
            .filter(|(_, syn)| !self.policy.may_use_sctp(syn.flow.remote(), syn.mark))
            .collect();
        for (id, syn) in held {
            self.drop_connection(id);
            self.transmit();
            self.go_plain(&syn, Plain::ByRule);
        }
    }

    /// Gives up every handshake because the daemon stops.
    pub(super) fn release_all_syns(&mut self) {
        for id in self.connections.ids() {
            let Some(syn) = self.connections.get(id).and_then(Connection::held_syn) else { continue };
            self.abandon(id, &syn, FallbackReason::DaemonStopping, None);
        }
    }
}

/// The time since which a SYN is held, and the round-trip time to its destination (zero if unknown).
#[derive(Clone, Copy)]
struct Held {
    since: Time,
    round_trip: Duration,
}

/// Time and shim state of an attempt over SCTP that ends as plain TCP.
#[derive(Clone, Copy)]
struct Tried {
    held: Duration,
    shim: ShimState,
}

impl Tried {
    /// No attempt: SCTP was not tried.
    const NOT: Tried = Tried { held: Duration::ZERO, shim: ShimState::Ready };
}

/// Returns the round-trip time of an association (zero if unknown) and the number of SACKs received.
fn vital_signs(engine: &Endpoint, association: AssociationId) -> (Duration, u64) {
    let Some(info) = engine.info(association) else { return Default::default() };
    let in_use = info.paths.iter().find(|path| path.in_use);
    (in_use.and_then(|path| path.srtt).unwrap_or_default(), info.counters.sacks_received)
}

/// Reports whether the engine can use another path if the path in use is silent.
fn has_other_path(engine: &Endpoint, association: AssociationId) -> bool {
    let paths = engine.info(association).map(|info| info.paths).unwrap_or_default();
    paths.iter().any(|path| !path.in_use && path.state == PathState::Active)
}

/// Returns the carrier of an association's data.
fn carrier_of(engine: &Endpoint, association: AssociationId) -> Option<Carrier> {
    let paths = engine.info(association)?.paths;
    paths.iter().find(|path| path.in_use).map(|path| path.route.carrier)
}
