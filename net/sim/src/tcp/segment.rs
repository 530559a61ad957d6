//! Segment of the model, with only the fields that matter.

use base::Time;

/// Limit on the ranges in an acknowledgement that also has a timestamp (RFC 2018 section 3).
pub(super) const SACK_BLOCKS_MAX: usize = 3;

/// A range of the stream: its first byte, and the byte behind its last.
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

/// One segment. The SYN takes no sequence number in this model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) is_syn: bool,
    /// Next expected byte; `None` only in the client's SYN.
    pub(super) ack: Option<u64>,
    /// Ranges received beyond `ack`, the newest first.
    pub(super) sacks: [Option<Range>; SACK_BLOCKS_MAX],
    /// True if a duplicate of received data caused this acknowledgement (RFC 2883).
    pub(super) is_of_duplicate: bool,
    /// Time at which this segment was sent.
    pub(super) at: Time,
    /// Time at which the acknowledged segment was sent (RFC 7323 section 4.3).
    pub(super) echo: Option<Time>,
    pub(super) piece: Piece,
}

impl Segment {
    /// Returns the length of the IP packet in bytes. Each SACK block takes eight bytes. The SACK option takes four more bytes,
    /// including its padding.
    pub(super) fn length(&self, header: usize) -> usize {
        let blocks = self.sacks.iter().flatten().count();
        let option = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        header + option + self.piece.len
    }
}

#[cfg(test)]
impl Segment {
    /// Returns an acknowledgement without data that has these ranges.
    pub(super) fn for_tests(ranges: &[Range]) -> Segment {
        let mut sacks = [None; SACK_BLOCKS_MAX];
        sacks.iter_mut().zip(ranges).for_each(|(place, range)| *place = Some(*range));
        let piece = Piece { seq: 0, len: 0 };
        Segment { is_syn: false, ack: None, sacks, is_of_duplicate: false, at: Time::ZERO, echo: None, piece }
    }
}
