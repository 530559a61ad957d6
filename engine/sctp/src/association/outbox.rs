//! Output of an association: control chunks for the next packets, events for the driver, counters and the trace.
//!
//! The other modules queue their output here. They do not call the modules that write packets or report events. Start
//! at [`Outbox::queue`], [`Outbox::emit`] and [`Outbox::note`].

use std::collections::VecDeque;

use bytes::Bytes;

use crate::event::Event;
use crate::info::Counters;
use crate::memory::{heap, list};
use crate::path::{PathIndex, Retired};
use crate::trace::{Notes, TraceEvent};

/// A chunk queued for sending, other than DATA and SACK.
#[derive(Clone, Debug)]
pub(super) enum Control {
    CookieEcho,
    CookieAck,
    Heartbeat {
        nonce: u64,
    },
    /// A HEARTBEAT that asks about `path`, but is sent on another path.
    Voucher {
        path: PathIndex,
        nonce: u64,
    },
    /// A HEARTBEAT ACK with the value of the HEARTBEAT that it answers.
    HeartbeatAck(Bytes),
    /// A HEARTBEAT padded to an IP packet of `size` bytes.
    SizeProbe {
        nonce: u64,
        size: u16,
    },
    /// An ERROR chunk with these encoded causes.
    Error(Bytes),
    /// Our outstanding ASCONF request.
    Asconf,
    /// Our outstanding RE-CONFIG request.
    Reconfig,
    /// Encoded answers to RE-CONFIG requests.
    ReconfigAnswer(Bytes),
    Shutdown,
    ShutdownAck,
}

impl Control {
    /// Returns the heap bytes of this chunk.
    fn memory(&self) -> usize {
        match self {
            Control::HeartbeatAck(bytes) | Control::Error(bytes) | Control::ReconfigAnswer(bytes) => {
                heap(bytes.len())
            }
            Control::CookieEcho
            | Control::CookieAck
            | Control::Heartbeat { .. }
            | Control::Voucher { .. }
            | Control::SizeProbe { .. }
            | Control::Asconf
            | Control::Reconfig
            | Control::Shutdown
            | Control::ShutdownAck => 0,
        }
    }
}

/// The queue of control chunks, the queue of events, the counters and the trace.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    control: VecDeque<(PathIndex, Control)>,
    events: VecDeque<Event>,
    counters: Counters,
    notes: Notes,
}

impl Outbox {
    /// Queues a chunk for a packet on `path`, behind the chunks already queued.
    pub(super) fn queue(&mut self, path: PathIndex, chunk: Control) {
        self.control.push_back((path, chunk));
    }

    /// Queues a chunk ahead of all others.
    pub(super) fn queue_first(&mut self, path: PathIndex, chunk: Control) {
        self.control.push_front((path, chunk));
    }

    /// Queues a request. A queued request of the same kind is removed first, because only one request of each kind may
    /// wait.
    pub(super) fn queue_once(&mut self, path: PathIndex, chunk: Control) {
        self.withdraw(|c| std::mem::discriminant(c) == std::mem::discriminant(&chunk));
        self.queue(path, chunk);
    }

    /// Returns the next chunk and its path.
    #[inline]
    pub(super) fn next_chunk(&self) -> Option<(PathIndex, &Control)> {
        self.control.front().map(|(path, chunk)| (*path, chunk))
    }

    /// Removes the next chunk, after it was written, or because it can never be written.
    pub(super) fn drop_next_chunk(&mut self) {
        self.control.pop_front();
    }

    /// Returns all queued chunks with their paths, the next one first.
    #[inline]
    pub(super) fn chunks(&self) -> impl Iterator<Item = (PathIndex, &Control)> {
        self.control.iter().map(|(path, chunk)| (*path, chunk))
    }

    /// Counts the queued chunks for which `is_meant` holds.
    pub(super) fn count(&self, is_meant: impl Fn(&Control) -> bool) -> usize {
        self.control.iter().filter(|(_, chunk)| is_meant(chunk)).count()
    }

    /// Removes the queued chunks for which `is_meant` holds.
    pub(super) fn withdraw(&mut self, is_meant: impl Fn(&Control) -> bool) {
        self.control.retain(|(_, chunk)| !is_meant(chunk));
    }

    /// Removes the HEARTBEATs about retired paths, and moves all other chunks of retired paths to the current path.
    pub(super) fn leave_paths(&mut self, retired: &Retired) {
        self.control.retain(|(by, chunk)| match chunk {
            Control::Heartbeat { .. } | Control::SizeProbe { .. } => !retired.has(*by),
            Control::Voucher { path, .. } => !retired.has(*by) && !retired.has(*path),
            _ => true,
        });
        for (by, _) in self.control.iter_mut().filter(|(by, _)| retired.has(*by)) {
            *by = retired.current;
        }
    }

