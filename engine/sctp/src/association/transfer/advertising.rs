//! Send-buffer advertisement: the chunk comes first in packets with DATA, or a timer sends it in a packet without DATA.
//! The peer's advertisements are reported as events.
//!
//! Packets with only this chunk need no answer, count against no window, and change no timer of a path. They do not
//! prove that the peer is alive. Start at [`Transfer::room_for_advertisement`].

use base::Time;
use wire::{PacketWriter, Pad, RawChunk, SendBuffer};

use super::Transfer;
use crate::association::Control;
use crate::association::packet_builder::Train;
use crate::event::Event;
use crate::extension::auth::Auth;
use crate::extension::send_buffer::{Advertiser, Fill, Outlook, PeerSendBuffer, SendBufferConfig};
use crate::extension::zero_checksum::Need;
use crate::info::PathState;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Our advertisements, and the peer's.
#[derive(Debug)]
pub(crate) struct Advertising {
    own: Option<Advertiser>,
    peer: Option<PeerSendBuffer>,
    /// Octets reserved for an advertisement in the current packet.
    reserved: u16,
}

impl Advertising {
    pub(crate) fn new(config: Option<SendBufferConfig>, now: Time) -> Self {
        Advertising { own: config.map(|config| Advertiser::new(config, now)), peer: None, reserved: 0 }
    }

    /// Returns the last advertisement of the peer.
    pub(crate) fn peer(&self) -> Option<PeerSendBuffer> {
        self.peer
    }

    /// Reports whether this end advertises.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.own.is_some()
    }

    /// Reserves octets of the current packet.
    #[inline]
    pub(crate) fn reserve(&mut self, octets: usize) {
        self.reserved = u16::try_from(octets).unwrap_or(u16::MAX);
    }

    /// Clears the reservation after a packet, and returns the octets that were reserved.
    #[inline]
    pub(crate) fn take_reserved(&mut self) -> usize {
        std::mem::take(&mut self.reserved).into()
    }

    /// Returns the octets reserved in the current packet.
    #[inline]
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.into()
    }

    /// Returns the time of the next packet that carries only the chunk.
    pub(crate) fn next_timeout(&self) -> Time {
        self.own.as_ref().map_or(Time::NEVER, Advertiser::next_timeout)
    }

    /// Reports whether the peer requires AUTH before the chunk. The chunk is then not sent: without AUTH, the peer
    /// would drop the chunk, and behind AUTH the chunk would not come first in the packet.
    fn is_unwelcome(&self, auth: Option<&Auth>) -> bool {
        match (&self.own, auth) {
            (Some(own), Some(auth)) => auth.plan().chunks.contains(own.config.chunk_type),
            _ => false,
        }
    }

    /// Returns the octets that the chunk takes from full packets, or 0 if it is not sent.
    #[inline]
    pub(crate) fn len(&self, auth: Option<&Auth>) -> usize {
        match &self.own {
            Some(own) if !self.is_unwelcome(auth) => own.config.len(),
            _ => 0,
        }
    }

    /// Returns whether the chunk is an advertisement of the configured type.
    pub(crate) fn is_advertisement(&self, raw: &RawChunk<'_>) -> bool {
        self.own.as_ref().is_some_and(|own| own.config.chunk_type == raw.chunk_type)
    }
}

impl Transfer {
    /// Changes the settings of the advertisement, or stops it.
    pub(crate) fn set_advertisement(&mut self, advertisement: Option<SendBufferConfig>, now: Time) {
        self.config.advertisement = advertisement;
        self.advertising.own = advertisement.map(|config| Advertiser::new(config, now));
    }

    /// Handles the timer: a packet with only the chunk becomes due. No packet becomes due if the current path is not
    /// known to work, because routers might not see the packet.
    pub(crate) fn on_advertisement_timeout(&mut self, now: Time) {
        let by = self.paths.get(self.paths.current());
        let may = by.is_confirmed()
            && by.state() == PathState::Active
            && !self.advertising.is_unwelcome(self.integrity.auth());
        let outlook = match may {
            false => Outlook::Closed,
            true if self.tx.outstanding.is_empty() => Outlook::Quiet,
            true => Outlook::Busy,
        };
        if let Some(advertiser) = &mut self.advertising.own {
            advertiser.on_timeout(outlook, now);
        }
    }

