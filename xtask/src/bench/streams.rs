//! `./x bench streams`: connections that share an association, compared with plain TCP on the same link in the
//! same run.
//!
//! At a round trip of 50 ms, the benchmark measures the duration of connect() from the second connection on. It also measures the total
//! duration of a thousand short connections. Without delay, the benchmark measures one bulk stream on the shared association, on a separate
//! association, and over plain TCP.
//!
//! The exit status is 0 only if both goals are met. connect() must not take longer than [`CONNECT_GOAL`] times TCP's time. A thousand
//! connections that each request the last of [`SIZES`] must take less time than over TCP.

use super::report::Report;
use anyhow::{Context, Result, bail, ensure};
use pages::stats::{percentile, spread};
use pages::{Limit, Table};
use std::net::IpAddr;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT, Tools};
use testbed::{DelayedLink, Lab, Offloads};

const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Limit on the duration of connect() on a shared association, as a multiple of plain TCP's duration.
const CONNECT_GOAL: f64 = 1.05;
/// Number of sequential connections whose connect() is timed.
const CONNECTS: u32 = 200;
/// Number of short connections.
const SHORT: u32 = 1_000;
/// Number of short connections at a time.
const PARALLEL: u32 = 10;
/// Bytes that each short connection requests. Two sizes are below TCP's initial window, and the last size is above. Only the last size is
/// judged.
const SIZES: [u32; 3] = [100, 14_000, 65_536];
/// Number of runs of each bulk stream.
const BULK_RUNS: usize = 5;
/// Duration of a bulk stream, in seconds.
const BULK_SECONDS: &str = "2";
/// Limit on the time of each program's run.
const LIMIT: Duration = Duration::from_secs(180);

/// Measures and judges everything.
pub(crate) fn run(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    delayed(lab, tools, report)?;
    bulk(lab, tools, report)
}

/// Connects until both daemons have a shared association.
fn warm_up(pair: &Pair, to: IpAddr, tools: &Tools, daemons: &Daemons) -> Result<()> {
    let server = pair.serve(&tools.bulk, &["accept", &SHIM_PORT.to_string()])?;
    daemons.connect_until_shared(|| pair.connect(to, tools, SHIM_PORT, 1).map(drop))?;
    server.stop();
    Ok(())
}

/// Measures on the link with delay. Judges the times of connect() and of the short connections with the last size, as multiples of TCP's
/// times.
fn delayed(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let pair = Pair::new(lab, "-50ms")?;
    let delayed = DelayedLink::between(lab, &pair.alpha, &pair.beta, 50, ROUND_TRIP / 2, &tools.linkemu)?;
    let to = IpAddr::V4(delayed.link.right_v4());
    let daemons = pair.start_daemons(tools)?;
    warm_up(&pair, to, tools, &daemons)?;
    let mut table = Table::new("Round trip of 50 ms", ["", "TCP", "shared", "x TCP"]);
    let shared = daemons.connects_shared()?;
    let mut medians = [0.0; 2];
    for (median, port) in medians.iter_mut().zip([TCP_PORT, SHIM_PORT]) {
        let server = pair.serve(&tools.bulk, &["accept", &port.to_string()])?;
        *median = percentile(&pair.connect(to, tools, port, CONNECTS)?, 50) / 1e3;
        server.stop();
    }
    let connect = medians[1] / medians[0];
    table.row(cells("connect() p50, ms".to_owned(), medians));
    report.judge("connect() on a shared association, by TCP's", &[connect], Limit::AtMost(CONNECT_GOAL));
    let mut short = 0.0;
    for size in SIZES {
        let tcp = fetch(&pair, to, tools, TCP_PORT, size)?;
        let ours = fetch(&pair, to, tools, SHIM_PORT, size)?;
        short = ours / tcp;
        table.row(cells(format!("{SHORT} x {size} bytes, s"), [tcp, ours]));
    }
    report.show(table);
    let figure = format!("{SHORT} fetches of {} bytes on a shared association, by TCP's", SIZES[2]);
    report.judge(figure, &[short], Limit::Below(1.0));
    let joined = daemons.connects_shared()? - shared;
    let expected = u64::from(CONNECTS) + u64::from(SHORT) * SIZES.len() as u64;
    if joined != expected {
        bail!(
            "{joined} of {expected} connections shared an association; fallbacks: {}",
            daemons.recent_fallbacks()?
        );
    }
    daemons.stop();
    Ok(())
}

