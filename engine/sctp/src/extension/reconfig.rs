//! Stream reconfiguration (RFC 6525): our requests, waiting or outstanding, and our answers to the peer's requests.
//!
//! This module neither sends nor knows streams and TSNs: `association/reconfig` performs the requests. A request of ours is
//! called a wish until the peer has answered it. Invariants: only one of our requests is outstanding, and request numbers
//! increase by one. The last two answers to the peer are kept, because one chunk of the peer can have two requests. Begin at
//! [`Reconfig`].

use std::collections::VecDeque;

use base::Time;
use smallvec::SmallVec;
use wire::{ReconfigResult, RequestSn, StreamId, Tsn};

use crate::memory::heap;
use crate::path::PathIndex;
use crate::tx::Seq;

/// Limit on the waiting requests.
pub(crate) const MAX_WAITING: usize = 16;

/// Limit on the peer's consecutive requests to reset the association that wait for our unacknowledged data. A new
/// acknowledgement restarts the count.
const MAX_STALLED: u32 = 8;

/// Number of answers that are kept.
const MAX_ANSWERS: usize = 2;

/// Streams by number. An empty list means all streams.
pub(crate) type Streams = SmallVec<[StreamId; 4]>;

/// Kinds of the peer's requests that are fulfilled (SCTP_ENABLE_STREAM_RESET, RFC 6525 section 6.3.1). By default, no request
/// is fulfilled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReconfigPolicy {
    /// True if outgoing and incoming streams may be reset (SCTP_ENABLE_RESET_STREAM_REQ).
    pub reset_streams: bool,
    /// True if the association may be reset, including its TSNs (SCTP_ENABLE_RESET_ASSOC_REQ).
    pub reset_association: bool,
    /// True if outgoing and incoming streams may be added (SCTP_ENABLE_CHANGE_ASSOC_REQ).
    pub add_streams: bool,
    /// Limit on our outbound streams when the peer asks for more; 2,048 by default.
    pub outbound_streams_max: u16,
    /// Limit on our inbound streams when the peer adds more; 2,048 by default.
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
    /// Policy that fulfils no request. It is the default.
    pub const NONE: ReconfigPolicy = ReconfigPolicy {
        reset_streams: false,
        reset_association: false,
        add_streams: false,
        outbound_streams_max: 2048,
        inbound_streams_max: 2048,
        _non_exhaustive: (),
    };

    /// Returns this policy with all kinds of requests fulfilled, within its limits on streams.
    pub const fn everything(self) -> ReconfigPolicy {
        ReconfigPolicy { reset_streams: true, reset_association: true, add_streams: true, ..self }
    }
}

/// Direction of streams, seen from this end. A `match` may be exhaustive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamDirection {
    /// From this end to the peer.
    Outgoing,
    /// From the peer to this end.
    Incoming,
}

/// Outcome of a request to change streams. Only a request of this end can fail here: a request of the peer is reported only
/// when it is fulfilled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReconfigOutcome {
    /// The request was fulfilled.
    Done,
    /// The peer had nothing to do, because the requested state already exists.
    NothingToDo,
    /// The peer has denied the request.
    Denied,
    /// The peer could not fulfil the request. The number is the result in the peer's answer (RFC 6525 section 4.4). For
    /// example, result 3 means that the peer does not have a stream. Result 4 has two possible causes: the peer was waiting for
    /// an answer of ours, or its data was unacknowledged during a reset of the association. After result 4, the request can be
    /// repeated.
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

    /// Reports whether both ends now have the requested state.
    pub const fn is_success(self) -> bool {
        matches!(self, ReconfigOutcome::Done | ReconfigOutcome::NothingToDo)
    }
}

/// A request of ours to the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// `answers` is the request of the peer that this request answers, if any.
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

/// Returns the heap bytes of a list.
fn list_memory(streams: &Streams) -> usize {
    if streams.spilled() { heap(streams.capacity() * size_of::<StreamId>()) } else { 0 }
}

impl Wish {
    /// Returns the heap bytes of the list of streams.
    fn memory(&self) -> usize {
        match self {
            Wish::ResetOutgoing { streams, .. } | Wish::ResetIncoming { streams } => list_memory(streams),
            Wish::ResetAssociation | Wish::AddOutgoing { .. } | Wish::AddIncoming { .. } => 0,
        }
    }

