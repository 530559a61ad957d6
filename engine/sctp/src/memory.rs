//! The memory of all associations together: what it may be, and how near it is to that.
//!
//! Every association counts what it holds ([`Association::memory`](crate::association::Association::memory)); the endpoint
//! sums it up after each input and tells each association, before it works, how tight things are. Nothing received and
//! acknowledged is ever dropped for want of memory, and nothing taken for sending: what comes on top is refused instead.
//!
//! Counts go by what the allocator gives, not by what was asked of it: [`heap`] and [`tree`] know the difference. Both say
//! rather too much than too little. Begin at [`Pressure::of`].

/// Memory in use, compared with the budget.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Pressure {
    /// Below three quarters.
    #[default]
    Calm,
    /// No buffer grows.
    Tight,
    /// From seven eighths on: no new association, buffers shrink to [`FLOOR`] as they empty.
    Full,
    /// The budget is used up: beyond its floor an association takes nothing, and gives up nothing.
    Over,
}

/// Bytes that an allocation of so many takes: glibc adds a word, and gives multiples of 16, 32 at least.
pub(crate) const fn heap(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => (bytes + 8).next_multiple_of(16),
    }
}

/// The same of a list with places for so many of `T`.
#[inline]
pub(crate) const fn list<T>(places: usize) -> usize {
    places * size_of::<T>() + if places > 0 { 16 } else { 0 }
}

/// Bytes of a `BTreeMap` with so many entries of so many bytes each, key and value together.
#[inline]
pub(crate) const fn tree(entries: usize, bytes: usize) -> usize {
    // A node has eleven places, of which five at least are filled. One in six leads to others, and needs room for that.
    let (node, links) = (heap(11 * bytes + 16), 12 * size_of::<usize>());
    if entries == 0 { 0 } else { node + entries * (node + links / 5) / 5 }
}

/// Bytes held cost no more than this many times themselves, and the first nodes of maps.
pub(crate) const COST_MOST: usize = 8;
pub(crate) const COST_BASE: usize = 4096;

/// Bytes that an association may hold in each direction even if memory is short: it could not go on with less.
pub(crate) const FLOOR: usize = 8 * 1024;

impl Pressure {
    /// The pressure with `used` bytes of `budget`.
    pub(crate) fn of(used: usize, budget: usize) -> Pressure {
        if used < budget - budget / 4 {
            Pressure::Calm
        } else if used >= budget {
            Pressure::Over
        } else if used >= budget - budget / 8 {
            Pressure::Full
        } else {
            Pressure::Tight
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_takes_a_multiple_of_sixteen_and_no_less_than_32() {
        assert_eq!([0, 1, 24, 25, 40, 41, 1400].map(heap), [0, 32, 32, 48, 48, 64, 1408]);
    }

    #[test]
    fn pressure_rises_at_three_quarters_seven_eighths_and_the_whole() {
        let at = |used| Pressure::of(used, 800);
        assert_eq!(
            [0, 599, 600, 699].map(at),
            [Pressure::Calm, Pressure::Calm, Pressure::Tight, Pressure::Tight]
        );
        assert_eq!(
            [700, 799, 800, 900].map(at),
            [Pressure::Full, Pressure::Full, Pressure::Over, Pressure::Over]
        );
    }
}
