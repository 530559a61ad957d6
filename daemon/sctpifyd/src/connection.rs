//! A connection of a local program, and the table of all connections.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::time::Duration;

use base::Time;
use control::{Role, ShimState, ShimStep};
use intercept::{FourTuple, HeldSyn};
use mio::net::TcpStream;
use relay::mux::ChannelId;
use relay::{Closed, Peer, Relay};
use sctp::{AssociationId, Endpoint, StateName};

use crate::addresses::host_part;
use crate::coalescing::{Traffic, Transfer};
use crate::flowing::Flowing;
use crate::interception::Offer;

/// Limit on the connections that use SCTP or wait for it. Further connections use plain TCP.
pub(crate) const CONNECTIONS_MAX: usize = 16_384;
/// Limit on the connections of one other host to local programs. The rest of [`CONNECTIONS_MAX`] is reserved for this host's own
/// connections and for further hosts.
const CONNECTIONS_PER_HOST_MAX: usize = CONNECTIONS_MAX / 2;

/// The daemon's number of a connection. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// One connection.
pub(crate) struct Connection {
    /// The association that carries the connection. A connection with a channel shares its association with other connections.
    association: AssociationId,
    /// The channel of the connection, if it uses a shared association.
    channel: Option<ChannelId>,
    role: Role,
    /// The addresses that the local program sees. The local address is the program's own address.
    flow: FourTuple,
    began: Time,
    /// Time from INIT to INIT ACK in microseconds, once INIT ACK has arrived.
    rtt_us: Option<u64>,
    /// True if INITs were also sent after the connection began: on other paths, or after a shared association did not carry the connection.
    /// In this case it is unknown which INIT the peer answered first.
    asked_later: bool,
    stage: Stage,
    /// The state of the connection in the shim papers' Figure 4.
    shim: ShimState,
    /// The kind of peer according to its Adaptation Layer Indication, once known.
    peer: Peer,
    /// True if the connection may use any address of this host. False if the local program listens on one address only.
    roams: bool,
    /// True if the peer sent SHUTDOWN before the relay began.
    peer_shutdown: bool,
    /// The way in which the association ended, once it has ended.
    closed: Option<Closed>,
    /// Server: the interface through which the connection arrived at the local program.
    uplink: Option<u32>,
    /// True if the interface `uplink` is down and no other interface is available. Packets to the program then arrive through the daemon's
    /// own interface.
    is_stranded: bool,
    bytes_sent: u64,
    bytes_received: u64,
    transfer: Transfer,
}

/// The progress of a connection.
pub(crate) enum Stage {
    /// Client: the SYN is held, and the INIT was sent.
    Init(HeldSyn),
    /// Client: INIT ACK has arrived, and the SYN is still held.
    Cookie(HeldSyn),
    /// Client: the SYN is held, and the shared association was asked to carry the connection.
    Asking(HeldSyn),
    /// Client: the SYN was released, but has not arrived in the daemon's private network namespace.
    Diverted,
    /// Server: the connection to the local listener is being opened.
    Connecting(TcpStream),
    /// Server: the local connection is open, and COOKIE ACK is on its way.
    Accepting(TcpStream),
    /// Bytes flow.
    Relaying(Box<Flowing>),
}

/// Terms of an accepted connection to a local program.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) peer: Peer,
    /// The channel of the connection, unless it has its own association.
    pub(crate) channel: Option<ChannelId>,
    pub(crate) offer: Offer,
    /// The interface through which the connection arrives, or the daemon's own interface if `None`.
    pub(crate) uplink: Option<u32>,
}

impl Connection {
    /// Creates a connection of a local program. `shim` is the connection's shim state when the daemon decided on SCTP.
    pub(crate) fn of_client(
        association: AssociationId,
        flow: FourTuple,
        began: Time,
        stage: Stage,
        shim: ShimState,
    ) -> Self {
        Connection {
            association,
            channel: None,
            role: Role::Client,
            flow,
            began,
            rtt_us: None,
            asked_later: false,
            stage,
            shim,
            peer: Peer::Native,
            roams: true,
            peer_shutdown: false,
            closed: None,
            uplink: None,
            is_stranded: false,
            bytes_sent: 0,
            bytes_received: 0,
            transfer: Transfer::default(),
        }
    }

    /// Creates a connection to a local program, which `stream` reaches.
    pub(crate) fn of_server(
        association: AssociationId,
        flow: FourTuple,
        began: Time,
        stream: TcpStream,
        opened: Opened,
    ) -> Self {
        let stage = Stage::Connecting(stream);
        Connection {
            role: Role::Server,
            channel: opened.channel,
            peer: opened.peer,
            roams: opened.offer == Offer::All,
            uplink: opened.uplink,
            ..Connection::of_client(association, flow, began, stage, ShimState::Native)
        }
    }

