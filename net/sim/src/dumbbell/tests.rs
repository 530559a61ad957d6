//! Tests with small dumbbells: the shares of flows, the completion of files, and the equality of runs with the same settings.

use std::time::Duration;

use sched::{Finish, Policy, Said, ServedConfig, SfqConfig};
use sctp::{AssociationConfig, CongestionAlgorithm, SendBufferCadence, SendBufferConfig, SendBufferForm};

use super::*;

const S: fn(u64) -> Duration = Duration::from_secs;
const BULK: Load = Load::Bulk { lasting: Duration::from_secs(20), write: 0, low: 0 };

fn association() -> AssociationConfig {
    let buffer = 200_000;
    AssociationConfig {
        congestion: CongestionAlgorithm::Rfc9260,
        send_buffer: buffer,
        buffer_start: buffer,
        advertisement: Some(SendBufferConfig {
            form: SendBufferForm::Backlog,
            cadence: SendBufferCadence::EveryPacket,
            ..SendBufferConfig::default()
        }),
        ..AssociationConfig::default()
    }
}

fn flow(start_ms: u64, load: Load) -> FlowPlan {
    let round_trip = Duration::from_millis(10);
    FlowPlan { start: Duration::from_millis(start_ms), round_trip, load, lie: None }
}

fn dumbbell(policy: Policy, flows: Vec<FlowPlan>) -> Dumbbell {
    Dumbbell {
        rate: 10_000_000,
        burst: 0,
        policy,
        association: association(),
        flows,
        window: (S(2), S(20)),
        sampling: None,
        limit: S(60),
        seed: 7,
    }
}

#[test]
fn ten_flows_fill_the_link_and_all_bytes_of_files_arrive() {
    let mut flows: Vec<_> = (0..10).map(|n| flow(n * 100, BULK)).collect();
    flows.extend((0..20).map(|n| flow(3000 + n * 500, Load::File(10_000))));
    let report = run(&dumbbell(Policy::Sfq(SfqConfig::default()), flows));
    let in_window: u64 = report.flows.iter().map(|it| it.in_window).sum();
    // A packet of 1,500 bytes carries 1,444 user bytes and the advertisement of 8 bytes.
    let most = 10_000_000.0 / 8.0 * 18.0 * 1444.0 / 1500.0;
    assert!((0.97..=1.0).contains(&(in_window as f64 / most)), "{in_window} of {most} bytes");
    for file in &report.flows[10..] {
        assert!(file.finished.is_some() && file.received == 10_000, "{file:?}");
        assert!(file.longest_pause < S(1), "{file:?}");
        assert_eq!(file.handed_over, 10_000);
    }
    // Data that was handed over but not received in the flow's own time fits into the send buffer. All of it arrives later.
    for bulk in &report.flows[..10] {
        let waiting = bulk.handed_over - bulk.in_own_time;
        assert!((1..=200_000).contains(&waiting) && bulk.received == bulk.handed_over, "{bulk:?}");
    }
    assert!(report.queue.dropped > 0 && report.flows.iter().any(|it| it.retransmitted > 0));
}

#[test]
fn the_same_settings_give_the_same_run() {
    let flows: Vec<_> = (0..5).map(|n| flow(n * 100, BULK)).collect();
    let plan = dumbbell(Policy::Served(ServedConfig::default()), flows);
    let both = [run(&plan), run(&plan)].map(|report| {
        let bytes: Vec<_> = report.flows.iter().map(|it| (it.received, it.retransmitted)).collect();
        (report.packets, report.ended, bytes)
    });
    assert_eq!(both[0], both[1]);
}

#[test]
fn messages_take_half_a_round_trip_over_an_empty_link_and_longer_behind_a_queue() {
    let messages = Load::Messages { length: 1000, every: Duration::from_millis(50), until: S(10) };
    let latency = |flows: Vec<FlowPlan>| {
        let report = run(&dumbbell(Policy::Fifo(100), flows));
        let latencies = &report.flows[0].latencies;
        assert!(latencies.len() > 190, "{}", latencies.len());
        latencies.iter().sum::<Duration>() / latencies.len() as u32
    };
    let alone = latency(vec![flow(0, messages)]);
    let beside = latency(vec![flow(0, messages), flow(0, BULK), flow(0, BULK)]);
    assert!((5..7).contains(&alone.as_millis()), "{alone:?}");
    assert!(beside > Duration::from_millis(50), "{beside:?}");
}

#[test]
fn an_unaudited_router_believes_a_lying_sender() {
    let lie = Some(Said { occupancy: 1, backlog: Some(1) });
    let served = |favour| {
        let finish = Some(Finish { favour, ..Finish::AUDITED });
        let flows = (0..4).map(|n| FlowPlan { lie: lie.filter(|_| n == 0), ..flow(n * 100, BULK) }).collect();
        let report =
            run(&dumbbell(Policy::Served(ServedConfig { finish, ..ServedConfig::default() }), flows));
        let honest: u64 = report.flows[1..].iter().map(|it| it.in_window).sum::<u64>() / 3;
        report.flows[0].in_window as f64 / honest as f64
    };
    let unaudited = served(sched::Favour::LeastClaimed);
    assert!(unaudited > 3.0, "{unaudited}");
}

#[test]
fn writes_of_128_kib_make_a_saw_tooth_of_the_buffer() {
    let load = Load::Bulk { lasting: S(60), write: 131_072, low: 60_000 };
    let plan = Dumbbell {
        rate: 1_000_000,
        association: AssociationConfig { send_buffer: 212_992, buffer_start: 212_992, ..association() },
        sampling: Some(Duration::from_millis(100)),
        window: (S(5), S(60)),
        limit: S(100),
        ..dumbbell(Policy::Sfq(SfqConfig::default()), vec![flow(0, load), flow(0, load)])
    };
    let report = run(&plan);
    let [one, other] = [0, 1].map(|n| report.flows[n].in_window as f64);
    assert!((0.9..1.1).contains(&(one / other)), "{one} {other}");
    let late = |it: &&Sample| it.at > base::Time::ZERO + S(10) && it.at < base::Time::ZERO + S(55);
    let buffered: Vec<_> = report.flows[0].samples.iter().filter(late).map(|it| it.buffered).collect();
    let (least, most) = (buffered.iter().min().unwrap(), buffered.iter().max().unwrap());
    assert!((50_000..70_000).contains(least) && (175_000..195_000).contains(most), "{least} to {most}");
}

#[test]
fn large_send_buffers_do_not_delay_the_setup_of_a_later_flow() {
    let buffer = 32 << 20;
    let mut plan = dumbbell(Policy::Served(ServedConfig::default()), vec![flow(0, BULK); 10]);
    plan.flows.push(flow(1000, BULK));
    plan.association = AssociationConfig { send_buffer: buffer, buffer_start: buffer, ..association() };
    plan.limit = S(3);
    let report = run(&plan);
    for bulk in &report.flows[..10] {
        assert!(bulk.handed_over >= buffer as u64, "{} of {buffer} bytes", bulk.handed_over);
    }
    let late = report.flows[10].established.map(|at| at.as_millis());
    assert!(late.is_some_and(|at| at < 1500), "set up at {late:?}");
}
