//! The measurements, their contenders, and the goals.

use super::contender::Contender::{self, Dcsctp, Ours, Rtc, Tcp, Usrsctp};
use testbed::Offloads;

/// Encapsulation of SCTP packets. It does not affect the kernel's TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// UDP (RFC 6951).
    Udp,
    /// IP, protocol 132.
    Ip,
}

/// Workload of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// Sends messages of `size` bytes for a time. The receiver's program measures Gbit/s.
    Bulk { size: u32 },
    /// Like `Bulk`, but measures millions of messages per second.
    Messages { size: u32 },
    /// Sends a message of `size` bytes and waits for its return. Measures the median and the 99th percentile of the round trips, in
    /// microseconds.
    Ping { size: u32 },
    /// Runs both ends of an engine alone, on one core in memory. Measures Gbit/s.
    Alone { size: u32 },
    /// Connects and closes in sequence. Measures connects per second.
    Connects,
}

impl Job {
    /// Reports whether the server's output has the figures. If not, the client's output has them.
    pub(crate) fn is_measured_by_server(self) -> bool {
        matches!(self, Job::Bulk { .. } | Job::Messages { .. })
    }
}

/// Required ratio of our median to a rival's median.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(Contender, f64),
    AtMost(Contender, f64),
}

/// Measured quantity, with one row for each contender.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) goals: &'static [Goal],
}

/// Runs that yield one or more figures. The first contender is our engine.
#[derive(Debug)]
pub(crate) struct Experiment {
    pub(crate) job: Job,
    pub(crate) carrier: Carrier,
    pub(crate) offloads: Offloads,
    pub(crate) contenders: &'static [Contender],
    pub(crate) figures: &'static [Figure],
}

const ALL: &[Contender] = &[Ours, Usrsctp, Tcp];
const SCTP: &[Contender] = &[Ours, Usrsctp];
const ENGINES: &[Contender] = &[Ours, Rtc, Dcsctp];

/// All experiments, in the order of their output.
pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        job: Job::Bulk { size: 1_024 },
        carrier: Carrier::Udp,
        offloads: Offloads::On,
        contenders: ALL,
        figures: &[Figure {
            name: "bulk 1,024 B",
            unit: "Gbit/s",
            goals: &[Goal::AtLeast(Usrsctp, 12.0), Goal::AtLeast(Tcp, 4.0)],
        }],
    },
    Experiment {
        job: Job::Bulk { size: 65_536 },
        carrier: Carrier::Udp,
        offloads: Offloads::On,
        contenders: ALL,
        figures: &[Figure {
            name: "bulk 64 KiB",
            unit: "Gbit/s",
            goals: &[Goal::AtLeast(Usrsctp, 10.0), Goal::AtLeast(Tcp, 0.4)],
        }],
    },
    Experiment {
        job: Job::Bulk { size: 1_024 },
        carrier: Carrier::Udp,
        offloads: Offloads::Off,
        contenders: ALL,
        figures: &[Figure {
            name: "bulk 1,024 B, offloads off",
            unit: "Gbit/s",
            goals: &[Goal::AtLeast(Usrsctp, 4.0)],
        }],
    },
    Experiment {
        job: Job::Bulk { size: 65_536 },
        carrier: Carrier::Udp,
        offloads: Offloads::Off,
        contenders: ALL,
        figures: &[Figure {
            name: "bulk 64 KiB, offloads off",
            unit: "Gbit/s",
            goals: &[Goal::AtLeast(Usrsctp, 4.0), Goal::AtLeast(Tcp, 0.5)],
        }],
    },
    Experiment {
        job: Job::Bulk { size: 1_024 },
        carrier: Carrier::Ip,
        offloads: Offloads::On,
        contenders: SCTP,
        figures: &[Figure {
            name: "bulk 1,024 B, raw 132",
            unit: "Gbit/s",
            goals: &[Goal::AtLeast(Usrsctp, 3.0)],
        }],
    },
    Experiment {
        job: Job::Bulk { size: 65_536 },
        carrier: Carrier::Ip,
        offloads: Offloads::On,
        contenders: SCTP,
        figures: &[Figure {
            name: "bulk 64 KiB, raw 132",
            unit: "Gbit/s",
            goals: &[Goal::AtLeast(Usrsctp, 3.0)],
        }],
    },
    Experiment {
        job: Job::Alone { size: 1_100 },
        carrier: Carrier::Udp,
        offloads: Offloads::On,
        contenders: ENGINES,
        figures: &[Figure {
            name: "engine alone, 1,100 B",
            unit: "Gbit/s",
            goals: &[Goal::AtLeast(Rtc, 1.5), Goal::AtLeast(Dcsctp, 1.0)],
        }],
    },
    Experiment {
        job: Job::Alone { size: 65_536 },
        carrier: Carrier::Udp,
        offloads: Offloads::On,
        contenders: ENGINES,
        figures: &[Figure {
            name: "engine alone, 64 KiB",
            unit: "Gbit/s",
            goals: &[Goal::AtLeast(Rtc, 1.5), Goal::AtLeast(Dcsctp, 1.0)],
        }],
    },
    Experiment {
        job: Job::Messages { size: 64 },
        carrier: Carrier::Udp,
        offloads: Offloads::On,
        contenders: SCTP,
        figures: &[Figure { name: "messages of 64 B", unit: "M/s", goals: &[Goal::AtLeast(Usrsctp, 4.0)] }],
    },
    Experiment {
        job: Job::Ping { size: 64 },
        carrier: Carrier::Udp,
        offloads: Offloads::On,
        contenders: ALL,
        figures: &[
            Figure { name: "ping-pong 64 B, p50", unit: "us", goals: &[Goal::AtMost(Tcp, 1.1)] },
            Figure { name: "ping-pong 64 B, p99", unit: "us", goals: &[Goal::AtMost(Tcp, 1.1)] },
        ],
    },
    Experiment {
        job: Job::Connects,
        carrier: Carrier::Udp,
        offloads: Offloads::On,
        contenders: ALL,
        figures: &[Figure {
            name: "set-ups, one by one",
            unit: "1/s",
            goals: &[Goal::AtLeast(Usrsctp, 3.0), Goal::AtLeast(Tcp, 0.6)],
        }],
    },
];
