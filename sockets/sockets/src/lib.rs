//! The state of programs' SCTP sockets (RFC 6458) over the engine.
//!
//! Sockets are of the one-to-one or the one-to-many style. The caller translates programs' system calls into calls of [`Sockets`].
//! [`Sockets`] translates the engine's events into [`Output`]s. [`Sockets::next`] returns the messages for a program. Errors are
//! Linux's error numbers (errno(3)), because programs compare them.
//!
//! This crate makes no system calls, and has no clock or threads. A test can therefore run the sockets and the engines of two hosts
//! in virtual time. Begin with [`Sockets::open`].

#![forbid(unsafe_code)]

mod accept;
mod bind;
mod connect;
mod deliver;
mod events;
mod many;
mod members;
mod names;
mod notification;
mod option_targets;
mod option_value;
mod options;
mod rows;
mod socket;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use base::Time;
use bytes::Bytes;
use sctp::{AbortCause, AssociationId, Endpoint, Ppid, Reliability, SendError, SendOptions, StreamId};
use slab::Slab;
use sockproto::{DataHeader, SockAddr, flag};

pub use deliver::Delivery;
pub use options::association_defaults;
pub use rows::Row;

use crate::bind::Ports;
use crate::options::Linger;
use crate::socket::{Family, Socket, State, Style};

/// The Adaptation Layer Indication from which sctpify's socket servers recognise each other. A program's own indication replaces it.
pub const ADAPTATION: u32 = 0x7363_736b;

/// An error number of Linux.
pub type Errno = i32;

/// Key of a socket. The key is valid until the socket has been closed and the socket's association has ended. A later socket can
/// get the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketKey(pub usize);

/// A task for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The attempt to connect has ended. The caller must make the socket writable. The socket's `SO_ERROR` is the result of the
    /// attempt.
    Settled(SocketKey),
    /// A listener has a new association.
    Accepted {
        /// The listener.
        listener: SocketKey,
        /// The new socket.
        socket: SocketKey,
        /// The peer's address.
        peer: SockAddr,
    },
    /// The attempt of a one-to-many socket to begin an association has ended.
    Attempted {
        /// The one-to-many socket.
        socket: SocketKey,
        /// The association's identifier.
        association: i32,
        /// Error number of the attempt, or 0.
        error: Errno,
    },
    /// [`Sockets::next`] may return a delivery.
    Readable(SocketKey),
    /// [`Sockets::send`] or [`Sockets::send_to`] may take a message that it refused as [`Sent::Full`].
    Writable(SocketKey),
    /// The peer has shut down, or the association has ended. The caller must make every later send of the program fail (`EPIPE`).
    /// While the socket [takes messages](Sockets::takes_messages), the caller passes on the messages that the program has already
    /// sent. Then the caller calls [`Sockets::shut_down`].
    SendingOver(SocketKey),
    /// The peer of a one-to-many socket's association has shut down. The caller passes on the messages that the program has sent so far,
    /// and then calls [`Sockets::shut_down_one`].
    OneSendingOver {
        /// The one-to-many socket.
        socket: SocketKey,
        /// The association's identifier.
        association: i32,
    },
}

/// The outcome of sending a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The engine or the socket's queue has taken the message.
    Taken,
    /// The send buffer is full. The caller must offer the message again after [`Output::Writable`].
    Full(Bytes),
    /// The message was discarded. The association does not exist or has ended, or the message is invalid.
    Refused,
}

/// The user on whose behalf a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User ID.
    pub uid: u32,
    /// True if the user may bind privileged ports (`CAP_NET_BIND_SERVICE`).
    pub may_bind_low: bool,
}

/// Settings of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// True if INITs are sent over UDP encapsulation (RFC 6951).
    pub over_udp: bool,
    /// True if INITs are sent over IP, protocol 132. If INITs are sent over both carriers, the first answer selects the carrier.
    pub over_ip: bool,
    /// UDP port of peers, if the program does not set `SCTP_REMOTE_UDP_ENCAPS_PORT`.
    pub peer_udp_port: u16,
    /// Lowest port that needs no privilege (`net.ipv4.ip_unprivileged_port_start`).
    pub first_unprivileged_port: u16,
    /// Limit on the number of sockets of one user, including members of one-to-many sockets.
    pub sockets_per_user: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            over_udp: true,
            over_ip: false,
            peer_udp_port: 9899,
            first_unprivileged_port: 1024,
            sockets_per_user: 4096,
        }
    }
}

/// The kernel's routes.
pub trait Network {
    /// Returns the host's source address for packets to `remote`, or `None` without a route.
    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr>;
}

