//! Tests a relay to a native peer that expects messages of its protocol. The messages are lines, and an empty line is a ping.

use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use proptest::prelude::*;
use relay::{Action, Framed, Framing, FramingError, Relay, Role};

/// Limit on the length of a line, in bytes.
const LINE_MAX: usize = 20;

#[derive(Debug, Default)]
struct Lines(BytesMut);

impl Framing for Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Result<Option<Framed>, FramingError> {
        if self.0.starts_with(b"\n") {
            self.0.advance(1);
            return Ok(Some(Framed::Answer(b"pong\n")));
        }
        let end = self.0.iter().position(|byte| *byte == b'\n');
        match end {
            Some(end) => Ok(Some(Framed::Message(self.0.split_to(end + 1).freeze()))),
            None if self.0.len() > LINE_MAX => Err(FramingError("a line without end".to_owned())),
            None => Ok(None),
        }
    }

    fn has_part(&self) -> bool {
        !self.0.is_empty()
    }

    fn in_stream(&self, message: Bytes) -> Bytes {
        if message.ends_with(b"\n") { message } else { [&message[..], b"\n"].concat().into() }
    }
}

fn relay() -> Relay {
    Relay::framed(Role::Initiator, Box::<Lines>::default())
}

/// Returns the messages to the peer, with a fragment size of one byte.
fn sent(relay: &mut Relay) -> Vec<Bytes> {
    let mut all = Vec::new();
    while let Some(message) = relay.next_message(1) {
        relay.on_sent(message.bytes.len());
        all.push(message.bytes);
    }
    all
}

fn written(relay: &Relay) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); 8];
    let filled = relay.unwritten(&mut slices);
    slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect()
}

proptest! {
    #[test]
    fn each_framed_message_is_one_sctp_message_however_tcp_splits_it(
        lines in prop::collection::vec("[a-z]{1,19}\n", 1..8),
        cuts in prop::collection::vec(0_usize..160, 0..6),
    ) {
        let mut relay = relay();
        let stream = Bytes::from(lines.concat());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.push(stream.len());
        cuts.sort_unstable();
        let (mut from, mut got) = (0, Vec::new());
        for to in cuts {
            prop_assert!(relay.wants_bytes());
            relay.on_bytes(stream.slice(from..to));
            from = to;
            got.extend(sent(&mut relay));
        }
        prop_assert_eq!(got, lines);
    }
}

#[test]
fn no_more_is_read_while_a_message_waits() {
    let mut relay = relay();
    relay.on_bytes(Bytes::from_static(b"one\ntwo\nthr"));
    assert!(!relay.wants_bytes());
    relay.on_sent(4);
    assert!(!relay.wants_bytes());
    relay.on_sent(4);
    assert!(relay.wants_bytes());
}

#[test]
fn a_ping_is_answered_between_the_peers_messages() {
    let mut relay = relay();
    relay.on_message(0, [Bytes::from_static(b"hel"), Bytes::from_static(b"lo")]);
    relay.on_bytes(Bytes::from_static(b"\none\n"));
    assert_eq!(written(&relay), b"hello\npong\n");
    assert_eq!(sent(&mut relay), ["one\n"]);
}

#[test]
fn an_end_between_messages_shuts_down_and_one_within_a_message_aborts() {
    for (bytes, expected) in [("one\n", Action::ShutDownAssociation), ("one\ntw", Action::AbortAssociation)] {
        let mut relay = relay();
        relay.on_bytes(Bytes::from_static(bytes.as_bytes()));
        sent(&mut relay);
        relay.on_eof();
        assert_eq!(relay.next_action(), Some(expected));
    }
}

#[test]
fn bytes_that_are_none_of_the_protocols_end_the_connection_and_say_why() {
    let mut relay = relay();
    relay.on_bytes(Bytes::from(vec![b'a'; LINE_MAX + 1]));
    assert_eq!(relay.next_action(), Some(Action::AbortAssociation));
    assert_eq!(relay.take_framing_error(), Some(FramingError("a line without end".to_owned())));
}

#[test]
fn tcp_is_not_read_while_the_application_leaves_answers_unread() {
    let mut relay = relay();
    let pings = Bytes::from(b"\n".repeat(60_000));
    let read = (1..100).take_while(|_| {
        relay.on_bytes(pings.clone());
        relay.wants_bytes()
    });
    assert_eq!(read.count(), 1, "300,000 bytes answer one read");
    assert!(relay.unwritten_memory() < 700_000, "{} bytes", relay.unwritten_memory());
    let mut slices = [IoSlice::new(&[]); 4];
    let filled = relay.unwritten(&mut slices);
    let waiting: usize = slices[..filled].iter().map(|slice| slice.len()).sum();
    relay.on_written(waiting);
    assert!(relay.wants_bytes());
}
