//! Streams whose new messages wait until their numbers restart (RFC 6525 sections 5.1.2 and 5.1.4).
//!
//! Messages queued before a hold leave under the old numbers. Later messages wait, and get their numbers after the hold. An empty list of
//! streams means all streams, including streams that have not been used yet. Start at [`SendQueue::hold`].

use wire::{Mid, StreamId};

use super::{MessageId, SendQueue, Stream};

impl SendQueue {
    /// Holds all messages of these streams that are queued from now on.
    //= rfc6525#section-5.1.2
    //# A1: The sender MUST stop assigning new SSNs to new user data provided by the upper layer for the affected streams and
    //# queue it.
    //= rfc6525#5.1.2-1
    pub(crate) fn hold(&mut self, streams: &[StreamId]) {
        let from = MessageId(self.next_id);
        if streams.is_empty() {
            self.all_held = Some(from);
        }
        // A stream with queued messages stays active, because all of these messages precede the hold.
        for stream in self.named(streams) {
            self.stream_mut(stream).held = Some(from);
        }
    }

    /// Stops all messages, including queued ones. The caller must make sure that no message is partly sent.
    pub(crate) fn stop(&mut self) {
        debug_assert!(!self.has_begun());
        self.all_held = Some(MessageId(0));
        for id in self.named(&[]) {
            let Some(stream) = self.known_mut(id) else { continue };
            let (was_active, rank) = (stream.first_to_leave().is_some(), stream.rank);
            stream.held = Some(MessageId(0));
            if was_active {
                self.turns.deactivate(id, rank);
            }
        }
        self.note_head();
    }

    /// Reports whether a message is partly sent.
    pub(crate) fn has_begun(&self) -> bool {
        let fronts = self.streams.iter().flatten().filter_map(|s| s.messages.front());
        fronts.into_iter().any(|m| m.begun)
    }

    /// Reports whether all messages of these streams, except messages that wait for the end of a hold, have left.
    pub(crate) fn is_drained(&self, streams: &[StreamId]) -> bool {
        if streams.is_empty() {
            return self.turns.active() == 0;
        }
        streams.iter().all(|&s| self.stream(s).is_none_or(|s| s.first_to_leave().is_none()))
    }

    /// Reports whether no message of these streams has left since they were created or last restarted their numbers.
    pub(crate) fn is_fresh(&self, streams: &[StreamId]) -> bool {
        let untouched = |s: &Stream| s.next_ordered == Mid(0) && s.next_unordered == Mid(0);
        if streams.is_empty() {
            return self.streams.iter().flatten().all(|s| untouched(s));
        }
        streams.iter().all(|&s| self.stream(s).is_none_or(untouched))
    }

    /// Ends the hold. If `anew` is set, the streams number their messages from 0 again.
    pub(crate) fn release(&mut self, streams: &[StreamId], anew: bool) {
        if streams.is_empty() {
            self.all_held = None;
        }
        for id in self.named(streams) {
            let Some(stream) = self.known_mut(id) else { continue };
            let was_idle = stream.first_to_leave().is_none();
            stream.held = None;
            //= rfc8260#section-2.3.2
            //# the two counters (one for the ordered messages, one for the unordered messages) used for the MIDs MUST be reset
            //# to 0
            if anew {
                //= rfc8260#2.3.2-1
                (stream.next_ordered, stream.next_unordered) = (Mid(0), Mid(0));
            }
            if was_idle {
                self.activate(id);
            }
        }
        self.note_head();
    }

    /// Returns these streams, or all used streams if the list is empty.
    fn named(&self, streams: &[StreamId]) -> Vec<StreamId> {
        if !streams.is_empty() {
            return streams.to_vec();
        }
        let used = (0..=u16::MAX).zip(&self.streams).filter(|(_, s)| s.is_some());
        used.map(|(n, _)| StreamId(n)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wire::Ppid;

    const ONE: StreamId = StreamId(1);
    const TWO: StreamId = StreamId(2);

    fn put(q: &mut SendQueue, stream: StreamId, unordered: bool) {
        q.push(stream, Ppid(0), Bytes::from_static(b"abcd"), unordered, false);
    }

    /// Drains the queue, and returns stream and number of each fragment.
    fn leave(q: &mut SendQueue) -> Vec<(u16, u32)> {
        let all = std::iter::from_fn(|| {
            q.check_invariants();
            q.next_fragment(10)
        });
        all.map(|t| (t.fragment.stream.0, t.fragment.mid.0)).collect()
    }

    #[test]
    fn data_queued_before_a_hold_leaves_and_later_data_begins_anew() {
        let mut q = SendQueue::default();
        put(&mut q, ONE, false);
        put(&mut q, ONE, false);
        put(&mut q, ONE, true);
        q.hold(&[ONE]);
        put(&mut q, ONE, false);
        put(&mut q, ONE, true);
        put(&mut q, TWO, false);
        assert!(!q.is_drained(&[ONE]) && q.is_drained(&[StreamId(9)]));
        assert_eq!(leave(&mut q), [(1, 0), (1, 1), (1, 0), (2, 0)]);
        assert!(q.is_drained(&[ONE]) && q.is_empty() && q.bytes() == 8);
        q.release(&[ONE], true);
        put(&mut q, TWO, false);
        assert_eq!(leave(&mut q), [(1, 0), (1, 0), (2, 1)]);
    }

    #[test]
    fn a_hold_that_came_to_nothing_goes_on_with_the_old_numbers() {
        let mut q = SendQueue::default();
        put(&mut q, ONE, false);
        q.hold(&[ONE]);
        put(&mut q, ONE, false);
        leave(&mut q);
        q.release(&[ONE], false);
        assert_eq!(leave(&mut q), [(1, 1)]);
    }

    #[test]
    fn a_hold_of_all_streams_holds_those_that_are_used_for_the_first_time() {
        let mut q = SendQueue::default();
        put(&mut q, ONE, false);
        q.hold(&[]);
        put(&mut q, TWO, false);
        assert!(!q.is_drained(&[]));
        assert_eq!(leave(&mut q), [(1, 0)]);
        assert!(q.is_drained(&[]));
        q.release(&[], true);
        put(&mut q, StreamId(3), false);
        assert_eq!(leave(&mut q), [(2, 0), (3, 0)]);
    }

    #[test]
    fn stopped_data_leaves_once_it_is_released() {
        let mut q = SendQueue::default();
        put(&mut q, ONE, false);
        put(&mut q, TWO, false);
        q.stop();
        put(&mut q, ONE, false);
        assert_eq!(leave(&mut q), []);
        q.set_weight(ONE, 3);
        q.stop();
        q.check_invariants();
        q.release(&[], false);
        assert_eq!(leave(&mut q), [(1, 0), (2, 0), (1, 1)]);
    }

    #[test]
    fn a_message_cut_in_two_has_begun_until_its_end_has_left() {
        let mut q = SendQueue::default();
        put(&mut q, ONE, false);
        assert!(!q.has_begun() && q.is_fresh(&[ONE]));
        q.next_fragment(2);
        assert!(q.has_begun() && !q.is_fresh(&[ONE]) && !q.is_fresh(&[]) && q.is_fresh(&[TWO]));
        q.next_fragment(2);
        assert!(!q.has_begun());
    }
}
