//! Duration of the first connect() to a host without SCTP, before anything is learned about it; and the share
//! of fallbacks although the host has SCTP, because the link loses packets.
//!
//! `refused`: the host answers SCTP in UDP with "port unreachable", like one without sctpify. `silent`: a
//! firewall drops it, so only the race timer ends the wait. (Because of its ICMP rate limit, the kernel sends
//! about six of nine answers within a second.)

use super::stats::percentile;
use anyhow::{Context, Result, ensure};
use std::net::IpAddr;
use std::time::Duration;
use testbed::pair::{Pair, SHIM_PORT, Tools};
use testbed::{DelayedLink, Lab, Offloads};

/// First connects of each kind; the destination is forgotten before each.
const COUNT: usize = 9;
/// The default of the setting `race_timer_ms`.
const RACE_TIMER_MS: f64 = 250.0;

/// Handshakes over the lossy link, one after the other.
const HANDSHAKES: u32 = 1_000;
/// Loss in each direction.
const LOSS: &str = "10%";

/// Returns the percentage of first contacts that fall back when each packet is lost with a probability of ten
/// percent. Each connection has its own association, and nothing is learned, so each is a first contact.
pub(crate) fn lossy(lab: &Lab, tools: &Tools) -> Result<f64> {
    let pair = Pair::new(lab, "-loss")?;
    let one_way = Duration::from_millis(5);
    let link = DelayedLink::between(lab, &pair.alpha, &pair.beta, 1, one_way, &tools.linkemu)?;
    let daemons = pair.start_daemons_with(tools, "carriers = \"udp\"\nstreams = \"own\"\nlearn = false\n")?;
    let server = pair.serve(&tools.bulk, &["accept", &SHIM_PORT.to_string()])?;
    let to = IpAddr::V4(link.link.right_v4());
    pair.connect(to, tools, SHIM_PORT, 1)?;
    let before = daemons.connects_sctp()?;
    link.set(&["--loss", LOSS])?;
    pair.connect(to, tools, SHIM_PORT, HANDSHAKES)?;
    let over_sctp = daemons.connects_sctp()? - before;
    server.stop();
    daemons.stop();
    let fell_back = u64::from(HANDSHAKES).saturating_sub(over_sctp);
    println!(
        "\nfirst contacts over 10 ms with loss of {LOSS} in each direction: {fell_back} of {HANDSHAKES} fall back"
    );
    Ok(fell_back as f64 * 100.0 / f64::from(HANDSHAKES))
}

/// Measures and prints both; returns the silent host's median beyond the race timer, in milliseconds.
pub(crate) fn run(lab: &Lab, tools: &Tools) -> Result<f64> {
    let pair = Pair::new(lab, "-fall")?;
    let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
    let to = IpAddr::V4(link.right_v4());
    let daemon = pair.start_alphas(tools)?;
    let server = pair.serve(&tools.bulk, &["accept", &SHIM_PORT.to_string()])?;
    println!("\nfirst connect  p50 ms     least      greatest   connections");
    let mut p50 = 0.0;
    for kind in ["refused", "silent"] {
        if kind == "silent" {
            pair.beta.drop_sctp()?;
        }
        let mut millis = Vec::new();
        for _ in 0..COUNT {
            // The very first one has nothing to forget.
            daemon.sctpify(&["forget", &to.to_string()])?;
            let micros = pair.connect(to, tools, SHIM_PORT, 1)?;
            millis.push(micros.first().context("no connect was timed")? / 1e3);
        }
        p50 = percentile(&millis, 50);
        println!(
            "{kind:<14} {p50:<10.3} {:<10.3} {:<10.3} {COUNT}",
            percentile(&millis, 0),
            percentile(&millis, 100)
        );
    }
    let output = daemon.sctpify(&["status", "--json"])?.good()?.stdout;
    let reasons = output.matches("\"no_sctp_answer\"").count();
    ensure!(reasons >= COUNT, "the attempts to the silent host ended for other reasons: {output}");
    server.stop();
    daemon.stop();
    Ok(p50 - RACE_TIMER_MS)
}
