//! Stream reconfiguration (RFC 6525): requests of ours that wait or are out, and answers given to the peer's.
//!
//! Never sends, and knows neither streams nor TSNs: `association/reconfig` does what is asked for. Invariants: one request
//! is out at a time; numbers of requests go up by one; the last two answers are kept, for the last chunk of the peer had two
//! requests at most. Begin at [`Reconfig`].

use std::collections::VecDeque;

use base::Time;
use smallvec::SmallVec;
use wire::{ReconfigResult, RequestSn, StreamId, Tsn};

use crate::memory::heap;
use crate::path::PathIndex;
use crate::tx::Seq;

/// Requests that may wait to be made.
pub(crate) const MAX_WAITING: usize = 16;

/// Limit on the peer's requests to reset the association without further acknowledgement of our data.
const MAX_STALLED: u32 = 8;

/// Answers kept.
const MAX_ANSWERS: usize = 2;

/// Streams by number; none means all.
pub(crate) type Streams = SmallVec<[StreamId; 4]>;

/// Which requests of the peer are fulfilled (SCTP_ENABLE_STREAM_RESET, RFC 6525 section 6.3.1). By default none are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReconfigPolicy {
    /// True if outgoing and incoming streams may be reset (SCTP_ENABLE_RESET_STREAM_REQ).
    pub reset_streams: bool,
    /// True if the association may be reset, with its TSNs (SCTP_ENABLE_RESET_ASSOC_REQ).
    pub reset_association: bool,
    /// True if outgoing and incoming streams may be added (SCTP_ENABLE_CHANGE_ASSOC_REQ).
    pub add_streams: bool,
    /// Most outbound streams that the peer can bring us to; 2,048 by default.
    pub outbound_streams_max: u16,
    /// Most inbound streams that the peer can bring us to; 2,048 by default.
    pub inbound_streams_max: u16,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for ReconfigPolicy {
    fn default() -> Self {
        ReconfigPolicy::NONE
    }
}

impl ReconfigPolicy {
    /// Fulfils no request: the default.
    pub const NONE: ReconfigPolicy = ReconfigPolicy {
        reset_streams: false,
        reset_association: false,
        add_streams: false,
        outbound_streams_max: 2048,
        inbound_streams_max: 2048,
        _non_exhaustive: (),
    };

    /// Fulfils every request, within the limits on streams.
    pub const fn everything(self) -> ReconfigPolicy {
        ReconfigPolicy { reset_streams: true, reset_association: true, add_streams: true, ..self }
    }
}

/// Which way streams go, seen from this end. A `match` may be exhaustive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamDirection {
    /// From here to the peer.
    Outgoing,
    /// From the peer to here.
    Incoming,
}

/// Outcome of our request to change streams. A request of the peer is reported only when it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReconfigOutcome {
    /// It is done.
    Done,
    /// The peer had nothing to do: all is as it was wished for.
    NothingToDo,
    /// The peer does not want it.
    Denied,
    /// The peer could not do it: the result in its answer (RFC 6525 section 4.4), such as 3 for a stream that it does not
    /// have, or 4 because it was waiting for an answer of ours, or because its data in flight was not acknowledged while it
    /// was asked to reset the association; then it can be asked for again.
    Failed(u32),
}

impl ReconfigOutcome {
    pub(crate) fn from_result(result: ReconfigResult) -> ReconfigOutcome {
        match result {
            ReconfigResult::NothingToDo => ReconfigOutcome::NothingToDo,
            ReconfigResult::Performed => ReconfigOutcome::Done,
            ReconfigResult::Denied => ReconfigOutcome::Denied,
            other => ReconfigOutcome::Failed(other.into()),
        }
    }

    /// Reports whether both ends now have what was wished for.
    pub const fn is_success(self) -> bool {
        matches!(self, ReconfigOutcome::Done | ReconfigOutcome::NothingToDo)
    }
}

/// A request to the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// `answers` is the peer's own request that led to it.
    ResetOutgoing {
        streams: Streams,
        answers: Option<RequestSn>,
    },
    ResetIncoming {
        streams: Streams,
    },
    ResetAssociation,
    AddOutgoing {
        count: u16,
        answers: Option<RequestSn>,
    },
    AddIncoming {
        count: u16,
    },
}

/// Bytes that a list takes beside itself.
fn list_memory(streams: &Streams) -> usize {
    if streams.spilled() { heap(streams.capacity() * size_of::<StreamId>()) } else { 0 }
}

