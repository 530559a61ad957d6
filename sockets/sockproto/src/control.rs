//! Requests to the socket server, and the server's answers. Each connection carries one request and one answer.

/// Longest request, in bytes. Values of options and lists of addresses are far shorter.
pub const CONTROL_MAX: usize = 64 << 10;

const MAGIC: u32 = 0xd5c7_9e02;
const HEADER: usize = 16;

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// `socket`: `first` is the address family, `second` the type. The answer carries the program's end of the pair.
    Socket = 1,
    /// `bind`, with a packed list of addresses.
    Bind = 2,
    /// `SCTP_SOCKOPT_BINDX_ADD`, with a packed list of addresses.
    BindAdd = 3,
    /// `SCTP_SOCKOPT_BINDX_REM`, with a packed list of addresses.
    BindRemove = 4,
    /// `listen`: `first` is the backlog.
    Listen = 5,
    /// `connect` and `sctp_connectx`, with a packed list of addresses.
    ///
    /// If `first` is 0, the answer is `EINPROGRESS` at once. When the attempt to connect has ended, a one-to-one socket becomes
    /// writable. If `first` is not 0, the answer comes when the attempt has ended. If too many callers already wait, the answer is
    /// `EINPROGRESS` at once.
    Connect = 6,
    /// `getsockname`; the answer's payload is the address.
    LocalName = 7,
    /// `getpeername`; the answer's payload is the address.
    PeerName = 8,
    /// `getsockopt`: `first` is the level, `second` the name. The payload is the content of the program's buffer.
    GetOption = 9,
    /// `setsockopt`: `first` is the level, `second` the name, and the payload is the value.
    SetOption = 10,
    /// Returns a page of the list of sockets and associations, as lines of JSON. `first` is the number of lines to skip. The
    /// answer's value is `first` for the next page, or 0 after the last page.
    List = 11,
    /// Keeps the server running until the connection is closed.
    Lease = 12,
    /// `sctp_peeloff`: `first` is the association's identifier. The answer carries the program's end of the association's new socket.
    PeelOff = 13,
    /// Waits until an association of a one-to-many socket is up. The payload is the peer's address, and `first` is 1.
    AwaitPeer = 14,
}

impl Operation {
    fn of(number: u32) -> Option<Operation> {
        use Operation as O;
        [
            O::Socket,
            O::Bind,
            O::BindAdd,
            O::BindRemove,
            O::Listen,
            O::Connect,
            O::LocalName,
            O::PeerName,
            O::GetOption,
            O::SetOption,
            O::List,
            O::Lease,
            O::PeelOff,
            O::AwaitPeer,
        ]
        .into_iter()
        .find(|operation| *operation as u32 == number)
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The kind of request.
    pub operation: Operation,
    /// The first argument.
    pub first: i32,
    /// The second argument.
    pub second: i32,
    /// Packed addresses, or an option's value.
    pub payload: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns the bytes before the payload.
    pub fn header(&self) -> [u8; HEADER] {
        header([self.operation as u32, self.first.cast_unsigned(), self.second.cast_unsigned()])
    }

    /// Reads a request. Returns `None` if the message is not a request.
    pub fn read(message: &'a [u8]) -> Option<Request<'a>> {
        let ([operation, first, second], payload) = read(message)?;
        let operation = Operation::of(operation)?;
        Some(Request { operation, first: first.cast_signed(), second: second.cast_signed(), payload })
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Error number (errno); 0 for success.
    pub error: i32,
    /// A number, such as an association's identifier.
    pub value: i32,
    /// An address, an option's value, or text.
    pub payload: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Returns the bytes before the payload.
    pub fn header(&self) -> [u8; HEADER] {
        header([self.error.cast_unsigned(), self.value.cast_unsigned(), 0])
    }

    /// Reads an answer. Returns `None` if the message is not an answer.
    pub fn read(message: &'a [u8]) -> Option<Answer<'a>> {
        let ([error, value, _], payload) = read(message)?;
        Some(Answer { error: error.cast_signed(), value: value.cast_signed(), payload })
    }
}

fn header(fields: [u32; 3]) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let [a, b, c] = fields;
    for (chunk, field) in bytes.chunks_exact_mut(4).zip([MAGIC, a, b, c]) {
        chunk.copy_from_slice(&field.to_ne_bytes());
    }
    bytes
}

fn read(message: &[u8]) -> Option<([u32; 3], &[u8])> {
    let (header, payload) = message.split_first_chunk::<HEADER>()?;
    let field = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    (field(0) == MAGIC).then_some(([field(4), field(8), field(12)], payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = Request { operation: Operation::SetOption, first: 132, second: -1, payload: b"value" };
        let mut message = [0; 64];
        message[..16].copy_from_slice(&request.header());
        message[16..21].copy_from_slice(b"value");
        assert_eq!(Request::read(&message[..21]), Some(request));
        assert_eq!(Request::read(&message[..15]), None);
        message[4] = 77;
        assert_eq!(Request::read(&message[..21]), None, "no such operation");
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let answer = Answer { error: 111, value: 3, payload: &[] };
        assert_eq!(Answer::read(&answer.header()), Some(answer));
        assert_eq!(Answer::read(b"something else, as long as it"), None);
    }
}
