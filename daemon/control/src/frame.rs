//! Requests and responses as lines of JSON, with a limit on their length.

use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ErrorCode, Request, Response, SCHEMA};

/// Length of the longest request, in bytes with its line end.
pub const MAX_REQUEST_BYTES: u64 = 64 << 10;
/// Length of the longest response, in bytes with its line end: a status with every connection the daemon may hold.
pub const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// Reasons why a line was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The socket failed.
    #[error("the control socket failed: {0}")]
    Io(#[from] io::Error),
    /// The line is too long.
    #[error("a line of the control socket is longer than {max} bytes")]
    TooLong {
        /// The limit.
        max: u64,
    },
    /// The stream ends before the line does.
    #[error("the other side closed the control socket in the middle of a line")]
    CutShort,
    /// Not JSON, or not a request or response.
    #[error("not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// Another schema version.
    #[error(
        "the line speaks schema {found}, this program speaks schema {SCHEMA}: use sctpify and sctpifyd of the same version"
    )]
    Schema {
        /// The schema of the line; `null` if it has none.
        found: Value,
    },
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    schema: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Writes any body as one line, also for other programs' control sockets.
///
/// # Errors
/// When the socket fails.
pub fn write_line<T: Serialize>(to: &mut impl Write, body: &T) -> Result<(), FrameError> {
    let mut line = serde_json::to_vec(&Outgoing { schema: SCHEMA, body })?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()?;
    Ok(())
}

/// Reads the next line as a value without its schema; `None` at the end of the stream.
fn read_line(from: &mut impl BufRead, max: u64) -> Result<Option<Value>, FrameError> {
    let mut line = Vec::new();
    from.take(max).read_until(b'\n', &mut line)?;
    match line.last() {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) if line.len() as u64 == max => return Err(FrameError::TooLong { max }),
        Some(_) => return Err(FrameError::CutShort),
    }
    let mut value: Value = serde_json::from_slice(&line)?;
    let schema = value.as_object_mut().and_then(|o| o.remove("schema")).unwrap_or(Value::Null);
    if schema != SCHEMA {
        return Err(FrameError::Schema { found: schema });
    }
    Ok(Some(value))
}

/// Reads the next body, with a limit of `max` bytes on its line; `None` when the other side has closed.
///
/// # Errors
/// When the line is too long, cut short, of another schema, or not such a body.
pub fn read_body<T: for<'a> Deserialize<'a>>(
    from: &mut impl BufRead,
    max: u64,
) -> Result<Option<T>, FrameError> {
    let value = read_line(from, max)?;
    value.map(|v| serde_json::from_value(v).map_err(FrameError::from)).transpose()
}

/// Writes one request as a line.
///
/// # Errors
/// When the socket fails.
pub fn write_request(to: &mut impl Write, request: &Request) -> Result<(), FrameError> {
    write_line(to, request)
}

/// Writes one response as a line.
///
/// # Errors
/// When the socket fails.
pub fn write_response(to: &mut impl Write, response: &Response) -> Result<(), FrameError> {
    write_line(to, response)
}

/// Reads the next request; `None` when the other side has closed.
///
/// # Errors
/// When the line is too long, cut short, of another schema or no request.
pub fn read_request(from: &mut impl BufRead) -> Result<Option<Request>, FrameError> {
    read_body(from, MAX_REQUEST_BYTES)
}

/// Reads the next response; `None` when the other side has closed.
///
/// # Errors
/// When the line is too long, cut short, of another schema or no response.
pub fn read_response(from: &mut impl BufRead) -> Result<Option<Response>, FrameError> {
    read_body(from, MAX_RESPONSE_BYTES)
}

