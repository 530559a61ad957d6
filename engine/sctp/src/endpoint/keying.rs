//! Commands about the protection of packets by DTLS chunks (draft-ietf-tsvwg-sctp-dtls-chunk section 7).

use base::Time;
use bytes::Bytes;

use super::slots::Slot;
use super::{AssociationId, Endpoint};
use crate::association::{Association, Context};
use crate::error::KeyError;
use crate::extension::protection::{ProtectionTerms, RecordKeys, SealFrom};

impl Endpoint {
    /// Returns the agreement on protection; `None` before INIT ACK, and where there is none.
    pub fn protection(&self, id: AssociationId) -> Option<ProtectionTerms> {
        self.association(id)?.protection_terms().copied()
    }

    /// Returns the epoch of the keys that packets of this association are sealed with.
    pub fn epoch(&self, id: AssociationId) -> Option<u64> {
        self.association(id)?.epoch()
    }

    /// Sends a message about keys on stream 0. It may be sent before the association is accepted, and in the clear before there are keys.
    /// One that is given before the INIT ACK has come goes with the COOKIE ECHO, so that it takes no round trip of its own, and only
    /// to a peer that agrees on [protection](crate::AssociationConfig::protection).
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn send_key_message(&mut self, now: Time, id: AssociationId, message: Bytes) -> Result<(), KeyError> {
        if let Some(Slot::Opening(opening)) = self.slots.get_mut(id) {
            return opening.set_key_message(message);
        }
        self.with_keys(now, id, |association, _| association.send_key_message(message))
    }

    /// Installs the keys of an epoch: [3](crate::FIRST_EPOCH), and each time one more. They open the peer's packets at once; those of
    /// the epoch before do so for another 30 s. With the first keys unsealed packets cease to count: at once with [`SealFrom::Now`],
    /// and with the first packet that they open otherwise.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn install_keys(
        &mut self,
        now: Time,
        id: AssociationId,
        epoch: u64,
        keys: RecordKeys,
        from: SealFrom,
    ) -> Result<(), KeyError> {
        self.with_keys(now, id, |association, ctx| association.install_keys(epoch, keys, from, ctx))
    }

    /// Lets messages of the application pass, both ways, as soon as packets are sealed:
    /// [`Event::Protected`](crate::Event::Protected) follows. The caller has verified who the peer is, or does not ask.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn know_peer(&mut self, now: Time, id: AssociationId) -> Result<(), KeyError> {
        self.with_keys(now, id, Association::know_peer)
    }

    fn with_keys(
        &mut self,
        now: Time,
        id: AssociationId,
        step: impl FnOnce(&mut Association, &mut Context<'_>) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        let now = self.not_back(now);
        let was_open = self.is_open(id);
        let stepped = self.with(id, now, step).unwrap_or(Err(KeyError::NotAgreed));
        self.on_keys(id, was_open);
        stepped
    }

    /// Returns whether messages of the application pass in a protected association that the peer has begun.
    pub(super) fn is_open(&self, id: AssociationId) -> bool {
        self.association(id).is_some_and(Association::is_open_to_client)
    }

    /// Does not charge a client that has agreed on keys for its INIT.
    pub(super) fn on_keys(&mut self, id: AssociationId, was_open: bool) {
        if !was_open
            && self.is_open(id)
            && let Some(client) = self.association(id).map(Association::first_remote)
        {
            self.inits.give_back(client);
        }
    }
}
