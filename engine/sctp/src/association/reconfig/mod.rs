//! Requests of this end to reset streams, add streams and reset the association (RFC 6525 sections 5.1 and 5.2.7).
//! `answering` handles the peer's requests.
//!
//! A request ("wish") has three steps. The queue of the affected data is drained (the data leaves), the request is
//! sent, and the request is answered. Messages submitted before the wish keep the old stream sequence numbers. Later
//! messages wait until the request is answered. Wishes beyond the limits of the protocol are refused. Start at
//! [`Association::drive_reconfig`].

mod answering;

use std::time::Duration;

use base::Time;
use bytes::Bytes;
use wire::{Chunk, Parameter, Parameters, ReConfig, ReconfigResult, RequestSn, StreamId, Tsn};

use super::{Association, Context, Control};
use crate::error::ReconfigError;
use crate::event::{Event, PathReason};
use crate::extension::reconfig::{Pending, ReconfigOutcome, StreamDirection, Streams, Wish};
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Octets of a RE-CONFIG chunk with the longest request, without its list of streams.
const REQUEST_LEN: usize = 20;

/// Maximum number of streams listed in one request.
const MAX_LISTED: usize = 1000;

/// RFC 6525 section 5.1.4: "Only one SSN/TSN Reset Request SHOULD be sent within 30 seconds".
//= rfc6525#5.1.4-7
const BETWEEN_ASSOCIATION_RESETS: Duration = Duration::from_secs(30);

impl Association {
    /// Requests a reset of `streams` in one direction. An empty list means all streams.
    pub(crate) fn reset_streams(
        &mut self,
        direction: StreamDirection,
        streams: &[StreamId],
        now: Time,
    ) -> Result<(), ReconfigError> {
        self.check_wishes(1)?;
        let count = match direction {
            StreamDirection::Outgoing => self.transfer.negotiated.outbound_streams(),
            StreamDirection::Incoming => self.transfer.negotiated.inbound_streams(),
        };
        if let Some(wrong) = streams.iter().find(|s| s.0 >= count) {
            return Err(ReconfigError::NoSuchStream { stream: wrong.0, streams: count });
        }
        let mut streams = Streams::from_slice(streams);
        streams.sort_unstable();
        streams.dedup();
        let max = self.listed_max();
        if streams.len() > max {
            return Err(ReconfigError::ListTooLong { max });
        }
        self.wish(
            match direction {
                StreamDirection::Outgoing => Wish::ResetOutgoing { streams, answers: None },
                StreamDirection::Incoming => Wish::ResetIncoming { streams },
            },
            now,
        );
        Ok(())
    }

    /// Requests a reset of the TSNs, and of all streams in both directions.
    pub(crate) fn reset_association(&mut self, now: Time) -> Result<(), ReconfigError> {
        self.check_wishes(1)?;
        let reconfig = self.reconfig.as_deref_mut().ok_or(ReconfigError::NotNegotiated)?;
        if reconfig.association_reset_at.is_some_and(|at| now < at + BETWEEN_ASSOCIATION_RESETS) {
            return Err(ReconfigError::TooSoon);
        }
        reconfig.association_reset_at = Some(now);
        self.wish(Wish::ResetAssociation, now);
        Ok(())
    }

    /// Requests `outgoing` more outbound streams and `incoming` more inbound streams.
    pub(crate) fn add_streams(
        &mut self,
        outgoing: u16,
        incoming: u16,
        now: Time,
    ) -> Result<(), ReconfigError> {
        self.check_wishes(usize::from(outgoing > 0) + usize::from(incoming > 0))?;
        let fits = |streams: u16, more| streams.checked_add(more).is_some();
        if !fits(self.transfer.negotiated.outbound_streams(), outgoing)
            || !fits(self.transfer.negotiated.inbound_streams(), incoming)
        {
            return Err(ReconfigError::TooManyStreams);
        }
        if outgoing > 0 {
            self.wish(Wish::AddOutgoing { count: outgoing, answers: None }, now);
        }
        if incoming > 0 {
            self.wish(Wish::AddIncoming { count: incoming }, now);
        }
        Ok(())
    }

    /// Checks that `count` more wishes can be accepted.
    fn check_wishes(&self, count: usize) -> Result<(), ReconfigError> {
        if !self.transfer.state.takes_data_to_send() {
            return Err(ReconfigError::Closed);
        }
        //= rfc6525#section-5.1.1
        //# If the chunk type of the RE-CONFIG chunk does not appear in the supported extension's list of chunks, then the
        //# sender MUST NOT send any re-configuration request to the peer
        //= rfc6525#5.1.1-3
        let reconfig = self.reconfig.as_ref().ok_or(ReconfigError::NotNegotiated)?;
        match count {
            0 => Err(ReconfigError::NoStreams),
            _ if reconfig.room() < count => Err(ReconfigError::TooMany),
            _ => Ok(()),
        }
    }

