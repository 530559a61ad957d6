//! The cases of RFC 5118: IPv6 addresses in URIs, Via and Contact. Each test builds the messages of a case, and expects the RFC's
//! verdict.

use bytes::Bytes;
use sip::{Essentials, Fault, Limits, Message, Name, Uri, Via};

/// Returns a request with this Request-URI and these Via values, the first value on top.
fn request(uri: &str, vias: &[&str]) -> Message {
    let vias: String = vias.iter().map(|via| format!("Via: SIP/2.0/{via}\r\n")).collect();
    let text = format!(
        "OPTIONS {uri} SIP/2.0\r\n{vias}Max-Forwards: 70\r\nFrom: <sip:user@example.com>;tag=81x2\r\nTo: <{uri}>\r\n\
         Contact: \"Caller\" <sip:caller@[2001:db8::1]>\r\nCall-ID: SSG95@hlau\r\nCSeq: 98 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    );
    Message::parse(Bytes::from(text), &Limits::default()).unwrap()
}

fn judged(uri: &str) -> Result<(String, Option<u16>), Fault> {
    let message = request(uri, &["UDP [2001:db8::9:1];branch=z9hG4bKas3-111"]);
    Essentials::of(&message)?;
    let uri = Uri::parse(message.request_uri())?;
    Ok((String::from_utf8_lossy(uri.host).into_owned(), uri.port))
}

#[test]
fn an_address_in_brackets_is_a_host_and_what_is_behind_them_is_its_port() {
    for (section, uri, host, port) in [
        ("4.1", "sip:[2001:db8::10]", "[2001:db8::10]", None),
        ("4.3", "sip:[2001:db8::10:5070]", "[2001:db8::10:5070]", None),
        ("4.4", "sip:[2001:db8::10]:5070", "[2001:db8::10]", Some(5070)),
        ("4.9", "sip:ted@[::ffff:192.0.2.2]", "[::ffff:192.0.2.2]", None),
        ("4.10", "sip:user@[2001:db8::192.0.2.1]", "[2001:db8::192.0.2.1]", None),
    ] {
        assert_eq!(judged(uri), Ok((host.to_owned(), port)), "section {section}");
    }
}

#[test]
fn an_address_without_brackets_is_refused_with_400() {
    assert_eq!(judged("sip:2001:db8::10").unwrap_err().status, 400, "section 4.2");
}

#[test]
fn received_is_understood_with_brackets_and_without() {
    for received in ["[2001:db8::9:255]", "2001:db8::9:255"] {
        let via = format!("UDP [2001:db8::9:1];received={received};branch=z9hG4bKas3-111");
        let message = request("sip:[2001:db8::10]", &[&via]);
        let known = Essentials::of(&message).unwrap();
        let via = Via::parse(&known.via).unwrap();
        assert_eq!(via.received(), "2001:db8::9:255".parse().ok(), "section 4.5: {received}");
        assert_eq!((via.host, via.port), (&b"[2001:db8::9:1]"[..], None));
    }
}

#[test]
fn ipv4_and_ipv6_via_values_are_parsed_in_one_request() {
    let message = request(
        "sip:user@host.example.net",
        &[
            "UDP [2001:db8::9:1]:6050;branch=z9hG4bKas3-111",
            "UDP 192.0.2.1;branch=z9hG4bKjhja8781hjuaij65144",
            "TCP [2001:db8::9:255];branch=z9hG4bK451jj;received=192.0.2.200",
            "UDP [::ffff:192.0.2.10]:19823;branch=z9hG4bKbh19",
        ],
    );
    Essentials::of(&message).unwrap();
    let vias: Vec<_> = message.elements(Name::Via).map(|via| Via::parse(via).unwrap()).collect();
    let seen: Vec<_> = vias.iter().map(|via| (via.host, via.port, via.received())).collect();
    assert_eq!(
        seen,
        [
            (&b"[2001:db8::9:1]"[..], Some(6050), None),
            (b"192.0.2.1", None, None),
            (b"[2001:db8::9:255]", None, "192.0.2.200".parse().ok()),
            (b"[::ffff:192.0.2.10]", Some(19_823), None),
        ],
        "sections 4.7 and 4.9"
    );
}

#[test]
fn an_ipv6_address_with_three_colons_in_a_row_is_accepted() {
    // Section 4.10: the grammar of RFC 3261 wrongly permits three colons. The parser must accept them.
    let uri = "sip:user@[2001:db8:::192.0.2.1]";
    assert_eq!(judged(uri), Ok(("[2001:db8:::192.0.2.1]".to_owned(), None)));
}
