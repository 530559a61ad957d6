//! Commands about single paths and about the fate of messages. RFC 6458 provides the same functions as socket options and
//! notifications. docs/socket-options.md has the complete list.

use std::net::IpAddr;
use std::num::NonZeroU16;

use base::Time;

use super::{AssociationId, Endpoint};
use crate::config::PathOptions;
use crate::error::PathOptionError;
use crate::event::Message;
use crate::extension::send_buffer::SendBufferConfig;

impl Endpoint {
    /// Sets options of all paths to one address of the peer. They override the options of the association
    /// (SCTP_PEER_ADDR_PARAMS, RFC 6458 section 8.1.12). [`PathInfo::options`](crate::PathInfo::options) shows them.
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

    /// Changes the advertisement of the send buffer to routers from now on
    /// ([`AssociationConfig::advertisement`](crate::AssociationConfig::advertisement)). The call is for drivers that learn
    /// from the INIT who the peer is. Packets whose chunks were already cut to the full MTU have no room for the
    /// advertisement, and are sent without it.
    pub fn set_advertisement(
        &mut self,
        now: Time,
        id: AssociationId,
        advertisement: Option<SendBufferConfig>,
    ) {
        self.with(id, now, |a, ctx| a.transfer_mut().set_advertisement(advertisement, ctx.now));
    }

    /// Changes the weight of the paths between two addresses under
    /// [`PathScheduler::Weighted`](crate::PathScheduler::Weighted). In contrast, [`PathOptions::weight`] sets the weight of
    /// all paths to an address of the peer. This method is for hosts with several uplinks to a peer that has only one
    /// address.
    ///
    /// # Errors
    /// See [`PathOptionError`]. `Unknown` names the one of the two addresses that no path has.
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

    /// Sends a heartbeat on all paths to one address of the peer now (SPP_HB_DEMAND, RFC 9260 section 11.1.10).
    /// [`Event::PathChanged`](crate::Event::PathChanged) follows if the state of a path changes.
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

    /// Makes one address of the peer the primary one (SCTP_PRIMARY_ADDR, RFC 6458 section 8.1.9). New data is sent to this
    /// address while its path is active. If the path of new data changes now,
    /// [`Event::PathSwitched`](crate::Event::PathSwitched) follows.
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

    /// Requests one [`Event::Dry`](crate::Event::Dry) for the time when all accepted messages are acknowledged or abandoned
    /// (SCTP_SENDER_DRY_EVENT, RFC 6458 section 6.1.9). If no message is waiting or unacknowledged, the event follows at
    /// once.
    pub fn notify_when_dry(&mut self, now: Time, id: AssociationId) {
        self.with(id, now, |a, _| a.transfer_mut().notify_when_dry());
    }

    /// Returns the next unsent message after [`Event::Closed`](crate::Event::Closed) (RFC 9260 section 11.1.14). No part of
    /// such a message was sent. The messages come in the order in which they would have left. Returns `None` after the last
    /// one, and before the association has ended.
    pub fn take_unsent(&mut self, now: Time, id: AssociationId) -> Option<Message> {
        self.with(id, now, |a, _| a.transfer_mut().take_unsent()).flatten()
    }
}
