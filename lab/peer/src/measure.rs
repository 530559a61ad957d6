//! Modes for measurements: a peer sends or receives in bulk, answers, pings, or connects repeatedly.
//!
//! The modes print figures on standard output, in the format of `bulk` and `usrsctp_bench` of crate `testbed`.
//! They keep no message: each received message is counted and dropped, or sent back. Begin with [`receive`] and
//! [`send`].

use crate::host::{Host, association_config};
use crate::modes::{
    Guest, Inbox, Whole, await_event, connect, connect_with, is_over, linger, offer, try_send,
};
use crate::options::Options;
use anyhow::{Result, bail, ensure};
use base::Time;
use bytes::Bytes;
use sctp::{AssociationId, CloseReason, Event, Ppid, SendError, SendOptions, StreamId};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::time::Duration;

/// Accepts one association and counts its bytes until the association ends. Prints "BYTES MICROSECONDS". The time runs
/// from the first message to the last. If `seconds` is given, the mode ends `seconds` after the first message, and
/// sends neither SHUTDOWN nor ABORT.
///
/// # Errors
/// When sockets fail, or the association does not end by SHUTDOWN.
pub(crate) fn receive(options: &Options, port: u16, seconds: Option<f64>) -> Result<()> {
    let limit = seconds.map(Duration::try_from_secs_f64).transpose()?;
    let mut host = Host::open(options, Some(port))?;
    println!("listening");
    let mut guest = Guest::default();
    let (mut bytes, mut first, mut last, mut over) = (0, None, Time::ZERO, false);
    while !over {
        host.turn(Time::NEVER)?;
        over |= guest.take_events(&mut host, |_| {})?;
        let Some(id) = guest.id else { continue };
        let now = host.now();
        while let Some(message) = host.engine.recv(now, id) {
            bytes += message.len();
            first.get_or_insert(now);
            last = now;
        }
        over |= limit.is_some_and(|limit| first.is_some_and(|first| last.since(first) >= limit));
    }
    if limit.is_none() {
        linger(&mut host)?;
    }
    println!("{bytes} {}", last.since(first.unwrap_or(last)).as_micros());
    Ok(())
}

/// Sends messages of `size` bytes for `seconds`, as fast as the association accepts them. Then shuts the association
/// down.
///
/// # Errors
/// When sockets fail, or the association does not end by SHUTDOWN.
pub(crate) fn send(options: &Options, remote: IpAddr, port: u16, seconds: f64, size: usize) -> Result<()> {
    let mut host = Host::open(options, None)?;
    let id = connect(&mut host, options, remote, port)?;
    await_event(&mut host, |event| matches!(event, Event::Established { .. }))?;
    let message = Bytes::from(vec![0; size]);
    let end = host.now() + Duration::try_from_secs_f64(seconds)?;
    while host.now() < end {
        fill(&mut host, id, &message)?;
        host.turn(end)?;
        while let Some((_, event)) = host.poll_event() {
            ensure!(!is_over(&event)?, "the peer ended the association early");
        }
    }
    let now = host.now();
    host.engine.shutdown(now, id);
    await_event(&mut host, |event| matches!(event, Event::Closed(CloseReason::Graceful)))?;
    linger(&mut host)
}

/// Sends `message` repeatedly until the send buffer is full.
fn fill(host: &mut Host, id: AssociationId, message: &Bytes) -> Result<()> {
    let now = host.now();
    loop {
        match host.engine.send(now, id, StreamId(0), Ppid(0), message.clone(), SendOptions::default()) {
            Ok(()) => {}
            Err(SendError::WouldBlock) => return Ok(()),
            Err(error) => bail!("a message cannot be sent: {error}"),
        }
    }
}

/// One association of [`serve`].
#[derive(Default)]
struct Talk {
    inbox: Inbox,
    held: Option<Whole>,
}

/// Accepts any number of associations and sends every message back, without end.
///
/// # Errors
/// When sockets fail. The failure of an association is not an error.
pub(crate) fn serve(options: &Options, port: u16, shards: NonZeroU8) -> Result<()> {
    let hosts = match shards.get() {
        1 => vec![Host::open(options, Some(port))?],
        _ => Host::open_shards(options, port, shards)?,
    };
    println!("listening");
    // `answer_all` returns only with an error, and the first error ends the program.
    let (tell, failure) = std::sync::mpsc::channel();
    for host in hosts {
        let tell = tell.clone();
        std::thread::spawn(move || tell.send(answer_all(host)));
    }
    failure.recv()?
}

/// Answers all associations of one host, without end.
fn answer_all(mut host: Host) -> Result<()> {
    let mut talks: BTreeMap<AssociationId, Talk> = BTreeMap::new();
    loop {
        host.turn(Time::NEVER)?;
        while let Some((id, event)) = host.poll_event() {
            let now = host.now();
            match event {
                Event::Incoming { .. } => host.engine.accept(now, id),
                Event::Closed(_) => {
                    talks.remove(&id);
                    host.engine.release(now, id);
                }
                Event::Readable | Event::Writable => answer(&mut host, id, talks.entry(id).or_default()),
                _ => {}
            }
        }
    }
}