impl Wish {
    /// Bytes that its list takes beside itself.
    fn memory(&self) -> usize {
        match self {
            Wish::ResetOutgoing { streams, .. } | Wish::ResetIncoming { streams } => list_memory(streams),
            Wish::ResetAssociation | Wish::AddOutgoing { .. } | Wish::AddIncoming { .. } => 0,
        }
    }

    /// The request of the peer that it answers.
    fn answers(&self) -> Option<RequestSn> {
        match self {
            Wish::ResetOutgoing { answers, .. } | Wish::AddOutgoing { answers, .. } => *answers,
            Wish::ResetIncoming { .. } | Wish::ResetAssociation | Wish::AddIncoming { .. } => None,
        }
    }

    /// Reports whether the peer must ask something of us, or stop sending, before it can answer: two such requests that cross
    /// would wait for each other.
    fn needs_peer(&self) -> bool {
        matches!(self, Wish::ResetIncoming { .. } | Wish::ResetAssociation | Wish::AddIncoming { .. })
    }
}

/// The request that is out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) request: RequestSn,
    /// The last TSN given when it was first sent.
    pub(crate) last_tsn: Tsn,
    /// The path it last went by.
    pub(crate) path: PathIndex,
    /// The Re-configuration Timer.
    pub(crate) deadline: Time,
    /// True if the peer has answered "in progress" since the last request.
    pub(crate) in_progress: bool,
}

/// The wish in hand.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) wish: Wish,
    /// Once the request has left; before, what it concerns is being drained.
    pub(crate) pending: Option<Pending>,
}

/// The answer to a request of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// With this result; after an SSN/TSN reset also with our next TSN and the peer's.
    Result(ReconfigResult, Option<(Tsn, Tsn)>),
    /// By a request of our own.
    Request,
    /// Not yet: it is judged anew when it is asked again.
    Open,
}

/// Meaning of a request's sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It is the next one.
    New,
    /// It came before, and this was the answer.
    Again(Answer),
    /// It is neither.
    Bad,
}

/// Stream reconfiguration of one association.
#[derive(Debug)]
pub(crate) struct Reconfig {
    next: RequestSn,
    waiting: VecDeque<Wish>,
    pub(crate) current: Option<Current>,
    /// The number of the peer's next request.
    expected: RequestSn,
    answers: VecDeque<(RequestSn, Answer)>,
    /// Our last request for incoming streams to be reset: the peer's own request names it.
    incoming_asked: Option<RequestSn>,
    /// Streams that we asked the peer to add and that it has not added yet.
    pub(crate) additions_asked: u16,
    /// The request that was put off until everything before has come.
    pub(crate) put_off: Option<(RequestSn, Streams)>,
    /// Time at which the driver last wished for a reset of the association.
    pub(crate) association_reset_at: Option<Time>,
    /// Our cumulative TSN acknowledged when the peer last asked to reset the association, and the number of its requests since
    /// then without that having moved.
    stalled: (Seq, u32),
    /// Until when nothing new is sent, for the peer wants to reset the association.
    pub(crate) quiet_until: Option<Time>,
}

impl Reconfig {
    /// Bytes that all this takes.
    pub(crate) fn memory(&self) -> usize {
        let lists = self.waiting.iter().map(Wish::memory).sum::<usize>()
            + self.current.as_ref().map_or(0, |c| c.wish.memory())
            + self.put_off.as_ref().map_or(0, |(_, streams)| list_memory(streams));
        heap(size_of::<Reconfig>())
            + heap(self.waiting.capacity() * size_of::<Wish>())
            + heap(self.answers.capacity() * size_of::<(RequestSn, Answer)>())
            + lists
    }

    /// `tsns` are our initial TSN and the peer's: with these, requests begin to be counted (RFC 6525 section 4.1).
    pub(crate) fn new(tsns: (Tsn, Tsn)) -> Reconfig {
        Reconfig {
            next: RequestSn(tsns.0.0),
            waiting: VecDeque::new(),
            current: None,
            expected: RequestSn(tsns.1.0),
            answers: VecDeque::new(),
            incoming_asked: None,
            additions_asked: 0,
            put_off: None,
            association_reset_at: None,
            stalled: (Seq(0), 0),
            quiet_until: None,
        }
    }

    /// Returns the number of further requests that may wait.
    pub(crate) fn room(&self) -> usize {
        MAX_WAITING - self.waiting.len().min(MAX_WAITING)
    }

    /// Takes a wish; there must be [`room`](Self::room).
    pub(crate) fn wish(&mut self, wish: Wish) {
        self.waiting.push_back(wish);
    }

