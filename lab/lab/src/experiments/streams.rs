//! `streams`: duration of many short connections as streams of one association, compared with TCP
//! connections.
//!
//! The experiment also measures head-of-line blocking between small messages and large messages. The two
//! kinds of messages use two streams, two associations, two TCP connections, or one TCP connection.

use super::exchange;
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::manifest::Statistic;
use crate::settings::{DaemonSettings, FellBack};
use crate::statistics::Sample;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT};
use testbed::{DelayedLink, Lab};

const SHORT: &str = "short connections";
const BLOCKING: &str = "blocking";
/// Measures of short connections.
const OF_SHORT: &[&str] = &["seconds", "connect_ms"];
/// Measures of head-of-line blocking.
const OF_BLOCKING: &[&str] = &["median_ms", "p95_ms", "max_ms"];
/// Limit on the run time of each program.
const LIMIT: Duration = Duration::from_secs(120);
/// Time of a cell in addition to its load, in seconds.
const OVERHEAD_S: f64 = 2.0;
/// Packet length in bytes that only packets with large messages exceed.
const LARGE_BYTES: &str = "800";

/// The transport of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    /// Each connection is a TCP connection.
    Tcp,
    /// One TCP connection carries all messages.
    OneTcp,
    /// Each connection has a separate association.
    Own,
    /// All connections are streams of one association.
    Shared,
}

const TRANSPORTS: [(&str, Transport); 4] = [
    ("TCP connections", Transport::Tcp),
    ("one TCP connection", Transport::OneTcp),
    ("associations of their own", Transport::Own),
    ("streams of one association", Transport::Shared),
];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Streams {
    repetitions: u32,
    daemon: DaemonSettings,
    short: Short,
    blocking: Blocking,
}

/// Short connections, each of which fetches some bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    series: Vec<String>,
    rtt_ms: Vec<u16>,
    /// Number of connections.
    count: u32,
    /// Number of concurrent connections.
    parallel: u32,
    /// Number of bytes that each connection fetches.
    bytes: u32,
    /// Number of measured calls of connect(), one after another.
    connects: u32,
}

/// Small messages and large messages at the same time. Some of the large messages are lost.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Blocking {
    series: Vec<String>,
    rtt_ms: u16,
    /// Loss rates of large messages, in percent. Each is a divisor of 100, or 0.
    loss: Vec<u16>,
    seconds: f64,
}

impl Experiment for Streams {
    fn points(&self) -> Vec<Planned> {
        let (repetitions, short, blocking) = (self.repetitions, &self.short, &self.blocking);
        let planned = |panel, series: &String, x: u16, seconds: f64| Planned {
            point: Point::new(panel, series, f64::from(x)),
            repetitions,
            seconds: seconds + OVERHEAD_S,
            measures: if panel == SHORT { OF_SHORT } else { OF_BLOCKING }.to_vec(),
        };
        let short = short.rtt_ms.iter().flat_map(|&rtt_ms| {
            let turns = f64::from(short.connects) + 4.0 * f64::from(short.count / short.parallel);
            let seconds = turns * f64::from(rtt_ms) / 1e3;
            short.series.iter().map(move |series| planned(SHORT, series, rtt_ms, seconds))
        });
        let blocking = blocking.loss.iter().flat_map(|&loss| {
            blocking.series.iter().map(move |series| planned(BLOCKING, series, loss, blocking.seconds))
        });
        short.chain(blocking).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let Point { panel, series, x } = &cell.point;
        let transport = TRANSPORTS.iter().find(|(name, _)| name == series).context("no such series")?.1;
        let is_short = panel == SHORT;
        let rtt_ms = if is_short { *x } else { f64::from(self.blocking.rtt_ms) };
        let configuration = self.daemon.configuration(series);
        let hosts =
            Hosts::new(environment, transport, Duration::from_secs_f64(rtt_ms / 1e3), &configuration)?;
        if is_short { hosts.short(&self.short) } else { hosts.blocking(*x as u16, self.blocking.seconds) }
    }
}

/// Two hosts, ready for connections.
struct Hosts<'a> {
    environment: &'a Environment,
    transport: Transport,
    port: u16,
    daemons: Daemons,
    link: DelayedLink,
    pair: Pair,
    _lab: Lab,
}

impl<'a> Hosts<'a> {
    fn new(
        environment: &'a Environment,
        transport: Transport,
        rtt: Duration,
        configuration: &str,
    ) -> Result<Self> {
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let link =
            DelayedLink::between(&lab, &pair.alpha, &pair.beta, 1, rtt / 2, &environment.tools.linkemu)?;
        link.link.set_left_tcp_control("cubic")?;
        let daemons = pair.start_daemons_with(&environment.tools, configuration)?;
        let port = if matches!(transport, Transport::Tcp | Transport::OneTcp) { TCP_PORT } else { SHIM_PORT };
        let hosts = Self { environment, transport, port, daemons, link, pair, _lab: lab };
        hosts.prepare()?;
        Ok(hosts)
    }

