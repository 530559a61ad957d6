//! Errors of the commands.

use std::net::IpAddr;

use thiserror::Error;

/// Why [`connect`](crate::Endpoint::connect) refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No way to the peer was given.
    #[error("no route to the peer is configured")]
    NoRoute,
    /// Port 0 names no program (RFC 9260 section 3.1).
    #[error("port 0 is invalid at both ends")]
    NoPort,
    /// An association with these ports and addresses exists.
    #[error("an association with this peer and these ports exists already")]
    Exists,
    /// [`Limits::associations`](crate::Limits::associations) is reached.
    #[error("the limit of {0} associations is reached")]
    TooMany(usize),
    /// The message to begin with is empty or longer than the send buffer.
    #[error("a first message of {length} bytes is invalid: 1 to {max} bytes are allowed")]
    Message {
        /// Its length in bytes.
        length: usize,
        /// The send buffer, in bytes.
        max: usize,
    },
    /// [`KEY_PPID`](crate::KEY_PPID) is that of messages about keys, where protection is offered.
    #[error("payload protocol identifier 4242 is reserved for messages about keys")]
    ReservedPpid,
    /// Memory is short: seven eighths of [`Limits::memory`](crate::Limits::memory) are in use.
    #[error("associations hold {used} of {budget} bytes; end some, or raise the budget")]
    NoMemory {
        /// Bytes in use.
        used: usize,
        /// The budget.
        budget: usize,
    },
    /// Memory is short for this host: seven eighths of [`Limits::memory_of_host`](crate::Limits::memory_of_host) are in use.
    #[error(
        "associations with {host} hold {used} of {budget} bytes; end some, or raise the budget of each host"
    )]
    NoMemoryForHost {
        /// The address asked first.
        host: IpAddr,
        /// Bytes in use.
        used: usize,
        /// The budget.
        budget: usize,
    },
}

/// Why a stream's setting was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The association does not exist, or is not beyond its INIT.
    #[error("the association is not up")]
    Closed,
    /// The stream was not negotiated.
    #[error("stream {stream} does not exist; the association has {streams} outbound streams")]
    NoSuchStream {
        /// The stream asked for.
        stream: u16,
        /// Number of streams.
        streams: u16,
    },
}

/// Why a wish to reset or add streams (RFC 6525) was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReconfigError {
    /// There is no such association, or it does without stream reconfiguration.
    #[error("stream reconfiguration was not negotiated; offer Extension::StreamReconfiguration at both ends")]
    NotNegotiated,
    /// The association is closing.
    #[error("the association is closed for sending")]
    Closed,
    /// A stream was not negotiated.
    #[error("stream {stream} does not exist; that direction has {streams} streams")]
    NoSuchStream {
        /// The stream asked for.
        stream: u16,
        /// Number of streams in that direction.
        streams: u16,
    },
    /// The streams cannot be named in one packet.
    #[error("a request can name up to {max} streams; name fewer, or none for all")]
    ListTooLong {
        /// Most streams.
        max: usize,
    },
    /// No streams were to be added.
    #[error("no streams to add; give a number greater than 0")]
    NoStreams,
    /// There would be more than 65,535 streams.
    #[error("an association has up to 65535 streams in each direction")]
    TooManyStreams,
    /// Too many wishes wait for the peer's answer.
    #[error("too many requests wait for the peer's answer; wait for their events")]
    TooMany,
    /// The association was to be reset less than 30 seconds ago.
    #[error("the association was reset less than 30 seconds ago; wait")]
    TooSoon,
}

/// Why [`send`](crate::Endpoint::send) refused a message; it was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The association does not exist, or sends no more.
    #[error("the association is closed for sending")]
    Closed,
    /// The send buffer is full; [`Event::Writable`](crate::Event::Writable) follows.
    #[error("the send buffer is full")]
    WouldBlock,
    /// The stream was not negotiated.
    #[error("stream {stream} does not exist; the association has {streams} outbound streams")]
    NoSuchStream {
        /// The stream asked for.
        stream: u16,
        /// Number of streams.
        streams: u16,
    },
    /// SCTP has no empty messages (RFC 9260 section 3.3.1).
    #[error("a message must have at least one byte")]
    Empty,
    /// [`KEY_PPID`](crate::KEY_PPID) is that of messages about keys, where protection is agreed.
    #[error("payload protocol identifier 4242 is reserved for messages about keys")]
    ReservedPpid,
    /// The message exceeds the send buffer and could never be taken.
    #[error("a message of {length} bytes exceeds the send buffer of {max}")]
    TooLong {
        /// Bytes of the message.
        length: usize,
        /// Bytes of the send buffer.
        max: usize,
    },
}

