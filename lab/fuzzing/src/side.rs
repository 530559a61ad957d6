//! One engine with its addresses, and a minimal driver for it.
//!
//! The driver checks these invariants at every step:
//!
//! - The engine's packets can be parsed, and fit the MTU.
//! - After a call of [`Side::tick`], all timers are in the future.
//! - The engine's internal counts are correct.
//! - The engine sends a bounded number of packets in response to one input.
//!
//! Begin at [`Side::settle`].

use std::net::{IpAddr, Ipv4Addr};

use base::{Carrier, Ecn, Route, Time};
use sctp::{
    AssociationConfig, AssociationId, Connect, Endpoint, EndpointConfig, Event, Extension, Extensions,
    IncomingInit, InitDecision, Listener, Multipath, PathScheduler, ReconfigPolicy, Scheduler,
    StreamDirection, StreamId,
};
use wire::{ChecksumMode, Packet};

use crate::input::Input;

/// Maximum number of packets that the engine may send after one input.
const PACKETS_MAX: usize = 4000;

/// Maximum length of the engine's packets, in bytes: an MTU of 1,500 minus an IPv4 header.
const PACKET_MAX: usize = 1480;

/// Ports of the side that opens, and of the side that listens.
pub(crate) const PORTS: (u16, u16) = (40_000, 7);

pub(crate) const SCHEDULERS: [Scheduler; 6] = [
    Scheduler::FirstCome,
    Scheduler::RoundRobin,
    Scheduler::RoundRobinPerPacket,
    Scheduler::Priority,
    Scheduler::FairBandwidth,
    Scheduler::WeightedFair,
];

/// Multipath modes: data on one path, or on all paths with each of the path schedulers.
pub(crate) const MULTIPATHS: [Multipath; 4] = [
    Multipath::Off,
    Multipath::Concurrent { scheduler: PathScheduler::LowestRtt },
    Multipath::Concurrent { scheduler: PathScheduler::Weighted },
    Multipath::Concurrent { scheduler: PathScheduler::Redundant },
];

const EXTENSIONS: [Extension; 5] = [
    Extension::PartialReliability,
    Extension::Interleaving,
    Extension::Auth,
    Extension::AddressReconfiguration,
    Extension::StreamReconfiguration,
];

/// Policy that fulfils all of the peer's requests, up to 100 streams in each direction.
pub(crate) const WILLING: ReconfigPolicy = ReconfigPolicy {
    reset_streams: true,
    reset_association: true,
    add_streams: true,
    outbound_streams_max: 100,
    inbound_streams_max: 100,
    ..ReconfigPolicy::NONE
};

/// Requests a reset of streams, more streams, or a reset of the association.
pub(crate) fn reconfigure(endpoint: &mut Endpoint, now: Time, id: AssociationId, choice: u8) {
    let streams = [StreamId(u16::from(choice >> 3 & 3)), StreamId(u16::from(choice >> 5))];
    let streams = if choice & 4 == 0 { &streams[..1] } else { &streams[..] };
    // The engine may refuse the request. The list may contain the same stream twice.
    _ = match choice & 3 {
        0 => endpoint.reset_streams(now, id, StreamDirection::Outgoing, streams),
        1 => endpoint.reset_streams(now, id, StreamDirection::Incoming, streams),
        2 => endpoint.reset_association(now, id),
        _ => endpoint.add_streams(now, id, u16::from(choice >> 3 & 3), u16::from(choice >> 5)),
    };
}

/// An engine with its output.
pub(crate) struct Side {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: IpAddr,
    /// All addresses that the engine offers to its peer; the first one is `address`.
    pub(crate) addresses: Vec<IpAddr>,
    /// Events of the last call of [`settle`](Self::settle).
    pub(crate) events: Vec<(AssociationId, Event)>,
    /// Packets waiting for delivery.
    pub(crate) sent: Vec<(Route, Vec<u8>)>,
    /// True if incoming associations are accepted automatically.
    pub(crate) accepts: bool,
}

