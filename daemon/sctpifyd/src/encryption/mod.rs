//! Encryption of associations with other sctpify hosts. Determines who the peer is, and when an association may be used.
//!
//! The engine seals packets. [`keying`] makes the keys, in a separate thread ([`handshakes`]). A protected association counts as up only
//! when its peer is known and its packets are sealed. Until then this module holds back the [`Event::Established`] of the association.
//!
//! If this host connects to an address, it records the key that the peer proves there. In later associations to the address, the peer must
//! have the same key ([`crate::peers_store`]). If the peer began the association, its key proves nothing about an address. Reports show
//! such a key, but it is not recorded.
//!
//! Invariants:
//!
//! - No association is used before its peer is known.
//! - An association ends if its peer's key differs from the known key of the address.
//! - An association without encryption ends if a key of the address is known.
//!
//! Begin at [`Encryption::follow`].

mod backlog;
mod handshakes;
mod patience;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::channel;
use std::time::Duration;

use base::Time;
use control::{EncryptionFault, HostKeyText, KnownPeer, Recognition};
use keying::{KeyingError, Outcome, PublicKey, Step, Task, apply, had_other_keys};
use sctp::{AbortCause, AssociationId, CloseReason, Endpoint, Event};

use crate::accept_policy::note_wrong_key;
use crate::clock::today;
use crate::history::{History, Line, Occurrence};
use crate::peers_store::PeersStore;
use crate::policy::Policy;

pub(crate) use handshakes::{Handshakes, warm_up};

use backlog::Backlog;
use patience::Patience;

/// Limit on the tasks of one association that wait or are with the thread. In a handshake, each end sends two messages.
const TASKS_MAX: u32 = 4;
/// Limit on the length of a message about keys, in bytes. A message with the largest key share has two thirds of this length.
const MESSAGE_MAX: usize = 4096;
/// Memory of a peer's handshake in the thread, in bytes. A measurement gave 12,000 bytes.
const SESSION_MEMORY: usize = 16 << 10;
/// Cause codes of ABORTs about protection (draft-ietf-tsvwg-sctp-dtls-chunk section 11.4).
const CAUSES: std::ops::RangeInclusive<u16> = 100..=103;

/// Encryption of all associations that offer it.
pub(crate) struct Encryption {
    backlog: Backlog,
    all: BTreeMap<AssociationId, State>,
    peers: PeersStore,
    patience: Patience,
}

/// An association that this host begins.
pub(crate) struct Dialled {
    /// The remote address.
    pub(crate) address: IpAddr,
    pub(crate) encryption: rules::Encryption,
    /// The only key that the peer may have, if a rule requires one.
    pub(crate) required: Option<HostKeyText>,
}

/// The encryption of one association.
#[derive(Default)]
struct State {
    /// The address to which this host has connected; `None` if the peer began the association.
    dialled: Option<IpAddr>,
    /// The only key that the peer may have, if a rule requires one.
    required: Option<HostKeyText>,
    /// An address of the peer, which determines its turns in the backlog.
    host: Option<IpAddr>,
    /// Number of tasks that wait for the thread, or that the thread holds.
    waiting: u32,
    /// The event "established" that is held back.
    established: Option<Event>,
    peer: Option<PublicKey>,
    /// True if both ends have mixed the same shared key into the keys of the association.
    has_psk: bool,
    /// Words for comparison, which are the same at both ends.
    words: Vec<String>,
    /// The address that has answered with a key that is not recorded yet. The key is recorded once the peer has sealed a packet with the
    /// keys of this very association. Before such a packet, an impostor could have forwarded the handshake of another host.
    unwritten: Option<IpAddr>,
    epoch: Option<u64>,
    fault: Option<EncryptionFault>,
}

impl Encryption {
    /// Returns the part for the event loop and the part for the thread.
    pub(crate) fn new(peers: PeersStore) -> (Encryption, Handshakes) {
        let (orders, received) = channel();
        let backlog = Backlog::new(orders);
        let encryption = Encryption { backlog, all: BTreeMap::new(), peers, patience: Patience::default() };
        (encryption, Handshakes::new(received))
    }

