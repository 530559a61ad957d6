//! Address changes during the lifetime of an association (RFC 5061): ASCONF and ASCONF-ACK.
//!
//! A new address of either end creates new paths. These paths carry no data until a heartbeat confirms them. The
//! removal of an address retires its paths. The data in flight on these paths is retransmitted on other paths. Start
//! at [`Association::change_address`] for our addresses, and at [`Association::on_asconf`] for the peer's addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use base::{Route, Time};
use smallvec::{SmallVec, smallvec};
use wire::{
    Asconf as AsconfChunk, AsconfAck, Cause, Chunk, ChunkType, Packet, Parameter, Parameters, Tlv,
    UnrecognizedAction,
};

use super::{Association, Context, Control, State, may_reach};
use crate::config::{AddressProof, AddressUse, Preference};
use crate::error::AddressError;
use crate::event::{AbortCause, Event, PathReason};
use crate::extension::asconf::{AddressChange, Arrival, MAX_CHANGES, Pending, Response, encode};
use crate::extension::auth::Auth;
use crate::info::PathState;
use crate::path::{Path, PathIndex};
use crate::trace::TraceEvent;

/// Limit on the repetitions of a request on a path where packets of the peer still arrive. After the last repetition,
/// an unanswered request counts against the path, because the path may work in one direction only.
const REPEATS_MAX: u8 = 3;

impl Association {
    /// Announces a change of our addresses to the peer.
    pub(crate) fn change_address(
        &mut self,
        change: AddressChange,
        ctx: &mut Context<'_>,
    ) -> Result<(), AddressError> {
        if !self.transfer.state.takes_data_to_send() {
            return Err(AddressError::Closed);
        }
        let may_move = self.may_move();
        let asconf = self.asconf.as_deref_mut().ok_or(AddressError::NotNegotiated)?;
        if !asconf.is_understood(change) {
            return Err(AddressError::NotUnderstood);
        }
        let (AddressChange::Add(address)
        | AddressChange::Remove(address)
        | AddressChange::SetPrimary(address)
        | AddressChange::MoveTo(address)
        | AddressChange::SetUse(address, _)) = change;
        let has = asconf.local.contains(&address);
        match change {
            _ if !is_usable(address) => return Err(AddressError::NotUnicast(address)),
            AddressChange::MoveTo(_) if !may_move => return Err(AddressError::NoKey(address)),
            AddressChange::MoveTo(_) => return self.move_to(address, ctx),
            _ if asconf.is_changing(address) => return Err(AddressError::Changing(address)),
            AddressChange::Add(_) if has => return Err(AddressError::Exists(address)),
            AddressChange::Remove(_) | AddressChange::SetPrimary(_) | AddressChange::SetUse(..) if !has => {
                //= rfc5061#5.4-1
                return Err(AddressError::Unknown(address));
            }
            _ => {}
        }
        // RFC 5061 section 5.3: "An endpoint MUST NOT delete its last remaining IP address from an association."
        if matches!(change, AddressChange::Remove(_))
            && !self.transfer.paths.iter().any(|(_, p)| p.is_confirmed() && p.route.local != address)
        {
            //= rfc5061#5.3-11
            return Err(AddressError::Last(address));
        }
        let has_room = match change {
            AddressChange::SetUse(address, usage) => asconf.request_use(address, usage),
            change => asconf.request(change),
        };
        if !has_room {
            return Err(AddressError::TooMany);
        }
        self.ask_next(ctx.now);
        Ok(())
    }

    /// Sets `uses` as the uses of our addresses, for the data that this end sends. The peer is not informed.
    pub(crate) fn set_local_uses(&mut self, uses: &[(IpAddr, AddressUse)]) -> Result<(), AddressError> {
        if matches!(self.transfer.state, State::Closed) {
            return Err(AddressError::Closed);
        }
        match self.transfer.set_uses(true, uses) {
            Ok(_) => Ok(()),
            Err(unknown) => Err(AddressError::Unknown(unknown)),
        }
    }

