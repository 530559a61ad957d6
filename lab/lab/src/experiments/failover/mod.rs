//! `failover`: the longest silence at a receiving program when the path in use fails.
//!
//! The experiment compares plain TCP, the kernel's MPTCP, the kernel's SCTP, and sctpify. Another part
//! measures the time from connect() to the first byte of the answer on a new connection, while the first link
//! drops all packets.
//!
//! A cell creates its hosts (`world`, or `kernel` with guests), and starts a stream of known bytes between
//! them. The cell then triggers a failure (`faults`), and collects the results of both ends (`stage`).
//! Missing bytes, wrong bytes and errors in programs do not make the measurement fail: measures count them.

pub(super) mod faults;
mod kernel;
pub(super) mod stage;
pub(super) mod world;

use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::experiments::guests;
use crate::settings::DaemonSettings;
use anyhow::{Context, Result, bail};
use faults::{FAULTS, Fault, Spans};
use serde::Deserialize;
use stage::Stage;
use std::collections::BTreeMap;
use std::time::Duration;
use world::{Plan, Transport, World};

/// Time to create and remove the hosts, in seconds.
const AROUND_S: f64 = 1.0;
/// Limit on the run time of the program that opens a new connection.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The panel of new connections.
const NEW_CONNECTION: &str = "new connection";
/// Name of a measure of the links: the 99th percentile of the time by which `linkemu` forwards packets
/// late, in the worst direction of all links. A high value shows that concurrent cells disturb each other.
const LINK_LATE: &str = "link_late_ms";
/// Measures of streams.
const OF_STREAMS: &[&str] = &[
    "gap_ms",
    "gap_at_ms",
    "lost_bytes",
    "wrong_bytes",
    "errors",
    "received_bytes",
    "longest_write_ms",
    "failed_link",
    LINK_LATE,
];
/// Measures of new connections.
const OF_NEW_CONNECTIONS: &[&str] = &["first_byte_ms", "failed", LINK_LATE];
/// Limit on the time from connect() to the answer on a new connection, in seconds.
const CONNECT_LIMIT_S: &str = "5";

/// Pause after the first connection, in which the daemons learn each other's addresses.
const ACQUAINTANCE: Duration = Duration::from_secs(1);
/// The series whose hosts have had no contact before the measured connection.
const STRANGERS: &str = "sctpify, first contact";

/// The series of the kernel's SCTP, between two guests.
const KERNEL: &str = "kernel SCTP";

/// All series except [`KERNEL`]: name, transport, and true if a second link exists.
const SERIES: [(&str, Transport, bool); 6] = [
    ("tcp", Transport::Tcp, true),
    ("mptcp", Transport::Mptcp, true),
    ("sctpify", Transport::Sctpify, true),
    ("sctpify, one path", Transport::Sctpify, false),
    ("sctpify, own association", Transport::Sctpify, true),
    (STRANGERS, Transport::Sctpify, true),
];

/// The sending pattern: writes of `size` bytes, `pause_us` microseconds apart.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiments) struct Load {
    size: usize,
    pause_us: u64,
}

/// The loads, by name.
const LOADS: [(&str, Load); 2] =
    [("bulk", Load { size: 1200, pause_us: 500 }), ("interactive", Load { size: 64, pause_us: 100_000 })];

/// Times of a stream, in seconds.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// Duration of the stream.
    stream_s: f64,
    /// Start of the failure, after the start of the stream.
    fault_s: f64,
    /// Time after the end of the stream in which the receiver waits for late data.
    drain_s: f64,
    /// Durations of temporary failures.
    spans: Spans,
}

