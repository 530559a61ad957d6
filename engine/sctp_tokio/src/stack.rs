//! The stack: one engine with its UDP or raw sockets, on which the program opens listeners, streams and one-to-many sockets.

use std::net::IpAddr;
use std::sync::Arc;

use netio::{Carriers, Monitor, PacketIo, RawCarrier, SCTP_OVER_UDP_PORT, UdpCarrier};
use sctp::{AssociationConfig, Carrier, Endpoint, EndpointConfig, Time};
use tokio::net::ToSocketAddrs;

use crate::driver::Driver;
use crate::error::Error;
use crate::shared::{Shared, WaitsOn};
use crate::state::{State, check};
use crate::{SctpListener, SctpSocket, SctpStream};

/// Default limit on the associations that wait for acceptance at a listener ([`Stack::listen`]).
const BACKLOG: usize = 128;

/// Settings of a [`Stack`].
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// UDP port for SCTP in UDP (RFC 6951), 9899 by default. 0 selects any free port, and `None` turns UDP off. Only one program of a host
    /// can use a UDP port.
    pub udp_port: Option<u16>,
    /// True if SCTP is also carried over IP, protocol 132. False by default. SCTP over IP requires `CAP_NET_RAW`, and a kernel whose own
    /// SCTP is not loaded. A new association sends its INIT over all carriers at once, and then uses the carrier of the first answer.
    ///
    /// All programs of the host then share the SCTP port numbers. An abstract `AF_UNIX` name reserves each port against other programs that
    /// use this crate. Any local user can bind such a name, and thus prevent the use of the port.
    pub over_ip: bool,
    /// UDP port of peers, 9899 by default. [`ConnectOptions::peer_udp_port`] overrides this setting.
    pub peer_udp_port: u16,
    /// Addresses of this host that the stack uses and reports to peers. The list is empty by default. The stack then uses all addresses
    /// except loopback and link-local addresses. To a peer that is reached over loopback, the stack reports only the loopback address in
    /// use.
    pub addresses: Vec<IpAddr>,
    /// Settings of associations, and limits. Protection by keys ([`AssociationConfig::protection`]) is not supported. The stack ignores
    /// [`AssociationConfig::takes_late_messages`]: it always answers the peer's shutdown at once.
    pub engine: EndpointConfig,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for StackConfig {
    fn default() -> StackConfig {
        StackConfig {
            udp_port: Some(SCTP_OVER_UDP_PORT),
            over_ip: false,
            peer_udp_port: SCTP_OVER_UDP_PORT,
            addresses: Vec::new(),
            engine: EndpointConfig::default(),
            _non_exhaustive: (),
        }
    }
}

/// Settings of a connection attempt.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Local SCTP port. 0 selects any free port. The port may belong to a listener. If two hosts connect between the ports of their
    /// listeners at the same time, both attempts result in one association (RFC 9260 section 5.2.1).
    pub local_port: u16,
    /// UDP port of the peer. `None` selects the port of the stack's settings.
    pub peer_udp_port: Option<u16>,
    /// Settings of the association. `None` selects the stack's settings.
    pub association: Option<AssociationConfig>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The SCTP of a program: an engine and its sockets. A clone refers to the same stack.
///
/// The stack belongs to the network namespace of the thread that opens it. The threads of the runtime must be in the same namespace. A task
/// of the runtime serves the stack. The task ends after the program has dropped the stack and all its sockets, and their associations have
/// ended. If the runtime ends earlier, associations end without notice to their peers. [`wait_idle`](Self::wait_idle) prevents this.
#[derive(Clone)]
pub struct Stack {
    handle: Arc<Handle>,
}

/// Handle that all clones share. The drop of the handle marks the stack as dropped by the program.
struct Handle {
    shared: Arc<Shared>,
    udp_port: Option<u16>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(State::drop_stack);
    }
}

