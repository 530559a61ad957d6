//! Processor time at the rates of uplinks, and the latency of a keystroke during a transfer.
//!
//! The first part runs one bulk stream over an emulated link with a round trip of 20 ms, with plain TCP and with the daemons in turn.
//! Processor time is the sum over the sender, the receiver and both daemons. The time of the sender and of the receiver counts from their
//! connection on. Links with a short queue follow, which drops long bursts of packets. Their throughput is judged.
//!
//! The last part sends 64 bytes there and back every 50 ms, alone and next to a stream that leaves spare capacity. On a full link, the
//! delay in the queue would hide the daemons' latency.

use super::report::Report;
use anyhow::{Context, Result, ensure};
use pages::stats::{percentile, spread};
use pages::{Limit, Table};
use std::process::Command;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT, Tools};
use testbed::{DelayedLink, Lab, Process, cpu};

/// Rates of the link in Mbit/s, each with a limit on the processor time of the shim's stream as a multiple of TCP's.
const RATES: [(u32, f64); 6] = [(5, 2.0), (10, 2.0), (20, 2.0), (50, 2.0), (100, 0.8), (200, 0.8)];
/// Links with a short queue: rates in Mbit/s, and lengths of the queue in packets.
const SHORT_QUEUES: [(u32, u32); 2] = [(10, 10), (100, 20)];
/// Minimum throughput of the shim's stream on these links, as a part of TCP's.
const SHORT_QUEUE_GOAL: f64 = 0.9;
/// One-way delay.
const DELAY: &str = "10ms";
/// Length of the bottleneck's queue, in milliseconds of traffic at the link's rate.
const QUEUE_MS: u32 = 50;
/// Minimum length of the bottleneck's queue, in packets.
const QUEUE_PACKETS_MIN: u32 = 10;
/// Length of a full packet, in bits.
const PACKET_BITS: u32 = 12_000;
/// Number of runs of each transport at each rate.
const REPETITIONS: usize = 5;
/// Sending time, in seconds.
const SECONDS: &str = "3";
/// Size of the writes, in bytes.
const WRITE: &str = "65536";
/// Rate of the link for keystrokes, in Mbit/s.
const TYPED_RATE: u32 = 100;
/// Stream next to the keystrokes: bytes per write, and microseconds between writes (10 Mbit/s).
const STREAM: [&str; 2] = ["12500", "10000"];
/// Duration of the stream next to the keystrokes, in seconds. The stream lasts longer than the keystrokes, which take 10 s.
const STREAM_SECONDS: &str = "14";
/// Number of keystrokes, and microseconds between them.
const KEYSTROKES: [&str; 2] = ["200", "50000"];
/// Ports of the keystrokes: plain TCP, and with a rule. The stream next to them uses [`PORTS`].
const TYPED_PORTS: [u16; 2] = [TCP_PORT + 100, SHIM_PORT + 100];
/// Limit on the time of one program's run.
const LIMIT: Duration = Duration::from_secs(60);
const DAEMON: &str = "sctpifyd";

/// Ports of a stream: plain TCP, and with a rule.
const PORTS: [u16; 2] = [TCP_PORT, SHIM_PORT];

/// Measures and judges everything. If `only` lists rates, measures only these rates, and no keystrokes.
pub(crate) fn run(lab: &Lab, only: &[String], tools: &Tools, report: &mut Report) -> Result<()> {
    let is_meant = |rate: u32| only.is_empty() || only.contains(&rate.to_string());
    let rates: Vec<(u32, f64)> = RATES.into_iter().filter(|(rate, _)| is_meant(*rate)).collect();
    ensure!(!rates.is_empty(), "no such rate: say some of {:?}, or nothing", RATES.map(|(rate, _)| rate));
    let head = ["link, Mbit/s", "TCP: Mbit/s", "CPU s/GB", "shim: Mbit/s", "CPU s/GB", "CPU x TCP"];
    let mut table = Table::new("One bulk stream: median (least-greatest)", head);
    for (number, (rate, goal)) in (1..).zip(rates) {
        let [tcp, shim] = at_rate(lab, tools, number, rate, queue_of(rate))?;
        let ratio = percentile(&shim.cpu_s_per_gb, 50) / percentile(&tcp.cpu_s_per_gb, 50);
        let [[tcp_rate, tcp_cpu], [shim_rate, shim_cpu]] = [tcp.cells(), shim.cells()];
        table.row([rate.to_string(), tcp_rate, tcp_cpu, shim_rate, shim_cpu, format!("{ratio:.2}")]);
        report.judge(format!("CPU time by TCP's at {rate} Mbit/s"), &[ratio], Limit::AtMost(goal));
    }
    report.show(table);
    short_queues(lab, tools, report, is_meant)?;
    report.remark("CPU: processes only; the kernel's interrupt work for packets is in no column.");
    if only.is_empty() {
        typed(lab, tools, report)?;
    } else {
        report.is_short();
    }
    Ok(())
}

