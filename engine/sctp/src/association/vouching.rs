//! Address confirmation without a shared key ([`AddressProof::ConfirmedPath`]). A new address is used only
//! after its host has proved that it also receives packets on a confirmed path.
//!
//! An attacker who has seen the handshake can sign an ASCONF with the empty key, and can answer HEARTBEATs at
//! its own address. But such an attacker usually cannot see the current traffic on the confirmed paths.
//! Therefore a second HEARTBEAT, the voucher, is sent on a confirmed path. The peer must return the voucher's
//! nonce on the new path. Start at [`Association::lacks_voucher`]. The end that has added the address answers
//! with [`Association::copy_answer`].

use base::Time;
use bytes::Bytes;

use super::{Association, CameBy, Context, Control};
use crate::config::AddressProof;
use crate::path::PathIndex;

impl Association {
    /// Reports whether address changes need proof over a confirmed path. They do if the settings require
    /// proof, and the current packet is neither sealed nor signed with a shared key.
    pub(super) fn asks_for_proof(&self) -> bool {
        let is_keyed = self.asconf.as_ref().is_some_and(|asconf| asconf.is_keyed);
        self.transfer.config.address_proof == AddressProof::ConfirmedPath && !is_keyed
    }

    /// Reports whether an ASCONF in the current packet may take effect.
    pub(super) fn may_ask_for_change(&self) -> bool {
        let comes_by_path =
            self.asconf.as_ref().is_some_and(|a| self.transfer.paths.is_confirmed_way(&a.source));
        comes_by_path || !self.asks_for_proof()
    }

    /// Reports whether the path is unconfirmed, and its remote address still needs a voucher. The caller has
    /// received an answer on this path.
    pub(super) fn lacks_voucher(&self, index: PathIndex) -> bool {
        let path = self.transfer.paths.get(index);
        let is_unproven =
            |asconf: &crate::extension::asconf::Asconf| asconf.unproven.contains(&path.route.remote);
        !path.is_confirmed() && self.asconf.as_deref().is_some_and(is_unproven)
    }

    /// Sends a voucher on a confirmed path, after the new path `index` has answered its own HEARTBEAT. The
    /// answer to the voucher must arrive on the new path.
    pub(super) fn ask_voucher(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let Some(by) = self.transfer.paths.voucher(self.transfer.paths.get(index).vouching.tries()) else {
            return;
        };
        let rto = self.transfer.paths.get(by).rto();
        let path = self.transfer.paths.get_mut(index);
        let nonce = path.ask_voucher(rto, ctx.now, &self.transfer.config.timing, ctx.random);
        self.transfer.out.withdraw(|c| matches!(c, Control::Voucher { path, .. } if *path == index));
        self.transfer.out.queue(by, Control::Voucher { path: index, nonce });
        self.transfer.paths.resume_proofs(ctx.now);
    }

    /// Records that the new address is proved: the answer to the voucher has arrived on the new path.
    pub(super) fn on_vouched(&mut self, index: PathIndex) {
        let address = self.transfer.paths.get(index).route.remote;
        if let Some(asconf) = &mut self.asconf {
            asconf.unproven.retain(|a| *a != address);
        }
    }

    /// Copies the answer to a HEARTBEAT that arrived on the confirmed path `path`. Copies are sent on the
    /// paths from our addresses that are new to the peer. The peer must have sent a HEARTBEAT on such a path
    /// before.
    pub(super) fn copy_answer(&mut self, path: PathIndex, value: &Bytes, now: Time) {
        if self.transfer.config.address_proof == AddressProof::Signature || self.came_by != CameBy::Path(path)
        {
            return;
        }
        self.transfer.paths.get_mut(path).vouching.on_heartbeat();
        if !self.transfer.paths.get(path).is_confirmed() {
            // The peer may have ignored our earlier HEARTBEAT, because the peer did not use this address yet.
            // The peer uses the address now, so the HEARTBEAT is repeated.
            return self.transfer.repeat_question(path, now);
        }
        for other in self.transfer.paths.indices().filter(|other| *other != path) {
            if self.transfer.paths.get_mut(other).vouching.takes_copy() {
                self.transfer.out.queue(other, Control::HeartbeatAck(value.clone()));
            }
        }
    }
}
