//! Parses bytes into a [`Message`]: the first line, the header fields, and the length of the body.
//!
//! A malformed request that can still be answered becomes a message with a [`Fault`]. Other malformed input is an error. Of the field
//! values, only Content-Length is parsed. The Request-URI is also checked. Begin with [`Message::parse`].

use bytes::Bytes;

use crate::cursor::{is_space, is_token, number, trim};
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Method, Start};
use crate::uri::Uri;

/// Limits on one message.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limit on the bytes of the whole message.
    pub message: usize,
    /// Limit on header fields.
    pub headers: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { message: 64 * 1024, headers: 256 }
    }
}

/// The reason why bytes are not a message and cannot be answered with a rejection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// Input that consists of line ends only. Such input is a keep-alive (RFC 5626 section 4.4.1).
    #[error("no message, only line endings")]
    Empty,
    /// A message longer than [`Limits::message`].
    #[error("a message exceeds {0} bytes")]
    TooLong(usize),
    /// A message with more fields than [`Limits::headers`].
    #[error("more than {0} header fields")]
    TooManyHeaders(usize),
    /// A first line that belongs neither to a request nor to a response.
    #[error("the first line is not a SIP start line")]
    StartLine,
    /// A header without an empty line at its end.
    #[error("the header does not end")]
    NoEnd,
    /// A response that does not follow the grammar. Responses are not answered, so a rejection is impossible.
    #[error("a response: {0}")]
    Response(Fault),
}

/// The end of the body: after the length in Content-Length, or at the end of the datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Given(usize),
    Datagram,
}

impl Message {
    /// Parses a complete message: a datagram, an SCTP message, or the output of [`Framer`](crate::Framer).
    ///
    /// # Errors
    /// Fails if the message cannot be answered with a rejection. For all other faults, the result is a message with [`Message::fault`].
    pub fn parse(bytes: Bytes, limits: &Limits) -> Result<Message, ParseError> {
        if bytes.len() > limits.message {
            return Err(ParseError::TooLong(limits.message));
        }
        // "Implementations … SHOULD ignore any CRLF appearing before the start-line" (RFC 3261 section 7.5).
        let start = bytes.iter().position(|&b| b != b'\r' && b != b'\n').ok_or(ParseError::Empty)?;
        let bytes = bytes.slice(start..);
        let end = line_end(&bytes).ok_or(ParseError::StartLine)?;
        let (start, mut fault) = start_line(&bytes.slice(..end - 2))?;
        let (headers, body, flaw) = header_lines(&bytes, end, limits)?;
        fault = fault.or(flaw);
        let (body, flaw) = body_of(&headers, body);
        fault = fault.or(flaw);
        match (&start, fault) {
            (Start::Response { .. }, Some(fault)) => Err(ParseError::Response(fault)),
            _ => Ok(Message { start, headers, body, fault }),
        }
    }
}

/// Returns the position after the first CR LF.
fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2)
}

fn start_line(line: &Bytes) -> Result<(Start, Option<Fault>), ParseError> {
    if line.len() >= 4 && line[..4].eq_ignore_ascii_case(b"SIP/") {
        return status_line(line).map(|start| (start, None));
    }
    let space = line.iter().position(|&b| b == b' ').ok_or(ParseError::StartLine)?;
    let method = line.slice(..space);
    if method.is_empty() || !method.iter().all(|&b| is_token(b)) {
        return Err(ParseError::StartLine);
    }
    let rest = line.slice(space + 1..);
    let trimmed = rest.slice_ref(trim(&rest));
    let last = trimmed.iter().rposition(|&b| b == b' ').ok_or(ParseError::StartLine)?;
    let (uri, version) = (trimmed.slice(..last), trimmed.slice(last + 1..));
    let fault = request_line_fault(&rest, &uri, &version)?;
    Ok((Start::Request { method: Method::from_bytes(method), uri }, fault))
}

/// Checks a request line as RFC 4475 sections 3.1.2.7 to 3.1.2.11 and 3.1.2.16 require. One space must separate method, URI and version.
/// The URI must not contain brackets, white space or header fields. The version must be 2.0.
fn request_line_fault(rest: &[u8], uri: &[u8], version: &[u8]) -> Result<Option<Fault>, ParseError> {
    if version.len() < 5 || !version[..4].eq_ignore_ascii_case(b"SIP/") {
        return Err(ParseError::StartLine);
    }
    if !version.eq_ignore_ascii_case(b"SIP/2.0") {
        return Ok(Some(Fault { status: 505, reason: "Version Not Supported" }));
    }
    if rest.len() != uri.len() + 1 + version.len() {
        return Ok(Some(Fault::bad("Extra Space In Request-Line")));
    }
    Ok(match Uri::parse(uri) {
        Err(fault) => Some(fault),
        Ok(uri) if uri.headers.is_some() => Some(Fault::bad("Header Fields In Request-URI")),
        Ok(_) => None,
    })
}

