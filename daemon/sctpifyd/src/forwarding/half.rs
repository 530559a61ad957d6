//! One direction of a plain connection: bytes in order, and then the end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;

/// Limit on the bytes that one direction holds.
const BUFFER: usize = 64 * 1024;
/// Limit on the reads and writes in one turn. The limit leaves time for other connections.
const ROUNDS: usize = 8;

/// A socket, and its readiness as far as known.
pub(super) struct End {
    pub(super) stream: TcpStream,
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl End {
    pub(super) fn new(stream: TcpStream) -> End {
        End { stream, readable: true, writable: true }
    }
}

/// One direction of a connection.
pub(super) struct Half {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// True if the source has sent its end.
    has_ended: bool,
    /// True if the destination socket has got the source's end.
    is_closed: bool,
}

impl Half {
    pub(super) fn new() -> Half {
        Half { buffer: vec![0; BUFFER].into(), start: 0, end: 0, has_ended: false, is_closed: false }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Moves the bytes that can be moved now. Reports whether more bytes can be moved at once.
    ///
    /// # Errors
    /// Returns an error of either socket. The connection must then be reset.
    pub(super) fn pump(&mut self, from: &mut End, to: &mut End) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            if !(self.fill(from)? | self.empty(to)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn fill(&mut self, from: &mut End) -> io::Result<bool> {
        if self.has_ended || !from.readable || self.start < self.end {
            return Ok(false);
        }
        match from.stream.read(&mut self.buffer) {
            Ok(0) => self.has_ended = true,
            Ok(length) => (self.start, self.end) = (0, length),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                from.readable = false;
                return Ok(false);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn empty(&mut self, to: &mut End) -> io::Result<bool> {
        if self.start == self.end {
            let is_due = self.has_ended && !self.is_closed;
            if is_due {
                to.stream.shutdown(Shutdown::Write)?;
                self.is_closed = true;
            }
            return Ok(is_due);
        }
        if !to.writable {
            return Ok(false);
        }
        match to.stream.write(&self.buffer[self.start..self.end]) {
            Ok(length) => self.start += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                to.writable = false;
                return Ok(false);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}
