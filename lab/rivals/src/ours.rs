//! Our own engine.

use crate::{BUFFER, Engine};
use anyhow::{Result, bail};
use base::{Carrier, Ecn, Route, Time};
use bytes::Bytes;
use sctp::{
    AssociationConfig, AssociationId, Connect, Endpoint, EndpointConfig, Event, IncomingInit, InitDecision,
    Listener, Ppid, SendError, SendOptions, StreamId,
};
use std::net::IpAddr;
use std::time::Instant;

/// Maximum length of a train, in bytes: the limit of UDP GSO.
const TRAIN: usize = 65_536;

/// An endpoint with its association.
pub(crate) struct End {
    endpoint: Endpoint,
    start: Instant,
    id: Option<AssociationId>,
    is_up: bool,
    train: Vec<u8>,
}

struct Open;

impl Listener for Open {
    fn on_init(&mut self, init: &IncomingInit) -> InitDecision {
        InitDecision::Accept { local_addresses: vec![init.route.local] }
    }
}

fn settings() -> AssociationConfig {
    let buffer = BUFFER as usize;
    AssociationConfig { send_buffer: buffer, receive_buffer: buffer, ..AssociationConfig::default() }
}

impl End {
    fn new(start: Instant, seed: u8) -> End {
        let config = EndpointConfig { association: settings(), ..EndpointConfig::default() };
        let endpoint = Endpoint::new(Time::ZERO, config, [seed; 32]);
        End { endpoint, start, id: None, is_up: false, train: vec![0; TRAIN] }
    }

    fn time(&self, now: Instant) -> Time {
        let nanos = now.duration_since(self.start).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn on_events(&mut self, now: Time) -> Result<()> {
        while let Some((id, event)) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { .. } => {
                    self.id = Some(id);
                    self.endpoint.accept(now, id);
                }
                Event::Established { .. } => self.is_up = true,
                Event::Closed(reason) => bail!("closed: {reason:?}"),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Engine for End {
    fn pair(start: Instant) -> Result<(End, End)> {
        let (mut client, server) = (End::new(start, 1), End::new(start, 2));
        let (local, remote): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let connect = Connect {
            local_port: 1,
            remote_port: 2,
            init_routes: vec![Route { local, remote, carrier: Carrier::Udp { peer_port: 9899 } }],
            local_addresses: vec![local],
            config: settings(),
        };
        client.id = Some(client.endpoint.connect(Time::ZERO, connect)?);
        Ok((client, server))
    }

    fn is_up(&self) -> bool {
        self.is_up
    }

    fn fill(&mut self, now: Instant, message: &Bytes) -> Result<()> {
        let (Some(id), now) = (self.id, self.time(now)) else { bail!("not connected") };
        loop {
            let options = SendOptions::default();
            match self.endpoint.send(now, id, StreamId(0), Ppid(0), message.clone(), options) {
                Ok(()) => {}
                Err(SendError::WouldBlock) => return Ok(()),
                Err(error) => bail!("a message cannot be sent: {error}"),
            }
        }
    }

    fn carry(&mut self, now: Instant, peer: &mut End) -> Result<()> {
        let now = self.time(now);
        if self.endpoint.next_timeout() <= now {
            self.endpoint.handle_timeout(now);
        }
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.train) {
            let back = Route { local: transmit.route.remote, remote: transmit.route.local, ..transmit.route };
            for packet in self.train[..transmit.len].chunks(transmit.segment_size) {
                peer.endpoint.handle_datagram(now, &back, Ecn::NotEct, packet, &mut Open);
            }
        }
        self.on_events(now)?;
        peer.on_events(now)
    }

    fn take(&mut self, now: Instant) -> Result<usize> {
        let (Some(id), now) = (self.id, self.time(now)) else { return Ok(0) };
        let mut bytes = 0;
        while let Some(message) = self.endpoint.recv(now, id) {
            bytes += message.len();
        }
        Ok(bytes)
    }
}
