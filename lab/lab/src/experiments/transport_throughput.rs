//! `transport-throughput`: throughput and processor time of each transport between two hosts, by message
//! size.
//!
//! The paper's measuring program is ttcp. Our implementation of ttcp measures UDP, TCP, MPTCP and our SCTP.
//! The program `usrsctp_bench` measures libusrsctp in the same way as ttcp. For the Linux kernel's SCTP, ttcp
//! runs in two guests, where `withsctp` replaces its TCP socket with an SCTP socket. The throughput counts
//! only bytes that the receiving program has read.

use super::guests::{self, ALPHA, BETA, BETAS, WIRES};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::ttcp;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;
use testbed::pair::Pair;
use testbed::{Emulator, Lab, Link, Offloads, Process, c_programs, cpu};

/// Limit on the run time of a cell's programs. The limit is long, because usrsctp still sends queued data
/// after the measured time.
const LIMIT: Duration = Duration::from_secs(60);
/// Time of a cell, not including the transmission, in seconds.
const OVERHEAD_S: f64 = 1.0;
const PORT: &str = "5001";
/// Queue of a link with a rate, as arguments of tc-tbf(8). The bucket has room for many packets of a GSO
/// train. The full queue lasts 25 ms at 100 Mbit/s.
const QUEUE: &[&str] = &["burst", "32kb", "limit", "312kb"];

/// Queue and delay of a link between guests, as arguments of `linkemu`. The queue has about as many bytes
/// as [`QUEUE`]. The round-trip time is about the round-trip time without guests.
const GUESTS_QUEUE: [&str; 4] = ["--queue", "200", "--delay", "50us"];

/// Names of the measures.
const MEASURES: &[&str] = &["mbit_per_s", "cpu_s_per_gb"];
/// Names of the measures in guests. The processor time of a guest is not a measure, because it includes
/// more than the programs.
const GUESTS_MEASURES: &[&str] = &["mbit_per_s"];

/// A transport, with the program that uses it.
#[derive(Clone, Copy, Debug)]
enum Transport {
    /// ttcp, with its name for the transport.
    Ttcp(&'static str),
    /// libusrsctp over UDP with this port, or over IP if the port is 0.
    Usrsctp(&'static str),
    /// ttcp in guests. These words precede `ttcp` in the command line. The word `withsctp` selects the
    /// kernel's SCTP instead of the kernel's TCP.
    Guest(&'static [&'static str]),
}

const TRANSPORTS: [(&str, Transport); 9] = [
    ("UDP", Transport::Ttcp("udp")),
    ("TCP", Transport::Ttcp("tcp")),
    ("MPTCP", Transport::Ttcp("mptcp")),
    ("ours over IP", Transport::Ttcp("sctp")),
    ("ours over UDP", Transport::Ttcp("sctp-udp")),
    ("libusrsctp over IP", Transport::Usrsctp("0")),
    ("libusrsctp over UDP", Transport::Usrsctp("9899")),
    ("kernel's SCTP in guests", Transport::Guest(&["withsctp"])),
    ("TCP in guests", Transport::Guest(&[])),
];

/// Parameters of the experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportThroughput {
    repetitions: u32,
    /// Transmission time of each cell, in seconds.
    seconds: f64,
    /// A selection of [`TRANSPORTS`].
    series: Vec<String>,
    links: Vec<LinkPlan>,
    /// The guests for the series in guests, booted when needed.
    #[serde(skip)]
    guests: guests::Pool,
    /// The program that uses libusrsctp, once it is built.
    #[serde(skip)]
    usrsctp: Mutex<Option<(TempDir, PathBuf)>>,
}

/// A link, with its measurements.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkPlan {
    panel: String,
    /// Rate in the notation of tc(8). If absent, the link's rate has no limit.
    rate: Option<String>,
    /// Message sizes, in bytes.
    sizes: Vec<u32>,
    /// Series of this link in addition to [`TransportThroughput::series`].
    #[serde(default)]
    more_series: Vec<String>,
}

impl Experiment for TransportThroughput {
    fn points(&self) -> Vec<Planned> {
        let points = self.links.iter().flat_map(|link| {
            let sizes = link.sizes.iter();
            sizes.flat_map(move |&size| {
                let series = self.series.iter().chain(&link.more_series);
                series.map(move |series| Point::new(&link.panel, series, f64::from(size)))
            })
        });
        let planned = |point: Point| {
            let is_guest = matches!(transport_of(&point.series), Ok(Transport::Guest(_)));
            let measures = if is_guest { GUESTS_MEASURES } else { MEASURES }.to_vec();
            Planned { point, repetitions: self.repetitions, seconds: self.seconds + OVERHEAD_S, measures }
        };
        points.map(planned).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let Point { panel, series, x } = &cell.point;
        let transport = transport_of(series)?;
        let plan = self.links.iter().find(|link| link.panel == *panel).context("no such link")?;
        if let Transport::Guest(before) = transport {
            let rate = plan.rate.as_deref().context("guests have only links with a rate")?;
            let (bytes, seconds) = self.transfer_in_guests(environment, before, rate, *x as u32)?;
            ensure!(bytes > 0.0 && seconds > 0.0, "nothing was received");
            return Ok(Measures::from([("mbit_per_s".to_owned(), bytes * 8.0 / 1e6 / seconds)]));
        }
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
        if let Some(rate) = &plan.rate {
            for host in [&pair.alpha, &pair.beta] {
                let words = ["qdisc", "add", "dev", &*link.name(), "root", "tbf", "rate", rate];
                host.tool("tc", &[&words, QUEUE].concat())?;
            }
        }
        let before = cpu::of_ended_children()?;
        let (bytes, seconds) = self.transfer(&pair, &link, transport, *x as u32)?;
        let cpu = cpu::of_ended_children()? - before;
        ensure!(bytes > 0.0 && seconds > 0.0, "nothing was received");
        Ok(Measures::from([
            ("mbit_per_s".to_owned(), bytes * 8.0 / 1e6 / seconds),
            ("cpu_s_per_gb".to_owned(), cpu.as_secs_f64() / (bytes / 1e9)),
        ]))
    }
}

