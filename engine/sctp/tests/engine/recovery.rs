//! Tests of loss recovery: losses are repaired within one or two round trips, and data that is not lost is not retransmitted.

use std::time::Duration;

use base::{Carrier, Time};
use sctp::{AssociationConfig, AssociationInfo, CongestionAlgorithm, EndpointConfig};
use sim::{Conversation, Fate, InTheClear, LinkConfig, Loss, Record};
use wire::{ChecksumMode, Chunk, Packet, Tsn};

use crate::support::{Two, messages, seconds, sends, two_with};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Returns the TSN of a packet's first DATA chunk.
fn tsn(record: &Record) -> Option<Tsn> {
    let packet = Packet::parse(&record.packet, ChecksumMode::Ignore).ok()?;
    packet.chunks().find_map(|chunk| match chunk {
        Ok(Chunk::Data(data)) => Some(data.tsn),
        _ => None,
    })
}

fn config(congestion: CongestionAlgorithm) -> AssociationConfig {
    AssociationConfig {
        send_buffer: 8 << 20,
        receive_buffer: 8 << 20,
        congestion,
        ..AssociationConfig::default()
    }
}

/// Creates two hosts with a link of 100 Mbit/s and a queue of one bandwidth-delay product.
fn path(rtt_ms: u64, congestion: CongestionAlgorithm) -> Two {
    let link = LinkConfig {
        delay: MS(rtt_ms) / 2,
        queue_bytes: 12_500 * rtt_ms as usize,
        queue_packets: usize::MAX,
        ..LinkConfig::default()
    };
    let endpoint = EndpointConfig { association: config(congestion), ..EndpointConfig::default() };
    two_with(1, link, endpoint)
}

