//! Counters of our own router, for people and programs.

use std::fmt;

use serde::Serialize;

/// Counters of one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DirectionReport {
    /// Source of frames.
    pub from: String,
    /// Destination of frames.
    pub to: String,
    /// The queue's policy.
    pub policy: String,
    /// The link's rate in bit/s; 0 is unlimited.
    pub rate_bit_s: u64,
    /// Packets that came to the queue.
    pub offered: u64,
    /// Packets given to the interface.
    pub sent: u64,
    /// Bytes of packets that left the queue, from their IP headers on.
    pub sent_bytes: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
    /// Those of them without data.
    pub dropped_control: u64,
    /// Packets marked for congestion.
    pub marked: u64,
    /// Packets that wait.
    pub waiting: usize,
    /// Their bytes.
    pub waiting_bytes: usize,
    /// Frames that came too fast, and were lost before the queue.
    pub missed: u64,
    /// Packets that the interface refused.
    pub refused: u64,
    /// Segments of an unknown kind.
    pub unfinishable: u64,
}

/// Counters of the router.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RunReport {
    /// Since it was started, in seconds.
    pub uptime_s: f64,
    /// Both directions.
    pub directions: [DirectionReport; 2],
}

impl RunReport {
    /// One line.
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
