//! Second proof of a path to a new address: a confirmed path vouches for the new path.
//!
//! If an address was added without a shared key ([`AddressProof::ConfirmedPath`](crate::AddressProof)), an
//! answer to a HEARTBEAT on the new path is not enough proof, because an attacker who added the address would
//! answer. Therefore a second HEARTBEAT, the voucher, goes to the peer on a confirmed path. The answer to the
//! voucher must arrive on the new path.
//!
//! The end that has added the address copies each answer to a HEARTBEAT on a confirmed path to the new paths.
//! The copies begin after the peer has sent a HEARTBEAT on the new path. The module sends no packets. Start
//! at [`Vouching`].

use std::num::NonZeroU64;
use std::time::Duration;

use crate::random::Random;

/// Maximum number of answers that are copied to the path of a new address of ours. This number allows for
/// many lost copies, and is small compared with the number of HEARTBEATs in an association.
const COPIES: u8 = 64;

/// Maximum number of doublings of the pause between unanswered vouchers.
const DOUBLINGS_MAX: u32 = 6;

/// State of the second proof of a path, at either end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vouching {
    /// Nonce of the outstanding voucher.
    nonce: Option<NonZeroU64>,
    /// Number of vouchers sent since the last answer.
    tries: u32,
    /// Number of answers that may still be copied to this path.
    copies: u8,
    /// True if the peer has sent a HEARTBEAT on this path.
    is_asked: bool,
}

impl Vouching {
    /// Starts a voucher; returns the voucher's nonce, and the number of earlier vouchers since the last
    /// answer.
    pub(crate) fn ask(&mut self, random: &mut Random) -> (u64, u32) {
        let (nonce, tries) = (NonZeroU64::MIN | random.u64(), self.tries);
        self.nonce = Some(nonce);
        self.tries = self.tries.saturating_add(1);
        (nonce.get(), tries)
    }

    /// Returns the pause before the next voucher after `tries` earlier vouchers. `rto` is the retransmission
    /// timeout. The pause is limited to the larger of `max` and `rto`.
    pub(crate) fn pause(tries: u32, rto: Duration, max: Duration) -> Duration {
        (rto * (1 << tries.min(DOUBLINGS_MAX))).min(max.max(rto))
    }

    /// Returns the number of vouchers sent since the last answer.
    pub(crate) fn tries(&self) -> usize {
        self.tries as usize
    }

    /// Returns whether a voucher is outstanding.
    pub(crate) fn is_out(&self) -> bool {
        self.nonce.is_some()
    }

    /// Handles a HEARTBEAT ACK on this path; returns whether the chunk answers the voucher.
    pub(crate) fn on_answer(&mut self, nonce: u64) -> bool {
        let is_voucher = self.nonce.is_some_and(|asked| asked.get() == nonce);
        if is_voucher {
            (self.nonce, self.tries) = (None, 0);
        }
        is_voucher
    }

    /// Drops an outstanding voucher, because the path's destination has changed.
    pub(crate) fn begin_anew(&mut self) {
        self.nonce = None;
    }

    /// Permits copies to this path, because its local address is new to the peer.
    pub(crate) fn offer_copies(&mut self) {
        self.copies = COPIES;
    }

    /// Records that the peer has sent a HEARTBEAT on this path.
    pub(crate) fn on_heartbeat(&mut self) {
        self.is_asked = true;
    }

    /// Returns whether an answer to a HEARTBEAT on another path must be copied to this path; counts the copy.
    pub(crate) fn takes_copy(&mut self) -> bool {
        let takes = self.is_asked && self.copies > 0;
        self.copies -= u8::from(takes);
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_the_voucher_that_is_out_counts_and_once() {
        let (mut vouching, mut random) = (Vouching::default(), Random::new([1; 32]));
        let (first, _) = vouching.ask(&mut random);
        let (nonce, tries) = vouching.ask(&mut random);
        assert_eq!(tries, 1);
        assert!(!vouching.on_answer(first) && vouching.on_answer(nonce) && !vouching.on_answer(nonce));
        let (nonce, _) = vouching.ask(&mut random);
        vouching.begin_anew();
        assert!(!vouching.on_answer(nonce));
    }

    #[test]
    fn vouchers_that_nobody_answers_become_rarer() {
        let pause =
            |tries| Vouching::pause(tries, Duration::from_millis(300), Duration::from_secs(5)).as_millis();
        assert_eq!([0, 1, 4, 5, 1000].map(pause), [300, 600, 4800, 5000, 5000]);
    }

    #[test]
    fn a_limited_number_of_answers_is_copied_to_a_new_path_that_got_a_heartbeat() {
        let mut vouching = Vouching::default();
        vouching.on_heartbeat();
        assert!(!vouching.takes_copy(), "no address of ours is new");
        let mut vouching = Vouching::default();
        vouching.offer_copies();
        assert!(!vouching.takes_copy(), "nobody has asked there");
        vouching.on_heartbeat();
        assert_eq!((0..1000).filter(|_| vouching.takes_copy()).count(), usize::from(COPIES));
    }
}