/// Sends received messages back until the send buffer is full. If a message cannot be sent for another reason, drops
/// the message. Usually, the reason is that the peer has ended the association. The program must continue, because it
/// also serves other associations.
fn answer(host: &mut Host, id: AssociationId, talk: &mut Talk) {
    while let Some(message) = talk.held.take().or_else(|| talk.inbox.next(host, id)) {
        if try_send(host, id, &message) == Err(SendError::WouldBlock) {
            talk.held = Some(message);
            return;
        }
    }
}

/// Sends `count` messages, each after the return of the previous one. Then prints each round trip in microseconds.
///
/// # Errors
/// When sockets fail, or the association ends early.
pub(crate) fn ping(options: &Options, remote: IpAddr, port: u16, count: usize, size: usize) -> Result<()> {
    let mut host = Host::open(options, None)?;
    let id = connect(&mut host, options, remote, port)?;
    await_event(&mut host, |event| matches!(event, Event::Established { .. }))?;
    let message = Bytes::from(vec![0; size]);
    let (mut inbox, mut round_trips) = (Inbox::default(), Vec::with_capacity(count));
    for _ in 0..count {
        let start = host.now();
        let message = Whole { stream: StreamId(0), unordered: false, bytes: message.clone() };
        ensure!(offer(&mut host, id, &message)?, "no room for a single message");
        await_event(&mut host, |event| matches!(event, Event::Readable))?;
        while inbox.next(&mut host, id).is_none() {
            host.turn(Time::NEVER)?;
        }
        round_trips.push(host.now().since(start));
    }
    let now = host.now();
    host.engine.shutdown(now, id);
    await_event(&mut host, |event| matches!(event, Event::Closed(CloseReason::Graceful)))?;
    let mut out = std::io::stdout().lock();
    for time in round_trips {
        writeln!(out, "{:.1}", time.as_secs_f64() * 1e6)?;
    }
    Ok(())
}

/// Connects, sends a message, waits for its return, and prints the time from the connect to the return, in
/// microseconds. If `with_cookie_echo` is set, the message leaves with the COOKIE ECHO.
///
/// # Errors
/// When sockets fail, or the association ends early.
pub(crate) fn first(options: &Options, to: (IpAddr, u16), size: usize, with_cookie_echo: bool) -> Result<()> {
    let mut host = Host::open(options, None)?;
    let bytes = Bytes::from(vec![0; size]);
    let start = host.now();
    let early = with_cookie_echo.then(|| bytes.clone());
    let id = connect_with(&mut host, options, to, association_config(options), early)?;
    await_event(&mut host, |event| matches!(event, Event::Established { .. }))?;
    if !with_cookie_echo {
        let message = Whole { stream: StreamId(0), unordered: false, bytes };
        ensure!(offer(&mut host, id, &message)?, "no room for a single message");
    }
    let mut inbox = Inbox::default();
    while inbox.next(&mut host, id).is_none() {
        host.turn(Time::NEVER)?;
    }
    let time = host.now().since(start);
    let now = host.now();
    host.engine.shutdown(now, id);
    await_event(&mut host, |event| matches!(event, Event::Closed(CloseReason::Graceful)))?;
    println!("{}", time.as_micros());
    Ok(())
}

/// Sets up `count` associations in sequence. Like close(2), shuts each association down without waiting for the end of
/// the shutdown. Prints "COUNT MICROSECONDS". The time runs from the first connect until the last association is
/// established.
///
/// # Errors
/// When sockets fail, or an association is not established.
pub(crate) fn connects(options: &Options, remote: IpAddr, port: u16, count: usize) -> Result<()> {
    let mut host = Host::open(options, None)?;
    let start = host.now();
    let mut closed = 0;
    for _ in 0..count {
        let id = connect(&mut host, options, remote, port)?;
        let mut is_up = false;
        while !is_up {
            host.turn(Time::NEVER)?;
            while let Some((of, event)) = host.poll_event() {
                is_up |= of == id && matches!(event, Event::Established { .. });
                closed += usize::from(forget_closed(&mut host, of, &event)?);
            }
        }
        let now = host.now();
        host.engine.shutdown(now, id);
    }
    let time = host.now().since(start);
    while closed < count {
        host.turn(Time::NEVER)?;
        while let Some((of, event)) = host.poll_event() {
            closed += usize::from(forget_closed(&mut host, of, &event)?);
        }
    }
    println!("{count} {}", time.as_micros());
    Ok(())
}

/// Returns true if `event` reports the graceful end of the association, and then releases it.
fn forget_closed(host: &mut Host, id: AssociationId, event: &Event) -> Result<bool> {
    let over = is_over(event)?;
    if over {
        let now = host.now();
        host.engine.release(now, id);
    }
    Ok(over)
}
