//! HEARTBEAT and HEARTBEAT ACK (RFC 9260 sections 5.4 and 8.3).

use base::Time;
use bytes::Bytes;
use wire::{ChunkType, Heartbeat};

use super::{Association, CameBy, Context, Control, State};
use crate::config::AddressProof;
use crate::info::PathState;
use crate::path::{PathIndex, SizeProbe};

/// Maximum number of HEARTBEAT ACKs waiting at once.
const MAX_WAITING: usize = 64;

/// Maximum number of bytes in them.
const MAX_WAITING_BYTES: usize = 128 * 1024;

/// Bytes of a HEARTBEAT chunk before the information: headers of chunk and parameter (RFC 9260 section 3.3.5).
const HEARTBEAT_HEADER_LEN: usize = 8;

/// Encodes the information in our heartbeats: the path, and a nonce that ties the answer to the question.
//= rfc9260#3.3.5-2 3.3.5-3
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
    /// Answers on the path of arrival, echoing the whole chunk value (`value`); several answers may wait.
    //= rfc8899#3-4 3-16
    pub(super) fn on_heartbeat(
        &mut self,
        path: PathIndex,
        heartbeat: &Heartbeat<'_>,
        value: &[u8],
        ctx: &mut Context<'_>,
    ) {
        let answers = match self.state {
            State::CookieWaitOver | State::Accepting | State::Closed => false,
            State::CookieEchoed { .. }
            | State::Established
            | State::ShutdownPending
            | State::ShutdownSent { .. }
            | State::ShutdownReceived
            | State::ShutdownAckSent { .. } => true,
        };
        if !answers || value.len() > self.heartbeat_ack_room(path) {
            return;
        }
        if self.answer_new_port(path, heartbeat.info, ctx) {
            return;
        }
        let waiting = self.out.chunks().filter_map(|(_, control)| match control {
            Control::HeartbeatAck(value) => Some(value.len()),
            _ => None,
        });
        let (count, bytes) = waiting.fold((0, 0), |(count, bytes), length| (count + 1, bytes + length));
        if count < MAX_WAITING && bytes + value.len() <= MAX_WAITING_BYTES {
            //= rfc9260#3.3.6-2 8.3-8
            let value = Bytes::copy_from_slice(value);
            self.copy_answer(path, &value, ctx.now);
            //= rfc9260#6.4-2 8.3-2
            self.out.queue(path, Control::HeartbeatAck(value));
        }
    }

    /// Bytes of a HEARTBEAT ACK's value that fit into a packet on this path.
    fn heartbeat_ack_room(&self, path: PathIndex) -> usize {
        let auth = self.integrity.overhead(ChunkType::HEARTBEAT_ACK);
        let taken = wire::COMMON_HEADER_LEN + wire::CHUNK_HEADER_LEN + auth;
        self.paths.get(path).packet_size().saturating_sub(taken)
    }

    pub(super) fn on_heartbeat_ack(&mut self, heartbeat: &Heartbeat<'_>, ctx: &mut Context<'_>) {
        let Some((index, nonce)) = read_info(heartbeat.info) else { return };
        if self.paths.try_get_mut(index).is_none() {
            return;
        }
        if self.hearsay.on_answer(nonce) {
            self.liveness.on_answer();
            return;
        }
        let may_prove = self.may_prove(index);
        let path = self.paths.get_mut(index);
        if !may_prove {
            // The peer may not have known yet that it may send from there.
            if path.is_asked(nonce) {
                self.repeat_question(index, ctx.now);
            }
            return;
        }
        if path.vouching.on_answer(nonce) {
            self.on_vouched(index);
            return self.on_path_answered(index, ctx);
        }
        if let Some(rtt) = path.round_trip(nonce, ctx.now) {
            self.tx.outstanding.on_round_trip(index, rtt);
        }
        let path = self.paths.get_mut(index);
        let is_answer = path.on_heartbeat_ack(nonce, ctx.now, &self.config.timing, ctx.random)
            || self.on_size_answer(index, nonce, ctx.now)
            || self.on_port_answer(index, nonce, ctx.now);
        let is_proof = is_answer && self.paths.get(index).pmtu.size_that_proves().is_none();
        if is_proof && self.lacks_voucher(index) {
            self.ask_voucher(index, ctx);
        } else if is_proof {
            self.on_path_answered(index, ctx);
        }
    }

    /// Returns whether the current packet may confirm this path. Under [`AddressProof::ConfirmedPath`], an
    /// unconfirmed path is confirmed only from the peer's own address and port on it.
    fn may_prove(&self, index: PathIndex) -> bool {
        let path = self.paths.get(index);
        let is_lenient = path.is_confirmed() || self.config.address_proof == AddressProof::Signature;
        is_lenient || self.came_by == CameBy::of_path(index) || self.came_from_new_port(index)
    }

    /// Repeats the open heartbeat of an unconfirmed path, within the budget.
    pub(super) fn repeat_question(&mut self, index: PathIndex, now: Time) {
        let length = self.heartbeat_packet_len();
        if !self.credit.covers(length) {
            return;
        }
        if let Some(nonce) = self.paths.get_mut(index).repeat_heartbeat(now) {
            self.credit.spend(length);
            self.out.queue(index, Control::Heartbeat { nonce });
        }
    }

    /// Handles proof that the peer is at the other end of a path.
    pub(super) fn on_path_answered(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        self.paths.resume_proofs(ctx.now);
        let path = self.paths.get_mut(index);
        let is_new = !path.is_confirmed();
        //= rfc9260#8.1-6
        self.liveness.on_answer();
        let was_silent = self.config.timing.doubts_silence && path.is_silent();
        let transition = path.on_success(ctx.now, &self.config.timing);
        if was_silent {
            self.hasten_t3(index, ctx.now);
            self.on_new_witness(index, ctx.now);
        }
        if let Some(transition) = transition {
            // Data sent while no path worked was a gamble: its timer has backed off, and nothing else
            // retransmits it.
            if transition.from == PathState::Inactive {
                self.mark_lost_on(index);
            }
            self.end_back_off(index, ctx.now);
            self.on_new_witness(index, ctx.now);
        }
        self.hearsay.on_path_lives(index);
        self.report_transition(index, transition);
        self.on_heard(index);
        if self.paths.get(index).t3.is_some() {
            self.arm_probe(index, true, ctx.now);
        }
        // Another path may be needed at any moment, so its MTU should be known by then.
        if is_new {
            self.paths.get_mut(index).pmtu.suspect(false, ctx.now, ctx.random);
        }
    }

    /// Prefers a path on which the peer was heard to one that is only assumed to work.
    pub(super) fn on_heard(&mut self, index: PathIndex) {
        if let Some(old) = self.paths.on_heard(index) {
            self.mark_lost_on(old);
            self.on_switch(self.paths.get(old).route);
        }
    }

    /// Turns due heartbeats into control chunks.
    pub(super) fn queue_heartbeats(&mut self, ctx: &mut Context<'_>) {
        if !self.state.probes_paths() {
            return;
        }
        for index in self.paths.indices() {
            if !self.paths.get(index).is_confirmed() {
                continue;
            }
            self.queue_heartbeat(index, ctx);
            if let Some(probe) = self.paths.get_mut(index).poll_size_probe(ctx.now, ctx.random) {
                let SizeProbe { size, nonce, companion } = probe;
                if let Some(size) = size {
                    self.out.queue(index, Control::SizeProbe { nonce, size });
                }
                self.out.queue(index, Control::Heartbeat { nonce: companion });
            }
        }
        self.queue_verification(ctx);
    }

    /// Tries unconfirmed paths during shutdown. Heartbeats end with SHUTDOWN (RFC 9260 section 8.3), but if
    /// no confirmed path works any more, a graceful end needs another: each T2 tries the next.
    pub(super) fn prove_while_closing(&mut self, ctx: &mut Context<'_>) {
        if self.paths.iter().any(|(_, p)| p.state() == PathState::Active) {
            return;
        }
        for index in self.paths.indices() {
            let path = self.paths.get_mut(index);
            if path.is_confirmed() {
                continue;
            }
            if path.expire_heartbeat(ctx.now, &self.config.timing, ctx.random) {
                self.on_heartbeat_lost(index);
            }
            self.paths.get_mut(index).probe_now(ctx.now);
        }
        self.queue_verification(ctx);
    }

    fn queue_heartbeat(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let data_proves = !self.is_redundant();
        let path = self.paths.get_mut(index);
        if let Some(nonce) = path.poll_heartbeat(ctx.now, data_proves, &self.config.timing, ctx.random) {
            let proof = match path.pmtu.size_that_proves() {
                Some(size) => Control::SizeProbe { nonce, size },
                None => Control::Heartbeat { nonce },
            };
            self.out.queue(index, proof);
        }
    }

    /// Sends heartbeats to addresses that the peer claims. They may belong to others (RFC 5062 sections 5 and
    /// 6), so few are sent before the first answer, and their total is limited to a multiple of the bytes
    /// that the peer has sent.
    fn queue_verification(&mut self, ctx: &mut Context<'_>) {
        //= rfc9260#5.4-1
        //# The number of packets containing HEARTBEAT chunks sent at each RTO SHOULD be limited by the 'HB.Max.Burst' parameter.
        // An answered heartbeat is no burden: the next follows at once.
        while self.paths.awaiting_proof() < ctx.limits.unproven_heartbeats.max(1) {
            let Some(index) = self.paths.next_to_prove(ctx.now) else { return };
            let length = self.heartbeat_packet_len();
            if !self.credit.spend(length) {
                self.paths.put_off_proofs(ctx.now + self.config.timing.heartbeat_interval);
                return;
            }
            self.queue_heartbeat(index, ctx);
        }
        self.paths.put_off_proofs(Time::NEVER);
    }

    /// Length of a packet with one of our heartbeats.
    pub(super) fn heartbeat_packet_len(&self) -> usize {
        let auth = self.integrity.overhead(ChunkType::HEARTBEAT);
        wire::COMMON_HEADER_LEN + HEARTBEAT_HEADER_LEN + info(PathIndex(0), 0).len() + auth
    }
}