/// All sockets of one host.
pub struct Sockets {
    sockets: Slab<Socket>,
    ports: Ports,
    by_association: BTreeMap<AssociationId, SocketKey>,
    /// Associations that are accepted but not up yet, with the listener that accepted each.
    accepting: BTreeMap<AssociationId, SocketKey>,
    /// Number of sockets of each user.
    by_user: BTreeMap<u32, usize>,
    /// The host's addresses without loopback and link-local ones.
    addresses: Vec<IpAddr>,
    outputs: VecDeque<Output>,
    /// For each association with a time limit (`SCTP_AUTOCLOSE`): the time of the next check, and the member.
    autoclose_timers: BTreeSet<(Time, SocketKey)>,
    config: Config,
    /// Identifier that was assigned last. The values 0 to 2 are reserved (RFC 6458 section 7.2).
    last_id: i32,
}

impl Sockets {
    /// Creates an empty table. `seed` determines the choice of ephemeral ports.
    pub fn new(config: Config, seed: u64) -> Sockets {
        Sockets {
            sockets: Slab::new(),
            ports: Ports::new(seed),
            by_association: BTreeMap::new(),
            accepting: BTreeMap::new(),
            by_user: BTreeMap::new(),
            addresses: Vec::new(),
            outputs: VecDeque::new(),
            autoclose_timers: BTreeSet::new(),
            config,
            last_id: 2,
        }
    }

