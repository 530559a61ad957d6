//! How long connect() takes through the shim and as plain TCP, at three round-trip times.

use super::pair::{Pair, SHIM_PORT, TCP_PORT, Tools};
use super::stats::percentile;
use anyhow::{Result, bail};
use std::time::Duration;
use testbed::{DelayedLink, Lab, Link, Offloads};

/// Round-trip time in ms, and how many connections are made, one after the other.
const ROUNDS: [(u64, u32); 3] = [(0, 1_000), (20, 200), (100, 100)];
/// How long all connections of one kind may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Measures and prints the table.
pub(crate) fn run(lab: &Lab, tools: &Tools) -> Result<()> {
    println!("\nRTT ms  connect   p50 ms     p99 ms     connections");
    for (rtt_ms, count) in ROUNDS {
        let pair = Pair::new(lab, &format!("-{rtt_ms}ms"))?;
        if rtt_ms == 0 {
            let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
            measure(&pair, &link, tools, rtt_ms, count)?;
        } else {
            let one_way = Duration::from_millis(rtt_ms) / 2;
            let delayed = DelayedLink::between(lab, &pair.alpha, &pair.beta, u8::try_from(rtt_ms)?, one_way)?;
            measure(&pair, &delayed.link, tools, rtt_ms, count)?;
        }
    }
    Ok(())
}

fn measure(pair: &Pair, link: &Link, tools: &Tools, rtt_ms: u64, count: u32) -> Result<()> {
    let daemons = pair.start_daemons(tools)?;
    for (name, port) in [("tcp", TCP_PORT), ("shim", SHIM_PORT)] {
        let before = daemons.connects_sctp()?;
        let server = pair.serve(&tools.bulk, &["accept", &port.to_string()])?;
        let mut command = pair.alpha.command(&tools.bulk);
        command.args(["connect", &format!("{}:{port}", link.right_v4()), &count.to_string()]);
        let finished = pair.alpha.run("connect", command, LIMIT)?.good()?;
        server.stop();
        let rode = daemons.connects_sctp()? - before;
        let expected = if port == SHIM_PORT { u64::from(count) } else { 0 };
        if rode != expected {
            let why = daemons.recent_fallbacks()?;
            bail!("{rode} of {count} connections to port {port} rode SCTP; fallbacks: {why}");
        }
        let micros: Vec<f64> = finished.stdout.lines().filter_map(|line| line.parse().ok()).collect();
        let (p50, p99) = (percentile(&micros, 50) / 1e3, percentile(&micros, 99) / 1e3);
        println!("{rtt_ms:<7} {name:<9} {p50:<10.3} {p99:<10.3} {count}");
    }
    daemons.stop();
    Ok(())
}
