//! Modes for messages that may be abandoned (RFC 3758, RFC 7496). One end sends the messages, and the other
//! reports the messages that arrived.
//!
//! [`content`] generates each message, so a message's first octet reveals the message's number modulo 256. A
//! modified message is an error. A missing message is not an error. The test that runs both ends decides how
//! many messages may be missing. Begin with [`post`] and [`sink`].

use crate::content;
use crate::host::{Host, association_config};
use crate::modes::{Guest, Inbox, await_event, connect_with, is_over, linger};
use crate::options::{Limit, Options};
use anyhow::{Context, Result, ensure};
use base::Time;
use sctp::{AssociationConfig, AssociationId, Event, Ppid, Reliability, SendError, SendOptions, StreamId};
use std::net::IpAddr;
use std::time::Duration;

/// Size in octets of the send buffer of an association that abandons messages by priority.
const SHORT_BUFFER: usize = 64 << 10;
/// Inverse of 31 modulo 256. A message's first octet is 31 times its number, modulo 256.
const INVERSE: u8 = 223;

/// Messages to send.
pub(crate) struct Load {
    pub(crate) count: usize,
    pub(crate) size: usize,
    /// Pause before each message, in seconds.
    pub(crate) gap: f64,
}

/// Sends messages, shuts the association down, and prints the number of abandoned messages.
///
/// # Errors
/// When sockets fail, or the association does not end by SHUTDOWN.
pub(crate) fn post(options: &Options, to: (IpAddr, u16), load: &Load, limit: Limit) -> Result<()> {
    let mut host = Host::open(options, None)?;
    let mut config = association_config(options);
    if limit.priority {
        config = AssociationConfig { send_buffer: SHORT_BUFFER, ..config };
    }
    let id = connect_with(&mut host, options, to, config, None)?;
    await_event(&mut host, |event| matches!(event, Event::Established { .. }))?;
    println!("connected");
    let gap = Duration::try_from_secs_f64(load.gap)?;
    let mut given_up = 0;
    for number in 0..load.count {
        let at = host.now() + gap;
        while host.now() < at {
            host.turn(at)?;
            given_up += events(&mut host)?;
        }
        while !offer(&mut host, id, number, load.size, reliability(limit, number)?)? {
            // If an unimportant message waited for room in the buffer, it would block the more important
            // messages behind it.
            if limit.priority && is_unimportant(number) {
                given_up += 1;
                break;
            }
            host.turn(Time::NEVER)?;
            given_up += events(&mut host)?;
        }
    }
    let now = host.now();
    host.engine.shutdown(now, id);
    let mut over = false;
    while !over {
        host.turn(Time::NEVER)?;
        while let Some((_, event)) = host.poll_event() {
            given_up += abandoned(&event);
            over |= is_over(&event)?;
        }
    }
    linger(&mut host)?;
    println!("sent {} messages of {} octets, abandoned {given_up}", load.count, load.size);
    Ok(())
}

/// Returns the reliability of message `number`. With abandonment by priority, every second message is more
/// important than the others. A lower value means a higher importance (RFC 7496).
fn reliability(limit: Limit, number: usize) -> Result<Reliability> {
    if let Some(seconds) = limit.lifetime {
        return Ok(Reliability::Lifetime(Duration::try_from_secs_f64(seconds)?));
    }
    let by_priority = Reliability::Priority(if is_unimportant(number) { 9 } else { 1 });
    Ok(limit.retransmissions.map_or(by_priority, Reliability::Retransmissions))
}

fn is_unimportant(number: usize) -> bool {
    number.is_multiple_of(2)
}

/// Sends message `number`. Returns false if the send buffer is full; the caller then offers the message
/// again.
fn offer(
    host: &mut Host,
    id: AssociationId,
    number: usize,
    size: usize,
    reliability: Reliability,
) -> Result<bool> {
    let (now, message) = (host.now(), content(number, size).into());
    let options = SendOptions { reliability, ..SendOptions::default() };
    match host.engine.send(now, id, StreamId(0), Ppid(0), message, options) {
        Ok(()) => Ok(true),
        Err(SendError::WouldBlock) => Ok(false),
        Err(error) => Err(error).context("a message cannot be sent"),
    }
}

/// Handles the events since the last call, and returns the number of abandoned messages. The end of the
/// association is an error.
fn events(host: &mut Host) -> Result<u64> {
    let mut given_up = 0;
    while let Some((_, event)) = host.poll_event() {
        given_up += abandoned(&event);
        ensure!(!is_over(&event)?, "the peer ended the association early");
    }
    Ok(given_up)
}

fn abandoned(event: &Event) -> u64 {
    match event {
        Event::Abandoned { unsent, sent } => unsent + sent,
        _ => 0,
    }
}

/// Accepts one association, and prints the numbers of the messages in order of arrival.
///
/// # Errors
/// When sockets fail, the association does not end by SHUTDOWN, or a message was modified.
pub(crate) fn sink(options: &Options, port: u16) -> Result<()> {
    let mut host = Host::open(options, Some(port))?;
    println!("listening");
    let (mut guest, mut over) = (Guest::default(), false);
    let (mut inbox, mut numbers) = (Inbox::default(), Vec::new());
    while !over {
        host.turn(Time::NEVER)?;
        over |= guest.take_events(&mut host, |_| {})?;
        while let Some(message) = guest.id.and_then(|id| inbox.next(&mut host, id)) {
            let number = message.bytes.first().map_or(0, |first| first.wrapping_mul(INVERSE));
            ensure!(
                content(number.into(), message.bytes.len()) == message.bytes,
                "a message arrived changed"
            );
            numbers.push(number.to_string());
        }
    }
    linger(&mut host)?;
    println!("numbers {}", numbers.join(" "));
    Ok(())
}
