//! Local ports and addresses: `bind` and `sctp_bindx`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use sockproto::{AddressError, read_addresses};

use crate::socket::State;
use crate::{Caller, Errno, SocketKey, Sockets};

/// Range of ephemeral ports, for sockets that request no port. The range is Linux's default.
const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;

/// Limit on the number of addresses in one call, and of one socket. The limit is needed because INIT lists all addresses and must
/// fit into a packet.
pub(crate) const ADDRESSES_MAX: usize = 32;

/// The sockets that hold each port.
pub(crate) struct Ports {
    by_port: BTreeMap<u16, Vec<SocketKey>>,
    rng: fastrand::Rng,
}

impl Ports {
    pub(crate) fn new(seed: u64) -> Ports {
        Ports { by_port: BTreeMap::new(), rng: fastrand::Rng::with_seed(seed) }
    }

    pub(crate) fn holders(&self, port: u16) -> &[SocketKey] {
        self.by_port.get(&port).map_or(&[], Vec::as_slice)
    }

    fn ephemeral(&mut self) -> Option<u16> {
        let (first, last) = EPHEMERAL.into_inner();
        let count = u32::from(last - first) + 1;
        let start = self.rng.u32(0..count);
        (0..count)
            .filter_map(|n| u16::try_from(u32::from(first) + (start + n) % count).ok())
            .find(|port| !self.by_port.contains_key(port))
    }

    fn hold(&mut self, port: u16, key: SocketKey) {
        self.by_port.entry(port).or_default().push(key);
    }

    pub(crate) fn release(&mut self, key: SocketKey) {
        self.by_port.retain(|_, holders| {
            holders.retain(|holder| *holder != key);
            !holders.is_empty()
        });
    }
}

/// Reads a packed list of addresses.
///
/// # Errors
/// `EINVAL` for an invalid address, for an empty list, and for more than [`ADDRESSES_MAX`] addresses.
pub(crate) fn addresses_of(packed: &[u8]) -> Result<Vec<SocketAddr>, Errno> {
    let all: Result<Vec<_>, _> = read_addresses(packed).collect();
    match all {
        Ok(all) if all.is_empty() || all.len() > ADDRESSES_MAX => Err(libc::EINVAL),
        Ok(all) => Ok(all),
        Err(AddressError::Length | AddressError::Family) => Err(libc::EINVAL),
    }
}

impl Sockets {
    /// `bind(2)` with one or more addresses.
    ///
    /// # Errors
    /// - `EINVAL` if the socket is bound already, the addresses have several ports, or an address does not suit the socket.
    /// - `EADDRNOTAVAIL` for an address that the host does not have.
    /// - `EADDRINUSE` if another socket has the port at one of the addresses, or no ephemeral port is free.
    /// - `EACCES` for a privileged port.
    pub fn bind(&mut self, key: SocketKey, packed: &[u8], caller: Caller) -> Result<(), Errno> {
        let wanted = addresses_of(packed)?;
        let socket = self.get(key)?;
        if socket.port.is_some() || socket.state != State::Idle {
            return Err(libc::EINVAL);
        }
        let bound = self.own_of(key, &wanted)?;
        let port = one_port(&wanted)?;
        self.take_port(key, port, bound, caller)
    }

    /// `sctp_bindx(SCTP_BINDX_ADD_ADDR)`.
    ///
    /// # Errors
    /// - The errors of [`bind`](Self::bind).
    /// - `EINVAL` for a port that differs from the bound port, and for too many addresses.
    /// - `EOPNOTSUPP` if the socket has or had an association, because the addresses of an association cannot change.
    pub fn bind_add(&mut self, key: SocketKey, packed: &[u8], caller: Caller) -> Result<(), Errno> {
        let Some(bound_port) = self.get(key)?.port else { return self.bind(key, packed, caller) };
        let wanted = addresses_of(packed)?;
        let more = self.own_of(key, &wanted)?;
        let port = one_port(&wanted)?;
        if port != 0 && port != bound_port || self.get(key)?.bound.len() + more.len() > ADDRESSES_MAX {
            return Err(libc::EINVAL);
        }
        if self.is_taken(key, bound_port, &more) {
            return Err(libc::EADDRINUSE);
        }
        let socket = self.get_mut(key)?;
        if !matches!(socket.state, State::Idle | State::Listening { .. }) {
            return Err(libc::EOPNOTSUPP);
        }
        if more.is_empty() {
            socket.bound.clear();
        } else if !socket.bound.is_empty() {
            let new: Vec<IpAddr> =
                more.into_iter().filter(|address| !socket.bound.contains(address)).collect();
            socket.bound.extend(new);
        }
        Ok(())
    }

