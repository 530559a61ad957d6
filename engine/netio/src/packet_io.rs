//! Carries the packets of one engine to and from the carriers.
//!
//! Invariant: while a train waits for room in a send buffer, the engine is not asked for another train.

use std::io;
use std::net::IpAddr;

use base::{Ecn, Route, Time};
use mio::{Registry, Token};
use sctp::{Endpoint, Transmit};

use crate::addresses::LocalAddress;
use crate::carriers::Carriers;
use crate::error::SendErrorKind;
use crate::socket::Received;
use crate::train::Train;

/// Limit on the bytes of one train from the engine.
const BATCH: usize = 64 * 1024;
/// Limit on the calls of [`Carriers::recv_at`] for each socket in one [`PacketIo::receive`]. The limit keeps other work from
/// waiting.
const RECEIVES_PER_TURN: usize = 16;

/// Input and output of packets for an [`Endpoint`].
///
/// In an event loop:
///
/// - Call [`register`](Self::register) once.
/// - In each turn, pass the events of its tokens to [`note_ready`](Self::note_ready), then call [`receive`](Self::receive).
/// - Call [`transmit`](Self::transmit) after each use of the engine.
/// - Wait no longer than `Endpoint::next_timeout`. Do not wait while [`has_unread`](Self::has_unread) returns true.
pub struct PacketIo {
    carriers: Carriers,
    /// This host's addresses.
    addresses: Vec<LocalAddress>,
    /// True for each socket that may have packets, by token.
    unread: [bool; Carriers::TOKENS],
    batch: Box<[u8]>,
    /// The train that waits for room, and the offset of its first unsent byte in the batch.
    waiting: Option<(Transmit, usize)>,
}

/// Packets that [`PacketIo::transmit`] has sent, or tried to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transmitted {
    /// Number of these packets.
    pub packets: usize,
    /// True if some of these packets went to an address of this host.
    pub to_this_host: bool,
}

impl PacketIo {
    /// Creates input and output over `carriers`. `addresses` are this host's addresses, as [`addresses`](crate::addresses())
    /// lists them.
    pub fn new(carriers: Carriers, addresses: Vec<LocalAddress>) -> PacketIo {
        let unread = [false; Carriers::TOKENS];
        PacketIo { carriers, addresses, unread, batch: vec![0; BATCH].into(), waiting: None }
    }

    /// Returns this host's addresses.
    pub fn addresses(&self) -> &[LocalAddress] {
        &self.addresses
    }

    /// Replaces this host's addresses after a change. Closes the sockets of interfaces that are gone.
    pub fn set_addresses(&mut self, addresses: Vec<LocalAddress>) {
        self.addresses = addresses;
        self.carriers.close_gone_interfaces();
    }

    /// Registers the sockets; see [`Carriers::register`].
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
    pub fn register(&mut self, registry: &Registry, first: Token) -> io::Result<()> {
        self.carriers.register(registry, first)
    }

    /// Notes an event of the token `first + place`.
    pub fn note_ready(&mut self, place: usize) {
        if let Some(unread) = self.unread.get_mut(place) {
            *unread = true;
        }
    }

    /// Notes that any socket may have packets.
    pub fn note_all_ready(&mut self) {
        self.unread = [true; Carriers::TOKENS];
    }

    /// Reports whether sockets may have packets that no further event will report.
    pub fn has_unread(&self) -> bool {
        self.unread.contains(&true)
    }

    /// Reports whether packets wait for room in a send buffer. An event of a registered token may mean that the send buffer has
    /// room.
    pub const fn is_blocked(&self) -> bool {
        self.waiting.is_some()
    }

    /// Receives a limited number of packets from each ready socket, and calls `take` with each packet. `take` passes a packet to
    /// the engine ([`Endpoint::handle_datagram`]) if the engine must process it. Also reports ICMP errors to the engine. Returns
    /// the number of packets.
    ///
    /// # Errors
    /// The errors of recvmmsg(2). After an error of one socket, the next call reads the other sockets.
    pub fn receive(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        mut take: impl FnMut(&mut Endpoint, &Route, Ecn, &[u8]),
    ) -> io::Result<usize> {
        let mut packets = 0;
        for place in 0..Carriers::TOKENS {
            for _ in 0..RECEIVES_PER_TURN {
                if !std::mem::take(&mut self.unread[place]) {
                    break;
                }
                let received = self.carriers.recv_at(place, |route: &Route, ecn: Ecn, packet: &[u8]| {
                    take(engine, route, ecn, packet);
                })?;
                self.take_errors(now, engine, received);
                self.unread[place] = received.more;
                packets += received.packets;
            }
        }
        Ok(packets)
    }

    /// Calls `take` with packets that have arrived, regardless of events. If `may_wait` is true, waits for the first packet as
    /// [`Carriers::recv_waiting`] does. Returns the number of packets, and whether more packets or ICMP reports wait.
    ///
    /// # Errors
    /// The errors of recvmmsg(2).
    pub fn receive_once(
        &mut self,
        may_wait: bool,
        take: impl FnMut(&Route, Ecn, &[u8]),
    ) -> io::Result<Received> {
        let received = if may_wait { self.carriers.recv_waiting(take)? } else { self.carriers.recv(take)? };
        self.unread = [received.more; Carriers::TOKENS];
        Ok(received)
    }

    /// Passes waiting ICMP reports to the engine, if `received` shows that some wait.
    pub fn take_errors(&mut self, now: Time, engine: &mut Endpoint, received: Received) {
        if received.errors_waiting {
            self.carriers.take_errors(|error| {
                engine.handle_path_error(now, &error.route, error.kind.into(), error.quoted);
            });
        }
    }

    /// Sends the engine's packets until the engine has no more packets, or until a send buffer is full. If a path cannot carry
    /// packets, reports this error to the engine.
    pub fn transmit(&mut self, now: Time, engine: &mut Endpoint) -> Transmitted {
        let mut transmitted = Transmitted::default();
        loop {
            let waiting = self.waiting.take();
            let next = waiting.or_else(|| Some((engine.poll_transmit(now, &mut self.batch)?, 0)));
            let Some((transmit, start)) = next else { return transmitted };
            transmitted.packets += (transmit.len - start).div_ceil(transmit.segment_size);
            let is_to_this_host = self.is_of_this_host(transmit.route.remote);
            transmitted.to_this_host |= is_to_this_host;
            // The IPv6 send socket of an interface is connected to a local address. The kernel would deliver a packet from this
            // host to itself to this send socket, and not to the main socket. Trains to this host therefore name no interface.
            let owner = self.owner_of(transmit.route.local).filter(|_| !is_to_this_host);
            let train = Train::of(&transmit, &self.batch, start, owner.map(|address| address.ifindex));
            let Err(error) = self.carriers.send(&train) else { continue };
            if error.kind == SendErrorKind::Full {
                self.waiting = Some((transmit, start + error.sent));
                return transmitted;
            }
            error.tell(&train, engine, now);
        }
    }

    fn owner_of(&self, address: IpAddr) -> Option<&LocalAddress> {
        self.addresses.iter().find(|local| local.addr == address)
    }

    fn is_of_this_host(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.owner_of(address).is_some()
    }

    /// Reports whether only one socket is open; see [`Carriers::is_lone`].
    pub fn is_lone(&mut self) -> bool {
        self.carriers.is_lone()
    }
}
