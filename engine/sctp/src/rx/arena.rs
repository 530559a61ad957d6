//! Memory for payloads that are needed longer than the packet in which they arrived. Many payloads share a block, and blocks
//! are reused.
//!
//! A block is free again when all its payloads have been released. If the reader keeps up with the arrivals, no allocation is
//! needed. One payload that is kept for long keeps its whole block, so only payloads that will be read soon belong here. The
//! limits on the size of blocks and on the number of filled blocks are parts of the receive buffer. Begin at [`Arena::keep`].

use bytes::BytesMut;

use crate::memory::list;

/// Size of the first block in bytes.
const BLOCK_MIN: usize = 2 * 1024;

/// Maximum size of a block in bytes. Blocks reach this size after the reader has held several blocks.
const BLOCK_MAX: usize = 64 * 1024;

/// Divisor of the receive buffer. The quotient, rounded up to a power of two, limits the size of a block.
const BLOCK_PART: usize = 16;

/// Divisor of the receive buffer. The quotient limits the total size of the filled blocks that are kept for reuse.
const FILLED_PART: usize = 4;

/// Maximum number of filled blocks that are kept.
const MAX_FILLED: usize = 16;

/// Blocks of memory for copies of payloads.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Unused rest of the current block, in which new payloads are stored.
    block: BytesMut,
    /// Size of the current block when it was empty, in bytes.
    size: usize,
    /// Filled blocks of the maximum size, in the order in which they were filled. Each handle refers to the end of its block.
    filled: Vec<BytesMut>,
    /// Maximum size of a block in bytes.
    max: usize,
    /// Limit on the number of filled blocks that are kept.
    max_filled: usize,
}

impl Arena {
    /// Creates an arena for a receive buffer of `buffer` bytes.
    pub(crate) fn new(buffer: usize) -> Arena {
        let max = (buffer / BLOCK_PART).next_power_of_two().clamp(BLOCK_MIN, BLOCK_MAX);
        let max_filled = (buffer / FILLED_PART / max).clamp(1, MAX_FILLED);
        Arena { block: BytesMut::new(), size: 0, filled: Vec::new(), max, max_filled }
    }

    /// Returns the memory of the arena in bytes: the current block, the filled blocks and their list.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        self.size + self.filled.len() * self.max + list::<BytesMut>(self.filled.capacity())
    }

    /// Returns the number of bytes in blocks that `payloads` payloads can keep in use, if each payload is in another block.
    #[inline]
    pub(crate) fn pinned_by(&self, payloads: usize) -> usize {
        payloads * self.size.min(self.max)
    }

    /// Returns a copy of `payload`. If the current block has no room for the copy, another block becomes the current block.
    #[inline]
    pub(crate) fn keep(&mut self, payload: &[u8]) -> BytesMut {
        if self.block.capacity() < payload.len() {
            self.next_block(payload.len());
        }
        self.block.extend_from_slice(payload);
        self.block.split()
    }

    /// Provides a block with room for `length` bytes. This is the current block if none of its payloads is held, otherwise a
    /// free filled block, otherwise a new block.
    #[cold]
    fn next_block(&mut self, length: usize) {
        if self.size >= length && self.block.try_reclaim(self.size) {
            return;
        }
        let block = std::mem::take(&mut self.block);
        if self.size == self.max {
            if self.filled.len() == self.max_filled {
                self.filled.remove(0);
            }
            self.filled.push(block);
        }
        // The free block that was filled last is the most likely one to be in the processor's cache.
        let free = self.filled.iter_mut().rposition(|b| b.try_reclaim(self.max));
        self.block = match free.filter(|_| length <= self.max) {
            Some(index) => {
                self.size = self.max;
                self.filled.remove(index)
            }
            None => {
                self.size = (4 * self.size).clamp(BLOCK_MIN, self.max).max(length);
                BytesMut::with_capacity(self.size)
            }
        };
    }

    /// Releases the current block and the filled blocks.
    pub(crate) fn shrink(&mut self) {
        (self.block, self.size, self.filled) = (BytesMut::new(), 0, Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_keeps_up_is_served_from_one_small_block() {
        let mut arena = Arena::new(16 << 20);
        let first = arena.keep(&[1; 1000]).as_ptr();
        for n in 0..100 {
            let kept = arena.keep(&[n; 1000]);
            assert_eq!(kept[..], [n; 1000]);
            assert!(kept.as_ptr() == first || kept.as_ptr() == first.wrapping_add(1000));
        }
        assert_eq!(arena.size, BLOCK_MIN);
    }

    #[test]
    fn held_data_stays_unchanged_and_free_blocks_are_reused() {
        let mut arena = Arena::new(16 << 20);
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
        let mut arena = Arena::new(16 << 20);
        let held: Vec<_> = (0..2000).map(|_| arena.keep(&[0; 1400])).collect();
        assert_eq!(arena.filled.len(), MAX_FILLED);
        assert!(arena.memory() >= (MAX_FILLED + 1) * BLOCK_MAX);
        drop(held);
        arena.shrink();
        assert_eq!((arena.filled.len(), arena.block.capacity()), (0, 0));
    }

    #[test]
    fn a_payload_longer_than_any_block_gets_one_of_its_own() {
        let mut arena = Arena::new(16 << 20);
        let long = vec![9; 2 * BLOCK_MAX];
        assert_eq!(arena.keep(&long)[..], long[..]);
        assert_eq!(arena.keep(&[1; 10])[..], [1; 10]);
    }
}
