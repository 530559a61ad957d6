//! Where the MTU of a path (RFC 8899) meets the rest: what makes it doubtful, probes on the wire, and what a change means
//! for data.
//!
//! [`path::Pmtu`](crate::path::Pmtu) decides; here its probes are written, its answers read, and its changes carried out.
//! Data that was cut for a larger MTU cannot be cut anew: it is sent again as it was, alone in its packet, which IP may
//! fragment (RFC 9260 section 6.9). Begin at [`Association::doubt_mtu`] and [`Association::follow_mtu`].

use base::Time;
use wire::{Chunk, ChunkType, Heartbeat, PacketWriter, Pad};

use super::assemble::Train;
use super::heartbeat::{info, read_info};
use super::{Association, Context};
use crate::event::Event;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Where the information of a HEARTBEAT begins that is the first chunk of a packet: behind common header, chunk header and
/// parameter header.
const INFO_AT: usize = wire::COMMON_HEADER_LEN + 8;

/// Octets of a chunk's header.
const CHUNK_HEADER: usize = 4;

/// Octets at most that fill a chunk up to a multiple of four.
const CHUNK_PADDING: usize = 3;

/// Packets in flight with which a path counts as busy: its MTU is proven then.
const BUSY_PACKETS: usize = 3;

/// Packets that nothing was heard of at once which make doubtful even an MTU that was proven a moment ago.
const MANY_PACKETS: usize = 8;

impl Association {
    /// Nothing was heard of `flight` bytes: they may have been too long for the path.
    pub(super) fn doubt_mtu(&mut self, index: PathIndex, flight: usize, ctx: &mut Context<'_>) {
        if self.is_long(index, flight) {
            let path = self.paths.get_mut(index);
            let many = flight >= MANY_PACKETS * path.packet_size();
            path.pmtu.suspect(many, ctx.now, ctx.random);
        }
    }

    /// Nor was before T3 expired.
    pub(super) fn doubt_mtu_after_timeout(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let flight = self.outstanding.flight(index);
        if self.is_about_least(index, flight) {
            self.paths.get_mut(index).doubt_least_mtu(ctx.now);
        }
        if self.is_long(index, flight) {
            let path = self.paths.get_mut(index);
            let many = flight >= MANY_PACKETS * path.packet_size();
            path.pmtu.on_data_timeout(many, ctx.now, ctx.random);
        }
    }

    /// Whether so many bytes of data take nearly as long a packet, or more, as may be the longest that works.
    fn is_about_least(&self, index: PathIndex, bytes: usize) -> bool {
        let path = self.paths.get(index);
        bytes + self.data_headers_len() > path.packet_in(path.pmtu.least()) / 8 * 7
    }

    /// Whether so many bytes of data may have been in a packet longer than those that work everywhere.
    fn is_long(&self, index: PathIndex, bytes: usize) -> bool {
        let path = self.paths.get(index);
        bytes + self.data_headers_len() > path.packet_in(path.pmtu.base())
    }

    /// Chunks were acknowledged, the longest with so many bytes: what their packets show of the MTU.
    pub(super) fn learn_mtu(&mut self, index: PathIndex, longest: usize, now: Time) {
        if self.is_about_least(index, longest) {
            self.paths.get_mut(index).pmtu.on_least_proven();
        }
        if !self.is_long(index, longest) {
            return;
        }
        let in_packet = longest + self.data_headers_len() + self.advertisement_len();
        let path = self.paths.get_mut(index);
        // A longer one was cut for another size, and sent again in fragments (RFC 9260 section 6.9).
        let full = path.packet_size().saturating_sub(CHUNK_PADDING)..=path.packet_size();
        let (is_full, srtt) = (full.contains(&in_packet), path.srtt());
        path.pmtu.on_data_acknowledged(is_full, srtt, now);
    }

