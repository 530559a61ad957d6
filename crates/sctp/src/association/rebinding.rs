//! UDP ports of the peer that change (RFC 6951): proven by a HEARTBEAT before the path goes there.
//!
//! Until then the path goes on with the port it has. HEARTBEATs are answered where they came from, and SACKs go to both ports: these
//! are short, and a peer behind a NAT shall not miss it. Begin at [`Association::path_of`].

use base::{Carrier, Route, Time};
use wire::{Chunk, ChunkType, Heartbeat};

use super::heartbeat::info;
use super::opening::INIT_PACKET_MAX;
use super::{Association, Context, State};
use crate::event::Event;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// The same way to another UDP port.
//= rfc6951#5.1-1
fn with_port(route: Route, peer_port: u16) -> Route {
    Route { carrier: Carrier::Udp { peer_port }, ..route }
}

impl Association {
    /// The path of a packet that belongs here; the one in use if the pair of addresses is not a path.
    pub(crate) fn path_of(&mut self, route: &Route, ctx: &mut Context<'_>) -> PathIndex {
        if let Some(asconf) = &mut self.asconf {
            asconf.source = *route;
        }
        let Some(index) = self.paths.find(route) else { return self.paths.current() };
        if let (Carrier::Udp { peer_port: port }, Carrier::Udp { peer_port: known }) =
            (route.carrier, self.paths.get(index).route.carrier)
        {
            let path = self.paths.get_mut(index);
            if port == known && !path.rebinding.is_under_way() {
                return index;
            }
            let pause = path.srtt().unwrap_or_else(|| path.rto());
            if let Some(nonce) = path.rebinding.on_packet(port, known, pause, ctx.now, ctx.random) {
                self.ask_port(index, port, nonce, ctx);
            }
        }
        index
    }

    fn ask_port(&mut self, index: PathIndex, port: u16, nonce: u64, ctx: &mut Context<'_>) {
        if matches!(self.state, State::Closed) {
            return;
        }
        let route = with_port(self.paths.get(index).route, port);
        let chunk = Chunk::Heartbeat(Heartbeat { info: &info(index, nonce) });
        ctx.replies.push_signed(route, self.header(), &chunk, self.auth.as_deref());
    }

    /// A HEARTBEAT to a new port is to be sent again.
    pub(super) fn on_rebinding_timeout(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let path = self.paths.get_mut(index);
        let pause = path.srtt().unwrap_or_else(|| path.rto());
        if let Some((port, nonce)) = path.rebinding.on_timeout(pause, ctx.now) {
            self.ask_port(index, port, nonce, ctx);
        }
    }

    /// Answers a HEARTBEAT from a port that is not proven; returns whether it did.
    pub(super) fn answer_new_port(&self, index: PathIndex, info: &[u8], ctx: &mut Context<'_>) -> bool {
        let path = self.paths.get(index);
        let Some(port) = path.rebinding.source() else { return false };
        let chunk = Chunk::HeartbeatAck(Heartbeat { info });
        ctx.replies.push_signed(with_port(path.route, port), self.header(), &chunk, self.auth.as_deref());
        true
    }

    /// A SACK has left for `path`: it goes to the port that is to be proven, too, if the last packet came from there. At the old port nobody
    /// may listen any more, and the sender would have to stop once its window is full. What is told is no secret to who speaks from there.
    pub(super) fn acknowledge_to_new_port(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let path = self.paths.get(index);
        let Some(port) = path.rebinding.source() else { return };
        let (route, header) = (with_port(path.route, port), self.header());
        let auth = self.auth.as_deref();
        let taken = wire::COMMON_HEADER_LEN + auth.map_or(0, |auth| auth.overhead(ChunkType::SACK));
        let room = path.packet_size().min(INIT_PACKET_MAX).saturating_sub(taken);
        self.inbound.with_sack(room, &[], |sack| {
            ctx.replies.push_signed(route, header, &Chunk::Sack(sack), auth);
        });
    }

    /// A HEARTBEAT ACK may prove a new port; returns whether it does. What is in flight went to the old one: it is sent again.
    pub(super) fn on_port_answer(&mut self, index: PathIndex, nonce: u64, now: Time) -> bool {
        let path = self.paths.get_mut(index);
        let Some(port) = path.rebinding.on_answer(nonce) else { return false };
        let from = path.route;
        path.route = with_port(from, port);
        path.heard = now;
        let to = path.route;
        self.note(TraceEvent::PortProven { from, to });
        self.mark_lost_on(index);
        // SACKs were lost, too.
        if self.data_path == index && self.state.acknowledges() && self.counters.data_received > 0 {
            self.inbound.ack.on_irregular();
        }
        self.events.push_back(Event::PeerPort { from, to });
        true
    }
}
