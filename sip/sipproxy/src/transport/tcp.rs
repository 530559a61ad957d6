//! SIP over TCP and TLS (RFC 3261 section 18). Connections are kept, and used in both directions.
//!
//! A message for a lost connection uses another connection to the same address. If there is no such connection, one is opened. An outgoing
//! TLS connection only carries messages for the domain that its peer has proven. The peer of an incoming TLS connection is not
//! authenticated (RFC 5923). An incoming TLS connection carries responses, and messages for the flow that its client has registered. Other
//! messages to the client's address use another connection.
//!
//! Invariants:
//!
//! - There are no more connections than the key `limits.connections` permits.
//! - An outgoing connection is closed if it is not established within [`CONNECT_TIMEOUT`].
//! - An incoming connection is closed if no complete message arrives within [`SILENCE_MAX`].
//! - A connection is closed if its peer no longer responds ([`watch`]).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::Time;
use bytes::{Buf, Bytes};
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry};
use sip::proxy::Outgoing;
use sip::{Framer, Hop, Limits, Transport};

use super::stream::Stream;
use super::tls::TlsContext;
use super::{Inbox, ListenerIndex, Plugin, Seen};

/// Time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the first message of a client: the time after which a transaction fails (64 × T1, with the default T1).
const SILENCE_MAX: Duration = Duration::from_secs(32);
/// Idle time before the first TCP keep-alive probe, and the interval of the probes. The idle time equals the longest interval between the
/// peer's own keep-alives (RFC 5626 section 4.4.1). Without probes, phones that vanish silently would eventually use up all of
/// `limits.connections`.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(10));
/// Pause after a failure to accept connections.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Limit on bytes read from one connection in one turn.
const READ_PER_TURN: usize = 256 * 1024;

/// A listener with its connections.
#[derive(Debug)]
pub(crate) struct Tcp {
    index: ListenerIndex,
    address: SocketAddr,
    listener: TcpListener,
    registry: Registry,
    limits: Limits,
    connections_max: usize,
    /// Connections by number. Number 0 denotes the listener, and is not in the map.
    connections: BTreeMap<usize, Connection>,
    /// Numbers of connections, by the peer's address and, with TLS, the domain that the peer has proven.
    by_address: BTreeMap<Peer, usize>,
    /// TLS configuration; `None` for plain TCP.
    tls: Option<TlsContext>,
    next_number: usize,
    buffer: Box<[u8]>,
    /// Connections with input that was left unread in a turn.
    unread: VecDeque<usize>,
    /// Times by which outgoing connections must be established. They are in ascending order, because all connections have the same limit.
    deadlines: VecDeque<(Time, usize)>,
    /// Times by which incoming connections must have delivered a message, in ascending order.
    silent: VecDeque<(Time, usize)>,
    /// Time of the next attempt to accept connections, after a failure such as too many open files; `NEVER` without a failure. Connections
    /// that already wait need this attempt, because the poll does not report them again.
    accept_again: Time,
}

/// The peer of a connection: its address and, with TLS, its domain.
type Peer = (SocketAddr, Option<Arc<str>>);

#[derive(Debug)]
struct Connection {
    stream: Stream,
    peer: Peer,
    framer: Framer,
    unsent: VecDeque<(Bytes, Option<u64>)>,
    unsent_bytes: usize,
    /// True until the connection is established.
    is_connecting: bool,
    /// True once a complete message has arrived.
    has_spoken: bool,
}

impl Tcp {
    /// Opens the listener.
    ///
    /// # Errors
    /// If the address is not local, or is in use.
    pub(crate) fn open(
        index: ListenerIndex,
        address: SocketAddr,
        limits: Limits,
        connections_max: usize,
        tls: Option<TlsContext>,
        registry: &Registry,
    ) -> io::Result<Tcp> {
        let mut listener = TcpListener::bind(address)?;
        registry.register(&mut listener, index.token(0), Interest::READABLE)?;
        Ok(Tcp {
            index,
            address,
            listener,
            registry: registry.try_clone()?,
            limits,
            connections_max,
            connections: BTreeMap::new(),
            by_address: BTreeMap::new(),
            tls,
            next_number: 1,
            buffer: vec![0; 64 * 1024].into(),
            unread: VecDeque::new(),
            deadlines: VecDeque::new(),
            silent: VecDeque::new(),
            accept_again: Time::NEVER,
        })
    }

