//! The header of each message between the program's end and the server's end of a socket pair.

/// Length of [`DataHeader`], in bytes.
pub const DATA_HEADER: usize = 32;

/// First four bytes of each header. No text begins with these bytes, so the server recognises data that a program has written
/// without the library.
const MAGIC: u32 = 0xd5c7_9e01;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// User data.
    Data = 1,
    /// A notification of RFC 6458 section 6. Sent to the program only.
    Notification = 2,
    /// A new association of a listener. The association's socket is ancillary data, and the peer's address is the payload. Sent to the
    /// program only.
    Accepted = 3,
    /// Reports that the association has ended with an error. [`DataHeader::context`] is the error number. Sent to the program only.
    /// A message with `ENOTCONN` is the last message, and stays in the queue.
    Failed = 4,
    /// Reports that the association has ended without an error. Sent to the program only. This message is the last, and stays in
    /// the queue.
    Ended = 5,
    /// A message without user data. Such messages fill the send buffer of a socket that cannot send yet, so the socket is not
    /// writable. If the first message of an accepted socket has this kind, it reports that the program has accepted the socket.
    Filling = 6,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        [Kind::Data, Kind::Notification, Kind::Accepted, Kind::Failed, Kind::Ended, Kind::Filling]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// Bits of [`DataHeader::flags`].
pub mod flag {
    /// More parts of this user message follow. The end of this part is thus not the end of a record (`MSG_EOR`).
    pub const MORE: u8 = 1;
    /// The program asked for `SCTP_SNDRCV` with each message (`sctp_data_io_event`).
    pub const WITH_SNDRCV: u8 = 2;
    /// The program asked for `SCTP_RCVINFO` with each message (`SCTP_RECVRCVINFO`).
    pub const WITH_RCVINFO: u8 = 4;
    /// The program asked for `SCTP_NXTINFO` with each message (`SCTP_RECVNXTINFO`).
    pub const WITH_NXTINFO: u8 = 16;
    /// The program specified the stream, the payload protocol identifier and the other parameters of the data to send. Without this
    /// bit, the socket's defaults apply (`SCTP_DEFAULT_SNDINFO`).
    pub const WITH_INFO: u8 = 8;
}

/// The header before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// The kind of message.
    pub kind: Kind,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Stream number.
    pub stream: u16,
    /// Stream sequence number of received data. The socket server leaves the field 0.
    pub ssn: u16,
    /// `sinfo_flags` of RFC 6458 section 5.3.2.
    pub sinfo_flags: u16,
    /// Payload protocol identifier, unchanged from the program. It is in network byte order if the program follows RFC 6458.
    pub ppid: u32,
    /// For received data, the TSN; the socket server leaves the field 0. For data to send, `sinfo_timetolive` in milliseconds, or
    /// the value of the PR-SCTP policy that `sinfo_flags` selects.
    pub tsn_or_lifetime: u32,
    /// Cumulative TSN of received data. The socket server leaves the field 0.
    pub cumulative_tsn: u32,
    /// `sinfo_context`, or the error number of [`Kind::Failed`].
    pub context: u32,
    /// Identifier of the association.
    pub association: i32,
}

impl DataHeader {
    /// Returns a header of this kind whose other fields are 0.
    pub const fn new(kind: Kind) -> DataHeader {
        DataHeader {
            kind,
            flags: 0,
            stream: 0,
            ssn: 0,
            sinfo_flags: 0,
            ppid: 0,
            tsn_or_lifetime: 0,
            cumulative_tsn: 0,
            context: 0,
            association: 0,
        }
    }

    /// Returns the bytes of the header.
    pub fn to_bytes(&self) -> [u8; DATA_HEADER] {
        let mut bytes = [0; DATA_HEADER];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC.to_ne_bytes());
        put(4, &[self.kind as u8, self.flags]);
        put(6, &self.stream.to_ne_bytes());
        put(8, &self.ssn.to_ne_bytes());
        put(10, &self.sinfo_flags.to_ne_bytes());
        put(12, &self.ppid.to_ne_bytes());
        put(16, &self.tsn_or_lifetime.to_ne_bytes());
        put(20, &self.cumulative_tsn.to_ne_bytes());
        put(24, &self.context.to_ne_bytes());
        put(28, &self.association.to_ne_bytes());
        bytes
    }

    /// Reads the header at the beginning of a message. Returns `None` if the message does not begin with a valid header.
    pub fn read(message: &[u8]) -> Option<DataHeader> {
        let (header, _) = message.split_first_chunk::<DATA_HEADER>()?;
        let long =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let short = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        if long(0) != MAGIC {
            return None;
        }
        Some(DataHeader {
            kind: Kind::of(header[4])?,
            flags: header[5],
            stream: short(6),
            ssn: short(8),
            sinfo_flags: short(10),
            ppid: long(12),
            tsn_or_lifetime: long(16),
            cumulative_tsn: long(20),
            context: long(24),
            association: long(28).cast_signed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = DataHeader {
            kind: Kind::Notification,
            flags: flag::MORE | flag::WITH_RCVINFO,
            stream: 1,
            ssn: 2,
            sinfo_flags: 3,
            ppid: 4,
            tsn_or_lifetime: 5,
            cumulative_tsn: 6,
            context: 7,
            association: -8,
        };
        assert_eq!(DataHeader::read(&header.to_bytes()), Some(header));
    }

    #[test]
    fn text_is_no_header() {
        assert_eq!(DataHeader::read(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), None);
        assert_eq!(DataHeader::read(&DataHeader::new(Kind::Data).to_bytes()[..DATA_HEADER - 1]), None);
        let mut unknown_kind = DataHeader::new(Kind::Data).to_bytes();
        unknown_kind[4] = 99;
        assert_eq!(DataHeader::read(&unknown_kind), None);
    }
}
