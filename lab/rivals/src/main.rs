//! SCTP engines alone: both ends of one association on one core, wired back to back in memory.
//!
//!     rivals ours|rtc-sctp|dcsctp SECONDS SIZE      messages of SIZE bytes; prints "BYTES MICROSECONDS"
//!
//! Each engine gets its packets in the form of its own output, in trains of any length; all limit packets to
//! 1,472 bytes and may hold [`BUFFER`] bytes unsent. It only measures, and keeps no message. Begin with
//! [`Engine`]: one file for each implementation.

#![forbid(unsafe_code)]

mod dcsctp_end;
mod ours;
mod rtc;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// Maximum bytes of an SCTP packet: an MTU of 1,500, minus the headers of IPv4 and UDP.
const PACKET: u16 = 1_472;
/// Maximum bytes of user data waiting to be sent or acknowledged, and to be read.
const BUFFER: u32 = 4 << 20;
/// Limit on the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// One end of an association.
trait Engine: Sized {
    /// Returns a connecting end and a listening one.
    fn pair(start: Instant) -> Result<(Self, Self)>;
    /// Reports whether data can flow.
    fn is_up(&self) -> bool;
    /// Sends the message repeatedly until the send buffer is full.
    fn fill(&mut self, now: Instant, message: &Bytes) -> Result<()>;
    /// Handles the timers, and passes all pending packets to the other end.
    fn carry(&mut self, now: Instant, peer: &mut Self) -> Result<()>;
    /// Reads all received data; returns the number of bytes.
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

/// Sends for a time; returns the number of bytes that arrived, and the time taken.
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

/// The real clock: this program measures.
#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn clock() -> Instant {
    Instant::now()
}