    fn accept(&mut self, now: Time) {
        self.accept_again = Time::NEVER;
        loop {
            match self.listener.accept() {
                // Above the limit, a connection is closed at once. The client notices the end, and can try another server.
                Ok(_) if self.connections.len() >= self.connections_max => {
                    tracing::warn!(
                        limit = self.connections_max,
                        "a TCP connection was refused: limits.connections"
                    );
                }
                Ok((stream, peer)) => {
                    let session = self.tls.as_ref().map(TlsContext::accept);
                    // Without a certificate, this program cannot serve incoming TLS connections.
                    if matches!(session, Some(None)) {
                        continue;
                    }
                    if let Ok(number) = self.add(stream, session.flatten(), (peer, None), false) {
                        self.silent.push_back((now + SILENCE_MAX, number));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client has closed this connection before it was accepted.
                Err(error)
                    if [io::ErrorKind::Interrupted, io::ErrorKind::ConnectionAborted]
                        .contains(&error.kind()) => {}
                Err(error) => {
                    tracing::warn!(%error, "no TCP connection can be accepted now");
                    self.accept_again = now + ACCEPT_PAUSE;
                    return;
                }
            }
        }
    }

    fn add(
        &mut self,
        mut stream: TcpStream,
        session: Option<rustls::Connection>,
        peer: Peer,
        is_connecting: bool,
    ) -> io::Result<usize> {
        let _ = stream.set_nodelay(true);
        watch(&stream);
        let number = self.next_number;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(&mut stream, self.index.token(number), interest)?;
        self.next_number += 1;
        let framer = Framer::new(self.limits);
        let connection = Connection {
            stream: Stream::new(stream, session),
            peer: peer.clone(),
            framer,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            is_connecting,
            has_spoken: false,
        };
        self.connections.insert(number, connection);
        if is_connecting || self.tls.is_none() {
            self.by_address.insert(peer, number);
        }
        Ok(number)
    }

    /// Connects from the listener's address, so the peer sees the address that is in Via.
    fn connect(&mut self, now: Time, to: Peer) -> io::Result<usize> {
        let peer = to.0;
        if self.connections.len() >= self.connections_max {
            return Err(io::Error::other("limits.connections"));
        }
        let session = match &self.tls {
            Some(tls) => {
                let session = tls.connect(to.1.as_deref(), peer.ip());
                Some(session.ok_or_else(|| io::Error::other("invalid server name for TLS"))?)
            }
            None => None,
        };
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(peer),
            socket2::Type::STREAM.nonblocking().cloexec(),
            Some(socket2::Protocol::TCP),
        )?;
        socket.bind(&SocketAddr::new(self.address.ip(), 0).into())?;
        match socket.connect(&peer.into()) {
            Err(error) if !is_in_progress(&error) => Err(error),
            _ => {
                let number = self.add(TcpStream::from_std(socket.into()), session, to, true)?;
                self.deadlines.push_back((now + CONNECT_TIMEOUT, number));
                Ok(number)
            }
        }
    }

    /// Returns the connection that `hop` names. If that connection no longer exists, returns a connection to the address of `hop` and, with
    /// TLS, to `domain`. Opens such a connection if necessary.
    fn connection_for(&mut self, now: Time, hop: &Hop, domain: Option<Arc<str>>) -> io::Result<usize> {
        let own = hop.connection.and_then(|connection| self.index.number_of(connection));
        let own = own.filter(|number| self.connections.contains_key(number));
        let domain = self.tls.as_ref().and_then(|tls| domain.or_else(|| tls.domain.clone()));
        let peer = (hop.address, domain);
        match own.or_else(|| self.by_address.get(&peer).copied()) {
            Some(number) => Ok(number),
            None => self.connect(now, peer),
        }
    }

    fn close(&mut self, number: usize, inbox: &mut Inbox) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        connection.stream.say_goodbye();
        let _ = self.registry.deregister(connection.stream.socket());
        if self.by_address.get(&connection.peer) == Some(&number) {
            self.by_address.remove(&connection.peer);
        }
        inbox.failures.extend(connection.unsent.iter().filter_map(|(_, on_failure)| *on_failure));
    }

    fn write(&mut self, number: usize, inbox: &mut Inbox) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.flush().is_err() {
            self.close(number, inbox);
        }
    }

    fn read(&mut self, number: usize, inbox: &mut Inbox) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let hop = Hop {
            listener: self.index.0,
            transport: if self.tls.is_some() { Transport::Tls } else { Transport::Tcp },
            address: connection.peer.0,
            connection: Some(self.index.connection(number)),
        };
        match connection.read(&mut self.buffer, |message| inbox.messages.push((hop, message))) {
            Ok(true) => self.unread.push_back(number),
            Ok(false) => {}
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    tracing::warn!(peer = %hop.address, transport = hop.transport.as_str(), %error, "a connection was closed");
                }
                self.close(number, inbox);
            }
        }
    }
}

