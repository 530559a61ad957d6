//! Experiments with send-buffer advertisement, and with routers that use it.
//!
//! "The report" is "SCTP Sendbuffer Advertisement" (2016). These experiments reproduce its results. Names
//! with `seed` refer to the report. All experiments except [`real`] run in virtual time, with our engine at
//! all ends. In addition, [`occupancy`] runs a model of the report's kernel. [`real`] runs real programs.
//!
//! This module has the common parts of the experiments: the policies by their names in manifests, the
//! bottleneck, and statistics over flows. [`sim::dumbbell`] lists the items that the simulations of our
//! engine leave out, such as the hosts' processing time.

pub(super) mod bandwidth;
pub(super) mod completion;
pub(super) mod cost;
pub(super) mod lies;
pub(super) mod messages;
pub(super) mod occupancy;
pub(super) mod real;

use crate::experiment::{Planned, Point};
use anyhow::{Context, Result};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sched::{Classifier, Favour, Finish, FqCodelConfig, Policy, ServedConfig, SfqConfig};
use sctp::{
    AssociationConfig, CongestionAlgorithm, Extension, Extensions, SendBufferCadence, SendBufferConfig,
    SendBufferForm,
};
use serde::Deserialize;
use sim::dumbbell::{Dumbbell, FlowPlan};
use std::time::Duration;

/// Advertisement of the backlog in every packet.
const BACKLOG: SendBufferConfig =
    SendBufferConfig { cadence: SendBufferCadence::EveryPacket, ..SendBufferConfig::backlog() };

/// Advertisement of the backlog in every eighth packet, and in the first packet of a burst. A change of the
/// occupancy by 10 percentage points or more also causes an advertisement. Between two advertisements,
/// routers reduce the advertised backlog by the bytes that they have served.
const SPARSE_BACKLOG: SendBufferConfig =
    SendBufferConfig { cadence: SendBufferCadence::Economical, ..BACKLOG };

/// A router's queueing policy, and the senders' settings for it.
#[derive(Clone, Copy, Debug)]
struct Setup {
    policy: Policy,
    advertisement: Option<SendBufferConfig>,
    ecn: bool,
}

impl Setup {
    /// Returns the setup of the series `name`. `packets` is the length of LTF's queue. The other policies
    /// have fixed lengths.
    fn named(name: &str, packets: usize) -> Result<Setup> {
        let quiet = |policy| Setup { policy, advertisement: None, ecn: false };
        let served = ServedConfig { packets, ..ServedConfig::default() };
        let finish = |finish, advertisement| Setup {
            policy: Policy::Served(ServedConfig::finishing(finish)),
            advertisement,
            ecn: false,
        };
        let fq_codel = Policy::FqCodel(FqCodelConfig::default());
        let percent = SendBufferConfig { form: SendBufferForm::Percent, ..BACKLOG };
        let setup = match name {
            "FIFO" => quiet(Policy::Fifo(400)),
            "SFQ" => quiet(Policy::Sfq(SfqConfig::default())),
            "SFQ and a control class" => quiet(Policy::Classes(Classifier::Control, SfqConfig::default())),
            "fq_codel" => quiet(fq_codel),
            "fq_codel, ECN" => Setup { ecn: true, ..quiet(fq_codel) },
            "seed's HTB" => Setup {
                advertisement: Some(SendBufferConfig::seed()),
                ..quiet(Policy::Classes(Classifier::SeedTenths, SfqConfig::default()))
            },
            "HTB, rising rates" => Setup {
                advertisement: Some(percent),
                ..quiet(Policy::Classes(Classifier::Rising, SfqConfig::default()))
            },
            "LTF" => {
                Setup { advertisement: Some(SendBufferConfig::default()), ..quiet(Policy::Served(served)) }
            }
            "LTF, no advertisement" => quiet(Policy::Served(served)),
            "LTF, 127 packets" => Setup {
                advertisement: Some(SendBufferConfig::default()),
                ..quiet(Policy::Served(ServedConfig { packets: 127, ..served }))
            },
            "least attained, no advertisement" => finish(Finish::LEAST_SERVED, None),
            "finish" => finish(Finish::AUDITED, Some(SPARSE_BACKLOG)),
            "finish, unaudited" => {
                finish(Finish { favour: Favour::LeastClaimed, ..Finish::AUDITED }, Some(SPARSE_BACKLOG))
            }
            _ => anyhow::bail!("unknown policy {name:?}"),
        };
        Ok(setup)
    }

