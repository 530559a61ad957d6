//! Fairness: ten of our flows and ten of the kernel's TCP flows, all with CUBIC, share a link of 100 Mbit/s.
//!
//! The round trip is 20 ms. The link has a tail-drop queue of one bandwidth-delay product. The queue belongs to a host in the middle,
//! because TCP would hold back if a queue of its own host held other flows' packets. Each receiver counts bytes for a fixed time, from its
//! first byte on.

use super::contender::{PORT, Programs};
use super::verdict::row;
use super::{LIMIT, REPETITIONS};
use crate::bench::report::Report;
use anyhow::{Context, Result};
use pages::{Limit, Table};
use std::process::Command;
use std::time::Duration;
use testbed::pair::Pair;
use testbed::{DelayedLink, Lab, Process};

/// Number of flows of each kind.
const FLOWS: u16 = 10;
/// UDP port of our first flow, and TCP port of the first TCP flow. The other flows use the ports that follow.
const FIRST_PORT: u16 = 9_901;
/// Counting time of the receivers, in seconds.
const SECONDS: &str = "10";
/// Maximum sending time of the senders, in seconds. The benchmark stops the senders earlier, when all receivers have ended.
const SENDERS_SECONDS: &str = "60";
/// Size of messages and writes, in octets. All flows send packets of full size, because short packets fit more easily into a queue limited
/// in octets.
const SIZE: &str = "65536";
/// Arguments of `tc`: rate, bucket depth in bytes (just more than a packet), and queue limit in octets (20 ms).
const TBF: [&str; 7] = ["tbf", "rate", "100mbit", "burst", "1600", "limit", "250000"];
/// Minimum total throughput of the flows of a kind, as a fraction of half of all flows' throughput.
const SHARE_MIN: f64 = 0.7;
/// Minimum of Jain's index over our flows.
const JAIN_MIN: f64 = 0.95;

/// The environment of the flows.
struct Flows<'a> {
    pair: Pair,
    link: DelayedLink,
    programs: &'a Programs,
}

/// Runs all flows [`REPETITIONS`] times, judges the results, and adds their rows to the table.
pub(crate) fn run(lab: &Lab, programs: &Programs, table: &mut Table, report: &mut Report) -> Result<()> {
    let pair = Pair::new(lab, "-fair")?;
    let one_way = Duration::from_millis(10);
    let linkemu = crate::optimised::linkemu()?;
    let link = DelayedLink::between(lab, &pair.alpha, &pair.beta, 2, one_way, &linkemu)?;
    link.link.set_left_tcp_control("cubic")?;
    link.queue_to_right(&TBF)?;
    let flows = Flows { pair, link, programs };
    let [mut ours, mut tcp, mut jain] = [const { Vec::new() }; 3];
    for repetition in 1..=REPETITIONS {
        super::progress(&format!("fairness, run {repetition} of {REPETITIONS}"));
        let [our_bytes, tcp_bytes] = flows.measure()?;
        let (our_sum, tcp_sum) = (our_bytes.iter().sum::<f64>(), tcp_bytes.iter().sum::<f64>());
        let fair = f64::midpoint(our_sum, tcp_sum);
        ours.push(our_sum / fair);
        tcp.push(tcp_sum / fair);
        jain.push(jain_index(&our_bytes));
    }
    super::progress("");
    let share = "fairness, share of 10 flows";
    for (name, of, samples, least) in [
        (share, "ours", &ours, SHARE_MIN),
        (share, "tcp", &tcp, SHARE_MIN),
        ("fairness, Jain's index", "ours", &jain, JAIN_MIN),
    ] {
        row(table, [name, "", of], samples, None);
        report.judge(format!("{name} of {of}"), samples, Limit::AtLeast(least));
    }
    Ok(())
}

/// Computes Jain's index, (Σx)² / (n · Σx²): 1 for equal amounts, 1/n if one flow has everything.
fn jain_index(amounts: &[f64]) -> f64 {
    let (sum, squares) = (amounts.iter().sum::<f64>(), amounts.iter().map(|x| x * x).sum::<f64>());
    sum * sum / (amounts.len() as f64 * squares)
}

impl Flows<'_> {
    /// Runs all flows at once. Returns the bytes of each of our flows, and of each TCP flow.
    fn measure(&self) -> Result<[Vec<f64>; 2]> {
        let ports: Vec<String> = (FIRST_PORT..FIRST_PORT + FLOWS).map(|port| port.to_string()).collect();
        let serve = |make: &dyn Fn(&str) -> (Command, Command)| -> Result<Vec<(Process, Command)>> {
            let served = ports.iter().map(|port| {
                let (server, client) = make(port);
                Ok((self.pair.serve_command(server)?, client))
            });
            served.collect()
        };
        let both = [serve(&|port| self.ours(port))?, serve(&|port| self.tcp(port))?];
        let mut senders = Vec::new();
        let mut receivers = [Vec::new(), Vec::new()];
        for (kind, served) in receivers.iter_mut().zip(both) {
            for (receiver, client) in served {
                senders.push(self.pair.alpha.spawn("sender", client)?);
                kind.push(receiver);
            }
        }
        let [ours, tcp] = receivers.map(|kind| kind.into_iter().map(bytes_of).collect::<Result<Vec<f64>>>());
        senders.into_iter().for_each(Process::stop);
        Ok([ours?, tcp?])
    }

    fn ours(&self, port: &str) -> (Command, Command) {
        let (left, right) = (self.link.link.left_v4().to_string(), self.link.link.right_v4().to_string());
        let mut server = self.pair.beta.command(&self.programs.ours);
        server.args(["--udp-port", port, "--local", &right, "receive", PORT, "--for", SECONDS]);
        let mut client = self.pair.alpha.command(&self.programs.ours);
        client.args(["--udp-port", port, "--peer-udp-port", port, "--local", &left]);
        client.args(["send", &right, PORT, SENDERS_SECONDS, SIZE]);
        (server, client)
    }

    fn tcp(&self, port: &str) -> (Command, Command) {
        let mut server = self.pair.beta.command(&self.programs.tcp);
        server.args(["receive", port, SECONDS]);
        let mut client = self.pair.alpha.command(&self.programs.tcp);
        client.args(["send", &format!("{}:{port}", self.link.link.right_v4()), SENDERS_SECONDS, SIZE]);
        (server, client)
    }
}

/// Waits until a receiver has ended, and returns its byte count.
fn bytes_of(receiver: Process) -> Result<f64> {
    let output = receiver.finish(LIMIT)?.good()?.stdout;
    let bytes = output.lines().last().and_then(|line| line.split(' ').next());
    bytes.context("a receiver reported nothing")?.parse().context("a receiver reported no number")
}

#[cfg(test)]
mod tests {
    use super::jain_index;

    #[test]
    fn jains_index_tells_equal_from_unequal() {
        assert!((jain_index(&[3.0; 10]) - 1.0).abs() < 1e-9);
        assert!((jain_index(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-9);
    }
}
