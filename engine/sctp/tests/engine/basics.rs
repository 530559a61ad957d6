//! Tests of the plain course of an association: setup, data both ways, and shutdown.

use sctp::{CloseReason, Event};
use sim::{Close, Conversation, InTheClear};

use crate::support::{messages, seconds, sends, two};

#[test]
fn two_hosts_open_talk_both_ways_and_close() {
    let mut t = two(1);
    t.world.host_mut(t.b).app.template = sends(messages(50, 1000, 4));
    t.connect(Conversation { close: Close::After(50), ..sends(messages(100, 3000, 4)) });
    assert_eq!(t.run_to_end(seconds(10)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 100);
    assert_eq!(t.talk(t.a).received.len(), 50);
    assert!(matches!(t.events(t.a)[0], Event::Established { .. }));
}

#[test]
fn sim_protected_seals_packets_except_in_tests_that_read_them() {
    let is_sealed = || {
        let mut t = two(1);
        t.connect(Conversation { close: Close::After(0), ..sends(messages(5, 1000, 4)) });
        t.run_to_end(seconds(10));
        t.events(t.a).iter().any(|event| matches!(event, Event::Protected { .. }))
    };
    assert_eq!(is_sealed(), std::env::var_os("SIM_PROTECTED").is_some());
    let _clear = InTheClear::begin();
    assert!(!is_sealed());
}