    /// Returns the maximum number of streams that fit into one request.
    pub(super) fn listed_max(&self) -> usize {
        let room = self.transfer.paths.get(self.transfer.paths.current()).packet_size();
        let auth = self.transfer.integrity.overhead(wire::ChunkType::RE_CONFIG);
        (room.saturating_sub(wire::COMMON_HEADER_LEN + auth + REQUEST_LEN) / 2).min(MAX_LISTED)
    }

    fn wish(&mut self, wish: Wish, now: Time) {
        if let Some(reconfig) = &mut self.reconfig {
            reconfig.wish(wish);
        }
        self.drive_reconfig(now);
    }

    /// Starts the next wish, and sends its request once the affected data is drained.
    pub(super) fn drive_reconfig(&mut self, now: Time) {
        let Some(reconfig) = &mut self.reconfig else { return };
        if !self.transfer.state.sends_data() || self.transfer.integrity.is_pending() {
            return;
        }
        match reconfig.begin_next() {
            Some(Wish::ResetOutgoing { streams, .. }) => self.transfer.tx.queue.hold(&streams),
            Some(Wish::ResetAssociation) => self.transfer.tx.queue.hold(&[]),
            Some(Wish::ResetIncoming { .. } | Wish::AddOutgoing { .. } | Wish::AddIncoming { .. }) | None => {
            }
        }
        match reconfig.unsent() {
            Some(Wish::ResetOutgoing { streams, .. }) if !self.transfer.tx.queue.is_drained(streams) => {
                return;
            }
            //= rfc6525#section-5.1.4
            //# C2: The sender has either no outstanding TSNs or considers all outstanding TSNs abandoned. The sender MUST queue
            //# any user data
            Some(Wish::ResetAssociation) => {
                //= rfc6525#5.1.4-3
                let drained =
                    self.transfer.tx.queue.is_drained(&[]) && self.transfer.tx.outstanding.is_empty();
                if !drained || self.inbound.is_resetting() {
                    return;
                }
                // DATA that arrives before the answer may have old or new numbers, so it is held back until then.
                self.inbound.hold_back_all();
            }
            Some(_) => {}
            None => return,
        }
        //= rfc6525#section-5.1.2
        //# A3: The Sender's Last Assigned TSN MUST be set to the next TSN the sender assigns minus 1.
        //= rfc6525#5.1.2-4
        let last_tsn = self.transfer.tx.outstanding.next().tsn(self.transfer.negotiated.initial_tsn()).prev();
        reconfig.number(last_tsn, self.transfer.paths.current(), Time::NEVER);
        self.send_request(now);
    }

    /// Sends the pending request and starts the Re-configuration Timer.
    fn send_request(&mut self, now: Time) {
        let Some(pending) = self.reconfig.as_ref().and_then(|r| r.pending()) else { return };
        let is_usable = self.transfer.paths.get(pending.path).is_confirmed();
        let path = if is_usable { pending.path } else { self.transfer.paths.current() };
        let deadline = now + self.transfer.paths.get(path).rto();
        if let Some(pending) = self.reconfig.as_mut().and_then(|r| r.pending_mut()) {
            //= rfc6525#5.1.1-6
            (pending.path, pending.deadline) = (path, deadline);
        }
        let route = self.transfer.paths.get(path).route;
        self.transfer.out.note(TraceEvent::ReconfigSent { route });
        self.queue_request();
    }

    /// Queues the pending request for the next packet.
    fn queue_request(&mut self) {
        if let Some(pending) = self.reconfig.as_ref().and_then(|r| r.pending()) {
            self.transfer.out.queue_once(pending.path, Control::Reconfig);
        }
    }

    pub(super) fn push_reconfig(&self, packet: &mut wire::PacketWriter<'_>) -> bool {
        let Some(reconfig) = &self.reconfig else { return true };
        let (Some(current), Some(pending)) = (&reconfig.current, reconfig.pending()) else { return true };
        let parameters = [request_parameter(&current.wish, &pending, reconfig.last_of_peer())];
        //= rfc6525#5.1.2-9 5.1.2-10
        packet.push(&Chunk::ReConfig(ReConfig { parameters: Parameters::from(&parameters[..]) })).is_ok()
    }

    /// Returns the next expiry of a timer of stream reconfiguration.
    pub(super) fn reconfig_timeout(&self) -> Time {
        let Some(reconfig) = &self.reconfig else { return Time::NEVER };
        let request = reconfig.pending().map_or(Time::NEVER, |p| p.deadline);
        request.min(reconfig.quiet_until.unwrap_or(Time::NEVER))
    }

