//! Tests of verification tags (RFC 9260 section 8.5) and of packets out of the blue (section 8.4).

use sctp::{CloseReason, StateName};
use sim::InTheClear;

use crate::states::{STATES, Subject};

/// Checks that the chunk `name` with a wrong tag is neither believed nor answered, in any state of an association.
fn is_ignored_with_a_wrong_tag(name: &str) {
    for state in STATES.into_iter().filter(|s| *s != StateName::Closed) {
        let tags: [fn(&Subject) -> u32; 3] = [|s| s.own_tag ^ 1, |_| 0, |s| s.peer_tag];
        for (n, tag) in tags.into_iter().enumerate() {
            let mut subject = Subject::in_state(state);
            let tag = tag(&subject);
            let answer = subject.with_chunk(name, |s, _, chunk| s.answer_to(tag, chunk));
            assert_eq!(subject.state(), state, "{name} with wrong tag {n}");
            // Section 8.5.1 E: before the association is up, a SHUTDOWN ACK belongs to an earlier association.
            let is_opening = matches!(state, StateName::CookieWait | StateName::CookieEchoed);
            if name == "SHUTDOWN ACK" && is_opening && tag != 0 {
                assert_eq!(answer, ["SHUTDOWN COMPLETE(T)"]);
            } else {
                assert!(answer.is_empty(), "{name} with wrong tag {n} in {state:?}: {answer:?}");
            }
        }
    }
}

#[test]
//= rfc9260#8.5-2 8.5-3 8.5.1-13
fn no_chunk_with_a_wrong_tag_is_believed_or_answered() {
    let _clear = InTheClear::begin();
    for name in Subject::chunks().filter(|n| *n != "INIT") {
        is_ignored_with_a_wrong_tag(name);
    }
}

#[test]
//= rfc9260#12.3-2
fn an_init_with_a_tag_is_dropped_in_every_state() {
    let _clear = InTheClear::begin();
    for state in STATES {
        let mut subject = Subject::in_state(state);
        let tag = subject.own_tag;
        let answer = subject.with_chunk("INIT", |s, _, chunk| s.answer_to(tag, chunk));
        assert!(answer.is_empty(), "{state:?}: {answer:?}");
        assert_eq!(subject.state(), state);
    }
}

#[test]
//= rfc9260#8.5.1-6 8.5.1-10
fn a_reflected_tag_must_be_the_peers() {
    for name in ["ABORT(T)", "SHUTDOWN COMPLETE(T)"] {
        let mut subject = Subject::in_state(StateName::ShutdownAckSent);
        let (own, peer) = (subject.own_tag, subject.peer_tag);
        for tag in [own, peer ^ 1, 0] {
            let answer = subject.with_chunk(name, |s, _, chunk| s.answer_to(tag, chunk));
            assert!(answer.is_empty(), "{name}: {answer:?}");
            assert_eq!(subject.state(), StateName::ShutdownAckSent, "{name}");
        }
        subject.with_chunk(name, |s, _, chunk| s.answer_to(peer, chunk));
        // All data was delivered before. So even an ABORT, which may answer a late packet, ends the association gracefully.
        assert_eq!(subject.closed(), Some(CloseReason::Graceful), "{name}");
    }
}

#[test]
//= rfc9260#8.4-2 8.4-5 8.4-6 8.4-7 8.4-8 8.4-9 8.4-10 8.4-11 8.4-12 3.1-5
fn packets_out_of_the_blue_are_answered_as_in_rfc_9260_section_8_4() {
    for (name, expected) in [
        ("ABORT", None),
        ("SHUTDOWN COMPLETE", None),
        ("ERROR stale cookie", None),
        ("COOKIE ACK", None),
        ("COOKIE ECHO forged", None),
        ("SHUTDOWN ACK", Some("SHUTDOWN COMPLETE(T)")),
        ("DATA", Some("ABORT(T)")),
        ("SACK", Some("ABORT(T)")),
        ("HEARTBEAT", Some("ABORT(T)")),
        ("SHUTDOWN", Some("ABORT(T)")),
        ("INIT ACK", Some("ABORT(T)")),
        ("ERROR", Some("ABORT(T)")),
    ] {
        let mut subject = Subject::in_state(StateName::Closed);
        let answer = subject.with_chunk(name, |s, tag, chunk| s.answer_to(tag, chunk));
        assert_eq!(answer.first().map(String::as_str), expected, "{name}");
    }
}