    /// Makes the connection a channel of its shared association.
    pub(crate) fn on_channel(self, channel: ChannelId) -> Self {
        Connection { channel: Some(channel), peer: Peer::Shim, ..self }
    }

    pub(crate) const fn association(&self) -> AssociationId {
        self.association
    }

    pub(crate) const fn channel(&self) -> Option<ChannelId> {
        self.channel
    }

    pub(crate) const fn role(&self) -> Role {
        self.role
    }

    pub(crate) const fn flow(&self) -> FourTuple {
        self.flow
    }

    pub(crate) const fn began(&self) -> Time {
        self.began
    }

    pub(crate) const fn peer(&self) -> Peer {
        self.peer
    }

    pub(crate) const fn roams(&self) -> bool {
        self.roams
    }

    /// Returns the interface through which the connection arrived at the local program, and whether it is stranded.
    pub(crate) const fn uplink(&self) -> (Option<u32>, bool) {
        (self.uplink, self.is_stranded)
    }

    /// Notes the interface through which the connection arrives from now on; `None` if no interface is up.
    pub(crate) fn set_uplink(&mut self, uplink: Option<u32>) {
        self.is_stranded = uplink.is_none();
        self.uplink = uplink.or(self.uplink);
    }

    pub(crate) const fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Returns the SYN that is held for the connection, if any.
    pub(crate) const fn held_syn(&self) -> Option<HeldSyn> {
        match self.stage {
            Stage::Init(syn) | Stage::Cookie(syn) | Stage::Asking(syn) => Some(syn),
            _ => None,
        }
    }

    /// Replaces the held SYN by its retransmission `syn`. Returns false if `syn` is another SYN.
    pub(crate) fn hold_again(&mut self, syn: HeldSyn) -> bool {
        match &mut self.stage {
            Stage::Init(held) | Stage::Cookie(held) | Stage::Asking(held) if held.isn == syn.isn => {
                *held = syn;
                true
            }
            _ => false,
        }
    }

    /// Returns the SYN of a connection that waits for the answer on a shared association.
    pub(crate) const fn asking(&self) -> Option<HeldSyn> {
        match self.stage {
            Stage::Asking(syn) => Some(syn),
            _ => None,
        }
    }

    /// Notes that INITs are also sent after the connection began.
    pub(crate) const fn note_asked_later(&mut self) {
        self.asked_later = true;
    }

    /// Notes that INIT ACK has arrived. Returns the held SYN if the connection waited for INIT ACK.
    pub(crate) fn on_init_ack(&mut self, now: Time) -> Option<HeldSyn> {
        let Stage::Init(syn) = self.stage else { return None };
        self.stage = Stage::Cookie(syn);
        // If INITs were also sent later, the round-trip time is unknown, because the answered INIT is unknown.
        self.rtt_us = Some(micros(now.since(self.began))).filter(|_| !self.asked_later);
        Some(syn)
    }

    /// Notes that the SYN is released into the daemon's private network namespace. Returns the time from INIT to INIT ACK in microseconds,
    /// if known.
    pub(crate) fn divert(&mut self, peer: Peer) -> Option<u64> {
        self.stage = Stage::Diverted;
        self.step(ShimStep::Associated);
        self.peer = peer;
        self.rtt_us
    }

    /// Lets bytes flow between the local program's socket and `relay`.
    pub(crate) fn begin_relay(&mut self, stream: TcpStream, mut relay: Relay) {
        if self.peer_shutdown {
            relay.on_peer_shutdown();
        }
        if let Some(how) = self.closed {
            relay.on_closed(how);
        }
        self.stage = Stage::Relaying(Box::new(Flowing::new(stream, relay)));
    }

    /// Returns the part that moves bytes, once the relay has begun.
    pub(crate) fn flowing(&mut self) -> Option<&mut Flowing> {
        match &mut self.stage {
            Stage::Relaying(flowing) => Some(flowing),
            _ => None,
        }
    }

    /// Handles SHUTDOWN from the peer. Reports whether the relay has begun, so bytes may now move.
    pub(crate) fn on_peer_shutdown(&mut self) -> bool {
        self.peer_shutdown = true;
        self.flowing().map(Flowing::on_peer_shutdown).is_some()
    }

    /// Handles the end of the connection's association.
    pub(crate) fn on_closed(&mut self, how: Closed) {
        self.closed = Some(how);
        if let Some(flowing) = self.flowing() {
            flowing.on_closed(how);
        }
    }

