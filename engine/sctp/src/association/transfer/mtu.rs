//! Integration of path MTU discovery (RFC 8899): the reasons to doubt the MTU, probe packets, and the effect
//! of a change on data.
//!
//! [`path::Pmtu`](crate::path::Pmtu) makes the decisions. This module writes its probes, reads the answers, and applies
//! changes. Data that was fragmented for a larger MTU cannot be fragmented again. It is retransmitted unchanged, in a
//! separate packet that IP may fragment (RFC 9260 section 6.9). Start at [`Transfer::doubt_mtu`] and
//! [`Transfer::follow_mtu`].

use base::Time;
use wire::{Chunk, ChunkType, Heartbeat, Pad};

use super::Transfer;
use crate::association::Context;
use crate::association::heartbeat::{info, read_info};
use crate::association::packet_builder::Train;
use crate::event::Event;
use crate::extension::zero_checksum::Need;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Offset of the HEARTBEAT information in a packet that begins with this chunk: after the common header, the chunk
/// header and the parameter header.
const INFO_AT: usize = wire::COMMON_HEADER_LEN + 8;

/// Octets of a chunk's header.
const CHUNK_HEADER: usize = 4;

/// Maximum number of octets that pad a chunk to a multiple of four.
const CHUNK_PADDING: usize = 3;

/// Number of full packets in flight. With more than this number in flight, a path is busy, and the confirmation of its
/// MTU begins.
const BUSY_PACKETS: usize = 3;

/// Number of unacknowledged full packets that puts even a recently confirmed MTU in doubt.
const MANY_PACKETS: usize = 8;

impl Transfer {
    /// Handles missing acknowledgements of `flight` bytes of data, because their packets may have been too long for the
    /// path.
    pub(crate) fn doubt_mtu(&mut self, index: PathIndex, flight: usize, ctx: &mut Context<'_>) {
        if self.is_long(index, flight) {
            let path = self.paths.get_mut(index);
            let many = flight >= MANY_PACKETS * path.packet_size();
            path.pmtu.suspect(many, ctx.now, ctx.random);
        }
    }

    /// Handles expiry of T3, which may mean that packets in flight were too long for the path.
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

    /// Reports whether `bytes` bytes of data need a packet longer than 7/8 of a full packet at the least MTU, which
    /// every path must carry.
    pub(crate) fn is_about_least(&self, index: PathIndex, bytes: usize) -> bool {
        let path = self.paths.get(index);
        bytes + self.data_headers_len() > path.packet_in(path.pmtu.least()) / 8 * 7
    }

    /// Reports whether `bytes` bytes of data may have been in a packet longer than the base MTU, which should work
    /// everywhere.
    fn is_long(&self, index: PathIndex, bytes: usize) -> bool {
        let path = self.paths.get(index);
        bytes + self.data_headers_len() > path.packet_in(path.pmtu.base())
    }

    /// Updates the MTU state after chunks were acknowledged. The longest one has `longest` user bytes.
    pub(crate) fn learn_mtu(&mut self, index: PathIndex, longest: usize, now: Time) {
        if self.is_about_least(index, longest) {
            self.paths.get_mut(index).pmtu.on_least_proven();
        }
        if !self.is_long(index, longest) {
            return;
        }
        let in_packet = longest + self.data_headers_len() + self.advertising.len(self.integrity.auth());
        let path = self.paths.get_mut(index);
        // A longer chunk was made for a larger MTU and retransmitted in IP fragments (RFC 9260 section 6.9).
        let full = path.packet_size().saturating_sub(CHUNK_PADDING)..=path.packet_size();
        let (is_full, srtt) = (full.contains(&in_packet), path.srtt());
        path.pmtu.on_data_acknowledged(is_full, srtt, now);
    }

    /// Begins to confirm the MTU when data fills several packets for the first time. A path that drops long packets (a
    /// black hole) is thus found before any timer expires.
    pub(crate) fn prove_mtu_if_busy(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let path = self.paths.get_mut(index);
        if path.pmtu.wants_proof() && self.tx.outstanding.flight(index) > BUSY_PACKETS * path.packet_size() {
            path.pmtu.suspect(false, ctx.now, ctx.random);
        }
    }

    /// Handles a HEARTBEAT ACK that may answer an MTU probe. Returns whether it answers a probe.
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

    /// Handles a report by ICMP or this host that a packet was longer than `mtu` bytes. `quoted` is the beginning of
    /// that packet.
    pub(crate) fn on_too_big(&mut self, index: PathIndex, mtu: u16, quoted: &[u8], now: Time) {
        let path = self.paths.get_mut(index);
        let before = path.pmtu.current();
        path.pmtu.on_too_big(mtu, probe_nonce(quoted), now);
        self.follow_mtu(index, before);
    }

    /// Applies an MTU change. After a decrease, data in flight counts as lost, but not because of congestion.
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
        let len = self.finish_packet(packet, index, Need::WithoutLowerLayer);
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
