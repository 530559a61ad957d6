//! Tests one behaviour of one relay at a time.

use std::io::IoSlice;

use bytes::Bytes;
use relay::{
    Action, Closed, PPID_DATA, PPID_END, PPID_NATIVE, Peer, Relay, Role, UNWRITTEN_LEAST, UNWRITTEN_MAX,
};

fn shim(role: Role) -> Relay {
    Relay::new(Peer::Shim, role)
}

fn actions(relay: &mut Relay) -> Vec<Action> {
    std::iter::from_fn(|| relay.next_action()).collect()
}

fn write_all(relay: &mut Relay) -> Vec<u8> {
    let mut all = Vec::new();
    while relay.has_unwritten() {
        let mut slices = [IoSlice::new(&[]); 8];
        let filled = relay.unwritten(&mut slices);
        let step: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
        relay.on_written(step.len());
        all.extend(step);
    }
    all
}

#[test]
fn a_shim_that_shuts_down_without_announcing_the_end_resets_the_application() {
    let mut relay = shim(Role::Acceptor);
    relay.on_message(PPID_DATA, [Bytes::from_static(b"half a fi")]);
    relay.on_peer_shutdown();
    relay.on_closed(Closed::Gracefully);
    assert_eq!(actions(&mut relay), [Action::ResetTcp]);
}

#[test]
fn a_native_peers_shutdown_is_the_end_of_the_stream_after_all_messages() {
    let mut relay = Relay::new(Peer::Native, Role::Initiator);
    relay.on_peer_shutdown();
    relay.on_message(PPID_NATIVE, [Bytes::from_static(b"last words")]);
    relay.on_closed(Closed::Gracefully);
    relay.on_no_message();
    assert_eq!(actions(&mut relay), []);
    assert_eq!(write_all(&mut relay), b"last words");
    assert_eq!(actions(&mut relay), [Action::EndTcp]);
    relay.on_eof();
    assert_eq!(actions(&mut relay), [Action::CloseTcp]);
}

#[test]
fn the_applications_end_shuts_an_association_with_a_native_peer_down_after_its_bytes() {
    let mut relay = Relay::new(Peer::Native, Role::Initiator);
    relay.on_bytes(Bytes::from_static(b"abc"));
    relay.on_eof();
    assert_eq!(actions(&mut relay), []);
    assert_eq!(relay.next_message(100).map(|m| m.ppid), Some(PPID_NATIVE));
    relay.on_sent(3);
    assert_eq!(relay.next_message(100), None);
    assert_eq!(actions(&mut relay), [Action::ShutDownAssociation]);
}

#[test]
fn bytes_for_a_native_peer_that_has_shut_down_are_answered_by_a_reset() {
    let mut relay = Relay::new(Peer::Native, Role::Initiator);
    relay.on_peer_shutdown();
    relay.on_no_message();
    assert_eq!(actions(&mut relay), [Action::EndTcp]);
    relay.on_bytes(Bytes::from_static(b"more"));
    assert_eq!(actions(&mut relay), [Action::AbortAssociation, Action::ResetTcp]);
}

#[test]
fn only_the_initiator_shuts_down_once_both_directions_have_ended() {
    for (role, expected) in [(Role::Initiator, true), (Role::Acceptor, false)] {
        let mut relay = shim(role);
        relay.on_eof();
        assert_eq!(relay.next_message(100).map(|m| m.ppid), Some(PPID_END));
        relay.on_sent(1);
        assert_eq!(actions(&mut relay), [], "half-closed is not closed");
        relay.on_message(PPID_END, [Bytes::from_static(&[0])]);
        assert_eq!(actions(&mut relay).contains(&Action::ShutDownAssociation), expected);
    }
}

#[test]
fn a_slow_tcp_reader_stops_the_receipt_of_messages() {
    let mut relay = shim(Role::Initiator);
    let message = Bytes::from(vec![0; 1000]);
    let mut taken = 0;
    while relay.wants_message(UNWRITTEN_MAX) {
        relay.on_message(PPID_DATA, [message.clone()]);
        taken += message.len();
    }
    assert!((UNWRITTEN_MAX..UNWRITTEN_MAX + 1000).contains(&taken));
    relay.on_written(1000);
    assert!(relay.wants_message(UNWRITTEN_MAX));
    relay.on_written(taken - 1000 - UNWRITTEN_LEAST);
    assert!(!relay.wants_message(UNWRITTEN_LEAST), "memory has become short");
    relay.on_written(1);
    assert!(relay.wants_message(UNWRITTEN_LEAST));
}

#[test]
fn tiny_unread_messages_also_stop_the_receipt_of_messages() {
    let mut relay = shim(Role::Initiator);
    let pieces = (1..).take_while(|_| {
        relay.on_message(PPID_DATA, [Bytes::from_static(b".")]);
        relay.wants_message(UNWRITTEN_MAX)
    });
    assert!(pieces.count() < 1000);
    assert!((1000..100_000).contains(&relay.unwritten_memory()), "{} bytes", relay.unwritten_memory());
}

#[test]
fn a_full_association_stops_the_reading_of_tcp() {
    let mut relay = shim(Role::Initiator);
    relay.on_bytes(Bytes::from_static(b"0123456789"));
    assert!(!relay.wants_bytes());
    relay.on_sent(4);
    assert!(!relay.wants_bytes());
    assert_eq!(relay.next_message(100).map(|m| m.bytes), Some(Bytes::from_static(b"456789")));
    relay.on_sent(6);
    assert!(relay.wants_bytes());
}

#[test]
fn data_before_an_abort_is_written_and_then_the_connection_is_reset() {
    let mut relay = shim(Role::Initiator);
    relay.on_message(PPID_DATA, [Bytes::from_static(b"early answer")]);
    relay.on_closed(Closed::Lost);
    assert_eq!(actions(&mut relay), []);
    assert_eq!(write_all(&mut relay), b"early answer");
    relay.on_no_message();
    assert_eq!(actions(&mut relay), [Action::ResetTcp]);
}

#[test]
fn an_abort_does_not_wait_for_a_reader_that_takes_nothing() {
    let mut relay = shim(Role::Initiator);
    relay.on_message(PPID_DATA, [Bytes::from_static(b"unread")]);
    relay.on_tcp_full();
    relay.on_closed(Closed::Lost);
    relay.on_tcp_full();
    assert_eq!(actions(&mut relay), [Action::ResetTcp]);
}

#[test]
fn an_unknown_ppid_from_a_shim_aborts_sctp_and_resets_tcp() {
    let mut relay = shim(Role::Acceptor);
    relay.on_message(7, [Bytes::from_static(b"?")]);
    assert_eq!(actions(&mut relay), [Action::AbortAssociation, Action::ResetTcp]);
}