impl Connection {
    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()?;
        while let Some((bytes, _)) = self.unsent.front_mut() {
            match self.stream.write(bytes) {
                Ok(written) => {
                    self.is_connecting = false;
                    self.unsent_bytes -= written;
                    bytes.advance(written);
                    if bytes.is_empty() {
                        self.unsent.pop_front();
                    }
                }
                Err(error) if is_in_progress(&error) || error.kind() == io::ErrorKind::NotConnected => {
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads up to [`READ_PER_TURN`] bytes. Returns true if more bytes may wait. An error or the end of the stream ends the connection.
    fn read(&mut self, buffer: &mut [u8], mut take: impl FnMut(Bytes)) -> io::Result<bool> {
        let mut total = 0;
        while total < READ_PER_TURN {
            let length = match self.stream.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_in_progress(&error) || error.kind() == io::ErrorKind::NotConnected => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            total += length;
            self.framer.push(&buffer[..length]);
            self.take_messages(&mut take)?;
        }
        Ok(true)
    }

    fn take_messages(&mut self, take: &mut impl FnMut(Bytes)) -> io::Result<()> {
        loop {
            if self.framer.take_ping() {
                // "the server … sends back a single CRLF" (RFC 5626 section 4.4.1). A pong is left out if the send buffer is full, because
                // the data in the buffer also shows that the server is alive.
                let _ = self.stream.write(b"\r\n");
                continue;
            }
            match self.framer.next_message() {
                Ok(Some(message)) => {
                    self.has_spoken = true;
                    take(message);
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }
}

/// Makes the kernel end a connection whose peer no longer responds. An idle peer must answer keep-alive probes. Data must be acknowledged
/// within the time limit of a transaction.
fn watch(stream: &TcpStream) {
    let (idle, interval) = KEEPALIVE;
    let socket = socket2::SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(idle).with_interval(interval));
    let _ = socket.set_tcp_user_timeout(Some(SILENCE_MAX));
}

pub(super) fn is_in_progress(error: &io::Error) -> bool {
    // `ErrorKind` has no stable value for EINPROGRESS of connect(2).
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(115)
}

impl Plugin for Tcp {
    fn handle_ready(&mut self, now: Time, number: usize, inbox: &mut Inbox) {
        if number == 0 {
            self.accept(now);
            return;
        }
        self.write(number, inbox);
        self.read(number, inbox);
        // Sends messages that waited for the end of a TLS handshake.
        if self.tls.is_some() {
            self.write(number, inbox);
        }
    }

    fn send(&mut self, now: Time, message: Outgoing, inbox: &mut Inbox) {
        let Ok(number) = self.connection_for(now, &message.hop, message.domain.clone()) else {
            inbox.failures.extend(message.on_failure);
            return;
        };
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if !inbox.lets_wait(&message, connection.unsent_bytes) {
            return;
        }
        connection.unsent_bytes += message.bytes.len();
        connection.unsent.push_back((message.bytes, message.on_failure));
        self.write(number, inbox);
    }

    fn finish_turn(&mut self, _: Time, _: &mut Inbox) {}

    fn begin_close(&mut self, _: Time) {}

    fn is_closed(&self) -> bool {
        self.connections.values().all(|connection| connection.unsent.is_empty() && !connection.stream.holds())
    }

    fn set_tls(&mut self, tls: &TlsContext) {
        if self.tls.is_some() {
            self.tls = Some(tls.clone());
        }
    }

    fn handle_timeout(&mut self, now: Time, inbox: &mut Inbox) {
        if self.accept_again <= now {
            self.accept(now);
        }
        for number in std::mem::take(&mut self.unread) {
            self.read(number, inbox);
        }
        while let Some((_, number)) = self.deadlines.pop_front_if(|(until, _)| *until <= now) {
            if self.connections.get(&number).is_some_and(|connection| connection.is_connecting) {
                self.close(number, inbox);
            }
        }
        while let Some((_, number)) = self.silent.pop_front_if(|(until, _)| *until <= now) {
            if self.connections.get(&number).is_some_and(|connection| !connection.has_spoken) {
                self.close(number, inbox);
            }
        }
    }

    fn connections(&self) -> usize {
        self.connections.len()
    }

    fn seen(&self, after: usize) -> Box<dyn Iterator<Item = Seen> + '_> {
        let seen = |(&number, connection): (&usize, &Connection)| Seen {
            number,
            peer: connection.peer.0,
            state: if connection.is_connecting { "connecting" } else { "connected" },
            waiting_bytes: connection.unsent_bytes,
            peer_key: None,
            paths: Vec::new(),
        };
        Box::new(self.connections.range(after + 1..).map(seen))
    }

    fn next_timeout(&self) -> Time {
        if !self.unread.is_empty() {
            return Time::ZERO;
        }
        let fronts = [self.deadlines.front(), self.silent.front()];
        fronts.into_iter().flatten().map(|(until, _)| *until).fold(self.accept_again, Time::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbound_and_outbound_connections_have_keepalive_and_a_user_timeout() {
        let poll = mio::Poll::new().unwrap();
        let open = || {
            let address = "127.0.0.1:0".parse().unwrap();
            Tcp::open(ListenerIndex(0), address, Limits::default(), 10, None, poll.registry()).unwrap()
        };
        let (mut here, mut there) = (open(), open());
        let address = there.listener.local_addr().unwrap();
        here.connect(Time::ZERO, (address, None)).unwrap();
        while there.connections.is_empty() {
            there.accept(Time::ZERO);
        }
        for tcp in [&mut here, &mut there] {
            let connection = tcp.connections.values_mut().next().unwrap();
            let socket = socket2::SockRef::from(&*connection.stream.socket());
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE.0);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(SILENCE_MAX));
        }
    }
}
