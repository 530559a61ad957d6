//! Throughput and processor time of one bulk stream: plain TCP, the shim, usrsctp.
//!
//! Runs are interleaved, so that a busy neighbour hurts all alike. Throughput is the receiver's, from its
//! first to its last byte. Processor time is that of sender, receiver and both daemons as the kernel accounts
//! it to processes; what it does in interrupts for nobody in particular is in no column.

use super::stats::{percentile, spread};
use anyhow::{Context, Result, ensure};
use std::io::IsTerminal;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT, Tools};
use testbed::{Capture, Lab, Link, Offloads, c_programs, cpu};

/// Sizes of writes and messages, in bytes. The last one decides.
const SIZES: [usize; 2] = [1_024, 65_536];
/// How many times usrsctp's throughput the shim must reach, offloads on.
const USRSCTP_GOAL: f64 = 4.0;
/// How much of plain TCP's throughput the shim must reach, by whether the link cuts segments to size itself.
const TCP_GOALS: [(Offloads, f64); 2] = [(Offloads::On, 0.2), (Offloads::Off, 0.6)];
/// Runs of each.
const REPETITIONS: usize = 5;
/// How long a sender sends.
const SECONDS: &str = "2";
/// How long a run may take in all: usrsctp sends what it has queued after its time is over.
const LIMIT: Duration = Duration::from_secs(30);
/// UDP port of usrsctp; 9899 is the daemons'.
const USRSCTP_UDP_PORT: &str = "9900";
/// SCTP port of usrsctp.
const USRSCTP_PORT: &str = "5003";

/// What carries the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Tcp,
    Shim,
    Usrsctp,
}

const CARRIERS: [Carrier; 3] = [Carrier::Tcp, Carrier::Shim, Carrier::Usrsctp];

/// The results of one carrier at one size.
#[derive(Debug, Default)]
struct Samples {
    gbit_per_s: Vec<f64>,
    cpu_s_per_gb: Vec<f64>,
}

/// What the runs need.
struct Bench<'a> {
    pair: Pair,
    link: Link,
    daemons: Daemons,
    tools: &'a Tools,
    usrsctp: &'a Path,
}

/// The shim's throughput as a multiple of others'.
#[derive(Debug, Clone, Copy)]
struct Ratios {
    tcp: f64,
    usrsctp: f64,
}

/// Runs everything, prints the tables; whether all goals are met.
pub(crate) fn run(lab: &Lab, tools: &Tools) -> Result<bool> {
    let usrsctp = c_programs::build("usrsctp_bench", lab.dir(), &["usrsctp", "pthread"])?;
    let mut judged = Vec::new();
    for (offloads, goal) in TCP_GOALS {
        let ratios = link(lab, tools, &usrsctp, offloads)?;
        judged.push((format!("x TCP, offloads {}", words(offloads)), ratios.tcp, goal));
        if offloads == Offloads::On {
            judged.push(("x usrsctp".to_owned(), ratios.usrsctp, USRSCTP_GOAL));
        }
    }
    println!("CPU: processes only; the kernel's interrupt work for packets is in no column.");
    for (figure, ratio, goal) in &judged {
        println!("shim, 65,536 bytes: {ratio:.2} {figure}; the goal is {goal}");
    }
    Ok(judged.iter().all(|(_, ratio, goal)| ratio >= goal))
}

/// Both sizes on a link of this kind; the ratios at the last.
fn link(lab: &Lab, tools: &Tools, usrsctp: &Path, offloads: Offloads) -> Result<Ratios> {
    let pair = Pair::new(lab, if offloads == Offloads::On { "-on" } else { "-off" })?;
    let link = lab.join(&pair.alpha, &pair.beta, 1, offloads)?;
    let daemons = pair.start_daemons(tools)?;
    let bench = Bench { pair, link, daemons, tools, usrsctp };
    bench.ensure_shim_is_sctp()?;
    println!("\noffloads {}", words(offloads));
    println!("size    carrier   Gbit/s, median (range)   CPU s/GB, median (range)    x TCP  x usrsctp");
    let mut ratios = Ratios { tcp: 0.0, usrsctp: 0.0 };
    for size in SIZES {
        ratios = bench.size(size)?;
    }
    bench.daemons.stop();
    Ok(ratios)
}

fn words(offloads: Offloads) -> &'static str {
    match offloads {
        Offloads::On => "on",
        Offloads::Off => "off",
    }
}

