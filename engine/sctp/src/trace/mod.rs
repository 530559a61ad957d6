//! Trace of the engine: its actions and their causes, record by record.
//!
//! Tracing is off until [`Endpoint::set_tracing`](crate::Endpoint::set_tracing). Then [`Endpoint::poll_trace`](crate::Endpoint::poll_trace)
//! returns the records. One function, `Outbox::note`, both counts and records an event of an association. So the trace and
//! [`Counters`](crate::Counters) agree on these events. Packets and user bytes are counted elsewhere. Contents of messages and keys are
//! never recorded.
//!
//! Invariant: [`Limits::trace_records`](crate::Limits::trace_records) bounds the records that wait to be polled. At the limit, the oldest
//! records are dropped, and their number is counted.

mod event;

use std::collections::VecDeque;

use base::Time;

use crate::endpoint::AssociationId;
pub use event::{DropReason, TraceEvent};

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct TraceRecord {
    /// Time of the event.
    pub at: Time,
    /// The association concerned, if any.
    pub association: Option<AssociationId>,
    /// The event.
    pub event: TraceEvent,
}

/// Events of one association during one step; `None` unless tracing is on.
#[derive(Debug, Default)]
pub(crate) struct Notes(Option<Vec<TraceEvent>>);

impl Notes {
    pub(crate) fn begin(&mut self) {
        self.0 = Some(Vec::new());
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    pub(crate) fn push(&mut self, event: TraceEvent) {
        if let Some(notes) = &mut self.0 {
            notes.push(event);
        }
    }

    /// Returns the events, oldest first, and stops recording.
    pub(crate) fn end(&mut self) -> Vec<TraceEvent> {
        self.0.take().unwrap_or_default()
    }
}

/// The records of an endpoint that wait to be polled.
#[derive(Debug)]
pub(crate) struct Trace {
    is_on: bool,
    limit: usize,
    records: VecDeque<TraceRecord>,
    lost: u64,
}

impl Trace {
    pub(crate) fn new(limit: usize) -> Trace {
        Trace { is_on: false, limit, records: VecDeque::new(), lost: 0 }
    }

    pub(crate) fn set(&mut self, on: bool) {
        self.is_on = on;
        if !on {
            self.records = VecDeque::new();
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(crate) fn push(&mut self, record: TraceRecord) {
        if self.records.len() >= self.limit {
            self.records.pop_front();
            self.lost += 1;
        }
        self.records.push_back(record);
    }

    pub(crate) fn pop(&mut self) -> Option<TraceRecord> {
        self.records.pop_front()
    }

    /// Returns the number of records dropped before they were polled.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}
