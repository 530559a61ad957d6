//! The key of a request's transaction, and the hop for the responses to a request.

use crate::essentials::Essentials;
use crate::message::{Message, Method};
use crate::transport::{Hop, Transport};
use crate::via::Via;

/// Returns the hop for responses to a request (section 18.2.2, RFC 3581 section 4). Also returns the request's Via value, to which the
/// request's source was added.
pub(crate) fn response_hop(from: Hop, via: &Via<'_>) -> (Hop, Vec<u8>) {
    let value = via.with_source(from.address.ip(), from.address.port());
    let mut hop = from;
    if !(via.has_rport() && from.transport == Transport::Udp) {
        hop.address.set_port(via.port.unwrap_or(from.transport.default_port()));
    }
    (hop, value)
}

/// Returns the key of a server transaction (section 17.2.3). `method` is the request's own method. With INVITE as `method`, a CANCEL has
/// the key of the INVITE that it cancels. An ACK has the key of its INVITE.
pub(crate) fn server_key(request: &Message, known: &Essentials, via: &Via<'_>, method: &Method) -> Box<[u8]> {
    let method = if *method == Method::Ack { Method::Invite } else { method.clone() };
    let parts: Vec<&[u8]> = match via.branch() {
        Some(branch) => vec![branch, via.sent_by(), method.as_bytes()],
        // RFC 2543 clients send no branch that begins with the magic cookie. The To tag is not part of the key, because the tags of an
        // ACK and its INVITE differ.
        None => vec![
            request.request_uri(),
            known.from_tag.as_deref().unwrap_or_default(),
            &known.call_id,
            &known.via,
            method.as_bytes(),
        ],
    };
    let mut key = parts.join(&0);
    if via.branch().is_none() {
        key.extend_from_slice(&known.cseq.number.to_be_bytes());
    }
    key.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{hop, request};

    fn back(via: &str) -> (String, String) {
        let (hop, value) = response_hop(hop("198.51.100.7:40000"), &Via::parse(via.as_bytes()).unwrap());
        (hop.address.to_string(), String::from_utf8(value).unwrap())
    }

    #[test]
    fn a_response_goes_to_the_source_address_but_to_the_source_port_only_with_rport() {
        let (address, via) = back("SIP/2.0/UDP 10.0.0.1:5070;branch=z9hG4bKa");
        assert_eq!((&address[..], via.ends_with(";received=198.51.100.7")), ("198.51.100.7:5070", true));
        let (address, via) = back("SIP/2.0/UDP 10.0.0.1:5070;rport;branch=z9hG4bKa");
        assert_eq!((&address[..], via.ends_with(";rport=40000")), ("198.51.100.7:40000", true));
    }

    fn key(text: &str) -> Box<[u8]> {
        let request = request(text);
        let known = Essentials::of(&request).unwrap();
        server_key(&request, &known, &Via::parse(&known.via).unwrap(), &known.cseq.method)
    }

    #[test]
    fn an_ack_has_the_key_of_its_invite_and_a_cancel_another() {
        for via in ["", "\nVia: SIP/2.0/UDP 192.0.2.8"] {
            let of = |method: &str| key(&format!("{method} sip:a@example.org{via}"));
            assert_eq!(of("INVITE"), of("ACK"), "{via}");
            assert_ne!(of("INVITE"), of("CANCEL"), "{via}");
        }
        let other = key("INVITE sip:a@example.org\nVia: SIP/2.0/UDP 192.0.2.8;branch=z9hG4bKb");
        assert_ne!(key("INVITE sip:a@example.org"), other);
    }
}
