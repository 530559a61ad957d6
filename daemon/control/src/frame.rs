//! Reads and writes requests and responses as lines of JSON, and answers the requests of a connection.
//!
//! Refuses lines of another schema, requests longer than the caller's limit, and responses longer than [`MAX_RESPONSE_BYTES`]. Begin with
//! [`serve`].

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::net::UnixStream;

use ops::{LineError, MAX_RESPONSE_BYTES, read_body, write_line};

use crate::{ErrorCode, Request, Response};

/// Writes one request as a line.
///
/// # Errors
/// If the socket fails.
pub fn write_request(to: &mut impl Write, request: &Request) -> Result<(), LineError> {
    write_line(to, request)
}

/// Writes one response as a line.
///
/// # Errors
/// If the socket fails.
pub fn write_response(to: &mut impl Write, response: &Response) -> Result<(), LineError> {
    write_line(to, response)
}

/// Reads the next request, of up to `bytes_max` bytes; `None` if the other side has closed the connection.
///
/// # Errors
/// If the socket fails, or the line is too long, cut short, of another schema, or not a request.
pub fn read_request(from: &mut impl BufRead, bytes_max: u64) -> Result<Option<Request>, LineError> {
    read_body(from, bytes_max)?.map(Request::read).transpose().map_err(LineError::from)
}

/// Reads the next response; `None` if the other side has closed the connection.
///
/// # Errors
/// If the socket fails, or the line is too long, cut short, of another schema, or not a response.
pub fn read_response(from: &mut impl BufRead) -> Result<Option<Response>, LineError> {
    read_body(from, MAX_RESPONSE_BYTES)
}

/// Answers the requests of one connection, each of up to `bytes_max` bytes, until the other side closes the connection. Also returns after
/// the successful answer to a last request ([`Request::is_last`]).
///
/// If a line is not a valid request, answers with an error and reads the next line. If a line is too long or cut short, answers with an
/// error and stops. The caller must set the timeouts of the stream, because nothing else limits the waits.
///
/// # Errors
/// If the socket fails, or a line is too long or cut short.
pub fn serve(
    stream: &UnixStream,
    bytes_max: u64,
    mut answer: impl FnMut(Request) -> Response,
) -> Result<(), LineError> {
    let mut from = BufReader::new(stream);
    let mut to = BufWriter::new(stream);
    loop {
        match read_request(&mut from, bytes_max) {
            Ok(None) => return Ok(()),
            Ok(Some(request)) => {
                let is_last = request.is_last();
                let response = answer(request);
                write_response(&mut to, &response)?;
                if is_last && !matches!(response, Response::Error(_)) {
                    return Ok(());
                }
            }
            Err(LineError::Io(e)) => return Err(LineError::Io(e)),
            Err(e @ (LineError::Json(_) | LineError::Schema { .. })) => {
                write_response(&mut to, &Response::error(ErrorCode::BadRequest, e.to_string()))?;
            }
            Err(e @ (LineError::TooLong { .. } | LineError::CutShort)) => {
                write_response(&mut to, &Response::error(ErrorCode::BadRequest, e.to_string()))?;
                return Err(e);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ops::MAX_REQUEST_BYTES;

    use super::*;

    fn read(text: &str) -> Result<Option<Request>, LineError> {
        read_request(&mut text.as_bytes(), MAX_REQUEST_BYTES)
    }

    #[test]
    fn a_request_reads_back_as_written() {
        let request = Request::Set { name: "udp_port".into(), value: "9900".into() };
        let mut line = Vec::new();
        write_request(&mut line, &request).unwrap();
        assert_eq!(line, b"{\"schema\":1,\"request\":\"set\",\"name\":\"udp_port\",\"value\":\"9900\"}\n");
        assert_eq!(read_request(&mut &line[..], MAX_REQUEST_BYTES).unwrap(), Some(request));
    }

    #[test]
    fn an_unknown_request_or_field_is_refused() {
        assert!(matches!(read("{\"schema\":1,\"request\":\"dance\"}\n"), Err(LineError::Json(_))));
        let extra = "{\"schema\":1,\"request\":\"get\",\"name\":\"x\",\"colour\":1}\n";
        assert!(matches!(read(extra), Err(LineError::Json(_))));
    }

    #[test]
    fn a_line_at_the_limit_is_read_and_one_byte_more_is_refused() {
        let line = |bytes: usize| {
            let frame = "{\"schema\":1,\"request\":\"get\",\"name\":\"\"}\n".len();
            format!("{{\"schema\":1,\"request\":\"get\",\"name\":\"{}\"}}\n", "x".repeat(bytes - frame))
        };
        assert!(read(&line(MAX_REQUEST_BYTES as usize)).is_ok());
        assert!(matches!(read(&line(MAX_REQUEST_BYTES as usize + 1)), Err(LineError::TooLong { .. })));
    }

    #[test]
    fn a_bad_line_is_answered_and_the_next_one_served() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(b"nonsense\n{\"schema\":1,\"request\":\"reload\"}\n").unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        serve(&theirs, MAX_REQUEST_BYTES, |request| Response::Done(crate::Done::new(format!("{request:?}"))))
            .unwrap();
        drop(theirs);
        let mut from = BufReader::new(&ours);
        assert!(matches!(read_response(&mut from).unwrap(), Some(Response::Error(_))));
        assert_eq!(read_response(&mut from).unwrap(), Some(Response::Done(crate::Done::new("Reload"))));
    }
}
