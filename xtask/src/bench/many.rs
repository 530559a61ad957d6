//! Memory of a daemon with many concurrent connections, and after many sequential ones. Also the packet delay that a status query causes.

use super::report::Report;
use anyhow::{Result, ensure};
use pages::{Limit, Table};
use std::time::Duration;
use testbed::pair::{Pair, SHIM_PORT, Tools};
use testbed::{Lab, Link, Offloads, Process, cpu};

/// Number of concurrent connections.
const AT_ONCE: u64 = 5_000;
/// Limit on the daemon's memory with [`AT_ONCE`] connections, in MiB.
const AT_ONCE_GOAL_MIB: f64 = 400.0;
/// Number of sequential connections in a round.
const IN_A_ROW: u64 = 10_000;
/// Number of rounds. Only the last round is judged. The earlier rounds use up the client's 28,232 ports. The daemon remembers an ended
/// connection under its client port for a minute (TIME-WAIT). So the daemon's memory grows until all ports have been used.
const ROUNDS: usize = 4;
/// Limit on the memory growth in the last round, in percent.
const GROWTH_GOAL: f64 = 5.0;
/// Limit on the time of one client program.
const LIMIT: Duration = Duration::from_secs(180);
const DAEMON: &str = "sctpifyd";
/// Number of open connections during the status queries.
const ASKED_ABOUT: u64 = 8_000;
/// Number of status queries.
const QUESTIONS: usize = 20;
/// Limit on the packet delay that a status query causes. This delay is the longest turn of the packet loop.
const TURN_GOAL: Duration = Duration::from_millis(1);

/// Measures and judges everything.
pub(crate) fn run(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let mut table = Table::new("", ["a daemon's memory", "MiB"]);
    let at_once_mib = at_once(lab, tools, &mut table)?;
    let growth = in_a_row(lab, tools, &mut table)?;
    report.show(table);
    let questions = questions(lab, tools)?;
    let figure = format!("memory with {AT_ONCE} connections at once, MiB");
    report.judge(figure, &[at_once_mib], Limit::AtMost(AT_ONCE_GOAL_MIB));
    let all = ROUNDS as u64 * IN_A_ROW;
    let figure = format!("growth of memory by the last {IN_A_ROW} of {all} connections in a row, %");
    report.judge(figure, &[growth], Limit::Below(GROWTH_GOAL));
    // Other activity of the machine also causes long turns. The goal therefore permits long turns during fewer than half of the queries.
    let figure = format!(
        "questions about {ASKED_ABOUT} connections with a turn longer than {TURN_GOAL:?}, of {QUESTIONS}"
    );
    report.judge(figure, &[questions as f64], Limit::Below(QUESTIONS as f64 / 2.0));
    Ok(())
}

/// Returns the memory of the client's daemon with [`AT_ONCE`] connections, in MiB. Adds rows to the table.
fn at_once(lab: &Lab, tools: &Tools, table: &mut Table) -> Result<f64> {
    let (pair, link) = joined(lab, "-many")?;
    let daemons = pair.start_daemons(tools)?;
    let before = memory_mib(&pair)?;
    let _server = pair.serve(&tools.bulk, &["keep", &SHIM_PORT.to_string()])?;
    let client = hold(&pair, tools, &link, AT_ONCE)?;
    let over_sctp = daemons.connects_sctp()?;
    ensure!(
        over_sctp == AT_ONCE,
        "{over_sctp} of {AT_ONCE} were carried over SCTP; fallbacks: {}",
        daemons.recent_fallbacks()?
    );
    let with = memory_mib(&pair)?;
    table.row(["idle".to_owned(), format!("{before:.1}")]);
    table.row([format!("with {AT_ONCE} connections at once"), format!("{with:.1}")]);
    client.stop();
    daemons.stop();
    Ok(with)
}

/// Returns the number of status queries, out of [`QUESTIONS`], that delay packets for longer than [`TURN_GOAL`].
fn questions(lab: &Lab, tools: &Tools) -> Result<usize> {
    let (pair, link) = joined(lab, "-asked")?;
    let daemons = pair.start_daemons(tools)?;
    let _server = pair.serve(&tools.bulk, &["keep", &SHIM_PORT.to_string()])?;
    let client = hold(&pair, tools, &link, ASKED_ABOUT)?;
    let mut before = daemons.turns_longer_than(TURN_GOAL)?;
    let mut slow = 0;
    for _ in 0..QUESTIONS {
        let after = daemons.turns_longer_than(TURN_GOAL)?;
        slow += usize::from(after > before);
        before = after;
    }
    client.stop();
    daemons.stop();
    Ok(slow)
}

/// Opens `count` connections that stay open.
fn hold(pair: &Pair, tools: &Tools, link: &Link, count: u64) -> Result<Process> {
    let mut command = pair.alpha.command(&tools.bulk);
    command.args(["hold", &target(link), &count.to_string()]);
    let mut client = pair.alpha.spawn("hold", command)?;
    client.wait_until("hold all connections", LIMIT, |client| client.stdout().contains("holding"))?;
    Ok(client)
}

/// Returns the memory growth of the client's daemon in the last round, in percent. Adds rows to the table.
fn in_a_row(lab: &Lab, tools: &Tools, table: &mut Table) -> Result<f64> {
    let (pair, link) = joined(lab, "-row")?;
    let daemons = pair.start_daemons(tools)?;
    let _server = pair.serve(&tools.bulk, &["accept", &SHIM_PORT.to_string()])?;
    let mut after = [0.0; ROUNDS];
    for (round, memory) in (1..).zip(&mut after) {
        let mut command = pair.alpha.command(&tools.bulk);
        command.args(["connects", &target(&link), &IN_A_ROW.to_string()]);
        pair.alpha.run("connects", command, LIMIT)?.good()?;
        let (over_sctp, expected) = (daemons.connects_sctp()?, round * IN_A_ROW);
        ensure!(
            over_sctp == expected,
            "{over_sctp} of {expected} were carried over SCTP: {}",
            daemons.recent_fallbacks()?
        );
        *memory = memory_mib(&pair)?;
        table.row([format!("after {expected} connections in a row"), format!("{memory:.1}")]);
    }
    daemons.stop();
    Ok(100.0 * (after[ROUNDS - 1] / after[ROUNDS - 2] - 1.0))
}

fn joined(lab: &Lab, name: &str) -> Result<(Pair, Link)> {
    let pair = Pair::new(lab, name)?;
    let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
    Ok((pair, link))
}

fn target(link: &Link) -> String {
    format!("{}:{SHIM_PORT}", link.right_v4())
}

fn memory_mib(pair: &Pair) -> Result<f64> {
    Ok(cpu::memory_kib(&pair.alpha, DAEMON)? as f64 / 1024.0)
}