    /// Sends the use of our address `address` to the peer, unless the peer already knows this use.
    pub(crate) fn tell_local_use(
        &mut self,
        address: IpAddr,
        ctx: &mut Context<'_>,
    ) -> Result<(), AddressError> {
        let usage = self.transfer.paths.local_use(address).ok_or(AddressError::Unknown(address))?;
        let asconf = self.asconf.as_deref().ok_or(AddressError::NotNegotiated)?;
        if asconf.has_told(address, usage) {
            return Ok(());
        }
        self.change_address(AddressChange::SetUse(address, usage), ctx)
    }

    /// Reports whether this end may ask the peer to move the association to another address of ours. A peer with this
    /// engine and [`AddressProof::ConfirmedPath`] accepts such a request only if it is sealed, or signed with a shared
    /// key. With [`AddressProof::Signature`], this end asks in any case.
    fn may_move(&self) -> bool {
        let integrity = &self.transfer.integrity;
        let is_signed = integrity.auth().is_some_and(Auth::signs_with_shared_key);
        is_signed
            || integrity.protection().is_some()
            || self.transfer.config.address_proof == AddressProof::Signature
    }

    /// Handles the event that the link of one of our addresses goes down, or comes up again.
    pub(crate) fn on_local_link(&mut self, address: IpAddr, is_up: bool, ctx: &mut Context<'_>) {
        for index in self.transfer.paths.indices() {
            let path = self.transfer.paths.get_mut(index);
            if path.route.local != address || !path.is_confirmed() {
                continue;
            }
            if is_up {
                path.ask_anew(ctx.now, &self.transfer.config.timing);
            } else {
                self.transfer.on_link_lost(index, ctx);
            }
        }
    }

    /// Moves the association to `address`, after the loss of all our other addresses. Drops requests that are not sent
    /// yet. An outstanding request is retransmitted from the new address, because the request for the move must not
    /// overtake it.
    fn move_to(&mut self, address: IpAddr, ctx: &mut Context<'_>) -> Result<(), AddressError> {
        let peers = self.peer_addresses.as_slice().to_vec();
        if !peers.iter().any(|&peer| may_reach(address, peer)) {
            return Err(AddressError::NoPeer(address));
        }
        if !self.transfer.add_paths(&[address], &peers, None, ctx) {
            return Err(AddressError::TooMany);
        }
        if let Some(asconf) = &mut self.asconf {
            asconf.request_move(address);
        }
        self.leave_paths(|p| p.route.local != address);
        match self.asconf.as_ref().is_some_and(|a| a.pending.is_some()) {
            true => self.send_asconf(ctx.now),
            false => self.ask_next(ctx.now),
        }
        Ok(())
    }

    /// Sends the next ASCONF if none is outstanding.
    pub(super) fn ask_next(&mut self, now: Time) {
        if !self.transfer.probes_paths() {
            return;
        }
        let by = self.transfer.paths.request_path();
        let deadline = now + self.transfer.paths.get(by).rto();
        let Some(asconf) = &mut self.asconf else { return };
        let Some(change) = asconf.begin_next(by, (now, deadline)) else { return };
        // RFC 5061 section 5.3: an address being deleted "MUST NOT be used as a source address for any subsequent packets".
        if let AddressChange::Remove(address) = change {
            //= rfc5061#5.3-8 5.3-14
            asconf.local.retain(|a| *a != address);
            let retired = self.transfer.on_address_lost(address, now);
            self.sack_route.leave_paths(&retired);
        }
        self.send_asconf(now);
    }

    /// Queues the outstanding ASCONF, and starts T4-rto.
    fn send_asconf(&mut self, now: Time) {
        let path = match self.asconf.as_ref().and_then(|a| a.pending) {
            Some(pending) if self.may_ask_by(pending.path) => pending.path,
            _ => self.transfer.paths.request_path(),
        };
        let (rto, rto_max) = (self.transfer.paths.get(path).rto(), self.transfer.config.timing.rto_max);
        if let Some(pending) = self.asconf.as_mut().and_then(|a| a.pending.as_mut()) {
            let patience = rto.saturating_mul(1 << pending.repeats).min(rto_max.max(rto));
            //= rfc5061#5.1-6
            (pending.path, pending.sent_at, pending.deadline) = (path, now, now + patience);
            let route = self.transfer.paths.get(path).route;
            self.transfer.out.note(TraceEvent::AsconfSent { route });
            self.transfer.out.queue_once(path, Control::Asconf);
        }
    }

