//! Numbers of the wire format. Each has a separate type, so the compiler prevents their confusion.

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
    /// Fragment sequence number (RFC 8260 section 2.1). The first fragment of a message has number 0.
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

/// Verification tag that the receiver of a packet expects (RFC 9260 section 3.1). It is zero only in packets
/// with an INIT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct VerificationTag(pub u32);

/// Number of a stream within one direction of an association.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct StreamId(pub u16);

/// Payload protocol identifier of the application, in host byte order. SCTP does not interpret it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Ppid(pub u32);
