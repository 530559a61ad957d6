//! Test of one peer with several shards, on loopback. Each association must stay with one shard from
//! beginning to end.

use base::Time;
use bytes::Bytes;
use clap::Parser;
use peer::host::Host;
use peer::options::Options;
use sctp::{Connect, Event, Ppid, SendOptions, StreamId};
use std::collections::BTreeSet;
use std::num::NonZeroU8;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PORT: u16 = 7;
const ASSOCIATIONS: u16 = 24;
/// Limit on the time for all associations together.
const LIMIT: Duration = Duration::from_secs(60);

fn options(udp_port: u16, peer_udp_port: u16, local: &str) -> Options {
    let ports = [udp_port, peer_udp_port].map(|port| port.to_string());
    let flags = ["--udp-port", &ports[0], "--peer-udp-port", &ports[1], "--local", local];
    Options::parse_from([&["peer"], &flags[..], &["echo", "7"]].concat())
}

/// Returns a currently free UDP port.
fn free_port() -> u16 {
    std::net::UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

/// Accepts and answers associations until all [`ASSOCIATIONS`] have ended, in this shard and in others.
/// `done` counts the ended associations of all shards. Returns the number of associations that began in this
/// shard.
fn serve(mut host: Host, done: &AtomicUsize) -> usize {
    let mut began = 0;
    while done.load(Ordering::Relaxed) < usize::from(ASSOCIATIONS) {
        let now = host.now();
        assert!(now < Time::ZERO + LIMIT, "{began} associations began here, {done:?} ended in all");
        host.turn(now + Duration::from_millis(20)).unwrap();
        let now = host.now();
        while let Some((id, event)) = host.engine.poll_event() {
            match event {
                Event::Incoming { .. } => {
                    began += 1;
                    host.engine.accept(now, id);
                }
                Event::Readable => {
                    let message = host.engine.recv(now, id).unwrap().into_bytes();
                    host.engine.send(now, id, StreamId(0), Ppid(0), message, SendOptions::default()).unwrap();
                }
                Event::Closed(reason) => {
                    assert_eq!(reason, sctp::CloseReason::Graceful);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
    }
    began
}

#[test]
fn associations_are_spread_over_the_shards_and_each_is_served_to_its_end() {
    let (server_port, client_port) = (free_port(), free_port());
    let count = NonZeroU8::new(3).unwrap();
    let hosts = Host::open_shards(&options(server_port, client_port, "127.0.0.1"), PORT, count).unwrap();
    let client = options(client_port, server_port, "127.0.0.2");
    let done = AtomicUsize::new(0);
    let began: Vec<usize> = std::thread::scope(|scope| {
        let servers: Vec<_> = hosts.into_iter().map(|host| scope.spawn(|| serve(host, &done))).collect();
        talk(&client, server_port);
        servers.into_iter().map(|server| server.join().unwrap()).collect()
    });
    assert_eq!(began.iter().sum::<usize>(), usize::from(ASSOCIATIONS));
    assert!(began.iter().all(|n| *n > 0), "{began:?}");
}

/// Sets up all associations at once, exchanges a message on each, and shuts it down.
fn talk(options: &Options, server_port: u16) {
    let mut host = Host::open(options, None).unwrap();
    let remote = "127.0.0.1".parse().unwrap();
    let carrier = base::Carrier::Udp { peer_port: server_port };
    let route = base::Route { local: options.local[0], remote, carrier };
    for local_port in (0..ASSOCIATIONS).map(|n| 40_000 + n * 37) {
        let connect = Connect {
            local_port,
            remote_port: PORT,
            init_routes: vec![route],
            local_addresses: options.local.clone(),
            config: sctp::AssociationConfig::default(),
        };
        let now = host.now();
        host.engine.connect(now, connect).unwrap();
    }
    let (message, mut answered) = (Bytes::from_static(b"which shard?"), BTreeSet::new());
    let mut open = usize::from(ASSOCIATIONS);
    while open > 0 {
        let now = host.now();
        assert!(now < Time::ZERO + LIMIT, "{open} associations are open, {} were answered", answered.len());
        host.turn(now + Duration::from_millis(20)).unwrap();
        let now = host.now();
        while let Some((id, event)) = host.engine.poll_event() {
            match event {
                Event::Established { .. } => {
                    let options = SendOptions::default();
                    host.engine.send(now, id, StreamId(0), Ppid(0), message.clone(), options).unwrap();
                }
                Event::Readable => {
                    assert_eq!(host.engine.recv(now, id).unwrap().into_bytes(), message);
                    answered.insert(id);
                    host.engine.shutdown(now, id);
                }
                Event::Closed(reason) => {
                    assert_eq!(reason, sctp::CloseReason::Graceful);
                    open -= 1;
                }
                _ => {}
            }
        }
    }
    assert_eq!(answered.len(), usize::from(ASSOCIATIONS));
}
