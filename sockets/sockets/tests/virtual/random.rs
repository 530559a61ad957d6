//! Random valid and invalid calls of programs. No call panics. After all sockets are closed, no socket, association or bound port
//! is left.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use sockets::{Output, SocketKey};
use sockproto::abi::SOL_SCTP;
use sockproto::{DataHeader, Kind, Peer};

use crate::world::{A, B, USER, World, name};

/// Number of sequences of calls, and number of calls in each sequence.
const SEQUENCES: u64 = 300;
const CALLS: usize = 120;
/// Ports of the sockets. The range is small, so sockets often use the same port.
const PORTS: std::ops::Range<u16> = 5000..5004;
/// Time after which every association that is being shut down or aborted has ended.
const LONG: Duration = Duration::from_secs(900);

struct Script {
    world: World,
    rng: fastrand::Rng,
    keys: [Vec<SocketKey>; 2],
    accepted: usize,
}

impl Script {
    /// Makes one call on a random host.
    fn call(&mut self) {
        let at = self.rng.usize(0..2);
        let now = self.world.now;
        self.take_accepted();
        let host = &mut self.world.hosts[at];
        let known = self.keys[at].clone();
        // A few calls use a socket that does not exist.
        let key = self
            .rng
            .choice(known)
            .filter(|_| self.rng.u8(..) > 5)
            .unwrap_or(SocketKey(self.rng.usize(5000..5099)));
        let to = if self.rng.bool() { B } else { A };
        let port = self.rng.u16(PORTS);
        let (sockets, engine) = (&mut host.sockets, &mut host.engine);
        match self.rng.u8(0..16) {
            0 | 1 => {
                let kinds = [libc::SOCK_SEQPACKET, libc::SOCK_STREAM, libc::SOCK_DGRAM];
                let kind = kinds[usize::from(self.rng.u8(..)) % 3];
                self.keys[at].extend(sockets.open(libc::AF_INET, kind, USER));
            }
            2 => {
                let _ = sockets.bind(key, name(Ipv4Addr::UNSPECIFIED, port).as_bytes(), USER);
            }
            3 => {
                let length = self.rng.usize(0..40);
                let garbage: Vec<u8> = std::iter::repeat_with(|| self.rng.u8(..)).take(length).collect();
                {
                    let _ = sockets.bind_add(key, &garbage, USER);
                }
            }
            4 | 5 => {
                let _ = sockets.listen(key, self.rng.i32(-1..4));
            }
            6..=8 => {
                let _ = host.connect(now, key, to, port);
            }
            9 | 10 => {
                let mut header = DataHeader::new(Kind::Data);
                (header.flags, header.stream) = (self.rng.u8(..), self.rng.u16(0..20));
                (header.sinfo_flags, header.tsn_or_lifetime) = (self.rng.u16(..), self.rng.u32(0..50));
                let length = self.rng.usize(0..300_000);
                let message = Bytes::from(vec![0; length]);
                if sockets.is_one_to_many(key) {
                    header.association = self.rng.i32(-1..20);
                    let peer = Peer {
                        address: self.rng.bool().then(|| name(to, port)),
                        init: [self.rng.u16(..), 0, 0, 0],
                    };
                    host.send_any(now, key, (&header, &peer), message);
                } else {
                    sockets.send(now, engine, key, &header, message);
                }
            }
            11 => drop(host.read_bytes(now, key)),
            12 => {
                let length = self.rng.usize(0..200);
                let value: Vec<u8> = std::iter::repeat_with(|| self.rng.u8(..)).take(length).collect();
                let option =
                    (if self.rng.bool() { SOL_SCTP } else { self.rng.i32(0..300) }, self.rng.i32(-2..140));
                {
                    let _ = sockets.set_option(now, engine, key, option, &value);
                }
                drop(sockets.option(engine, key, option, &value));
            }
            13 => sockets.shut_down(now, engine, key),
            14 => {
                sockets.set_waiting(key, 0);
                let id = self.rng.i32(0..20);
                self.keys[at].extend(sockets.peel_off(key, id));
            }
            _ => {
                let has_unread = self.rng.bool();
                sockets.close(now, engine, key, has_unread);
                self.keys[at].retain(|other| *other != key);
            }
        }
        let pause = Duration::from_millis(self.rng.u64(0..400));
        self.world.run(pause);
        for host in &self.world.hosts {
            host.engine.check_invariants();
        }
    }

    /// Takes the sockets that listeners have accepted.
    fn take_accepted(&mut self) {
        for (host, keys) in self.world.hosts.iter_mut().zip(&mut self.keys) {
            for output in host.outputs.drain(..) {
                if let Output::Accepted { socket, .. } = output {
                    self.accepted += 1;
                    keys.push(socket);
                }
            }
        }
    }

    /// Closes all sockets, checks that nothing is left, and returns the number of associations that were accepted.
    fn end(mut self) -> usize {
        // While some associations end, listeners may still accept others.
        for _ in 0..3 {
            self.take_accepted();
            for (host, keys) in self.world.hosts.iter_mut().zip(&mut self.keys) {
                for key in keys.drain(..) {
                    host.sockets.close(self.world.now, &mut host.engine, key, false);
                }
            }
            self.world.run(LONG);
        }
        for host in &mut self.world.hosts {
            assert_eq!((host.sockets.len(), host.engine.associations().count()), (0, 0));
            for port in PORTS {
                let key = host.socket();
                assert_eq!(host.bind(key, Ipv4Addr::UNSPECIFIED, port), Ok(()), "a port that is still held");
            }
        }
        self.accepted
    }
}

#[test]
fn random_calls_leave_nothing_behind() {
    let run = |seed| {
        let rng = fastrand::Rng::with_seed(seed);
        let mut script = Script { world: World::new(), rng, keys: [Vec::new(), Vec::new()], accepted: 0 };
        for (host, keys) in script.world.hosts.iter_mut().zip(&mut script.keys) {
            keys.push(host.listener());
            keys.extend([host.socket(), host.socket()]);
        }
        (0..CALLS).for_each(|_| script.call());
        script.end()
    };
    let accepted: usize = (0..SEQUENCES).map(run).sum();
    assert!(accepted > 300, "{accepted} associations");
}
