//! Two endpoints, joined by a link in virtual time. Benchmarks use the pair to count instructions, allocations and
//! bytes of memory.
//!
//! The link has a delay and no capacity limit. It reuses its packet buffers, so in steady state the link allocates
//! nothing. The random seeds of the endpoints are fixed, so all runs give the same counts. Begin at
//! [`Pair::connected`].

#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use sctp::{
    AssociationConfig, AssociationId, Bytes, Carrier, Connect, Ecn, Endpoint, EndpointConfig, Event,
    IncomingInit, InitDecision, Limits, Listener, Ppid, Route, SendError, SendOptions, StreamId, Time,
};

/// One-way delay of the link.
const DELAY: Duration = Duration::from_micros(25);

/// Virtual time between two polls of the hosts.
const STEP: Duration = Duration::from_micros(5);

/// Size of a transmit buffer, in bytes.
const TRAIN_LEN: usize = 65_536;

/// Number of buffers that a link begins with. Fewer trains than this are in transit at any time.
const SPARE: usize = 64;

/// SCTP ports of the host that connects and of the host that accepts.
const PORTS: (u16, u16) = (5000, 7);

/// A train of packets in transit.
struct Train {
    at: Time,
    route: Route,
    segment_size: usize,
    len: usize,
    buf: Vec<u8>,
}

/// One direction of the link.
struct Link {
    trains: VecDeque<Train>,
    /// Buffers free for the next trains.
    spare: Vec<Vec<u8>>,
}

impl Link {
    fn new() -> Link {
        Link { trains: VecDeque::with_capacity(SPARE), spare: vec![vec![0; TRAIN_LEN]; SPARE] }
    }
}

/// Accepts every association, with all of the host's addresses.
struct AcceptAll(Vec<IpAddr>);

impl Listener for AcceptAll {
    fn on_init(&mut self, _: &IncomingInit) -> InitDecision {
        InitDecision::Accept { local_addresses: self.0.clone() }
    }
}

/// An endpoint and the counters of its program.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    listener: AcceptAll,
    to_peer: Link,
    /// Association that was established last.
    pub(crate) id: Option<AssociationId>,
    /// Number of established associations.
    pub(crate) established: u64,
    /// Number of ended associations.
    pub(crate) closed: u64,
    /// Number of messages read.
    pub(crate) messages: u64,
    /// Number of user bytes read.
    pub(crate) bytes: u64,
}

impl Host {
    fn new(seed: u8, addresses: Vec<IpAddr>) -> Host {
        // The memory limits must not affect the measurement.
        let limits = Limits { memory: usize::MAX, memory_of_host: usize::MAX, ..Limits::default() };
        let config = EndpointConfig { association: settings(), limits, ..EndpointConfig::default() };
        Host {
            endpoint: Endpoint::new(Time::ZERO, config, [seed; 32]),
            listener: AcceptAll(addresses),
            to_peer: Link::new(),
            id: None,
            established: 0,
            closed: 0,
            messages: 0,
            bytes: 0,
        }
    }

    fn drain_events(&mut self, now: Time) {
        while let Some((id, event)) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { .. } => self.endpoint.accept(now, id),
                Event::Established { .. } => {
                    self.id = Some(id);
                    self.established += 1;
                }
                Event::Readable => self.read(now, id),
                Event::Closed(reason) => {
                    assert_eq!(reason, sctp::CloseReason::Graceful);
                    self.closed += 1;
                    self.endpoint.release(now, id);
                }
                _ => {}
            }
        }
    }

    fn read(&mut self, now: Time, id: AssociationId) {
        while let Some(message) = self.endpoint.recv(now, id) {
            self.messages += 1;
            self.bytes += message.len() as u64;
        }
    }

    /// Handles expired timers, then sends all packets that the endpoint has.
    fn work(&mut self, now: Time) {
        if self.endpoint.next_timeout() <= now {
            self.endpoint.handle_timeout(now);
        }
        self.drain_events(now);
        loop {
            let mut buf = self.to_peer.spare.pop().unwrap_or_else(|| vec![0; TRAIN_LEN]);
            let Some(transmit) = self.endpoint.poll_transmit(now, &mut buf) else {
                return self.to_peer.spare.push(buf);
            };
            let route =
                Route { local: transmit.route.remote, remote: transmit.route.local, ..transmit.route };
            let (segment_size, len) = (transmit.segment_size, transmit.len);
            self.to_peer.trains.push_back(Train { at: now + DELAY, route, segment_size, len, buf });
        }
    }

    fn take_from(&mut self, link: &mut Link, now: Time) {
        while link.trains.front().is_some_and(|t| t.at <= now) {
            let Some(train) = link.trains.pop_front() else { break };
            for packet in train.buf[..train.len].chunks(train.segment_size) {
                self.endpoint.handle_datagram(now, &train.route, Ecn::NotEct, packet, &mut self.listener);
            }
            link.spare.push(train.buf);
            self.drain_events(now);
        }
    }

    /// Sends `message` again and again until the send buffer is full.
    pub(crate) fn fill(&mut self, now: Time, message: &Bytes) {
        let Some(id) = self.id else { return };
        while self.send(now, id, message.clone()) {}
    }

    /// Sends one message. Returns false if the send buffer is full.
    pub(crate) fn send(&mut self, now: Time, id: AssociationId, message: Bytes) -> bool {
        match self.endpoint.send(now, id, StreamId(0), Ppid(0), message, SendOptions::default()) {
            Ok(()) => true,
            Err(SendError::WouldBlock) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

fn settings() -> AssociationConfig {
    // The buffers have their full size from the start, because their growth is not measured.
    let full = AssociationConfig::default();
    AssociationConfig { buffer_start: full.send_buffer.max(full.receive_buffer), ..full }
}

/// Two hosts and the link between them.
pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) a: Host,
    pub(crate) b: Host,
}

