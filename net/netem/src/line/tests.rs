//! Tests of the order and the times in which held packets leave.

use super::*;
use crate::config::Loss;
use std::time::Duration;

fn line(config: DirectionConfig) -> Line<u32> {
    Line::new(config, 1)
}

fn put(line: &mut Line<u32>, now: Time, packet: u32) -> Result<(), LossCause> {
    line.enqueue(now, 1250, Ecn::NotEct, packet)
}

#[test]
fn a_packet_comes_out_at_its_time_and_not_before() {
    let mut line = line(DirectionConfig { delay: Duration::from_millis(10), ..DirectionConfig::TRANSPARENT });
    put(&mut line, Time::from_millis(5), 7).unwrap();
    assert_eq!(line.next_wakeup(), Time::from_millis(15));
    assert_eq!(line.dequeue(Time::from_nanos(14_999_999)), None);
    let out = line.dequeue(Time::from_millis(20)).unwrap();
    assert_eq!((out.packet, out.due), (7, Time::from_millis(15)));
    assert_eq!((line.next_wakeup(), line.held()), (Time::NEVER, 0));
}

#[test]
fn a_change_holds_for_the_packets_that_come_after_it() {
    let mut line = line(DirectionConfig { delay: Duration::from_millis(10), ..DirectionConfig::TRANSPARENT });
    put(&mut line, Time::ZERO, 1).unwrap();
    line.set_config(DirectionConfig { delay: Duration::from_millis(2), ..DirectionConfig::TRANSPARENT });
    put(&mut line, Time::ZERO, 2).unwrap();
    assert_eq!(line.dequeue(Time::from_millis(2)).unwrap().packet, 2);
    assert_eq!(line.dequeue(Time::from_millis(10)).unwrap().packet, 1);
}

#[test]
fn packets_of_one_time_come_out_in_the_order_in_which_they_came() {
    let mut line = line(DirectionConfig::TRANSPARENT);
    (0..100).for_each(|n| put(&mut line, Time::ZERO, n).unwrap());
    let out: Vec<u32> = std::iter::from_fn(|| line.dequeue(Time::ZERO)).map(|d| d.packet).collect();
    assert!(out.is_sorted() && out.len() == 100, "{out:?}");
}

#[test]
fn a_packet_longer_than_the_mtu_is_lost_for_its_length() {
    let mut line = line(DirectionConfig { mtu: 1249, ..DirectionConfig::TRANSPARENT });
    assert_eq!(put(&mut line, Time::ZERO, 1), Err(LossCause::Length));
    assert_eq!(line.enqueue(Time::ZERO, 1249, Ecn::NotEct, 2), Ok(()));
    assert_eq!(line.counters().lost_for_length, 1);
}

#[test]
fn held_packets_have_a_limit() {
    let mut line = line(DirectionConfig { delay: Duration::from_secs(60), ..DirectionConfig::TRANSPARENT });
    let outcome = (0..1_000).map(|n| line.enqueue(Time::ZERO, 1 << 20, Ecn::NotEct, n)).find(Result::is_err);
    assert_eq!(outcome, Some(Err(LossCause::Room)));
    assert!(line.held() <= HELD_BYTES_MAX >> 20);
    while line.dequeue(Time::NEVER).is_some() {}
    assert_eq!(line.enqueue(Time::ZERO, 1 << 20, Ecn::NotEct, 0), Ok(()));
}

#[test]
fn the_same_seed_gives_the_same_fates() {
    let fates = |seed| -> Vec<bool> {
        let config = DirectionConfig { loss: Loss::Uniform(0.3), ..DirectionConfig::TRANSPARENT };
        let mut line = Line::new(config, seed);
        (0..200).map(|n| put(&mut line, Time::ZERO, n).is_ok()).collect()
    };
    assert_eq!(fates(5), fates(5));
    assert_ne!(fates(5), fates(6));
}
