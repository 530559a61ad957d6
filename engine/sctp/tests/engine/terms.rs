//! Tests of an INIT that is accepted with its own settings, while other INITs get the settings of the endpoint. Also tests a driver that
//! waits for room before the buffer is full.

use base::{Carrier, Ecn, Route, Time};
use bytes::Bytes;
use sctp::{
    AssociationConfig, AssociationId, Connect, Endpoint, EndpointConfig, Event, Extension, Extensions,
    IncomingInit, InitDecision, Listener, Ppid, SendOptions, StreamId,
};

/// Port on which INITs get many streams and I-DATA.
const MANY: u16 = 9;
const OFFER: Extensions = Extensions::NONE.with(Extension::Interleaving);

struct ByPort;

impl Listener for ByPort {
    fn on_init(&mut self, init: &IncomingInit) -> InitDecision {
        let local_addresses = vec![init.route.local];
        if init.local_port != MANY {
            return InitDecision::Accept { local_addresses };
        }
        InitDecision::AcceptOn {
            local_addresses,
            outbound_streams: 300,
            inbound_streams: 200,
            extensions: OFFER,
        }
    }
}

struct Pair {
    ends: [Endpoint; 2],
    ids: [Option<AssociationId>; 2],
    events: Vec<Event>,
}

impl Pair {
    fn connected(port: u16) -> Pair {
        let association = AssociationConfig {
            outbound_streams: 1,
            inbound_streams: 1,
            extensions: Extensions::NONE,
            ..AssociationConfig::default()
        };
        let server = EndpointConfig { association: association.clone(), ..EndpointConfig::default() };
        let ends = [EndpointConfig::default(), server].map(|c| Endpoint::new(Time::ZERO, c, [7; 32]));
        let mut pair = Pair { ends, ids: [None; 2], events: Vec::new() };
        let (local, remote) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let connect = Connect {
            local_port: 1,
            remote_port: port,
            init_routes: vec![Route { local, remote, carrier: Carrier::Ip }],
            local_addresses: vec![local],
            config: AssociationConfig {
                outbound_streams: 1_000,
                inbound_streams: 1_000,
                extensions: OFFER,
                ..association
            },
        };
        pair.ids[0] = Some(pair.ends[0].connect(Time::ZERO, connect).unwrap());
        pair.exchange();
        pair
    }

    /// Passes packets until both ends are silent.
    fn exchange(&mut self) {
        for _ in 0..20 {
            for from in 0..2 {
                let mut buf = vec![0; 65_536];
                while let Some(sent) = self.ends[from].poll_transmit(Time::ZERO, &mut buf) {
                    let back = Route { local: sent.route.remote, remote: sent.route.local, ..sent.route };
                    for packet in buf[..sent.len].chunks(sent.segment_size) {
                        let to = &mut self.ends[1 - from];
                        to.handle_datagram(Time::ZERO, &back, Ecn::NotEct, packet, &mut ByPort);
                    }
                    self.take_events();
                }
            }
        }
    }

    fn take_events(&mut self) {
        while let Some((id, event)) = self.ends[1].poll_event() {
            if matches!(event, Event::Incoming { .. }) {
                self.ids[1] = Some(id);
                self.ends[1].accept(Time::ZERO, id);
            }
        }
        while let Some((_, event)) = self.ends[0].poll_event() {
            self.events.push(event);
        }
    }

    /// Returns the outbound and inbound streams of an end, and whether its messages interleave.
    fn terms(&self, end: usize) -> (u16, u16, bool) {
        let info = self.ends[end].info(self.ids[end].unwrap()).unwrap();
        (info.outbound_streams, info.inbound_streams, info.extensions.has(Extension::Interleaving))
    }
}

#[test]
fn an_init_can_be_accepted_with_its_own_streams_and_extensions() {
    let pair = Pair::connected(MANY);
    assert_eq!((pair.terms(0), pair.terms(1)), ((200, 300, true), (300, 200, true)));
}

#[test]
fn other_inits_are_accepted_with_the_settings_of_the_endpoint() {
    let pair = Pair::connected(MANY + 1);
    assert_eq!((pair.terms(0), pair.terms(1)), ((1, 1, false), (1, 1, false)));
}

#[test]
fn a_driver_that_asks_for_room_is_notified_even_if_no_message_was_refused() {
    let mut pair = Pair::connected(MANY);
    let id = pair.ids[0].unwrap();
    for asks in [false, true] {
        let message = Bytes::from_static(&[1; 1000]);
        let stream = StreamId(0);
        pair.ends[0].send(Time::ZERO, id, stream, Ppid(0), message, SendOptions::default()).unwrap();
        if asks {
            pair.ends[0].notify_when_writable(Time::ZERO, id);
        }
        pair.exchange();
        let mut later = Time::ZERO;
        for _ in 0..5 {
            // The SACK may be delayed.
            later = pair.ends[1].next_timeout().max(later);
            pair.ends[1].handle_timeout(later);
            pair.exchange();
        }
        let heard = pair.events.iter().filter(|event| **event == Event::Writable).count();
        assert_eq!(heard, usize::from(asks));
    }
}