    /// Returns the settings of both ends, with a send buffer of `buffer` bytes. Timers and congestion
    /// windows follow RFC 9260, as in kernels of 2016.
    fn association(&self, buffer: usize) -> AssociationConfig {
        let extensions = if self.ecn { Extensions::NONE.with(Extension::Ecn) } else { Extensions::NONE };
        AssociationConfig {
            outbound_streams: 1,
            inbound_streams: 1,
            send_buffer: buffer,
            buffer_start: buffer,
            extensions,
            advertisement: self.advertisement,
            congestion: CongestionAlgorithm::Rfc9260,
            ..AssociationConfig::default()
        }
    }
}

/// The bottleneck, and the duration of the traffic.
#[derive(Clone, Debug, Deserialize)]
struct Traffic {
    rate: u64,
    round_trip_ms: u64,
    seconds: f64,
    /// Length of LTF's queue, in packets. The other policies have fixed lengths.
    packets: usize,
    buffer: usize,
}

impl Traffic {
    /// Returns the plan of a run with these flows. The flows are measured from `warm_s` seconds after the
    /// start until the end of the run.
    fn dumbbell(&self, setup: Setup, flows: Vec<FlowPlan>, warm_s: u64, seed: u64) -> Dumbbell {
        let seconds = Duration::from_secs_f64(self.seconds);
        Dumbbell {
            rate: self.rate,
            burst: 0,
            policy: setup.policy,
            association: setup.association(self.buffer),
            flows,
            window: (Duration::from_secs(warm_s), seconds),
            sampling: None,
            limit: seconds,
            seed,
        }
    }

    /// Returns the planned points: one for each series at each x value in `indices`.
    fn points(
        &self,
        panel: &str,
        indices: &[usize],
        series: &[String],
        repetitions: u32,
        measures: &[&'static str],
    ) -> Vec<Planned> {
        let point = |x: usize, series: &String| Planned {
            point: Point::new(panel, series, x as f64),
            repetitions,
            seconds: self.seconds / 10.0,
            measures: measures.to_vec(),
        };
        indices.iter().flat_map(|&x| series.iter().map(move |series| point(x, series))).collect()
    }
}

/// Source of an experiment's random numbers.
struct Dice(ChaCha12Rng);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(ChaCha12Rng::seed_from_u64(seed))
    }

    /// Returns a random number from 0 (inclusive) to 1 (exclusive).
    fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.share()
    }

    /// Returns a random pause between two arrivals of a Poisson process. `per_second` is the mean number of
    /// arrivals per second.
    fn pause(&mut self, per_second: f64) -> Duration {
        Duration::from_secs_f64(-(1.0 - self.share()).ln() / per_second)
    }
}

/// Statistics of a list of values.
#[derive(Clone, Copy, Debug)]
struct Sum {
    count: f64,
    mean: f64,
    /// Standard deviation of the sample (divisor n - 1).
    deviation: f64,
    /// Jain's fairness index, which is 1 if all values are equal.
    jain: f64,
}

impl Sum {
    fn of(values: &[f64]) -> Result<Sum> {
        anyhow::ensure!(values.len() > 1, "too few flows were measured: {}", values.len());
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
        let jain = (mean * count).powi(2) / (count * values.iter().map(|it| it * it).sum::<f64>());
        Ok(Sum { count, mean, deviation: (squares / (count - 1.0)).sqrt(), jain })
    }
}

/// Returns the 99th percentile (nearest rank), and sorts the values.
fn p99(values: &mut [f64]) -> Result<f64> {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * 0.99).ceil() as usize;
    values.get(at.saturating_sub(1)).copied().context("nothing was measured")
}

fn kbit_per_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / 1000.0 / seconds
}

#[cfg(test)]
mod tests;
