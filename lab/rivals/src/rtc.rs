//! The engine rtc-sctp. The calls follow the library's end-to-end example.

use crate::{BUFFER, Engine, PACKET};
use anyhow::{Result, bail};
use bytes::Bytes;
use rtc_sctp::{
    Association, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event, Payload,
    PayloadProtocolIdentifier, ServerConfig, TransportConfig, max_payload_size_for_mtu,
};
use rtc_shared::TransportProtocol;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// An endpoint with its association.
pub(crate) struct End {
    endpoint: Endpoint,
    peer: SocketAddr,
    association: Option<(AssociationHandle, Association)>,
    is_up: bool,
    has_stream: bool,
    inbound: VecDeque<Bytes>,
}

impl End {
    fn new(local: SocketAddr, peer: SocketAddr, server: Option<Arc<ServerConfig>>) -> End {
        let mut config = EndpointConfig::new();
        config.max_payload_size(max_payload_size_for_mtu(PACKET.into()));
        let endpoint = Endpoint::new(local, TransportProtocol::UDP, Arc::new(config), server);
        End { endpoint, peer, association: None, is_up: false, has_stream: false, inbound: VecDeque::new() }
    }

    fn receive(&mut self, now: Instant) {
        while let Some(packet) = self.inbound.pop_front() {
            match (self.endpoint.handle(now, self.peer, None, packet), &mut self.association) {
                (Some((handle, DatagramEvent::NewAssociation(association))), _) => {
                    self.association = Some((handle, association));
                }
                (Some((_, DatagramEvent::AssociationEvent(event))), Some((_, association))) => {
                    association.handle_event(event);
                }
                _ => {}
            }
        }
    }
}

fn settings() -> TransportConfig {
    TransportConfig::default().with_max_receive_buffer_size(BUFFER)
}

impl Engine for End {
    fn pair(start: Instant) -> Result<(End, End)> {
        let (here, there) =
            (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
        let mut client = End::new(here, there, None);
        let server = End::new(there, here, Some(Arc::new(ServerConfig::new(settings()))));
        client.association = Some(client.endpoint.connect(start, ClientConfig::new(settings()), there)?);
        Ok((client, server))
    }

    fn is_up(&self) -> bool {
        self.is_up
    }

    fn fill(&mut self, now: Instant, message: &Bytes) -> Result<()> {
        let Some((_, association)) = &mut self.association else { bail!("not connected") };
        if !self.has_stream {
            association.open_stream(0, PayloadProtocolIdentifier::Binary)?;
            self.has_stream = true;
        }
        let mut stream = association.stream(0)?;
        while stream.buffered_amount()? < BUFFER as usize {
            stream.write_sctp(now, message, PayloadProtocolIdentifier::Binary)?;
        }
        Ok(())
    }

    fn carry(&mut self, now: Instant, peer: &mut End) -> Result<()> {
        self.receive(now);
        let Some((handle, association)) = &mut self.association else { return Ok(()) };
        if association.poll_timeout().is_some_and(|at| at <= now) {
            association.handle_timeout(now);
        }
        while let Some(event) = association.poll() {
            self.is_up |= matches!(event, Event::Connected);
        }
        while let Some(event) = association.poll_endpoint_event() {
            self.endpoint.handle_event(*handle, event);
        }
        while let Some(transmit) = association.poll_transmit(now) {
            if let Payload::RawEncode(packets) = transmit.message {
                peer.inbound.extend(packets);
            }
        }
        peer.receive(now);
        Ok(())
    }

    fn take(&mut self, _: Instant) -> Result<usize> {
        let Some((_, association)) = &mut self.association else { return Ok(0) };
        if !self.has_stream {
            self.has_stream = association.accept_stream().is_some();
        }
        if !self.has_stream {
            return Ok(0);
        }
        let (mut stream, mut bytes) = (association.stream(0)?, 0);
        while let Ok(Some(message)) = stream.read_sctp() {
            bytes += message.len();
        }
        Ok(bytes)
    }
}
