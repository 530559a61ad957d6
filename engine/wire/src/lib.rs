//! SCTP packets, chunks, parameters and error causes as types.
//!
//! The crate covers RFC 9260 and these extensions:
//!
//! - AUTH (RFC 4895)
//! - ASCONF (RFC 5061)
//! - RE-CONFIG (RFC 6525)
//! - PR-SCTP (RFC 3758)
//! - I-DATA (RFC 8260)
//! - PAD (RFC 4820)
//! - SACK-immediately (RFC 7053)
//! - zero checksum (RFC 9653)
//! - the DTLS chunk (draft-ietf-tsvwg-sctp-dtls-chunk-03)
//!
//! Neither reading nor writing allocates memory. A parsed chunk borrows from the packet, and a writer fills
//! the caller's buffer. Received chunks and chunks to be sent have the same types. A parsed [`Init`] holds
//! its [`Parameters`] as octets, and an [`Init`] to be sent holds them as a slice of [`Parameter`]. Two
//! chunks are equal if they have the same content, even if their forms differ.
//!
//! No input causes a panic or an endless iteration. The crate does not check whether a value makes sense in
//! the state of an association.
//!
//! Begin with [`Packet::parse`] and [`PacketWriter::push`].

#![forbid(unsafe_code)]

mod action;
mod cause;
mod chunk;
mod crc;
mod ids;
mod list;
mod packet;
mod parameter;
pub mod pcapng;
mod reader;
mod record;
mod steer;
#[cfg(test)]
mod test_support;
mod tlv;
mod writer;

pub use action::UnrecognizedAction;
pub use cause::{Cause, CauseError, Causes, CausesIter};
pub use chunk::{
    Abort, Asconf, AsconfAck, Auth, Chunk, ChunkError, ChunkSet, ChunkType, CookieEcho, Cwr, DATA_HEADER_LEN,
    Data, Ecne, ErrorChunk, ForwardTsn, ForwardTsnStream, Fragment, GapBlock, Heartbeat, IDATA_HEADER_LEN,
    IData, IForwardTsn, IForwardTsnStream, Init, Pad, ReConfig, Sack, SendBuffer, Shutdown, ShutdownComplete,
    UnknownChunk,
};
pub use crc::crc32c;
pub use ids::{AsconfSerial, Fsn, Mid, Ppid, RequestSn, Ssn, StreamId, Tsn, VerificationTag};
pub use list::{List, ListItem, ListIter};
pub use packet::{
    COMMON_HEADER_LEN, ChecksumMode, Chunks, CommonHeader, Packet, PacketError, RawChunk, RawChunks,
};
pub use parameter::{KeyRoles, Parameter, ParameterError, Parameters, ParametersIter, ReconfigResult};
pub use record::{RECORD_OVERHEAD, RECORD_TAG_LEN, Record};
pub use steer::{Steer, steer};
pub use tlv::{CHUNK_HEADER_LEN, Tlv, TlvError, Tlvs, padded};
pub use writer::{AuthPlan, NoRoom, PacketWriter, WriteChunk, Writer};
