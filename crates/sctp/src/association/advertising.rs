//! Send-buffer advertisement: the chunk goes first into packets with DATA, or on a timer into packets of its
//! own. The peer's advertisements are reported as events.
//!
//! Packets that carry only the chunk need no answer, count against no window, and change no timer of a path,
//! so they keep nothing alive. Start at [`Association::room_for_advertisement`].

use base::Time;
use wire::{PacketWriter, RawChunk, SendBuffer};

use super::packet_builder::Train;
use super::{Association, Control};
use crate::event::Event;
use crate::extension::send_buffer::{Advertiser, Fill, Outlook, PeerSendBuffer, SendBufferConfig};
use crate::info::PathState;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

impl Association {
    /// Changes the advertised configuration.
    pub(crate) fn set_advertisement(&mut self, advertisement: Option<SendBufferConfig>, now: Time) {
        self.config.advertisement = advertisement;
        self.advertiser = advertisement.map(|config| Advertiser::new(config, now));
    }

    /// The time of the next packet that carries only the chunk.
    pub(super) fn advertisement_timeout(&self) -> Time {
        self.advertiser.as_ref().map_or(Time::NEVER, Advertiser::next_timeout)
    }

    /// Lets a packet of the chunk alone become due, unless the path is not known to work: nobody would see it
    /// there.
    pub(super) fn on_advertisement_timeout(&mut self, now: Time) {
        let by = self.paths.get(self.paths.current());
        let may = by.is_confirmed() && by.state() == PathState::Active && !self.peer_wants_it_signed();
        let outlook = match may {
            false => Outlook::Closed,
            true if self.outstanding.is_empty() => Outlook::Quiet,
            true => Outlook::Busy,
        };
        if let Some(advertiser) = &mut self.advertiser {
            advertiser.on_timeout(outlook, now);
        }
    }

    /// Writes a packet of the chunk alone, if one is due. Called when nothing else can leave.
    pub(super) fn write_advertisement(&mut self, buf: &mut [u8], now: Time) -> Option<Train> {
        let is_due = self.advertiser.as_ref().is_some_and(Advertiser::is_alone_due);
        if !is_due || !self.state.sends_data() {
            return None;
        }
        let index = self.paths.current();
        let fill = self.send_buffer_fill(index);
        let chunk = self.advertiser.as_mut()?.advertise(&fill, now);
        let mut packet = PacketWriter::new(buf, self.header());
        packet.push(&chunk).ok()?;
        let len = self.finish_packet(packet, false);
        self.note(TraceEvent::Advertised { bytes: fill.queued + fill.outstanding });
        let train = self.count_alone(index, len);
        self.tell(|_| TraceEvent::Sent { route: train.route, packets: 1, bytes: len, ecn: train.ecn });
        Some(train)
    }

    /// Octets reserved for the chunk in the packet about to be filled, or 0. COOKIE ECHO and COOKIE ACK must
    /// come first (RFC 9260 sections 5.1 and 6.10), so the chunk never shares a packet with them.
    pub(super) fn room_for_advertisement(&self, path: PathIndex, now: Time) -> usize {
        let Some(advertiser) = &self.advertiser else { return 0 };
        let has_cookie =
            self.control.iter().any(|(_, c)| matches!(c, Control::CookieEcho | Control::CookieAck));
        let goes = self.state.sends_data() && !has_cookie && !self.peer_wants_it_signed();
        if goes && advertiser.is_due(&self.send_buffer_fill(path), now) { advertiser.config.len() } else { 0 }
    }

    /// Returns whether the peer accepts the chunk only behind AUTH. Then it is not sent: unsigned it would be
    /// dropped, and signed it could not come first.
    fn peer_wants_it_signed(&self) -> bool {
        match (&self.advertiser, &self.auth) {
            (Some(advertiser), Some(auth)) => auth.plan().chunks.contains(advertiser.config.chunk_type),
            _ => false,
        }
    }

    /// Octets that the chunk takes from full packets, if it may be in them.
    pub(super) fn advertisement_len(&self) -> usize {
        self.advertiser.as_ref().filter(|_| !self.peer_wants_it_signed()).map_or(0, |a| a.config.len())
    }

    /// Writes the advertisement into a packet that already has its DATA.
    pub(super) fn advertise(
        &mut self,
        path: PathIndex,
        packet: &mut PacketWriter<'_>,
        now: Time,
        room: usize,
    ) {
        let fill = self.send_buffer_fill(path);
        let Some(advertiser) = &mut self.advertiser else { return };
        if room == 0 {
            return advertiser.on_packet_without();
        }
        let pushed = packet.push_front(&advertiser.advertise(&fill, now));
        debug_assert!(pushed.is_ok(), "the room was kept");
        self.note(TraceEvent::Advertised { bytes: fill.queued + fill.outstanding });
    }

    fn send_buffer_fill(&self, path: PathIndex) -> Fill {
        Fill {
            queued: self.queue.bytes(),
            outstanding: self.outstanding.bytes(),
            capacity: self.send_limit,
            window: self.peer_rwnd.min(self.paths.get(path).sending.cwnd()),
        }
    }

    /// Counts and reports the peer's advertisement; it influences nothing.
    pub(super) fn on_advertisement(&mut self, raw: &RawChunk<'_>) {
        let Some(SendBuffer { occupancy, backlog, .. }) = SendBuffer::parse(raw) else { return };
        self.note(TraceEvent::PeerAdvertised);
        let said = PeerSendBuffer { occupancy, backlog };
        if self.peer_send_buffer.replace(said) == Some(said) {
            return;
        }
        match self.events.back_mut() {
            Some(Event::PeerSendBuffer(last)) => *last = said,
            _ => self.events.push_back(Event::PeerSendBuffer(said)),
        }
    }

    /// Returns whether the chunk is an advertisement of the configured type.
    pub(super) fn is_advertisement(&self, raw: &RawChunk<'_>) -> bool {
        self.advertiser.as_ref().is_some_and(|a| a.config.chunk_type == raw.chunk_type)
    }
}
