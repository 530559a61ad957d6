//! Tests of the order of service (least served first, or least left first), and of the share that a sender with false
//! advertisements gets.

use super::*;
use crate::tests::{control, data, drained, says};

const MS: fn(u64) -> Time = Time::from_millis;

fn fair() -> Served<u32> {
    Served::new(ServedConfig::default())
}

fn finishing(favour: Favour) -> Served<u32> {
    let finish = Finish { favour, ..Finish::AUDITED };
    Served::new(ServedConfig::finishing(finish))
}

fn claims(backlog: u32) -> Said {
    Said { occupancy: 50, backlog: Some(backlog) }
}

#[test]
fn the_least_served_flow_goes_first() {
    let mut queue = fair();
    for (n, flow, length) in
        [(10, 1, 1500), (11, 1, 1500), (12, 1, 1500), (20, 2, 500), (21, 2, 500), (22, 2, 500)]
    {
        queue.enqueue(MS(0), data(n, flow, length));
    }
    assert_eq!(drained(&mut queue), [10, 20, 21, 22, 11, 12]);
}

#[test]
fn a_returning_flow_gets_one_packet_or_its_backlog_up_to_the_credit() {
    for (said, least, most) in [(claims(0), 3, 3), (claims(500_000), 45, 45)] {
        let mut queue = fair();
        queue.enqueue(MS(0), says(data(2, 2, 1500), said));
        for n in 0..200 {
            queue.enqueue(MS(n), data(1, 1, 1500));
            queue.dequeue(MS(n));
        }
        assert_eq!(queue.backlog().packets, 1);
        for _ in 0..60 {
            queue.enqueue(MS(201), data(1, 1, 1500));
            queue.enqueue(MS(201), says(data(2, 2, 1500), said));
        }
        let ahead = drained(&mut queue).into_iter().skip_while(|n| *n == 1).take_while(|n| *n == 2).count();
        assert!((least..=most).contains(&ahead), "{ahead} packets with {said:?}");
    }
}

#[test]
fn when_full_the_flow_with_most_bytes_served_and_waiting_loses_its_last_packet() {
    let mut queue = Served::new(ServedConfig { packets: 4, ..ServedConfig::default() });
    for (n, flow) in [(10, 1), (11, 1), (12, 1), (20, 2), (30, 3)] {
        queue.enqueue(MS(0), data(n, flow, 1500));
    }
    assert_eq!(drained(&mut queue), [10, 20, 30, 11]);
    assert_eq!(queue.counters().dropped, 1);
}

#[test]
fn when_full_and_some_are_preferred_the_longest_queue_loses_its_last_packet() {
    let mut queue = Served::new(ServedConfig { packets: 4, ..ServedConfig::finishing(Finish::AUDITED) });
    for n in 0..20 {
        queue.enqueue(MS(n), says(data(0, 1, 1500), claims(500_000)));
        queue.dequeue(MS(n));
    }
    for (n, flow) in [(10, 1), (11, 1), (20, 2), (21, 2), (22, 2)] {
        queue.enqueue(MS(20), says(data(n, flow, 1500), claims(5000)));
    }
    let mut left = drained(&mut queue);
    left.sort_unstable();
    assert_eq!(left, [10, 11, 20, 21], "the first was served more, but the second has more here");
}

#[test]
fn data_queued_in_the_router_counts_as_data_left() {
    let mut queue = finishing(Favour::Audited { trust: 4.0, cap: 2_000_000 });
    // The first flow has 30 packets here and no data at its sender. The second has 20,000 bytes at its sender, and advertises
    // them once.
    (0..30).for_each(|n| queue.enqueue(MS(0), says(data(n, 1, 1500), claims(0))));
    queue.enqueue(MS(0), says(data(100, 2, 1500), claims(20_000)));
    (101..110).for_each(|n| queue.enqueue(MS(0), data(n, 2, 1500)));
    let order = drained(&mut queue);
    let of_first = order[..12].iter().filter(|n| **n < 100).count();
    assert!(of_first <= 2, "the second has less left: {order:?}");
}

#[test]
fn served_data_no_longer_counts_as_left_without_a_new_advertisement() {
    let mut queue = finishing(Favour::Audited { trust: 4.0, cap: 2_000_000 });
    queue.enqueue(MS(0), says(data(100, 1, 1500), claims(50_000)));
    (101..134).for_each(|n| queue.enqueue(MS(0), data(n, 1, 1500)));
    (0..24).for_each(|_| _ = queue.dequeue(MS(0)));
    (200..210).for_each(|n| queue.enqueue(MS(1), says(data(n, 2, 1500), claims(25_000))));
    let order = drained(&mut queue);
    let of_first = order[..10].iter().filter(|n| **n < 200).count();
    assert!(of_first >= 8, "15,500 bytes are left, the newcomer has 25,000: {order:?}");
}

#[test]
fn a_flow_that_waited_long_yields_only_to_a_newcomer_with_half_as_much() {
    for (newcomer, is_first) in [(90_000, false), (40_000, true)] {
        let mut queue = finishing(Favour::Audited { trust: 4.0, cap: 2_000_000 });
        for ms in 0..40 {
            queue.enqueue(MS(ms * 100), says(data(1, 1, 1500), claims(100_000)));
        }
        (0..9).for_each(|_| queue.enqueue(MS(4000), says(data(2, 2, 1500), claims(newcomer))));
        // The fair part serves the newcomer as often as the other flow.
        let order: Vec<_> = (0..9).filter_map(|_| queue.dequeue(MS(4000))).map(|it| it.body).collect();
        let ahead = order.iter().filter(|n| **n == 2).count();
        assert_eq!(ahead >= 8, is_first, "{newcomer}: {order:?}");
    }
}

