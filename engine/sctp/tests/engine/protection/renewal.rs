//! Tests of new keys for protected associations.

use std::time::Duration;

use sctp::{
    AnswerRate, AssociationConfig, CloseReason, EndpointConfig, Event, Extension, Extensions, Limits,
    StateName,
};
use sim::{Conversation, Fate, LinkConfig, Loss, opened};
use wire::{Ppid, StreamId};

use super::{config, is_sealed, send, two_sealed, up};
use crate::floods::flood;
use crate::support::{Two, a_route, b_route, content, messages, seconds, sends, sends_then_closes, two_with};

#[test]
fn a_renewal_goes_on_when_a_message_before_it_was_given_up() {
    let extensions = Extensions::NONE.with(Extension::PartialReliability);
    let association = AssociationConfig { extensions, ..config(true) };
    let endpoint = EndpointConfig { association: association.clone(), ..EndpointConfig::default() };
    let mut t = two_with(3, LinkConfig::default(), endpoint);
    t.connect_with(association, Conversation::default());
    t.world.run_for(seconds(5));
    let lost = content(99, 300);
    let needle = lost.clone();
    t.world.set_filter(move |record| {
        let plain = opened(&record.packet);
        if plain.windows(needle.len()).any(|w| w == needle) { Fate::Drop } else { Fate::Pass }
    });
    let (id, now) = (t.id(t.a), t.world.now());
    let host = t.world.host_mut(t.a);
    let reliability = sctp::Reliability::Lifetime(Duration::from_millis(500));
    let options = sctp::SendOptions { reliability, ..Default::default() };
    host.endpoint.send(now, id, StreamId(0), Ppid(0), lost, options).unwrap();
    t.world.run_for(Duration::from_millis(50));
    let now = t.world.now();
    let host = t.world.host_mut(t.a);
    host.app.keying.renew(now, id, &mut host.endpoint);
    t.world.run_for(seconds(10));
    for host in [t.a, t.b] {
        assert_eq!(t.world.host(host).endpoint.epoch(t.id(host)), Some(4));
    }
}

#[test]
fn keys_are_renewed_under_load_without_a_pause() {
    for seed in 0..6 {
        let link = LinkConfig {
            loss: Loss::Uniform(0.02),
            jitter: Duration::from_millis(4),
            ..LinkConfig::default()
        };
        let mut t = two_sealed(seed, link);
        for host in [t.a, t.b] {
            t.world.host_mut(host).app.keying.records = 6000;
        }
        t.connect_with(config(true), sends_then_closes(messages(12_000, 1200, 3)));
        assert_eq!(t.run_to_end(seconds(900)), (CloseReason::Graceful, CloseReason::Graceful), "seed {seed}");
        assert_eq!(t.talk(t.b).received.len(), 12_000);
        let worn = t.events(t.a).iter().filter(|event| matches!(event, Event::KeysWorn)).count();
        assert!(worn >= 5, "seed {seed}: {worn}");
    }
}

#[test]
fn the_first_keys_return_one_init_token_to_the_client_and_renewals_return_none() {
    let mut t = two_sealed(1, LinkConfig::default());
    let inits = AnswerRate { per_second: 1000, burst: 1000, source_per_second: 1, source_burst: 30 };
    let limits = Limits { inits, ..Limits::default() };
    t.world.restart(t.b, EndpointConfig { limits, association: config(false), ..EndpointConfig::default() });
    t.world.host_mut(t.a).app.keying.records = 3000;
    t.connect_with(config(true), sends(messages(30_000, 1200, 3)));
    t.world.run_for(Duration::from_millis(100));
    assert_eq!(flood(&mut t, "10.0.1.77", 100), 30);
    let worn = |t: &Two| t.events(t.a).iter().filter(|event| matches!(event, Event::KeysWorn)).count();
    let before = t.world.now();
    while worn(&t) < 8 && t.world.now() - before < seconds(30) {
        t.world.run_for(Duration::from_millis(50));
    }
    let passed = (t.world.now() - before).as_secs();
    assert_eq!((worn(&t), t.state(t.a)), (8, StateName::Established));
    assert!(flood(&mut t, "10.0.1.77", 100) as u64 <= passed + 1, "{passed} s");
}

