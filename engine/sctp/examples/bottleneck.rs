//! Measures the shares of a two-path and a one-path association at one bottleneck, in virtual time.
//!
//! `cargo run --release -p sctp-engine --example bottleneck -- [SECONDS] [SEEDS]`
//!
//! The bottleneck has a tail-drop queue of one bandwidth-delay product. Each figure is a mean over the seeds. The first
//! quarter of each run does not count. Exits with an error if the two-path association gets more than 1.1 times a fair
//! share, which is half of the total.

use std::time::Duration;

use sctp::{AssociationConfig, Carrier, CongestionAlgorithm, EndpointConfig, Multipath, PathScheduler, Time};
use sim::{Conversation, HostId, LinkConfig, World};

/// Rate in Mbit/s and round-trip time in ms of each bottleneck.
const LINKS: [(u64, u64); 2] = [(20, 40), (50, 20)];
const PAIRS: [[CongestionAlgorithm; 2]; 2] = {
    use CongestionAlgorithm::{Cubic, Rfc9260};
    [[Cubic, Cubic], [Rfc9260, Cubic]]
};
const BUFFER: usize = 2 << 20;

const BOTH: Multipath = Multipath::Concurrent { scheduler: PathScheduler::LowestRtt };

fn main() {
    let arg = |n, default| std::env::args().nth(n).map_or(default, |a| a.parse().expect("a number"));
    let (seconds, seeds): (u64, u64) = (arg(1, 60), arg(2, 3));
    let mut missed = 0;
    println!("{seconds} s, {seeds} seeds, Mbit/s of user data: two paths at once, and one path beside them");
    for link in LINKS {
        for [ours, other] in PAIRS {
            let [mut two, mut one] = [0.0; 2];
            for seed in 1..=seeds {
                let rates = run(link, [ours, other], seconds, seed);
                two += rates[0] / seeds as f64;
                one += rates[1] / seeds as f64;
            }
            let is_missed = two > 1.1 * (two + one) / 2.0;
            missed += i32::from(is_missed);
            let verdict = if is_missed { " MORE" } else { "" };
            println!("{link:?}: {ours:?} beside {other:?}: {two:.1} {one:.1}{verdict}");
        }
    }
    std::process::exit(missed.min(1));
}

/// Returns the goodput of the two-path association and of the one-path association, in Mbit/s.
fn run((mbit, rtt_ms): (u64, u64), pair: [CongestionAlgorithm; 2], seconds: u64, seed: u64) -> [f64; 2] {
    let mut world = World::new(seed);
    world.checks = false;
    let link = world.add_link(LinkConfig {
        rate: mbit * 1_000_000,
        delay: Duration::from_micros(rtt_ms * 500),
        queue_bytes: (mbit * 1_000_000 * rtt_ms / 8000) as usize,
        queue_packets: usize::MAX,
        ..LinkConfig::default()
    });
    let two = (pair[0], BOTH, [["10.0.1.1", "10.0.2.1"], ["10.0.1.2", "10.0.2.2"]]);
    let one = (pair[1], Multipath::Off, [["10.0.3.1", "10.0.4.1"], ["10.0.3.2", "10.0.4.2"]]);
    let receivers = [two, one].map(|(congestion, multipath, names)| {
        let config = AssociationConfig {
            send_buffer: BUFFER,
            receive_buffer: BUFFER,
            buffer_start: BUFFER,
            multipath,
            congestion,
            ..AssociationConfig::default()
        };
        let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
        let [a, b] = names.map(|names| world.add_host(&names, endpoint.clone()));
        (0..2).for_each(|path| world.join(link, names[0][path], names[1][path]));
        world.host_mut(b).app.template = Conversation { keeps: false, ..Conversation::default() };
        let bulk = Conversation { bulk: u64::MAX, ..Conversation::default() };
        world.connect(a, b, Carrier::Ip, config, bulk);
        b
    });
    let received = |world: &World, host: HostId| {
        world.host(host).app.conversations.values().next().expect("a conversation").received_bytes
    };
    let begin = seconds * 250;
    world.run_until(Time::from_millis(begin), |_| false);
    let before = receivers.map(|host| received(&world, host));
    world.run_until(Time::from_millis(seconds * 1000), |_| false);
    let rate = |n: usize| {
        (received(&world, receivers[n]) - before[n]) as f64 * 8.0 / ((seconds * 1000 - begin) as f64 * 1e3)
    };
    [rate(0), rate(1)]
}
