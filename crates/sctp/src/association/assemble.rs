//! Packets out: small fillers, called in a fixed order.
//!
//! Begin at [`Association::poll_transmit`]. Each packet of a train has the length of the first, but the last may be
//! shorter, so that the kernel can cut the train (GSO).

use base::{Ecn, Route, Time};
use smallvec::SmallVec;
use wire::{
    Causes, Chunk, ChunkType, CookieEcho, Data, ErrorChunk, Heartbeat, IData, NoRoom, PacketWriter,
    Parameters, ReConfig, Shutdown, Tsn, UnknownChunk,
};

use super::heartbeat::info;
use super::{Association, Context, Control, State, WindowProbe};
use crate::extension::Extension;
use crate::path::PathIndex;
use crate::trace::TraceEvent;
use crate::tx::{Fragment, Taken};

/// Packets in one train.
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

/// What a sender has for the train of another.
#[derive(Debug)]
pub(crate) enum Joining {
    /// Wrote a packet of so many bytes.
    Packet(usize),
    /// Its next packet does not go with the train.
    Other,
    /// Has nothing to send.
    Nothing,
}

impl Association {
    /// Counts a packet of `len` bytes that leaves by a path as a train of its own, not capable of ECN.
    pub(super) fn count_alone(&mut self, index: PathIndex, len: usize) -> Train {
        let path = self.paths.get_mut(index);
        path.counters.packets_sent += 1;
        path.counters.bytes_sent += len as u64;
        Train {
            route: path.route,
            len,
            segment_size: len,
            may_fragment: false,
            ecn: Ecn::NotEct,
            asks_for_queue: false,
        }
    }

    /// Writes the next packets, all for one path.
    pub(crate) fn poll_transmit(&mut self, buf: &mut [u8], ctx: &mut Context<'_>) -> Option<Train> {
        let Some(path) = self.path_to_serve(ctx) else { return self.write_advertisement(buf, ctx.now) };
        if let Some((index, Control::SizeProbe { nonce, size })) = self.control.front() {
            let (index, nonce, size) = (*index, *nonce, *size);
            self.control.pop_front();
            let probe = self.write_size_probe(index, nonce, size, buf);
            return probe.or_else(|| self.poll_transmit(buf, ctx));
        }
        self.write_train(path, TRAIN_MAX, buf, ctx)
    }

    /// Writes the next packet if it has no data and goes by this route.
    pub(crate) fn poll_joining(&mut self, route: &Route, buf: &mut [u8], ctx: &mut Context<'_>) -> Joining {
        let Some(path) = self.path_to_serve(ctx) else { return Joining::Nothing };
        let has_data = !self.queue.is_empty() || self.outstanding.bytes() > 0 || self.forward.is_due();
        let is_probe = matches!(self.control.front(), Some((_, Control::SizeProbe { .. })));
        let by = self.paths.get(path);
        let fits = by.packet_size() <= buf.len() && self.room_for_cookie() <= by.packet_size();
        if has_data || is_probe || by.route != *route || !fits {
            return Joining::Other;
        }
        self.write_train(path, 1, buf, ctx).map_or(Joining::Nothing, |train| Joining::Packet(train.len))
    }

    /// Does what is due before anything is sent; the path of the next packet, if there is one.
    fn path_to_serve(&mut self, ctx: &mut Context<'_>) -> Option<PathIndex> {
        if matches!(self.state, State::Closed) {
            return None;
        }
        self.queue_heartbeats(ctx);
        self.drive_reconfig(ctx.now);
        self.give_up_expired(ctx.now);
        self.give_up_lost(ctx.now);
        self.refill_pacers(ctx.now);
        if self.is_redundant() {
            self.drop_needless_copies();
        }
        //= rfc9260#5.1-7
        let path = self.next_path();
        if path.is_none() {
            self.note_waiting(ctx.now);
        }
        path
    }

