//! Stream reconfiguration requests of the peer (RFC 6525 section 5.2), performed if the policy permits.
//!
//! Each request is performed once. A repeated request gets the same answer, or the final answer if the first one was
//! preliminary. Start at [`Association::on_reconfig`].

use smallvec::SmallVec;
use wire::{Cause, Parameter, ReConfig, ReconfigResult, RequestSn, Tsn};

use super::super::{Association, Context, Control, State};
use crate::extension::reconfig::{Answer, Arrival, ReconfigOutcome, StreamDirection, Streams, Wish};
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Length of a pause without new data, in retransmission timeouts. During this pause, the peer should repeat its
/// request to reset the association.
const QUIET_TIMEOUTS: u32 = 3;

/// The parameters of a RE-CONFIG chunk: one or two.
type Requests<'a> = SmallVec<[Parameter<'a>; 2]>;

impl Association {
    pub(crate) fn on_reconfig(&mut self, path: PathIndex, chunk: &ReConfig<'_>, ctx: &mut Context<'_>) {
        if !self.transfer.state.answers_requests() {
            return;
        }
        //= rfc6525#section-3.1
        //# If a sender transmits an unsupported combination, the receiver SHOULD send an ERROR chunk with a Protocol
        //# Violation cause
        //= rfc6525#3.1-1
        let Some(parameters) = read(chunk) else {
            let cause = Cause::ProtocolViolation(b"RE-CONFIG with parameters that do not belong together");
            return self.report(path, &cause, ctx);
        };
        self.transfer.out.note(TraceEvent::ReconfigReceived);
        let had_ready = self.inbound.has_ready();
        let mut answered: SmallVec<[(RequestSn, Answer); 2]> = SmallVec::new();
        //= rfc6525#5.2.1-1
        for parameter in &parameters {
            if let Parameter::ReconfigResponse { response, result, next_tsns } = *parameter {
                self.on_response(response, result, next_tsns, ctx);
            } else if let Some(request) = number(parameter) {
                answered.push((request, self.answer(request, parameter, ctx)));
            }
        }
        if matches!(self.transfer.state, State::Closed) {
            return;
        }
        //= rfc6525#section-5.2.1
        //# If the received RE-CONFIG chunk contains at least one request parameter, a selective acknowledgment (SACK) chunk
        //# SHOULD be sent back and MAY be bundled with the RE-CONFIG chunk.
        //= rfc6525#5.2.1-3
        if !answered.is_empty() && self.transfer.state.sends_data() && self.transfer.state.receives_data() {
            self.inbound.ack.on_irregular();
        }
        self.note_readable(had_ready);
        self.drive_reconfig(ctx.now);
        //= rfc6525#section-5.2.1
        //# If multiple parameters have to be returned, they MUST be put into one RE_CONFIG chunk.
        //= rfc6525#5.2.1-2
        let said: Requests<'_> = answered.iter().filter_map(|&(request, a)| self.say(request, a)).collect();
        self.queue_answers(path, &said);
    }

    /// Reports a deferred reset to the peer as soon as it is done.
    pub(in crate::association) fn after_inbound_reset(&mut self) {
        if !self.inbound.take_reset_done() {
            return;
        }
        let Some(reconfig) = &mut self.reconfig else { return };
        let Some((request, streams)) = reconfig.put_off.take() else { return };
        let answer = Answer::Result(ReconfigResult::Performed, None);
        reconfig.keep(request, answer);
        self.report_reset(StreamDirection::Incoming, &streams, ReconfigOutcome::Done);
        self.queue_answers(self.sack_route.data_path(), &[response(request, answer)]);
    }

