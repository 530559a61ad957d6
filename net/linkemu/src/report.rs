//! Requests to a link and reports of a link. Each request and each answer is one line of JSON on the control socket.

use std::collections::BTreeMap;

use netem::{Counters, Spec};
use serde::{Deserialize, Serialize};

use crate::lateness::LatenessReport;
use crate::recent::RecentReport;

/// Request to a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Returns the report.
    Show,
    /// Changes settings from the next packet on, and returns the report.
    Set {
        /// Settings of both directions.
        both: Spec,
        /// Settings of the direction from a to b.
        ab: Spec,
        /// Settings of the direction from b to a.
        ba: Spec,
    },
    /// Ends the link, and returns its report.
    Stop,
}

/// The answer: a report, or an error.
pub type Answer = Result<Box<Report>, String>;

/// Report of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Name of the link.
    pub name: String,
    /// One end.
    pub a: String,
    /// The other end.
    pub b: String,
    /// Process ID of the link.
    pub pid: u32,
    /// Seed of the link's random numbers.
    pub seed: u64,
    /// True if the link's thread has real-time priority, and thus runs before all ordinary threads.
    pub realtime: bool,
    /// Seconds since the link began.
    pub uptime_s: f64,
    /// Warnings. Warnings about late packets and missed frames concern the last 10 to 20 seconds. Other warnings, and all warnings
    /// in the last report of a link, concern the link's whole lifetime.
    pub warnings: Vec<String>,
    /// The directions from a to b and from b to a.
    pub directions: [DirectionReport; 2],
}

/// Report of a direction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Link end that the direction's packets come from.
    pub from: String,
    /// Link end that the direction's packets go to.
    pub to: String,
    /// Settings that differ from the defaults. With the defaults, a link forwards all packets unchanged and without delay.
    pub settings: BTreeMap<String, String>,
    /// Packets that wait for the wire now.
    pub queue_packets: usize,
    /// Bytes of the packets that wait for the wire now.
    pub queue_bytes: usize,
    /// Packets that the direction contains now: packets that wait for the wire, and packets in transit.
    pub held: usize,
    /// Counters of packets by their fate.
    pub packets: Counters,
    /// Counters of frames outside the link model: on the interfaces, and in the conversion of frames to packets.
    pub frames: FrameCounters,
    /// Delays of packets beyond their due time.
    pub late: LatenessReport,
    /// Counts of the last 10 to 20 seconds, for warnings about late packets and missed frames. In the last report of a link, these
    /// counts cover the link's whole lifetime.
    pub recent: RecentReport,
}

/// Counters of frames outside the link model: on the interfaces, and in the conversion of frames to packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FrameCounters {
    /// Frames that were lost because they arrived faster than the link read them.
    pub missed: u64,
    /// Frames that were lost because their kind of offload (segmentation or checksum) is unknown.
    pub unfinishable: u64,
    /// Packets sent on the other interface.
    pub sent: u64,
    /// Packets that the other interface refused.
    pub refused: u64,
    /// ICMP messages about the MTU, sent to the senders of packets that were too long.
    pub mtu_reports: u64,
    /// Fragments made of packets that were longer than the MTU.
    pub fragments: u64,
}
