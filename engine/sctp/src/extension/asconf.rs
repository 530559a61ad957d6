//! Dynamic address reconfiguration (RFC 5061): our waiting requests, our outstanding request, and our answers to the peer's requests.
//!
//! This module sends nothing and knows no paths: `association/addresses.rs` applies the changes. Invariants: at most one request is
//! outstanding, and it has one change; serial numbers increase by one. Begin at [`Asconf`].

use std::collections::VecDeque;
use std::net::IpAddr;

use base::{Route, Time};
use bytes::Bytes;
use smallvec::SmallVec;
use wire::{AsconfSerial, Cause, Causes, Parameter, Tsn};

use crate::config::AddressUse;
use crate::memory::{heap, list};
use crate::path::PathIndex;

/// Limit on the changes that wait to be requested.
pub(crate) const MAX_WAITING: usize = 16;

/// Limit on the changes that are applied from one ASCONF.
//= rfc5061#5.1.1-6
pub(crate) const MAX_CHANGES: usize = 32;

/// A change of one end's addresses. All except the last are from RFC 5061, which defines no others, so a `match` may be exhaustive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressChange {
    /// The address joins the association.
    Add(IpAddr),
    /// The address leaves the association.
    Remove(IpAddr),
    /// The other end should send to this address if it can.
    SetPrimary(IpAddr),
    /// The address replaces all other addresses: the host has moved, and can no longer send from the others.
    MoveTo(IpAddr),
    /// The other end should apply this use to the address, if it can. The parameter is this project's own, so other implementations refuse
    /// it.
    SetUse(IpAddr, AddressUse),
}

/// The outstanding request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) serial: AsconfSerial,
    pub(crate) change: AddressChange,
    /// The path on which the request was last sent.
    pub(crate) path: PathIndex,
    /// Time at which the request was last sent.
    pub(crate) sent_at: Time,
    /// Number of times that the request was repeated on this path after the peer was heard there.
    pub(crate) repeats: u8,
    /// Expiry of T4-rto.
    pub(crate) deadline: Time,
}

/// Decision on a change that the peer asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response<'a> {
    pub(crate) correlation: u32,
    pub(crate) refusal: Option<Cause<'a>>,
}

/// Meaning of an ASCONF's serial number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The request is the next one.
    New,
    /// The request was answered before. The field has the parameters of that answer.
    Again(Bytes),
    /// The request is too old or too new.
    Discard,
}

/// Address reconfiguration of one association.
#[derive(Debug)]
pub(crate) struct Asconf {
    next_serial: AsconfSerial,
    waiting: VecDeque<AddressChange>,
    pub(crate) pending: Option<Pending>,
    /// Serial number of the last one of the peer's requests that we have answered.
    peer_serial: AsconfSerial,
    answer: Option<Bytes>,
    /// True if the peer has reported that it does not understand changes of addresses.
    refuses_changes: bool,
    /// True if the peer does not understand requests to set its primary address.
    refuses_primary: bool,
    /// True if the peer does not understand uses of addresses.
    refuses_uses: bool,
    /// Uses of our addresses that the peer has accepted or refused. For all other addresses, the peer assumes [`AddressUse::default`].
    told: Vec<(IpAddr, AddressUse)>,
    /// Our addresses, including addresses that no path uses.
    pub(crate) local: SmallVec<[IpAddr; 4]>,
    /// An address of ours that the peer knows. An ASCONF from a new address contains this known address, so the peer can find the
    /// association (RFC 5061 section 4.1.1).
    pub(crate) known: IpAddr,
    /// Addresses of the peer that were added without a shared key, and that the peer has not yet proved over a confirmed path.
    pub(crate) unproven: Vec<IpAddr>,
    /// Route of the current packet.
    pub(crate) source: Route,
    /// True if the current packet is sealed, or the chunks read so far include a valid signature with a shared key.
    pub(crate) is_keyed: bool,
}

impl Asconf {
    /// Returns the bytes of this state, in the sizes that the allocator hands out.
    pub(crate) fn memory(&self) -> usize {
        let local = if self.local.spilled() { self.local.capacity() } else { 0 };
        heap(size_of::<Asconf>())
            + heap(self.waiting.capacity() * size_of::<AddressChange>())
            + heap(self.answer.as_ref().map_or(0, Bytes::len))
            + heap(local * size_of::<IpAddr>())
            + heap(self.unproven.capacity() * size_of::<IpAddr>())
            + list::<(IpAddr, AddressUse)>(self.told.capacity())
    }