impl Bench<'_> {
    /// All carriers at one size, interleaved; prints their rows.
    fn size(&self, size: usize) -> Result<Ratios> {
        let mut all = [Samples::default(), Samples::default(), Samples::default()];
        for repetition in 1..=REPETITIONS {
            for (carrier, samples) in CARRIERS.into_iter().zip(&mut all) {
                progress(&format!("{size} bytes, run {repetition} of {REPETITIONS}, {carrier:?}"));
                self.measure(carrier, size, samples).with_context(|| format!("{carrier:?}, {size} bytes"))?;
            }
        }
        progress("");
        let medians = [0, 1, 2].map(|n: usize| percentile(&all[n].gbit_per_s, 50));
        for ((carrier, samples), median) in CARRIERS.iter().zip(&all).zip(medians) {
            let (speed, cpu) = (spread(&samples.gbit_per_s), spread(&samples.cpu_s_per_gb));
            let ratios = format!("{:>6.2} {:>10.2}", median / medians[0], median / medians[2]);
            println!("{size:<7} {:<9} {speed:<24} {cpu:<25} {ratios}", format!("{carrier:?}").to_lowercase());
        }
        Ok(Ratios { tcp: medians[1] / medians[0], usrsctp: medians[1] / medians[2] })
    }

    /// One run.
    fn measure(&self, carrier: Carrier, size: usize, samples: &mut Samples) -> Result<()> {
        let (connects_before, cpu_before) = (self.daemons.connects_sctp()?, self.cpu()?);
        let (bytes, time) = self.stream(carrier, SECONDS, size)?;
        let (cpu, connects) = (self.cpu()? - cpu_before, self.daemons.connects_sctp()? - connects_before);
        let expected = u64::from(carrier == Carrier::Shim);
        ensure!(connects == expected, "{connects} connections rode SCTP instead of {expected}");
        samples.gbit_per_s.push(bytes * 8.0 / 1e9 / time);
        samples.cpu_s_per_gb.push(cpu.as_secs_f64() / (bytes / 1e9));
        Ok(())
    }

    /// Time of programs that have ended, and of the daemons so far.
    fn cpu(&self) -> Result<Duration> {
        let daemons = cpu::of_processes(&self.pair.alpha, "sctpifyd")?
            + cpu::of_processes(&self.pair.beta, "sctpifyd")?;
        Ok(cpu::of_ended_children()? + daemons)
    }

    /// Moves bytes for a time; gives the receiver's bytes and seconds.
    fn stream(&self, carrier: Carrier, seconds: &str, size: usize) -> Result<(f64, f64)> {
        let (server, sender) = match carrier {
            Carrier::Tcp => self.tcp(TCP_PORT, seconds, size)?,
            Carrier::Shim => self.tcp(SHIM_PORT, seconds, size)?,
            Carrier::Usrsctp => self.usrsctp(seconds, size)?,
        };
        self.pair.alpha.run("sender", sender, LIMIT)?.good()?;
        let told = server.finish(LIMIT)?.good()?.stdout;
        let numbers =
            told.lines().last().and_then(|line| line.split_once(' ')).context("the receiver told nothing")?;
        let (bytes, micros): (f64, f64) = (numbers.0.parse()?, numbers.1.parse()?);
        ensure!(bytes > 0.0 && micros > 0.0, "nothing was received");
        Ok((bytes, micros / 1e6))
    }

    fn tcp(&self, port: u16, seconds: &str, size: usize) -> Result<(testbed::Process, Command)> {
        let server = self.pair.serve(&self.tools.bulk, &["receive", &port.to_string()])?;
        let to = format!("{}:{port}", self.link.right_v4());
        Ok((server, self.sender(&self.tools.bulk, &["send", &to, seconds, &size.to_string()])))
    }

    fn usrsctp(&self, seconds: &str, size: usize) -> Result<(testbed::Process, Command)> {
        let server = self.pair.serve(self.usrsctp, &["receive", USRSCTP_PORT, USRSCTP_UDP_PORT])?;
        let to = self.link.right_v4().to_string();
        let args = ["send", &to, USRSCTP_PORT, USRSCTP_UDP_PORT, seconds, &size.to_string()];
        Ok((server, self.sender(self.usrsctp, &args)))
    }

    fn sender(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = self.pair.alpha.command(program);
        command.args(args);
        command
    }

    /// Judged from outside, once: what the shim column measures is SCTP and not TCP.
    fn ensure_shim_is_sctp(&self) -> Result<()> {
        let capture = Capture::start(&self.pair.alpha, "is-sctp", &[&self.link.name()])?;
        self.stream(Carrier::Shim, "0.1", 65_536)?;
        let seen = capture.judge()?;
        ensure!(
            seen.tcp == 0 && seen.sctp > 0,
            "the shim's stream went by {}, {} TCP packets",
            seen.carrier(),
            seen.tcp
        );
        Ok(())
    }
}

/// Writes over the last line of a terminal; nothing where there is none.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{text:60}\r");
    }
}