    /// Reports whether a request may use this path. The path must be confirmed. While no path is confirmed, as after a
    /// move, a request may use any path.
    fn may_ask_by(&self, index: PathIndex) -> bool {
        let any_is_confirmed = self.transfer.paths.iter().any(|(_, p)| p.is_confirmed());
        self.transfer.paths.iter().any(|(i, p)| i == index && (p.is_confirmed() || !any_is_confirmed))
    }

    pub(super) fn push_asconf(&self, path: PathIndex, packet: &mut wire::PacketWriter<'_>) -> bool {
        let Some(asconf) = &self.asconf else { return true };
        let Some(pending) = asconf.pending else { return true };
        //= rfc5061#5.1-2
        let sent_from = self.transfer.paths.get(path).route.local;
        let parameters = parameters_of(&pending, sent_from);
        //= rfc5061#4.1.1-4 5.3.2-1
        let address = if self.transfer.paths.get(path).is_confirmed() { sent_from } else { asconf.known };
        let chunk =
            AsconfChunk { serial: pending.serial, address, parameters: Parameters::from(&parameters[..]) };
        packet.push(&Chunk::Asconf(chunk)).is_ok()
    }

    /// Returns the expiry time of T4-rto.
    pub(super) fn asconf_timeout(&self) -> Time {
        self.asconf.as_ref().and_then(|a| a.pending).map_or(Time::NEVER, |p| p.deadline)
    }

    /// Handles the expiry of T4-rto (RFC 5061 section 5.1, B1 to B5). Doubles the timeout, counts an error, and sends
    /// the request on another path. If the path itself may work ([`Self::was_only_not_answered`]), repeats the request
    /// on the same path, and counts the error only for the association.
    //= rfc5061#5.1-11
    pub(super) fn on_t4(&mut self, now: Time) {
        let Some(pending) = self.asconf.as_ref().and_then(|a| a.pending) else { return };
        if self.was_only_not_answered(&pending) {
            if let Some(pending) = self.asconf.as_mut().and_then(|a| a.pending.as_mut()) {
                pending.repeats = pending.repeats.saturating_add(1);
            }
            if self.transfer.count_error() {
                self.send_asconf(now);
            }
            return;
        }
        self.transfer.paths.get_mut(pending.path).back_off(&self.transfer.config.timing);
        self.transfer.count_error_on(pending.path, PathReason::Timeout);
        if !self.transfer.count_error() {
            return;
        }
        let path = match self.transfer.paths.get(pending.path).is_confirmed() {
            true => self.transfer.paths.alternate_request_path(pending.path),
            false => self.transfer.paths.after(pending.path),
        };
        if let Some(pending) = self.asconf.as_mut().and_then(|a| a.pending.as_mut()) {
            (pending.path, pending.repeats) = (path, 0);
        }
        self.send_asconf(now);
    }

    /// Reports whether the path of an unanswered request may work, so the request must be repeated there. A packet of
    /// the peer must have arrived on the path after the request was sent. The peer may be unable to answer yet: on a
    /// protected association, the peer answers no request until its program knows this end and the keys are in use. The
    /// path must also be active, and the request must not have been repeated [`REPEATS_MAX`] times. Without
    /// [`Timing::doubts_silence`], returns false.
    ///
    /// [`Timing::doubts_silence`]: crate::Timing::doubts_silence
    fn was_only_not_answered(&self, pending: &Pending) -> bool {
        let path = self.transfer.paths.get(pending.path);
        let may_be_only_late = pending.repeats < REPEATS_MAX && path.state() == PathState::Active;
        self.transfer.config.timing.doubts_silence && may_be_only_late && path.heard() > pending.sent_at
    }

