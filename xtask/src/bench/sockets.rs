//! Measures an unmodified program with SCTP sockets, once with the preloaded library and once under the seccomp supervisor. Compares this
//! program with two others: one is written for our stack, and one is written for usrsctp.
//!
//! Two hosts share one link with offloads. All contenders use SCTP over UDP, and take turns.

use super::report::Report;
use super::sctp::rate;
use crate::optimised;
use anyhow::{Context, Result, ensure};
use pages::stats::{percentile, spread};
use pages::{Limit, Table};
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use testbed::pair::Pair;
use testbed::{Host, Lab, Link, Offloads, c_programs};

const PORT: &str = "5001";
const UDP_PORT: &str = "9899";
/// UDP port of the socket servers. A socket server outlives its programs, so it needs a port that no other contender uses.
const OWN_UDP_PORT: &str = "9900";
/// Number of runs of each contender.
const REPETITIONS: usize = 5;
/// Sending time, in seconds.
const SECONDS: &str = "2";
/// Number of round trips in one run.
const PINGS: &str = "5000";
/// Number of connects in one run.
const CONNECTS: &str = "2000";
const LIMIT: Duration = Duration::from_secs(60);

/// Minimum rate of messages of 64 octets with the library, per second.
const LIBRARY_MESSAGES: f64 = 150_000.0;
/// Minimum rate of messages of 64 octets under the supervisor, per second.
const SUPERVISED_MESSAGES: f64 = 20_000.0;
/// Minimum throughput with the library in messages of 64 KiB, as a share of the throughput of the program `peer`.
const BULK_BY_PEER: f64 = 0.8;
/// Minimum rate of messages of 1,024 octets with the library, as a multiple of usrsctp's rate.
const MESSAGES_BY_USRSCTP: f64 = 10.0;
/// Minimum rate of connects with the library, per second.
const CONNECTS_PER_SECOND: f64 = 2_000.0;
/// Limit on the time that the library adds at each host in each direction, in microseconds.
const ADDED_US: f64 = 10.0;

/// A program together with its access to SCTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Library,
    Supervised,
    /// The program of the crate `peer`, on our stack.
    Peer,
    Usrsctp,
}

const ALL: [Contender; 4] = [Contender::Library, Contender::Supervised, Contender::Peer, Contender::Usrsctp];

impl Display for Contender {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Contender::Library => "sockets, library",
            Contender::Supervised => "sockets, seccomp",
            Contender::Peer => "our stack",
            Contender::Usrsctp => "usrsctp",
        })
    }
}

/// The hosts, and the contenders' programs.
struct Bench {
    pair: Pair,
    link: Link,
    bin: PathBuf,
    sockets: PathBuf,
    peer: PathBuf,
    usrsctp: PathBuf,
}

/// Measures and judges everything.
pub(crate) fn run(lab: &Lab, report: &mut Report) -> Result<()> {
    let (bin, peer) = (optimised::sockets()?, optimised::peer()?);
    let sockets = c_programs::build("sctp_bench", lab.dir(), &[])?;
    let usrsctp = c_programs::build("usrsctp_bench", lab.dir(), &["usrsctp", "pthread"])?;
    let pair = Pair::new(lab, "-sockets")?;
    let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
    let bench = Bench { pair, link, bin, sockets, peer, usrsctp };

    let [small, medium, large] = [64, 1024, 65_536].map(|size| bench.each(&ALL, |it| bench.bulk(it, size)));
    let [small, medium, large] = [small?, medium?, large?];
    let pings = bench.each(&ALL, |it| bench.ping(it))?;
    let connects = bench.each(&ALL[..3], |it| bench.connects(it))?;
    let head = [
        "program",
        "64 B: messages/s",
        "1,024 B: messages/s",
        "64 KiB: Gbit/s",
        "round trip, us",
        "connects/s",
    ];
    let mut table = Table::new("One stream, by contender: median (least-greatest)", head);
    for (n, contender) in ALL.into_iter().enumerate() {
        let per_second = |samples: &[Vec<f64>], size: f64| {
            spread(&samples[n].iter().map(|rate| rate / size).collect::<Vec<_>>())
        };
        let gbit: Vec<f64> = large[n].iter().map(|rate| rate * 8.0 / 1e9).collect();
        table.row([
            contender.to_string(),
            per_second(&small, 64.0),
            per_second(&medium, 1024.0),
            spread(&gbit),
            spread(&pings[n]),
            connects.get(n).map_or_else(|| "not measured".to_owned(), |rates| spread(rates)),
        ]);
    }
    report.show(table);
    let median = |samples: &[f64]| percentile(samples, 50);
    let [library, supervised, peer, usrsctp] = [0, 1, 2, 3];
    let messages = |n: usize| small[n].iter().map(|rate| rate / 64.0).collect::<Vec<_>>();
    report.judge("library, 64 B, messages/s", &messages(library), Limit::AtLeast(LIBRARY_MESSAGES));
    report.judge("seccomp, 64 B, messages/s", &messages(supervised), Limit::AtLeast(SUPERVISED_MESSAGES));
    let ratio = |samples: &[Vec<f64>], other: usize| median(&samples[library]) / median(&samples[other]);
    report.judge(
        "library, 64 KiB, by our stack's own program",
        &[ratio(&large, peer)],
        Limit::AtLeast(BULK_BY_PEER),
    );
    report.judge(
        "library, 1,024 B, by usrsctp",
        &[ratio(&medium, usrsctp)],
        Limit::AtLeast(MESSAGES_BY_USRSCTP),
    );
    let added = (median(&pings[library]) - median(&pings[peer])) / 4.0;
    report.judge("library, time added by each of both hosts each way, us", &[added], Limit::AtMost(ADDED_US));
    report.judge("library, connects/s", &connects[library], Limit::AtLeast(CONNECTS_PER_SECOND));
    Ok(())
}

