//! The client of the daemon's control socket.

use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ops::LineError;

use crate::{Request, Response, read_response, write_request};

/// A connection to the daemon's control socket.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    timeout: Duration,
    stream: BufReader<UnixStream>,
}

/// Reasons why the daemon did not answer. The text includes a remedy if one is known.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens on the socket, or the socket does not exist.
    #[error("no daemon is listening on {}: start it with `sctpify up`", .path.display())]
    NoDaemon {
        /// The control socket.
        path: PathBuf,
    },
    /// This user may not open the socket.
    #[error("no permission for {}: run this as root, or as a member of the group that owns the socket", .path.display())]
    NotPermitted {
        /// The control socket.
        path: PathBuf,
    },
    /// The daemon accepts connections, but does not answer in time.
    #[error("the daemon on {} did not answer within {} s: it is overloaded or hung; retry, or send sctpifyd a SIGTERM",
            .path.display(), .timeout.as_secs())]
    TimedOut {
        /// The control socket.
        path: PathBuf,
        /// The timeout.
        timeout: Duration,
    },
    /// The daemon closed the connection before it sent a whole answer.
    #[error("the daemon on {} closed the connection without an answer: see its log", .path.display())]
    Closed {
        /// The control socket.
        path: PathBuf,
    },
    /// The answer is not valid.
    #[error("the answer of the daemon on {}: {error}", .path.display())]
    Answer {
        /// The control socket.
        path: PathBuf,
        /// The fault.
        error: LineError,
    },
}

impl ClientError {
    /// Reports whether the error means that no daemon listens on the socket.
    pub fn is_no_daemon(&self) -> bool {
        matches!(self, ClientError::NoDaemon { .. })
    }
}

impl Client {
    /// Connects to the control socket. `timeout` limits the wait for each answer.
    ///
    /// # Errors
    /// If nothing listens on the socket, or if this user has no permission.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Client, ClientError> {
        let failed = |e: io::Error| failure(path, timeout, LineError::Io(e));
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        Ok(Client { path: path.into(), timeout, stream: BufReader::new(stream) })
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// If no valid answer arrives. A refusal is a valid answer: [`Response::Error`].
    pub fn call(&mut self, request: &Request) -> Result<Response, ClientError> {
        let failed = |e| failure(&self.path, self.timeout, e);
        write_request(self.stream.get_mut(), request).map_err(failed)?;
        let answer = read_response(&mut self.stream).map_err(failed)?;
        answer.ok_or_else(|| ClientError::Closed { path: self.path.clone() })
    }

    /// Returns the stream of data that follows the answer to a last request ([`Request::is_last`]). A read fails with `WouldBlock` after
    /// `patience`, and may be repeated.
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn into_stream(self, patience: Duration) -> io::Result<BufReader<UnixStream>> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        Ok(self.stream)
    }
}

fn failure(path: &Path, timeout: Duration, error: LineError) -> ClientError {
    let path = path.to_path_buf();
    let LineError::Io(io_error) = &error else {
        return match error {
            LineError::CutShort => ClientError::Closed { path },
            error => ClientError::Answer { path, error },
        };
    };
    match io_error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NoDaemon { path },
        ErrorKind::PermissionDenied => ClientError::NotPermitted { path },
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::TimedOut { path, timeout },
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ClientError::Closed { path },
        _ => ClientError::Answer { path, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const TIMEOUT: Duration = Duration::from_millis(50);

    #[test]
    fn a_missing_socket_and_a_dead_one_both_say_how_to_start_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let missing = Client::connect(&path, TIMEOUT).unwrap_err();
        drop(UnixListener::bind(&path).unwrap());
        let dead = Client::connect(&path, TIMEOUT).unwrap_err();
        assert!(missing.is_no_daemon() && dead.is_no_daemon());
        assert!(dead.to_string().ends_with("start it with `sctpify up`"), "{dead}");
    }

    #[test]
    fn a_daemon_that_never_answers_is_reported_as_hung() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let error = Client::connect(&path, TIMEOUT).unwrap().call(&Request::Status).unwrap_err();
        assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    }

    #[test]
    fn a_daemon_that_hangs_up_is_reported_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(&path, TIMEOUT).unwrap();
        drop(listener.accept().unwrap());
        let error = client.call(&Request::Status).unwrap_err();
        assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    }
}