    /// Removes all queued chunks.
    pub(super) fn clear_chunks(&mut self) {
        self.control.clear();
    }

    /// Queues an event for the driver.
    pub(super) fn emit(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Returns the newest event that the driver has not taken yet. The caller may merge the next event into it.
    pub(super) fn newest_event(&mut self) -> Option<&mut Event> {
        self.events.back_mut()
    }

    #[inline]
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counts an event, and records it if tracing is on.
    #[inline]
    pub(super) fn note(&mut self, event: TraceEvent) {
        self.counters.count(&event);
        self.notes.push(event);
    }

    /// Records an uncounted event if tracing is on.
    #[inline]
    pub(super) fn trace(&mut self, event: impl FnOnce() -> TraceEvent) {
        if self.notes.is_on() {
            self.notes.push(event());
        }
    }

    /// Starts tracing.
    pub(super) fn begin_trace(&mut self) {
        self.notes.begin();
    }

    /// Stops tracing and returns the recorded events.
    pub(super) fn end_trace(&mut self) -> Vec<TraceEvent> {
        self.notes.end()
    }

    #[inline]
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts an accepted DATA chunk with `length` user bytes.
    pub(super) fn count_received(&mut self, length: usize) {
        self.counters.data_received += 1;
        self.counters.bytes_received += length as u64;
    }

    /// Counts a DATA chunk sent for the first time.
    #[inline]
    pub(super) fn count_sent(&mut self) {
        self.counters.data_sent += 1;
    }

    /// Counts user bytes that the peer has acknowledged.
    pub(super) fn count_acknowledged(&mut self, bytes: usize) {
        self.counters.bytes_acknowledged += bytes as u64;
    }

    /// Returns the number of DATA chunks in both directions, modulo 2^32.
    #[expect(clippy::cast_possible_truncation, reason = "only differences count")]
    pub(super) fn carried(&self) -> u32 {
        (self.counters.data_sent + self.counters.data_retransmitted + self.counters.data_received) as u32
    }

    /// Returns the heap bytes of the queues.
    pub(super) fn memory(&self) -> usize {
        let chunks: usize = self.control.iter().map(|(_, chunk)| chunk.memory()).sum();
        list::<(PathIndex, Control)>(self.control.capacity()) + chunks + list::<Event>(self.events.capacity())
    }

    /// Releases the unused memory of the queues.
    pub(super) fn shrink(&mut self) {
        self.control.shrink_to_fit();
        self.events.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PathIndex = PathIndex::new(1);
    const TWO: PathIndex = PathIndex::new(2);

    fn kinds(outbox: &Outbox) -> Vec<(usize, &'static str)> {
        let name = |chunk: &Control| match chunk {
            Control::Heartbeat { .. } => "heartbeat",
            Control::HeartbeatAck(_) => "answer",
            Control::Voucher { .. } => "voucher",
            Control::Asconf => "asconf",
            _ => "other",
        };
        outbox.chunks().map(|(path, chunk)| (path.get(), name(chunk))).collect()
    }

    #[test]
    fn a_request_queued_twice_waits_once_on_the_path_given_last() {
        let mut outbox = Outbox::default();
        outbox.queue_once(ONE, Control::Asconf);
        outbox.queue(ONE, Control::Heartbeat { nonce: 1 });
        outbox.queue_once(TWO, Control::Asconf);
        assert_eq!(kinds(&outbox), [(1, "heartbeat"), (2, "asconf")]);
    }

    #[test]
    fn when_a_path_is_removed_its_heartbeats_are_dropped_and_its_answers_move() {
        let mut outbox = Outbox::default();
        outbox.queue(ONE, Control::Heartbeat { nonce: 1 });
        outbox.queue(ONE, Control::HeartbeatAck(Bytes::from_static(b"value")));
        outbox.queue(TWO, Control::Voucher { path: ONE, nonce: 2 });
        outbox.queue(TWO, Control::Heartbeat { nonce: 3 });
        outbox.leave_paths(&Retired { paths: smallvec::smallvec![ONE], current: TWO });
        assert_eq!(kinds(&outbox), [(2, "answer"), (2, "heartbeat")]);
    }

    #[test]
    fn memory_counts_what_the_chunks_carry() {
        let mut outbox = Outbox::default();
        outbox.queue(ONE, Control::Asconf);
        let without = outbox.memory();
        outbox.queue(ONE, Control::Error(Bytes::from(vec![0; 1000])));
        assert!(outbox.memory() >= without + 1000);
    }
}