    /// Writes packets for a path, up to a number.
    fn write_train(
        &mut self,
        path: PathIndex,
        packets_max: usize,
        buf: &mut [u8],
        ctx: &mut Context<'_>,
    ) -> Option<Train> {
        let (new, again) = (self.counters.data_sent, self.counters.data_retransmitted);
        let had_sack = self.inbound.ack.is_pending();
        let usual = self.paths.get(path).packet_size();
        let needed = self.room_for_old(path).max(self.room_for_cookie()).max(usual);
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
        let (has_new, has_old) = (self.counters.data_sent > new, self.counters.data_retransmitted > again);
        if has_new || has_old {
            self.arm_probe(path, true, ctx.now);
            self.prove_mtu_if_busy(path, ctx);
        }
        let ecn = if has_new && !has_old { self.ecn_of_new_data(path) } else { Ecn::NotEct };
        let asks_for_queue = (has_new || has_old) && self.may_wait_here(path);
        let path = self.paths.get_mut(path);
        path.counters.packets_sent += packets as u64;
        path.counters.bytes_sent += len as u64;
        //= rfc9260#6.9-6
        let may_fragment = segment_size > usual;
        let route = path.route;
        if packets > 0 {
            self.tell(|_| TraceEvent::Sent { route, packets, bytes: len, ecn });
        }
        (packets > 0).then_some(Train { route, len, segment_size, may_fragment, ecn, asks_for_queue })
    }

    /// How long a packet must be for a COOKIE ECHO that is next: the peer may have made the cookie as long as it liked.
    fn room_for_cookie(&self) -> usize {
        match (&self.state, self.control.front()) {
            //= rfc9260#3.3.3-18
            (State::CookieEchoed { cookie, .. }, Some((_, Control::CookieEcho))) => {
                let auth = self.auth.as_ref().map_or(0, |a| a.overhead(ChunkType::COOKIE_ECHO));
                wire::COMMON_HEADER_LEN + auth + wire::padded(wire::CHUNK_HEADER_LEN + cookie.len())
            }
            _ => 0,
        }
    }

    /// How long a packet must be for the chunk that is to be sent again by `path`: it may have been cut for a larger MTU,
    /// and cannot be cut anew.
    //= rfc9260#section-6.9
    //# Once a user message is fragmented, it cannot be re-fragmented.  Instead, if the PMTU has been reduced, then IP
    //# fragmentation MUST be used.
    fn room_for_old(&mut self, path: PathIndex) -> usize {
        if self.tail_probe.is_none() && self.detour.is_none() && !self.outstanding.has_lost() {
            return 0;
        }
        let header = wire::COMMON_HEADER_LEN + self.auth_overhead();
        let room = |fragment: &Fragment, chunk: usize| header + wire::padded(chunk + fragment.payload.len());
        let chunk = self.data_header_len();
        if let Some(fragment) = self.detouring(path).and_then(|seq| self.outstanding.unfinished(seq)) {
            return room(fragment, chunk);
        }
        if self.tail_probe == Some(path) {
            return self.outstanding.last_sent(path).map_or(0, |(_, fragment)| room(fragment, chunk));
        }
        match self.next_lost() {
            Some((_, fragment, _)) if self.retransmission_path() == Some(path) => room(fragment, chunk),
            _ => 0,
        }
    }

    /// The path that has something to carry: control chunks first, then SACKs that are due, then data.
    fn next_path(&self) -> Option<PathIndex> {
        if let Some((path, _)) = self.control.front() {
            return Some(*path);
        }
        if self.state.acknowledges() && self.inbound.ack.is_due() {
            return Some(self.sack_path());
        }
        if !self.state.sends_data() {
            return None;
        }
        if self.forward.is_due() {
            return Some(self.paths.current());
        }
        if let Some(path) = self.detour_path().or_else(|| self.probed_path()) {
            return Some(path);
        }
        if let Some(path) = self.copy_path() {
            return Some(path);
        }
        if let Some(path) = self.retransmission_path() {
            return self.window_allows(path).then_some(path);
        }
        self.new_data_path()
    }

    /// Later packets of a train may be given less room than the path has: `is_full_size` says that this one was not.
    fn write_packet(&mut self, path: PathIndex, buf: &mut [u8], is_full_size: bool, now: Time) -> usize {
        self.kept = self.room_for_advertisement(path, now);
        let written = self.write_packet_keeping(path, buf, is_full_size, now);
        // A chunk that leaves no room for an advertisement goes without.
        if std::mem::take(&mut self.kept) > 0 && written == 0 {
            return self.write_packet_keeping(path, buf, is_full_size, now);
        }
        written
    }

