//! Type, length, value: the frame of parameters and error causes (RFC 9260 sections 3.2.1 and 3.3.10).
//!
//! [`Tlvs`] separates the items and does not read their values. It ends after its first error. Each item has
//! at least four octets, so the iteration always ends.

use crate::reader::Reader;

/// Length of a chunk's header in octets: type, flags, length. The header of a parameter or cause has the same
/// length.
pub const CHUNK_HEADER_LEN: usize = 4;

/// Returns `len` rounded up to the next multiple of four, as the padding of chunks and parameters requires.
pub const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// One received parameter or cause with an uninterpreted value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tlv<'a> {
    /// Parameter type or cause code.
    pub kind: u16,
    /// The value, without header and padding.
    pub value: &'a [u8],
    /// Header and value, without padding. A report of an unrecognised parameter quotes these octets.
    pub bytes: &'a [u8],
}

/// Reasons why a parameter or cause has no valid frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlvError {
    /// The length field is below four, or runs past the end of the chunk.
    #[error("type {kind:#06x} claims {length} octets where 4 to {available} are possible")]
    Length {
        /// Parameter type or cause code.
        kind: u16,
        /// The value of the length field.
        length: u16,
        /// Octets left in the chunk from this header on.
        available: usize,
    },
    /// One to three octets are left over, which are too few for a header.
    #[error("{count} octets left over behind the last type-length-value")]
    LeftOver {
        /// Number of these octets.
        count: usize,
    },
}

/// Iterator over parameters or causes with uninterpreted values.
#[derive(Clone, Copy, Debug)]
pub struct Tlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Tlvs<'a> {
        Tlvs { rest: bytes }
    }

    /// Returns the octets that follow the items read so far.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn cut(&mut self) -> Result<Tlv<'a>, TlvError> {
        let all = std::mem::take(&mut self.rest);
        let mut head = Reader::new(all);
        let (Some(kind), Some(length)) = (head.u16(), head.u16()) else {
            return Err(TlvError::LeftOver { count: all.len() });
        };
        let len = usize::from(length);
        let (Some(bytes), Some(value)) = (all.get(..len), all.get(CHUNK_HEADER_LEN..len)) else {
            return Err(TlvError::Length { kind, length, available: all.len() });
        };
        //= rfc9260#3.2.1-3
        self.rest = all.get(padded(len)..).unwrap_or_default();
        Ok(Tlv { kind, value, bytes })
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, TlvError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() { None } else { Some(self.cut()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    //= rfc9260#3.2.1-1 3.2.1-3
    fn padding_separates_parameters_and_may_be_missing_after_the_last() {
        let bytes = [0, 1, 0, 5, 9, 0, 0, 0, 0x80, 2, 0, 6, 7, 8];
        let all: Vec<_> = Tlvs::new(&bytes).map(|t| t.map(|t| (t.kind, t.value.to_vec()))).collect();
        assert_eq!(all, [Ok((1, vec![9])), Ok((0x8002, vec![7, 8]))]);
    }

    #[test]
    fn a_length_below_four_ends_the_walk() {
        for length in 0..4 {
            let mut walk = Tlvs::new(&[0, 1, 0, 0, 0, 2, 0, 4]);
            let bytes = [0, 1, 0, length, 0, 2, 0, 4];
            walk.rest = &bytes;
            let error = TlvError::Length { kind: 1, length: length.into(), available: 8 };
            assert_eq!(walk.next(), Some(Err(error)));
            assert_eq!(walk.next(), None);
        }
    }

    #[test]
    fn a_length_past_the_end_ends_the_walk() {
        let mut walk = Tlvs::new(&[0, 1, 0, 9, 0, 2, 0, 4]);
        assert_eq!(walk.next(), Some(Err(TlvError::Length { kind: 1, length: 9, available: 8 })));
        assert_eq!(walk.next(), None);
    }

    #[test]
    fn stray_octets_behind_the_last_are_an_error() {
        let mut walk = Tlvs::new(&[0, 1, 0, 4, 0, 2, 0]);
        assert!(walk.next().is_some_and(|t| t.is_ok()));
        assert_eq!(walk.next(), Some(Err(TlvError::LeftOver { count: 3 })));
        assert_eq!(walk.next(), None);
    }
}
