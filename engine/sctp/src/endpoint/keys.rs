//! Commands about the keys of authentication (RFC 4895, RFC 6458 sections 8.1.18 and 8.3.3 to 8.3.5).

use base::Time;

use super::{AssociationId, Endpoint};
use crate::error::AuthKeyError;
use crate::extension::auth::{Auth, AuthConfig};

impl Endpoint {
    /// Reports whether the association is protected by a shared key that these settings also contain. No sender without
    /// this key can sign as the peer.
    pub fn is_keyed_by(&self, id: AssociationId, auth: &AuthConfig) -> bool {
        self.association(id).is_some_and(|association| association.transfer().is_keyed_by(auth))
    }

    /// Sets a shared key of an association under a number, or replaces the key with the same number. The peer must get
    /// the same key. The key signs packets only after [`activate_auth_key`](Self::activate_auth_key).
    ///
    /// # Errors
    /// See [`AuthKeyError`].
    pub fn set_auth_key(
        &mut self,
        now: Time,
        id: AssociationId,
        number: u16,
        key: &[u8],
    ) -> Result<(), AuthKeyError> {
        self.with_auth(now, id, |auth| auth.set_key(number, key))
    }

    /// Signs packets with this key from now on. Retransmissions are also signed with this key.
    ///
    /// # Errors
    /// See [`AuthKeyError`].
    pub fn activate_auth_key(
        &mut self,
        now: Time,
        id: AssociationId,
        number: u16,
    ) -> Result<(), AuthKeyError> {
        self.with_auth(now, id, |auth| auth.activate_key(number))
    }

    /// Excludes a key from signing. The key still verifies the peer's packets.
    ///
    /// # Errors
    /// See [`AuthKeyError`]. The active key cannot be deactivated.
    pub fn deactivate_auth_key(
        &mut self,
        now: Time,
        id: AssociationId,
        number: u16,
    ) -> Result<(), AuthKeyError> {
        self.with_auth(now, id, |auth| auth.deactivate_key(number))
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// See [`AuthKeyError`]. The active key cannot be deleted.
    pub fn delete_auth_key(&mut self, now: Time, id: AssociationId, number: u16) -> Result<(), AuthKeyError> {
        self.with_auth(now, id, |auth| auth.delete_key(number))
    }

    fn with_auth(
        &mut self,
        now: Time,
        id: AssociationId,
        work: impl FnOnce(&mut Auth) -> Result<(), AuthKeyError>,
    ) -> Result<(), AuthKeyError> {
        let result = self.with(id, now, |a, _| a.auth_mut().and_then(work));
        result.unwrap_or(Err(AuthKeyError::NotNegotiated))
    }
}
