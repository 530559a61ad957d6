//! The handshakes of all associations of an endpoint: follows its events, and carries out what the sessions ask for.
//!
//! Decides nothing about who may be a peer: [`Outcome::Peer`] asks the caller. Begin at [`KeyManager::begin`] and
//! [`KeyManager::on_event`].

use std::collections::BTreeMap;
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use sctp::{
    AbortCause, AssociationId, Endpoint, Event, FIRST_EPOCH, KeyRole, ProtectionConfig, ProtectionTerms,
};

use crate::identity::{Binding, PublicKey};
use crate::schedule::{METHOD, PresharedKey};
use crate::session::{KeyingError, Keyring, Session, Step};

/// The offer of protection by this method, for [`AssociationConfig::protection`](sctp::AssociationConfig::protection).
pub const fn protection(required: bool) -> ProtectionConfig {
    ProtectionConfig::new(METHOD, required)
}

/// News for a caller about an association's keys.
#[derive(Debug)]
pub enum Outcome {
    /// The peer has proven that it holds this key. [`KeyManager::accept`] lets messages pass; to refuse it, abort the association.
    Peer {
        /// Its key.
        key: PublicKey,
        /// Shows that both ends have had the same handshake.
        binding: Binding,
    },
    /// The handshake failed. The association was aborted.
    Failed(KeyingError),
}

/// The keys of an endpoint's associations.
#[derive(Debug)]
pub struct KeyManager {
    keyring: Keyring,
    psk: Option<PresharedKey>,
    sessions: BTreeMap<AssociationId, Session>,
    peers: BTreeMap<AssociationId, PublicKey>,
    renewals: BTreeMap<AssociationId, Renewals>,
}

/// How often a peer has asked for new keys.
#[derive(Debug)]
struct Renewals {
    since: Time,
    count: u32,
}

/// The most renewals that a peer may ask for in [`RENEWALS_PERIOD`]. A direction that seals a million packets a second needs ten.
pub(crate) const RENEWALS_MAX: u32 = 32;
const RENEWALS_PERIOD: Duration = Duration::from_secs(60);

impl KeyManager {
    /// Manages the keys of one host; `psk` is mixed into all of them.
    pub fn new(keyring: Keyring, psk: Option<PresharedKey>) -> KeyManager {
        KeyManager {
            keyring,
            psk,
            sessions: BTreeMap::new(),
            peers: BTreeMap::new(),
            renewals: BTreeMap::new(),
        }
    }

    /// The host's public key.
    pub fn public(&self) -> PublicKey {
        self.keyring.public()
    }

    /// The proven key of an association's peer.
    pub fn peer(&self, id: AssociationId) -> Option<PublicKey> {
        self.peers.get(&id).copied()
    }

    /// Begins the handshake of an association that [`connect`](Endpoint::connect) has just begun with an offer of
    /// [`protection`].
    ///
    /// # Errors
    /// If TLS refuses.
    pub fn begin(
        &mut self,
        now: Time,
        id: AssociationId,
        endpoint: &mut Endpoint,
    ) -> Result<(), KeyingError> {
        self.begin_epoch(now, id, FIRST_EPOCH, endpoint)
    }

    fn begin_epoch(
        &mut self,
        now: Time,
        id: AssociationId,
        epoch: u64,
        endpoint: &mut Endpoint,
    ) -> Result<(), KeyingError> {
        let (session, hello) = Session::client(&self.keyring, epoch, self.psk.clone(), self.peer(id))?;
        endpoint.send_key_message(now, id, hello)?;
        self.sessions.insert(id, session);
        Ok(())
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
        match endpoint.epoch(id) {
            Some(epoch) if !self.sessions.contains_key(&id) => self.begin_epoch(now, id, epoch + 1, endpoint),
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
        let outcome = match event {
            Event::KeyMessage { message, sealed } => self.on_message(now, id, (message, *sealed), endpoint),
            Event::KeysWorn => self.renew(now, id, endpoint).map(|()| None),
            // A peer without protection has not answered the hello.
            Event::Established { .. } if endpoint.protection(id).is_none() => {
                self.forget(id);
                Ok(None)
            }
            Event::Closed(_) => {
                self.forget(id);
                Ok(None)
            }
            _ => Ok(None),
        };
        outcome.unwrap_or_else(|error| {
            self.forget(id);
            endpoint.abort(now, id, AbortCause::user("no keys were agreed on"));
            Some(Outcome::Failed(error))
        })
    }

    fn forget(&mut self, id: AssociationId) {
        self.sessions.remove(&id);
        self.peers.remove(&id);
        self.renewals.remove(&id);
    }

    /// Counts a renewal that the peer asks for.
    fn count_renewal(&mut self, now: Time, id: AssociationId) -> Result<(), KeyingError> {
        let renewals = self.renewals.entry(id).or_insert(Renewals { since: now, count: 0 });
        if now - renewals.since > RENEWALS_PERIOD {
            *renewals = Renewals { since: now, count: 0 };
        }
        renewals.count += 1;
        if renewals.count > RENEWALS_MAX { Err(KeyingError::TooOften) } else { Ok(()) }
    }

    fn on_message(
        &mut self,
        now: Time,
        id: AssociationId,
        (message, sealed): (&Bytes, bool),
        endpoint: &mut Endpoint,
    ) -> Result<Option<Outcome>, KeyingError> {
        let terms = endpoint.protection(id).ok_or(KeyingError::Unexpected)?;
        let Some(mut session) = self.session_for(now, id, (message, &terms), endpoint)? else {
            return Ok(None);
        };
        let mut outcome = None;
        for step in session.on_message(message, sealed, &terms)? {
            match step {
                Step::Install { epoch, keys, from } => endpoint.install_keys(now, id, epoch, keys, from)?,
                Step::Send(message) => endpoint.send_key_message(now, id, message)?,
                // The same key as before needs no new decision.
                Step::Peer { key, binding } => {
                    let is_new = self.peers.insert(id, key).is_none();
                    outcome = is_new.then_some(Outcome::Peer { key, binding });
                }
            }
        }
        if !session.is_over() {
            self.sessions.insert(id, session);
        }
        Ok(outcome)
    }

    /// Takes out the session that a message is for, or begins one as the server; `None` if the message is to be ignored.
    fn session_for(
        &mut self,
        now: Time,
        id: AssociationId,
        (message, terms): (&[u8], &ProtectionTerms),
        endpoint: &Endpoint,
    ) -> Result<Option<Session>, KeyingError> {
        let epoch = endpoint.epoch(id).map_or(FIRST_EPOCH, |epoch| epoch + 1);
        let (is_hello, is_client) = (Session::is_hello(message), terms.role == KeyRole::Client);
        match self.sessions.remove(&id) {
            Some(own) if !is_hello || own.role() == KeyRole::Server => return Ok(Some(own)),
            None if !is_hello => return Err(KeyingError::Unexpected),
            // The first keys are the client's to begin.
            _ if is_client && epoch == FIRST_EPOCH => return Err(KeyingError::Unexpected),
            // Both ends have begun at once: the hello of the association's client goes on.
            Some(own) if is_client => {
                self.sessions.insert(id, own);
                return Ok(None);
            }
            _ if epoch > FIRST_EPOCH => self.count_renewal(now, id)?,
            _ => {}
        }
        Session::server(&self.keyring, epoch, self.psk.clone(), self.peer(id)).map(Some)
    }
}
