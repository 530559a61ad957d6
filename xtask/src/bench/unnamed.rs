//! Duration of connect() to a destination without a matching rule, with a daemon and without.
//!
//! Client and server run on one processor: a wakeup on another one takes half as long again, independent of the
//! daemon.

use super::stats::{middle_mean, percentile, spread};
use anyhow::{Result, ensure};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;
use testbed::pair::{Pair, TCP_PORT, Tools};
use testbed::{Host, Lab, Offloads, cpu};

/// Pairs of hosts, each measured with a daemon and without.
const ROUNDS: u8 = 9;
/// Connections of each round and kind.
const COUNT: u32 = 5_000;
/// Limit on their total time.
const LIMIT: Duration = Duration::from_secs(60);
/// Time until the kernel has the names of the rules.
const SETTLE: Duration = Duration::from_secs(1);

/// Cost of a running daemon for a connection without a matching rule: the medians of all rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// The time of a connect with the daemon, divided by the time without.
    pub(crate) ratio: f64,
    /// The daemon's processor time for each connect, in microseconds.
    pub(crate) cpu_us: f64,
}

/// Returns a `bulk` command with these arguments, on the first processor only.
fn on_one_processor(host: &Host, tools: &Tools, words: &[&str]) -> Command {
    let mut command = host.command("taskset");
    command.args(["-c", "0"]).arg(&tools.bulk).args(words);
    command
}

/// Measures and prints the rows.
pub(crate) fn run(lab: &Lab, tools: &Tools) -> Result<Cost> {
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
        // Alternate the order, so neither side always has the advantage.
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
    println!(
        "\nplain TCP to a port that no rule names, {ROUNDS} rounds of {COUNT} connections: median (least-greatest)"
    );
    println!("no daemon, us             {}", spread(&alone));
    println!("daemon running, us        {}", spread(&beside));
    println!("ratio in each round       {}", spread(&ratios));
    println!("daemon's CPU us for each  {}", spread(&cpu_us));
    Ok(Cost { ratio: percentile(&ratios, 50), cpu_us: percentile(&cpu_us, 50) })
}