    /// Resolves the link-layer addresses. Sets up the shared association if the transport uses one.
    fn prepare(&self) -> Result<()> {
        let server = exchange::serve(&self.pair, self.port, &self.environment.tools)?;
        let to = self.link.link.right_v4();
        let connect = || exchange::once(&self.pair, to, self.port, &self.environment.tools).map(drop);
        if self.transport == Transport::Shared {
            self.daemons.connect_until_shared(connect)?
        } else {
            connect()?
        }
        server.stop();
        Ok(())
    }

    /// Returns the number of connections over SCTP, and how many of them use a shared association.
    fn counts(&self) -> Result<(u64, u64)> {
        Ok((self.daemons.connects_sctp()?, self.daemons.connects_shared()?))
    }

    /// Checks the transport of the connections since `before`, an earlier result of [`Self::counts`]. With an
    /// SCTP transport, fails unless exactly `count` connections used it. With a TCP transport, fails if a
    /// connection used SCTP.
    fn ensure_over_sctp(&self, before: (u64, u64), count: u64) -> Result<()> {
        let now = self.counts()?;
        let carried = (now.0 - before.0, now.1 - before.1);
        let expected = match self.transport {
            Transport::Tcp | Transport::OneTcp => (0, 0),
            Transport::Own => (count, 0),
            Transport::Shared => (count, count),
        };
        if carried != expected {
            let why = self.daemons.recent_fallbacks()?;
            return Err(FellBack(format!("{carried:?} connections instead of {expected:?}: {why}")).into());
        }
        Ok(())
    }

    /// Measures the duration of connect(), and the total duration of the short connections.
    fn short(&self, short: &Short) -> Result<Measures> {
        let (to, tools, before) = (self.link.link.right_v4(), &self.environment.tools, self.counts()?);
        let server = self.pair.serve(&tools.bulk, &["accept", &self.port.to_string()])?;
        let connects = self.pair.connect(to.into(), tools, self.port, short.connects)?;
        server.stop();
        let server = exchange::serve(&self.pair, self.port, tools)?;
        let mut command = self.pair.alpha.command(&tools.bulk);
        let numbers = [short.count, short.bytes, short.parallel].map(|number| number.to_string());
        command.args(["fetch", &format!("{to}:{}", self.port)]).args(numbers);
        let output = self.pair.alpha.run("fetch", command, LIMIT)?.good()?.stdout;
        server.stop();
        self.ensure_over_sctp(before, u64::from(short.connects) + u64::from(short.count))?;
        let micros = output.split_whitespace().nth(1).context("the client reported no time")?;
        let connect = Sample::new(connects).context("no connect was timed")?.figure(Statistic::Median);
        Ok(Measures::from([
            ("seconds".to_owned(), micros.parse::<f64>()? / 1e6),
            ("connect_ms".to_owned(), connect.value / 1e3),
        ]))
    }

    /// Measures the latency of small messages while `loss` percent of the large messages are lost.
    fn blocking(&self, loss: u16, seconds: f64) -> Result<Measures> {
        if loss > 0 {
            self.lose_large(loss)?;
        }
        let (program, before) = (self.environment.tools.programs.path("messages"), self.counts()?);
        let (count, words) = if self.transport == Transport::OneTcp { (1, "one") } else { (2, "two") };
        let server = self.pair.serve(&program, &["receive", &self.port.to_string(), &count.to_string()])?;
        let to = format!("{}:{}", self.link.link.right_v4(), self.port);
        let mut sender = self.pair.alpha.command(&program);
        sender.args(["send", &to, &seconds.to_string(), words]);
        self.pair.alpha.run("sender", sender, LIMIT)?.good()?;
        let output = server.finish(LIMIT)?.good()?.stdout;
        self.ensure_over_sctp(before, count)?;
        let delays = output.lines().filter_map(|line| line.parse::<f64>().ok()).map(|micros| micros / 1e3);
        let delays = Sample::new(delays).context("no small message arrived")?;
        let figure = |statistic| delays.figure(statistic).value;
        Ok(Measures::from([
            ("median_ms".to_owned(), figure(Statistic::Median)),
            ("p95_ms".to_owned(), figure(Statistic::P95)),
            ("max_ms".to_owned(), figure(Statistic::Max)),
        ]))
    }

    /// Drops every n-th arriving packet of large messages, where n is 100 / `loss`.
    fn lose_large(&self, loss: u16) -> Result<()> {
        let (name, every) = (self.link.link.name(), (100 / loss).to_string());
        let chain = format!("{{ type filter hook ingress device {name} priority -400; }}");
        let rule = format!("meta length > {LARGE_BYTES} numgen inc mod {every} 0 drop");
        let rules = format!(
            "add table netdev lose; add chain netdev lose large {chain}; add rule netdev lose large {rule}"
        );
        self.pair.beta.tool("nft", &[&rules]).map(drop)
    }
}
