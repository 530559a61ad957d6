//! Fills packets with new data, and decides whether and how much data may leave on a path now (RFC 9260 section 6.1).
//!
//! Start at [`Transfer::fill_new_data`].

use base::{Ecn, Time};
use wire::{Data, IData, NoRoom, PacketWriter, Tsn};

use super::Transfer;
use crate::association::State;
use crate::association::packet_builder::Train;
use crate::extension::Extension;
use crate::extension::zero_checksum::Need;
use crate::path::PathIndex;
use crate::tx::{Fragment, Taken};

/// Minimum room for a part of a key-management message after a COOKIE ECHO, in bytes. With less room, the message waits
/// for the COOKIE ACK.
const FIRST_PART_LEAST: usize = 128;

impl Transfer {
    /// Returns the number of user bytes that fit into one DATA chunk of a full packet on every confirmed path.
    //= rfc9260#6-9 6.9-7
    //= rfc8899#3-20 5-2
    pub(crate) fn fragment_size(&self) -> usize {
        let usable = self.paths.iter().filter(|(_, p)| p.is_confirmed());
        let packet = usable.map(|(_, path)| path.packet_size()).min().unwrap_or(0);
        let packet = if self.integrity.is_pending() { self.least_packet_size().min(packet) } else { packet };
        packet.saturating_sub(self.data_headers_len() + self.advertising.len(self.integrity.auth())).max(4)
    }

    /// Returns the maximum length of a packet that fits into the least MTU of every path.
    #[cold]
    fn least_packet_size(&self) -> usize {
        let paths = self.paths.iter().map(|(_, path)| path.packet_in(path.pmtu.least()));
        paths.min().unwrap_or(0)
    }

    /// Returns the length of a packet that fits into one IP packet of the path. With protection, no path is probed
    /// before application messages may pass, so packets until then have the length that every path must carry. With
    /// longer packets, a path that silently drops them would block the key exchange forever.
    pub(crate) fn packet_size(&self, index: PathIndex) -> usize {
        let path = self.paths.get(index);
        if self.integrity.is_pending() { path.packet_in(path.pmtu.least()) } else { path.packet_size() }
    }

    /// Returns the octets before the user data of a packet's first DATA chunk, without an advertisement.
    pub(crate) fn data_headers_len(&self) -> usize {
        wire::COMMON_HEADER_LEN + self.negotiated.data_header_len() + self.auth_overhead()
    }

    /// Returns the number of user bytes that fit into one DATA chunk of the current packet. The number is greater than
    /// [`fragment_size`](Self::fragment_size) if the packet has no advertisement, and smaller if the packet has a CWR.
    pub(crate) fn fragment_size_now(&self) -> usize {
        let without = self.fragment_size()
            + self.advertising.len(self.integrity.auth()).saturating_sub(self.advertising.reserved());
        without.saturating_sub(self.tx.answer.len()).max(4)
    }

    /// Returns the octets that AUTH or a DTLS chunk adds to a packet with user data.
    pub(crate) fn auth_overhead(&self) -> usize {
        self.integrity.overhead(self.negotiated.data_chunk_type())
    }

