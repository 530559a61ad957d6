//! The client of a measurement: connects, sends data, and asks the daemon which transport was used.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use control::{BenchReport, BenchRow, Explanation, PastAttempt, Request, Response, Transport, Verdict};
use socket2::Domain;

use super::{CONNECT, CONNECTION_LIMIT, UPLOAD, now, port_of, socket};
use crate::commands::resolve_host;
use crate::session::{Session, unexpected};
use crate::{BenchArgs, CliError, show};

/// Time limit on one connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Pause after the first connection. In this time, this host's daemon can set up a shared association for later connections.
const SETTLE: Duration = Duration::from_millis(500);
const WRITE_BYTES: usize = 1 << 16;

/// Measures connections over SCTP, and then over each transport that the user compares with SCTP.
pub(crate) fn run(session: Session<'_>, host: &str, args: &BenchArgs) -> Result<(), CliError> {
    let address = resolve_host(host)?;
    // Without a daemon, SCTP cannot be measured. This request reports a missing daemon before the first measurement.
    session.ask(&Request::Get { name: "enable".into() })?;
    let others = args.against.iter().map(|other| Transport::from(*other));
    let mut rows = Vec::new();
    for transport in std::iter::once(Transport::Sctp).chain(others) {
        rows.push(row(session, transport, address, args)?);
    }
    let report = BenchReport { address, rows };
    session.print(&Response::Bench(report), show::answer)
}

fn row(
    session: Session<'_>,
    transport: Transport,
    address: IpAddr,
    args: &BenchArgs,
) -> Result<BenchRow, CliError> {
    let to = SocketAddr::new(address, port_of(transport, args.port));
    let measured = measure(transport, to, args).map_err(|e| failed(transport, to, args.port, &e))?;
    let carried_over = carried_over(&explanation(session, to)?);
    Ok(BenchRow { transport, carried_over, ..measured })
}

fn failed(transport: Transport, to: SocketAddr, port: u16, error: &io::Error) -> CliError {
    let remedy = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("; its operator must start `sctpify bench --serve --port {port}` there")
        }
        _ if transport == Transport::Mptcp => {
            "; omit mptcp if a host or a firewall does not support it".to_owned()
        }
        _ => String::new(),
    };
    CliError::Failed(format!("cannot measure with {to}: {error}{remedy}"))
}

/// Measures one transport. The caller fills in `carried_over`, the transport that was really used.
fn measure(transport: Transport, to: SocketAddr, args: &BenchArgs) -> io::Result<BenchRow> {
    let first = connect_once(transport, to)?;
    std::thread::sleep(SETTLE);
    let later: io::Result<Vec<Duration>> = (0..args.connects).map(|_| connect_once(transport, to)).collect();
    let mut later = later?;
    later.sort_unstable();
    let (bytes, time) = upload(transport, to, Duration::from_secs(args.seconds.into()))?;
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Ok(BenchRow {
        transport,
        carried_over: String::new(),
        first_connect_us: micros(first),
        connect_us: micros(later[later.len() / 2]),
        bytes,
        bytes_per_s: (bytes as f64 / time.as_secs_f64()) as u64,
    })
}

fn connect(transport: Transport, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(transport, Domain::for_address(to))?;
    socket.connect_timeout(&to.into(), CONNECT_LIMIT)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(CONNECTION_LIMIT))?;
    stream.set_write_timeout(Some(CONNECTION_LIMIT))?;
    Ok(stream)
}

/// Returns the duration of a connect. Also waits for the server's echo, which is not part of this duration.
fn connect_once(transport: Transport, to: SocketAddr) -> io::Result<Duration> {
    let start = now();
    let mut stream = connect(transport, to)?;
    let took = start.elapsed();
    stream.write_all(&[CONNECT])?;
    stream.read_exact(&mut [0])?;
    Ok(took)
}

/// Sends data for the given time. Returns the number of bytes that the server counted, and the time from the request until the server's
/// count arrived.
fn upload(transport: Transport, to: SocketAddr, time: Duration) -> io::Result<(u64, Duration)> {
    let mut stream = connect(transport, to)?;
    let block = vec![0; WRITE_BYTES];
    let start = now();
    stream.write_all(&[UPLOAD])?;
    while start.elapsed() < time {
        stream.write_all(&block)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut count = [0; 8];
    stream.read_exact(&mut count)?;
    Ok((u64::from_be_bytes(count), start.elapsed()))
}

fn explanation(session: Session<'_>, to: SocketAddr) -> Result<Explanation, CliError> {
    match session.ask(&Request::Explain { address: to.ip(), port: to.port() })? {
        Response::Explanation(explanation) => Ok(*explanation),
        other => Err(unexpected(&other)),
    }
}

/// Returns the transport of the latest connection, as the daemon reports it.
fn carried_over(explanation: &Explanation) -> String {
    match (explanation.past.first(), explanation.verdict) {
        (Some(PastAttempt::Sctp { .. }), _) => "SCTP".to_owned(),
        (Some(PastAttempt::Tcp(fallback)), _) => format!("TCP: {}", fallback.reason),
        (None, Verdict::Tcp) => format!("TCP: {}", explanation.because),
        (None, _) => "TCP".to_owned(),
    }
}
