//! Bytes that arrived in pieces and wait to be read. Pieces that are read soon cost no copy, and pieces that wait use little memory.
//!
//! A piece is a part of a block. Other pieces received around the same time, perhaps of other connections, share this block. While the
//! reader keeps up, sharing saves a copy. A piece that waits would keep the whole block in memory, so waiting pieces are copied. Begin at
//! [`Pieces::push`] and [`Pieces::keep`].

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Limit on the bytes of one copy. A partly read copy keeps all its memory.
pub(crate) const COPY_MAX: usize = 4 * 1024;
/// Capacity, in pieces, that an empty list keeps for later.
const PLACES_KEPT: usize = 32;
/// Number of pieces at which short pieces are copied together, because each piece takes a place in the list.
const MANY: usize = 128;
/// Mean length in bytes below which pieces are short.
const SHORT: usize = 512;
/// Memory of a piece in bytes besides its own bytes and its place: an allocation and a reference count.
const PIECE_COST: usize = 96;

/// Pieces in the order of their arrival. Copied pieces come first, and pieces that share memory follow.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    copied: VecDeque<Bytes>,
    /// The last copy, to which bytes may be added.
    tail: BytesMut,
    shared: VecDeque<Bytes>,
    shared_bytes: usize,
    /// Number of bytes of all pieces.
    bytes: usize,
}

impl Pieces {
    /// Returns the number of bytes of all pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of pieces.
    pub(crate) fn count(&self) -> usize {
        self.copied.len() + usize::from(!self.tail.is_empty()) + self.shared.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the memory of the pieces in bytes, without memory that they share with other pieces.
    pub(crate) fn memory(&self) -> usize {
        let places = self.copied.capacity() + self.shared.capacity();
        self.bytes + self.tail.capacity() - self.tail.len()
            + self.count() * PIECE_COST
            + places * size_of::<Bytes>()
    }

    /// Adds a piece without a copy.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len();
        self.shared_bytes += piece.len();
        self.shared.push_back(piece);
    }

    /// Adds a piece without a copy. If many short pieces wait, copies them together.
    pub(crate) fn push_or_keep(&mut self, piece: Bytes) {
        self.push(piece);
        if self.shared.len() >= MANY && self.shared_bytes < SHORT * self.shared.len() {
            self.keep();
        }
    }

    /// Adds a copy of a piece that will wait.
    pub(crate) fn push_kept(&mut self, piece: &[u8]) {
        self.keep();
        self.bytes += piece.len();
        self.copy(piece);
    }

    /// Copies all pieces that share memory, because they will wait. The copies release the shared memory.
    pub(crate) fn keep(&mut self) {
        self.shared_bytes = 0;
        std::mem::take(&mut self.shared).iter().for_each(|piece| self.copy(piece));
    }

    /// Removes and returns the first piece.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        if self.copied.is_empty() {
            self.flush_tail();
        }
        let piece = self.copied.pop_front().or_else(|| {
            let piece = self.shared.pop_front()?;
            self.shared_bytes -= piece.len();
            Some(piece)
        })?;
        self.bytes -= piece.len();
        self.shrink();
        Some(piece)
    }

    /// Fills `slices` with the first pieces. Returns the number of filled slices.
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = Some(&self.tail[..]).filter(|tail| !tail.is_empty());
        let [copied, shared] = [&self.copied, &self.shared].map(|list| list.iter().map(|piece| &piece[..]));
        let pieces = copied.chain(tail).chain(shared);
        slices.iter_mut().zip(pieces).map(|(slot, piece)| *slot = IoSlice::new(piece)).count()
    }

    /// Removes the first `taken` bytes.
    pub(crate) fn advance(&mut self, taken: usize) {
        let taken = taken.min(self.bytes);
        self.bytes -= taken;
        let left = advance_list(&mut self.copied, taken);
        let of_tail = left.min(self.tail.len());
        self.tail.advance(of_tail);
        self.shared_bytes -= left - of_tail;
        advance_list(&mut self.shared, left - of_tail);
        self.shrink();
    }

    pub(crate) fn clear(&mut self) {
        *self = Pieces::default();
    }

    fn copy(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(COPY_MAX - self.tail.len()));
            self.grow_tail(now.len());
            self.tail.extend_from_slice(now);
            if self.tail.len() == COPY_MAX {
                self.flush_tail();
            }
            piece = later;
        }
    }

    /// Makes room in the last copy. A copy that grows will likely be filled, so it gets the full size [`COPY_MAX`].
    fn grow_tail(&mut self, bytes: usize) {
        if self.tail.capacity() - self.tail.len() < bytes {
            let size = if self.tail.is_empty() { bytes } else { COPY_MAX };
            let begun = std::mem::replace(&mut self.tail, BytesMut::with_capacity(size));
            self.tail.extend_from_slice(&begun);
        }
    }

    fn flush_tail(&mut self) {
        if !self.tail.is_empty() {
            self.copied.push_back(std::mem::take(&mut self.tail).freeze());
        }
    }

    fn shrink(&mut self) {
        if self.bytes == 0 {
            self.tail = BytesMut::new();
            for list in [&mut self.copied, &mut self.shared] {
                if list.capacity() > PLACES_KEPT {
                    *list = VecDeque::new();
                }
            }
        }
    }
}

