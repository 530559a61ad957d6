//! Reports of a link, and requests to it: one JSON object a line on the control socket.

use std::collections::BTreeMap;

use netem::{Counters, Spec};
use serde::{Deserialize, Serialize};

use crate::lateness::LatenessReport;
use crate::recent::RecentReport;

/// Request to a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A request for its report.
    Show,
    /// To change, from the next packet on.
    Set {
        /// Settings of both directions.
        both: Spec,
        /// Of that from a to b.
        ab: Spec,
        /// Of that from b to a.
        ba: Spec,
    },
    /// To end.
    Stop,
}

/// The answer: a report, or an error.
pub type Answer = Result<Box<Report>, String>;

/// Report of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// One end.
    pub a: String,
    /// The other end.
    pub b: String,
    /// Its process.
    pub pid: u32,
    /// Seed of its random numbers.
    pub seed: u64,
    /// True if it is scheduled before ordinary processes.
    pub realtime: bool,
    /// Seconds since it began.
    pub uptime_s: f64,
    /// Recent warnings; empty if there are none.
    pub warnings: Vec<String>,
    /// From a to b, and from b to a.
    pub directions: [DirectionReport; 2],
}

/// Report of a direction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Source of packets.
    pub from: String,
    /// Destination of packets.
    pub to: String,
    /// Settings that differ from a link that changes nothing.
    pub settings: BTreeMap<String, String>,
    /// Packets that wait for the wire now.
    pub queue_packets: usize,
    /// Their bytes.
    pub queue_bytes: usize,
    /// Packets that are in, waiting or on the wire.
    pub held: usize,
    /// The fates of packets.
    pub packets: Counters,
    /// Counters of the program around the link.
    pub frames: FrameCounters,
    /// Delays of packets beyond their due time.
    pub late: LatenessReport,
    /// Basis of warnings that lapse: the last ten to twenty seconds; in the last report of a link, all its time.
    pub recent: RecentReport,
}

/// Counters of the program around the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FrameCounters {
    /// Frames that came too fast to be taken.
    pub missed: u64,
    /// Frames with work left to be done that is not known.
    pub unfinishable: u64,
    /// Packets given to the other interface.
    pub sent: u64,
    /// Packets that the other interface refused.
    pub refused: u64,
    /// ICMP messages about the MTU.
    pub mtu_reports: u64,
    /// Fragments made.
    pub fragments: u64,
}
