//! Changed UDP ports of the peer (RFC 6951). A path uses a new port only after the port has answered a HEARTBEAT and
//! the known port has stayed silent.
//!
//! Until then, the path keeps its known port. Each HEARTBEAT of the peer is answered at the port from which it came.
//! SACKs go to the known port and to the new port, because SACKs are short and a peer behind a NAT needs them. Start at
//! [`Association::path_of`].

use base::{Carrier, Route, Time};
use wire::{Chunk, ChunkType, Heartbeat};

use super::handshake_client::INIT_PACKET_MAX;
use super::heartbeat::info;
use super::transfer::doubt::LEAST_PATIENCE;
use super::{Association, CameBy, Context, State};
use crate::config::Timing;
use crate::event::Event;
use crate::path::{Answer, Asks, Pace, Path, PathIndex};
use crate::trace::TraceEvent;

/// Returns the same route with another UDP port.
//= rfc6951#5.1-1
fn with_port(route: Route, peer_port: u16) -> Route {
    Route { carrier: Carrier::Udp { peer_port }, ..route }
}

impl Association {
    /// Finds the path of a packet that arrived by `route`, and handles a new UDP port. Returns the current path if no
    /// path has these addresses.
    pub(crate) fn path_of(&mut self, route: &Route, ctx: &mut Context<'_>) -> PathIndex {
        if let Some(asconf) = &mut self.asconf {
            (asconf.source, asconf.is_keyed) = (*route, false);
        }
        let found = self.transfer.paths.find(route);
        self.came_by = found.map_or(CameBy::Elsewhere, CameBy::Path);
        let Some(index) = found else { return self.transfer.paths.current() };
        if let (Carrier::Udp { peer_port: port }, Carrier::Udp { peer_port: known }) =
            (route.carrier, self.transfer.paths.get(index).route.carrier)
        {
            let path = self.transfer.paths.get_mut(index);
            if port == known && path.rebinding.is_idle() {
                return index;
            }
            if port != known {
                self.came_by = CameBy::OtherPort(index);
            }
            let pace = pace_of(path, &self.transfer.config.timing);
            let asks = path.rebinding.on_packet(port, known, pace, ctx.now, ctx.random);
            self.ask_ports(index, asks, ctx);
            // In states without heartbeats, no timer calls `on_rebinding_timeout`.
            if self.transfer.paths.get(index).rebinding.next_timeout() <= ctx.now {
                self.on_rebinding_timeout(index, ctx);
            }
        }
        index
    }

    /// Sends the due HEARTBEATs to a new port and to the known one.
    fn ask_ports(&mut self, index: PathIndex, asks: Asks, ctx: &mut Context<'_>) {
        if matches!(self.transfer.state, State::Closed) {
            return;
        }
        let (known, length) = (self.transfer.paths.get(index).route, self.transfer.heartbeat_packet_len());
        let mut new = asks.new.map(|(port, nonce)| (with_port(known, port), nonce));
        if new.is_some() && !self.may_send_to_new_port(index, length) {
            new = None;
        }
        for (route, nonce) in new.into_iter().chain(asks.known.map(|nonce| (known, nonce))) {
            let chunk = Chunk::Heartbeat(Heartbeat { info: &info(index, nonce) });
            let header = self.transfer.negotiated.header();
            ctx.replies.push_by(route, header, &chunk, &mut self.transfer.integrity);
        }
    }

    /// Handles the timer of a port change: repeats a HEARTBEAT to a new port, or ends the wait for the known port.
    pub(super) fn on_rebinding_timeout(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let path = self.transfer.paths.get_mut(index);
        let Carrier::Udp { peer_port: known } = path.route.carrier else { return };
        let pace = pace_of(path, &self.transfer.config.timing);
        let (asks, proven) = path.rebinding.on_timeout(known, pace, ctx.now);
        self.ask_ports(index, asks, ctx);
        if let Some(port) = proven {
            self.move_to_port(index, port, ctx.now);
            self.transfer.on_path_answered(index, ctx);
        }
    }

    /// Reports whether the current packet has the addresses of this path, but an unconfirmed port.
    pub(super) fn came_from_new_port(&self, index: PathIndex) -> bool {
        self.came_by == CameBy::OtherPort(index)
    }

