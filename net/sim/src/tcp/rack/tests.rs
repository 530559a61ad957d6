//! Step-by-step tests of the RACK model's recovery.

use super::super::config::Growth;
use super::*;

const MS: fn(u64) -> Time = Time::from_millis;
const MSS: u64 = 1448;

/// Returns a sender with a hundred segments to send, a window of ten, and a round trip of 100 ms.
fn sender(growth: Growth) -> Rack {
    let mut s = Rack::new(&TcpConfig::linux(growth));
    s.rto.on_sample(Duration::from_millis(100));
    s.min_rtt = Some(Duration::from_millis(100));
    s.write(100 * MSS);
    s
}

/// Returns the numbers of the segments that leave now.
fn leave(s: &mut Rack, now: u64) -> Vec<u64> {
    std::iter::from_fn(|| s.poll(MS(now))).map(|piece| piece.seq / MSS).collect()
}

/// Acknowledges all segments before `ack`, and these ranges of segments.
fn ack(s: &mut Rack, now: u64, ack: u64, sacks: &[Range]) {
    let sacks: Vec<Range> = sacks.iter().map(|block| (block.0 * MSS, block.1 * MSS)).collect();
    s.on_ack(MS(now), ack * MSS, &Segment::for_tests(&sacks));
}

#[test]
fn ten_segments_leave_at_first_and_two_for_each_acknowledged() {
    let mut s = sender(Growth::Cubic);
    assert_eq!(leave(&mut s, 0), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    ack(&mut s, 100, 2, &[]);
    assert_eq!(leave(&mut s, 100), [10, 11, 12, 13]);
}

#[test]
fn many_holes_are_mended_at_once_and_the_window_is_halved_once() {
    let mut s = sender(Growth::Reno);
    leave(&mut s, 0);
    ack(&mut s, 100, 0, &[(1, 2), (3, 4), (5, 10)]);
    assert_eq!(leave(&mut s, 100), [0, 2, 4, 10, 11]);
    assert_eq!((s.counters.recoveries, s.window.ssthresh), (1, 5.0));
    ack(&mut s, 200, 10, &[]);
    assert!(s.state == State::Open && (5.0..6.0).contains(&s.window.cwnd), "{}", s.window.cwnd);
}

#[test]
fn cubic_keeps_seven_tenths_of_the_window() {
    let mut s = sender(Growth::Cubic);
    leave(&mut s, 0);
    ack(&mut s, 100, 0, &[(1, 10)]);
    assert_eq!(leave(&mut s, 100), [0, 10, 11, 12, 13, 14, 15]);
    ack(&mut s, 200, 10, &[]);
    assert!(s.state == State::Open && (7.0..7.5).contains(&s.window.cwnd), "{}", s.window.cwnd);
}

#[test]
fn where_little_is_lost_the_window_comes_down_in_proportion_to_what_is_delivered() {
    let mut s = sender(Growth::Cubic);
    leave(&mut s, 0);
    ack(&mut s, 100, 0, &[(1, 4)]);
    // Six of ten segments are in flight, and seven are allowed. Only the lost segment leaves.
    assert_eq!(leave(&mut s, 100), [0]);
    ack(&mut s, 101, 0, &[(1, 6)]);
    assert_eq!(leave(&mut s, 101).len(), 2);
}

#[test]
fn a_hole_overtaken_by_fewer_than_three_segments_is_lost_after_a_quarter_rtt() {
    let mut s = sender(Growth::Reno);
    leave(&mut s, 0);
    ack(&mut s, 100, 0, &[(1, 3)]);
    assert_eq!((s.state, s.next_timeout()), (State::Open, MS(125)));
    s.on_timeout(MS(125));
    assert_eq!(leave(&mut s, 125)[0], 0);
}

#[test]
fn a_retransmission_that_is_lost_is_found_by_what_was_sent_after_it() {
    let mut s = sender(Growth::Reno);
    leave(&mut s, 0);
    ack(&mut s, 100, 0, &[(1, 9)]);
    let sent = leave(&mut s, 100);
    assert_eq!(sent[0], 0);
    assert!(sent.len() > 1, "{sent:?}");
    ack(&mut s, 201, 0, &[(1, 9), (10, 11)]);
    assert!(leave(&mut s, 201).contains(&0));
    assert_eq!(s.counters.timeouts, 0);
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips_without_a_timeout() {
    let mut s = sender(Growth::Reno);
    s.written = 4 * MSS;
    leave(&mut s, 0);
    ack(&mut s, 100, 3, &[]);
    assert_eq!(s.next_timeout(), MS(100 + 300), "one segment alone waits for the time-out");
    let mut s = sender(Growth::Reno);
    s.written = 4 * MSS;
    leave(&mut s, 0);
    ack(&mut s, 100, 2, &[]);
    let due = s.next_timeout();
    assert_eq!(due, MS(302));
    s.on_timeout(due);
    assert_eq!(leave(&mut s, 302), [3]);
    assert_eq!(s.counters.probes, 1);
    ack(&mut s, 402, 2, &[(3, 4)]);
    assert_eq!(s.counters.timeouts, 0);
}

#[test]
fn a_time_out_marks_all_lost_and_doubles_the_wait() {
    let mut s = sender(Growth::Reno);
    s.written = MSS;
    leave(&mut s, 0);
    let first = s.retransmit_at.unwrap();
    assert_eq!(first, MS(300));
    s.on_timeout(first);
    assert_eq!((leave(&mut s, 300), s.window.cwnd), (vec![0], 1.0));
    assert_eq!(s.next_timeout(), MS(900));
    assert_eq!(s.counters.timeouts, 1);
}
