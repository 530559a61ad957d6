//! Integration of path MTU discovery (RFC 8899): the reasons to doubt the MTU, probe packets, and the effect
//! of a change on data.
//!
//! [`path::Pmtu`](crate::path::Pmtu) decides; this module writes its probes, reads the answers, and applies
//! changes. Data cut for a larger MTU cannot be fragmented again: it is retransmitted as it was, alone in its
//! packet, which IP may fragment (RFC 9260 section 6.9). Start at [`Transfer::doubt_mtu`] and
//! [`Transfer::follow_mtu`].

use base::Time;
use wire::{Chunk, ChunkType, Heartbeat, Pad};

use super::Transfer;
use crate::association::Context;
use crate::association::heartbeat::{info, read_info};
use crate::association::packet_builder::Train;
use crate::event::Event;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Offset of the HEARTBEAT information if that chunk is the first of a packet: after the common header, chunk
/// header and parameter header.
const INFO_AT: usize = wire::COMMON_HEADER_LEN + 8;

/// Octets of a chunk's header.
const CHUNK_HEADER: usize = 4;

/// Maximum number of octets that pad a chunk to a multiple of four.
const CHUNK_PADDING: usize = 3;

/// Packets in flight from which a path counts as busy, so that its MTU gets confirmed.
const BUSY_PACKETS: usize = 3;

/// Number of packets unacknowledged at once that puts even a freshly confirmed MTU in doubt.
const MANY_PACKETS: usize = 8;

impl Transfer {
    /// Handles silence about `flight` bytes, which may have been too long for the path.
    pub(crate) fn doubt_mtu(&mut self, index: PathIndex, flight: usize, ctx: &mut Context<'_>) {
        if self.is_long(index, flight) {
            let path = self.paths.get_mut(index);
            let many = flight >= MANY_PACKETS * path.packet_size();
            path.pmtu.suspect(many, ctx.now, ctx.random);
        }
    }

    /// The same after T3 has expired.
    pub(crate) fn doubt_mtu_after_timeout(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let flight = self.tx.outstanding.flight(index);
        if self.is_about_least(index, flight) {
            self.paths.get_mut(index).doubt_least_mtu(ctx.now);
        }
        if self.is_long(index, flight) {
            let path = self.paths.get_mut(index);
            let many = flight >= MANY_PACKETS * path.packet_size();
            path.pmtu.on_data_timeout(many, ctx.now, ctx.random);
        }
    }

    /// Returns whether `bytes` of data need a packet at least nearly as long as the longest that surely
    /// works.
    pub(crate) fn is_about_least(&self, index: PathIndex, bytes: usize) -> bool {
        let path = self.paths.get(index);
        bytes + self.data_headers_len() > path.packet_in(path.pmtu.least()) / 8 * 7
    }

    /// Returns whether `bytes` of data may have needed a packet longer than works everywhere.
    fn is_long(&self, index: PathIndex, bytes: usize) -> bool {
        let path = self.paths.get(index);
        bytes + self.data_headers_len() > path.packet_in(path.pmtu.base())
    }

    /// Learns about the MTU from acknowledged chunks, the longest of `longest` bytes.
    pub(crate) fn learn_mtu(&mut self, index: PathIndex, longest: usize, now: Time) {
        if self.is_about_least(index, longest) {
            self.paths.get_mut(index).pmtu.on_least_proven();
        }
        if !self.is_long(index, longest) {
            return;
        }
        let in_packet = longest + self.data_headers_len() + self.advertising.len(self.integrity.auth());
        let path = self.paths.get_mut(index);
        // A longer chunk was cut for another size and retransmitted in IP fragments (RFC 9260 section 6.9).
        let full = path.packet_size().saturating_sub(CHUNK_PADDING)..=path.packet_size();
        let (is_full, srtt) = (full.contains(&in_packet), path.srtt());
        path.pmtu.on_data_acknowledged(is_full, srtt, now);
    }

