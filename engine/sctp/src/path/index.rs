//! Index of a path, which identifies the path within its association.

/// Index of a path in its association. The type is small because each chunk in flight holds an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PathIndex(u16);

impl PathIndex {
    /// Exclusive upper bound of an index.
    pub(crate) const MAX: usize = u16::MAX as usize;

    /// Creates an index from `index`, which must be less than [`MAX`](Self::MAX).
    #[expect(clippy::cast_possible_truncation, reason = "the number of paths is limited")]
    pub(crate) const fn new(index: usize) -> Self {
        debug_assert!(index < Self::MAX);
        PathIndex(index as u16)
    }

    /// Returns the index as HEARTBEATs carry it.
    pub(crate) fn to_wire(self) -> u32 {
        self.0.into()
    }

    /// Reads an index from a HEARTBEAT ACK; returns `None` if the number has more than 16 bits. The peer may
    /// have changed the number, so a path with the returned index need not exist.
    pub(crate) fn from_wire(index: u32) -> Option<Self> {
        u16::try_from(index).ok().map(PathIndex)
    }

    #[inline]
    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_number_beyond_16_bits_is_refused() {
        assert_eq!(PathIndex::from_wire(PathIndex::new(7).to_wire()), Some(PathIndex::new(7)));
        assert_eq!(PathIndex::from_wire(1 << 16), None);
        assert_eq!(PathIndex::from_wire(u32::MAX), None);
    }
}
