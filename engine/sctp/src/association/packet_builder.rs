//! Assembles outgoing packets. Small functions add chunks to a packet in a fixed order.
//!
//! Start at [`Association::poll_transmit`]. All packets of a train have the length of the first one, as segmentation by
//! the kernel (GSO) requires. Only the last packet may be shorter.

use base::{Ecn, Route, Time};
use smallvec::SmallVec;
use wire::{
    Causes, Chunk, ChunkType, CookieEcho, ErrorChunk, Heartbeat, PacketWriter, Parameters, ReConfig,
    Shutdown, Tsn, UnknownChunk,
};

use super::heartbeat::info;
use super::{Association, Context, Control, State};
use crate::extension::zero_checksum::Need;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Maximum number of packets in a train.
const TRAIN_MAX: usize = 64;

/// A train of packets written into the caller's buffer.
#[derive(Debug)]
pub(crate) struct Train {
    pub(crate) route: Route,
    pub(crate) len: usize,
    pub(crate) segment_size: usize,
    pub(crate) may_fragment: bool,
    pub(crate) ecn: Ecn,
    pub(crate) asks_for_queue: bool,
}

/// The contribution of an association to another association's train.
#[derive(Debug)]
pub(crate) enum Joining {
    /// A packet of this many bytes was written.
    Packet(usize),
    /// The next packet cannot join the train.
    Other,
    /// There is nothing to send.
    Nothing,
}

impl Association {
    /// Returns the path of the next SACK.
    pub(super) fn sack_path(&self) -> PathIndex {
        self.sack_route.choose(
            self.inbound.has_duplicates(),
            self.transfer.is_concurrent(),
            &self.transfer.paths,
        )
    }

    /// Writes the next train of packets. All of them take one path.
    pub(crate) fn poll_transmit(&mut self, buf: &mut [u8], ctx: &mut Context<'_>) -> Option<Train> {
        let Some(path) = self.path_to_serve(ctx) else {
            return self.transfer.write_advertisement(buf, ctx.now);
        };
        if let Some((index, Control::SizeProbe { nonce, size })) = self.transfer.out.next_chunk() {
            let (nonce, size) = (*nonce, *size);
            self.transfer.out.drop_next_chunk();
            let probe = self.transfer.write_size_probe(index, nonce, size, buf);
            return probe.or_else(|| self.poll_transmit(buf, ctx));
        }
        let had_detour = self.transfer.tx.probes.detour().is_some();
        let train = self.write_train(path, TRAIN_MAX, buf, ctx);
        // If the chunk to repeat was acknowledged or given up meanwhile, no packet was written. Another path may still
        // have something to send.
        let was_needless = train.is_none() && had_detour && self.transfer.tx.probes.detour().is_none();
        if was_needless { self.poll_transmit(buf, ctx) } else { train }
    }

    /// Writes the next packet into another association's train, if the packet has no data and uses `route`.
    pub(crate) fn poll_joining(&mut self, route: &Route, buf: &mut [u8], ctx: &mut Context<'_>) -> Joining {
        let Some(path) = self.path_to_serve(ctx) else { return Joining::Nothing };
        let has_data = !self.transfer.tx.queue.is_empty()
            || self.transfer.tx.outstanding.bytes() > 0
            || self.transfer.tx.forward.is_due();
        let is_probe = matches!(self.transfer.out.next_chunk(), Some((_, Control::SizeProbe { .. })));
        let by = self.transfer.paths.get(path);
        let fits = by.packet_size() <= buf.len() && self.room_for_cookie() <= by.packet_size();
        if has_data || is_probe || by.route != *route || !fits {
            return Joining::Other;
        }
        self.write_train(path, 1, buf, ctx).map_or(Joining::Nothing, |train| Joining::Packet(train.len))
    }

    /// Does the work that is due before sending. Returns the path of the next packet, if any.
    fn path_to_serve(&mut self, ctx: &mut Context<'_>) -> Option<PathIndex> {
        self.watch_keys(ctx);
        if matches!(self.transfer.state, State::Closed) {
            return None;
        }
        self.transfer.queue_heartbeats(ctx);
        self.drive_reconfig(ctx.now);
        self.give_up_expired(ctx.now);
        self.give_up_lost(ctx.now);
        self.transfer.refill_pacers(ctx.now);
        if self.transfer.is_redundant() {
            self.transfer.drop_needless_copies();
        }
        //= rfc9260#5.1-7
        let path = self.next_path();
        if path.is_none() {
            self.transfer.note_waiting(ctx.now);
        }
        path
    }

