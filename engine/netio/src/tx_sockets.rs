//! The file descriptors of one [`Socket`](crate::socket::Socket), and their registration with a poll.
//!
//! Over IPv4, the interface in the packet info determines the route, so one socket serves every uplink. Over IPv6, Linux uses the
//! interface in the packet info only for the source address, and chooses the best route over any interface. The route leads
//! through a given interface only if the socket is bound to this interface. Each interface therefore gets a *sender* for IPv6: a
//! socket that is bound to the interface and the local port, and connected to a local address. Because of this connection, a
//! sender never receives packets or ICMP reports for the main socket.
//!
//! The poll watches a socket for writability only while its send buffer is full. If writability were always watched, the kernel
//! would report it after each packet that has left.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Type};

use crate::error::SendErrorKind;
use crate::options;
use crate::socket::Kind;
use crate::sys;

/// Limit on the interfaces that have a separate socket for sending over IPv6. The limit applies to each carrier. The socket is
/// opened at the first send through its interface, and stays open. A process with both carriers (UDP and raw) thus needs up to
/// twice this number of additional descriptors. If another interface would exceed the limit, all these sockets are closed, and
/// opened again at their next use.
pub const SENDERS_MAX: usize = 64;

/// The file descriptor through which a packet leaves: the main socket (None), or the sender of an interface.
pub(crate) type TxSocket = Option<NonZeroU32>;

/// The main socket and the senders. Invariant: a socket is watched for writing only if its last send found it full.
pub(crate) struct TxSockets {
    main: Watched,
    senders: BTreeMap<NonZeroU32, Watched>,
    kind: Kind,
    port: u16,
    poll: Option<(Registry, Token)>,
}

struct Watched {
    socket: socket2::Socket,
    is_for_writing: bool,
}

impl Watched {
    fn new(socket: socket2::Socket) -> Watched {
        Watched { socket, is_for_writing: false }
    }
}

impl TxSockets {
    /// Returns the UDP port that all sockets share.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Creates the list with only the main socket, which is bound to `port`.
    pub(crate) fn new(socket: socket2::Socket, kind: Kind, port: u16) -> TxSockets {
        TxSockets { main: Watched::new(socket), senders: BTreeMap::new(), kind, port, poll: None }
    }

    /// Returns the main socket, which receives.
    pub(crate) fn main(&self) -> BorrowedFd<'_> {
        self.main.socket.as_fd()
    }

    /// Returns the file descriptor of a socket.
    pub(crate) fn fd(&self, tx_socket: TxSocket) -> BorrowedFd<'_> {
        tx_socket.and_then(|ifindex| self.senders.get(&ifindex)).unwrap_or(&self.main).socket.as_fd()
    }

    /// Returns the unsent bytes of the socket that sends packets from `local` over the interface.
    pub(crate) fn waiting(&self, local: IpAddr, ifindex: u32) -> io::Result<usize> {
        let tx_socket = NonZeroU32::new(ifindex).filter(|_| local.is_ipv6() && !local.is_unspecified());
        sys::waiting(self.fd(tx_socket))
    }

    /// Chooses the socket for packets from `local` over the interface (0: any). Opens a sender if one is needed.
    pub(crate) fn choose(&mut self, local: IpAddr, ifindex: u32) -> io::Result<TxSocket> {
        let (IpAddr::V6(local), Some(ifindex)) = (local, NonZeroU32::new(ifindex)) else { return Ok(None) };
        if local.is_unspecified() {
            // Without a source address, the kernel uses the interface in the packet info for the route.
            return Ok(None);
        }
        if !self.senders.contains_key(&ifindex) {
            if self.senders.len() >= SENDERS_MAX {
                self.senders.clear();
            }
            let sender = open_sender(self.kind, self.port, local, ifindex)?;
            self.senders.insert(ifindex, Watched::new(sender));
        }
        Ok(Some(ifindex))
    }

    /// Closes the senders of interfaces that are gone.
    pub(crate) fn close_gone(&mut self) {
        let main = self.main.socket.as_fd();
        let is_gone = |ifindex: NonZeroU32| {
            let asked = sys::interface_mtu(main, ifindex.get());
            asked.is_err_and(|e| e.raw_os_error() == Some(libc::ENODEV))
        };
        // A closed descriptor leaves its poll by itself.
        self.senders.retain(|ifindex, _| !is_gone(*ifindex));
    }

    /// Registers with a poll. The poll reports arriving packets, and writability while a send buffer is full.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let poll = registry.try_clone()?;
        registry.register(&mut SourceFd(&self.main.socket.as_raw_fd()), token, Interest::READABLE)?;
        self.poll = Some((poll, token));
        Ok(())
    }

    /// Returns the poll that reports arriving packets, and the token of its events.
    pub(crate) fn poll(&self) -> Option<&(Registry, Token)> {
        self.poll.as_ref()
    }

    /// Notes that the socket accepted packets.
    pub(crate) fn on_sent(&mut self, tx_socket: TxSocket) {
        self.watch_for_writing(tx_socket, false);
    }

    /// Notes why the socket accepted no packet. A full socket is watched until it drains. A sender is closed if its interface or
    /// local address has disappeared.
    pub(crate) fn on_send_error(&mut self, tx_socket: TxSocket, kind: SendErrorKind) {
        match (kind, tx_socket) {
            (SendErrorKind::Full, _) => self.watch_for_writing(tx_socket, true),
            (SendErrorKind::NoRoute, Some(ifindex)) => drop(self.senders.remove(&ifindex)),
            _ => {}
        }
    }

    fn watch_for_writing(&mut self, tx_socket: TxSocket, on: bool) {
        let Some((registry, token)) = &self.poll else { return };
        let sender = tx_socket.and_then(|ifindex| self.senders.get_mut(&ifindex));
        let is_main = sender.is_none();
        let watched = sender.unwrap_or(&mut self.main);
        if watched.is_for_writing == on {
            return;
        }
        let fd = watched.socket.as_raw_fd();
        let mut source = SourceFd(&fd);
        let outcome = match (is_main, on) {
            (true, true) => registry.reregister(&mut source, *token, Interest::READABLE | Interest::WRITABLE),
            (true, false) => registry.reregister(&mut source, *token, Interest::READABLE),
            (false, true) => registry.register(&mut source, *token, Interest::WRITABLE),
            (false, false) => registry.deregister(&mut source),
        };
        // If epoll is out of memory, the next full send tries again.
        watched.is_for_writing = if outcome.is_ok() { on } else { watched.is_for_writing };
    }
}

/// Opens an unbound socket of the kind and family. The socket is blocking, so calls that must not wait use MSG_DONTWAIT.
pub(crate) fn new_socket(kind: Kind, is_v4: bool) -> io::Result<socket2::Socket> {
    let (kind_of, protocol) = match kind {
        Kind::Udp => (Type::DGRAM, Protocol::UDP),
        Kind::Raw => (Type::RAW, Protocol::from(libc::IPPROTO_SCTP)),
    };
    let domain = if is_v4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = socket2::Socket::new(domain, kind_of, Some(protocol))?;
    if !is_v4 && kind == Kind::Udp {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn open_sender(kind: Kind, port: u16, local: Ipv6Addr, ifindex: NonZeroU32) -> io::Result<socket2::Socket> {
    let socket = new_socket(kind, false)?;
    options::set_for_sending(socket.as_fd(), false)?;
    if kind == Kind::Udp {
        socket.set_reuse_port(true)?;
    }
    socket.bind_device_by_index_v6(Some(ifindex))?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.connect(&SocketAddr::from((local, port)).into())?;
    Ok(socket)
}
