//! Assignment of packets to associations, and answers to packets that belong to no association (RFC 9260 sections 8.4 and 8.5).

use std::net::IpAddr;

use base::{Ecn, Route, Time};
use wire::{
    Cause, ChecksumMode, Chunk, ChunkType, CommonHeader, Packet, RawChunk, UnrecognizedAction,
    VerificationTag,
};

use super::slots::Slot;
use super::{AssociationId, Endpoint, Listener};
use crate::association::{Association, Screen, Verdict};
use crate::event::{CloseReason, PathError, Unreachable};
use crate::extension::zero_checksum;
use crate::info::StateName;
use crate::trace::DropReason;

/// Position of the initiate tag in a packet with an INIT. The tag follows the common header and the chunk header (RFC 9260
/// section 3.3.2).
const INITIATE_TAG: std::ops::Range<usize> = 16..20;

impl Endpoint {
    /// Handles a packet that came on `route`, whose `remote` is the source of the packet. Returns true if an association past
    /// COOKIE-WAIT has accepted the packet as its peer's: the tag, the ports and the source address matched. Returns false for
    /// packets with INIT or COOKIE ECHO, and for dropped packets.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        route: &Route,
        ecn: Ecn,
        packet: &[u8],
        listener: &mut dyn Listener,
    ) -> bool {
        let now = self.not_back(now);
        //= rfc9260#3.1-1 3.1-2
        let has_ports = |p: &Packet<'_>| p.header.source_port != 0 && p.header.destination_port != 0;
        let Some(parsed) = self.parse(packet).filter(has_ports) else {
            self.on_dropped(route, DropReason::Malformed);
            return false;
        };
        let Some(Ok(first)) = parsed.raw_chunks().next() else {
            self.on_dropped(route, DropReason::Malformed);
            return false;
        };
        //= rfc9260#8.4-1
        if !is_unicast(route) {
            return false;
        }
        match first.chunk_type {
            ChunkType::INIT => self.on_init_packet(now, route, &parsed, &first, listener),
            //= rfc9260#8.4-5
            ChunkType::COOKIE_ECHO => self.on_cookie_echo(now, route, &parsed, (&first, None), listener),
            ChunkType::AUTH if let Some(echo) = cookie_echo_behind(&parsed) => {
                self.on_cookie_echo(now, route, &parsed, (&echo, Some(&first)), listener);
            }
            //= rfc9260#8.5.1-2 8.5.1-3
            _ if parsed.header.tag.0 == 0 => self.on_dropped(route, DropReason::BadTag),
            _ => match self.find(&parsed.header, route, &first) {
                Owner::Association(id)
                    if let Some(record) = record_of(&parsed, &first)
                        && self.association(id).is_some_and(Association::is_protected) =>
                {
                    return self.on_sealed(now, id, (route, ecn), &parsed, (&first, &record));
                }
                Owner::Association(id) => {
                    //= rfc4895#6.3-11
                    return self.dispatch(now, id, route, &parsed, Begin { ecn, ..Begin::default() });
                }
                //= rfc4895#6.3-12 6.3-13
                Owner::Nobody => self.on_out_of_the_blue(now, route, &parsed),
                //= rfc9260#8.5-3
                Owner::Forged => self.on_dropped(route, DropReason::BadTag),
            },
        }
        false
    }

    /// Handles a sealed packet of a protected association. The packet must end with the DTLS chunk, and may contain one other
    /// chunk before it.
    #[inline(never)]
    fn on_sealed(
        &mut self,
        now: Time,
        id: AssociationId,
        (route, ecn): (&Route, Ecn),
        packet: &Packet<'_>,
        (first, record): (&RawChunk<'_>, &RawChunk<'_>),
    ) -> bool {
        let is_alone = first.chunk_type == ChunkType::DTLS;
        if packet.raw_chunks().count() != if is_alone { 1 } else { 2 } {
            self.on_dropped(route, DropReason::Malformed);
            return false;
        }
        let mut room = std::mem::take(&mut self.opened);
        let opened = self.with(id, now, |association, ctx| association.open(record, &mut room, ctx.now));
        let is_taken = match opened {
            Some(Ok(opened)) => {
                let inside = Packet::opened(packet.header, &room[..opened.length]);
                // The record number is used up only if the source is an address of the peer. Otherwise a copy from a foreign
                // address would make the original look like a repetition.
                if self.association(id).is_some_and(|a| a.is_from_peer(route, &inside, true)) {
                    let was_open = self.is_open(id);
                    let take = self.with(id, now, |association, ctx| association.take_opened(&opened, ctx));
                    if take == Some(true) {
                        self.on_keys(id, was_open);
                    }
                }
                let begin = Begin { ecn, is_sealed: true, ..Begin::default() };
                self.dispatch(now, id, route, &inside, begin)
            }
            Some(Err(reason)) => {
                self.on_dropped(route, reason);
                false
            }
            None => false,
        };
        self.opened = room;
        if is_taken && !is_alone {
            self.with(id, now, |association, _| association.on_front(first));
        }
        is_taken
    }

    /// Parses a packet. The checksum must be right, or zero if the packet's association accepts this (RFC 9653 section 5.3).
    //= rfc9653#5.3-3
    fn parse<'a>(&self, bytes: &'a [u8]) -> Option<Packet<'a>> {
        let has_zero = bytes.get(8..12) == Some(&[0; 4]);
        let unchecked = if has_zero { self.parse_without_checksum(bytes) } else { None };
        unchecked.or_else(|| Packet::parse(bytes, ChecksumMode::Verify).ok())
    }

    /// Parses a packet with a checksum of zero, if the packet's association accepts such a checksum.
    fn parse_without_checksum<'a>(&self, bytes: &'a [u8]) -> Option<Packet<'a>> {
        let packet = Packet::parse(bytes, ChecksumMode::Ignore).ok()?;
        let first = packet.raw_chunks().next()?.ok()?.chunk_type;
        let id = self.slots.by_tag(packet.header.tag).filter(|&id| self.ports_match(id, &packet.header))?;
        let is_accepted = match self.slots.get(id)? {
            // During the handshake, the announcement in our INIT is sufficient, because already the INIT ACK may have a checksum
            // of zero.
            Slot::Opening(opening) => zero_checksum::accepts(&opening.config, false, first),
            Slot::Association(association) => association.takes_zero_checksum(first),
            Slot::Finished => false,
        };
        // A COOKIE ECHO may also come behind an AUTH chunk.
        (is_accepted && cookie_echo_behind(&packet).is_none()).then_some(packet)
    }

    /// Returns the owner of a packet. It is the association with this tag and these ports or, if the tag is reflected, the
    /// association whose peer has this tag (section 8.5.1 B and C).
    fn find(&self, header: &CommonHeader, route: &Route, first: &RawChunk<'_>) -> Owner {
        let may_reflect = matches!(first.chunk_type, ChunkType::ABORT | ChunkType::SHUTDOWN_COMPLETE);
        let reflected = may_reflect
            && match first.parse() {
                Ok(Chunk::Abort(abort)) => abort.tag_reflected,
                Ok(Chunk::ShutdownComplete(complete)) => complete.tag_reflected,
                _ => false,
            };
        //= rfc9260#8.5-2
        let by_tag = self.slots.by_tag(header.tag).filter(|&id| self.ports_match(id, header));
        if let Some(id) = by_tag.filter(|_| !reflected) {
            return Owner::Association(id);
        }
        //= rfc5061#5.2-1
        let by_peer = self.slots.by_peer(header.destination_port, header.source_port, route.remote);
        let Some(id) = by_peer else { return Owner::Nobody };
        let state = self.state(id);
        //= rfc9260#8.5.1-6 8.5.1-10
        if reflected && self.association(id).is_some_and(|a| a.tags().1 == header.tag) {
            return Owner::Association(id);
        }
        // Section 8.5.1 E: before the association is up, a SHUTDOWN ACK belongs to an earlier association. A sealed packet with
        // another tag also belongs to an earlier association.
        //= rfc9260#8.5.1-13
        let is_opening = matches!(state, Some(StateName::CookieWait | StateName::CookieEchoed));
        let is_earlier = matches!(first.chunk_type, ChunkType::SHUTDOWN_ACK | ChunkType::DTLS);
        if is_earlier && is_opening { Owner::Nobody } else { Owner::Forged }
    }

    pub(super) fn ports_match(&self, id: AssociationId, header: &CommonHeader) -> bool {
        let ports = match self.slots.get(id) {
            Some(Slot::Opening(o)) => (o.local_port, o.remote_port),
            Some(Slot::Association(a)) => a.ports(),
            Some(Slot::Finished) | None => return false,
        };
        ports == (header.destination_port, header.source_port)
    }

    /// Gives the chunks of a packet to an association, beginning with the chunk that `begin` names. Returns true if the
    /// association is past COOKIE-WAIT and accepts the packet as its peer's.
    pub(super) fn dispatch(
        &mut self,
        now: Time,
        id: AssociationId,
        route: &Route,
        packet: &Packet<'_>,
        begin: Begin,
    ) -> bool {
        if let Some(Slot::Opening(_)) = self.slots.get(id) {
            self.on_packet_for_opening(now, id, route, packet);
            return false;
        }
        let Some(association) = self.association(id) else { return false };
        if !begin.is_sealed && association.is_enforced() {
            self.on_unsealed(now, id, route, packet);
            return false;
        }
        //= rfc5061#5.3-26
        if !association.is_from_peer(route, packet, begin.is_sealed) {
            // The tag is right, but the source is not an address of the peer. Such a packet is neither trusted nor answered.
            self.on_dropped(route, DropReason::OutOfTheBlue);
            return false;
        }
        let verdict = self.with(id, now, |association, ctx| {
            let path = association.path_of(route, ctx);
            association.on_packet(path, packet.len(), begin.ecn, now);
            let screen = Screen { is_authenticated: begin.is_authenticated, is_sealed: begin.is_sealed };
            association.on_chunks(path, packet.raw_chunks().skip(begin.chunk), screen, ctx)
        });
        match verdict {
            Some(Verdict::BeginAgain(opening)) => {
                self.slots.replace(id, Slot::Opening(opening));
                self.settle(id);
            }
            Some(Verdict::OutOfTheBlue) => self.on_out_of_the_blue(now, route, packet),
            Some(Verdict::Done) => return true,
            None => {}
        }
        false
    }

    /// Drops an unsealed packet of an association that accepts only sealed packets. The association sees only the first chunk,
    /// because a peer that has lost the association cannot seal its answer to our SHUTDOWN ACK or to other packets.
    #[cold]
    fn on_unsealed(&mut self, now: Time, id: AssociationId, route: &Route, packet: &Packet<'_>) {
        self.on_dropped(route, DropReason::Unsealed);
        if let Some(Ok(first)) = packet.raw_chunks().next() {
            self.with(id, now, |association, ctx| {
                let is_from_peer = association.is_from_peer(route, packet, false);
                association.on_unsealed(&first, is_from_peer, ctx);
            });
        }
    }

    /// Stops the connection attempt on an address that has refused, and continues it on the others. Returns false and changes
    /// nothing if that address was tried first, because its refusal ends the attempt.
    fn leave_address(&mut self, id: AssociationId, remote: IpAddr) -> bool {
        let Some(Slot::Opening(opening)) = self.slots.get_mut(id) else { return false };
        let is_left = opening.leave(remote);
        if is_left {
            self.slots.rename(id);
        }
        is_left
    }

    /// Handles a packet for an association in COOKIE-WAIT. Only INIT ACK, ABORT and SHUTDOWN ACK have an effect.
    fn on_packet_for_opening(&mut self, now: Time, id: AssociationId, route: &Route, packet: &Packet<'_>) {
        let mut chunks = packet.chunks();
        match (chunks.next(), chunks.next().is_some()) {
            // An INIT ACK must be the only chunk of its packet.
            //= rfc9260#3-1
            (Some(Ok(Chunk::InitAck(_))), true) => {}
            (Some(Ok(Chunk::InitAck(init))), false) => {
                self.on_init_ack(now, id, (route, packet.len()), &init)
            }
            (Some(Ok(Chunk::Abort(_))), _) if self.leave_address(id, route.remote) => {}
            (Some(Ok(Chunk::Abort(abort))), _) => {
                let cause = abort.causes.iter().find_map(Result::ok);
                let cause = cause.map(|c| crate::event::AbortCause::from_wire(&c)).unwrap_or_default();
                self.close_opening(id, CloseReason::PeerAborted(cause));
            }
            (Some(Ok(Chunk::ShutdownAck)), _) => self.on_out_of_the_blue(now, route, packet),
            _ => {}
        }
    }

    /// Handles a packet that belongs to no association, by the rules of RFC 9260 section 8.4 in their order.
    fn on_out_of_the_blue(&mut self, now: Time, route: &Route, packet: &Packet<'_>) {
        self.on_dropped(route, DropReason::OutOfTheBlue);
        let header = reflect(&packet.header);
        let mut has_shutdown_ack = false;
        for chunk in packet.chunks() {
            match chunk {
                //= rfc9260#8.4-2 8.4-8 8.4-9
                Ok(Chunk::Abort(_) | Chunk::ShutdownComplete(_) | Chunk::CookieAck) | Err(_) => return,
                Ok(Chunk::Error(error)) => {
                    let stale = |c: Cause<'_>| matches!(c, Cause::StaleCookie { .. });
                    if error.causes.iter().map_while(Result::ok).any(stale) {
                        return;
                    }
                }
                Ok(Chunk::ShutdownAck) => has_shutdown_ack = true,
                Ok(_) => {}
            }
        }
        if !self.may_answer_stray(route, now) {
            return;
        }
        if has_shutdown_ack {
            //= rfc9260#3.1-5 8.4-6 8.4-7
            self.replies.shutdown_complete_reflecting(*route, header);
        } else {
            //= rfc9260#8.4-10 8.4-11 8.4-12
            self.replies.abort_reflecting(*route, header);
        }
    }

    /// Reports whether the rate limit permits an answer to the source of a packet that belongs to no association. Without
    /// permission, the packet is counted as dropped.
    pub(super) fn may_answer_stray(&mut self, route: &Route, now: Time) -> bool {
        let may = self.strays.take(route.remote, now);
        if !may {
            self.on_dropped(route, DropReason::StraysLimited);
        }
        may
    }

    /// Handles an error report about a packet that we sent on `route`. The report comes from ICMP, or from the kernel when the
    /// packet was sent. `quoted` is the beginning of that packet, from the SCTP header on. The quote must have at least the
    /// right ports and tag, because anyone can forge ICMP (RFC 9260 section 10).
    pub fn handle_path_error(&mut self, now: Time, route: &Route, error: PathError, quoted: &[u8]) {
        let now = self.not_back(now);
        //= rfc9260#10-3 10-4
        //= rfc6951#5.5-1
        //= rfc9260#10-3 10-4
        let Some(header) = CommonHeader::peek(quoted) else { return };
        let (local, remote) = (header.source_port, header.destination_port);
        let Some(id) = self.slots.by_peer(local, remote, route.remote) else { return };
        match self.slots.get_mut(id) {
            Some(Slot::Opening(opening)) => {
                let what = match error {
                    PathError::Unreachable(what) => what,
                    PathError::NoRoute => Unreachable::Host,
                    PathError::TooBig { .. } | PathError::LocalQueue { .. } => return,
                };
                if quotes_init(header, quoted, opening.local_tag)
                    && let Some(reason) = opening.on_unreachable(route, what)
                {
                    self.close_opening(id, reason);
                }
            }
            //= rfc9260#10-5
            //= rfc8899#4.6.1-1
            //= rfc9260#10-5
            Some(Slot::Association(association)) if association.tags().1 == header.tag => {
                self.with(id, now, |a, ctx| a.transfer_mut().on_path_error(route, error, quoted, ctx));
            }
            Some(Slot::Association(_) | Slot::Finished) | None => {}
        }
    }
}

