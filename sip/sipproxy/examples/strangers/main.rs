//! Fuzzes a running proxy with the messages of RFC 4475, mutated at random, over UDP, TCP and SCTP in turn.
//!
//! `cargo run --release -p sipproxy --example strangers -- --local ADDRESS --proxy ADDRESS:5060 --watch PID` sends the messages in batches.
//! After each batch the proxy must answer OPTIONS, which shows that it still runs and has processed the batch. The program prints JSON: the
//! number of messages per transport, the number of repeated OPTIONS requests, and the proxy's memory over time. The exit status is 1 if the
//! proxy no longer answers.

mod doors;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use doors::{Door, SctpDoor, TcpDoor, UdpDoor};
use fuzzing::torture::{changed, corpus};
use serde_json::json;

/// Messages per batch. The number is small, so a batch fits in a socket's buffer.
const BATCH: u64 = 32;
/// Number of memory samples over the whole run.
const LOOKS: u64 = 100;

#[derive(Parser)]
struct Args {
    /// Local address. It must differ from the proxy's address, because this program receives all SCTP packets that arrive at the local
    /// address
    #[arg(long, value_name = "ADDRESS")]
    local: IpAddr,

    /// Address of the proxy, for UDP, TCP and SCTP
    #[arg(long, value_name = "ADDRESS:PORT")]
    proxy: SocketAddr,

    /// Number of messages
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,

    /// Limit on messages per second. Each message leaves state in the proxy for some seconds, and each closed connection occupies a port
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// Process ID of the proxy, to sample its memory
    #[arg(long, value_name = "PID")]
    watch: u32,

    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("strangers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let (mut rng, corpus) = (fastrand::Rng::with_seed(args.seed), corpus());
    let mut asking = UdpDoor::open(args.local, args.proxy)?;
    let mut doors: [(Box<dyn Door>, u64); 3] = [
        (Box::new(UdpDoor::open(args.local, args.proxy)?), 0),
        (Box::new(TcpDoor::new(args.proxy)), 0),
        (Box::new(SctpDoor::open(args.local, args.proxy)?), 0),
    ];
    let (mut sent, mut resident) = (0, Vec::new());
    let mut pace = Pace::of(args.rate);
    for (batch, turn) in (0..args.messages.div_ceil(BATCH)).zip((0..doors.len()).cycle()) {
        pace.wait();
        let size = BATCH.min(args.messages - sent);
        let messages: Vec<Vec<u8>> = (0..size).map(|_| changed(&mut rng, &corpus)).collect();
        let (door, count) = &mut doors[turn];
        door.send(&messages).with_context(|| format!("{} after {count} messages", door.name()))?;
        *count += size;
        sent += size;
        asking.ask().with_context(|| format!("after {sent} messages, the last by {}", door.name()))?;
        if sent >= args.messages * resident.len() as u64 / LOOKS {
            resident.push(resident_kib(args.watch)?);
        }
        if batch % 1000 == 0 {
            eprintln!("{sent} messages");
        }
    }
    let counts: serde_json::Map<_, _> =
        doors.iter().map(|(door, count)| (door.name().to_owned(), json!(count))).collect();
    println!("{}", json!({ "sent": counts, "asked_again": asking.asked_again, "resident_kib": resident }));
    Ok(())
}

/// The pace of batches. A late batch does not shorten the pauses after it.
struct Pace {
    due: Instant,
    between: Duration,
}

impl Pace {
    fn of(messages_per_s: u32) -> Pace {
        Pace { due: now(), between: Duration::from_secs_f64(BATCH as f64 / f64::from(messages_per_s)) }
    }

    fn wait(&mut self) {
        std::thread::sleep(self.due.saturating_duration_since(now()));
        self.due = self.due.max(now()) + self.between;
    }
}

#[expect(clippy::disallowed_methods, reason = "a program of its own, which reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// Returns a process's resident memory in KiB, as reported by the kernel.
fn resident_kib(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    let status = status.with_context(|| format!("no process {process}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.with_context(|| format!("process {process} has no memory"))
}
