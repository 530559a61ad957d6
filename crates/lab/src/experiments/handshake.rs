//! `handshake`: how long a short exchange takes by TCP, by an association of its own, and by a stream of an association that
//! lives already; and how many packets.

use super::exchange;
use crate::experiment::{Cell, Experiment, Measures, Place, Planned, Point};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT};
use testbed::process::wait_for;
use testbed::{Capture, DelayedLink, Lab};

/// How long one cell takes, in seconds, most of it for the capture.
const SECONDS: f64 = 6.0;
const TIME: &str = "time";
const PACKETS: &str = "packets";

/// What a connection rides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Tcp,
    Own,
    Stream,
}

const WAYS: [(Way, &str); 3] =
    [(Way::Tcp, "tcp"), (Way::Own, "own association"), (Way::Stream, "stream of a live association")];

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Handshake {
    rtt_ms: Vec<u16>,
    repetitions: u32,
}

impl Experiment for Handshake {
    fn points(&self) -> Vec<Planned> {
        let at = |panel, rtt_ms: u16| {
            WAYS.iter().map(move |(_, series)| Planned {
                point: Point::new(panel, series, f64::from(rtt_ms)),
                repetitions: self.repetitions,
                seconds: SECONDS,
            })
        };
        self.rtt_ms
            .iter()
            .flat_map(|&rtt_ms| [TIME, PACKETS].into_iter().flat_map(move |it| at(it, rtt_ms)))
            .collect()
    }

    fn measure(&self, place: &Place, cell: &Cell) -> Result<Measures> {
        let (way, _) = *WAYS.iter().find(|(_, name)| *name == cell.point.series).context("no such series")?;
        let rtt = Duration::from_secs_f64(cell.point.x / 1e3);
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let link = DelayedLink::between(&lab, &pair.alpha, &pair.beta, 1, rtt / 2, &place.tools.linkemu)?;
        let streams = if way == Way::Stream { "shared" } else { "own" };
        // On a busy machine too a connection must ride what is measured.
        let configuration = format!("carriers = \"udp\"\nstreams = \"{streams}\"\nrace_timer_ms = 2000\n");
        let daemons = pair.start_daemons_with(&place.tools, &configuration)?;
        let port = if way == Way::Tcp { TCP_PORT } else { SHIM_PORT };
        let _server = exchange::serve(&pair, port, &place.tools)?;
        let exchange = Exchange { pair, link, daemons, place, way, rtt, port };
        exchange.prepare()?;
        let measures = match &*cell.point.panel {
            TIME => exchange.time()?,
            _ => exchange.packets()?,
        };
        exchange.daemons.stop();
        Ok(measures)
    }
}

/// Two hosts, ready.
struct Exchange<'a> {
    pair: Pair,
    link: DelayedLink,
    daemons: Daemons,
    place: &'a Place,
    way: Way,
    rtt: Duration,
    port: u16,
}

impl Exchange<'_> {
    /// Learns addresses of the link; with streams, sets the association up that they share.
    fn prepare(&self) -> Result<()> {
        self.once()?;
        if self.way == Way::Stream {
            let has_trunk = || self.daemons.have_trunk().unwrap_or(false);
            ensure!(wait_for(exchange::LIMIT, has_trunk), "no association is shared");
        }
        Ok(())
    }

    /// One exchange; how long it took.
    fn once(&self) -> Result<Duration> {
        let before = (self.daemons.connects_sctp()?, self.daemons.connects_shared()?);
        let time = exchange::once(&self.pair, self.link.link.right_v4(), self.port, &self.place.tools)?;
        let rode = (self.daemons.connects_sctp()? - before.0, self.daemons.connects_shared()? - before.1);
        self.ensure_rode(rode)?;
        Ok(time)
    }

    /// The first connection of two hosts that share streams has an association of its own.
    fn ensure_rode(&self, (sctp, shared): (u64, u64)) -> Result<()> {
        let is_right = match self.way {
            Way::Tcp => sctp == 0,
            Way::Own => sctp == 1 && shared == 0,
            Way::Stream => sctp == 1,
        };
        ensure!(is_right, "{sctp} rode SCTP, {shared} shared: {}", self.daemons.recent_fallbacks()?);
        Ok(())
    }

    fn time(&self) -> Result<Measures> {
        let shared_before = self.daemons.connects_shared()?;
        let time = self.once()?;
        self.ensure_shared(shared_before)?;
        Ok(Measures::from([
            ("milliseconds".to_owned(), time.as_secs_f64() * 1e3),
            ("round_trips".to_owned(), time.as_secs_f64() / self.rtt.as_secs_f64()),
        ]))
    }

    fn packets(&self) -> Result<Measures> {
        // What the exchange before has left to say comes first.
        std::thread::sleep(2 * self.rtt);
        let shared_before = self.daemons.connects_shared()?;
        let capture = Capture::start(&self.pair.alpha, "exchange", &[&self.link.link.name()])?;
        self.once()?;
        std::thread::sleep(2 * self.rtt);
        let seen = capture.judge()?;
        self.ensure_shared(shared_before)?;
        Ok(Measures::from([("packets".to_owned(), (seen.tcp + seen.sctp) as f64)]))
    }

    fn ensure_shared(&self, before: u64) -> Result<()> {
        let shared = self.daemons.connects_shared()? - before;
        ensure!(shared == u64::from(self.way == Way::Stream), "{shared} connections shared an association");
        Ok(())
    }
}
