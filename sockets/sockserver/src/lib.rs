//! Serves SCTP sockets to the programs of a host.
//!
//! A program's socket is one end of an `AF_UNIX` pair; the server has the other end. [`sockets::Sockets`] contains the state of the
//! sockets, the engine contains the associations, and [`netio::Carriers`] carry the packets. One thread runs one loop
//! ([`Server::run`]). The server belongs to the network namespace in which it was opened, and listens there on an abstract name.
//!
//! Invariant: a program that does not read, or whose peer does not read, delays only itself. While the engine has no room, the server does
//! not read its end of the pair. While the pair has no room, the server does not take messages from the engine.

#![forbid(unsafe_code)]

mod closer;
mod control;
mod ends;
mod list;
mod pair;
mod pump;

use std::io;
use std::time::{Duration, Instant};

use base::Time;
use mio::{Events, Interest, Poll, Token};
use netio::{Carriers, KernelSctp, Monitor, PacketIo, RawCarrier, UdpCarrier};
use rustix::fd::{AsRawFd, OwnedFd};
use sctp::{Endpoint, EndpointConfig, Limits};
use slab::Slab;
use sockets::{Config, Sockets};

use crate::closer::Closer;
use crate::control::{Connection, Reply};
use crate::ends::Ends;

pub use control::{AskError, Client};
pub use list::Row;
pub use sockproto::SERVER_VARIABLE;

/// Limits on the number of connections that wait for a request: of all users, and of one user. Beyond a limit, the oldest
/// connection is dropped.
const REQUESTS_MAX: usize = 1024;
const REQUESTS_OF_USER_MAX: usize = 256;
/// Limits on the number of leases: of all users, and of one user.
const LEASES_MAX: usize = 8192;
const LEASES_OF_USER_MAX: usize = 1024;
/// Limits on the number of callers that wait for the end of an attempt to connect: of all users, and of one user. Beyond a limit, a
/// caller gets `EINPROGRESS` at once.
const ATTEMPTS_MAX: usize = 8192;
const ATTEMPTS_OF_USER_MAX: usize = 4096;
/// Time without sockets and leases after which the server ends.
const IDLE_LIMIT: Duration = Duration::from_secs(2);
/// Limit on the rounds of packets between sockets of this host that the server handles before it answers a request.
const ROUNDS: usize = 8;
/// Interval at which the server looks for changes of the host's addresses.
const ADDRESS_LOOK: Duration = Duration::from_secs(1);
/// Limit on the number of associations.
const ASSOCIATIONS_MAX: usize = 16_384;

const LISTENER: Token = Token(Carriers::TOKENS);
/// First token after the tokens of the carriers and of the listener. Connection n has the token `OTHERS + 2n`, and the socket with
/// the key n has the token `OTHERS + 2n + 1`.
const OTHERS: usize = Carriers::TOKENS + 1;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The abstract name to listen on, without the leading zero byte.
    pub name: String,
    /// Carriers of packets.
    pub carriage: Carriage,
    /// True if the server ends after 2 s without sockets and leases.
    pub ends_when_idle: bool,
}

/// Carriers of packets, and their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Carriage {
    /// UDP port of this host for encapsulated SCTP; `None` for no UDP.
    pub udp_port: Option<u16>,
    /// True if packets also go over IP, protocol 132. Requires `CAP_NET_RAW`.
    pub over_ip: bool,
    /// UDP port of peers, if the program does not set a port (`SCTP_REMOTE_UDP_ENCAPS_PORT`).
    pub peer_udp_port: u16,
}

