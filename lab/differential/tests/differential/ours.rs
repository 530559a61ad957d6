//! Adapter of our engine to [`Stack`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use base::{Carrier, Ecn, Route, Time};
use sctp::{
    AbortCause, AssociationConfig, AssociationId, CloseReason, Connect, Endpoint, EndpointConfig, Event,
    Extension, Extensions, IncomingInit, InitDecision, Listener, Ppid, ReconfigPolicy, Reliability,
    SendOptions, StreamDirection, StreamId,
};

use crate::stack::{Effort, End, Features, Message, Now, Stack};

pub(crate) const PORT: u16 = 5000;

pub(crate) struct Ours {
    endpoint: Endpoint,
    route: Route,
    config: AssociationConfig,
    id: Option<AssociationId>,
    end: End,
    /// Partly received messages, by stream number and by whether the message is unordered.
    parts: BTreeMap<(u16, bool), Vec<u8>>,
}

struct Anybody;

impl Listener for Anybody {
    fn on_init(&mut self, _: &IncomingInit) -> InitDecision {
        InitDecision::Accept { local_addresses: Vec::new() }
    }
}

fn time(now: Now) -> Time {
    Time::ZERO + now
}

impl Ours {
    /// Creates an engine. Its own address is 10.0.0.1 if `seed` is even, and 10.0.0.2 otherwise.
    pub(crate) fn new(features: Features, seed: u8) -> Ours {
        let extensions: Extensions = [
            (features.partial_reliability, Extension::PartialReliability),
            (features.interleaving, Extension::Interleaving),
            (features.stream_reset, Extension::StreamReconfiguration),
        ]
        .into_iter()
        .filter_map(|(wanted, extension)| wanted.then_some(extension))
        .collect();
        let config = AssociationConfig {
            extensions,
            zero_checksum: features.zero_checksum.then_some(1),
            receive_buffer: features.receive_buffer as usize,
            reconfig: ReconfigPolicy { reset_streams: true, ..ReconfigPolicy::default() },
            ..AssociationConfig::default()
        };
        let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
        let address = |last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
        let (local, remote) =
            if seed.is_multiple_of(2) { (address(1), address(2)) } else { (address(2), address(1)) };
        Ours {
            endpoint: Endpoint::new(Time::ZERO, endpoint, [seed; 32]),
            route: Route { local, remote, carrier: Carrier::Ip },
            config,
            id: None,
            end: End::Opening,
            parts: BTreeMap::new(),
        }
    }

    fn work(&mut self, now: Now) {
        while let Some((id, event)) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { .. } => {
                    self.endpoint.accept(time(now), id);
                    (self.id, self.end) = (Some(id), End::Opening);
                }
                Event::Established { .. } if self.id == Some(id) => self.end = End::Up,
                Event::Closed(reason) if self.id == Some(id) => {
                    self.end = if reason == CloseReason::Graceful { End::Graceful } else { End::Broken };
                }
                _ => {}
            }
        }
        self.endpoint.check_invariants();
    }
}

impl Stack for Ours {
    fn connect(&mut self, now: Now) {
        let connect = Connect {
            local_port: PORT,
            remote_port: PORT,
            init_routes: vec![self.route],
            local_addresses: vec![self.route.local],
            config: self.config.clone(),
        };
        self.id = Some(self.endpoint.connect(time(now), connect).expect("the first association"));
    }

    fn handle(&mut self, now: Now, packet: &[u8]) {
        self.endpoint.handle_datagram(time(now), &self.route, Ecn::NotEct, packet, &mut Anybody);
        self.work(now);
    }

    fn timeout(&self) -> Option<Now> {
        let next = self.endpoint.next_timeout();
        (next != Time::NEVER).then(|| next - Time::ZERO)
    }

    fn tick(&mut self, now: Now) {
        self.endpoint.handle_timeout(time(now));
        self.work(now);
    }

    fn transmit(&mut self, now: Now) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut buf = vec![0; 1 << 16];
        while let Some(train) = self.endpoint.poll_transmit(time(now), &mut buf) {
            packets.extend(buf[..train.len].chunks(train.segment_size).map(<[u8]>::to_vec));
        }
        packets
    }

    fn send(&mut self, now: Now, message: &Message) -> bool {
        let Some(id) = self.id else { return false };
        let reliability = match message.effort {
            Effort::Full => Reliability::Full,
            Effort::Retransmissions(n) => Reliability::Retransmissions(n.into()),
            Effort::Lifetime(lifetime) => Reliability::Lifetime(lifetime),
        };
        let options = SendOptions { unordered: message.unordered, reliability, ..SendOptions::default() };
        let (stream, bytes) = (StreamId(message.stream), message.bytes.clone());
        self.endpoint.send(time(now), id, stream, Ppid(53), bytes, options).is_ok()
    }

    fn recv(&mut self, now: Now) -> Option<(u16, Vec<u8>)> {
        loop {
            let message = self.endpoint.recv(time(now), self.id?)?;
            let (stream, end, aborted) = (message.stream.0, message.end, message.aborted);
            let key = (stream, message.unordered);
            let mut bytes = self.parts.remove(&key).unwrap_or_default();
            bytes.extend_from_slice(&message.into_bytes());
            match (end, aborted) {
                (true, false) => return Some((stream, bytes)),
                (true, true) => {}
                (false, _) => _ = self.parts.insert(key, bytes),
            }
        }
    }

    fn reset(&mut self, now: Now, stream: u16) {
        let Some(id) = self.id else { return };
        let reset =
            self.endpoint.reset_streams(time(now), id, StreamDirection::Outgoing, &[StreamId(stream)]);
        assert_eq!(reset, Ok(()), "the scenario asks for one reset");
    }

    fn shutdown(&mut self, now: Now) {
        if let Some(id) = self.id {
            self.endpoint.shutdown(time(now), id);
        }
    }

    fn abort(&mut self, now: Now) {
        if let Some(id) = self.id {
            self.endpoint.abort(time(now), id, AbortCause::user("over"));
            self.work(now);
        }
    }

    fn end(&self) -> End {
        self.end
    }
}