    /// Writes up to `packets_max` packets for a path.
    fn write_train(
        &mut self,
        path: PathIndex,
        packets_max: usize,
        buf: &mut [u8],
        ctx: &mut Context<'_>,
    ) -> Option<Train> {
        let (new, again) =
            (self.transfer.out.counters().data_sent, self.transfer.out.counters().data_retransmitted);
        let had_sack = self.inbound.ack.is_pending();
        let usual = self.transfer.packet_size(path);
        let needed = self.transfer.room_for_old(path).max(self.room_for_cookie()).max(usual);
        let packets_max = if needed > usual { 1 } else { packets_max };
        let (mut len, mut segment_size, mut packets) = (0, needed, 0);
        while packets < packets_max && len + segment_size <= buf.len() {
            let is_full_size = packets == 0;
            let written = self.write_packet(path, &mut buf[len..len + segment_size], is_full_size, ctx.now);
            if written == 0 {
                break;
            }
            if packets == 0 {
                segment_size = written;
            }
            packets += 1;
            len += written;
            if written < segment_size {
                break;
            }
        }
        if had_sack && !self.inbound.ack.is_pending() {
            self.acknowledge_to_new_port(path, ctx);
        }
        let (has_new, has_old) = (
            self.transfer.out.counters().data_sent > new,
            self.transfer.out.counters().data_retransmitted > again,
        );
        if has_new || has_old {
            self.transfer.arm_probe(path, true, ctx.now);
            self.transfer.prove_mtu_if_busy(path, ctx);
        }
        let ecn = if has_new && !has_old { self.transfer.ecn_of_new_data(path) } else { Ecn::NotEct };
        let asks_for_queue = (has_new || has_old) && self.transfer.may_wait_here(path);
        let path = self.transfer.paths.get_mut(path);
        path.counters.packets_sent += packets as u64;
        path.counters.bytes_sent += len as u64;
        //= rfc9260#6.9-6
        let may_fragment = segment_size > usual;
        let route = path.route;
        if packets > 0 {
            self.transfer.out.trace(|| TraceEvent::Sent { route, packets, bytes: len, ecn });
        }
        (packets > 0).then_some(Train { route, len, segment_size, may_fragment, ecn, asks_for_queue })
    }

    /// Returns the packet length that a COOKIE ECHO at the front of the queue needs, or 0 if the first chunk is another
    /// one. The peer may choose any length of its cookie, so the packet may be longer than the path's MTU.
    fn room_for_cookie(&self) -> usize {
        match (&self.transfer.state, self.transfer.out.next_chunk()) {
            //= rfc9260#3.3.3-18
            (State::CookieEchoed { cookie, .. }, Some((_, Control::CookieEcho))) => {
                let auth = self.transfer.integrity.overhead(ChunkType::COOKIE_ECHO);
                wire::COMMON_HEADER_LEN + auth + wire::padded(wire::CHUNK_HEADER_LEN + cookie.len())
            }
            _ => 0,
        }
    }

    /// Returns the path of the next packet. Control chunks come first, then due SACKs, then data.
    fn next_path(&self) -> Option<PathIndex> {
        if let Some((path, _)) = self.transfer.out.next_chunk() {
            return Some(path);
        }
        if self.transfer.state.acknowledges() && self.inbound.ack.is_due() {
            return Some(self.sack_path());
        }
        if !self.transfer.state.sends_data() {
            return None;
        }
        if self.transfer.tx.forward.is_due() {
            return Some(self.transfer.paths.current());
        }
        if let Some(path) = self.transfer.detour_path().or_else(|| self.transfer.probed_path()) {
            return Some(path);
        }
        if let Some(path) = self.transfer.copy_path() {
            return Some(path);
        }
        if let Some(path) = self.transfer.retransmission_path() {
            return self.transfer.window_allows(path).then_some(path);
        }
        self.transfer.new_data_path()
    }

    /// Writes one packet and returns its length, or 0 if there is nothing to write. `is_full_size` is true if `buf` is
    /// as long as the path allows. Later packets of a train may get less room.
    fn write_packet(&mut self, path: PathIndex, buf: &mut [u8], is_full_size: bool, now: Time) -> usize {
        self.transfer.advertising.reserve(self.transfer.room_for_advertisement(path, now));
        let written = self.write_packet_keeping(path, buf, is_full_size, now);
        // A chunk that leaves no room for an advertisement is sent without one.
        if self.transfer.advertising.take_reserved() > 0 && written == 0 {
            return self.write_packet_keeping(path, buf, is_full_size, now);
        }
        written
    }