    /// Returns the request of the peer that this one answers, if any.
    fn answers(&self) -> Option<RequestSn> {
        match self {
            Wish::ResetOutgoing { answers, .. } | Wish::AddOutgoing { answers, .. } => *answers,
            Wish::ResetIncoming { .. } | Wish::ResetAssociation | Wish::AddIncoming { .. } => None,
        }
    }

    /// Reports whether the peer must send another request, or stop sending data, before it can answer this request. Two such
    /// requests that cross would wait for each other.
    fn needs_peer(&self) -> bool {
        matches!(self, Wish::ResetIncoming { .. } | Wish::ResetAssociation | Wish::AddIncoming { .. })
    }
}

/// The outstanding request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) request: RequestSn,
    /// The last TSN assigned before the request was first sent.
    pub(crate) last_tsn: Tsn,
    /// The path on which the request was last sent.
    pub(crate) path: PathIndex,
    /// Expiry of the Re-configuration Timer.
    pub(crate) deadline: Time,
    /// True if the peer has answered "in progress" since the request was last sent.
    pub(crate) in_progress: bool,
}

/// The wish being carried out.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) wish: Wish,
    /// The request, once it was sent. Before that, `None`: earlier data of the affected streams must be sent first. For a reset
    /// of the association, all data must also be acknowledged first.
    pub(crate) pending: Option<Pending>,
}

/// The answer to a request of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The answer is this result. After an SSN/TSN reset, the answer also has our next TSN and the peer's next TSN.
    Result(ReconfigResult, Option<(Tsn, Tsn)>),
    /// A request of ours is the answer, such as a reset of our outgoing streams.
    Request,
    /// No final answer exists yet. The decision is made when the peer repeats the request.
    Open,
}

/// Meaning of a request's sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The request is the next one.
    New,
    /// The request was received before, and got this answer.
    Again(Answer),
    /// The request is neither the next one, nor one of the two before.
    Bad,
}

/// Stream reconfiguration of one association.
#[derive(Debug)]
pub(crate) struct Reconfig {
    next: RequestSn,
    waiting: VecDeque<Wish>,
    pub(crate) current: Option<Current>,
    /// Number of the peer's next request.
    expected: RequestSn,
    answers: VecDeque<(RequestSn, Answer)>,
    /// Number of our last request to reset incoming streams. The request with which the peer resets these streams names this
    /// number.
    incoming_asked: Option<RequestSn>,
    /// Number of streams that we asked the peer to add and that the peer has not added yet.
    pub(crate) additions_asked: u16,
    /// A request of the peer to reset streams, with the list of streams. The request waits for earlier data to arrive.
    pub(crate) put_off: Option<(RequestSn, Streams)>,
    /// Time at which the driver last requested a reset of the association.
    pub(crate) association_reset_at: Option<Time>,
    /// State of the peer's requests to reset the association. The first part is our first unacknowledged sequence at the last
    /// request. The second part counts the requests at which this sequence was the same.
    stalled: (Seq, u32),
    /// Time until which no new data is sent, because the peer wants to reset the association.
    pub(crate) quiet_until: Option<Time>,
}

impl Reconfig {
    /// Returns the bytes of this state, in the sizes that the allocator hands out.
    pub(crate) fn memory(&self) -> usize {
        let lists = self.waiting.iter().map(Wish::memory).sum::<usize>()
            + self.current.as_ref().map_or(0, |c| c.wish.memory())
            + self.put_off.as_ref().map_or(0, |(_, streams)| list_memory(streams));
        heap(size_of::<Reconfig>())
            + heap(self.waiting.capacity() * size_of::<Wish>())
            + heap(self.answers.capacity() * size_of::<(RequestSn, Answer)>())
            + lists
    }

    /// Creates the state of a new association. `tsns` are our initial TSN and the peer's, with which the request numbers begin
    /// (RFC 6525 section 4.1).
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

    /// Queues a wish. The caller must check that there is [`room`](Self::room).
    pub(crate) fn wish(&mut self, wish: Wish) {
        self.waiting.push_back(wish);
    }

