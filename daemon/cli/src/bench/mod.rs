//! `sctpify bench`: measures the set-up time and the throughput of connections to a host, over SCTP and over other transports.
//!
//! The server is a plain TCP program, `sctpify bench --serve`, which the operator of that host starts for a limited time. It listens on
//! three consecutive ports. The rules of both hosts should enable SCTP for the first port. Connections to the second port use plain TCP,
//! and connections to the third port use MPTCP. The daemon reports the transport that a connection really used.
//!
//! The client first sends one byte, the request. The server answers the request `c` with the same byte. After the request `u`, the client
//! sends data until the end of the stream. The server then answers with the number of data bytes, as eight bytes in network order.

mod measure;
mod serve;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use control::{BenchReport, Transport};
use socket2::{Domain, Protocol, Socket, Type};

use crate::table::{Align, Table};

pub(crate) use measure::run;
pub(crate) use serve::serve;

/// Request byte for an echo, in measurements of connects.
const CONNECT: u8 = b'c';
/// Request byte for an upload, in measurements of throughput.
const UPLOAD: u8 = b'u';
/// Time limit on one connection.
const CONNECTION_LIMIT: Duration = Duration::from_secs(60);

/// Returns the port of a transport; `first` is the port for SCTP.
fn port_of(transport: Transport, first: u16) -> u16 {
    first + transport as u16
}

/// Creates a stream socket for a transport.
fn socket(transport: Transport, domain: Domain) -> io::Result<Socket> {
    let protocol = if transport == Transport::Mptcp { Protocol::MPTCP } else { Protocol::TCP };
    Socket::new(domain, Type::STREAM, Some(protocol))
}

/// Prints a report.
pub(crate) fn show(out: &mut dyn Write, report: &BenchReport) -> io::Result<()> {
    const HEADS: [(&str, Align); 5] = [
        ("TRANSPORT", Align::Left),
        ("FIRST CONNECT", Align::Right),
        ("LATER, MEDIAN", Align::Right),
        ("RATE", Align::Right),
        ("CARRIED OVER", Align::Left),
    ];
    let mut table = Table::new(&HEADS);
    for row in &report.rows {
        let times = [row.first_connect_us, row.connect_us].map(|us| format!("{us} µs"));
        // All rows show rates in Mbit/s, the unit of iperf3, so the rows can be compared.
        let rate = format!("{:.1} Mbit/s", row.bytes_per_s as f64 * 8.0 / 1e6);
        let [first, later] = times;
        table.row([row.transport.to_string(), first, later, rate, row.carried_over.clone()]);
    }
    table.print(out, "")
}

#[allow(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use control::BenchRow;

    use super::*;

    #[test]
    fn a_report_has_a_line_for_each_transport_and_what_carried_it() {
        let row = |transport, carried_over: &str, bytes_per_s| BenchRow {
            transport,
            carried_over: carried_over.to_owned(),
            first_connect_us: 1234,
            connect_us: 567,
            bytes: 3 * bytes_per_s,
            bytes_per_s,
        };
        let rows = vec![
            row(Transport::Sctp, "SCTP", 5_000_000),
            row(Transport::Tcp, "TCP: no rule matches", 1_000_000_000),
        ];
        let mut text = Vec::new();
        show(&mut text, &BenchReport { address: [192, 0, 2, 1].into(), rows }).unwrap();
        let expected = "\
TRANSPORT  FIRST CONNECT  LATER, MEDIAN           RATE  CARRIED OVER
sctp             1234 µs         567 µs    40.0 Mbit/s  SCTP
tcp              1234 µs         567 µs  8000.0 Mbit/s  TCP: no rule matches
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