    /// Begins the key handshake of an association that this host has just begun, if encryption is offered.
    pub(crate) fn begin(&mut self, now: Time, association: AssociationId, dialled: Dialled, policy: &Policy) {
        let Dialled { address: remote, encryption, required } = dialled;
        if !encryption.is_offered() {
            return;
        }
        let (dialled, host) = (Some(remote), Some(remote));
        self.all.insert(association, State { dialled, required, host, ..State::default() });
        let psk = policy.rules().preshared(remote);
        self.order(now, association, Task::Begin { psk });
    }

    /// Returns the time from the SYN within which a connection's association must have keys. A peer that has proven its key gets the
    /// longest limit.
    pub(crate) fn limit(&self, now: Time, association: AssociationId) -> Duration {
        let state = self.all.get(&association);
        let late = state.filter(|state| state.peer.is_none()).and_then(|state| state.dialled);
        self.patience.limit(now, late)
    }

    /// Notes an association that had no keys in time.
    pub(crate) fn on_late(&mut self, now: Time, association: AssociationId) {
        if let Some(dialled) = self.all.get(&association).and_then(|state| state.dialled) {
            self.patience.note_late(now, dialled);
        }
    }

    /// Hands a task over to the backlog. Returns false if too many tasks wait.
    fn order(&mut self, now: Time, association: AssociationId, task: Task) -> bool {
        let Some(state) = self.all.get_mut(&association) else { return true };
        let order = (now, association, task);
        let is_own = state.dialled.is_some() && state.epoch.is_none();
        let is_taken = state.waiting < TASKS_MAX
            && match state.host {
                Some(host) if !is_own => self.backlog.push(host, state.epoch.is_some(), order).is_ok(),
                _ => {
                    self.backlog.push_own(order);
                    true
                }
            };
        state.waiting += u32::from(is_taken);
        is_taken
    }

    /// Returns the state of an association. If the association is unknown here, its peer began it.
    fn state(&mut self, association: AssociationId, engine: &mut Endpoint) -> &mut State {
        self.all.entry(association).or_insert_with(|| {
            engine.set_user_memory(association, SESSION_MEMORY);
            State { host: peer_of(engine, association), ..State::default() }
        })
    }

    /// Handles a task that follows from a message of the peer, or from keys that are due for renewal.
    fn on_task(&mut self, now: Time, association: AssociationId, task: Task, engine: &mut Endpoint) {
        self.state(association, engine);
        let is_long = matches!(&task, Task::Take { message, .. } if message.len() > MESSAGE_MAX);
        if is_long || !self.order(now, association, task) {
            engine.abort(now, association, AbortCause::user("too many messages about keys"));
        }
    }

