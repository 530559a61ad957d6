//! Commands about streams: reset and added (RFC 6525).

use base::Time;
use wire::StreamId;

use super::{AssociationId, Endpoint};
use crate::error::ReconfigError;
use crate::extension::reconfig::{ReconfigPolicy, StreamDirection};

impl Endpoint {
    /// Has streams of one direction number their messages from 0 again; no streams means all. Messages handed over before
    /// leave under the old numbers, later ones wait until the peer has answered. [`Event::StreamReset`] follows.
    ///
    /// # Errors
    /// See [`ReconfigError`].
    ///
    /// [`Event::StreamReset`]: crate::Event::StreamReset
    pub fn reset_streams(
        &mut self,
        now: Time,
        id: AssociationId,
        direction: StreamDirection,
        streams: &[StreamId],
    ) -> Result<(), ReconfigError> {
        let result = self.with(id, now, |a, ctx| a.reset_streams(direction, streams, ctx.now));
        result.unwrap_or(Err(ReconfigError::NotNegotiated))
    }

    /// Has all streams of both directions, and the TSNs, begin anew, once everything handed over before is delivered.
    /// Later messages wait until the peer has answered. [`Event::AssociationReset`] follows.
    ///
    /// # Errors
    /// See [`ReconfigError`]; at most one such reset in 30 seconds.
    ///
    /// [`Event::AssociationReset`]: crate::Event::AssociationReset
    pub fn reset_association(&mut self, now: Time, id: AssociationId) -> Result<(), ReconfigError> {
        let result = self.with(id, now, |a, ctx| a.reset_association(ctx.now));
        result.unwrap_or(Err(ReconfigError::NotNegotiated))
    }

    /// Adds streams: `outgoing` ones to send on and `incoming` ones for the peer to send on. [`Event::StreamsChanged`]
    /// follows, once for each direction; new streams can be used from then on.
    ///
    /// # Errors
    /// See [`ReconfigError`].
    ///
    /// [`Event::StreamsChanged`]: crate::Event::StreamsChanged
    pub fn add_streams(
        &mut self,
        now: Time,
        id: AssociationId,
        outgoing: u16,
        incoming: u16,
    ) -> Result<(), ReconfigError> {
        let result = self.with(id, now, |a, ctx| a.add_streams(outgoing, incoming, ctx.now));
        result.unwrap_or(Err(ReconfigError::NotNegotiated))
    }

    /// Changes which requests of the peer about streams are fulfilled.
    pub fn set_reconfig_policy(&mut self, now: Time, id: AssociationId, policy: ReconfigPolicy) {
        self.with(id, now, |a, _| a.transfer_mut().set_reconfig_policy(policy));
    }
}
