//! SCTP ports of the stack, and the decision on INITs.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};

use sctp::{AssociationId, Carrier, CloseReason, IncomingInit, InitDecision, Listener, Route};

use crate::error::Error;
use crate::one_to_many::SocketEvent;
use crate::wakers::{Wait, Wakers};

/// Ephemeral ports (RFC 6335 section 6).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// Most addresses that a peer is told of: INIT must fit into a packet.
const ADDRESSES_MAX: usize = 32;
/// Attempts to find a free port at random before all are tried in order.
const ATTEMPTS: usize = 16;

/// A port in use.
#[derive(Debug)]
struct Port {
    role: Role,
    /// Associations that have it.
    associations: usize,
    /// Keeps it from other programs of this host.
    _reservation: Option<UnixDatagram>,
}

impl Port {
    /// Begins to use a port, over IP as the only program of the host. Each program gets all packets over IP, and would answer those for
    /// another one with the same port by ABORT.
    fn open(number: u16, role: Role, is_shared: bool) -> Result<Port, Error> {
        let reserve = || {
            let name = format!("sctp-engine-port-{number}");
            UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(name)?)
        };
        let reservation = is_shared.then(reserve).transpose().map_err(|_| Error::PortInUse(number))?;
        Ok(Port { role, associations: 0, _reservation: reservation })
    }
}

/// Purpose of a port.
#[derive(Debug)]
pub(crate) enum Role {
    /// Streams that were connected from here, or whose socket was closed.
    Streams,
    /// A listener, whose associations become streams.
    Listener(Backlog),
    /// A one-to-many socket.
    Many(Inbox),
}

/// The associations of a listener that nobody has accepted.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Most associations that wait, of which more come only if their set-up began before.
    limit: usize,
    ready: VecDeque<AssociationId>,
    acceptors: Wakers,
}

impl Backlog {
    pub(crate) fn new(limit: usize) -> Backlog {
        Backlog { limit, ready: VecDeque::new(), acceptors: Wakers::default() }
    }

    fn has_room(&self) -> bool {
        self.ready.len() < self.limit
    }

    /// Reports whether one more whose set-up began before may come.
    pub(crate) fn has_room_for_late(&self) -> bool {
        self.ready.len() < 2 * self.limit
    }

    pub(crate) fn push(&mut self, id: AssociationId) {
        self.ready.push_back(id);
        self.acceptors.wake();
    }

    pub(crate) fn contains(&self, id: AssociationId) -> bool {
        self.ready.contains(&id)
    }

    pub(crate) fn remove(&mut self, id: AssociationId) {
        self.ready.retain(|ready| *ready != id);
    }

    /// Takes the next association. `None`: the task is woken when there is one.
    pub(crate) fn next(&mut self, wait: Wait<'_>) -> Option<AssociationId> {
        let next = self.ready.pop_front();
        if next.is_none() {
            self.acceptors.add(wait);
        }
        next
    }

    #[cfg(test)]
    pub(crate) fn has_acceptors(&self) -> bool {
        !self.acceptors.is_empty()
    }
}

/// Messages and events that a one-to-many socket has for its program.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Associations by the peer's address and port as their set-up had them.
    by_peer: BTreeMap<SocketAddr, AssociationId>,
    /// Associations that have begun.
    begun: VecDeque<SocketEvent>,
    /// Associations with messages, in turn.
    readable: VecDeque<AssociationId>,
    /// Associations that have ended.
    ended: VecDeque<SocketEvent>,
    readers: Wakers,
}

impl Inbox {
    pub(crate) fn note_begun(&mut self, id: AssociationId, peer: SocketAddr) {
        self.by_peer.insert(peer, id);
        self.begun.push_back(SocketEvent::Up { association: id, peer });
        self.readers.wake();
    }

    pub(crate) fn note_readable(&mut self, id: AssociationId) {
        self.readable.push_back(id);
        self.readers.wake();
    }

    pub(crate) fn note_ended(&mut self, id: AssociationId, reason: CloseReason) {
        self.ended.push_back(SocketEvent::Over { association: id, reason });
        self.readers.wake();
    }

    pub(crate) fn association_with(&self, peer: SocketAddr) -> Option<AssociationId> {
        self.by_peer.get(&peer).copied()
    }