    /// Does the same as `write_packet`, after room for an advertisement was reserved.
    fn write_packet_keeping(
        &mut self,
        path: PathIndex,
        buf: &mut [u8],
        is_full_size: bool,
        now: Time,
    ) -> usize {
        let packet = self.transfer.integrity.begin(buf, self.transfer.negotiated.header());
        let mut packet = packet.with_room_in_front(self.transfer.advertising.reserved());
        let (sent, again) =
            (self.transfer.out.counters().data_sent, self.transfer.out.counters().data_retransmitted);
        let has_asconf =
            self.transfer.out.chunks().any(|(by, chunk)| by == path && matches!(chunk, Control::Asconf));
        //= rfc9260#6.10-3
        let has_heartbeat = self.fill_control(path, &mut packet, is_full_size);
        let has_control = !packet.is_empty();
        self.fill_sack(path, &mut packet);
        let first = self.transfer.tx.outstanding.next();
        let has_answer = self.transfer.fill_answer(path, &mut packet);
        // A packet with a HEARTBEAT carries no data. With data, the packet could be too long for the path, and the
        // HEARTBEAT would be lost too.
        if self.transfer.state.sends_data() && !has_heartbeat {
            //= rfc3758#3.5-16
            self.fill_forward(path, &mut packet, now);
            self.transfer.fill_detour(path, &mut packet, now);
            self.transfer.fill_tail_probe(path, &mut packet, now);
            self.transfer.fill_copies(path, &mut packet, now);
            //= rfc9260#6.10-4
            self.fill_retransmissions(path, &mut packet, now);
            self.transfer.fill_new_data(path, &mut packet, now);
            self.transfer.paths.get_mut(path).sending.end_packet();
        } else if self.transfer.state.says_first() {
            let waiting = self.transfer.tx.queue.bytes();
            self.transfer.fill_new_data(path, &mut packet, now);
            self.transfer.paths.get_mut(path).sending.end_packet();
            // Before COOKIE ACK, every packet must begin with COOKIE ECHO (RFC 9260 section 5.1). The rest of a
            // key-management message therefore needs another COOKIE ECHO.
            let left = self.transfer.tx.queue.bytes();
            if self.transfer.integrity.is_pending() && left > 0 && left < waiting {
                self.transfer.out.queue(path, Control::CookieEcho);
            } else {
                self.transfer.state.end_first();
            }
        }
        if has_answer {
            self.transfer.tx.answer.on_sent(first);
        }
        if packet.is_empty() {
            return 0;
        }
        let counters = self.transfer.out.counters();
        let (new, repeated) = (counters.data_sent - sent, counters.data_retransmitted - again);
        if self.transfer.advertising.is_on() && new + repeated > 0 {
            self.transfer.advertise(path, &mut packet, now);
        }
        self.transfer.integrity.check_zero_checksum(&self.transfer.tx.outstanding);
        // RFC 9653 section 5.2: a packet with an ASCONF chunk must have a correct checksum.
        //= rfc9653#5.2-4
        let need = match (has_asconf, new > 0 && repeated == 0 && !has_control) {
            (true, _) => Need::Always,
            (false, false) => Need::WithoutLowerLayer,
            (false, true) => Need::Never { first },
        };
        self.transfer.finish_packet(packet, path, need)
    }

    /// Writes as many control chunks as fit. Returns whether a HEARTBEAT is among them.
    //= rfc9260#12.4-2
    fn fill_control(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, is_full_size: bool) -> bool {
        let mut has_heartbeat = false;
        while let Some((_, control)) = self.transfer.out.next_chunk().filter(|(by, _)| *by == path) {
            let pushed = match control {
                Control::CookieEcho => self.push_cookie_echo(packet),
                Control::CookieAck => packet.push(&Chunk::CookieAck).is_ok(),
                // A size probe has a separate packet.
                Control::SizeProbe { .. } => break,
                Control::Heartbeat { nonce } => {
                    has_heartbeat = true;
                    packet.push(&Chunk::Heartbeat(Heartbeat { info: &info(path, *nonce) })).is_ok()
                }
                Control::Voucher { path, nonce } => {
                    has_heartbeat = true;
                    packet.push(&Chunk::Heartbeat(Heartbeat { info: &info(*path, *nonce) })).is_ok()
                }
                Control::HeartbeatAck(value) => {
                    let chunk_type = ChunkType::HEARTBEAT_ACK;
                    packet.push(&Chunk::Unknown(UnknownChunk { chunk_type, flags: 0, value })).is_ok()
                }
                Control::Error(causes) => {
                    packet.push(&ErrorChunk { causes: Causes::from_wire(causes) }).is_ok()
                }
                Control::Shutdown => {
                    //= rfc9260#6.2-15 9.2-2
                    let cumulative_tsn = self.inbound.cumulative_tsn();
                    packet.push(&Chunk::Shutdown(Shutdown { cumulative_tsn })).is_ok()
                }
                Control::Asconf => self.push_asconf(path, packet),
                Control::Reconfig => self.push_reconfig(packet),
                Control::ReconfigAnswer(answers) => {
                    let parameters = Parameters::from_wire(answers);
                    packet.push(&Chunk::ReConfig(ReConfig { parameters })).is_ok()
                }
                Control::ShutdownAck => packet.push(&Chunk::ShutdownAck).is_ok(),
            };
            // A chunk that does not fit into an empty packet of full size will never fit.
            if pushed || (is_full_size && packet.is_empty()) {
                self.transfer.out.drop_next_chunk();
            }
            if !pushed {
                break;
            }
        }
        has_heartbeat
    }