    /// The same, with room kept for an advertisement.
    fn write_packet_keeping(
        &mut self,
        path: PathIndex,
        buf: &mut [u8],
        is_full_size: bool,
        now: Time,
    ) -> usize {
        let mut packet = PacketWriter::new(buf, self.header()).with_room_in_front(self.kept);
        let sent = self.counters.data_sent + self.counters.data_retransmitted;
        if let Some(auth) = &self.auth {
            packet = packet.with_auth(auth.plan());
        }
        let has_asconf = self.control.iter().any(|(p, c)| *p == path && matches!(c, Control::Asconf));
        //= rfc9260#6.10-3
        let has_heartbeat = self.fill_control(path, &mut packet, is_full_size);
        self.fill_sack(path, &mut packet);
        let carrier = self.outstanding.next();
        let has_answer = self.fill_answer(path, &mut packet);
        // A HEARTBEAT travels without data: else it would share the fate of packets that are too long for the path.
        if self.state.sends_data() && !has_heartbeat {
            //= rfc3758#3.5-16
            self.fill_forward(path, &mut packet, now);
            self.fill_detour(path, &mut packet, now);
            self.fill_tail_probe(path, &mut packet, now);
            self.fill_copies(path, &mut packet, now);
            //= rfc9260#6.10-4
            self.fill_retransmissions(path, &mut packet, now);
            self.fill_new_data(path, &mut packet, now);
            self.paths.get_mut(path).sending.end_packet();
        } else if self.state.says_first() {
            self.fill_new_data(path, &mut packet, now);
            self.paths.get_mut(path).sending.end_packet();
            self.state.end_first();
        }
        if has_answer {
            self.on_answered(carrier);
        }
        if packet.is_empty() {
            return 0;
        }
        if self.advertiser.is_some() && self.counters.data_sent + self.counters.data_retransmitted > sent {
            self.advertise(path, &mut packet, now, self.kept);
        }
        self.finish_packet(packet, has_asconf)
    }

    /// Signs a packet and writes its checksum, whatever was agreed if it has an ASCONF; returns its length.
    pub(super) fn finish_packet(&self, mut packet: PacketWriter<'_>, has_asconf: bool) -> usize {
        if let Some(auth) = &self.auth {
            packet.sign(|covered| auth.sign(covered));
        }
        // RFC 9653 section 5.2: a packet with a COOKIE ECHO or an ASCONF chunk must have a correct checksum, too.
        //= rfc9653#5.2-3 5.2-4
        if self.zero_checksum && !has_asconf && !matches!(self.state, State::CookieEchoed { .. }) {
            return packet.finish_zero_checksum();
        }
        packet.finish()
    }

