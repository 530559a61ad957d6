//! The memory of all associations together: what it may be, and how near it is to that.
//!
//! Every association counts what it holds ([`Association::memory`](crate::association::Association::memory)); the endpoint
//! sums it up after each input and tells each association, before it works, how tight things are. Nothing received and
//! acknowledged is ever dropped for want of memory, and nothing taken for sending: what comes on top is refused instead.
//! Begin at [`Pressure::of`].

/// How near the memory in use is to the budget.
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

/// What an association may hold in each direction however short memory is, in bytes: with less it could not go on.
pub(crate) const FLOOR: usize = 8 * 1024;

impl Pressure {
    /// The pressure with `used` bytes of `budget`.
    pub(crate) fn of(used: usize, budget: usize) -> Pressure {
        if used >= budget {
            Pressure::Over
        } else if used >= budget - budget / 8 {
            Pressure::Full
        } else if used >= budget - budget / 4 {
            Pressure::Tight
        } else {
            Pressure::Calm
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