/// Parameters of the experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failover {
    rtt_ms: Vec<u16>,
    loads: Vec<String>,
    faults: Vec<String>,
    series: Vec<String>,
    /// Long failures whose effects hardly depend on the round-trip time. They are measured only at
    /// `long_rtt_ms`, only for the series in `long_series`, and `long_repetitions` times each.
    long_faults: Vec<String>,
    long_rtt_ms: u16,
    long_series: Vec<String>,
    long_repetitions: u32,
    /// Series that are measured only with the first load, the first round-trip time and the failure at x =
    /// 0 (`silent-both`).
    controls: Vec<String>,
    /// Series for which new connections are measured.
    new_connections: Vec<String>,
    /// Start of the failure, in seconds after the start of the stream.
    fault_s: f64,
    /// Duration of the stream after a permanent failure begins, or after a temporary failure ends, in
    /// seconds. With a flapping link, the stream ends with the last outage.
    after_s: f64,
    /// Time after the end of the stream in which the receiver waits for late data, in seconds.
    drain_s: f64,
    /// Time that a flapping link stays down, which is also the time that the link stays up, in seconds.
    flap_s: f64,
    /// Duration of a NAT's outage, in seconds.
    outage_s: f64,
    /// Time that a link is slow, in seconds.
    slow_s: f64,
    /// Minimum duration of the failure in which the links alternate, in seconds.
    turns_s: f64,
    repetitions: u32,
    daemon: DaemonSettings,
    /// The guests for the series of the kernel's SCTP, booted when needed.
    #[serde(skip)]
    guests: guests::Pool,
}

/// Returns the name of the panel for a load and a round-trip time.
fn panel(load: &str, rtt_ms: u16) -> String {
    format!("{load}, {rtt_ms} ms")
}

impl Failover {
    fn planned(&self, point: Point, repetitions: u32) -> Planned {
        let watched_s = if point.panel == NEW_CONNECTION {
            ACQUAINTANCE.as_secs_f64()
        } else {
            fault(point.x).map_or(0.0, |fault| self.stream_s(fault))
        };
        let measures = if point.panel == NEW_CONNECTION { OF_NEW_CONNECTIONS } else { OF_STREAMS };
        Planned { point, repetitions, seconds: watched_s + AROUND_S, measures: measures.to_vec() }
    }

    /// Returns the durations of temporary failures.
    fn spans(&self) -> Spans {
        let Self { flap_s, outage_s, slow_s, turns_s, .. } = *self;
        Spans { flap_s, outage_s, slow_s, turns_s }
    }

    /// Returns the duration of the stream for a failure, in seconds. After all temporary failures except a
    /// flap, the stream continues for `after_s`, so the recovery is visible.
    fn stream_s(&self, fault: Fault) -> f64 {
        let rest_s = if fault == Fault::Flap { 0.0 } else { self.after_s };
        self.fault_s + fault.lasts_s(self.spans()).map_or(self.after_s, |lasts_s| lasts_s + rest_s)
    }

    fn stream(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let [load, rtt] = cell.point.panel.split(", ").collect::<Vec<_>>()[..] else {
            bail!("no such panel")
        };
        let (_, load) = *LOADS.iter().find(|(name, _)| *name == load).context("no such load")?;
        let rtt_ms: u16 = rtt.trim_end_matches(" ms").parse().context("no round trip")?;
        let fault = fault(cell.point.x)?;
        let Self { fault_s, drain_s, .. } = *self;
        let watch = Watch { stream_s: self.stream_s(fault), fault_s, drain_s, spans: self.spans() };
        if cell.point.series == KERNEL {
            let one_way = Duration::from_millis(u64::from(rtt_ms)) / 2;
            let world = kernel::world(&self.guests, &environment.tools, one_way, cell.seed)?;
            let measures = stage::watch(&world, fault, load, watch)?;
            world.end()?;
            return Ok(measures);
        }
        let configuration = self.daemon.configuration(&cell.point.series);
        let world = World::new(&environment.tools, &plan(cell, rtt_ms, fault.needs_nat(), &configuration)?)?;
        let measures = stage::watch(&world, fault, load, watch)?;
        world.end();
        Ok(measures)
    }

    /// Measures a new connection while the first link drops all packets.
    fn new_connection(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let configuration = self.daemon.configuration(&cell.point.series);
        let world = World::new(&environment.tools, &plan(cell, cell.point.x as u16, false, &configuration)?)?;
        let port = world.port().to_string();
        let words = ["answer", &port];
        let server = world.pair.serve(&world.flow, &[&words[..], world.word().as_slice()].concat())?;
        if cell.point.series != STRANGERS {
            ask(&world)?;
            std::thread::sleep(ACQUAINTANCE);
        }
        world.first.set(&["--cut"])?;
        let report = ask(&world)?;
        server.stop();
        let link_late_ms = stage::worst_late_ms(&world.shown()?)?;
        world.end();
        let failed = report.get("end").map(String::as_str) != Some("eof");
        Ok(Measures::from([
            ("first_byte_ms".to_owned(), number(&report, "first_byte_us")? / 1e3),
            ("failed".to_owned(), f64::from(u8::from(failed))),
            (LINK_LATE.to_owned(), link_late_ms),
        ]))
    }
}

