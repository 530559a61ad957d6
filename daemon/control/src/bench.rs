//! Results of `sctpify bench`.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The intended transport of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// SCTP, if the rules enable it for the port.
    Sctp,
    /// Plain TCP.
    Tcp,
    /// Multipath TCP of the kernel (RFC 8684).
    Mptcp,
}

impl Transport {
    /// All transports, in the order of their ports.
    pub const ALL: [Transport; 3] = [Transport::Sctp, Transport::Tcp, Transport::Mptcp];
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Sctp => "sctp",
            Transport::Tcp => "tcp",
            Transport::Mptcp => "mptcp",
        })
    }
}

/// Results of all measured transports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BenchReport {
    /// Address of the other host.
    pub address: IpAddr,
    /// Figures of each transport, SCTP first.
    pub rows: Vec<BenchRow>,
}

/// The figures of one transport.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BenchRow {
    /// Intended transport of the measured connections.
    pub transport: Transport,
    /// Transport of the latest connection, as the daemon reports it; for TCP, followed by the reason.
    pub carried_over: String,
    /// Duration of the first connect, in microseconds.
    pub first_connect_us: u64,
    /// Median duration of the connects after the first one, in microseconds.
    pub connect_us: u64,
    /// Bytes sent in one connection and counted at the other end.
    pub bytes: u64,
    /// Throughput in bytes per second, measured until the other end reports its count.
    pub bytes_per_s: u64,
}