    /// Performs a request, unless it was performed before. Stores and returns the answer.
    fn answer(&mut self, request: RequestSn, parameter: &Parameter<'_>, ctx: &mut Context<'_>) -> Answer {
        let Some(reconfig) = &self.reconfig else { return bad() };
        let answer = match reconfig.judge(request) {
            Arrival::Bad => return bad(),
            //= rfc6525#section-5.2.1
            //# if [...] this is the last received RE-CONFIG chunk (i.e., a retransmission), the same RE-CONFIG chunk MUST to be
            //# sent back in response, as it was earlier.
            //= rfc6525#5.2.1-4
            Arrival::Again(answer @ (Answer::Result(..) | Answer::Request)) => return answer,
            Arrival::Again(Answer::Open) | Arrival::New => match *parameter {
                Parameter::OutgoingSsnReset { response, last_tsn, streams, .. } => {
                    self.on_outgoing_reset(request, response, last_tsn, streams.iter().collect())
                }
                Parameter::IncomingSsnReset { streams, .. } => {
                    self.on_incoming_reset(request, streams.iter().collect())
                }
                Parameter::SsnTsnReset { .. } => self.on_association_reset(ctx),
                Parameter::AddOutgoingStreams { new_streams, .. } => self.on_add_outgoing(new_streams),
                Parameter::AddIncomingStreams { new_streams, .. } => {
                    self.on_add_incoming(request, new_streams)
                }
                _ => return bad(),
            },
        };
        if let Some(reconfig) = &mut self.reconfig {
            reconfig.keep(request, answer);
        }
        answer
    }

