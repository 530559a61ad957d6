//! Adapters of sctp-proto and rtc-sctp to [`Stack`](crate::stack::Stack). The two crates have a common
//! ancestor and nearly the same API, so one macro implements both adapters.

macro_rules! peer {
    () => {
        use super::super::stack::{Effort, End, Features, Message, Now, Stack};
        use bytes::Bytes;
        use std::collections::{BTreeMap, BTreeSet, VecDeque};
        use std::net::SocketAddr;
        use std::time::Instant;

        const ABORT: u8 = 6;
        const SHUTDOWN_ACK: u8 = 8;

        pub(crate) struct Peer {
            endpoint: Endpoint,
            association: Option<Association>,
            /// The real clock's instant at virtual time zero. The engines' API requires instants of the
            /// real clock.
            began: Instant,
            opened: BTreeMap<u16, (bool, Effort)>,
            readable: VecDeque<u16>,
            features: Features,
            end: End,
            /// Types of the first chunks of all packets so far. The adapter derives from them whether the
            /// association ended gracefully, because the engine does not report this fact.
            seen: BTreeSet<u8>,
        }

        fn there() -> SocketAddr {
            SocketAddr::from(([10, 0, 0, 9], super::super::ours::PORT))
        }

        impl Peer {
            #[expect(clippy::disallowed_methods, reason = "these engines want an Instant to count from")]
            pub(crate) fn new(features: Features) -> Peer {
                Peer {
                    endpoint: new_endpoint(features),
                    association: None,
                    began: Instant::now(),
                    opened: BTreeMap::new(),
                    readable: VecDeque::new(),
                    features,
                    end: End::Opening,
                    seen: BTreeSet::new(),
                }
            }

            fn work(&mut self) {
                let Some(association) = self.association.as_mut() else { return };
                while let Some(event) = association.poll() {
                    match event {
                        Event::Connected => self.end = End::Up,
                        Event::HandshakeFailed { .. } => self.end = End::Broken,
                        Event::Stream(StreamEvent::Readable { id }) => self.readable.push_back(id),
                        _ => {}
                    }
                }
                if association.is_closed() && self.end == End::Up {
                    let graceful = self.seen.contains(&SHUTDOWN_ACK) && !self.seen.contains(&ABORT);
                    self.end = if graceful { End::Graceful } else { End::Broken };
                }
            }

            fn next_of(&mut self, id: u16) -> Option<Vec<u8>> {
                let mut stream = self.association.as_mut()?.stream(id).ok()?;
                let chunks = stream.read_sctp().ok()??;
                let mut bytes = vec![0; chunks.len()];
                let length = chunks.read(&mut bytes).ok()?;
                bytes.truncate(length);
                Some(bytes)
            }
        }

        impl Stack for Peer {
            fn connect(&mut self, now: Now) {
                self.association = Some(open(&mut self.endpoint, self.began + now, self.features, there()));
            }

            fn handle(&mut self, now: Now, packet: &[u8]) {
                self.seen.extend(packet.get(12));
                let at = self.began + now;
                let given = give(&mut self.endpoint, at, there(), Bytes::copy_from_slice(packet));
                if let Some((_, DatagramEvent::NewAssociation(association))) = given {
                    // A second association, for example after a restart, replaces the first one.
                    self.association = Some(association);
                    self.end = End::Opening;
                    self.opened.clear();
                } else if let Some((_, DatagramEvent::AssociationEvent(event))) = given
                    && let Some(association) = self.association.as_mut()
                {
                    association.handle_event(event);
                }
                self.work();
            }

            fn timeout(&self) -> Option<Now> {
                let at = self.association.as_ref()?.poll_timeout()?;
                Some(at.saturating_duration_since(self.began))
            }

            fn tick(&mut self, now: Now) {
                if let Some(association) = self.association.as_mut() {
                    association.handle_timeout(self.began + now);
                }
                self.work();
            }

            fn transmit(&mut self, now: Now) -> Vec<Vec<u8>> {
                let mut packets = Vec::new();
                if let Some(association) = self.association.as_mut() {
                    while let Some(transmit) = association.poll_transmit(self.began + now) {
                        if let Payload::RawEncode(list) = payload(transmit) {
                            self.seen.extend(list.iter().filter_map(|packet| packet.get(12)));
                            packets.extend(list.iter().map(|bytes| bytes.to_vec()));
                        }
                    }
                }
                self.work();
                packets
            }

            fn send(&mut self, now: Now, message: &Message) -> bool {
                let Some(association) = self.association.as_mut() else { return false };
                if association.is_handshaking() {
                    return false;
                }
                let id = message.stream;
                if association.stream(id).is_err() {
                    _ = association.open_stream(id, PayloadProtocolIdentifier::Binary);
                }
                let Ok(mut stream) = association.stream(id) else { return false };
                if stream.buffered_amount().is_ok_and(|bytes| bytes > 500_000) {
                    return false;
                }
                let wanted = (message.unordered, message.effort);
                if self.opened.insert(id, wanted) != Some(wanted) {
                    let (kind, value) = match message.effort {
                        Effort::Full => (ReliabilityType::Reliable, 0),
                        Effort::Retransmissions(n) => (ReliabilityType::Rexmit, n.into()),
                        Effort::Lifetime(lifetime) => {
                            (ReliabilityType::Timed, u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX))
                        }
                    };
                    _ = stream.set_reliability_params(message.unordered, kind, value);
                }
                write(&mut stream, self.began + now, &message.bytes)
            }

            fn recv(&mut self, _: Now) -> Option<(u16, Vec<u8>)> {
                while let Some(&id) = self.readable.front() {
                    if let Some(bytes) = self.next_of(id) {
                        return Some((id, bytes));
                    }
                    self.readable.pop_front();
                }
                None
            }

            fn reset(&mut self, now: Now, stream: u16) {
                if let Some(association) = self.association.as_mut() {
                    reset(association, self.began + now, stream);
                }
                // The next message opens the stream again.
                self.opened.remove(&stream);
                self.work();
            }

            fn shutdown(&mut self, _: Now) {
                if let Some(association) = self.association.as_mut() {
                    _ = association.shutdown();
                }
                self.work();
            }

            fn abort(&mut self, _: Now) {
                if let Some(association) = self.association.as_mut() {
                    abort(association);
                }
                self.work();
                self.end = End::Broken;
            }

            fn end(&self) -> End {
                self.end
            }
        }
    };
}

