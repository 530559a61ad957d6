//! Netlink messages as bytes: a header, a body, attributes. Only this module computes lengths and padding.

use std::io;

use netlink_packet_core::NLM_F_ACK;

/// Length of `nlmsghdr`.
const HEADER_LENGTH: usize = 16;
/// Length of an attribute's head.
const ATTRIBUTE_HEAD: usize = 4;
/// Flag in the type of an attribute that holds attributes.
const NESTED: u16 = 0x8000;
/// Bits of an attribute's type, without NESTED and the byte order flag.
const TYPE_MASK: u16 = 0x3fff;

/// Bytes reserved for a message. Most messages are shorter.
const USUAL_LENGTH: usize = 128;

/// A message under construction. In a batch, finished messages precede this message in the buffer.
pub(crate) struct Message {
    bytes: Vec<u8>,
    /// Offset of the message's header.
    start: usize,
}

impl Message {
    /// Begins a message of `kind` with `flags` and `sequence`. The methods below add the body.
    pub(crate) fn new(kind: u16, flags: u16, sequence: u32) -> Message {
        Message::after(Vec::with_capacity(USUAL_LENGTH), kind, flags, sequence)
    }

    /// Begins a message behind the finished messages `bytes`. [`Message::finish`] returns the finished messages and the new one.
    pub(crate) fn after(mut bytes: Vec<u8>, kind: u16, flags: u16, sequence: u32) -> Message {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        Message { bytes, start }
    }

    /// Wraps a complete message, including its header, that another library has written.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Message {
        Message { bytes, start: 0 }
    }

    /// Returns the sequence number in the header.
    pub(crate) fn sequence(&self) -> u32 {
        ne_u32(&self.bytes, self.start + 8).unwrap_or(0)
    }

    /// Adds the head of netfilter messages, `nfgenmsg`.
    pub(crate) fn netfilter_head(&mut self, family: u8, resource: u16) {
        self.put(&[family, 0]);
        self.put(&resource.to_be_bytes());
    }

    /// Adds bytes unchanged.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds an attribute.
    pub(crate) fn attribute(&mut self, kind: u16, data: &[u8]) {
        self.with_attribute_head(kind, |message| message.put(data));
    }

    /// Adds an attribute that holds a string, ended by NUL.
    pub(crate) fn string(&mut self, kind: u16, text: &str) {
        self.with_attribute_head(kind, |message| {
            message.put(text.as_bytes());
            message.put(&[0]);
        });
    }

    /// Adds an attribute that holds a 32-bit number in network byte order.
    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// Adds an attribute that holds the attributes written by `fill`.
    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        self.with_attribute_head(kind | NESTED, fill);
    }

    fn with_attribute_head(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let start = self.bytes.len();
        self.put(&[0; 2]);
        self.put(&kind.to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(align(self.bytes.len()), 0);
    }

    /// Returns the finished message.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// Requests an acknowledgement of the finished message at offset `start`.
pub(crate) fn request_answer(messages: &mut [u8], start: usize) {
    const FLAGS: usize = 6;
    let Some(flags) = messages.get_mut(start + FLAGS..).and_then(|rest| rest.first_chunk_mut()) else {
        return;
    };
    *flags = (u16::from_ne_bytes(*flags) | NLM_F_ACK).to_ne_bytes();
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

impl Received<'_> {
    /// Returns the result that an error message reports. An acknowledgement gives Ok.
    pub(crate) fn outcome(&self) -> io::Result<()> {
        match ne_u32(self.body, 0).map(|code| code as i32) {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            None => Err(io::Error::other("a netlink error message is cut short")),
        }
    }
}

/// Iterator over the messages of a datagram. A truncated message ends the iteration.
pub(crate) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    pub(crate) fn new(datagram: &'a [u8]) -> Messages<'a> {
        Messages { rest: datagram }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Received<'a>;

    fn next(&mut self) -> Option<Received<'a>> {
        let length = ne_u32(self.rest, 0)? as usize;
        let kind = ne_u16(self.rest, 4)?;
        let sequence = ne_u32(self.rest, 8)?;
        let body = self.rest.get(HEADER_LENGTH..length)?;
        self.rest = self.rest.get(align(length)..).unwrap_or(&[]);
        Some(Received { kind, sequence, body })
    }
}

/// Iterator over the attributes of a body. An item is a type without flags, and the data. A truncated attribute ends the
/// iteration.
pub(crate) struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Attributes<'a> {
        Attributes { rest: bytes }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(ne_u16(self.rest, 0)?);
        let kind = ne_u16(self.rest, 2)? & TYPE_MASK;
        let data = self.rest.get(ATTRIBUTE_HEAD..length)?;
        self.rest = self.rest.get(align(length)..).unwrap_or(&[]);
        Some((kind, data))
    }
}

/// Reads the 32-bit number at `offset`, in host byte order.
fn ne_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|four| u32::from_ne_bytes(*four))
}

fn ne_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|two| u16::from_ne_bytes(*two))
}

/// Reads the 32-bit number at the start of `bytes`, in network byte order.
pub(crate) fn be_u32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|four| u32::from_be_bytes(*four))
}

/// Reads the 64-bit number at the start of `bytes`, in network byte order.
pub(crate) fn be_u64(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|eight| u64::from_be_bytes(*eight))
}

const fn align(length: usize) -> usize {
    (length + 3) & !3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_not_counted_in_an_attribute_but_is_in_the_one_around_it() {
        let mut message = Message::new(1, 2, 3);
        message.nested(4, |message| message.string(1, "abcd"));
        let bytes = message.finish();
        assert_eq!(bytes[..4], 32u32.to_ne_bytes());
        assert_eq!(bytes[16..20], [16u16.to_ne_bytes(), 0x8004u16.to_ne_bytes()].concat()[..]);
        assert_eq!(bytes[20..24], [9u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat()[..]);
        assert_eq!(&bytes[24..], b"abcd\0\0\0\0");
    }

    #[test]
    fn a_written_message_is_read_back() {
        let mut message = Message::new(7, 1, 9);
        message.number(3, 77);
        message.attribute(5, b"xyz");
        let bytes = message.finish();
        let read = Messages::new(&bytes).next().expect("one message");
        assert_eq!((read.kind, read.sequence), (7, 9));
        let attributes: Vec<_> = Attributes::new(read.body).collect();
        assert_eq!(attributes, [(3, &77u32.to_be_bytes()[..]), (5, &b"xyz"[..])]);
    }

    #[test]
    fn consecutive_messages_are_read_separately_and_only_the_last_requests_an_ack() {
        let mut bytes = Message::new(7, 1, 9).finish();
        let last = bytes.len();
        let mut message = Message::after(bytes, 8, 1, 10);
        message.attribute(5, b"xyz");
        bytes = message.finish();
        request_answer(&mut bytes, last);
        let read: Vec<_> =
            Messages::new(&bytes).map(|read| (read.kind, read.sequence, read.body.len())).collect();
        assert_eq!(read, [(7, 9, 0), (8, 10, 8)]);
        assert_eq!([bytes[6], bytes[last + 6]], [1, 1 | NLM_F_ACK as u8]);
    }

    #[test]
    fn no_cut_of_a_message_is_read_beyond_its_end() {
        let mut message = Message::new(7, 1, 9);
        message.attribute(5, b"xyzw");
        let bytes = message.finish();
        for cut in 0..bytes.len() {
            assert!(Messages::new(&bytes[..cut]).next().is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn an_attribute_with_a_length_of_zero_ends_the_list() {
        assert_eq!(Attributes::new(&[0; 8]).count(), 0);
    }
}
