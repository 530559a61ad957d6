//! Tests of floods: number and length of the answers to unknown hosts, and the service that other hosts get meanwhile.

use std::time::Duration;

use base::Time;
use sctp::{
    AnswerRate, AssociationConfig, AuthConfig, EndpointConfig, Extension, Extensions, Limits, StateName,
};
use sim::{Conversation, LinkConfig, World, packet};
use wire::{Chunk, Parameter};

use crate::states::Subject;
use crate::stranger::{Stranger, address, init, sent_to};
use crate::support::{Two, messages, seconds, sends_then_closes, two, two_with};

fn limited() -> EndpointConfig {
    let inits = AnswerRate { per_second: 100, burst: 200, source_per_second: 10, source_burst: 20 };
    let stray_answers = AnswerRate { per_second: 100, burst: 40, source_per_second: 10, source_burst: 20 };
    EndpointConfig {
        limits: Limits { inits, stray_answers, ..Limits::default() },
        ..EndpointConfig::default()
    }
}

fn flooded() -> Two {
    two_with(1, LinkConfig::default(), limited())
}

/// Sends `count` INITs from one address, and returns the number of answers.
pub(crate) fn flood(t: &mut Two, source: &str, count: u16) -> usize {
    let stranger = |port| Stranger::new(t.b, "10.0.1.2", source, port);
    (1..=count)
        .map(stranger)
        .collect::<Vec<_>>()
        .iter()
        .filter(|s| s.ask(&mut t.world, &[]).is_some())
        .count()
}

#[test]
fn a_flood_of_inits_from_one_network_gets_its_burst_and_others_are_served() {
    let mut t = flooded();
    assert_eq!(flood(&mut t, "192.0.2.1", 1000), 20);
    assert_eq!(flood(&mut t, "192.0.2.200", 10), 0, "the same /24");
    assert_eq!(t.world.host(t.b).endpoint.counters().inits_limited, 990);
    t.connect(Conversation::default());
    t.world.run_for(Duration::from_millis(500));
    assert_eq!(t.state(t.a), StateName::Established);
    assert_eq!(flood(&mut t, "192.0.2.1", 1000), 5, "half a second's worth");
}

#[test]
fn a_flood_of_inits_from_many_networks_gets_only_the_overall_burst() {
    let mut t = flooded();
    let answered: usize = (0..100).map(|n| flood(&mut t, &format!("198.51.{n}.1"), 10)).sum();
    assert_eq!(answered, 200);
}

#[test]
fn a_flood_of_inits_leaves_nothing_behind() {
    let mut t = flooded();
    flood(&mut t, "192.0.2.1", 1000);
    let endpoint = &t.world.host(t.b).endpoint;
    assert_eq!((endpoint.associations().count(), endpoint.next_timeout()), (0, Time::NEVER));
}

#[test]
fn a_host_that_opens_one_association_after_another_is_never_slowed_down() {
    let one = AnswerRate { per_second: 1, burst: 1, source_per_second: 1, source_burst: 1 };
    let limits = Limits { inits: one, ..Limits::default() };
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig { limits, ..EndpointConfig::default() });
    for _ in 0..100 {
        t.connect(sends_then_closes(messages(1, 100, 1)));
        t.run_to_end(Duration::from_millis(900));
        for host in [t.a, t.b] {
            let now = t.world.now();
            let host = t.world.host_mut(host);
            let ids: Vec<_> = host.endpoint.associations().collect();
            ids.into_iter().for_each(|id| host.endpoint.release(now, id));
            host.app.conversations.clear();
        }
    }
    assert_eq!(t.world.host(t.b).endpoint.counters().inits_limited, 0);
}

#[test]
fn a_storm_out_of_the_blue_gets_the_burst_and_then_the_rate() {
    let mut t = flooded();
    let storm = |t: &mut Two| {
        let before = t.world.records.len();
        for n in 0..1000u16 {
            let source = format!("198.51.{}.1", n % 10);
            let stranger = Stranger::new(t.b, "10.0.1.2", &source, n + 1);
            stranger.send(&mut t.world, 1, &[Chunk::ShutdownAck]);
        }
        t.world.records.len() - before
    };
    assert_eq!(storm(&mut t), 40);
    t.world.run_for(Duration::from_millis(100));
    assert_eq!(storm(&mut t), 10);
    assert_eq!(t.world.host(t.b).endpoint.counters().strays_limited, 1950);
}

#[test]
fn answers_to_stale_and_spent_cookies_are_rate_limited() {
    let mut t = flooded();
    let stranger = Stranger::new(t.b, "10.0.1.2", "192.0.2.1", 9);
    let stale = stranger.ask(&mut t.world, &[]).unwrap();
    t.world.run_for(seconds(61));
    let answers: usize = (0..100).map(|_| stranger.echo(&mut t.world, &stale).len()).sum();
    assert_eq!(answers, 20);
    t.world.run_for(seconds(61));
    let (id, spent) = stranger.open(&mut t.world, &[]);
    let now = t.world.now();
    t.world.host_mut(t.b).endpoint.release(now, id);
    t.world.run_for(Duration::from_millis(1));
    let answers: usize = (0..100).map(|_| stranger.echo(&mut t.world, &spent).len()).sum();
    assert_eq!(answers, 20);
}

