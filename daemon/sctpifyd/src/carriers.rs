//! The open carriers, and the batch of packets that waits while a send buffer is full. No more than one batch waits.
//!
//! Invariant: while a batch waits, the daemon takes no other batch from the engine. Packets therefore leave in the order in which the
//! engine made them.

use anyhow::{Context, Result, bail};
use base::{Ecn, Route, Time};
use control::{OpenCarrier, Via};
use mio::{Registry, Token};
use netio::{Carriers, RawCarrier, SendErrorKind, Train, UdpCarrier};
use rules::Settings;
use sctp::{Endpoint, PathError, Transmit};
use wire::pcapng::Direction;

use crate::addresses::AddressBook;
use crate::capture::{self, Ear, Tap};

/// Size limit of a batch of packets, in bytes: the size of a full GSO train. The kernel gets a batch in one call.
const BATCH: usize = 64 * 1024;
/// Limit on the batches sent in one turn of the loop. The limit keeps the loop responsive. For reception, the limit per turn and socket is
/// [`netio::DATAGRAMS_PER_RECV`].
const BATCHES_PER_TURN: usize = 16;

/// Reception and transmission of packets through the carriers.
pub(crate) struct PacketIo {
    carriers: Carriers,
    /// The carrier for SCTP in UDP, if the settings request it, with its port. The port is 0 if the kernel chooses it.
    udp: Option<Wanted<u16>>,
    /// The carrier for SCTP over IP, if the settings request it, with the value of the setting `ip_shortcuts`.
    raw: Option<Wanted<bool>>,
    batch: Box<[u8]>,
    /// The batch that waits for room in the send buffer, and the offset of its first unsent byte.
    waiting: Option<(Transmit, usize)>,
    has_more: [bool; Carriers::TOKENS],
    errors_waiting: bool,
    /// Copies packets while a capture is active.
    tap: Option<Tap>,
}

impl PacketIo {
    /// Creates an instance without carriers; [`PacketIo::open`] opens them. With `any_port`, the kernel chooses the UDP port. Such a port
    /// suits a host that only connects, because peers answer to the source port of its packets.
    pub(crate) fn new(settings: &Settings, any_port: bool) -> PacketIo {
        let port = if any_port { 0 } else { settings.udp_port };
        let udp = settings.carriers.has_udp().then_some(port);
        PacketIo {
            carriers: Carriers::default(),
            udp: udp.map(Wanted::new),
            raw: settings.carriers.has_ip132().then(|| Wanted::new(settings.ip_shortcuts)),
            batch: vec![0; BATCH].into(),
            waiting: None,
            has_more: [false; Carriers::TOKENS],
            errors_waiting: false,
            tap: None,
        }
    }

    /// Opens the carriers that the settings request and that are still closed, in the calling thread's network namespace. A failure is
    /// reported only to the operator. Applications use plain TCP until a carrier is open.
    pub(crate) fn open(&mut self, registry: &Registry, first: Token) {
        let carriers = &mut self.carriers;
        if let Some(udp) = self.udp.as_mut().filter(|_| !carriers.has_udp()) {
            udp.settle(open_udp(udp.what).and_then(|udp| Ok(carriers.add_udp(udp, registry, first)?)));
        }
        if let Some(raw) = self.raw.as_mut().filter(|_| !carriers.has_raw()) {
            let opened = open_raw(raw.what);
            raw.settle(opened.and_then(|raw| Ok(carriers.add_raw(raw, registry, first)?)));
        }
    }

    /// Reports whether a carrier that the settings request is still closed.
    pub(crate) fn is_lacking(&self) -> bool {
        let udp = self.udp.as_ref().is_some_and(|udp| udp.problem.is_some());
        udp || self.raw.as_ref().is_some_and(|raw| raw.problem.is_some())
    }

    /// Returns the carriers that the settings request, each with the problem that keeps it closed, if any.
    pub(crate) fn report(&self) -> Vec<OpenCarrier> {
        let udp = self.udp.as_ref().map(|udp| OpenCarrier {
            carrier: Via::SctpUdp,
            udp_port: Some(udp.what).filter(|port| *port != 0),
            problem: udp.problem.clone(),
        });
        let raw = self.raw.as_ref().map(|raw| OpenCarrier {
            carrier: Via::Sctp,
            udp_port: None,
            problem: raw.problem.clone(),
        });
        udp.into_iter().chain(raw).collect()
    }

    /// Reports whether a carrier for this route is open.
    pub(crate) fn has(&self, route: &Route) -> bool {
        self.carriers.has(route)
    }

    /// Notes that the poll reported the carriers' socket with the index `place` as ready.
    pub(crate) fn on_ready(&mut self, place: usize) {
        if let Some(flag) = self.has_more.get_mut(place) {
            *flag = true;
        }
    }

    /// Starts a capture from `now` on. Returns `None` if another capture is active.
    pub(crate) fn tap(&mut self, now: Time) -> Option<Ear> {
        if self.tap.as_ref().is_some_and(Tap::is_heard) {
            return None;
        }
        let (tap, ear) = capture::pair(now, self.udp.as_ref().map_or(0, |udp| udp.what));
        self.tap = Some(tap);
        Some(ear)
    }

    /// Notes for a capture that an association's data uses another path from now on.
    pub(crate) fn note_switch(&mut self, from: &Route, to: &Route) {
        if let Some(tap) = &mut self.tap {
            tap.note_switch(from, to);
        }
    }

