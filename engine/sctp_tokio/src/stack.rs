//! The stack: one engine with its UDP or raw sockets, on which listeners and streams are opened.

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

/// Associations that wait to be accepted, unless [`Stack::listen_with`] says otherwise.
const BACKLOG: usize = 128;

/// Settings of a [`Stack`].
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// UDP port for SCTP in UDP (RFC 6951); 0: any that is free; `None`: no UDP. By default 9899. Only one program of a host has a port.
    pub udp_port: Option<u16>,
    /// Carry SCTP over IP as well, protocol 132. Requires `CAP_NET_RAW`, and a kernel whose own SCTP is not loaded. New associations ask
    /// by all carriers at once, and the first answer decides.
    ///
    /// Ports are then those of the host: an abstract `AF_UNIX` name for each keeps other programs of this crate from it. Any local user can
    /// take such a name, and so the port.
    pub over_ip: bool,
    /// UDP port of peers, unless [`ConnectOptions::peer_udp_port`] says otherwise. By default 9899.
    pub peer_udp_port: u16,
    /// Addresses of this host to use and to tell peers of. By default none: all that are neither of loopback nor link-local. A peer on this
    /// host is told of the address of loopback that it uses.
    pub addresses: Vec<IpAddr>,
    /// Settings of associations, and limits. Protection by keys ([`AssociationConfig::protection`]) is not supported. An association is
    /// shut down as soon as the peer shuts it down, whatever [`AssociationConfig::takes_late_messages`] says.
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
    /// Our SCTP port; 0: any that is free. That of a listener is allowed, so that both directions use one association.
    pub local_port: u16,
    /// UDP port of the peer; `None`: that of the stack's settings.
    pub peer_udp_port: Option<u16>,
    /// Settings of the association; `None`: those of the stack.
    pub association: Option<AssociationConfig>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The SCTP of a program: an engine and its sockets. Clones are the same stack.
///
/// It belongs to the network namespace of the thread that opens it, in which the threads of the runtime must be as well. A task of the
/// runtime serves it, which ends after the stack and all that was opened on it have been dropped and their associations are over. If the
/// runtime ends before, associations end without a word; see [`wait_idle`](Self::wait_idle).
#[derive(Clone)]
pub struct Stack {
    handle: Arc<Handle>,
}

/// Notes the last clone's end.
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
    /// [`Error::System`] if the UDP port is in use or rights are missing; [`Error::Settings`].
    ///
    /// # Panics
    /// Outside a tokio runtime whose I/O and time are enabled.
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

    /// Listens on an SCTP port, 0 for any that is free, with a backlog of 128 associations.
    ///
    /// # Errors
    /// [`Error::PortInUse`], [`Error::NoPort`].
    pub fn listen(&self, port: u16) -> Result<SctpListener, Error> {
        self.listen_with(port, BACKLOG)
    }

    /// Listens with another backlog: associations that wait to be accepted. Further ones get no answer, and try again. Of a burst
    /// that came at once, twice as many wait, and the rest are refused.
    ///
    /// # Errors
    /// [`Error::PortInUse`], [`Error::NoPort`].
    pub fn listen_with(&self, port: u16, backlog: usize) -> Result<SctpListener, Error> {
        let port = self.shared().with(|state| state.listen(port, backlog))?;
        Ok(SctpListener::new(Arc::clone(self.shared()), port))
    }

    /// Connects to a peer. All addresses that are given, or that its name has, are taken for the same host's; the set-up begins by all of
    /// them at once.
    ///
    /// # Errors
    /// [`Error::Refused`] if nobody listens on the port; [`Error::Closed`] if the peer does not answer; and others.
    pub async fn connect(&self, peer: impl ToSocketAddrs) -> Result<SctpStream, Error> {
        self.connect_with(peer, &ConnectOptions::default()).await
    }

    /// Connects with settings of its own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_with(
        &self,
        peer: impl ToSocketAddrs,
        options: &ConnectOptions,
    ) -> Result<SctpStream, Error> {
        let peers = tokio::net::lookup_host(peer).await.map_err(Error::system("the peer's name"))?;
        let peers: Vec<_> = peers.collect();
        let id = self.shared().with(|state| state.connect(&peers, options, None))?;
        // If this is dropped, so is the attempt.
        let stream = SctpStream::new(Arc::clone(self.shared()), id);
        stream.up().await?;
        Ok(stream)
    }

    /// Opens a one-to-many socket on an SCTP port, 0 for any that is free. It accepts associations.
    ///
    /// # Errors
    /// [`Error::PortInUse`], [`Error::NoPort`].
    pub fn bind(&self, port: u16) -> Result<SctpSocket, Error> {
        let port = self.shared().with(|state| state.bind(port))?;
        Ok(SctpSocket::new(Arc::clone(self.shared()), port))
    }

    /// Returns the UDP port of this stack; `None`: it has none.
    pub fn udp_port(&self) -> Option<u16> {
        self.handle.udp_port
    }

    /// Waits until there is no association: streams that were dropped have delivered their data.
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