/// Measures and judges the throughput of links with a short queue. `is_meant` selects rates.
fn short_queues(lab: &Lab, tools: &Tools, report: &mut Report, is_meant: impl Fn(u32) -> bool) -> Result<()> {
    let head = ["link, Mbit/s", "queue, packets", "TCP: Mbit/s", "shim: Mbit/s", "shim by TCP"];
    let mut table = Table::new("One bulk stream through a short queue: median (least-greatest)", head);
    for (number, (rate, queue)) in (50..).zip(SHORT_QUEUES.into_iter().filter(|(rate, _)| is_meant(*rate))) {
        let [tcp, shim] = at_rate(lab, tools, number, rate, queue)?;
        let ratio = percentile(&shim.mbit_per_s, 50) / percentile(&tcp.mbit_per_s, 50);
        let [tcp, shim] = [tcp, shim].map(|samples| spread(&samples.mbit_per_s));
        table.row([rate.to_string(), queue.to_string(), tcp, shim, format!("{ratio:.2}")]);
        let figure = format!("throughput by TCP's at {rate} Mbit/s with a queue of {queue} packets");
        report.judge(figure, &[ratio], Limit::AtLeast(SHORT_QUEUE_GOAL));
    }
    report.show(table);
    Ok(())
}

/// Returns the usual length of a queue for this rate, in packets.
fn queue_of(rate: u32) -> u32 {
    (rate * 1_000 * QUEUE_MS / PACKET_BITS).max(QUEUE_PACKETS_MIN)
}

/// Results of one transport at one rate.
#[derive(Debug, Default)]
struct Samples {
    mbit_per_s: Vec<f64>,
    cpu_s_per_gb: Vec<f64>,
}

impl Samples {
    fn cells(&self) -> [String; 2] {
        [spread(&self.mbit_per_s), spread(&self.cpu_s_per_gb)]
    }
}

/// Two hosts with daemons, on a link of one rate.
struct Uplink<'a> {
    pair: Pair,
    link: DelayedLink,
    daemons: Daemons,
    tools: &'a Tools,
}