    /// Data was sent. The first that fills several packets shows that the MTU matters: then it is proven once, beside the
    /// data, so that a black hole is found before any timer expires.
    pub(super) fn prove_mtu_if_busy(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let path = self.paths.get_mut(index);
        if path.pmtu.wants_proof() && self.outstanding.flight(index) > BUSY_PACKETS * path.packet_size() {
            path.pmtu.suspect(false, ctx.now, ctx.random);
        }
    }

    /// A HEARTBEAT ACK may be the answer to a probe of the MTU; returns whether it is.
    pub(super) fn on_size_answer(&mut self, index: PathIndex, nonce: u64, now: Time) -> bool {
        let path = self.paths.get_mut(index);
        let (before, srtt) = (path.pmtu.current(), path.srtt());
        let is_answer = path.pmtu.on_answer(nonce, srtt, now);
        self.follow_mtu(index, before);
        is_answer
    }

    /// Probes of the MTU that are overdue.
    //= rfc8899#3-13
    pub(super) fn on_size_timeout(&mut self, index: PathIndex, now: Time) {
        let path = self.paths.get_mut(index);
        let before = path.pmtu.current();
        path.pmtu.on_timeout(now);
        if path.pmtu.current() != before {
            path.sending.on_black_hole();
        }
        self.follow_mtu(index, before);
    }

    /// ICMP, or our own host, says that a packet was longer than `mtu` bytes; `quoted` is its beginning.
    pub(super) fn on_too_big(&mut self, index: PathIndex, mtu: u16, quoted: &[u8], now: Time) {
        let path = self.paths.get_mut(index);
        let before = path.pmtu.current();
        path.pmtu.on_too_big(mtu, probe_nonce(quoted), now);
        self.follow_mtu(index, before);
    }

    /// Carries a change of the MTU out. What was in flight when it fell is lost, but for no lack of room.
    fn follow_mtu(&mut self, index: PathIndex, before: u16) {
        let path = self.paths.get_mut(index);
        let (route, now) = (path.route, path.pmtu.current());
        if now == before {
            return;
        }
        //= rfc8899#3-14
        path.sending.on_mtu(path.packet_size());
        if now < before {
            self.note(TraceEvent::MtuShrank { route, from: before, to: now });
            self.mark_lost_on(index);
        } else {
            self.note(TraceEvent::MtuGrew { route, from: before, to: now });
        }
        self.events.push_back(Event::PathMtu { route, from: before, to: now });
    }

    /// Writes a probe of `size` bytes of IP packet.
    //= rfc8899#section-6.2.1.2
    //# Probe packets consist of an SCTP common header followed by a HEARTBEAT chunk and a PAD chunk.
    //= rfc8899#3-5 6.2-1
    pub(super) fn write_size_probe(
        &mut self,
        index: PathIndex,
        nonce: u64,
        size: u16,
        buf: &mut [u8],
    ) -> Option<Train> {
        let path = self.paths.get(index);
        let (route, length) = (path.route, path.packet_in(size));
        let mut packet = PacketWriter::new(buf.get_mut(..length)?, self.header());
        if let Some(auth) = &self.auth {
            packet = packet.with_auth(auth.plan());
        }
        packet.push(&Chunk::Heartbeat(Heartbeat { info: &info(index, nonce) })).ok()?;
        let room = packet.remaining_for(ChunkType::PAD).checked_sub(CHUNK_HEADER)?;
        packet.push(&Chunk::Pad(Pad { len: room })).ok()?;
        let len = self.finish_packet(packet, false);
        self.note(TraceEvent::MtuProbe { route, size });
        Some(self.count_alone(index, len))
    }
}

/// The nonce of the HEARTBEAT that begins a quoted packet, if one does.
fn probe_nonce(quoted: &[u8]) -> Option<u64> {
    let is_heartbeat = quoted.get(wire::COMMON_HEADER_LEN) == Some(&ChunkType::HEARTBEAT.0);
    let info = quoted.get(INFO_AT..INFO_AT + 12).filter(|_| is_heartbeat)?;
    read_info(info).map(|(_, nonce)| nonce)
}
