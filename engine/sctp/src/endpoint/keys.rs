//! Commands about the keys of authentication (RFC 4895, RFC 6458 sections 8.1.18 and 8.3.3 to 8.3.5).

use base::Time;

use super::{AssociationId, Endpoint};
use crate::error::AuthKeyError;
use crate::extension::auth::{Auth, AuthConfig};

impl Endpoint {
    /// Reports whether the association is protected by a shared key that these settings have, too. Nobody without it can
    /// sign as the peer.
    pub fn is_keyed_by(&self, id: AssociationId, auth: &AuthConfig) -> bool {
        self.association(id).is_some_and(|association| association.transfer().is_keyed_by(auth))
    }

    /// Gives an association a shared key under a number, or replaces the one that has it. The peer must be given the
    /// same; it signs only after [`activate_auth_key`](Self::activate_auth_key).
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

    /// Signs with this key from now on, retransmissions included.
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

    /// Never signs with this key again; it still verifies.
    ///
    /// # Errors
    /// See [`AuthKeyError`]; the active key must stay.
    pub fn deactivate_auth_key(
        &mut self,
        now: Time,
        id: AssociationId,
        number: u16,
    ) -> Result<(), AuthKeyError> {
        self.with_auth(now, id, |auth| auth.deactivate_key(number))
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// See [`AuthKeyError`]; the active key must stay.
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
