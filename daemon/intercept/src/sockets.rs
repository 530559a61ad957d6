//! Local TCP sockets: transparent listeners, and connections from a client's address.
//!
//! Every socket is armed from its creation: if it is closed without an orderly shutdown, it sends RST. After a crash of the
//! daemon, the application thus sees an error, and never the end of a stream. [`disarm_linger`] precedes the orderly close.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::flow::FourTuple;

/// Limit on the connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// TCP's maximum segment size towards local programs, in bytes. The kernel's initial send buffer for a program has room for 20
/// segments, and the kernel rounds the size of each segment up to a power of two. The veth's MTU (64 KiB) would give a buffer of
/// megabytes. With this constant, each segment takes 4 KiB, as on Ethernet.
const MSS: u32 = 3 * 1024;

/// Disarms the socket: when it is closed, it sends its remaining data and a FIN. Call this before an orderly close only.
pub fn disarm_linger(stream: &impl AsFd) -> io::Result<()> {
    SockRef::from(stream).set_linger(None)
}

/// A diverted connection that arrived in the private namespace.
#[derive(Debug)]
pub struct Arrival {
    /// Non-blocking, armed socket without Nagle delay, with urgent data inline.
    pub stream: TcpStream,
    /// The connection as the application sees it. The value equals the flow of the diverted SYN.
    pub flow: FourTuple,
}

impl Arrival {
    fn new(stream: TcpStream, application: SocketAddr) -> io::Result<Arrival> {
        let flow = FourTuple::new(application, stream.local_addr()?)
            .ok_or_else(|| io::Error::other("a connection between different address families"))?;
        Ok(Arrival { stream, flow })
    }
}

/// A transparent listener of one address family in the private namespace.
pub struct Listener {
    listener: TcpListener,
}

impl Listener {
    /// Opens the listener. Must be called on a thread inside the private namespace.
    pub(crate) fn bind(ipv6: bool, port: u16) -> io::Result<Listener> {
        let address: SocketAddr =
            if ipv6 { (Ipv6Addr::UNSPECIFIED, port).into() } else { (Ipv4Addr::UNSPECIFIED, port).into() };
        let socket = transparent_socket(address)?;
        if ipv6 {
            socket.set_only_v6(true)?;
        }
        // Accepted connections inherit these options, which thus apply from the first packet.
        arm(&socket)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Listener { listener: TcpListener::from_std(socket.into()) })
    }

    /// Returns the next connection, or None if no connection waits. After each readiness event, the caller must repeat the call
    /// until it returns None. Skips connections that ended before they were accepted.
    pub fn accept(&self) -> io::Result<Option<Arrival>> {
        // The loop terminates: each iteration takes one connection out of the backlog.
        loop {
            match self.listener.accept() {
                Ok((stream, application)) => return Arrival::new(stream, application).map(Some),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Source for Listener {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.listener.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.listener.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.listener.deregister(registry)
    }
}

/// A connection to a local program, from a client's address.
#[derive(Debug)]
pub struct SpoofedConnection {
    /// Non-blocking, armed socket without Nagle delay, with urgent data inline. The socket is still connecting. When the
    /// connection is established or has failed, the socket becomes writable, and `take_error` reports the outcome.
    pub stream: TcpStream,
    /// The peer's address as the program sees it. The port differs from the requested one if another connection to the same
    /// program uses that port.
    pub client: SocketAddr,
}

/// Creates a socket for a spoofed connection to `server`. Must be called on a thread inside the private namespace.
pub(crate) fn spoofing_socket(server: SocketAddr) -> io::Result<Socket> {
    let socket = transparent_socket(server)?;
    arm(&socket)?;
    Ok(socket)
}

/// Connects `socket` to `server` as `client`. If the client's port is 0, the kernel chooses a port that is free for this server.
pub(crate) fn connect(socket: &Socket, client: SocketAddr, server: SocketAddr) -> io::Result<()> {
    if client.port() == 0 {
        set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)?;
    }
    socket.bind(&client.into())?;
    match socket.connect(&server.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        result => result,
    }
}

/// Returns the connection made with `socket`, which is bound to `client`.
pub(crate) fn into_connection(socket: Socket, client: SocketAddr) -> SpoofedConnection {
    SpoofedConnection { stream: TcpStream::from_std(socket.into()), client }
}

/// Returns the address that `socket` is bound to.
pub(crate) fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?.as_socket();
    address.ok_or_else(|| io::Error::other("a socket of another family"))
}

/// Creates a non-blocking TCP socket of `address`'s family that may use addresses of other hosts.
fn transparent_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if address.is_ipv4() {
        socket.set_ip_transparent_v4(true)?;
    } else {
        set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_tcp_mss(MSS)?;
    Ok(socket)
}

fn arm(socket: &Socket) -> io::Result<()> {
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_out_of_band_inline(true)?;
    socket.set_tcp_nodelay(true)
}

/// Turns on a boolean socket option that no library offers.
#[allow(unsafe_code, reason = "a system call that no library offers")]
pub(crate) fn set_option(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = size_of_val(&on) as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads `length` bytes of `on` only.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
