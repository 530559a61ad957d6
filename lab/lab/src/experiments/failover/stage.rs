//! The interface of two hosts to an experiment, independent of transport and location.

use super::faults::Fault;
use super::{LINK_LATE, Load, Watch, measures, words_of};
use crate::experiment::Measures;
use anyhow::{Context, Result};
use serde_json::Value;
use std::cmp::Reverse;
use std::time::Duration;
use testbed::Process;
use testbed::process::now;

/// Overtime of a program beyond which it counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Observation time to determine the link in use: long enough for some messages of a sparse stream.
const LOOK: Duration = Duration::from_millis(500);

/// The target of a failure: a link, counted from 0, and its end at the sending host.
pub(in crate::experiments) trait Victim {
    /// Changes a link, with flags of `linkemu`.
    fn set_link(&self, link: usize, settings: &[&str]) -> Result<()>;

    /// Runs `ip` on the sending host.
    fn senders_ip(&self, words: &[&str]) -> Result<()>;

    /// Returns that host's name of the link, and its address there with the prefix length.
    fn senders_end(&self, link: usize) -> Result<(String, String)>;

    /// Makes a NAT on the first link forget all its state.
    fn rebind(&self) -> Result<()>;

    /// Makes that NAT drop all forwarded packets, or stop doing so.
    fn set_nat_silent(&self, is_silent: bool) -> Result<()>;
}

/// Two hosts between which a stream can be watched.
pub(in crate::experiments) trait Stage: Victim {
    /// Starts the receiver. It ends at most `limit_s` after the first byte, and measures silence from `from_s`
    /// on.
    fn receive(&self, limit_s: f64, from_s: f64) -> Result<Process>;

    /// Starts the sender; its stream begins at about the time of the return.
    fn send(&self, stream_s: f64, load: Load) -> Result<Process>;

    /// Fails unless the second link could carry the connection as well.
    fn ensure_second(&self) -> Result<()>;

    /// Fails unless the expected transport carried the stream.
    fn ensure_over_sctp(&self) -> Result<()>;

    /// Returns the output of `linkemu show` for each link.
    fn shown(&self) -> Result<Vec<Value>>;
}

/// Runs a stream with a failure in its middle, and returns both ends' measures.
///
/// Silence counts only from half the time before the failure on, because at the start of a stream the first
/// windows come a silent round trip apart.
pub(super) fn watch(stage: &impl Stage, fault: Fault, load: Load, watch: Watch) -> Result<Measures> {
    let receiver = stage.receive(watch.stream_s + watch.drain_s, watch.fault_s / 2.0)?;
    let sender = stage.send(watch.stream_s, load)?;
    let start = now();
    std::thread::sleep(Duration::from_secs_f64(watch.fault_s).saturating_sub(start.elapsed() + LOOK));
    // The NAT is on the first link, whichever link is in use.
    let link = if fault.needs_nat() { 0 } else { link_in_use(stage)? };
    stage.ensure_second()?;
    fault.happen(stage, link, watch.spans)?;
    let limit = Duration::from_secs_f64(watch.stream_s + watch.drain_s) + PATIENCE;
    let sent = words_of(&sender.finish(limit)?.good()?.stdout);
    let received = words_of(&receiver.finish(limit)?.good()?.stdout);
    stage.ensure_over_sctp()?;
    let mut measures = measures(&sent, &received)?;
    measures.insert("failed_link".to_owned(), link as f64);
    measures.insert(LINK_LATE.to_owned(), worst_late_ms(&stage.shown()?)?);
    Ok(measures)
}

/// Returns the link that carries most of a stream. With equal round trips MPTCP begins on the first link and
/// may continue on either.
pub(in crate::experiments) fn link_in_use(stage: &impl Stage) -> Result<usize> {
    let before = carried(&stage.shown()?)?;
    std::thread::sleep(LOOK);
    let after = carried(&stage.shown()?)?;
    let passed = after.iter().zip(&before).map(|(after, before)| after - before);
    // On a tie, the first.
    Ok(passed
        .enumerate()
        .max_by_key(|(link, packets)| (*packets, Reverse(*link)))
        .map_or(0, |(link, _)| link))
}

/// Returns the packets passed by each link, in both directions. Bytes would mislead: one MTU probe outweighs
/// many messages.
fn carried(shown: &[Value]) -> Result<Vec<u64>> {
    let passed = |direction: &Value| direction["packets"]["passed"].as_u64();
    let of = |link: &Value| directions(link)?.iter().map(passed).sum::<Option<u64>>().context("no packets");
    shown.iter().map(of).collect()
}

/// Returns the 99th percentile of packet lateness at links, in milliseconds, in the worst direction.
pub(super) fn worst_late_ms(shown: &[Value]) -> Result<f64> {
    let mut worst_us = 0;
    for link in shown {
        for direction in directions(link)? {
            let late = direction["late"]["p99_us"].as_u64().context("a link that does not tell how late")?;
            worst_us = late.max(worst_us);
        }
    }
    Ok(worst_us as f64 / 1e3)
}

fn directions(link: &Value) -> Result<&Vec<Value>> {
    link["directions"].as_array().context("a link without directions")
}
