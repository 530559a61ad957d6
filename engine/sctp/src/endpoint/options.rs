//! Commands about single paths, and about what became of messages: what RFC 6458 does by socket options and
//! notifications. docs/socket-options.md has the whole list.

use std::net::IpAddr;
use std::num::NonZeroU16;

use base::Time;

use super::{AssociationId, Endpoint};
use crate::config::PathOptions;
use crate::error::PathOptionError;
use crate::event::Message;
use crate::extension::send_buffer::SendBufferConfig;

impl Endpoint {
    /// Gives the paths to one address of the peer settings of their own (SCTP_PEER_ADDR_PARAMS, RFC 6458 section 8.1.12);
    /// [`PathInfo::options`](crate::PathInfo::options) has them.
    ///
    /// # Errors
    /// See [`PathOptionError`].
    pub fn set_path_options(
        &mut self,
        now: Time,
        id: AssociationId,
        remote: IpAddr,
        options: PathOptions,
    ) -> Result<(), PathOptionError> {
        let set = self.with(id, now, |a, ctx| a.transfer_mut().set_path_options(remote, options, ctx));
        set.unwrap_or(Err(PathOptionError::Closed))
    }

    /// Changes what packets tell routers of the send buffer from now on
    /// ([`AssociationConfig::advertisement`](crate::AssociationConfig::advertisement)): for drivers that learn who the peer is
    /// from its INIT. Chunks that are cut already may leave no room for it, and go without.
    pub fn set_advertisement(
        &mut self,
        now: Time,
        id: AssociationId,
        advertisement: Option<SendBufferConfig>,
    ) {
        self.with(id, now, |a, ctx| a.transfer_mut().set_advertisement(advertisement, ctx.now));
    }

    /// Changes the part of new data that goes between two addresses under
    /// [`PathScheduler::Weighted`](crate::PathScheduler::Weighted), as [`PathOptions::weight`] does for all paths to an address
    /// of the peer: for hosts whose uplinks differ while the peer has one address.
    ///
    /// # Errors
    /// See [`PathOptionError`]; `Unknown` names the address that no path has.
    pub fn set_path_weight(
        &mut self,
        now: Time,
        id: AssociationId,
        local: IpAddr,
        remote: IpAddr,
        weight: NonZeroU16,
    ) -> Result<(), PathOptionError> {
        let set = self.with(id, now, |a, _| a.transfer_mut().set_path_weight(local, remote, weight));
        set.unwrap_or(Err(PathOptionError::Closed))
    }

    /// Sends a heartbeat to one address of the peer now (SPP_HB_DEMAND, RFC 9260 section 11.1.10).
    /// [`Event::PathChanged`](crate::Event::PathChanged) follows if it changes what is known of the path.
    ///
    /// # Errors
    /// See [`PathOptionError`].
    pub fn request_heartbeat(
        &mut self,
        now: Time,
        id: AssociationId,
        remote: IpAddr,
    ) -> Result<(), PathOptionError> {
        let asked = self.with(id, now, |a, ctx| a.transfer_mut().request_heartbeat(remote, ctx));
        asked.unwrap_or(Err(PathOptionError::Closed))
    }

    /// Makes one address of the peer the primary one (SCTP_PRIMARY_ADDR, RFC 6458 section 8.1.9): new data goes there
    /// while its path is active. [`Event::PathSwitched`](crate::Event::PathSwitched) follows if it goes elsewhere now.
    ///
    /// # Errors
    /// See [`PathOptionError`].
    pub fn set_primary(
        &mut self,
        now: Time,
        id: AssociationId,
        remote: IpAddr,
    ) -> Result<(), PathOptionError> {
        self.with(id, now, |a, _| a.transfer_mut().prefer(remote)).unwrap_or(Err(PathOptionError::Closed))
    }

    /// Asks for one [`Event::Dry`](crate::Event::Dry), at once or when all that was handed over is acknowledged or given
    /// up (SCTP_SENDER_DRY_EVENT, RFC 6458 section 6.1.9).
    pub fn notify_when_dry(&mut self, now: Time, id: AssociationId) {
        self.with(id, now, |a, _| a.transfer_mut().notify_when_dry());
    }

    /// After [`Event::Closed`](crate::Event::Closed): the next message of which nothing was sent (RFC 9260 section
    /// 11.1.14), in the order in which they would have left; `None` when there is no further one, and before the end.
    pub fn take_unsent(&mut self, now: Time, id: AssociationId) -> Option<Message> {
        self.with(id, now, |a, _| a.transfer_mut().take_unsent()).flatten()
    }
}
