//! Errors of the endpoint's commands.

use std::net::IpAddr;

use thiserror::Error;

/// Error of [`connect`](crate::Endpoint::connect).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No route to the peer was given.
    #[error("no route to the peer is configured")]
    NoRoute,
    /// Port 0 is not a valid SCTP port (RFC 9260 section 3.1).
    #[error("port 0 is invalid at both ends")]
    NoPort,
    /// An association with these ports has proved an address of the peer, or is being opened to it.
    #[error("an association with this peer and these ports exists already")]
    Exists,
    /// [`Limits::associations`](crate::Limits::associations) is reached.
    #[error("the limit of {0} associations is reached")]
    TooMany(usize),
    /// The first message is empty, or longer than the send buffer.
    #[error("a first message of {length} bytes is invalid: 1 to {max} bytes are allowed")]
    Message {
        /// Length of the message, in bytes.
        length: usize,
        /// The send buffer, in bytes.
        max: usize,
    },
    /// The payload protocol identifier is [`KEY_PPID`](crate::KEY_PPID). If protection is offered, this identifier is
    /// reserved for messages about keys.
    #[error("payload protocol identifier 4242 is reserved for messages about keys")]
    ReservedPpid,
    /// Memory is short: seven eighths of [`Limits::memory`](crate::Limits::memory) are in use.
    #[error("associations hold {used} of {budget} bytes; end some, or raise the budget")]
    NoMemory {
        /// Bytes in use.
        used: usize,
        /// Limit on the bytes.
        budget: usize,
    },
    /// Memory is short for the peer's host: seven eighths of [`Limits::memory_of_host`](crate::Limits::memory_of_host) are
    /// in use.
    #[error(
        "associations with {host} hold {used} of {budget} bytes; end some, or raise the budget of each host"
    )]
    NoMemoryForHost {
        /// The first address of the peer in the request.
        host: IpAddr,
        /// Bytes in use.
        used: usize,
        /// Limit on the bytes for each host.
        budget: usize,
    },
}

/// Error of a command that changes a setting of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The association does not exist, or the peer has not answered its INIT yet.
    #[error("the association is not up")]
    Closed,
    /// The stream was not negotiated.
    #[error("stream {stream} does not exist; the association has {streams} outbound streams")]
    NoSuchStream {
        /// The requested stream.
        stream: u16,
        /// Number of outbound streams.
        streams: u16,
    },
}

/// Error of a request to reset or add streams (RFC 6525). Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReconfigError {
    /// The association does not exist, or does not use stream reconfiguration.
    #[error("stream reconfiguration was not negotiated; offer Extension::StreamReconfiguration at both ends")]
    NotNegotiated,
    /// The association is closing.
    #[error("the association is closed for sending")]
    Closed,
    /// A stream was not negotiated.
    #[error("stream {stream} does not exist; that direction has {streams} streams")]
    NoSuchStream {
        /// The requested stream.
        stream: u16,
        /// Number of streams in that direction.
        streams: u16,
    },
    /// One packet has no room for the numbers of all these streams.
    #[error("a request can name up to {max} streams; name fewer, or none for all")]
    ListTooLong {
        /// Maximum number of streams.
        max: usize,
    },
    /// The request adds no streams.
    #[error("no streams to add; give a number greater than 0")]
    NoStreams,
    /// The association would have more than 65,535 streams in one direction.
    #[error("an association has up to 65535 streams in each direction")]
    TooManyStreams,
    /// Too many requests wait for the peer's answer.
    #[error("too many requests wait for the peer's answer; wait for their events")]
    TooMany,
    /// The last request to reset the association was less than 30 seconds ago.
    #[error("the association was reset less than 30 seconds ago; wait")]
    TooSoon,
}

/// Error of [`send`](crate::Endpoint::send). The message was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The association does not exist, or no longer accepts data to send.
    #[error("the association is closed for sending")]
    Closed,
    /// The send buffer is full; [`Event::Writable`](crate::Event::Writable) follows.
    #[error("the send buffer is full")]
    WouldBlock,
    /// The stream was not negotiated.
    #[error("stream {stream} does not exist; the association has {streams} outbound streams")]
    NoSuchStream {
        /// The requested stream.
        stream: u16,
        /// Number of outbound streams.
        streams: u16,
    },
    /// The message is empty. SCTP has no empty messages (RFC 9260 section 3.3.1).
    #[error("a message must have at least one byte")]
    Empty,
    /// The payload protocol identifier is [`KEY_PPID`](crate::KEY_PPID). If protection is agreed on, this identifier is
    /// reserved for messages about keys.
    #[error("payload protocol identifier 4242 is reserved for messages about keys")]
    ReservedPpid,
    /// The message exceeds the send buffer and can never be accepted.
    #[error("a message of {length} bytes exceeds the send buffer of {max}")]
    TooLong {
        /// Bytes of the message.
        length: usize,
        /// Bytes of the send buffer.
        max: usize,
    },
}

