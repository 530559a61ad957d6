//! Address confirmation without a shared key: a new address is used only once a confirmed path has vouched
//! for it ([`AddressProof::ConfirmedPath`]).
//!
//! Anybody who has seen the handshake can sign an ASCONF with the empty key and answer HEARTBEATs at their
//! own address, but cannot see current traffic on the confirmed paths. So the nonce of a second HEARTBEAT
//! goes there and must come back on the new path. Start at [`Association::lacks_voucher`];
//! [`Association::copy_answer`] is the part of the end with the new address.

use base::Time;
use bytes::Bytes;

use super::{Association, CameBy, Context, Control};
use crate::config::AddressProof;
use crate::path::PathIndex;

impl Association {
    /// Returns whether address changes need proof over a confirmed path: it is configured, and the current
    /// packet is not signed with a shared key.
    pub(super) fn asks_for_proof(&self) -> bool {
        let is_keyed = self.asconf.as_ref().is_some_and(|asconf| asconf.is_keyed);
        self.transfer.config.address_proof == AddressProof::ConfirmedPath && !is_keyed
    }

    /// Returns whether the current packet may carry an effective ASCONF.
    pub(super) fn may_ask_for_change(&self) -> bool {
        let comes_by_path =
            self.asconf.as_ref().is_some_and(|a| self.transfer.paths.is_confirmed_way(&a.source));
        comes_by_path || !self.asks_for_proof()
    }

    /// Returns whether an answered path leads to an address that no confirmed path has vouched for.
    pub(super) fn lacks_voucher(&self, index: PathIndex) -> bool {
        let path = self.transfer.paths.get(index);
        let is_unproven =
            |asconf: &crate::extension::asconf::Asconf| asconf.unproven.contains(&path.route.remote);
        !path.is_confirmed() && self.asconf.as_deref().is_some_and(is_unproven)
    }

    /// Sends a HEARTBEAT on a confirmed path after the new path has answered; its answer must arrive on the
    /// new one.
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

    /// Accepts the address after the voucher's answer came on the new path.
    pub(super) fn on_vouched(&mut self, index: PathIndex) {
        let address = self.transfer.paths.get(index).route.remote;
        if let Some(asconf) = &mut self.asconf {
            asconf.unproven.retain(|a| *a != address);
        }
    }

    /// Sends a copy of the answer to a HEARTBEAT on `path` from each of our addresses that is new to the
    /// peer.
    pub(super) fn copy_answer(&mut self, path: PathIndex, value: &Bytes, now: Time) {
        if self.transfer.config.address_proof == AddressProof::Signature || self.came_by != CameBy::Path(path)
        {
            return;
        }
        self.transfer.paths.get_mut(path).vouching.on_heartbeat();
        if !self.transfer.paths.get(path).is_confirmed() {
            // The peer now sends from there, which it may not have done yet when it was asked.
            return self.transfer.repeat_question(path, now);
        }
        for other in self.transfer.paths.indices().filter(|other| *other != path) {
            if self.transfer.paths.get_mut(other).vouching.takes_copy() {
                self.transfer.out.queue(other, Control::HeartbeatAck(value.clone()));
            }
        }
    }
}
