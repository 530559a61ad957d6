//! The transports of ttcp: code that opens channels, sends data, and receives data.

use super::{Over, Ttcp};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use peer::options::{CarrierKind, Mode, Options};
use peer::talk::{self, Talk};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Maximum payload of a datagram over IPv4: 65,535 minus 20 for IP and 8 for UDP.
pub(crate) const DATAGRAM_MAX: u32 = 65_507;
/// Length in bytes of the datagrams that mark the start and the end of the data. Datagrams with data are
/// longer than this.
pub(super) const MARKER_BYTES: usize = 4;
/// Number of end markers. The transmitter sends several markers, because datagrams may be lost.
const END_MARKERS: u32 = 5;
/// Pause after each end marker.
const MARKER_PAUSE: Duration = Duration::from_millis(20);
/// Pause while the interface has no room for a datagram (as in ttcp).
const ROOM_PAUSE: Duration = Duration::from_millis(18);
/// Limit on the connections that wait for accept().
const BACKLOG: i32 = 1;

/// A channel to or from the other end.
pub(super) enum Channel {
    /// A TCP or MPTCP connection. The variant also owns the listener, because further subflows of MPTCP
    /// need a listening socket.
    Stream {
        stream: TcpStream,
        buffer: Vec<u8>,
        _listener: Option<TcpListener>,
    },
    Datagrams {
        socket: UdpSocket,
        buffer: Vec<u8>,
        got: usize,
    },
    Messages {
        talk: Box<Talk>,
        message: Bytes,
    },
}

/// A listening endpoint.
pub(super) enum Listening {
    Stream(TcpListener, usize),
    Datagrams(UdpSocket, usize),
    Messages(Box<talk::Listening>),
}

impl Listening {
    /// Opens the port for connections or datagrams.
    ///
    /// # Errors
    /// Fails if the port is in use, or if privileges are missing.
    pub(super) fn open(args: &Ttcp) -> Result<Self> {
        let (any, length) = (SocketAddr::from((Ipv6Addr::UNSPECIFIED, args.port)), args.length());
        match args.over() {
            Over::Tcp | Over::Mptcp => {
                let socket = socket(args, any)?;
                socket.set_only_v6(false)?;
                socket.set_reuse_address(true)?;
                socket.bind(&any.into()).with_context(|| format!("cannot bind port {}", args.port))?;
                socket.listen(BACKLOG)?;
                Ok(Self::Stream(socket.into(), length))
            }
            Over::Udp => {
                let socket = socket(args, any)?;
                socket.set_only_v6(false)?;
                socket.bind(&any.into()).with_context(|| format!("cannot bind port {}", args.port))?;
                Ok(Self::Datagrams(socket.into(), length))
            }
            Over::Sctp | Over::SctpUdp => {
                let local =
                    if args.bind.is_empty() { peer::host::own_addresses()? } else { args.bind.clone() };
                let options = options(args, local, Mode::Receive { port: args.port, seconds: None });
                Ok(Self::Messages(Box::new(talk::Listening::open(&options, args.port)?)))
            }
        }
    }

    /// Waits for the other end's connection, or for its first datagram.
    ///
    /// # Errors
    /// Fails if the network fails.
    pub(super) fn accept(self) -> Result<Channel> {
        match self {
            Self::Stream(listener, length) => {
                let (stream, buffer) = (listener.accept()?.0, vec![0; length]);
                Ok(Channel::Stream { stream, buffer, _listener: Some(listener) })
            }
            Self::Datagrams(socket, length) => {
                let mut buffer = vec![0; length.max(MARKER_BYTES)];
                let got = socket.recv(&mut buffer)?;
                Ok(Channel::Datagrams { socket, buffer, got: if got > MARKER_BYTES { got } else { 0 } })
            }
            Self::Messages(listening) => {
                Ok(Channel::Messages { talk: Box::new(listening.accept()?), message: Bytes::new() })
            }
        }
    }
}

/// Opens a channel to a receiver.
///
/// # Errors
/// Fails if the receiver does not listen, or if privileges are missing.
pub(super) fn connect(args: &Ttcp, to: SocketAddr) -> Result<Channel> {
    let failed = || format!("cannot connect to {to}");
    match args.over() {
        Over::Tcp | Over::Mptcp => {
            let socket = socket(args, to)?;
            socket.set_tcp_nodelay(args.no_delay)?;
            socket.connect(&to.into()).with_context(failed)?;
            Ok(Channel::Stream { stream: socket.into(), buffer: Vec::new(), _listener: None })
        }
        Over::Udp => {
            let socket = socket(args, to)?;
            socket.connect(&to.into()).with_context(failed)?;
            let socket = UdpSocket::from(socket);
            socket.send(&[0; MARKER_BYTES]).with_context(failed)?;
            Ok(Channel::Datagrams { socket, buffer: Vec::new(), got: 0 })
        }
        Over::Sctp | Over::SctpUdp => {
            let local = if args.bind.is_empty() { vec![address_towards(to)?] } else { args.bind.clone() };
            let mode = Mode::Send { host: to.ip(), port: to.port(), seconds: 0.0, size: args.length() };
            let talk = Talk::connect(&options(args, local, mode), to.ip(), to.port()).with_context(failed)?;
            Ok(Channel::Messages { talk: Box::new(talk), message: Bytes::new() })
        }
    }
}

