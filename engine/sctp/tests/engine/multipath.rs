//! Tests of new data on all paths at once (concurrent multipath transfer).

use std::num::NonZeroU16;
use std::time::Duration;

use base::{Carrier, Time};
use bytes::Bytes;
use sctp::{
    AssociationConfig, CloseReason, EndpointConfig, Multipath, PathOptions, PathScheduler, PathState,
};
use sim::{Change, Conversation, Fate, LinkConfig, LinkId, World};
use wire::{ChecksumMode, Chunk, CommonHeader, GapBlock, Packet, Sack};

use crate::support::{Two, messages, seconds, sends_then_closes};

const MBIT: u64 = 1_000_000;

const BOTH: Multipath = Multipath::Concurrent { scheduler: PathScheduler::LowestRtt };

/// Returns a link with a queue of one bandwidth-delay product, but of at least 30 kB.
fn link(mbit: u64, rtt_ms: u64) -> LinkConfig {
    LinkConfig {
        rate: mbit * MBIT,
        delay: Duration::from_micros(rtt_ms * 500),
        queue_bytes: ((mbit * MBIT * rtt_ms / 8000) as usize).max(30_000),
        queue_packets: usize::MAX,
        ..LinkConfig::default()
    }
}

/// Returns a link with an unlimited queue, which loses nothing.
fn roomy(mbit: u64, rtt_ms: u64) -> LinkConfig {
    LinkConfig { queue_bytes: usize::MAX, ..link(mbit, rtt_ms) }
}

/// Creates two hosts with one path over each of these links.
fn hosts(seed: u64, links: &[LinkConfig], config: &AssociationConfig) -> Two {
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut world = World::new(seed);
    let name = |link: usize, end: usize| format!("10.0.{}.{end}", link + 1);
    let names = |end: usize| -> Vec<String> { (0..links.len()).map(|l| name(l, end)).collect() };
    let [ours, theirs] = [names(1), names(2)];
    let [a, b] = [&ours, &theirs]
        .map(|names| world.add_host(&names.iter().map(String::as_str).collect::<Vec<_>>(), endpoint.clone()));
    let join = |(l, config): (usize, &LinkConfig)| {
        let link = world.add_link(config.clone());
        world.join(link, &ours[l], &theirs[l]);
        link
    };
    let links: Vec<LinkId> = links.iter().enumerate().map(join).collect();
    Two { world, a, b, links }
}

impl Two {
    /// Makes `a` send one message on stream 0.
    fn say(&mut self, message: Bytes) {
        let (now, id) = (self.world.now(), self.id(self.a));
        let (stream, ppid) = (sctp::StreamId(0), sctp::Ppid(0));
        let endpoint = &mut self.world.host_mut(self.a).endpoint;
        let sent = endpoint.send(now, id, stream, ppid, message, sctp::SendOptions::default());
        sent.expect("room for a message");
    }
}

fn config(multipath: Multipath, buffer: usize) -> AssociationConfig {
    AssociationConfig {
        send_buffer: buffer,
        receive_buffer: buffer,
        // This test covers the paths, not the tuning of buffers.
        buffer_start: buffer,
        multipath,
        ..AssociationConfig::default()
    }
}

