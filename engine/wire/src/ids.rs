//! Numbers on the wire, each with a type of its own so that none is taken for another.

base::serial_number!(
    /// Transmission sequence number (RFC 9260 section 3.3.1), one per DATA or I-DATA chunk.
    Tsn(u32), signed i32
);
base::serial_number!(
    /// Stream sequence number (RFC 9260 section 3.3.1), one per ordered message of a stream.
    Ssn(u16), signed i16
);
base::serial_number!(
    /// Message identifier (RFC 8260 section 2.1), one per message of a stream.
    Mid(u32), signed i32
);
base::serial_number!(
    /// Fragment sequence number (RFC 8260 section 2.1); the first fragment of a message has 0.
    Fsn(u32), signed i32
);
base::serial_number!(
    /// Re-configuration request sequence number (RFC 6525 section 4.1).
    RequestSn(u32), signed i32
);
base::serial_number!(
    /// Sequence number of an ASCONF chunk (RFC 5061 section 4.1.1).
    AsconfSerial(u32), signed i32
);

/// The receiver's tag of an association (RFC 9260 section 3.1); zero only in packets that carry an INIT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct VerificationTag(pub u32);

/// Number of a stream within one direction of an association.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct StreamId(pub u16);

/// Payload protocol identifier: passed through for the application, in host order here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Ppid(pub u32);