    pub(super) fn on_asconf_ack(&mut self, ack: &AsconfAck<'_>, ctx: &mut Context<'_>) {
        let Some(asconf) = &mut self.asconf else { return };
        let Some(pending) = asconf.pending.filter(|p| p.serial == ack.serial) else {
            // RFC 5061 section 5.3, F0: an ASCONF-ACK "greater than or equal to the next Sequence Number to be used but no
            // ASCONF Chunk is outstanding": "the endpoint MUST ABORT the association".
            if asconf.pending.is_none() && asconf.was_never_used(ack.serial) {
                //= rfc5061#5.3-2
                let code = Cause::IllegalAsconfAck.code();
                let cause = AbortCause { code, reason: bytes::Bytes::new() };
                self.end_for_fault(cause, ctx);
            }
            return;
        };
        //= rfc5061#5.1-7 5.1-8
        asconf.pending = None;
        asconf.note_answered(pending.change, refusal_in(ack).is_some());
        self.transfer.out.withdraw(|c| matches!(c, Control::Asconf));
        self.transfer.liveness.on_answer();
        if self.transfer.paths.get(pending.path).is_confirmed() {
            let transition =
                self.transfer.paths.get_mut(pending.path).on_success(ctx.now, &self.transfer.config.timing);
            self.transfer.report_transition(pending.path, transition, PathReason::Answer);
        }
        let refusal = refusal_in(ack);
        let unrecognized = Cause::UnrecognizedParameters(&[]).code();
        if refusal == Some(unrecognized)
            && let Some(asconf) = &mut self.asconf
        {
            //= rfc5061#5.3-6
            let given_up = asconf.on_not_understood(pending.change);
            self.end_change(pending.change, refusal, ctx);
            given_up
                .into_iter()
                .for_each(|change| self.transfer.out.emit(Event::AddressChange { change, refusal }));
        } else {
            self.end_change(pending.change, refusal, ctx);
        }
        self.ask_next(ctx.now);
    }

    /// Gives up all address changes, because the peer does not know ASCONF. RFC 5061 section 5.1, A9: "If the peer
    /// responds to an ASCONF with an ERROR Chunk reporting that it did not recognize the ASCONF Chunk Type, the sender
    /// of the ASCONF MUST NOT send any further ASCONF Chunks and MUST stop its T-4 timer."
    //= rfc5061#5.1-9
    pub(super) fn on_asconf_not_recognized(&mut self, ctx: &mut Context<'_>) {
        let Some(asconf) = &mut self.asconf else { return };
        let Some(pending) = asconf.pending.take() else { return };
        let refusal = Some(Cause::UnrecognizedChunkType(&[]).code());
        let mut given_up = asconf.on_not_understood(pending.change);
        given_up.extend(asconf.on_nothing_understood());
        self.transfer.out.withdraw(|c| matches!(c, Control::Asconf));
        self.end_change(pending.change, refusal, ctx);
        given_up
            .into_iter()
            .for_each(|change| self.transfer.out.emit(Event::AddressChange { change, refusal }));
    }

    fn end_change(&mut self, change: AddressChange, refusal: Option<u16>, ctx: &mut Context<'_>) {
        self.finish_change(change, refusal, ctx);
        self.transfer.out.emit(Event::AddressChange { change, refusal });
    }

    /// Reports whether the current packet came to an address that is being removed. RFC 5061 section 5.3, F4: "ABORT
    /// Chunks arriving destined to the IP address being deleted MUST be ignored".
    //= rfc5061#5.3-10
    pub(super) fn came_to_leaving_address(&self) -> bool {
        let Some(asconf) = &self.asconf else { return false };
        let came_to = asconf.source.local;
        match asconf.pending.map(|p| p.change) {
            Some(AddressChange::Remove(leaving)) => leaving == came_to,
            Some(AddressChange::MoveTo(only)) => only != came_to,
            Some(AddressChange::Add(_) | AddressChange::SetPrimary(_) | AddressChange::SetUse(..)) | None => {
                false
            }
        }
    }