impl Bench {
    /// Measures each contender in turn, [`REPETITIONS`] times. Returns the samples of each contender.
    fn each(&self, all: &[Contender], measure: impl Fn(Contender) -> Result<f64>) -> Result<Vec<Vec<f64>>> {
        let mut samples = vec![Vec::new(); all.len()];
        for _ in 0..REPETITIONS {
            for (sample, &contender) in samples.iter_mut().zip(all) {
                sample.push(measure(contender).with_context(|| contender.to_string())?);
            }
        }
        Ok(samples)
    }

    /// Returns the throughput in octets per second, with messages of `size` octets.
    fn bulk(&self, contender: Contender, size: u32) -> Result<f64> {
        let server = self.pair.serve_command(self.server(contender, "receive"))?;
        let client = self.client(contender, "send", &[SECONDS, &size.to_string()]);
        self.pair.alpha.run("client", client, LIMIT)?.good()?;
        rate(&server.finish(LIMIT)?.good()?.stdout)
    }

    /// Returns the median round trip of 64 octets, in microseconds.
    fn ping(&self, contender: Contender) -> Result<f64> {
        let output = self.ask(contender, "ping", &[PINGS, "64"])?;
        let micros: Vec<f64> = output.lines().filter_map(|line| line.parse().ok()).collect();
        ensure!(!micros.is_empty(), "no round trip was reported");
        Ok(percentile(&micros, 50))
    }

    /// Returns the number of connects per second.
    fn connects(&self, contender: Contender) -> Result<f64> {
        rate(&self.ask(contender, "connects", &[CONNECTS])?)
    }

    fn ask(&self, contender: Contender, mode: &str, amounts: &[&str]) -> Result<String> {
        let server = self.pair.serve_command(self.server(contender, "serve"))?;
        let client = self.client(contender, mode, amounts);
        let output = self.pair.alpha.run("client", client, LIMIT)?.good()?.stdout;
        server.stop();
        Ok(output)
    }

    fn server(&self, contender: Contender, mode: &str) -> Command {
        let mut command = self.program(&self.pair.beta, contender, self.link.right_v4());
        command.args([mode, PORT]);
        if contender == Contender::Usrsctp {
            command.arg(UDP_PORT);
        }
        command
    }

    fn client(&self, contender: Contender, mode: &str, amounts: &[&str]) -> Command {
        let mut command = self.program(&self.pair.alpha, contender, self.link.left_v4());
        command.args([mode, &self.link.right_v4().to_string(), PORT]);
        if contender == Contender::Usrsctp {
            command.arg(UDP_PORT);
        }
        command.args(amounts);
        command
    }

    /// Returns a contender's command on a host. The caller adds the mode and the amounts.
    fn program(&self, host: &Host, contender: Contender, local: impl Display) -> Command {
        let sctpify = self.bin.join("sctpify");
        let mut command = host.command(match contender {
            Contender::Library | Contender::Supervised => &sctpify,
            Contender::Peer => &self.peer,
            Contender::Usrsctp => &self.usrsctp,
        });
        let run = ["run", "--sctp", "--udp-port", OWN_UDP_PORT, "--peer-udp-port", OWN_UDP_PORT];
        match contender {
            Contender::Library => command.args(run).arg("--").arg(&self.sockets),
            Contender::Supervised => command.args(run).args(["--seccomp", "--"]).arg(&self.sockets),
            Contender::Peer => command.args(["--carrier", "udp", "--local", &local.to_string()]),
            Contender::Usrsctp => &mut command,
        };
        command
    }
}
