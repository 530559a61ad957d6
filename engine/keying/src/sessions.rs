//! The handshakes of many associations, apart from the endpoint: a [`Task`] goes in, and the [`Step`]s to take come out.
//!
//! Cryptography and the wait for a remote signer happen in [`Sessions::perform`], so a caller may run it in a thread of its own. It has
//! no clock and no sockets, and knows nothing of the endpoint. Tasks of one association must come in the order of its events, and steps
//! must be taken in the order of their tasks. Begin at [`Task::of_event`], [`Sessions::perform`] and [`apply`].

use std::collections::BTreeMap;
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use sctp::{
    AbortCause, AssociationId, CloseReason, Endpoint, Event, FIRST_EPOCH, KeyRole, ProtectionConfig,
    ProtectionTerms,
};

use crate::identity::{Binding, PublicKey};
use crate::schedule::{METHOD, PresharedKey};
use crate::session::{KeyingError, Keyring, Session, Step};

/// The offer of protection by this method, for [`AssociationConfig::protection`](sctp::AssociationConfig::protection).
pub const fn protection(required: bool) -> ProtectionConfig {
    ProtectionConfig::new(METHOD, required)
}

/// Work on the keys of one association.
#[derive(Debug)]
pub enum Task {
    /// Begin the handshake of an association that [`connect`](Endpoint::connect) has just begun with an offer of [`protection`].
    Begin {
        /// A key to mix into all keys of the association.
        psk: Option<PresharedKey>,
    },
    /// Take a message of the peer.
    Take {
        /// The message.
        message: Bytes,
        /// It came in a sealed packet.
        sealed: bool,
        /// The agreement on protection.
        terms: ProtectionTerms,
        /// A key to mix into all keys of the association. Of no effect if the association has had a task before.
        psk: Option<PresharedKey>,
    },
    /// Begin to agree on new keys, unless that is under way.
    Renew,
    /// Forget the association.
    Forget,
}

impl Task {
    /// Returns the work that follows from an event of the endpoint, if any. `psk` returns the key to mix in, and is called for messages
    /// only.
    pub fn of_event(
        id: AssociationId,
        event: &Event,
        endpoint: &Endpoint,
        psk: impl FnOnce() -> Option<PresharedKey>,
    ) -> Option<Task> {
        let terms = endpoint.protection(id);
        match event {
            Event::KeyMessage { message, sealed } => {
                Some(Task::Take { message: message.clone(), sealed: *sealed, terms: terms?, psk: psk() })
            }
            Event::KeysWorn => Some(Task::Renew),
            // A peer without protection has not answered the first message.
            Event::Established { .. } if terms.is_none() => Some(Task::Forget),
            Event::Closed(_) => Some(Task::Forget),
            _ => None,
        }
    }
}

/// News for a caller about an association's keys.
#[derive(Debug)]
pub enum Outcome {
    /// The peer has proven that it holds this key. [`know_peer`](Endpoint::know_peer) lets messages pass; to refuse it, abort the
    /// association.
    Peer {
        /// Its key.
        key: PublicKey,
        /// Shows that both ends have had the same handshake.
        binding: Binding,
        /// True if both ends have mixed in the same pre-shared key.
        has_psk: bool,
    },
    /// The handshake failed. The association was aborted.
    Failed(KeyingError),
}

/// The reason in a client's ABORT, if the server has made other keys than the client.
const OTHER_KEYS: &str = "both ends have made different keys";

/// Reports whether the peer ended an association because it had made other keys: its pre-shared key differs, or INIT or INIT ACK were changed on
/// the way. Anybody can say so before packets are sealed.
pub fn had_other_keys(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::PeerAborted(cause) if cause.reason == OTHER_KEYS)
}

/// Takes the steps of a task. A failed task aborts the association; one that is over is left alone.
pub fn apply(
    now: Time,
    id: AssociationId,
    outcome: Result<Vec<Step>, KeyingError>,
    endpoint: &mut Endpoint,
) -> Option<Outcome> {
    let taken = outcome.and_then(|steps| take(now, id, steps, endpoint));
    match taken {
        Ok(peer) => peer,
        // The association has ended since the task was given.
        Err(KeyingError::Endpoint(sctp::KeyError::NotAgreed)) => None,
        Err(error) => {
            let cause = if error == KeyingError::OtherKeys { OTHER_KEYS } else { "no keys were agreed on" };
            endpoint.abort(now, id, AbortCause::user(cause));
            Some(Outcome::Failed(error))
        }
    }
}

fn take(
    now: Time,
    id: AssociationId,
    steps: Vec<Step>,
    endpoint: &mut Endpoint,
) -> Result<Option<Outcome>, KeyingError> {
    let mut outcome = None;
    for step in steps {
        match step {
            Step::Install { epoch, keys, from } => endpoint.install_keys(now, id, epoch, keys, from)?,
            Step::Send(message) => endpoint.send_key_message(now, id, message)?,
            Step::Peer { key, binding, has_psk } => outcome = Some(Outcome::Peer { key, binding, has_psk }),
        }
    }
    Ok(outcome)
}

/// The handshakes of a host's associations.
#[derive(Debug)]
pub struct Sessions {
    keyring: Keyring,
    all: BTreeMap<AssociationId, State>,
}

/// The keys of one association.
#[derive(Debug, Default)]
struct State {
    /// The handshake under way.
    session: Option<Session>,
    psk: Option<PresharedKey>,
    /// The peer of the first handshake.
    peer: Option<PublicKey>,
    /// The epoch of the newest keys.
    epoch: Option<u64>,
    /// Renewals that the peer has asked for.
    renewals: Option<Renewals>,
    /// A task has failed: the association ends.
    has_failed: bool,
}

