//! `connect` and `sctp_connectx`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::{Carrier, Route, Time};
use sctp::{AssociationId, Connect, ConnectError, Endpoint};

use crate::bind::{ADDRESSES_MAX, addresses_of};
use crate::socket::{Socket, State};
use crate::{Errno, Network, SocketKey, Sockets};

impl Sockets {
    /// Begins to connect to a peer with one or more addresses, and returns the association's identifier. When the attempt has ended,
    /// [`Output::Settled`](crate::Output::Settled) follows, or [`Output::Attempted`](crate::Output::Attempted) for a one-to-many socket.
    ///
    /// # Errors
    /// `EISCONN`, `EALREADY`, `ENETUNREACH`, `EADDRNOTAVAIL`, `ECONNREFUSED` and `EINVAL` as in Linux. `EMFILE` at the user's limit on
    /// sockets. `ENOBUFS` if the engine has no room.
    pub fn connect(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        packed: &[u8],
        network: &mut dyn Network,
    ) -> Result<i32, Errno> {
        let peers = addresses_of(packed)?;
        if self.is_one_to_many(key) {
            let member = self.connect_member(now, engine, key, (&peers, [0; 4]), network)?;
            return Ok(self.get(member)?.id);
        }
        match self.get(key)?.state {
            State::Idle => {}
            State::Connecting(_) => return Err(libc::EALREADY),
            State::Listening { .. } | State::Up(_) | State::Over(_) => return Err(libc::EISCONN),
        }
        let association = self.begin(now, engine, key, (&peers, [0; 4]), network)?;
        self.by_association.insert(association, key);
        let id = self.next_id();
        let socket = self.get_mut(key)?;
        socket.state = State::Connecting(association);
        socket.peer = Some(peers[0]);
        socket.id = id;
        socket.error = 0;
        Ok(id)
    }

    /// Begins an association with a peer. Each field of `init` that is not 0 overrides the same field of the socket's `SCTP_INITMSG`.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        (peers, init): (&[SocketAddr], [u16; 4]),
        network: &mut dyn Network,
    ) -> Result<AssociationId, Errno> {
        let socket = self.get(key)?;
        let remote_port = peers[0].port();
        if !peers.iter().all(|peer| is_unicast(peer.ip())) {
            return Err(libc::EINVAL);
        }
        if remote_port == 0 {
            // In Linux, the peer refuses an association with port 0, so this function returns the same error.
            return Err(libc::ECONNREFUSED);
        }
        if peers.iter().any(|peer| peer.port() != remote_port || !socket.takes(peer.ip())) {
            return Err(libc::EINVAL);
        }
        let init_routes = self.routes_to(socket, peers, network);
        if init_routes.is_empty() {
            return Err(libc::ENETUNREACH);
        }
        let local_addresses = self.announced(socket, peers[0].ip());
        let config = socket.options.association_with(init);
        let local_port = self.bind_any(key)?;
        let connect = Connect { local_port, remote_port, init_routes, local_addresses, config };
        engine.connect(now, connect).map_err(|error| match error {
            ConnectError::Exists => libc::EADDRNOTAVAIL,
            ConnectError::NoRoute => libc::ENETUNREACH,
            ConnectError::NoPort => libc::EINVAL,
            _ => libc::ENOBUFS,
        })
    }

    /// Returns the routes on which INIT is sent: one route for each address of the peer and each carrier.
    fn routes_to(&self, socket: &Socket, peers: &[SocketAddr], network: &mut dyn Network) -> Vec<Route> {
        let peer_port = socket.options.udp_port().unwrap_or(self.config.peer_udp_port);
        let udp = self.config.over_udp.then_some(Carrier::Udp { peer_port });
        let ip = self.config.over_ip.then_some(Carrier::Ip);
        let mut routes = Vec::new();
        for remote in peers.iter().map(SocketAddr::ip) {
            let of_family = socket.bound.iter().find(|own| own.is_ipv4() == remote.is_ipv4());
            let source = match of_family {
                Some(own) => Some(*own),
                None if socket.bound.is_empty() => network.source_for(remote),
                None => None,
            };
            let Some(local) = source else { continue };
            routes.extend(udp.into_iter().chain(ip).map(|carrier| Route { local, remote, carrier }));
        }
        routes
    }

    /// Returns the addresses to announce to a peer. If the socket has bound addresses, returns these. Otherwise, returns all
    /// addresses of the host that suit the socket. For a loopback address of the peer, an unbound socket announces only this
    /// address: both ends are on one host, so further paths are useless.
    pub(crate) fn announced(&self, socket: &Socket, peer: IpAddr) -> Vec<IpAddr> {
        if !socket.bound.is_empty() {
            return socket.bound.clone();
        }
        if peer.is_loopback() {
            return vec![peer];
        }
        self.addresses.iter().copied().filter(|own| socket.takes(*own)).take(ADDRESSES_MAX).collect()
    }
}

/// Reports whether an address can belong to a peer: it is not unspecified, multicast or broadcast.
fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}
