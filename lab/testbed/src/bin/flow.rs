//! Program for failover measurements of TCP, MPTCP and the kernel's SCTP. It sends a paced stream of bytes, verifies the
//! bytes, and measures the longest silence of the stream.
//!
//!     flow receive PORT SECONDS FROM   prints "listening", receives one connection, prints the result
//!     flow send ADDRESS:PORT SECONDS SIZE MICROSECONDS   writes SIZE bytes every MICROSECONDS, for SECONDS
//!     flow answer PORT                 prints "listening"; answers the first byte of each connection, forever
//!     flow ask ADDRESS:PORT SECONDS    connects, sends a byte, waits for the answer
//!
//! A further argument may select the protocol: `mptcp`, or `sctp` for the kernel's own SCTP. Without this argument, the
//! protocol is TCP. With `sctp`, `receive` and `answer` listen on IPv4 only. With `sctp`, the program must run under
//! `withsctp` of lksctp-tools, which maps TCP's NODELAY option to the NODELAY option of SCTP.
//!
//! `receive` ends at the end of the stream, after an error, or SECONDS after the first byte. `receive`, `send` and `ask`
//! print these words, each followed by its value:
//!
//! - `bytes` (`receive`): number of received bytes
//! - `bytes` (`send`): bytes of the messages that the sender's kernel accepted completely
//! - `gap_us` (`receive`): longest time without a byte. Only silence later than FROM seconds after the first byte counts.
//!   The silence before an orderly end does not count. After an error or a timeout, the whole time from the last byte to
//!   SECONDS after the first byte counts as silence.
//! - `gap_at_us` (`receive`): start of that gap, relative to the first byte
//! - `wrong` (`receive`): number of bytes that differ from the sent ones
//! - `longest_write_us` (`send`): longest time of a successful write of SIZE bytes
//! - `first_byte_us` (`ask`): time from the start of the connect to the answer or to the failure
//! - `end`: `late` after a timeout; otherwise the kind of the error, such as `ConnectionReset`. Without an error, the word
//!   is `eof`: the stream has ended in good order (`receive`, `send`), or the answer has arrived (`ask`).
//!
//! The stream consists of successive numbers from 0 on, of eight bytes each. The program does not use sctpify.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use testbed::process::now;

/// Size of the receiver's reads, in bytes.
const READ_BYTES: usize = 1 << 16;
/// Limit on the time that the sender waits, after its last write, for the receiver's close.
const PATIENCE: Duration = Duration::from_secs(2);
/// Minimum timeout of a read, because the standard library refuses a timeout of zero.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// Protocol number of SCTP (IANA, protocol numbers).
const SCTP: i32 = 132;
/// Limit on connections that wait to be accepted.
const BACKLOG: i32 = 128;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let protocol =
        words.last().copied().and_then(named).inspect(|_| _ = words.pop()).unwrap_or(Protocol::TCP);
    let seconds = |word: &str| word.parse().map(Duration::from_secs_f64);
    match words[..] {
        ["receive", port, limit, from] => receive(port.parse()?, seconds(limit)?, seconds(from)?, protocol),
        ["send", to, time, size, pause] => {
            let pause = Duration::from_micros(pause.parse()?);
            send(to.parse()?, seconds(time)?, size.parse()?, pause, protocol)
        }
        ["answer", port] => answer(port.parse()?, protocol),
        ["ask", to, limit] => ask(to.parse()?, seconds(limit)?, protocol),
        _ => bail!(
            "usage: flow receive PORT SECONDS FROM | send ADDRESS:PORT SECONDS SIZE MICROSECONDS | answer PORT \
             | ask ADDRESS:PORT SECONDS, each with mptcp, sctp, or neither"
        ),
    }
}

/// Returns the protocol that the word names, or `None` if the word names no protocol.
fn named(word: &str) -> Option<Protocol> {
    match word {
        "mptcp" => Some(Protocol::MPTCP),
        "sctp" => Some(Protocol::from(SCTP)),
        _ => None,
    }
}

/// Position in the stream, in bytes. A read or write may end within one of the stream's 8-byte
/// numbers.
#[derive(Clone, Copy)]
struct Count(u64);

impl Count {
    fn next(&mut self) -> u8 {
        let place = usize::try_from(self.0 % 8).unwrap_or(0);
        let byte = (self.0 / 8).to_be_bytes()[place];
        self.0 += 1;
        byte
    }

    fn write(&mut self, into: &mut [u8]) {
        into.iter_mut().for_each(|byte| *byte = self.next());
    }

    /// Compares the bytes with the next bytes of the stream. Returns the number of differences.
    fn differences(&mut self, bytes: &[u8]) -> u64 {
        bytes.iter().filter(|byte| **byte != self.next()).count() as u64
    }
}

fn listen(port: u16, protocol: Protocol) -> Result<TcpListener> {
    // The kernel's SCTP announces to the peer all local addresses that the socket's family permits. The measurements use
    // only IPv4 addresses, so the socket is an IPv4 socket.
    let any = if protocol == Protocol::from(SCTP) {
        IpAddr::from(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::from(Ipv6Addr::UNSPECIFIED)
    };
    let address = SocketAddr::from((any, port));
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol));
    let socket = socket.context("no such socket here")?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into()).with_context(|| format!("cannot listen on {port}"))?;
    socket.listen(BACKLOG)?;
    println!("listening");
    Ok(socket.into())
}

