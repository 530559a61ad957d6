//! Measures a proxy's memory over an hour of virtual time, with constant numbers of registered users and concurrent calls.
//!
//! `cargo run --release -p sipproxy --example standing` drives the proxy core with its SQLite store. Phones register with a password again
//! and again, and some restart or disappear. They call, ring, reject, cancel, refresh sessions and hang up. Every minute the program
//! samples allocated memory, resident memory and disk space. For each of these figures, the program divides the mean over the last quarter
//! of the samples by the mean over the second quarter. The exit status is 1 if a quotient exceeds the figure's limit in `GOALS`.

mod calls;
mod phone;
mod samples;
mod watch;
mod world;

use std::process::ExitCode;

use clap::Parser;
use samples::{Sample, growth};
use watch::watch;
use world::Size;

/// Function that selects a figure of a sample.
type Figure = fn(&Sample) -> f64;

/// Limit, for each figure, on the ratio of its mean over the last quarter of the samples to its mean over the second quarter. Resident
/// memory and disk space also depend on the allocator and on SQLite, so their limits are looser than the limit on allocated memory.
const GOALS: [(&str, Figure, f64); 3] = [
    ("allocated", |sample| sample.live, 1.01),
    ("resident", |sample| sample.resident, 1.02),
    ("on disk", |sample| sample.stored, 1.02),
];

#[derive(Parser)]
struct Args {
    /// Registered users
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(2..=0x00ff_ffff))]
    users: u32,

    /// Concurrent calls
    #[arg(long, default_value_t = 10_500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,

    /// Mean duration of a call after its first second, in seconds
    #[arg(long, default_value_t = 180.0)]
    talk: f64,

    /// Measured minutes of virtual time
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(8..))]
    minutes: u32,

    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let size = Size { users: args.users, calls: args.calls, talk_s: args.talk };
    let dir = tempfile::tempdir().expect("a directory for the store");
    let (world, samples) = watch(size, args.seed, &dir.path().join("sip.db"), args.minutes, || {});
    samples.iter().step_by(5).chain(samples.last()).for_each(|sample| println!("{sample}"));
    println!(
        "{} messages to the proxy, {} calls answered; responses to phones:",
        world.messages, world.answered
    );
    for ((method, status), count) in &world.statuses {
        println!("  {status} to {method}: {count}");
    }
    println!("proxy: {:?}", world.proxy.counters());
    let mut is_flat = true;
    for (name, of, most) in GOALS {
        let growth = growth(&samples, of);
        let is_met = growth <= most;
        is_flat &= is_met;
        let verdict = if is_met { "met   " } else { "MISSED" };
        println!("{verdict} {name}: the last quarter has {growth:.4} of the second (<= {most})");
    }
    ExitCode::from(u8::from(!is_flat))
}
