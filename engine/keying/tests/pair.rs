//! Two endpoints that agree on keys and seal their packets, in memory and virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use base::{Carrier, Ecn, Route, Time};
use bytes::Bytes;
use keying::{Binding, HostKey, KeyManager, Keyring, Outcome, PresharedKey, PublicKey, protection};
use sctp::{
    AssociationConfig, AssociationId, CloseReason, Connect, Endpoint, EndpointConfig, Event, IncomingInit,
    InitDecision, Listener, Ppid, SendOptions, StreamId,
};

/// One end: an endpoint, its keys and what it heard.
struct End {
    endpoint: Endpoint,
    keys: KeyManager,
    id: Option<AssociationId>,
    peer: Option<(PublicKey, Binding)>,
    failed: Option<String>,
    received: Vec<Bytes>,
    events: Vec<Event>,
    address: &'static str,
}

struct Accepts;

impl Listener for Accepts {
    fn on_init(&mut self, _: &IncomingInit) -> InitDecision {
        InitDecision::Accept { local_addresses: Vec::new() }
    }
}

fn config() -> AssociationConfig {
    AssociationConfig { protection: Some(protection(true)), ..AssociationConfig::default() }
}

impl End {
    fn new(address: &'static str, psk: Option<&[u8]>) -> End {
        let endpoint = EndpointConfig { association: config(), ..EndpointConfig::default() };
        let keyring = Keyring::new(HostKey::generate().unwrap()).unwrap();
        End {
            endpoint: Endpoint::new(Time::ZERO, endpoint, [address.len() as u8; 32]),
            keys: KeyManager::new(keyring, psk.map(|key| PresharedKey::new(key).unwrap())),
            id: None,
            peer: None,
            failed: None,
            received: Vec::new(),
            events: Vec::new(),
            address,
        }
    }

    fn follow(&mut self, now: Time) {
        while let Some((id, event)) = self.endpoint.poll_event() {
            if matches!(event, Event::Incoming { .. }) {
                self.id = Some(id);
                self.endpoint.accept(now, id);
            }
            match self.keys.on_event(now, id, &event, &mut self.endpoint) {
                Some(Outcome::Peer { key, binding }) => {
                    self.peer = Some((key, binding));
                    self.keys.accept(now, id, &mut self.endpoint);
                }
                Some(Outcome::Failed(error)) => self.failed = Some(error.to_string()),
                None => {}
            }
            self.events.push(event);
        }
        if let Some(id) = self.id {
            while let Some(message) = self.endpoint.recv(now, id) {
                self.received.push(message.into_bytes());
            }
        }
    }

    fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }
}

/// Changes a packet under way.
type Change = fn(&mut [u8]);
type Meddle = Box<dyn FnMut(&mut [u8])>;

/// Both ends, and the packets between them.
struct Pair {
    ends: [End; 2],
    now: Time,
    packets: Vec<Vec<u8>>,
    meddle: Meddle,
}

impl Pair {
    fn new(psks: [Option<&[u8]>; 2]) -> Pair {
        let ends = [End::new("10.0.0.1", psks[0]), End::new("10.0.0.22", psks[1])];
        Pair { ends, now: Time::ZERO, packets: Vec::new(), meddle: Box::new(|_| {}) }
    }

    fn connect(&mut self) {
        let [a, b] = [0, 1].map(|end: usize| self.ends[end].address.parse().unwrap());
        let connect = Connect {
            local_port: 5000,
            remote_port: 7,
            init_routes: vec![Route { local: a, remote: b, carrier: Carrier::Ip }],
            local_addresses: vec![a],
            config: config(),
        };
        let end = &mut self.ends[0];
        let id = end.endpoint.connect(self.now, connect).unwrap();
        end.id = Some(id);
        end.keys.begin(self.now, id, &mut end.endpoint).unwrap();
    }

    fn send(&mut self, end: usize, message: Bytes) {
        let (now, end) = (self.now, &mut self.ends[end]);
        let id = end.id.unwrap();
        end.endpoint.send(now, id, StreamId(0), Ppid(0), message, SendOptions::default()).unwrap();
    }

    /// Plays for this long; packets take a millisecond.
    fn run(&mut self, duration: Duration) {
        let until = self.now + duration;
        let mut under_way: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
        let mut buf = vec![0; 65_536];
        while self.now < until {
            for (to, packet) in std::mem::take(&mut under_way) {
                let [local, remote] = [to, 1 - to].map(|end| self.ends[end].address.parse().unwrap());
                let route = Route { local, remote, carrier: Carrier::Ip };
                let (now, end) = (self.now, &mut self.ends[to]);
                end.endpoint.handle_datagram(now, &route, Ecn::NotEct, &packet, &mut Accepts);
            }
            for end in 0..2 {
                let now = self.now;
                self.ends[end].endpoint.handle_timeout(now);
                self.ends[end].follow(now);
                while let Some(train) = self.ends[end].endpoint.poll_transmit(now, &mut buf) {
                    for packet in buf[..train.len].chunks(train.segment_size) {
                        let mut packet = packet.to_vec();
                        self.packets.push(packet.clone());
                        (self.meddle)(&mut packet);
                        under_way.push_back((1 - end, packet));
                    }
                }
            }
            self.now += Duration::from_millis(1);
        }
    }
}

