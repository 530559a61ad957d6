//! Trace records for drivers that request them: see [`crate::TraceEvent`].

use base::Route;

use super::slots::Slot;
use super::{AssociationId, Endpoint};
use crate::info::StateName;
use crate::trace::{DropReason, TraceEvent, TraceRecord};

impl Endpoint {
    /// Starts or stops the trace. When it stops, records that were not polled are discarded.
    pub fn set_tracing(&mut self, on: bool) {
        self.trace.set(on);
    }

    /// Returns the next trace record, in order. Records should be polled as often as events: see
    /// [`Limits::trace_records`](crate::Limits::trace_records).
    pub fn poll_trace(&mut self) -> Option<TraceRecord> {
        self.trace.pop()
    }

    /// Counts and traces a dropped packet or a refused request.
    pub(super) fn on_dropped(&mut self, route: &Route, reason: DropReason) {
        self.counters.count(reason);
        self.record(None, TraceEvent::Dropped { route: *route, reason });
    }

    /// Traces the beginning of an association.
    pub(super) fn record_start(&mut self, id: AssociationId) {
        let Some(association) = self.association(id).filter(|_| self.trace.is_on()) else { return };
        let ((local_port, remote_port), (local, peer)) = (association.ports(), association.tags());
        let state = association.state_name();
        let (local_tag, peer_tag) = (local.0, peer.0);
        self.record(Some(id), TraceEvent::Begun { local_port, remote_port, local_tag, peer_tag, state });
    }

    /// Collects the trace of an association, and records its change of state, if any.
    pub(super) fn take_notes(&mut self, id: AssociationId, from: StateName) {
        let Some(Slot::Association(association)) = self.slots.get_mut(id) else { return };
        let to = association.state_name();
        let changed = (from != to).then_some(TraceEvent::State { from, to });
        for event in association.end_notes().into_iter().chain(changed) {
            self.trace.push(TraceRecord { at: self.latest, association: Some(id), event });
        }
    }

    pub(super) fn record(&mut self, association: Option<AssociationId>, event: TraceEvent) {
        if self.trace.is_on() {
            self.trace.push(TraceRecord { at: self.latest, association, event });
        }
    }
}
