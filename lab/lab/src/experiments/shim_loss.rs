//! `shim-loss`: duration of file transfers over a slow link that loses packets (Figures 6 to 9 of the paper).
//!
//! TCP or the shim carries the file. There are three kinds of panel for each file size:
//!
//! - The panel whose name is only the size: scp's dialogue in virtual time ([`simulated`]).
//! - The panel with the suffix "real": scp itself ([`real`]).
//! - The panel with the suffix "bare": one request and one answer without ssh. The panel compares models in
//!   virtual time with the kernel's TCP in real time, to check the models of TCP.
//!
//! Begin at [`ShimLoss`].

mod real;
mod simulated;

use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::settings::DaemonSettings;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sim::Step;
use sim::tcp::{Growth, TcpConfig};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Limit on the duration of one transfer. It is ten times the duration of the paper's slowest transfer.
const LIMIT: Duration = Duration::from_secs(36_000);
/// Time to create hosts, daemons and keys, in seconds.
const SETUP_S: f64 = 4.0;
/// Maximum rate of user data over the link, in bit/s.
const GOODPUT: f64 = 1.44e6;
/// Number of bytes of the file that one SFTP packet carries.
const SFTP_BYTES: u64 = 32_768;
/// Bytes that ssh and SFTP add to each packet of the file.
const SFTP_MORE: u64 = 36;

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShimLoss {
    rate: u64,
    delay_ms: u64,
    queue_packets: usize,
    loss_percent: Vec<f64>,
    /// Steps before the file. Each step has the number of bytes that the client sends, and the number of
    /// bytes that the server sends in answer.
    dialogue: Vec<[u64; 2]>,
    /// Steps after the file, in the same form as `dialogue`.
    farewell: Vec<[u64; 2]>,
    sizes: BTreeMap<String, u64>,
    simulated: Plan,
    bare: Plan,
    kernel: Plan,
    real: Plan,
    daemon: DaemonSettings,
}

/// Plan of one kind of measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    /// Number of repetitions for each size. A size with 0 repetitions is not measured.
    repetitions: BTreeMap<String, u32>,
    series: Vec<String>,
    /// Loss rates for this kind of measurement, in percent. If absent, [`ShimLoss::loss_percent`] applies.
    #[serde(default)]
    loss_percent: Option<Vec<f64>>,
}

/// The kind of a panel's measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Simulated,
    Bare,
    Real,
}

impl Kind {
    fn panel(self, size: &str) -> String {
        match self {
            Kind::Simulated => size.to_owned(),
            Kind::Bare => format!("{size}, bare"),
            Kind::Real => format!("{size}, real"),
        }
    }

    fn of(panel: &str) -> (&str, Kind) {
        match panel.split_once(", ") {
            Some((size, "bare")) => (size, Kind::Bare),
            Some((size, _)) => (size, Kind::Real),
            None => (panel, Kind::Simulated),
        }
    }
}

/// Transport of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    Tcp(Tcp),
    Shim(Control),
}

/// An implementation of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tcp {
    /// TCP of FreeBSD 4.10. The papers compare the shim with this TCP, which exists here only as a model.
    FreeBsd,
    /// Linux's TCP with settings that make it similar to FreeBSD 4.10's TCP.
    WithoutSack,
    Reno,
    Cubic,
    /// BBR, which has no model and is measured only with the kernel.
    Bbr,
}

/// The congestion control of associations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Control {
    Rfc9260,
    Default,
    LossTolerant,
}

/// Names of the series. In the panels "bare", the series of the kernel's TCP also have the suffix
/// [`KERNEL`].
const TRANSPORTS: &[(&str, Transport)] = &[
    ("TCP of FreeBSD 4.10", Transport::Tcp(Tcp::FreeBsd)),
    ("TCP without SACK", Transport::Tcp(Tcp::WithoutSack)),
    ("TCP Reno", Transport::Tcp(Tcp::Reno)),
    ("TCP CUBIC", Transport::Tcp(Tcp::Cubic)),
    ("TCP BBR", Transport::Tcp(Tcp::Bbr)),
    ("shim, RFC 9260", Transport::Shim(Control::Rfc9260)),
    ("shim", Transport::Shim(Control::Default)),
    ("shim, static table", Transport::Shim(Control::Default)),
    ("shim, loss-tolerant", Transport::Shim(Control::LossTolerant)),
];
const KERNEL: &str = ", kernel";

impl Tcp {
    /// Returns the model of this TCP. Fails for BBR, which has no model.
    fn model(self) -> Result<TcpConfig> {
        Ok(match self {
            Tcp::FreeBsd => TcpConfig::freebsd_4_10(),
            Tcp::WithoutSack => TcpConfig::linux_without_sack(),
            Tcp::Reno => TcpConfig::linux(Growth::Reno),
            Tcp::Cubic => TcpConfig::linux(Growth::Cubic),
            Tcp::Bbr => bail!("BBR has no model: it is measured only in real time"),
        })
    }
}