/// Reports whether ICMP quotes an INIT with this initiate tag. The verification tag of an INIT is zero. If the quote is too
/// short to show the chunk type and the initiate tag, anyone who knows the ports could have forged the report. The report is
/// then silently discarded (RFC 9260 section 10, ICMP6).
//= rfc9260#10-5
fn quotes_init(header: CommonHeader, quoted: &[u8], tag: VerificationTag) -> bool {
    let chunk_type = quoted.get(wire::COMMON_HEADER_LEN);
    let initiate_tag = quoted.get(INITIATE_TAG);
    header.tag.0 == 0
        && chunk_type == Some(&ChunkType::INIT.0)
        && initiate_tag.is_some_and(|quoted| quoted == tag.0.to_be_bytes())
}

/// Position of the first chunk that an association must still handle, and the facts known about the chunk's packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begin {
    /// Index of the first chunk to handle, counted from 0.
    pub(super) chunk: usize,
    /// True if a valid AUTH chunk precedes that chunk.
    pub(super) is_authenticated: bool,
    /// True if the packet was sealed.
    pub(super) is_sealed: bool,
    /// The packet's ECN codepoint.
    pub(super) ecn: Ecn,
}

/// Returns the DTLS chunk of a sealed packet: its first chunk, or its second chunk after an advertisement, which routers read.
#[inline]
fn record_of<'a>(packet: &Packet<'a>, first: &RawChunk<'a>) -> Option<RawChunk<'a>> {
    match first.chunk_type {
        ChunkType::DTLS => Some(*first),
        other if UnrecognizedAction::for_chunk(other).stops() => None,
        _ => record_behind(packet),
    }
}

