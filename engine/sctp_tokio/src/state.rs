//! The stack's state: the engine, its packets, ports and associations. One lock guards all of it.
//!
//! The driver ([`crate::driver`]) calls [`State::turn`] when packets have arrived, a timer is due, or a socket has used the engine. A
//! socket uses the engine under the lock, and wakes the driver, which sends the resulting packets.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;
use std::time::{Duration, Instant};

use mio::{Registry, Token};
use netio::{Monitor, PacketIo};
use sctp::{
    AbortCause, AssociationConfig, AssociationId, Bytes, Carrier, CloseReason, Connect, ConnectError,
    Endpoint, Event, Message, Route, SendError, Time,
};

use crate::SendInfo;
use crate::error::Error;
use crate::one_to_many::SocketEvent;
use crate::ports::{Backlog, Inbox, Ports, Role};
use crate::shared::WaitsOn;
use crate::stack::ConnectOptions;
use crate::wakers::{Wait, Wakers};

/// Delay before the driver sends again after the send buffer of a UDP or raw socket was full. If the poll reports room before this delay
/// ends, the driver sends at that time.
const RETRY: Duration = Duration::from_millis(1);
/// Minimum interval between checks of this host's addresses.
const ADDRESS_LOOK: Duration = Duration::from_secs(1);
/// Limit on the events of an association that wait for its program. The oldest events are dropped first.
const EVENTS_MAX: usize = 64;
/// Interval between checks of an association without a socket. The association is aborted if its peer has acknowledged nothing in this
/// interval, or if no bytes remain unacknowledged but the shutdown is incomplete. The interval is five times RTO.Max, as for
/// T5-shutdown-guard (RFC 9260 section 9.2).
const ABANDONED_LIMIT: Duration = Duration::from_secs(300);
/// Cause code Out of Resource (RFC 9260 section 3.3.10.4).
const OUT_OF_RESOURCE: u16 = 4;

/// Holder of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// An [`SctpStream`](crate::SctpStream).
    Stream,
    /// The listener of its port, until the program accepts the association.
    Listener,
    /// The one-to-many socket of its port.
    Socket,
    /// No socket. The association ends, and arriving messages are discarded.
    Nobody,
}

/// Phase in the life of an association.
#[derive(Clone, Debug)]
enum Phase {
    Opening,
    Up,
    Over(CloseReason),
}

#[derive(Debug)]
struct Association {
    holder: Holder,
    phase: Phase,
    peer: SocketAddr,
    local: SocketAddr,
    /// True if the peer sends no more messages.
    is_peer_done: bool,
    /// True if the association is in [`Inbox::readable`].
    is_queued: bool,
    readers: Wakers,
    writers: Wakers,
    /// Tasks that wait for the association to be established or to end.
    watchers: Wakers,
    events: VecDeque<Event>,
    event_readers: Wakers,
}

impl Association {
    fn new(holder: Holder, peer: SocketAddr, local: SocketAddr) -> Association {
        Association {
            holder,
            phase: Phase::Opening,
            peer,
            local,
            is_peer_done: false,
            is_queued: false,
            readers: Wakers::default(),
            writers: Wakers::default(),
            watchers: Wakers::default(),
            events: VecDeque::new(),
            event_readers: Wakers::default(),
        }
    }

    fn forget_wait(&mut self, number: u64) {
        for wakers in [&mut self.readers, &mut self.writers, &mut self.watchers, &mut self.event_readers] {
            wakers.forget(number);
        }
    }

    fn wake_all(&mut self) {
        for wakers in [&mut self.readers, &mut self.writers, &mut self.watchers, &mut self.event_readers] {
            wakers.wake();
        }
    }
}

pub(crate) struct State {
    engine: Endpoint,
    io: PacketIo,
    ports: Ports,
    monitor: Monitor,
    associations: BTreeMap<AssociationId, Association>,
    config: AssociationConfig,
    carriers: Vec<Carrier>,
    start: Instant,
    retry: Time,
    looked_at: Time,
    has_stack: bool,
    /// Associations without a socket that are shutting down. Each entry also has the time of the next check, and the number of bytes that
    /// were unacknowledged at the last check.
    abandoned: VecDeque<(Time, AssociationId, usize)>,
    /// Reason why all sockets have ended, if they have.
    end: Option<Error>,
    idlers: Wakers,
}

