//! Hands trains of the raw carrier directly to the interface, through a packet socket. The condition is that the kernel would
//! neither filter nor change the packets.
//!
//! For each packet of a raw socket, the kernel looks up the route, walks the filters, and copies and checksums the data. This
//! work takes half of the time of a send. A packet socket (AF_PACKET) needs only the neighbour's address, and avoids this work.
//! The packet still passes through the interface's queue, so tc and nftables' netdev family see each packet.
//!
//! A train takes the shortcut only if nothing filters, translates or encrypts leaving packets ([`filters`]), and only to a
//! neighbour that the kernel knows ([`next_hop`]). The kernel reports changes of nftables, routes and neighbours, and the reports
//! are read before each train. A short train takes the kernel's own way, because the shortcut would save too little. In any
//! unusual condition, the kernel also sends the train.
//!
//! One long train in [`SAMPLE`] also takes the kernel's own way. Its packets keep the neighbour entry valid, and show whether a
//! filter of the cgroup forbids packets. This module reads no clock. Begin with [`Shortcut::send`].

mod filters;
mod header;
mod next_hop;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use base::{Ecn, Route};
use socket2::{Domain, Socket, Type};

use crate::cmsg::Control;
use crate::netlink::Netlink;
use crate::options;
use crate::sys;
use crate::train::Train;
use filters::Filters;
pub use filters::keep_filters_readable;
use header::Header;
use next_hop::NextHop;

/// Least number of packets in a train that takes the shortcut.
const PACKETS_MIN: usize = 8;
/// Interval of long trains that take the kernel's own way: one long train in `SAMPLE`.
const SAMPLE: u32 = 64;
/// Number of long trains after which filters and next hops are looked up again. The new lookup finds changes of iptables-legacy
/// and IPsec, because this module receives no reports of these changes.
const TRAINS_PER_LOOK: u32 = 1024;
/// Limit on the remembered next hops. If another next hop would exceed the limit, all next hops are forgotten.
const HOPS_MAX: usize = 256;

/// Groups that report changes to neighbours, links, addresses, routes and the routing rules of IPv4.
const ROUTE_GROUPS: libc::c_int = libc::RTMGRP_NEIGH
    | libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV4_RULE
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV6_ROUTE
    | RTMGRP_IPV6_RULE;
/// Group that reports changes of IPv6 routing rules. The kernel's header file defines no constant `RTMGRP_IPV6_RULE`.
const RTMGRP_IPV6_RULE: libc::c_int = 1 << (libc::RTNLGRP_IPV6_RULE - 1);

/// TTL and hop limit of packets that the kernel sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hops {
    pub(crate) v4: u8,
    pub(crate) v6: u8,
}

impl Default for Hops {
    /// Returns the value that RFC 1700 recommends, which is also Linux's default.
    fn default() -> Hops {
        Hops { v4: 64, v6: 64 }
    }
}

/// Key of a next hop: the local address, the peer's address, and the interface (0: the route's).
type Key = (IpAddr, IpAddr, u32);

/// The packet socket, and the state that decides on its use.
pub(crate) struct Shortcut {
    socket: Socket,
    news: Netlink,
    questions: Netlink,
    filters: Filters,
    hops: Hops,
    /// The known next hops. If the value is None, trains with this key take the kernel's own way until the entry is forgotten.
    next_hops: BTreeMap<Key, Option<NextHop>>,
    trains: u32,
    /// Number of long trains since the last lookup of filters and next hops.
    unseen: u32,
}

impl Shortcut {
    /// Opens the sockets in the calling thread's network namespace. The nftables table `own_table` does not count as a filter.
    ///
    /// # Errors
    /// The errors of socket(2) and bind(2), if rights are missing, or if the kernel lacks a feature.
    pub(crate) fn open(own_table: Option<&str>, hops: Hops) -> io::Result<Shortcut> {
        let socket = Socket::new(Domain::PACKET, Type::DGRAM.nonblocking(), None)?;
        options::set_send_buffer(socket.as_fd())?;
        let news = Netlink::open(ROUTE_GROUPS as u32, true)?;
        let (questions, filters) = (Netlink::open(0, false)?, Filters::open(own_table)?);
        let next_hops = BTreeMap::new();
        Ok(Shortcut { socket, news, questions, filters, hops, next_hops, trains: 0, unseen: 0 })
    }

    /// Sends packets of the train. Returns the number of sent bytes, which are whole packets. The caller must send the rest
    /// through the raw socket.
    pub(crate) fn send(&mut self, train: &Train<'_>) -> usize {
        let size = train.segment_size;
        if size == 0 || train.may_fragment || train.bytes.len() <= size * (PACKETS_MIN - 1) {
            return 0;
        }
        self.trains = self.trains.wrapping_add(1);
        self.unseen += 1;
        if self.trains.is_multiple_of(SAMPLE) {
            return 0;
        }
        self.forget_what_changed();
        let key = (train.route.local, train.route.remote, train.source_ifindex.unwrap_or(0));
        self.learn(key);
        let Some(Some(next_hop)) = self.next_hops.get(&key) else { return 0 };
        let sent = send_all(&self.socket, next_hop, train, self.hops);
        if matches!(&sent, (_, Err(e)) if e.kind() != io::ErrorKind::WouldBlock) {
            self.next_hops.insert(key, None);
        }
        sent.0
    }

    /// Returns the bytes of shortcut trains that the kernel still holds, or None if the kernel does not report the number.
    pub(crate) fn waiting(&self) -> Option<usize> {
        sys::waiting(self.socket.as_fd()).ok()
    }

    fn forget_what_changed(&mut self) {
        let is_time = self.unseen >= TRAINS_PER_LOOK;
        // The operator is not `||`, because both sockets must be read: unread messages would count as news later.
        let has_news = self.news.has_news() | self.filters.has_news();
        if has_news || is_time {
            self.next_hops.clear();
            self.filters.forget();
            self.unseen = 0;
        }
    }

    fn learn(&mut self, key: Key) {
        if self.next_hops.contains_key(&key) {
            return;
        }
        if self.next_hops.len() >= HOPS_MAX {
            self.next_hops.clear();
        }
        let next_hop = match self.filters.are_there() {
            true => None,
            // Without a route, or after an error, the kernel's own way reports the reason.
            false => NextHop::find(&mut self.questions, key.0, key.1, key.2).unwrap_or_default(),
        };
        self.next_hops.insert(key, next_hop);
    }
}

/// Sends the train. Returns the number of sent bytes, and the error that stopped the rest.
fn send_all(socket: &Socket, to: &NextHop, train: &Train<'_>, hops: Hops) -> (usize, io::Result<()>) {
    let size = train.segment_size;
    let header = |route: &Route, ecn: Ecn, length: usize| Header::new(route, ecn, hops, length);
    let last_length = train.bytes.len() - (train.bytes.len() - 1) / size * size;
    let heads = [header(&train.route, train.ecn, size), header(&train.route, train.ecn, last_length)];
    let head = |packet: &[u8]| heads[usize::from(packet.len() != size)].bytes();
    let mut sent = 0;
    while sent < train.bytes.len() {
        let left = &train.bytes[sent..];
        match sys::send_many(socket.as_fd(), to.address(), &Control::new(), size, left, head) {
            Ok(packets) => sent = (sent + packets * size).min(train.bytes.len()),
            // The interface's queue dropped a packet. To SCTP, the packet is lost, as if a router had dropped it.
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => sent = (sent + size).min(train.bytes.len()),
            Err(e) => return (sent, Err(e)),
        }
    }
    (sent, Ok(()))
}
