//! A segment, of which only what decides is kept.

use base::Time;

/// Ranges that an acknowledgement may name beside a timestamp (RFC 2018 section 3).
pub(super) const SACK_BLOCKS_MAX: usize = 3;

/// A range of the stream: its first byte, and the one behind its last.
pub(super) type Range = (u64, u64);

/// Bytes of the stream that leave in one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) seq: u64,
    pub(super) len: usize,
}

impl Piece {
    pub(super) fn end(self) -> u64 {
        self.seq + self.len as u64
    }
}

/// One segment. The SYN takes no sequence number here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) is_syn: bool,
    /// The next byte that is expected; `None` in the first SYN alone.
    pub(super) ack: Option<u64>,
    /// Ranges received beyond that, the newest first.
    pub(super) sacks: [Option<Range>; SACK_BLOCKS_MAX],
    /// The acknowledged data is a duplicate (RFC 2883).
    pub(super) is_of_duplicate: bool,
    /// Time at which it was sent.
    pub(super) at: Time,
    /// Time at which the segment was sent that this answers (RFC 7323 section 4.3).
    pub(super) echo: Option<Time>,
    pub(super) piece: Piece,
}

impl Segment {
    /// Bytes of the IP packet. Each block takes eight bytes, and the option itself four with its padding.
    pub(super) fn length(&self, header: usize) -> usize {
        let blocks = self.sacks.iter().flatten().count();
        let option = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        header + option + self.piece.len
    }
}

#[cfg(test)]
impl Segment {
    /// An acknowledgement without data that names these ranges.
    pub(super) fn for_tests(ranges: &[Range]) -> Segment {
        let mut sacks = [None; SACK_BLOCKS_MAX];
        sacks.iter_mut().zip(ranges).for_each(|(place, range)| *place = Some(*range));
        let piece = Piece { seq: 0, len: 0 };
        Segment { is_syn: false, ack: None, sacks, is_of_duplicate: false, at: Time::ZERO, echo: None, piece }
    }
}
