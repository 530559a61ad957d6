//! `sba-occupancy`: the send buffers of two flows over a slow link (Figures 4.1 and 4.2 of the 2016 report).
//!
//! The experiment also shows under which conditions one of the flows delivers nothing for a minute. It
//! measures two implementations of the sender: our engine, and a model of the report's kernel
//! ([`sim::kernel`]).

use super::{Dice, Setup};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::{Context, Result};
use sched::Policy;
use sctp::{AssociationConfig, SendBufferConfig};
use serde::Deserialize;
use sim::dumbbell::{Dumbbell, DumbbellReport, FlowPlan, Load, Sample, run};
use sim::kernel::{Bottleneck, Buffer, KernelConfig, KernelFlow};
use std::sync::OnceLock;
use std::time::Duration;

const TBF: &str = "token bucket";
const SFQ: &str = "SFQ";
const POLICIES: [&str; 2] = [TBF, SFQ];
const SUMMARY: &str = "summary";
/// Measures in the summary.
const OF_ALL: &[&str] = &["rates_ratio", "least_percent", "most_percent", "mean_percent", "write_s"];
/// The series of the unchanged model of the kernel. The names of the other model series list the changes of
/// the model.
const KERNEL: &str = "Linux 4.6";
/// The series with jitter: the link delays each packet by up to 12 ms, the transmission time of a full
/// packet. The jitter ends phase effects.
const JITTER: &str = "jitter of 12 ms";
/// The series of our engine.
const ENGINE: &str = "this project's engine";
/// The panel whose x value is the length of the token bucket's queue.
const BY_QUEUE: &str = "by queue";
/// The panel with the buffers of one run of the kernel's model.
const SHORT: &str = "short queue";
/// Ratio of the two flows' rates in the report. The panel [`SHORT`] shows the run whose ratio is nearest to
/// this ratio.
const SEED_RATIO: f64 = 4.0;
/// Measures in the panel [`BY_QUEUE`].
const OF_QUEUE: &[&str] = &["rates_ratio", "longest_pause_s", "mean_percent", "used"];
/// Rate of a host's own link, in bit/s.
const HOST_RATE: u64 = 100_000_000;
/// Length of a full packet with its IP header, in bytes.
const PACKET: usize = 1500;
/// Number of bytes that a kernel of 2016 counts as used for each waiting byte. The surplus is the kernel's
/// bookkeeping.
const KERNEL_FACTOR: f64 = 1.36;
/// Interval at which buffers are sampled for the summary.
const STEP: Duration = Duration::from_millis(100);
/// Time from which flows are measured, in seconds.
const WARM_S: u64 = 10;

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Occupancy {
    repetitions: u32,
    rate: u64,
    round_trip_ms: u64,
    seconds: u64,
    /// Bytes that a program writes at once.
    write: usize,
    /// Number of unacknowledged bytes at which the program writes again.
    low: usize,
    /// Size of the send buffer, in bytes.
    buffer: usize,
    /// The receiver's window, in bytes. The kernel announces half of its receive buffer as the window.
    window: usize,
    /// Depth of the token bucket, in bytes.
    burst: usize,
    /// Length of the token bucket's queue, in packets.
    packets: usize,
    /// Interval between two samples in the plots of the buffers, in seconds.
    every: usize,
    /// Lengths of the token bucket's queue in the panel [`BY_QUEUE`], in packets.
    queues: Vec<usize>,
    /// Number of runs for each length in `queues`.
    tries: u32,
    /// Series in the panel [`BY_QUEUE`].
    differs: Vec<String>,
    /// Length of the queue in the panel [`SHORT`], in packets.
    short: usize,
    /// Report of each policy's run, after the run. All points of a policy come from this run.
    #[serde(skip)]
    runs: [OnceLock<DumbbellReport>; 2],
    #[serde(skip)]
    /// The run that the panel [`SHORT`] shows, once the run is chosen.
    shown: OnceLock<Vec<KernelFlow>>,
}

