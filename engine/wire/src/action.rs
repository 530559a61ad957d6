//! Treatment of a chunk or parameter of an unrecognised type (RFC 9260 sections 3.2 and 3.2.1).

use crate::ChunkType;

/// Action of a receiver for an unrecognised type, selected by the two highest bits of the type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnrecognizedAction {
    /// 00: for a chunk, stop processing the packet. For a parameter, stop processing the chunk. Do not
    /// report the type.
    StopSilently,
    /// 01: stop processing as for 00, but report the type.
    StopReport,
    /// 10: skip the chunk or parameter, and continue. Do not report the type.
    SkipSilently,
    /// 11: skip the chunk or parameter, and continue. Report the type.
    SkipReport,
}

impl UnrecognizedAction {
    /// Returns the action for an unrecognised chunk type.
    pub const fn for_chunk(chunk_type: ChunkType) -> UnrecognizedAction {
        Self::from_top_bits(chunk_type.0 >> 6)
    }

    /// Returns the action for an unrecognised parameter type.
    pub const fn for_parameter(ptype: u16) -> UnrecognizedAction {
        Self::from_top_bits((ptype >> 14) as u8)
    }

    /// Reports whether processing of the packet or chunk stops.
    pub const fn stops(self) -> bool {
        matches!(self, UnrecognizedAction::StopSilently | UnrecognizedAction::StopReport)
    }

    /// Reports whether the receiver must report the type to the packet's sender.
    pub const fn reports(self) -> bool {
        matches!(self, UnrecognizedAction::StopReport | UnrecognizedAction::SkipReport)
    }

    const fn from_top_bits(bits: u8) -> UnrecognizedAction {
        match bits & 3 {
            0 => UnrecognizedAction::StopSilently,
            1 => UnrecognizedAction::StopReport,
            2 => UnrecognizedAction::SkipSilently,
            _ => UnrecognizedAction::SkipReport,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_top_bits_choose_the_action() {
        use UnrecognizedAction::*;
        for (bits, action) in [(0u16, StopSilently), (1, StopReport), (2, SkipSilently), (3, SkipReport)] {
            assert_eq!(UnrecognizedAction::for_chunk(ChunkType((bits as u8) << 6 | 0x3f)), action);
            assert_eq!(UnrecognizedAction::for_parameter(bits << 14 | 0x3fff), action);
            assert_eq!(action.stops(), bits & 2 == 0);
            assert_eq!(action.reports(), bits & 1 == 1);
        }
    }
}
