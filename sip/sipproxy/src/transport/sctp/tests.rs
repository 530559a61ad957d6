//! Tests of the listener over loopback, with the real sockets.

use std::net::{Ipv4Addr, UdpSocket};

use base::{Carrier, Ecn};
use mio::Poll;
use sctp::{Endpoint, EndpointConfig, IncomingInit, InitDecision, Listener};

use super::*;
use crate::clock::Clock;
use crate::config::{KnownPeer, SctpCarrier, Secure};

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn bounds(connections: usize) -> Bounds {
    Bounds { messages: sip::Limits::default(), connections, answer: Duration::from_secs(32) }
}

struct Closed;

impl Listener for Closed {
    fn on_init(&mut self, _: &IncomingInit) -> InitDecision {
        InitDecision::Refuse
    }
}

/// A peer that completes SCTP handshakes with an offer of protection, but never begins a key handshake.
struct Silent {
    engine: Endpoint,
    socket: UdpSocket,
    udp_port: u16,
}

impl Silent {
    fn new(udp_port: u16) -> Silent {
        let socket = UdpSocket::bind((HOME, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Silent { engine: Endpoint::new(Time::ZERO, EndpointConfig::default(), [3; 32]), socket, udp_port }
    }

    fn connect(&mut self, now: Time, port: u16) -> AssociationId {
        let carrier = Carrier::Udp { peer_port: self.udp_port };
        let protection = Some(keying::protection(true));
        let connect = Connect {
            local_port: port,
            remote_port: 5060,
            init_routes: vec![Route { local: HOME, remote: HOME, carrier }],
            local_addresses: vec![HOME],
            config: AssociationConfig { protection, ..AssociationConfig::default() },
        };
        self.engine.connect(now, connect).unwrap()
    }

    fn exchange(&mut self, now: Time) {
        let mut room = vec![0; 65_536];
        while let Ok((length, from)) = self.socket.recv_from(&mut room) {
            let route = Route { local: HOME, remote: HOME, carrier: Carrier::Udp { peer_port: from.port() } };
            self.engine.handle_datagram(now, &route, Ecn::default(), &room[..length], &mut Closed);
        }
        self.engine.handle_timeout(now);
        while let Some(transmit) = self.engine.poll_transmit(now, &mut room) {
            for packet in room[..transmit.len].chunks(transmit.segment_size) {
                self.socket.send_to(packet, (HOME, self.udp_port)).unwrap();
            }
        }
    }

    fn state(&self, id: AssociationId) -> Option<StateName> {
        self.engine.state(id)
    }
}

#[test]
fn at_the_limit_the_oldest_association_without_a_proven_key_gives_way() {
    let udp_port = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port();
    let config =
        SctpConfig { carrier: SctpCarrier::Udp, udp_port, secure: Secure::Try, ..SctpConfig::default() };
    let (clock, poll) = (Clock::start(), Poll::new().unwrap());
    let (address, keys) = (SocketAddr::new(HOME, 5060), Keys::open(&config).unwrap());
    let mut proxy = Sctp::open(ListenerIndex(0), address, &config, bounds(2), keys, poll.registry()).unwrap();
    let (mut inbox, mut peer) = (Inbox::default(), Silent::new(udp_port));
    let mut ids = Vec::new();
    for port in 6001..=6003 {
        ids.push(peer.connect(clock.now(), port));
        for _ in 0..400 {
            peer.exchange(clock.now());
            (0..8).for_each(|socket| proxy.host.note_ready(socket));
            proxy.handle_timeout(clock.now(), &mut inbox);
            proxy.finish_turn(clock.now(), &mut inbox);
            std::thread::sleep(std::time::Duration::from_millis(2));
            if ids.last().is_some_and(|id| peer.state(*id) == Some(StateName::Established)) {
                break;
            }
        }
        assert_eq!(peer.state(ids[ids.len() - 1]), Some(StateName::Established));
    }
    peer.exchange(clock.now());
    assert_eq!(proxy.connections(), 2);
    let alive = ids.iter().map(|id| peer.state(*id) == Some(StateName::Established));
    assert_eq!(alive.collect::<Vec<_>>(), [false, true, true]);
}

/// A listener with its inbox.
struct Proxy {
    sctp: Sctp,
    inbox: Inbox,
    clock: Clock,
    _poll: Poll,
}

impl Proxy {
    /// Opens a listener at port 5060 of these addresses. `config` has the encryption.
    fn open(addresses: &[IpAddr], [udp_port, peer_udp_port]: [u16; 2], config: SctpConfig) -> Proxy {
        let carrier = SctpCarrier::Udp;
        let config = SctpConfig { carrier, udp_port, peer_udp_port, addresses: addresses.to_vec(), ..config };
        let (poll, address) = (Poll::new().unwrap(), SocketAddr::new(addresses[0], 5060));
        let keys = Keys::open(&config).unwrap();
        let sctp = Sctp::open(ListenerIndex(0), address, &config, bounds(10), keys, poll.registry()).unwrap();
        Proxy { sctp, inbox: Inbox::default(), clock: Clock::start(), _poll: poll }
    }

    /// Sends a message whose failure has the number `on_failure`.
    fn send(&mut self, to: IpAddr, on_failure: u64) {
        let address = SocketAddr::new(to, 5060);
        let hop = Hop { listener: 0, transport: Transport::Sctp, address, connection: None };
        let bytes = Bytes::from(on_failure.to_string());
        let on_failure = Some(on_failure);
        let message = Outgoing { hop, domain: None, bytes, on_failure, dialog: 0, is_new: true };
        self.sctp.send(self.clock.now(), message, &mut self.inbox);
        self.sctp.finish_turn(self.clock.now(), &mut self.inbox);
    }

    /// Handles received packets and timers, and sends packets.
    fn turn(&mut self) {
        (0..8).for_each(|socket| self.sctp.host.note_ready(socket));
        self.sctp.handle_timeout(self.clock.now(), &mut self.inbox);
        self.sctp.finish_turn(self.clock.now(), &mut self.inbox);
        std::thread::sleep(Duration::from_millis(1));
    }

    /// Returns the received messages.
    fn received(&self) -> Vec<&[u8]> {
        self.inbox.messages.iter().map(|(_, bytes)| &bytes[..]).collect()
    }
}

const PEER: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3))];