#[cold]
fn record_behind<'a>(packet: &Packet<'a>) -> Option<RawChunk<'a>> {
    let second = packet.raw_chunks().nth(1)?.ok()?;
    (second.chunk_type == ChunkType::DTLS).then_some(second)
}

/// Returns the second chunk of a packet if it is a COOKIE ECHO (RFC 4895 section 6.3).
fn cookie_echo_behind<'a>(packet: &Packet<'a>) -> Option<RawChunk<'a>> {
    let second = packet.raw_chunks().nth(1)?.ok()?;
    (second.chunk_type == ChunkType::COOKIE_ECHO).then_some(second)
}

/// The owner of a packet.
enum Owner {
    Association(AssociationId),
    /// No association: the packet is out of the blue.
    Nobody,
    /// An association with this peer and these ports exists, but it has another tag. The packet is dropped without an answer.
    Forged,
}

/// Returns the header of an answer to a packet that belongs to no association. The header has swapped ports and the same tag.
pub(super) fn reflect(header: &CommonHeader) -> CommonHeader {
    CommonHeader {
        source_port: header.destination_port,
        destination_port: header.source_port,
        tag: header.tag,
    }
}

/// Reports whether both addresses of a packet are acceptable: neither is multicast, and the source is specified. Other packets
/// are dropped (RFC 9260 section 8.4, rule 1).
fn is_unicast(route: &Route) -> bool {
    !route.remote.is_multicast() && !route.remote.is_unspecified() && !route.local.is_multicast()
}