impl<'a> Uplink<'a> {
    fn new(lab: &Lab, tools: &'a Tools, name: &str, number: u8, rate: u32, queue: u32) -> Result<Uplink<'a>> {
        let pair = Pair::new(lab, name)?;
        let (rate, queue) = (format!("{rate}mbit"), queue.to_string());
        let settings = ["--rate", &rate, "--delay", DELAY, "--queue", &queue];
        let link = DelayedLink::emulated(lab, &pair.alpha, &pair.beta, number, &settings, &tools.linkemu)?;
        link.link.set_tcp_controls("cubic")?;
        let daemons = pair.start_daemons(tools)?;
        Ok(Uplink { pair, link, daemons, tools })
    }

    fn target(&self, port: u16) -> String {
        format!("{}:{port}", self.link.link.right_v4())
    }

    fn client(&self, program: &std::path::Path, args: &[&str]) -> Command {
        let mut command = self.pair.alpha.command(program);
        command.args(args);
        command
    }

    /// Measures one run of a bulk stream.
    fn measure(&self, port: u16, samples: &mut Samples) -> Result<()> {
        let server = self.pair.serve(&self.tools.bulk, &["receive", &port.to_string()])?;
        let (connects, daemons) = (self.daemons.connects_sctp()?, self.cpu_of_daemons()?);
        let sender = self.client(&self.tools.bulk, &["send", &self.target(port), SECONDS, WRITE]);
        let sent = self.pair.alpha.run("sender", sender, LIMIT)?.good()?.stdout;
        let output = server.finish(LIMIT)?.good()?.stdout;
        let (daemons, connects) =
            (self.cpu_of_daemons()? - daemons, self.daemons.connects_sctp()? - connects);
        let cpu = daemons + cpu_reported(&sent)? + cpu_reported(&output)?;
        ensure!(
            connects == u64::from(port == SHIM_PORT),
            "{connects} connections to port {port} were carried over SCTP"
        );
        let numbers = output
            .lines()
            .last()
            .and_then(|line| line.split_once(' '))
            .context("the receiver reported nothing")?;
        let (bytes, micros): (f64, f64) = (numbers.0.parse()?, numbers.1.parse()?);
        samples.mbit_per_s.push(bytes * 8.0 / micros);
        samples.cpu_s_per_gb.push(cpu.as_secs_f64() / (bytes / 1e9));
        Ok(())
    }

    fn cpu_of_daemons(&self) -> Result<Duration> {
        Ok(cpu::of_processes(&self.pair.alpha, DAEMON)? + cpu::of_processes(&self.pair.beta, DAEMON)?)
    }

    /// Returns the round trips of keystrokes, in microseconds.
    fn keystrokes(&self, port: u16) -> Result<Vec<f64>> {
        let _server = self.pair.serve(&self.tools.bulk, &["echo", &port.to_string()])?;
        let [count, pause] = KEYSTROKES;
        let typist = self.client(&self.tools.bulk, &["ping", &self.target(port), count, "64", pause]);
        let output = self.pair.alpha.run("typist", typist, LIMIT)?.good()?.stdout;
        Ok(output.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Starts a stream that leaves spare capacity on the link.
    fn stream(&self, port: u16) -> Result<[Process; 2]> {
        let server = self.pair.serve(&self.tools.bulk, &["receive", &port.to_string()])?;
        let [size, pause] = STREAM;
        let sender =
            self.client(&self.tools.bulk, &["send-paced", &self.target(port), STREAM_SECONDS, size, pause]);
        Ok([server, self.pair.alpha.spawn("stream", sender)?])
    }
}

/// Returns the processor time that a program reports. This time excludes the program's start.
fn cpu_reported(report: &str) -> Result<Duration> {
    let micros = report.lines().find_map(|line| line.strip_prefix("processor "));
    Ok(Duration::from_micros(micros.context("a program reported no processor time")?.parse()?))
}

/// Measures a bulk stream with plain TCP and with the shim, in turn.
fn at_rate(lab: &Lab, tools: &Tools, number: u8, rate: u32, queue: u32) -> Result<[Samples; 2]> {
    let uplink = Uplink::new(lab, tools, &format!("-{rate}mbit-{queue}"), number, rate, queue)?;
    let mut all = [Samples::default(), Samples::default()];
    // The first connection opens the shared association.
    uplink.measure(SHIM_PORT, &mut Samples::default())?;
    for _ in 0..REPETITIONS {
        for (port, samples) in PORTS.into_iter().zip(&mut all) {
            uplink.measure(port, samples).with_context(|| format!("{rate} Mbit/s, port {port}"))?;
        }
    }
    uplink.daemons.stop();
    Ok(all)
}

/// Measures and shows the latency of keystrokes.
fn typed(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let uplink = Uplink::new(lab, tools, "-typed", 100, TYPED_RATE, queue_of(TYPED_RATE))?;
    for (daemon, chain) in [(&uplink.daemons.alphas, "remote"), (&uplink.daemons.betas, "local")] {
        let port = TYPED_PORTS[1].to_string();
        daemon.shimrules(&["-A", "-c", chain, "-p", "enable", "-P", &port])?.good()?;
    }
    let caption = "64 bytes there and back, each 50 ms, 20 ms round trip";
    let mut table = Table::new(caption, ["", "p50 ms", "p99 ms"]);
    for (name, beside, typed) in [
        ("alone, TCP", None, TYPED_PORTS[0]),
        ("alone, shim", None, TYPED_PORTS[1]),
        ("during 10 Mbit/s, TCP", Some(TCP_PORT), TYPED_PORTS[0]),
        ("during 10 Mbit/s, shim", Some(SHIM_PORT), TYPED_PORTS[1]),
    ] {
        let stream = beside.map(|port| uplink.stream(port)).transpose()?;
        let micros = uplink.keystrokes(typed)?;
        for process in stream.into_iter().flatten() {
            process.finish(LIMIT)?.good()?;
        }
        let [p50, p99] = [50, 99].map(|percent| format!("{:.3}", percentile(&micros, percent) / 1e3));
        table.row([name.to_owned(), p50, p99]);
    }
    report.show(table);
    uplink.daemons.stop();
    Ok(())
}