/// Removes up to `bytes` from the front of the list. Returns the number of bytes that the list lacked.
fn advance_list(list: &mut VecDeque<Bytes>, mut bytes: usize) -> usize {
    while bytes > 0 {
        let Some(front) = list.front_mut() else { break };
        let step = bytes.min(front.len());
        front.advance(step);
        bytes -= step;
        if front.is_empty() {
            list.pop_front();
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(pieces: &Pieces) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); 64];
        let filled = pieces.fill(&mut slices);
        slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn bytes_keep_their_order_however_they_are_added_and_taken() {
        let mut pieces = Pieces::default();
        let block = Bytes::from((0..=255).collect::<Vec<u8>>());
        pieces.push(block.slice(0..10));
        pieces.push_kept(&block[10..20]);
        pieces.push(block.slice(20..30));
        pieces.push(Bytes::new());
        pieces.keep();
        pieces.push_kept(&block[30..40]);
        pieces.push(block.slice(40..50));
        assert_eq!(contents(&pieces), block[..50]);
        pieces.advance(15);
        assert_eq!(contents(&pieces), block[15..50]);
        assert_eq!(pieces.pop().unwrap(), block[15..40]);
        pieces.advance(5);
        assert_eq!((pieces.bytes(), contents(&pieces)), (5, block[45..50].to_vec()));
        pieces.keep();
        assert_eq!(pieces.pop().unwrap(), block[45..50]);
        assert!(pieces.is_empty() && pieces.pop().is_none());
    }

    #[test]
    fn waiting_data_releases_the_blocks_it_arrived_in() {
        let mut pieces = Pieces::default();
        let blocks: Vec<Bytes> = (0..50).map(|n| Bytes::from(vec![n; 60_000])).collect();
        blocks.iter().for_each(|block| pieces.push(block.slice(0..1400)));
        assert!(blocks.iter().all(|block| !block.is_unique()));
        pieces.keep();
        assert!(blocks.iter().all(Bytes::is_unique));
        assert_eq!((pieces.bytes(), pieces.count()), (70_000, 70_000_usize.div_ceil(COPY_MAX)));
        pieces.push(blocks[0].slice(0..1));
        pieces.push_kept(b"x");
        assert!(blocks[0].is_unique());
    }

    #[test]
    fn an_emptied_list_releases_its_memory() {
        let mut pieces = Pieces::default();
        let piece = Bytes::from(vec![0; SHORT]);
        (0..2000).for_each(|_| pieces.push(piece.clone()));
        assert!(pieces.memory() > 2000 * size_of::<Bytes>());
        pieces.advance(2000 * SHORT);
        assert!(pieces.memory() <= 2 * PLACES_KEPT * size_of::<Bytes>());
    }

    #[test]
    fn many_short_pieces_are_copied_together() {
        let mut pieces = Pieces::default();
        let block = Bytes::from((0..10_000).map(|n| n as u8).collect::<Vec<_>>());
        (0..block.len()).for_each(|at| pieces.push_or_keep(block.slice(at..at + 1)));
        assert!(pieces.count() < MANY + 10, "{}", pieces.count());
        assert!(
            pieces.memory() < 2 * block.len() + MANY * (PIECE_COST + 2 * size_of::<Bytes>()),
            "{}",
            pieces.memory()
        );
        for byte in &block {
            let mut slices = [IoSlice::new(&[])];
            assert_eq!((pieces.fill(&mut slices), slices[0][0]), (1, *byte));
            pieces.advance(1);
        }
    }
}
