//! `./x bench sctp`: our engine in a plain SCTP program, compared with other stacks on the same link in one run.
//!
//! Runs of the contenders are interleaved, so a busy neighbour on the machine affects all contenders alike. Goals apply to ratios of
//! medians, except in the fairness experiment. The exit status is 0 only if every goal is met. Begin with [`table::EXPERIMENTS`], which
//! lists the measurements and the goals.

mod contender;
mod fairness;
mod table;
mod verdict;

use super::report::Report;
use crate::optimised;
use anyhow::{Context, Result, ensure};
use contender::{Contender, Programs};
use pages::Table;
use pages::stats::percentile;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;
use table::{EXPERIMENTS, Experiment, Job};
use testbed::pair::Pair;
use testbed::{Lab, Link, Offloads, c_programs};
use verdict::Verdict;

/// Number of runs of each contender.
const REPETITIONS: usize = 5;
/// Niceness of the contenders' programs.
const NICENESS: &str = "-15";
/// Limit on the total time of a run. It is much longer than the sending time, because usrsctp still sends its queue after the sending time
/// has ended.
const LIMIT: Duration = Duration::from_secs(60);

/// Amount of work in a run.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// Sending time of a bulk sender, in seconds.
    seconds: f64,
    /// Number of round trips of a ping-pong.
    pings: u32,
    /// Number of associations or connections to set up.
    connects: u32,
}

const QUICK: Effort = Effort { seconds: 0.2, pings: 1_000, connects: 300 };
const FULL: Effort = Effort { seconds: 2.0, pings: 20_000, connects: 3_000 };

/// Two joined hosts.
struct Setup {
    pair: Pair,
    link: Link,
}

/// The environment of the runs.
struct Bench {
    /// The hosts on a link with offloads, then the hosts on a link without offloads.
    setups: [Setup; 2],
    programs: Programs,
    effort: Effort,
}

/// Measures and judges everything. `words` are the arguments after `sctp`.
pub(crate) fn run(lab: &Lab, words: &[String], report: &mut Report) -> Result<()> {
    let (quick, wanted) = match words {
        [word, rest @ ..] if word == "--quick" => (true, rest),
        rest => (false, rest),
    };
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(&**word));
    let experiments: Vec<&Experiment> = EXPERIMENTS.iter().filter(|e| is_wanted(e.figures[0].name)).collect();
    let is_fairness_wanted = is_wanted("fairness") && !quick;
    ensure!(!experiments.is_empty() || is_fairness_wanted, "no figure has such a name");
    let ours = optimised::peer()?;
    let tcp = optimised::bulk()?;
    let rivals = optimised::rivals()?;
    let usrsctp = c_programs::build("usrsctp_bench", lab.dir(), &["usrsctp", "pthread"])?;
    let setups = [Setup::new(lab, "on", Offloads::On)?, Setup::new(lab, "off", Offloads::Off)?];
    let effort = if quick { QUICK } else { FULL };
    let bench = Bench { setups, programs: Programs { ours, usrsctp, tcp, rivals }, effort };
    if !words.is_empty() {
        report.is_short();
    }
    let mut table = verdict::table();
    for experiment in experiments {
        bench.experiment(experiment, &mut table, report)?;
    }
    if is_fairness_wanted {
        fairness::run(lab, &bench.programs, &mut table, report)?;
    }
    report.show(table);
    Ok(())
}

impl Setup {
    fn new(lab: &Lab, name: &str, offloads: Offloads) -> Result<Setup> {
        let pair = Pair::new(lab, &format!("-{name}"))?;
        let link = lab.join(&pair.alpha, &pair.beta, 1, offloads)?;
        // TCP uses the congestion control of our own flows, regardless of the host's default.
        link.set_left_tcp_control("cubic")?;
        widen_ports(&pair)?;
        Ok(Setup { pair, link })
    }
}

/// Lets programs on alpha connect from nearly all ports. Each closed connection occupies its port for a minute. The kernel prefers every
/// second port. Its search slows down when few of the preferred ports are free.
fn widen_ports(pair: &Pair) -> Result<()> {
    let mut command = pair.alpha.command("sysctl");
    command.args(["-qw", "net.ipv4.ip_local_port_range=10000 65535"]);
    pair.alpha.run("sysctl", command, LIMIT)?.good()?;
    Ok(())
}

