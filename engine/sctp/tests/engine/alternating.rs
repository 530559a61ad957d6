//! Tests with two links of which exactly one works at a time: data must move at once to the path that has just come back.

use std::time::Duration;

use base::Carrier;
use sctp::{EndpointConfig, Heartbeats, PathOptions, PathState, Timing};
use sim::{Change, Conversation, Direction, LinkConfig, World};

use crate::failover::config;
use crate::support::{Two, messages, seconds, sends};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Limit on the time without arrivals, for every length of turns.
const LONGEST: Duration = Duration::from_millis(500);

/// Creates two hosts with two links of 20 Mbit/s, a delay of 5 ms per direction, and queues of 50 packets. On each link, both hosts have
/// one address per family.
pub(crate) fn joined(seed: u64, families: &[&str]) -> Two {
    let link = LinkConfig { delay: MS(5), rate: 20_000_000, queue_packets: 50, ..LinkConfig::default() };
    joined_by(seed, families, &link)
}

fn joined_by(seed: u64, families: &[&str], link: &LinkConfig) -> Two {
    let mut world = World::new(seed);
    let address =
        |family: &str, link: usize, end: usize| family.replace('L', &link.to_string()) + &end.to_string();
    let endpoint = EndpointConfig { association: config(), ..EndpointConfig::default() };
    let [a, b] = [1, 2].map(|end| {
        let own: Vec<String> =
            families.iter().flat_map(|family| [1, 2].map(|link| address(family, link, end))).collect();
        world.add_host(&own.iter().map(String::as_str).collect::<Vec<_>>(), endpoint.clone())
    });
    let links = [1, 2].map(|n| {
        let link = world.add_link(link.clone());
        for family in families {
            world.join(link, &address(family, n, 1), &address(family, n, 2));
        }
        link
    });
    let mut t = Two { world, a, b, links: links.to_vec() };
    t.world.host_mut(b).app.template.keeps = false;
    t.world.connect(a, b, Carrier::Ip, config(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(3));
    t
}

/// Makes the links work in turn for the time `long`, from now on. Each turn lasts `period`.
fn take_turns(t: &mut Two, period: Duration, long: Duration) {
    let (mut at, links) = (t.world.now(), t.links.clone());
    let end = at + long;
    for turn in 0.. {
        if at >= end {
            return;
        }
        for (n, link) in links.iter().enumerate() {
            t.world.at(at, Change::CutBoth(*link, n % 2 != turn % 2));
        }
        at += period;
    }
}

/// Makes both ends send 64 bytes every 50 ms for `long`.
pub(crate) fn talk(t: &mut Two, long: Duration) {
    let end = t.world.now() + long;
    while t.world.now() < end {
        for host in [t.a, t.b] {
            let id = t.id(host);
            let talk = t.world.host_mut(host).app.conversations.get_mut(&id).expect("a conversation");
            talk.outgoing.extend(sends(messages(1, 64, 1)).outgoing);
        }
        t.world.run_for(MS(50));
    }
}

pub(crate) fn transfer(t: &mut Two) {
    let id = t.id(t.a);
    t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation").bulk = 1 << 40;
}

pub(crate) fn longest_silence(t: &Two) -> Duration {
    t.talk(t.a).longest_silence.max(t.talk(t.b).longest_silence)
}

/// Returns the longest silence while the links take turns and both ends send small messages. With `transfers`, `a` also sends bulk data
/// without end.
fn silence_of_turns(seed: u64, families: &[&str], period: u64, transfers: bool) -> Duration {
    let mut t = joined(seed, families);
    talk(&mut t, seconds(1));
    if transfers {
        transfer(&mut t);
    }
    let long = MS((period * 6).max(4_000) + seed * period / 5);
    take_turns(&mut t, MS(period), long);
    talk(&mut t, long);
    longest_silence(&t)
}

const PERIODS: [u64; 8] = [200, 300, 500, 1_000, 1_500, 2_000, 3_000, 10_000];
pub(crate) const IPV4: &str = "10.0.L.";
pub(crate) const IPV6: &str = "fd00:L::";

#[test]
//= rfc9260#6.4-3
fn a_talk_goes_on_while_links_take_turns() {
    for families in [&[IPV4][..], &[IPV6], &[IPV4, IPV6]] {
        for period in PERIODS {
            for seed in 1..=4 {
                let silence = silence_of_turns(seed, families, period, false);
                assert!(silence <= LONGEST, "{families:?}, turns of {period} ms, seed {seed}: {silence:?}");
            }
        }
    }
}

#[test]
//= rfc9260#6.4-3
fn a_transfer_and_a_talk_beside_it_go_on_while_links_take_turns() {
    for families in [&[IPV4][..], &[IPV4, IPV6]] {
        for (period, seed) in PERIODS.into_iter().flat_map(|period| [1, 2].map(|seed| (period, seed))) {
            let silence = silence_of_turns(seed, families, period, true);
            assert!(silence <= LONGEST, "{families:?}, turns of {period} ms, seed {seed}: {silence:?}");
        }
    }
}

/// Makes the first link carry packets only from `a` to `b`. `a` continues to send over this link, because the acknowledgements arrive over
/// the other link.
fn lead_one_way(t: &mut Two) {
    let (id, now) = (t.id(t.a), t.world.now());
    let patient = Timing { potentially_failed_max_retrans: None, path_max_retrans: 200, ..Timing::default() };
    t.world.host_mut(t.a).endpoint.set_timing(now, id, patient);
    t.world.at(now, Change::Cut(t.links[0], Direction::Backward, true));
}

/// Returns the rate at which `b` receives for ten seconds, in bit/s.
fn rate(t: &mut Two) -> u64 {
    let before = t.talk(t.b).received_bytes;
    t.world.run_for(seconds(10));
    (t.talk(t.b).received_bytes - before) * 8 / 10
}

#[test]
//= rfc9260#6.4-3
fn a_path_that_works_only_towards_us_is_soon_not_used_for_answers() {
    let mut t = joined(1, &[IPV4]);
    lead_one_way(&mut t);
    transfer(&mut t);
    t.world.run_for(seconds(20));
    let rate = rate(&mut t);
    assert!(rate > 15_000_000, "{rate} bit/s");
    // `b` does not probe the path for each packet that arrives on it.
    let before = t.info(t.b).paths[0].packets_sent;
    t.world.run_for(seconds(60));
    let sent = t.info(t.b).paths[0].packets_sent - before;
    assert_eq!(t.info(t.b).paths[0].state, PathState::Inactive);
    assert!(sent <= 20, "{sent} in a minute");
}

#[test]
fn a_path_that_works_only_towards_us_is_rarely_answered_on_after_silences() {
    let mut t = joined(1, &[IPV4]);
    lead_one_way(&mut t);
    let (b, before) = (t.b, t.info(t.b).paths[0].packets_sent);
    for _ in 0..300 {
        let id = t.id(t.a);
        let talk = t.world.host_mut(t.a).app.conversations.get_mut(&id).expect("a conversation");
        talk.outgoing.extend(sends(messages(1, 64, 1)).outgoing);
        t.world.run_for(MS(200));
    }
    let sent = t.info(b).paths[0].packets_sent - before;
    assert!(sent <= 60, "{sent} in a minute");
}

#[test]
fn without_heartbeats_a_path_that_works_only_towards_us_is_not_used_for_answers() {
    let mut t = joined(1, &[IPV4]);
    let (id, now) = (t.id(t.b), t.world.now());
    let off = PathOptions { heartbeats: Heartbeats::Off, ..PathOptions::default() };
    for path in t.info(t.b).paths {
        t.world.host_mut(t.b).endpoint.set_path_options(now, id, path.route.remote, off).expect("a path");
    }
    lead_one_way(&mut t);
    talk(&mut t, seconds(10));
    transfer(&mut t);
    t.world.run_for(seconds(10));
    let rate = rate(&mut t);
    assert!(rate > 15_000_000, "{rate} bit/s");
}

/// Sends 1,200 bytes every 0.5 ms over links with a round trip of 20 ms, and returns the longest time without arrivals. The links take
/// turns of `period` milliseconds. Even seeds use both address families. Each change of turns is up to 3 ms late. During the change, both
/// links work for half a millisecond.
fn silence_of_a_stream(seed: u64, period: u64) -> Duration {
    let families: &[&str] = if seed.is_multiple_of(2) { &[IPV4, IPV6] } else { &[IPV4] };
    let link = LinkConfig { delay: MS(10), rate: 100_000_000, queue_packets: 1_000, ..LinkConfig::default() };
    let mut t = joined_by(seed, families, &link);
    t.world.run_for(Duration::from_micros(seed * 7_919 % 200_000));
    let mut at = t.world.now() + seconds(1);
    for turn in 0..(4_000 / period).max(4) {
        let (away, works) = (t.links[(turn % 2) as usize], t.links[(1 - turn % 2) as usize]);
        let late = at + Duration::from_micros(seed * 104_729 * (turn + 1) % 3_000);
        t.world.at(late, Change::CutBoth(works, false));
        t.world.at(late + Duration::from_micros(500), Change::CutBoth(away, true));
        at += MS(period);
    }
    for link in t.links.clone() {
        t.world.at(at, Change::CutBoth(link, false));
    }
    let (a, end) = (t.id(t.a), at + MS(500));
    let (mut received, mut since, mut longest) = (0, t.world.now(), Duration::ZERO);
    while t.world.now() < end {
        let talk = t.world.host_mut(t.a).app.conversations.get_mut(&a).expect("a conversation");
        talk.outgoing.extend(sends(messages(1, 1_200, 1)).outgoing);
        t.world.run_for(Duration::from_micros(500));
        let now = t.talk(t.b).received_bytes;
        if now != received {
            longest = longest.max(t.world.now() - since);
            (received, since) = (now, t.world.now());
        }
    }
    longest
}

/// Each seed passes only if the engine has one of these properties:
///
/// - When a path becomes active, the engine uses it at once to ask the peer about a silent path.
/// - The question is sent even if the preceding packet is short.
/// - A silent path is used again as soon as a packet arrives on it.
/// - Losses are found on a path that has only retransmitted.
#[test]
fn a_stream_goes_on_while_links_take_turns() {
    for (seed, period) in [(338, 200), (216, 200), (591, 200), (411, 200), (43, 300), (12, 300), (32, 1_000)]
    {
        let silence = silence_of_a_stream(seed, period);
        assert!(silence <= LONGEST, "turns of {period} ms, seed {seed}: {silence:?}");
    }
}

/// Plays many seeds. The variables `FIRST`, `COUNT` and `PERIOD` set the first seed, the number of seeds and the length of turns in
/// milliseconds. Their defaults are 1, 30 and 200; a study needs 300 seeds or more.
#[test]
#[ignore = "plays many seeds for a study"]
fn many_streams_go_on_while_links_take_turns() {
    let number =
        |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().expect("a number"));
    let (first, count, period) = (number("FIRST", 1), number("COUNT", 30), number("PERIOD", 200));
    let mut all: Vec<_> =
        (first..first + count).map(|seed| (silence_of_a_stream(seed, period), seed)).collect();
    all.sort_unstable();
    println!("turns of {period} ms: median {:?}", all[all.len() / 2].0);
    for (silence, seed) in all.iter().rev().take(10) {
        println!("turns of {period} ms, seed {seed}: {silence:?}");
    }
    assert!(all.iter().all(|(silence, _)| *silence <= LONGEST * 2), "too long");
}