    /// Follows an event of the engine. Returns the events to handle now, in their order.
    pub(crate) fn follow(
        &mut self,
        now: Time,
        association: AssociationId,
        event: Event,
        engine: &mut Endpoint,
        (policy, history): (&Policy, &mut History),
    ) -> [Option<Event>; 2] {
        let psk = || policy.rules().preshared(peer_of(engine, association)?);
        let task = Task::of_event(association, &event, engine, psk);
        // Only sealed packets cause these two events, so the peer has the keys of this association.
        if matches!(event, Event::Readable | Event::Closed(CloseReason::Graceful))
            && !self.write_down(now, association, engine, history)
        {
            return [None, None];
        }
        let is_followed = policy.settings().encryption.is_offered();
        match (task, &event) {
            (Some(task @ (Task::Take { .. } | Task::Renew)), _) if is_followed => {
                self.on_task(now, association, task, engine);
                return [None, None];
            }
            (Some(Task::Forget), _) => {
                let state = self.all.get(&association);
                if let Some((host, state)) = state.and_then(|state| Some((state.host?, state))) {
                    self.backlog.forget(now, association, host, state.waiting > 0);
                }
            }
            _ => {}
        }
        match event {
            Event::Established { route, .. } => {
                let is_held = match engine.protection(association) {
                    Some(_) => self.holds_back(association, &event, engine, history),
                    None => self.refuses_clear(now, association, route.remote, engine, history),
                };
                [(!is_held).then_some(event), None]
            }
            Event::Protected { epoch } => {
                let Some(state) = self.all.get_mut(&association) else { return [Some(event), None] };
                if state.epoch.replace(epoch).is_none() && state.dialled.is_none() {
                    engine.set_user_memory(association, 0);
                }
                let established = state.established.take();
                if established.is_some() {
                    history.count(Occurrence::Encrypted);
                }
                if let Some(dialled) = state.dialled {
                    self.patience.note_agreed(dialled);
                }
                [established, Some(event)]
            }
            Event::Closed(ref reason) => {
                // If encryption is required, the engine refuses an unencrypted peer before the association is up.
                let missed = self.missed_key(association, None);
                if let (Some(EncryptionFault::PeerHasNone), Some(known)) = (fault_of(reason), missed) {
                    self.note_other_peer(now, association, EncryptionFault::KeyGone { known }, history);
                }
                let keyed = peer_of(engine, association).filter(|host| policy.rules().is_keyed(*host));
                if let Some(host) = keyed.filter(|_| had_other_keys(reason)) {
                    note_wrong_key(now, host, policy, history);
                }
                [Some(event), None]
            }
            event => [Some(event), None],
        }
    }

    /// Holds the event "established" back until the association has keys. Returns false if it already has keys.
    fn holds_back(
        &mut self,
        association: AssociationId,
        event: &Event,
        engine: &mut Endpoint,
        history: &mut History,
    ) -> bool {
        let state = self.state(association, engine);
        // The keys may be agreed before this host accepts the association.
        if state.epoch.is_some() {
            history.count(Occurrence::Encrypted);
            return false;
        }
        state.established = Some(event.clone());
        true
    }

    /// Ends an unencrypted association with a host whose key is known. Returns false if no key of the host is known.
    fn refuses_clear(
        &mut self,
        now: Time,
        association: AssociationId,
        answered: IpAddr,
        engine: &mut Endpoint,
        history: &mut History,
    ) -> bool {
        let Some(known) = self.missed_key(association, Some(answered)) else {
            self.all.remove(&association);
            return false;
        };
        self.give_up(now, association, EncryptionFault::KeyGone { known }, engine, history);
        true
    }

    /// Applies the steps that a task has computed.
    pub(crate) fn take(
        &mut self,
        now: Time,
        association: AssociationId,
        outcome: Result<Vec<Step>, KeyingError>,
        engine: &mut Endpoint,
        history: &mut History,
    ) {
        self.backlog.on_performed();
        let Some(state) = self.all.get_mut(&association) else { return };
        state.waiting = state.waiting.saturating_sub(1);
        match apply(now, association, outcome, engine) {
            None => {}
            Some(Outcome::Peer { key, binding, has_psk }) => {
                state.words = binding.words().into();
                state.has_psk = has_psk;
                self.on_peer(now, association, key, engine, history)
            }
            Some(Outcome::Failed(error)) => {
                history.count(Occurrence::FailedKeys);
                if let Some(left_out) = history.admit(Line::Keys, now) {
                    let peer = peer_of(engine, association);
                    tracing::warn!(?peer, %error, left_out, "no keys were agreed on");
                }
                state.fault = Some(EncryptionFault::NoKeys { cause: error.to_string() });
            }
        }
    }

