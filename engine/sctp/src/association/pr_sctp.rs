//! Partial reliability (RFC 3758, RFC 7496, RFC 8260 section 2.3): abandons messages, and handles FORWARD TSN and
//! I-FORWARD-TSN in both directions.
//!
//! Start at [`Association::give_up`] for the sending side, at [`Association::on_forward_tsn`] for the
//! receiving side.

use base::Time;
use wire::{
    Chunk, ChunkType, ForwardTsn, ForwardTsnStream, IForwardTsn, IForwardTsnStream, List, Mid, PacketWriter,
    Ssn, StreamId, Tsn,
};

use super::{Association, Context};
use crate::event::{Event, PathReason, Reliability};
use crate::extension::reconfig::Reconfig;
use crate::extension::{Extension, Extensions};
use crate::path::PathIndex;
use crate::rx::Skip;
use crate::trace::TraceEvent;
use crate::tx::{Fragment, Limit, MessageId};

/// Octets of a FORWARD TSN or I-FORWARD-TSN before its list.
const FORWARD_HEADER_LEN: usize = 8;

impl Association {
    /// Abandons expired messages if `length` bytes do not fit into the send buffer. If the new message has a priority,
    /// then also abandons messages of lower priority, until the bytes fit.
    //= rfc7496#section-3.2
    //# When storing a user message in the send buffer while there is not enough available space, the SCTP stack at the sender
    //# side MAY abandon other user message(s) of the same SCTP association (with the same or a different stream) with a
    //# priority lower than the provided one.
    pub(super) fn make_room(&mut self, length: usize, limit: Option<Limit>, now: Time) {
        if self.transfer.tx.takes(length) {
            return;
        }
        self.give_up_expired(now);
        let Some(Limit::Priority(priority)) = limit else { return };
        while !self.transfer.tx.takes(length) {
            let Some(id) = self.transfer.tx.pr_messages.least_important(priority) else { break };
            self.give_up(id, now);
        }
    }

    /// Abandons queued messages whose lifetime has expired.
    //= rfc3758#4.1-4
    pub(super) fn give_up_expired(&mut self, now: Time) {
        while let Some(id) = self.transfer.tx.pr_messages.expired(now) {
            self.give_up(id, now);
        }
    }

    /// Abandons the message of the next lost chunk if this chunk must not be retransmitted. Does the same for the lost
    /// chunks after this chunk, until one may be retransmitted.
    //= rfc3758#3.5-20 4.1-6
    pub(super) fn give_up_lost(&mut self, now: Time) {
        while let Some((seq, _, _)) = self.transfer.tx.next_lost() {
            let Some(id) = self.transfer.tx.pr_messages.exhausted(seq, now) else { break };
            self.give_up(id, now);
        }
    }

    /// Abandons a message: its chunks in flight and its queued rest.
    fn give_up(&mut self, id: MessageId, now: Time) {
        let Some(message) = self.transfer.tx.pr_messages.take(id) else { return };
        //= rfc3758#section-3.5
        //# When a TSN is "abandoned", if it is part of a fragmented message, all other TSN's within that fragmented message MUST
        //# be abandoned at the same time.
        //= rfc3758#3.5-4
        message.chunks.iter().for_each(|seq| self.transfer.tx.outstanding.abandon(*seq));
        let rest = if message.queued { self.transfer.tx.queue.remove(message.stream, id) } else { None };
        if let Some(next) = rest.and_then(|rest| rest.next) {
            // The peer may have acknowledged every chunk that was sent. A further TSN, which is never sent, lets the
            // peer skip the rest of the message.
            let end = Fragment { end: true, ..next };
            let seq = self.transfer.tx.outstanding.push(end, self.transfer.paths.current(), now);
            self.transfer.tx.outstanding.abandon(seq);
        }
        self.report_abandoned(message.stream, message.begun);
        for index in self.transfer.paths.indices() {
            if self.transfer.tx.outstanding.flight(index) == 0 {
                self.transfer.paths.get_mut(index).stop_data_timers();
            }
        }
        self.follow_forward(now);
        self.transfer.wake_writer();
        self.after_data_moved(now);
    }

    fn report_abandoned(&mut self, stream: StreamId, was_begun: bool) {
        self.transfer.out.note(TraceEvent::Abandoned { stream: stream.0, was_begun });
        let (now_unsent, now_sent) = (u64::from(!was_begun), u64::from(was_begun));
        if let Some(Event::Abandoned { unsent, sent }) = self.transfer.out.newest_event() {
            *unsent += now_unsent;
            *sent += now_sent;
        } else {
            self.transfer.out.emit(Event::Abandoned { unsent: now_unsent, sent: now_sent });
        }
    }