    /// Creates the state of a new association. `tsns` are our initial TSN and the peer's, with which the serial numbers begin (RFC 5061
    /// section 5.1, A2). `source` is the route of the current packet.
    pub(crate) fn new(tsns: (Tsn, Tsn), local: SmallVec<[IpAddr; 4]>, source: Route) -> Asconf {
        Asconf {
            //= rfc5061#5.1-5
            next_serial: AsconfSerial(tsns.0.0),
            waiting: VecDeque::new(),
            pending: None,
            peer_serial: AsconfSerial(tsns.1.0.wrapping_sub(1)),
            answer: None,
            refuses_changes: false,
            refuses_primary: false,
            refuses_uses: false,
            told: Vec::new(),
            local,
            known: source.local,
            unproven: Vec::new(),
            source,
            is_keyed: false,
        }
    }

    /// Queues a change to be requested. Returns false if the queue has no room.
    pub(crate) fn request(&mut self, change: AddressChange) -> bool {
        let has_room = self.waiting.len() < MAX_WAITING;
        if has_room {
            self.waiting.push_back(change);
        }
        has_room
    }

    /// Reports whether the peer knows this use of one of our addresses, or will learn it from a waiting or outstanding request.
    pub(crate) fn has_told(&self, address: IpAddr, usage: AddressUse) -> bool {
        let of_address = |change: &AddressChange| match *change {
            AddressChange::SetUse(of, usage) if of == address => Some(usage),
            _ => None,
        };
        let pending = self.pending.as_ref().and_then(|pending| of_address(&pending.change));
        let told = || self.told.iter().find(|(of, _)| *of == address).map(|(_, usage)| *usage);
        let known = self.waiting.iter().rev().find_map(of_address).or(pending).or_else(told);
        known.unwrap_or_default() == usage
    }

    /// Records that the peer has answered a change. A use that the peer has refused is not requested again.
    pub(crate) fn note_answered(&mut self, change: AddressChange, is_refused: bool) {
        match change {
            AddressChange::SetUse(address, usage) => {
                self.told.retain(|(of, _)| *of != address);
                self.told.push((address, usage));
            }
            _ if is_refused => {}
            AddressChange::Remove(address) => self.told.retain(|(of, _)| *of != address),
            AddressChange::MoveTo(_) => self.told.clear(),
            AddressChange::Add(_) | AddressChange::SetPrimary(_) => {}
        }
    }

    /// Queues a request with the use of one of our addresses. The request replaces a waiting request for the same address. Returns false if
    /// the queue has no room.
    pub(crate) fn request_use(&mut self, address: IpAddr, usage: AddressUse) -> bool {
        self.waiting.retain(|change| !matches!(change, AddressChange::SetUse(of, _) if *of == address));
        self.request(AddressChange::SetUse(address, usage))
    }

    /// Queues a move, and drops all waiting changes, because the move makes them pointless. The outstanding request is not dropped, because
    /// the peer may have received it already.
    pub(crate) fn request_move(&mut self, address: IpAddr) {
        let is_moving = self.pending.is_some_and(|p| matches!(p.change, AddressChange::MoveTo(_)));
        if let (false, Some(&known)) = (is_moving, self.local.first()) {
            self.known = known;
        }
        self.waiting.clear();
        self.waiting.push_back(AddressChange::MoveTo(address));
        self.local.clear();
        self.local.push(address);
    }

    /// Reports whether a move waits to be requested. Answers to earlier changes then have no effect, because the move replaces those
    /// changes.
    pub(crate) fn is_about_to_move(&self) -> bool {
        self.waiting.iter().any(|c| matches!(c, AddressChange::MoveTo(_)))
    }

