//! Graceful shutdown (RFC 9260 section 9.2).

use wire::{Chunk, ShutdownComplete, Tsn};

use super::state::Retry;
use super::{Association, Context, Control, State};
use crate::event::{CloseReason, Event};
use crate::path::PathIndex;

impl Association {
    /// Shuts the association down once all data is delivered.
    pub(crate) fn shutdown(&mut self, ctx: &mut Context<'_>) {
        match self.transfer.state {
            State::Established => {
                self.transfer.enter(State::ShutdownPending);
                self.after_data_moved(ctx.now);
            }
            // The association is not established yet, so it ends with an ABORT. Messages that wait to be sent are not
            // delivered.
            State::CookieWaitOver | State::CookieEchoed { .. } | State::Accepting => {
                self.abort(crate::event::AbortCause::default(), ctx);
            }
            State::ShutdownReceived { takes_messages: true } => {
                self.transfer.enter(State::ShutdownReceived { takes_messages: false });
                self.after_data_moved(ctx.now);
            }
            State::ShutdownPending
            | State::ShutdownSent { .. }
            | State::ShutdownReceived { .. }
            | State::ShutdownAckSent { .. }
            | State::Closed => {}
        }
    }

    /// Takes the next step of the shutdown once all data is delivered.
    pub(super) fn after_data_moved(&mut self, now: base::Time) {
        if self.transfer.tx.queue.bytes() > 0 || !self.transfer.tx.outstanding.is_empty() {
            return;
        }
        // Application messages may still wait for the keys.
        if self.transfer.integrity.is_pending() {
            return;
        }
        // While our request to reset the association is unanswered, received data is held back, because its numbering
        // is unknown. The shutdown therefore waits for the answer.
        if self.reconfig.as_ref().is_some_and(|r| r.asks_for_association_reset()) {
            return;
        }
        match self.transfer.state {
            State::ShutdownPending => self.send_shutdown(now),
            //= rfc9260#9.2-8 9.2-13
            State::ShutdownReceived { takes_messages: false } => self.send_shutdown_ack(now),
            State::ShutdownReceived { .. }
            | State::CookieWaitOver
            | State::CookieEchoed { .. }
            | State::Accepting
            | State::Established
            | State::ShutdownSent { .. }
            | State::ShutdownAckSent { .. }
            | State::Closed => {}
        }
    }

    //= rfc9260#3.3.8-1 9.2-1 9.2-20
    fn send_shutdown(&mut self, now: base::Time) {
        let guard = now + self.transfer.config.timing.shutdown_guard;
        self.transfer.state =
            State::ShutdownSent { t2: self.t2(now), by: self.transfer.paths.current(), guard };
        self.queue_shutdown(Control::Shutdown);
    }

    fn send_shutdown_ack(&mut self, now: base::Time) {
        let guard = now + self.transfer.config.timing.shutdown_guard;
        self.transfer.state =
            State::ShutdownAckSent { t2: self.t2(now), by: self.transfer.paths.current(), guard };
        self.queue_shutdown(Control::ShutdownAck);
    }

    //= rfc9260#9.2-3
    fn t2(&self, now: base::Time) -> Retry {
        Retry { at: now + self.transfer.paths.get(self.transfer.paths.current()).rto(), count: 0 }
    }

    pub(super) fn queue_shutdown(&mut self, control: Control) {
        self.queue_shutdown_by(self.transfer.paths.current(), control);
    }

    /// Queues a shutdown chunk for `path`. The next expiry of T2 counts against this path.
    pub(super) fn queue_shutdown_by(&mut self, path: PathIndex, control: Control) {
        if let State::ShutdownSent { by, .. } | State::ShutdownAckSent { by, .. } = &mut self.transfer.state {
            *by = path;
        }
        self.transfer.out.withdraw(|c| matches!(c, Control::Shutdown | Control::ShutdownAck));
        self.transfer.out.queue(path, control);
    }

