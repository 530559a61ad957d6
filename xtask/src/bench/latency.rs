//! Duration of connect() at three round-trip times: with plain TCP, to a server that is cached as not supporting SCTP, and through the
//! shim.

use super::report::Report;
use anyhow::{Result, bail, ensure};
use pages::Table;
use pages::stats::percentile;
use std::net::IpAddr;
use std::time::Duration;
use testbed::pair::{LEARNED_PORT, Pair, SHIM_PORT, TCP_PORT, Tools};
use testbed::{DelayedLink, Lab, Link, Offloads};

/// Round-trip times in ms, each with its number of sequential connections.
const ROUNDS: [(u64, u32); 3] = [(0, 1_000), (20, 200), (100, 100)];

/// Medians at one round-trip time, in microseconds.
struct Row {
    tcp_us: f64,
    learned_us: f64,
    shim_us: f64,
}

/// Extra time of a connect compared with plain TCP: the differences of medians on the link without delay, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extra {
    /// Extra time to a destination that is cached as not supporting SCTP.
    pub(crate) learned_us: f64,
    /// Extra time to a destination with SCTP.
    pub(crate) shim_us: f64,
}

/// Measures, shows the table, and returns the extra times.
pub(crate) fn run(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<Extra> {
    let mut extra = Extra::default();
    let mut table = Table::new("connect()", ["RTT ms", "connect", "p50 ms", "p99 ms", "connections"]);
    for (rtt_ms, count) in ROUNDS {
        let pair = Pair::new(lab, &format!("-{rtt_ms}ms"))?;
        if rtt_ms == 0 {
            let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
            let row = measure(&pair, &link, tools, (rtt_ms, count), &mut table)?;
            extra = Extra { learned_us: row.learned_us - row.tcp_us, shim_us: row.shim_us - row.tcp_us };
        } else {
            let one_way = Duration::from_millis(rtt_ms) / 2;
            let number = u8::try_from(rtt_ms)?;
            let delayed =
                DelayedLink::between(lab, &pair.alpha, &pair.beta, number, one_way, &tools.linkemu)?;
            measure(&pair, &delayed.link, tools, (rtt_ms, count), &mut table)?;
        }
    }
    report.show(table);
    Ok(extra)
}

fn measure(
    pair: &Pair,
    link: &Link,
    tools: &Tools,
    (rtt_ms, count): (u64, u32),
    table: &mut Table,
) -> Result<Row> {
    let daemons = pair.start_daemons(tools)?;
    let to = IpAddr::V4(link.right_v4());
    let mut row = Row { tcp_us: 0.0, learned_us: 0.0, shim_us: 0.0 };
    for (name, port) in [("tcp", TCP_PORT), ("learned", LEARNED_PORT), ("shim", SHIM_PORT)] {
        let server = pair.serve(&tools.bulk, &["accept", &port.to_string()])?;
        if port == LEARNED_PORT {
            pair.connect(to, tools, port, 1)?;
        }
        let before = daemons.connects_sctp()?;
        let micros = pair.connect(to, tools, port, count)?;
        server.stop();
        let over_sctp = daemons.connects_sctp()? - before;
        let expected = if port == SHIM_PORT { u64::from(count) } else { 0 };
        if over_sctp != expected {
            let why = daemons.recent_fallbacks()?;
            bail!(
                "{over_sctp} of {count} connections to port {port} were carried over SCTP; fallbacks: {why}"
            );
        }
        let (p50, p99) = (percentile(&micros, 50), percentile(&micros, 99));
        match port {
            TCP_PORT => row.tcp_us = p50,
            LEARNED_PORT => row.learned_us = p50,
            _ => row.shim_us = p50,
        }
        let millis = [p50, p99].map(|micros| format!("{:.3}", micros / 1e3));
        let [p50, p99] = millis;
        table.row([rtt_ms.to_string(), name.to_owned(), p50, p99, count.to_string()]);
    }
    let learned = daemons.learned_tcp()?;
    ensure!(learned == u64::from(count), "{learned} of {count} connections were kept on TCP as learned");
    daemons.stop();
    Ok(row)
}