fn status_line(line: &Bytes) -> Result<Start, ParseError> {
    let rest = line.strip_prefix(b"SIP/2.0 ").ok_or(ParseError::StartLine)?;
    let (status, reason) = rest.split_at_checked(3).ok_or(ParseError::StartLine)?;
    // The grammar requires a space before an empty reason phrase (RFC 4475 section 3.1.1.13). Some implementations omit the space.
    let reason =
        reason.strip_prefix(b" ").or(reason.is_empty().then_some(reason)).ok_or(ParseError::StartLine)?;
    let status = number(status).and_then(|n| u16::try_from(n).ok()).filter(|n| (100..700).contains(n));
    Ok(Start::Response { status: status.ok_or(ParseError::StartLine)?, reason: line.slice_ref(reason) })
}

/// Returns the header fields from position `at` on, the bytes after the header, and the first fault.
fn header_lines(
    bytes: &Bytes,
    mut at: usize,
    limits: &Limits,
) -> Result<(Vec<Header>, Bytes, Option<Fault>), ParseError> {
    let (mut headers, mut fault) = (Vec::with_capacity(16), None);
    loop {
        let end = field_end(bytes, at).ok_or(ParseError::NoEnd)?;
        if end == at + 2 {
            return Ok((headers, bytes.slice(end..), fault));
        }
        if headers.len() == limits.headers {
            return Err(ParseError::TooManyHeaders(limits.headers));
        }
        match field(bytes.slice(at..end)) {
            Ok(header) => headers.push(header),
            Err(flaw) => fault = fault.or(Some(flaw)),
        }
        at = end;
    }
}

/// Returns the end of the field at `start`: the position after the first CR LF that no space or tab follows.
fn field_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        at += line_end(&bytes[at..])?;
        let is_empty_line = at == start + 2;
        if is_empty_line || !matches!(bytes.get(at), Some(b' ' | b'\t')) {
            return Some(at);
        }
    }
}

fn field(raw: Bytes) -> Result<Header, Fault> {
    let line = &raw[..raw.len() - 2];
    if line.iter().enumerate().any(|(at, &b)| is_bare_line_end(line, at, b)) {
        return Err(Fault::bad("CR Or LF Alone"));
    }
    let colon = line.iter().position(|&b| b == b':').ok_or(Fault::bad("Header Field Without Colon"))?;
    let name = &line[..colon];
    let name = &name[..name.iter().rposition(|&b| !is_space(b)).map_or(0, |last| last + 1)];
    if name.is_empty() || !name.iter().all(|&b| is_token(b)) {
        return Err(Fault::bad("Invalid Header Field Name"));
    }
    let value = raw.slice_ref(trim(&line[colon + 1..]));
    Ok(Header { name: Name::from_bytes(name), value, raw })
}

fn is_bare_line_end(line: &[u8], at: usize, byte: u8) -> bool {
    match byte {
        b'\r' => line.get(at + 1) != Some(&b'\n'),
        b'\n' => at == 0 || line[at - 1] != b'\r',
        _ => false,
    }
}

/// Returns the body, cut to Content-Length (RFC 3261 section 18.3). Excess bytes are discarded. Missing bytes are a fault.
fn body_of(headers: &[Header], rest: Bytes) -> (Bytes, Option<Fault>) {
    match content_length(headers) {
        Err(fault) => (Bytes::new(), Some(fault)),
        Ok(End::Datagram) => (rest, None),
        Ok(End::Given(length)) if length > rest.len() => {
            (rest, Some(Fault::bad("Content-Length Is Larger Than Message")))
        }
        Ok(End::Given(length)) => (rest.slice(..length), None),
    }
}

fn content_length(headers: &[Header]) -> Result<End, Fault> {
    let mut found = None;
    for header in headers.iter().filter(|header| header.name == Name::ContentLength) {
        let length = number(&header.value).and_then(|n| usize::try_from(n).ok());
        let length = length.ok_or(Fault::bad("Invalid Content-Length"))?;
        // RFC 4475 section 3.3.9: if two values differ, the body's end is unknown.
        if found.is_some_and(|other| other != length) {
            return Err(Fault::bad("Several Content-Lengths"));
        }
        found = Some(length);
    }
    Ok(found.map_or(End::Datagram, End::Given))
}

/// Returns the Content-Length in the header of a message from a stream, or `None` if it is missing or malformed. Streams require this
/// field (RFC 3261 section 18.3).
pub(crate) fn stream_length(header: &Bytes, limits: &Limits) -> Result<Option<usize>, ParseError> {
    let end = line_end(header).ok_or(ParseError::StartLine)?;
    let (headers, ..) = header_lines(header, end, limits)?;
    Ok(match content_length(&headers) {
        Ok(End::Given(length)) => Some(length),
        _ => None,
    })
}
