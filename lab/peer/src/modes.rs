//! Modes of a peer: echo and client. Module `measure` has the modes for measurements, and module `pr_sctp` has the
//! modes that abandon messages. Begin with [`run`].

use crate::client::Client;
use crate::digest;
use crate::host::{Host, association_config, init_routes};
use crate::measure;
use crate::options::{Load, Mode, Options};
use crate::pr_sctp;
use anyhow::{Context, Result, bail};
use base::Time;
use bytes::{Bytes, BytesMut};
use sctp::{
    AddressChange, AssociationConfig, AssociationId, CloseReason, Connect, ConnectError, Event, Ppid,
    ReconfigOutcome, SendError, SendOptions, StreamDirection, StreamId,
};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Source ports of associations: the dynamic ports of RFC 6335 section 6.
const EPHEMERAL_PORTS: RangeInclusive<u16> = 49_152..=65_535;
/// Number of source ports to try.
const PORTS_TRIED: usize = 64;
/// Time for which the program still runs after the end of an association. If the answer to the peer's last packet was
/// lost, the peer retransmits that packet, and the program answers again.
const LINGER: Duration = Duration::from_millis(200);

/// Runs the mode that the command line selects. Returns when the mode has ended.
///
/// # Errors
/// When sockets fail, when the association does not end by SHUTDOWN, or when returned messages differ from the sent
/// messages.
pub fn run(options: &Options) -> Result<()> {
    match options.mode {
        Mode::Echo { port } => echo(options, port),
        Mode::Client { host, port, load } => client(options, host, port, load),
        Mode::Sink { port } => pr_sctp::sink(options, port),
        Mode::Post { host, port, count, size, gap, limit } => {
            pr_sctp::post(options, (host, port), &pr_sctp::Load { count, size, gap }, limit)
        }
        Mode::Receive { port, seconds } => measure::receive(options, port, seconds),
        Mode::Send { host, port, seconds, size } => measure::send(options, host, port, seconds, size),
        Mode::Serve { port, shards } => measure::serve(options, port, shards),
        Mode::Ping { host, port, count, size } => measure::ping(options, host, port, count, size),
        Mode::First { host, port, size, with_cookie_echo } => {
            measure::first(options, (host, port), size, with_cookie_echo)
        }
        Mode::Connects { host, port, count } => measure::connects(options, host, port, count),
    }
}

/// Reassembly buffer for an association's next message.
#[derive(Default)]
pub(crate) struct Inbox {
    parts: BytesMut,
}

/// A complete message.
pub(crate) struct Whole {
    pub(crate) stream: StreamId,
    pub(crate) unordered: bool,
    pub(crate) bytes: Bytes,
}

impl Inbox {
    /// Returns the next complete message of the association, if it has arrived.
    pub(crate) fn next(&mut self, host: &mut Host, id: AssociationId) -> Option<Whole> {
        loop {
            let now = host.now();
            let message = host.engine.recv(now, id)?;
            let (stream, unordered, is_whole) = (message.stream, message.unordered, message.end);
            let bytes = message.into_bytes();
            if is_whole && self.parts.is_empty() {
                return Some(Whole { stream, unordered, bytes });
            }
            self.parts.extend_from_slice(&bytes);
            if is_whole {
                return Some(Whole { stream, unordered, bytes: self.parts.split().freeze() });
            }
        }
    }
}

/// Sends the message. Returns false if the send buffer is full; the caller then offers the message again.
pub(crate) fn offer(host: &mut Host, id: AssociationId, message: &Whole) -> Result<bool> {
    match try_send(host, id, message) {
        Ok(()) => Ok(true),
        Err(SendError::WouldBlock) => Ok(false),
        Err(error) => Err(error).context("a message cannot be sent"),
    }
}

/// Sends the message on the association.
pub(crate) fn try_send(host: &mut Host, id: AssociationId, message: &Whole) -> Result<(), SendError> {
    let now = host.now();
    let options = SendOptions { unordered: message.unordered, ..SendOptions::default() };
    host.engine.send(now, id, message.stream, Ppid(0), message.bytes.clone(), options)
}

/// Returns true if `event` reports the graceful end of the association. Any other end is an error.
pub(crate) fn is_over(event: &Event) -> Result<bool> {
    match event {
        Event::Closed(CloseReason::Graceful) => Ok(true),
        Event::Closed(reason) => bail!("the association ended: {reason:?}"),
        _ => Ok(false),
    }
}

/// The only association of a serving host: the first one that arrives.
#[derive(Default)]
pub(crate) struct Guest {
    /// Id of the association, once it exists.
    pub(crate) id: Option<AssociationId>,
}