    /// Encodes an answer as a parameter. Returns `None` if a request of ours serves as the answer.
    fn say(&mut self, request: RequestSn, answer: Answer) -> Option<Parameter<'static>> {
        if answer != Answer::Request {
            return Some(response(request, answer));
        }
        match self.reconfig.as_ref().and_then(|r| r.is_answering(request)) {
            Some(true) => {
                self.queue_request();
                None
            }
            // Our request waits for another request of ours that is in progress.
            Some(false) => Some(response(request, Answer::Open)),
            None => Some(response(request, Answer::Result(ReconfigResult::Performed, None))),
        }
    }

    /// Handles an Outgoing SSN Reset request (RFC 6525 section 5.2.2).
    fn on_outgoing_reset(
        &mut self,
        request: RequestSn,
        response: RequestSn,
        last_tsn: Tsn,
        streams: Streams,
    ) -> Answer {
        let policy = self.transfer.config.reconfig;
        let Some(reconfig) = &mut self.reconfig else { return bad() };
        let asked_for = reconfig.asked_for_incoming(response);
        //= rfc6525#section-5.2.2
        //# E1: If the Re-configuration Timer is running for the Re-configuration Request Sequence Number indicated in the
        //# Re-configuration Response Sequence Number field, the Re-configuration Request Sequence Number MUST be marked as
        //# acknowledged.
        //= rfc6525#5.2.2-1
        if asked_for && reconfig.take_pending(response).is_some() {
            self.transfer.out.withdraw(|c| matches!(c, Control::Reconfig));
            self.transfer.liveness.on_answer();
        }
        if !policy.reset_streams && !asked_for {
            return result(ReconfigResult::Denied);
        }
        if streams.iter().any(|s| s.0 >= self.transfer.negotiated.inbound_streams()) {
            return result(ReconfigResult::WrongSsn);
        }
        if self.inbound.is_resetting() {
            return result(ReconfigResult::RequestInProgress);
        }
        //= rfc6525#section-5.2.2
        //# E3: If no stream numbers are listed in the parameter, then all incoming streams MUST be reset to 0 as the next
        //# expected SSN.
        if self.inbound.reset_streams(last_tsn, &streams) {
            self.report_reset(StreamDirection::Incoming, &streams, ReconfigOutcome::Done);
            //= rfc6525#5.2.2-9
            return result(ReconfigResult::Performed);
        }
        if let Some(reconfig) = &mut self.reconfig {
            reconfig.put_off = Some((request, streams));
        }
        //= rfc6525#section-5.2.2
        //# If the endpoint enters "deferred reset processing", it MUST put a Re-configuration Response Parameter into a
        //# RE-CONFIG chunk indicating "In progress" and MUST send the RE-CONFIG chunk.
        //= rfc6525#5.2.2-5
        result(ReconfigResult::InProgress)
    }

    /// Handles an Incoming SSN Reset request (RFC 6525 section 5.2.3).
    fn on_incoming_reset(&mut self, request: RequestSn, streams: Streams) -> Answer {
        let too_long = streams.len() > self.listed_max();
        let Some(reconfig) = &mut self.reconfig else { return bad() };
        if !self.transfer.config.reconfig.reset_streams || too_long || !self.transfer.state.sends_data() {
            return result(ReconfigResult::Denied);
        }
        if streams.iter().any(|s| s.0 >= self.transfer.negotiated.outbound_streams()) {
            return result(ReconfigResult::WrongSsn);
        }
        //= rfc6525#section-5.2.3
        //# If the Outgoing SSN Reset Request Parameter that was just sent completely overlaps the received Incoming SSN Reset
        //# Request Parameter, respond to the peer with an acknowledgment indicating that there was "Nothing to do".
        //= rfc6525#section-5.2.3
        //# all of the streams being requested will be already set to 0. If so, the local endpoint SHOULD send back a
        //# Re-configuration Response with the success code "Nothing to do".
        //= rfc6525#5.2.3-5
        if reconfig.resets(&streams) || self.transfer.tx.queue.is_fresh(&streams) {
            return result(ReconfigResult::NothingToDo);
        }
        if reconfig.crosses() {
            //= rfc6525#5.2.3-4
            return result(ReconfigResult::RequestInProgress);
        }
        //= rfc6525#section-5.1.2
        //# A4: If this Outgoing SSN Reset Request Parameter is sent in response to an Incoming SSN Reset Request Parameter, the
        //# stream numbers MUST be copied
        //= rfc6525#5.1.2-5 5.2.3-1
        reconfig.wish(Wish::ResetOutgoing { streams, answers: Some(request) });
        Answer::Request
    }

    /// Handles an SSN/TSN Reset request (RFC 6525 section 5.2.4). Step G3 of the RFC drops the data in flight. This
    /// function instead defers the reset until the data in flight is acknowledged.
    fn on_association_reset(&mut self, ctx: &mut Context<'_>) -> Answer {
        let quiet_until =
            ctx.now + self.transfer.paths.get(self.transfer.paths.current()).rto() * QUIET_TIMEOUTS;
        let Some(reconfig) = &mut self.reconfig else { return bad() };
        if !self.transfer.config.reconfig.reset_association
            || !matches!(self.transfer.state, State::Established)
        {
            return result(ReconfigResult::Denied);
        }
        // The peer may accept no data before the answer, so a partly sent message could not be completed.
        if reconfig.crosses() || self.inbound.is_resetting() || self.transfer.tx.queue.has_begun() {
            return result(ReconfigResult::RequestInProgress);
        }
        if reconfig.is_busy() && reconfig.quiet_until.is_none() {
            let is_out = reconfig.pending().is_some();
            return if is_out { Answer::Open } else { result(ReconfigResult::RequestInProgress) };
        }
        if !self.transfer.tx.outstanding.is_empty() {
            // The peer holds back data that arrives after its request, and may have no room for the data in flight. If
            // repeated requests find no progress, the request is therefore refused, and new data may leave again.
            if !reconfig.waits_for_data(self.transfer.tx.outstanding.first()) {
                reconfig.quiet_until = None;
                self.transfer.tx.queue.release(&[], false);
                return result(ReconfigResult::RequestInProgress);
            }
            self.transfer.tx.queue.stop();
            reconfig.quiet_until = Some(quiet_until);
            return Answer::Open;
        }
        reconfig.quiet_until = None;
        //= rfc6525#section-5.2.4
        //# G1: Compute an appropriate value for the Receiver's Next TSN -- the TSN that the peer should use to send the next
        //# DATA chunk. The value SHOULD be the smallest TSN not acknowledged by the receiver of the request plus 2^31.
        //= rfc6525#5.2.4-1
        let theirs = self.inbound.cumulative_tsn().next().plus(1 << 31);
        //= rfc6525#section-5.2.4
        //# G2: Compute an appropriate value for the local endpoint's next TSN [...] The value SHOULD be the highest TSN sent by
        //# the receiver of the request plus 1.
        //= rfc6525#5.2.4-2
        let ours = self.transfer.tx.outstanding.next().tsn(self.transfer.negotiated.initial_tsn());
        self.inbound.begin_anew(theirs);
        //= rfc6525#section-5.2.4
        //# G5: The next expected and outgoing SSNs MUST be reset to 0 for all incoming and outgoing streams.
        //= rfc6525#5.2.4-5
        self.transfer.tx.queue.release(&[], true);
        self.report_association_reset(ReconfigOutcome::Done);
        //= rfc6525#5.1.7-3 5.1.7-5 5.2.4-6
        Answer::Result(ReconfigResult::Performed, Some((ours, theirs)))
    }

    /// Handles an Add Outgoing Streams request (RFC 6525 section 5.2.5).
    fn on_add_outgoing(&mut self, more: u16) -> Answer {
        let policy = self.transfer.config.reconfig;
        let Some(reconfig) = &mut self.reconfig else { return bad() };
        let asked_for = more > 0 && more == reconfig.additions_asked;
        let streams = self.transfer.negotiated.inbound_streams().checked_add(more);
        //= rfc6525#5.2.5-3
        let allowed =
            asked_for || policy.add_streams && streams.is_some_and(|s| s <= policy.inbound_streams_max);
        let Some(streams) = streams.filter(|_| allowed) else { return result(ReconfigResult::Denied) };
        if asked_for {
            reconfig.additions_asked = 0;
            // Section 5.2.6: the peer's request to add streams is the answer to our request.
            let pending = reconfig.pending().map(|p| p.request);
            let is_ours = matches!(&reconfig.current, Some(c) if matches!(c.wish, Wish::AddIncoming { .. }));
            if is_ours && pending.is_some_and(|p| reconfig.take_pending(p).is_some()) {
                self.transfer.out.withdraw(|c| matches!(c, Control::Reconfig));
                self.transfer.liveness.on_answer();
            }
        }
        //= rfc6525#5.2.5-1 5.2.5-2
        self.transfer.negotiated.set_inbound_streams(streams);
        self.report_streams(ReconfigOutcome::Done);
        result(ReconfigResult::Performed)
    }

    /// Handles an Add Incoming Streams request (RFC 6525 section 5.2.6).
    fn on_add_incoming(&mut self, request: RequestSn, more: u16) -> Answer {
        let policy = self.transfer.config.reconfig;
        let Some(reconfig) = &mut self.reconfig else { return bad() };
        //= rfc6525#5.2.6-2
        let fits = self
            .transfer
            .negotiated
            .outbound_streams()
            .checked_add(more)
            .is_some_and(|s| s <= policy.outbound_streams_max);
        if !policy.add_streams || !fits || !self.transfer.state.sends_data() {
            return result(ReconfigResult::Denied);
        }
        if more == 0 {
            return result(ReconfigResult::NothingToDo);
        }
        if reconfig.crosses() {
            return result(ReconfigResult::RequestInProgress);
        }
        //= rfc6525#5.2.6-1
        reconfig.wish(Wish::AddOutgoing { count: more, answers: Some(request) });
        Answer::Request
    }
}

