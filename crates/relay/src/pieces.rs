//! Bytes that came in pieces and wait to be taken: cheap while they pass, small while they stay.
//!
//! A piece is cut from a block that it shares with others received around the same time, perhaps of other connections. While its
//! reader keeps up that saves a copy; a piece that waits would keep the whole block. Invariant: pieces that share follow those that
//! do not. Begin at [`Pieces::push`] and [`Pieces::keep`].

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes that are copied together: what is left of a copy keeps all of it.
pub(crate) const COPY_MAX: usize = 4 * 1024;
/// Places that an empty list keeps for later.
const PLACES_KEPT: usize = 64;
/// Bytes that a piece may take beside its own and its place: an allocation, and a count of who shares it.
const PIECE_COST: usize = 96;

/// Pieces in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    list: VecDeque<Bytes>,
    /// How many of the first share their memory with nobody.
    own: usize,
    /// The last bytes, copied together; empty while the last piece shares.
    tail: BytesMut,
    bytes: usize,
}

impl Pieces {
    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.list.len() + usize::from(!self.tail.is_empty())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes of memory that they take beside what they share.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.tail.capacity() - self.tail.len()
            + self.count() * PIECE_COST
            + self.list.capacity() * size_of::<Bytes>()
    }

    /// Adds a piece as it is.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.flush_tail();
            self.bytes += piece.len();
            self.list.push_back(piece);
        }
    }

    /// Adds a piece that is to wait.
    pub(crate) fn push_kept(&mut self, piece: &[u8]) {
        self.keep();
        self.bytes += piece.len();
        self.copy(piece);
    }

    /// They wait: those that share memory are copied, and let go of it.
    pub(crate) fn keep(&mut self) {
        if self.own < self.list.len() {
            let shared = self.list.split_off(self.own);
            shared.iter().for_each(|piece| self.copy(piece));
        }
    }

    /// The first piece.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        if self.list.is_empty() {
            self.flush_tail();
        }
        let piece = self.list.pop_front()?;
        self.bytes -= piece.len();
        self.own = self.own.saturating_sub(1);
        self.shrink();
        Some(piece)
    }

    /// As many as `slices` holds; returns how many it filled.
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = Some(&self.tail[..]).filter(|tail| !tail.is_empty());
        let pieces = self.list.iter().map(|piece| &piece[..]).chain(tail);
        slices.iter_mut().zip(pieces).map(|(slot, piece)| *slot = IoSlice::new(piece)).count()
    }

    /// The first `taken` bytes are taken.
    pub(crate) fn advance(&mut self, taken: usize) {
        let mut left = taken.min(self.bytes);
        self.bytes -= left;
        while left > 0 {
            let Some(front) = self.list.front_mut() else {
                self.tail.advance(left);
                break;
            };
            let step = left.min(front.len());
            front.advance(step);
            left -= step;
            if front.is_empty() {
                self.list.pop_front();
                self.own = self.own.saturating_sub(1);
            }
        }
        self.shrink();
    }

    pub(crate) fn clear(&mut self) {
        *self = Pieces::default();
    }

    fn copy(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(COPY_MAX - self.tail.len()));
            self.tail.extend_from_slice(now);
            if self.tail.len() == COPY_MAX {
                self.flush_tail();
            }
            piece = later;
        }
    }

    fn flush_tail(&mut self) {
        if !self.tail.is_empty() {
            self.list.push_back(std::mem::take(&mut self.tail).freeze());
            self.own = self.list.len();
        }
    }

    fn shrink(&mut self) {
        if self.bytes == 0 {
            self.tail = BytesMut::new();
            if self.list.capacity() > PLACES_KEPT {
                self.list = VecDeque::new();
            }
        }
    }
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
        assert_eq!(pieces.pop().unwrap(), block[15..20]);
        pieces.advance(25);
        assert_eq!((pieces.bytes(), contents(&pieces)), (5, block[45..50].to_vec()));
        pieces.keep();
        assert_eq!(pieces.pop().unwrap(), block[45..50]);
        assert!(pieces.is_empty() && pieces.pop().is_none());
    }

    #[test]
    fn what_waits_lets_go_of_the_blocks_it_came_in() {
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
    fn an_empty_list_gives_its_places_back() {
        let mut pieces = Pieces::default();
        (0..2000).for_each(|_| pieces.push(Bytes::from_static(b".")));
        assert!(pieces.memory() > 2000 * size_of::<Bytes>());
        pieces.advance(2000);
        assert!(pieces.memory() <= PLACES_KEPT * size_of::<Bytes>());
    }
}