impl Guest {
    /// Accepts the first incoming association, and passes all events to `see`. Returns true once the
    /// association has ended gracefully.
    ///
    /// # Errors
    /// When the association did not end gracefully.
    pub(crate) fn take_events(&mut self, host: &mut Host, see: impl Fn(&Event)) -> Result<bool> {
        let mut over = false;
        while let Some((id, event)) = host.poll_event() {
            if matches!(event, Event::Incoming { .. }) && self.id.is_none() {
                self.id = Some(id);
                let now = host.now();
                host.engine.accept(now, id);
            }
            see(&event);
            over |= Some(id) == self.id && is_over(&event)?;
        }
        Ok(over)
    }
}

/// Runs the host for [`LINGER`], to answer a retransmission of the peer's last packet.
pub(crate) fn linger(host: &mut Host) -> Result<()> {
    let end = host.now() + LINGER;
    while host.now() < end {
        host.turn(end)?;
    }
    Ok(())
}

/// Prints an event that reports a change of the path MTU, or of the peer's addresses or port.
fn tell(event: &Event) {
    match event {
        Event::PeerAddressChange(change) => println!("the peer: {change:?}"),
        Event::PathMtu { route, from, to } => println!("MTU to {}: {from}, now {to}", route.remote),
        Event::PeerPort { to, .. } => println!("the peer's port: now {:?}", to.carrier),
        _ => {}
    }
}

fn echo(options: &Options, port: u16) -> Result<()> {
    let mut host = Host::open(options, Some(port))?;
    println!("listening");
    let mut guest = Guest::default();
    let (mut inbox, mut held) = (Inbox::default(), None);
    let (mut messages, mut octets, mut over) = (0, 0, false);
    while !over {
        host.turn(Time::NEVER)?;
        over |= guest.take_events(&mut host, tell)?;
        let Some(id) = guest.id else { continue };
        while let Some(message) = held.take().or_else(|| inbox.next(&mut host, id)) {
            if !offer(&mut host, id, &message)? {
                held = Some(message);
                break;
            }
            messages += 1;
            octets += message.bytes.len();
        }
    }
    linger(&mut host)?;
    println!("echoed {messages} messages, {octets} octets");
    Ok(())
}

/// Initiates an association from a random source port.
pub(crate) fn connect(
    host: &mut Host,
    options: &Options,
    remote: IpAddr,
    port: u16,
) -> Result<AssociationId> {
    connect_with(host, options, (remote, port), association_config(options), None)
}

/// Like [`connect`], with a given configuration, and with an optional message to bundle with the COOKIE ECHO.
pub(crate) fn connect_with(
    host: &mut Host,
    options: &Options,
    (remote, port): (IpAddr, u16),
    config: AssociationConfig,
    first: Option<Bytes>,
) -> Result<AssociationId> {
    let now = host.now();
    let mut connect = Connect {
        local_port: 0,
        remote_port: port,
        init_routes: init_routes(options, remote),
        local_addresses: options.local.clone(),
        config,
    };
    for _ in 0..PORTS_TRIED {
        connect.local_port = rand::random_range(EPHEMERAL_PORTS);
        let connect = connect.clone();
        let outcome = match first.clone() {
            Some(message) => host.engine.connect_and_send(now, connect, Ppid(0), message),
            None => host.engine.connect(now, connect),
        };
        match outcome {
            // An earlier association still uses this port, so the loop tries another port.
            Err(ConnectError::Exists) => {}
            outcome => {
                let id = outcome?;
                host.begin_keys(id)?;
                return Ok(id);
            }
        }
    }
    bail!("no free port in {PORTS_TRIED} tries")
}

fn client(options: &Options, remote: IpAddr, port: u16, load: Load) -> Result<()> {
    let mut host = Host::open(options, None)?;
    let id = connect(&mut host, options, remote, port)?;
    await_event(&mut host, |event| matches!(event, Event::Established { .. }))?;
    println!("connected");
    if let Some(address) = load.add {
        change_address(&mut host, id, AddressChange::Add(address))?;
        change_address(&mut host, id, AddressChange::SetPrimary(address))?;
    }
    let start = host.now();
    let before = if load.reset { load.count / 2 } else { 0 };
    if load.reset {
        let mut client = Client::new(Load { count: before, ..load }, start);
        exchange(&mut host, id, &mut client, load.unordered)?;
        reset(&mut host, id)?;
    }
    let mut client = Client::new(Load { count: load.count - before, ..load }, host.now());
    exchange(&mut host, id, &mut client, load.unordered)?;
    if let Some(address) = load.add {
        change_address(&mut host, id, AddressChange::Remove(address))?;
    }
    let now = host.now();
    host.engine.shutdown(now, id);
    let (elapsed, silence) = (now.since(start).as_secs_f64(), client.longest_silence().as_secs_f64());
    await_event(&mut host, |event| matches!(event, Event::Closed(CloseReason::Graceful)))?;
    linger(&mut host)?;
    println!(
        "{} messages of {} octets and back in {elapsed:.3} s, longest silence {silence:.3} s, sha256 {}",
        load.count,
        load.size,
        digest(load.count, load.size)
    );
    Ok(())
}

