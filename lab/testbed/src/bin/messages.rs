//! Plain TCP program that measures the latency of small messages next to large ones that suffer loss.
//!
//!     messages receive PORT CONNECTIONS              prints "listening"; accepts CONNECTIONS connections; when all have ended,
//!                                                    prints the latency of each small message, in microseconds
//!     messages send ADDRESS:PORT SECONDS one|two     sends small and large messages, on one connection together, or on
//!                                                    two connections, one for each kind
//!
//! A small message has 64 bytes, and a large one has 1,200. Every 20 ms, the sender sends one of each, 10 ms apart.
//! Both ends use the same clock, so both must run on one machine. The latency counts from the time at which the message
//! was due, even if a full socket buffer delayed the write. The program does not use SCTP.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use nix::time::{ClockId, clock_gettime};
use std::io::{BufReader, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Small messages: length in bytes, including the header, and interval.
const SMALL: (usize, Duration) = (64, Duration::from_millis(20));
/// Large messages: length in bytes, including the header, and interval.
const LARGE: (usize, Duration) = (1_200, Duration::from_millis(20));
/// Length of the header in bytes: two bytes for the message's length, and eight bytes for its due time in nanoseconds.
const HEAD_BYTES: usize = 10;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", port, connections] => receive(port.parse()?, connections.parse()?),
        ["send", to, seconds, "one"] => send(to.parse()?, Duration::from_secs_f64(seconds.parse()?), 1),
        ["send", to, seconds, "two"] => send(to.parse()?, Duration::from_secs_f64(seconds.parse()?), 2),
        _ => bail!("usage: messages receive PORT CONNECTIONS | send ADDRESS:PORT SECONDS one|two"),
    }
}

/// Returns the time of the clock that all processes of a machine share.
fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC).context("no clock")?.into())
}

fn receive(port: u16, connections: usize) -> Result<()> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .with_context(|| format!("cannot listen on {port}"))?;
    println!("listening");
    let mut threads = Vec::new();
    for _ in 0..connections {
        let (stream, _) = listener.accept()?;
        threads.push(std::thread::spawn(move || delays(stream)));
    }
    for thread in threads {
        let Ok(delays) = thread.join() else { bail!("a thread panicked") };
        delays?.iter().for_each(|delay| println!("{}", delay.as_micros()));
    }
    Ok(())
}

/// Returns the latency of each small message of a connection.
fn delays(stream: TcpStream) -> Result<Vec<Duration>> {
    let mut stream = BufReader::new(stream);
    let (mut delays, mut head, mut rest) = (Vec::new(), [0; HEAD_BYTES], vec![0; LARGE.0]);
    while stream.read(&mut head[..1])? == 1 {
        stream.read_exact(&mut head[1..])?;
        let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let rest = length.checked_sub(HEAD_BYTES).and_then(|left| rest.get_mut(..left));
        stream.read_exact(rest.context("no message has this length")?)?;
        if length == SMALL.0 {
            let due = head[2..].try_into().map(u64::from_be_bytes)?;
            delays.push(now()?.saturating_sub(Duration::from_nanos(due)));
        }
    }
    Ok(delays)
}

fn send(to: SocketAddr, time: Duration, connections: usize) -> Result<()> {
    let connect = || -> Result<TcpStream> {
        let stream = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let mut streams = (0..connections).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    let start = now()?;
    // Small messages are due midway between large ones.
    let mut due = [(SMALL, start + LARGE.1 / 2, 0), (LARGE, start, connections - 1)];
    loop {
        due.sort_by_key(|(_, at, _)| *at);
        let ((length, pause), at, stream) = due[0];
        if at.saturating_sub(start) >= time {
            return Ok(());
        }
        std::thread::sleep(at.saturating_sub(now()?));
        streams[stream].write_all(&message(length, at)?)?;
        due[0].1 = at + pause;
    }
}

/// Builds a message of `length` bytes that carries its due time.
fn message(length: usize, due: Duration) -> Result<Vec<u8>> {
    let mut message = u16::try_from(length)?.to_be_bytes().to_vec();
    message.extend(u64::try_from(due.as_nanos())?.to_be_bytes());
    message.resize(length, 0);
    Ok(message)
}
