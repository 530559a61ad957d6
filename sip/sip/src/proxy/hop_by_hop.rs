//! Builds hop-by-hop requests: CANCEL, and ACK for a rejection.

use bytes::Bytes;

use crate::header::{Header, Name};
use crate::message::{Message, Method, Start};

/// Builds the CANCEL of a request, or the ACK for its rejection (RFC 3261 sections 9.1 and 17.1.1.3). The result has the request's
/// Request-URI, first Via, Routes, From, Call-ID and CSeq number. `to` is the request's To for CANCEL, and the rejection's To for ACK.
pub(crate) fn hop_request(request: &Message, method: Method, to: Option<Header>) -> Message {
    let mut headers = Vec::with_capacity(8);
    for header in &request.headers {
        match header.name {
            // Only the first Via is copied. Fields of other names may precede this Via.
            Name::Via if headers.iter().all(|h: &Header| h.name != Name::Via) => headers.push(header.clone()),
            Name::From | Name::CallId | Name::Route => headers.push(header.clone()),
            Name::CSeq => {
                let number: Vec<u8> = header.value.iter().copied().take_while(u8::is_ascii_digit).collect();
                let value = [&number[..], b" ", method.as_bytes()].concat();
                headers.push(Header::of_bytes(Name::CSeq, &value));
            }
            _ => {}
        }
    }
    headers.extend(to);
    headers.push(Header::new(Name::MaxForwards, "70"));
    headers.push(Header::new(Name::ContentLength, "0"));
    let uri = Bytes::copy_from_slice(request.request_uri());
    Message { start: Start::Request { method, uri }, headers, body: Bytes::new(), fault: None }
}
