//! What ICMP and this host's kernel say of packets of ours.
//!
//! The kernel's own word counts at once. ICMP comes from the network, and whoever knows the tags can forge it: where a shared key is in
//! force the peer is asked first ([`hearsay`](super::hearsay)), though packets in its name come meanwhile, for these can be forged, too. Begin at [`Association::on_path_error`].

use base::{Route, Time};

use super::{Association, Context};
use crate::event::{AbortCause, CloseReason, PathError, Unreachable};
use crate::info::PathState;
use crate::path::{Path, PathIndex};

impl Association {
    /// ICMP, or this host's kernel, about a packet of ours, whose tag was verified. `quoted` is the beginning of the packet.
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
            // A NAT has forgotten the old port; the new one is being proven.
            PathError::Unreachable(_) if self.paths.get(index).rebinding.is_under_way() => {
                self.on_port_gone(index, route, ctx.now);
            }
            //= rfc9260#10-7
            PathError::Unreachable(Unreachable::Protocol | Unreachable::Port)
                if self.was_just_heard(index, ctx.now) => {}
            // It is about a port that the peer has left, or about one that is yet to be proven.
            PathError::Unreachable(_) | PathError::NoRoute
                if self.paths.get(index).route.carrier != route.carrier => {}
            PathError::NoRoute => self.on_unsent(index, quoted, ctx),
            //= rfc6951#5.5-4
            PathError::Unreachable(what) => self.on_unreachable(index, what, ctx),
        }
    }

    /// Nobody is at the end of `route`. If the path goes there, and another port is being proven, less patience is needed.
    fn on_port_gone(&mut self, index: PathIndex, route: &Route, now: Time) {
        let path = self.paths.get_mut(index);
        if path.rebinding.is_under_way() && path.route.carrier == route.carrier {
            path.rebinding.on_known_gone(now);
        }
    }

    /// The path leads nowhere for now. Where no other takes its place T3 keeps the pace of what is tried.
    pub(super) fn on_unreachable(&mut self, index: PathIndex, what: Unreachable, ctx: &mut Context<'_>) {
        self.on_dead_path(index);
        // RFC 1122 section 3.2.3.1 of routes: an unreachable host is "only a hint", for a route may come back; but when the
        // peer's own host says that nobody is there, nobody is. A NAT that knows no way to the peer says the same in its place: of ways
        // that never led through it, and of others once they were silent for longer than it remembers them.
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

    /// Nobody is there any more.
    pub(super) fn on_deserted(&mut self, ctx: &mut Context<'_>) {
        self.send_abort(&AbortCause::default(), ctx);
        self.close(CloseReason::LostContact);
    }

    /// Nothing gets through on a path, for certain.
    pub(super) fn on_dead_path(&mut self, index: PathIndex) {
        let transition = self.paths.get_mut(index).on_unreachable(&self.config.timing);
        self.report_transition(index, transition);
        if self.paths.current() != index {
            self.mark_lost_on(index);
        }
    }

    /// A host whose SCTP sits on raw sockets answers with "protocol unreachable" when the receive buffer of such a socket
    /// is full, and a router that has forgotten a NAT's mapping with "port unreachable" until the peer is heard from its new port;
    /// that says nothing against a peer from whom packets come (RFC 9260 section 10, ICMP6, leaves the choice).
    /// The back-off does not count: with it, each retransmission's own timeout would have lengthened the time allowed to
    /// more than has passed.
    pub(super) fn was_just_heard(&self, index: PathIndex, now: Time) -> bool {
        let path = self.paths.get(index);
        now - path.heard() < path.rto_without_back_off(&self.config.timing)
    }
}