    /// Writes a packet with only the chunk, if one is due. The caller has nothing else to send.
    pub(crate) fn write_advertisement(&mut self, buf: &mut [u8], now: Time) -> Option<Train> {
        let is_due = self.advertising.own.as_ref().is_some_and(Advertiser::is_alone_due);
        if !is_due || !self.state.sends_data() {
            return None;
        }
        let index = self.paths.current();
        let fill = self.send_buffer_fill(index);
        let chunk = self.advertising.own.as_mut()?.advertise(&fill, now);
        let packet = self.integrity.begin(buf, self.negotiated.header());
        let mut packet = packet.with_room_in_front(self.advertising.len(None));
        if self.integrity.seals() {
            // The chunk is not sealed, but the peer accepts only packets with a sealed part. An empty PAD is therefore
            // sealed.
            packet.push(&Pad { len: 0 }).ok()?;
        }
        packet.push_front(&chunk).ok()?;
        let len = self.finish_packet(packet, index, Need::WithoutLowerLayer);
        self.out.note(TraceEvent::Advertised { bytes: fill.queued + fill.outstanding });
        let train = self.count_alone(index, len);
        self.out.trace(|| TraceEvent::Sent { route: train.route, packets: 1, bytes: len, ecn: train.ecn });
        Some(train)
    }

    /// Returns the octets to reserve for the chunk in the packet that is filled next, or 0. COOKIE ECHO and COOKIE ACK
    /// must come first in a packet (RFC 9260 sections 5.1 and 6.10), so the chunk never shares a packet with them.
    pub(crate) fn room_for_advertisement(&self, path: PathIndex, now: Time) -> usize {
        let Some(advertiser) = &self.advertising.own else { return 0 };
        let has_cookie =
            self.out.chunks().any(|(_, c)| matches!(c, Control::CookieEcho | Control::CookieAck));
        let goes =
            self.state.sends_data() && !has_cookie && !self.advertising.is_unwelcome(self.integrity.auth());
        if goes && advertiser.is_due(&self.send_buffer_fill(path), now) { advertiser.config.len() } else { 0 }
    }

    /// Writes the advertisement into a packet that already has its DATA.
    pub(crate) fn advertise(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        let fill = self.send_buffer_fill(path);
        let has_room = self.advertising.reserved > 0;
        let Some(advertiser) = &mut self.advertising.own else { return };
        if !has_room {
            return advertiser.on_packet_without();
        }
        let pushed = packet.push_front(&advertiser.advertise(&fill, now));
        debug_assert!(pushed.is_ok(), "the room was kept");
        self.out.note(TraceEvent::Advertised { bytes: fill.queued + fill.outstanding });
    }

    fn send_buffer_fill(&self, path: PathIndex) -> Fill {
        Fill {
            queued: self.tx.queue.bytes(),
            outstanding: self.tx.outstanding.bytes(),
            capacity: self.tx.buffer.limit(),
            window: self.tx.window.room().min(self.paths.get(path).sending.cwnd()),
        }
    }

    /// Counts and reports the peer's advertisement, which has no other effect.
    pub(crate) fn on_advertisement(&mut self, raw: &RawChunk<'_>) {
        let Some(SendBuffer { occupancy, backlog, .. }) = SendBuffer::parse(raw) else { return };
        self.out.note(TraceEvent::PeerAdvertised);
        let said = PeerSendBuffer { occupancy, backlog };
        if self.advertising.peer.replace(said) == Some(said) {
            return;
        }
        match self.out.newest_event() {
            Some(Event::PeerSendBuffer(last)) => *last = said,
            _ => self.out.emit(Event::PeerSendBuffer(said)),
        }
    }
}