#[test]
fn a_flow_holds_no_more_than_its_part() {
    let mut queue = Served::new(ServedConfig { per_flow: 2, ..ServedConfig::default() });
    (0..5).for_each(|n| queue.enqueue(MS(0), data(n, 1, 1500)));
    assert_eq!(drained(&mut queue), [0, 1]);
}

#[test]
fn control_packets_go_first_up_to_their_rate_and_then_when_nothing_else_waits() {
    let mut queue = Served::new(ServedConfig { control_rate: 8_000, ..ServedConfig::default() });
    (0..3).for_each(|n| queue.enqueue(MS(0), data(n, 1, 1500)));
    (100..120).for_each(|n| queue.enqueue(MS(0), control(n, n)));
    let order = drained(&mut queue);
    let leading = order.iter().take_while(|n| **n >= 100).count();
    // The burst is 16 packets of 1,514 bytes. After 16 packets of 1,500 bytes, some of the burst is left, so a 17th packet
    // leaves.
    assert_eq!((leading, &order[17..20], order.len()), (17, &[0, 1, 2][..], 23));
}

#[test]
fn no_more_flows_are_remembered_than_the_limit_and_the_one_idle_longest_goes() {
    let mut queue = Served::new(ServedConfig { flows: 3, ..ServedConfig::default() });
    for n in 0..10 {
        queue.enqueue(MS(u64::from(n)), data(n, n, 1500));
        assert!(queue.dequeue(MS(u64::from(n))).is_some());
    }
    assert_eq!(queue.flows.len(), 3);
    (20..25).for_each(|n| queue.enqueue(MS(20), data(n, n, 1500)));
    let mut served = drained(&mut queue);
    served.sort_unstable();
    assert_eq!(served, [20, 21, 22], "all places have packets: the others are refused");
    queue.enqueue(MS(100_000), data(30, 30, 1500));
    queue.enqueue(MS(100_001), data(31, 31, 1500));
    assert_eq!(queue.flows.len(), 2, "idle ones are forgotten");
}

/// Returns the order in which four packets of each of three flows leave. The first flow is numbered 1.
fn order(mut queue: Served<u32>, claims_of: [Option<u32>; 3]) -> Vec<u32> {
    for (n, claim) in (1..).zip(claims_of) {
        for _ in 0..4 {
            let packet = data(n, n, 1500);
            queue.enqueue(MS(0), claim.map_or(packet.clone(), |claim| says(packet, claims(claim))));
        }
    }
    drained(&mut queue)
}

#[test]
fn the_flow_with_least_left_precedes_all_but_the_fair_share() {
    let order = order(
        finishing(Favour::Audited { trust: 4.0, cap: 2_000_000 }),
        [Some(900_000), Some(5_000), Some(30_000)],
    );
    // The fair part sends the first packet, because the finish part's credit of 0.9 packets is less than one packet.
    assert_eq!(order, [1, 2, 2, 2, 2, 3, 3, 3, 3, 1, 1, 1]);
}

#[test]
fn a_flow_with_a_large_claim_is_not_preferred() {
    let order = order(
        finishing(Favour::Audited { trust: 4.0, cap: 2_000_000 }),
        [Some(3_000_000), Some(4_000_000), Some(5_000_000)],
    );
    assert_eq!(order, [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3], "fair turns");
}

/// Returns the share of packets of a flow that always claims one byte, next to a flow that always claims a million bytes.
fn liars_share(favour: Favour) -> f64 {
    let mut queue = finishing(favour);
    let packet = |n: u32| says(data(n, n, 1500), claims(if n == 1 { 1 } else { 1_000_000 }));
    let mut counts = [0; 2];
    (0..20).for_each(|n| queue.enqueue(MS(0), packet(1 + n % 2)));
    for at in 0..20_000 {
        let sent = queue.dequeue(MS(at / 5)).unwrap();
        counts[sent.body as usize - 1] += 1;
        queue.enqueue(MS(at / 5), packet(sent.body));
    }
    f64::from(counts[0]) / 20_000.0
}

#[test]
fn the_audit_limits_a_sender_that_always_claims_one_byte_left_to_its_fair_share() {
    let unaudited = liars_share(Favour::LeastClaimed);
    assert!(unaudited > 0.9, "{unaudited}");
    let audited = liars_share(Favour::Audited { trust: 4.0, cap: 2_000_000 });
    assert!(audited < 0.525, "{audited}");
}

#[test]
fn the_least_served_rule_ignores_advertisements() {
    let mut queue = finishing(Favour::LeastServed);
    for n in 0..100 {
        queue.enqueue(MS(n), says(data(1, 1, 1500), claims(1)));
        queue.dequeue(MS(n));
    }
    for _ in 0..10 {
        queue.enqueue(MS(100), says(data(1, 1, 1500), claims(1)));
        queue.enqueue(MS(100), data(2, 2, 1500));
    }
    let order = drained(&mut queue);
    assert!(order[..11].iter().filter(|n| **n == 2).count() >= 9, "{order:?}");
}