/// Opens a proxy that knows these peers, and a proxy with the two addresses [`PEER`] and this encryption.
fn proxies(known: &[KnownPeer], peer: SctpConfig) -> [Proxy; 2] {
    let udp_port = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port();
    let (ours, theirs) = (udp_port(), udp_port());
    let secure = if known.is_empty() { Secure::Off } else { Secure::Try };
    let config = SctpConfig { secure, peers: known.to_vec(), ..SctpConfig::default() };
    [Proxy::open(&[HOME], [ours, theirs], config), Proxy::open(&PEER, [theirs, ours], peer)]
}

/// Lets the proxies take turns until `is_done`. The first proxy is the first to be examined after its turn.
fn until(proxies: &mut [Proxy; 2], is_done: impl Fn(&[Proxy; 2]) -> bool) {
    for _ in 0..2000 {
        for i in [0, 1] {
            proxies[i].turn();
            if is_done(proxies) {
                return;
            }
        }
    }
    panic!("not done");
}

fn is_established(proxy: &Proxy) -> bool {
    proxy.sctp.associations.values().any(|association| association.streams > 0)
}

#[test]
fn a_message_to_an_unproven_address_of_a_peer_with_an_association_goes_over_that_association() {
    let mut proxies = proxies(&[], SctpConfig::default());
    proxies[0].send(PEER[0], 1);
    until(&mut proxies, |proxies| is_established(&proxies[0]));
    // The heartbeat to the second address is not answered yet, so the message begins an attempt.
    proxies[0].send(PEER[1], 2);
    assert_eq!(proxies[0].sctp.connections(), 2);
    until(&mut proxies, |proxies| proxies[1].inbox.messages.len() == 2);
    assert_eq!(proxies[1].received(), [b"1", b"2"]);
    until(&mut proxies, |proxies| proxies[0].sctp.connections() == 1);
    assert!(proxies[0].inbox.is_empty() && proxies[1].sctp.connections() == 1);
}

#[test]
fn requests_over_an_association_that_fails_are_reported_and_those_over_one_that_ends_in_order_are_not() {
    for is_failure in [true, false] {
        let mut proxies = proxies(&[], SctpConfig::default());
        for number in [1, 2] {
            proxies[0].send(PEER[0], number);
            until(&mut proxies, |proxies| proxies[1].inbox.messages.len() == number as usize);
        }
        until(&mut proxies, |proxies| is_established(&proxies[0]));
        let now = proxies[1].clock.now();
        let id = proxies[1].sctp.associations.values().next().unwrap().id;
        match is_failure {
            true => proxies[1].sctp.host.engine.abort(now, id, AbortCause::user("test")),
            false => proxies[1].sctp.begin_close(now),
        }
        until(&mut proxies, |proxies| proxies[0].sctp.is_closed());
        let lost = [1, 2].map(|on_failure| LostRequest { on_failure, may_resend: true });
        assert_eq!(proxies[0].inbox.lost, if is_failure { lost.to_vec() } else { Vec::new() });
        assert!(proxies[0].inbox.failures.is_empty());
        assert!(proxies[0].sctp.by_address.of(SocketAddr::new(PEER[0], 5060)).is_empty());
    }
}

/// Opens two proxies, of which the second has begun to shut down their association. The first has sent message 1 before.
fn shutting_down() -> [Proxy; 2] {
    let mut proxies = proxies(&[], SctpConfig::default());
    proxies[0].send(PEER[0], 1);
    until(&mut proxies, |proxies| proxies[1].inbox.messages.len() == 1 && is_established(&proxies[0]));
    let now = proxies[1].clock.now();
    let [ours, theirs] = [0, 1].map(|i| proxies[i].sctp.associations.values().next().unwrap().id);
    proxies[1].sctp.host.engine.shutdown(now, theirs);
    let state = |proxies: &[Proxy; 2]| proxies[0].sctp.host.engine.state(ours);
    until(&mut proxies, |proxies| state(proxies) != Some(StateName::Established));
    assert_eq!(state(&proxies), Some(StateName::ShutdownAckSent));
    proxies
}

