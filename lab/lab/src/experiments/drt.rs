//! `drt`: the duration of a client's connections to a destination without SCTP.
//!
//! The experiment compares two rules tables of the client: the static table of the first shim paper, and the
//! learned table.

use super::exchange;
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::settings::DaemonSettings;
use anyhow::{Context, Result, bail, ensure};
use base::{Carrier, Time};
use sctp::{AssociationConfig, EndpointConfig, Timing};
use serde::Deserialize;
use sim::{Change, Close, Conversation, LinkConfig, World};
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT};
use testbed::process::now;
use testbed::{Lab, Link, Offloads, Process};

/// Number of failures over SCTP after which the daemon no longer caches a destination as supporting SCTP.
/// The number is the default of the setting `learned_failures`.
const FAILURES: u32 = 3;
/// Pause between two failed attempts over SCTP. The daemon counts failures at shorter intervals as one
/// failure.
const APART: Duration = Duration::from_millis(1_100);
/// Limit on the time until the client uses SCTP again.
const SEEN_LIMIT: Duration = Duration::from_secs(20);
/// Pause between two connections that test whether the client uses SCTP.
const PAUSE: Duration = Duration::from_millis(100);
/// Virtual time at which even the handshake with the longest timers has failed.
const STATIC_LIMIT: Time = Time::from_millis(3_600_000);
const STATIC: &str = "static";
const NTH: &str = "nth";
const CHANGES: &str = "changes";

/// Measures of one connection.
const TIME: &[&str] = &["milliseconds"];
/// Measures of several connections.
const TIMES: &[&str] = &["milliseconds", "longest_ms"];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drt {
    /// Ordinal numbers of the connections to measure, counted from 1.
    connections: Vec<u32>,
    repetitions: u32,
    daemon: DaemonSettings,
}

impl Experiment for Drt {
    fn points(&self) -> Vec<Planned> {
        let planned = |panel, series, x: f64, repetitions, seconds, measures| Planned {
            point: Point::new(panel, series, x),
            repetitions,
            seconds,
            measures: <[_]>::to_vec(measures),
        };
        // The panel [`STATIC`] runs in virtual time without randomness, so one repetition is enough.
        let mut points: Vec<Planned> =
            (0..3).map(|x| planned(STATIC, "static table", f64::from(x), 1, 0.1, &["seconds"])).collect();
        for series in ["tcp", "refused", "silent"] {
            let connections = self.connections.iter();
            let nth = connections.map(|&n| planned(NTH, series, n.into(), self.repetitions, 3.0, TIME));
            points.extend(nth);
        }
        points.extend((0_u32..).zip(Stage::ALL).map(|(x, stage)| {
            let measures = if stage == Stage::Gained { TIMES } else { TIME };
            planned(CHANGES, "learned table", x.into(), self.repetitions, 6.0, measures)
        }));
        points
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let configuration = self.daemon.configuration(&cell.point.series);
        match &*cell.point.panel {
            STATIC => static_table(cell.point.x as usize),
            NTH => nth(environment, &configuration, &cell.point.series, cell.point.x as u32),
            CHANGES => changes(environment, &configuration, cell.point.x as usize),
            other => bail!("no such panel: {other}"),
        }
    }
}

/// Measures the time until the engine gives up a handshake with a silent host. `timers` is the index of the
/// timer settings, and the x value.
fn static_table(timers: usize) -> Result<Measures> {
    let second = Duration::from_secs(1);
    let (rto, retransmissions) = [(second, 5), (60 * second, 5), (second, 8)][timers];
    let mut world = World::new(1);
    let client = world.add_host(&["10.0.1.1"], EndpointConfig::default());
    let server = world.add_host(&["10.0.1.2"], EndpointConfig::default());
    let link = world.add_link(LinkConfig::default());
    world.join(link, "10.0.1.1", "10.0.1.2");
    world.at(Time::ZERO, Change::CutBoth(link, true));
    let config = AssociationConfig {
        max_init_retransmits: retransmissions,
        timing: Timing { rto_initial: rto, ..Timing::default() },
        ..AssociationConfig::default()
    };
    let talk = Conversation { close: Close::After(0), ..Conversation::default() };
    world.connect(client, server, Carrier::Udp { peer_port: 9899 }, config, talk);
    world.run_until(STATIC_LIMIT, |world| {
        world.host(client).app.conversations.values().any(|talk| talk.closed.is_some())
    });
    Ok(Measures::from([("seconds".to_owned(), (world.now() - Time::ZERO).as_secs_f64())]))
}