#[test]
fn both_ends_know_each_other_and_nothing_readable_passes() {
    let mut pair = Pair::new([None, None]);
    pair.connect();
    pair.run(Duration::from_millis(50));
    let secret = Bytes::from(vec![0xc5; 900]);
    pair.send(0, secret.clone());
    pair.send(1, secret.clone());
    pair.run(Duration::from_millis(500));
    let [a, b] = &pair.ends;
    assert_eq!((&a.received[..], &b.received[..]), (&[secret.clone()][..], &[secret.clone()][..]));
    let ((of_b, one), (of_a, other)) = (a.peer.clone().unwrap(), b.peer.clone().unwrap());
    assert_eq!((of_a, of_b, one.words()), (a.keys.public(), b.keys.public(), other.words()));
    let shows =
        |needle: &[u8]| pair.packets.iter().any(|packet| packet.windows(needle.len()).any(|w| w == needle));
    assert!(!shows(&secret[..16]) && !shows(of_a.as_bytes()) && !shows(of_b.as_bytes()));
}

/// Sends a message as soon as the association takes one, and reports whether it has arrived.
fn delivers(pair: &mut Pair) -> bool {
    pair.connect();
    let message = Bytes::from_static(b"after the handshake");
    let mut is_sent = false;
    for _ in 0..400 {
        pair.run(Duration::from_millis(100));
        let (now, end) = (pair.now, &mut pair.ends[0]);
        let id = end.id.unwrap();
        let options = SendOptions::default();
        is_sent =
            is_sent || end.endpoint.send(now, id, StreamId(0), Ppid(0), message.clone(), options).is_ok();
    }
    pair.ends[1].received.contains(&message)
}

#[test]
fn other_pre_shared_keys_deliver_nothing() {
    let (one, two) = (&[1; 16][..], &[2; 16][..]);
    for (psks, is_delivered) in
        [([Some(one); 2], true), ([Some(one), Some(two)], false), ([Some(one), None], false)]
    {
        let mut pair = Pair::new(psks);
        assert_eq!(delivers(&mut pair), is_delivered, "{psks:?}");
        let server = &pair.ends[1];
        assert_eq!(server.count(|event| matches!(event, Event::Protected { .. })), usize::from(is_delivered));
        assert_eq!(server.count(|event| matches!(event, Event::Closed(_))), usize::from(!is_delivered));
    }
}

#[test]
fn a_changed_init_delivers_nothing() {
    // One stream more than the INIT asked for, or a service other than the one that the client named.
    let streams = |packet: &mut [u8]| {
        if packet[12] == 1 {
            packet[25] ^= 1;
        }
    };
    let port = |packet: &mut [u8]| match [packet[1], packet[3]] {
        [_, 7] => packet[3] = 8,
        [8, _] => packet[1] = 7,
        _ => {}
    };
    let nothing = |_: &mut [u8]| {};
    let cases: [(Change, bool); 3] = [(nothing, true), (streams, false), (port, false)];
    for (case, (change, is_delivered)) in cases.into_iter().enumerate() {
        let mut pair = Pair::new([None, None]);
        pair.meddle = Box::new(move |packet| {
            change(packet);
            let crc = wire::crc32c(&[&packet[..8], &[0; 4], &packet[12..]].concat());
            packet[8..12].copy_from_slice(&crc.to_le_bytes());
        });
        assert_eq!(delivers(&mut pair), is_delivered, "case {case}");
        let server = &pair.ends[1];
        assert_eq!(server.endpoint.counters().not_opened == 0, is_delivered, "case {case}");
    }
}

#[test]
fn a_peer_that_asks_for_new_keys_again_and_again_is_left() {
    let mut pair = Pair::new([None, None]);
    pair.connect();
    pair.run(Duration::from_millis(50));
    for renewal in 1..=33 {
        assert_eq!(pair.ends[1].failed, None, "renewal {renewal}");
        let (now, end) = (pair.now, &mut pair.ends[0]);
        end.keys.renew(now, end.id.unwrap(), &mut end.endpoint).unwrap();
        pair.run(Duration::from_millis(400));
    }
    let failed = pair.ends[1].failed.clone().unwrap();
    assert!(failed.contains("more than 32 times in a minute"), "{failed}");
}

#[test]
fn keys_are_renewed_by_either_end_and_by_both_at_once() {
    let mut pair = Pair::new([None, None]);
    pair.connect();
    pair.run(Duration::from_millis(50));
    for (round, begin) in [&[0][..], &[1], &[0, 1], &[1, 0]].into_iter().enumerate() {
        for &end in begin {
            let (now, end) = (pair.now, &mut pair.ends[end]);
            end.keys.renew(now, end.id.unwrap(), &mut end.endpoint).unwrap();
        }
        pair.send(0, Bytes::from(vec![round as u8; 2000]));
        pair.send(1, Bytes::from(vec![round as u8; 2000]));
        pair.run(Duration::from_millis(400));
        for end in &pair.ends {
            assert_eq!(end.endpoint.epoch(end.id.unwrap()), Some(4 + round as u64), "round {round}");
            assert_eq!((end.received.len(), &end.failed), (round + 1, &None));
        }
    }
}

#[test]
fn a_message_that_is_no_handshake_ends_the_association() {
    let mut pair = Pair::new([None, None]);
    pair.connect();
    pair.run(Duration::from_millis(50));
    let (now, end) = (pair.now, &mut pair.ends[0]);
    end.endpoint.send_key_message(now, end.id.unwrap(), Bytes::from_static(b"\x04nonsense")).unwrap();
    pair.run(Duration::from_millis(500));
    assert!(pair.ends[1].failed.is_some());
    let is_abort = |event: &Event| matches!(event, Event::Closed(CloseReason::PeerAborted(_)));
    assert_eq!(pair.ends[0].count(is_abort), 1);
}