impl Pair {
    /// Creates two hosts that have `addresses` addresses each.
    pub(crate) fn new(addresses: u8) -> Pair {
        let of = |host: u8| (0..addresses).map(|n| [10, 0, n, host].into()).collect();
        Pair { now: Time::ZERO, a: Host::new(1, of(1)), b: Host::new(2, of(2)) }
    }

    /// Creates two hosts of one address each, with an association between them.
    pub(crate) fn connected() -> Pair {
        let mut pair = Pair::new(1);
        pair.connect();
        pair
    }

    /// Sets up an association from `a` to `b` and waits until it is established at both ends.
    pub(crate) fn connect(&mut self) -> AssociationId {
        self.connect_from(PORTS.0)
    }

    /// Sets up an association like [`Pair::connect`], but from port `local_port` of `a`.
    pub(crate) fn connect_from(&mut self, local_port: u16) -> AssociationId {
        let (a, b) = (self.a.listener.0.clone(), self.b.listener.0[0]);
        let route = Route { local: a[0], remote: b, carrier: Carrier::Udp { peer_port: 9899 } };
        let connect = Connect {
            local_port,
            remote_port: PORTS.1,
            init_routes: vec![route],
            local_addresses: a,
            config: settings(),
        };
        let (up_a, up_b) = (self.a.established, self.b.established);
        let id = self.a.endpoint.connect(self.now, connect).expect("room for an association");
        self.run_until(|p| p.a.established > up_a && p.b.established > up_b);
        id
    }

    /// Shuts down an association of `a` and waits until both ends have released it.
    pub(crate) fn disconnect(&mut self, id: AssociationId) {
        let (a, b) = (self.a.closed, self.b.closed);
        self.a.endpoint.shutdown(self.now, id);
        self.run_until(|p| p.a.closed > a && p.b.closed > b);
    }

    /// Advances the time by one `STEP`, then lets both hosts receive and send.
    pub(crate) fn step(&mut self) {
        self.now += STEP;
        self.a.take_from(&mut self.b.to_peer, self.now);
        self.b.take_from(&mut self.a.to_peer, self.now);
        self.a.work(self.now);
        self.b.work(self.now);
    }

    /// Advances the time to one `STEP` before the next arrival, the next timer or `until`, whichever is first.
    fn skip(&mut self, until: Time) {
        let hosts = [&self.a, &self.b];
        let arrivals = hosts.iter().filter_map(|h| h.to_peer.trains.front()).map(|train| train.at);
        let next = hosts.iter().map(|h| h.endpoint.next_timeout()).chain(arrivals).min();
        let next = next.unwrap_or(until).min(until).as_nanos().saturating_sub(STEP.as_nanos() as u64);
        self.now = self.now.max(Time::from_nanos(next));
    }

    /// Runs both hosts, without new messages, until `done` is true.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Pair) -> bool) {
        let limit = self.now + Duration::from_secs(600);
        self.step();
        while !done(self) {
            assert!(self.now < limit, "it never comes to that");
            self.skip(limit);
            self.step();
        }
    }

    /// Sends from `a` until `b` has read `count` more messages.
    pub(crate) fn bulk(&mut self, message: &Bytes, count: u64) {
        let until = self.b.messages + count;
        while self.b.messages < until {
            self.a.fill(self.now, message);
            self.step();
        }
    }

    /// Sends in both directions until each host has read `count` more messages.
    pub(crate) fn bulk_both_ways(&mut self, message: &Bytes, count: u64) {
        let until = (self.a.messages + count, self.b.messages + count);
        while self.a.messages < until.0 || self.b.messages < until.1 {
            self.a.fill(self.now, message);
            self.b.fill(self.now, message);
            self.step();
        }
    }

    /// Sends a message from `a` to `b`, then one back, `count` times.
    pub(crate) fn ping_pong(&mut self, message: &Bytes, count: u64) {
        let (Some(a), Some(b)) = (self.a.id, self.b.id) else { return };
        for _ in 0..count {
            let (pings, pongs) = (self.b.messages, self.a.messages);
            self.a.send(self.now, a, message.clone());
            self.run_until(|p| p.b.messages > pings);
            self.b.send(self.now, b, message.clone());
            self.run_until(|p| p.a.messages > pongs);
        }
    }

    /// Runs both hosts for `while_`, without new messages. The time jumps to each next arrival or timer.
    pub(crate) fn rest(&mut self, while_: Duration) {
        let until = self.now + while_;
        while self.now < until {
            self.skip(until);
            self.step();
        }
    }
}
