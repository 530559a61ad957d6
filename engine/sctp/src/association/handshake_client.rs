//! COOKIE-WAIT and COOKIE-ECHOED: the initiator's half of the handshake (RFC 9260 section 5.1). The module also has the
//! acceptor's last step, from a valid cookie to COOKIE ACK.

use std::net::IpAddr;
use std::time::Duration;

use base::{Route, Time};
use bytes::Bytes;
use smallvec::SmallVec;
use wire::{
    Cause, Chunk, CommonHeader, Init, PacketWriter, Parameter, Parameters, Ppid, StreamId, Tsn,
    VerificationTag,
};

use super::state::Retry;
use super::{Association, Context, Control, Joining, State};
use crate::config::AssociationConfig;
use crate::error::KeyError;
use crate::event::{CloseReason, Event, Unreachable};
use crate::extension::Offer;
use crate::extension::auth::Nonce;
use crate::extension::protection::tie_breaker;
use crate::negotiation::{PeerInit, address_parameter};
use crate::path::PathIndex;

/// Maximum length of a packet with an INIT or INIT ACK, in bytes.
pub(crate) const INIT_PACKET_MAX: usize = 1400;

/// Minimum length of a packet with our INIT, in bytes. A peer may limit its INIT ACK to a multiple of the INIT's
/// length, as this engine does. This minimum leaves room for many addresses and for keys in the INIT ACK.
pub(crate) const INIT_PACKET_MIN: usize = 256;

/// Maximum length of the key-management message that is sent with the COOKIE ECHO, in bytes.
const KEY_MESSAGE_FIRST_MAX: usize = 4096;

/// Limit for [`Opening::add_routes`]: the maximum number of routes of one INIT.
const INIT_ROUTES_MAX: usize = 32;

/// Bytes of an INIT chunk before its parameters (RFC 9260 section 3.3.2).
const INIT_HEADER_LEN: usize = 20;

/// Bytes of a parameter before its value.
const PARAMETER_HEADER_LEN: usize = 4;

/// An association that has sent INIT and has no answer yet (COOKIE-WAIT).
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) config: AssociationConfig,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) local_tag: VerificationTag,
    pub(crate) initial_tsn: Tsn,
    pub(crate) local_addresses: Vec<IpAddr>,
    /// Our random number for authentication keys.
    pub(crate) nonce: Nonce,
    /// Routes on which the INIT is sent at the same time. A route is removed when it proves unreachable.
    pub(crate) init_routes: Vec<Route>,
    /// The first address of the peer that was tried.
    pub(crate) first: IpAddr,
    /// Expiry time of T1-init.
    pub(crate) t1: Time,
    pub(crate) rto: Duration,
    pub(crate) retransmits: u8,
    /// Value of the Cookie Preservative parameter in the next INIT, in milliseconds. Set after a stale cookie.
    pub(crate) cookie_preservative: Option<u32>,
    /// Index of the first route on which the INIT is still unsent.
    pub(crate) unsent: usize,
    /// Message that is bundled with the COOKIE ECHO, on stream 0.
    pub(crate) first_message: Option<FirstMessage>,
    /// First key-management message. It is sent with the COOKIE ECHO if the peer agrees on protection.
    pub(crate) key_message: Option<Bytes>,
}

/// A message that the caller gave with the connect command.
#[derive(Clone, Debug)]
pub(crate) struct FirstMessage {
    pub(crate) ppid: Ppid,
    pub(crate) message: Bytes,
}

impl Opening {
    /// Stores the first key-management message, which will be sent with the COOKIE ECHO.
    pub(crate) fn set_key_message(&mut self, message: Bytes) -> Result<(), KeyError> {
        let length = message.len();
        if self.config.protection.is_none() || self.key_message.is_some() {
            return Err(KeyError::NotAgreed);
        }
        if length == 0 || length > KEY_MESSAGE_FIRST_MAX {
            return Err(KeyError::Length { length, max: KEY_MESSAGE_FIRST_MAX });
        }
        self.key_message = Some(message);
        Ok(())
    }

    /// Reports whether this end ignores the peer's INIT when the INITs of both ends cross. This end's handshake then
    /// continues. Only one of the two handshakes may continue, because all keys must come from the same handshake.
    pub(crate) fn goes_on_before(&self, peer: &PeerInit<'_>) -> bool {
        let by_protection = self.config.protection.is_some()
            && peer.protection.is_some_and(|offer| tie_breaker(&self.nonce) < offer.tie_breaker);
        let by_direction =
            self.config.auth.by_direction && peer.auth.random().is_some_and(|peers| self.nonce[..] < *peers);
        if self.config.protection.is_some() && peer.protection.is_some() {
            by_protection
        } else {
            by_direction
        }
    }

