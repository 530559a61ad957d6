//! Chunks, with one file for each type. Each file has the layout, the struct, the parser, the writer and their tests.
//!
//! Begin with [`Chunk`].

mod abort;
mod asconf;
mod asconf_ack;
mod auth;
mod chunk_type;
mod cookie_ack;
mod cookie_echo;
mod cwr;
mod data;
mod ecne;
mod error;
mod forward_tsn;
mod heartbeat;
mod i_data;
mod i_forward_tsn;
mod init;
mod pad;
mod re_config;
mod sack;
mod send_buffer;
mod shutdown;
mod shutdown_ack;
mod shutdown_complete;
mod unknown;

pub use abort::Abort;
pub use asconf::Asconf;
pub use asconf_ack::AsconfAck;
pub use auth::Auth;
pub use chunk_type::{ChunkSet, ChunkType};
pub use cookie_echo::CookieEcho;
pub use cwr::Cwr;
pub use data::{DATA_HEADER_LEN, Data};
pub use ecne::Ecne;
pub use error::ErrorChunk;
pub use forward_tsn::{ForwardTsn, ForwardTsnStream};
pub use heartbeat::Heartbeat;
pub use i_data::{Fragment, IDATA_HEADER_LEN, IData};
pub use i_forward_tsn::{IForwardTsn, IForwardTsnStream};
pub use init::Init;
pub use pad::Pad;
pub use re_config::ReConfig;
pub use sack::{GapBlock, Sack};
pub use send_buffer::SendBuffer;
pub use shutdown::Shutdown;
pub use shutdown_complete::ShutdownComplete;
pub use unknown::UnknownChunk;

