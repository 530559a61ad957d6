//! What an experiment asks of two hosts, whatever carries the bytes between them and wherever they are.

use super::faults::Fault;
use super::{LINK_LATE, Load, Watch, measures, words_of};
use crate::experiment::Measures;
use anyhow::{Context, Result};
use serde_json::Value;
use std::cmp::Reverse;
use std::time::Duration;
use testbed::Process;
use testbed::process::now;

/// How much longer than it should a program may run before that is an error.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long links are looked at to tell which is in use: some messages of a stream that has few.
const LOOK: Duration = Duration::from_millis(500);

/// What a failure happens to: a link, counted from 0, and its end at the host that sends.
pub(in crate::experiments) trait Victim {
    /// Changes a link, in the words of `linkemu`.
    fn set_link(&self, link: usize, settings: &[&str]) -> Result<()>;

    /// Runs `ip` in the host that sends.
    fn senders_ip(&self, words: &[&str]) -> Result<()>;

    /// What that host calls the link, and its address there with the prefix's length.
    fn senders_end(&self, link: usize) -> Result<(String, String)>;

    /// Has a NAT on the first link forget all it knows.
    fn rebind(&self) -> Result<()>;

    /// Has that NAT drop all that it would forward, or no more.
    fn set_nat_silent(&self, is_silent: bool) -> Result<()>;
}

/// Two hosts between which a stream can be watched.
pub(in crate::experiments) trait Stage: Victim {
    /// Starts the receiver, which ends so many seconds after the first byte at the latest, and counts silence from so many on.
    fn receive(&self, limit_s: f64, from_s: f64) -> Result<Process>;

    /// Starts the sender; its stream begins at about the time when this returns.
    fn send(&self, stream_s: f64, load: Load) -> Result<Process>;

    /// Fails unless the connection could be carried by the second link, too.
    fn ensure_second(&self) -> Result<()>;

    /// Fails unless the stream rode what it should.
    fn ensure_rode(&self) -> Result<()>;

    /// What `linkemu show` tells of each link.
    fn shown(&self) -> Result<Vec<Value>>;
}

/// A stream, a failure in its midst, and what both ends saw.
///
/// How a stream begins is not the failure's doing: its first windows come with a round trip of silence between them. So silence
/// counts from half way to the failure on.
pub(super) fn watch(stage: &impl Stage, fault: Fault, load: Load, watch: Watch) -> Result<Measures> {
    let receiver = stage.receive(watch.stream_s + watch.drain_s, watch.fault_s / 2.0)?;
    let sender = stage.send(watch.stream_s, load)?;
    let start = now();
    std::thread::sleep(Duration::from_secs_f64(watch.fault_s).saturating_sub(start.elapsed() + LOOK));
    // A NAT is on the first link, whatever is in use.
    let link = if fault.needs_nat() { 0 } else { link_in_use(stage)? };
    stage.ensure_second()?;
    fault.happen(stage, link, watch.spans)?;
    let limit = Duration::from_secs_f64(watch.stream_s + watch.drain_s) + PATIENCE;
    let sent = words_of(&sender.finish(limit)?.good()?.stdout);
    let received = words_of(&receiver.finish(limit)?.good()?.stdout);
    stage.ensure_rode()?;
    let mut measures = measures(&sent, &received)?;
    measures.insert("failed_link".to_owned(), link as f64);
    measures.insert(LINK_LATE.to_owned(), worst_late_ms(&stage.shown()?)?);
    Ok(measures)
}

/// The link that carries most of a stream. Where round trips are alike, MPTCP begins by the first link and may go on by either.
pub(in crate::experiments) fn link_in_use(stage: &impl Stage) -> Result<usize> {
    let before = carried(&stage.shown()?)?;
    std::thread::sleep(LOOK);
    let after = carried(&stage.shown()?)?;
    let passed = after.iter().zip(&before).map(|(after, before)| after - before);
    // Of equals the first.
    Ok(passed
        .enumerate()
        .max_by_key(|(link, packets)| (*packets, Reverse(*link)))
        .map_or(0, |(link, _)| link))
}

/// Packets that have passed each link, in both directions: one that asks for the MTU has more bytes than many messages.
fn carried(shown: &[Value]) -> Result<Vec<u64>> {
    let passed = |direction: &Value| direction["packets"]["passed"].as_u64();
    let of = |link: &Value| directions(link)?.iter().map(passed).sum::<Option<u64>>().context("no packets");
    shown.iter().map(of).collect()
}

/// How late packets left links, in milliseconds: 99 % of them, in the worst direction.
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
