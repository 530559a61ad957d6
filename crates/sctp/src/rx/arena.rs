//! Keeps payloads beyond the life of the packet they came in, many to a block, and uses blocks again.
//!
//! A block is free again when all payloads in it are gone; a reader that keeps up makes for no allocation at all. One
//! payload kept for long keeps its whole block: only those that will soon be read belong here. Invariant: no more than
//! [`MAX_FILLED`] filled blocks are remembered. Begin at [`Arena::keep`].

use bytes::BytesMut;

/// Bytes of the first block.
const BLOCK_MIN: usize = 2 * 1024;

/// Bytes of a block once readers were seen to hold several.
const BLOCK_MAX: usize = 64 * 1024;

/// Filled blocks that are remembered, to be used again.
const MAX_FILLED: usize = 16;

/// Copies payloads out of packets.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// What is left of the block being filled.
    block: BytesMut,
    /// Its size when it was empty.
    size: usize,
    /// Ends of filled blocks of the greatest size, the last filled one last.
    filled: Vec<BytesMut>,
}

impl Arena {
    /// A copy of `payload`, in the same block as the one before it if that has room.
    #[inline]
    pub(crate) fn keep(&mut self, payload: &[u8]) -> BytesMut {
        if self.block.capacity() < payload.len() {
            self.next_block(payload.len());
        }
        self.block.extend_from_slice(payload);
        self.block.split()
    }

    /// Makes room for `length` bytes: in this block if nobody holds anything of it, in a filled one that is free, or in a
    /// new one.
    #[cold]
    fn next_block(&mut self, length: usize) {
        if self.size >= length && self.block.try_reclaim(self.size) {
            return;
        }
        let block = std::mem::take(&mut self.block);
        if self.size == BLOCK_MAX {
            if self.filled.len() == MAX_FILLED {
                self.filled.remove(0);
            }
            self.filled.push(block);
        }
        // The last filled one that is free is the likeliest to be in the processor's cache.
        let free = self.filled.iter_mut().rposition(|b| b.try_reclaim(BLOCK_MAX));
        self.block = match free.filter(|_| length <= BLOCK_MAX) {
            Some(index) => self.filled.remove(index),
            None => {
                self.size = (4 * self.size).clamp(BLOCK_MIN, BLOCK_MAX).max(length);
                BytesMut::with_capacity(self.size)
            }
        };
    }

    /// Lets go of blocks that were kept to be used again.
    pub(crate) fn shrink(&mut self) {
        *self = Arena::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_keeps_up_is_served_from_one_small_block() {
        let mut arena = Arena::default();
        let first = arena.keep(&[1; 1000]).as_ptr();
        for n in 0..100 {
            let kept = arena.keep(&[n; 1000]);
            assert_eq!(kept[..], [n; 1000]);
            assert!(kept.as_ptr() == first || kept.as_ptr() == first.wrapping_add(1000));
        }
        assert_eq!(arena.size, BLOCK_MIN);
    }

    #[test]
    fn what_is_held_stays_as_it_was_and_blocks_that_are_free_are_used_again() {
        let mut arena = Arena::default();
        let held: Vec<_> = (0..200u8).map(|n| arena.keep(&[n; 1400])).collect();
        for (n, kept) in (0..200u8).zip(&held) {
            assert_eq!(kept[..], [n; 1400]);
        }
        assert_eq!(arena.size, BLOCK_MAX);
        let before: Vec<_> = held.iter().map(|kept| kept.as_ptr()).collect();
        drop(held);
        let again: Vec<_> = (0..100).map(|_| arena.keep(&[0; 1400])).collect();
        assert!(again.iter().filter(|kept| before.contains(&kept.as_ptr())).count() > 50);
    }

    #[test]
    fn no_more_blocks_are_remembered_than_the_limit() {
        let mut arena = Arena::default();
        let held: Vec<_> = (0..2000).map(|_| arena.keep(&[0; 1400])).collect();
        assert_eq!(arena.filled.len(), MAX_FILLED);
        drop(held);
        arena.shrink();
        assert_eq!((arena.filled.len(), arena.block.capacity()), (0, 0));
    }

    #[test]
    fn a_payload_longer_than_any_block_gets_one_of_its_own() {
        let mut arena = Arena::default();
        let long = vec![9; 2 * BLOCK_MAX];
        assert_eq!(arena.keep(&long)[..], long[..]);
        assert_eq!(arena.keep(&[1; 10])[..], [1; 10]);
    }
}
