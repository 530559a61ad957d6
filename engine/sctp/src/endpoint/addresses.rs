//! Commands about our addresses (RFC 5061).

use std::net::IpAddr;

use base::Time;

use super::{AssociationId, Endpoint};
use crate::config::AddressUse;
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

    /// Sets uses of our addresses: which of the paths that work carries our data, and how often the idle ones are probed. The peer does
    /// not hear of it ([`tell_local_use`](Self::tell_local_use)).
    ///
    /// # Errors
    /// See [`AddressError`]. `Unknown` names an address that no path has; the uses of the others are set.
    pub fn set_local_uses(
        &mut self,
        now: Time,
        id: AssociationId,
        uses: &[(IpAddr, AddressUse)],
    ) -> Result<(), AddressError> {
        let result = self.with(id, now, |a, _| a.set_local_uses(uses));
        result.unwrap_or(Err(AddressError::Closed))
    }

    /// Tells the peer the use of one of our addresses, unless it knows it; [`Event::AddressChange`](crate::Event::AddressChange) has its
    /// answer. Only for peers that are known to be of the same kind: Linux's SCTP ends an association at an ASCONF with a parameter that
    /// it does not know, whatever its type asks for.
    ///
    /// # Errors
    /// See [`AddressError`]; it can be called again at any time.
    pub fn tell_local_use(
        &mut self,
        now: Time,
        id: AssociationId,
        address: IpAddr,
    ) -> Result<(), AddressError> {
        let result = self.with(id, now, |a, ctx| a.tell_local_use(address, ctx));
        result.unwrap_or(Err(AddressError::Closed))
    }

    /// Tells the peer that this address of ours has taken the place of all others, none of which can be sent from any more:
    /// the host has moved. The request goes out from the new address, which therefore need not be known to the peer, and
    /// may be another one behind a NAT. [`Event::AddressChange`](crate::Event::AddressChange) follows; data waits until
    /// heartbeats have proved the new paths. Changes that were asked for before and not sent yet are forgotten.
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

    /// The link of one of our addresses went down or came up. Nothing is sent from an address whose link is down while another
    /// works, and what was in flight there is sent again elsewhere at once. The peer is not told. Once the link is up again
    /// heartbeats must be answered before data goes there.
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