/// Why a command about the keys of authentication (RFC 4895) was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AuthKeyError {
    /// There is no such association, or it does without authentication.
    #[error("authentication was not negotiated; offer Extension::Auth at both ends")]
    NotNegotiated,
    /// No key has this number, or it was deactivated.
    #[error("key {0} is not usable; set it first")]
    NoSuchKey(u16),
    /// The key is the one that signs.
    #[error("key {0} is in use; activate another one first")]
    Active(u16),
    /// There are as many keys as there may be.
    #[error("there are {0} keys already; delete one first")]
    TooMany(usize),
    /// Memory is short: seven eighths of [`Limits::memory`](crate::Limits::memory) are in use.
    #[error("associations hold {used} of {budget} bytes; end some, or raise the budget")]
    NoMemory {
        /// Bytes in use.
        used: usize,
        /// The budget.
        budget: usize,
    },
    /// The key is too long.
    #[error("a key of {length} bytes exceeds the limit of {max}")]
    TooLong {
        /// Bytes of the key.
        length: usize,
        /// Most bytes of a key.
        max: usize,
    },
}

/// Why a change of our addresses (RFC 5061) was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no such association, or it does without address reconfiguration.
    #[error("address reconfiguration was not negotiated; offer it and Extension::Auth at both ends")]
    NotNegotiated,
    /// The association is closing.
    #[error("the association is closed for sending")]
    Closed,
    /// The peer has said that it does not understand such a change.
    #[error("the peer does not support this change of addresses")]
    NotUnderstood,
    /// The address cannot be a host's own.
    #[error("{0} is not a unicast address")]
    NotUnicast(IpAddr),
    /// The address belongs to the association.
    #[error("{0} belongs to the association already")]
    Exists(IpAddr),
    /// The address does not belong to the association.
    #[error("{0} does not belong to the association; add it first")]
    Unknown(IpAddr),
    /// The last address by which the peer can be reached must stay.
    #[error("{0} is the last address with a path to the peer; add another and wait until it is confirmed")]
    Last(IpAddr),
    /// The peer has no address that could be reached from this one.
    #[error("the peer has no address of the family of {0}")]
    NoPeer(IpAddr),
    /// With [`AddressProof::ConfirmedPath`](crate::AddressProof::ConfirmedPath) the only address changes with a shared key alone.
    #[error(
        "without a shared key the association cannot move to {0}; set a key at both ends (AuthConfig::keys)"
    )]
    NoKey(IpAddr),
    /// The peer has yet to answer an earlier change of the address.
    #[error("an earlier change of {0} is pending; wait for Event::AddressChange")]
    Changing(IpAddr),
    /// Too many changes wait for the peer's answer.
    #[error("too many changes wait for the peer's answer; wait for Event::AddressChange")]
    TooMany,
}

/// Why a command about a path was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathOptionError {
    /// The association does not exist, or is not up.
    #[error("the association is not up")]
    Closed,
    /// No path leads to the address.
    #[error("no path of the association leads to {0}")]
    Unknown(IpAddr),
    /// RFC 7829 section 5 wants the primary path to be left no sooner than it is potentially failed.
    #[error("a switchover needs at least {least} timeouts; raise switchover_max_retrans")]
    SwitchoverTooSoon {
        /// The least value.
        least: u8,
    },
}

/// Why a step of the key management was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The association does not exist, is over, or has no agreement on protection.
    #[error("no protection was agreed on with this peer")]
    NotAgreed,
    /// The keys are those of another epoch than the next.
    #[error("keys of epoch {epoch}, where those of epoch {wanted} are next")]
    Epoch {
        /// Their epoch.
        epoch: u64,
        /// The next one.
        wanted: u64,
    },
    /// The peer has not used the newest keys yet.
    #[error("the peer has not used the newest keys yet")]
    Unused,
    /// The message is empty or too long.
    #[error("a message about keys of {length} bytes cannot be sent: 1 to {max} can")]
    Length {
        /// Its length in bytes.
        length: usize,
        /// The limit.
        max: usize,
    },
}