impl Bench {
    /// Measures the contenders of one experiment, interleaved, and judges them.
    fn experiment(&self, experiment: &Experiment, table: &mut Table, report: &mut Report) -> Result<()> {
        let figures = experiment.figures.len();
        let mut samples = vec![vec![Vec::new(); experiment.contenders.len()]; figures];
        for repetition in 1..=REPETITIONS {
            for (n, contender) in experiment.contenders.iter().enumerate() {
                let what = format!("{}, {contender}", experiment.figures[0].name);
                progress(&format!("{what}, run {repetition} of {REPETITIONS}"));
                let measured = self.measure(experiment, *contender).with_context(|| what)?;
                for (figure, sample) in samples.iter_mut().zip(measured) {
                    figure[n].push(sample);
                }
            }
        }
        progress("");
        for (figure, samples) in experiment.figures.iter().zip(&samples) {
            Verdict::of(figure, experiment.contenders, samples).add(table, report);
        }
        Ok(())
    }

    /// Measures one run of one contender. Returns a sample for each figure of the experiment.
    fn measure(&self, experiment: &Experiment, contender: Contender) -> Result<Vec<f64>> {
        let setup = &self.setups[usize::from(experiment.offloads == Offloads::Off)];
        let report = self.exchange(setup, experiment, contender)?;
        Ok(match experiment.job {
            Job::Bulk { .. } | Job::Alone { .. } => vec![rate(&report)? * 8.0 / 1e9],
            Job::Messages { size } => vec![rate(&report)? / 1e6 / f64::from(size)],
            Job::Connects => vec![rate(&report)?],
            Job::Ping { .. } => {
                let micros: Vec<f64> = report.lines().filter_map(|line| line.parse().ok()).collect();
                ensure!(!micros.is_empty(), "no round trip was reported");
                vec![percentile(&micros, 50), percentile(&micros, 99)]
            }
        })
    }

    /// Starts a server, and runs a client to its end. Returns the output of the program that measures: the server or the client.
    fn exchange(&self, setup: &Setup, experiment: &Experiment, contender: Contender) -> Result<String> {
        let on = contender::LinkUse { link: &setup.link, carrier: experiment.carrier };
        let server = match self.programs.server(contender, experiment.job, &on) {
            None => None,
            Some((program, words)) => {
                let mut command = setup.pair.beta.command("nice");
                command.args(preferred(program, words));
                Some(setup.pair.serve_command(command)?)
            }
        };
        let (program, words) = self.programs.client(contender, experiment.job, &on, self.effort);
        let mut command = setup.pair.alpha.command("nice");
        command.args(preferred(program, words));
        let client = setup.pair.alpha.run("client", command, LIMIT)?.good()?;
        match server {
            Some(server) if experiment.job.is_measured_by_server() => {
                Ok(server.finish(LIMIT)?.good()?.stdout)
            }
            Some(server) => {
                server.stop();
                Ok(client.stdout)
            }
            None => Ok(client.stdout),
        }
    }
}

/// Returns arguments of nice(1) that run a program with a high priority. This reduces the influence of other programs on the contenders.
fn preferred(program: &Path, words: Vec<String>) -> Vec<String> {
    let mut all = vec!["-n".to_owned(), NICENESS.to_owned(), program.display().to_string()];
    all.extend(words);
    all
}

/// Parses the last line of the output, "AMOUNT MICROSECONDS". Returns the amount per second.
pub(super) fn rate(report: &str) -> Result<f64> {
    let line = report.lines().last().and_then(|line| line.split_once(' '));
    let (amount, micros) = line.context("nothing was reported")?;
    let (amount, micros): (f64, f64) = (amount.parse()?, micros.parse()?);
    ensure!(amount > 0.0 && micros > 0.0, "nothing was moved");
    Ok(amount * 1e6 / micros)
}

/// Overwrites the last line of the terminal. Does nothing if standard error is not a terminal.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{text:78}\r");
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn a_rate_is_what_was_moved_in_a_second() {
        assert_eq!(rate("listening\n500 250000\n").ok(), Some(2000.0));
    }

    #[test]
    fn nothing_moved_is_no_rate() {
        assert!(rate("listening\n").is_err());
        assert!(rate("0 250000\n").is_err());
    }
}