    /// Completes our change after the peer's answer. An address that the peer has added may be a source address from
    /// now on (RFC 5061 section 5.3). An address that the peer refused to delete left the association with our request,
    /// and joins it again. If a request for a move waits to be sent, an answer to an earlier change has no effect.
    fn finish_change(&mut self, change: AddressChange, refusal: Option<u16>, ctx: &mut Context<'_>) {
        let Some(asconf) = &mut self.asconf else { return };
        let address = match (change, refusal) {
            (AddressChange::MoveTo(address), None) => {
                asconf.known = address;
                return self.probe_from(address, ctx.now);
            }
            _ if asconf.is_about_to_move() => return,
            //= rfc5061#5.3-3
            (AddressChange::Add(address), None) | (AddressChange::Remove(address), Some(_)) => address,
            _ => return,
        };
        asconf.local.push(address);
        let peers = self.peer_addresses.as_slice().to_vec();
        self.transfer.add_paths(&[address], &peers, None, ctx);
        for index in self.transfer.paths.indices() {
            let path = self.transfer.paths.get_mut(index);
            if path.route.local == address {
                path.vouching.offer_copies();
            }
        }
    }

    /// Probes the paths from an address that the peer has just accepted. The peer did not know the address before, so
    /// it may have discarded earlier packets from there.
    fn probe_from(&mut self, address: IpAddr, now: Time) {
        for index in self.transfer.paths.indices() {
            let path = self.transfer.paths.get_mut(index);
            if path.route.local == address {
                path.probe_now(now);
            }
        }
    }

    /// Applies the peer's address changes and sends the ASCONF-ACK to the source of the ASCONF.
    pub(super) fn on_asconf(&mut self, chunk: &AsconfChunk<'_>, ctx: &mut Context<'_>) {
        let Some(asconf) = &self.asconf else { return };
        // RFC 5061 section 5.1.1, C4, lists the states in which ASCONF and ASCONF-ACK may be sent.
        //= rfc5061#5.1.1-5
        if !self.transfer.state.answers_requests() {
            return;
        }
        if !self.may_ask_for_change() {
            let chunk_type = ChunkType::ASCONF.0;
            return self.transfer.out.note(TraceEvent::Unauthenticated { chunk_type });
        }
        let (source, arrival) = (asconf.source, asconf.judge(chunk.serial));
        self.transfer.out.note(TraceEvent::AsconfReceived { serial: chunk.serial.0 });
        let answer = match arrival {
            Arrival::Discard => return,
            Arrival::Again(answer) => {
                self.hear_move_again(chunk, source.remote, ctx);
                answer
            }
            Arrival::New => {
                let Some(responses) = self.apply(chunk, source.remote, ctx) else {
                    //= rfc5061#4.2-1
                    return self.violation("ASCONF with a malformed parameter", ctx);
                };
                let answer = encode(&responses);
                if let Some(asconf) = &mut self.asconf {
                    asconf.keep_answer(chunk.serial, answer.clone());
                }
                answer
            }
        };
        // RFC 5061 section 5.2: "The destination address of the SCTP packet containing the ASCONF-ACK Chunks MUST be the
        // source address of the SCTP packet that held the ASCONF Chunks."
        let ack = AsconfAck { serial: chunk.serial, parameters: Parameters::from_wire(&answer) };
        //= rfc5061#5.2-8 5.2-9
        let header = self.transfer.negotiated.header();
        ctx.replies.push_by(source, header, &Chunk::AsconfAck(ack), &mut self.transfer.integrity);
    }

    /// Handles a repeated ASCONF that moves the peer to the packet's source address. A third party may have forwarded
    /// the first request or its repetition from a false address. If the two packets have different source addresses,
    /// this function therefore adds the second address to the peer's addresses. Both source addresses are then probed
    /// until one of them is confirmed. Does nothing once a path is confirmed.
    fn hear_move_again(&mut self, chunk: &AsconfChunk<'_>, source: IpAddr, ctx: &mut Context<'_>) {
        if self.peer_addresses.has(source) || self.transfer.paths.iter().any(|(_, path)| path.is_confirmed())
        {
            return;
        }
        for (parameter, raw) in chunk.parameters.iter().zip(chunk.parameters.tlvs()) {
            let (Ok(Parameter::AddIp { address, .. }), Ok(raw)) = (parameter, raw) else { continue };
            if address.is_unspecified() {
                // The result is ignored: the answer to the first request is repeated, so it cannot report a failure. An
                // address that was not added is not probed.
                let _ = self.add_peer_address(source, &raw, ctx);
            }
        }
    }