    /// Handles SHUTDOWN: the peer sends no more data.
    pub(super) fn on_shutdown(&mut self, path: PathIndex, cumulative: Tsn, ctx: &mut Context<'_>) {
        match self.transfer.state {
            State::Established | State::ShutdownPending => {
                let takes_messages = self.transfer.config.takes_late_messages
                    && matches!(self.transfer.state, State::Established);
                self.transfer.enter(State::ShutdownReceived { takes_messages });
                self.transfer.out.emit(Event::PeerShutdown);
            }
            //= rfc9260#9.2-25
            State::ShutdownSent { .. } => self.send_shutdown_ack(ctx.now),
            // The previous SHUTDOWN ACK was lost. Like a HEARTBEAT ACK, the next SHUTDOWN ACK takes the path on which
            // the SHUTDOWN arrived, even if this path is unconfirmed. The path works in one direction at least, and may
            // be the only working path. Expiries of T2 try the other paths.
            State::ShutdownAckSent { .. } => return self.queue_shutdown_by(path, Control::ShutdownAck),
            //= rfc9260#9.2-7
            State::ShutdownReceived { .. } => {}
            // RFC 9260 section 9.2: SHUTDOWN is ignored before the association is established.
            //= rfc9260#9.2-24
            State::CookieWaitOver | State::CookieEchoed { .. } | State::Accepting | State::Closed => return,
        }
        // Some peers put their own last TSN into SHUTDOWN. An impossible TSN is ignored, because SACKs report what has
        // arrived. A TSN that acknowledges nothing new is ignored too. If a window probe is outstanding, such a TSN
        // would count as an answer to the probe, and the next probe would leave immediately.
        let (known, next) = (self.transfer.tx.outstanding.first(), self.transfer.tx.outstanding.next());
        let is_new = |first: &_| (known..=next).contains(first) && *first != known;
        if let Some(first) = self.transfer.sequence_after(cumulative).filter(is_new) {
            // A SHUTDOWN reports neither gaps nor the window, so the known gaps and the known window remain valid.
            //= rfc9260#3.3.8-2
            let gaps = self.transfer.tx.outstanding.gaps_from(first);
            let rwnd = self.transfer.tx.window.room() + self.transfer.tx.outstanding.total_flight();
            self.acknowledge(first, &gaps, u32::try_from(rwnd).unwrap_or(u32::MAX), ctx);
        }
    }

    /// Completes the handling of a packet. After our SHUTDOWN, any packet proves that the peer is alive. DATA is
    /// acknowledged by another SHUTDOWN, which restarts T2 (RFC 9260 section 9.2). No other packet delays T2, because
    /// otherwise the peer's heartbeats could delay T2 forever.
    pub(super) fn after_packet(&mut self, now: base::Time) {
        let at = now + self.transfer.paths.get(self.transfer.paths.current()).rto();
        if let State::ShutdownSent { t2, .. } = &mut self.transfer.state {
            self.transfer.liveness.on_answer();
            if self.inbound.ack.is_pending() {
                // Repeated DATA means that our SHUTDOWNs are lost. T2 must then expire, so another path is tried.
                if !self.inbound.has_duplicates() {
                    t2.at = at;
                }
                //= rfc9260#9.2-9
                self.queue_shutdown(Control::Shutdown);
                //= rfc9260#9.2-10
                self.inbound.ack.on_irregular();
            }
        }
        self.after_data_moved(now);
        self.idle.on_packet(self.transfer.out.carried(), now);
    }

    /// Sends SHUTDOWN COMPLETE and closes the association.
    pub(super) fn complete_shutdown(&mut self, path: PathIndex, ctx: &mut Context<'_>) {
        let route = self.transfer.paths.get(self.proved(path)).route;
        //= rfc9260#8.5.1-8 9.2-17 9.2-26
        let complete = Chunk::ShutdownComplete(ShutdownComplete { tag_reflected: false });
        let header = self.transfer.negotiated.header();
        ctx.replies.push_by(route, header, &complete, &mut self.transfer.integrity);
        self.transfer.close(CloseReason::Graceful);
    }

    //= rfc9260#8.5.1-11 9.2-19
    pub(super) fn on_shutdown_complete(&mut self) {
        if matches!(self.transfer.state, State::ShutdownAckSent { .. }) {
            self.transfer.close(CloseReason::Graceful);
        }
    }

    /// In SHUTDOWN-ACK-SENT, answers a new INIT or COOKIE ECHO with another SHUTDOWN ACK (section 9.2). Returns whether
    /// the association is in this state.
    pub(crate) fn resend_shutdown_ack(&mut self) -> bool {
        let is_waiting = matches!(self.transfer.state, State::ShutdownAckSent { .. });
        if is_waiting {
            self.queue_shutdown(Control::ShutdownAck);
        }
        is_waiting
    }
}
