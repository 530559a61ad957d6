//! `cmt`: goodput of one connection over two paths at once, compared with the goodput of each path alone.
//!
//! The connection uses sctpify or MPTCP. With sctpify, SCTP carries the connection of an unmodified TCP
//! program, with the daemon's setting `multipath = "lowest-rtt"`. Goodput counts the bytes that the receiving
//! program reads after the first seconds, in which the congestion windows still grow.

use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::settings::{DaemonSettings, FellBack};
use crate::ttcp;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::net::IpAddr;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT};
use testbed::{DelayedLink, Lab};

const PANEL: &str = "goodput";
/// Names of the series.
const SUM: &str = "ours, sum of the paths alone";
const TCP_SUM: &str = "TCP, sum of the paths alone";
const OURS: &str = "ours, both at once";
const MPTCP: &str = "MPTCP, both at once";
/// Limit on the time of a cell, not including its transmission.
const LIMIT: Duration = Duration::from_secs(20);
/// Usual time of a cell, not including its transmission, in seconds.
const OVERHEAD_S: f64 = 2.0;
/// Size of the program's writes, in bytes.
const WRITE_BYTES: &str = "65536";
/// Minimum share (0 to 1) of the bytes on each of two paths. If a path has a lower share, the measurement
/// fails.
const SHARE_MIN: f64 = 0.01;

/// Measures of the series that use each path alone.
const OF_SUMS: &[&str] = &["mbit_per_s", "best_mbit_per_s", "first_mbit_per_s", "second_mbit_per_s"];
/// Measures of the series that use both paths at once.
const OF_BOTH: &[&str] = &["mbit_per_s", "lost_in_queues", "second_path_share"];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cmt {
    repetitions: u32,
    /// Time that the receiver reads, in seconds.
    seconds: f64,
    /// Initial part of `seconds` whose bytes the receiver does not count, in seconds.
    after: f64,
    series: Vec<String>,
    /// Indices of the measured pairs in `pairs`. The indices are also the x values.
    chosen: Vec<usize>,
    pairs: Vec<PathPair>,
    daemon: DaemonSettings,
}

/// Two paths, each described by arguments of `linkemu`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PathPair {
    first: String,
    second: String,
}

/// The transport of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    Ours,
    Tcp,
    Mptcp,
}

impl Experiment for Cmt {
    fn points(&self) -> Vec<Planned> {
        let point = |x: usize, series: &String| Planned {
            point: Point::new(PANEL, series, x as f64),
            repetitions: self.repetitions,
            seconds: self.seconds + OVERHEAD_S,
            measures: if matches!(&**series, SUM | TCP_SUM) { OF_SUMS } else { OF_BOTH }.to_vec(),
        };
        self.chosen.iter().flat_map(|&x| self.series.iter().map(move |series| point(x, series))).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let pair = self.pairs.get(cell.point.x as usize).context("no such pair of paths")?;
        let both = [(1, &*pair.first), (2, &*pair.second)];
        let configuration = self.daemon.configuration(&cell.point.series);
        let run = |transport, paths: &[(u8, &str)]| {
            Hosts::new(environment, paths, cell.seed, transport, &configuration)?
                .goodput(self.seconds, self.after)
        };
        match &*cell.point.series {
            OURS => run(Transport::Ours, &both),
            MPTCP => run(Transport::Mptcp, &both),
            SUM => sum(|path| run(Transport::Ours, &[path]), both),
            TCP_SUM => sum(|path| run(Transport::Tcp, &[path]), both),
            other => bail!("unknown series {other:?}"),
        }
    }
}

