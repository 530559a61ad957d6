//! The near end of a measurement: connects, sends, and asks the daemon which transport was used.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use control::{BenchReport, BenchRow, Explanation, PastAttempt, Request, Response, Verdict, Way};
use socket2::Domain;

use super::{CONNECT, CONNECTION_LIMIT, UPLOAD, now, port_of, socket};
use crate::commands::resolve_host;
use crate::session::{Session, unexpected};
use crate::{BenchArgs, CliError, show};

/// Limit on one connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time for the server's daemon to apply the result of a first connection to the next: a shared association.
const SETTLE: Duration = Duration::from_millis(500);
const WRITE_BYTES: usize = 1 << 16;

/// Measures SCTP and the transports to compare it with, one after the other.
pub(crate) fn run(session: Session<'_>, host: &str, args: &BenchArgs) -> Result<(), CliError> {
    let address = resolve_host(host)?;
    // Without a daemon there is nothing to compare: report that first.
    session.ask(&Request::Get { name: "enable".into() })?;
    let others = args.against.iter().map(|other| Way::from(*other));
    let mut rows = Vec::new();
    for way in std::iter::once(Way::Sctp).chain(others) {
        rows.push(row(session, way, address, args)?);
    }
    let report = BenchReport { address, rows };
    session.print(&Response::Bench(report), show::answer)
}

fn row(session: Session<'_>, way: Way, address: IpAddr, args: &BenchArgs) -> Result<BenchRow, CliError> {
    let to = SocketAddr::new(address, port_of(way, args.port));
    let measured = measure(way, to, args).map_err(|e| failed(way, to, args.port, &e))?;
    let rode = rode(&explanation(session, to)?);
    Ok(BenchRow { way, rode, ..measured })
}

fn failed(way: Way, to: SocketAddr, port: u16, error: &io::Error) -> CliError {
    let remedy = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("; have its operator start `sctpify bench --serve --port {port}` there")
        }
        _ if way == Way::Mptcp => "; leave mptcp out if a host or a firewall has none".to_owned(),
        _ => String::new(),
    };
    CliError::Failed(format!("cannot measure with {to}: {error}{remedy}"))
}

/// Measures all figures of one way; its transport is filled in later.
fn measure(way: Way, to: SocketAddr, args: &BenchArgs) -> io::Result<BenchRow> {
    let first = connect_once(way, to)?;
    std::thread::sleep(SETTLE);
    let later: io::Result<Vec<Duration>> = (0..args.connects).map(|_| connect_once(way, to)).collect();
    let mut later = later?;
    later.sort_unstable();
    let (bytes, time) = upload(way, to, Duration::from_secs(args.seconds.into()))?;
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Ok(BenchRow {
        way,
        rode: String::new(),
        first_connect_us: micros(first),
        connect_us: micros(later[later.len() / 2]),
        bytes,
        bytes_per_s: (bytes as f64 / time.as_secs_f64()) as u64,
    })
}

fn connect(way: Way, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(way, Domain::for_address(to))?;
    socket.connect_timeout(&to.into(), CONNECT_LIMIT)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(CONNECTION_LIMIT))?;
    stream.set_write_timeout(Some(CONNECTION_LIMIT))?;
    Ok(stream)
}

/// Returns the duration of a connect; the server has accepted the connection by then.
fn connect_once(way: Way, to: SocketAddr) -> io::Result<Duration> {
    let start = now();
    let mut stream = connect(way, to)?;
    let took = start.elapsed();
    stream.write_all(&[CONNECT])?;
    stream.read_exact(&mut [0])?;
    Ok(took)
}

/// Sends for the given time; returns the bytes that the server counted, and the time until it reported them.
fn upload(way: Way, to: SocketAddr, time: Duration) -> io::Result<(u64, Duration)> {
    let mut stream = connect(way, to)?;
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

/// Returns the transport of the latest connection, as reported by the daemon.
fn rode(explanation: &Explanation) -> String {
    match (explanation.past.first(), explanation.verdict) {
        (Some(PastAttempt::Sctp { .. }), _) => "SCTP".to_owned(),
        (Some(PastAttempt::Tcp(fallback)), _) => format!("TCP: {}", fallback.reason),
        (None, Verdict::Tcp) => format!("TCP: {}", explanation.because),
        (None, _) => "TCP".to_owned(),
    }
}
