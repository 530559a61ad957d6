//! The number by which everything about a path is looked up.

/// The index of a path in its association. Small, since each chunk in flight has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PathIndex(u16);

impl PathIndex {
    /// Indices of as many paths as there may be.
    pub(crate) const MAX: usize = u16::MAX as usize;

    /// `index` is less than [`MAX`](Self::MAX).
    #[expect(clippy::cast_possible_truncation, reason = "the number of paths is limited")]
    pub(crate) const fn new(index: usize) -> Self {
        debug_assert!(index < Self::MAX);
        PathIndex(index as u16)
    }

    /// The index as HEARTBEATs carry it.
    pub(crate) fn to_wire(self) -> u32 {
        self.0.into()
    }

    /// The reverse; the peer may have changed the number, so that no path has it.
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
    fn a_number_that_no_path_can_have_is_none() {
        assert_eq!(PathIndex::from_wire(PathIndex::new(7).to_wire()), Some(PathIndex::new(7)));
        assert_eq!(PathIndex::from_wire(1 << 16), None);
        assert_eq!(PathIndex::from_wire(u32::MAX), None);
    }
}