impl fmt::Display for Control {
    /// Writes the value of the daemon's setting `congestion`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Control::Rfc9260 => "rfc9260",
            Control::Default => "cubic",
            Control::LossTolerant => "loss-tolerant",
        })
    }
}

/// One transfer.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    bytes: u64,
    loss: f64,
    transport: Transport,
    seed: u64,
}

impl Experiment for ShimLoss {
    fn points(&self) -> Vec<Planned> {
        let plans = [
            (Kind::Real, &self.real),
            (Kind::Bare, &self.kernel),
            (Kind::Simulated, &self.simulated),
            (Kind::Bare, &self.bare),
        ];
        // The longest cells come first. Otherwise, the run could wait at its end for one long cell.
        let mut points: Vec<_> =
            plans.into_iter().flat_map(|(kind, plan)| self.planned(kind, plan)).collect();
        points.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        points
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let (size, kind) = Kind::of(&cell.point.panel);
        let bytes = *self.sizes.get(size).context("no such size")?;
        let series = &*cell.point.series;
        let is_kernels = series.ends_with(KERNEL);
        let name = series.strip_suffix(KERNEL).unwrap_or(series);
        let (_, transport) =
            *TRANSPORTS.iter().find(|(known, _)| *known == name).context("no such series")?;
        let transfer = Transfer { bytes, loss: cell.point.x / 100.0, transport, seed: cell.seed };
        match kind {
            Kind::Real => self.scp(environment, transfer, &self.daemon.configuration(series)),
            Kind::Bare if is_kernels => self.fetch(environment, transfer),
            Kind::Bare => self.simulate(transfer, vec![Step { client: 8, server: bytes }]),
            Kind::Simulated => self.simulate(transfer, self.scp_steps(bytes)),
        }
    }
}

impl ShimLoss {
    fn planned(&self, kind: Kind, plan: &Plan) -> Vec<Planned> {
        let losses = plan.loss_percent.as_ref().unwrap_or(&self.loss_percent);
        let sizes = plan.repetitions.iter().filter(|(_, repetitions)| **repetitions > 0);
        let at = |size: &str, repetitions, loss: f64, series: &str| Planned {
            point: Point::new(&kind.panel(size), series, loss),
            repetitions,
            seconds: self.expected_seconds(kind, size, series, loss),
            measures: measures_of(kind, series).to_vec(),
        };
        sizes
            .flat_map(|(size, &repetitions)| {
                losses.iter().flat_map(move |&loss| {
                    plan.series.iter().map(move |series| at(size, repetitions, loss, series))
                })
            })
            .collect()
    }

    /// Returns the approximate duration of a transfer, in seconds. Each slope is the growth of the duration
    /// per percent of loss, as a multiple of the duration without loss. The slopes come from earlier runs.
    /// For example, TCP at 10 % loss has a fifth of its rate without loss.
    fn expected_seconds(&self, kind: Kind, size: &str, series: &str, loss: f64) -> f64 {
        let least = self.sizes.get(size).map_or(0.0, |&bytes| bytes as f64 * 8.0 / GOODPUT);
        let slope = match series {
            "TCP BBR" | "shim, loss-tolerant" => 0.02,
            "shim" | "shim, RFC 9260" => 0.15,
            _ if series.starts_with("TCP without SACK") => 1.0,
            _ => 0.4,
        };
        let is_real = kind == Kind::Real || series.ends_with(KERNEL);
        if is_real { SETUP_S + least * (1.0 + slope * loss) } else { 0.002 + least * 0.0004 }
    }

    /// Returns the steps of scp's conversation, with the file in the middle.
    fn scp_steps(&self, bytes: u64) -> Vec<Step> {
        let steps = |words: &[[u64; 2]]| -> Vec<Step> {
            words.iter().map(|&[client, server]| Step { client, server }).collect()
        };
        let file = Step { client: 0, server: bytes + SFTP_MORE * bytes.div_ceil(SFTP_BYTES) };
        [steps(&self.dialogue), vec![file], steps(&self.farewell)].concat()
    }
}

/// Returns the measures of a series in a panel.
fn measures_of(kind: Kind, series: &str) -> &'static [&'static str] {
    match kind {
        Kind::Real if series.starts_with("shim") => &["seconds", "errors", "connections_by_sctp"],
        Kind::Real => &["seconds", "errors"],
        Kind::Bare if series.ends_with(KERNEL) => &["seconds", "errors"],
        Kind::Bare | Kind::Simulated => &["seconds", "timeouts", "retransmitted"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_tells_its_size_and_kind() {
        for kind in [Kind::Simulated, Kind::Bare, Kind::Real] {
            assert_eq!(Kind::of(&kind.panel("50 KB")), ("50 KB", kind));
        }
    }
}
