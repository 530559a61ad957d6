//! Two endpoints that agree on keys and seal their packets, in memory and in virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use base::{Carrier, Ecn, Route, Time};
use bytes::Bytes;
use keying::{Binding, HostKey, KeyManager, Keyring, Outcome, PresharedKey, PublicKey, protection};
use sctp::{
    AssociationConfig, AssociationId, CloseReason, Connect, Endpoint, EndpointConfig, Event, IncomingInit,
    InitDecision, Listener, Ppid, SendOptions, StreamId,
};
use wire::{ChecksumMode, Chunk, Data, Packet, PacketWriter, Ssn, Tsn};

/// One end: an endpoint, its keys, and the events and messages that it has received.
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
                Some(Outcome::Peer { key, binding, .. }) => {
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

/// Function that changes a packet in transit. To drop the packet, the function removes all bytes.
type Change = fn(&mut Vec<u8>);
type Meddle = Box<dyn FnMut(&mut Vec<u8>)>;

/// Both ends, and all packets that they have sent.
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

    /// Runs both ends for `duration` of virtual time. Each packet arrives one millisecond after it was sent.
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
                        if !packet.is_empty() {
                            under_way.push_back((1 - end, packet));
                        }
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

/// Sends a message as soon as the association accepts one. Reports whether it has arrived after 40 s of
/// virtual time.
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
fn with_different_pre_shared_keys_the_association_closes_and_delivers_nothing() {
    let (one, two) = (&[1; 16][..], &[2; 16][..]);
    for (psks, is_delivered) in
        [([Some(one); 2], true), ([Some(one), Some(two)], false), ([Some(one), None], false)]
    {
        let mut pair = Pair::new(psks);
        assert_eq!(delivers(&mut pair), is_delivered, "{psks:?}");
        for end in &pair.ends {
            assert_eq!(
                end.count(|event| matches!(event, Event::Protected { .. })),
                usize::from(is_delivered),
                "{psks:?}"
            );
            assert_eq!(
                end.count(|event| matches!(event, Event::Closed(_))),
                usize::from(!is_delivered),
                "{psks:?}"
            );
        }
    }
}

#[test]
fn an_init_with_altered_streams_or_port_leads_to_no_protected_association() {
    // `streams` changes the number of outbound streams in the INIT by one. `port` diverts the client's
    // packets to another SCTP port.
    let streams = |packet: &mut Vec<u8>| {
        if packet[12] == 1 {
            packet[25] ^= 1;
        }
    };
    let port = |packet: &mut Vec<u8>| match [packet[1], packet[3]] {
        [_, 7] => packet[3] = 8,
        [8, _] => packet[1] = 7,
        _ => {}
    };
    let nothing = |_: &mut Vec<u8>| {};
    let cases: [(Change, bool); 3] = [(nothing, true), (streams, false), (port, false)];
    for (case, (change, is_delivered)) in cases.into_iter().enumerate() {
        let mut pair = Pair::new([None, None]);
        pair.meddle = Box::new(move |packet| {
            change(packet);
            let crc = wire::crc32c(&[&packet[..8], &[0; 4], &packet[12..]].concat());
            packet[8..12].copy_from_slice(&crc.to_le_bytes());
        });
        assert_eq!(delivers(&mut pair), is_delivered, "case {case}");
        let client = &pair.ends[0];
        assert_eq!(
            client.count(|event| matches!(event, Event::Protected { .. })),
            usize::from(is_delivered),
            "case {case}"
        );
    }
}

#[test]
fn an_answer_that_somebody_cut_into_two_messages_is_noticed() {
    for is_cut in [false, true] {
        let mut pair = Pair::new([None, None]);
        let mut parts: Vec<(u32, Vec<u8>)> = Vec::new();
        pair.meddle = Box::new(move |packet| {
            let parsed = Packet::parse(packet, ChecksumMode::Ignore).unwrap();
            let header = parsed.header;
            let chunks: Vec<Chunk<'_>> = parsed.chunks().map_while(Result::ok).collect();
            let data = chunks.iter().filter_map(|chunk| match chunk {
                Chunk::Data(data) if header.source_port == 7 => Some(*data),
                _ => None,
            });
            let data: Vec<Data<'_>> = data.collect();
            let Some(last) = data.last().copied() else { return };
            parts.extend(data.iter().map(|data| (data.tsn.0, data.payload.to_vec())));
            if !is_cut {
                return;
            }
            let mut buf = vec![0; 9000];
            let mut writer = PacketWriter::new(&mut buf, header);
            let others = chunks.iter().filter(|chunk| !matches!(chunk, Chunk::Data(_)));
            others.for_each(|chunk| writer.push(chunk).unwrap());
            if !last.end {
                let length = writer.finish();
                *packet = buf[..length].to_vec();
                return;
            }
            // The first chunk holds the ServerHello as a separate message. The other chunks hold the rest as
            // a second message.
            parts.sort_by_key(|(tsn, _)| tsn.wrapping_sub(last.tsn.0.wrapping_sub(100)));
            parts.dedup();
            let whole: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            let hello = 6 + usize::from(u16::from_be_bytes([whole[4], whole[5]]));
            let rest = [&whole[..1], &whole[hello..]].concat();
            let count = parts.len() as u32 - 1;
            let first = Tsn(parts[0].0);
            let cut: Vec<&[u8]> = rest.chunks(rest.len().div_ceil(count as usize)).collect();
            let mut out = vec![Data {
                begin: true,
                end: true,
                tsn: first,
                ssn: Ssn(0),
                payload: &whole[..hello],
                ..last
            }];
            out.extend((0..count).map(|n| Data {
                begin: n == 0,
                end: n + 1 == count,
                tsn: Tsn(first.0.wrapping_add(n + 1)),
                ssn: Ssn(1),
                payload: cut[n as usize],
                ..last
            }));
            out.iter().for_each(|data| writer.push(&Chunk::Data(*data)).unwrap());
            let length = writer.finish();
            *packet = buf[..length].to_vec();
        });
        assert_eq!(delivers(&mut pair), !is_cut);
        let [client, server] = &pair.ends;
        assert_eq!(client.count(|event| matches!(event, Event::Closed(_))), usize::from(is_cut));
        let is_noticed = |event: &Event| match event {
            Event::Closed(CloseReason::Aborted(cause)) => {
                cause.reason.starts_with(b"the peer has taken or sent other data")
            }
            _ => false,
        };
        assert_eq!(server.count(is_noticed), usize::from(is_cut));
    }
}

#[test]
fn an_association_fails_if_the_peer_renews_keys_over_32_times_in_a_minute() {
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
