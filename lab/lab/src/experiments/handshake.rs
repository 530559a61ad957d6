//! `handshake`: duration and packet count of a short exchange.
//!
//! In three series, a TCP program has the exchange over TCP, over a separate association, or over a stream
//! of an established association. In two series, a native SCTP program has the exchange.

use super::exchange;
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::settings::{DaemonSettings, FellBack};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT};
use testbed::{Capture, DelayedLink, Lab, Link, Process};

/// The SCTP port of the native server.
const NATIVE_PORT: &str = "7";
/// Approximate duration of one cell with a capture, in seconds. The capture takes most of this time. Cells
/// without a capture have the same estimate.
const SECONDS: f64 = 6.0;
const TIME: &str = "time";
const PACKETS: &str = "packets";
const OF_TIME: &[&str] = &["milliseconds", "round_trips"];

/// The transport of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    Tcp,
    Own,
    Stream,
    Native,
    NativeEarly,
}

const TRANSPORTS: [(Transport, &str); 5] = [
    (Transport::Tcp, "tcp"),
    (Transport::Own, "own association"),
    (Transport::Stream, "stream of a live association"),
    (Transport::Native, "native SCTP"),
    (Transport::NativeEarly, "native SCTP, data with COOKIE ECHO"),
];

impl Transport {
    /// Reports whether the shim carries the connection.
    fn has_daemons(self) -> bool {
        matches!(self, Transport::Own | Transport::Stream)
    }
}

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Handshake {
    rtt_ms: Vec<u16>,
    repetitions: u32,
    daemon: DaemonSettings,
}

impl Experiment for Handshake {
    fn points(&self) -> Vec<Planned> {
        let at = |panel, rtt_ms: u16| {
            TRANSPORTS.iter().map(move |(_, series)| Planned {
                point: Point::new(panel, series, f64::from(rtt_ms)),
                repetitions: self.repetitions,
                seconds: SECONDS,
                measures: if panel == TIME { OF_TIME } else { &["packets"] }.to_vec(),
            })
        };
        self.rtt_ms
            .iter()
            .flat_map(|&rtt_ms| [TIME, PACKETS].into_iter().flat_map(move |it| at(it, rtt_ms)))
            .collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let (transport, _) =
            *TRANSPORTS.iter().find(|(_, name)| *name == cell.point.series).context("no such series")?;
        let rtt = Duration::from_secs_f64(cell.point.x / 1e3);
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let link =
            DelayedLink::between(&lab, &pair.alpha, &pair.beta, 1, rtt / 2, &environment.tools.linkemu)?;
        let configuration = self.daemon.configuration(&cell.point.series);
        let client = Client::ready(environment, &pair, &link.link, transport, &configuration)?;
        match &*cell.point.panel {
            TIME => client.time(rtt),
            _ => client.packets(rtt),
        }
    }
}

/// The client of the exchange, with a server that listens.
struct Client<'a> {
    environment: &'a Environment,
    pair: &'a Pair,
    link: &'a Link,
    transport: Transport,
    /// Both hosts' daemons, if the shim carries the connection.
    daemons: Option<Daemons>,
    _server: Process,
}

impl<'a> Client<'a> {
    /// Starts the server, and runs one exchange in preparation, which resolves the link-layer addresses. If
    /// a shared association will carry the measured exchange, the function also waits until the shared
    /// association is up.
    fn ready(
        environment: &'a Environment,
        pair: &'a Pair,
        link: &'a Link,
        transport: Transport,
        configuration: &str,
    ) -> Result<Self> {
        let daemons =
            transport.has_daemons().then(|| pair.start_daemons_with(&environment.tools, configuration));
        let daemons = daemons.transpose()?;
        let _server = match transport {
            Transport::Tcp => exchange::serve(pair, TCP_PORT, &environment.tools)?,
            Transport::Own | Transport::Stream => exchange::serve(pair, SHIM_PORT, &environment.tools)?,
            Transport::Native | Transport::NativeEarly => {
                let mut command = pair.beta.command(environment.tools.programs.path("peer"));
                command.args(["--local", &link.right_v4().to_string(), "serve", NATIVE_PORT]);
                pair.serve_command(command)?
            }
        };
        let client = Self { environment, pair, link, transport, daemons, _server };
        match (transport, &client.daemons) {
            (Transport::Stream, Some(daemons)) => {
                daemons.connect_until_shared(|| client.once().map(drop))?;
            }
            _ => drop(client.once()?),
        }
        Ok(client)
    }

    /// Runs one exchange and returns its duration.
    fn once(&self) -> Result<Duration> {
        let to = self.link.right_v4();
        match self.transport {
            Transport::Tcp => exchange::once(self.pair, to, TCP_PORT, &self.environment.tools),
            Transport::Own | Transport::Stream => {
                exchange::once(self.pair, to, SHIM_PORT, &self.environment.tools)
            }
            Transport::Native => self.native(&[]),
            Transport::NativeEarly => self.native(&["--with-cookie-echo"]),
        }
    }

    /// Sets up an association from the native client to the native server, and sends a message. Returns the
    /// time from the start of the handshake to the answer.
    fn native(&self, flags: &[&str]) -> Result<Duration> {
        let (from, to) = (self.link.left_v4().to_string(), self.link.right_v4().to_string());
        let mut command = self.pair.alpha.command(self.environment.tools.programs.path("peer"));
        command.args(["--local", &from, "first", &to, NATIVE_PORT, exchange::ANSWER]).args(flags);
        let output = self.pair.alpha.run("first", command, exchange::LIMIT)?.good()?.stdout;
        Ok(Duration::from_micros(output.trim().parse()?))
    }

    /// Runs one exchange. Fails if the exchange did not use the transport of the series.
    fn judged(&self) -> Result<Duration> {
        let counts = |daemons: &Daemons| anyhow::Ok((daemons.connects_sctp()?, daemons.connects_shared()?));
        let before = self.daemons.as_ref().map(counts).transpose()?;
        let time = self.once()?;
        if let (Some(daemons), Some(before)) = (&self.daemons, before) {
            let (sctp, shared) = counts(daemons)?;
            let found = (sctp - before.0, shared - before.1);
            let expected = if self.transport == Transport::Stream { (1, 1) } else { (1, 0) };
            if found != expected {
                let why = daemons.recent_fallbacks()?;
                return Err(FellBack(format!("{found:?} were carried over SCTP and shared: {why}")).into());
            }
        }
        Ok(time)
    }

    fn time(&self, rtt: Duration) -> Result<Measures> {
        let time = self.judged()?;
        Ok(Measures::from([
            ("milliseconds".to_owned(), time.as_secs_f64() * 1e3),
            ("round_trips".to_owned(), time.as_secs_f64() / rtt.as_secs_f64()),
        ]))
    }

    fn packets(&self, rtt: Duration) -> Result<Measures> {
        // Lets the last packets of the previous exchange pass first.
        std::thread::sleep(2 * rtt);
        let capture = Capture::start(&self.pair.alpha, "exchange", &[&self.link.name()])?;
        self.judged()?;
        std::thread::sleep(2 * rtt);
        let seen = capture.judge()?;
        Ok(Measures::from([("packets".to_owned(), (seen.tcp + seen.sctp) as f64)]))
    }
}