    /// Schedules the INIT on every route, and restarts T1-init.
    pub(crate) fn begin_round(&mut self, now: Time) {
        self.unsent = 0;
        self.t1 = now + self.rto;
    }

    /// Writes the next INIT, if one is due.
    pub(crate) fn poll_transmit(&mut self, buf: &mut [u8]) -> Option<(Route, usize)> {
        let route = *self.init_routes.get(self.unsent)?;
        self.unsent += 1;
        let header = CommonHeader {
            source_port: self.local_port,
            destination_port: self.remote_port,
            //= rfc9260#3.1-4
            tag: VerificationTag(0),
        };
        let room = buf.len().min(INIT_PACKET_MAX);
        let mut packet = PacketWriter::new(&mut buf[..room], header);
        let offer = self.offer();
        let mut parameters = own_parameters(&self.local_addresses, &self.config, &offer);
        parameters.extend(self.cookie_preservative.map(Parameter::CookiePreservative));
        parameters.extend(padding(&parameters));
        //= rfc9260#3-1
        //= rfc9653#5.2-2
        packet.push(&Chunk::Init(self.init(&parameters))).ok()?;
        Some((route, packet.finish()))
    }

    /// Writes the next INIT into another association's train, if the INIT uses the train's route `route`.
    pub(crate) fn poll_joining(&mut self, route: &Route, buf: &mut [u8]) -> Joining {
        match self.init_routes.get(self.unsent) {
            None => Joining::Nothing,
            Some(next) if next == route && buf.len() >= INIT_PACKET_MAX => {
                self.poll_transmit(buf).map_or(Joining::Nothing, |(_, len)| Joining::Packet(len))
            }
            Some(_) => Joining::Other,
        }
    }

    /// Returns the extensions that this end offers.
    pub(crate) fn offer(&self) -> Offer {
        Offer::new(&self.config, self.nonce)
    }

    /// Returns this end's part of the negotiation, for an INIT or for the INIT ACK of a collision.
    pub(crate) fn init<'a>(&self, parameters: &'a [Parameter<'a>]) -> Init<'a> {
        Init {
            //= rfc9260#5.1-1 5.2.1-1
            tag: self.local_tag,
            a_rwnd: u32::try_from(self.config.first_window()).unwrap_or(u32::MAX),
            //= rfc9260#5.1.1-1 3.3.2-11 3.3.2-13
            outbound_streams: self.config.outbound_streams,
            inbound_streams: self.config.inbound_streams,
            initial_tsn: self.initial_tsn,
            parameters: Parameters::from(parameters),
        }
    }

    /// Handles expiry of T1-init. Returns the reason if the attempt must end.
    pub(crate) fn on_timeout(&mut self, now: Time) -> Option<CloseReason> {
        if now < self.t1 {
            return None;
        }
        if self.retransmits >= self.config.max_init_retransmits {
            //= rfc9260#4-4 4-5
            return Some(CloseReason::NoAnswer);
        }
        self.retransmits += 1;
        self.rto = self.config.next_t1(self.rto, self.retransmits);
        //= rfc9260#4-3 5.1-12
        self.begin_round(now);
        None
    }

    /// Adds routes on which the INIT is sent immediately. Ignores routes beyond [`INIT_ROUTES_MAX`].
    pub(crate) fn add_routes(&mut self, routes: &[Route]) {
        for route in routes {
            if self.init_routes.len() < INIT_ROUTES_MAX && !self.init_routes.contains(route) {
                self.init_routes.push(*route);
            }
        }
    }

    /// Reports whether one of the INIT's routes leads to the source of a packet that arrived by `route`. The UDP port
    /// must match too.
    pub(crate) fn has_asked_at(&self, route: &Route) -> bool {
        self.init_routes.iter().any(|r| r.remote == route.remote && r.carrier == route.carrier)
    }

    /// Stops sending the INIT to `remote`. Returns false and changes nothing if `remote` is the first address that was
    /// tried.
    pub(crate) fn leave(&mut self, remote: IpAddr) -> bool {
        if remote == self.first {
            return false;
        }
        let sent = self.init_routes.iter().take(self.unsent).filter(|r| r.remote != remote).count();
        self.init_routes.retain(|r| r.remote != remote);
        self.unsent = sent;
        true
    }

    /// Removes `route`, which ICMP reported as unreachable. If no route is left, returns the reason for which the
    /// attempt must end.
    pub(crate) fn on_unreachable(&mut self, route: &Route, what: Unreachable) -> Option<CloseReason> {
        let index = self.init_routes.iter().position(|r| r == route)?;
        self.init_routes.remove(index);
        if index < self.unsent {
            self.unsent -= 1;
        }
        self.init_routes.is_empty().then_some(CloseReason::Unreachable(what))
    }
}

/// Returns the parameters of this end that INIT and INIT ACK have in common. A host with a single address does not list
/// the address, because the packet's source address is enough (RFC 9260 section 3.3.2.1).
//= rfc9260#3.3.2-1 3.3.2.1.4-1 3.3.2.1.5-1
//= rfc4820#4-2
//= rfc9260#3.3.2-1 3.3.2.1.4-1 3.3.2.1.5-1
pub(crate) fn own_parameters<'a>(
    addresses: &[IpAddr],
    config: &AssociationConfig,
    offer: &'a Offer,
) -> SmallVec<[Parameter<'a>; 8]> {
    let mut list = SmallVec::new();
    //= rfc6951#3.2-1
    if addresses.len() > 1 {
        list.extend(addresses.iter().map(|&a| address_parameter(a)));
    }
    //= rfc5061#4.2.6-2 4.2.6-4
    list.extend(config.adaptation.map(Parameter::AdaptationLayerIndication));
    list.extend(offer.parameters());
    list
}