    fn push_cookie_echo(&self, packet: &mut PacketWriter<'_>) -> bool {
        match &self.transfer.state {
            State::CookieEchoed { cookie, .. } => {
                packet.push(&Chunk::CookieEcho(CookieEcho { cookie })).is_ok()
            }
            _ => true,
        }
    }

    /// Writes a SACK that is due, or a pending one that can be bundled.
    fn fill_sack(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>) {
        let is_bundled = || !packet.is_empty() || self.transfer.next_new_length(path).is_some();
        //= rfc9260#5.1.5-6 6.1-16
        let wanted = self.inbound.ack.is_due() || (self.inbound.ack.is_pending() && is_bundled());
        if !wanted || !self.transfer.state.acknowledges() || path != self.sack_path() {
            return;
        }
        let duplicates: SmallVec<[Tsn; 16]> = self.inbound.duplicates().iter().copied().collect();
        self.marks.fill_echoes(packet);
        let room = packet.remaining_for(ChunkType::SACK);
        let told = self.inbound.with_sack(room, &duplicates, |sack| {
            let (cumulative, gaps, a_rwnd) = (sack.cumulative_tsn.0, sack.gaps().count(), sack.a_rwnd);
            let told = TraceEvent::SackSent { cumulative, gaps, a_rwnd };
            packet.push(&Chunk::Sack(sack)).is_ok().then_some(told)
        });
        if let Some(told) = told {
            self.transfer.out.note(told);
            self.sack_route.on_sent(self.inbound.has_duplicates());
            self.inbound.on_sack_sent();
        }
    }

    fn fill_retransmissions(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        let before = packet.len();
        // The chunk requests an immediate SACK (RFC 7053 section 4.1) in two cases. Either data in flight of a lost
        // link waits for this SACK (`transfer::stranded`), or the path has just replaced another path and needs SACKs
        // to clock its sending.
        let asks = self.transfer.tx.stranded.is_open() || self.transfer.paths.get(path).sending.takes_over();
        let mut is_allowed = self.transfer.window_allows(path);
        while is_allowed && self.transfer.retransmission_path() == Some(path) {
            let Some((seq, fragment, _)) = self.transfer.tx.next_lost() else { break };
            let length = fragment.payload.len();
            let tsn = seq.tsn(self.transfer.negotiated.initial_tsn());
            if self.transfer.push_fragment(packet, fragment, tsn, asks).is_err() {
                break;
            }
            self.transfer.tx.outstanding.on_retransmit(seq, path, now);
            self.transfer.copy_to_others(seq, path);
            self.transfer.tx.pr_messages.on_retransmitted(seq);
            self.transfer.tx.window.on_sent(length, self.transfer.tx.outstanding.total_flight());
            self.transfer.count_retransmission(path, tsn, false);
            let is_earliest = seq == self.transfer.tx.outstanding.first();
            let to = self.transfer.paths.get_mut(path);
            // RFC 9260 section 7.2.4: the retransmission of the earliest chunk restarts the timer.
            if is_earliest {
                //= rfc9260#6.1-19
                to.t3 = None;
            }
            to.on_data_sent(length, now);
            // The chunk just sent may be abandoned here, together with its message. The abandonment may stop the timer
            // that was just started.
            self.give_up_lost(now);
            // The pacer admits whole packets, so only the window limits further chunks of this packet.
            is_allowed = self.transfer.window_has_room(path);
        }
        if packet.len() > before {
            self.transfer.tx.stranded.on_asked(path, self.transfer.paths.get(path).srtt(), now);
        }
    }
}
