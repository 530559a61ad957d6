//! Throughput and processor time of one bulk stream over plain TCP, the shim and usrsctp.
//!
//! [`ROADS`] lists the runs. One link is as fast as the host allows, with its offloads or without them. The other link is slow. Without
//! offloads, the stream runs a second time, with bbr as the programs' congestion control.
//!
//! Runs are interleaved, so a busy neighbour on the machine affects all carriers alike. The receiver measures the throughput, from the
//! first byte that arrives to the last. Processor time is the sum that the kernel charges to the sender, the receiver and both daemons. The
//! kernel charges some interrupt work to no process. No column includes this work.

use super::report::Report;
use anyhow::{Context, Result, ensure};
use pages::stats::{percentile, spread};
use pages::{Limit, Table};
use std::io::IsTerminal;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT, Tools};
use testbed::{Capture, DelayedLink, Lab, Link, Offloads, Process, c_programs, cpu};

/// Sizes of writes and messages, in bytes. Goals apply to the last size.
const SIZES: [usize; 2] = [1_024, 65_536];
/// Required throughput of the shim on the link with offloads, as a multiple of usrsctp's throughput.
const USRSCTP_GOAL: f64 = 4.0;
/// Congestion control of all programs' TCP in judged runs: Linux's own default, regardless of this machine's setting. It also applies to
/// the connections between the programs and their local daemons. With bbr, the kernel sets a pacing timer for each 64 KiB, even on these
/// local connections.
const TCP_CONTROL: &str = "cubic";
/// Links to measure, in this order.
const ROADS: [Road; 4] = [
    Road { kind: Kind::Open(Offloads::On), control: TCP_CONTROL, tcp_goal: Some(0.2) },
    Road { kind: Kind::Open(Offloads::Off), control: TCP_CONTROL, tcp_goal: Some(0.6) },
    Road { kind: Kind::Open(Offloads::Off), control: "bbr", tcp_goal: None },
    Road { kind: Kind::Slow, control: TCP_CONTROL, tcp_goal: None },
];
/// Flags of `linkemu` for a slow link.
const SLOW: [&str; 6] = ["--rate", "100mbit", "--delay", "10ms", "--queue", "200"];
/// Number of runs of each carrier at each size.
const REPETITIONS: usize = 5;
/// Sending time, in seconds.
const SECONDS: &str = "2";
/// Limit on the total time of a run. It is much longer than [`SECONDS`], because usrsctp still sends its queue after the sending time has
/// ended.
const LIMIT: Duration = Duration::from_secs(30);
/// UDP port of usrsctp. The daemons use 9899.
const USRSCTP_UDP_PORT: &str = "9900";
/// SCTP port of usrsctp.
const USRSCTP_PORT: &str = "5003";

/// Name of the processes whose processor time counts.
pub(super) const DAEMON: &str = "sctpifyd";

/// Contender that carries the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Tcp,
    Shim,
    Usrsctp,
}

const CARRIERS: [Carrier; 3] = [Carrier::Tcp, Carrier::Shim, Carrier::Usrsctp];

/// Results of one carrier at one size.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) gbit_per_s: Vec<f64>,
    pub(super) cpu_s_per_gb: Vec<f64>,
}

/// A link to measure.
struct Road {
    kind: Kind,
    control: &'static str,
    /// Required throughput of the shim, as a share of plain TCP's throughput.
    tcp_goal: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A link as fast as the host allows.
    Open(Offloads),
    /// A link with the rate of an uplink, for a comparison of processor time.
    Slow,
}

/// A link that is set up.
enum TestLink {
    Open(Link),
    Slow(DelayedLink),
}

/// The environment of the runs.
struct Bench<'a> {
    pair: Pair,
    link: TestLink,
    daemons: Daemons,
    tools: &'a Tools,
    usrsctp: &'a Path,
}

/// Throughput of the shim, as a multiple of the other carriers' throughputs.
#[derive(Debug, Clone, Copy)]
struct Ratios {
    tcp: f64,
    usrsctp: f64,
}