/// Renewals of a period.
#[derive(Debug)]
struct Renewals {
    since: Time,
    count: u32,
}

/// The most renewals that a peer may ask for in [`RENEWALS_PERIOD`]. A direction that seals a million packets a second needs ten.
pub(crate) const RENEWALS_MAX: u32 = 32;
const RENEWALS_PERIOD: Duration = Duration::from_secs(60);

impl Sessions {
    /// Makes the handshakes of the host with this key.
    pub fn new(keyring: Keyring) -> Sessions {
        Sessions { keyring, all: BTreeMap::new() }
    }

    /// The host's public key.
    pub fn public(&self) -> PublicKey {
        self.keyring.public()
    }

    /// The proven key of an association's peer.
    pub fn peer(&self, id: AssociationId) -> Option<PublicKey> {
        self.all.get(&id)?.peer
    }

    /// The number of associations.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Reports whether there is no association.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Does the work of a task that was given at `now`; returns the steps for [`apply`]. The peer's key is a step of an association's first handshake only:
    /// another key in a later one is an error. After an error, all tasks of the association return no steps.
    ///
    /// # Errors
    /// See [`KeyingError`]; the association must end then.
    pub fn perform(&mut self, now: Time, id: AssociationId, task: Task) -> Result<Vec<Step>, KeyingError> {
        if let Task::Forget = task {
            self.all.remove(&id);
            return Ok(Vec::new());
        }
        let state = self.all.entry(id).or_default();
        if state.has_failed {
            return Ok(Vec::new());
        }
        let outcome = match task {
            Task::Begin { psk } => {
                state.psk = psk;
                state.begin(&self.keyring, FIRST_EPOCH)
            }
            Task::Take { message, sealed, terms, psk } => {
                if state.is_new() {
                    state.psk = psk;
                }
                state.take(now, &self.keyring, (&message, sealed), &terms)
            }
            Task::Renew => match state.epoch {
                Some(epoch) if state.session.is_none() => state.begin(&self.keyring, epoch + 1),
                _ => Ok(Vec::new()),
            },
            Task::Forget => Ok(Vec::new()),
        };
        state.has_failed = outcome.is_err();
        outcome
    }
}

impl State {
    fn is_new(&self) -> bool {
        self.session.is_none() && self.epoch.is_none()
    }

    fn begin(&mut self, keyring: &Keyring, epoch: u64) -> Result<Vec<Step>, KeyingError> {
        let (session, hello) = Session::client(keyring, epoch, self.psk.clone(), self.peer)?;
        self.session = Some(session);
        Ok(vec![Step::Send(hello)])
    }

    fn take(
        &mut self,
        now: Time,
        keyring: &Keyring,
        (message, sealed): (&[u8], bool),
        terms: &ProtectionTerms,
    ) -> Result<Vec<Step>, KeyingError> {
        let Some(mut session) = self.session_for(now, keyring, message, terms)? else {
            return Ok(Vec::new());
        };
        let mut steps = session.on_message(message, sealed, terms)?;
        let was_known = self.peer.is_some();
        for step in &steps {
            match step {
                Step::Install { epoch, .. } => self.epoch = Some(*epoch),
                Step::Send(_) => {}
                Step::Peer { key, .. } => self.peer = Some(*key),
            }
        }
        // The same key as before needs no new decision.
        steps.retain(|step| !was_known || !matches!(step, Step::Peer { .. }));
        // Later keys have the pre-shared one if the first ones have it.
        self.psk = session.psk().cloned().map(PresharedKey::required);
        self.session = (!session.is_over()).then_some(session);
        Ok(steps)
    }

    /// Takes out the session that a message is for, or begins one as the server; `None` if the message is to be ignored.
    fn session_for(
        &mut self,
        now: Time,
        keyring: &Keyring,
        message: &[u8],
        terms: &ProtectionTerms,
    ) -> Result<Option<Session>, KeyingError> {
        let epoch = self.epoch.map_or(FIRST_EPOCH, |epoch| epoch + 1);
        let (is_hello, is_client) = (Session::is_hello(message), terms.role == KeyRole::Client);
        match self.session.take() {
            Some(own) if !is_hello || own.role() == KeyRole::Server => return Ok(Some(own)),
            None if !is_hello => return Err(KeyingError::Unexpected),
            // The first keys are the client's to begin.
            _ if is_client && epoch == FIRST_EPOCH => return Err(KeyingError::Unexpected),
            // Both ends have begun at once: the hello of the association's client goes on.
            Some(own) if is_client => {
                self.session = Some(own);
                return Ok(None);
            }
            _ if epoch > FIRST_EPOCH => self.count_renewal(now)?,
            _ => {}
        }
        Session::server(keyring, epoch, self.psk.clone(), self.peer).map(Some)
    }

    /// Counts a renewal that the peer asks for.
    fn count_renewal(&mut self, now: Time) -> Result<(), KeyingError> {
        let renewals = self.renewals.get_or_insert(Renewals { since: now, count: 0 });
        if now - renewals.since > RENEWALS_PERIOD {
            *renewals = Renewals { since: now, count: 0 };
        }
        renewals.count += 1;
        if renewals.count > RENEWALS_MAX { Err(KeyingError::TooOften) } else { Ok(()) }
    }
}