    /// Notes the association with a peer before it is up.
    pub(crate) fn note_begins(&mut self, id: AssociationId, peer: SocketAddr) {
        self.by_peer.insert(peer, id);
    }

    /// Forgets that a peer is reached by an association.
    pub(crate) fn forget_peer(&mut self, peer: SocketAddr, id: AssociationId) {
        if self.by_peer.get(&peer) == Some(&id) {
            self.by_peer.remove(&peer);
        }
    }

    pub(crate) fn take_begun(&mut self) -> Option<SocketEvent> {
        self.begun.pop_front()
    }

    /// Returns the association whose end is told next.
    pub(crate) fn ended(&self) -> Option<AssociationId> {
        self.ended.front().map(SocketEvent::association)
    }

    /// Takes the next association with messages. If it has more of them, [`queue`](Self::queue) puts it behind all others.
    pub(crate) fn next_readable(&mut self) -> Option<AssociationId> {
        self.readable.pop_front()
    }

    pub(crate) fn queue(&mut self, id: AssociationId) {
        self.readable.push_back(id);
    }

    /// Takes the end that is told next. `None`: the task is woken when there is something.
    pub(crate) fn take_ended(&mut self, wait: Wait<'_>) -> Option<SocketEvent> {
        let ended = self.ended.pop_front();
        match &ended {
            Some(event) => self.readable.retain(|id| *id != event.association()),
            None => self.readers.add(wait),
        }
        ended
    }

    /// Removes all that concerns an association that becomes a stream.
    pub(crate) fn remove(&mut self, id: AssociationId) {
        self.readable.retain(|readable| *readable != id);
        for events in [&mut self.begun, &mut self.ended] {
            events.retain(|event| event.association() != id);
        }
    }
}

/// Ports, and the addresses of this host.
#[derive(Debug)]
pub(crate) struct Ports {
    used: BTreeMap<u16, Port>,
    /// Addresses that the program has named; none: all of the host.
    named: Vec<IpAddr>,
    of_host: Vec<IpAddr>,
    /// Ports are those of the host: packets come over IP.
    is_shared: bool,
}

impl Ports {
    pub(crate) fn new(named: Vec<IpAddr>, of_host: Vec<IpAddr>, is_shared: bool) -> Ports {
        Ports { used: BTreeMap::new(), named, of_host, is_shared }
    }

    pub(crate) fn set_addresses(&mut self, of_host: Vec<IpAddr>) {
        self.of_host = of_host;
    }

    /// Returns the address from which a peer is reached, where the kernel would take this one.
    pub(crate) fn source(&self, by_kernel: IpAddr) -> Option<IpAddr> {
        let is_of_family = |address: &&IpAddr| address.is_ipv4() == by_kernel.is_ipv4();
        match self.named.contains(&by_kernel) || self.named.is_empty() {
            true => Some(by_kernel),
            false => self.named.iter().find(is_of_family).copied(),
        }
    }

    /// Returns the addresses that a peer is told of. One on this host is told of that of loopback only.
    pub(crate) fn announced(&self, local: IpAddr) -> Vec<IpAddr> {
        let of_host = || match local.is_loopback() {
            true => vec![local],
            false => self.of_host.iter().copied().take(ADDRESSES_MAX).collect(),
        };
        if self.named.is_empty() { of_host() } else { self.named.clone() }
    }

    /// Takes a port; 0: any that is free.
    pub(crate) fn take(&mut self, port: u16, role: Role) -> Result<u16, Error> {
        let port = if port == 0 { self.open_any()? } else { port };
        // Streams may have been the listener's before.
        if !matches!(self.entry(port)?.role, Role::Streams) {
            return Err(Error::PortInUse(port));
        }
        self.entry(port)?.role = role;
        Ok(port)
    }

    /// Returns a port, which is opened if it is not in use.
    fn entry(&mut self, port: u16) -> Result<&mut Port, Error> {
        Ok(match self.used.entry(port) {
            Entry::Occupied(used) => used.into_mut(),
            Entry::Vacant(free) => free.insert(Port::open(port, Role::Streams, self.is_shared)?),
        })
    }

