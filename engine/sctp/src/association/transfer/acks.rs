//! The effect of acknowledgements on the paths, the peer's window and the send buffer.

use super::Transfer;
use crate::association::Context;
use crate::event::{Event, PathReason};
use crate::path::{PathIndex, Seen};
use crate::tx::PathAcks;

impl Transfer {
    /// Resizes the send buffer after a change of the congestion windows or of the memory pressure.
    pub(crate) fn tune_send_buffer(&mut self) {
        let confirmed = self.paths.iter().filter(|(_, path)| path.is_confirmed());
        self.tx.buffer.tune(confirmed.map(|(_, path)| path.sending.cwnd()).sum());
    }

    /// Notifies a waiting driver that the send buffer has room, or is empty.
    pub(crate) fn wake_writer(&mut self) {
        self.tell_if_dry();
        if self.tx.take_room() && self.state.takes_messages() {
            self.out.emit(Event::Writable);
        }
    }

    /// Updates the probe of the peer's window after a SACK. If the window has opened and the SACK acknowledges nothing,
    /// the peer has dropped the probe, or is about to acknowledge it. The probe is then retransmitted immediately, not
    /// after a backed-off T3.
    pub(crate) fn on_window(&mut self, acknowledged: bool, a_rwnd: usize) {
        let Some((seq, length, path)) = self.tx.outstanding.first_in_flight().filter(|_| !acknowledged)
        else {
            return self.tx.window.end_probe();
        };
        if self.tx.window.on_unmoved(a_rwnd, length, self.tx.outstanding.total_flight()) {
            self.tx.outstanding.mark_lost(seq);
            self.tx.window.on_lost(length);
            if self.tx.outstanding.flight(path) == 0 {
                self.paths.get_mut(path).stop_data_timers();
            }
        }
    }

    //= rfc9260#7.2.1-9 8.2-3
    pub(crate) fn on_path_acks(
        &mut self,
        index: PathIndex,
        acks: &PathAcks,
        flight_before: usize,
        cumulative_advanced: bool,
        ctx: &mut Context<'_>,
    ) {
        let next = self.tx.outstanding.next();
        let path = self.paths.get_mut(index);
        if let Some((seq, rtt)) = acks.newest {
            path.on_round_trip(seq, rtt, next, &self.config.timing);
        }
        // With data on several paths, other paths may hold back the cumulative TSN. The acknowledgement of the path's
        // own earliest chunk then takes the place of the cumulative TSN ("pseudo cumack").
        let earliest = acks.earliest || (self.is_concurrent() && acks.front_moved);
        let cumulative_advanced = cumulative_advanced || earliest;
        let seen = Seen { cumulative_advanced, ..self.seen(index, flight_before, ctx.now) };
        if acks.bytes > 0 && self.is_concurrent() {
            self.couple(index);
        }
        let outcome = self.paths.get_mut(index).sending.on_acks(acks, &seen);
        self.count_recovery(index, outcome);
        if acks.bytes + acks.lost.bytes > 0 {
            self.tell_window(index, acks);
        }
        self.learn_mtu(index, acks.longest, ctx.now);
        self.doubt_mtu_after(index, &acks.lost, ctx);
        // RFC 9260 section 6.3.2, R2 and R3.
        if seen.flight == 0 {
            self.paths.get_mut(index).stop_data_timers();
        } else if earliest || self.paths.get(index).t3.is_none() {
            self.restart_t3(index, ctx.now);
        }
        if acks.bytes > 0 {
            self.paths.get_mut(index).ecn.on_acknowledged();
            self.arm_probe(index, false, ctx.now);
        }
        let path = self.paths.get_mut(index);
        // The doubt about a path ends only if a packet arrives on this path. A SACK on the witness is no proof, because
        // it may report chunks that the doubted path carried before the silence.
        let has_proof = acks.proves_path && path.pmtu.size_that_proves().is_none();
        if has_proof && (path.doubt.is_none() || path.heard() == ctx.now) {
            let transition = path.on_success(ctx.now, &self.config.timing);
            self.hearsay.on_path_lives(index);
            self.report_transition(index, transition, PathReason::Answer);
            self.on_heard(index);
        }
        self.count_losses(index, acks, ctx.now);
        self.count_delays(index, acks, ctx.now);
    }
}
