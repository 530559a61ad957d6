//! Hands trains over IP directly to the interface through a packet socket, if the kernel would do no other work on them.
//!
//! The kernel's own way looks up the route of each packet, walks its filters, and copies the data with a checksum. This takes as
//! long as the rest of sending. A packet socket (AF_PACKET) needs only the neighbour's address. It bypasses all of this work
//! except the interface's queue: tc, and nftables' netdev family, still see each packet.
//!
//! A train takes the shortcut only if nothing filters, translates or encrypts leaving packets ([`filters`]), and only to a
//! neighbour that the kernel knows ([`next_hop`]). The kernel reports changes to either before the next train leaves. A short
//! train takes the kernel's own way, because the shortcut would not pay off. Any unusual condition also leaves the train to the
//! kernel.
//!
//! One train in [`SAMPLE`] also takes the kernel's own way. This keeps the neighbour entry valid, and reveals whether anything
//! else forbids the packets (a filter of the cgroup). This module reads no clock. Begin with [`Shortcut::send`].

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
/// Interval of the trains that take the kernel's own way: one in this number.
const SAMPLE: u32 = 64;
/// Number of trains after which everything is looked up again. This finds changes that the kernel does not report
/// (iptables-legacy, IPsec).
const TRAINS_PER_LOOK: u32 = 1024;
/// Limit on the remembered next hops. Beyond it, all are forgotten.
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
/// Group of changes to IPv6 rules. The header of the kernel has no bit with this name.
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
    /// The known next hops. None: the train takes the kernel's own way until something changes.
    next_hops: BTreeMap<Key, Option<NextHop>>,
    trains: u32,
    /// Number of trains since everything was last looked up.
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

    /// Sends packets of the train. Returns the number of sent bytes, in whole packets. The kernel's own way must send the rest.
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
        // This is not `||`, because unread messages would count as news later.
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
            // The interface's queue dropped a packet. This is a loss, as if a router had dropped it.
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => sent = (sent + size).min(train.bytes.len()),
            Err(e) => return (sent, Err(e)),
        }
    }
    (sent, Ok(()))
}