    /// Hands received packets to `f`, which reports whether the packet belonged to an association. Returns whether more packets may wait.
    pub(crate) fn receive(&mut self, now: Time, mut f: impl FnMut(&Route, Ecn, &[u8]) -> bool) -> bool {
        for place in 0..Carriers::TOKENS {
            if !self.has_more[place] {
                continue;
            }
            let tap = &mut self.tap;
            let mut take = |route: &Route, ecn, packet: &[u8]| {
                note(tap, now, route, ecn, Direction::In, packet);
                f(route, ecn, packet)
            };
            match self.carriers.recv_at(place, &mut take) {
                Ok(received) => {
                    self.has_more[place] = received.more;
                    self.errors_waiting |= received.errors_waiting;
                }
                Err(error) => {
                    tracing::warn!(%error, place, "receiving packets failed");
                    self.has_more[place] = false;
                }
            }
        }
        self.has_more.contains(&true)
    }

    /// Returns the interface on which the last packet of this route arrived.
    pub(crate) fn came_by(&self, route: &Route) -> Option<u32> {
        self.carriers.came_by(route)
    }

    /// Closes the sockets of interfaces that no longer exist.
    pub(crate) fn on_interfaces_changed(&mut self) {
        self.carriers.close_gone_interfaces();
    }

    /// Reports ICMP errors to the engine.
    pub(crate) fn report_errors(&mut self, now: Time, engine: &mut Endpoint) {
        if self.errors_waiting {
            self.errors_waiting = self.carriers.take_errors(|error| {
                engine.handle_path_error(now, &error.route, error.kind.into(), error.quoted);
            });
        }
    }

    /// Sends the engine's packets. Returns whether the engine may have more packets now.
    pub(crate) fn transmit(&mut self, now: Time, engine: &mut Endpoint, addresses: &AddressBook) -> bool {
        for _ in 0..BATCHES_PER_TURN {
            let (transmit, start) = match self.waiting.take() {
                Some(waiting) => waiting,
                None => match engine.poll_transmit(now, &mut self.batch) {
                    Some(transmit) => (transmit, 0),
                    None => return false,
                },
            };
            if !self.send(now, engine, addresses, transmit, start) {
                return false;
            }
        }
        true
    }

    /// Sends one batch. Returns false if the send buffer is full.
    fn send(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        book: &AddressBook,
        batch: Transmit,
        start: usize,
    ) -> bool {
        let train = Train::of(&batch, &self.batch, start, book.interface_of(batch.route.local));
        let outcome = self.carriers.send(&train);
        let sent = outcome.as_ref().map_or_else(|error| error.sent, |()| train.bytes.len());
        for packet in train.bytes[..sent].chunks(train.segment_size) {
            note(&mut self.tap, now, &batch.route, batch.ecn, Direction::Out, packet);
        }
        let Err(error) = outcome else {
            if batch.asks_for_queue
                && let Some(bytes) = self.carriers.waiting(&train)
            {
                let queue = PathError::LocalQueue { bytes };
                engine.handle_path_error(now, &batch.route, queue, train.bytes);
            }
            return true;
        };
        if error.kind == SendErrorKind::Full {
            self.waiting = Some((batch, start + error.sent));
            return false;
        }
        tracing::debug!(%error, "packets not sent");
        error.tell(&train, engine, now);
        self.errors_waiting = true;
        true
    }
}

/// Copies a packet to the tap if a capture is active.
fn note(tap: &mut Option<Tap>, now: Time, route: &Route, ecn: Ecn, direction: Direction, packet: &[u8]) {
    if let Some(open) = tap {
        open.note(now, route, ecn, direction, packet);
        if !open.is_heard() {
            *tap = None;
        }
    }
}

/// A carrier that the settings request.
struct Wanted<T> {
    what: T,
    /// The reason why the carrier is closed.
    problem: Option<String>,
}

impl<T> Wanted<T> {
    fn new(what: T) -> Self {
        Wanted { what, problem: None }
    }

    /// Records the outcome of an attempt to open the carrier; logs a change.
    fn settle(&mut self, outcome: Result<()>) {
        let problem = outcome.err().map(|error| format!("{error:#}"));
        match &problem {
            Some(problem) if self.problem.as_ref() != Some(problem) => tracing::error!("{problem}"),
            None if self.problem.is_some() => tracing::info!("a closed carrier is open again"),
            _ => {}
        }
        self.problem = problem;
    }
}

fn open_udp(port: u16) -> Result<UdpCarrier> {
    let bound = UdpCarrier::bind(port);
    let mut udp = bound
        .with_context(|| format!("cannot open UDP port {port} for SCTP in UDP: see setting udp_port"))?;
    udp.open_connected_rx();
    Ok(udp)
}

/// Opens the raw carrier, unless the kernel's own SCTP would answer peers' packets with ABORT.
fn open_raw(shortcuts: bool) -> Result<RawCarrier> {
    if let Some(found) = netio::kernel_sctp() {
        bail!("IP protocol 132 stays closed: {found}");
    }
    let opened = RawCarrier::open();
    let mut raw = opened.context("cannot open IP protocol 132 (needs CAP_NET_RAW): see setting carriers")?;
    if shortcuts && let Err(error) = raw.take_shortcuts(Some(intercept::TABLE)) {
        tracing::info!(%error, "SCTP over IP always uses the kernel's IP layer");
    }
    Ok(raw)
}