/// Answers the requests of one connection until the other side closes it.
///
/// Answers a line that is no request with an error, and reads the next one; ends the connection after a line that is too long or
/// cut short. Set the stream's timeouts first: this waits for as long as they allow.
///
/// # Errors
/// When the socket fails.
pub fn serve(stream: &UnixStream, mut answer: impl FnMut(Request) -> Response) -> Result<(), FrameError> {
    let mut from = BufReader::new(stream);
    let mut to = BufWriter::new(stream);
    loop {
        match read_request(&mut from) {
            Ok(None) => return Ok(()),
            Ok(Some(request)) => {
                let is_last = request.is_last();
                let response = answer(request);
                write_response(&mut to, &response)?;
                if is_last && !matches!(response, Response::Error(_)) {
                    return Ok(());
                }
            }
            Err(FrameError::Io(e)) => return Err(FrameError::Io(e)),
            Err(e @ (FrameError::Json(_) | FrameError::Schema { .. })) => {
                write_response(&mut to, &Response::error(ErrorCode::BadRequest, e.to_string()))?;
            }
            Err(e @ (FrameError::TooLong { .. } | FrameError::CutShort)) => {
                write_response(&mut to, &Response::error(ErrorCode::BadRequest, e.to_string()))?;
                return Err(e);
            }
        }
    }
}

/// Reports whether the other end of a connection has gone away; waits up to the stream's read timeout. Discards bytes that arrive
/// earlier.
pub fn has_hung_up(mut stream: &UnixStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Request>, FrameError> {
        read_request(&mut text.as_bytes())
    }

    #[test]
    fn a_request_reads_back_as_written() {
        let request = Request::Set { name: "udp_port".into(), value: "9900".into() };
        let mut line = Vec::new();
        write_request(&mut line, &request).unwrap();
        assert_eq!(line, b"{\"schema\":1,\"request\":\"set\",\"name\":\"udp_port\",\"value\":\"9900\"}\n");
        assert_eq!(read_request(&mut &line[..]).unwrap(), Some(request));
    }

    #[test]
    fn another_schema_or_none_is_refused() {
        let later = read("{\"schema\":2,\"request\":\"status\"}\n").unwrap_err();
        assert!(matches!(later, FrameError::Schema { .. }), "{later}");
        assert!(matches!(read("{\"request\":\"status\"}\n"), Err(FrameError::Schema { found: Value::Null })));
        assert!(matches!(read("17\n"), Err(FrameError::Schema { .. })));
    }

    #[test]
    fn an_unknown_request_or_field_is_refused() {
        assert!(matches!(read("{\"schema\":1,\"request\":\"dance\"}\n"), Err(FrameError::Json(_))));
        let extra = "{\"schema\":1,\"request\":\"get\",\"name\":\"x\",\"colour\":1}\n";
        assert!(matches!(read(extra), Err(FrameError::Json(_))));
    }

    #[test]
    fn a_line_at_the_limit_is_read_and_one_byte_more_is_refused() {
        let line = |bytes: usize| {
            let frame = "{\"schema\":1,\"request\":\"get\",\"name\":\"\"}\n".len();
            format!("{{\"schema\":1,\"request\":\"get\",\"name\":\"{}\"}}\n", "x".repeat(bytes - frame))
        };
        assert!(read(&line(MAX_REQUEST_BYTES as usize)).is_ok());
        assert!(matches!(read(&line(MAX_REQUEST_BYTES as usize + 1)), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn a_line_without_its_end_is_not_acted_upon() {
        assert!(matches!(read("{\"schema\":1,\"request\":\"shutdown\"}"), Err(FrameError::CutShort)));
        assert!(read("").unwrap().is_none());
    }

    #[test]
    fn a_bad_line_is_answered_and_the_next_one_served() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(b"nonsense\n{\"schema\":1,\"request\":\"reload\"}\n").unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        serve(&theirs, |request| Response::Done(crate::Done::new(format!("{request:?}")))).unwrap();
        drop(theirs);
        let mut from = BufReader::new(&ours);
        assert!(matches!(read_response(&mut from).unwrap(), Some(Response::Error(_))));
        assert_eq!(read_response(&mut from).unwrap(), Some(Response::Done(crate::Done::new("Reload"))));
    }
}
