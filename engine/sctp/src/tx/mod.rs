//! Sending side of an association.
//!
//! - [`SendQueue`] holds messages that wait for their first transmission.
//! - [`Outstanding`] holds chunks that were sent and are not yet cumulatively acknowledged.
//! - [`PrMessages`] holds messages that may be abandoned.
//! - [`Forward`] decides when a FORWARD TSN reports abandoned chunks to the peer.
//!
//! None of these types sends anything: the module `association` writes their data into packets. In this module, TSNs are [`Seq`] values,
//! which do not wrap. They can therefore be compared and subtracted as plain numbers.

mod copies;
mod forward;
mod outstanding;
mod peer_window;
mod pr_sctp;
mod queue;
mod rack;
mod send_buffer;
mod transmissions;

pub(crate) use copies::Copies;
pub(crate) use forward::Forward;
pub(crate) use outstanding::{Losses, Outstanding, PathAcks};
pub(crate) use peer_window::PeerWindow;
pub(crate) use pr_sctp::{Limit, PrMessages};
pub(crate) use queue::{Fragment, MessageId, SendQueue, Taken};
pub(crate) use send_buffer::{Load, SendBuffer};
pub(crate) use transmissions::RateSample;

use wire::Tsn;

/// A TSN counted from the initial TSN, which is `Seq(0)`. It does not wrap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Seq(pub(crate) u64);

/// Limit on the distance by which a TSN may exceed the next expected TSN. A reset of the association moves TSNs by 2^31 (RFC 6525
/// section 5.2.4), and packets from before the reset may arrive late. A TSN beyond this limit belongs to such a packet.
pub(crate) const FAR_AHEAD: u64 = 1 << 30;

//= rfc9260#1.6-1 1.6-2 1.6-4 3.3.1-12 3.3.1-13
impl Seq {
    pub(crate) const fn next(self) -> Seq {
        Seq(self.0 + 1)
    }

    /// Returns the TSN on the wire.
    #[expect(clippy::cast_possible_truncation, reason = "a TSN is the sequence modulo 2^32")]
    pub(crate) const fn tsn(self, initial: Tsn) -> Tsn {
        initial.plus(self.0 as u32)
    }

    /// Returns the `Seq` nearest to `self` among all values whose TSN on the wire is `tsn`. Returns `None` if
    /// this value would lie before the initial TSN.
    pub(crate) fn nearest(self, initial: Tsn, tsn: Tsn) -> Option<Seq> {
        let here = self.tsn(initial);
        let ahead = i64::from(here.distance_to(tsn).cast_signed());
        self.0.checked_add_signed(ahead).map(Seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    //= rfc9260#1.6-1 1.6-2 1.6-4
    fn sequences_follow_tsns_across_the_wrap_both_ways() {
        let initial = Tsn(u32::MAX - 1);
        assert_eq!(Seq(3).tsn(initial), Tsn(1));
        assert_eq!(Seq(0).nearest(initial, Tsn(1)), Some(Seq(3)));
        assert_eq!(Seq(3).nearest(initial, Tsn(u32::MAX)), Some(Seq(1)));
        assert_eq!(Seq(3).nearest(initial, Tsn(u32::MAX - 2)), None);
        let far = Seq(7 << 32);
        assert_eq!(far.nearest(initial, far.tsn(initial).plus(5)), Some(Seq((7 << 32) + 5)));
    }
}
