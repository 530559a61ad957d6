//! Addresses of a peer without a shared key that are used only once a confirmed path has vouched for them
//! ([`AddressProof::ConfirmedPath`]).
//!
//! Somebody who has seen the handshake can sign an ASCONF with the empty key, and answer HEARTBEATs at his address. He does not see
//! what goes by the confirmed paths now. So the nonce of a second HEARTBEAT goes there, and has to come back by the new path. Begin at
//! [`Association::lacks_voucher`]; [`Association::copy_answer`] is what the end does whose address is new.

use base::Time;
use bytes::Bytes;

use super::{Association, CameBy, Context, Control};
use crate::config::AddressProof;
use crate::path::PathIndex;

impl Association {
    /// Whether addresses change only by proof over a confirmed path: that is asked for, and the packet in hand is not signed with a
    /// shared key.
    pub(super) fn asks_for_proof(&self) -> bool {
        let is_keyed = self.asconf.as_ref().is_some_and(|asconf| asconf.is_keyed);
        self.config.address_proof == AddressProof::ConfirmedPath && !is_keyed
    }

    /// Whether an ASCONF counts that came as the one in hand.
    pub(super) fn may_ask_for_change(&self) -> bool {
        let comes_by_path = self.asconf.as_ref().is_some_and(|a| self.paths.is_confirmed_way(&a.source));
        comes_by_path || !self.asks_for_proof()
    }

    /// Whether a path that has answered leads to an address that nobody has vouched for.
    pub(super) fn lacks_voucher(&self, index: PathIndex) -> bool {
        let path = self.paths.get(index);
        let is_unproven =
            |asconf: &crate::extension::asconf::Asconf| asconf.unproven.contains(&path.route.remote);
        !path.is_confirmed() && self.asconf.as_deref().is_some_and(is_unproven)
    }

    /// The new path has answered: a HEARTBEAT goes by a confirmed one, and its answer is to come back by the new one.
    pub(super) fn ask_voucher(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let Some(by) = self.paths.voucher(self.paths.get(index).vouching.tries()) else { return };
        let rto = self.paths.get(by).rto();
        let path = self.paths.get_mut(index);
        let nonce = path.ask_voucher(rto, ctx.now, &self.config.timing, ctx.random);
        self.control.retain(|(_, c)| !matches!(c, Control::Voucher { path, .. } if *path == index));
        self.control.push_back((by, Control::Voucher { path: index, nonce }));
        self.paths.resume_proofs(ctx.now);
    }

    /// The answer to the voucher came by the new path: the address is the peer's.
    pub(super) fn on_vouched(&mut self, index: PathIndex) {
        let address = self.paths.get(index).route.remote;
        if let Some(asconf) = &mut self.asconf {
            asconf.unproven.retain(|a| *a != address);
        }
    }

    /// A HEARTBEAT that came by `path` is answered: a copy of the answer goes from each address of ours that is new to the peer.
    pub(super) fn copy_answer(&mut self, path: PathIndex, value: &Bytes, now: Time) {
        if self.config.address_proof == AddressProof::Signature || self.came_by != CameBy::of_path(path) {
            return;
        }
        self.paths.get_mut(path).vouching.on_heartbeat();
        if !self.paths.get(path).is_confirmed() {
            // The peer speaks from there now, which it may not have done yet when it was asked.
            return self.repeat_question(path, now);
        }
        for other in self.paths.indices().filter(|other| *other != path) {
            if self.paths.get_mut(other).vouching.takes_copy() {
                self.control.push_back((other, Control::HeartbeatAck(value.clone())));
            }
        }
    }
}