#[test]
fn messages_to_a_peer_that_shuts_its_association_down_go_over_a_new_association() {
    let mut proxies = shutting_down();
    proxies[0].send(PEER[0], 2);
    proxies[0].send(PEER[0], 3);
    assert_eq!(proxies[0].sctp.connections(), 1);
    until(&mut proxies, |proxies| proxies[1].inbox.messages.len() == 3);
    assert_eq!(proxies[1].received(), [b"1", b"2", b"3"]);
    assert!(proxies[0].inbox.is_empty() && proxies[0].sctp.connections() == 1);
    // A listener that closes does not begin an association.
    let now = proxies[0].clock.now();
    proxies[0].sctp.begin_close(now);
    proxies[0].send(PEER[0], 4);
    assert_eq!(proxies[0].inbox.failures, [4]);
}

#[test]
fn a_message_that_leaves_with_the_handshake_ends_the_wait_for_a_shutdown() {
    let mut proxies = shutting_down();
    proxies[0].send(PEER[0], 2);
    until(&mut proxies, |proxies| proxies[1].inbox.messages.len() == 2 && is_established(&proxies[0]));
    // The messages of a later shutdown wait as long as this one did.
    assert!(proxies[0].sctp.associations.values().all(|association| association.waits_until.is_none()));
}

#[test]
fn a_new_limit_on_the_time_of_answers_holds_for_the_requests_that_follow() {
    let mut proxies = proxies(&[], SctpConfig::default());
    for number in [1, 2] {
        proxies[0].send(PEER[0], number);
        until(&mut proxies, |proxies| proxies[1].inbox.messages.len() == number as usize);
        proxies[0].sctp.set_answer(Duration::ZERO);
    }
    let now = proxies[1].clock.now();
    let id = proxies[1].sctp.associations.values().next().unwrap().id;
    proxies[1].sctp.host.engine.abort(now, id, AbortCause::user("test"));
    until(&mut proxies, |proxies| proxies[0].sctp.is_closed());
    assert_eq!(proxies[0].inbox.lost, [LostRequest { on_failure: 2, may_resend: true }]);
}

#[test]
fn messages_fail_if_a_shutdown_does_not_end_in_time() {
    let mut proxies = shutting_down();
    proxies[0].send(PEER[0], 2);
    let end = proxies[0].sctp.next_timeout();
    // From here on, the peer is silent.
    let now = proxies[0].clock.now();
    let [alpha, _] = &mut proxies;
    alpha.sctp.handle_timeout(now + (SHUTDOWN_WAIT - Duration::from_millis(500)), &mut alpha.inbox);
    assert!(end <= now + SHUTDOWN_WAIT && alpha.inbox.failures.is_empty());
    alpha.sctp.handle_timeout(now + SHUTDOWN_WAIT, &mut alpha.inbox);
    assert_eq!((&alpha.inbox.failures[..], alpha.sctp.waits.len()), (&[2][..], 0));
}

#[test]
fn the_address_of_a_known_peer_does_not_lead_to_a_peer_that_has_proven_only_the_address() {
    let key = keying::HostKey::generate().unwrap().public();
    for known in [Vec::new(), vec![KnownPeer { address: PEER[1], key }]] {
        let mut proxies = proxies(&known, SctpConfig::default());
        proxies[1].send(HOME, 1);
        let is_proven = |proxies: &[Proxy; 2]| {
            let mut all = proxies[0].sctp.associations.values();
            let info = all.next().and_then(|association| proxies[0].sctp.host.engine.info(association.id));
            info.is_some_and(|info| info.paths.iter().filter(|path| path.confirmed).count() == 2)
        };
        until(&mut proxies, is_proven);
        let address = SocketAddr::new(PEER[1], 5060);
        let hop = Hop { listener: 0, transport: Transport::Sctp, address, connection: None };
        assert_eq!(proxies[0].sctp.association_for(&hop).is_some(), known.is_empty());
    }
}

#[test]
fn messages_to_two_addresses_of_a_known_peer_arrive_over_one_association_after_the_proof_of_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    let key = keying::HostKey::load_or_create(&file).unwrap().public();
    let known = PEER.map(|address| KnownPeer { address, key });
    let peer = SctpConfig { secure: Secure::Try, host_key: Some(file), ..SctpConfig::default() };
    let mut proxies = proxies(&known, peer);
    // The second attempt ends, because the host has the first association, before the peer has proven its key.
    proxies[0].send(PEER[0], 1);
    proxies[0].send(PEER[1], 2);
    until(&mut proxies, |proxies| proxies[1].inbox.messages.len() == 2);
    assert_eq!(proxies[1].received(), [b"1", b"2"]);
    assert!(proxies[0].inbox.is_empty() && proxies[1].sctp.connections() == 1);
}