    /// Reports whether the connection's association has ended.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Counts moved bytes. Returns the kind of exchange to which they belong.
    pub(crate) fn note_moved(&mut self, now: Time, sent: u64, received: u64) -> Traffic {
        self.bytes_sent += sent;
        self.bytes_received += received;
        self.transfer.note(now, sent, received)
    }

    /// Returns the numbers of bytes sent and received.
    pub(crate) const fn bytes(&self) -> (u64, u64) {
        (self.bytes_sent, self.bytes_received)
    }

    pub(crate) const fn shim(&self) -> ShimState {
        self.shim
    }

    /// Makes a transition of the shim papers' Figure 4. Returns the new state.
    pub(crate) fn step(&mut self, step: ShimStep) -> ShimState {
        self.shim = stepped(self.shim, step);
        self.shim
    }

    /// Returns the socket of the local TCP connection, if it exists.
    pub(crate) fn stream(&self) -> Option<&TcpStream> {
        match &self.stage {
            Stage::Connecting(stream) | Stage::Accepting(stream) => Some(stream),
            Stage::Relaying(flowing) => Some(flowing.stream()),
            Stage::Init(_) | Stage::Cookie(_) | Stage::Asking(_) | Stage::Diverted => None,
        }
    }

    /// Notes that the local listener has accepted the connection, so COOKIE ACK may be sent.
    pub(crate) fn set_accepting(&mut self) {
        if let Stage::Connecting(stream) = std::mem::replace(&mut self.stage, Stage::Diverted) {
            self.stage = Stage::Accepting(stream);
        }
    }

    /// Returns the socket of an accepted connection, whose relay may begin.
    pub(crate) fn take_accepting(&mut self) -> Option<TcpStream> {
        match std::mem::replace(&mut self.stage, Stage::Diverted) {
            Stage::Accepting(stream) => Some(stream),
            other => {
                self.stage = other;
                None
            }
        }
    }
}

/// Returns the state after the step. If the shim papers' Figure 4 has no such step, the state is unchanged. A missing step is a bug in the
/// daemon, but must not break a connection.
pub(crate) fn stepped(from: ShimState, step: ShimStep) -> ShimState {
    let to = from.after(step);
    debug_assert!(to.is_some(), "{step:?} from {}", from.name());
    to.unwrap_or_else(|| {
        tracing::error!(from = from.name(), ?step, "no such transition of shim states");
        from
    })
}

/// Returns the duration in whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// All connections, with indexes by number, association and addresses.
#[derive(Default)]
pub(crate) struct Connections {
    all: BTreeMap<ConnectionId, Connection>,
    by_association: HashMap<AssociationId, ConnectionId>,
    by_client_flow: HashMap<FourTuple, ConnectionId>,
    /// Channels to local programs, by the addresses that the programs see.
    by_channel_flow: HashMap<FourTuple, ConnectionId>,
    /// Number of connections from each host to local programs.
    served: HashMap<IpAddr, usize>,
    /// Client connections whose INIT is unanswered.
    awaiting: BTreeSet<ConnectionId>,
    last: u64,
}

impl Connections {
    /// Reserves a number for a connection that is inserted later.
    pub(crate) fn reserve(&mut self) -> ConnectionId {
        self.last += 1;
        ConnectionId(self.last)
    }

    pub(crate) fn insert(&mut self, connection: Connection) -> ConnectionId {
        let id = self.reserve();
        self.insert_as(id, connection);
        id
    }

    /// Inserts a connection under its reserved number.
    pub(crate) fn insert_as(&mut self, id: ConnectionId, connection: Connection) {
        if connection.channel.is_none() {
            self.by_association.insert(connection.association, id);
        }
        if connection.role == Role::Client {
            self.by_client_flow.insert(connection.flow, id);
        }
        if connection.role == Role::Server {
            *self.served.entry(host_part(connection.flow.remote().ip())).or_default() += 1;
            if connection.channel.is_some() {
                self.by_channel_flow.insert(connection.flow, id);
            }
        }
        if matches!(connection.stage, Stage::Init(_)) {
            self.awaiting.insert(id);
        }
        self.all.insert(id, connection);
    }

    /// Returns the client connections whose INIT was answered since the last call.
    pub(crate) fn take_answered(&mut self, engine: &Endpoint) -> Vec<ConnectionId> {
        let (all, mut answered) = (&self.all, Vec::new());
        self.awaiting.retain(|id| {
            let state = all.get(id).and_then(|connection| engine.state(connection.association));
            if state == Some(StateName::CookieEchoed) {
                answered.push(*id);
            }
            state == Some(StateName::CookieWait)
        });
        answered
    }