impl Experiment for Occupancy {
    fn points(&self) -> Vec<Planned> {
        let planned = |point, measures: &[_]| Planned {
            point,
            repetitions: self.repetitions,
            seconds: 0.5,
            measures: measures.to_vec(),
        };
        let mut points: Vec<_> =
            POLICIES.iter().map(|series| planned(Point::new(SUMMARY, series, 0.0), OF_ALL)).collect();
        for panel in [TBF, SFQ, SHORT] {
            for second in (1..self.seconds).step_by(self.every) {
                for flow in ["flow 1", "flow 2"] {
                    points.push(planned(Point::new(panel, flow, second as f64), &["percent"]));
                }
            }
        }
        for series in &self.differs {
            for packets in &self.queues {
                let point = Point::new(BY_QUEUE, series, *packets as f64);
                let (repetitions, measures) = (self.tries, OF_QUEUE.to_vec());
                points.push(Planned { point, repetitions, seconds: 0.1, measures });
            }
        }
        points
    }

    fn measure(&self, _environment: &Environment, cell: &Cell) -> Result<Measures> {
        let Point { panel, series, x } = &cell.point;
        if panel == SUMMARY {
            return self.summary(self.run(series)?);
        }
        if panel == BY_QUEUE {
            return self.by_queue(series, *x as usize, cell.seed);
        }
        let flow = usize::from(series == "flow 2");
        let at = (*x * 1000.0) as u64;
        if panel == SHORT {
            let buffer = self.shown()?[flow].buffers.iter().find(|it| it.at.as_millis() >= at);
            let percent = percent_of_kernel(buffer.context("no sample")?);
            return Ok(Measures::from([("percent".to_owned(), percent)]));
        }
        let report = self.run(panel)?;
        let sample = report.flows[flow].samples.iter().find(|it| it.at.as_millis() >= at);
        Ok(Measures::from([("percent".to_owned(), percent(sample.context("no sample")?))]))
    }
}

/// Returns the occupancy in percent, from the report's formula. The formula takes the smaller of the
/// congestion window and the receiver's window. It divides the bytes beyond this window by all bytes that
/// the kernel counts as used. The receiver's window does not include the data in flight.
fn percent(sample: &Sample) -> f64 {
    let held_back = sample.buffered.saturating_sub(sample.cwnd.min(sample.peer_rwnd));
    100.0 * held_back as f64 / (sample.buffered.max(1) as f64 * KERNEL_FACTOR)
}

/// Returns the occupancy in percent for the kernel's model, from the formula of [`percent`]. In the model,
/// data that awaits retransmission counts as used, but neither as unsent nor as in flight.
fn percent_of_kernel(buffer: &Buffer) -> f64 {
    let has = buffer.unsent + buffer.flight;
    let held_back = has.saturating_sub(buffer.cwnd.min(buffer.peer_rwnd));
    100.0 * held_back as f64 / (buffer.held.max(1) as f64 * KERNEL_FACTOR)
}

/// Returns the larger number, divided by the smaller one. A smaller number of 0 counts as 1.
fn ratio(one: u64, other: u64) -> f64 {
    one.max(other) as f64 / one.min(other).max(1) as f64
}

/// Returns the distance between the ratio of two flows' rates and the report's ratio, on a logarithmic scale.
fn off(flows: &[KernelFlow]) -> f64 {
    (ratio(flows[0].received, flows[1].received) / SEED_RATIO).ln().abs()
}

/// Two flows of the kernel's model, and the bottleneck between sender and receiver.
struct Kernels {
    config: KernelConfig,
    bottleneck: Bottleneck,
    /// Start of the second flow.
    offset: Duration,
}

impl Kernels {
    /// Applies the changes that the name of a series lists, separated by commas.
    fn differing(mut self, series: &str) -> Result<Kernels> {
        let (config, link) = (&mut self.config, &mut self.bottleneck);
        for difference in series.split(", ") {
            match difference {
                KERNEL => {}
                JITTER => link.jitter = Duration::from_millis(12),
                "second 10 s later" => self.offset += Duration::from_secs(10),
                "round trip of 20 ms" => link.round_trip = Duration::from_millis(20),
                "bucket of 10 kB" => link.burst = 10_000 - PACKET,
                "SACK for each packet" => config.sack_every = 1,
                "bursts of any length" => config.burst = 0,
                "T3 of 5 s at most" => config.rto_max = Duration::from_secs(5),
                "T3 from 0.2 s on" => config.rto_min = Duration::from_millis(200),
                "first T3 of 1 s" => config.rto_initial = Duration::from_secs(1),
                "four times the buffer" => (config.write, config.low) = (config.write * 4, config.low * 4),
                "1,000 bytes a packet" => config.payload = 1000,
                _ => anyhow::bail!("nothing is called {difference:?}"),
            }
        }
        Ok(self)
    }