    /// Answers the first HEARTBEAT of a packet from an unconfirmed port. Returns whether the packet came from an
    /// unconfirmed port. Further HEARTBEATs in the packet get no answer, because answers to many short HEARTBEATs would
    /// amplify an attacker's traffic to a host at that port.
    pub(super) fn answer_new_port(&mut self, index: PathIndex, info: &[u8], ctx: &mut Context<'_>) -> bool {
        let length = self.transfer.heartbeat_packet_len() + info.len();
        let path = self.transfer.paths.get_mut(index);
        let Some(port) = path.rebinding.source() else { return false };
        let route = with_port(path.route, port);
        if path.rebinding.takes_answer() && self.may_send_to_new_port(index, length) {
            let chunk = Chunk::HeartbeatAck(Heartbeat { info });
            let header = self.transfer.negotiated.header();
            ctx.replies.push_by(route, header, &chunk, &mut self.transfer.integrity);
        }
        true
    }

    /// Reports whether a packet of this length may go to an unconfirmed port of the path. An unconfirmed address may
    /// belong to another host. Packets to unconfirmed addresses are therefore limited to a multiple of the bytes that
    /// the peer has sent.
    fn may_send_to_new_port(&mut self, index: PathIndex, length: usize) -> bool {
        self.transfer.paths.get(index).is_confirmed() || self.transfer.credit.spend(length)
    }

    /// Repeats a SACK, which was just sent on the path, to an unconfirmed port if the last packet came from there. The
    /// peer may not receive at the old port any more. If it received no SACKs, it would stop sending as soon as its
    /// congestion window is full. The SACK contains nothing secret.
    pub(super) fn acknowledge_to_new_port(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let path = self.transfer.paths.get(index);
        let Some(port) = path.rebinding.source() else { return };
        let (route, header) = (with_port(path.route, port), self.transfer.negotiated.header());
        let taken = wire::COMMON_HEADER_LEN + self.transfer.integrity.overhead(ChunkType::SACK);
        let room = path.packet_size().min(INIT_PACKET_MAX).saturating_sub(taken);
        self.inbound.with_sack(room, &[], |sack| {
            ctx.replies.push_by(route, header, &Chunk::Sack(sack), &mut self.transfer.integrity);
        });
    }

    /// Handles a HEARTBEAT ACK that may confirm a new port. Returns whether the answer confirms the path, at the new
    /// port or at the known port.
    pub(super) fn on_port_answer(&mut self, index: PathIndex, nonce: u64, now: Time) -> bool {
        let path = self.transfer.paths.get_mut(index);
        let Carrier::Udp { peer_port: known } = path.route.carrier else { return false };
        match path.rebinding.on_answer(nonce, known, now) {
            Answer::Strange | Answer::Waits => false,
            Answer::Known => true,
            Answer::Proven(port) => {
                self.move_to_port(index, port, now);
                true
            }
        }
    }

    /// Moves the path to another port. Data in flight went to the old port and is retransmitted.
    fn move_to_port(&mut self, index: PathIndex, port: u16, now: Time) {
        let path = self.transfer.paths.get_mut(index);
        let from = path.route;
        path.route = with_port(from, port);
        path.on_packet(now, self.transfer.state.probes_paths(), &self.transfer.config.timing);
        path.vouching.begin_anew();
        let to = path.route;
        self.transfer.out.note(TraceEvent::PortProven { from, to });
        self.transfer.mark_lost_on(index);
        // SACKs to the old port were lost too.
        if self.sack_route.data_path() == index
            && self.transfer.state.acknowledges()
            && self.transfer.out.counters().data_received > 0
        {
            self.inbound.ack.on_irregular();
        }
        self.transfer.out.emit(Event::PeerPort { from, to });
    }
}

/// Returns the waiting times for the peer at a new port and at the known one.
fn pace_of(path: &Path, timing: &Timing) -> Pace {
    let patience = match path.srtt() {
        Some(srtt) => srtt * 5 / 4 + LEAST_PATIENCE,
        None => path.rto(),
    };
    // The back-off from timeouts at the known port does not apply to a new port. With this back-off, a further port
    // change could be delayed by an hour.
    let pause = path.srtt().unwrap_or(timing.rto_initial.max(timing.rto_min));
    Pace { pause, patience: path.is_confirmed().then_some(patience) }
}