#[test]
fn keys_are_renewed_in_time_although_little_is_sealed() {
    let mut t = up(1);
    let epochs = |t: &Two, host| {
        let of = |event: &&Event| if let Event::Protected { epoch } = event { Some(*epoch) } else { None };
        t.events(host).iter().filter_map(of).collect::<Vec<_>>()
    };
    t.world.run_for(seconds(59 * 60));
    assert_eq!([epochs(&t, t.a), epochs(&t, t.b)], [[3], [3]]);
    t.world.run_for(seconds(181 * 60));
    for host in [t.a, t.b] {
        let epochs = epochs(&t, host);
        assert!((5..=7).contains(&epochs.last().copied().unwrap()), "{epochs:?}");
        assert_eq!(t.state(host), StateName::Established);
    }
}

#[test]
fn keys_that_wear_out_at_both_ends_at_once_are_renewed() {
    for seed in 0..6 {
        let mut t = two_sealed(seed, LinkConfig::default());
        for host in [t.a, t.b] {
            t.world.host_mut(host).app.keying.records = 6000;
        }
        t.world.host_mut(t.b).app.template = sends(messages(12_000, 1200, 3));
        let mut talk = sends_then_closes(messages(12_000, 1200, 3));
        talk.close = sim::Close::After(12_000);
        t.connect_with(config(true), talk);
        assert_eq!(t.run_to_end(seconds(900)), (CloseReason::Graceful, CloseReason::Graceful), "seed {seed}");
        assert_eq!((t.talk(t.a).received.len(), t.talk(t.b).received.len()), (12_000, 12_000));
    }
}

#[test]
fn an_association_ends_rather_than_seal_more_than_its_keys_may() {
    let mut t = two_sealed(1, LinkConfig::default());
    t.world.recording = true;
    t.world.host_mut(t.a).app.keying.records = 40;
    // The filter drops the requests for new keys, so the peer never answers them.
    t.world.set_filter(|record| {
        let plain = opened(&record.packet);
        let is_renewal = is_sealed(&record.packet) && plain.windows(4).any(|w| w == 4242u32.to_be_bytes());
        if is_renewal && plain.len() > 1000 { Fate::Drop } else { Fate::Pass }
    });
    t.connect_with(config(true), sends(messages(2000, 100, 1)));
    t.world.run_for(seconds(100));
    let closed = t.talk(t.a).closed.clone();
    assert!(
        matches!(closed, Some(CloseReason::Aborted(ref cause)) if cause.reason.starts_with(b"the keys")),
        "{closed:?}"
    );
    let of_a = a_route().local;
    let sealed = t.world.records.iter().filter(|r| r.route.local == of_a && is_sealed(&r.packet)).count();
    assert_eq!(sealed, 40);
    // The last record carried the ABORT to the peer.
    assert!(matches!(t.talk(t.b).closed, Some(CloseReason::PeerAborted(_))), "{:?}", t.talk(t.b).closed);
}

#[test]
fn keys_of_an_old_epoch_open_packets_for_30_seconds_only() {
    for (after, opens) in [(20, true), (40, false)] {
        let mut t = up(4);
        let (a, b) = (t.a, t.b);
        t.world.records.clear();
        t.world.set_filter(|record| if is_sealed(&record.packet) { Fate::Drop } else { Fate::Pass });
        send(&mut t, a, 0, content(1, 100));
        t.world.run_for(Duration::from_millis(1));
        let late = t.world.records[0].packet.clone();
        t.world.set_filter(|_| Fate::Pass);
        t.world.run_for(seconds(5));
        let (id, now) = (t.id(a), t.world.now());
        let host = t.world.host_mut(a);
        host.app.keying.renew(now, id, &mut host.endpoint);
        t.world.run_for(seconds(1));
        assert_eq!(t.world.host(b).endpoint.epoch(t.id(b)), Some(4));
        t.world.run_for(seconds(after));
        let not_opened = |t: &Two| t.world.host(b).endpoint.counters().not_opened;
        let before = not_opened(&t);
        t.world.inject(b, b_route(), &late);
        assert_eq!(not_opened(&t) == before, opens, "after {after} s");
    }
}