fn connect(to: SocketAddr, limit: Duration, protocol: Protocol) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(protocol))?;
    socket.connect_timeout(&to.into(), limit)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Returns the value of the word `end` for an outcome.
fn end_of(outcome: &io::Result<()>) -> String {
    match outcome {
        Ok(()) => "eof".to_owned(),
        Err(error) if is_late(error) => "late".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Treats the error "not connected" as success. The kernel's SCTP reports this error after our shutdown. After an ABORT,
/// it reports a reset instead.
fn is_over(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotConnected { Ok(()) } else { Err(error) }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Observations of the receiver.
struct Seen {
    count: Count,
    wrong: u64,
    first: Instant,
    /// Time from which silence counts.
    from: Instant,
    last: Instant,
    gap: Duration,
    gap_at: Duration,
}

impl Seen {
    fn note(&mut self, at: Instant) {
        let since = self.last.max(self.from);
        let gap = at.saturating_duration_since(since);
        if gap > self.gap {
            self.gap = gap;
            self.gap_at = since - self.first;
        }
        self.last = at;
    }
}

fn receive(port: u16, limit: Duration, from: Duration, protocol: Protocol) -> Result<()> {
    // The listener stays open, because without the listener the kernel refuses further MPTCP subflows.
    let listener = listen(port, protocol)?;
    let (mut stream, _) = listener.accept()?;
    let mut buffer = vec![0; READ_BYTES];
    let length = stream.read(&mut buffer)?;
    let first = now();
    let mut seen = Seen {
        count: Count(0),
        wrong: 0,
        first,
        from: first + from,
        last: first,
        gap: Duration::ZERO,
        gap_at: Duration::ZERO,
    };
    seen.wrong += seen.count.differences(&buffer[..length]);
    let outcome = receive_rest(&mut stream, &mut buffer, &mut seen, limit);
    if outcome.is_err() {
        seen.note((first + limit).max(seen.last));
    }
    println!(
        "bytes {} gap_us {} gap_at_us {} wrong {} end {}",
        seen.count.0,
        seen.gap.as_micros(),
        seen.gap_at.as_micros(),
        seen.wrong,
        end_of(&outcome)
    );
    Ok(())
}

fn receive_rest(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    seen: &mut Seen,
    limit: Duration,
) -> io::Result<()> {
    loop {
        let left = limit.saturating_sub(seen.first.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left.max(LEAST_WAIT)))?;
        let length = stream.read(buffer)?;
        if length == 0 {
            return Ok(());
        }
        seen.note(now());
        seen.wrong += seen.count.differences(&buffer[..length]);
    }
}

fn send(to: SocketAddr, time: Duration, size: usize, pause: Duration, protocol: Protocol) -> Result<()> {
    let mut stream = connect(to, time, protocol).with_context(|| format!("cannot connect to {to}"))?;
    stream.set_write_timeout(Some(time))?;
    let (mut count, mut longest) = (Count(0), Duration::ZERO);
    let outcome = write_paced(&mut stream, &mut count, &mut longest, (time, size, pause));
    let outcome = outcome.and_then(|()| {
        stream.shutdown(Shutdown::Write)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read(&mut [0]).map(drop).or_else(is_over)
    });
    println!("bytes {} longest_write_us {} end {}", count.0, longest.as_micros(), end_of(&outcome));
    Ok(())
}

/// Writes on schedule. After a late write, the next write follows at once. Writes whose time has passed are left out.
fn write_paced(
    stream: &mut TcpStream,
    count: &mut Count,
    longest: &mut Duration,
    (time, size, pause): (Duration, usize, Duration),
) -> io::Result<()> {
    let mut message = vec![0; size];
    let start = now();
    let mut next = start;
    while start.elapsed() < time {
        let before = *count;
        count.write(&mut message);
        let at = now();
        if let Err(error) = stream.write_all(&message) {
            *count = before;
            return Err(error);
        }
        *longest = at.elapsed().max(*longest);
        next = (next + pause).max(now());
        std::thread::sleep(next.saturating_duration_since(now()));
    }
    Ok(())
}

fn answer(port: u16, protocol: Protocol) -> Result<()> {
    let listener = listen(port, protocol)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        let mut byte = [0];
        // An error means that this asker has gone. The next asker may still connect.
        let _ = stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte));
    }
}

fn ask(to: SocketAddr, limit: Duration, protocol: Protocol) -> Result<()> {
    let start = now();
    let outcome = connect(to, limit, protocol).and_then(|mut stream| {
        stream.write_all(&[7])?;
        stream.set_read_timeout(Some(limit.saturating_sub(start.elapsed()).max(LEAST_WAIT)))?;
        stream.read_exact(&mut [0])
    });
    println!("first_byte_us {} end {}", start.elapsed().as_micros(), end_of(&outcome));
    Ok(())
}