impl TransportThroughput {
    /// Transfers messages of `size` bytes. Returns the number of bytes that the receiver got, and the time in
    /// seconds.
    fn transfer(&self, pair: &Pair, link: &Link, transport: Transport, size: u32) -> Result<(f64, f64)> {
        let to = link.right_v4().to_string();
        match transport {
            Transport::Ttcp(over) => {
                let size = if over == "udp" { size.min(ttcp::DATAGRAM_MAX) } else { size }.to_string();
                let common = ["-s", "-l", &size, "-p", PORT, "--over", over, "--json"];
                let receiver = ttcp::command(&pair.beta, &[&["-r"], &common[..]].concat())?;
                let server = ttcp::listening(&pair.beta, receiver)?;
                let delay: &[&str] = if matches!(over, "tcp" | "mptcp") { &["-D"] } else { &[] };
                let time = self.seconds.to_string();
                let sender = ttcp::command(
                    &pair.alpha,
                    &[&["-t"], &common[..], delay, &["--for", &time, &to]].concat(),
                )?;
                let output = exchange(pair, server, sender)?;
                let report: ttcp::Report =
                    serde_json::from_str(output.trim()).context("ttcp reported no figures")?;
                Ok((report.bytes as f64, report.real_s))
            }
            Transport::Usrsctp(udp_port) => {
                let program = self.usrsctp()?;
                let mut receiver = pair.beta.command(&program);
                receiver.args(["receive", PORT, udp_port]);
                let server = ttcp::listening(&pair.beta, receiver)?;
                let mut sender = pair.alpha.command(&program);
                sender.args(["send", &to, PORT, udp_port, &self.seconds.to_string(), &size.to_string()]);
                let output = exchange(pair, server, sender)?;
                let figures = output.lines().last().and_then(|line| line.split_once(' '));
                let (bytes, micros) = figures.context("the receiver reported nothing")?;
                Ok((bytes.parse()?, micros.parse::<f64>()? / 1e6))
            }
            Transport::Guest(_) => bail!("guests have their own links"),
        }
    }

    /// Transfers messages between two guests. Returns the same values as [`Self::transfer`].
    fn transfer_in_guests(
        &self,
        environment: &Environment,
        before: &[&str],
        rate: &str,
        size: u32,
    ) -> Result<(f64, f64)> {
        let guests = self.guests.take()?;
        let lab = Lab::new()?;
        let net = guests.net(&lab);
        let settings = [&["--rate", rate], &GUESTS_QUEUE[..]].concat();
        let link = Emulator::between(&net, WIRES[0], "link", &settings, &environment.tools.linkemu)?;
        // Resolves link-layer addresses now, so no measured packet waits for ARP.
        guests.line(ALPHA, &format!("ping -q -c 1 -w 5 {}", BETAS[0]))?;
        let (own, size, time) = (std::env::current_exe()?, size.to_string(), self.seconds.to_string());
        let ttcp = |guest, words: &[&str]| {
            let mut command = guests.program(guest, self.seconds, before, &own);
            command.args(["ttcp", "-s", "-l", &size, "-p", PORT, "-D", "--json"]).args(words);
            command
        };
        let server = ttcp::listening(&net, ttcp(BETA, &["-r"]))?;
        net.run("sender", ttcp(ALPHA, &["-t", "--for", &time, BETAS[0]]), LIMIT)?.good()?;
        let output = server.finish(LIMIT)?.good()?.stdout;
        drop((link, net, lab));
        guests.end()?;
        let report: ttcp::Report = serde_json::from_str(output.trim()).context("ttcp reported no figures")?;
        Ok((report.bytes as f64, report.real_s))
    }

    /// Returns the path of the program that uses libusrsctp. The first call builds the program.
    fn usrsctp(&self) -> Result<PathBuf> {
        let Ok(mut built) = self.usrsctp.lock() else { bail!("it could not be built before") };
        if built.is_none() {
            let dir = tempfile::tempdir()?;
            let program = c_programs::build("usrsctp_bench", dir.path(), &["usrsctp", "pthread"])?;
            *built = Some((dir, program));
        }
        Ok(built.as_ref().map(|(_, program)| program.clone()).unwrap_or_default())
    }
}

fn transport_of(series: &str) -> Result<Transport> {
    Ok(TRANSPORTS.iter().find(|(name, _)| *name == series).context("no such series")?.1)
}

/// Runs the sender, waits for the receiver's end, and returns the receiver's output.
fn exchange(pair: &Pair, server: Process, sender: Command) -> Result<String> {
    pair.alpha.run("sender", sender, LIMIT)?.good()?;
    Ok(server.finish(LIMIT)?.good()?.stdout)
}