/// Measures each path alone. Both measurements run at the same time, each between its own two hosts.
fn sum<'a>(
    alone: impl Fn((u8, &'a str)) -> Result<Measures> + Sync,
    paths: [(u8, &'a str); 2],
) -> Result<Measures> {
    let alone = &alone;
    let measured = std::thread::scope(|scope| {
        paths.map(|path| scope.spawn(move || alone(path))).map(|thread| match thread.join() {
            Ok(outcome) => Ok(outcome?["mbit_per_s"]),
            Err(_) => bail!("a path's measurement panicked"),
        })
    });
    let [first, second] = measured;
    let (first, second) = (first?, second?);
    Ok(Measures::from([
        ("mbit_per_s".to_owned(), first + second),
        ("best_mbit_per_s".to_owned(), first.max(second)),
        ("first_mbit_per_s".to_owned(), first),
        ("second_mbit_per_s".to_owned(), second),
    ]))
}

/// Two hosts joined by one or two paths, ready for connections.
struct Hosts {
    transport: Transport,
    daemons: Option<Daemons>,
    links: Vec<DelayedLink>,
    pair: Pair,
    _lab: Lab,
}

impl Hosts {
    fn new(
        environment: &Environment,
        paths: &[(u8, &str)],
        seed: u64,
        transport: Transport,
        configuration: &str,
    ) -> Result<Self> {
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let mut links = Vec::new();
        for (number, settings) in paths {
            let seed = (seed ^ u64::from(*number)).to_string();
            let mut words: Vec<&str> = settings.split(' ').collect();
            words.extend(["--seed", &seed]);
            let linkemu = &environment.tools.linkemu;
            let link = DelayedLink::emulated(&lab, &pair.alpha, &pair.beta, *number, &words, linkemu)?;
            // TCP uses CUBIC, as our stack does, regardless of the host's default.
            link.link.set_left_tcp_control("cubic")?;
            links.push(link);
        }
        let daemons = match transport {
            Transport::Ours => Some(pair.start_daemons_with(&environment.tools, configuration)?),
            Transport::Mptcp => {
                use_all_paths(&pair, &links)?;
                None
            }
            Transport::Tcp => None,
        };
        Ok(Self { transport, daemons, links, pair, _lab: lab })
    }

    /// Returns the goodput from alpha to beta in Mbit/s. With two paths, also returns the number of packets
    /// lost in the links' queues, and the second path's share of the bytes.
    fn goodput(&self, seconds: f64, after: f64) -> Result<Measures> {
        let (port, over) = match self.transport {
            Transport::Ours => (SHIM_PORT, "tcp"),
            Transport::Tcp => (TCP_PORT, "tcp"),
            Transport::Mptcp => (TCP_PORT, "mptcp"),
        };
        let to = IpAddr::V4(self.links[0].link.right_v4()).to_string();
        let (port, [seconds_word, after_word]) =
            (port.to_string(), [seconds, after].map(|it| it.to_string()));
        let common = ["-s", "-l", WRITE_BYTES, "-p", &port, "--over", over, "--json"];
        let limits = ["-r", "--for", &seconds_word, "--after", &after_word];
        let receiver = ttcp::command(&self.pair.beta, &[&common[..], &limits].concat())?;
        let server = ttcp::listening(&self.pair.beta, receiver)?;
        let long = (seconds + LIMIT.as_secs_f64()).to_string();
        let sender = ttcp::command(&self.pair.alpha, &[&common[..], &["-t", &to, "--for", &long]].concat())?;
        let sender = self.pair.alpha.spawn("sender", sender)?;
        let output = server.finish(Duration::from_secs_f64(seconds) + LIMIT)?.good()?.stdout;
        sender.stop();
        self.ensure_over_sctp()?;
        let report: ttcp::Report = serde_json::from_str(output.trim()).context("ttcp reported no figures")?;
        ensure!(report.real_s > 0.0, "nothing was received");
        let mut measures =
            Measures::from([("mbit_per_s".to_owned(), report.bytes as f64 * 8.0 / 1e6 / report.real_s)]);
        if let [first, second] = &self.links[..] {
            let lost = counted(first, "lost_in_queue")? + counted(second, "lost_in_queue")?;
            measures.insert("lost_in_queues".to_owned(), lost);
            let (first, second) = (counted(first, "passed_bytes")?, counted(second, "passed_bytes")?);
            let share = second / (first + second);
            ensure!((SHARE_MIN..=1.0 - SHARE_MIN).contains(&share), "the second path carried {share} of all");
            measures.insert("second_path_share".to_owned(), share);
        }
        Ok(measures)
    }

    /// Fails if daemons run but SCTP did not carry the connection.
    fn ensure_over_sctp(&self) -> Result<()> {
        if let Some(daemons) = &self.daemons {
            let over_sctp = daemons.connects_sctp()?;
            if over_sctp != 1 {
                let why = daemons.recent_fallbacks()?;
                return Err(FellBack(format!("{over_sctp} connections were carried over SCTP: {why}")).into());
            }
        }
        Ok(())
    }
}

/// Makes MPTCP use all paths. The server announces its addresses on all links except the first, and the
/// client opens subflows to these addresses.
fn use_all_paths(pair: &Pair, links: &[DelayedLink]) -> Result<()> {
    for host in [&pair.alpha, &pair.beta] {
        host.ip(&["mptcp", "limits", "set", "subflows", "4", "add_addr_accepted", "4"])?;
    }
    for other in links.iter().skip(1) {
        let address = other.link.right_v4().to_string();
        pair.beta.ip(&["mptcp", "endpoint", "add", &address, "dev", &other.link.name(), "signal"])?;
    }
    Ok(())
}

/// Returns one of a link's packet counters, for the direction from left to right.
fn counted(link: &DelayedLink, what: &str) -> Result<f64> {
    let shown = link.show()?;
    shown["directions"][0]["packets"][what].as_f64().with_context(|| format!("linkemu reports no {what}"))
}