/// Returns a row: the name, TCP's figure, ours, and their ratio.
fn cells(name: String, [tcp, ours]: [f64; 2]) -> [String; 4] {
    [name, format!("{tcp:.2}"), format!("{ours:.2}"), format!("{:.3}", ours / tcp)]
}

/// Opens [`SHORT`] connections that each request `size` bytes, [`PARALLEL`] at a time. Returns their total duration in seconds.
fn fetch(pair: &Pair, to: IpAddr, tools: &Tools, port: u16, size: u32) -> Result<f64> {
    let server = pair.serve(&tools.bulk, &["give", &port.to_string()])?;
    let mut command = pair.alpha.command(&tools.bulk);
    let (target, numbers) = (format!("{to}:{port}"), [SHORT, size, PARALLEL].map(|n| n.to_string()));
    command.args(["fetch", &target]).args(numbers);
    let output = pair.alpha.run("fetch", command, LIMIT)?.good()?.stdout;
    server.stop();
    let micros = output.split_whitespace().last().context("fetch reported nothing")?;
    Ok(micros.parse::<f64>()? / 1e6)
}

/// Measures one bulk stream in turn over plain TCP, on a separate association and on the shared association.
fn bulk(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let pair = Pair::new(lab, "-bulk")?;
    let link = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
    let to = IpAddr::V4(link.right_v4());
    let daemons = pair.start_daemons(tools)?;
    warm_up(&pair, to, tools, &daemons)?;
    let kinds = [("tcp", TCP_PORT, "shared"), ("own", SHIM_PORT, "own"), ("shared", SHIM_PORT, "shared")];
    let mut all = [(); 3].map(|()| Vec::new());
    for _ in 0..BULK_RUNS {
        for (samples, (name, port, streams)) in all.iter_mut().zip(kinds) {
            daemons.set(&format!("streams={streams}"))?;
            let shared = daemons.connects_shared()?;
            samples.push(gbit_per_s(&pair, to, tools, port)?);
            let joined = daemons.connects_shared()? - shared;
            ensure!(
                joined == u64::from(name == "shared"),
                "{name}: {joined} connections shared an association"
            );
        }
    }
    let head = ["association", "Gbit/s, median (least-greatest)", "x own association"];
    let mut table = Table::new("One bulk stream, writes of 64 KiB, no delay", head);
    let own = percentile(&all[1], 50);
    for (samples, (name, ..)) in all.iter().zip(kinds) {
        table.row([name.to_owned(), spread(samples), format!("{:.2}", percentile(samples, 50) / own)]);
    }
    report.show(table);
    daemons.stop();
    Ok(())
}

fn gbit_per_s(pair: &Pair, to: IpAddr, tools: &Tools, port: u16) -> Result<f64> {
    let server = pair.serve(&tools.bulk, &["receive", &port.to_string()])?;
    let mut sender = pair.alpha.command(&tools.bulk);
    sender.args(["send", &format!("{to}:{port}"), BULK_SECONDS, "65536"]);
    pair.alpha.run("sender", sender, LIMIT)?.good()?;
    let output = server.finish(LIMIT)?.good()?.stdout;
    let last = output.lines().last().and_then(|line| line.split_once(' '));
    let (bytes, micros) = last.context("the receiver reported nothing")?;
    Ok(bytes.parse::<f64>()? * 8.0 / 1e3 / micros.parse::<f64>()?)
}
