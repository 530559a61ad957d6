//! Duration of connect() to a destination without a matching rule, with a daemon and without.
//!
//! Client and server run on one processor, because a wakeup on another processor takes 1.5 times as long as on the same processor, with a
//! daemon or without.

use super::report::Report;
use anyhow::{Result, ensure};
use pages::stats::{middle_mean, spread};
use pages::{Limit, Table};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;
use testbed::pair::{Pair, TCP_PORT, Tools};
use testbed::{Host, Lab, Offloads, cpu};

/// Number of rounds. Each round has a new pair of hosts, which is measured with a daemon and without a daemon.
const ROUNDS: u8 = 9;
/// Number of connections in each of the two measurements of a round.
const COUNT: u32 = 5_000;
/// Limit on the total time of [`COUNT`] connections.
const LIMIT: Duration = Duration::from_secs(60);
/// Time that the daemon gets to write the rules' destinations into the kernel. Afterwards, the kernel holds no SYNs to other destinations.
const SETTLE: Duration = Duration::from_secs(1);

/// Limit on the time of a connect with a daemon, as a multiple of the time without a daemon.
const GOAL_RATIO: f64 = 1.25;
/// Limit on the daemon's processor time for a connect, in microseconds.
const GOAL_CPU_US: f64 = 1.0;

/// Returns a `bulk` command with these arguments. The command runs on the first processor only.
fn on_one_processor(host: &Host, tools: &Tools, words: &[&str]) -> Command {
    let mut command = host.command("taskset");
    command.args(["-c", "0"]).arg(&tools.bulk).args(words);
    command
}

/// Measures, and judges the cost of a running daemon.
pub(crate) fn run(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let (mut alone, mut beside, mut ratios, mut cpu_us) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let pair = Pair::new(lab, &format!("-unnamed{round}"))?;
        let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
        let to = IpAddr::V4(link.right_v4());
        let server =
            pair.serve_command(on_one_processor(&pair.beta, tools, &["accept", &TCP_PORT.to_string()]))?;
        let connect = || -> Result<f64> {
            let (to, count) = (format!("{to}:{TCP_PORT}"), COUNT.to_string());
            let command = on_one_processor(&pair.alpha, tools, &["connect", &to, &count]);
            let finished = pair.alpha.run("connect", command, LIMIT)?.good()?;
            let micros: Vec<f64> = finished.stdout.lines().filter_map(|line| line.parse().ok()).collect();
            ensure!(micros.len() == COUNT as usize, "{} connects of {COUNT} were reported", micros.len());
            Ok(middle_mean(&micros))
        };
        let with_daemon = || -> Result<(f64, Duration)> {
            let daemon = pair.start_alphas(tools)?;
            std::thread::sleep(SETTLE);
            let before = cpu::of_processes(&pair.alpha, "sctpifyd")?;
            let took = connect()?;
            let spent = cpu::of_processes(&pair.alpha, "sctpifyd")?.saturating_sub(before);
            daemon.stop();
            Ok((took, spent))
        };
        // Alternate the order, so each of the two measurements goes first in every second round.
        let (without, (with, spent)) = if round % 2 == 0 {
            (connect()?, with_daemon()?)
        } else {
            let with = with_daemon()?;
            (connect()?, with)
        };
        server.stop();
        ensure!(without > 0.0, "no connect was measured");
        alone.push(without);
        beside.push(with);
        ratios.push(with / without);
        cpu_us.push(spent.as_secs_f64() * 1e6 / f64::from(COUNT));
    }
    let caption = format!("Plain TCP to a port that no rule names, {ROUNDS} rounds of {COUNT} connections");
    let mut table = Table::new(caption, ["", "median (least-greatest)"]);
    for (name, samples) in [
        ("no daemon, us", &alone),
        ("daemon running, us", &beside),
        ("ratio in each round", &ratios),
        ("daemon's processor time for each, us", &cpu_us),
    ] {
        table.row([name.to_owned(), spread(samples)]);
    }
    report.show(table);
    let figure = "connect that no rule names beside a daemon, by that without one";
    report.judge(figure, &ratios, Limit::AtMost(GOAL_RATIO));
    report.judge("daemon's processor time for it, us", &cpu_us, Limit::AtMost(GOAL_CPU_US));
    Ok(())
}
