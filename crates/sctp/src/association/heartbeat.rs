//! HEARTBEAT and HEARTBEAT ACK (RFC 9260 sections 5.4 and 8.3).

use bytes::Bytes;
use wire::Heartbeat;

use super::{Association, Context, Control, State};
use crate::event::Event;
use crate::path::{PathIndex, SizeProbe};

/// Longest heartbeat information of a peer that is echoed, in bytes; a longer one does not fit a packet with its header.
const INFO_MAX: usize = 1400;

/// HEARTBEAT ACKs that may wait at once.
const MAX_WAITING: usize = 64;

/// What our heartbeats carry: which path, and a nonce that proves that the answer is to ours.
pub(super) fn info(path: PathIndex, nonce: u64) -> [u8; 12] {
    let mut info = [0; 12];
    info[..4].copy_from_slice(&u32::try_from(path.0).unwrap_or(u32::MAX).to_be_bytes());
    info[4..].copy_from_slice(&nonce.to_be_bytes());
    info
}

pub(super) fn read_info(info: &[u8]) -> Option<(PathIndex, u64)> {
    let (path, nonce) = info.split_first_chunk::<4>()?;
    Some((PathIndex(u32::from_be_bytes(*path) as usize), u64::from_be_bytes(nonce.try_into().ok()?)))
}

impl Association {
    /// Answers on the path it came by; several may wait.
    pub(super) fn on_heartbeat(&mut self, path: PathIndex, heartbeat: &Heartbeat<'_>, ctx: &mut Context<'_>) {
        let answers = match self.state {
            State::CookieWaitOver | State::Accepting | State::Closed => false,
            State::CookieEchoed { .. }
            | State::Established
            | State::ShutdownPending
            | State::ShutdownSent { .. }
            | State::ShutdownReceived
            | State::ShutdownAckSent { .. } => true,
        };
        if answers && heartbeat.info.len() <= INFO_MAX && self.answer_new_port(path, heartbeat.info, ctx) {
            return;
        }
        let waiting = self.control.iter().filter(|(_, c)| matches!(c, Control::HeartbeatAck(_))).count();
        if answers && heartbeat.info.len() <= INFO_MAX && waiting < MAX_WAITING {
            let info = Bytes::copy_from_slice(heartbeat.info);
            self.control.push_back((path, Control::HeartbeatAck(info)));
        }
    }

    pub(super) fn on_heartbeat_ack(&mut self, heartbeat: &Heartbeat<'_>, ctx: &mut Context<'_>) {
        let Some((index, nonce)) = read_info(heartbeat.info) else { return };
        let Some(path) = self.paths.try_get_mut(index) else { return };
        let is_answer = path.on_heartbeat_ack(nonce, ctx.now, &self.config.timing, ctx.random)
            || self.on_size_answer(index, nonce, ctx.now)
            || self.on_port_answer(index, nonce, ctx.now);
        if is_answer {
            let path = self.paths.get_mut(index);
            let is_new = !path.is_confirmed();
            self.errors = 0;
            let transition = path.on_success();
            self.report_transition(index, transition);
            self.on_heard(index);
            // Another path may be needed at any moment: its MTU had better be known then.
            if is_new {
                self.paths.get_mut(index).pmtu.suspect(false, ctx.now, ctx.random);
            }
        }
    }

    /// The peer was heard on a path: proof enough to prefer it to one that is only hoped to work.
    pub(super) fn on_heard(&mut self, index: PathIndex) {
        if let Some(old) = self.paths.on_heard(index) {
            self.mark_lost_on(old);
            let (from, to) = (self.paths.get(old).route, self.paths.get(index).route);
            self.events.push_back(Event::PathSwitched { from, to });
        }
    }

    /// Heartbeats that are due become control chunks.
    pub(super) fn queue_heartbeats(&mut self, ctx: &mut Context<'_>) {
        if !self.state.probes_paths() {
            return;
        }
        for index in self.paths.indices() {
            let path = self.paths.get_mut(index);
            if let Some(nonce) = path.poll_heartbeat(ctx.now, &self.config.timing, ctx.random) {
                self.control.push_back((index, Control::Heartbeat { nonce }));
            }
            if let Some(probe) = path.poll_size_probe(ctx.now, ctx.random) {
                let SizeProbe { size, nonce, companion } = probe;
                self.control.push_back((index, Control::SizeProbe { nonce, size }));
                self.control.push_back((index, Control::Heartbeat { nonce: companion }));
            }
        }
    }
}
