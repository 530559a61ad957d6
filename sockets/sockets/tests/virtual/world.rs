//! Two hosts on one link in virtual time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::{Carrier, Ecn, Route, Time};
use bytes::Bytes;
use sctp::{Endpoint, EndpointConfig};
use sockets::{Caller, Config, Delivery, Errno, Network, Output, Sent, SocketKey, Sockets};
use sockproto::abi::{SOL_SCTP, option};
use sockproto::{DataHeader, Kind, Peer, SockAddr};

pub(crate) const USER: Caller = Caller { uid: 1000, may_bind_low: false };
pub(crate) const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub(crate) const PORT: u16 = 5000;
pub(crate) const ALL_EVENTS: [u8; 14] = [1; 14];

pub(crate) struct Host {
    pub(crate) sockets: Sockets,
    pub(crate) engine: Endpoint,
    pub(crate) address: IpAddr,
    pub(crate) outputs: Vec<Output>,
}

/// Routes of a host with one address.
pub(crate) struct OneAddress(IpAddr);

impl Network for OneAddress {
    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr> {
        if remote.is_loopback() { Some(remote) } else { Some(self.0) }
    }
}

impl Host {
    pub(crate) fn new(address: Ipv4Addr) -> Host {
        let mut sockets = Sockets::new(Config::default(), 7);
        sockets.set_addresses(vec![address.into()]);
        let config =
            EndpointConfig { association: sockets::association_defaults(), ..EndpointConfig::default() };
        let engine = Endpoint::new(Time::ZERO, config, [address.octets()[3]; 32]);
        Host { sockets, engine, address: address.into(), outputs: Vec::new() }
    }

    pub(crate) fn socket(&mut self) -> SocketKey {
        self.sockets.open(libc::AF_INET, libc::SOCK_STREAM, USER).unwrap()
    }

    /// Opens a one-to-many socket that listens at this port.
    pub(crate) fn one_to_many(&mut self, port: u16) -> SocketKey {
        let key = self.sockets.open(libc::AF_INET, libc::SOCK_SEQPACKET, USER).unwrap();
        self.bind(key, Ipv4Addr::UNSPECIFIED, port).unwrap();
        self.sockets.listen(key, 5).unwrap();
        key
    }

    /// Sends a message from a one-to-many socket to an address.
    pub(crate) fn send_to(&mut self, now: Time, key: SocketKey, to: SockAddr, text: &'static [u8]) -> Sent {
        self.send_with(now, key, &DataHeader::new(Kind::Data), Some(to), text)
    }

    pub(crate) fn send_with(
        &mut self,
        now: Time,
        key: SocketKey,
        header: &DataHeader,
        to: Option<SockAddr>,
        text: &'static [u8],
    ) -> Sent {
        let peer = Peer { address: to, ..Peer::default() };
        self.send_any(now, key, (header, &peer), Bytes::from_static(text))
    }

    pub(crate) fn send_any(
        &mut self,
        now: Time,
        key: SocketKey,
        given: (&DataHeader, &Peer),
        message: Bytes,
    ) -> Sent {
        let mut network = OneAddress(self.address);
        self.sockets.send_to(now, &mut self.engine, key, given, message, &mut network)
    }

    pub(crate) fn bind(&mut self, key: SocketKey, address: Ipv4Addr, port: u16) -> Result<(), Errno> {
        self.sockets.bind(key, name(address, port).as_bytes(), USER)
    }

    pub(crate) fn listener(&mut self) -> SocketKey {
        let key = self.socket();
        self.bind(key, Ipv4Addr::UNSPECIFIED, PORT).unwrap();
        self.sockets.listen(key, 5).unwrap();
        key
    }

    pub(crate) fn connect(
        &mut self,
        now: Time,
        key: SocketKey,
        to: Ipv4Addr,
        port: u16,
    ) -> Result<i32, Errno> {
        let mut network = OneAddress(self.address);
        self.sockets.connect(now, &mut self.engine, key, name(to, port).as_bytes(), &mut network)
    }

    pub(crate) fn set(&mut self, key: SocketKey, option: i32, value: &[u8]) {
        self.sockets.set_option(Time::ZERO, &mut self.engine, key, (SOL_SCTP, option), value).unwrap();
    }

    pub(crate) fn get(&mut self, key: SocketKey, option: i32, length: usize) -> Result<Vec<u8>, Errno> {
        self.sockets.option(&self.engine, key, (SOL_SCTP, option), &vec![0; length])
    }

    pub(crate) fn error(&mut self, key: SocketKey) -> i32 {
        let value =
            self.sockets.option(&self.engine, key, (libc::SOL_SOCKET, libc::SO_ERROR), &[0; 4]).unwrap();
        i32::from_ne_bytes(value.try_into().unwrap())
    }

    pub(crate) fn send(&mut self, now: Time, key: SocketKey, text: &'static [u8]) -> Sent {
        self.sockets.send(now, &mut self.engine, key, &DataHeader::new(Kind::Data), Bytes::from_static(text))
    }

