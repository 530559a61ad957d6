//! Messages of a shared association and their encoding (`docs/shared-association.md`).
//!
//! The payload protocol identifier gives the kind of a message. The bytes of a connection and their end are sent as on a separate
//! association ([`PPID_DATA`], [`PPID_END`]). All other messages are defined here. Numbers are in network order. Bytes after the known
//! fields are ignored, so later versions may add fields. The decoder refuses messages that are too short, too long or of an unknown kind,
//! addresses of two families, IPv4-mapped addresses, and port 0. Begin at [`Message::parse`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{BufMut, Bytes, BytesMut};

use crate::peer::{PPID_DATA, PPID_END};

/// Version of these messages, in [`Message::Hello`].
pub const VERSION: u8 = 1;

/// Limit on the length of a message in bytes, except for [`Message::Data`].
pub const CONTROL_MAX: usize = 64;

const HELLO: u32 = ppid(*b"scth");
const OPEN: u32 = ppid(*b"scto");
const ACCEPTED: u32 = ppid(*b"scta");
const REFUSED: u32 = ppid(*b"sctr");
const CREDIT: u32 = ppid(*b"sctc");
const BLOCKED: u32 = ppid(*b"sctb");
const RESET: u32 = ppid(*b"sctx");

const fn ppid(name: [u8; 4]) -> u32 {
    u32::from_be_bytes(name)
}

/// Number of a channel among the channels that use a stream one after another. The opener counts these channels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Generation(pub u32);

impl Generation {
    /// Returns the next generation. After the highest number, returns 0.
    #[must_use]
    pub const fn next(self) -> Generation {
        Generation(self.0.wrapping_add(1))
    }
}

/// Reason why the shared association does not carry a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Rules forbid the connection, or no program listens at the destination. Over TCP, the client's program would get the same error.
    NotServed,
    /// The server's kernel did not accept the connection for the program.
    NotTaken,
    /// The peer has not proven that it has the client's address.
    Unproven,
    /// The connection needs a separate association.
    OwnAssociation,
    /// A limit is reached, or the daemon is stopping.
    Busy,
}

impl Refusal {
    const ALL: [Refusal; 5] =
        [Refusal::NotServed, Refusal::NotTaken, Refusal::Unproven, Refusal::OwnAssociation, Refusal::Busy];

    const fn code(self) -> u8 {
        match self {
            Refusal::NotServed => 1,
            Refusal::NotTaken => 2,
            Refusal::Unproven => 3,
            Refusal::OwnAssociation => 4,
            Refusal::Busy => 5,
        }
    }

    /// Returns the reason for a code. A code that this version does not know counts as [`Refusal::Busy`].
    fn of_code(code: u8) -> Refusal {
        Refusal::ALL.into_iter().find(|reason| reason.code() == code).unwrap_or(Refusal::Busy)
    }

    /// Reports whether a separate association may carry the connection.
    pub const fn allows_own_association(self) -> bool {
        matches!(self, Refusal::Unproven | Refusal::OwnAssociation | Refusal::Busy)
    }
}

/// A message between the two ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The first message on stream 0: the shared association may be used from now on.
    Hello {
        /// Version of these messages that the sender speaks.
        version: u8,
        /// Limit on the channels that the receiver of this message may have open at once.
        channels: u16,
    },
    /// A program requests a connection.
    Open {
        /// Generation of the stream. Each channel that the opener begins on the stream increments it.
        generation: Generation,
        /// Number of bytes that the accepting end may send before it gets further credit.
        window: u32,
        /// Address of the program, as TCP shows it.
        client: SocketAddr,
        /// Destination of the connection.
        server: SocketAddr,
    },
    /// The server's kernel has accepted the connection.
    Accepted {
        /// As in [`Message::Open`].
        generation: Generation,
        /// Number of bytes that the opener may send before it gets further credit.
        window: u32,
    },
    /// The shared association does not carry the connection. No message of this channel follows.
    Refused {
        /// As in [`Message::Open`].
        generation: Generation,
        /// Reason for the refusal.
        reason: Refusal,
    },
    /// Bytes of the connection.
    Data(Bytes),
    /// The program has ended its sending.
    End,
    /// The receiver of this message may send more bytes.
    Credit {
        /// As in [`Message::Open`].
        generation: Generation,
        /// Total number of bytes that may be sent since the beginning of the connection.
        limit: u64,
    },
    /// The sender has more data than it may send.
    Blocked {
        /// As in [`Message::Open`].
        generation: Generation,
        /// Limit that the sender has reached.
        limit: u64,
    },
    /// The connection is reset. No message of this channel follows.
    Reset {
        /// As in [`Message::Open`].
        generation: Generation,
    },
}