    /// Handles expiry of the Re-configuration Timer (RFC 6525 section 5.1.1). Doubles the timeout, counts the error and
    /// sends the request on another path. Also lets new data leave again if the peer has not repeated its request to
    /// reset the association.
    pub(super) fn on_reconfig_timeout(&mut self, now: Time) {
        let Some(reconfig) = &mut self.reconfig else { return };
        if reconfig.quiet_until.is_some_and(|at| at <= now) {
            reconfig.quiet_until = None;
            self.transfer.tx.queue.release(&[], false);
        }
        let Some(pending) = reconfig.pending_mut().filter(|p| p.deadline <= now) else { return };
        //= rfc6525#section-5.2.7
        //# H2: If the Result field indicates "In progress", the timer for the Re-configuration Request Sequence Number is
        //# started again. If the timer runs out, the RE-CONFIG chunk MUST be retransmitted but the corresponding error
        //# counters MUST NOT be incremented.
        //= rfc6525#5.2.7-3
        if !std::mem::take(&mut pending.in_progress) {
            let failed = pending.path;
            //= rfc6525#5.1.1-8 5.1.1-9
            self.transfer.paths.get_mut(failed).back_off(&self.transfer.config.timing);
            self.transfer.count_error_on(failed, PathReason::Timeout);
            if !self.transfer.count_error() {
                return;
            }
            let path = self.transfer.paths.alternate(failed);
            if let Some(pending) = self.reconfig.as_mut().and_then(|r| r.pending_mut()) {
                pending.path = path;
            }
        }
        self.send_request(now);
    }

    /// Handles the peer's answer to a request.
    fn on_response(
        &mut self,
        response: RequestSn,
        result: ReconfigResult,
        next_tsns: Option<(Tsn, Tsn)>,
        ctx: &mut Context<'_>,
    ) {
        let Some(reconfig) = &mut self.reconfig else { return };
        let Some(pending) = reconfig.pending_mut().filter(|p| p.request == response) else { return };
        let path = pending.path;
        if result == ReconfigResult::InProgress {
            pending.in_progress = true;
            pending.deadline = ctx.now + self.transfer.paths.get(path).rto();
            return self.on_request_heard(path, ctx.now);
        }
        //= rfc6525#5.2.7-1
        let Some(wish) = reconfig.take_pending(response) else { return };
        self.transfer.out.withdraw(|c| matches!(c, Control::Reconfig));
        self.on_request_heard(path, ctx.now);
        self.finish_wish(wish, ReconfigOutcome::from_result(result), next_tsns, ctx);
        self.drive_reconfig(ctx.now);
    }

    /// Clears the error counts, because the answer proves that the peer and the path work.
    fn on_request_heard(&mut self, path: PathIndex, now: Time) {
        self.transfer.liveness.on_answer();
        if self.transfer.paths.get(path).is_confirmed() {
            let transition = self.transfer.paths.get_mut(path).on_success(now, &self.transfer.config.timing);
            self.transfer.report_transition(path, transition, PathReason::Answer);
        }
    }

    fn finish_wish(
        &mut self,
        wish: Wish,
        outcome: ReconfigOutcome,
        next_tsns: Option<(Tsn, Tsn)>,
        ctx: &mut Context<'_>,
    ) {
        match wish {
            //= rfc6525#section-5.2.7
            //# H4: If the request was an Outgoing SSN Reset Request, the affected streams MUST now be reset and all queued
            //# data should now be processed. The assigning of SSNs is allowed again.
            Wish::ResetOutgoing { streams, .. } => {
                //= rfc6525#5.2.7-4
                if outcome.is_success() {
                    self.transfer.tx.forward.on_streams_reset(&streams, &self.transfer.tx.outstanding);
                }
                self.transfer.tx.queue.release(&streams, outcome.is_success());
                self.follow_forward(ctx.now);
                self.report_reset(StreamDirection::Outgoing, &streams, outcome);
            }
            // The change is made and reported when the peer's own request arrives. This request has arrived already, or
            // follows.
            Wish::ResetIncoming { .. } | Wish::AddIncoming { .. } if outcome == ReconfigOutcome::Done => {}
            Wish::ResetIncoming { streams } => {
                self.report_reset(StreamDirection::Incoming, &streams, outcome);
            }
            Wish::ResetAssociation => self.finish_association_reset(outcome, next_tsns, ctx),
            Wish::AddOutgoing { count, .. } => {
                if outcome.is_success() {
                    //= rfc6525#5.1.5-1 5.1.5-2 5.2.7-7
                    let streams = self.transfer.negotiated.outbound_streams().saturating_add(count);
                    self.transfer.negotiated.set_outbound_streams(streams);
                }
                self.report_streams(outcome);
            }
            Wish::AddIncoming { .. } => {
                if let Some(reconfig) = &mut self.reconfig {
                    reconfig.additions_asked = 0;
                }
                self.report_streams(outcome);
            }
        }
    }

