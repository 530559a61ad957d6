//! The experiments of send-buffer advertisement: what routers make of it, in virtual time, with our engine at all ends; and [`real`], with
//! the programs themselves.
//!
//! They share the policies by the names that manifests give them, the bottleneck, and sums over flows. None of them has
//! hosts' own work, links other than the bottleneck, and what [`sim::dumbbell`] names.

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

/// The backlog in every packet.
const BACKLOG: SendBufferConfig =
    SendBufferConfig { cadence: SendBufferCadence::EveryPacket, ..SendBufferConfig::backlog() };

/// The same in every eighth packet, in the first of a burst, and where it changed much: what is served in between, routers subtract.
const SPARSE_BACKLOG: SendBufferConfig =
    SendBufferConfig { cadence: SendBufferCadence::Economical, ..BACKLOG };

/// A router's policy, and the senders' advertisement.
#[derive(Clone, Copy, Debug)]
struct Setup {
    policy: Policy,
    advertisement: Option<SendBufferConfig>,
    ecn: bool,
}

impl Setup {
    /// By the name of its series; `packets` is the length of queues that have no customary one.
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

    /// Both ends: RFC 9260's timers and windows, as kernels of the seed's time had them, and this buffer.
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

/// The bottleneck, and for how long is sent.
#[derive(Clone, Debug, Deserialize)]
struct Traffic {
    rate: u64,
    round_trip_ms: u64,
    seconds: f64,
    /// Packets of queues without a customary length.
    packets: usize,
    buffer: usize,
}

impl Traffic {
    /// These flows over the bottleneck, measured from `warm_s` seconds on until the end.
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

    /// Each series at each of these indices.
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

/// Chance of an experiment.
struct Dice(ChaCha12Rng);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(ChaCha12Rng::seed_from_u64(seed))
    }

    /// From 0, inclusive, to 1, exclusive.
    fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.share()
    }

    /// Pauses of independent arrivals, so many per second.
    fn pause(&mut self, per_second: f64) -> Duration {
        Duration::from_secs_f64(-(1.0 - self.share()).ln() / per_second)
    }
}

/// Of a series of figures.
#[derive(Clone, Copy, Debug)]
struct Sum {
    count: f64,
    mean: f64,
    /// With n - 1.
    deviation: f64,
    /// Jain's index: 1 if all are alike.
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

/// The least value below which are 99 of a hundred.
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
