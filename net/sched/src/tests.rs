//! Properties of all queues, and packets for tests.

use std::net::{IpAddr, Ipv4Addr};

use base::{Ecn, Time};
use proptest::prelude::*;

use crate::{
    Classifier, Favour, Finish, Flow, FqCodelConfig, Packet, Policy, Queue, Said, ServedConfig, SfqConfig,
    View,
};

pub(crate) fn flow(n: u32) -> Flow {
    Flow {
        from: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)),
        to: IpAddr::V4(Ipv4Addr::new(10, 255, 0, 1)),
        from_port: 40_000,
        to_port: 7,
    }
}

pub(crate) fn data(body: u32, of: u32, length: usize) -> Packet<u32> {
    Packet { body, length, view: View { flow: flow(of), has_data: true, said: None }, ecn: Ecn::NotEct }
}

/// Returns a packet of 1,500 bytes without DATA.
pub(crate) fn control(body: u32, of: u32) -> Packet<u32> {
    let packet = data(body, of, 1500);
    Packet { view: View { has_data: false, ..packet.view }, ..packet }
}

pub(crate) fn says(packet: Packet<u32>, said: Said) -> Packet<u32> {
    Packet { view: View { said: Some(said), ..packet.view }, ..packet }
}

pub(crate) fn drained(queue: &mut impl Queue<u32>) -> Vec<u32> {
    std::iter::from_fn(|| queue.dequeue(Time::ZERO)).map(|packet| packet.body).collect()
}

fn policies() -> Vec<Policy> {
    let sfq = SfqConfig { packets: 20, slots: 10, buckets: 16, depth: 8, ..SfqConfig::default() };
    let served =
        ServedConfig { packets: 20, per_flow: 6, control_packets: 5, flows: 12, ..ServedConfig::default() };
    let finish = |favour| {
        Policy::Served(ServedConfig { finish: Some(Finish { favour, ..Finish::AUDITED }), ..served })
    };
    vec![
        Policy::Fifo(20),
        Policy::Sfq(sfq),
        Policy::Classes(Classifier::SeedTenths, sfq),
        Policy::Classes(Classifier::Rising, sfq),
        Policy::Classes(Classifier::Control, sfq),
        Policy::FqCodel(FqCodelConfig { packets: 20, queues: 16, ..FqCodelConfig::default() }),
        Policy::Served(served),
        finish(Favour::LeastServed),
        finish(Favour::LeastClaimed),
        finish(Favour::Audited { trust: 4.0, cap: 2_000_000 }),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Come { of: u32, length: usize, has_data: bool, said: Option<Said>, ecn: u8 },
    Go,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let said = proptest::option::of((0..=100u8, proptest::option::of(any::<u32>())))
        .prop_map(|it| it.map(|(occupancy, backlog)| Said { occupancy, backlog }));
    let come = (0..30u32, 40..1500usize, proptest::bool::weighted(0.9), said, 0..4u8)
        .prop_map(|(of, length, has_data, said, ecn)| Step::Come { of, length, has_data, said, ecn });
    proptest::collection::vec(
        prop_oneof![5 => come, 4 => Just(Step::Go), 1 => (0..20_000u64).prop_map(Step::Wait)],
        1..300,
    )
}

/// Performs the steps, and checks the counters after each step. Returns the packets that left, in order.
fn run(policy: Policy, seed: u64, steps: &[Step]) -> Result<Vec<Packet<u32>>, TestCaseError> {
    let mut queue = policy.queue(seed);
    let (mut now, mut came, mut gone) = (Time::ZERO, 0_u32, Vec::new());
    for step in steps {
        match *step {
            Step::Come { of, length, has_data, said, ecn } => {
                let view = View { flow: flow(of), has_data, said };
                queue.enqueue(now, Packet { body: came, length, view, ecn: Ecn::from_bits(ecn) });
                came += 1;
            }
            Step::Go => {
                let (before, packet) = (queue.backlog(), queue.dequeue(now));
                prop_assert!(
                    packet.is_some() || queue.backlog().packets == 0,
                    "{:?} {before:?} waits",
                    policy
                );
                gone.extend(packet);
            }
            Step::Wait(ms) => now += std::time::Duration::from_millis(ms),
        }
        let (counters, backlog) = (queue.counters(), queue.backlog());
        prop_assert_eq!(counters.offered, u64::from(came), "{:?}", policy);
        prop_assert_eq!(
            counters.offered,
            counters.sent + counters.dropped + backlog.packets as u64,
            "{:?}",
            policy
        );
        prop_assert!(
            backlog.packets <= 20 * 11 && (backlog.packets > 0 || backlog.bytes == 0),
            "{policy:?} {backlog:?}"
        );
    }
    while let Some(packet) = queue.dequeue(now) {
        gone.push(packet);
    }
    prop_assert_eq!(queue.backlog().bytes, 0, "{:?}", policy);
    prop_assert_eq!(queue.counters().sent, gone.len() as u64, "{:?}", policy);
    Ok(gone)
}

proptest! {
    #[test]
    fn every_packet_goes_once_or_is_counted_as_dropped_and_the_limits_hold(seed: u64, steps in steps()) {
        for policy in policies() {
            let gone = run(policy, seed, &steps)?;
            let mut bodies: Vec<_> = gone.iter().map(|packet| packet.body).collect();
            bodies.sort_unstable();
            bodies.dedup();
            prop_assert_eq!(bodies.len(), gone.len());
        }
    }

    #[test]
    fn packets_of_one_flow_keep_their_order_unless_they_fall_into_several_classes(seed: u64, steps in steps()) {
        for policy in policies() {
            if matches!(policy, Policy::Classes(Classifier::SeedTenths | Classifier::Rising, _)) {
                continue;
            }
            let gone = run(policy, seed, &steps)?;
            for of in 0..30 {
                let own = gone.iter().filter(|packet| packet.view.flow == flow(of) && packet.view.has_data);
                prop_assert!(own.map(|packet| packet.body).is_sorted(), "{policy:?}");
            }
        }
    }

    #[test]
    fn the_same_seed_and_steps_give_the_same_order(seed: u64, steps in steps()) {
        for policy in policies() {
            prop_assert_eq!(run(policy, seed, &steps)?, run(policy, seed, &steps)?);
        }
    }
}
