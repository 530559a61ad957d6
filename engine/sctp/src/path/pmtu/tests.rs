//! Tests of the search for one path's MTU, step by step.

use super::*;

const MS: fn(u64) -> Time = Time::from_millis;
const RTT: Duration = Duration::from_millis(20);

/// A path with a real MTU that the test sets. Answers to probes arrive after one round trip.
struct World {
    pmtu: Pmtu,
    mtu: u16,
    now: Time,
    random: Random,
    sent: Vec<u16>,
}

impl World {
    fn new(ceiling: u16, mtu: u16) -> World {
        World {
            pmtu: Pmtu::new("10.0.0.1".parse().unwrap(), ceiling, MS(0)),
            mtu,
            now: MS(0),
            random: Random::new([1; 32]),
            sent: Vec::new(),
        }
    }

    fn suspect(&mut self) {
        self.pmtu.suspect(false, self.now, &mut self.random);
    }

    /// Lets T3 expire twice.
    fn time_out(&mut self) {
        for _ in 0..CERTAIN_TIMEOUTS {
            self.pmtu.on_data_timeout(false, self.now, &mut self.random);
        }
    }

    /// Runs the next trial. If `lost` is set, the probe is lost regardless of its size. If no trial is due
    /// within one second, returns false.
    fn step(&mut self, lost: bool) -> bool {
        if self.pmtu.next_timeout() > self.now + Duration::from_secs(1) {
            return false;
        }
        self.now = self.now.max(self.pmtu.next_timeout());
        self.pmtu.on_timeout(self.now);
        if let Some(probe) = self.pmtu.poll(self.now, RTT, &mut self.random) {
            self.sent.extend(probe.size);
            self.now += RTT;
            if probe.size.is_some_and(|size| size <= self.mtu) && !lost {
                assert!(self.pmtu.on_answer(probe.nonce, Some(RTT), self.now));
            }
            self.pmtu.on_answer(probe.companion, Some(RTT), self.now);
        }
        true
    }

    fn settle(&mut self) {
        let steps = (0..200).take_while(|_| self.step(false)).count();
        assert!(steps < 200, "the search does not end");
    }
}

#[test]
fn an_mtu_of_1500_is_used_at_once_without_a_probe() {
    let mut w = World::new(1500, 1500);
    w.settle();
    assert_eq!((w.pmtu.current(), w.sent.len()), (1500, 0));
}

#[test]
fn a_jumbo_link_is_used_after_one_probe_that_was_answered() {
    let mut w = World::new(9000, 9000);
    assert_eq!(w.pmtu.current(), 1500);
    w.settle();
    assert_eq!((w.pmtu.current(), w.sent), (9000, vec![9000]));
}

#[test]
fn the_search_finds_each_mtu_to_within_sixteen_bytes() {
    for mtu in 1200..=1500 {
        let mut w = World::new(1500, mtu);
        w.suspect();
        w.settle();
        let found = w.pmtu.current();
        assert!(found <= mtu && mtu - found <= 16, "{found} for {mtu}");
        assert!(w.sent.len() <= 28, "{} probes for {mtu}", w.sent.len());
    }
}

#[test]
fn usual_sizes_are_found_exactly() {
    for mtu in [1280, 1400, 1420, 1440, 1480, 1492] {
        let mut w = World::new(1500, mtu);
        w.suspect();
        w.settle();
        assert_eq!(w.pmtu.current(), mtu);
    }
}

#[test]
fn two_lost_probes_keep_the_packet_size_and_a_third_lost_probe_reduces_it() {
    let mut w = World::new(1500, 1500);
    w.suspect();
    while w.sent.len() < 2 {
        w.step(true);
    }
    w.step(false);
    assert_eq!((w.pmtu.current(), w.pmtu.is_proven()), (1500, true));
    w.now += RTT * 3;
    w.suspect();
    w.sent.clear();
    while w.sent.len() < 3 {
        w.step(true);
    }
    w.now = w.pmtu.next_timeout();
    w.pmtu.on_timeout(w.now);
    assert_eq!(w.pmtu.current(), 1200);
}

#[test]
fn a_size_given_up_by_mistake_returns_once_base_and_size_are_proven() {
    let mut w = World::new(1500, 1500);
    w.time_out();
    w.step(true);
    let doubted = w.now;
    while w.pmtu.current() < 1500 || w.sent.len() < 2 {
        w.step(false);
    }
    assert_eq!(w.sent, [1500, 1200, 1500]);
    assert!(w.now - doubted <= RTT * 3, "{:?}", w.now - doubted);
}

#[test]
fn the_packet_size_stays_if_short_packets_are_lost_too() {
    let mut w = World::new(1500, 1500);
    w.time_out();
    for _ in 0..10 {
        w.now = w.now.max(w.pmtu.next_timeout().min(w.now + PAUSE_MAX));
        w.pmtu.on_timeout(w.now);
        w.pmtu.poll(w.now, RTT, &mut w.random);
    }
    assert_eq!((w.pmtu.current(), w.pmtu.probes_sent), (1500, 3));
}

