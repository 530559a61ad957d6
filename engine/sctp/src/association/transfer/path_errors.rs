//! Errors that ICMP and this host's kernel report about our packets.
//!
//! The kernel's own reports count at once. ICMP comes from the network, and anybody who knows the tags can
//! forge it. If a shared key is in force, the peer is asked first ([`hearsay`](super::hearsay)), even if
//! packets in its name arrive meanwhile, since those can be forged too. Start at
//! [`Transfer::on_path_error`].

use base::{Route, Time};

use super::Transfer;
use crate::association::Context;
use crate::event::{AbortCause, CloseReason, PathError, PathReason, Unreachable};
use crate::info::PathState;
use crate::path::{Path, PathIndex};

impl Transfer {
    /// Handles an error from ICMP or this host's kernel about a packet of ours whose tag was verified.
    /// `quoted` is the packet's beginning.
    pub(crate) fn on_path_error(
        &mut self,
        route: &Route,
        error: PathError,
        quoted: &[u8],
        ctx: &mut Context<'_>,
    ) {
        let Some(index) = self.paths.find(route) else { return };
        match error {
            PathError::TooBig { mtu } => self.on_too_big(index, mtu, quoted, ctx.now),
            PathError::LocalQueue { bytes } => self.on_local_queue(index, bytes, ctx.now),
            PathError::Unreachable(what) if self.is_keyed() => {
                self.on_port_gone(index, route, ctx.now);
                if self.paths.get(index).route.carrier == route.carrier {
                    self.hear_unreachable(index, what, ctx);
                }
            }
            // A NAT has forgotten the old port; the new one is being confirmed.
            PathError::Unreachable(_) if self.paths.get(index).rebinding.is_under_way() => {
                self.on_port_gone(index, route, ctx.now);
            }
            //= rfc9260#10-7
            PathError::Unreachable(Unreachable::Protocol | Unreachable::Port)
                if self.was_just_heard(index, ctx.now) => {}
            // It concerns a port that the peer has left, or one not yet confirmed.
            PathError::Unreachable(_) | PathError::NoRoute
                if self.paths.get(index).route.carrier != route.carrier => {}
            PathError::NoRoute => self.on_unsent(index, quoted, ctx),
            //= rfc6951#5.5-4
            PathError::Unreachable(what) => self.on_unreachable(index, what, ctx),
        }
    }

    /// Handles a report that nobody is at the end of `route`. If the path goes there while another port is
    /// being confirmed, the wait is cut short.
    fn on_port_gone(&mut self, index: PathIndex, route: &Route, now: Time) {
        let path = self.paths.get_mut(index);
        if path.rebinding.is_under_way() && path.route.carrier == route.carrier {
            path.rebinding.on_known_gone(now);
        }
    }

    /// Marks a path as unreachable for now. If no other replaces it, T3 keeps pacing the attempts.
    pub(crate) fn on_unreachable(&mut self, index: PathIndex, what: Unreachable, ctx: &mut Context<'_>) {
        self.on_dead_path(index, PathReason::Unreachable(what));
        // An unreachable host is "only a hint" (RFC 1122 section 3.2.3.1), since a route may come back. An
        // error from the peer's own host is final. But a NAT without a mapping sends the same error in the
        // peer's name: on paths that never led through it, and on others once they were silent for longer
        // than it keeps mappings.
        let is_final = matches!(what, Unreachable::Protocol | Unreachable::Port)
            && self.paths.get(index).is_known_to_nats(ctx.now, &self.config.timing);
        let is_out = |p: &Path| !p.is_confirmed() || p.state() == PathState::Inactive;
        if !is_final || !self.paths.iter().all(|(_, p)| is_out(p)) {
            return;
        }
        if self.is_keyed() {
            self.hear_of_desertion(ctx);
        } else {
            self.on_deserted(ctx);
        }
    }

    /// Ends an association whose peer is gone.
    pub(crate) fn on_deserted(&mut self, ctx: &mut Context<'_>) {
        self.send_abort(&AbortCause::default(), ctx);
        self.close(CloseReason::LostContact);
    }

    /// Marks a path on which certainly nothing gets through.
    pub(crate) fn on_dead_path(&mut self, index: PathIndex, reason: PathReason) {
        let transition = self.paths.get_mut(index).on_unreachable(&self.config.timing);
        self.report_transition(index, transition, reason);
        if self.paths.current() != index {
            self.mark_lost_on(index);
        }
    }

    /// Returns whether the peer was heard on the path within the last RTO. A host whose SCTP uses raw sockets
    /// sends "protocol unreachable" when such a socket's receive buffer is full, and a router that has lost a
    /// NAT mapping sends "port unreachable" until the peer is heard from its new port. Neither counts against
    /// a peer whose packets arrive (RFC 9260 section 10, ICMP6, leaves the choice). Back-off does not count:
    /// with it, each retransmission's own timeout would extend the permitted time beyond the time passed.
    pub(crate) fn was_just_heard(&self, index: PathIndex, now: Time) -> bool {
        let path = self.paths.get(index);
        now - path.heard() < path.rto_without_back_off(&self.config.timing)
    }
}