    /// Returns a train that consists of one packet of `len` bytes, and counts the packet. The train is not ECN-capable.
    pub(crate) fn count_alone(&mut self, index: PathIndex, len: usize) -> Train {
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

    /// Returns the packet length that the next chunk to retransmit on `path` needs, or 0 if no such chunk exists. The
    /// chunk may have been fragmented for a larger PMTU, and cannot be fragmented again, so the packet may be longer
    /// than usual.
    //= rfc9260#section-6.9
    //# Once a user message is fragmented, it cannot be re-fragmented.  Instead, if the PMTU has been reduced, then IP
    //# fragmentation MUST be used.
    pub(crate) fn room_for_old(&mut self, path: PathIndex) -> usize {
        if self.tx.probes.is_empty() && !self.tx.outstanding.has_lost() {
            return 0;
        }
        let header = wire::COMMON_HEADER_LEN + self.auth_overhead();
        let room = |fragment: &Fragment, chunk: usize| header + wire::padded(chunk + fragment.payload.len());
        let chunk = self.negotiated.data_header_len();
        if let Some(fragment) = self.detouring(path).and_then(|seq| self.tx.outstanding.unfinished(seq)) {
            return room(fragment, chunk);
        }
        if self.tx.probes.tail() == Some(path) {
            return self.tx.outstanding.last_sent(path).map_or(0, |(_, fragment)| room(fragment, chunk));
        }
        match self.tx.next_lost() {
            Some((_, fragment, _)) if self.retransmission_path() == Some(path) => room(fragment, chunk),
            _ => 0,
        }
    }

    /// Signs or seals a packet for `path`, writes its checksum and returns its length. `need` is the need for a checksum
    /// if the association is established.
    pub(crate) fn finish_packet(&mut self, packet: PacketWriter<'_>, path: PathIndex, need: Need) -> usize {
        let need = match self.state {
            // RFC 9653 section 5.2: a packet with a COOKIE ECHO must have a correct checksum.
            //= rfc9653#5.2-3
            State::CookieEchoed { .. } => Need::Always,
            State::Established => need,
            _ if need != Need::Always => Need::WithoutLowerLayer,
            _ => need,
        };
        self.integrity.finish(packet, &self.paths.get(path).route, need)
    }

    /// Reports whether the path is confirmed, and its congestion window and pacing let data leave.
    pub(crate) fn window_allows(&self, path: PathIndex) -> bool {
        let to = self.paths.get(path);
        //= rfc9260#5.4-2
        to.is_confirmed() && to.sending.allows(self.tx.flight_beside_copies(path))
    }

    /// Reports whether the congestion window alone lets data leave.
    pub(crate) fn window_has_room(&self, path: PathIndex) -> bool {
        self.paths.get(path).sending.has_window(self.tx.flight_beside_copies(path))
    }

    /// Returns the length of the next new chunk, if windows and pacing allow it on `path`.
    pub(crate) fn next_new_length(&self, path: PathIndex) -> Option<usize> {
        if self.window_allows(path) { self.waiting_length(path) } else { None }
    }

    /// Returns the length of a further new chunk in the same packet, up to `max`, regardless of pacing (RFC 9260
    /// section 6.1 A and B).
    fn length_in_window(&self, path: PathIndex, max: usize) -> Option<usize> {
        //= rfc9260#6.1-3 6.1-17
        if self.window_has_room(path) && !self.is_detour(path) { self.tx.next_length(max) } else { None }
    }

    /// Returns the length of the next new chunk that fits the peer's window, if `path` carries new data now.
    pub(crate) fn waiting_length(&self, path: PathIndex) -> Option<usize> {
        if self.has_waiting(path) { self.tx.next_length(self.fragment_size_now()) } else { None }
    }

    /// Reports whether new data waits that may use `path`.
    #[inline]
    fn has_waiting(&self, path: PathIndex) -> bool {
        //= rfc9260#6.1-13
        !self.tx.queue.is_empty()
            && self.carries_new_data(path)
            && self.tx.next_lost().is_none()
            && self.state.sends_new_data()
            && !self.is_detour(path)
    }

    /// Adds as much new data to a packet as the windows and the pacing of `path` allow.
    pub(crate) fn fill_new_data(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        let flight = self.tx.outstanding.flight(path);
        self.paths.get_mut(path).before_data(now, flight);
        if self.window_allows(path) && self.has_waiting(path) {
            self.take_new_data(path, packet, now);
        }
        self.tx.queue.end_packet();
    }

    fn take_new_data(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        let (mut max, header, kind) =
            (self.fragment_size_now(), self.negotiated.data_header_len(), self.negotiated.data_chunk_type());
        let mut next = self.tx.next_length(max);
        // A key-management message is fragmented to fit the room after the COOKIE ECHO.
        if self.state.says_first() && self.integrity.is_pending() {
            max = max.min(packet.remaining_for(kind).saturating_sub(header) / 4 * 4);
            next = next.map(|length| length.min(max)).filter(|_| max >= FIRST_PART_LEAST);
        }
        while let Some(length) = next {
            //= rfc9260#6.9-8 6.10-1 6.10-5
            if packet.remaining_for(kind) < wire::padded(header + length) || !self.tx.queue.fits_packet() {
                break;
            }
            let Some(Taken { fragment, pr_message }) = self.tx.queue.next_fragment(max) else { break };
            self.tx.window.on_sent(length, self.tx.outstanding.total_flight());
            let end = fragment.end;
            //= rfc3758#4.1-7
            //= rfc8260#2.2.2-6
            let seq = self.tx.outstanding.push(fragment, path, now);
            if let Some(id) = pr_message {
                self.tx.pr_messages.on_sent(id, seq, end);
            }
            self.paths.get_mut(path).on_data_sent(length, now);
            self.note_new_data(path, length);
            self.copy_to_others(seq, path);
            self.out.count_sent();
            // The pacer admits whole packets, so only the window limits further chunks of this packet.
            next = self.length_in_window(path, max);
            // The chunk requests an immediate SACK (RFC 7053) in two cases. Either this end can send nothing more
            // before the SACK, or the path has just replaced another path and needs SACKs to clock its sending.
            let is_stopped =
                next.is_none() && (!self.tx.queue.is_empty() || matches!(self.state, State::ShutdownPending));
            let immediate = is_stopped || self.paths.get(path).sending.takes_over();
            if let Some(fragment) = self.tx.outstanding.newest() {
                let pushed =
                    self.push_fragment(packet, fragment, seq.tsn(self.negotiated.initial_tsn()), immediate);
                debug_assert!(pushed.is_ok(), "the room was checked");
            }
        }
    }

    /// Writes a fragment as DATA or I-DATA, as negotiated.
    #[inline]
    pub(crate) fn push_fragment(
        &self,
        packet: &mut PacketWriter<'_>,
        fragment: &Fragment,
        tsn: Tsn,
        immediate: bool,
    ) -> Result<(), NoRoom> {
        //= rfc8260#section-2.2.1
        //# If user message interleaving support has been negotiated for an association, I-DATA chunks MUST be used for all user
        //# messages and DATA chunks MUST NOT be used.
        if self.negotiated.has(Extension::Interleaving) {
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