/// Faults of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// No message has this payload protocol identifier.
    #[error("a message of an unknown kind ({0:#010x})")]
    Unknown(u32),
    /// Some fields are missing.
    #[error("a message of {length} bytes is too short for its kind")]
    TooShort {
        /// Length of the message, in bytes.
        length: usize,
    },
    /// The message is longer than any valid control message.
    #[error("a control message of {length} bytes; the limit is {CONTROL_MAX}")]
    TooLong {
        /// Length of the message, in bytes.
        length: usize,
    },
    /// No connection can have these addresses.
    #[error("invalid addresses of a connection")]
    Addresses,
}

impl Message {
    /// Decodes a message.
    ///
    /// # Errors
    /// See [`Malformed`].
    pub fn parse(ppid: u32, bytes: Bytes) -> Result<Message, Malformed> {
        if ppid == PPID_DATA {
            return Ok(Message::Data(bytes));
        }
        let length = bytes.len();
        if length > CONTROL_MAX {
            return Err(Malformed::TooLong { length });
        }
        let mut fields = Fields { rest: &bytes, length };
        let message = match ppid {
            PPID_END => Message::End,
            HELLO => {
                let [version, _] = fields.take()?;
                Message::Hello { version, channels: u16::from_be_bytes(fields.take()?) }
            }
            OPEN => fields.open()?,
            ACCEPTED => Message::Accepted {
                generation: fields.generation()?,
                window: u32::from_be_bytes(fields.take()?),
            },
            REFUSED => {
                let generation = fields.generation()?;
                let [code] = fields.take()?;
                Message::Refused { generation, reason: Refusal::of_code(code) }
            }
            CREDIT => Message::Credit {
                generation: fields.generation()?,
                limit: u64::from_be_bytes(fields.take()?),
            },
            BLOCKED => Message::Blocked {
                generation: fields.generation()?,
                limit: u64::from_be_bytes(fields.take()?),
            },
            RESET => Message::Reset { generation: fields.generation()? },
            unknown => return Err(Malformed::Unknown(unknown)),
        };
        Ok(message)
    }

    /// Encodes the message. Returns its payload protocol identifier and its bytes.
    pub fn write(&self) -> (u32, Bytes) {
        let mut bytes = BytesMut::new();
        let ppid = match self {
            Message::Data(data) => return (PPID_DATA, data.clone()),
            Message::End => return (PPID_END, Bytes::from_static(&[0])),
            Message::Hello { version, channels } => {
                bytes.put_slice(&[*version, 0]);
                bytes.put_u16(*channels);
                HELLO
            }
            Message::Open { generation, window, client, server } => {
                bytes.put_u32(generation.0);
                bytes.put_u32(*window);
                bytes.put_u16(client.port());
                bytes.put_u16(server.port());
                put_address(&mut bytes, client.ip());
                put_address(&mut bytes, server.ip());
                OPEN
            }
            Message::Accepted { generation, window } => {
                bytes.put_u32(generation.0);
                bytes.put_u32(*window);
                ACCEPTED
            }
            Message::Refused { generation, reason } => {
                bytes.put_u32(generation.0);
                bytes.put_u8(reason.code());
                REFUSED
            }
            Message::Credit { generation, limit } | Message::Blocked { generation, limit } => {
                bytes.put_u32(generation.0);
                bytes.put_u64(*limit);
                if matches!(self, Message::Credit { .. }) { CREDIT } else { BLOCKED }
            }
            Message::Reset { generation } => {
                bytes.put_u32(generation.0);
                RESET
            }
        };
        (ppid, bytes.freeze())
    }
}

const FAMILY_V4: u8 = 4;
const FAMILY_V6: u8 = 6;

fn put_address(bytes: &mut BytesMut, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            bytes.put_u8(FAMILY_V4);
            bytes.put_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes.put_u8(FAMILY_V6);
            bytes.put_slice(&ip.octets());
        }
    }
}

