//! Commands about the protection of packets by DTLS chunks (draft-ietf-tsvwg-sctp-dtls-chunk section 7).

use base::Time;
use bytes::Bytes;

use super::slots::Slot;
use super::{AssociationId, Endpoint};
use crate::association::{Association, Context};
use crate::error::KeyError;
use crate::extension::protection::{ProtectionTerms, RecordKeys, SealFrom};

impl Endpoint {
    /// Returns the agreement on protection. Returns `None` before INIT ACK, and if the ends have not agreed on protection.
    pub fn protection(&self, id: AssociationId) -> Option<ProtectionTerms> {
        self.association(id)?.protection_terms().copied()
    }

    /// Returns the epoch of the keys that seal the packets of this association.
    pub fn epoch(&self, id: AssociationId) -> Option<u64> {
        self.association(id)?.epoch()
    }

    /// Sends a message about keys on stream 0. The message may be sent before the association is accepted, and in the clear before keys
    /// exist. Before INIT ACK, one such message is kept for the COOKIE ECHO, which saves a round trip. The kept message is sent only if
    /// the peer agrees on [protection](crate::AssociationConfig::protection).
    ///
    /// # Errors
    /// See [`KeyError`]. A second message before INIT ACK is refused as [`KeyError::NotAgreed`].
    pub fn send_key_message(&mut self, now: Time, id: AssociationId, message: Bytes) -> Result<(), KeyError> {
        if let Some(Slot::Opening(opening)) = self.slots.get_mut(id) {
            return opening.set_key_message(message);
        }
        self.with_keys(now, id, |association, _| association.send_key_message(message))
    }

    /// Installs the keys of an epoch. The first epoch is [3](crate::FIRST_EPOCH), and each further epoch is higher by one. The keys
    /// open the peer's packets at once. The keys of the previous epoch expire 30 s after this end begins to seal with the new keys. The
    /// first epoch's keys end the acceptance of unsealed packets. With [`SealFrom::Now`], the acceptance ends at once; otherwise it
    /// ends with the first packet that these keys open.
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

    /// Permits messages of the application, in both directions, as soon as packets are sealed.
    /// [`Event::Protected`](crate::Event::Protected) follows. Before this call, the caller must have verified the identity of the peer,
    /// or must not require it.
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

    /// Reports whether messages of the application are permitted in a protected association that the peer has begun.
    pub(super) fn is_open(&self, id: AssociationId) -> bool {
        self.association(id).is_some_and(Association::is_open_to_client)
    }

    /// Refunds the token of a client's INIT once both ends have agreed on keys. `was_open` is the result of [`is_open`](Self::is_open)
    /// before the step that may have completed the agreement.
    pub(super) fn on_keys(&mut self, id: AssociationId, was_open: bool) {
        if !was_open
            && self.is_open(id)
            && let Some(client) = self.association(id).map(Association::first_remote)
        {
            self.inits.give_back(client);
        }
    }
}
