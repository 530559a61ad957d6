//! Tests of a path that loses many packets but is never silent. Data moves to a path that loses fewer packets, and stays if no such path
//! exists.

use std::time::Duration;

use sctp::{AssociationConfig, Event, PathState, Timing};
use sim::{Conversation, Fate, LinkConfig, Loss, chunk_names};

use crate::failover::{
    cut, forget_silence, idle, in_use, joined_by_chance, speak, stream, switches, transfer,
};
use crate::support::{Two, seconds};

const MS: fn(u64) -> Duration = Duration::from_millis;
const FIRST: &str = "10.0.1.1";
const SECOND: &str = "10.0.2.1";

/// Creates two links of 100 Mbit/s with a round trip of 20 ms and queues of 1,000 packets.
fn two_links(seed: u64) -> Two {
    let mut t = joined_by_chance(seed, &[10, 10], Conversation::default());
    t.world.checks = false;
    for link in t.links.clone() {
        let config = &mut t.world.link_mut(link).config;
        *config = LinkConfig { rate: 100_000_000, queue_packets: 1000, ..config.clone() };
    }
    t
}

/// Sets the loss rate of a link in both directions.
fn lose(t: &mut Two, link: usize, loss: f64) {
    let link = t.links[link];
    t.world.link_mut(link).config.loss = Loss::Uniform(loss);
}

fn set_timing(t: &mut Two, timing: Timing) {
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.set_timing(now, id, timing);
}

/// Sends a stream of 19 Mbit/s. After one second, the first path begins to lose packets at this rate, and the stream continues for `long`.
pub(crate) fn stream_with_loss(seed: u64, loss: f64, long: Duration) -> Two {
    let mut t = two_links(seed);
    stream(&mut t, seconds(1));
    forget_silence(&mut t);
    lose(&mut t, 0, loss);
    stream(&mut t, long);
    t
}

#[test]
fn a_stream_leaves_a_path_with_30_percent_loss_once_and_arrives_in_time() {
    for seed in 1..=100 {
        let mut t = stream_with_loss(seed, 0.3, seconds(2));
        let silence = t.talk(t.b).longest_silence;
        assert!(silence < MS(200), "seed {seed}: {silence:?}");
        assert_eq!((in_use(&t).as_str(), switches(&t)), (SECOND, 1), "seed {seed}");
        t.world.run_for(MS(100));
        assert_eq!(t.talk(t.b).received_bytes, 6000 * 1200, "seed {seed}");
    }
}

#[test]
fn a_path_that_loses_a_tenth_is_left_and_one_that_loses_a_fortieth_is_not() {
    for seed in 1..=5 {
        assert_eq!(in_use(&stream_with_loss(seed, 0.1, seconds(8))), SECOND, "seed {seed}");
        assert_eq!(switches(&stream_with_loss(seed, 0.025, seconds(8))), 0, "seed {seed}");
    }
}

#[test]
fn without_a_bound_no_path_is_left_for_what_it_loses() {
    let mut t = two_links(1);
    set_timing(&mut t, Timing { loss_max: None, ..Timing::quick() });
    lose(&mut t, 0, 0.1);
    stream(&mut t, seconds(8));
    assert_eq!((in_use(&t).as_str(), switches(&t)), (FIRST, 0));
    assert_eq!(AssociationConfig::default().timing.loss_max, None, "peers of any kind");
}

#[test]
fn where_both_paths_lose_as_much_data_does_not_wander() {
    for seed in 1..=5 {
        let mut t = two_links(seed);
        lose(&mut t, 0, 0.1);
        lose(&mut t, 1, 0.1);
        stream(&mut t, seconds(30));
        assert!(switches(&t) <= 2, "seed {seed}: {} switches in 30 s", switches(&t));
    }
}

#[test]
fn losses_of_queues_that_overflow_move_no_data() {
    for (mbit, packets) in [(100, 1000), (100, 30), (10, 100), (10, 20), (2, 30)] {
        let mut t = two_links(1);
        for link in t.links.clone() {
            let config = &mut t.world.link_mut(link).config;
            (config.rate, config.queue_packets) = (mbit * 1_000_000, packets);
        }
        transfer(&mut t);
        t.world.run_for(seconds(8));
        let info = t.info(t.a);
        assert!(info.counters.data_retransmitted > 10, "{mbit} Mbit/s, {packets} packets: nothing was lost");
        assert_eq!(switches(&t), 0, "{mbit} Mbit/s, {packets} packets: {:#?}", info.paths);
    }
}

#[test]
fn a_path_that_has_just_failed_does_not_take_data_back_by_answering_first() {
    let mut t = idle(&[2, 30]);
    stream(&mut t, MS(500));
    // The first path drops its first HEARTBEAT and all packets that are not HEARTBEATs. So data leaves this path. The answer to a later
    // HEARTBEAT on it arrives long before an answer on the slower path.
    let mut asked = 0;
    t.world.set_filter(move |record| {
        let names = chunk_names(&record.packet);
        let is_first = record.route.local.to_string().starts_with("10.0.1.");
        asked += usize::from(record.route.local.to_string() == FIRST && names == "HEARTBEAT");
        if is_first && (!names.starts_with("HEARTBEAT") || asked < 2) { Fate::Drop } else { Fate::Pass }
    });
    stream(&mut t, seconds(1));
    assert_eq!((in_use(&t).as_str(), switches(&t)), (SECOND, 1));
    assert_eq!(t.info(t.a).paths[0].state, PathState::Active);
}

#[test]
//= rfc9260#6.4-1
fn a_path_that_is_asked_seldom_is_trusted_only_after_eight_answers() {
    let mut t = idle(&[10, 10]);
    set_timing(&mut t, Timing { heartbeat_interval: seconds(8), ..Timing::quick() });
    cut(&mut t, 0, true);
    speak(&mut t, 30);
    cut(&mut t, 0, false);
    // The path is watched for five seconds and probed every two seconds.
    speak(&mut t, 140);
    assert_eq!((in_use(&t).as_str(), t.info(t.a).paths[0].state), (SECOND, PathState::Active));
    speak(&mut t, 130);
    assert_eq!(in_use(&t), FIRST);
}

#[test]
fn a_path_of_which_heartbeats_are_lost_now_and_then_gets_no_data_back() {
    for seed in 1..=5 {
        let mut t = two_links(seed);
        // The first path loses every seventh HEARTBEAT and nothing else, so only HEARTBEATs can reveal the losses.
        let mut asked = 0;
        t.world.set_filter(move |record| {
            let is_asked =
                record.route.local.to_string() == FIRST && chunk_names(&record.packet) == "HEARTBEAT";
            asked += usize::from(is_asked);
            if is_asked && asked % 7 == 0 { Fate::Drop } else { Fate::Pass }
        });
        cut(&mut t, 0, true);
        speak(&mut t, 30);
        cut(&mut t, 0, false);
        speak(&mut t, 600);
        assert_eq!((in_use(&t).as_str(), switches(&t)), (SECOND, 1), "seed {seed}");
    }
}

#[test]
fn a_path_left_because_of_losses_is_reported_as_potentially_failed() {
    let t = stream_with_loss(1, 0.3, seconds(1));
    let told: Vec<_> = t
        .events(t.a)
        .iter()
        .filter_map(|event| match event {
            Event::PathChanged { route, from, to, .. } if route.local.to_string() == FIRST => {
                Some((*from, *to))
            }
            _ => None,
        })
        .collect();
    assert_eq!(told.first(), Some(&(PathState::Active, PathState::PotentiallyFailed)));
    assert_eq!(t.info(t.a).counters.timeouts, 0, "no timer told of it");
}
