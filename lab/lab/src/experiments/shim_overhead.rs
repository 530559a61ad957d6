//! `shim-overhead`: durations of connect(), of transfers without loss, and of connect() to hosts without
//! SCTP.
//!
//! The experiment compares TCP with the shim.

use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::manifest::Statistic;
use crate::settings::{DaemonSettings, FellBack};
use crate::statistics::Sample;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::net::IpAddr;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT};
use testbed::{DelayedLink, Lab, Link, Offloads};

/// The link of the papers.
const PAPERS_LINK: [&str; 6] = ["--rate", "1.5mbit", "--delay", "35ms", "--queue", "50"];
/// Limit on the duration of a transfer.
const LIMIT: Duration = Duration::from_secs(120);
const CONNECT: &str = "connect";
const TRANSFER: &str = "transfer";
const FALLBACK: &str = "fallback";
/// The series whose connections share an association.
const SHARED: &str = "shared association";
/// x value of a host that refuses SCTP.
const REFUSES: f64 = 0.0;
/// x value of a host that drops SCTP.
const DROPS: f64 = 1.0;
/// x value of a host that drops SCTP, after an earlier attempt over SCTP has failed.
const LEARNED: f64 = 2.0;

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShimOverhead {
    rtt_ms: Vec<u16>,
    /// Number of calls of connect() in a cell. The measure is the median of the calls' durations.
    connects: u32,
    /// Sizes of transfers, in units of 1,024 bytes.
    sizes_kb: Vec<u32>,
    repetitions: u32,
    daemon: DaemonSettings,
}

impl Experiment for ShimOverhead {
    fn points(&self) -> Vec<Planned> {
        let planned = |panel, series, x, seconds| Planned {
            point: Point::new(panel, series, x),
            repetitions: self.repetitions,
            seconds,
            measures: vec![if panel == TRANSFER { "seconds" } else { "milliseconds" }],
        };
        let mut points = Vec::new();
        for &rtt_ms in &self.rtt_ms {
            let seconds = 2.0 + f64::from(rtt_ms) / 1e3 * f64::from(self.connects) * 2.0;
            points.extend(
                ["tcp", "own association", SHARED]
                    .map(|series| planned(CONNECT, series, f64::from(rtt_ms), seconds)),
            );
        }
        for &size in &self.sizes_kb {
            let seconds = 2.0 + f64::from(size) * 8192.0 / 1.5e6;
            points.extend(["tcp", "shim"].map(|series| planned(TRANSFER, series, f64::from(size), seconds)));
        }
        points.extend([REFUSES, DROPS, LEARNED].map(|x| planned(FALLBACK, "shim", x, 2.0)));
        points
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let (series, x) = (&*cell.point.series, cell.point.x);
        match &*cell.point.panel {
            CONNECT => self.connect(environment, series, Duration::from_secs_f64(x / 1e3)),
            TRANSFER => self.transfer(environment, series, x as u64 * 1024),
            FALLBACK => self.fallback(environment, series, x),
            other => bail!("no such panel: {other}"),
        }
    }
}

impl ShimOverhead {
    fn connect(&self, environment: &Environment, series: &str, rtt: Duration) -> Result<Measures> {
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let delayed = (!rtt.is_zero()).then(|| {
            DelayedLink::between(&lab, &pair.alpha, &pair.beta, 1, rtt / 2, &environment.tools.linkemu)
        });
        let link = match delayed.transpose()? {
            Some(delayed) => Emulated::Delayed(delayed),
            None => Emulated::Direct(lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?),
        };
        let daemons = pair.start_daemons_with(&environment.tools, &self.daemon.configuration(series))?;
        let port = if series == "tcp" { TCP_PORT } else { SHIM_PORT };
        let _server = pair.serve(&environment.tools.bulk, &["accept", &port.to_string()])?;
        let to: IpAddr = link.link().right_v4().into();
        let connect = || pair.connect(to, &environment.tools, port, 1).map(drop);
        if series == SHARED {
            daemons.connect_until_shared(connect)?
        } else {
            connect()?
        }
        let before = daemons.connects_sctp()?;
        let micros = pair.connect(to, &environment.tools, port, self.connects)?;
        let expected = if port == SHIM_PORT { u64::from(self.connects) } else { 0 };
        ensure_over_sctp(&daemons, daemons.connects_sctp()? - before, expected)?;
        daemons.stop();
        let median = Sample::new(micros).context("no connect was timed")?.figure(Statistic::Median).value;
        Ok(Measures::from([("milliseconds".to_owned(), median / 1e3)]))
    }

    /// Measures a transfer from beta to alpha over the papers' link.
    fn transfer(&self, environment: &Environment, series: &str, bytes: u64) -> Result<Measures> {
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let tools = &environment.tools;
        let link = DelayedLink::emulated(&lab, &pair.alpha, &pair.beta, 1, &PAPERS_LINK, &tools.linkemu)?;
        let daemons = pair.start_daemons_with(tools, &self.daemon.configuration(series))?;
        let port = if series == "tcp" { TCP_PORT } else { SHIM_PORT };
        let _server = pair.serve(&tools.bulk, &["give", &port.to_string()])?;
        let mut command = pair.alpha.command(&tools.bulk);
        command.args(["fetch", &format!("{}:{port}", link.link.right_v4()), "1", &bytes.to_string(), "1"]);
        let output = pair.alpha.run("fetch", command, LIMIT)?.good()?.stdout;
        ensure_over_sctp(&daemons, daemons.connects_sctp()?, u64::from(port == SHIM_PORT))?;
        daemons.stop();
        let micros: f64 = output.split_whitespace().nth(1).context("the client reported no time")?.parse()?;
        Ok(Measures::from([("seconds".to_owned(), micros / 1e6)]))
    }

    /// Measures a connect to a host without SCTP.
    fn fallback(&self, environment: &Environment, series: &str, host: f64) -> Result<Measures> {
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
        let daemon = pair.start_alphas_with(&environment.tools, &self.daemon.configuration(series))?;
        let _server = pair.serve(&environment.tools.bulk, &["accept", &SHIM_PORT.to_string()])?;
        if host != REFUSES {
            pair.beta.drop_sctp()?;
        }
        let connect = || pair.connect(link.right_v4().into(), &environment.tools, SHIM_PORT, 1);
        if host == LEARNED {
            connect()?;
        }
        let micros = connect()?;
        daemon.stop();
        Ok(Measures::from([(
            "milliseconds".to_owned(),
            micros.first().context("no connect was timed")? / 1e3,
        )]))
    }
}

/// A link with or without a delay.
enum Emulated {
    Delayed(DelayedLink),
    Direct(Link),
}

impl Emulated {
    fn link(&self) -> &Link {
        match self {
            Self::Delayed(delayed) => &delayed.link,
            Self::Direct(link) => link,
        }
    }
}

fn ensure_over_sctp(daemons: &Daemons, over_sctp: u64, expected: u64) -> Result<()> {
    if over_sctp == expected {
        return Ok(());
    }
    Err(FellBack(format!(
        "{over_sctp} of {expected} were carried over SCTP: {}",
        daemons.recent_fallbacks()?
    ))
    .into())
}