/// Reason why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another server has the name.
    #[error("a socket server with the name @{0} is running already")]
    Running(String),
    /// The server cannot bind the UDP port.
    #[error(
        "UDP port {port}: {error}; another program has it (sctpifyd, if it runs): name a different one with --udp-port"
    )]
    Udp {
        /// The port.
        port: u16,
        /// The kernel's error.
        error: io::Error,
    },
    /// The server cannot open a raw socket.
    #[error("IP protocol 132: {0}; it requires root (CAP_NET_RAW)")]
    Raw(io::Error),
    /// The kernel has SCTP, which would also answer packets.
    #[error("{0}")]
    KernelSctp(KernelSctp),
    /// A step without a separate variant failed.
    #[error("{what}: {error}")]
    Other {
        /// The step that failed.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Returns a function for `map_err` that adds the failed step to the kernel's error.
fn failed<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> StartError {
    move |error| StartError::Other { what, error: error.into() }
}

/// The server.
pub struct Server {
    engine: Endpoint,
    sockets: Sockets,
    ends: Ends,
    io: PacketIo,
    network: Network,
    listener: OwnedFd,
    connections: Slab<Connection>,
    /// Connections whose attempts have ended, each with the answer to send.
    due: Vec<(Connection, Reply)>,
    leases: usize,
    poll: Poll,
    ready: Events,
    start: Instant,
    room: Vec<u8>,
    idle_since: Option<Time>,
    looked_at: Time,
    ends_when_idle: bool,
    carriage: Carriage,
    closer: Closer,
    /// True if connections may wait to be accepted.
    has_connections: bool,
    /// True if the next turn must not wait, because connections wait to be accepted.
    is_accepting: bool,
    /// Number of connections accepted so far.
    accepted: u64,
    /// True if packets to an address of this host were sent since the last round of `settle`.
    has_sent_to_itself: bool,
    uid: u32,
}

/// Source of the kernel's addresses and routes.
struct Network {
    monitor: Monitor,
}

impl sockets::Network for Network {
    fn source_for(&mut self, remote: std::net::IpAddr) -> Option<std::net::IpAddr> {
        netio::source_address(remote)
    }
}

impl Server {
    /// Opens the server in the calling thread's network namespace.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open(options: &Options) -> Result<Server, StartError> {
        raise_descriptor_limit();
        let listener = pair::listen(&options.name).map_err(|error| match error {
            rustix::io::Errno::ADDRINUSE => StartError::Running(options.name.clone()),
            other => failed("the server's socket")(other),
        })?;
        let carriage = options.carriage;
        let udp = carriage
            .udp_port
            .map(|port| UdpCarrier::bind(port).map_err(|error| StartError::Udp { port, error }));
        let udp = udp.transpose()?;
        let raw = match carriage.over_ip {
            true => {
                if let Some(found) = netio::kernel_sctp() {
                    return Err(StartError::KernelSctp(found));
                }
                Some(RawCarrier::open().map_err(StartError::Raw)?)
            }
            false => None,
        };
        let none: &[&str] = &[];
        let monitor = Monitor::open(none).map_err(failed("changes of addresses"))?;
        let addresses = netio::addresses(none).map_err(failed("the addresses of this host"))?;
        let config = Config {
            over_udp: carriage.udp_port.is_some(),
            over_ip: carriage.over_ip,
            peer_udp_port: carriage.peer_udp_port,
            first_unprivileged_port: first_unprivileged_port(),
            ..Config::default()
        };
        let mut sockets = Sockets::new(config, rand::random());
        sockets.set_addresses(addresses.iter().map(|address| address.addr).collect());
        let mut io = PacketIo::new(Carriers::new(udp, raw), addresses);
        let poll = Poll::new().map_err(failed("epoll"))?;
        io.register(poll.registry(), Token(0)).map_err(failed("epoll"))?;
        let mut source = mio::unix::SourceFd(&listener.as_raw_fd());
        mio::event::Source::register(&mut source, poll.registry(), LISTENER, Interest::READABLE)
            .map_err(failed("epoll"))?;
        let limits = Limits { associations: ASSOCIATIONS_MAX, ..Limits::default() };
        let endpoint = EndpointConfig {
            association: sockets::association_defaults(),
            limits,
            ..EndpointConfig::default()
        };
        Ok(Server {
            engine: Endpoint::new(Time::ZERO, endpoint, rand::random()),
            sockets,
            ends: Ends::default(),
            io,
            network: Network { monitor },
            listener,
            connections: Slab::new(),
            due: Vec::new(),
            leases: 0,
            poll,
            ready: Events::with_capacity(1024),
            start: clock(),
            room: vec![0; sockproto::MESSAGE_MAX + sockproto::DATA_HEADER + sockproto::PEER_LENGTH],
            idle_since: None,
            looked_at: Time::ZERO,
            ends_when_idle: options.ends_when_idle,
            carriage,
            closer: Closer::default(),
            has_connections: false,
            is_accepting: false,
            accepted: 0,
            has_sent_to_itself: false,
            uid: rustix::process::geteuid().as_raw(),
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Serves programs. Returns when the server is idle, if [`Options::ends_when_idle`] is set.
    ///
    /// # Errors
    /// The errors of epoll_wait(2) and of receiving packets.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.is_over() {
            self.turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        self.transmit();
        self.wait()?;
        let now = self.now();
        self.receive(now)?;
        self.engine.handle_timeout(now);
        self.sockets.handle_timeout(now, &mut self.engine);
        self.serve(now);
        self.reply_to_due(now);
        self.end_overdue(now);
        self.look_at_addresses(now);
        Ok(())
    }

    /// Handles the engine's events, moves messages between programs and the engine, and sends packets.
    fn serve(&mut self, now: Time) {
        self.follow_events(now);
        self.pump(now);
        self.follow_events(now);
        self.transmit();
    }

    fn is_over(&mut self) -> bool {
        let is_used = self.leases > 0 || !self.sockets.is_empty() || !self.ends_when_idle;
        let now = self.now();
        if is_used {
            self.idle_since = None;
            return false;
        }
        now >= *self.idle_since.get_or_insert(now) + IDLE_LIMIT
    }

    fn wait(&mut self) -> io::Result<()> {
        let now = self.now();
        let until = self.engine.next_timeout().min(self.sockets.next_timeout()).min(now + ADDRESS_LOOK);
        let is_accepting = std::mem::take(&mut self.is_accepting);
        let is_busy = self.io.has_unread() || self.ends.has_work() || is_accepting;
        let wait = if is_busy { Duration::ZERO } else { until.since(now) };
        // epoll counts milliseconds. Rounding up avoids turns before a timer is due.
        let wait = Duration::from_millis(u64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(0));
        match self.poll.poll(&mut self.ready, Some(wait)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        let mut has_connections = std::mem::take(&mut self.has_connections);
        let mut asking = Vec::new();
        for event in &self.ready {
            match event.token() {
                LISTENER => has_connections = true,
                Token(number) if number < Carriers::TOKENS => self.io.note_ready(number),
                Token(number) if (number - OTHERS).is_multiple_of(2) => asking.push((number - OTHERS) / 2),
                Token(number) => self.ends.note(sockets::SocketKey((number - OTHERS) / 2), event),
            }
        }
        let now = self.now();
        // Requests are served before new connections are accepted, because a new connection may displace an older connection that
        // still has an unread request.
        for number in asking {
            self.serve_connection(now, number);
        }
        if has_connections {
            self.take_connections(now);
        }
        Ok(())
    }

    /// Passes packets of the ready carriers to the engine. Returns the number of packets.
    fn receive(&mut self, now: Time) -> io::Result<usize> {
        let sockets = &mut self.sockets;
        self.io.receive(now, &mut self.engine, |engine, route, ecn, packet| {
            engine.handle_datagram(now, route, ecn, packet, sockets);
        })
    }

    fn transmit(&mut self) {
        let now = self.now();
        self.has_sent_to_itself |= self.io.transmit(now, &mut self.engine).to_this_host;
    }

    /// Exchanges the packets of associations that have both ends on this host. Stops when no packets are left, or after [`ROUNDS`]
    /// rounds.
    pub(crate) fn settle(&mut self, now: Time) {
        for _ in 0..ROUNDS {
            self.serve(now);
            if !std::mem::take(&mut self.has_sent_to_itself) {
                return;
            }
            self.io.note_all_ready();
            // An error is ignored here. If the error persists, the next turn returns it.
            let _ = self.receive(now);
        }
    }

    /// Reads changes of the host's addresses at intervals of [`ADDRESS_LOOK`], because new associations use the current addresses.
    fn look_at_addresses(&mut self, now: Time) {
        if now >= self.looked_at + ADDRESS_LOOK {
            self.read_addresses(now);
        }
    }

    /// Reads the host's addresses, if they have changed. Also makes the server read from the paused sockets again.
    pub(crate) fn read_addresses(&mut self, now: Time) {
        self.looked_at = now;
        self.ends.readable.append(&mut self.ends.paused);
        let mut has_changed = false;
        // After an error of netlink, the server keeps the known addresses, and tries again after the next interval.
        let _ = self.network.monitor.poll(|_| has_changed = true);
        let none: &[&str] = &[];
        if has_changed && let Ok(addresses) = netio::addresses(none) {
            self.sockets.set_addresses(addresses.iter().map(|address| address.addr).collect());
            self.io.set_addresses(addresses);
        }
    }
}

/// Raises the process's limit on descriptors to the hard limit (`RLIMIT_NOFILE`), because each socket of a program needs one
/// descriptor.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // An error is ignored: the server then serves fewer sockets.
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

/// Returns the value of `net.ipv4.ip_unprivileged_port_start`, or 1024 if the value cannot be read.
fn first_unprivileged_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024)
}

/// Returns the time of the real clock, because this crate serves real programs.
#[allow(clippy::disallowed_methods, reason = "this crate talks to real programs")]
fn clock() -> Instant {
    Instant::now()
}
