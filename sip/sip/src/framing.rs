//! Extracts messages from a byte stream (RFC 3261 section 18.3).

use bytes::{Buf, Bytes, BytesMut};

use crate::parse::{Limits, ParseError, stream_length};

/// The reason why a byte stream cannot be read further and must be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A message longer than [`Limits::message`].
    #[error("a message exceeds {0} bytes")]
    TooLong(usize),
    /// A message without a valid Content-Length. The start of the next message is therefore unknown.
    #[error("a message has no Content-Length")]
    NoLength,
    /// A malformed header.
    #[error("{0}")]
    Parse(#[from] ParseError),
}

/// Extracts messages from a byte stream. Holds up to one message and the bytes of the last read.
#[derive(Debug)]
pub struct Framer {
    limits: Limits,
    buffer: BytesMut,
    /// Number of bytes already searched for the end of the header.
    searched: usize,
    /// Length in bytes of the first message, with its header. `None` until the header has fully arrived.
    length: Option<usize>,
}

impl Framer {
    /// Creates an empty framer.
    pub fn new(limits: Limits) -> Framer {
        Framer { limits, buffer: BytesMut::new(), searched: 0, length: None }
    }

    /// Appends bytes read from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Reports whether the buffer is empty. Otherwise it contains a complete or an incomplete message.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Removes a double CR LF from the front of the buffer. Returns false if the buffer does not begin with a double CR LF. A double CR
    /// LF is a keep-alive. The driver must answer it with CR LF (RFC 5626 section 4.4.1).
    pub fn take_ping(&mut self) -> bool {
        let is_ping = self.length.is_none() && self.buffer.starts_with(b"\r\n\r\n");
        if is_ping {
            self.buffer.advance(4);
            self.searched = 0;
        }
        is_ping
    }

    /// Returns the next complete message, or `None` if it has not fully arrived.
    ///
    /// # Errors
    /// Fails if the next message is malformed, too long, or has no valid Content-Length. The stream must then be closed.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        let length = match self.length {
            Some(length) => length,
            None => match self.find_length()? {
                Some(length) => *self.length.insert(length),
                None => return Ok(None),
            },
        };
        if self.buffer.len() < length {
            return Ok(None);
        }
        (self.length, self.searched) = (None, 0);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    fn find_length(&mut self) -> Result<Option<usize>, FrameError> {
        // A single CR LF is the answer to our keep-alive, or an empty line before a message. Both are skipped.
        while self.buffer.starts_with(b"\r\n")
            && !self.buffer.starts_with(b"\r\n\r\n")
            && self.buffer.len() > 2
        {
            self.buffer.advance(2);
            self.searched = 0;
        }
        let from = self.searched.saturating_sub(3);
        let found = self.buffer[from..].windows(4).position(|four| four == b"\r\n\r\n");
        self.searched = self.buffer.len();
        let Some(found) = found else {
            return if self.buffer.len() > self.limits.message {
                Err(FrameError::TooLong(self.limits.message))
            } else {
                Ok(None)
            };
        };
        let header = from + found + 4;
        let body = stream_length(&Bytes::copy_from_slice(&self.buffer[..header]), &self.limits)?;
        let length = body.ok_or(FrameError::NoLength)?.saturating_add(header);
        if length > self.limits.message {
            return Err(FrameError::TooLong(self.limits.message));
        }
        Ok(Some(length))
    }
}

/// Converts a message to the form that a stream requires. In a stream, Content-Length is mandatory. In a datagram, Content-Length may be
/// absent (RFC 3261 section 20.14).
pub fn in_stream(message: Bytes) -> Bytes {
    // A message that consists of line ends is a keep-alive.
    let end = message.windows(4).position(|four| four == b"\r\n\r\n").filter(|end| *end > 0);
    let Some(end) = end else { return message };
    let (header, body) = (message.slice(..end + 4), &message[end + 4..]);
    // Messages that already have a Content-Length, valid or not, and malformed messages stay unchanged.
    match stream_length(&header, &Limits::default()) {
        Ok(None) => {
            let length = format!("Content-Length: {}\r\n\r\n", body.len());
            [&message[..end + 2], length.as_bytes(), body].concat().into()
        }
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"OPTIONS sip:a SIP/2.0\r\nl: 3\r\n\r\nabc";

    #[test]
    fn messages_come_out_however_the_stream_is_cut() {
        let stream = [MESSAGE, b"\r\n", MESSAGE].concat();
        for cut in 0..stream.len() {
            let (mut framer, mut found) = (Framer::new(Limits::default()), Vec::new());
            for part in [&stream[..cut], &stream[cut..]] {
                framer.push(part);
                while let Some(message) = framer.next_message().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [MESSAGE, MESSAGE], "cut at {cut}");
        }
    }

    #[test]
    fn a_missing_content_length_is_added_to_a_message_sent_over_a_stream() {
        let told = |message: &'static str| in_stream(Bytes::from_static(message.as_bytes()));
        assert_eq!(
            told("OPTIONS sip:a SIP/2.0\r\nTo: b\r\n\r\nabc"),
            "OPTIONS sip:a SIP/2.0\r\nTo: b\r\nContent-Length: 3\r\n\r\nabc"
        );
        for unchanged in ["OPTIONS sip:a SIP/2.0\r\nl: 3\r\n\r\nabc", "\r\n\r\n", "no message"] {
            assert_eq!(told(unchanged), unchanged);
        }
    }

    #[test]
    fn a_message_without_length_ends_the_stream() {
        let mut framer = Framer::new(Limits::default());
        framer.push(b"OPTIONS sip:a SIP/2.0\r\n\r\n");
        assert_eq!(framer.next_message(), Err(FrameError::NoLength));
    }

    #[test]
    fn a_message_beyond_the_size_limit_is_an_error() {
        let mut framer = Framer::new(Limits { message: 100, headers: 10 });
        framer.push(&[b'a'; 100]);
        assert_eq!(framer.next_message(), Ok(None));
        framer.push(b"a");
        assert_eq!(framer.next_message(), Err(FrameError::TooLong(100)));
    }

    #[test]
    fn a_double_line_end_is_a_ping() {
        let mut framer = Framer::new(Limits::default());
        framer.push(b"\r\n\r\n");
        assert!(framer.take_ping());
        framer.push(MESSAGE);
        assert!(!framer.take_ping());
        assert_eq!(framer.next_message().unwrap().unwrap(), MESSAGE);
    }
}