/// Returns the PAD parameter (RFC 4820 section 4) that extends an INIT with `parameters` to [`INIT_PACKET_MIN`].
fn padding(parameters: &[Parameter<'_>]) -> Option<Parameter<'static>> {
    let mut room = [0; INIT_PACKET_MAX];
    let mut out = wire::Writer::new(&mut room);
    parameters.iter().try_for_each(|p| p.write(&mut out)).ok()?;
    let length = wire::COMMON_HEADER_LEN + INIT_HEADER_LEN + wire::padded(out.written().len());
    let len = INIT_PACKET_MIN.checked_sub(length + PARAMETER_HEADER_LEN)?;
    Some(Parameter::Padding { len })
}

impl Association {
    /// Enters COOKIE-ECHOED. The COOKIE ECHO takes the path that the INIT ACK has confirmed.
    pub(super) fn echo_cookie(&mut self, opening: Opening, cookie: &[u8], ctx: &mut Context<'_>) {
        let t1 = Retry { at: ctx.now + opening.rto, count: 0 };
        let key_message = opening.key_message.clone().filter(|_| self.is_protected());
        let says_first = key_message.is_some() || (opening.first_message.is_some() && !self.is_protected());
        key_message.into_iter().for_each(|message| self.queue_key_message(message));
        opening.first_message.iter().for_each(|first| self.queue_first(first.clone()));
        let cookie = Bytes::copy_from_slice(cookie);
        //= rfc9260#3.3.11-2 5.1.4-2
        self.transfer.enter(State::CookieEchoed { cookie, t1, opening: Box::new(opening), says_first });
        //= rfc9260#3.2.2-3 3.3.11-1 5.1.4-1 5.4-5
        self.transfer.out.queue(PathIndex::new(0), Control::CookieEcho);
    }

    /// Queues the message of the connect command before all others. With protection, the message waits for the keys.
    pub(crate) fn queue_first(&mut self, first: FirstMessage) {
        match self.transfer.integrity.protection_mut() {
            Some(protection) => protection.hold_first(first),
            None => self.queue_ordered(first.ppid, first.message),
        }
    }

    /// Queues a message in order on stream 0.
    pub(super) fn queue_ordered(&mut self, ppid: Ppid, message: Bytes) {
        self.transfer.tx.queue.push(StreamId(0), ppid, message, false, false);
    }

    /// Returns the message of the connect command until the COOKIE ECHO is answered.
    pub(crate) fn first_message(&self) -> Option<FirstMessage> {
        match &self.transfer.state {
            State::CookieEchoed { opening, .. } => opening.first_message.clone(),
            _ => None,
        }
    }

    /// Sends the unrecognized parameters of an INIT ACK back, in an ERROR chunk after the COOKIE ECHO (RFC 9260 section
    /// 5.1 C).
    //= rfc9260#3.2.2-2
    pub(crate) fn report_unrecognized(&mut self, parameters: &[&[u8]], ctx: &Context<'_>) {
        if parameters.is_empty() {
            return;
        }
        let mut raw = Vec::new();
        for parameter in parameters {
            raw.resize(wire::padded(raw.len()), 0);
            raw.extend_from_slice(parameter);
        }
        self.report(PathIndex::new(0), &Cause::UnrecognizedParameters(&raw), ctx);
    }

    /// Establishes the association on a COOKIE ACK, or on the peer's COOKIE ECHO in a collision.
    pub(super) fn establish(&mut self, ctx: &mut Context<'_>) {
        self.transfer.out.withdraw(|c| matches!(c, Control::CookieEcho));
        self.transfer.enter(State::Established);
        self.transfer.hearsay.forget();
        for index in self.transfer.paths.indices() {
            if !self.transfer.paths.get(index).is_confirmed() {
                self.transfer.paths.get_mut(index).probe_now(ctx.now);
            }
        }
        self.transfer.out.emit(Event::Established {
            route: self.transfer.paths.get(PathIndex::new(0)).route,
            adaptation: self.transfer.negotiated.adaptation(),
            outbound_streams: self.transfer.negotiated.outbound_streams(),
            inbound_streams: self.transfer.negotiated.inbound_streams(),
        });
    }

    /// Notifies the driver of an incoming association.
    pub(crate) fn announce(&mut self) {
        let (local_port, remote_port) = self.transfer.negotiated.ports();
        self.transfer.out.emit(Event::Incoming {
            route: self.transfer.paths.get(PathIndex::new(0)).route,
            local_port,
            remote_port,
            adaptation: self.transfer.negotiated.adaptation(),
        });
    }

    /// Accepts the association: queues COOKIE ACK.
    pub(crate) fn accept(&mut self, ctx: &mut Context<'_>) {
        if matches!(self.transfer.state, State::Accepting) {
            //= rfc9260#3.3.12-1 5.1.5-5
            self.transfer.out.queue_first(PathIndex::new(0), Control::CookieAck);
            self.establish(ctx);
            if self.inbound.has_ready() && !self.transfer.integrity.is_pending() {
                self.transfer.out.emit(Event::Readable);
            }
        }
    }

    /// Handles a COOKIE ECHO with the tags of this association (RFC 9260 section 5.2.4, action D).
    //= rfc9260#5.2.4-10 5.2.4-11
    pub(crate) fn on_duplicate_cookie(&mut self, path: PathIndex, ctx: &mut Context<'_>) {
        //= rfc9260#5.4-3
        let path = self.proved(path);
        match self.transfer.state {
            State::CookieEchoed { .. } => {
                self.establish(ctx);
                self.transfer.out.queue_first(path, Control::CookieAck);
            }
            State::CookieWaitOver | State::Accepting | State::Closed => {}
            State::Established
            | State::ShutdownPending
            | State::ShutdownSent { .. }
            | State::ShutdownReceived { .. }
            | State::ShutdownAckSent { .. } => {
                if !self.transfer.out.chunks().any(|(_, c)| matches!(c, Control::CookieAck)) {
                    self.transfer.out.queue_first(path, Control::CookieAck);
                }
            }
        }
    }

    /// Returns the state for a new INIT after a stale cookie. The new INIT asks for a longer lifetime of the cookie
    /// (RFC 9260 section 5.2.6). Returns `None` if an earlier INIT asked for a longer lifetime already.
    pub(super) fn after_stale_cookie(&mut self, staleness_us: u32, now: Time) -> Option<Opening> {
        let State::CookieEchoed { opening, t1, .. } = &self.transfer.state else { return None };
        if opening.cookie_preservative.is_some() {
            return None;
        }
        //= rfc9260#5.2.6-3
        // The extension in milliseconds is one second plus the smaller of two times: 1.5 times the staleness, and the
        // round trip of COOKIE ECHO and ERROR.
        let waited = opening.rto.saturating_sub(t1.at - now);
        let round_trip = u32::try_from(waited.as_millis()).unwrap_or(u32::MAX);
        let staleness = staleness_us / 1000 + staleness_us / 2000;
        let extension = staleness.min(round_trip).saturating_add(1000);
        let mut opening = (**opening).clone();
        opening.cookie_preservative = Some(extension);
        opening.begin_round(now);
        Some(opening)
    }
}
