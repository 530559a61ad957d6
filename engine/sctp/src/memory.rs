//! Memory of all associations together, and its pressure on their buffers.
//!
//! Each association counts the bytes that it holds ([`Association::memory`](crate::association::Association::memory)). The
//! endpoint updates the sum after each input, and passes the resulting pressure to an association before the association
//! works. If memory is short, further data is refused. Data that was received and acknowledged, or accepted for sending,
//! is never dropped for lack of memory.
//!
//! The counts use the sizes of the allocator's blocks, which exceed the requested sizes. [`heap`] and [`tree`] estimate
//! block sizes. Both estimates tend to exceed the true sizes. Begin at [`Pressure::of`].

/// Memory in use, compared with the budget.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Pressure {
    /// Less than three quarters of the budget.
    #[default]
    Calm,
    /// Three quarters or more: no buffer grows.
    Tight,
    /// Seven eighths or more: no association begins, and buffers shrink to [`FLOOR`] as they empty.
    Full,
    /// The whole budget or more: an association accepts no data beyond [`FLOOR`], and keeps the data that it holds.
    Over,
}

/// Returns the number of bytes that an allocation of `bytes` bytes occupies. glibc adds a word of 8 bytes, and rounds up
/// to a multiple of 16 bytes, with a minimum of 32.
pub(crate) const fn heap(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => (bytes + 8).next_multiple_of(16),
    }
}

/// Returns the number of bytes that a list occupies, if its capacity is `places` elements of type `T`.
#[inline]
pub(crate) const fn list<T>(places: usize) -> usize {
    places * size_of::<T>() + if places > 0 { 16 } else { 0 }
}

/// Returns the number of bytes that a `BTreeMap` with `entries` entries occupies. `bytes` is the size of an entry: key and
/// value together.
#[inline]
pub(crate) const fn tree(entries: usize, bytes: usize) -> usize {
    // A node has eleven places, of which five or more are filled. One node in six is an inner node, which also needs room
    // for links to its children.
    let (node, links) = (heap(11 * bytes + 16), 12 * size_of::<usize>());
    if entries == 0 { 0 } else { node + entries * (node + links / 5) / 5 }
}

/// Upper bound of the memory that an association uses for each byte of data that it holds, in bytes. [`COST_BASE`] comes
/// in addition.
pub(crate) const COST_MOST: usize = 8;
/// Memory of the first nodes of an association's maps, in bytes.
pub(crate) const COST_BASE: usize = 4096;

/// Bytes that an association may hold in each direction even if memory is short. With fewer bytes, the association could
/// make no progress.
pub(crate) const FLOOR: usize = 8 * 1024;

impl Pressure {
    /// Returns the pressure if `used` bytes of `budget` are in use.
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