    /// `sctp_bindx(SCTP_BINDX_REM_ADDR)`.
    ///
    /// # Errors
    /// - `EINVAL` if the socket is not bound to an address of the list.
    /// - `EBUSY` if no address would be left.
    /// - `EOPNOTSUPP` if the socket has or had an association.
    pub fn bind_remove(&mut self, key: SocketKey, packed: &[u8]) -> Result<(), Errno> {
        let gone = addresses_of(packed)?;
        let socket = self.get_mut(key)?;
        if !matches!(socket.state, State::Idle | State::Listening { .. }) {
            return Err(libc::EOPNOTSUPP);
        }
        if gone.iter().any(|address| !socket.bound.contains(&address.ip())) {
            return Err(libc::EINVAL);
        }
        let left: Vec<IpAddr> =
            socket.bound.iter().copied().filter(|own| !gone.iter().any(|a| a.ip() == *own)).collect();
        if left.is_empty() {
            return Err(libc::EBUSY);
        }
        socket.bound = left;
        Ok(())
    }

    /// Gives the socket an ephemeral port, if it has no port. Returns the socket's port.
    ///
    /// # Errors
    /// `EADDRINUSE` if no ephemeral port is free.
    pub(crate) fn bind_any(&mut self, key: SocketKey) -> Result<u16, Errno> {
        if let Some(port) = self.get(key)?.port {
            return Ok(port);
        }
        let port = self.ports.ephemeral().ok_or(libc::EADDRINUSE)?;
        self.ports.hold(port, key);
        self.get_mut(key)?.port = Some(port);
        Ok(port)
    }

    fn take_port(
        &mut self,
        key: SocketKey,
        port: u16,
        bound: Vec<IpAddr>,
        caller: Caller,
    ) -> Result<(), Errno> {
        if port == 0 {
            self.get_mut(key)?.bound = bound;
            return self.bind_any(key).map(drop);
        }
        if port < self.config.first_unprivileged_port && !caller.may_bind_low {
            return Err(libc::EACCES);
        }
        if self.is_taken(key, port, &bound) {
            return Err(libc::EADDRINUSE);
        }
        self.ports.hold(port, key);
        let socket = self.get_mut(key)?;
        socket.port = Some(port);
        socket.bound = bound;
        Ok(())
    }

    /// Returns the sockets that hold the port of a packed list of addresses. If the list has no port, returns the sockets that hold
    /// the port of the socket `key`.
    pub fn holders_of_port(&self, key: SocketKey, addresses: &[u8]) -> Vec<SocketKey> {
        let own = self.get(key).ok().and_then(|socket| socket.port);
        let listed = addresses_of(addresses).ok().and_then(|all| one_port(&all).ok());
        let port = listed.filter(|port| *port != 0).or(own);
        port.map(|port| self.ports.holders(port).to_vec()).unwrap_or_default()
    }

    /// Reports whether another socket holds the port at one of these addresses. An empty list means all addresses.
    fn is_taken(&self, key: SocketKey, port: u16, bound: &[IpAddr]) -> bool {
        let Ok(own) = self.get(key) else { return false };
        let is_same = |other: &SocketKey| {
            self.get(*other).is_ok_and(|other| {
                let is_dual = !other.options.is_v6_only() && !own.options.is_v6_only();
                let all = bound.is_empty() || other.bound.is_empty();
                (own.family == other.family || is_dual)
                    && (all || bound.iter().any(|address| other.bound.contains(address)))
            })
        };
        self.ports.holders(port).iter().filter(|holder| **holder != key).any(is_same)
    }

    /// Returns the addresses to bind, without duplicates. The list is empty for a wildcard address.
    ///
    /// # Errors
    /// `EINVAL` for an address that does not suit the socket; `EADDRNOTAVAIL` for an address that the host does not have.
    fn own_of(&self, key: SocketKey, wanted: &[SocketAddr]) -> Result<Vec<IpAddr>, Errno> {
        let socket = self.get(key)?;
        let mut bound = Vec::new();
        for address in wanted.iter().map(SocketAddr::ip) {
            if !socket.takes(address) {
                return Err(libc::EINVAL);
            }
            if address.is_unspecified() {
                return Ok(Vec::new());
            }
            if !address.is_loopback() && !self.addresses.contains(&address) {
                return Err(libc::EADDRNOTAVAIL);
            }
            if !bound.contains(&address) {
                bound.push(address);
            }
        }
        Ok(bound)
    }
}

/// Returns the port of the addresses. Addresses with port 0 do not count. Returns 0 if all ports are 0.
///
/// # Errors
/// `EINVAL` for different ports.
fn one_port(addresses: &[SocketAddr]) -> Result<u16, Errno> {
    let mut named = addresses.iter().map(SocketAddr::port).filter(|port| *port != 0);
    let port = named.next().unwrap_or(0);
    if named.all(|other| other == port) { Ok(port) } else { Err(libc::EINVAL) }
}