/// Opens a kernel socket for the address family of `address`, with the requested buffer sizes.
fn socket(args: &Ttcp, address: SocketAddr) -> Result<Socket> {
    let (kind, protocol) = match args.over() {
        Over::Mptcp => (Type::STREAM, Protocol::MPTCP),
        Over::Udp => (Type::DGRAM, Protocol::UDP),
        _ => (Type::STREAM, Protocol::TCP),
    };
    // The socket has no SOCK_CLOEXEC, because `withsctp` does not convert a TCP socket with this flag.
    let socket = Socket::new_raw(Domain::for_address(address), kind, Some(protocol));
    let socket = socket.with_context(|| format!("the kernel has no such socket: {:?}", args.over()))?;
    if let Some(bytes) = args.buffer {
        socket.set_send_buffer_size(bytes as usize)?;
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    Ok(socket)
}

/// Returns the options of our own stack.
fn options(args: &Ttcp, local: Vec<IpAddr>, mode: Mode) -> Options {
    let carrier = if args.over() == Over::Sctp { CarrierKind::Ip } else { CarrierKind::Udp };
    let mut options = Options::new(carrier, local, mode);
    (options.udp_port, options.peer_udp_port) = (args.udp_port, args.peer_udp_port);
    if let Some(bytes) = args.buffer {
        options.buffer = (bytes as usize).max(args.length());
    }
    options
}

/// Returns the local address of packets to another host.
fn address_towards(to: SocketAddr) -> Result<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to).with_context(|| format!("no route to {to}"))?;
    Ok(socket.local_addr()?.ip())
}

impl Channel {
    /// Sends a buffer. Returns false if the receiver has closed the connection.
    ///
    /// # Errors
    /// Fails if the network fails.
    pub(super) fn send(&mut self, buffer: &Bytes) -> Result<bool> {
        match self {
            Self::Stream { stream, .. } => match stream.write_all(buffer) {
                Err(error) if has_left(&error) => return Ok(false),
                outcome => outcome.context("cannot send")?,
            },
            Self::Datagrams { socket, .. } => send_datagram(socket, buffer)?,
            Self::Messages { talk, .. } => talk.send(buffer)?,
        }
        Ok(true)
    }

    /// Returns the next data: a part of the stream, a datagram or a message. Empty data mark the end.
    ///
    /// # Errors
    /// Fails if the network fails.
    pub(super) fn receive(&mut self) -> Result<&[u8]> {
        match self {
            Self::Stream { stream, buffer, .. } => {
                let got = stream.read(buffer).context("cannot receive")?;
                Ok(&buffer[..got])
            }
            Self::Datagrams { socket, buffer, got: first } => {
                let got = match std::mem::take(first) {
                    0 => socket.recv(buffer).context("cannot receive")?,
                    got => got,
                };
                Ok(if got > MARKER_BYTES { &buffer[..got] } else { &[] })
            }
            Self::Messages { talk, message } => {
                *message = talk.receive()?.unwrap_or_default();
                Ok(message)
            }
        }
    }

    /// Closes the channel. Over TCP and SCTP, data that were sent before still arrive. Over UDP, the
    /// transmitter sends end markers.
    ///
    /// # Errors
    /// Fails if the network fails.
    pub(super) fn finish(self) -> Result<()> {
        match self {
            Self::Stream { .. } => Ok(()),
            Self::Datagrams { socket, .. } => {
                // A receiver's socket has no peer address, so a receiver sends no markers. Errors are
                // ignored, because the receiver may have ended after the first marker.
                for _ in 0..if socket.peer_addr().is_ok() { END_MARKERS } else { 0 } {
                    let _ = socket.send(&[0; MARKER_BYTES]);
                    std::thread::sleep(MARKER_PAUSE);
                }
                Ok(())
            }
            Self::Messages { talk, .. } => talk.close(),
        }
    }
}

/// Reports whether the other end has closed its socket.
fn has_left(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// Sends a datagram, and waits while the interface has no room.
fn send_datagram(socket: &UdpSocket, datagram: &[u8]) -> Result<()> {
    loop {
        match socket.send(datagram) {
            Ok(sent) => {
                ensure!(sent == datagram.len(), "a datagram was cut to {sent} bytes");
                return Ok(());
            }
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => std::thread::sleep(ROOM_PAUSE),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => bail!("no receiver listens there"),
            Err(error) => return Err(error).context("cannot send"),
        }
    }
}
