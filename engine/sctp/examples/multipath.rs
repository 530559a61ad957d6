//! Measures the goodput of an association in virtual time: over each of two paths alone, then over both paths at once.
//!
//! `cargo run --release -p sctp-engine --example multipath -- [SECONDS] [SEED]`
//!
//! Each path has a tail-drop queue of one bandwidth-delay product, but at least 30,000 bytes. The output gives the
//! goodput of each path alone. The goodput of both paths at once follows, in Mbit/s and as a multiple of the better
//! path's goodput. Exits with an error if a figure is below its goal.

use std::time::Duration;

use sctp::{AssociationConfig, Carrier, EndpointConfig, Multipath, PathScheduler, Time};
use sim::{Conversation, LinkConfig, Loss, World};

/// The link of one path.
#[derive(Clone, Copy)]
struct Path {
    mbit: u64,
    rtt_ms: u64,
    loss: f64,
}

struct Row {
    name: &'static str,
    paths: [Path; 2],
    /// Size of the send buffer and of the receive buffer, in bytes each.
    buffer: usize,
    /// Minimum goodput of both paths at once, as a multiple of the goodput of the better path alone.
    goal: f64,
}

const fn path(mbit: u64, rtt_ms: u64) -> Path {
    Path { mbit, rtt_ms, loss: 0.0 }
}

const ROWS: [Row; 9] = [
    Row { name: "1: equal", paths: [path(50, 20), path(50, 20)], buffer: 2 << 20, goal: 1.8 },
    Row { name: "2: equal, long", paths: [path(50, 100), path(50, 100)], buffer: 8 << 20, goal: 1.8 },
    Row { name: "3: other rates", paths: [path(80, 20), path(20, 20)], buffer: 2 << 20, goal: 1.1 },
    Row { name: "4: other delays", paths: [path(50, 10), path(50, 100)], buffer: 8 << 20, goal: 1.5 },
    Row { name: "5: 1 MiB", paths: [path(50, 10), path(50, 100)], buffer: 1 << 20, goal: 0.98 },
    Row { name: "6: 256 KiB", paths: [path(50, 10), path(50, 100)], buffer: 256 << 10, goal: 0.98 },
    Row { name: "7: 128 KiB", paths: [path(50, 10), path(5, 100)], buffer: 128 << 10, goal: 0.98 },
    Row { name: "8: slow lossy", paths: [path(50, 10), LOSSY], buffer: 256 << 10, goal: 0.95 },
    Row { name: "9: fast is long", paths: [path(10, 10), path(100, 60)], buffer: 2 << 20, goal: 0.98 },
];

const LOSSY: Path = Path { mbit: 50, rtt_ms: 100, loss: 0.01 };

struct Figures {
    mbit: f64,
    /// Number of duplicate DATA chunks at the receiver.
    needless: u64,
    timeouts: u64,
    longest_silence: Duration,
}

fn main() {
    let arg = |n, default| std::env::args().nth(n).map_or(default, |a| a.parse().expect("a number"));
    let (seconds, seed): (u64, u64) = (arg(1, 30), arg(2, 1));
    let schedulers = [PathScheduler::LowestRtt];
    let mut missed = 0;
    println!(
        "{seconds} s, Mbit/s of user data; multiple of the better path alone; chunks sent again needlessly"
    );
    for row in &ROWS {
        let alone = row.paths.map(|p| run(&[p], row.buffer, Multipath::Off, seconds, seed).mbit);
        let best = alone[0].max(alone[1]);
        print!("{:16} alone {:5.1} {:5.1}", row.name, alone[0], alone[1]);
        for scheduler in schedulers {
            let multipath = Multipath::Concurrent { scheduler };
            let f = run(&row.paths, row.buffer, multipath, seconds, seed);
            let is_missed = f.mbit < row.goal * best;
            missed += i32::from(is_missed);
            print!(
                " | {scheduler:?} {:5.1} ({:.2} x) {} needless, {} timeouts, silence {} ms{}",
                f.mbit,
                f.mbit / best,
                f.needless,
                f.timeouts,
                f.longest_silence.as_millis(),
                if is_missed { format!(" BELOW {}", row.goal) } else { String::new() }
            );
        }
        println!();
    }
    std::process::exit(missed.min(1));
}

fn run(paths: &[Path], buffer: usize, multipath: Multipath, seconds: u64, seed: u64) -> Figures {
    let config = AssociationConfig {
        send_buffer: buffer,
        receive_buffer: buffer,
        multipath,
        ..AssociationConfig::default()
    };
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut world = World::new(seed);
    world.checks = false;
    let names = [["10.0.1.1", "10.0.1.2"], ["10.0.2.1", "10.0.2.2"]];
    let addresses = |end: usize| -> Vec<&str> { names.iter().take(paths.len()).map(|n| n[end]).collect() };
    let a = world.add_host(&addresses(0), endpoint.clone());
    let b = world.add_host(&addresses(1), endpoint);
    for (p, names) in paths.iter().zip(names) {
        let rate = p.mbit * 1_000_000;
        let link = world.add_link(LinkConfig {
            rate,
            delay: Duration::from_micros(p.rtt_ms * 500),
            queue_bytes: ((rate * p.rtt_ms / 8000) as usize).max(30_000),
            queue_packets: usize::MAX,
            loss: if p.loss > 0.0 { Loss::Uniform(p.loss) } else { Loss::None },
            ..LinkConfig::default()
        });
        world.join(link, names[0], names[1]);
    }
    world.host_mut(b).app.template = Conversation { keeps: false, ..Conversation::default() };
    let bulk = Conversation { bulk: u64::MAX, ..Conversation::default() };
    let id = world.connect(a, b, Carrier::Ip, config, bulk);
    world.run_until(Time::from_millis(seconds * 1000), |_| false);
    let (&theirs, talk) = world.host(b).app.conversations.iter().next().expect("a conversation");
    let counters = |host, id| world.host(host).endpoint.info(id).expect("an association").counters;
    Figures {
        mbit: talk.received_bytes as f64 * 8.0 / (seconds as f64 * 1e6),
        needless: counters(b, theirs).data_duplicate,
        timeouts: counters(a, id).timeouts,
        longest_silence: talk.longest_silence,
    }
}