/// Resets streams, adds streams, and then resets the association. Each step begins after the previous step has
/// completed.
fn reset(host: &mut Host, id: AssociationId) -> Result<()> {
    let streams = [StreamId(0), StreamId(1)];
    for direction in [StreamDirection::Outgoing, StreamDirection::Incoming] {
        let now = host.now();
        host.engine.reset_streams(now, id, direction, &streams)?;
        await_done(host, |event| match event {
            Event::StreamReset { direction: d, outcome, .. } if *d == direction => Some(*outcome),
            _ => None,
        })?;
    }
    for (outgoing, incoming) in [(3, 0), (0, 2)] {
        let now = host.now();
        host.engine.add_streams(now, id, outgoing, incoming)?;
        await_done(host, |event| match event {
            Event::StreamsChanged { outcome, .. } => Some(*outcome),
            _ => None,
        })?;
    }
    let now = host.now();
    host.engine.reset_association(now, id)?;
    await_done(host, |event| match event {
        Event::AssociationReset { outcome, .. } => Some(*outcome),
        _ => None,
    })
}

/// Waits for the outcome of a re-configuration request, and prints the event. Any outcome except `Done` is an
/// error.
fn await_done(host: &mut Host, outcome: impl Fn(&Event) -> Option<ReconfigOutcome>) -> Result<()> {
    let seen = std::cell::Cell::new(None);
    await_event(host, |event| {
        let outcome = outcome(event);
        if outcome.is_some() {
            println!("{event:?}");
            seen.set(outcome);
        }
        outcome.is_some()
    })?;
    match seen.get() {
        Some(ReconfigOutcome::Done) => Ok(()),
        other => bail!("the peer did not do that: {other:?}"),
    }
}

/// Changes the local addresses, and waits for the peer's answer. A refusal is printed, and is not an error.
fn change_address(host: &mut Host, id: AssociationId, change: AddressChange) -> Result<()> {
    let now = host.now();
    match change {
        AddressChange::Add(address) => host.engine.add_local_address(now, id, address)?,
        AddressChange::Remove(address) => host.engine.remove_local_address(now, id, address)?,
        AddressChange::SetPrimary(address) => host.engine.set_peer_primary(now, id, address)?,
        AddressChange::MoveTo(address) => host.engine.move_to_local_address(now, id, address)?,
        AddressChange::SetUse(address, usage) => {
            host.engine.set_local_uses(now, id, &[(address, usage)])?;
            host.engine.tell_local_use(now, id, address)?;
        }
    }
    let answer = |event: &Event| matches!(event, Event::AddressChange { change: c, .. } if *c == change);
    await_event(host, |event| {
        if let Event::AddressChange { change, refusal: Some(code) } = event {
            println!("the peer refuses {change:?} with cause {code:#x}");
        }
        answer(event)
    })?;
    println!("answered: {change:?}");
    Ok(())
}

/// Runs the host until a wanted event arrives. If the association ends before that event, returns an error.
pub(crate) fn await_event(host: &mut Host, is_wanted: impl Fn(&Event) -> bool) -> Result<()> {
    loop {
        while let Some((_, event)) = host.poll_event() {
            if is_wanted(&event) {
                return Ok(());
            }
            if is_over(&event)? {
                bail!("the peer ended the association early");
            }
        }
        host.turn(Time::NEVER)?;
    }
}

/// Sends all messages, and waits until all of them have returned.
fn exchange(host: &mut Host, id: AssociationId, client: &mut Client, unordered: bool) -> Result<()> {
    let mut inbox = Inbox::default();
    while !client.is_done() {
        while let Some((stream, message)) = client.next(host.now()) {
            let message = Whole { stream: StreamId(stream), unordered, bytes: message.into() };
            if !offer(host, id, &message)? {
                break;
            }
            client.on_sent(host.now());
        }
        host.turn(client.wakes_at())?;
        while let Some(message) = inbox.next(host, id) {
            let now = host.now();
            client.on_back(message.stream.0, message.unordered, &message.bytes, now)?;
        }
        while let Some((_, event)) = host.poll_event() {
            tell(&event);
            if is_over(&event)? {
                bail!("closed after {} messages", client.back());
            }
        }
    }
    Ok(())
}
