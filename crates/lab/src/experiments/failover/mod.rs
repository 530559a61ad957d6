//! `failover`: the longest silence that a receiving program sees when the path in use fails, by plain TCP, the kernel's MPTCP, and
//! sctpify; and how long a new connection takes while the first path is silently dead.
//!
//! A cell makes its world (`world`), starts a stream of counted bytes through it, lets something happen (`faults`), and asks
//! both ends what they saw. Bytes that did not arrive, bytes that are wrong and errors that programs saw are measures, not
//! failures to measure.

pub(super) mod faults;
pub(super) mod world;

use crate::experiment::{Cell, Experiment, Measures, Place, Planned, Point};
use anyhow::{Context, Result, bail};
use faults::FAULTS;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use testbed::Process;
use testbed::process::now;
use world::{Plan, Way, World};

/// How long setting a world up takes, and clearing it away, in seconds.
const AROUND_S: f64 = 3.0;
/// How long a server may take to listen.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How much longer than it should a program may run before that is an error.
const PATIENCE: Duration = Duration::from_secs(10);
/// The panel of new connections.
const BIRTH: &str = "new connection";
/// How long a new connection may take.
const BIRTH_LIMIT_S: &str = "5";

/// How long the daemons may take to learn of each other's addresses by a first connection.
const ACQUAINTANCE: Duration = Duration::from_secs(1);
/// The series whose hosts have never heard of each other.
const STRANGERS: &str = "sctpify, first contact";

/// The series: name, way, whether there is a second link, and the daemons' configuration.
const SERIES: [(&str, Way, bool, &str); 6] = [
    ("tcp", Way::Tcp, true, ""),
    ("mptcp", Way::Mptcp, true, ""),
    ("sctpify", Way::Sctpify, true, ""),
    ("sctpify, one path", Way::Sctpify, false, ""),
    ("sctpify, own association", Way::Sctpify, true, "streams = \"own\"\n"),
    (STRANGERS, Way::Sctpify, true, ""),
];

/// What is sent: writes of so many bytes, so many microseconds apart.
const LOADS: [(&str, usize, u64); 2] = [("bulk", 1200, 500), ("interactive", 64, 100_000)];

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failover {
    rtt_ms: Vec<u16>,
    loads: Vec<String>,
    faults: Vec<String>,
    series: Vec<String>,
    /// Series that are measured at the first load and failure only.
    controls: Vec<String>,
    /// Series that open new connections.
    births: Vec<String>,
    /// How long the stream lasts, when the failure comes, how long a link that flaps is away, and how long what is late is
    /// waited for.
    stream_s: f64,
    fault_s: f64,
    flap_s: f64,
    drain_s: f64,
    repetitions: u32,
}

/// The panel of a load over a round trip.
fn panel(load: &str, rtt_ms: u16) -> String {
    format!("{load}, {rtt_ms} ms")
}

impl Failover {
    fn planned(&self, panel: &str, series: &str, x: f64) -> Planned {
        let seconds = if panel == BIRTH { AROUND_S } else { self.stream_s + AROUND_S };
        Planned { point: Point::new(panel, series, x), repetitions: self.repetitions, seconds }
    }

    fn stream(&self, place: &Place, cell: &Cell) -> Result<Measures> {
        let [load, rtt] = cell.point.panel.split(", ").collect::<Vec<_>>()[..] else {
            bail!("no such panel")
        };
        let (_, size, pause_us) = *LOADS.iter().find(|(name, ..)| *name == load).context("no such load")?;
        let rtt_ms = rtt.trim_end_matches(" ms").parse().context("no round trip")?;
        let name = self.faults.get(cell.point.x as usize).context("no such failure")?;
        let (_, fault) = *FAULTS.iter().find(|(it, _)| it == name).context("no such failure")?;
        let nat = fault == faults::Fault::NatRebinding;
        let world = World::new(&place.tools, &plan(cell, rtt_ms, nat)?)?;
        let receiver = self.receive(&world)?;
        let start = now();
        let sender = self.send(&world, size, pause_us)?;
        std::thread::sleep(Duration::from_secs_f64(self.fault_s).saturating_sub(start.elapsed()));
        world.ensure_second()?;
        fault.happen(&world, Duration::from_secs_f64(self.flap_s))?;
        let limit = Duration::from_secs_f64(self.stream_s + self.drain_s) + PATIENCE;
        let sent = words_of(&sender.finish(limit)?.good()?.stdout);
        let received = words_of(&receiver.finish(limit)?.good()?.stdout);
        world.ensure_rode(1)?;
        world.end();
        measures(&sent, &received)
    }

    fn receive(&self, world: &World) -> Result<Process> {
        let (port, limit) = (world.port().to_string(), (self.stream_s + self.drain_s).to_string());
        let words = ["receive", &port, &limit];
        world.pair.serve(&world.flow, &[&words[..], world.word().as_slice()].concat())
    }

