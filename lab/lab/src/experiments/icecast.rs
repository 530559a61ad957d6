//! `icecast`: the gap in a listener's audio when the path in use fails.
//!
//! The experiment compares plain TCP, the kernel's MPTCP, and sctpify.

use super::failover::faults::{Fault, Spans};
use super::failover::stage::{Stage, link_in_use};
use super::failover::world::{Plan, Transport, World};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::settings::DaemonSettings;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::time::Duration;
use testbed::files::Growth;
use testbed::programs::{Icecast, audio, icecast};

/// Pause after the source has ended. During the pause, the end of the stream reaches the listener.
const END: Duration = Duration::from_secs(3);
/// Time that the source may take in addition to the playing time.
const SOURCE_LATE: Duration = Duration::from_secs(20);
const SERIES: [(&str, Transport); 3] =
    [("tcp", Transport::Tcp), ("mptcp", Transport::Mptcp), ("sctpify", Transport::Sctpify)];
/// The failures, in the order of the manifest's categories.
const FAULTS: [Fault; 2] = [Fault::SilentBoth, Fault::LinkDown];
const PANEL: &str = "unheard";
/// Command words that make a program use MPTCP.
const MPTCPIZE: &[&str] = &["mptcpize", "run"];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IcecastStream {
    /// Playing time, in seconds.
    play_s: u32,
    /// Time from the listener's start to the failure, in seconds.
    cut_s: u32,
    rtt_ms: u16,
    repetitions: u32,
    daemon: DaemonSettings,
}

impl Experiment for IcecastStream {
    fn points(&self) -> Vec<Planned> {
        let mut points = Vec::new();
        for (series, _) in SERIES {
            points.extend((0..FAULTS.len()).map(|x| Planned {
                point: Point::new(PANEL, series, x as f64),
                repetitions: self.repetitions,
                seconds: f64::from(self.play_s) + 8.0,
                measures: vec!["heard_s", "other_s", "unheard_s", "silence_ms"],
            }));
        }
        points
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let (_, transport) =
            *SERIES.iter().find(|(name, _)| *name == cell.point.series).context("no such series")?;
        let fault = *FAULTS.get(cell.point.x as usize).context("no such failure")?;
        let plan = Plan {
            transport,
            rtt: Duration::from_millis(self.rtt_ms.into()),
            second: true,
            nat: false,
            configuration: &self.daemon.configuration(&cell.point.series),
            seed: cell.seed,
        };
        let world = World::new(&environment.tools, &plan)?;
        let measures = self.listen(&world, fault, transport)?;
        world.end();
        Ok(measures)
    }
}

impl IcecastStream {
    fn listen(&self, world: &World, fault: Fault, transport: Transport) -> Result<Measures> {
        let (alpha, beta) = (&world.pair.alpha, &world.pair.beta);
        let (played, heard) = (beta.dir()?.join("played.ogg"), alpha.dir()?.join("heard.ogg"));
        audio::make_noise(beta, self.play_s, &played)?;
        let runner = if transport == Transport::Mptcp { MPTCPIZE } else { &[] };
        let server = Icecast::start_by(beta, &[world.port()], runner)?;
        let source = server.play(&played)?;
        let growth = Growth::watch(&heard);
        let command = icecast::listen_by(alpha, world.server().into(), world.port(), &heard, runner);
        let listener = alpha.spawn("listener", command)?;
        std::thread::sleep(Duration::from_secs(self.cut_s.into()));
        world.ensure_over_sctp()?;
        world.ensure_second()?;
        fault.happen(world, link_in_use(world)?, Spans::default())?;
        source.finish(Duration::from_secs(self.play_s.into()) + SOURCE_LATE)?.good()?;
        std::thread::sleep(END);
        listener.stop();
        let silence = growth.longest_silence();
        let found = audio::compare(&audio::decode(beta, &played)?, &audio::decode(alpha, &heard)?)?;
        Ok(Measures::from([
            ("heard_s".to_owned(), found.seconds),
            ("other_s".to_owned(), found.other),
            ("unheard_s".to_owned(), found.missing + found.other),
            ("silence_ms".to_owned(), silence.as_secs_f64() * 1e3),
        ]))
    }
}