    /// Applies the changes of an ASCONF in order, up to [`MAX_CHANGES`]. Returns the answers, or `None` if a parameter
    /// cannot be parsed.
    fn apply<'a>(
        &mut self,
        chunk: &AsconfChunk<'a>,
        source: IpAddr,
        ctx: &mut Context<'_>,
    ) -> Option<SmallVec<[Response<'a>; 4]>> {
        let mut responses = SmallVec::new();
        // RFC 5061 section 5.3, F11: "once a receiver begins failing any ADD or DELETE request, it must fail all subsequent
        // ADD or DELETE requests contained in that single ASCONF."
        let mut has_failed = false;
        //= rfc5061#5.2-4
        for (parameter, raw) in chunk.parameters.iter().zip(chunk.parameters.tlvs()) {
            let (parameter, raw) = (parameter.ok()?, raw.ok()?);
            if responses.len() >= MAX_CHANGES {
                break;
            }
            //= rfc5061#4.2.1-3
            let specified = |a: IpAddr| if a.is_unspecified() { source } else { a };
            let (correlation, refusal) = match parameter {
                //= rfc5061#5.3-20
                Parameter::AddIp { correlation, .. } | Parameter::DelIp { correlation, .. } if has_failed => {
                    (correlation, Some(Cause::RefusedDueToResourceShortage(raw.bytes)))
                }
                Parameter::AddIp { correlation, address } => {
                    (correlation, self.add_peer_address(specified(address), &raw, ctx))
                }
                Parameter::DelIp { correlation, address } if address.is_unspecified() => {
                    (correlation, self.remove_all_peer_addresses_but(source, &raw))
                }
                Parameter::DelIp { correlation, address } => {
                    (correlation, self.remove_peer_address(address, source, &raw))
                }
                Parameter::SetPrimary { correlation, address } => {
                    (correlation, self.set_primary(specified(address), &raw))
                }
                Parameter::AddressUse { correlation, address, rank, link, heartbeat_ms } => {
                    let usage = AddressUse { link, ..use_of(rank, heartbeat_ms) };
                    (correlation, self.set_peer_use(specified(address), usage, &raw))
                }
                _ => {
                    let action = UnrecognizedAction::for_parameter(raw.kind);
                    if action.reports() && raw.bytes.len() <= ctx.limits.reported_bytes / 2 {
                        let correlation = raw.value.first_chunk().map_or(0, |c| u32::from_be_bytes(*c));
                        let refusal = Some(Cause::UnrecognizedParameters(raw.bytes));
                        responses.push(Response { correlation, refusal });
                    }
                    if action.stops() {
                        break;
                    }
                    continue;
                }
            };
            let is_wish = matches!(parameter, Parameter::SetPrimary { .. } | Parameter::AddressUse { .. });
            has_failed |= refusal.is_some() && !is_wish;
            responses.push(Response { correlation, refusal });
        }
        Some(responses)
    }

    /// Reports whether a packet with the association's tag may come from the peer. The packet must come from an address of
    /// the peer, or contain an ASCONF that may add the packet's source address.
    #[inline]
    pub(crate) fn is_from_peer(&self, route: &Route, packet: &Packet<'_>, is_sealed: bool) -> bool {
        self.knows_remote(route.remote) || self.is_moving(packet, is_sealed)
    }

    /// Reports whether a packet begins with an ASCONF that is sealed, or with AUTH and an ASCONF that is signed. Such an
    /// ASCONF may come from an unknown address, because it may add its own source address (RFC 5061 section 4.2.1). With
    /// [`AddressProof::ConfirmedPath`], the key of the signature must be a shared key.
    fn is_moving(&self, packet: &Packet<'_>, is_sealed: bool) -> bool {
        if is_sealed && self.asconf.is_some() {
            let first = packet.raw_chunks().next();
            return matches!(first, Some(Ok(first)) if first.chunk_type == ChunkType::ASCONF);
        }
        let mut chunks = packet.raw_chunks().map_while(Result::ok);
        match (self.transfer.integrity.auth(), &self.asconf, chunks.next(), chunks.next()) {
            (Some(auth), Some(_), Some(first), Some(second)) => {
                let types = (first.chunk_type, second.chunk_type);
                let is_shared = self.transfer.config.address_proof == AddressProof::Signature
                    || auth.names_shared_key(&first);
                types == (ChunkType::AUTH, ChunkType::ASCONF) && is_shared && auth.verify(&first).is_ok()
            }
            _ => false,
        }
    }

    fn add_peer_address<'a>(
        &mut self,
        address: IpAddr,
        raw: &Tlv<'a>,
        ctx: &mut Context<'_>,
    ) -> Option<Cause<'a>> {
        if !is_usable(address) {
            return Some(Cause::UnresolvableAddress(raw.bytes));
        }
        if self.peer_addresses.has(address) {
            if let Some(asconf) = &mut self.asconf {
                asconf.unproven.retain(|a| *a != address || !asconf.is_keyed);
            }
            return None;
        }
        let Some(asconf) = &self.asconf else { return None };
        let local = asconf.local.clone();
        // If the peer is behind a NAT, its new source address also has a new UDP port, which the current packet shows.
        let carrier = (asconf.source.remote == address).then_some(asconf.source.carrier);
        // RFC 5061 section 5.3, F9: without "the local resources to add this new address" the request is refused.
        let is_full = self.peer_addresses.as_slice().len() >= ctx.limits.peer_addresses;
        if is_full || !self.transfer.add_paths(&local, &[address], carrier, ctx) {
            //= rfc5061#5.3-19
            return Some(Cause::RefusedDueToResourceShortage(raw.bytes));
        }
        if self.asks_for_proof()
            && let Some(asconf) = &mut self.asconf
        {
            asconf.unproven.push(address);
        }
        self.peer_addresses.add(address);
        self.transfer.out.emit(Event::PeerAddressChange(AddressChange::Add(address)));
        None
    }

    fn remove_peer_address<'a>(
        &mut self,
        address: IpAddr,
        source: IpAddr,
        raw: &Tlv<'a>,
    ) -> Option<Cause<'a>> {
        if !self.peer_addresses.has(address) {
            return Some(Cause::UnresolvableAddress(raw.bytes));
        }
        // RFC 5061 section 5.3, F7 and F8: a request to delete "the last remaining IP address" or "the source address
        // of the IP packet that contained the ASCONF chunk" is refused. Each of these cases has its own error cause.
        if self.peer_addresses.as_slice().len() == 1 {
            //= rfc5061#5.3-15
            return Some(Cause::DeleteLastRemainingAddress(raw.bytes));
        }
        if address == source {
            //= rfc5061#5.3-17
            return Some(Cause::DeleteSourceAddress(raw.bytes));
        }
        //= rfc5061#5.3-22 5.3-23
        self.peer_addresses.remove(address);
        if let Some(asconf) = &mut self.asconf {
            asconf.unproven.retain(|a| *a != address);
        }
        self.leave_paths(|p| p.route.remote == address);
        self.transfer.out.emit(Event::PeerAddressChange(AddressChange::Remove(address)));
        None
    }

    /// Removes all addresses of the peer except `source`. RFC 5061 section 4.2.2: "If the address 0.0.0.0 or ::0 is
    /// provided, all addresses of the peer except the source address of the packet MUST be deleted."
    fn remove_all_peer_addresses_but<'a>(&mut self, source: IpAddr, raw: &Tlv<'a>) -> Option<Cause<'a>> {
        if !self.peer_addresses.has(source) {
            return Some(Cause::RefusedNoAuthorization(raw.bytes));
        }
        //= rfc5061#4.2.2-3
        let gone: SmallVec<[IpAddr; 4]> =
            self.peer_addresses.as_slice().iter().copied().filter(|a| *a != source).collect();
        gone.into_iter().find_map(|address| self.remove_peer_address(address, source, raw))
    }

    //= rfc5061#5.4-2 5.4-3
    fn set_primary<'a>(&mut self, address: IpAddr, raw: &Tlv<'a>) -> Option<Cause<'a>> {
        if !self.transfer.paths.make_primary(address) {
            return Some(Cause::UnresolvableAddress(raw.bytes));
        }
        self.transfer.choose_path(PathReason::PrimaryChosen);
        self.transfer.out.emit(Event::PeerAddressChange(AddressChange::SetPrimary(address)));
        None
    }

    fn set_peer_use<'a>(&mut self, address: IpAddr, usage: AddressUse, raw: &Tlv<'a>) -> Option<Cause<'a>> {
        match self.transfer.set_uses(false, &[(address, usage)]) {
            Err(_) => return Some(Cause::UnresolvableAddress(raw.bytes)),
            Ok(false) => {}
            Ok(true) => {
                let change = AddressChange::SetUse(address, usage);
                self.transfer.out.emit(Event::PeerAddressChange(change));
            }
        }
        None
    }

    /// Retires the paths for which `leaves` is true. SACKs for the data of these paths leave on other paths.
    fn leave_paths(&mut self, leaves: impl Fn(&Path) -> bool) {
        let retired = self.transfer.retire_paths(leaves);
        self.sack_route.leave_paths(&retired);
    }
}

