//! Counters of `sctpify-router run`, as text and as JSON.

use std::fmt;

use serde::Serialize;

/// Counters of one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DirectionReport {
    /// Interface on which the frames arrive.
    pub from: String,
    /// Interface on which the frames leave.
    pub to: String,
    /// Name of the queue's policy.
    pub policy: String,
    /// Rate of the link in bit/s; 0 is unlimited.
    pub rate_bit_s: u64,
    /// Packets that arrived at the queue.
    pub offered: u64,
    /// Packets that the interface accepted.
    pub sent: u64,
    /// Bytes of packets that left the queue, from their IP headers on.
    pub sent_bytes: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
    /// Packets without data that the queue dropped.
    pub dropped_control: u64,
    /// Packets that the queue marked with ECN.
    pub marked: u64,
    /// Packets in the queue.
    pub waiting: usize,
    /// Bytes of the packets in the queue.
    pub waiting_bytes: usize,
    /// Frames that arrived too fast, and were lost before the queue.
    pub missed: u64,
    /// Packets that the interface refused.
    pub refused: u64,
    /// Frames that were lost because their offload is of an unknown kind.
    pub unfinishable: u64,
}

/// Counters of the router.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RunReport {
    /// Time since the router started, in seconds.
    pub uptime_s: f64,
    /// Counters of both directions.
    pub directions: [DirectionReport; 2],
}

impl RunReport {
    /// Returns the report as a JSON object.
    pub(super) fn json(&self) -> serde_json::Value {
        let mut report = serde_json::json!(self);
        report["schema"] = 1.into();
        report
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for it in &self.directions {
            let rate = netem::rate_text(it.rate_bit_s);
            writeln!(f, "{} -> {}: {}, {rate}, {:.0} s", it.from, it.to, it.policy, self.uptime_s)?;
            writeln!(
                f,
                "  in {} packets, sent {} ({} bytes), dropped {} ({} of them control), marked {}, waiting {} ({} bytes)",
                it.offered,
                it.sent,
                it.sent_bytes,
                it.dropped,
                it.dropped_control,
                it.marked,
                it.waiting,
                it.waiting_bytes
            )?;
            for (count, what) in [
                (it.missed, "frames arrived too fast and were lost before the queue"),
                (
                    it.refused,
                    "packets were refused by the interface: its MTU is smaller, or its queue was full",
                ),
                (it.unfinishable, "segments of an unknown kind were lost: disable offloads"),
            ] {
                if count > 0 {
                    writeln!(f, "  WARNING: {count} {what}")?;
                }
            }
        }
        Ok(())
    }
}