    fn finish_association_reset(
        &mut self,
        outcome: ReconfigOutcome,
        next_tsns: Option<(Tsn, Tsn)>,
        ctx: &mut Context<'_>,
    ) {
        let had_ready = self.inbound.has_ready();
        let done = outcome == ReconfigOutcome::Done;
        match next_tsns.filter(|_| done) {
            None if done => return self.violation("SSN/TSN reset answered without TSNs", ctx),
            //= rfc6525#section-5.2.7
            //# H5: If the request was an SSN/TSN Reset Request, new data MUST be sent from the Receiver's Next TSN, beginning
            //# with SSN 0 for all outgoing streams.
            Some((theirs, ours)) => {
                //= rfc6525#5.2.7-5
                self.renumber_from(ours);
                self.inbound.on_peer_began_anew(theirs);
            }
            None => self.inbound.release_all(),
        }
        self.note_readable(had_ready);
        self.transfer.tx.queue.release(&[], done);
        self.report_association_reset(outcome);
    }

    /// Assigns the TSN `next` to the next chunk. No data may be outstanding.
    fn renumber_from(&mut self, next: Tsn) {
        debug_assert!(self.transfer.tx.outstanding.is_empty());
        self.transfer.negotiated.renumber(self.transfer.tx.outstanding.next(), next);
    }

    fn report_reset(&mut self, direction: StreamDirection, streams: &[StreamId], outcome: ReconfigOutcome) {
        self.transfer.out.emit(Event::StreamReset { direction, streams: streams.to_vec(), outcome });
    }

    fn report_association_reset(&mut self, outcome: ReconfigOutcome) {
        let local_tsn = self.transfer.tx.outstanding.next().tsn(self.transfer.negotiated.initial_tsn()).0;
        let remote_tsn = self.inbound.cumulative_tsn().next().0;
        self.transfer.out.emit(Event::AssociationReset { local_tsn, remote_tsn, outcome });
    }

    fn report_streams(&mut self, outcome: ReconfigOutcome) {
        self.transfer.out.emit(Event::StreamsChanged {
            outbound_streams: self.transfer.negotiated.outbound_streams(),
            inbound_streams: self.transfer.negotiated.inbound_streams(),
            outcome,
        });
    }

    /// Queues answers to the peer's requests.
    //= rfc6525#5.1.1-7
    fn queue_answers(&mut self, path: PathIndex, answers: &[Parameter<'_>]) {
        let waiting = self.transfer.out.count(|c| matches!(c, Control::ReconfigAnswer(_)));
        if answers.is_empty() || waiting >= MAX_WAITING_ANSWERS {
            return;
        }
        let mut bytes = Vec::new();
        for answer in answers {
            let mut buf = [0; 32];
            let mut out = wire::Writer::new(&mut buf);
            if answer.write(&mut out).is_ok() {
                bytes.extend_from_slice(out.written());
            }
        }
        // The answer precedes our own request, because the peer may need the answer before it grants our request.
        self.transfer.out.queue_first(path, Control::ReconfigAnswer(Bytes::from(bytes)));
    }
}

/// Maximum number of queued chunks with answers.
const MAX_WAITING_ANSWERS: usize = 4;

/// Encodes a wish as a parameter. `last_of_peer` is the number of the peer's last request.
fn request_parameter<'a>(wish: &'a Wish, pending: &Pending, last_of_peer: RequestSn) -> Parameter<'a> {
    let request = pending.request;
    match wish {
        Wish::ResetOutgoing { streams, answers } => Parameter::OutgoingSsnReset {
            request,
            //= rfc6525#section-4.1
            //# This field then holds the Re-configuration Request Sequence Number of the incoming request. In other cases,
            //# it holds the next expected Re-configuration Request Sequence Number minus 1.
            //= rfc6525#5.1.2-6 5.1.2-7
            response: answers.unwrap_or(last_of_peer),
            last_tsn: pending.last_tsn,
            streams: streams[..].into(),
        },
        Wish::ResetIncoming { streams } => {
            Parameter::IncomingSsnReset { request, streams: streams[..].into() }
        }
        Wish::ResetAssociation => Parameter::SsnTsnReset { request },
        Wish::AddOutgoing { count, .. } => Parameter::AddOutgoingStreams { request, new_streams: *count },
        Wish::AddIncoming { count } => Parameter::AddIncomingStreams { request, new_streams: *count },
    }
}
