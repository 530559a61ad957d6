//! Loss recovery (RFC 9260 section 7.2.4, RFC 8985, RFC 7765): the effect of timers and SACKs on sent data.
//!
//! `tx` finds losses, `path` has the windows, and this module connects the two.

use std::time::Duration;

use base::Time;
use wire::{PacketWriter, Tsn};

use super::Transfer;
use super::doubt::LEAST_PATIENCE;
use crate::association::Context;
use crate::info::PathState;
use crate::path::{Outcome, PathIndex, Seen, Sending};
use crate::trace::TraceEvent;
use crate::tx::{Losses, PathAcks};

/// Number of packets in flight below which T3 counts from the transmission of the earliest chunk (rrthresh, RFC 7765
/// section 4).
const FEW_PACKETS: usize = 4;

impl Transfer {
    /// Returns the part of a path's state that congestion control needs for a SACK or a loss.
    pub(crate) fn seen(&self, index: PathIndex, flight_before: usize, now: Time) -> Seen {
        Seen {
            now,
            flight_before,
            flight: self.tx.outstanding.flight(index),
            cumulative_advanced: false,
            srtt: self.paths.get(index).srtt(),
        }
    }

    pub(crate) fn count_recovery(&mut self, index: PathIndex, outcome: Outcome) {
        let route = self.paths.get(index).route;
        if outcome.recovery_began {
            self.out.note(TraceEvent::RecoveryBegan { route });
            self.tx.outstanding.on_recovery(index);
        }
        if outcome.undone {
            self.out.note(TraceEvent::RecoveryUndone { route });
        }
    }

    /// Traces the state of a path after an acknowledgement.
    pub(crate) fn tell_window(&mut self, index: PathIndex, acks: &PathAcks) {
        let path = self.paths.get(index);
        self.out.trace(|| TraceEvent::Window {
            route: path.route,
            acknowledged: acks.bytes,
            lost: acks.lost.bytes,
            flight: self.tx.outstanding.flight(index),
            cwnd: path.sending.cwnd(),
            ssthresh: path.sending.ssthresh(),
            srtt: path.srtt(),
        });
    }

    /// Handles the reordering timer, tail-loss probe and pacing of one path.
    pub(crate) fn on_recovery_timers(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let now = ctx.now;
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let sending = &mut self.paths.get_mut(index).sending;
        sending.expire_pacing(now);
        let (reorder, probe) = (is_due(sending.reorder_at), is_due(sending.probe_at));
        if reorder {
            self.on_reordering_timeout(index, ctx);
        }
        if probe {
            self.doubt_mtu(index, self.tx.outstanding.flight(index), ctx);
            match self.witness(index) {
                Some(witness) => self.on_silence(index, witness, now),
                None => self.on_probe_timeout(index, now),
            }
        }
    }

    /// Marks chunks as lost if later chunks have overtaken them too long ago (RFC 8985 section 6.3).
    fn on_reordering_timeout(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let now = ctx.now;
        let flight_before = self.tx.outstanding.flight(index);
        let lost = self.tx.outstanding.find_lost(index, now);
        self.tx.window.on_lost(lost.bytes);
        let seen = self.seen(index, flight_before, now);
        let path = self.paths.get_mut(index);
        path.sending.reorder_at = lost.next_at;
        if let Some(allowed) = self.config.timing.loss_max {
            path.losses.on_lost(&lost, allowed, now);
        }
        let outcome = path.sending.on_losses(&lost, &seen);
        let route = path.route;
        if seen.flight == 0 {
            path.stop_data_timers();
        }
        self.out.note(TraceEvent::ReorderingTimeout { route, lost: lost.bytes });
        self.count_recovery(index, outcome);
        self.doubt_mtu_after(index, &lost, ctx);
    }

    /// Doubts the MTU if retransmissions were lost again, which may be due to their length.
    pub(crate) fn doubt_mtu_after(&mut self, index: PathIndex, lost: &Losses, ctx: &mut Context<'_>) {
        if lost.again > 0 {
            self.doubt_mtu(index, lost.bytes, ctx);
        }
    }

