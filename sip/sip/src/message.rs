//! Received messages, and the few changes that a proxy makes to them.
//!
//! Invariant: unchanged header fields are written byte for byte as received, in the received order. Begin with [`Message`].

use bytes::{BufMut, Bytes, BytesMut};

use crate::cursor::{first_comma, split_list, trim};
use crate::fault::Fault;
use crate::header::{Header, Name};

/// A request's method. Methods are case-sensitive (RFC 3261 section 7.1).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Method {
    /// Request that sets up or changes a session. Section 13.
    Invite,
    /// Request that acknowledges a final response to INVITE. Sections 13 and 17.
    Ack,
    /// Request that ends a session. Section 15.
    Bye,
    /// Request that cancels a pending request. Section 9.
    Cancel,
    /// Request that registers contacts. Section 10.
    Register,
    /// Request for the capabilities of a server. Section 11.
    Options,
    /// Any other method.
    Other(Bytes),
}

impl Method {
    /// Parses a method's token.
    pub fn from_bytes(token: Bytes) -> Method {
        match &token[..] {
            b"INVITE" => Method::Invite,
            b"ACK" => Method::Ack,
            b"BYE" => Method::Bye,
            b"CANCEL" => Method::Cancel,
            b"REGISTER" => Method::Register,
            b"OPTIONS" => Method::Options,
            _ => Method::Other(token),
        }
    }

    /// Returns the method's token.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Method::Invite => b"INVITE",
            Method::Ack => b"ACK",
            Method::Bye => b"BYE",
            Method::Cancel => b"CANCEL",
            Method::Register => b"REGISTER",
            Method::Options => b"OPTIONS",
            Method::Other(token) => token,
        }
    }
}

/// A message's first line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// First line of a request.
    Request {
        /// The method.
        method: Method,
        /// The Request-URI as received.
        uri: Bytes,
    },
    /// First line of a response.
    Response {
        /// Status code, 100 to 699.
        status: u16,
        /// The reason phrase as received.
        reason: Bytes,
    },
}

/// A SIP message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The first line.
    pub start: Start,
    /// The header fields in their order.
    pub headers: Vec<Header>,
    /// The body.
    pub body: Bytes,
    /// A fault in the syntax of a request, found by [`Message::parse`]. The request can still be answered with a rejection.
    pub fault: Option<Fault>,
}

impl Message {
    /// Returns the method, or `None` for a response.
    pub fn method(&self) -> Option<&Method> {
        match &self.start {
            Start::Request { method, .. } => Some(method),
            Start::Response { .. } => None,
        }
    }

    /// Returns the Request-URI. The result is empty for a response.
    pub fn request_uri(&self) -> &[u8] {
        match &self.start {
            Start::Request { uri, .. } => uri,
            Start::Response { .. } => b"",
        }
    }

    /// Returns the status code, or 0 for a request.
    pub fn status(&self) -> u16 {
        match self.start {
            Start::Request { .. } => 0,
            Start::Response { status, .. } => status,
        }
    }

    /// Returns all fields of this name.
    pub fn all(&self, name: Name) -> impl Iterator<Item = &Header> {
        self.headers.iter().filter(move |header| header.name == name)
    }

    /// Returns the value of the first field of this name.
    pub fn first(&self, name: Name) -> Option<&Bytes> {
        self.all(name).next().map(|header| &header.value)
    }

    /// Returns the elements of all fields of this name. Elements can be separated by commas, or be in separate fields.
    pub fn elements(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        self.all(name).flat_map(|header| split_list(&header.value))
    }

    /// Inserts a field before the first field of the same name. If no field has this name, inserts the new field before all fields.
    pub fn push_front(&mut self, header: Header) {
        let at = self.headers.iter().position(|h| h.name == header.name).unwrap_or(0);
        self.headers.insert(at, header);
    }

    /// Adds a field after all others.
    pub fn push(&mut self, header: Header) {
        self.headers.push(header);
    }

