//! A link with two directions of `netem`. Both directions have the same settings, except for cuts and the MTU.
//!
//! A link decides when and how often a packet arrives, and whether it is damaged. It never holds packets. Begin at
//! [`Link::offer`].

use base::{Ecn, Time};
use netem::{Arrival, Counters, DirectionConfig, Fate, LinkDirection, LossCause};
use rand_chacha::ChaCha12Rng;

/// A direction of a link. The order of the addresses in [`World::join`](crate::World::join) defines it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// From the first address to the second.
    Forward,
    /// From the second address to the first.
    Backward,
}

/// State of one direction, and its deviations from the link's settings.
#[derive(Clone, Debug, Default)]
struct DirectionState {
    direction: LinkDirection,
    cut: bool,
    /// Length of the longest IP packet in this direction, in bytes; `None` means the link's setting.
    mtu: Option<usize>,
}

/// A link between addresses.
#[derive(Clone, Debug)]
pub struct Link {
    /// Settings of both directions. They may change during the run.
    pub config: DirectionConfig,
    /// Counters of both directions together.
    pub counters: Counters,
    directions: [DirectionState; 2],
}

/// A packet that leaves the link: its arrival, and its ECN codepoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coming {
    pub(crate) arrival: Arrival,
    pub(crate) ecn: Ecn,
}

impl Link {
    pub(crate) fn new(config: DirectionConfig) -> Link {
        Link {
            config,
            counters: Counters::default(),
            directions: [DirectionState::default(), DirectionState::default()],
        }
    }

    pub(crate) fn set_cut(&mut self, direction: Direction, cut: bool) {
        self.directions[direction as usize].cut = cut;
    }

    pub(crate) fn set_mtu(&mut self, direction: Direction, mtu: usize) {
        self.directions[direction as usize].mtu = Some(mtu);
    }

    /// Returns the length of the longest IP packet in this direction, in bytes.
    pub fn mtu(&self, direction: Direction) -> usize {
        self.directions[direction as usize].mtu.unwrap_or(self.config.mtu)
    }

    /// Reports whether this direction is cut.
    pub fn is_cut(&self, direction: Direction) -> bool {
        self.config.cut || self.directions[direction as usize].cut
    }

    /// Returns the bytes of the packets in the queue, including the packet on the wire.
    pub(crate) fn waiting(&mut self, now: Time, direction: Direction) -> usize {
        self.directions[direction as usize].direction.queue(now).1
    }

    /// Counts a packet that is too long for the link.
    pub(crate) fn refuse(&mut self, length: usize) {
        self.counters.refuse(length, LossCause::Length);
    }

    /// Offers a packet of `length` bytes. Returns its arrivals.
    pub(crate) fn offer(
        &mut self,
        now: Time,
        direction: Direction,
        length: usize,
        ecn: Ecn,
        rng: &mut ChaCha12Rng,
    ) -> impl Iterator<Item = Coming> + use<> {
        let config = DirectionConfig { cut: self.is_cut(direction), ..self.config.clone() };
        let direction = &mut self.directions[direction as usize].direction;
        let passage = match direction.offer(now, &config, length, ecn, rng, &mut self.counters) {
            Fate::Passes(passage) => Some(passage),
            Fate::Lost(_) => None,
        };
        passage
            .into_iter()
            .flat_map(|passage| passage.arrivals().map(move |arrival| Coming { arrival, ecn: passage.ecn }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn a_cut_holds_in_one_direction() {
        let mut rng = ChaCha12Rng::from_seed([1; 32]);
        let mut link = Link::new(DirectionConfig::default());
        link.set_cut(Direction::Forward, true);
        assert_eq!(link.offer(Time::ZERO, Direction::Forward, 100, Ecn::NotEct, &mut rng).count(), 0);
        assert_eq!(link.offer(Time::ZERO, Direction::Backward, 100, Ecn::NotEct, &mut rng).count(), 1);
    }

    #[test]
    fn a_queue_is_of_one_direction() {
        let mut rng = ChaCha12Rng::from_seed([1; 32]);
        let mut link = Link::new(DirectionConfig { queue_packets: 1, ..DirectionConfig::default() });
        for (direction, arrivals) in
            [(Direction::Forward, 1), (Direction::Forward, 0), (Direction::Backward, 1)]
        {
            assert_eq!(link.offer(Time::ZERO, direction, 100, Ecn::NotEct, &mut rng).count(), arrivals);
        }
        assert_eq!(link.counters.lost_in_queue, 1);
    }
}
