//! Workloads for `./x bench instructions`, which counts their instructions. They read no clock, so all runs with the
//! same arguments execute the same instructions.
//!
//! `cargo run --release -p sctp-engine --example workloads -- ROW COUNT` runs the workload ROW with COUNT units. The
//! unit of a bulk workload is a packet (`bulk-1100`, `bulk-65536`) or a message (`bulk-64`). The unit is a round trip
//! for `ping-pong-64`, an association for `set-up`, and a second for `idle-1000`. A warm-up of fixed length comes
//! first. Two runs with different counts therefore differ only in the cost of the additional units.

#[path = "pair/mod.rs"]
mod pair;

use std::time::Duration;

use bytes::Bytes;
use pair::Pair;

/// Number of packets or messages in the warm-up of a bulk workload. The warm-up of `ping-pong-64` has a tenth of this
/// number of round trips. The warm-up of `set-up` has a hundredth of this number of associations.
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

/// Number of idle associations.
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
        // Each message fills 46 packets, with 1,444 user bytes or less in each.
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
