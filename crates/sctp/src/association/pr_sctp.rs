//! Partial reliability: abandoning messages, and FORWARD TSN and I-FORWARD TSN in both directions (RFC 3758,
//! RFC 7496, RFC 8260 section 2.3).
//!
//! Start at [`Association::give_up`] for the sending side, at [`Association::on_forward_tsn`] for the
//! receiving side.

use std::collections::BTreeMap;

use base::Time;
use wire::{
    Chunk, ChunkType, ForwardTsn, ForwardTsnStream, IForwardTsn, IForwardTsnStream, List, Mid, PacketWriter,
    Ssn, StreamId, Tsn,
};

use super::{Association, Context};
use crate::event::{Event, Reliability};
use crate::extension::Extension;
use crate::extension::reconfig::Reconfig;
use crate::path::PathIndex;
use crate::rx::Skip;
use crate::trace::TraceEvent;
use crate::tx::{Fragment, Limit, MessageId, Seq};

/// Octets of a FORWARD TSN or I-FORWARD TSN before its list.
const FORWARD_HEADER_LEN: usize = 8;

impl Association {
    /// Returns the limit on sending a message, if any.
    pub(super) fn limit(&self, reliability: Reliability, now: Time) -> Option<Limit> {
        //= rfc3758#3.3.2-4
        if !self.extensions.has(Extension::PartialReliability) {
            return None;
        }
        match reliability {
            Reliability::Full => None,
            //= rfc3758#4.1-2 4.1-8
            Reliability::Lifetime(lifetime) => Some(Limit::Until(now + lifetime)),
            Reliability::Retransmissions(max) => Some(Limit::Retransmissions(max)),
            Reliability::Priority(priority) => Some(Limit::Priority(priority)),
        }
    }

    /// Abandons less important messages until `length` bytes fit into the send buffer.
    //= rfc7496#section-3.2
    //# When storing a user message in the send buffer while there is not enough available space, the SCTP stack at the sender
    //# side MAY abandon other user message(s) of the same SCTP association (with the same or a different stream) with a
    //# priority lower than the provided one.
    pub(super) fn make_room(&mut self, length: usize, limit: Option<Limit>, now: Time) {
        if self.takes(length) {
            return;
        }
        self.give_up_expired(now);
        let Some(Limit::Priority(priority)) = limit else { return };
        while !self.takes(length) {
            let Some(id) = self.pr_messages.least_important(priority) else { break };
            self.give_up(id, now);
        }
    }

    /// Abandons queued messages whose lifetime has expired.
    //= rfc3758#4.1-4
    pub(super) fn give_up_expired(&mut self, now: Time) {
        while let Some(id) = self.pr_messages.expired(now) {
            self.give_up(id, now);
        }
    }

    /// Abandons the messages of lost chunks at the front that must not be retransmitted.
    //= rfc3758#3.5-20 4.1-6
    pub(super) fn give_up_lost(&mut self, now: Time) {
        while let Some((seq, _, _)) = self.next_lost() {
            let Some(id) = self.pr_messages.exhausted(seq, now) else { break };
            self.give_up(id, now);
        }
    }

    /// Abandons a message: its chunks in flight and those queued.
    fn give_up(&mut self, id: MessageId, now: Time) {
        let Some(message) = self.pr_messages.take(id) else { return };
        //= rfc3758#section-3.5
        //# When a TSN is "abandoned", if it is part of a fragmented message, all other TSN's within that fragmented message MUST
        //# be abandoned at the same time.
        //= rfc3758#3.5-4
        message.chunks.iter().for_each(|seq| self.outstanding.abandon(*seq));
        let rest = if message.queued { self.queue.remove(message.stream, id) } else { None };
        if let Some(next) = rest.and_then(|rest| rest.next) {
            // The peer may have acknowledged everything sent: a TSN that was never sent makes it move on.
            let end = Fragment { end: true, ..next };
            let seq = self.outstanding.push(end, self.paths.current(), now);
            self.outstanding.abandon(seq);
        }
        self.report_abandoned(message.stream, message.begun);
        for index in self.paths.indices() {
            if self.outstanding.flight(index) == 0 {
                self.paths.get_mut(index).stop_data_timers();
            }
        }
        self.follow_forward(now);
        self.wake_writer();
        self.after_data_moved(now);
    }

    fn report_abandoned(&mut self, stream: StreamId, was_begun: bool) {
        self.note(TraceEvent::Abandoned { stream: stream.0, was_begun });
        let (now_unsent, now_sent) = (u64::from(!was_begun), u64::from(was_begun));
        if let Some(Event::Abandoned { unsent, sent }) = self.events.back_mut() {
            *unsent += now_unsent;
            *sent += now_sent;
        } else {
            self.events.push_back(Event::Abandoned { unsent: now_unsent, sent: now_sent });
        }
    }

    /// Advances the Advanced.Peer.Ack.Point and decides whether to inform the peer.
    pub(super) fn follow_forward(&mut self, now: Time) {
        let path = self.paths.get(self.paths.current());
        let round_trip = path.srtt().unwrap_or_else(|| path.rto());
        // If the peer has reset streams and its answer is under way, it would take old numbers for new ones.
        // Until then, or until all earlier data is acknowledged, nothing beyond the data sent before the
        // request is forwarded.
        let reset = self.reconfig.as_deref().and_then(Reconfig::outgoing_reset_end);
        let end = reset.and_then(|last_tsn| self.sequence_after(last_tsn));
        let end = end.filter(|end| *end > self.outstanding.first());
        self.forward.follow(&self.outstanding, end, now, round_trip);
    }

