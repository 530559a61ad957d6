//! The assignment of associations to engines on several threads.
//!
//! Engines on several threads share no state, so the fields of a packet alone must select the engine. A packet of an association carries
//! the local verification tag, which selects the shard. The tag of an INIT is zero, so the ports and the source address of the INIT select
//! the shard. The engine of this shard then chooses a local tag that selects the same shard. Begin at [`Shard`].

use std::net::IpAddr;
use std::num::NonZeroU8;

/// One of `count` equal parts into which the associations of a host are divided. Invariant: index < count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shard {
    index: u8,
    count: NonZeroU8,
}

impl Shard {
    /// The only shard of a host with one engine.
    pub const WHOLE: Shard = Shard { index: 0, count: NonZeroU8::MIN };

    /// Returns all of `count` shards, in order.
    pub fn all(count: NonZeroU8) -> impl Iterator<Item = Shard> {
        (0..count.get()).map(move |index| Shard { index, count })
    }

    /// Returns the index of this shard, from 0.
    pub const fn index(self) -> u8 {
        self.index
    }

    /// Returns the number of shards.
    pub const fn count(self) -> NonZeroU8 {
        self.count
    }

    /// Returns the shard of the associations whose local verification tag is `tag`. The result has the same shard count as `self`.
    #[must_use]
    pub const fn of_tag(self, tag: u32) -> Shard {
        self.sibling(tag)
    }

    /// Returns the shard of an association that is not set up yet. The peer's INIT goes to this shard, and a local attempt to connect
    /// should begin in this shard. A peer that restarts may send its INIT from another of its addresses, so the INIT may go to another
    /// shard. In that case, the rules of restart do not apply. The earlier association ends when its packets get no answer: the peer
    /// discards packets with the earlier tag (RFC 9260 section 8.5).
    #[must_use]
    pub fn of_peer(self, ports: (u16, u16), peer: IpAddr) -> Shard {
        let address = match peer.to_canonical() {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => ip.to_bits() as u32,
        };
        self.sibling(address.wrapping_add(u32::from(ports.0)).wrapping_add(u32::from(ports.1)))
    }

    /// Returns a tag of this shard that differs from `random` by no more than the number of shards. The tag is never 0.
    #[must_use]
    pub const fn tag_near(self, random: u32) -> u32 {
        let count = self.count.get() as u32;
        let low = random - random % count;
        let tag = match low.checked_add(self.index as u32) {
            Some(tag) => tag,
            None => low - count + self.index as u32,
        };
        if tag == 0 { count } else { tag }
    }

    const fn sibling(self, number: u32) -> Shard {
        let index = (number % self.count.get() as u32) as u8;
        Shard { index, count: self.count }
    }
}

impl Default for Shard {
    fn default() -> Self {
        Shard::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(count: u8) -> impl Iterator<Item = Shard> {
        Shard::all(NonZeroU8::new(count).unwrap())
    }

    #[test]
    fn every_tag_that_a_shard_makes_leads_back_to_it_and_none_is_zero() {
        for count in [1, 2, 3, 7, 64, 255] {
            for shard in shards(count) {
                for random in [0, 1, 2, 254, 255, 256, 1 << 31, u32::MAX - 255, u32::MAX - 1, u32::MAX] {
                    let tag = shard.tag_near(random);
                    assert_ne!(tag, 0);
                    assert_eq!(shard.of_tag(tag), shard, "{random} of {count}");
                }
            }
        }
    }

    #[test]
    fn swapped_ports_map_to_the_same_shard_and_peers_spread_over_all_shards() {
        let first = shards(4).next().unwrap();
        let peer = |n: u8| IpAddr::from([192, 0, 2, n]);
        assert_eq!(first.of_peer((7, 40_001), peer(1)), first.of_peer((40_001, 7), peer(1)));
        let spread: Vec<u8> = (0..4).map(|n| first.of_peer((36_412, 36_412), peer(n)).index()).collect();
        assert_eq!(spread, [0, 1, 2, 3]);
    }
}