    /// Handles the proof of the peer's key.
    fn on_peer(
        &mut self,
        now: Time,
        association: AssociationId,
        key: PublicKey,
        engine: &mut Endpoint,
        history: &mut History,
    ) {
        let Some(state) = self.all.get_mut(&association) else { return };
        let Ok(found) = key.to_string().parse::<HostKeyText>() else { return };
        if let Some(dialled) = state.dialled {
            let answered = match &state.established {
                Some(Event::Established { route, .. }) => route.remote,
                _ => dialled,
            };
            let recognition = {
                let peers = self.peers.lock();
                match peers.recognise(dialled, &found) {
                    other @ Recognition::Other(_) => other,
                    // If the dialled address has no other key, the key is recorded for the address that has answered.
                    _ => peers.recognise(answered, &found),
                }
            };
            match recognition {
                Recognition::Known | Recognition::New | Recognition::NoRoom => {
                    state.unwritten = Some(answered)
                }
                Recognition::Other(known) => {
                    let fault = EncryptionFault::OtherKey { known, found };
                    return self.give_up(now, association, fault, engine, history);
                }
            }
        }
        if let Some(required) = state.required.clone().filter(|required| *required != found) {
            state.fault = Some(EncryptionFault::NotThePeer { required, found });
            engine.abort(now, association, AbortCause::user("a rule requires another peer"));
            return;
        }
        state.peer = Some(key);
        // This call fails only if the association has ended.
        let _ = engine.know_peer(now, association);
    }

    /// Records the key of a peer that has sealed packets. Returns false if the association ends.
    fn write_down(
        &mut self,
        now: Time,
        association: AssociationId,
        engine: &mut Endpoint,
        history: &mut History,
    ) -> bool {
        let Some(state) = self.all.get_mut(&association).filter(|state| state.epoch.is_some()) else {
            return true;
        };
        let (Some(address), Some(key)) = (state.unwritten.take(), state.peer) else { return true };
        let Ok(found) = key.to_string().parse::<HostKeyText>() else { return true };
        let recognition = self.peers.lock().meet(today(), address, &found);
        match recognition {
            Recognition::Known => {}
            Recognition::NoRoom => {
                if let Some(left_out) = history.admit(Line::NewPeer, now) {
                    tracing::warn!(peer = %address, key = %found, left_out, "the key of a new peer is not written down: \
                        the table is full (sctpify peers forget makes room)");
                }
            }
            Recognition::New => {
                if let Some(left_out) = history.admit(Line::NewPeer, now) {
                    tracing::info!(peer = %address, key = %found, left_out, "the key of a new peer is written down");
                }
            }
            // Meanwhile another association has recorded another key.
            Recognition::Other(known) => {
                let fault = EncryptionFault::OtherKey { known, found };
                self.give_up(now, association, fault, engine, history);
                return false;
            }
        }
        true
    }

    /// Returns the known key of the address to which this host has connected. If no key of this address is known, returns the known key of
    /// the address that has answered.
    fn missed_key(&self, association: AssociationId, answered: Option<IpAddr>) -> Option<HostKeyText> {
        let dialled = self.all.get(&association)?.dialled?;
        let peers = self.peers.lock();
        let known = peers.find(dialled).or_else(|| peers.find(answered?));
        known.map(|known| known.key.clone())
    }

    /// Ends an association with a peer that may be another host than before.
    fn give_up(
        &mut self,
        now: Time,
        association: AssociationId,
        fault: EncryptionFault,
        engine: &mut Endpoint,
        history: &mut History,
    ) {
        self.note_other_peer(now, association, fault, history);
        engine.abort(now, association, AbortCause::user("another key was expected"));
    }

    /// Counts and reports a peer that may be another host than before.
    fn note_other_peer(
        &mut self,
        now: Time,
        association: AssociationId,
        fault: EncryptionFault,
        history: &mut History,
    ) {
        history.count(Occurrence::ChangedPeer);
        let state = self.all.entry(association).or_default();
        if let Some(left_out) = history.admit(Line::ChangedPeer, now) {
            tracing::warn!(peer = ?state.dialled, %fault, left_out, "association ended");
        }
        state.fault = Some(fault);
    }