    /// If no other wish is in progress, starts the next wish and returns it. RFC 6525 section 5.1.1: "there MUST NOT be more
    /// than one request in flight."
    //= rfc6525#5.1.1-4
    pub(crate) fn begin_next(&mut self) -> Option<Wish> {
        if self.current.is_some() || self.quiet_until.is_some() {
            return None;
        }
        let wish = self.waiting.pop_front()?;
        self.current = Some(Current { wish: wish.clone(), pending: None });
        Some(wish)
    }

    /// Returns the current wish if its request was not sent yet.
    pub(crate) fn unsent(&self) -> Option<&Wish> {
        self.current.as_ref().filter(|c| c.pending.is_none()).map(|c| &c.wish)
    }

    /// Assigns a number to the request of the current wish, which is about to leave.
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

    /// Returns the last TSN that was assigned before the outstanding request to reset outgoing streams, if such a request is
    /// outstanding.
    pub(crate) fn outgoing_reset_end(&self) -> Option<Tsn> {
        let current = self.current.as_ref().filter(|c| matches!(c.wish, Wish::ResetOutgoing { .. }))?;
        current.pending.map(|pending| pending.last_tsn)
    }

    pub(crate) fn pending_mut(&mut self) -> Option<&mut Pending> {
        self.current.as_mut().and_then(|c| c.pending.as_mut())
    }

    /// Reports whether our request to reset the association is outstanding.
    pub(crate) fn asks_for_association_reset(&self) -> bool {
        self.current.as_ref().is_some_and(|c| c.wish == Wish::ResetAssociation && c.pending.is_some())
    }

    /// Handles a request of the peer to reset the association while our data from `first` on is unacknowledged. Returns true if
    /// the reset should wait for this data. The reset waits up to [`MAX_STALLED`] times without progress.
    pub(crate) fn waits_for_data(&mut self, first: Seq) -> bool {
        let times = if self.stalled.0 == first { self.stalled.1 + 1 } else { 1 };
        let waits = times <= MAX_STALLED;
        self.stalled = (first, if waits { times } else { 0 });
        waits
    }

    /// Removes and returns the current wish if its outstanding request has this number.
    pub(crate) fn take_pending(&mut self, request: RequestSn) -> Option<Wish> {
        self.pending().filter(|p| p.request == request)?;
        self.current.take().map(|c| c.wish)
    }

    /// Reports whether our last request to reset incoming streams had this number.
    pub(crate) fn asked_for_incoming(&self, request: RequestSn) -> bool {
        self.incoming_asked == Some(request)
    }

    /// Returns the number of the peer's last request.
    pub(crate) fn last_of_peer(&self) -> RequestSn {
        self.expected.prev()
    }

    /// Classifies a request of the peer by its number.
    pub(crate) fn judge(&self, request: RequestSn) -> Arrival {
        if request == self.expected {
            return Arrival::New;
        }
        let known = self.answers.iter().find(|(r, _)| *r == request);
        known.map_or(Arrival::Bad, |(_, answer)| Arrival::Again(*answer))
    }

    /// Keeps the answer to a request, in case the peer repeats the request.
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

    /// Returns `Some(true)` if our outstanding request answers this request of the peer. Returns `Some(false)` if one of our
    /// unsent requests will answer it. Returns `None` otherwise.
    pub(crate) fn is_answering(&self, request: RequestSn) -> Option<bool> {
        if self.current.as_ref().is_some_and(|c| c.wish.answers() == Some(request)) {
            return Some(self.pending().is_some());
        }
        self.waiting.iter().any(|w| w.answers() == Some(request)).then_some(false)
    }

    /// Reports whether one of our wishes prevents an answer to the peer's request. Either both requests would wait for each
    /// other, or no room is left for another wish.
    pub(crate) fn crosses(&self) -> bool {
        let ours = self.current.as_ref().map(|c| &c.wish).into_iter().chain(&self.waiting);
        self.room() == 0 || ours.into_iter().any(Wish::needs_peer)
    }

    /// Reports whether a wish is in progress or waits.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.waiting.is_empty()
    }

    /// Reports whether the current wish resets all these outgoing streams.
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
    fn a_request_that_needs_the_peer_or_a_full_queue_blocks_the_peers_request() {
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