struct Anybody<'a>(&'a [IpAddr]);

impl Listener for Anybody<'_> {
    fn on_init(&mut self, _: &IncomingInit) -> InitDecision {
        InitDecision::Accept { local_addresses: self.0.to_vec() }
    }
}

/// Returns the settings that both ends of an association share.
pub(crate) fn config(input: &mut Input<'_>) -> AssociationConfig {
    AssociationConfig {
        extensions: extensions(input.byte()),
        scheduler: input.pick(&SCHEDULERS),
        send_buffer: 100_000,
        receive_buffer: input.pick(&[100_000, 10_000, 3000]),
        inbound_streams: 64,
        outbound_streams: input.pick(&[16, 64, 1]),
        multipath: input.pick(&MULTIPATHS),
        reconfig: WILLING,
        ..AssociationConfig::default()
    }
}

/// Returns the extensions whose bits are set in `byte`.
pub(crate) fn extensions(byte: u8) -> Extensions {
    EXTENSIONS.into_iter().enumerate().filter(|(n, _)| byte >> n & 1 == 1).map(|(_, e)| e).collect()
}

pub(crate) fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 1, last).into()
}

impl Side {
    pub(crate) fn new(last: u8, association: &AssociationConfig) -> Side {
        let config = EndpointConfig { association: association.clone(), ..EndpointConfig::default() };
        Side {
            endpoint: Endpoint::new(Time::ZERO, config, [last; 32]),
            address: address(last),
            addresses: vec![address(last)],
            events: Vec::new(),
            sent: Vec::new(),
            accepts: true,
        }
    }

    pub(crate) fn connect(&mut self, now: Time, to: IpAddr, config: &AssociationConfig) -> AssociationId {
        let connect = Connect {
            local_port: PORTS.0,
            remote_port: PORTS.1,
            init_routes: vec![Route { local: self.address, remote: to, carrier: Carrier::Ip }],
            local_addresses: self.addresses.clone(),
            config: config.clone(),
        };
        self.endpoint.connect(now, connect).expect("the first association")
    }

    /// Delivers a packet. `route` is the route from the sender's view: the local address of `route` is the
    /// sender's address.
    pub(crate) fn arrive(&mut self, now: Time, route: Route, packet: &[u8]) {
        let route = Route { local: route.remote, remote: route.local, carrier: route.carrier };
        let mut listener = Anybody(&self.addresses);
        self.endpoint.handle_datagram(now, &route, Ecn::NotEct, packet, &mut listener);
        self.settle(now);
    }

    /// Handles all timers that are due at `now`.
    pub(crate) fn tick(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        assert!(self.endpoint.next_timeout() > now, "a timer stays in the past");
        self.settle(now);
    }

    /// Collects the engine's events and packets, and checks them.
    pub(crate) fn settle(&mut self, now: Time) {
        self.events.clear();
        let mut packets = 0;
        let mut buf = [0; 1 << 16];
        loop {
            while let Some((id, event)) = self.endpoint.poll_event() {
                if self.accepts && matches!(event, Event::Incoming { .. }) {
                    self.endpoint.accept(now, id);
                }
                self.events.push((id, event));
            }
            let Some(train) = self.endpoint.poll_transmit(now, &mut buf) else { break };
            for packet in buf[..train.len].chunks(train.segment_size) {
                packets += 1;
                assert!(packets <= PACKETS_MAX, "packets without end");
                check_packet(packet);
                self.sent.push((train.route, packet.to_vec()));
            }
        }
        self.endpoint.check_invariants();
    }
}

fn check_packet(bytes: &[u8]) {
    assert!(bytes.len() <= PACKET_MAX, "a packet of {} bytes", bytes.len());
    let packet = Packet::parse(bytes, ChecksumMode::AcceptZero).expect("a packet of ours can be read");
    for chunk in packet.chunks() {
        chunk.expect("a chunk of ours can be read");
    }
}
