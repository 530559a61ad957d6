//! The handshakes of many associations, separate from the endpoint. [`Sessions`] performs a [`Task`] and returns the [`Step`]s that result.
//!
//! [`Sessions::perform`] computes all cryptography and waits for a remote signer, so a caller may run it in a separate thread. [`Sessions`]
//! has no clock and no sockets, and does not use the endpoint. The caller must pass the tasks of an association in the order of its events.
//! The caller must also apply the steps in the order of their tasks. Begin at [`Task::of_event`], [`Sessions::perform`] and [`apply`].

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

/// Returns the offer of protection with this crate's method, for [`AssociationConfig::protection`](sctp::AssociationConfig::protection).
pub const fn protection(required: bool) -> ProtectionConfig {
    ProtectionConfig::new(METHOD, required)
}

/// Work on the keys of one association.
#[derive(Debug)]
pub enum Task {
    /// Begin the handshake of a new association. The caller has just called [`connect`](Endpoint::connect) with an offer of [`protection`].
    Begin {
        /// A pre-shared key to mix into all keys of the association.
        psk: Option<PresharedKey>,
    },
    /// Handle a message of the peer.
    Take {
        /// The message.
        message: Bytes,
        /// True if the message came in a sealed packet.
        sealed: bool,
        /// The terms of protection that both ends have agreed on.
        terms: ProtectionTerms,
        /// A pre-shared key to mix into all keys of the association. If the association already has a handshake or keys, this key is
        /// ignored.
        psk: Option<PresharedKey>,
    },
    /// Begin a handshake for new keys. The task has no effect before the first keys exist or while a handshake is under way.
    Renew,
    /// Forget the keys and handshakes of the association.
    Forget,
}

impl Task {
    /// Returns the task that follows from an event of the endpoint, if any. `psk` is a function that returns the pre-shared key to mix in.
    /// This function is called only for messages about keys.
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
            // Without terms, the peer does not use protection, so no answer to the first message about keys will come.
            Event::Established { .. } if terms.is_none() => Some(Task::Forget),
            Event::Closed(_) => Some(Task::Forget),
            _ => None,
        }
    }
}

/// News for a caller about an association's keys.
#[derive(Debug)]
pub enum Outcome {
    /// The peer has proven that it holds this key. To accept the peer, call [`know_peer`](Endpoint::know_peer), which lets the
    /// application's messages pass. To refuse the peer, abort the association.
    Peer {
        /// The peer's public key.
        key: PublicKey,
        /// Secret that is equal at both ends if both took part in the same handshake.
        binding: Binding,
        /// True if both ends have mixed in the same pre-shared key.
        has_psk: bool,
    },
    /// The task or one of its steps failed. The association was aborted.
    Failed(KeyingError),
}

/// Reason in the ABORT of a client whose keys differ from the server's keys.
const OTHER_KEYS: &str = "both ends have made different keys";

/// Reports whether the peer ended an association because the keys of the two ends differed. The keys differ if the pre-shared keys differ,
/// or if INIT or INIT ACK was changed on the way. An ABORT in an unsealed packet can be forged, so its reason proves nothing.
pub fn had_other_keys(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::PeerAborted(cause) if cause.reason == OTHER_KEYS)
}

/// Performs the steps of a task. If the task has failed, or if the endpoint refuses a step, aborts the association and returns
/// [`Outcome::Failed`]. Returns `None` without an error if the association has ended, or has no agreement on protection.
pub fn apply(
    now: Time,
    id: AssociationId,
    outcome: Result<Vec<Step>, KeyingError>,
    endpoint: &mut Endpoint,
) -> Option<Outcome> {
    let taken = outcome.and_then(|steps| take(now, id, steps, endpoint));
    match taken {
        Ok(peer) => peer,
        // The association has ended since the task was given, or the peer does not use protection. Neither is an error here.
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

/// Handshakes of a host's associations.
#[derive(Debug)]
pub struct Sessions {
    keyring: Keyring,
    all: BTreeMap<AssociationId, State>,
}

/// State of one association's keys.
#[derive(Debug, Default)]
struct State {
    /// The current handshake.
    session: Option<Session>,
    psk: Option<PresharedKey>,
    /// The peer's key from the first handshake.
    peer: Option<PublicKey>,
    /// The epoch of the newest keys.
    epoch: Option<u64>,
    /// Renewals that the peer has requested.
    renewals: Option<Renewals>,
    /// True if a task has failed. The association must then end.
    has_failed: bool,
}

/// Count of renewals within one period.
#[derive(Debug)]
struct Renewals {
    since: Time,
    count: u32,
}

/// Limit on the renewals that a peer may request in [`RENEWALS_PERIOD`]. A direction that seals a million packets per second needs ten
/// renewals in this period.
pub(crate) const RENEWALS_MAX: u32 = 32;
const RENEWALS_PERIOD: Duration = Duration::from_secs(60);

impl Sessions {
    /// Makes an empty set of handshakes for the host whose key is in `keyring`.
    pub fn new(keyring: Keyring) -> Sessions {
        Sessions { keyring, all: BTreeMap::new() }
    }

    /// Returns the host's public key.
    pub fn public(&self) -> PublicKey {
        self.keyring.public()
    }

    /// Returns the key that an association's peer has proven to hold.
    pub fn peer(&self, id: AssociationId) -> Option<PublicKey> {
        self.all.get(&id)?.peer
    }

    /// Returns the number of associations.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Reports whether there is no association.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Performs a task that was given at `now`, and returns the steps for [`apply`]. Only the first handshake of an association returns the
    /// step with the peer's key. If the peer presents another key in a later handshake, the task fails. After an error, all tasks of the
    /// association return no steps.
    ///
    /// # Errors
    /// See [`KeyingError`]. After an error, the association must end.
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
        // The caller has decided on this key after the first handshake, so later handshakes do not report it.
        steps.retain(|step| !was_known || !matches!(step, Step::Peer { .. }));
        // If the first keys contain the pre-shared key, later keys must contain it too.
        self.psk = session.psk().cloned().map(PresharedKey::required);
        self.session = (!session.is_over()).then_some(session);
        Ok(steps)
    }

    /// Removes from `self` the session that handles a message, or makes a server's session. Returns `None` if the message must be ignored.
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
            // Only the association's client may begin the handshake for the first keys.
            _ if is_client && epoch == FIRST_EPOCH => return Err(KeyingError::Unexpected),
            // Both ends have begun a handshake at the same time. The association's client continues with its own handshake, and ignores the
            // server's first message.
            Some(own) if is_client => {
                self.session = Some(own);
                return Ok(None);
            }
            _ if epoch > FIRST_EPOCH => self.count_renewal(now)?,
            _ => {}
        }
        Session::server(keyring, epoch, self.psk.clone(), self.peer).map(Some)
    }

    /// Counts a renewal that the peer requests.
    fn count_renewal(&mut self, now: Time) -> Result<(), KeyingError> {
        let renewals = self.renewals.get_or_insert(Renewals { since: now, count: 0 });
        if now - renewals.since > RENEWALS_PERIOD {
            *renewals = Renewals { since: now, count: 0 };
        }
        renewals.count += 1;
        if renewals.count > RENEWALS_MAX { Err(KeyingError::TooOften) } else { Ok(()) }
    }
}
