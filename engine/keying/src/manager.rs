//! The handshakes of all associations of an endpoint, in the endpoint's thread. [`KeyManager`] performs the cryptography of [`Sessions`]
//! inside each call, and immediately applies the resulting steps to the endpoint.
//!
//! When the caller gets [`Outcome::Peer`], it decides whether to accept the peer. Begin at [`KeyManager::begin`] and
//! [`KeyManager::on_event`].

use base::Time;
use sctp::{AssociationId, Endpoint, Event};

use crate::identity::PublicKey;
use crate::schedule::PresharedKey;
use crate::session::{KeyingError, Keyring};
use crate::sessions::{Outcome, Sessions, Task, apply};

/// Key manager of an endpoint's associations.
#[derive(Debug)]
pub struct KeyManager {
    sessions: Sessions,
    psk: Option<PresharedKey>,
}

impl KeyManager {
    /// Makes a key manager for the host whose key is in `keyring`. `psk` is mixed into the keys of all associations.
    pub fn new(keyring: Keyring, psk: Option<PresharedKey>) -> KeyManager {
        KeyManager { sessions: Sessions::new(keyring), psk }
    }

    /// Returns the host's public key.
    pub fn public(&self) -> PublicKey {
        self.sessions.public()
    }

    /// Returns the key that an association's peer has proven to hold.
    pub fn peer(&self, id: AssociationId) -> Option<PublicKey> {
        self.sessions.peer(id)
    }

    /// Begins the handshake of a new association. The caller has just called [`connect`](Endpoint::connect) with an offer of
    /// [`protection`](crate::protection).
    ///
    /// # Errors
    /// Returns an error if TLS cannot begin the handshake, or if the endpoint refuses the message.
    pub fn begin(
        &mut self,
        now: Time,
        id: AssociationId,
        endpoint: &mut Endpoint,
    ) -> Result<(), KeyingError> {
        let psk = self.psk.clone();
        self.perform(now, id, Task::Begin { psk }, endpoint)
    }

    /// Begins a handshake for new keys. Has no effect before the first keys exist or while a handshake is under way.
    ///
    /// # Errors
    /// Returns an error if TLS cannot begin the handshake, or if the endpoint refuses the message.
    pub fn renew(
        &mut self,
        now: Time,
        id: AssociationId,
        endpoint: &mut Endpoint,
    ) -> Result<(), KeyingError> {
        self.perform(now, id, Task::Renew, endpoint)
    }

    fn perform(
        &mut self,
        now: Time,
        id: AssociationId,
        task: Task,
        endpoint: &mut Endpoint,
    ) -> Result<(), KeyingError> {
        let steps = self.sessions.perform(now, id, task)?;
        match apply(now, id, Ok(steps), endpoint) {
            Some(Outcome::Failed(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Accepts the peer, and lets the application's messages pass in both directions.
    pub fn accept(&mut self, now: Time, id: AssociationId, endpoint: &mut Endpoint) {
        // The call fails only if the association has ended. The failure then needs no action.
        let _ = endpoint.know_peer(now, id);
    }

    /// Forgets the keys of an association that the caller removes before it handles [`Event::Closed`].
    pub fn forget(&mut self, now: Time, id: AssociationId) {
        // Forgetting cannot fail.
        let _ = self.sessions.perform(now, id, Task::Forget);
    }

    /// Handles an event of the endpoint, and returns news for the caller. The caller must also handle the event itself, unless the event is
    /// [`Event::KeyMessage`] or [`Event::KeysWorn`].
    pub fn on_event(
        &mut self,
        now: Time,
        id: AssociationId,
        event: &Event,
        endpoint: &mut Endpoint,
    ) -> Option<Outcome> {
        let task = Task::of_event(id, event, endpoint, || self.psk.clone())?;
        let outcome = self.sessions.perform(now, id, task);
        apply(now, id, outcome, endpoint)
    }
}