/// Measures and judges everything.
pub(crate) fn run(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let usrsctp = c_programs::build("usrsctp_bench", lab.dir(), &["usrsctp", "pthread"])?;
    for (number, road) in (1..).zip(&ROADS) {
        let Some(ratios) = road.measured(lab, tools, &usrsctp, number, report)? else { continue };
        let Some(goal) = road.tcp_goal else { continue };
        let figure = |other: &str| format!("shim by {other}, 65,536 bytes, {}", road.kind);
        report.judge(figure("TCP"), &[ratios.tcp], Limit::AtLeast(goal));
        if road.kind == Kind::Open(Offloads::On) {
            report.judge(figure("usrsctp"), &[ratios.usrsctp], Limit::AtLeast(USRSCTP_GOAL));
        }
    }
    report
        .remark("CPU: processes only; interrupt work that the kernel charges to no process is in no column.");
    Ok(())
}

impl Road {
    /// Measures both sizes. Returns the ratios at the last size. If the kernel lacks this link's congestion control, and it is not
    /// [`TCP_CONTROL`], leaves the link out and returns `None`.
    fn measured(
        &self,
        lab: &Lab,
        tools: &Tools,
        usrsctp: &Path,
        number: u8,
        report: &mut Report,
    ) -> Result<Option<Ratios>> {
        let pair = Pair::new(lab, &format!("-{number}"))?;
        let link = self.kind.link(lab, &pair, number, tools)?;
        let title = format!("One bulk stream, {}, {}: median (least-greatest)", self.kind, self.control);
        match link.link().set_tcp_controls(self.control) {
            Err(error) if self.control != TCP_CONTROL => {
                println!("{title}: left out: {error:#}");
                return Ok(None);
            }
            outcome => outcome?,
        }
        let daemons = pair.start_daemons(tools)?;
        let bench = Bench { pair, link, daemons, tools, usrsctp };
        bench.ensure_shim_is_sctp()?;
        let head = ["size", "carrier", "Gbit/s", "CPU s/GB", "x TCP", "x usrsctp"];
        let mut table = Table::new(title, head);
        let mut ratios = Ratios { tcp: 0.0, usrsctp: 0.0 };
        for size in SIZES {
            ratios = bench.size(size, &mut table)?;
        }
        report.show(table);
        bench.daemons.stop();
        Ok(Some(ratios))
    }
}

impl Kind {
    fn link(self, lab: &Lab, pair: &Pair, number: u8, tools: &Tools) -> Result<TestLink> {
        Ok(match self {
            Kind::Open(offloads) => TestLink::Open(lab.join(&pair.alpha, &pair.beta, number, offloads)?),
            Kind::Slow => TestLink::Slow(DelayedLink::emulated(
                lab,
                &pair.alpha,
                &pair.beta,
                number,
                &SLOW,
                &tools.linkemu,
            )?),
        })
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Open(Offloads::On) => "offloads on",
            Kind::Open(Offloads::Off) => "offloads off",
            Kind::Slow => "100 Mbit/s, 20 ms there and back",
        })
    }
}

impl TestLink {
    fn link(&self) -> &Link {
        match self {
            TestLink::Open(link) => link,
            TestLink::Slow(delayed) => &delayed.link,
        }
    }
}

impl Samples {
    /// Runs `stream`, which returns bytes and seconds, and adds a sample of its throughput and of its processor time. The processor time
    /// includes the processes with the name `daemon` on both hosts.
    pub(super) fn take(
        &mut self,
        pair: &Pair,
        daemon: &str,
        stream: impl FnOnce() -> Result<(f64, f64)>,
    ) -> Result<()> {
        // Processor time so far of the daemons, and of programs that have ended.
        let cpu = || -> Result<Duration> {
            let daemons = cpu::of_processes(&pair.alpha, daemon)? + cpu::of_processes(&pair.beta, daemon)?;
            Ok(cpu::of_ended_children()? + daemons)
        };
        let before = cpu()?;
        let (bytes, time) = stream()?;
        let used = cpu()? - before;
        self.gbit_per_s.push(bytes * 8.0 / 1e9 / time);
        self.cpu_s_per_gb.push(used.as_secs_f64() / (bytes / 1e9));
        Ok(())
    }
}

