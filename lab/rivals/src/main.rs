//! A benchmark of SCTP engines. Both ends of one association run on one core, and exchange packets in memory.
//!
//!     rivals ours|rtc-sctp|dcsctp SECONDS SIZE      messages of SIZE bytes; prints "BYTES MICROSECONDS"
//!
//! An engine may return its packets singly, or in trains of any length. All engines limit packets to 1,472
//! bytes, and buffers to [`BUFFER`] bytes. The program discards received messages. Begin with [`Engine`],
//! which each implementation has in a separate file.

#![forbid(unsafe_code)]

mod dcsctp_end;
mod ours;
mod rtc;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// Maximum length of an SCTP packet, in bytes: an MTU of 1,500 minus the headers of IPv4 and UDP.
const PACKET: u16 = 1_472;
/// Limit on user data in the send buffer and in the receive buffer, each in bytes.
const BUFFER: u32 = 4 << 20;
/// Limit on the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// One end of an association.
trait Engine: Sized {
    /// Returns an end that connects, and an end that listens.
    fn pair(start: Instant) -> Result<(Self, Self)>;
    /// Reports whether the association is established.
    fn is_up(&self) -> bool;
    /// Sends the message repeatedly until the send buffer is full.
    fn fill(&mut self, now: Instant, message: &Bytes) -> Result<()>;
    /// Handles the timers, and passes all pending packets to the other end.
    fn carry(&mut self, now: Instant, peer: &mut Self) -> Result<()>;
    /// Reads all received data, and returns the number of bytes.
    fn take(&mut self, now: Instant) -> Result<usize>;
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [engine, seconds, size] = words[..] else { bail!("usage: rivals ours|rtc-sctp|dcsctp SECONDS SIZE") };
    let (time, size) = (Duration::try_from_secs_f64(seconds.parse()?)?, size.parse()?);
    let (bytes, time) = match engine {
        "ours" => measure::<ours::End>(time, size)?,
        "rtc-sctp" => measure::<rtc::End>(time, size)?,
        "dcsctp" => measure::<dcsctp_end::End>(time, size)?,
        other => bail!("unknown engine {other:?}"),
    };
    println!("{bytes} {}", time.as_micros());
    Ok(())
}

/// Sends messages for `time`. Returns the number of received bytes, and the exact duration.
fn measure<E: Engine>(time: Duration, size: usize) -> Result<(usize, Duration)> {
    let begin = clock();
    let (mut client, mut server) = E::pair(begin)?;
    while !(client.is_up() && server.is_up()) {
        ensure!(begin.elapsed() < HANDSHAKE_LIMIT, "no association in {HANDSHAKE_LIMIT:?}");
        client.carry(clock(), &mut server)?;
        server.carry(clock(), &mut client)?;
    }
    let message = Bytes::from(vec![7; size]);
    let (start, mut bytes) = (clock(), 0);
    while start.elapsed() < time {
        let now = clock();
        client.fill(now, &message)?;
        client.carry(now, &mut server)?;
        bytes += server.take(now)?;
        server.carry(now, &mut client)?;
    }
    Ok((bytes, start.elapsed()))
}

/// Returns the time of the real clock.
#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn clock() -> Instant {
    Instant::now()
}