    /// Sends a tail-loss probe on a path that was silent for two round trips (RFC 8985 section 7.3). The probe is the
    /// next lost chunk, or otherwise new data. If neither exists, the probe is the last chunk again.
    ///
    /// T3 keeps running. A restart, as in RFC 8985, would delay failover to another path by two round trips. If T3
    /// would expire before an answer to the probe can arrive, the expiry is moved to the time of this answer.
    fn on_probe_timeout(&mut self, index: PathIndex, now: Time) {
        let path = self.paths.get_mut(index);
        path.sending.on_probe_timeout();
        let answer = path.srtt().unwrap_or_else(|| path.rto());
        // After a stall, all chunks may have been marked as lost just before. Then nothing is in flight, and T3 is off.
        path.t3 = path.t3.map(|at| at.max(now + answer * 5 / 4));
        if self.config.timing.doubts_silence {
            path.probe_now(now);
        }
        let route = path.route;
        self.out.note(TraceEvent::TailProbe { route });
        if self.retransmission_path() == Some(index) || self.waiting_length(index).is_some() {
            self.paths.get_mut(index).sending.grant_packet();
        } else {
            self.tx.probes.set_tail(Some(index));
        }
    }

    /// Returns the path on which a tail-loss probe is due.
    pub(crate) fn probed_path(&self) -> Option<PathIndex> {
        self.tx.probes.tail().filter(|&index| self.tx.outstanding.flight(index) > 0)
    }

    pub(crate) fn fill_tail_probe(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        if self.tx.probes.tail() != Some(path) {
            return;
        }
        let initial_tsn = self.negotiated.initial_tsn();
        let last = self.tx.outstanding.last_sent(path).map(|(seq, fragment)| (seq, fragment.clone()));
        // A message that must not be retransmitted cannot serve as a probe either.
        let Some((seq, fragment)) =
            last.filter(|(seq, _)| self.tx.pr_messages.exhausted(*seq, now).is_none())
        else {
            self.tx.probes.set_tail(None);
            return;
        };
        let length = fragment.payload.len();
        // The answer must not be delayed (RFC 7053 section 4.1).
        let tsn = seq.tsn(initial_tsn);
        if self.push_fragment(packet, &fragment, tsn, true).is_ok() {
            self.tx.probes.set_tail(None);
            self.tx.outstanding.on_probe(seq, now);
            self.tx.pr_messages.on_retransmitted(seq);
            self.count_retransmission(path, tsn, true);
            self.paths.get_mut(path).on_data_sent(length, now);
        }
    }

    /// Arms the probe timer after data was sent (`was_sent`) or acknowledged on a path. Probes of the peer's window
    /// have their own schedule.
    pub(crate) fn arm_probe(&mut self, index: PathIndex, was_sent: bool, now: Time) {
        let flight = if self.tx.window.is_probed() { 0 } else { self.tx.outstanding.flight(index) };
        if self.witness(index).is_some() {
            let at = if flight > 0 { self.doubt_at(index, now) } else { None };
            return self.paths.get_mut(index).sending.arm_doubt(at, was_sent);
        }
        let ack_delay = self.config.timing.sack_delay;
        let path = self.paths.get_mut(index);
        path.sending.arm_probe(path.srtt(), flight, ack_delay, now);
    }

    /// Returns the time at which the path becomes doubted: another path then repeats its earliest chunk.
    fn doubt_at(&self, index: PathIndex, now: Time) -> Option<Time> {
        let srtt = self.paths.get(index).srtt()?;
        let least = self.tx.outstanding.least_round_trip(index).unwrap_or(srtt);
        Some(self.due(index, Sending::patience(srtt, least, self.config.timing.sack_delay), now))
    }

    /// Restarts T3 after an acknowledgement (RFC 9260 section 6.3.2, R3).
    pub(crate) fn restart_t3(&mut self, index: PathIndex, now: Time) {
        let at = self.due(index, self.paths.get(index).rto(), now);
        self.paths.get_mut(index).t3 = Some(at);
    }