    /// Returns the known peer whose key must be found at an address.
    pub(crate) fn known(&self, address: IpAddr) -> Option<KnownPeer> {
        self.peers.lock().find(address).cloned()
    }

    /// Reports whether an association may carry further connections to a host. If the host's key is known, the peer must have proven it.
    pub(crate) fn may_carry(&self, association: AssociationId, host: IpAddr) -> bool {
        let Some(known) = self.known(host) else { return true };
        let peer = self.all.get(&association).and_then(|state| state.peer);
        peer.is_some_and(|peer| peer.to_string() == known.key.as_str())
    }

    /// Returns the key of the known peer with this name or key.
    pub(crate) fn key_of(&self, peer: &str) -> Option<HostKeyText> {
        self.peers.lock().named(peer).map(|known| known.key.clone())
    }

    /// Reports whether an association has keys, and its peer is the known peer with this name or key. `None` accepts any peer.
    pub(crate) fn has_peer(&self, association: AssociationId, name: Option<&str>) -> bool {
        let Some(peer) = self.proven(association) else { return false };
        name.is_none_or(|name| self.key_of(name).is_some_and(|key| key.as_str() == peer.to_string()))
    }

    /// Reports whether an association has keys, and the peer of `newcomer` has not proven the same key.
    pub(crate) fn is_anothers(&self, association: AssociationId, newcomer: AssociationId) -> bool {
        let peer = self.proven(association);
        peer.is_some() && peer != self.proven(newcomer)
    }

    /// Returns the key of an association's peer, once the association is sealed.
    fn proven(&self, association: AssociationId) -> Option<PublicKey> {
        self.all.get(&association).filter(|state| state.epoch.is_some())?.peer
    }

    /// Reports whether the keys of an association with encryption lack a shared key. The peer of such an association has not proven that it
    /// has a shared key.
    pub(crate) fn lacks_shared_key(&self, association: AssociationId) -> bool {
        self.all.get(&association).is_some_and(|state| !state.has_psk)
    }

    /// Reports whether an association's SCTP handshake has ended, and its key handshake has not ended yet.
    pub(crate) fn awaits_keys(&self, association: AssociationId) -> bool {
        self.all.get(&association).is_some_and(|state| state.established.is_some())
    }

    /// Forgets an association that has ended.
    pub(crate) fn forget(&mut self, association: AssociationId) {
        self.all.remove(&association);
    }

    /// Returns the fault that ended an association.
    pub(crate) fn fault(&self, association: AssociationId) -> Option<&EncryptionFault> {
        self.all.get(&association)?.fault.as_ref()
    }

    /// Returns the encryption of an association for reports; `None` if its packets are not sealed.
    pub(crate) fn report(&self, association: AssociationId) -> Option<control::Encryption> {
        let state = self.all.get(&association)?;
        let (peer, epoch) = (state.peer?.to_string().parse::<HostKeyText>().ok()?, state.epoch?);
        let peers = self.peers.lock();
        let known: Option<&KnownPeer> = peers.of_key(&peer);
        Some(control::Encryption {
            name: known.and_then(|known| known.name.clone()),
            by: known.map(|known| known.by),
            known_since: known.map(|known| known.first_seen),
            peer,
            epoch,
            words: state.words.clone(),
        })
    }
}

/// Returns the fault that the end of an association reveals, if encryption is the reason.
pub(crate) fn fault_of(reason: &CloseReason) -> Option<EncryptionFault> {
    match reason {
        CloseReason::Aborted(cause) if CAUSES.contains(&cause.code) => Some(EncryptionFault::PeerHasNone),
        CloseReason::PeerAborted(cause) if CAUSES.contains(&cause.code) => {
            Some(EncryptionFault::PeerRequires)
        }
        _ => None,
    }
}

/// Returns an address of an association's peer.
fn peer_of(engine: &Endpoint, association: AssociationId) -> Option<IpAddr> {
    engine.info(association)?.paths.first().map(|path| path.route.remote)
}
