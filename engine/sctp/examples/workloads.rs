//! Loads whose instructions are counted by `./x bench instructions`; without a clock, so that each run does the same.
//!
//! `cargo run --release -p sctp-engine --example workloads -- ROW COUNT` does COUNT of what the row counts, after the same
//! warming up whatever COUNT is: the difference of two runs is the cost of the difference of their counts.

#[path = "pair/mod.rs"]
mod pair;

use std::time::Duration;

use bytes::Bytes;
use pair::Pair;

/// Packets, messages or associations before those that are counted.
const WARM_UP: u64 = 4_000;

fn message(len: usize) -> Bytes {
    Bytes::from(vec![7; len])
}

fn bulk(len: usize, per_count: u64) -> impl Fn(u64) {
    move |count| {
        let mut pair = Pair::connected();
        pair.bulk(&message(len), (WARM_UP + count) / per_count);
    }
}

fn ping_pong(count: u64) {
    let mut pair = Pair::connected();
    pair.ping_pong(&message(64), WARM_UP / 10 + count);
}

fn set_up(count: u64) {
    let mut pair = Pair::new(1);
    for _ in 0..WARM_UP / 100 + count {
        let id = pair.connect();
        pair.disconnect(id);
    }
}

/// Associations that rest at once.
const IDLE: u16 = 1000;

fn idle(seconds: u64) {
    let mut pair = Pair::new(2);
    for n in 0..IDLE {
        pair.connect_from(6000 + n);
    }
    pair.rest(Duration::from_secs(100 + seconds));
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = words.get(1).and_then(|w| w.parse().ok());
    match (words.first().map(String::as_str), count) {
        (Some("bulk-1100"), Some(count)) => bulk(1100, 1)(count),
        // 46 packets of 1,444 bytes each.
        (Some("bulk-65536"), Some(count)) => bulk(65_536, 46)(count),
        (Some("bulk-64"), Some(count)) => bulk(64, 1)(count),
        (Some("ping-pong-64"), Some(count)) => ping_pong(count),
        (Some("set-up"), Some(count)) => set_up(count),
        (Some("idle-1000"), Some(count)) => idle(count),
        _ => {
            eprintln!("usage: workloads bulk-1100|bulk-65536|bulk-64|ping-pong-64|set-up|idle-1000 COUNT");
            std::process::exit(2);
        }
    }
}