/// The fields of a message that are not decoded yet.
struct Fields<'a> {
    rest: &'a [u8],
    length: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) =
            self.rest.split_first_chunk().ok_or(Malformed::TooShort { length: self.length })?;
        self.rest = rest;
        Ok(*taken)
    }

    fn generation(&mut self) -> Result<Generation, Malformed> {
        Ok(Generation(u32::from_be_bytes(self.take()?)))
    }

    fn open(&mut self) -> Result<Message, Malformed> {
        let generation = self.generation()?;
        let window = u32::from_be_bytes(self.take()?);
        let (client, server) = (u16::from_be_bytes(self.take()?), u16::from_be_bytes(self.take()?));
        let client = SocketAddr::new(self.address()?, client);
        let server = SocketAddr::new(self.address()?, server);
        let is_one_family = client.is_ipv4() == server.is_ipv4();
        if client.port() == 0 || server.port() == 0 || !is_one_family {
            return Err(Malformed::Addresses);
        }
        Ok(Message::Open { generation, window, client, server })
    }

    fn address(&mut self) -> Result<IpAddr, Malformed> {
        match self.take::<1>()? {
            [FAMILY_V4] => Ok(Ipv4Addr::from(self.take::<4>()?).into()),
            [FAMILY_V6] => {
                let ip = Ipv6Addr::from(self.take::<16>()?);
                // An IPv4-mapped address is a second form of an IPv4 address, so two forms of one host's address would not compare as
                // equal.
                if ip.to_ipv4_mapped().is_some() { Err(Malformed::Addresses) } else { Ok(ip.into()) }
            }
            _ => Err(Malformed::Addresses),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let generation = Generation(0x0102_0304);
        let open = |client: &str, server: &str| Message::Open {
            generation,
            window: 7,
            client: client.parse().expect("an address"),
            server: server.parse().expect("an address"),
        };
        let mut all = vec![
            Message::Hello { version: VERSION, channels: 300 },
            open("10.0.0.1:40000", "10.0.0.2:80"),
            open("[fd00::1]:40000", "[fd00::2]:443"),
            Message::Accepted { generation, window: u32::MAX },
            Message::Data(Bytes::from_static(b"x")),
            Message::End,
            Message::Credit { generation, limit: 1 << 40 },
            Message::Blocked { generation, limit: 5 },
            Message::Reset { generation },
        ];
        all.extend(Refusal::ALL.map(|reason| Message::Refused { generation, reason }));
        all
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for message in all() {
            let (ppid, bytes) = message.write();
            assert!(bytes.len() <= CONTROL_MAX);
            assert_eq!(Message::parse(ppid, bytes), Ok(message));
        }
    }

    #[test]
    fn a_message_cut_anywhere_is_refused_and_a_longer_one_is_not() {
        for message in all() {
            let (ppid, bytes) = message.write();
            if matches!(message, Message::Data(_) | Message::End) {
                continue;
            }
            for length in 0..bytes.len() {
                let cut = Message::parse(ppid, bytes.slice(..length));
                assert_eq!(cut, Err(Malformed::TooShort { length }), "{message:?}");
            }
            let longer: Bytes = [&bytes[..], b"later"].concat().into();
            assert_eq!(Message::parse(ppid, longer), Ok(message));
        }
    }

    #[test]
    fn malformed_messages_are_refused_and_unknown_reasons_mean_busy() {
        let parse = |ppid, bytes: Vec<u8>| Message::parse(ppid, bytes.into());
        assert_eq!(parse(0, vec![0]), Err(Malformed::Unknown(0)));
        assert_eq!(parse(RESET, vec![0; 65]), Err(Malformed::TooLong { length: 65 }));
        let open = |client: &str, server: &str| {
            let (client, server) = (client.parse().unwrap(), server.parse().unwrap());
            let (ppid, bytes) =
                Message::Open { generation: Generation(1), window: 1, client, server }.write();
            Message::parse(ppid, bytes)
        };
        assert_eq!(open("10.0.0.1:0", "10.0.0.2:80"), Err(Malformed::Addresses));
        assert_eq!(open("10.0.0.1:1", "10.0.0.2:0"), Err(Malformed::Addresses));
        assert_eq!(open("10.0.0.1:1", "[fd00::2]:80"), Err(Malformed::Addresses));
        assert_eq!(open("[::ffff:10.0.0.1]:1", "[fd00::2]:80"), Err(Malformed::Addresses));
        let (ppid, bytes) = Message::Refused { generation: Generation(1), reason: Refusal::Busy }.write();
        let newer: Vec<u8> = bytes[..4].iter().copied().chain([99]).collect();
        let busy = Message::Refused { generation: Generation(1), reason: Refusal::Busy };
        assert_eq!(parse(ppid, newer), Ok(busy));
    }
}