    /// Takes the next wish in hand, if there is none. RFC 6525 section 5.1.1: "there MUST NOT be more than one request in
    /// flight."
    //= rfc6525#5.1.1-4
    pub(crate) fn begin_next(&mut self) -> Option<Wish> {
        if self.current.is_some() || self.quiet_until.is_some() {
            return None;
        }
        let wish = self.waiting.pop_front()?;
        self.current = Some(Current { wish: wish.clone(), pending: None });
        Some(wish)
    }

    /// The wish in hand, while nothing was sent of it.
    pub(crate) fn unsent(&self) -> Option<&Wish> {
        self.current.as_ref().filter(|c| c.pending.is_none()).map(|c| &c.wish)
    }

    /// The request in hand is about to leave: it gets its number.
    //= rfc6525#5.1.2-2
    pub(crate) fn number(&mut self, last_tsn: Tsn, path: PathIndex, deadline: Time) {
        let Some(current) = &mut self.current else { return };
        let request = self.next;
        self.next = request.next();
        match current.wish {
            Wish::ResetIncoming { .. } => self.incoming_asked = Some(request),
            Wish::AddIncoming { count } => self.additions_asked = count,
            Wish::ResetOutgoing { .. } | Wish::ResetAssociation | Wish::AddOutgoing { .. } => {}
        }
        current.pending = Some(Pending { request, last_tsn, path, deadline, in_progress: false });
    }

    pub(crate) fn pending(&self) -> Option<Pending> {
        self.current.as_ref().and_then(|c| c.pending)
    }

    /// The last TSN before the request to reset outgoing streams that is out.
    pub(crate) fn outgoing_reset_end(&self) -> Option<Tsn> {
        let current = self.current.as_ref().filter(|c| matches!(c.wish, Wish::ResetOutgoing { .. }))?;
        current.pending.map(|pending| pending.last_tsn)
    }

    pub(crate) fn pending_mut(&mut self) -> Option<&mut Pending> {
        self.current.as_mut().and_then(|c| c.pending.as_mut())
    }

    /// Reports whether our request to reset the association is out.
    pub(crate) fn asks_for_association_reset(&self) -> bool {
        self.current.as_ref().is_some_and(|c| c.wish == Wish::ResetAssociation && c.pending.is_some())
    }

    /// The peer asks to reset the association while our data is acknowledged up to `first` only. Returns whether it is worth
    /// waiting on.
    pub(crate) fn waits_for_data(&mut self, first: Seq) -> bool {
        let times = if self.stalled.0 == first { self.stalled.1 + 1 } else { 1 };
        let waits = times <= MAX_STALLED;
        self.stalled = (first, if waits { times } else { 0 });
        waits
    }

    /// The wish whose request has this number, if it is out; it is out no more.
    pub(crate) fn take_pending(&mut self, request: RequestSn) -> Option<Wish> {
        self.pending().filter(|p| p.request == request)?;
        self.current.take().map(|c| c.wish)
    }

    /// Reports whether our request for incoming streams had this number.
    pub(crate) fn asked_for_incoming(&self, request: RequestSn) -> bool {
        self.incoming_asked == Some(request)
    }

    /// The number of the peer's last request.
    pub(crate) fn last_of_peer(&self) -> RequestSn {
        self.expected.prev()
    }

    /// Judges a request of the peer by its number.
    pub(crate) fn judge(&self, request: RequestSn) -> Arrival {
        if request == self.expected {
            return Arrival::New;
        }
        let known = self.answers.iter().find(|(r, _)| *r == request);
        known.map_or(Arrival::Bad, |(_, answer)| Arrival::Again(*answer))
    }

    /// Keeps the answer to a request, for when it is asked again.
    pub(crate) fn keep(&mut self, request: RequestSn, answer: Answer) {
        if request == self.expected {
            self.expected = request.next();
        }
        self.answers.retain(|(r, _)| *r != request);
        if self.answers.len() >= MAX_ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back((request, answer));
    }

    /// Reports whether a request of ours that waits or is out answers this one of the peer: `Some(true)` if it is out.
    pub(crate) fn is_answering(&self, request: RequestSn) -> Option<bool> {
        if self.current.as_ref().is_some_and(|c| c.wish.answers() == Some(request)) {
            return Some(self.pending().is_some());
        }
        self.waiting.iter().any(|w| w.answers() == Some(request)).then_some(false)
    }

