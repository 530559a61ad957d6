//! Commands about our addresses (RFC 5061).

use std::net::IpAddr;

use base::Time;

use super::{AssociationId, Endpoint};
use crate::config::AddressUse;
use crate::error::AddressError;
use crate::extension::asconf::AddressChange;

impl Endpoint {
    /// Adds one of our addresses to an association. [`Event::AddressChange`](crate::Event::AddressChange) follows. The new
    /// paths may carry data once heartbeats have confirmed them.
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

    /// Removes one of our addresses from an association: nothing is sent from it any more.
    /// [`Event::AddressChange`](crate::Event::AddressChange) follows.
    ///
    /// # Errors
    /// See [`AddressError`]. The last address with a confirmed path cannot be removed.
    pub fn remove_local_address(
        &mut self,
        now: Time,
        id: AssociationId,
        address: IpAddr,
    ) -> Result<(), AddressError> {
        self.change_address(now, id, AddressChange::Remove(address))
    }

    /// Asks the peer to send to `address`, which is one of our addresses, if the peer can.
    /// [`Event::AddressChange`](crate::Event::AddressChange) follows.
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

    /// Sets uses of our addresses. They determine which of the working paths carries our data, and how often idle paths are
    /// probed. The peer is not informed; see [`tell_local_use`](Self::tell_local_use).
    ///
    /// # Errors
    /// See [`AddressError`]. `Unknown` names an address that no path has. The uses of the other addresses are set nevertheless.
    pub fn set_local_uses(
        &mut self,
        now: Time,
        id: AssociationId,
        uses: &[(IpAddr, AddressUse)],
    ) -> Result<(), AddressError> {
        let result = self.with(id, now, |a, _| a.set_local_uses(uses));
        result.unwrap_or(Err(AddressError::Closed))
    }

    /// Informs the peer of the use of one of our addresses, unless the peer already knows the use.
    /// [`Event::AddressChange`](crate::Event::AddressChange) reports the peer's answer. The call is only for peers that are
    /// known to use this engine. Linux's SCTP ends an association if an ASCONF has an unknown parameter, even if the type of
    /// the parameter asks to skip it.
    ///
    /// # Errors
    /// See [`AddressError`]. After an error, the call can be repeated at any time.
    pub fn tell_local_use(
        &mut self,
        now: Time,
        id: AssociationId,
        address: IpAddr,
    ) -> Result<(), AddressError> {
        let result = self.with(id, now, |a, ctx| a.tell_local_use(address, ctx));
        result.unwrap_or(Err(AddressError::Closed))
    }

    /// Tells the peer that the host has moved: this address replaces all others, and nothing can be sent from the others any
    /// more. The request leaves from the new address. The peer need not know that address, and a NAT may translate it.
    /// [`Event::AddressChange`](crate::Event::AddressChange) follows. Data waits until heartbeats have confirmed the new paths.
    /// Earlier changes that have not been sent yet are dropped.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn move_to_local_address(
        &mut self,
        now: Time,
        id: AssociationId,
        address: IpAddr,
    ) -> Result<(), AddressError> {
        self.change_address(now, id, AddressChange::MoveTo(address))
    }

    /// Informs the association that the link of one of our addresses went down or came up. While the link is down and another
    /// address works, nothing is sent from the address. Data that was in flight from it is recovered at once over another path.
    /// The peer is not informed. After the link has returned, heartbeats must be answered before data uses the address.
    pub fn set_local_link(&mut self, now: Time, id: AssociationId, address: IpAddr, is_up: bool) {
        self.with(id, now, |a, ctx| a.on_local_link(address, is_up, ctx));
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