/// Builds the parameters of a request that leaves from our address `sent_from`.
///
/// A host behind a NAT does not know the address that the peer sees. Two kinds of requests therefore contain a
/// wildcard, which means the packet's source address. A request for a use has the wildcard if `address` is `sent_from`.
/// A request for a move adds the packet's source address, and deletes all other addresses (RFC 5061 sections 4.2.1 and
/// 4.2.2).
fn parameters_of(pending: &Pending, sent_from: IpAddr) -> SmallVec<[Parameter<'static>; 2]> {
    let correlation = pending.serial.0;
    match pending.change {
        AddressChange::Add(address) => smallvec![Parameter::AddIp { correlation, address }],
        AddressChange::Remove(address) => smallvec![Parameter::DelIp { correlation, address }],
        AddressChange::SetPrimary(address) => smallvec![Parameter::SetPrimary { correlation, address }],
        AddressChange::SetUse(address, usage) => {
            let rank = match usage.preference {
                Preference::Primary => 0,
                Preference::Secondary => 1,
                Preference::Backup => 2,
            };
            let heartbeat = usage.heartbeat.unwrap_or_default().min(AddressUse::HEARTBEAT_MAX);
            let heartbeat_ms = u32::try_from(heartbeat.as_millis()).unwrap_or(u32::MAX);
            let address = if address == sent_from { unspecified_like(address) } else { address };
            smallvec![Parameter::AddressUse { correlation, address, rank, link: usage.link, heartbeat_ms }]
        }
        AddressChange::MoveTo(address) => {
            let address = unspecified_like(address);
            let other = correlation.wrapping_add(1);
            smallvec![
                Parameter::AddIp { correlation, address },
                Parameter::DelIp { correlation: other, address }
            ]
        }
    }
}