impl Experiment for Failover {
    fn points(&self) -> Vec<Planned> {
        let often = self.repetitions;
        let at = |panel: &str, series: &str, x: f64| self.planned(Point::new(panel, series, x), often);
        let mut points = Vec::new();
        // Alternates the loads, because many concurrent cells with the heavy load could disturb each other.
        for (rtt_ms, fault) in self.rtt_ms.iter().flat_map(|rtt| self.faults.iter().map(move |it| (*rtt, it)))
        {
            for series in self.series.iter().filter(|it| is_measured(it, fault)) {
                let one = |load: &String| at(&panel(load, rtt_ms), series, place_of(fault));
                points.extend(self.loads.iter().map(one));
            }
        }
        for (fault, series) in
            self.long_faults.iter().flat_map(|it| self.long_series.iter().map(move |series| (it, series)))
        {
            let point = |load: &String| Point::new(&panel(load, self.long_rtt_ms), series, place_of(fault));
            points.extend(self.loads.iter().map(|load| self.planned(point(load), self.long_repetitions)));
        }
        if let (Some(rtt_ms), Some(load)) = (self.rtt_ms.first(), self.loads.first()) {
            let panel = panel(load, *rtt_ms);
            points.extend(self.controls.iter().map(|series| at(&panel, series, 0.0)));
        }
        let new_connections =
            self.rtt_ms.iter().flat_map(|rtt| self.new_connections.iter().map(move |series| (rtt, series)));
        points.extend(new_connections.map(|(rtt_ms, series)| at(NEW_CONNECTION, series, f64::from(*rtt_ms))));
        points
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        if cell.point.panel == NEW_CONNECTION {
            self.new_connection(environment, cell)
        } else {
            self.stream(environment, cell)
        }
    }
}

/// Returns the failure at a position on the x axis.
fn fault(x: f64) -> Result<Fault> {
    FAULTS.get(x as usize).map(|(_, fault)| *fault).context("no such failure")
}

/// Returns a failure's position on the x axis, or NaN for an unknown name.
fn place_of(name: &str) -> f64 {
    FAULTS.iter().position(|(it, _)| *it == name).map_or(f64::NAN, |index| index as f64)
}

/// Reports whether a failure is measured for a series. With a NAT on one path, the kernel's SCTP cannot use
/// two paths (see `kernel`).
fn is_measured(series: &str, fault: &str) -> bool {
    series != KERNEL || faults::named(fault).is_some_and(|fault| !fault.needs_nat())
}

/// Opens a new connection, sends a byte, and waits for the server's echo. Returns the client's report.
fn ask(world: &World) -> Result<BTreeMap<String, String>> {
    let mut ask = world.pair.alpha.command(&world.flow);
    let to = format!("{}:{}", world.server(), world.port());
    ask.args(["ask", &to, CONNECT_LIMIT_S]).args(world.word());
    Ok(words_of(&world.pair.alpha.run("ask", ask, START_LIMIT)?.good()?.stdout))
}

fn plan<'a>(cell: &Cell, rtt_ms: u16, nat: bool, configuration: &'a str) -> Result<Plan<'a>> {
    let found = SERIES.iter().find(|(name, ..)| *name == cell.point.series);
    let (_, transport, second) = *found.context("no such series")?;
    let rtt = Duration::from_millis(rtt_ms.into());
    Ok(Plan { transport, rtt, second, nat, configuration, seed: cell.seed })
}

