//! Tests with the messages of RFC 4475, byte for byte from the archive in its appendix. Each message must get the verdict of the RFC.
//!
//! These tests cover the parser and [`Essentials`], which check the syntax of messages. The tests of the proxy cover well-formed messages
//! that the proxy cannot serve (sections 3.3.2 to 3.3.14).

use bytes::Bytes;
use sip::{Essentials, Limits, Message, Name, ParseError, Uri, Via};

/// The RFC's verdict on a message.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Verdict {
    /// A well-formed message.
    Good,
    /// A request that is rejected with this status.
    Refuse(u16),
    /// A response that is dropped.
    Drop,
}

use Verdict::{Drop, Good, Refuse};

macro_rules! messages {
    ($($name:literal $section:literal $verdict:expr,)*) => {
        const MESSAGES: &[(&str, &str, &[u8], Verdict)] =
            &[$(($name, $section, include_bytes!(concat!("rfc4475/", $name, ".dat")), $verdict),)*];
    };
}

messages! {
    "wsinv" "3.1.1.1" Good,
    "intmeth" "3.1.1.2" Good,
    "esc01" "3.1.1.3" Good,
    "escnull" "3.1.1.4" Good,
    "esc02" "3.1.1.5" Good,
    "lwsdisp" "3.1.1.6" Good,
    "longreq" "3.1.1.7" Good,
    "dblreq" "3.1.1.8" Good,
    "semiuri" "3.1.1.9" Good,
    "transports" "3.1.1.10" Good,
    "mpart01" "3.1.1.11" Good,
    "unreason" "3.1.1.12" Good,
    "noreason" "3.1.1.13" Good,
    "badinv01" "3.1.2.1" Refuse(400),
    "clerr" "3.1.2.2" Refuse(400),
    "ncl" "3.1.2.3" Refuse(400),
    "scalar02" "3.1.2.4" Refuse(400),
    "scalarlg" "3.1.2.5" Drop,
    "quotbal" "3.1.2.6" Refuse(400),
    "ltgtruri" "3.1.2.7" Refuse(400),
    "lwsruri" "3.1.2.8" Refuse(400),
    "lwsstart" "3.1.2.9" Refuse(400),
    "trws" "3.1.2.10" Refuse(400),
    "escruri" "3.1.2.11" Refuse(400),
    // "An element … that is interested in Date MAY reject". A proxy is not interested in Date, and must not check it (RFC 3261
    // section 16.3).
    "baddate" "3.1.2.12" Good,
    // Only the registrar checks Contact. The registrar rejects this message, and the tests of the registrar cover the rejection.
    "regbadct" "3.1.2.13" Good,
    "badaspec" "3.1.2.14" Refuse(400),
    "baddn" "3.1.2.15" Refuse(400),
    "badvers" "3.1.2.16" Refuse(505),
    "mismatch01" "3.1.2.17" Refuse(400),
    "mismatch02" "3.1.2.18" Refuse(400),
    "bigcode" "3.1.2.19" Drop,
    "badbranch" "3.2.1" Good,
    "insuf" "3.3.1" Refuse(400),
    "unkscm" "3.3.2" Good,
    "novelsc" "3.3.3" Good,
    "unksm2" "3.3.4" Good,
    "bext01" "3.3.5" Good,
    "invut" "3.3.6" Good,
    "regaut01" "3.3.7" Good,
    "multi01" "3.3.8" Refuse(400),
    "mcl01" "3.3.9" Refuse(400),
    "bcast" "3.3.10" Good,
    "zeromf" "3.3.11" Good,
    "cparam01" "3.3.12" Good,
    "cparam02" "3.3.13" Good,
    "regescrt" "3.3.14" Good,
    "sdp01" "3.3.15" Good,
    "inv2543" "3.4.1" Good,
}

fn parse(bytes: &[u8]) -> Result<Message, ParseError> {
    Message::parse(Bytes::copy_from_slice(bytes), &Limits::default())
}

fn named(name: &str) -> Message {
    let (.., bytes, _) = MESSAGES.iter().find(|(known, ..)| *known == name).unwrap();
    parse(bytes).unwrap()
}

fn verdict(bytes: &[u8]) -> Verdict {
    match parse(bytes) {
        Err(_) => Drop,
        Ok(message) => match (Essentials::of(&message), message.method()) {
            (Ok(_), _) => Good,
            (Err(fault), Some(_)) => Refuse(fault.status),
            (Err(_), None) => Drop,
        },
    }
}

#[test]
fn every_message_gets_the_verdict_of_the_rfc() {
    for (name, section, bytes, expected) in MESSAGES {
        assert_eq!(verdict(bytes), *expected, "{name} (RFC 4475 section {section})");
    }
}

#[test]
fn a_message_goes_out_as_it_came() {
    for (name, _, bytes, _) in MESSAGES.iter().filter(|(.., verdict)| *verdict == Good) {
        let out = parse(bytes).unwrap().to_bytes();
        assert!(bytes.starts_with(&out), "{name}: {}", String::from_utf8_lossy(&out));
        // Bytes beyond Content-Length are line ends, or the second request of the datagram.
        let rest = &bytes[out.len()..];
        assert!(*name == "dblreq" || rest.iter().all(|b| b"\r\n".contains(b)), "{name}");
    }
}

#[test]
fn no_message_cut_anywhere_panics() {
    for (_, _, bytes, _) in MESSAGES {
        for end in 0..bytes.len() {
            verdict(&bytes[..end]);
        }
    }
}

#[test]
fn folds_and_spaces_do_not_hide_what_a_message_says() {
    let message = named("wsinv");
    let known = Essentials::of(&message).unwrap();
    assert_eq!((known.cseq.number, known.max_forwards), (9, 68));
    assert_eq!(known.from_tag.as_deref(), Some(&b"98asjd8"[..]));
    let vias: Vec<Via<'_>> = message.elements(Name::Via).map(|via| Via::parse(via).unwrap()).collect();
    let seen: Vec<_> = vias.iter().map(|via| (via.transport, via.host, via.branch())).collect();
    assert_eq!(
        seen,
        [
            (&b"UDP"[..], &b"192.0.2.2"[..], None),
            (b"TCP", b"spindle.example.com", Some(&b"z9hG4bK9ikj8"[..])),
            (b"UDP", b"192.168.255.111", Some(b"z9hG4bK30239")),
        ]
    );
}

#[test]
fn the_second_request_of_a_datagram_is_no_part_of_the_first() {
    assert!(named("dblreq").body.is_empty());
}

#[test]
fn escapes_in_a_request_uri_are_undone_for_its_address_of_record_alone() {
    let message = named("esc01");
    let uri = Uri::parse(message.request_uri()).unwrap();
    assert_eq!(uri.address_of_record(), "sips:user@example.com@example.net");
    assert_eq!(uri.user, Some(&b"sips%3Auser%40example.com"[..]));
}

#[test]
fn a_percent_sign_in_a_method_is_no_escape() {
    assert_eq!(named("esc02").method().unwrap().as_bytes(), b"RE%47IST%45R");
}
