//! Commands that reset and add streams (RFC 6525). Begin at [`Endpoint::reset_streams`].

use base::Time;
use wire::StreamId;

use super::{AssociationId, Endpoint};
use crate::error::ReconfigError;
use crate::extension::reconfig::{ReconfigPolicy, StreamDirection};

impl Endpoint {
    /// Resets streams of one direction: their stream sequence numbers restart at 0. An empty list means all streams.
    /// Messages submitted before the call keep their sequence numbers. Later messages wait until the peer has
    /// answered. [`Event::StreamReset`] follows.
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

    /// Resets all streams of both directions, and the TSNs, after all messages submitted before the call have been
    /// delivered. Later messages wait until the peer has answered. [`Event::AssociationReset`] follows.
    ///
    /// # Errors
    /// See [`ReconfigError`]. [`ReconfigError::TooSoon`] means that the last such request was less than 30 seconds
    /// ago.
    ///
    /// [`Event::AssociationReset`]: crate::Event::AssociationReset
    pub fn reset_association(&mut self, now: Time, id: AssociationId) -> Result<(), ReconfigError> {
        let result = self.with(id, now, |a, ctx| a.reset_association(ctx.now));
        result.unwrap_or(Err(ReconfigError::NotNegotiated))
    }

    /// Adds `outgoing` streams on which this end sends, and `incoming` streams on which the peer sends.
    /// [`Event::StreamsChanged`] follows once for each direction. The new streams of a direction can be used after
    /// its event.
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

    /// Sets which of the peer's stream reconfiguration requests are fulfilled.
    pub fn set_reconfig_policy(&mut self, now: Time, id: AssociationId, policy: ReconfigPolicy) {
        self.with(id, now, |a, _| a.transfer_mut().set_reconfig_policy(policy));
    }
}