impl Stack {
    /// Opens the sockets, and starts the task that serves them.
    ///
    /// # Errors
    /// Returns [`Error::System`] if the UDP port is in use or privileges are missing. Returns [`Error::Settings`] if the stack does not
    /// support the settings.
    ///
    /// # Panics
    /// Panics outside a tokio runtime whose I/O and time are enabled.
    pub fn open(config: StackConfig) -> Result<Stack, Error> {
        let StackConfig { udp_port, over_ip, peer_udp_port, addresses, mut engine, .. } = config;
        check(&mut engine.association)?;
        if udp_port.is_none() && !over_ip {
            return Err(Error::Settings("neither UDP nor IP carries packets: set udp_port or over_ip"));
        }
        let udp = udp_port.map(UdpCarrier::bind).transpose().map_err(Error::system("the UDP port"))?;
        if over_ip && netio::kernel_sctp().is_some() {
            return Err(Error::Settings(
                "the kernel's own SCTP would answer over IP: unload it, or use UDP alone",
            ));
        }
        let raw = over_ip.then(RawCarrier::open).transpose().map_err(Error::system("IP protocol 132"))?;
        let none: &[&str] = &[];
        let monitor = Monitor::open(none).map_err(Error::system("changes of addresses"))?;
        let of_host = netio::addresses(none).map_err(Error::system("the addresses of this host"))?;
        let udp_port = udp.as_ref().map(UdpCarrier::port);
        let carriers =
            [udp_port.map(|_| Carrier::Udp { peer_port: peer_udp_port }), over_ip.then_some(Carrier::Ip)];
        let io = PacketIo::new(Carriers::new(udp, raw), of_host);
        let association = engine.association.clone();
        let engine = Endpoint::new(Time::ZERO, engine, rand::random());
        let state = State::new(
            (engine, association),
            io,
            monitor,
            addresses,
            carriers.into_iter().flatten().collect(),
        );
        let shared = Shared::new(state);
        let driver = Driver::new(&shared).map_err(Error::system("epoll"))?;
        tokio::spawn(driver.run());
        Ok(Stack { handle: Arc::new(Handle { shared, udp_port }) })
    }

    /// Listens on an SCTP port with a backlog of 128 associations. Port 0 selects any free port.
    ///
    /// # Errors
    /// Returns [`Error::PortInUse`] or [`Error::NoPort`], or the stack's error if it has ended.
    pub fn listen(&self, port: u16) -> Result<SctpListener, Error> {
        self.listen_with(port, BACKLOG)
    }

    /// Listens on an SCTP port with the given backlog. The backlog limits the associations that wait for acceptance. While the backlog is
    /// full, an INIT gets no answer, and the peer repeats the INIT. If many set-ups begin at the same time, up to twice `backlog`
    /// associations may wait. The listener aborts further associations.
    ///
    /// # Errors
    /// Returns [`Error::PortInUse`] or [`Error::NoPort`], or the stack's error if it has ended.
    pub fn listen_with(&self, port: u16, backlog: usize) -> Result<SctpListener, Error> {
        let port = self.shared().with(|state| state.listen(port, backlog))?;
        Ok(SctpListener::new(Arc::clone(self.shared()), port))
    }

    /// Connects to a peer. All addresses that `peer` gives or resolves to must belong to the same host. The set-up begins over all these
    /// addresses at once.
    ///
    /// # Errors
    /// Returns [`Error::Refused`] if no program listens on the port, and [`Error::Closed`] if the peer does not answer. Returns other
    /// errors if the attempt cannot begin.
    pub async fn connect(&self, peer: impl ToSocketAddrs) -> Result<SctpStream, Error> {
        self.connect_with(peer, &ConnectOptions::default()).await
    }

    /// Connects with the settings in `options`.
    ///
    /// # Errors
    /// Returns the errors of [`connect`](Self::connect).
    pub async fn connect_with(
        &self,
        peer: impl ToSocketAddrs,
        options: &ConnectOptions,
    ) -> Result<SctpStream, Error> {
        let peers = tokio::net::lookup_host(peer).await.map_err(Error::system("the peer's name"))?;
        let peers: Vec<_> = peers.collect();
        let id = self.shared().with(|state| state.connect(&peers, options, None))?;
        // A drop of this stream, for example on cancellation, ends the attempt.
        let stream = SctpStream::new(Arc::clone(self.shared()), id);
        stream.up().await?;
        Ok(stream)
    }

    /// Opens a one-to-many socket on an SCTP port. Port 0 selects any free port. The socket accepts associations.
    ///
    /// # Errors
    /// Returns [`Error::PortInUse`] or [`Error::NoPort`], or the stack's error if it has ended.
    pub fn bind(&self, port: u16) -> Result<SctpSocket, Error> {
        let port = self.shared().with(|state| state.bind(port))?;
        Ok(SctpSocket::new(Arc::clone(self.shared()), port))
    }

    /// Returns the UDP port of this stack, or `None` if UDP is off.
    pub fn udp_port(&self) -> Option<u16> {
        self.handle.udp_port
    }

    /// Waits until the stack has no association. At that time, dropped streams have delivered their data. Also returns if the stack has
    /// ended.
    pub async fn wait_idle(&self) {
        self.shared().wait(WaitsOn::Stack, |state, wait| state.poll_idle(wait)).await;
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("udp_port", &self.handle.udp_port).finish_non_exhaustive()
    }
}