impl State {
    pub(crate) fn new(
        (engine, config): (Endpoint, AssociationConfig),
        io: PacketIo,
        monitor: Monitor,
        named: Vec<IpAddr>,
        carriers: Vec<Carrier>,
    ) -> State {
        let of_host = io.addresses().iter().map(|address| address.addr).collect();
        State {
            engine,
            ports: Ports::new(named, of_host, carriers.contains(&Carrier::Ip)),
            io,
            monitor,
            associations: BTreeMap::new(),
            config,
            carriers,
            start: clock(),
            retry: Time::NEVER,
            looked_at: Time::ZERO,
            has_stack: true,
            abandoned: VecDeque::new(),
            end: None,
            idlers: Wakers::default(),
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    // Methods for the driver.

    pub(crate) fn register(&mut self, registry: &Registry) -> std::io::Result<()> {
        self.io.register(registry, Token(0))
    }

    pub(crate) fn note_ready(&mut self, place: usize) {
        self.io.note_ready(place);
    }

    /// Receives packets, handles timers and events, and sends packets.
    pub(crate) fn turn(&mut self) -> std::io::Result<()> {
        let now = self.now();
        self.look_at_addresses(now);
        let ports = &mut self.ports;
        self.io.receive(now, &mut self.engine, |engine, route, ecn, packet| {
            if ports.is_ours(route, packet) {
                engine.handle_datagram(now, route, ecn, packet, ports);
            }
        })?;
        self.engine.handle_timeout(now);
        self.end_abandoned(now);
        self.follow_events(now);
        self.io.transmit(now, &mut self.engine);
        self.retry = if self.io.is_blocked() { now + RETRY } else { Time::NEVER };
        self.follow_events(now);
        Ok(())
    }

    /// Returns the time until the next turn if no event happens earlier.
    pub(crate) fn until_next_turn(&self) -> Duration {
        if self.io.has_unread() {
            return Duration::ZERO;
        }
        let abandoned = self.abandoned.front().map_or(Time::NEVER, |(due, ..)| *due);
        self.engine.next_timeout().min(self.retry).min(abandoned).since(self.now())
    }

    /// Reports whether the stack, its ports and its associations are no longer in use.
    pub(crate) fn is_over(&self) -> bool {
        !self.has_stack && self.associations.is_empty() && self.ports.is_empty()
    }

    /// Records that the program has dropped the stack and can make no new sockets.
    pub(crate) fn drop_stack(&mut self) {
        self.has_stack = false;
    }

    /// Ends all sockets, because the driver has ended.
    pub(crate) fn end(&mut self, reason: Error) {
        self.end.get_or_insert(reason);
        self.associations.values_mut().for_each(Association::wake_all);
        self.ports.wake_all();
        self.idlers.wake();
    }

    pub(crate) fn forget_wait(&mut self, on: WaitsOn, number: u64) {
        match on {
            WaitsOn::Association(id) => {
                self.associations.get_mut(&id).into_iter().for_each(|it| it.forget_wait(number));
            }
            WaitsOn::Port(port) => self.ports.forget_wait(port, number),
            WaitsOn::Stack => self.idlers.forget(number),
        }
    }

    fn alive(&self) -> Result<(), Error> {
        self.end.clone().map_or(Ok(()), Err)
    }

    fn look_at_addresses(&mut self, now: Time) {
        if now < self.looked_at + ADDRESS_LOOK && self.looked_at != Time::ZERO {
            return;
        }
        self.looked_at = now;
        let mut has_changed = false;
        // After an error of netlink, the addresses stay as they are, and the next check tries again.
        let _ = self.monitor.poll(|_| has_changed = true);
        let none: &[&str] = &[];
        if has_changed && let Ok(addresses) = netio::addresses(none) {
            self.ports.set_addresses(addresses.iter().map(|address| address.addr).collect());
            self.io.set_addresses(addresses);
        }
    }

    fn follow_events(&mut self, now: Time) {
        while let Some((id, event)) = self.engine.poll_event() {
            match event {
                Event::Incoming { route, local_port, remote_port, .. } => {
                    let (peer, local) = (
                        SocketAddr::new(route.remote, remote_port),
                        SocketAddr::new(route.local, local_port),
                    );
                    self.take_incoming(now, id, peer, local);
                }
                Event::Established { route, .. } => self.note_up(id, &route),
                Event::Readable => self.note_readable(now, id),
                Event::Closed(reason) => self.note_over(now, id, reason),
                other => {
                    let Some(association) = self.associations.get_mut(&id) else { continue };
                    match other {
                        Event::Writable => association.writers.wake(),
                        Event::PeerShutdown => {
                            association.is_peer_done = true;
                            association.readers.wake();
                            // Waiting senders must learn that they can send no more.
                            association.writers.wake();
                        }
                        other if association.holder != Holder::Socket => {
                            if association.events.len() == EVENTS_MAX {
                                association.events.pop_front();
                            }
                            association.events.push_back(other);
                            association.event_readers.wake();
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    fn take_incoming(&mut self, now: Time, id: AssociationId, peer: SocketAddr, local: SocketAddr) {
        let port = local.port();
        let holder = match self.ports.listener(port) {
            Some(backlog) => backlog.has_room_for_late().then_some(Holder::Listener),
            None => self.ports.many(port).map(|_| Holder::Socket),
        };
        let Some(holder) = holder.filter(|_| self.ports.hold(port, false).is_ok()) else {
            return self.engine.refuse(now, id, AbortCause::new(OUT_OF_RESOURCE, Bytes::new()));
        };
        self.associations.insert(id, Association::new(holder, peer, local));
        self.engine.accept(now, id);
    }

    fn note_up(&mut self, id: AssociationId, route: &Route) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        association.phase = Phase::Up;
        association.peer.set_ip(route.remote);
        association.local.set_ip(route.local);
        association.watchers.wake();
        let (port, peer) = (association.local.port(), association.peer);
        match association.holder {
            Holder::Listener => {
                if let Some(backlog) = self.ports.listener(port) {
                    backlog.push(id);
                }
            }
            Holder::Socket => {
                if let Some(inbox) = self.ports.many(port) {
                    inbox.note_begun(id, peer);
                }
            }
            Holder::Stream | Holder::Nobody => {}
        }
    }

    fn note_readable(&mut self, now: Time, id: AssociationId) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        match association.holder {
            Holder::Stream | Holder::Listener => association.readers.wake(),
            Holder::Socket => {
                if let Some(inbox) = self.ports.many(association.local.port())
                    && !std::mem::replace(&mut association.is_queued, true)
                {
                    inbox.note_readable(id);
                }
            }
            Holder::Nobody => while self.engine.recv(now, id).is_some() {},
        }
    }

    fn note_over(&mut self, now: Time, id: AssociationId, reason: CloseReason) {
        let Some(association) = self.associations.get_mut(&id) else {
            return self.engine.release(now, id);
        };
        association.phase = Phase::Over(reason.clone());
        association.wake_all();
        let port = association.local.port();
        match association.holder {
            Holder::Stream => {}
            // The association remains until the program has read its messages and its end.
            Holder::Socket => {
                if let Some(inbox) = self.ports.many(port) {
                    inbox.note_ended(id, reason);
                }
            }
            Holder::Listener => {
                let backlog = self.ports.listener(port);
                let is_ready = backlog.as_ref().is_some_and(|backlog| backlog.contains(id));
                // After a graceful end, the peer assumes that its messages were delivered. The association therefore remains, and the
                // program can still accept it and read the messages.
                if reason != CloseReason::Graceful || !is_ready {
                    backlog.into_iter().for_each(|backlog| backlog.remove(id));
                    self.remove(now, id);
                }
            }
            Holder::Nobody => self.remove(now, id),
        }
    }

    fn remove(&mut self, now: Time, id: AssociationId) {
        self.engine.release(now, id);
        if let Some(Association { peer, local, .. }) = self.associations.remove(&id) {
            self.forget_member(local.port(), peer, id);
            self.ports.let_go(local.port());
        }
        if self.associations.is_empty() {
            self.idlers.wake();
        }
    }

    /// Removes the entry of a peer from a one-to-many socket if it refers to this association.
    fn forget_member(&mut self, port: u16, peer: SocketAddr, id: AssociationId) {
        self.ports.many(port).into_iter().for_each(|inbox| inbox.forget_peer(peer, id));
    }

    // Methods for associations.

    /// Begins an association. `socket` is the port of the one-to-many socket that gets the association. If `socket` is `None`, the
    /// association becomes a stream.
    pub(crate) fn connect(
        &mut self,
        peers: &[SocketAddr],
        options: &ConnectOptions,
        socket: Option<u16>,
    ) -> Result<AssociationId, Error> {
        self.alive()?;
        let now = self.now();
        self.look_at_addresses(now);
        let first = *peers.first().ok_or(Error::Peer)?;
        if peers.iter().any(|peer| peer.port() != first.port()) {
            return Err(Error::Peer);
        }
        let mut init_routes = Vec::new();
        for peer in peers {
            let by_kernel = netio::source_address(peer.ip());
            let Some(local) = by_kernel.and_then(|local| self.ports.source(local)) else { continue };
            let of_peer = |carrier: &Carrier| match (carrier, options.peer_udp_port) {
                (Carrier::Udp { .. }, Some(peer_port)) => Carrier::Udp { peer_port },
                _ => *carrier,
            };
            let routes = self.carriers.iter().map(of_peer);
            init_routes.extend(routes.map(|carrier| Route { local, remote: peer.ip(), carrier }));
        }
        let local = init_routes.first().map(|route| route.local).ok_or(Error::NoRoute(first))?;
        let mut config = options.association.clone().unwrap_or_else(|| self.config.clone());
        check(&mut config)?;
        let port = self.ports.hold(socket.unwrap_or(options.local_port), socket.is_none())?;
        let connect = Connect {
            local_port: port,
            remote_port: first.port(),
            init_routes,
            local_addresses: self.ports.announced(local),
            config,
        };
        match self.engine.connect(now, connect) {
            Ok(id) => {
                let holder = if socket.is_some() { Holder::Socket } else { Holder::Stream };
                let association = Association::new(holder, first, SocketAddr::new(local, port));
                self.associations.insert(id, association);
                Ok(id)
            }
            Err(error) => {
                self.ports.let_go(port);
                Err(error.into())
            }
        }
    }

    fn get(&self, id: AssociationId) -> Result<&Association, Error> {
        self.alive()?;
        self.associations.get(&id).ok_or(Error::NoAssociation)
    }

    fn get_mut(&mut self, id: AssociationId) -> Result<&mut Association, Error> {
        self.alive()?;
        self.associations.get_mut(&id).ok_or(Error::NoAssociation)
    }

    pub(crate) fn poll_up(&mut self, wait: Wait<'_>, id: AssociationId) -> Poll<Result<(), Error>> {
        let association = self.get_mut(id)?;
        match &association.phase {
            Phase::Opening => {
                association.watchers.add(wait);
                Poll::Pending
            }
            Phase::Up => Poll::Ready(Ok(())),
            Phase::Over(reason) => Poll::Ready(Err(Error::of_attempt(reason.clone()))),
        }
    }

    /// Waits for the end of an association, and returns its reason.
    pub(crate) fn poll_over(
        &mut self,
        wait: Wait<'_>,
        id: AssociationId,
    ) -> Poll<Result<CloseReason, Error>> {
        let association = self.get_mut(id)?;
        if let Phase::Over(reason) = &association.phase {
            return Poll::Ready(Ok(reason.clone()));
        }
        association.watchers.add(wait);
        Poll::Pending
    }

    /// Returns the next message. Returns `None` if the peer has shut down and all messages are read.
    pub(crate) fn poll_recv(
        &mut self,
        wait: Wait<'_>,
        id: AssociationId,
    ) -> Poll<Result<Option<Message>, Error>> {
        let now = self.now();
        self.get(id)?;
        if let Some(message) = self.engine.recv(now, id) {
            return Poll::Ready(Ok(Some(message)));
        }
        let association = self.get_mut(id)?;
        match &association.phase {
            Phase::Over(CloseReason::Graceful) => Poll::Ready(Ok(None)),
            Phase::Over(reason) => Poll::Ready(Err(Error::Closed(reason.clone()))),
            _ if association.is_peer_done => Poll::Ready(Ok(None)),
            _ => {
                association.readers.add(wait);
                Poll::Pending
            }
        }
    }

    /// Waits until the engine has room for a message, and passes the message to the engine.
    pub(crate) fn poll_send(
        &mut self,
        wait: Wait<'_>,
        id: AssociationId,
        message: &Bytes,
        info: &SendInfo,
    ) -> Poll<Result<(), Error>> {
        let now = self.now();
        match &self.get(id)?.phase {
            Phase::Over(reason) => return Poll::Ready(Err(Error::Closed(reason.clone()))),
            Phase::Opening => {
                self.get_mut(id)?.watchers.add(wait);
                return Poll::Pending;
            }
            Phase::Up => {}
        }
        let (stream, ppid) = (info.stream, info.ppid);
        match self.engine.send(now, id, stream, ppid, message.clone(), info.options) {
            Err(SendError::WouldBlock) => {
                self.get_mut(id)?.writers.add(wait);
                Poll::Pending
            }
            other => Poll::Ready(other.map_err(Error::from)),
        }
    }

    /// Returns the number of bytes that can be sent now, which is 0 if the send buffer is full.
    pub(crate) fn send_capacity(&self, id: AssociationId) -> usize {
        self.engine.send_capacity(id)
    }

    /// Returns the next event of an association, or `None` if the association has ended.
    pub(crate) fn poll_event(&mut self, wait: Wait<'_>, id: AssociationId) -> Poll<Option<Event>> {
        let Ok(association) = self.get_mut(id) else { return Poll::Ready(None) };
        match association.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if matches!(association.phase, Phase::Over(_)) => Poll::Ready(None),
            None => {
                association.event_readers.add(wait);
                Poll::Pending
            }
        }
    }

    pub(crate) fn addresses_of(&self, id: AssociationId) -> Result<(SocketAddr, SocketAddr), Error> {
        self.get(id).map(|association| (association.local, association.peer))
    }

    pub(crate) fn engine(&mut self) -> (&mut Endpoint, Time) {
        let now = self.now();
        (&mut self.engine, now)
    }

    pub(crate) fn shutdown(&mut self, id: AssociationId) {
        let now = self.now();
        self.engine.shutdown(now, id);
        // Tasks that wait for room must learn that they can send no more.
        self.associations.get_mut(&id).into_iter().for_each(|association| association.writers.wake());
    }

    pub(crate) fn abort(&mut self, id: AssociationId, cause: AbortCause) {
        let now = self.now();
        self.engine.abort(now, id, cause);
    }

    /// Ends an association whose socket was dropped. If messages are unread, sends an ABORT, as close(2) does (RFC 6458 section 4.1.4).
    /// Also aborts an association that is not established or was not accepted. Otherwise, begins a shutdown.
    pub(crate) fn abandon(&mut self, id: AssociationId) {
        let now = self.now();
        let Some(association) = self.associations.get_mut(&id) else { return };
        let was_unaccepted = association.holder == Holder::Listener;
        association.holder = Holder::Nobody;
        association.events = VecDeque::new();
        if self.end.is_some() || matches!(association.phase, Phase::Over(_)) {
            return self.remove(now, id);
        }
        let is_up = matches!(association.phase, Phase::Up);
        if !is_up || was_unaccepted || self.engine.recv(now, id).is_some() {
            self.engine.abort(now, id, AbortCause::default());
        } else {
            self.engine.shutdown(now, id);
            self.abandoned.push_back((now + ABANDONED_LIMIT, id, self.engine.unacknowledged(id)));
        }
    }

    /// Aborts each association that has no socket, if the peer has acknowledged nothing for [`ABANDONED_LIMIT`], or has not completed the
    /// shutdown in this time.
    fn end_abandoned(&mut self, now: Time) {
        while let Some((_, id, before)) = self.abandoned.pop_front_if(|(due, ..)| *due <= now) {
            let left = self.engine.unacknowledged(id);
            let is_there = self.associations.contains_key(&id);
            if is_there && left > 0 && left < before {
                self.abandoned.push_back((now + ABANDONED_LIMIT, id, left));
            } else if is_there {
                self.engine.abort(now, id, AbortCause::default());
            }
        }
    }

    // Methods for listeners.

    pub(crate) fn listen(&mut self, port: u16, limit: usize) -> Result<u16, Error> {
        self.alive()?;
        self.ports.take(port, Role::Listener(Backlog::new(limit)))
    }

    pub(crate) fn poll_accept(&mut self, wait: Wait<'_>, port: u16) -> Poll<Result<AssociationId, Error>> {
        self.alive()?;
        let Some(backlog) = self.ports.listener(port) else { return Poll::Ready(Err(Error::StackEnded)) };
        let Some(id) = backlog.next(wait) else { return Poll::Pending };
        self.get_mut(id)?.holder = Holder::Stream;
        Poll::Ready(Ok(id))
    }

    // Methods for one-to-many sockets.

    pub(crate) fn bind(&mut self, port: u16) -> Result<u16, Error> {
        self.alive()?;
        self.ports.take(port, Role::Many(Inbox::default()))
    }

    pub(crate) fn poll_socket(&mut self, wait: Wait<'_>, port: u16) -> Poll<Result<SocketEvent, Error>> {
        self.alive()?;
        let now = self.now();
        let Some(inbox) = self.ports.many(port) else { return Poll::Ready(Err(Error::StackEnded)) };
        // An association's beginning comes before its first message, and its end after its last message.
        if let Some(event) = inbox.take_begun() {
            return Poll::Ready(Ok(event));
        }
        let ended = inbox.ended();
        // The messages and the end of an ended association are returned first. Otherwise, associations with constant traffic could delay
        // them without limit.
        while let Some(id) = ended.or_else(|| inbox.next_readable()) {
            let message = self.engine.recv(now, id);
            let Some(association) = self.associations.get_mut(&id) else {
                if ended.is_some() {
                    break;
                }
                continue;
            };
            if let Some(message) = message {
                if ended.is_none() {
                    inbox.queue(id);
                }
                return Poll::Ready(Ok(SocketEvent::Message {
                    association: id,
                    peer: association.peer,
                    message,
                }));
            }
            association.is_queued = false;
            if ended.is_some() {
                break;
            }
        }
        let Some(event) = inbox.take_ended(wait) else { return Poll::Pending };
        self.remove(now, event.association());
        Poll::Ready(Ok(event))
    }

    /// Returns a one-to-many socket's association with a peer. Begins one if none exists.
    pub(crate) fn association_with(&mut self, port: u16, peer: SocketAddr) -> Result<AssociationId, Error> {
        self.alive()?;
        let known = self.ports.many(port).and_then(|inbox| inbox.association_with(peer));
        if let Some(id) = known.filter(|id| self.member(port, *id).is_ok()) {
            return Ok(id);
        }
        let begun = self.connect(&[peer], &ConnectOptions::default(), Some(port));
        match begun {
            Ok(id) => {
                self.ports.many(port).into_iter().for_each(|inbox| inbox.note_begins(id, peer));
                Ok(id)
            }
            // `peer` may be another address of a peer that already has an association.
            Err(Error::Connect(ConnectError::Exists)) => {
                let ids = self.associations.keys().copied();
                let mut of_peer = ids.filter(|id| self.member(port, *id).is_ok() && self.has_path(*id, peer));
                of_peer.next().ok_or(Error::Connect(ConnectError::Exists))
            }
            Err(error) => Err(error),
        }
    }

    fn has_path(&self, id: AssociationId, peer: SocketAddr) -> bool {
        let info = self.engine.info(id).filter(|info| info.remote_port == peer.port());
        info.is_some_and(|info| info.paths.iter().any(|path| path.route.remote == peer.ip()))
    }

    /// Checks that an association belongs to a one-to-many socket and has not ended.
    pub(crate) fn member(&self, port: u16, id: AssociationId) -> Result<(), Error> {
        let association = self.get(id)?;
        let is_member = association.holder == Holder::Socket
            && association.local.port() == port
            && !matches!(association.phase, Phase::Over(_));
        if is_member { Ok(()) } else { Err(Error::NoAssociation) }
    }

    /// Moves an association from a one-to-many socket to a stream.
    pub(crate) fn peel_off(&mut self, port: u16, id: AssociationId) -> Result<(), Error> {
        self.member(port, id)?;
        let association = self.get_mut(id)?;
        association.holder = Holder::Stream;
        association.is_queued = false;
        let peer = association.peer;
        self.forget_member(port, peer, id);
        self.ports.many(port).into_iter().for_each(|inbox| inbox.remove(id));
        Ok(())
    }

    /// Closes a listener or one-to-many socket, and ends the associations that it still holds.
    pub(crate) fn close_port(&mut self, port: u16) {
        let is_own = |association: &&Association| {
            matches!(association.holder, Holder::Listener | Holder::Socket)
                && association.local.port() == port
        };
        let own: Vec<_> = self.associations.iter().filter(|(_, it)| is_own(it)).map(|(id, _)| *id).collect();
        for id in own {
            self.abandon(id);
        }
        self.ports.close(port);
    }

    /// Waits until no association exists, or the stack has ended.
    pub(crate) fn poll_idle(&mut self, wait: Wait<'_>) -> Poll<()> {
        if self.associations.is_empty() || self.end.is_some() {
            return Poll::Ready(());
        }
        self.idlers.add(wait);
        Poll::Pending
    }
}

/// Refuses protection by keys, which the sockets do not support. Turns off `takes_late_messages`.
pub(crate) fn check(config: &mut AssociationConfig) -> Result<(), Error> {
    if config.protection.is_some() {
        let what = "protection by keys is not supported: leave it out of the association's settings";
        return Err(Error::Settings(what));
    }
    config.takes_late_messages = false;
    Ok(())
}

/// Returns the time of the real clock.
#[allow(clippy::disallowed_methods, reason = "sockets are for real programs")]
fn clock() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectOptions, Stack, StackConfig};

    #[test]
    fn waits_that_were_cancelled_leave_nothing() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stack = Stack::open(StackConfig { udp_port: Some(0), ..StackConfig::default() }).unwrap();
            let listener = stack.listen(7).unwrap();
            let options = ConnectOptions { peer_udp_port: stack.udp_port(), ..ConnectOptions::default() };
            let near = stack.connect_with("127.0.0.1:7", &options).await.unwrap();
            let _far = listener.accept().await.unwrap();
            for _ in 0..100 {
                let short = Duration::from_micros(10);
                assert!(tokio::time::timeout(short, near.recv()).await.is_err());
                assert!(tokio::time::timeout(short, near.event()).await.is_err());
                assert!(tokio::time::timeout(short, listener.accept()).await.is_err());
                assert!(tokio::time::timeout(short, stack.wait_idle()).await.is_err());
            }
            let mut state = stack.shared().lock();
            assert!(
                state.associations.values().all(|it| it.readers.is_empty() && it.event_readers.is_empty())
            );
            assert!(!state.ports.listener(7).unwrap().has_acceptors() && state.idlers.is_empty());
        });
    }
}