    fn run(&self, lasting: Duration, seed: u64) -> Vec<KernelFlow> {
        let starts = [Duration::ZERO, self.offset];
        sim::kernel::run(&self.config, &self.bottleneck, &starts, lasting, STEP, seed)
    }
}

impl Occupancy {
    /// Returns the unchanged model of the kernel over a token bucket with room for `packets` packets. The
    /// simulated queue has room for one packet less than the token bucket, because the simulated link itself
    /// holds one packet.
    fn kernels(&self, packets: usize, seed: u64) -> Kernels {
        let config = KernelConfig {
            write: self.write,
            low: self.low,
            receive_window: self.window,
            ..KernelConfig::linux_4_6()
        };
        let bottleneck = Bottleneck {
            host_rate: HOST_RATE,
            rate: self.rate,
            burst: 0,
            policy: Policy::Fifo(packets - 1),
            round_trip: Duration::from_millis(self.round_trip_ms),
            jitter: Duration::from_micros(500),
        };
        Kernels { config, bottleneck, offset: self.offset(seed) }
    }

    /// Returns the start of the second flow: a random time from 0.1 to 1.1 s after the start of the first
    /// flow, as if a person starts both programs.
    fn offset(&self, seed: u64) -> Duration {
        Duration::from_secs_f64(Dice::new(seed).between(0.1, 1.1))
    }

    /// Measures two flows behind a token bucket with room for `packets` packets.
    fn by_queue(&self, series: &str, packets: usize, seed: u64) -> Result<Measures> {
        let lasting = Duration::from_secs(self.seconds);
        let (received, pauses, percents): (Vec<u64>, Vec<Duration>, Vec<f64>) = if series == ENGINE {
            let plan = self.dumbbell(Policy::Fifo(packets - 1), 0, self.offset(seed), seed);
            let flows = run(&plan).flows;
            let percents = flows.iter().flat_map(|it| &it.samples).map(percent).collect();
            let received = flows.iter().map(|it| it.received).collect();
            (received, flows.iter().map(|it| it.longest_pause).collect(), percents)
        } else {
            let flows = self.kernels(packets, seed).differing(series)?.run(lasting, seed);
            let percents = flows.iter().flat_map(|it| &it.buffers).map(percent_of_kernel).collect();
            let received = flows.iter().map(|it| it.received).collect();
            (received, flows.iter().map(|it| it.longest_pause).collect(), percents)
        };
        anyhow::ensure!(!percents.is_empty(), "nothing was sampled");
        let longest = pauses.iter().max().context("no flow")?;
        let all: u64 = received.iter().sum();
        Ok(Measures::from([
            ("rates_ratio".to_owned(), ratio(received[0], received[1])),
            ("longest_pause_s".to_owned(), longest.as_secs_f64()),
            ("mean_percent".to_owned(), percents.iter().sum::<f64>() / percents.len() as f64),
            ("used".to_owned(), all as f64 * 8.0 / (self.rate * self.seconds) as f64),
        ]))
    }

    /// Returns the run of the kernel's model whose ratio of rates is nearest to the report's ratio. The
    /// candidates are `tries` runs with jitter and a queue of `short` packets.
    fn shown(&self) -> Result<&[KernelFlow]> {
        if let Some(shown) = self.shown.get() {
            return Ok(shown);
        }
        let runs =
            (0..u64::from(self.tries)).map(|seed| self.with_jitter(seed)).collect::<Result<Vec<_>>>()?;
        let nearest = runs.into_iter().min_by(|one, other| off(one).total_cmp(&off(other)));
        Ok(self.shown.get_or_init(|| nearest.unwrap_or_default()))
    }

    fn with_jitter(&self, seed: u64) -> Result<Vec<KernelFlow>> {
        let kernels = self.kernels(self.short, seed).differing(JITTER)?;
        Ok(kernels.run(Duration::from_secs(self.seconds), seed))
    }

    fn run(&self, policy: &str) -> Result<&DumbbellReport> {
        let at = POLICIES.iter().position(|name| *name == policy);
        let at = at.with_context(|| format!("unknown policy {policy:?}"))?;
        let plan = self.plan(policy)?;
        Ok(self.runs[at].get_or_init(|| run(&plan)))
    }