/// Parses a program's output, which consists of alternating words and values.
fn words_of(report: &str) -> BTreeMap<String, String> {
    let all: Vec<&str> = report.split_whitespace().skip_while(|word| *word == "listening").collect();
    all.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

fn number(report: &BTreeMap<String, String>, key: &str) -> Result<f64> {
    report.get(key).with_context(|| format!("no {key} in {report:?}"))?.parse().context("no number")
}

/// Computes the measures from the reports of the sender and the receiver. Bytes that the receiver has not
/// read before it ends count as lost. A report whose `end` is neither `eof` nor `late` counts as an error.
fn measures(sent: &BTreeMap<String, String>, received: &BTreeMap<String, String>) -> Result<Measures> {
    let is_error = |report: &BTreeMap<String, String>| {
        !matches!(report.get("end").map(String::as_str), Some("eof" | "late"))
    };
    let errors = [sent, received].into_iter().filter(|report| is_error(report)).count();
    Ok(Measures::from([
        ("gap_ms".to_owned(), number(received, "gap_us")? / 1e3),
        ("gap_at_ms".to_owned(), number(received, "gap_at_us")? / 1e3),
        ("lost_bytes".to_owned(), number(sent, "bytes")? - number(received, "bytes")?),
        ("wrong_bytes".to_owned(), number(received, "wrong")?),
        ("errors".to_owned(), errors as f64),
        ("received_bytes".to_owned(), number(received, "bytes")?),
        ("longest_write_ms".to_owned(), number(sent, "longest_write_us")? / 1e3),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Form, Manifest};

    #[test]
    fn missing_bytes_are_lost_and_only_abnormal_ends_are_errors() {
        let of = |sent: &str, received: &str| measures(&words_of(sent), &words_of(received)).unwrap();
        let sent = "bytes 100 longest_write_us 5 end eof";
        let received = "listening\nbytes 90 gap_us 2500 gap_at_us 7 wrong 0 end late";
        let measured = of(sent, received);
        assert_eq!((measured["lost_bytes"], measured["errors"], measured["gap_ms"]), (10.0, 0.0, 2.5));
        let measured = of(&sent.replace("eof", "ConnectionReset"), received);
        assert_eq!(measured["errors"], 1.0);
    }

    fn full() -> Failover {
        manifest().parameters(Form::Full).try_into().unwrap()
    }

    fn manifest() -> Manifest {
        Manifest::read(include_str!("../../../experiments/failover.toml")).unwrap()
    }

    #[test]
    fn percentiles_are_of_thirty_runs() {
        let is_long = |x: f64| x >= place_of("turns-200ms");
        assert!(
            full()
                .points()
                .iter()
                .filter(|it| it.point.panel == NEW_CONNECTION || !is_long(it.point.x))
                .all(|it| it.repetitions == 30)
        );
    }

    #[test]
    fn the_kernel_series_omits_nat_failures_and_new_connections() {
        let points = full().points();
        let rows = |series| points.iter().filter(|it| it.point.series == series).collect::<Vec<_>>();
        assert_eq!(rows(KERNEL).len(), 3 * 2 * 7);
        assert!(rows(KERNEL).iter().all(|it| it.point.panel != NEW_CONNECTION && it.point.x != 6.0));
    }

    #[test]
    fn a_link_that_comes_and_goes_is_watched_until_it_has_been_away_twice() {
        let failover = full();
        let watched_s = failover.stream_s(Fault::Flap) - failover.fault_s;
        assert!(watched_s >= 3.0 * failover.flap_s, "{watched_s}");
        assert!(failover.stream_s(Fault::LinkDown) < failover.stream_s(Fault::Flap));
    }

    #[test]
    fn each_failure_of_the_manifest_has_a_place_and_a_name_in_each_panel() {
        let names: Vec<&str> = FAULTS.iter().map(|(name, _)| *name).collect();
        for form in [Form::Full, Form::Quick] {
            let failover: Failover = manifest().parameters(form).try_into().unwrap();
            let all = failover.faults.iter().chain(&failover.long_faults);
            assert!(all.clone().all(|name| names.contains(&name.as_str())), "{all:?}");
            assert!(failover.rtt_ms.contains(&failover.long_rtt_ms));
        }
        let panels = manifest().panels;
        let categories = panels.iter().map(|panel| &panel.categories).filter(|it| !it.is_empty());
        assert!(categories.clone().count() == 6 && categories.clone().all(|it| *it == names));
    }

    #[test]
    fn the_measured_stream_lasts_longer_than_the_outage() {
        let failover = full();
        assert!(failover.stream_s(Fault::NatOutage) > failover.fault_s + failover.outage_s);
        assert!(failover.stream_s(Fault::Slow) > failover.fault_s + failover.slow_s);
    }
}
