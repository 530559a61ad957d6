//! The state of one socket.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use base::Time;
use bytes::Bytes;
use sctp::AssociationId;
use sockproto::DataHeader;

use crate::SocketKey;
use crate::deliver::End;
use crate::members::Members;
use crate::options::Options;

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// The style of a socket (RFC 6458 sections 3 and 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// A one-to-one socket: a program's descriptor with up to one association.
    OneToOne,
    /// A one-to-many socket: a program's descriptor with many associations, each in a member.
    OneToMany,
    /// A member: one association of this one-to-many socket, without a descriptor.
    Member(SocketKey),
}

/// State of a socket and its association. A one-to-many socket is only `Idle` or `Listening`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The socket neither listens nor has an association.
    Idle,
    Listening {
        backlog: usize,
    },
    Connecting(AssociationId),
    Up(AssociationId),
    /// The association has ended. The engine stores the association until the program has read the association's last message.
    /// Then the field becomes `None`.
    Over(Option<AssociationId>),
}

/// Messages that wait for the engine.
#[derive(Default)]
pub(crate) struct Unsent {
    messages: VecDeque<(DataHeader, Bytes)>,
    memory: usize,
}

impl Unsent {
    /// Estimated memory of a message in addition to its payload, in bytes.
    const OVERHEAD: usize = 128;

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the memory of all messages, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    pub(crate) fn push(&mut self, header: DataHeader, message: Bytes) {
        self.memory += message.len() + Self::OVERHEAD;
        self.messages.push_back((header, message));
    }

    /// Puts a message to the front of the queue again after `take` has removed it.
    pub(crate) fn put_back(&mut self, header: DataHeader, message: Bytes) {
        self.memory += message.len() + Self::OVERHEAD;
        self.messages.push_front((header, message));
    }

    pub(crate) fn take(&mut self) -> Option<(DataHeader, Bytes)> {
        let taken = self.messages.pop_front()?;
        self.memory = self.memory.saturating_sub(taken.1.len() + Self::OVERHEAD);
        Some(taken)
    }
}

/// One socket.
pub(crate) struct Socket {
    pub(crate) family: Family,
    pub(crate) style: Style,
    pub(crate) uid: u32,
    pub(crate) state: State,
    /// Local port, if the socket has one.
    pub(crate) port: Option<u16>,
    /// Bound addresses. An empty list stands for all addresses of the host.
    pub(crate) bound: Vec<IpAddr>,
    /// Local address of the association's first path.
    pub(crate) local: Option<IpAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) options: Options,
    /// Error number for `SO_ERROR`; 0 for no error.
    pub(crate) error: i32,
    /// True while the program's send buffer contains filling, so the socket is not writable.
    pub(crate) is_filled: bool,
    pub(crate) has_program: bool,
    /// True if the peer has shut down.
    pub(crate) is_peer_closed: bool,
    /// Identifier of the association (`sctp_assoc_t`).
    pub(crate) id: i32,
    /// Numbers of inbound and outbound streams.
    pub(crate) streams: (u16, u16),
    /// Notifications to deliver before the next message.
    pub(crate) before: VecDeque<Vec<u8>>,
    /// Notifications to deliver after the last message.
    pub(crate) after: VecDeque<Vec<u8>>,
    /// The rest of a message that is delivered in parts.
    pub(crate) rest: Option<(DataHeader, Bytes)>,
    /// Messages that wait for the engine, because the association is not up yet or the engine has no room.
    pub(crate) unsent: Unsent,
    /// True if the association must be shut down after the engine has taken the messages of `unsent`.
    pub(crate) ends_when_sent: bool,
    /// True while the rest of a received message has not arrived.
    pub(crate) is_in_message: bool,
    /// Time of a member's last message in either direction.
    pub(crate) last_used: Time,
    /// Time of a member's next check for `SCTP_AUTOCLOSE`.
    pub(crate) autoclose_timer: Option<Time>,
    /// The associations of a one-to-many socket.
    pub(crate) members: Members,
    /// Pending report of the association's end; `None` before the association ends, and after the program has read the report.
    pub(crate) end: Option<End>,
    /// Number of a listener's sockets that wait for `accept`.
    pub(crate) waiting: usize,
}

impl Socket {
    pub(crate) fn new(family: Family, uid: u32) -> Socket {
        Socket {
            family,
            style: Style::OneToOne,
            uid,
            state: State::Idle,
            port: None,
            bound: Vec::new(),
            local: None,
            peer: None,
            options: Options::default(),
            error: 0,
            is_filled: false,
            has_program: true,
            is_peer_closed: false,
            id: 0,
            streams: (0, 0),
            before: VecDeque::new(),
            after: VecDeque::new(),
            rest: None,
            unsent: Unsent::default(),
            ends_when_sent: false,
            is_in_message: false,
            last_used: Time::ZERO,
            autoclose_timer: None,
            members: Members::default(),
            end: None,
            waiting: 0,
        }
    }

    /// Creates the socket of a new association. `self` is the listener or the one-to-many socket to which the association belongs.
    pub(crate) fn of_association(&self, style: Style, state: State, peer: SocketAddr, id: i32) -> Socket {
        Socket {
            style,
            state,
            port: self.port,
            bound: self.bound.clone(),
            peer: Some(peer),
            options: self.options.clone(),
            id,
            ..Socket::new(self.family, self.uid)
        }
    }

    /// Returns the association, unless it has ended.
    pub(crate) fn association(&self) -> Option<AssociationId> {
        match self.state {
            State::Connecting(association) | State::Up(association) => Some(association),
            State::Idle | State::Listening { .. } | State::Over(_) => None,
        }
    }

    /// Reports whether the socket can use an address of this family.
    pub(crate) fn takes(&self, address: IpAddr) -> bool {
        match (self.family, address) {
            (Family::V4, IpAddr::V4(_)) | (Family::V6, IpAddr::V6(_)) => true,
            (Family::V6, IpAddr::V4(_)) => !self.options.is_v6_only(),
            (Family::V4, IpAddr::V6(_)) => false,
        }
    }
}