/// Creates two hosts with these links, of which `a` sends without end.
fn busy(seed: u64, links: &[LinkConfig], config: &AssociationConfig) -> Two {
    let mut t = hosts(seed, links, config);
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect_with(config.clone(), Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t
}

/// Returns the goodput of the next `time`, in Mbit/s.
fn rate(t: &mut Two, time: Duration) -> f64 {
    let before = t.talk(t.b).received_bytes;
    t.world.run_for(time);
    (t.talk(t.b).received_bytes - before) as f64 * 8.0 / time.as_secs_f64() / 1e6
}

/// Returns the goodput over ten seconds, after a warm-up of one second, in Mbit/s.
fn goodput(links: &[LinkConfig], multipath: Multipath, buffer: usize) -> f64 {
    let mut t = busy(1, links, &config(multipath, buffer));
    t.world.run_for(seconds(1));
    rate(&mut t, seconds(10))
}

#[test]
fn two_equal_paths_carry_nearly_twice_what_one_does() {
    for (one, buffer) in [(link(20, 20), 1 << 20), (link(20, 100), 4 << 20)] {
        let alone = goodput(std::slice::from_ref(&one), Multipath::Off, buffer);
        let both = goodput(&[one.clone(), one], BOTH, buffer);
        assert!(both >= 1.8 * alone, "{both} Mbit/s, one path alone {alone}");
    }
}

#[test]
fn a_slow_path_makes_a_quick_one_hardly_slower_however_small_the_buffers() {
    for (slow, buffer) in [(link(20, 200), 128 << 10), (link(2, 100), 128 << 10), (link(20, 100), 512 << 10)]
    {
        let quick = link(20, 20);
        let alone = goodput(std::slice::from_ref(&quick), Multipath::Off, buffer);
        for links in [[quick.clone(), slow.clone()], [slow.clone(), quick.clone()]] {
            let both = goodput(&links, BOTH, buffer);
            assert!(both >= 0.97 * alone, "{both} Mbit/s with {slow:?}, the quick path alone {alone}");
        }
    }
}

#[test]
fn a_slow_path_adds_to_a_quick_one_where_the_buffers_have_room_for_both() {
    let (quick, slow) = (link(20, 20), link(20, 100));
    let alone = goodput(std::slice::from_ref(&quick), Multipath::Off, 2 << 20);
    let both = goodput(&[quick, slow], BOTH, 2 << 20);
    assert!(both >= 1.7 * alone, "{both} Mbit/s, the quick path alone {alone}");
}

#[test]
fn without_loss_nothing_is_sent_again_however_much_the_paths_differ() {
    for (quick, slow) in [(5, 150), (20, 21), (100, 40)] {
        let links = [roomy(20, quick), roomy(20, slow)];
        let mut t = busy(1, &links, &config(BOTH, 1 << 20));
        t.world.run_for(seconds(20));
        let (ours, theirs) = (t.info(t.a), t.info(t.b));
        assert!(ours.paths.iter().filter(|p| p.bytes_sent > 1_000_000).count() == 2);
        assert_eq!(ours.counters.data_retransmitted, 0, "{quick} and {slow} ms");
        assert_eq!((ours.counters.timeouts, ours.counters.fast_recoveries), (0, 0));
        assert_eq!((theirs.counters.data_duplicate, theirs.counters.data_dropped), (0, 0));
    }
}

#[test]
fn with_losses_only_what_was_lost_is_sent_again() {
    let mut t = busy(1, &[link(20, 20), link(20, 100)], &config(BOTH, 4 << 20));
    t.world.run_for(seconds(20));
    let lost: u64 = t.links.iter().map(|&l| t.world.link(l).counters.lost()).sum();
    let (ours, theirs) = (t.info(t.a).counters, t.info(t.b).counters);
    assert!(lost > 20, "the queues overflowed");
    assert!(ours.data_retransmitted <= lost, "{} again for {lost} lost", ours.data_retransmitted);
    assert_eq!((theirs.data_duplicate, ours.timeouts), (0, 0));
}

#[test]
fn sacks_limited_to_16_gap_blocks_cause_no_needless_retransmissions_except_probes() {
    let mut t = busy(1, &[link(20, 10), link(20, 100)], &config(BOTH, 4 << 20));
    t.world.set_filter(|record| match cut_sack(&record.packet) {
        Some(shorter) => Fate::Replace(shorter),
        None => Fate::Pass,
    });
    t.world.run_for(seconds(20));
    let (ours, theirs) = (t.info(t.a).counters, t.info(t.b).counters);
    assert!(ours.data_retransmitted > 20, "the queues overflowed");
    assert!(
        theirs.data_duplicate <= ours.tail_probes,
        "{} needless, {} probes",
        theirs.data_duplicate,
        ours.tail_probes
    );
}

/// Returns a copy with only the first 16 gap blocks, if the packet begins with a SACK of more than 16.
fn cut_sack(packet: &[u8]) -> Option<Vec<u8>> {
    let header = CommonHeader::peek(packet)?;
    let Some(Ok(Chunk::Sack(sack))) = Packet::parse(packet, ChecksumMode::Ignore).ok()?.chunks().next()
    else {
        return None;
    };
    let gaps: Vec<GapBlock> = sack.gaps().take(17).collect();
    if gaps.len() < 17 {
        return None;
    }
    let cut = Sack { gaps: (&gaps[..16]).into(), ..sack };
    Some(sim::packet(header.source_port, header.destination_port, header.tag.0, &[Chunk::Sack(cut)]))
}

#[test]
fn the_death_of_one_path_in_mid_transfer_leaves_the_other_at_full_rate() {
    for dead in 0..2 {
        let mut t = busy(1, &[link(20, 20), link(20, 40)], &config(BOTH, 1 << 20));
        t.world.run_for(seconds(3));
        let now = t.world.now();
        t.world.at(now, Change::CutBoth(t.links[dead], true));
        t.world.run_for(seconds(3));
        let after = rate(&mut t, seconds(5));
        assert!(after >= 18.0, "{after} Mbit/s with path {dead} dead");
        let silence = t.talk(t.b).longest_silence;
        assert!(silence <= Duration::from_millis(1600), "silence of {silence:?} with path {dead} dead");
        let now = t.world.now();
        t.world.at(now, Change::CutBoth(t.links[dead], false));
        t.world.run_for(seconds(40));
        let mended = rate(&mut t, seconds(5));
        assert!(mended >= 34.0, "{mended} Mbit/s with path {dead} mended");
    }
}

#[test]
fn a_flapping_path_does_not_stop_the_other() {
    let mut t = busy(1, &[link(20, 20), link(20, 40)], &config(BOTH, 1 << 20));
    let begin = t.world.now();
    for n in 0..20 {
        let at = begin + Duration::from_millis(3000 * n + 500);
        t.world.at(at, Change::CutBoth(t.links[1], true));
        t.world.at(at + Duration::from_millis(1500), Change::CutBoth(t.links[1], false));
    }
    let mean = rate(&mut t, seconds(60));
    assert!(mean >= 12.0, "{mean} Mbit/s");
}

#[test]
fn a_short_message_goes_by_the_quick_path_alone() {
    let mut t = hosts(1, &[link(20, 20), link(20, 200)], &config(BOTH, 1 << 20));
    t.connect_with(config(BOTH, 1 << 20), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(5));
    let before: Vec<u64> = t.info(t.a).paths.iter().map(|p| p.bytes_sent).collect();
    for message in messages(200, 1000, 1) {
        t.say(message.bytes);
        t.world.run_for(Duration::from_millis(5));
    }
    let info = t.info(t.a);
    let sent: Vec<u64> = info.paths.iter().zip(before).map(|(p, b)| p.bytes_sent - b).collect();
    assert!(sent[0] > 195_000 && sent[1..].iter().all(|&bytes| bytes < 8000), "{sent:?}");
}

#[test]
fn everything_arrives_in_order_and_the_association_ends_well() {
    let config = config(BOTH, 256 << 10);
    let mut t = hosts(1, &[link(10, 20), link(5, 120)], &config);
    let outgoing = messages(400, 3000, 4);
    let carrier = Carrier::Udp { peer_port: 9899 };
    let (a, b) = (t.a, t.b);
    t.world.connect(a, b, carrier, config, sends_then_closes(outgoing.clone()));
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    for stream in 0..4 {
        let sent = outgoing.iter().filter(|m| m.stream == stream).map(|m| &m.bytes);
        let received = t.talk(t.b).received.iter().filter(|m| m.stream == stream).map(|m| &m.bytes);
        assert!(sent.eq(received), "stream {stream}");
    }
    assert!(t.world.now() < Time::ZERO + seconds(60));
}

/// Returns the goodputs in Mbit/s of two associations that share a link of 20 Mbit/s and 40 ms. The first association uses two paths at
/// once, the second one a single path.
fn shared(seed: u64, time: Duration) -> [f64; 2] {
    let mut world = World::new(seed);
    world.checks = false;
    let link = world.add_link(link(20, 40));
    let both = (BOTH, [["10.0.1.1", "10.0.2.1"], ["10.0.1.2", "10.0.2.2"]]);
    let alone = (Multipath::Off, [["10.0.3.1", "10.0.4.1"], ["10.0.3.2", "10.0.4.2"]]);
    let receivers = [both, alone].map(|(multipath, names)| {
        let config = config(multipath, 2 << 20);
        let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
        let [a, b] = names.map(|names| world.add_host(&names, endpoint.clone()));
        (0..2).for_each(|path| world.join(link, names[0][path], names[1][path]));
        world.host_mut(b).app.template.keeps = false;
        let bulk = Conversation { bulk: 1 << 40, ..Conversation::default() };
        world.connect(a, b, Carrier::Ip, config, bulk);
        b
    });
    world.run_for(time);
    receivers.map(|host| {
        let talk = world.host(host).app.conversations.values().next().expect("a conversation");
        talk.received_bytes as f64 * 8.0 / time.as_secs_f64() / 1e6
    })
}

#[test]
fn two_paths_through_one_bottleneck_take_no_more_than_one_flow_beside_them() {
    let [mut two, mut one] = [0.0; 2];
    for seed in 1..=3 {
        let rates = shared(seed, seconds(60));
        two += rates[0] / 3.0;
        one += rates[1] / 3.0;
    }
    eprintln!("two paths {two:.1} Mbit/s, one path beside them {one:.1}");
    assert!(two <= 1.1 * (two + one) / 2.0, "{two} Mbit/s beside {one}");
    assert!(two >= 0.7 * (two + one) / 2.0, "{two} Mbit/s beside {one}");
}

#[test]
fn weights_divide_traffic_that_does_not_fill_the_paths() {
    let multipath = Multipath::Concurrent { scheduler: PathScheduler::Weighted };
    for (quick, slow) in [(20, 20), (20, 60)] {
        let mut t = hosts(1, &[link(50, quick), link(50, slow)], &config(multipath, 1 << 20));
        t.connect_with(config(multipath, 1 << 20), Conversation::default());
        t.run_to_established();
        t.world.run_for(seconds(2));
        let (now, id, a) = (t.world.now(), t.id(t.a), t.a);
        let options = PathOptions { weight: NonZeroU16::new(3), ..PathOptions::default() };
        let remote = "10.0.2.2".parse().unwrap();
        t.world.host_mut(a).endpoint.set_path_options(now, id, remote, options).unwrap();
        let before: Vec<u64> = t.info(a).paths.iter().map(|p| p.new_data).collect();
        for message in messages(2000, 1000, 1) {
            t.say(message.bytes);
            t.world.run_for(Duration::from_millis(1));
        }
        let info = t.info(a);
        let sent: Vec<u64> = info.paths.iter().zip(before).map(|(p, b)| p.new_data - b).collect();
        let heavy = sent[1..].iter().sum::<u64>() as f64 / sent[0] as f64;
        assert!((2.5..3.5).contains(&heavy), "{sent:?} with {quick} and {slow} ms");
    }
}

#[test]
fn a_weight_can_be_that_of_one_pair_of_addresses() {
    let multipath = Multipath::Concurrent { scheduler: PathScheduler::Weighted };
    let mut t = hosts(1, &[link(50, 20), link(50, 20)], &config(multipath, 1 << 20));
    t.connect_with(config(multipath, 1 << 20), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(2));
    let (now, id, a) = (t.world.now(), t.id(t.a), t.a);
    let weight = NonZeroU16::new(3).unwrap();
    let route = t.info(a).paths[1].route;
    let endpoint = &mut t.world.host_mut(a).endpoint;
    endpoint.set_path_weight(now, id, route.local, route.remote, weight).unwrap();
    let nowhere = "10.9.9.9".parse().unwrap();
    assert_eq!(
        endpoint.set_path_weight(now, id, nowhere, route.remote, weight),
        Err(sctp::PathOptionError::Unknown(nowhere))
    );
    for path in t.info(a).paths {
        assert_eq!(path.options.weight, (path.route == route).then_some(weight), "{:?}", path.route);
    }
}

#[test]
fn weights_do_not_keep_the_paths_from_being_filled() {
    let multipath = Multipath::Concurrent { scheduler: PathScheduler::Weighted };
    let both = goodput(&[link(20, 20), link(20, 40)], multipath, 1 << 20);
    assert!(both >= 34.0, "{both} Mbit/s");
}

const ALL: Multipath = Multipath::Concurrent { scheduler: PathScheduler::Redundant };

/// Sends `count` messages of 400 bytes, one every 10 ms, and returns the latency of each in milliseconds. If `dies` is set, the link of the
/// busiest path is cut after half of the messages.
fn latencies(multipath: Multipath, links: &[LinkConfig], count: usize, dies: bool) -> Vec<u64> {
    let mut t = hosts(1, links, &config(multipath, 1 << 20));
    t.world.host_mut(t.b).app.template.keeps = true;
    t.connect_with(config(multipath, 1 << 20), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(3));
    let begin = t.world.now();
    let mut arrived = Vec::new();
    let mut outgoing = messages(count, 400, 1).into_iter();
    for tick in 0..(count as u64 * 10 + 3000) {
        if tick % 10 == 0
            && let Some(message) = outgoing.next()
        {
            t.say(message.bytes);
        }
        if dies && tick == count as u64 * 5 {
            let paths = t.info(t.a).paths;
            let busiest = paths.iter().max_by_key(|p| p.new_data).expect("a path").route.remote;
            let link = t.links[usize::from(busiest.to_string() == "10.0.2.2")];
            t.world.at(begin + Duration::from_millis(tick), Change::CutBoth(link, true));
        }
        t.world.run_for(Duration::from_millis(1));
        arrived.resize(t.talk(t.b).received.len(), tick + 1);
    }
    assert_eq!(arrived.len(), count, "all messages arrived");
    arrived.iter().enumerate().map(|(n, at)| at - n as u64 * 10).collect()
}

/// Returns the value that `percent` percent of all values do not exceed.
fn percentile(mut values: Vec<u64>, percent: usize) -> u64 {
    values.sort_unstable();
    values[values.len() * percent / 100]
}

#[test]
fn with_redundant_paths_the_death_of_one_delays_nothing() {
    let links = [link(20, 20), link(20, 40)];
    let worst = |multipath| latencies(multipath, &links, 600, true).into_iter().max().unwrap();
    assert!(worst(ALL) <= 22, "{} ms", worst(ALL));
    assert!(worst(BOTH) >= 100, "{} ms without copies", worst(BOTH));
}

#[test]
fn with_redundant_paths_a_loss_on_one_delays_nothing() {
    let lossy = |rtt_ms| LinkConfig { loss: sim::Loss::Uniform(0.05), ..link(20, rtt_ms) };
    let links = [lossy(30), lossy(40)];
    // About one message in 400 loses both copies. The next messages of the stream wait for it, so about one message in 100 is delayed.
    let p98 = |multipath| percentile(latencies(multipath, &links, 3000, false), 98);
    assert!(p98(ALL) <= 30, "{} ms", p98(ALL));
    assert!(p98(BOTH) >= 40, "{} ms without copies", p98(BOTH));
}

#[test]
fn copies_confuse_neither_round_trips_nor_windows() {
    let links = [link(20, 20), link(20, 60)];
    let mut t = busy(1, &links, &config(ALL, 1 << 20));
    let mean = rate(&mut t, seconds(20));
    let info = t.info(t.a);
    assert!(mean >= 17.0, "{mean} Mbit/s");
    assert_eq!(info.counters.timeouts, 0);
    assert!(info.counters.data_copied > 10_000);
    for (path, least) in info.paths.iter().filter(|p| p.packets_sent > 100).zip([20, 60]) {
        let srtt = path.srtt.expect("a measured round trip");
        assert!(srtt >= Duration::from_millis(least), "{srtt:?} on the path of {least} ms");
        assert!(srtt <= Duration::from_millis(3 * least), "{srtt:?} on the path of {least} ms");
    }
}

#[test]
fn a_dead_path_among_redundant_ones_is_noticed_and_comes_back() {
    let mut t = busy(1, &[link(20, 20), link(20, 40)], &config(ALL, 1 << 20));
    t.world.run_for(seconds(3));
    let state = |t: &Two| t.info(t.a).paths.iter().find(|p| p.packets_sent > 100).expect("a path").state;
    let now = t.world.now();
    t.world.at(now, Change::CutBoth(t.links[0], true));
    t.world.run_for(seconds(45));
    assert_ne!(state(&t), PathState::Active);
    let now = t.world.now();
    t.world.at(now, Change::CutBoth(t.links[0], false));
    t.world.run_for(seconds(200));
    assert_eq!(state(&t), PathState::Active);
}

/// Cuts one of two redundant paths, and returns the number of seconds until a path is no longer active.
fn seconds_until_noticed(cut: usize) -> u64 {
    let mut t = busy(1, &[link(20, 20), link(20, 40)], &config(ALL, 1 << 20));
    t.world.run_for(seconds(3));
    let now = t.world.now();
    t.world.at(now, Change::CutBoth(t.links[cut], true));
    let is_noticed = |t: &Two| {
        let info = t.info(t.a);
        info.paths.iter().filter(|p| p.packets_sent > 100).any(|p| p.state != PathState::Active)
    };
    (1..=300)
        .find(|_| {
            t.world.run_for(seconds(1));
            is_noticed(&t)
        })
        .expect("the death is noticed")
}

#[test]
fn the_failure_of_a_redundant_path_is_noticed_within_five_seconds() {
    for cut in [0, 1] {
        let noticed = seconds_until_noticed(cut);
        assert!(noticed <= 5, "path {cut}: {noticed} s");
    }
}