#[test]
fn an_mtu_below_the_base_size_is_found_upwards_from_the_least_size() {
    let mut w = World::new(1500, 800);
    w.time_out();
    w.settle();
    // The size falls from the base to the least size without a further loss of data.
    assert_eq!(w.sent[..3], [1500, 1200, 1200]);
    assert!((784..=800).contains(&w.pmtu.current()), "{}", w.pmtu.current());
}

#[test]
fn icmp_reduces_to_the_base_size_until_a_probe_has_proven_the_reported_mtu() {
    let mut w = World::new(1500, 1400);
    w.pmtu.on_too_big(1400, None, w.now);
    assert_eq!(w.pmtu.current(), 1200);
    w.step(false);
    assert_eq!((w.pmtu.current(), w.sent[0]), (1400, 1400));
}

#[test]
fn a_false_icmp_mtu_is_undone_by_two_probes() {
    let mut w = World::new(1500, 1500);
    w.pmtu.on_too_big(600, None, w.now);
    assert_eq!(w.pmtu.current(), 576);
    w.settle();
    assert_eq!((w.pmtu.current(), w.sent), (1500, vec![600, 1500]));
}

#[test]
fn icmp_that_reports_less_than_the_least_or_more_than_the_size_in_use_changes_nothing() {
    let mut w = World::new(1500, 1500);
    for size in [0, 575, 1500, 9000] {
        w.pmtu.on_too_big(size, None, w.now);
    }
    assert_eq!((w.pmtu.current(), w.pmtu.next_timeout()), (1500, Time::NEVER));
}

#[test]
fn icmp_about_a_probe_ends_its_trial_at_once_and_leaves_the_size_in_use() {
    let mut w = World::new(9000, 1500);
    let probe = w.pmtu.poll(w.now, RTT, &mut w.random).unwrap();
    w.pmtu.on_too_big(1500, Some(probe.nonce), w.now);
    w.settle();
    assert_eq!((w.pmtu.current(), w.sent.len()), (1500, 0));
}

#[test]
fn larger_sizes_are_tried_again_after_ten_minutes() {
    let mut w = World::new(1500, 1400);
    w.suspect();
    w.settle();
    assert_eq!(w.pmtu.current(), 1400);
    let at = w.pmtu.next_timeout();
    assert!(at - w.now > RAISE_TIMER / 2, "{at:?}");
    w.mtu = 1500;
    w.now = at;
    w.settle();
    assert_eq!((w.pmtu.current(), w.pmtu.next_timeout()), (1500, Time::NEVER));
}

#[test]
fn silence_that_a_queue_explains_costs_a_short_packet_and_no_probe() {
    let mut w = World::new(1500, 1500);
    w.suspect();
    let asked = w.pmtu.poll(w.now, RTT, &mut w.random).unwrap();
    assert_eq!((asked.size, w.pmtu.probes_sent), (None, 0));
    // The data waited in the same queue, ahead of the HEARTBEAT.
    w.now += RTT * 10;
    w.pmtu.on_data_acknowledged(true, Some(RTT), w.now);
    assert!(!w.pmtu.on_answer(asked.companion, Some(RTT), w.now));
    w.settle();
    assert_eq!((w.pmtu.is_proven(), w.pmtu.probes_sent, w.pmtu.probes_lost), (true, 0, 0));
}

#[test]
fn the_size_is_probed_if_a_short_packet_is_answered_but_data_is_not() {
    let mut w = World::new(1500, 1400);
    w.suspect();
    let asked = w.pmtu.poll(w.now, RTT, &mut w.random).unwrap();
    w.now += RTT;
    assert!(w.pmtu.on_answer(asked.companion, Some(RTT), w.now));
    assert_eq!(w.pmtu.next_timeout(), w.now + RTT / 4, "data gets its moment");
    w.settle();
    assert_eq!((w.pmtu.current(), w.sent[0]), (1400, 1500));
}

#[test]
fn a_lost_heartbeat_does_not_delay_the_size_probe_after_a_timeout() {
    let mut w = World::new(1500, 1400);
    w.suspect();
    w.pmtu.poll(w.now, RTT, &mut w.random).unwrap();
    w.time_out();
    let probe = w.pmtu.poll(w.now, RTT, &mut w.random).unwrap();
    assert_eq!(probe.size, Some(1500));
}

#[test]
fn a_late_answer_to_a_probe_that_was_sent_again_still_counts() {
    let mut w = World::new(1500, 1500);
    w.pmtu.on_data_timeout(false, w.now, &mut w.random);
    let first = w.pmtu.poll(w.now, RTT, &mut w.random).unwrap();
    w.pmtu.on_answer(first.companion, Some(RTT), w.now + RTT);
    w.now = w.pmtu.next_timeout();
    w.pmtu.on_timeout(w.now);
    w.pmtu.poll(w.now, RTT, &mut w.random).unwrap();
    assert!(w.pmtu.on_answer(first.nonce, Some(RTT), w.now));
    assert!(w.pmtu.is_proven());
}
