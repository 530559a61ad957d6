//! Commands about our addresses (RFC 5061).

use std::net::IpAddr;

use base::Time;

use super::{AssociationId, Endpoint};
use crate::error::AddressError;
use crate::extension::asconf::AddressChange;

impl Endpoint {
    /// Adds one of our addresses to an association. [`Event::AddressChange`](crate::Event::AddressChange) follows; once a
    /// heartbeat has proved them, the new paths may carry data.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn add_local_address(
        &mut self,
        now: Time,
        id: AssociationId,
        address: IpAddr,
    ) -> Result<(), AddressError> {
        self.change_address(now, id, AddressChange::Add(address))
    }

    /// Takes one of our addresses out of an association: nothing is sent from it any more.
    /// [`Event::AddressChange`](crate::Event::AddressChange) follows.
    ///
    /// # Errors
    /// See [`AddressError`]; an address without which no confirmed path is left must stay.
    pub fn remove_local_address(
        &mut self,
        now: Time,
        id: AssociationId,
        address: IpAddr,
    ) -> Result<(), AddressError> {
        self.change_address(now, id, AddressChange::Remove(address))
    }

    /// Asks the peer to send to this address of ours if it can. [`Event::AddressChange`](crate::Event::AddressChange)
    /// follows.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn set_peer_primary(
        &mut self,
        now: Time,
        id: AssociationId,
        address: IpAddr,
    ) -> Result<(), AddressError> {
        self.change_address(now, id, AddressChange::SetPrimary(address))
    }

    fn change_address(
        &mut self,
        now: Time,
        id: AssociationId,
        change: AddressChange,
    ) -> Result<(), AddressError> {
        let result = self.with(id, now, |a, ctx| a.change_address(change, ctx));
        result.unwrap_or(Err(AddressError::NotNegotiated))
    }
}