    /// Notes an association of a port; 0: any that is free. A stream may have the port of a listener, and none of a one-to-many socket's.
    pub(crate) fn hold(&mut self, port: u16, is_stream: bool) -> Result<u16, Error> {
        let port = if port == 0 { self.open_any()? } else { port };
        let used = self.entry(port)?;
        if is_stream && matches!(used.role, Role::Many(_)) {
            return Err(Error::PortInUse(port));
        }
        used.associations += 1;
        Ok(port)
    }

    /// Notes the end of an association.
    pub(crate) fn let_go(&mut self, port: u16) {
        let Some(used) = self.used.get_mut(&port) else { return };
        used.associations = used.associations.saturating_sub(1);
        self.remove_unused(port);
    }

    fn remove_unused(&mut self, port: u16) {
        let is_unused = |used: &Port| used.associations == 0 && matches!(used.role, Role::Streams);
        if self.used.get(&port).is_some_and(is_unused) {
            self.used.remove(&port);
        }
    }

    /// Opens an ephemeral port that is free.
    fn open_any(&mut self) -> Result<u16, Error> {
        let at_random = (0..ATTEMPTS).map(|_| rand::random_range(EPHEMERAL));
        let mut all = at_random.chain(EPHEMERAL).filter(|port| !self.used.contains_key(port));
        let opened = all.find_map(|port| Some((port, Port::open(port, Role::Streams, self.is_shared).ok()?)));
        let (port, opened) = opened.ok_or(Error::NoPort)?;
        self.used.insert(port, opened);
        Ok(port)
    }

    /// Closes a listener or a one-to-many socket. Its associations keep the port.
    pub(crate) fn close(&mut self, port: u16) -> Option<Role> {
        let role = std::mem::replace(&mut self.used.get_mut(&port)?.role, Role::Streams);
        self.remove_unused(port);
        Some(role)
    }

    pub(crate) fn listener(&mut self, port: u16) -> Option<&mut Backlog> {
        match &mut self.used.get_mut(&port)?.role {
            Role::Listener(backlog) => Some(backlog),
            _ => None,
        }
    }

    pub(crate) fn many(&mut self, port: u16) -> Option<&mut Inbox> {
        match &mut self.used.get_mut(&port)?.role {
            Role::Many(inbox) => Some(inbox),
            _ => None,
        }
    }

    /// Wakes all that wait at listeners and one-to-many sockets.
    pub(crate) fn wake_all(&mut self) {
        for port in self.used.values_mut() {
            match &mut port.role {
                Role::Listener(backlog) => backlog.acceptors.wake(),
                Role::Many(inbox) => inbox.readers.wake(),
                Role::Streams => {}
            }
        }
    }

    /// Forgets a wait at a listener or one-to-many socket.
    pub(crate) fn forget_wait(&mut self, port: u16, number: u64) {
        match self.used.get_mut(&port).map(|port| &mut port.role) {
            Some(Role::Listener(backlog)) => backlog.acceptors.forget(number),
            Some(Role::Many(inbox)) => inbox.readers.forget(number),
            Some(Role::Streams) | None => {}
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Reports whether a packet is this stack's. Over IP each SCTP program of the host gets all packets, and an answer to those of
    /// others would end their associations (RFC 9260 section 8.4 assumes one SCTP for each host).
    pub(crate) fn is_ours(&self, route: &Route, packet: &[u8]) -> bool {
        let port = || packet.get(2..4).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        route.carrier != Carrier::Ip || self.used.contains_key(&port())
    }
}

impl Listener for Ports {
    fn on_init(&mut self, init: &IncomingInit) -> InitDecision {
        let local = init.route.local;
        let accept = InitDecision::Accept { local_addresses: self.announced(local) };
        let is_named = self.named.is_empty() || self.named.contains(&local);
        match self.used.get(&init.local_port).filter(|_| is_named).map(|port| &port.role) {
            Some(Role::Listener(backlog)) if backlog.has_room() => accept,
            // The peer tries again.
            Some(Role::Listener(_)) => InitDecision::Ignore,
            Some(Role::Many(_)) => accept,
            Some(Role::Streams) | None => InitDecision::Refuse,
        }
    }
}