/// Converts a rank and a heartbeat interval (milliseconds) from the peer to a use of an address. Unknown ranks count as
/// backup. An interval of 0 means that the peer gave no interval.
fn use_of(rank: u8, heartbeat_ms: u32) -> AddressUse {
    let preference = match rank {
        0 => Preference::Primary,
        1 => Preference::Secondary,
        _ => Preference::Backup,
    };
    let heartbeat = (heartbeat_ms > 0).then(|| Duration::from_millis(heartbeat_ms.into()));
    AddressUse { preference, heartbeat, link: 0 }
}

/// Returns the unspecified address of the same family, which ASCONF uses as a wildcard.
fn unspecified_like(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Returns the code of the error cause with which an ASCONF-ACK refuses a change. Returns 0 if the cause cannot be
/// parsed, and `None` if the change is not refused.
fn refusal_in(ack: &AsconfAck<'_>) -> Option<u16> {
    ack.parameters.iter().map_while(Result::ok).find_map(|parameter| match parameter {
        Parameter::ErrorCause { causes, .. } => {
            Some(causes.iter().find_map(Result::ok).map_or(0, |cause| cause.code()))
        }
        _ => None,
    })
}

/// Reports whether an address can belong to an endpoint. It must not be a broadcast, multicast or unspecified address
/// (RFC 5061 section 4.2.1).
//= rfc5061#4.2.1-2 4.2.2-2
fn is_usable(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(a) if a.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || broadcast)
}