    /// Confirms the MTU alongside the first data that fills several packets, so a black hole is found before
    /// any timer expires.
    pub(crate) fn prove_mtu_if_busy(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let path = self.paths.get_mut(index);
        if path.pmtu.wants_proof() && self.tx.outstanding.flight(index) > BUSY_PACKETS * path.packet_size() {
            path.pmtu.suspect(false, ctx.now, ctx.random);
        }
    }

    /// Treats a HEARTBEAT ACK as a possible answer to an MTU probe; returns whether it is one.
    pub(crate) fn on_size_answer(&mut self, index: PathIndex, nonce: u64, now: Time) -> bool {
        let path = self.paths.get_mut(index);
        let (before, srtt) = (path.pmtu.current(), path.srtt());
        let is_answer = path.pmtu.on_answer(nonce, srtt, now);
        self.follow_mtu(index, before);
        is_answer
    }

    /// Handles overdue MTU probes.
    //= rfc8899#3-13
    pub(crate) fn on_size_timeout(&mut self, index: PathIndex, now: Time) {
        let path = self.paths.get_mut(index);
        let before = path.pmtu.current();
        path.pmtu.on_timeout(now);
        if path.pmtu.current() != before {
            path.sending.on_black_hole();
        }
        self.follow_mtu(index, before);
    }

    /// Handles a report by ICMP or our own host that a packet exceeded `mtu` bytes; `quoted` is its
    /// beginning.
    pub(crate) fn on_too_big(&mut self, index: PathIndex, mtu: u16, quoted: &[u8], now: Time) {
        let path = self.paths.get_mut(index);
        let before = path.pmtu.current();
        path.pmtu.on_too_big(mtu, probe_nonce(quoted), now);
        self.follow_mtu(index, before);
    }

    /// Applies an MTU change. Data in flight at a decrease counts as lost, though not from congestion.
    fn follow_mtu(&mut self, index: PathIndex, before: u16) {
        let path = self.paths.get_mut(index);
        let (route, now) = (path.route, path.pmtu.current());
        if now == before {
            return;
        }
        //= rfc8899#3-14
        path.sending.on_mtu(path.packet_size());
        if now < before {
            self.out.note(TraceEvent::MtuShrank { route, from: before, to: now });
            self.mark_lost_on(index);
        } else {
            self.out.note(TraceEvent::MtuGrew { route, from: before, to: now });
        }
        self.out.emit(Event::PathMtu { route, from: before, to: now });
    }

    /// Writes a probe whose IP packet has `size` bytes.
    //= rfc8899#section-6.2.1.2
    //# Probe packets consist of an SCTP common header followed by a HEARTBEAT chunk and a PAD chunk.
    //= rfc8899#3-5 6.2-1
    pub(crate) fn write_size_probe(
        &mut self,
        index: PathIndex,
        nonce: u64,
        size: u16,
        buf: &mut [u8],
    ) -> Option<Train> {
        let path = self.paths.get(index);
        let (route, length) = (path.route, path.packet_in(size));
        let mut packet = self.integrity.begin(buf.get_mut(..length)?, self.negotiated.header());
        packet.push(&Chunk::Heartbeat(Heartbeat { info: &info(index, nonce) })).ok()?;
        let room = packet.remaining_for(ChunkType::PAD).checked_sub(CHUNK_HEADER)?;
        packet.push(&Chunk::Pad(Pad { len: room })).ok()?;
        let len = self.finish_packet(packet, false);
        self.out.note(TraceEvent::MtuProbe { route, size });
        Some(self.count_alone(index, len))
    }
}

/// Returns the nonce of the HEARTBEAT at the start of a quoted packet, if there is one.
fn probe_nonce(quoted: &[u8]) -> Option<u64> {
    let is_heartbeat = quoted.get(wire::COMMON_HEADER_LEN) == Some(&ChunkType::HEARTBEAT.0);
    let info = quoted.get(INFO_AT..INFO_AT + 12).filter(|_| is_heartbeat)?;
    read_info(info).map(|(_, nonce)| nonce)
}
