//! Reads and writes lines of JSON on a control socket. Each line holds one object, which includes the schema version. A reader refuses a
//! line that is longer than its limit.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the schema. It changes when a field is removed or changes its meaning, but not when a field is added.
pub const SCHEMA: u32 = 1;
/// Limit on the length of a request, in bytes, including the line end.
pub const MAX_REQUEST_BYTES: u64 = 64 << 10;
/// Limit on the length of a request from a caller that may change the rules, in bytes, including the line end. A request with a full table
/// of rules fits into this limit.
pub const MAX_ORDER_BYTES: u64 = 4 << 20;
/// Limit on the length of a response, in bytes, including the line end. A status with the maximum number of connections fits into this
/// limit.
pub const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// Reasons why a line was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The socket failed.
    #[error("the control socket failed: {0}")]
    Io(#[from] io::Error),
    /// The line is too long.
    #[error("a line of the control socket is longer than {max} bytes")]
    TooLong {
        /// The limit, in bytes.
        max: u64,
    },
    /// The stream ends in the middle of the line.
    #[error("the other side closed the control socket in the middle of a line")]
    CutShort,
    /// The line is not JSON, or not a valid request or response.
    #[error("not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// The line has another schema version, or none.
    #[error(
        "the line has schema {found}, this program uses schema {SCHEMA}: use the same version of both programs"
    )]
    Schema {
        /// Schema version in the line; `null` if the line has none.
        found: Value,
    },
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    schema: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Writes `body`, a request or a response, as one line of JSON with the schema version.
///
/// # Errors
/// [`LineError::Io`] if the socket fails; [`LineError::Json`] if the body does not serialize to an object.
pub fn write_line<T: Serialize>(to: &mut impl Write, body: &T) -> Result<(), LineError> {
    let mut line = serde_json::to_vec(&Outgoing { schema: SCHEMA, body })?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()?;
    Ok(())
}

/// Reads the next line and returns its object without the `schema` field; `None` at the end of the stream.
fn read_line(from: &mut impl BufRead, max: u64) -> Result<Option<Value>, LineError> {
    let mut line = Vec::new();
    from.take(max).read_until(b'\n', &mut line)?;
    match line.last() {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) if line.len() as u64 == max => return Err(LineError::TooLong { max }),
        Some(_) => return Err(LineError::CutShort),
    }
    let mut value: Value = serde_json::from_slice(&line)?;
    let schema = value.as_object_mut().and_then(|o| o.remove("schema")).unwrap_or(Value::Null);
    if schema != SCHEMA {
        return Err(LineError::Schema { found: schema });
    }
    Ok(Some(value))
}

/// Reads the next line, of up to `max` bytes, and returns the request or response in it. Returns `None` if the other side has closed the
/// connection.
///
/// # Errors
/// If the socket fails, or if the line is too long, cut short, of another schema, or not a body of type `T`.
pub fn read_body<T: for<'a> Deserialize<'a>>(
    from: &mut impl BufRead,
    max: u64,
) -> Result<Option<T>, LineError> {
    let value = read_line(from, max)?;
    value.map(|v| serde_json::from_value(v).map_err(LineError::from)).transpose()
}

/// Reports whether the other end has closed the connection or shut down its writing, or the connection has failed. Waits for data or for
/// the end of the stream, up to the stream's read timeout. If the stream has no read timeout, the wait has no limit. Reads up to 64 bytes
/// of data, and discards them. If a signal interrupts the wait, the function returns false.
pub fn has_hung_up(mut stream: &UnixStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(error) => {
            let kinds = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted];
            !kinds.contains(&error.kind())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Body {
        name: String,
    }

    const MAX: u64 = 100;

    fn read(text: &str) -> Result<Option<Body>, LineError> {
        read_body(&mut text.as_bytes(), MAX)
    }

    #[test]
    fn a_body_reads_back_as_written() {
        let body = Body { name: "x".into() };
        let mut line = Vec::new();
        write_line(&mut line, &body).unwrap();
        assert_eq!(line, b"{\"schema\":1,\"name\":\"x\"}\n");
        assert_eq!(read_body(&mut &line[..], MAX).unwrap(), Some(body));
    }

    #[test]
    fn another_schema_or_none_is_refused() {
        assert!(matches!(read("{\"schema\":2,\"name\":\"x\"}\n"), Err(LineError::Schema { .. })));
        assert!(matches!(read("{\"name\":\"x\"}\n"), Err(LineError::Schema { found: Value::Null })));
        assert!(matches!(read("17\n"), Err(LineError::Schema { .. })));
    }

    #[test]
    fn a_line_at_the_limit_is_read_and_one_byte_more_is_refused() {
        let line = |bytes: usize| {
            let around = "{\"schema\":1,\"name\":\"\"}\n".len();
            format!("{{\"schema\":1,\"name\":\"{}\"}}\n", "x".repeat(bytes - around))
        };
        assert!(read(&line(MAX as usize)).is_ok());
        assert!(matches!(read(&line(MAX as usize + 1)), Err(LineError::TooLong { .. })));
    }

    #[test]
    fn a_line_without_its_end_is_cut_short() {
        assert!(matches!(read("{\"schema\":1,\"name\":\"x\"}"), Err(LineError::CutShort)));
        assert!(read("").unwrap().is_none());
    }
}
