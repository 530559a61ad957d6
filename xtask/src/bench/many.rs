//! A daemon with many connections: its memory with concurrent ones and after many sequential ones; and the
//! packet delay that a query about them causes.

use anyhow::{Result, ensure};
use std::time::Duration;
use testbed::pair::{Pair, SHIM_PORT, Tools};
use testbed::{Lab, Link, Offloads, Process, cpu};

/// Concurrent connections.
const AT_ONCE: u64 = 5_000;
/// Limit on the daemon's memory for them, in MiB.
const AT_ONCE_GOAL_MIB: f64 = 400.0;
/// Sequential connections in a round.
const IN_A_ROW: u64 = 10_000;
/// Number of rounds; the last one is judged. The others use up the client's 28,232 ports: the daemon remembers
/// a connection by its port for a minute after its end (TIME-WAIT), so its memory grows until then.
const ROUNDS: usize = 4;
/// Limit on the memory growth in the last round, in percent.
const GROWTH_GOAL: f64 = 5.0;
/// Limit on one part.
const LIMIT: Duration = Duration::from_secs(180);
const DAEMON: &str = "sctpifyd";
/// Connections that the queries report.
const ASKED_ABOUT: u64 = 8_000;
/// Number of status queries.
const QUESTIONS: usize = 20;
/// Limit on the packet delay by a query.
const TURN_GOAL: Duration = Duration::from_millis(1);

/// Measures and prints everything; returns whether all goals are met.
pub(crate) fn run(lab: &Lab, tools: &Tools) -> Result<bool> {
    let at_once_mib = at_once(lab, tools)?;
    let growth = in_a_row(lab, tools)?;
    let questions = questions(lab, tools)?;
    println!("{AT_ONCE} connections at once: {at_once_mib:.0} MiB; the goal is {AT_ONCE_GOAL_MIB:.0}");
    println!(
        "the last {IN_A_ROW} of {} in a row: {growth:+.1} % memory; the goal is below {GROWTH_GOAL:.0}",
        ROUNDS as u64 * IN_A_ROW
    );
    println!(
        "questions about {ASKED_ABOUT} connections with a turn longer than {TURN_GOAL:?}: {questions} of {QUESTIONS}; the \
         goal is less than half, because the machine itself causes some"
    );
    Ok(at_once_mib <= AT_ONCE_GOAL_MIB && growth < GROWTH_GOAL && questions < QUESTIONS / 2)
}

/// Returns the memory of the client's daemon, in MiB.
fn at_once(lab: &Lab, tools: &Tools) -> Result<f64> {
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
    println!("memory of a daemon: {before:.1} MiB idle, {with:.1} MiB with {AT_ONCE} connections");
    client.stop();
    daemons.stop();
    Ok(with)
}

/// Returns the number of [`QUESTIONS`] that delay packets for longer than [`TURN_GOAL`].
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

/// Opens connections that stay open.
fn hold(pair: &Pair, tools: &Tools, link: &Link, count: u64) -> Result<Process> {
    let mut command = pair.alpha.command(&tools.bulk);
    command.args(["hold", &target(link), &count.to_string()]);
    let mut client = pair.alpha.spawn("hold", command)?;
    client.wait_until("hold all connections", LIMIT, |client| client.stdout().contains("holding"))?;
    Ok(client)
}

/// Returns the memory growth in the last round, in percent.
fn in_a_row(lab: &Lab, tools: &Tools) -> Result<f64> {
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
        println!("memory of a daemon: {memory:.1} MiB after {expected} connections");
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