    fn send(&self, world: &World, size: usize, pause_us: u64) -> Result<Process> {
        let mut command = world.pair.alpha.command(&world.flow);
        command.args(["send", &format!("{}:{}", world.server(), world.port()), &self.stream_s.to_string()]);
        command.args([size.to_string(), pause_us.to_string()]).args(world.word());
        world.pair.alpha.spawn("sender", command)
    }

    /// A connection begins while the first link is silent.
    fn birth(place: &Place, cell: &Cell) -> Result<Measures> {
        let world = World::new(&place.tools, &plan(cell, cell.point.x as u16, false)?)?;
        let port = world.port().to_string();
        let words = ["answer", &port];
        let server = world.pair.serve(&world.flow, &[&words[..], world.word().as_slice()].concat())?;
        if cell.point.series != STRANGERS {
            ask(&world)?;
            std::thread::sleep(ACQUAINTANCE);
        }
        world.first.set(&["--cut"])?;
        let told = ask(&world)?;
        server.stop();
        world.end();
        let failed = told.get("end").map(String::as_str) != Some("eof");
        Ok(Measures::from([
            ("first_byte_ms".to_owned(), number(&told, "first_byte_us")? / 1e3),
            ("failed".to_owned(), f64::from(u8::from(failed))),
        ]))
    }
}

impl Experiment for Failover {
    fn points(&self) -> Vec<Planned> {
        let mut points = Vec::new();
        for (rtt_ms, load) in
            self.rtt_ms.iter().flat_map(|rtt| self.loads.iter().map(move |load| (rtt, load)))
        {
            let panel = panel(load, *rtt_ms);
            for (x, series) in (0..self.faults.len()).flat_map(|x| self.series.iter().map(move |it| (x, it)))
            {
                points.push(self.planned(&panel, series, x as f64));
            }
        }
        if let (Some(rtt_ms), Some(load)) = (self.rtt_ms.first(), self.loads.first()) {
            let panel = panel(load, *rtt_ms);
            points.extend(self.controls.iter().map(|series| self.planned(&panel, series, 0.0)));
        }
        let births = self.rtt_ms.iter().flat_map(|rtt| self.births.iter().map(move |series| (rtt, series)));
        points.extend(births.map(|(rtt, series)| self.planned(BIRTH, series, f64::from(*rtt))));
        points
    }

    fn measure(&self, place: &Place, cell: &Cell) -> Result<Measures> {
        if cell.point.panel == BIRTH { Self::birth(place, cell) } else { self.stream(place, cell) }
    }
}

/// A connection, and a byte there and back.
fn ask(world: &World) -> Result<BTreeMap<String, String>> {
    let mut ask = world.pair.alpha.command(&world.flow);
    let to = format!("{}:{}", world.server(), world.port());
    ask.args(["ask", &to, BIRTH_LIMIT_S]).args(world.word());
    Ok(words_of(&world.pair.alpha.run("ask", ask, START_LIMIT)?.good()?.stdout))
}

fn plan(cell: &Cell, rtt_ms: u16, nat: bool) -> Result<Plan> {
    let found = SERIES.iter().find(|(name, ..)| *name == cell.point.series);
    let (_, way, second, configuration) = *found.context("no such series")?;
    let rtt = Duration::from_millis(rtt_ms.into());
    Ok(Plan { way, rtt, second, nat, configuration, seed: cell.seed })
}

/// What a program told: a word, a value, and so on.
fn words_of(told: &str) -> BTreeMap<String, String> {
    let all: Vec<&str> = told.split_whitespace().skip_while(|word| *word == "listening").collect();
    all.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

fn number(told: &BTreeMap<String, String>, key: &str) -> Result<f64> {
    told.get(key).with_context(|| format!("no {key} in {told:?}"))?.parse().context("no number")
}

/// How both programs' ends read: what did not arrive in time is lost; an end that is neither orderly nor late is an error.
fn measures(sent: &BTreeMap<String, String>, received: &BTreeMap<String, String>) -> Result<Measures> {
    let is_error = |told: &BTreeMap<String, String>| {
        !matches!(told.get("end").map(String::as_str), Some("eof" | "late"))
    };
    let errors = [sent, received].into_iter().filter(|told| is_error(told)).count();
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

    #[test]
    fn what_did_not_arrive_is_lost_and_only_ends_in_disorder_are_errors() {
        let of = |sent: &str, received: &str| measures(&words_of(sent), &words_of(received)).unwrap();
        let sent = "bytes 100 longest_write_us 5 end eof";
        let received = "listening\nbytes 90 gap_us 2500 gap_at_us 7 wrong 0 end late";
        let measured = of(sent, received);
        assert_eq!((measured["lost_bytes"], measured["errors"], measured["gap_ms"]), (10.0, 0.0, 2.5));
        let measured = of(&sent.replace("eof", "ConnectionReset"), received);
        assert_eq!(measured["errors"], 1.0);
    }
}