    /// Reads all deliveries. Returns each delivery as a text: user data, the type and state of a notification, an error, or the end
    /// of the association.
    pub(crate) fn read_all(&mut self, now: Time, key: SocketKey) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(next) = self.sockets.next(now, &mut self.engine, key) {
            let Delivery { header, bytes, .. } = next;
            all.push(match header.kind {
                Kind::Ended => "end".to_owned(),
                Kind::Failed => format!("error {}", header.context),
                Kind::Notification => {
                    assert_eq!(bytes.len(), usize::from(bytes[4]), "the length that it tells");
                    format!("{:02x}{:02x} state {}", bytes[1], bytes[0], bytes.get(8).unwrap())
                }
                _ => String::from_utf8(bytes.to_vec()).unwrap(),
            });
        }
        all
    }

    /// Reads all deliveries, and returns the sum of their lengths in bytes.
    pub(crate) fn read_bytes(&mut self, now: Time, key: SocketKey) -> usize {
        std::iter::from_fn(|| self.sockets.next(now, &mut self.engine, key))
            .map(|delivery| delivery.bytes.len())
            .sum()
    }

    pub(crate) fn accepted(&mut self) -> SocketKey {
        let found = self.outputs.iter().find_map(|output| match output {
            Output::Accepted { socket, .. } => Some(*socket),
            _ => None,
        });
        self.outputs.retain(|output| !matches!(output, Output::Accepted { .. }));
        found.expect("an association was accepted")
    }
}

pub(crate) fn name(address: Ipv4Addr, port: u16) -> SockAddr {
    SockAddr::of(SocketAddr::new(address.into(), port), false)
}

/// Limit on the exchanges of packets at one point in virtual time.
const ROUNDS_MAX: usize = 10_000;

/// Two hosts on one link without delay.
pub(crate) struct World {
    pub(crate) hosts: [Host; 2],
    pub(crate) now: Time,
}

impl World {
    pub(crate) fn new() -> World {
        World { hosts: [Host::new(A), Host::new(B)], now: Time::ZERO }
    }

    /// Lets the hosts exchange packets for this time.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let mut rounds = 0;
            while self.exchange() {
                rounds += 1;
                assert!(rounds < ROUNDS_MAX, "packets go to and fro without end");
            }
            let next_of = |host: &Host| host.engine.next_timeout().min(host.sockets.next_timeout());
            let next = self.hosts.iter().map(next_of).min().unwrap();
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            for host in &mut self.hosts {
                host.engine.handle_timeout(self.now);
                host.sockets.handle_timeout(self.now, &mut host.engine);
            }
        }
        self.now = end;
    }

    /// Moves one batch of packets and events. Returns true if a packet or an event was moved.
    pub(crate) fn exchange(&mut self) -> bool {
        let mut buffer = vec![0; 65_536];
        let mut has_moved = false;
        for from in [0, 1] {
            while let Some(sent) = self.hosts[from].engine.poll_transmit(self.now, &mut buffer) {
                has_moved = true;
                let to = usize::from(self.hosts[1].address == sent.route.remote);
                let route = Route {
                    local: sent.route.remote,
                    remote: sent.route.local,
                    carrier: Carrier::Udp { peer_port: 9899 },
                };
                let Host { engine, sockets, .. } = &mut self.hosts[to];
                for packet in buffer[..sent.len].chunks(sent.segment_size) {
                    engine.handle_datagram(self.now, &route, Ecn::default(), packet, sockets);
                }
            }
            let Host { engine, sockets, outputs, .. } = &mut self.hosts[from];
            while let Some((id, event)) = engine.poll_event() {
                has_moved = true;
                sockets.handle_event(self.now, engine, id, &event);
            }
            while let Some(output) = sockets.poll_output() {
                // The tests pass messages directly to `Sockets` without a socket pair, so no earlier message is still on its way.
                match output {
                    Output::SendingOver(key) => sockets.shut_down(self.now, engine, key),
                    Output::OneSendingOver { socket, association } => {
                        sockets.shut_down_one(self.now, engine, socket, association);
                    }
                    _ => {}
                }
                outputs.push(output);
            }
        }
        has_moved
    }

    /// Runs for half a second. This time suffices for every exchange that only waits for timers below half a second, such as the
    /// delay of a SACK.
    pub(crate) fn settle(&mut self) {
        self.run(Duration::from_millis(500));
    }

    /// Connects A to a listener of B. Returns both sockets.
    pub(crate) fn connected(&mut self, events: bool) -> (SocketKey, SocketKey) {
        let listener = self.hosts[1].listener();
        let client = self.hosts[0].socket();
        if events {
            self.hosts[1].set(listener, option::EVENTS, &ALL_EVENTS);
            self.hosts[0].set(client, option::EVENTS, &ALL_EVENTS);
        }
        self.hosts[0].connect(self.now, client, B, PORT).unwrap();
        self.settle();
        assert_eq!(self.hosts[0].error(client), 0);
        (client, self.hosts[1].accepted())
    }

    pub(crate) fn read(&mut self, host: usize, key: SocketKey) -> Vec<String> {
        self.hosts[host].read_all(self.now, key)
    }
}
