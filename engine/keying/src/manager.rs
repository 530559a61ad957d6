//! The handshakes of all associations of an endpoint, in the thread of the endpoint: [`Sessions`] whose steps are taken at once.
//!
//! Decides nothing about who may be a peer: [`Outcome::Peer`] asks the caller. Begin at [`KeyManager::begin`] and
//! [`KeyManager::on_event`].

use base::Time;
use sctp::{AssociationId, Endpoint, Event};

use crate::identity::PublicKey;
use crate::schedule::PresharedKey;
use crate::session::{KeyingError, Keyring};
use crate::sessions::{Outcome, Sessions, Task, apply};

/// The keys of an endpoint's associations.
#[derive(Debug)]
pub struct KeyManager {
    sessions: Sessions,
    psk: Option<PresharedKey>,
}

impl KeyManager {
    /// Manages the keys of one host; `psk` is mixed into all of them.
    pub fn new(keyring: Keyring, psk: Option<PresharedKey>) -> KeyManager {
        KeyManager { sessions: Sessions::new(keyring), psk }
    }

    /// The host's public key.
    pub fn public(&self) -> PublicKey {
        self.sessions.public()
    }

    /// The proven key of an association's peer.
    pub fn peer(&self, id: AssociationId) -> Option<PublicKey> {
        self.sessions.peer(id)
    }

    /// Begins the handshake of an association that [`connect`](Endpoint::connect) has just begun with an offer of
    /// [`protection`](crate::protection).
    ///
    /// # Errors
    /// If TLS refuses.
    pub fn begin(
        &mut self,
        now: Time,
        id: AssociationId,
        endpoint: &mut Endpoint,
    ) -> Result<(), KeyingError> {
        let psk = self.psk.clone();
        self.perform(now, id, Task::Begin { psk }, endpoint)
    }

    /// Begins to agree on new keys, where nothing is under way.
    ///
    /// # Errors
    /// If TLS refuses.
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

    /// Lets messages of the application pass: the caller takes the peer.
    pub fn accept(&mut self, now: Time, id: AssociationId, endpoint: &mut Endpoint) {
        // It fails only where the association is over.
        let _ = endpoint.know_peer(now, id);
    }

    /// Follows an event of the endpoint; the caller handles all events as well, except [`Event::KeyMessage`] and
    /// [`Event::KeysWorn`].
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