    /// Records that the peer does not understand changes of this kind. Returns the waiting changes of this kind, which are dropped.
    //= rfc5061#section-5.3
    //# F3a) If an endpoint receives an Error Cause TLV indicating that the IP address Add or IP address Deletion parameters
    //# was not understood, the endpoint MUST consider the operation failed and MUST NOT attempt to send any subsequent Add or
    //# Delete requests to the peer.
    pub(crate) fn on_not_understood(&mut self, change: AddressChange) -> Vec<AddressChange> {
        match change {
            AddressChange::Add(_) | AddressChange::Remove(_) | AddressChange::MoveTo(_) => {
                self.refuses_changes = true;
            }
            AddressChange::SetPrimary(_) => self.refuses_primary = true,
            AddressChange::SetUse(..) => self.refuses_uses = true,
        }
        let (keep, gone): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|c| self.is_understood(*c));
        self.waiting = keep;
        gone.into()
    }

    /// Records that the peer understands no kind of change. Returns all waiting changes, which are dropped.
    pub(crate) fn on_nothing_understood(&mut self) -> Vec<AddressChange> {
        (self.refuses_changes, self.refuses_primary, self.refuses_uses) = (true, true, true);
        std::mem::take(&mut self.waiting).into()
    }

    /// Reports whether a change of this kind may still be requested.
    pub(crate) fn is_understood(&self, change: AddressChange) -> bool {
        match change {
            AddressChange::Add(_) | AddressChange::Remove(_) | AddressChange::MoveTo(_) => {
                !self.refuses_changes
            }
            AddressChange::SetPrimary(_) => !self.refuses_primary,
            AddressChange::SetUse(..) => !self.refuses_uses,
        }
    }

    /// Reports whether the addition or removal of this address waits or is outstanding.
    pub(crate) fn is_changing(&self, address: IpAddr) -> bool {
        let concerns = |c: &AddressChange| match *c {
            AddressChange::Add(a) | AddressChange::Remove(a) => a == address,
            AddressChange::SetPrimary(_) | AddressChange::MoveTo(_) | AddressChange::SetUse(..) => false,
        };
        self.waiting.iter().any(concerns) || self.pending.as_ref().is_some_and(|p| concerns(&p.change))
    }

    /// Makes the next change the outstanding request, and returns the change. Returns `None` if a request is outstanding or no change
    /// waits. RFC 5061 section 5.1.1, C1: "One and only one SCTP packet-holding ASCONF Chunk(s) MAY be in transit and unacknowledged at any
    /// one time."
    pub(crate) fn begin_next(
        &mut self,
        path: PathIndex,
        (sent_at, deadline): (Time, Time),
    ) -> Option<AddressChange> {
        //= rfc5061#5.1.1-2
        if self.pending.is_some() {
            return None;
        }
        let change = self.waiting.pop_front()?;
        let serial = self.next_serial;
        //= rfc5061#5.1-3 5.1-4
        self.next_serial = serial.next();
        self.pending = Some(Pending { serial, change, path, sent_at, repeats: 0, deadline });
        Some(change)
    }

    /// Reports whether no request has used the number `serial` yet. An ASCONF-ACK with such a number is a violation (RFC 5061 section 5.3,
    /// F0).
    pub(crate) fn was_never_used(&self, serial: AsconfSerial) -> bool {
        !self.next_serial.is_after(serial)
    }

    /// Classifies a request of the peer by its number (RFC 5061 section 5.2).
    pub(crate) fn judge(&self, serial: AsconfSerial) -> Arrival {
        if serial == self.peer_serial.next() {
            return Arrival::New;
        }
        match &self.answer {
            Some(answer) if serial == self.peer_serial => Arrival::Again(answer.clone()),
            _ => Arrival::Discard,
        }
    }

    /// Keeps the answer to a new request, in case the peer repeats the request.
    pub(crate) fn keep_answer(&mut self, serial: AsconfSerial, answer: Bytes) {
        self.peer_serial = serial;
        self.answer = Some(answer);
    }
}