    fn plan(&self, policy: &str) -> Result<Dumbbell> {
        let setup = match policy {
            TBF => Setup { policy: Policy::Fifo(self.packets), advertisement: None, ecn: false },
            _ => Setup::named(policy, self.packets)?,
        };
        let burst = if policy == TBF { self.burst } else { 0 };
        Ok(self.dumbbell(setup.policy, burst, Duration::from_millis(300), self.rate))
    }

    /// Returns the plan of two flows of our engine. The second flow starts later by `offset`.
    fn dumbbell(&self, policy: Policy, burst: usize, offset: Duration, seed: u64) -> Dumbbell {
        let setup = Setup { policy, advertisement: Some(SendBufferConfig::seed()), ecn: false };
        let lasting = Duration::from_secs(self.seconds);
        let flow = |n: u32| FlowPlan {
            start: offset * n,
            round_trip: Duration::from_millis(self.round_trip_ms),
            load: Load::Bulk { lasting, write: self.write, low: self.low },
            lie: None,
        };
        Dumbbell {
            rate: self.rate,
            burst,
            policy,
            association: AssociationConfig { receive_buffer: self.window, ..setup.association(self.buffer) },
            flows: (0..2_u32).map(flow).collect(),
            window: (Duration::from_secs(WARM_S), lasting),
            sampling: Some(STEP),
            limit: lasting,
            seed,
        }
    }

    /// Returns the measures of a run: the ratio of the rates, the occupancy in percent (least, greatest,
    /// mean), and the mean time between two writes of a flow.
    fn summary(&self, report: &DumbbellReport) -> Result<Measures> {
        let mut percents = Vec::new();
        let mut writes = 0;
        for flow in &report.flows {
            let late: Vec<_> = flow.samples.iter().filter(|it| it.at.as_millis() >= WARM_S * 1000).collect();
            // Only one sample per second counts, as in the report.
            percents.extend(late.iter().filter(|it| it.at.as_millis() % 1000 == 0).map(|it| percent(it)));
            writes += late.windows(2).filter(|it| it[1].buffered > it[0].buffered + self.write / 2).count();
        }
        anyhow::ensure!(!percents.is_empty() && writes > 0, "nothing was sampled");
        let [one, other] = [0, 1].map(|n| report.flows[n].in_window);
        let flow_seconds = 2.0 * (self.seconds - WARM_S) as f64;
        Ok(Measures::from([
            ("rates_ratio".to_owned(), ratio(one, other)),
            ("least_percent".to_owned(), percents.iter().copied().fold(f64::MAX, f64::min)),
            ("most_percent".to_owned(), percents.iter().copied().fold(0.0, f64::max)),
            ("mean_percent".to_owned(), percents.iter().sum::<f64>() / percents.len() as f64),
            ("write_s".to_owned(), flow_seconds / writes as f64),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::one;
    use crate::manifest::Form;

    #[test]
    fn points_of_a_policy_come_from_one_run_that_no_other_policy_uses() {
        let parameters = one("sba-occupancy").unwrap().manifest.parameters(Form::Quick);
        let it: Occupancy = parameters.try_into().unwrap();
        let at = |policy| std::ptr::from_ref(it.run(policy).unwrap());
        assert_eq!((at(SFQ), at(TBF)), (at(SFQ), at(TBF)));
        assert_ne!(at(SFQ), at(TBF));
        assert!(it.run("LTF").is_err());
    }

    #[test]
    fn each_difference_named_in_the_manifest_exists_and_an_unknown_one_is_refused() {
        let manifest = one("sba-occupancy").unwrap().manifest;
        for form in [Form::Quick, Form::Full] {
            let it: Occupancy = manifest.parameters(form).try_into().unwrap();
            for series in it.differs.iter().filter(|it| *it != ENGINE) {
                assert!(it.kernels(5, 1).differing(series).is_ok(), "{series}");
            }
            assert!(it.kernels(5, 1).differing("a longer cable").is_err());
        }
    }

    #[test]
    fn the_run_that_is_shown_has_a_ratio_as_near_to_the_reports_as_any() {
        let parameters = one("sba-occupancy").unwrap().manifest.parameters(Form::Quick);
        let it: Occupancy = parameters.try_into().unwrap();
        let shown = off(it.shown().unwrap());
        let all = (0..u64::from(it.tries)).map(|seed| off(&it.with_jitter(seed).unwrap()));
        assert!(all.fold(f64::MAX, f64::min) >= shown);
    }
}