/// Creates two hosts of which `a` sends without end over `path`.
fn bulk(rtt_ms: u64, congestion: CongestionAlgorithm) -> Two {
    let mut t = path(rtt_ms, congestion);
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect_with(config(congestion), Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t
}

fn cwnd(info: &AssociationInfo) -> usize {
    info.paths[0].cwnd
}

/// Sends `messages_sent` messages, each in its own packet. Each message in the range `lost` is lost `times` times. Returns the hosts after
/// the last arrival, and the time at which the first message left.
fn after_losing_the_tail(messages_sent: usize, lost: std::ops::Range<u32>, times: usize) -> (Two, Time) {
    let mut t = path(100, CongestionAlgorithm::Cubic);
    t.connect_with(config(CongestionAlgorithm::Cubic), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(1));
    let (mut first, mut left) = (None, std::collections::BTreeMap::new());
    t.world.set_filter(move |record| {
        let Some(tsn) = tsn(record) else { return Fate::Pass };
        let place = first.get_or_insert(tsn).distance_to(tsn);
        let left = left.entry(place).or_insert(times);
        if lost.contains(&place) && *left > 0 {
            *left -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    let begin = t.world.now();
    let (a, b) = (t.a, t.b);
    let id = t.id(a);
    let talk = t.world.host_mut(a).app.conversations.get_mut(&id).expect("a conversation");
    talk.outgoing = sends(messages(messages_sent, 1400, 1)).outgoing;
    let done = t.world.run_until(begin + seconds(20), |w| {
        w.host(b).app.conversations.values().next().is_some_and(|c| c.received.len() == messages_sent)
    });
    assert!(done, "not everything arrived");
    (t, begin)
}

#[test]
fn a_lost_tail_is_recovered_by_a_probe_after_two_round_trips() {
    let _clear = InTheClear::begin();
    // Eleven messages take three round trips, and the last one is lost.
    let (t, begin) = after_losing_the_tail(11, 10..11, 1);
    let took = t.world.now() - begin;
    let counters = t.info(t.a).counters;
    assert_eq!((counters.timeouts, counters.tail_probes), (0, 1));
    assert!(took < MS(250 + 200 + 200 + 50 + 100), "took {took:?}");
}

#[test]
fn a_tail_of_many_is_recovered_by_one_probe() {
    let _clear = InTheClear::begin();
    let (t, begin) = after_losing_the_tail(24, 14..24, 1);
    let took = t.world.now() - begin;
    let counters = t.info(t.a).counters;
    assert_eq!((counters.timeouts, counters.tail_probes), (0, 1));
    assert!(took < seconds(1), "took {took:?}");
}

#[test]
fn a_tail_whose_probe_is_lost_too_waits_for_the_timer() {
    let _clear = InTheClear::begin();
    let (t, begin) = after_losing_the_tail(11, 10..11, 2);
    assert_eq!(t.info(t.a).counters.timeouts, 1);
    assert!(t.world.now() - begin > seconds(1));
}

#[test]
fn a_retransmission_that_is_lost_is_found_in_a_round_trip_while_data_flows() {
    let _clear = InTheClear::begin();
    let mut t = bulk(100, CongestionAlgorithm::Cubic);
    t.world.run_for(seconds(2));
    let mut victim = None;
    let mut left = 3;
    t.world.set_filter(move |record| {
        let Some(tsn) = tsn(record) else { return Fate::Pass };
        if *victim.get_or_insert(tsn) == tsn && left > 0 {
            left -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    let before = t.talk(t.b).longest_silence;
    t.world.run_for(seconds(2));
    let info = t.info(t.a);
    assert_eq!(info.counters.timeouts, 0);
    let silence = t.talk(t.b).longest_silence;
    // The chunk is lost three times, and each loss costs a round trip. The queue may double each round trip, and the reordering window adds
    // a quarter of the round trip.
    assert!(silence > before && silence < MS(750), "silence of {silence:?}");
}

#[test]
fn packets_that_are_8_ms_late_keep_the_goodput_and_cause_few_retransmissions() {
    let mut t = bulk(40, CongestionAlgorithm::Cubic);
    let mut count = 0u32;
    t.world.set_filter(move |record| {
        count += u32::from(tsn(record).is_some());
        if count.is_multiple_of(100) && record.packet.len() > 1000 { Fate::Late(MS(8)) } else { Fate::Pass }
    });
    t.world.run_for(seconds(10));
    let counters = t.info(t.a).counters;
    assert!(counters.bytes_acknowledged > 105 << 20, "{} bytes in 10 s", counters.bytes_acknowledged);
    assert!(t.info(t.b).counters.data_duplicate < 10, "{} copies", t.info(t.b).counters.data_duplicate);
}

/// Delays one packet of a steady flow by `late`. Returns the congestion window before the delay and at the end, and the number of undone
/// recoveries.
fn after_one_late_packet(late: Duration) -> (usize, usize, u64) {
    let mut t = bulk(40, CongestionAlgorithm::Cubic);
    t.world.run_for(seconds(1));
    let before = cwnd(&t.info(t.a));
    let mut done = false;
    t.world.set_filter(move |record| {
        if tsn(record).is_some() && !std::mem::replace(&mut done, true) {
            return Fate::Late(late);
        }
        Fate::Pass
    });
    let (end, a) = (t.world.now() + MS(400), t.a);
    let id = t.id(a);
    let mut least = before;
    t.world.run_until(end, |w| {
        least = least.min(w.host(a).endpoint.info(id).map_or(0, |i| i.paths[0].cwnd));
        false
    });
    let info = t.info(a);
    assert!(least < before, "the packet was never given up");
    (before, cwnd(&info), info.counters.undone_recoveries)
}

#[test]
fn a_recovery_that_was_needless_is_undone_and_the_window_is_as_before() {
    let _clear = InTheClear::begin();
    let (before, after, undone) = after_one_late_packet(MS(20));
    assert_eq!(undone, 1);
    assert!(after >= before, "{after} after {before}");
}

/// Holds all SACKs from second 2 on until `release`. Runs until 100 ms after the expiry of T3. Returns the time of the expiry, the state at
/// second 2, and the hosts.
fn with_sacks_held_until(release: Time) -> (Time, AssociationInfo, Two) {
    let mut t = bulk(40, CongestionAlgorithm::Cubic);
    t.world.run_for(seconds(2));
    let before = t.info(t.a);
    t.world.set_filter(move |record| {
        let is_held = tsn(record).is_none() && record.at < release;
        if is_held { Fate::Late(release - record.at) } else { Fate::Pass }
    });
    let (a, id) = (t.a, t.id(t.a));
    let timeouts = |w: &sim::World| w.host(a).endpoint.info(id).map_or(0, |i| i.counters.timeouts);
    assert!(t.world.run_until(t.world.now() + seconds(5), |w| timeouts(w) > 0), "no timeout");
    let expired = t.world.now();
    t.world.run_for(MS(100));
    (expired, before, t)
}

#[test]
fn a_needless_timeout_is_undone_and_restores_the_window() {
    let (expired, _, _) = with_sacks_held_until(Time::from_nanos(60_000_000_000));
    // The held SACKs arrive 5 ms after T3 has expired. An answer to a packet that left after the expiry could not arrive so soon.
    let (again, before, t) = with_sacks_held_until(Time::from_nanos(expired.as_nanos() - 15_000_000));
    assert_eq!(again, expired);
    let info = t.info(t.a);
    assert_eq!(info.counters.undone_recoveries, 1);
    assert!(cwnd(&info) >= cwnd(&before), "{} after {}", cwnd(&info), cwnd(&before));
    let again = info.counters.data_retransmitted - before.counters.data_retransmitted;
    assert!(again < 20, "{again} sent again");
}

#[test]
fn after_slow_start_overshot_a_shallow_queue_the_link_is_full_again_within_seconds() {
    for congestion in
        [CongestionAlgorithm::Cubic, CongestionAlgorithm::LossTolerant, CongestionAlgorithm::Rfc9260]
    {
        let mut t = bulk(100, congestion);
        let link = t.links[0];
        t.world.link_mut(link).config.queue_bytes = 600_000;
        t.world.run_for(seconds(4));
        let lost = t.world.link(link).counters.lost();
        let before = t.talk(t.b).received_bytes;
        t.world.run_for(seconds(3));
        let mbit = (t.talk(t.b).received_bytes - before) * 8 / 3_000_000;
        let counters = t.info(t.a).counters;
        assert_eq!(counters.timeouts, 0, "{congestion:?}");
        // RFC 9260 halves the window and adds one packet per round trip. That is too little for a shallow queue.
        let least = if congestion == CongestionAlgorithm::Rfc9260 { 50 } else { 75 };
        assert!(mbit >= least, "{congestion:?}: {mbit} Mbit/s after {lost} losses");
        assert!(t.talk(t.b).longest_silence < MS(500), "{congestion:?}: {:?}", t.talk(t.b).longest_silence);
    }
}

#[test]
fn with_one_percent_loss_the_loss_tolerant_control_fills_the_link_and_cubic_does_not() {
    let rate = |congestion| {
        let mut t = bulk(100, congestion);
        let link = t.links[0];
        t.world.link_mut(link).config.loss = Loss::Uniform(0.01);
        t.world.run_for(seconds(10));
        t.talk(t.b).received_bytes * 8 / 10_000_000
    };
    let (tolerant, cubic) = (rate(CongestionAlgorithm::LossTolerant), rate(CongestionAlgorithm::Cubic));
    assert!(tolerant >= 80, "{tolerant} Mbit/s");
    assert!(cubic < 10, "{cubic} Mbit/s");
}

#[test]
fn two_loss_tolerant_flows_share_a_link_and_leave_its_queue_short() {
    let mut t = bulk(40, CongestionAlgorithm::LossTolerant);
    let conversation = Conversation { bulk: 1 << 40, ..Conversation::default() };
    let second = config(CongestionAlgorithm::LossTolerant);
    t.world.connect(t.a, t.b, Carrier::Ip, second, conversation);
    t.world.run_for(seconds(20));
    let received: Vec<u64> = t.world.host(t.b).app.conversations.values().map(|c| c.received_bytes).collect();
    let (least, most) = (received[0].min(received[1]), received[0].max(received[1]));
    assert!(least * 4 > most, "{received:?}");
    let srtt = t.info(t.a).paths[0].srtt.unwrap();
    assert!(srtt < MS(75), "{srtt:?}");
}

#[test]
fn when_sacks_come_together_data_leaves_in_short_trains_and_not_in_windows() {
    let _clear = InTheClear::begin();
    let mut t = bulk(40, CongestionAlgorithm::Cubic);
    t.world.set_filter(|record| {
        let pause = 20_000_000;
        let rest = Duration::from_nanos(pause - record.at.as_nanos() % pause);
        if tsn(record).is_none() { Fate::Late(rest) } else { Fate::Pass }
    });
    t.world.run_for(seconds(3));
    t.world.recording = true;
    t.world.run_for(seconds(1));
    let mut trains = std::collections::BTreeMap::new();
    for record in t.world.records.iter().filter(|r| tsn(r).is_some()) {
        *trains.entry(record.at.as_millis()).or_insert(0) += 1;
    }
    let longest = trains.values().copied().max();
    assert!(longest.is_some_and(|n| n <= 40), "{longest:?} packets in a millisecond");
}

#[test]
fn with_little_in_flight_the_timer_counts_from_when_the_earliest_chunk_was_sent() {
    let _clear = InTheClear::begin();
    // Two packets leave 90 ms apart. The second one, its probe, and all later data are lost.
    let mut t = path(100, CongestionAlgorithm::Cubic);
    t.connect_with(config(CongestionAlgorithm::Cubic), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(1));
    let (begin, a, id) = (t.world.now(), t.a, t.id(t.a));
    let mut first = None;
    t.world.set_filter(move |record| match tsn(record) {
        Some(tsn) if *first.get_or_insert(tsn) != tsn => Fate::Drop,
        _ => Fate::Pass,
    });
    let talk = |t: &mut Two| {
        let talk = t.world.host_mut(a).app.conversations.get_mut(&id).expect("a conversation");
        talk.outgoing = sends(messages(1, 1400, 1)).outgoing;
        t.world.run_for(MS(90));
    };
    // The peer delays the SACK of the first packet, so it arrives 300 ms after that packet left. By then the second packet has been under
    // way for 210 ms.
    talk(&mut t);
    talk(&mut t);
    let expired = t.world.run_until(begin + seconds(5), |w| {
        w.host(a).endpoint.info(id).is_some_and(|i| i.counters.timeouts > 0)
    });
    let after_second = t.world.now() - begin - MS(90);
    assert!(expired && after_second <= MS(1010), "T3 expired {after_second:?} after the second was sent");
}
