//! Chunk types of the IANA registry.

use std::fmt;

/// The type of a chunk. Any octet is a value, and the constants name the registered types.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkType(pub u8);

macro_rules! chunk_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl ChunkType {
            $($(#[$doc])* pub const $name: ChunkType = ChunkType($value);)*

            /// Returns the registered name, or `None` if this crate does not know the type.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(ChunkType::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

chunk_types! {
    /// RFC 9260 section 3.3.1.
    DATA = 0, "DATA";
    /// RFC 9260 section 3.3.2.
    INIT = 1, "INIT";
    /// RFC 9260 section 3.3.3.
    INIT_ACK = 2, "INIT ACK";
    /// RFC 9260 section 3.3.4.
    SACK = 3, "SACK";
    /// RFC 9260 section 3.3.5.
    HEARTBEAT = 4, "HEARTBEAT";
    /// RFC 9260 section 3.3.6.
    HEARTBEAT_ACK = 5, "HEARTBEAT ACK";
    /// RFC 9260 section 3.3.7.
    ABORT = 6, "ABORT";
    /// RFC 9260 section 3.3.8.
    SHUTDOWN = 7, "SHUTDOWN";
    /// RFC 9260 section 3.3.9.
    SHUTDOWN_ACK = 8, "SHUTDOWN ACK";
    /// RFC 9260 section 3.3.10.
    ERROR = 9, "ERROR";
    /// RFC 9260 section 3.3.11.
    COOKIE_ECHO = 10, "COOKIE ECHO";
    /// RFC 9260 section 3.3.12.
    COOKIE_ACK = 11, "COOKIE ACK";
    /// Explicit congestion notification echo, reserved in RFC 9260 section 3.2.
    ECNE = 12, "ECNE";
    /// Congestion window reduced, reserved in RFC 9260 section 3.2.
    CWR = 13, "CWR";
    /// RFC 9260 section 3.3.13.
    SHUTDOWN_COMPLETE = 14, "SHUTDOWN COMPLETE";
    /// RFC 4895 section 5.1.
    AUTH = 15, "AUTH";
    /// RFC 8260 section 2.1.
    I_DATA = 64, "I-DATA";
    /// draft-ietf-tsvwg-sctp-dtls-chunk section 4.2 ([`Record`](crate::Record)).
    DTLS = 65, "DTLS";
    /// RFC 5061 section 4.1.2.
    ASCONF_ACK = 128, "ASCONF-ACK";
    /// RFC 6525 section 3.1.
    RE_CONFIG = 130, "RE-CONFIG";
    /// RFC 4820 section 3.
    PAD = 132, "PAD";
    /// RFC 3758 section 3.2.
    FORWARD_TSN = 192, "FORWARD TSN";
    /// RFC 5061 section 4.1.1.
    ASCONF = 193, "ASCONF";
    /// RFC 8260 section 2.3.1.
    I_FORWARD_TSN = 194, "I-FORWARD-TSN";
}

/// A set of chunk types.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ChunkSet([u64; 4]);

impl ChunkSet {
    /// The empty set.
    pub const EMPTY: ChunkSet = ChunkSet([0; 4]);

    /// Adds a type.
    pub const fn insert(&mut self, chunk_type: ChunkType) {
        self.0[(chunk_type.0 >> 6) as usize] |= 1 << (chunk_type.0 & 63);
    }

    /// Removes a type.
    pub const fn remove(&mut self, chunk_type: ChunkType) {
        self.0[(chunk_type.0 >> 6) as usize] &= !(1 << (chunk_type.0 & 63));
    }

    /// Reports whether the type is in the set.
    pub const fn contains(&self, chunk_type: ChunkType) -> bool {
        self.0[(chunk_type.0 >> 6) as usize] & (1 << (chunk_type.0 & 63)) != 0
    }

    /// Reports whether this set contains all types of the other set.
    pub fn contains_all(&self, others: &ChunkSet) -> bool {
        self.0.iter().zip(others.0).all(|(own, others)| others & !own == 0)
    }
}

impl FromIterator<ChunkType> for ChunkSet {
    fn from_iter<I: IntoIterator<Item = ChunkType>>(types: I) -> ChunkSet {
        let mut set = ChunkSet::default();
        types.into_iter().for_each(|t| set.insert(t));
        set
    }
}

impl fmt::Debug for ChunkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {:#04x}", self.0),
        }
    }
}

impl fmt::Display for ChunkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
