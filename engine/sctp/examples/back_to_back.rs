//! Measures the throughput of the engine alone: two endpoints exchange packets in memory, on one core.
//!
//! `cargo run --release -p sctp-engine --example back_to_back -- [MESSAGE_BYTES] [SECONDS]`

use std::net::IpAddr;
use std::time::{Duration, Instant};

use sctp::{
    AssociationConfig, AssociationId, Bytes, Carrier, Connect, Ecn, Endpoint, EndpointConfig, Event,
    IncomingInit, InitDecision, Listener, Ppid, Route, SendError, SendOptions, StreamId, Time,
};

struct AcceptAll;

impl Listener for AcceptAll {
    fn on_init(&mut self, init: &IncomingInit) -> InitDecision {
        InitDecision::Accept { local_addresses: vec![init.route.local] }
    }
}

struct Host {
    endpoint: Endpoint,
    id: Option<AssociationId>,
    established: bool,
    received: u64,
}

impl Host {
    fn new(seed: u8) -> Host {
        let config = EndpointConfig { association: settings(), ..EndpointConfig::default() };
        Host {
            endpoint: Endpoint::new(Time::ZERO, config, [seed; 32]),
            id: None,
            established: false,
            received: 0,
        }
    }

    fn drain_events(&mut self, now: Time) {
        while let Some((id, event)) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { .. } => {
                    self.id = Some(id);
                    self.endpoint.accept(now, id);
                }
                Event::Established { .. } => self.established = true,
                Event::Readable => {
                    while let Some(message) = self.endpoint.recv(now, id) {
                        self.received += message.len() as u64;
                    }
                }
                Event::Closed(reason) => panic!("association closed: {reason:?}"),
                _ => {}
            }
        }
    }

    fn transmit_to(&mut self, peer: &mut Host, now: Time, buf: &mut [u8]) -> bool {
        let mut moved = false;
        while let Some(transmit) = self.endpoint.poll_transmit(now, buf) {
            moved = true;
            let back = Route { local: transmit.route.remote, remote: transmit.route.local, ..transmit.route };
            for packet in buf[..transmit.len].chunks(transmit.segment_size) {
                peer.endpoint.handle_datagram(now, &back, Ecn::NotEct, packet, &mut AcceptAll);
            }
            peer.drain_events(now);
        }
        moved
    }
}

fn settings() -> AssociationConfig {
    AssociationConfig { send_buffer: 4 << 20, receive_buffer: 4 << 20, ..AssociationConfig::default() }
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn main() {
    let arg = |n, default| std::env::args().nth(n).map_or(default, |a| a.parse().expect("a number"));
    let (size, seconds) = (arg(1, 1444usize), arg(2, 3usize));
    let (mut a, mut b) = (Host::new(1), Host::new(2));
    let (local, remote): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let route = Route { local, remote, carrier: Carrier::Udp { peer_port: 9899 } };
    let connect = Connect {
        local_port: 1,
        remote_port: 2,
        init_routes: vec![route],
        local_addresses: vec![local],
        config: settings(),
    };
    let id = a.endpoint.connect(Time::ZERO, connect).expect("a free endpoint");
    let message = Bytes::from(vec![7u8; size]);
    let mut buf = vec![0; 65_536];
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds as u64) {
        let now = Time::from_nanos(begin.elapsed().as_nanos() as u64);
        if a.endpoint.next_timeout() <= now {
            a.endpoint.handle_timeout(now);
        }
        if b.endpoint.next_timeout() <= now {
            b.endpoint.handle_timeout(now);
        }
        if a.established {
            loop {
                match a.endpoint.send(now, id, StreamId(0), Ppid(0), message.clone(), SendOptions::default())
                {
                    Ok(()) => {}
                    Err(SendError::WouldBlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        a.transmit_to(&mut b, now, &mut buf);
        a.drain_events(now);
        b.transmit_to(&mut a, now, &mut buf);
        a.drain_events(now);
    }
    let elapsed = begin.elapsed().as_secs_f64();
    println!("{size} B messages: {:.2} Gbit/s", b.received as f64 * 8.0 / elapsed / 1e9);
    println!("{:?}", a.endpoint.info(id).map(|i| (i.counters, i.paths)));
}