    /// Sets the host's addresses, which can be bound and are announced to peers. Loopback addresses are not needed.
    pub fn set_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.addresses = addresses;
    }

    /// Returns the number of sockets, including sockets that the program has closed and whose association has not ended.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Reports whether no socket exists.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Returns the next task for the caller.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// `socket(2)`.
    ///
    /// # Errors
    /// `EAFNOSUPPORT` for another family than IPv4 and IPv6; `ESOCKTNOSUPPORT` for another type than `SOCK_STREAM` and `SOCK_SEQPACKET`;
    /// `EMFILE` at the user's limit on sockets.
    pub fn open(&mut self, family: i32, kind: i32, caller: Caller) -> Result<SocketKey, Errno> {
        let family = match family {
            libc::AF_INET => Family::V4,
            libc::AF_INET6 => Family::V6,
            _ => return Err(libc::EAFNOSUPPORT),
        };
        let style = match kind {
            libc::SOCK_STREAM => Style::OneToOne,
            libc::SOCK_SEQPACKET => Style::OneToMany,
            _ => return Err(libc::ESOCKTNOSUPPORT),
        };
        if self.of_user(caller.uid) >= self.config.sockets_per_user {
            return Err(libc::EMFILE);
        }
        Ok(self.insert(Socket { style, ..Socket::new(family, caller.uid) }))
    }

    /// Returns the number of sockets of a user.
    pub(crate) fn of_user(&self, uid: u32) -> usize {
        self.by_user.get(&uid).copied().unwrap_or(0)
    }

    fn insert(&mut self, socket: Socket) -> SocketKey {
        *self.by_user.entry(socket.uid).or_default() += 1;
        SocketKey(self.sockets.insert(socket))
    }

    fn get(&self, key: SocketKey) -> Result<&Socket, Errno> {
        self.sockets.get(key.0).ok_or(libc::EBADF)
    }

    fn get_mut(&mut self, key: SocketKey) -> Result<&mut Socket, Errno> {
        self.sockets.get_mut(key.0).ok_or(libc::EBADF)
    }

    /// Reports whether the socket takes messages from the program. A one-to-one socket takes messages only while its association is
    /// up. A one-to-many socket always takes messages, because each message names its own association.
    pub fn takes_messages(&self, key: SocketKey) -> bool {
        self.get(key)
            .is_ok_and(|socket| matches!(socket.state, State::Up(_)) || socket.style == Style::OneToMany)
    }

    /// Reports whether the caller must fill the socket's send buffer, because poll(2) must not report the socket as writable. The
    /// buffer of a one-to-one socket must be filled before its first association is established, unless the socket listens or has
    /// an error to report. If the result is true, the buffer counts as filled from now on.
    pub fn take_unfilled(&mut self, key: SocketKey) -> bool {
        let Ok(socket) = self.get_mut(key) else { return false };
        let is_unconnected = matches!(socket.state, State::Idle | State::Connecting(_));
        let is_due =
            !socket.is_filled && socket.error == 0 && is_unconnected && socket.style != Style::OneToMany;
        socket.is_filled |= is_due;
        is_due
    }

    /// Reports whether the socket's send buffer contains filling, so the socket is not writable.
    pub fn is_filled(&self, key: SocketKey) -> bool {
        self.get(key).is_ok_and(|socket| socket.is_filled)
    }

    /// Sends a message from the program of a one-to-one socket to the peer.
    pub fn send(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        header: &DataHeader,
        message: Bytes,
    ) -> Sent {
        match self.get(key) {
            Ok(socket) if !socket.unsent.is_empty() => Sent::Full(message),
            _ => self.send_up(now, engine, key, header, message),
        }
    }

    /// Passes a message of the program to the engine. Refuses the message if the association is not up.
    fn send_up(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        header: &DataHeader,
        message: Bytes,
    ) -> Sent {
        let Ok(socket) = self.get_mut(key) else { return Sent::Refused };
        let State::Up(association) = socket.state else { return Sent::Refused };
        let given = match header.flags & flag::WITH_INFO {
            0 => socket.options.default_send(),
            _ => *header,
        };
        let options = SendOptions {
            unordered: given.sinfo_flags & sockproto::abi::sinfo::UNORDERED != 0,
            reliability: reliability(&given),
            ..SendOptions::default()
        };
        let ppid = Ppid(u32::from_be(given.ppid));
        let wants_dry = socket.options.wants(sockproto::abi::notification::SENDER_DRY);
        let sent = engine.send(now, association, StreamId(given.stream), ppid, message.clone(), options);
        match sent {
            Ok(()) => {
                if wants_dry {
                    engine.notify_when_dry(now, association);
                }
                Sent::Taken
            }
            Err(SendError::WouldBlock) => Sent::Full(message),
            Err(_) => Sent::Refused,
        }
    }

    /// `shutdown(SHUT_WR)`. Ends the association after the peer has acknowledged all messages.
    pub fn shut_down(&mut self, now: Time, engine: &mut Endpoint, key: SocketKey) {
        if let Ok(socket) = self.get_mut(key) {
            socket.ends_when_sent = true;
            self.send_waiting(now, engine, key);
        }
    }

    /// Closes a socket whose program has closed its end.
    ///
    /// The association of a one-to-one socket ends by ABORT in these cases:
    /// - The association is not up yet.
    /// - `SO_LINGER` is on, with the linger time 0.
    /// - `has_unread` is true: the program has left messages unread in the socket pair.
    /// - The engine has received data that was not read.
    ///
    /// Otherwise the association ends after the peer has acknowledged all messages.
    pub fn close(&mut self, now: Time, engine: &mut Endpoint, key: SocketKey, has_unread: bool) {
        if self.is_one_to_many(key) {
            return self.close_many(now, engine, key);
        }
        let Ok(socket) = self.get_mut(key) else { return };
        socket.has_program = false;
        let mut is_hard = has_unread || socket.options.linger() == Linger::Reset || socket.rest.is_some();
        if let State::Up(association) = socket.state {
            // Without ABORT, the peer could not finish its shutdown, because nobody reads the peer's data.
            is_hard |= engine.recv(now, association).is_some();
        }
        match socket.state {
            State::Idle | State::Listening { .. } | State::Over(None) => self.remove(key),
            State::Connecting(association) => engine.abort(now, association, AbortCause::default()),
            State::Up(association) if is_hard => engine.abort(now, association, AbortCause::default()),
            State::Up(_) => self.shut_down(now, engine, key),
            State::Over(Some(association)) => {
                engine.release(now, association);
                self.by_association.remove(&association);
                self.remove(key);
            }
        }
    }

    /// Ends the association of a socket, or all associations of a one-to-many socket, by ABORT. The program gets
    /// `ECONNRESET`.
    pub fn abort(&mut self, now: Time, engine: &mut Endpoint, key: SocketKey, reason: &'static str) {
        let members = self.get(key).map(|socket| socket.members.keys()).unwrap_or_default();
        for socket in members.into_iter().chain([key]) {
            if let Ok(Socket { state: State::Up(association), .. }) = self.get(socket) {
                engine.abort(now, *association, AbortCause::user(reason));
            }
        }
    }

    fn remove(&mut self, key: SocketKey) {
        let Some(socket) = self.sockets.try_remove(key.0) else { return };
        if let Some(time) = socket.autoclose_timer {
            self.autoclose_timers.remove(&(time, key));
        }
        self.ports.release(key);
        if let Some(of_user) = self.by_user.get_mut(&socket.uid) {
            *of_user = of_user.saturating_sub(1);
            if *of_user == 0 {
                self.by_user.remove(&socket.uid);
            }
        }
    }

    fn next_id(&mut self) -> i32 {
        self.last_id = self.last_id.checked_add(1).unwrap_or(3);
        self.last_id
    }
}

/// Returns the reliability of a message: a policy of RFC 7496 with its value, or a lifetime alone (RFC 6458 section 5.3.2).
fn reliability(header: &DataHeader) -> Reliability {
    use sockproto::abi::sinfo;
    let value = header.tsn_or_lifetime;
    match header.sinfo_flags & sinfo::PR_PRIO {
        sinfo::PR_PRIO => Reliability::Priority(value),
        sinfo::PR_RTX => Reliability::Retransmissions(value),
        _ if value > 0 => Reliability::Lifetime(std::time::Duration::from_millis(value.into())),
        _ => Reliability::Full,
    }
}