    /// Handles a SACK that has passed abandoned chunks: the peer is alive.
    pub(super) fn on_forward_answered(&mut self, now: Time) {
        self.errors = 0;
        let current = self.paths.current();
        let transition = self.paths.get_mut(current).on_success(now, &self.config.timing);
        self.report_transition(current, transition);
    }

    /// Treats a missing answer to a FORWARD TSN like expiry of T3-rtx on its path.
    pub(super) fn expire_forward(&mut self, now: Time) {
        if !self.forward.on_timeout(now) {
            return;
        }
        let index = self.paths.current();
        self.count_timeout(index);
        self.count_error_on(index);
        self.count_error();
    }

    /// Writes the FORWARD TSN or I-FORWARD TSN that is due.
    pub(super) fn fill_forward(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        //= rfc3758#3.5-8
        if !self.forward.is_due() || path != self.paths.current() {
            return;
        }
        let interleaved = self.extensions.has(Extension::Interleaving);
        //= rfc8260#2.3.1-1
        let kind = if interleaved { ChunkType::I_FORWARD_TSN } else { ChunkType::FORWARD_TSN };
        let room = packet.remaining_for(kind).saturating_sub(FORWARD_HEADER_LEN);
        let (point, streams) = self.skipped_streams(room / if interleaved { 8 } else { 4 });
        //= rfc3758#3.5-15
        if point == self.outstanding.first() {
            return;
        }
        let new_cumulative_tsn = point.tsn(self.initial_tsn).prev();
        let pushed = if interleaved {
            let streams: Vec<_> = streams
                .iter()
                .map(|(&(stream, unordered), &mid)| IForwardTsnStream { stream, unordered, mid })
                .collect();
            let streams = List::from(&streams[..]);
            packet.push(&Chunk::IForwardTsn(IForwardTsn { new_cumulative_tsn, streams }))
        } else {
            let streams: Vec<_> = streams
                .iter()
                .map(|(&(stream, _), mid)| ForwardTsnStream { stream, ssn: ssn(*mid) })
                .collect();
            let streams = List::from(&streams[..]);
            packet.push(&Chunk::ForwardTsn(ForwardTsn { new_cumulative_tsn, streams }))
        };
        if pushed.is_ok() {
            self.note(TraceEvent::ForwardSent { tsn: new_cumulative_tsn.0 });
            self.forward.on_sent(now, self.paths.get(path).rto());
        }
    }

    /// Returns the last abandoned message of each stream and kind, at most `max` of them, and the sequence up
    /// to which the list is complete.
    //= rfc3758#section-3.5
    //# For each "abandoned" TSN, the sender of the FORWARD TSN MUST determine if the chunk has a valid stream and sequence
    //# number (i.e., it was ordered). [...] If the total size of the FORWARD TSN does NOT fit in a single MTU, then the sender of
    //# the FORWARD TSN SHOULD lower the Advanced.Peer.Ack.Point to the last TSN that will fit in a single MTU.
    //= rfc3758#3.5-12
    fn skipped_streams(&self, max: usize) -> (Seq, BTreeMap<(StreamId, bool), Mid>) {
        let interleaved = self.extensions.has(Extension::Interleaving);
        let mut streams = BTreeMap::new();
        let mut point = self.outstanding.first();
        for fragment in self.outstanding.fragments() {
            let key = (fragment.stream, fragment.unordered);
            //= rfc3758#3.2-3 3.5-10 3.5-11
            let is_old = self.forward.has_old_number(fragment.stream, point);
            let listed = (interleaved || !fragment.unordered) && !is_old;
            if point >= self.forward.advanced()
                || (listed && !streams.contains_key(&key) && streams.len() >= max)
            {
                break;
            }
            if listed {
                streams.insert(key, fragment.mid);
            }
            point = point.next();
        }
        (point, streams)
    }

    /// Handles a negotiated FORWARD TSN.
    pub(super) fn on_forward_tsn(&mut self, chunk: &ForwardTsn<'_>, ctx: &mut Context<'_>) {
        let skips =
            chunk.streams.iter().map(|s| Skip { stream: s.stream, unordered: false, number: s.ssn.0.into() });
        self.on_forward(chunk.new_cumulative_tsn, skips, ctx);
    }

    /// Handles a negotiated I-FORWARD TSN.
    pub(super) fn on_i_forward_tsn(&mut self, chunk: &IForwardTsn<'_>, ctx: &mut Context<'_>) {
        let skips =
            chunk.streams.iter().map(|s| Skip { stream: s.stream, unordered: s.unordered, number: s.mid.0 });
        self.on_forward(chunk.new_cumulative_tsn, skips, ctx);
    }

    fn on_forward(&mut self, tsn: Tsn, skips: impl Iterator<Item = Skip>, ctx: &mut Context<'_>) {
        if !self.state.receives_data() {
            return;
        }
        let resets = self.extensions.has(Extension::StreamReconfiguration);
        if resets && self.inbound.is_from_before_reset(tsn) {
            return;
        }
        let had_ready = self.inbound.has_ready();
        let streams = self.inbound_streams;
        let skips = skips.filter(|s| s.stream.0 < streams);
        if self.inbound.on_forward(tsn, skips, ctx.now, &self.config.timing) {
            self.note(TraceEvent::ForwardReceived { tsn: tsn.0 });
        }
        self.note_readable(had_ready);
    }
}

/// The SSN of an ordered message.
#[expect(clippy::cast_possible_truncation, reason = "the SSN is the number modulo 2^16")]
fn ssn(mid: Mid) -> Ssn {
    Ssn(mid.0 as u16)
}
