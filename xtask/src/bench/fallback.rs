//! Duration of the first connect() to a host without SCTP, before the daemon has cached that the host has no SCTP. Also the share of
//! fallbacks among connections to a host with SCTP, on a link that loses packets.
//!
//! There are two kinds of hosts without SCTP:
//!
//! - `refused`: the host answers SCTP over UDP with ICMP "port unreachable", like a host without sctpify. Because of the ICMP rate limit,
//!   the host's kernel sends only about six of nine answers within a second.
//! - `silent`: a firewall drops SCTP, so only the race timer ends the wait.

use super::report::Report;
use anyhow::{Context, Result, ensure};
use pages::stats::percentile;
use pages::{Limit, Table};
use std::net::IpAddr;
use std::time::Duration;
use testbed::pair::{Pair, SHIM_PORT, Tools};
use testbed::{DelayedLink, Lab, Offloads};

/// Number of first connects to each kind of host. The daemon forgets the destination before each connect.
const COUNT: usize = 9;
/// The default of the setting `race_timer_ms`.
const RACE_TIMER_MS: f64 = 250.0;

/// Number of handshakes over the lossy link, one after the other.
const HANDSHAKES: u32 = 1_000;
/// Loss in each direction of the lossy link.
const LOSS: &str = "10%";

/// Limit on fallbacks of first contacts over the lossy link, in percent.
const LOSSY_GOAL_PERCENT: f64 = 0.5;
/// Limit on the time of the first connect to a host that drops SCTP, beyond the race timer, in milliseconds.
const SILENT_GOAL_MS: f64 = 5.0;

/// Judges the percentage of first contacts that fall back when each packet is lost with a probability of ten percent. Each connection has
/// its own association, and the daemon learns nothing, so each connection is a first contact.
pub(crate) fn lossy(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
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
    let percent = fell_back as f64 * 100.0 / f64::from(HANDSHAKES);
    let figure = format!("fallbacks of {HANDSHAKES} first contacts over 10 ms that lose {LOSS} each way, %");
    report.judge(figure, &[percent], Limit::AtMost(LOSSY_GOAL_PERCENT));
    Ok(())
}

/// Measures both kinds of hosts. For the silent host, judges the median of the times beyond the race timer.
pub(crate) fn run(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let pair = Pair::new(lab, "-fall")?;
    let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
    let to = IpAddr::V4(link.right_v4());
    let daemon = pair.start_alphas(tools)?;
    let server = pair.serve(&tools.bulk, &["accept", &SHIM_PORT.to_string()])?;
    let head = ["first connect", "p50 ms", "least", "greatest", "connections"];
    let mut table = Table::new("First connect() to a host without SCTP", head);
    let mut millis = Vec::new();
    for kind in ["refused", "silent"] {
        if kind == "silent" {
            pair.beta.drop_sctp()?;
        }
        millis.clear();
        for _ in 0..COUNT {
            // The exit status is ignored: the first time, the daemon has nothing to forget.
            daemon.sctpify(&["forget", &to.to_string()])?;
            let micros = pair.connect(to, tools, SHIM_PORT, 1)?;
            millis.push(micros.first().context("no connect was timed")? / 1e3);
        }
        let [p50, least, greatest] =
            [50, 0, 100].map(|percent| format!("{:.3}", percentile(&millis, percent)));
        table.row([kind.to_owned(), p50, least, greatest, COUNT.to_string()]);
    }
    let output = daemon.sctpify(&["status", "--json"])?.good()?.stdout;
    let reasons = output.matches("\"no_sctp_answer\"").count();
    ensure!(reasons >= COUNT, "the attempts to the silent host ended for other reasons: {output}");
    server.stop();
    daemon.stop();
    report.show(table);
    let beyond: Vec<f64> = millis.iter().map(|millis| millis - RACE_TIMER_MS).collect();
    let figure = "first connect to a silent host, beyond the race timer, ms";
    report.judge(figure, &beyond, Limit::AtMost(SILENT_GOAL_MS));
    Ok(())
}
