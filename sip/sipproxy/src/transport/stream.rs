//! A connection's byte stream: TCP, or TLS over TCP.

use std::io::{self, ErrorKind, Read as _, Write as _};

use mio::net::TcpStream;

/// Limit on the bytes that a TLS session holds until the kernel accepts them.
const HELD_MAX: usize = 64 * 1024;

/// The stream of one connection.
#[derive(Debug)]
pub(super) enum Stream {
    /// A stream without encryption.
    Plain(TcpStream),
    /// A stream over TLS.
    Tls(TcpStream, Box<rustls::Connection>),
}

impl Stream {
    /// Creates a stream, which uses TLS if `session` is present.
    pub(super) fn new(socket: TcpStream, session: Option<rustls::Connection>) -> Stream {
        match session {
            None => Stream::Plain(socket),
            Some(mut session) => {
                session.set_buffer_limit(Some(HELD_MAX));
                Stream::Tls(socket, Box::new(session))
            }
        }
    }

    /// Returns the socket, for the poll.
    pub(super) fn socket(&mut self) -> &mut TcpStream {
        match self {
            Stream::Plain(socket) | Stream::Tls(socket, _) => socket,
        }
    }

    /// Reads like read(2), and returns 0 at the end of the stream. Fails with [`ErrorKind::InvalidData`] if the peer violates TLS or fails
    /// authentication.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (socket, session) = match self {
            Stream::Plain(socket) => return socket.read(buffer),
            Stream::Tls(socket, session) => (socket, session),
        };
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if session.read_tls(socket)? == 0 {
                return Ok(0);
            }
            if let Err(error) = session.process_new_packets() {
                // Sends the TLS alert with the reason.
                let _ = session.write_tls(socket);
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
            write_held(socket, session)?;
        }
    }

    /// Writes like write(2). Accepts no bytes before the end of the TLS handshake.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (socket, session) = match self {
            Stream::Plain(socket) => return socket.write(bytes),
            Stream::Tls(socket, session) => (socket, session),
        };
        write_held(socket, session)?;
        if session.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let written = session.writer().write(bytes)?;
        write_held(socket, session)?;
        if written == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(written) }
    }

    /// Writes the session's pending bytes, until the kernel accepts no more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(_) => Ok(()),
            Stream::Tls(socket, session) => write_held(socket, session),
        }
    }

    /// Reports whether the session holds bytes that the kernel has not accepted.
    pub(super) fn holds(&self) -> bool {
        matches!(self, Stream::Tls(_, session) if session.wants_write())
    }

    /// Notifies the peer of the end of the stream, if the stream uses TLS (close_notify).
    pub(super) fn say_goodbye(&mut self) {
        if let Stream::Tls(socket, session) = self {
            session.send_close_notify();
            let _ = write_held(socket, session);
        }
    }
}

fn write_held(socket: &mut TcpStream, session: &mut rustls::Connection) -> io::Result<()> {
    while session.wants_write() {
        match session.write_tls(socket) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if super::tcp::is_in_progress(&error) || error.kind() == ErrorKind::NotConnected => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