/// Transfers bytes for `seconds` between two programs that use TCP, in writes of `size` bytes. Returns the bytes and seconds that the
/// receiver reports.
pub(super) fn by_tcp(
    pair: &Pair,
    tools: &Tools,
    (host, port): (Ipv4Addr, u16),
    (seconds, size): (&str, usize),
) -> Result<(f64, f64)> {
    let server = pair.serve(&tools.bulk, &["receive", &port.to_string()])?;
    let mut sender = pair.alpha.command(&tools.bulk);
    sender.args(["send", &format!("{host}:{port}"), seconds, &size.to_string()]);
    transferred(pair, server, sender)
}

/// Runs a sender to its end. Returns the bytes and seconds that its receiver reports.
fn transferred(pair: &Pair, server: Process, sender: Command) -> Result<(f64, f64)> {
    pair.alpha.run("sender", sender, LIMIT)?.good()?;
    let output = server.finish(LIMIT)?.good()?.stdout;
    let numbers = output
        .lines()
        .last()
        .and_then(|line| line.split_once(' '))
        .context("the receiver reported nothing")?;
    let (bytes, micros): (f64, f64) = (numbers.0.parse()?, numbers.1.parse()?);
    ensure!(bytes > 0.0 && micros > 0.0, "nothing was received");
    Ok((bytes, micros / 1e6))
}

impl Bench<'_> {
    /// Measures all carriers at one size, interleaved, and adds their rows to the table.
    fn size(&self, size: usize, table: &mut Table) -> Result<Ratios> {
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
            let [tcp, usrsctp] = [0, 2].map(|n: usize| format!("{:.2}", median / medians[n]));
            let carrier = format!("{carrier:?}").to_lowercase();
            table.row([size.to_string(), carrier, speed, cpu, tcp, usrsctp]);
        }
        Ok(Ratios { tcp: medians[1] / medians[0], usrsctp: medians[1] / medians[2] })
    }

    /// Measures one run. Checks that the daemons carried one connection over SCTP for the shim, and no connection for another carrier.
    fn measure(&self, carrier: Carrier, size: usize, samples: &mut Samples) -> Result<()> {
        let connects_before = self.daemons.connects_sctp()?;
        samples.take(&self.pair, DAEMON, || self.stream(carrier, SECONDS, size))?;
        let connects = self.daemons.connects_sctp()? - connects_before;
        let expected = u64::from(carrier == Carrier::Shim);
        ensure!(connects == expected, "{connects} connections were carried over SCTP instead of {expected}");
        Ok(())
    }

    /// Transfers bytes for `seconds`. Returns the bytes and seconds that the receiver reports.
    fn stream(&self, carrier: Carrier, seconds: &str, size: usize) -> Result<(f64, f64)> {
        let to = |port| (self.link.link().right_v4(), port);
        match carrier {
            Carrier::Tcp => by_tcp(&self.pair, self.tools, to(TCP_PORT), (seconds, size)),
            Carrier::Shim => by_tcp(&self.pair, self.tools, to(SHIM_PORT), (seconds, size)),
            Carrier::Usrsctp => {
                let (server, sender) = self.usrsctp(seconds, size)?;
                transferred(&self.pair, server, sender)
            }
        }
    }

    fn usrsctp(&self, seconds: &str, size: usize) -> Result<(Process, Command)> {
        let server = self.pair.serve(self.usrsctp, &["receive", USRSCTP_PORT, USRSCTP_UDP_PORT])?;
        let to = self.link.link().right_v4().to_string();
        let args = ["send", &to, USRSCTP_PORT, USRSCTP_UDP_PORT, seconds, &size.to_string()];
        let mut sender = self.pair.alpha.command(self.usrsctp);
        sender.args(args);
        Ok((server, sender))
    }

    /// Checks with a capture that the shim's traffic is SCTP and not TCP.
    fn ensure_shim_is_sctp(&self) -> Result<()> {
        let capture = Capture::start(&self.pair.alpha, "is-sctp", &[&self.link.link().name()])?;
        self.stream(Carrier::Shim, "0.1", 65_536)?;
        let seen = capture.judge()?;
        ensure!(
            seen.tcp == 0 && seen.sctp > 0,
            "the shim's stream used {}, {} TCP packets",
            seen.carrier(),
            seen.tcp
        );
        Ok(())
    }
}

/// Overwrites the last line of the terminal. Does nothing if standard error is not a terminal.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{text:60}\r");
    }
}
