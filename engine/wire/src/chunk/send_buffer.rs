//! Send-buffer advertisement, which reports to routers how much data of a flow waits to be sent. No standard defines this chunk. Its type
//! is 150, unless the network and the sender have agreed on another type.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 150  |   Occupancy   |       Length = 4 or 8         |
//! +---------------+---------------+-------------------------------+
//! |                 Backlog in octets (optional)                  |
//! +---------------------------------------------------------------+
//! ```
//!
//! The occupancy is the share of the send buffer that holds waiting data, in percent from 0 to 100. With the engine's form
//! `SendBufferForm::SeedTenths`, the field instead has a value from 0 to 10. It shows how many tenths of the used buffer hold data that
//! cannot be sent now. Because of the two highest bits of the type, a receiver that does not know the chunk skips it without a report.

use super::ChunkType;
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// A sender's advertisement of its send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendBuffer {
    /// [`SendBuffer::TYPE`], or another type that was agreed on.
    pub chunk_type: ChunkType,
    /// Occupancy of the send buffer: 0 to 100 percent, or 0 to 10 tenths.
    pub occupancy: u8,
    /// Octets that wait for their first transmission, if the chunk has this field.
    pub backlog: Option<u32>,
}

impl SendBuffer {
    /// The default chunk type.
    pub const TYPE: ChunkType = ChunkType(150);

    /// Returns the length of the chunk in octets, with or without a backlog.
    pub const fn len_with(backlog: bool) -> usize {
        if backlog { 8 } else { 4 }
    }

    /// Reads a chunk of the agreed type. Returns `None` if its length or its occupancy is invalid.
    pub fn parse(raw: &RawChunk<'_>) -> Option<SendBuffer> {
        let mut value = Reader::new(raw.value);
        let backlog = if raw.value.is_empty() { None } else { Some(value.u32()?) };
        let fits = value.rest().is_empty() && raw.flags <= 100;
        fits.then_some(SendBuffer { chunk_type: raw.chunk_type, occupancy: raw.flags, backlog })
    }
}

impl WriteChunk for SendBuffer {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(self.chunk_type, self.occupancy, |out| self.backlog.map_or(Ok(()), |b| out.u32(b)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::RawChunks;
    use crate::test_support::{hex, octets};

    fn read(bytes: &[u8]) -> Option<SendBuffer> {
        SendBuffer::parse(&RawChunks::new(bytes).next()?.ok()?)
    }

    #[test]
    fn both_forms_read_and_write() {
        let percent = SendBuffer { chunk_type: SendBuffer::TYPE, occupancy: 70, backlog: None };
        let backlog = SendBuffer { backlog: Some(0x0102_0304), ..percent };
        for (golden, chunk) in [("96460004", percent), ("9646000801020304", backlog)] {
            assert_eq!(read(&hex(golden)), Some(chunk));
            assert_eq!(octets(|out| chunk.write(out)), hex(golden));
            assert_eq!(golden.len() / 2, SendBuffer::len_with(chunk.backlog.is_some()));
        }
    }

    #[test]
    fn wrong_lengths_and_an_occupancy_over_100_percent_are_refused() {
        for wrong in ["96460006 01020000", "9646000c 0102030405060708", "96650004", "96ff0004"] {
            assert_eq!(read(&hex(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn a_receiver_that_does_not_know_the_type_skips_it_without_a_word() {
        let action = crate::UnrecognizedAction::for_chunk(SendBuffer::TYPE);
        assert!(!action.stops() && !action.reports());
    }

    proptest! {
        #[test]
        fn any_value_reads_back(kind: u8, occupancy in 0..=100u8, backlog: Option<u32>) {
            let chunk = SendBuffer { chunk_type: ChunkType(kind), occupancy, backlog };
            prop_assert_eq!(read(&octets(|out| chunk.write(out))), Some(chunk));
        }
    }
}
