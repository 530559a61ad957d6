//! UDP of an enclosed namespace: listeners, and sockets that answer from the destination address of a datagram.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use mio::event::Source;
use mio::net::UdpSocket;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::namespace::Jobs;
use crate::sockets::set_option;

/// Limit on the length of a datagram, in octets.
const DATAGRAM_MAX: usize = 65_535;

/// A datagram that a program in the enclosed namespace has sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Address of the sender in the enclosed namespace.
    pub from: SocketAddr,
    /// Address of the destination.
    pub to: SocketAddr,
    /// The payload.
    pub bytes: Vec<u8>,
}

/// Listener for one address family. It receives the datagrams of an address pair until [`DatagramListener::answering`] creates a
/// socket for the pair.
pub struct DatagramListener {
    socket: Socket,
    /// Runner of jobs in the private namespace.
    jobs: Jobs,
}

impl DatagramListener {
    /// Opens the listener. Must be called on a thread inside the private namespace.
    pub(crate) fn bind(ipv6: bool, port: u16, jobs: Jobs) -> io::Result<DatagramListener> {
        let address: SocketAddr =
            if ipv6 { (Ipv6Addr::UNSPECIFIED, port).into() } else { (Ipv4Addr::UNSPECIFIED, port).into() };
        let socket = transparent_socket(address)?;
        if ipv6 {
            socket.set_only_v6(true)?;
            setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true)?;
        }
        socket.bind(&address.into())?;
        Ok(DatagramListener { socket, jobs })
    }

    /// Returns the next datagram, or None if no datagram waits. After each readiness event, the caller must repeat the call until
    /// it returns None.
    pub fn recv(&self) -> io::Result<Option<Datagram>> {
        let mut bytes = vec![0; DATAGRAM_MAX];
        let mut control = nix::cmsg_space!(libc::sockaddr_in6);
        let (length, from, to) = {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let fd = self.socket.as_raw_fd();
            let received = match recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut control), flags) {
                Err(nix::errno::Errno::EAGAIN) => return Ok(None),
                received => received?,
            };
            let to = received.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::Ipv4OrigDstAddr(to) => Some(socket_addr4(&to)),
                ControlMessageOwned::Ipv6OrigDstAddr(to) => Some(socket_addr6(&to)),
                _ => None,
            });
            (received.bytes, received.address.and_then(of_storage), to)
        };
        bytes.truncate(length);
        match (from, to) {
            (Some(from), Some(to)) => Ok(Some(Datagram { from, to, bytes })),
            _ => Err(io::Error::other("a datagram without addresses")),
        }
    }

    /// Creates a non-blocking socket that sends from the address `to`, and exchanges datagrams with `from` only. Later datagrams
    /// from `from` to `to` arrive at this socket.
    ///
    /// # Errors
    /// The errors of socket(2), bind(2) and connect(2). Also fails if the private namespace is gone.
    pub fn answering(&self, to: SocketAddr, from: SocketAddr) -> io::Result<UdpSocket> {
        let socket = self.jobs.run(move || {
            let socket = transparent_socket(to)?;
            socket.bind(&to.into())?;
            socket.connect(&from.into())?;
            Ok::<_, io::Error>(socket)
        })??;
        Ok(UdpSocket::from_std(socket.into()))
    }
}

impl Source for DatagramListener {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.raw()).register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.raw()).reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        SourceFd(&self.raw()).deregister(registry)
    }
}

impl DatagramListener {
    fn raw(&self) -> RawFd {
        self.socket.as_fd().as_raw_fd()
    }
}

fn transparent_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv4() {
        socket.set_ip_transparent_v4(true)?;
    } else {
        set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT)?;
    }
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn socket_addr4(address: &libc::sockaddr_in) -> SocketAddr {
    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
    SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into()
}

fn socket_addr6(address: &libc::sockaddr_in6) -> SocketAddr {
    let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
    SocketAddrV6::new(ip, u16::from_be(address.sin6_port), 0, 0).into()
}

fn of_storage(address: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|a| SocketAddr::from((a.ip(), a.port())));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| SocketAddr::from((a.ip(), a.port()))))
}
