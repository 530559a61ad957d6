//! Interface of two hosts in an experiment. The interface hides the transport, and whether the hosts are
//! namespaces or guests.

use super::faults::Fault;
use super::{LINK_LATE, Load, Watch, measures, words_of};
use crate::experiment::Measures;
use anyhow::{Context, Result};
use serde_json::Value;
use std::cmp::Reverse;
use std::time::Duration;
use testbed::Process;
use testbed::process::now;

/// Extra time that a program gets after its limit. If the program still runs after the extra time, the
/// measurement fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// Observation time to determine the link in use. During this time, even a sparse stream sends some
/// messages.
const LOOK: Duration = Duration::from_millis(500);

/// Target of a failure: the links, numbered from 0, and their ends at the sending host.
pub(in crate::experiments) trait Victim {
    /// Changes a link. `settings` are arguments of `linkemu`.
    fn set_link(&self, link: usize, settings: &[&str]) -> Result<()>;

    /// Runs `ip` on the sending host.
    fn senders_ip(&self, words: &[&str]) -> Result<()>;

    /// Returns the link's interface at the sending host, and the address there with its prefix length.
    fn senders_end(&self, link: usize) -> Result<(String, String)>;

    /// Makes the NAT on the first link forget all its state.
    fn rebind(&self) -> Result<()>;

    /// Makes the NAT drop all forwarded packets, or forward them again.
    fn set_nat_silent(&self, is_silent: bool) -> Result<()>;
}

/// Two hosts, and a stream between them that the experiment measures.
pub(in crate::experiments) trait Stage: Victim {
    /// Starts the receiver. The receiver ends at the latest `limit_s` seconds after the first byte. It
    /// ignores silence that begins in the first `from_s` seconds after the first byte.
    fn receive(&self, limit_s: f64, from_s: f64) -> Result<Process>;

    /// Starts the sender. Its stream begins approximately when this function returns.
    fn send(&self, stream_s: f64, load: Load) -> Result<Process>;

    /// Fails if a second link exists but the connection could not use it.
    fn ensure_second(&self) -> Result<()>;

    /// Fails if the stream should use SCTP, but another transport carried it.
    fn ensure_over_sctp(&self) -> Result<()>;

    /// Returns the output of `linkemu show` for each link.
    fn shown(&self) -> Result<Vec<Value>>;
}

/// Runs a stream with a failure in its middle, and returns the measures of both ends.
///
/// The receiver ignores silence that begins in the first half of the time before the failure. In this half,
/// the stream's first windows arrive one round trip apart, with silence between them.
pub(super) fn watch(stage: &impl Stage, fault: Fault, load: Load, watch: Watch) -> Result<Measures> {
    let receiver = stage.receive(watch.stream_s + watch.drain_s, watch.fault_s / 2.0)?;
    let sender = stage.send(watch.stream_s, load)?;
    let start = now();
    std::thread::sleep(Duration::from_secs_f64(watch.fault_s).saturating_sub(start.elapsed() + LOOK));
    // A failure of the NAT affects the first link, even if the other one is in use.
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

/// Returns the number of the link that carries most packets of a stream. The link must be determined,
/// because MPTCP begins on the first link, but may continue on either link if the round-trip times are
/// equal.
pub(in crate::experiments) fn link_in_use(stage: &impl Stage) -> Result<usize> {
    let before = carried(&stage.shown()?)?;
    std::thread::sleep(LOOK);
    let after = carried(&stage.shown()?)?;
    let passed = after.iter().zip(&before).map(|(after, before)| after - before);
    // The first link wins a tie.
    Ok(passed
        .enumerate()
        .max_by_key(|(link, packets)| (*packets, Reverse(*link)))
        .map_or(0, |(link, _)| link))
}

/// Returns the number of packets that each link passed, over both directions. Numbers of bytes would
/// mislead, because one MTU probe on the idle link has more bytes than many messages.
fn carried(shown: &[Value]) -> Result<Vec<u64>> {
    let passed = |direction: &Value| direction["packets"]["passed"].as_u64();
    let of = |link: &Value| directions(link)?.iter().map(passed).sum::<Option<u64>>().context("no packets");
    shown.iter().map(of).collect()
}

/// Returns the 99th percentile of the packets' lateness in milliseconds, for the worst direction of all
/// links.
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
