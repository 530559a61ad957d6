//! The SCTP engine with its sockets. It is independent of SIP.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use base::{Carrier, Route, Time};
use mio::{Registry, Token};
use netio::{Carriers, PacketIo, RawCarrier, UdpCarrier};
use sctp::{
    AddressProof, AssociationConfig, CongestionAlgorithm, Endpoint, EndpointConfig, IncomingInit,
    InitDecision, Listener, Multipath, PathScheduler, ProtectionConfig, Timing,
};

use crate::config::{SctpCarrier, SctpConfig, SctpCongestion};

/// Initial congestion window in packets, as in TCP (RFC 6928).
const INITIAL_PACKETS: u8 = 10;
/// Delay of the next attempt to send if a send buffer was full. The poll may report room earlier.
const RETRY: Duration = Duration::from_millis(1);

/// The engine and its sockets.
pub(super) struct SctpHost {
    pub(super) engine: Endpoint,
    io: PacketIo,
    door: Door,
    /// Time of the next attempt to send the packets for which a send buffer had no room.
    retry: Time,
}

/// Filter that admits INITs and other packets to the listener's port and addresses.
struct Door {
    port: u16,
    addresses: Vec<IpAddr>,
}

impl Door {
    /// Reports whether this program may answer a packet, even with ABORT.
    ///
    /// Over UDP, all packets belong to this program, because it owns the UDP port. Over IP, every SCTP program on this host receives every
    /// packet. Packets for other ports are ignored, because an ABORT would end the associations of other programs. RFC 9260 section 8.4
    /// assumes a host with only one SCTP stack. All associations of this program use the listener's port.
    fn is_ours(&self, route: &Route, packet: &[u8]) -> bool {
        let is_our_port = packet.get(2..4).is_some_and(|port| port == self.port.to_be_bytes());
        !matches!(route.carrier, Carrier::Ip) || (is_our_port && self.addresses.contains(&route.local))
    }
}

impl Listener for Door {
    fn on_init(&mut self, init: &IncomingInit) -> InitDecision {
        if self.port == init.local_port && self.addresses.contains(&init.route.local) {
            InitDecision::Accept { local_addresses: self.addresses.clone() }
        } else {
            InitDecision::Refuse
        }
    }
}

/// Returns the settings of associations. SIP messages are rare and must not wait. If another path is active, a path with data in flight is
/// therefore doubted after about two round trips of silence. A silent path fails after a few timeouts. An idle path is probed about every
/// five seconds. RFC 9260 section 16 lets applications change such values.
pub(super) fn association_config(config: &SctpConfig) -> AssociationConfig {
    AssociationConfig {
        timing: Timing {
            rto_initial: Duration::from_millis(500),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(5),
            sack_delay: Duration::from_millis(20),
            heartbeat_interval: Duration::from_secs(5),
            path_max_retrans: 3,
            doubts_silence: true,
            ..Timing::default()
        },
        outbound_streams: config.streams,
        congestion: match config.congestion {
            SctpCongestion::Cubic => CongestionAlgorithm::Cubic,
            SctpCongestion::LossTolerant => CongestionAlgorithm::LossTolerant,
        },
        // After the handshake, messages go to another address of the peer only after an answer from this very address.
        address_proof: AddressProof::ConfirmedPath,
        multipath: match config.multipath {
            rules::Multipath::Off => Multipath::Off,
            rules::Multipath::LowestRtt => Multipath::Concurrent { scheduler: PathScheduler::LowestRtt },
            rules::Multipath::Weighted => Multipath::Concurrent { scheduler: PathScheduler::Weighted },
            rules::Multipath::Redundant => Multipath::Concurrent { scheduler: PathScheduler::Redundant },
        },
        initial_packets: INITIAL_PACKETS,
        ..AssociationConfig::default()
    }
}

impl SctpHost {
    /// Opens the carrier, and accepts associations at `port` of these addresses. `protection` is the offer to all peers.
    pub(super) fn open(
        config: &SctpConfig,
        port: u16,
        addresses: Vec<IpAddr>,
        registry: &Registry,
        first: Token,
        protection: Option<ProtectionConfig>,
    ) -> io::Result<SctpHost> {
        let (mut udp, mut raw) = (None, None);
        match config.carrier {
            SctpCarrier::Udp => udp = Some(UdpCarrier::bind(config.udp_port)?),
            SctpCarrier::Ip => raw = Some(RawCarrier::open()?),
        }
        let mut carriers = Carriers::new(udp, raw);
        let has = |is_v4: bool| addresses.iter().any(|address| address.is_ipv4() == is_v4);
        carriers.keep_families(has(true), has(false));
        let mut io = PacketIo::new(carriers, netio::addresses(&[] as &[&str])?);
        io.register(registry, first)?;
        let association = AssociationConfig { protection, ..association_config(config) };
        let engine_config = EndpointConfig { association, ..EndpointConfig::default() };
        Ok(SctpHost {
            engine: Endpoint::new(Time::ZERO, engine_config, rand::random()),
            io,
            door: Door { port, addresses },
            retry: Time::NEVER,
        })
    }

    /// Notes that the socket with this index may have packets.
    pub(super) fn note_ready(&mut self, index: usize) {
        self.io.note_ready(index);
    }

    /// Receives packets from the sockets that may have some.
    pub(super) fn receive(&mut self, now: Time) {
        let door = &mut self.door;
        let received = self.io.receive(now, &mut self.engine, |engine, route, ecn, packet| {
            if door.is_ours(route, packet) {
                engine.handle_datagram(now, route, ecn, packet, door);
            }
        });
        if let Err(error) = received {
            tracing::warn!(%error, "receiving SCTP packets failed");
        }
    }

    /// Returns the time of the next action.
    pub(super) fn next_timeout(&self) -> Time {
        if self.io.has_unread() { Time::ZERO } else { self.engine.next_timeout().min(self.retry) }
    }

    /// Sends the engine's packets.
    pub(super) fn transmit(&mut self, now: Time) {
        self.io.transmit(now, &mut self.engine);
        self.retry = if self.io.is_blocked() { now + RETRY } else { Time::NEVER };
    }
}

/// Returns the route of the first INIT to a host.
pub(super) fn init_route(config: &SctpConfig, local: IpAddr, remote: IpAddr) -> Route {
    let carrier = match config.carrier {
        SctpCarrier::Udp => Carrier::Udp { peer_port: config.peer_udp_port },
        SctpCarrier::Ip => Carrier::Ip,
    };
    Route { local, remote, carrier }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_ip_port_and_address_must_match_and_over_udp_every_packet_is_ours() {
        let (ours, other): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 9].into());
        let door = Door { port: 5060, addresses: vec![ours] };
        let to_port = |port: u16| [&[0x13, 0xc5], &port.to_be_bytes()[..], &[0; 8]].concat();
        for (local, port, is_ours) in [(ours, 5060, true), (ours, 5061, false), (other, 5060, false)] {
            let route = |carrier| Route { local, remote: other, carrier };
            assert_eq!(door.is_ours(&route(Carrier::Ip), &to_port(port)), is_ours, "{local} {port}");
            assert!(door.is_ours(&route(Carrier::Udp { peer_port: 9899 }), &to_port(port)));
        }
    }
}