//= rfc6525#5.2.1-5
fn result(result: ReconfigResult) -> Answer {
    Answer::Result(result, None)
}

fn bad() -> Answer {
    result(ReconfigResult::BadSequenceNumber)
}

fn response(request: RequestSn, answer: Answer) -> Parameter<'static> {
    let (result, next_tsns) = match answer {
        Answer::Result(result, next_tsns) => (result, next_tsns),
        Answer::Open | Answer::Request => (ReconfigResult::InProgress, None),
    };
    //= rfc6525#5.1.7-1 5.1.7-2
    Parameter::ReconfigResponse { response: request, result, next_tsns }
}

/// Returns the sequence number of a request, or `None` if the parameter is not a request.
fn number(parameter: &Parameter<'_>) -> Option<RequestSn> {
    match parameter {
        Parameter::OutgoingSsnReset { request, .. }
        | Parameter::IncomingSsnReset { request, .. }
        | Parameter::SsnTsnReset { request }
        | Parameter::AddOutgoingStreams { request, .. }
        | Parameter::AddIncomingStreams { request, .. } => Some(*request),
        _ => None,
    }
}

/// Returns the parameters of a chunk if their combination is permitted, in either order (RFC 6525 section 3.1).
fn read<'a>(chunk: &ReConfig<'a>) -> Option<Requests<'a>> {
    let mut parameters = Requests::new();
    for parameter in chunk.parameters.iter() {
        if parameters.len() == 2 {
            return None;
        }
        parameters.push(parameter.ok()?);
    }
    let is_response = |p: &Parameter<'_>| matches!(p, Parameter::ReconfigResponse { .. });
    let is_known = |p: &Parameter<'_>| is_response(p) || number(p).is_some();
    let is_pair = |one: &Parameter<'_>, other: &Parameter<'_>| {
        matches!(
            (one, other),
            (Parameter::OutgoingSsnReset { .. }, Parameter::IncomingSsnReset { .. })
                | (Parameter::AddOutgoingStreams { .. }, Parameter::AddIncomingStreams { .. })
                | (Parameter::ReconfigResponse { .. }, Parameter::OutgoingSsnReset { .. })
                | (Parameter::ReconfigResponse { .. }, Parameter::ReconfigResponse { .. })
        )
    };
    let fit = match &parameters[..] {
        [one] => is_known(one),
        [one, other] => is_pair(one, other) || is_pair(other, one),
        _ => false,
    };
    fit.then_some(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{List, Parameters, StreamId};

    const REQUEST: RequestSn = RequestSn(1);

    fn samples() -> [Parameter<'static>; 6] {
        let streams = List::<StreamId>::EMPTY;
        [
            Parameter::OutgoingSsnReset { request: REQUEST, response: REQUEST, last_tsn: Tsn(1), streams },
            Parameter::IncomingSsnReset { request: REQUEST, streams },
            Parameter::SsnTsnReset { request: REQUEST },
            response(REQUEST, bad()),
            Parameter::AddOutgoingStreams { request: REQUEST, new_streams: 1 },
            Parameter::AddIncomingStreams { request: REQUEST, new_streams: 1 },
        ]
    }

    fn is_taken(parameters: &[Parameter<'_>]) -> bool {
        read(&ReConfig { parameters: Parameters::from(parameters) }).is_some()
    }

    #[test]
    fn each_reconfig_parameter_may_come_alone_and_other_parameters_are_refused() {
        assert!(samples().iter().all(|p| is_taken(&[*p])));
        assert!(!is_taken(&[Parameter::EcnCapable]) && !is_taken(&[]));
    }

    #[test]
    fn only_four_pairs_of_reconfig_parameters_are_accepted_in_either_order_and_no_triple() {
        let all = samples();
        let pairs = (0..36).filter(|n| is_taken(&[all[n / 6], all[n % 6]])).count();
        assert_eq!(pairs, 7);
        for [one, other] in [[3, 0], [3, 3], [0, 1], [4, 5]] {
            assert!(is_taken(&[all[one], all[other]]) && is_taken(&[all[other], all[one]]));
        }
        assert!(!is_taken(&[all[3], all[3], all[3]]));
    }
}