/// The adapter of sctp-proto 0.10.8.
pub(crate) mod proto {
    use sctp_proto::{
        Association, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event,
        Payload, PayloadProtocolIdentifier, ReliabilityType, ServerConfig, Stream, StreamEvent, Transmit,
        TransportConfig,
    };
    use std::sync::Arc;

    peer!();

    fn transport(features: Features) -> Arc<TransportConfig> {
        Arc::new(TransportConfig::default().with_max_receive_buffer_size(features.receive_buffer))
    }

    fn new_endpoint(features: Features) -> Endpoint {
        let mut server = ServerConfig::new();
        server.transport = transport(features);
        Endpoint::new(Arc::new(EndpointConfig::new()), Some(Arc::new(server)))
    }

    fn open(endpoint: &mut Endpoint, _: Instant, features: Features, to: SocketAddr) -> Association {
        let mut client = ClientConfig::new();
        client.transport = transport(features);
        endpoint.connect(client, to).expect("the first association").1
    }

    fn give(
        endpoint: &mut Endpoint,
        now: Instant,
        from: SocketAddr,
        packet: Bytes,
    ) -> Option<(AssociationHandle, DatagramEvent)> {
        endpoint.handle(now, from, None, None, packet)
    }

    fn payload(transmit: Transmit) -> Payload {
        transmit.payload
    }

    fn write(stream: &mut Stream<'_>, _: Instant, bytes: &Bytes) -> bool {
        stream.write_sctp(bytes, PayloadProtocolIdentifier::Binary).is_ok()
    }

    fn reset(association: &mut Association, _: Instant, stream: u16) {
        _ = association.stream(stream).and_then(|mut stream| stream.stop());
    }

    /// Closes the association without ABORT, because sctp-proto has no call that sends ABORT.
    fn abort(association: &mut Association) {
        _ = association.close();
    }
}

/// The adapter of rtc-sctp 0.21.1.
pub(crate) mod rtc {
    use rtc_sctp::{
        Association, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event,
        Payload, PayloadProtocolIdentifier, ReliabilityType, ServerConfig, Stream, StreamEvent,
        TransportConfig,
    };
    use rtc_shared::{TransportMessage, TransportProtocol};
    use std::sync::Arc;

    peer!();

    fn transport(features: Features) -> TransportConfig {
        TransportConfig::default().with_max_receive_buffer_size(features.receive_buffer)
    }

    fn new_endpoint(features: Features) -> Endpoint {
        let server = ServerConfig::new(transport(features));
        let here = SocketAddr::from(([10, 0, 0, 8], super::super::ours::PORT));
        Endpoint::new(here, TransportProtocol::UDP, Arc::new(EndpointConfig::new()), Some(Arc::new(server)))
    }

    fn open(endpoint: &mut Endpoint, now: Instant, features: Features, to: SocketAddr) -> Association {
        endpoint.connect(now, ClientConfig::new(transport(features)), to).expect("the first association").1
    }

    fn give(
        endpoint: &mut Endpoint,
        now: Instant,
        from: SocketAddr,
        packet: Bytes,
    ) -> Option<(AssociationHandle, DatagramEvent)> {
        endpoint.handle(now, from, None, packet)
    }

    fn payload(transmit: TransportMessage<Payload>) -> Payload {
        transmit.message
    }

    fn write(stream: &mut Stream<'_>, now: Instant, bytes: &Bytes) -> bool {
        stream.write_sctp(now, bytes, PayloadProtocolIdentifier::Binary).is_ok()
    }

    fn reset(association: &mut Association, now: Instant, stream: u16) {
        _ = association.stream(stream).and_then(|mut stream| stream.stop(now));
    }

    fn abort(association: &mut Association) {
        _ = association.abort();
    }
}
