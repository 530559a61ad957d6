//! Tests of many associations of one endpoint: each one works, gets its share, and is removed at its end.

use std::time::Duration;

use base::{Carrier, Time};
use sctp::{AssociationConfig, CloseReason};
use sim::{Conversation, HostId};

use crate::support::{Two, messages, seconds, sends_then_closes, two};

fn release_all(t: &mut Two, host: HostId) {
    let now = t.world.now();
    let host = t.world.host_mut(host);
    let ids: Vec<_> = host.endpoint.associations().collect();
    ids.into_iter().for_each(|id| host.endpoint.release(now, id));
}

fn open(t: &mut Two, conversation: Conversation) {
    t.world.connect(t.a, t.b, Carrier::Ip, AssociationConfig::default(), conversation);
}

#[test]
fn two_hundred_associations_at_once_all_end_well_and_leave_nothing() {
    let mut t = two(1);
    t.world.checks = false;
    for _ in 0..200 {
        open(&mut t, sends_then_closes(messages(10, 1400, 2)));
    }
    t.world.run_for(seconds(60));
    for host in [t.a, t.b] {
        let talks = &t.world.host(host).app.conversations;
        assert_eq!(talks.len(), 200);
        assert!(talks.values().all(|c| c.closed == Some(CloseReason::Graceful)));
        release_all(&mut t, host);
        let endpoint = &t.world.host(host).endpoint;
        endpoint.check_invariants();
        assert_eq!((endpoint.associations().count(), endpoint.next_timeout()), (0, Time::NEVER));
    }
    assert!(t.world.host(t.b).app.conversations.values().all(|c| c.received.len() == 10));
}

#[test]
fn two_associations_with_much_to_send_share_the_link() {
    let mut t = two(1);
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    for _ in 0..2 {
        open(&mut t, Conversation { bulk: 1 << 40, ..Conversation::default() });
    }
    t.world.run_for(seconds(20));
    let got: Vec<u64> = t.world.host(t.b).app.conversations.values().map(|c| c.received_bytes).collect();
    assert!(got[0].abs_diff(got[1]) < (got[0] + got[1]) / 3, "shares of {got:?}");
}

#[test]
fn a_thousand_associations_one_after_another_leave_nothing() {
    let mut t = two(1);
    for _ in 0..1000 {
        open(&mut t, sends_then_closes(messages(1, 100, 1)));
        t.world.run_for(Duration::from_millis(500));
        assert_eq!(t.run_to_end(seconds(1)), (CloseReason::Graceful, CloseReason::Graceful));
        for host in [t.a, t.b] {
            release_all(&mut t, host);
            t.world.host_mut(host).app.conversations.clear();
        }
    }
    assert_eq!(t.world.host(t.b).endpoint.next_timeout(), Time::NEVER);
}
