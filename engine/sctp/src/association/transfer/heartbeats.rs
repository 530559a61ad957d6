//! Our HEARTBEATs: when they are due, and the effect of an answer (RFC 9260 sections 5.4 and 8.3).

use base::Time;
use wire::ChunkType;

use super::Transfer;
use crate::association::heartbeat::{HEARTBEAT_HEADER_LEN, info};
use crate::association::{Context, Control};
use crate::event::PathReason;
use crate::info::PathState;
use crate::path::{PathIndex, SizeProbe};

impl Transfer {
    /// Repeats the outstanding heartbeat of an unconfirmed path, if the credit for such paths permits.
    pub(crate) fn repeat_question(&mut self, index: PathIndex, now: Time) {
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
    pub(crate) fn on_path_answered(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
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
            // Data that was sent while no path worked is probably lost. Its timer has backed off, so only this code
            // retransmits the data soon.
            if transition.from == PathState::Inactive {
                self.mark_lost_on(index);
            }
            self.end_back_off(index, ctx.now);
            self.on_new_witness(index, ctx.now);
        }
        self.hearsay.on_path_lives(index);
        self.report_transition(index, transition, PathReason::Answer);
        self.on_heard(index);
        if self.paths.get(index).t3.is_some() {
            self.arm_probe(index, true, ctx.now);
        }
        // Data may move to this path at any moment. Its MTU should be known by then.
        if is_new {
            self.paths.get_mut(index).pmtu.suspect(false, ctx.now, ctx.random);
        }
    }

    /// Moves data to the path `index`, on which the peer was heard, if the current path is only assumed to work or has
    /// a later rank than `index`.
    pub(crate) fn on_heard(&mut self, index: PathIndex) {
        if let Some(old) = self.paths.on_heard(index) {
            self.mark_lost_on(old);
            self.on_switch(self.paths.get(old).route, PathReason::Answer);
        }
        if self.paths.have_ranks() {
            self.choose_path(PathReason::Answer);
        }
    }

    /// Returns whether paths are probed. Before packets are sealed, an answer would prove nothing.
    pub(crate) fn probes_paths(&self) -> bool {
        self.state.probes_paths() && !self.integrity.is_pending()
    }

    /// Turns due heartbeats into control chunks.
    pub(crate) fn queue_heartbeats(&mut self, ctx: &mut Context<'_>) {
        if !self.probes_paths() {
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

    /// Probes unconfirmed paths during shutdown. Heartbeats end with SHUTDOWN (RFC 9260 section 8.3). If no confirmed
    /// path works any more, a graceful end needs an unconfirmed path, and each expiry of T2 probes further unconfirmed
    /// paths.
    pub(crate) fn prove_while_closing(&mut self, ctx: &mut Context<'_>) {
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

    /// Sends heartbeats to addresses that the peer claims. These addresses may belong to other hosts (RFC 5062 sections
    /// 5 and 6). Only a few heartbeats may therefore be unanswered at a time. Their total size is limited to a multiple
    /// of the bytes that the peer has sent.
    fn queue_verification(&mut self, ctx: &mut Context<'_>) {
        //= rfc9260#5.4-1
        //# The number of packets containing HEARTBEAT chunks sent at each RTO SHOULD be limited by the 'HB.Max.Burst' parameter.
        // An answered heartbeat does not count against this limit, so the next heartbeat follows immediately.
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

    /// Returns the length of a packet with one of our heartbeats.
    pub(crate) fn heartbeat_packet_len(&self) -> usize {
        let auth = self.integrity.overhead(ChunkType::HEARTBEAT);
        wire::COMMON_HEADER_LEN + HEARTBEAT_HEADER_LEN + info(PathIndex::new(0), 0).len() + auth
    }
}
