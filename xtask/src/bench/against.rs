//! Duration of connect() over SCTP with this build, compared with the duration with another build in the same run.
//!
//! Three pairs of hosts take turns: one pair with this build, and two pairs with the other build. The difference between the two pairs with
//! the other build shows the noise. All processes of a pair's left host run on processor 0. All processes of its right host run on
//! processor 1.

use crate::tools::output;
use anyhow::{Context, Result, ensure};
use pages::stats::{percentile, spread};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, Tools};
use testbed::{Host, Lab, Offloads, Process, Programs, cpu};

/// Number of measurements of each pair.
const ROUNDS: usize = 100;
/// Number of connections in each measurement.
const COUNT: u32 = 200;
/// Number of connections of each pair before the first measurement.
const WARM_UP: u32 = 50;

/// Time that the daemons get to open a shared association. The benchmark does not wait for a status instead, because another build may
/// report the association under another name.
const SETTLE: Duration = Duration::from_secs(2);

/// A pair of hosts with both daemons and a server.
struct Contestant {
    name: &'static str,
    pair: Pair,
    to: IpAddr,
    tools: Tools,
    daemons: Daemons,
    server: Process,
    /// Median connect time of each round, in microseconds.
    medians: Vec<f64>,
}

impl Contestant {
    /// Starts the daemons and the server, and opens the shared association.
    fn start(lab: &Lab, name: &'static str, number: u8, tools: Tools) -> Result<Self> {
        let pair = Pair::new(lab, &format!("-{number}"))?;
        let link = lab.join(&pair.alpha, &pair.beta, number, Offloads::On)?;
        let daemons = pair.start_daemons(&tools)?;
        for (processor, host) in [(0, &pair.alpha), (1, &pair.beta)] {
            for process in cpu::processes(host, "sctpifyd")? {
                let mut command = Command::new("taskset");
                command.args(["-a", "-p", "-c", &processor.to_string(), &process.to_string()]);
                output(&mut command).context("cannot bind a daemon to a processor")?;
            }
        }
        let mut command = bulk(&pair.beta, &tools, 1);
        command.args(["accept", &SHIM_PORT.to_string()]);
        let server = pair.serve_command(command)?;
        let to = IpAddr::V4(link.right_v4());
        let contestant = Self { name, pair, to, tools, daemons, server, medians: Vec::new() };
        contestant.connect(1)?;
        std::thread::sleep(SETTLE);
        contestant.connect(WARM_UP)?;
        Ok(contestant)
    }

    /// Returns the median time of `count` connects, in microseconds.
    fn connect(&self, count: u32) -> Result<f64> {
        let before = self.daemons.connects_sctp()?;
        let mut command = bulk(&self.pair.alpha, &self.tools, 0);
        command.args(["connect", &format!("{}:{SHIM_PORT}", self.to), &count.to_string()]);
        let micros = self.pair.connect_command(command)?;
        let over_sctp = self.daemons.connects_sctp()? - before;
        ensure!(over_sctp == u64::from(count), "{}: {over_sctp} of {count} connects used SCTP", self.name);
        Ok(percentile(&micros, 50))
    }

    fn stop(self) {
        self.server.stop();
        self.daemons.stop();
    }
}

/// Returns a command that runs `bulk` on one processor. The caller adds the arguments of `bulk`.
fn bulk(host: &Host, tools: &Tools, processor: u8) -> Command {
    let mut command = host.command("taskset");
    command.args(["-c", &processor.to_string()]).arg(&tools.bulk);
    command
}

/// Measures, and prints the rows. A round's ratio is this build's median time divided by the other build's median time. Returns the median
/// of all rounds' ratios. `other` is the directory of the other build's programs.
pub(crate) fn run(lab: &Lab, tools: &Tools, other: &Path) -> Result<f64> {
    let others = Tools { programs: Programs::in_dir(other)?, ..tools.clone() };
    let mut contestants = Vec::new();
    for (number, (name, tools)) in
        (1..).zip([("this build", tools), ("other build", &others), ("other build again", &others)])
    {
        contestants.push(Contestant::start(lab, name, number, tools.clone())?);
    }
    for round in 0..ROUNDS {
        // Rotate the order, so each pair goes first in every third round.
        let count = contestants.len();
        for turn in 0..count {
            let contestant = &mut contestants[(round + turn) % count];
            let median = contestant.connect(COUNT)?;
            contestant.medians.push(median);
        }
    }
    println!(
        "\nconnects over SCTP, {ROUNDS} rounds of {COUNT}: median (least-greatest), and its ratio to the other build in each round (quartiles)"
    );
    let reference = contestants[1].medians.clone();
    let mut ratio = f64::INFINITY;
    for contestant in contestants {
        let ratios: Vec<f64> =
            contestant.medians.iter().zip(&reference).map(|(own, other)| own / other).collect();
        let [low, middle, high] = [25, 50, 75].map(|percent| percentile(&ratios, percent));
        if contestant.name == "this build" {
            ratio = middle;
        }
        println!(
            "{:<18} {:<26} {middle:.3} ({low:.3}-{high:.3})",
            contestant.name,
            spread(&contestant.medians)
        );
        contestant.stop();
    }
    Ok(ratio)
}