/// Returns the parameters of an ASCONF-ACK. If all changes succeeded, the ASCONF-ACK has no parameters (RFC 5061 section 4.2.5).
pub(crate) fn encode(responses: &[Response<'_>]) -> Bytes {
    let mut bytes = Vec::new();
    if responses.iter().all(|r| r.refusal.is_none()) {
        return bytes.into();
    }
    for response in responses {
        //= rfc5061#5.2-7
        let correlation = response.correlation;
        let mut buf = [0; 512];
        let mut out = wire::Writer::new(&mut buf);
        let written = match &response.refusal {
            None => Parameter::SuccessIndication { correlation }.write(&mut out),
            Some(cause) => {
                let causes = std::slice::from_ref(cause);
                Parameter::ErrorCause { correlation, causes: Causes::from(causes) }.write(&mut out)
            }
        };
        if written.is_ok() {
            bytes.resize(wire::padded(bytes.len()), 0);
            bytes.extend_from_slice(out.written());
        }
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preference;
    use base::Carrier;

    fn asconf() -> Asconf {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let source = Route { local: address, remote: address, carrier: Carrier::Ip };
        Asconf::new((Tsn(u32::MAX), Tsn(0)), SmallVec::new(), source)
    }

    fn add(n: u8) -> AddressChange {
        AddressChange::Add(IpAddr::from([10, 0, 0, n]))
    }

    #[test]
    //= rfc5061#3-1 3-2 5.1-3 5.1-4 5.1-5 5.1.1-2
    fn one_request_is_out_at_a_time_and_numbers_wrap() {
        let mut a = asconf();
        assert!(a.request(add(1)) && a.request(add(2)));
        assert_eq!(a.begin_next(PathIndex::new(0), (Time::ZERO, Time::ZERO)), Some(add(1)));
        assert_eq!(a.pending.map(|p| p.serial), Some(AsconfSerial(u32::MAX)));
        assert_eq!(a.begin_next(PathIndex::new(0), (Time::ZERO, Time::ZERO)), None);
        assert!(a.was_never_used(AsconfSerial(0)) && !a.was_never_used(AsconfSerial(u32::MAX)));
        a.pending = None;
        assert_eq!(a.begin_next(PathIndex::new(0), (Time::ZERO, Time::ZERO)), Some(add(2)));
        assert_eq!(a.pending.map(|p| p.serial), Some(AsconfSerial(0)));
    }

    #[test]
    fn changes_unknown_to_the_peer_are_not_requested_again() {
        let mut a = asconf();
        let primary = AddressChange::SetPrimary(IpAddr::from([10, 0, 0, 1]));
        [add(1), primary, add(2)].into_iter().for_each(|c| assert!(a.request(c)));
        assert_eq!(a.on_not_understood(add(9)), [add(1), add(2)]);
        assert!(!a.is_understood(add(3)) && a.is_understood(primary));
        assert_eq!(a.on_nothing_understood(), [primary]);
        assert!(!a.is_understood(primary));
    }

    #[test]
    fn an_address_use_is_announced_until_the_peer_accepts_it_or_refuses_address_uses() {
        let mut a = asconf();
        let (here, backup) = (
            IpAddr::from([10, 0, 0, 1]),
            AddressUse { preference: Preference::Backup, ..AddressUse::default() },
        );
        assert!(a.has_told(here, AddressUse::default()) && !a.has_told(here, backup));
        assert!(a.request_use(here, backup) && a.has_told(here, backup));
        // The use is dropped before it is sent, because the host has moved.
        a.request_move(IpAddr::from([10, 0, 0, 2]));
        assert!(!a.has_told(here, backup));
        a.note_answered(AddressChange::SetUse(here, backup), true);
        assert!(a.has_told(here, backup) && !a.has_told(here, AddressUse::default()));
        a.note_answered(AddressChange::Remove(here), true);
        assert!(a.has_told(here, backup));
        // A newer use replaces a waiting one.
        assert!(a.request_use(here, AddressUse::default()) && a.request_use(here, backup));
        assert!(a.has_told(here, backup));
        a.note_answered(AddressChange::Remove(here), false);
        let use_of_it = AddressChange::SetUse(here, backup);
        assert!(a.is_understood(use_of_it));
        assert_eq!(a.on_not_understood(use_of_it), [use_of_it]);
        assert!(!a.is_understood(use_of_it) && a.is_understood(add(1)));
    }

    #[test]
    fn the_number_of_waiting_address_changes_is_limited() {
        let mut a = asconf();
        assert!((0..MAX_WAITING as u8).all(|n| a.request(add(n))));
        assert!(!a.request(add(99)));
    }

    #[test]
    fn a_request_is_new_once_then_answered_from_memory_and_others_are_discarded() {
        let mut a = asconf();
        assert_eq!(a.judge(AsconfSerial(u32::MAX)), Arrival::Discard);
        assert_eq!(a.judge(AsconfSerial(1)), Arrival::Discard);
        assert_eq!(a.judge(AsconfSerial(0)), Arrival::New);
        a.keep_answer(AsconfSerial(0), Bytes::from_static(b"answer"));
        assert_eq!(a.judge(AsconfSerial(0)), Arrival::Again(Bytes::from_static(b"answer")));
        assert_eq!(a.judge(AsconfSerial(1)), Arrival::New);
        assert_eq!(a.judge(AsconfSerial(2)), Arrival::Discard);
    }

    #[test]
    //= rfc5061#5.2-7
    fn a_response_with_a_refusal_also_lists_every_success() {
        let fine = Response { correlation: 1, refusal: None };
        assert!(encode(&[fine]).is_empty());
        let refused = Response { correlation: 2, refusal: Some(Cause::DeleteSourceAddress(&[])) };
        let bytes = encode(&[fine, refused]);
        let list: Vec<_> = wire::Parameters::from_wire(&bytes).iter().map(Result::unwrap).collect();
        assert_eq!(list[0], Parameter::SuccessIndication { correlation: 1 });
        assert!(matches!(list[1], Parameter::ErrorCause { correlation: 2, .. }));
    }
}