    /// Ends the back-off of T3 after a path has recovered: on this path, and on all paths that are not active. The data
    /// in flight on these paths now waits no longer than a timeout without back-off. Data that has already waited
    /// longer than this timeout was sent during the outage. Such data counts as lost, so the recovered path can carry
    /// it.
    pub(crate) fn end_back_off(&mut self, recovered: PathIndex, now: Time) {
        for index in self.paths.indices() {
            let path = self.paths.get_mut(index);
            if index != recovered && path.state() == PathState::Active {
                continue;
            }
            let patience = path.rto_without_back_off(&self.config.timing);
            match self.tx.outstanding.earliest_sent_at(index).map(|sent_at| sent_at + patience) {
                Some(due) if due <= now => _ = self.mark_lost_on(index),
                Some(due) => path.t3 = path.t3.map(|at| at.min(due)),
                None => {}
            }
        }
    }

    /// Removes the back-off from T3 of a path that was silent and has just answered a HEARTBEAT. T3 still leaves time
    /// for the answer to a probe that was sent after that HEARTBEAT.
    pub(crate) fn hasten_t3(&mut self, index: PathIndex, now: Time) {
        let Some(sent_at) = self.tx.outstanding.earliest_sent_at(index) else { return };
        let path = self.paths.get_mut(index);
        let soonest = now + path.srtt().unwrap_or_default() / 4 + LEAST_PATIENCE;
        let due = (sent_at + path.rto_without_back_off(&self.config.timing)).max(soonest);
        path.t3 = path.t3.map(|at| at.min(due));
    }

    /// Returns the time `after` from now. If little is in flight and nothing is queued, no fast retransmission will
    /// follow (RFC 7765 section 4). In this case, the time counts from the transmission of the earliest chunk, unless
    /// the result would be in the past.
    fn due(&self, index: PathIndex, after: Duration, now: Time) -> Time {
        let is_little = self.tx.outstanding.flight(index) < FEW_PACKETS * self.paths.get(index).packet_size();
        let from = if is_little && self.tx.queue.is_empty() {
            self.tx.outstanding.earliest_sent_at(index)
        } else {
            None
        };
        from.map(|sent_at| sent_at + after).filter(|&at| at > now).unwrap_or(now + after)
    }

    /// Counts a retransmission of a DATA chunk.
    pub(crate) fn count_retransmission(&mut self, index: PathIndex, tsn: Tsn, is_probe: bool) {
        let path = self.paths.get_mut(index);
        path.counters.retransmissions += 1;
        let route = path.route;
        self.out.note(TraceEvent::Retransmitted { route, tsn: tsn.0, is_probe });
    }

    /// Marks everything in flight on a path as lost, so another path retransmits it. Returns the number of chunks.
    pub(crate) fn mark_lost_on(&mut self, index: PathIndex) -> usize {
        let flight = self.tx.outstanding.flight(index);
        let given_up = self.tx.outstanding.give_up(index);
        self.tx.stranded.on_given_up(index);
        self.tx.window.on_lost(flight);
        let path = self.paths.get_mut(index);
        path.stop_data_timers();
        let route = path.route;
        if flight > 0 {
            self.out.note(TraceEvent::FlightGivenUp { route, bytes: flight });
        }
        given_up
    }

    pub(crate) fn refill_pacers(&mut self, now: Time) {
        for index in self.paths.indices() {
            let path = self.paths.get_mut(index);
            path.sending.refill(path.srtt(), now);
        }
    }

    /// Records why nothing more may be sent now: a full congestion window, pacing, or no data.
    pub(crate) fn note_waiting(&mut self, now: Time) {
        if !self.state.sends_data() {
            return;
        }
        if self.is_redundant() {
            self.note_waiting_copies(now);
        }
        if let Some(index) = self.retransmission_path() {
            let flight = self.tx.flight_beside_copies(index);
            return self.paths.get_mut(index).sending.on_waiting(flight, now);
        }
        for index in self.paths.indices() {
            if !self.carries_new_data(index) {
                continue;
            }
            if self.waiting_length(index).is_some() {
                // If the window has no room for a train, it counts as full.
                let flight =
                    if self.may_begin(index) { self.tx.flight_beside_copies(index) } else { usize::MAX };
                self.paths.get_mut(index).sending.on_waiting(flight, now);
            } else if self.tx.queue.is_empty() || self.is_detour(index) {
                // There is no data, or none that this path should carry.
                self.tx.outstanding.on_app_limited(index);
            }
        }
    }
}
