//! Paths that a confirmed path has to vouch for, and paths that our own new addresses make.
//!
//! Where an address was added without a shared key ([`AddressProof::ConfirmedPath`](crate::AddressProof)) its own answer to a
//! HEARTBEAT is not enough: whoever asked for it would answer. So a second HEARTBEAT, the voucher, goes to the peer by a confirmed
//! path, and its answer must come back by the new one. The end that has added an address sends such answers: of HEARTBEATs that come
//! by its confirmed paths it sends a copy of the answer by the new ones, once these were asked themselves. Never sends. Begin at
//! [`Vouching`].

use std::num::NonZeroU64;
use std::time::Duration;

use crate::random::Random;

/// Answers that are copied to the path of an address of our own that is new: enough for many lost ones, few beside a life of
/// HEARTBEATs.
const COPIES: u8 = 64;

/// Most doublings of the pause between two vouchers that nobody answers.
const DOUBLINGS_MAX: u32 = 6;

/// The second half of a path's proof, at either end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vouching {
    /// Of the voucher that is out.
    nonce: Option<NonZeroU64>,
    /// Vouchers sent.
    tries: u32,
    /// Answers that may still be copied to this path.
    copies: u8,
    /// The peer has asked by this path.
    is_asked: bool,
}

impl Vouching {
    /// A voucher leaves: its nonce, and how many have left before.
    pub(crate) fn ask(&mut self, random: &mut Random) -> (u64, u32) {
        let (nonce, tries) = (NonZeroU64::MIN | random.u64(), self.tries);
        self.nonce = Some(nonce);
        self.tries = self.tries.saturating_add(1);
        (nonce.get(), tries)
    }

    /// Until the next one, after `tries` and if a round trip may take `rto`.
    pub(crate) fn pause(tries: u32, rto: Duration, max: Duration) -> Duration {
        (rto * (1 << tries.min(DOUBLINGS_MAX))).min(max.max(rto))
    }

    /// Vouchers sent.
    pub(crate) fn tries(&self) -> usize {
        self.tries as usize
    }

    /// Whether a voucher is out.
    pub(crate) fn is_out(&self) -> bool {
        self.nonce.is_some()
    }

    /// An answer came by this path; returns whether it is the voucher's.
    pub(crate) fn on_answer(&mut self, nonce: u64) -> bool {
        let is_voucher = self.nonce.is_some_and(|asked| asked.get() == nonce);
        if is_voucher {
            (self.nonce, self.tries) = (None, 0);
        }
        is_voucher
    }

    /// The path goes elsewhere now: what was answered before proves nothing.
    pub(crate) fn begin_anew(&mut self) {
        self.nonce = None;
    }

    /// The path leaves from an address of ours that the peer has just learned of.
    pub(crate) fn offer_copies(&mut self) {
        self.copies = COPIES;
    }

    /// The peer asks by this path.
    pub(crate) fn on_heartbeat(&mut self) {
        self.is_asked = true;
    }

    /// Whether an answer to a HEARTBEAT on another path is to be copied to this one; counts it.
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
    fn answers_are_copied_to_a_new_path_that_was_asked_itself_and_not_for_ever() {
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