    /// Control chunks, as many as there is room for; returns whether a HEARTBEAT is among them.
    //= rfc9260#12.4-2
    fn fill_control(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, is_full_size: bool) -> bool {
        let mut has_heartbeat = false;
        while let Some((_, control)) = self.control.front().filter(|(p, _)| *p == path) {
            let pushed = match control {
                Control::CookieEcho => self.push_cookie_echo(packet),
                Control::CookieAck => packet.push(&Chunk::CookieAck).is_ok(),
                // It travels alone.
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
            // What does not even fit into an empty packet of full size never will.
            if pushed || (is_full_size && packet.is_empty()) {
                self.control.pop_front();
            }
            if !pushed {
                break;
            }
        }
        has_heartbeat
    }

    fn push_cookie_echo(&self, packet: &mut PacketWriter<'_>) -> bool {
        match &self.state {
            State::CookieEchoed { cookie, .. } => {
                packet.push(&Chunk::CookieEcho(CookieEcho { cookie })).is_ok()
            }
            _ => true,
        }
    }

    /// A SACK that is due, or one that was waiting and can ride along.
    fn fill_sack(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>) {
        let rides = || !packet.is_empty() || self.next_new_length(path).is_some();
        //= rfc9260#5.1.5-6 6.1-16
        let wanted = self.inbound.ack.is_due() || (self.inbound.ack.is_pending() && rides());
        if !wanted || !self.state.acknowledges() || path != self.sack_path() {
            return;
        }
        let duplicates: SmallVec<[Tsn; 16]> = self.inbound.duplicates().iter().copied().collect();
        self.fill_echoes(packet);
        let room = packet.remaining_for(ChunkType::SACK);
        let told = self.inbound.with_sack(room, &duplicates, |sack| {
            let (cumulative, gaps, a_rwnd) = (sack.cumulative_tsn.0, sack.gaps().count(), sack.a_rwnd);
            let told = TraceEvent::SackSent { cumulative, gaps, a_rwnd };
            packet.push(&Chunk::Sack(sack)).is_ok().then_some(told)
        });
        if let Some(told) = told {
            self.note(told);
            self.sack_deviates = self.inbound.has_duplicates() && !self.sack_deviates;
            self.inbound.on_sack_sent();
        }
    }

    /// Whether congestion window and pacing let data leave.
    pub(super) fn window_allows(&self, path: PathIndex) -> bool {
        let to = self.paths.get(path);
        //= rfc9260#5.4-2
        to.is_confirmed() && to.sending.allows(self.flight_beside_copies(path))
    }

    /// Whether the congestion window alone does.
    fn window_has_room(&self, path: PathIndex) -> bool {
        self.paths.get(path).sending.has_window(self.flight_beside_copies(path))
    }

    fn fill_retransmissions(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        let before = packet.len();
        // What is asked for the others, or gives the pace, shall be answered at once (RFC 7053 section 4.1).
        let asks = self.asks_for_word() || self.paths.get(path).sending.takes_over();
        let mut is_allowed = self.window_allows(path);
        while is_allowed && self.retransmission_path() == Some(path) {
            let Some((seq, fragment, _)) = self.next_lost() else { break };
            let length = fragment.payload.len();
            let tsn = seq.tsn(self.initial_tsn);
            if self.push_fragment(packet, fragment, tsn, asks).is_err() {
                break;
            }
            self.outstanding.on_retransmit(seq, path, now);
            self.copy_to_others(seq, path);
            self.limited.on_retransmitted(seq);
            self.take_window(length);
            self.count_retransmission(path, tsn, false);
            let is_earliest = seq == self.outstanding.first();
            let to = self.paths.get_mut(path);
            // RFC 9260 section 7.2.4: the earliest chunk gets a whole timeout anew.
            if is_earliest {
                //= rfc9260#6.1-19
                to.t3 = None;
            }
            to.on_data_sent(length, now);
            // This very chunk may be given up with its message, and with it goes the timer.
            self.give_up_lost(now);
            // The pacer lets packets go, not chunks.
            is_allowed = self.window_has_room(path);
        }
        if packet.len() > before {
            self.on_asked(path, now);
        }
    }

    /// A chunk of `length` bytes leaves: the peer's window shrinks, or the chunk probes it.
    fn take_window(&mut self, length: usize) {
        // With more in flight the answer comes anyhow: then it is no probe.
        let is_alone = self.outstanding.total_flight() <= length;
        if self.peer_rwnd < length && is_alone && self.window_probe == WindowProbe::No {
            self.window_probe = WindowProbe::Sent;
        }
        self.peer_rwnd = self.peer_rwnd.saturating_sub(length);
    }

    /// The length of the next new chunk, if windows and pacing allow it on `path`.
    pub(super) fn next_new_length(&self, path: PathIndex) -> Option<usize> {
        if self.window_allows(path) { self.waiting_length(path) } else { None }
    }

    /// The same after a chunk of at most `max` bytes, whatever the pacing says (RFC 9260 section 6.1 A and B).
    fn length_in_window(&self, path: PathIndex, max: usize) -> Option<usize> {
        //= rfc9260#6.1-3 6.1-17
        if self.window_has_room(path) && !self.is_detour(path) { self.length_with_room(max) } else { None }
    }

    /// The length of the next new chunk that the peer has room for, if `path` is to carry it.
    pub(super) fn waiting_length(&self, path: PathIndex) -> Option<usize> {
        //= rfc9260#6.1-13
        if !self.carries_new_data(path) || self.next_lost().is_some() || !self.state.sends_new_data() {
            return None;
        }
        if self.queue.is_empty() || self.is_detour(path) {
            return None;
        }
        self.length_with_room(self.fragment_size_now())
    }

    /// The length of the next new chunk, of at most `max` bytes, that the peer has room for.
    #[inline]
    fn length_with_room(&self, max: usize) -> Option<usize> {
        if self.outstanding.is_full() {
            return None;
        }
        let length = self.queue.next_length(max)?;
        // With nothing in flight one chunk may probe a closed window.
        //= rfc9260#6.1-2 6.1-4 6.1-5 6.1-9
        //= rfc8260#2.2.2-4
        //= rfc9260#6.1-2 6.1-4 6.1-5 6.1-9
        let window_open = self.peer_rwnd >= length || self.outstanding.total_flight() == 0;
        window_open.then_some(length)
    }

    fn fill_new_data(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        let flight = self.outstanding.flight(path);
        self.paths.get_mut(path).before_data(now, flight);
        let (max, header, kind) = (self.fragment_size_now(), self.data_header_len(), self.data_chunk_type());
        let mut next = self.next_new_length(path);
        while let Some(length) = next {
            //= rfc9260#6.9-8 6.10-1 6.10-5
            if packet.remaining_for(kind) < wire::padded(header + length) || !self.queue.fits_packet() {
                break;
            }
            let Some(Taken { fragment, limited }) = self.queue.next_fragment(max) else { break };
            self.take_window(length);
            let end = fragment.end;
            //= rfc3758#4.1-7
            //= rfc8260#2.2.2-6
            let seq = self.outstanding.push(fragment, path, now);
            if let Some(id) = limited {
                self.limited.on_sent(id, seq, end);
            }
            self.paths.get_mut(path).on_data_sent(length, now);
            self.note_new_data(path, length);
            self.copy_to_others(seq, path);
            self.counters.data_sent += 1;
            // The pacer lets packets go, not chunks.
            next = self.length_in_window(path, max);
            // The sender can do no more before a SACK, or the SACKs will give it the pace: ask for them at once (RFC 7053).
            let is_stopped =
                next.is_none() && (!self.queue.is_empty() || matches!(self.state, State::ShutdownPending));
            let immediate = is_stopped || self.paths.get(path).sending.takes_over();
            if let Some(fragment) = self.outstanding.newest() {
                let pushed = self.push_fragment(packet, fragment, seq.tsn(self.initial_tsn), immediate);
                debug_assert!(pushed.is_ok(), "the room was checked");
            }
        }
        self.queue.end_packet();
    }
}

impl Association {
    /// Writes a fragment as DATA or I-DATA, as negotiated.
    #[inline]
    pub(super) fn push_fragment(
        &self,
        packet: &mut PacketWriter<'_>,
        fragment: &Fragment,
        tsn: Tsn,
        immediate: bool,
    ) -> Result<(), NoRoom> {
        //= rfc8260#section-2.2.1
        //# If user message interleaving support has been negotiated for an association, I-DATA chunks MUST be used for all user
        //# messages and DATA chunks MUST NOT be used.
        if self.extensions.has(Extension::Interleaving) {
            //= rfc8260#2.2.1-1
            return packet.push(&i_data_chunk(fragment, tsn, immediate));
        }
        //= rfc8260#2.2.1-2
        packet.push_data(&data_chunk(fragment, tsn, immediate))
    }
}

fn i_data_chunk(fragment: &Fragment, tsn: Tsn, immediate: bool) -> IData<'_> {
    IData {
        immediate,
        unordered: fragment.unordered,
        end: fragment.end,
        tsn,
        stream: fragment.stream,
        mid: fragment.mid,
        fragment: if fragment.begin {
            wire::Fragment::First(fragment.ppid)
        } else {
            wire::Fragment::Later(fragment.fsn)
        },
        payload: &fragment.payload,
    }
}

fn data_chunk(fragment: &Fragment, tsn: Tsn, immediate: bool) -> Data<'_> {
    Data {
        immediate,
        unordered: fragment.unordered,
        begin: fragment.begin,
        end: fragment.end,
        tsn,
        stream: fragment.stream,
        ssn: fragment.ssn(),
        ppid: fragment.ppid,
        payload: &fragment.payload,
    }
}