use crate::packet::RawChunk;
use crate::parameter::ParameterError;
use crate::tlv::CHUNK_HEADER_LEN;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// A chunk, received or to be sent. A `match` may list all variants without a wildcard. A new variant changes the result for chunks that
/// earlier were [`Chunk::Unknown`], so a new variant requires a breaking release in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunk<'a> {
    /// User data (RFC 9260 section 3.3.1).
    Data(Data<'a>),
    /// Opens an association (section 3.3.2).
    Init(Init<'a>),
    /// Answers an INIT (section 3.3.3).
    InitAck(Init<'a>),
    /// Acknowledges DATA (section 3.3.4).
    Sack(Sack<'a>),
    /// Probes a path (section 3.3.5).
    Heartbeat(Heartbeat<'a>),
    /// Answers a HEARTBEAT (section 3.3.6).
    HeartbeatAck(Heartbeat<'a>),
    /// Ends the association at once (section 3.3.7).
    Abort(Abort<'a>),
    /// Begins a graceful shutdown (section 3.3.8).
    Shutdown(Shutdown),
    /// Answers a SHUTDOWN (section 3.3.9).
    ShutdownAck,
    /// Reports errors (section 3.3.10).
    Error(ErrorChunk<'a>),
    /// Returns the State Cookie (section 3.3.11).
    CookieEcho(CookieEcho<'a>),
    /// Answers a COOKIE ECHO (section 3.3.12).
    CookieAck,
    /// Explicit congestion notification echo (reserved in RFC 9260 section 3.2).
    Ecne(Ecne),
    /// Congestion window reduced (reserved in RFC 9260 section 3.2).
    Cwr(Cwr),
    /// Completes a graceful shutdown (section 3.3.13).
    ShutdownComplete(ShutdownComplete),
    /// Authenticates the chunks that follow it (RFC 4895).
    Auth(Auth<'a>),
    /// Requests changes of addresses (RFC 5061).
    Asconf(Asconf<'a>),
    /// Answers an ASCONF (RFC 5061).
    AsconfAck(AsconfAck<'a>),
    /// Resets or adds streams, or answers such a request (RFC 6525).
    ReConfig(ReConfig<'a>),
    /// Lengthens the packet (RFC 4820).
    Pad(Pad),
    /// Reports abandoned DATA (RFC 3758).
    ForwardTsn(ForwardTsn<'a>),
    /// User data that may be interleaved (RFC 8260).
    IData(IData<'a>),
    /// Reports abandoned I-DATA (RFC 8260).
    IForwardTsn(IForwardTsn<'a>),
    /// Any other chunk type.
    Unknown(UnknownChunk<'a>),
}

/// Reasons why a chunk cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// One to three octets follow the last chunk.
    #[error("{count} octets left over behind the last chunk")]
    LeftOver {
        /// Number of these octets.
        count: usize,
    },
    /// The length field is below four, or runs past the end of the packet.
    #[error("{chunk_type:?} chunk claims {length} octets where 4 to {available} are possible")]
    Length {
        /// The chunk's type.
        chunk_type: ChunkType,
        /// The value of the length field.
        length: u16,
        /// Octets left in the packet from this chunk's header on.
        available: usize,
    },
    /// The chunk is shorter than its type requires.
    #[error("{chunk_type:?} chunk of {length} octets, where its type takes at least {minimum}")]
    TooShort {
        /// The chunk's type.
        chunk_type: ChunkType,
        /// The chunk's length with header, in octets.
        length: usize,
        /// The minimum length of the chunk's type including the header, in octets.
        minimum: usize,
    },
    /// The counts or the list in the chunk do not match its length.
    #[error("{chunk_type:?} chunk of {length} octets does not hold whole entries, or not as many as it says")]
    List {
        /// The chunk's type.
        chunk_type: ChunkType,
        /// The chunk's length with header, in octets.
        length: usize,
    },
    /// A mandatory parameter of the chunk is malformed or missing.
    #[error("{chunk_type:?} chunk without its mandatory parameter: {error}")]
    Parameter {
        /// The chunk's type.
        chunk_type: ChunkType,
        /// The error of the parameter.
        error: ParameterError,
    },
}

impl<'a> Chunk<'a> {
    pub(crate) fn parse(raw: &RawChunk<'a>) -> Result<Chunk<'a>, ChunkError> {
        Ok(match raw.chunk_type {
            ChunkType::DATA => Chunk::Data(Data::parse(raw)?),
            ChunkType::INIT => Chunk::Init(Init::parse(raw)?),
            ChunkType::INIT_ACK => Chunk::InitAck(Init::parse(raw)?),
            ChunkType::SACK => Chunk::Sack(Sack::parse(raw)?),
            ChunkType::HEARTBEAT => Chunk::Heartbeat(Heartbeat::parse(raw)?),
            ChunkType::HEARTBEAT_ACK => Chunk::HeartbeatAck(Heartbeat::parse(raw)?),
            ChunkType::ABORT => Chunk::Abort(Abort::parse(raw)),
            ChunkType::SHUTDOWN => Chunk::Shutdown(Shutdown::parse(raw)?),
            ChunkType::SHUTDOWN_ACK => Chunk::ShutdownAck,
            ChunkType::ERROR => Chunk::Error(ErrorChunk::parse(raw)),
            ChunkType::COOKIE_ECHO => Chunk::CookieEcho(CookieEcho::parse(raw)),
            ChunkType::COOKIE_ACK => Chunk::CookieAck,
            ChunkType::ECNE => Chunk::Ecne(Ecne::parse(raw)?),
            ChunkType::CWR => Chunk::Cwr(Cwr::parse(raw)?),
            ChunkType::SHUTDOWN_COMPLETE => Chunk::ShutdownComplete(ShutdownComplete::parse(raw)),
            ChunkType::AUTH => Chunk::Auth(Auth::parse(raw)?),
            ChunkType::ASCONF => Chunk::Asconf(Asconf::parse(raw)?),
            ChunkType::ASCONF_ACK => Chunk::AsconfAck(AsconfAck::parse(raw)?),
            ChunkType::RE_CONFIG => Chunk::ReConfig(ReConfig::parse(raw)),
            ChunkType::PAD => Chunk::Pad(Pad::parse(raw)),
            ChunkType::FORWARD_TSN => Chunk::ForwardTsn(ForwardTsn::parse(raw)?),
            ChunkType::I_DATA => Chunk::IData(IData::parse(raw)?),
            ChunkType::I_FORWARD_TSN => Chunk::IForwardTsn(IForwardTsn::parse(raw)?),
            _ => Chunk::Unknown(UnknownChunk::parse(raw)),
        })
    }

    /// Returns the chunk's type.
    pub const fn chunk_type(&self) -> ChunkType {
        match self {
            Chunk::Data(_) => ChunkType::DATA,
            Chunk::Init(_) => ChunkType::INIT,
            Chunk::InitAck(_) => ChunkType::INIT_ACK,
            Chunk::Sack(_) => ChunkType::SACK,
            Chunk::Heartbeat(_) => ChunkType::HEARTBEAT,
            Chunk::HeartbeatAck(_) => ChunkType::HEARTBEAT_ACK,
            Chunk::Abort(_) => ChunkType::ABORT,
            Chunk::Shutdown(_) => ChunkType::SHUTDOWN,
            Chunk::ShutdownAck => ChunkType::SHUTDOWN_ACK,
            Chunk::Error(_) => ChunkType::ERROR,
            Chunk::CookieEcho(_) => ChunkType::COOKIE_ECHO,
            Chunk::CookieAck => ChunkType::COOKIE_ACK,
            Chunk::Ecne(_) => ChunkType::ECNE,
            Chunk::Cwr(_) => ChunkType::CWR,
            Chunk::ShutdownComplete(_) => ChunkType::SHUTDOWN_COMPLETE,
            Chunk::Auth(_) => ChunkType::AUTH,
            Chunk::Asconf(_) => ChunkType::ASCONF,
            Chunk::AsconfAck(_) => ChunkType::ASCONF_ACK,
            Chunk::ReConfig(_) => ChunkType::RE_CONFIG,
            Chunk::Pad(_) => ChunkType::PAD,
            Chunk::ForwardTsn(_) => ChunkType::FORWARD_TSN,
            Chunk::IData(_) => ChunkType::I_DATA,
            Chunk::IForwardTsn(_) => ChunkType::I_FORWARD_TSN,
            Chunk::Unknown(unknown) => unknown.chunk_type,
        }
    }
}

impl WriteChunk for Chunk<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Chunk::Data(chunk) => chunk.write(out),
            Chunk::Init(chunk) | Chunk::InitAck(chunk) => chunk.write_as(self.chunk_type(), out),
            Chunk::Sack(chunk) => chunk.write(out),
            Chunk::Heartbeat(chunk) | Chunk::HeartbeatAck(chunk) => chunk.write_as(self.chunk_type(), out),
            Chunk::Abort(chunk) => chunk.write(out),
            Chunk::Shutdown(chunk) => chunk.write(out),
            Chunk::ShutdownAck => shutdown_ack::write(out),
            Chunk::Error(chunk) => chunk.write(out),
            Chunk::CookieEcho(chunk) => chunk.write(out),
            Chunk::CookieAck => cookie_ack::write(out),
            Chunk::Ecne(chunk) => chunk.write(out),
            Chunk::Cwr(chunk) => chunk.write(out),
            Chunk::ShutdownComplete(chunk) => chunk.write(out),
            Chunk::Auth(chunk) => chunk.write(out),
            Chunk::Asconf(chunk) => chunk.write(out),
            Chunk::AsconfAck(chunk) => chunk.write(out),
            Chunk::ReConfig(chunk) => chunk.write(out),
            Chunk::Pad(chunk) => chunk.write(out),
            Chunk::ForwardTsn(chunk) => chunk.write(out),
            Chunk::IData(chunk) => chunk.write(out),
            Chunk::IForwardTsn(chunk) => chunk.write(out),
            Chunk::Unknown(chunk) => chunk.write(out),
        }
    }
}

impl RawChunk<'_> {
    /// Returns the error of a chunk whose value has fewer than `value_min` octets.
    fn too_short(&self, value_min: usize) -> ChunkError {
        let minimum = CHUNK_HEADER_LEN + value_min;
        ChunkError::TooShort { chunk_type: self.chunk_type, length: self.bytes.len(), minimum }
    }

    /// Returns the error of a chunk whose length does not match its entries.
    fn bad_list(&self) -> ChunkError {
        ChunkError::List { chunk_type: self.chunk_type, length: self.bytes.len() }
    }
}