/// Error of a command about the keys of authentication (RFC 4895). Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AuthKeyError {
    /// The association does not exist, or does not use authentication.
    #[error("authentication was not negotiated; offer Extension::Auth at both ends")]
    NotNegotiated,
    /// No key has this number, or the key was deactivated.
    #[error("key {0} is not usable; set it first")]
    NoSuchKey(u16),
    /// The key is the active key. The active key signs, so it cannot be deactivated or deleted.
    #[error("key {0} is in use; activate another one first")]
    Active(u16),
    /// The limit on the number of keys is reached.
    #[error("there are {0} keys already; delete one first")]
    TooMany(usize),
    /// Memory is short: seven eighths of [`Limits::memory`](crate::Limits::memory) are in use.
    #[error("associations hold {used} of {budget} bytes; end some, or raise the budget")]
    NoMemory {
        /// Bytes in use.
        used: usize,
        /// Limit on the bytes.
        budget: usize,
    },
    /// The key is too long.
    #[error("a key of {length} bytes exceeds the limit of {max}")]
    TooLong {
        /// Bytes of the key.
        length: usize,
        /// Limit on the bytes of a key.
        max: usize,
    },
}

/// Error of a command that changes our addresses (RFC 5061). Nothing was changed, except by
/// [`set_local_uses`](crate::Endpoint::set_local_uses), which sets the uses of the other addresses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The association does not exist, or does not use address reconfiguration.
    #[error("address reconfiguration was not negotiated; offer it and Extension::Auth at both ends")]
    NotNegotiated,
    /// The association does not exist, or no longer accepts data to send. For an association that does not exist, the
    /// commands that change addresses return `NotNegotiated` instead.
    #[error("the association is closed for sending")]
    Closed,
    /// The peer has reported that it does not understand this kind of change.
    #[error("the peer does not support this change of addresses")]
    NotUnderstood,
    /// The address is not a unicast address of a host.
    #[error("{0} is not a unicast address")]
    NotUnicast(IpAddr),
    /// The address already belongs to the association.
    #[error("{0} belongs to the association already")]
    Exists(IpAddr),
    /// The address does not belong to the association.
    #[error("{0} does not belong to the association; add it first")]
    Unknown(IpAddr),
    /// The address cannot be removed, because no other address of ours has a confirmed path to the peer.
    #[error("{0} is the last address with a path to the peer; add another and wait until it is confirmed")]
    Last(IpAddr),
    /// No address of the peer can be reached from this address.
    #[error("the peer has no address of the family of {0}")]
    NoPeer(IpAddr),
    /// The address cannot replace all others without a shared key, because of
    /// [`AddressProof::ConfirmedPath`](crate::AddressProof::ConfirmedPath).
    #[error(
        "without a shared key the association cannot move to {0}; set a key at both ends (AuthConfig::keys)"
    )]
    NoKey(IpAddr),
    /// An earlier change of the address waits for the peer's answer.
    #[error("an earlier change of {0} is pending; wait for Event::AddressChange")]
    Changing(IpAddr),
    /// Too many changes wait for the peer's answer, or too many paths would exist.
    #[error("too many changes wait for the peer's answer; wait for Event::AddressChange")]
    TooMany,
}

/// Error of a command about a path. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathOptionError {
    /// The association does not exist, or is not up.
    #[error("the association is not up")]
    Closed,
    /// No path of the association has the address.
    #[error("no path of the association leads to {0}")]
    Unknown(IpAddr),
    /// The primary path would be replaced before it is potentially failed. RFC 7829 section 5 forbids this.
    #[error("a switchover needs at least {least} timeouts; raise switchover_max_retrans")]
    SwitchoverTooSoon {
        /// The minimum value.
        least: u8,
    },
}

/// Error of a step of the key management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The association does not exist, has ended, or has no agreement on protection. Before INIT ACK, another reason is
    /// possible: a message about keys is already waiting.
    #[error("no protection was agreed on with this peer")]
    NotAgreed,
    /// The epoch of the keys is not the next one.
    #[error("keys of epoch {epoch}, where those of epoch {wanted} are next")]
    Epoch {
        /// The epoch of the keys.
        epoch: u64,
        /// The next epoch.
        wanted: u64,
    },
    /// The peer has not used the newest keys yet.
    #[error("the peer has not used the newest keys yet")]
    Unused,
    /// The message is empty or too long.
    #[error("a message about keys of {length} bytes cannot be sent: 1 to {max} can")]
    Length {
        /// Length of the message, in bytes.
        length: usize,
        /// Limit on the length, in bytes.
        max: usize,
    },
}