/// Measures the n-th connection to a server without SCTP. In the series `tcp`, the client does not try SCTP.
fn nth(environment: &Environment, configuration: &str, series: &str, n: u32) -> Result<Measures> {
    let lab = Lab::new()?;
    let pair = Pair::new(&lab, "")?;
    let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
    let daemon = pair.start_alphas_with(&environment.tools, configuration)?;
    if series == "silent" {
        pair.beta.drop_sctp()?;
    }
    let port = if series == "tcp" { TCP_PORT } else { SHIM_PORT };
    let _server = exchange::serve(&pair, port, &environment.tools)?;
    let connection = || exchange::once(&pair, link.right_v4(), port, &environment.tools);
    (1..n).try_for_each(|_| connection().map(drop))?;
    let time = connection()?;
    daemon.stop();
    Ok(milliseconds(time))
}

/// History of the client before the measured connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Nothing,
    Learned,
    Gained,
    Lost,
    LearnedAgain,
}

impl Stage {
    const ALL: [Stage; 5] = [Stage::Nothing, Stage::Learned, Stage::Gained, Stage::Lost, Stage::LearnedAgain];
}

/// Plays the client's history up to a stage, and measures the connection at that stage.
fn changes(environment: &Environment, configuration: &str, stage: usize) -> Result<Measures> {
    let stage = *Stage::ALL.get(stage).context("no such stage")?;
    let lab = Lab::new()?;
    let world = Changing::new(&lab, environment, configuration)?;
    world.lose()?;
    if stage >= Stage::Learned {
        world.connection()?;
    }
    if stage >= Stage::Gained {
        world.gain()?;
        let (last, longest) = world.until_rides_sctp()?;
        if stage == Stage::Gained {
            let mut measures = milliseconds(last);
            measures.insert("longest_ms".to_owned(), longest.as_secs_f64() * 1e3);
            return Ok(measures);
        }
        world.lose()?;
    }
    if stage == Stage::LearnedAgain {
        world.learn_again()?;
    }
    Ok(milliseconds(world.connection()?))
}

fn milliseconds(time: Duration) -> Measures {
    Measures::from([("milliseconds".to_owned(), time.as_secs_f64() * 1e3)])
}

/// Two hosts. The second one gains and loses support for SCTP.
struct Changing<'a> {
    environment: &'a Environment,
    pair: Pair,
    link: Link,
    daemons: Daemons,
    _server: Process,
}

impl<'a> Changing<'a> {
    fn new(lab: &Lab, environment: &'a Environment, configuration: &str) -> Result<Self> {
        let pair = Pair::new(lab, "")?;
        let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
        let daemons = pair.start_daemons_with(&environment.tools, configuration)?;
        let _server = exchange::serve(&pair, SHIM_PORT, &environment.tools)?;
        Ok(Self { environment, pair, link, daemons, _server })
    }

    fn lose(&self) -> Result<()> {
        self.pair.beta.drop_sctp()
    }

    fn gain(&self) -> Result<()> {
        self.pair.beta.pass_sctp()
    }

    fn connection(&self) -> Result<Duration> {
        exchange::once(&self.pair, self.link.right_v4(), SHIM_PORT, &self.environment.tools)
    }

    /// Opens connections whose attempts over SCTP fail. After the last of these connections, the client
    /// caches the server as not supporting SCTP.
    fn learn_again(&self) -> Result<()> {
        self.connection()?;
        for _ in 1..FAILURES {
            std::thread::sleep(APART);
            self.connection()?;
        }
        Ok(())
    }

    /// Opens connections until SCTP carries one of them. Returns the duration of the last connection, and
    /// the longest duration of all these connections.
    fn until_rides_sctp(&self) -> Result<(Duration, Duration)> {
        let (before, mut longest, mut last) = (self.daemons.connects_sctp()?, Duration::ZERO, Duration::ZERO);
        let began = now();
        while self.daemons.connects_sctp()? == before {
            ensure!(began.elapsed() < SEEN_LIMIT, "SCTP support was not detected in {SEEN_LIMIT:?}");
            std::thread::sleep(PAUSE);
            last = self.connection()?;
            longest = longest.max(last);
        }
        Ok((last, longest))
    }
}