    /// Advances the Advanced.Peer.Ack.Point, and decides whether a FORWARD TSN is due.
    pub(super) fn follow_forward(&mut self, now: Time) {
        let path = self.transfer.paths.get(self.transfer.paths.current());
        let round_trip = path.srtt().unwrap_or_else(|| path.rto());
        // The peer may have performed our request to reset streams, although its answer has not arrived. The peer would
        // then take old stream sequence numbers in a FORWARD TSN for new numbers. Until the answer arrives, or all data
        // before the request is acknowledged, FORWARD TSN covers only data that was sent before the request.
        let reset = self.reconfig.as_deref().and_then(Reconfig::outgoing_reset_end);
        let end = reset.and_then(|last_tsn| self.transfer.sequence_after(last_tsn));
        let end = end.filter(|end| *end > self.transfer.tx.outstanding.first());
        self.transfer.tx.forward.follow(&self.transfer.tx.outstanding, end, now, round_trip);
    }

    /// Handles a SACK that moves past abandoned chunks, which proves that the peer is alive.
    pub(super) fn on_forward_answered(&mut self, now: Time) {
        self.transfer.liveness.on_answer();
        let current = self.transfer.paths.current();
        let transition = self.transfer.paths.get_mut(current).on_success(now, &self.transfer.config.timing);
        self.transfer.report_transition(current, transition, PathReason::Answer);
    }

    /// Treats a missing answer to a FORWARD TSN like expiry of T3-rtx on its path.
    pub(super) fn expire_forward(&mut self, now: Time) {
        if !self.transfer.tx.forward.on_timeout(now) {
            return;
        }
        let index = self.transfer.paths.current();
        self.transfer.count_timeout(index);
        self.transfer.count_error_on(index, PathReason::Timeout);
        self.transfer.count_error();
    }

    /// Writes a FORWARD TSN or I-FORWARD-TSN if it is due on `path`.
    pub(super) fn fill_forward(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        //= rfc3758#3.5-8
        if !self.transfer.tx.forward.is_due() || path != self.transfer.paths.current() {
            return;
        }
        let interleaved = self.transfer.negotiated.has(Extension::Interleaving);
        //= rfc8260#2.3.1-1
        let kind = if interleaved { ChunkType::I_FORWARD_TSN } else { ChunkType::FORWARD_TSN };
        let room = packet.remaining_for(kind).saturating_sub(FORWARD_HEADER_LEN);
        let (point, streams) =
            self.transfer.tx.skipped_streams(interleaved, room / if interleaved { 8 } else { 4 });
        //= rfc3758#3.5-15
        if point == self.transfer.tx.outstanding.first() {
            return;
        }
        let new_cumulative_tsn = point.tsn(self.transfer.negotiated.initial_tsn()).prev();
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
            self.transfer.out.note(TraceEvent::ForwardSent { tsn: new_cumulative_tsn.0 });
            self.transfer.tx.forward.on_sent(now, self.transfer.paths.get(path).rto());
        }
    }

    /// Handles a negotiated FORWARD TSN.
    pub(super) fn on_forward_tsn(&mut self, chunk: &ForwardTsn<'_>, ctx: &mut Context<'_>) {
        let skips =
            chunk.streams.iter().map(|s| Skip { stream: s.stream, unordered: false, number: s.ssn.0.into() });
        self.on_forward(chunk.new_cumulative_tsn, skips, ctx);
    }

    /// Handles a negotiated I-FORWARD-TSN.
    pub(super) fn on_i_forward_tsn(&mut self, chunk: &IForwardTsn<'_>, ctx: &mut Context<'_>) {
        let skips =
            chunk.streams.iter().map(|s| Skip { stream: s.stream, unordered: s.unordered, number: s.mid.0 });
        self.on_forward(chunk.new_cumulative_tsn, skips, ctx);
    }

    fn on_forward(&mut self, tsn: Tsn, skips: impl Iterator<Item = Skip>, ctx: &mut Context<'_>) {
        if !self.transfer.state.receives_data() {
            return;
        }
        let resets = self.transfer.negotiated.has(Extension::StreamReconfiguration);
        if resets && self.inbound.is_from_before_reset(tsn) {
            return;
        }
        let had_ready = self.inbound.has_ready();
        let streams = self.transfer.negotiated.inbound_streams();
        let skips = skips.filter(|s| s.stream.0 < streams);
        if self.inbound.on_forward(tsn, skips, ctx.now, &self.transfer.config.timing) {
            self.transfer.out.note(TraceEvent::ForwardReceived { tsn: tsn.0 });
        }
        self.note_readable(had_ready);
    }
}

/// Returns the limit after which a message is abandoned, if any.
pub(super) fn limit_of(reliability: Reliability, extensions: Extensions, now: Time) -> Option<Limit> {
    //= rfc3758#3.3.2-4
    if !extensions.has(Extension::PartialReliability) {
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

/// Returns the SSN of an ordered message.
#[expect(clippy::cast_possible_truncation, reason = "the SSN is the number modulo 2^16")]
fn ssn(mid: Mid) -> Ssn {
    Ssn(mid.0 as u16)
}
