//! Errors that ICMP and this host's kernel report about our packets.
//!
//! Reports by the kernel itself count immediately. ICMP comes from the network, and an attacker who knows the tags can
//! forge it. If a shared key is in force, the peer is therefore asked first ([`hearsay`](super::hearsay)). The peer is
//! asked even if packets in the peer's name arrive meanwhile, because an attacker can replay or forge such packets too.
//! Start at [`Transfer::on_path_error`].

use base::{Route, Time};

use super::Transfer;
use crate::association::Context;
use crate::event::{AbortCause, CloseReason, PathError, PathReason, Unreachable};
use crate::info::PathState;
use crate::path::{Path, PathIndex};

impl Transfer {
    /// Handles an error from ICMP or this host's kernel about one of our packets. The packet's tag was verified, and
    /// `quoted` is its beginning.
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
            // While a new port is being confirmed, the error shows that a NAT has lost the mapping of the old port.
            PathError::Unreachable(_) if self.paths.get(index).rebinding.is_under_way() => {
                self.on_port_gone(index, route, ctx.now);
            }
            //= rfc9260#10-7
            PathError::Unreachable(Unreachable::Protocol | Unreachable::Port)
                if self.was_just_heard(index, ctx.now) => {}
            // The error is ignored: it concerns a port that the peer has left, or a port that is not confirmed yet.
            PathError::Unreachable(_) | PathError::NoRoute
                if self.paths.get(index).route.carrier != route.carrier => {}
            PathError::NoRoute => self.on_unsent(index, quoted, ctx),
            //= rfc6951#5.5-4
            PathError::Unreachable(what) => self.on_unreachable(index, what, ctx),
        }
    }

    /// Handles a report that the far end of `route` is unreachable. If the path still uses the port of `route` while a
    /// new port is being confirmed, the wait for the old port is shortened.
    fn on_port_gone(&mut self, index: PathIndex, route: &Route, now: Time) {
        let path = self.paths.get_mut(index);
        if path.rebinding.is_under_way() && path.route.carrier == route.carrier {
            path.rebinding.on_known_gone(now);
        }
    }

    /// Marks a path as unreachable for now. If no other path replaces this path, T3 still paces retransmissions. Ends
    /// the association if the error is final and no confirmed path is left.
    pub(crate) fn on_unreachable(&mut self, index: PathIndex, what: Unreachable, ctx: &mut Context<'_>) {
        self.on_dead_path(index, PathReason::Unreachable(what));
        // An unreachable host is "only a hint" (RFC 1122 section 3.2.3.1), because a route may return. An unreachable
        // protocol or port is final, because the peer's own host reports it. But a NAT without a mapping sends the same
        // error in the peer's name. A NAT may have no mapping for an unconfirmed path, or for a path that was silent
        // for longer than a mapping lasts.
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

    /// Marks a path as failed, because the caller knows that no packet can pass.
    pub(crate) fn on_dead_path(&mut self, index: PathIndex, reason: PathReason) {
        let transition = self.paths.get_mut(index).on_unreachable(&self.config.timing);
        self.report_transition(index, transition, reason);
        if self.paths.current() != index {
            self.mark_lost_on(index);
        }
    }

    /// Reports whether the peer was heard on the path within the last RTO. "Protocol unreachable" may then mean that
    /// the receive buffer of the peer's raw SCTP socket is full. "Port unreachable" may come from a router that has
    /// lost a NAT mapping, until the peer is heard from its new port.
    ///
    /// Neither error counts against a peer whose packets arrive (RFC 9260 section 10, ICMP6, leaves the choice). The
    /// RTO of this function has no back-off. With back-off, each timeout would double the RTO, so a failed peer would
    /// count as just heard for many timeouts.
    pub(crate) fn was_just_heard(&self, index: PathIndex, now: Time) -> bool {
        let path = self.paths.get(index);
        now - path.heard() < path.rto_without_back_off(&self.config.timing)
    }
}