    /// Reports whether something of ours is in the way of what the peer asks for, and might wait for it in turn.
    pub(crate) fn crosses(&self) -> bool {
        let ours = self.current.as_ref().map(|c| &c.wish).into_iter().chain(&self.waiting);
        self.room() == 0 || ours.into_iter().any(Wish::needs_peer)
    }

    /// Reports whether a wish is in hand or waits.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.waiting.is_empty()
    }

    /// Reports whether the wish in hand resets all these outgoing streams.
    pub(crate) fn resets(&self, streams: &[StreamId]) -> bool {
        match self.current.as_ref().map(|c| &c.wish) {
            Some(Wish::ResetOutgoing { streams: ours, .. }) => {
                ours.is_empty() || !streams.is_empty() && streams.iter().all(|s| ours.contains(s))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reconfig() -> Reconfig {
        Reconfig::new((Tsn(u32::MAX), Tsn(10)))
    }

    fn incoming() -> Wish {
        Wish::ResetIncoming { streams: Streams::new() }
    }

    fn outgoing(streams: &[u16]) -> Wish {
        Wish::ResetOutgoing { streams: streams.iter().map(|s| StreamId(*s)).collect(), answers: None }
    }

    fn send(r: &mut Reconfig) -> RequestSn {
        r.number(Tsn(0), PathIndex::new(0), Time::ZERO);
        r.pending().expect("it is out").request
    }

    #[test]
    //= rfc6525#5.1.1-4 5.1.2-2
    fn one_request_is_out_at_a_time_and_numbers_wrap() {
        let mut r = reconfig();
        r.wish(incoming());
        r.wish(Wish::AddOutgoing { count: 1, answers: None });
        assert!(r.begin_next().is_some() && r.begin_next().is_none());
        assert_eq!(send(&mut r), RequestSn(u32::MAX));
        assert_eq!(r.take_pending(RequestSn(0)), None);
        assert_eq!(r.take_pending(RequestSn(u32::MAX)), Some(incoming()));
        assert!(r.begin_next().is_some());
        assert_eq!(send(&mut r), RequestSn(0));
    }

    #[test]
    //= rfc6525#5.2.1-4
    fn the_last_two_requests_are_answered_from_memory_and_all_others_are_bad() {
        let mut r = reconfig();
        assert_eq!(r.judge(RequestSn(9)), Arrival::Bad);
        for n in 10..13 {
            assert_eq!(r.judge(RequestSn(n)), Arrival::New);
            r.keep(RequestSn(n), Answer::Result(ReconfigResult::Other(n), None));
        }
        assert_eq!(r.judge(RequestSn(10)), Arrival::Bad);
        for n in 11..13 {
            let answer = Answer::Result(ReconfigResult::Other(n), None);
            assert_eq!(r.judge(RequestSn(n)), Arrival::Again(answer));
        }
        assert_eq!(r.judge(RequestSn(14)), Arrival::Bad);
        assert_eq!(r.last_of_peer(), RequestSn(12));
    }

    #[test]
    fn an_answer_that_changes_replaces_the_one_before() {
        let mut r = reconfig();
        r.keep(RequestSn(10), Answer::Open);
        r.keep(RequestSn(10), Answer::Request);
        assert_eq!(r.judge(RequestSn(10)), Arrival::Again(Answer::Request));
        assert_eq!(r.judge(RequestSn(11)), Arrival::New);
    }

    #[test]
    fn only_requests_that_wait_for_the_peer_cross_with_its_own() {
        let mut r = reconfig();
        r.wish(outgoing(&[1]));
        assert!(!r.crosses() && r.is_busy());
        r.wish(incoming());
        assert!(r.crosses());
        let mut full = reconfig();
        (0..MAX_WAITING).for_each(|_| full.wish(outgoing(&[1])));
        assert!(full.crosses(), "there is no room for an answer");
    }

    #[test]
    fn a_reset_covers_what_it_names_and_one_of_all_streams_covers_everything() {
        let mut r = reconfig();
        r.wish(outgoing(&[1, 2]));
        r.begin_next();
        let ids = |list: &[u16]| list.iter().map(|s| StreamId(*s)).collect::<Streams>();
        assert!(r.resets(&ids(&[2])) && r.resets(&ids(&[1, 2])));
        assert!(!r.resets(&ids(&[2, 3])) && !r.resets(&ids(&[])));
        let mut all = reconfig();
        all.wish(outgoing(&[]));
        all.begin_next();
        assert!(all.resets(&ids(&[7])) && all.resets(&ids(&[])));
    }
}
