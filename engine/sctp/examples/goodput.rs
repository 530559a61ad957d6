//! Measures the goodput of each congestion controller through simulated bottlenecks, in virtual time.
//!
//! `cargo run --release -p sctp-engine --example goodput -- [SECONDS] [SEED]`
//!
//! Each run has one flow, buffers of 8 MiB and a tail-drop queue of one bandwidth-delay product. The figure in brackets
//! is the goodput in the second half of the run. Exits with an error if a figure is below its goal.

use std::time::Duration;

use sctp::{AssociationConfig, Carrier, CongestionAlgorithm, EndpointConfig, Time};
use sim::{Conversation, Fate, LinkConfig, Loss, World};

struct Row {
    name: &'static str,
    mbit: u64,
    rtt_ms: u64,
    loss: f64,
    /// Share of the large packets (over 1000 bytes) that are 8 ms late, 0 to 1.
    late: f64,
    /// Minimum goodput in Mbit/s with CUBIC (the default), and with the loss-tolerant controller.
    goals: [f64; 2],
}

/// The goals of rows 3 to 5 for CUBIC follow from Reno's formula, 1.22 · MSS / (RTT · √p), where p is the loss rate.
const ROWS: [Row; 6] = [
    Row { name: "1: no loss", mbit: 100, rtt_ms: 20, loss: 0.0, late: 0.0, goals: [90.0, 80.0] },
    Row { name: "2: no loss", mbit: 100, rtt_ms: 100, loss: 0.0, late: 0.0, goals: [90.0, 80.0] },
    Row { name: "3: 0.1 % loss", mbit: 100, rtt_ms: 100, loss: 0.001, late: 0.0, goals: [4.3, 80.0] },
    Row { name: "4: 1 % loss", mbit: 100, rtt_ms: 100, loss: 0.01, late: 0.0, goals: [1.4, 80.0] },
    Row { name: "5: 2 % loss", mbit: 20, rtt_ms: 50, loss: 0.02, late: 0.0, goals: [1.9, 16.0] },
    Row { name: "6: 1 % late", mbit: 100, rtt_ms: 40, loss: 0.0, late: 0.01, goals: [90.0, 80.0] },
];

struct Figures {
    whole: f64,
    second_half: f64,
    /// Longest time between two consecutive receptions, after the first data has arrived.
    longest_silence: Duration,
    timeouts: u64,
}

fn main() {
    let arg = |n, default| std::env::args().nth(n).map_or(default, |a| a.parse().expect("a number"));
    let (seconds, seed): (u64, u64) = (arg(1, 30), arg(2, 1));
    let algorithms =
        [CongestionAlgorithm::Cubic, CongestionAlgorithm::LossTolerant, CongestionAlgorithm::Rfc9260];
    let mut missed = 0;
    println!("{seconds} s, Mbit/s of user data, second half in brackets");
    for row in &ROWS {
        print!("{:15} {:3} Mbit/s {:3} ms ", row.name, row.mbit, row.rtt_ms);
        for (index, algorithm) in algorithms.into_iter().enumerate() {
            let f = run(row, algorithm, seconds, seed);
            let goal = row.goals.get(index).copied().unwrap_or(0.0);
            let is_missed = f.whole < goal;
            missed += i32::from(is_missed);
            print!(
                " | {algorithm:?} {:.1} ({:.1}) silence {} ms, {} timeouts{}",
                f.whole,
                f.second_half,
                f.longest_silence.as_millis(),
                f.timeouts,
                if is_missed { format!(" BELOW {goal}") } else { String::new() }
            );
        }
        println!();
    }
    std::process::exit(missed.min(1));
}

fn run(row: &Row, congestion: CongestionAlgorithm, seconds: u64, seed: u64) -> Figures {
    let config = AssociationConfig {
        send_buffer: 8 << 20,
        receive_buffer: 8 << 20,
        congestion,
        ..AssociationConfig::default()
    };
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut world = World::new(seed);
    world.checks = false;
    let a = world.add_host(&["10.0.0.1"], endpoint.clone());
    let b = world.add_host(&["10.0.0.2"], endpoint);
    let rate = row.mbit * 1_000_000;
    let link = world.add_link(LinkConfig {
        rate,
        delay: Duration::from_micros(row.rtt_ms * 500),
        queue_bytes: (rate * row.rtt_ms / 8000) as usize,
        queue_packets: usize::MAX,
        loss: if row.loss > 0.0 { Loss::Uniform(row.loss) } else { Loss::None },
        ..LinkConfig::default()
    });
    world.join(link, "10.0.0.1", "10.0.0.2");
    delay_some(&mut world, row.late);
    world.host_mut(b).app.template = Conversation { keeps: false, ..Conversation::default() };
    let conversation = Conversation { bulk: u64::MAX, ..Conversation::default() };
    let id = world.connect(a, b, Carrier::Ip, config, conversation);
    let received = |world: &World| {
        let conversation = world.host(b).app.conversations.values().next();
        conversation.map_or((0, Duration::ZERO), |c| (c.received_bytes, c.longest_silence))
    };
    let half = seconds * 500;
    world.run_until(Time::from_millis(half), |_| false);
    let (first, _) = received(&world);
    world.run_until(Time::from_millis(2 * half), |_| false);
    let (all, longest_silence) = received(&world);
    let mbit = |bytes: u64, millis: u64| bytes as f64 * 8.0 / millis as f64 / 1000.0;
    Figures {
        whole: mbit(all, 2 * half),
        second_half: mbit(all - first, half),
        longest_silence,
        timeouts: world.host(a).endpoint.info(id).map_or(0, |i| i.counters.timeouts),
    }
}

/// Delays randomly chosen large packets by 8 ms. `part` is their share, 0 to 1.
fn delay_some(world: &mut World, part: f64) {
    if part == 0.0 {
        return;
    }
    let mut state = 1u64;
    world.set_filter(move |record| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let is_late = ((state >> 33) as f64) < part * (1u64 << 31) as f64;
        let is_data = record.packet.len() > 1000;
        if is_late && is_data { Fate::Late(Duration::from_millis(8)) } else { Fate::Pass }
    });
}
