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

/// Range of ephemeral ports (RFC 6335 section 6).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// Limit on the addresses of this host in an INIT or INIT ACK, which must fit into one packet.
const ADDRESSES_MAX: usize = 32;
/// Number of random ports that are tried before all ports are tried in order.
const ATTEMPTS: usize = 16;

/// A port in use.
#[derive(Debug)]
struct Port {
    role: Role,
    /// Number of associations that use the port.
    associations: usize,
    /// Socket that reserves the port against other programs of this host.
    _reservation: Option<UnixDatagram>,
}

impl Port {
    /// Opens a port. If `is_shared` is true (SCTP over IP), reserves it against other programs of the host. Over IP, each program gets all
    /// SCTP packets. Without the reservation, two programs with the same port would answer each other's packets with ABORT.
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
    /// No socket. Only associations use the port: streams that connected from it, or associations of a listener or one-to-many socket that
    /// was closed.
    Streams,
    /// A listener, whose associations become streams.
    Listener(Backlog),
    /// A one-to-many socket.
    Many(Inbox),
}

/// Associations of a listener that the program has not accepted.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Limit on the waiting associations. When the limit is reached, the listener ignores INITs. Associations whose set-up began before
    /// this time may still join, up to twice the limit in total.
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

    /// Reports whether the backlog has room for an association whose set-up began before the limit was reached.
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

    /// Takes the next association. If no association waits, returns `None`. The task is then woken when an association arrives.
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

/// Messages and events of a one-to-many socket that its program has not read.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Association of each peer. The key is the address and port that the peer had during the set-up.
    by_peer: BTreeMap<SocketAddr, AssociationId>,
    /// Events that report established associations.
    begun: VecDeque<SocketEvent>,
    /// Associations with messages, in the order in which they are served.
    readable: VecDeque<AssociationId>,
    /// Events that report ended associations.
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

    /// Records the association with a peer before it is established.
    pub(crate) fn note_begins(&mut self, id: AssociationId, peer: SocketAddr) {
        self.by_peer.insert(peer, id);
    }

    /// Removes the entry of a peer if it refers to this association.
    pub(crate) fn forget_peer(&mut self, peer: SocketAddr, id: AssociationId) {
        if self.by_peer.get(&peer) == Some(&id) {
            self.by_peer.remove(&peer);
        }
    }

    pub(crate) fn take_begun(&mut self) -> Option<SocketEvent> {
        self.begun.pop_front()
    }

    /// Returns the association whose end is reported next.
    pub(crate) fn ended(&self) -> Option<AssociationId> {
        self.ended.front().map(SocketEvent::association)
    }

    /// Takes the next association with messages. If it has further messages, [`queue`](Self::queue) puts it behind all others.
    pub(crate) fn next_readable(&mut self) -> Option<AssociationId> {
        self.readable.pop_front()
    }

    pub(crate) fn queue(&mut self, id: AssociationId) {
        self.readable.push_back(id);
    }

    /// Takes the next event that reports an ended association. If no such event waits, returns `None`. The task is then woken when an event
    /// or message arrives.
    pub(crate) fn take_ended(&mut self, wait: Wait<'_>) -> Option<SocketEvent> {
        let ended = self.ended.pop_front();
        match &ended {
            Some(event) => self.readable.retain(|id| *id != event.association()),
            None => self.readers.add(wait),
        }
        ended
    }

    /// Removes all events of an association that becomes a stream.
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
    /// Addresses that the program has named. If empty, all addresses of the host are used.
    named: Vec<IpAddr>,
    of_host: Vec<IpAddr>,
    /// True if other programs of the host share the port numbers, because packets come over IP.
    is_shared: bool,
}

impl Ports {
    pub(crate) fn new(named: Vec<IpAddr>, of_host: Vec<IpAddr>, is_shared: bool) -> Ports {
        Ports { used: BTreeMap::new(), named, of_host, is_shared }
    }

    pub(crate) fn set_addresses(&mut self, of_host: Vec<IpAddr>) {
        self.of_host = of_host;
    }

    /// Returns the local address for packets to a peer. `by_kernel` is the address that the kernel would choose. If the program has named
    /// this address, or has named no address, returns it. Otherwise, returns the first named address of the same family.
    pub(crate) fn source(&self, by_kernel: IpAddr) -> Option<IpAddr> {
        let is_of_family = |address: &&IpAddr| address.is_ipv4() == by_kernel.is_ipv4();
        match self.named.contains(&by_kernel) || self.named.is_empty() {
            true => Some(by_kernel),
            false => self.named.iter().find(is_of_family).copied(),
        }
    }

    /// Returns the local addresses that the set-up reports to a peer. If the program has named no addresses and `local` is a loopback
    /// address, returns only `local`.
    pub(crate) fn announced(&self, local: IpAddr) -> Vec<IpAddr> {
        let of_host = || match local.is_loopback() {
            true => vec![local],
            false => self.of_host.iter().copied().take(ADDRESSES_MAX).collect(),
        };
        if self.named.is_empty() { of_host() } else { self.named.clone() }
    }

    /// Gives a port to a socket of this role. Port 0 selects any free port.
    pub(crate) fn take(&mut self, port: u16, role: Role) -> Result<u16, Error> {
        let port = if port == 0 { self.open_any()? } else { port };
        // Streams may still use the port of a listener that has been closed.
        if !matches!(self.entry(port)?.role, Role::Streams) {
            return Err(Error::PortInUse(port));
        }
        self.entry(port)?.role = role;
        Ok(port)
    }

    /// Returns a port. Opens it if it is not in use.
    fn entry(&mut self, port: u16) -> Result<&mut Port, Error> {
        Ok(match self.used.entry(port) {
            Entry::Occupied(used) => used.into_mut(),
            Entry::Vacant(free) => free.insert(Port::open(port, Role::Streams, self.is_shared)?),
        })
    }

    /// Adds an association to a port. Port 0 selects any free port. A stream may share the port of a listener, but not the port of a
    /// one-to-many socket.
    pub(crate) fn hold(&mut self, port: u16, is_stream: bool) -> Result<u16, Error> {
        let port = if port == 0 { self.open_any()? } else { port };
        let used = self.entry(port)?;
        if is_stream && matches!(used.role, Role::Many(_)) {
            return Err(Error::PortInUse(port));
        }
        used.associations += 1;
        Ok(port)
    }

    /// Removes an association from a port that it used.
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

    /// Opens a free ephemeral port.
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

    /// Wakes all tasks that wait at listeners and one-to-many sockets.
    pub(crate) fn wake_all(&mut self) {
        for port in self.used.values_mut() {
            match &mut port.role {
                Role::Listener(backlog) => backlog.acceptors.wake(),
                Role::Many(inbox) => inbox.readers.wake(),
                Role::Streams => {}
            }
        }
    }

    /// Removes a wait at a listener or one-to-many socket.
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

    /// Reports whether a packet is for this stack. Over IP, each SCTP program of the host gets all packets. An answer to another program's
    /// packet would end that program's association, because RFC 9260 section 8.4 assumes one SCTP for each host.
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
            // The peer repeats an INIT that gets no answer.
            Some(Role::Listener(_)) => InitDecision::Ignore,
            Some(Role::Many(_)) => accept,
            Some(Role::Streams) | None => InitDecision::Refuse,
        }
    }
}