    /// Reports whether the limits allow another connection from the client's host to local programs.
    pub(crate) fn has_room_for(&self, client: IpAddr) -> bool {
        let of_host = self.served.get(&host_part(client)).copied().unwrap_or_default();
        self.len() < CONNECTIONS_MAX && of_host < CONNECTIONS_PER_HOST_MAX
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.all.get_mut(&id)
    }

    pub(crate) fn of_association(&self, association: AssociationId) -> Option<ConnectionId> {
        self.by_association.get(&association).copied()
    }

    /// Returns the connection of a local client with these addresses.
    pub(crate) fn of_client(&self, flow: &FourTuple) -> Option<ConnectionId> {
        self.by_client_flow.get(flow).copied()
    }

    /// Returns the channel to a local program with these addresses.
    pub(crate) fn of_channel(&self, flow: &FourTuple) -> Option<ConnectionId> {
        self.by_channel_flow.get(flow).copied()
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.all.remove(&id)?;
        self.awaiting.remove(&id);
        if connection.channel.is_none() {
            self.by_association.remove(&connection.association);
        }
        if connection.role == Role::Client && self.by_client_flow.get(&connection.flow) == Some(&id) {
            self.by_client_flow.remove(&connection.flow);
        }
        if self.by_channel_flow.get(&connection.flow) == Some(&id) {
            self.by_channel_flow.remove(&connection.flow);
        }
        if connection.role == Role::Server
            && let Entry::Occupied(mut count) = self.served.entry(host_part(connection.flow.remote().ip()))
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(connection)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Iterates over all connections, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.all.iter().map(|(id, connection)| (*id, connection))
    }

    /// Returns the oldest connection whose number is higher than `id`.
    pub(crate) fn after(&self, id: ConnectionId) -> Option<(ConnectionId, &Connection)> {
        let after = (Bound::Excluded(id), Bound::Unbounded);
        self.all.range(after).next().map(|(id, connection)| (*id, connection))
    }

    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        self.all.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use base::{Carrier, Route};
    use sctp::{AssociationConfig, Connect, EndpointConfig};

    use super::*;

    /// Creates connections of one program that have the same addresses, each on its own association.
    fn alike(count: u16) -> Vec<Connection> {
        let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let flow = FourTuple::new((here, 40_000).into(), (there, 80).into()).expect("one family");
        let mut engine = Endpoint::new(Time::ZERO, EndpointConfig::default(), [0; 32]);
        let mut new = |local_port| {
            let connect = Connect {
                local_port,
                remote_port: 80,
                init_routes: vec![Route { local: here, remote: there, carrier: Carrier::Ip }],
                local_addresses: vec![here],
                config: AssociationConfig::default(),
            };
            let association = engine.connect(Time::ZERO, connect).expect("room");
            Connection::of_client(association, flow, Time::ZERO, Stage::Diverted, ShimState::EnableSrules)
        };
        (1..=count).map(|n| new(40_000 + n)).collect()
    }

    #[test]
    fn an_older_connection_that_ends_leaves_the_addresses_to_the_newer_one() {
        let [first, second] = alike(2).try_into().unwrap_or_else(|_| panic!("two"));
        let (flow, associations) = (first.flow(), [first.association(), second.association()]);
        let mut connections = Connections::default();
        let ids = [connections.insert(first), connections.insert(second)];
        assert!(connections.remove(ids[0]).is_some() && connections.remove(ids[0]).is_none());
        assert_eq!(connections.of_client(&flow), Some(ids[1]));
        assert_eq!(associations.map(|id| connections.of_association(id)), [None, Some(ids[1])]);
    }

    #[test]
    fn a_connection_without_an_interface_remembers_the_last_one() {
        let mut connection = alike(1).remove(0);
        connection.set_uplink(Some(2));
        connection.set_uplink(None);
        assert_eq!(connection.uplink(), (Some(2), true));
        connection.set_uplink(Some(3));
        assert_eq!(connection.uplink(), (Some(3), false));
    }

    #[test]
    fn events_before_bytes_flow_are_kept_for_the_relay() {
        let mut connection = alike(1).remove(0);
        assert!(!connection.on_peer_shutdown() && !connection.is_closed());
        connection.on_closed(Closed::Lost);
        assert!(connection.is_closed() && connection.held_syn().is_none());
        assert_eq!(connection.divert(Peer::Shim), None);
        assert_eq!((connection.peer(), connection.shim()), (Peer::Shim, ShimState::Active));
    }
}