/// Creates a listener with `addresses` additional addresses and several extensions, and an unknown host of each address family.
fn listener(addresses: usize) -> (World, Stranger, Stranger) {
    let extensions = Extensions::NONE
        .with(Extension::Auth)
        .with(Extension::AddressReconfiguration)
        .with(Extension::PartialReliability);
    let association = AssociationConfig {
        extensions,
        auth: AuthConfig::default(),
        adaptation: Some(7),
        ..AssociationConfig::default()
    };
    let config = EndpointConfig { association, ..EndpointConfig::default() };
    let mut world = World::new(1);
    let own: Vec<String> = (1..=addresses)
        .map(|n| if n % 2 == 0 { format!("10.0.{n}.2") } else { format!("fd00:{n}::2") })
        .collect();
    let mut list = vec!["10.0.1.2", "fd00::2"];
    list.extend(own.iter().map(String::as_str));
    let host = world.add_host(&list, config);
    let v4 = Stranger::new(host, "10.0.1.2", "192.0.2.1", 9);
    let v6 = Stranger::new(host, "fd00::2", "2001:db8::1", 9);
    (world, v4, v6)
}

#[test]
fn no_init_is_answered_by_more_than_three_times_its_length() {
    let listed: Vec<String> = (1..=16).map(|n| format!("198.51.100.{n}")).collect();
    let extensions = [0xc1, 0x80, 0x82, 0xc0, 0x0f, 0x40];
    let unknown = Parameter::Unknown { ptype: 0xc123, value: &[1; 40] };
    for own in [0, 1, 3, 8, 14] {
        for count in [0, 1, 2, 5, 16] {
            let mut parameters: Vec<Parameter<'_>> = listed[..count].iter().map(|a| address(a)).collect();
            for extra in [None, Some(Parameter::SupportedExtensions(&extensions)), Some(unknown)] {
                parameters.extend(extra);
                let length = packet(9, 7, 0, &[init(77, &parameters)]).len();
                let (mut world, v4, v6) = listener(own);
                let short = v4
                    .ask(&mut world, &parameters)
                    .unwrap_or_else(|| panic!("{parameters:?} from IPv4 to {own} addresses is not answered"));
                assert!(short.length <= 3 * length, "{} for {length}, {own} own addresses", short.length);
                match v6.ask(&mut world, &parameters) {
                    Some(answer) => assert!(answer.length <= 3 * length, "{} for {length}", answer.length),
                    None => assert!(length < 48, "an INIT of {length} bytes is long enough"),
                }
                let refused = world.host(v6.to).endpoint.counters().inits_too_short;
                assert_eq!(refused, u64::from(sent_to(&world, 0, "2001:db8::1").0.is_empty()));
            }
        }
    }
}

#[test]
fn our_own_init_is_long_enough_to_hear_of_eight_addresses() {
    let mut world = World::new(1);
    let own: Vec<String> = (1..=8).map(|n| format!("10.0.{n}.2")).collect();
    let a = world.add_host(&["10.0.1.1"], EndpointConfig::default());
    let b = world.add_host(&own.iter().map(String::as_str).collect::<Vec<_>>(), EndpointConfig::default());
    let link = world.add_link(LinkConfig::default());
    own.iter().for_each(|own| world.join(link, "10.0.1.1", own));
    let id = world.connect(a, b, base::Carrier::Ip, AssociationConfig::default(), Conversation::default());
    world.run_for(seconds(5));
    assert_eq!(world.host(a).endpoint.info(id).unwrap().paths.len(), 8);
}

#[test]
fn no_stray_is_answered_by_more_than_its_own_length() {
    for name in Subject::chunks().filter(|n| *n != "INIT") {
        let mut t = two(1);
        let mut subject = Subject::in_state(StateName::Closed);
        let request = subject.with_chunk(name, |_, _, chunk| packet(9, 7, 5, &[*chunk]));
        let stranger = Stranger::new(t.b, "10.0.1.2", "192.0.2.1", 9);
        for (_, answer) in stranger.send_raw(&mut t.world, &request) {
            assert!(answer.len() <= request.len(), "{name}: {} for {}", answer.len(), request.len());
        }
    }
}

#[test]
fn no_refusal_of_an_init_is_longer_than_the_init() {
    let listed: Vec<String> = (1..=16).map(|n| format!("198.51.100.{n}")).collect();
    let many: Vec<Parameter<'_>> = listed.iter().map(|a| address(a)).collect();
    let mut no_streams = packet(40_000, 7, 0, &[init(77, &[])]);
    no_streams[24..26].fill(0);
    let mut malformed = packet(40_000, 7, 0, &[init(77, &[address("10.0.1.1")])]);
    malformed[34..36].copy_from_slice(&[0, 3]);
    for mut request in [no_streams, malformed, packet(40_000, 7, 0, &[init(77, &many)])] {
        request[8..12].fill(0);
        let crc = wire::crc32c(&request);
        request[8..12].copy_from_slice(&crc.to_le_bytes());
        let mut t = Two::established(1);
        let answers = Stranger::new(t.b, "10.0.1.2", "10.0.1.1", 40_000).send_raw(&mut t.world, &request);
        assert_eq!(answers.len(), 1);
        assert!(answers[0].1.len() <= request.len(), "{} for {}", answers[0].1.len(), request.len());
    }
}
