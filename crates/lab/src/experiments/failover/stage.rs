//! What an experiment asks of two hosts, whatever carries the bytes between them and wherever they are.

use super::faults::Fault;
use super::{Load, Watch, measures, words_of};
use crate::experiment::Measures;
use anyhow::Result;
use std::time::Duration;
use testbed::Process;
use testbed::process::now;

/// How much longer than it should a program may run before that is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a failure happens to: the first link, and its end at the host that sends.
pub(in crate::experiments) trait Victim {
    /// Changes the first link, in the words of `linkemu`.
    fn set_first(&self, settings: &[&str]) -> Result<()>;

    /// Runs `ip` in the host that sends.
    fn senders_ip(&self, words: &[&str]) -> Result<()>;

    /// What that host calls the first link, and its address there with the prefix's length.
    fn senders_end(&self) -> (String, String);

    /// Has a NAT on the first link forget all it knows.
    fn rebind(&self) -> Result<()>;
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

    /// How late packets left the emulated links, in milliseconds: 99 % of them, in the worst direction.
    fn link_late_ms(&self) -> Result<f64>;
}

/// A stream, a failure in its midst, and what both ends saw.
///
/// How a stream begins is not the failure's doing: its first windows come with a round trip of silence between them. So silence
/// counts from half way to the failure on.
pub(super) fn watch(stage: &impl Stage, fault: Fault, load: Load, watch: Watch) -> Result<Measures> {
    let receiver = stage.receive(watch.stream_s + watch.drain_s, watch.fault_s / 2.0)?;
    let sender = stage.send(watch.stream_s, load)?;
    let start = now();
    std::thread::sleep(Duration::from_secs_f64(watch.fault_s).saturating_sub(start.elapsed()));
    stage.ensure_second()?;
    fault.happen(stage, Duration::from_secs_f64(watch.flap_s))?;
    let limit = Duration::from_secs_f64(watch.stream_s + watch.drain_s) + PATIENCE;
    let sent = words_of(&sender.finish(limit)?.good()?.stdout);
    let received = words_of(&receiver.finish(limit)?.good()?.stdout);
    stage.ensure_rode()?;
    measures(&sent, &received, stage.link_late_ms()?)
}