    /// Writes `header` at the position of the first field with the same name, and removes all further fields with this name. If no field
    /// has this name, adds `header` after all fields.
    pub fn set(&mut self, header: Header) {
        match self.headers.iter().position(|h| h.name == header.name) {
            Some(at) => {
                let name = header.name;
                self.headers[at] = header;
                let mut index = 0;
                self.headers.retain(|h| {
                    index += 1;
                    index - 1 <= at || h.name != name
                });
            }
            None => self.headers.push(header),
        }
    }

    /// Removes all fields of this name.
    pub fn remove(&mut self, name: Name) {
        self.headers.retain(|header| header.name != name);
    }

    /// Removes and returns the first element of the first field of this name.
    pub fn pop_first(&mut self, name: Name) -> Option<Bytes> {
        let at = self.headers.iter().position(|header| header.name == name)?;
        let value = self.headers[at].value.clone();
        let Some(comma) = first_comma(&value) else {
            self.headers.remove(at);
            return Some(value);
        };
        self.headers[at] = Header::of_bytes(name, trim(&value[comma + 1..]));
        Some(value.slice_ref(trim(&value[..comma])))
    }

    /// Replaces the first element of the first field of this name.
    pub fn replace_first(&mut self, name: Name, element: &[u8]) {
        let Some(at) = self.headers.iter().position(|header| header.name == name) else { return };
        let value = &self.headers[at].value;
        let rest = first_comma(value).map_or(&b""[..], |comma| &value[comma..]);
        self.headers[at] = Header::of_bytes(name, &[element, rest].concat());
    }

    /// Builds a response to this request (RFC 3261 section 8.2.6). The response has the request's Via, From, To, Call-ID and CSeq, and no
    /// body. `to_tag` is added if To has no tag and the status is not 100.
    pub fn response(&self, status: u16, reason: &str, to_tag: &str) -> Message {
        let mut headers = Vec::with_capacity(8);
        for header in &self.headers {
            match header.name {
                Name::Via | Name::From | Name::CallId | Name::CSeq => headers.push(header.clone()),
                Name::To => headers.push(with_tag(header, status, to_tag)),
                _ => {}
            }
        }
        headers.push(Header::new(Name::ContentLength, "0"));
        let reason = Bytes::copy_from_slice(reason.as_bytes());
        Message { start: Start::Response { status, reason }, headers, body: Bytes::new(), fault: None }
    }

    /// Returns the length in bytes of the serialized message.
    pub fn length(&self) -> usize {
        let headers: usize = self.headers.iter().map(|header| header.raw.len()).sum();
        let start = match &self.start {
            Start::Request { method, uri } => method.as_bytes().len() + uri.len() + " SIP/2.0".len() + 1,
            Start::Response { reason, .. } => "SIP/2.0 200 ".len() + reason.len(),
        };
        start + 2 + headers + 2 + self.body.len()
    }

    /// Serializes the message.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.length());
        match &self.start {
            Start::Request { method, uri } => {
                out.put_slice(method.as_bytes());
                out.put_u8(b' ');
                out.put_slice(uri);
                out.put_slice(b" SIP/2.0\r\n");
            }
            Start::Response { status, reason } => {
                out.put_slice(format!("SIP/2.0 {status} ").as_bytes());
                out.put_slice(reason);
                out.put_slice(b"\r\n");
            }
        }
        for header in &self.headers {
            out.put_slice(&header.raw);
        }
        out.put_slice(b"\r\n");
        out.put_slice(&self.body);
        out.freeze()
    }
}

fn with_tag(to: &Header, status: u16, tag: &str) -> Header {
    let has_tag = crate::address::Address::parse(&to.value).is_ok_and(|address| address.tag().is_some());
    if status == 100 || has_tag {
        return to.clone();
    }
    Header::of_bytes(Name::To, &[&to.value[..], b";tag=", tag.as_bytes()].concat())
}
