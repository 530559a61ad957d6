//! Driver of the other examples: runs the engine over UDP sockets (RFC 6951). The driver has one socket for each local
//! address. Its sockets and threads come from the standard library.
//!
//! The engine itself needs no sockets and no threads. Each socket of this driver has a thread, which only receives. One
//! loop passes packets and the time to the engine, sends the engine's packets, and returns its events. Begin with
//! [`Driver::turn`].

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use sctp::{
    AssociationConfig, AssociationId, Carrier, Connect, Ecn, Endpoint, EndpointConfig, Event, IncomingInit,
    InitDecision, Listener, Route, Time,
};

/// UDP port of both ends (RFC 6951).
pub(crate) const UDP_PORT: u16 = 9899;

/// Maximum wait for a packet. The caller can do other work after this time.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A received packet and its route.
struct Arrival {
    route: Route,
    packet: Vec<u8>,
}

/// Accepts all associations, with all of the host's addresses.
struct AcceptAll(Vec<IpAddr>);

impl Listener for AcceptAll {
    fn on_init(&mut self, _: &IncomingInit) -> InitDecision {
        InitDecision::Accept { local_addresses: self.0.clone() }
    }
}

/// An endpoint and its sockets.
pub(crate) struct Driver {
    pub(crate) endpoint: Endpoint,
    config: AssociationConfig,
    sockets: HashMap<IpAddr, Arc<UdpSocket>>,
    arrivals: Receiver<Arrival>,
    listener: AcceptAll,
    /// Local addresses whose packets are dropped in both directions, to simulate a failed path.
    pub(crate) cut: Vec<IpAddr>,
    began: Instant,
    buf: Vec<u8>,
}

impl Driver {
    /// Binds a socket to each of `addresses`. All associations have the settings of `config`.
    #[allow(clippy::disallowed_methods, reason = "the driver is the program that reads the clock")]
    pub(crate) fn bind(addresses: &[IpAddr], config: AssociationConfig) -> Result<Driver, Box<dyn Error>> {
        let (to_driver, arrivals) = mpsc::channel();
        let mut sockets = HashMap::new();
        for &local in addresses {
            let socket = Arc::new(UdpSocket::bind((local, UDP_PORT))?);
            sockets.insert(local, Arc::clone(&socket));
            let to_driver = to_driver.clone();
            thread::spawn(move || {
                let mut buf = vec![0; 65_536];
                // `recv_from` also reports ICMP errors about earlier packets. The loop continues after such an error.
                loop {
                    let Ok((len, from)) = socket.recv_from(&mut buf) else { continue };
                    let carrier = Carrier::Udp { peer_port: from.port() };
                    let route = Route { local, remote: from.ip(), carrier };
                    if to_driver.send(Arrival { route, packet: buf[..len].to_vec() }).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Driver {
            endpoint: Endpoint::new(
                Time::ZERO,
                EndpointConfig { association: config.clone(), ..EndpointConfig::default() },
                rand::random(),
            ),
            config,
            sockets,
            arrivals,
            listener: AcceptAll(addresses.to_vec()),
            cut: Vec::new(),
            began: Instant::now(),
            buf: vec![0; 65_536],
        })
    }

    /// Returns the time since the start of the driver, as the engine's [`Time`].
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Begins an association with SCTP port `port` of `remote`.
    pub(crate) fn connect(&mut self, remote: IpAddr, port: u16) -> Result<AssociationId, Box<dyn Error>> {
        let carrier = Carrier::Udp { peer_port: UDP_PORT };
        let of_family = |local: &&IpAddr| local.is_ipv4() == remote.is_ipv4();
        let local = self.listener.0.iter().find(of_family).ok_or("no local address of the peer's family")?;
        let connect = Connect {
            local_port: rand::random_range(32_768..61_000),
            remote_port: port,
            init_routes: vec![Route { local: *local, remote, carrier }],
            local_addresses: self.listener.0.clone(),
            config: self.config.clone(),
        };
        Ok(self.endpoint.connect(self.now(), connect)?)
    }

    /// Sends due packets, waits for a packet or a timer, and returns the events. The caller repeats this call in a
    /// loop.
    pub(crate) fn turn(&mut self) -> Vec<(AssociationId, Event)> {
        self.send_all();
        let due = self.endpoint.next_timeout().since(self.now());
        let mut arrival = self.arrivals.recv_timeout(due.min(WAIT_MAX)).ok();
        while let Some(Arrival { route, packet }) = arrival {
            if !self.cut.contains(&route.local) {
                let now = self.now();
                self.endpoint.handle_datagram(now, &route, Ecn::NotEct, &packet, &mut self.listener);
            }
            arrival = self.arrivals.try_recv().ok();
        }
        self.endpoint.handle_timeout(self.now());
        self.send_all();
        std::iter::from_fn(|| self.endpoint.poll_event()).collect()
    }

    fn send_all(&mut self) {
        let now = self.now();
        while let Some(train) = self.endpoint.poll_transmit(now, &mut self.buf) {
            let Route { local, remote, carrier: Carrier::Udp { peer_port } } = train.route else { continue };
            let Some(socket) = self.sockets.get(&local).filter(|_| !self.cut.contains(&local)) else {
                continue;
            };
            for packet in self.buf[..train.len].chunks(train.segment_size) {
                // A packet that cannot be sent counts as lost. The engine retransmits its data.
                let _ = socket.send_to(packet, SocketAddr::new(remote, peer_port));
            }
        }
    }
}
