//! Records the packets of the carriers for `sctpify capture`.
//!
//! The event loop copies packets into a queue ([`Tap`]). The thread that serves the capturing client reads the queue ([`Ear`]) and writes a
//! pcapng file to the client's control connection. The loop never waits. Packets that do not fit into the queue are counted, and the next
//! packet reports the count. Packets are copied only during a capture, and only one client captures at a time. After data has moved to
//! another path, the first packet on the new path carries a comment about the switch.

use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Carrier, Ecn, Route, Time};
use ops::has_hung_up;
use wire::pcapng::{self, Captured, Direction};

use crate::clock::{Clock, unix_ms};

/// Limit on the packets that wait to be written.
const QUEUE_MAX: usize = 4096;
/// Limit on the path switches whose first packet has not been sent yet.
const SWITCHES_MAX: usize = 64;
/// Interval between checks that the capturing client is still connected.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time limit for one such check.
const LOOK_LIMIT: Duration = Duration::from_millis(1);
/// Port shown for this host's end of SCTP in UDP if the kernel chose the port. Wireshark recognizes SCTP in UDP by this port.
const USUAL_PORT: u16 = 9899;

/// The event loop's end of the queue.
pub(crate) struct Tap {
    queue: SyncSender<Noted>,
    ear: Weak<()>,
    udp_port: u16,
    began: Time,
    began_ns: u64,
    /// Number of packets that did not fit into the queue after the last queued packet.
    missed: u64,
    /// Comments for the next sent packet on each path.
    switches: Vec<(Route, String)>,
}

/// A captured packet.
struct Noted {
    at_ns: u64,
    from: IpAddr,
    to: IpAddr,
    udp: Option<(u16, u16)>,
    ecn: Ecn,
    direction: Direction,
    comment: String,
    packet: Box<[u8]>,
}

/// The writer's end of the queue. Dropping this end closes the tap.
pub(crate) struct Ear {
    queue: Receiver<Noted>,
    _alive: Arc<()>,
}

/// Creates a tap and its ear. `udp_port` is this host's port for SCTP in UDP, or 0 if the kernel chose the port.
pub(crate) fn pair(now: Time, udp_port: u16) -> (Tap, Ear) {
    let (sender, queue) = sync_channel(QUEUE_MAX);
    let alive = Arc::new(());
    let tap = Tap {
        queue: sender,
        ear: Arc::downgrade(&alive),
        udp_port: if udp_port == 0 { USUAL_PORT } else { udp_port },
        began: now,
        began_ns: unix_ms().saturating_mul(1_000_000),
        missed: 0,
        switches: Vec::new(),
    };
    (tap, Ear { queue, _alive: alive })
}

impl Tap {
    /// Reports whether the ear still exists.
    pub(crate) fn is_heard(&self) -> bool {
        self.ear.strong_count() > 0
    }

    /// Notes that data uses another path from now on.
    pub(crate) fn note_switch(&mut self, from: &Route, to: &Route) {
        if self.switches.len() < SWITCHES_MAX {
            let text = format!(
                "sctpify: data now uses {} → {}; before: {} → {}",
                to.local, to.remote, from.local, from.remote
            );
            self.switches.push((*to, text));
        }
    }

    /// Queues a packet that the daemon sends or receives.
    pub(crate) fn note(&mut self, now: Time, route: &Route, ecn: Ecn, direction: Direction, packet: &[u8]) {
        let (ours, theirs) = (route.local, route.remote);
        let (from, to) = if direction == Direction::Out { (ours, theirs) } else { (theirs, ours) };
        let udp = match (route.carrier, direction) {
            (Carrier::Ip, _) => None,
            (Carrier::Udp { peer_port }, Direction::Out) => Some((self.udp_port, peer_port)),
            (Carrier::Udp { peer_port }, Direction::In) => Some((peer_port, self.udp_port)),
        };
        let at_ns = self.began_ns + u64::try_from(now.since(self.began).as_nanos()).unwrap_or(0);
        let comment = self.comment(route, direction);
        let noted = Noted { at_ns, from, to, udp, ecn, direction, comment, packet: packet.into() };
        // If the queue is full, the comments wait for the next packet that fits into it.
        if self.queue.try_send(noted).is_err() {
            self.missed += 1;
            return;
        }
        self.missed = 0;
        if direction == Direction::Out {
            self.switches.retain(|(to, _)| to != route);
        }
    }

    /// Returns the comment for this packet.
    fn comment(&self, route: &Route, direction: Direction) -> String {
        let missed = self.missed;
        let missing = (missed > 0).then(|| format!("sctpify: {missed} packets before this one are missing"));
        let is_due = |to: &Route| direction == Direction::Out && to == route;
        let switches = self.switches.iter().filter(|(to, _)| is_due(to)).map(|(_, text)| text.clone());
        missing.into_iter().chain(switches).collect::<Vec<_>>().join("\n")
    }
}

impl Ear {
    /// Writes packets until the limit expires or the client hangs up.
    ///
    /// # Errors
    /// Fails if writing fails, for example because the client has gone.
    pub(crate) fn write_to(&self, mut to: &UnixStream, limit: Duration) -> io::Result<()> {
        to.set_read_timeout(Some(LOOK_LIMIT))?;
        let mut buffer = Vec::new();
        pcapng::begin(&mut buffer)?;
        to.write_all(&buffer)?;
        let (clock, mut looked) = (Clock::start(), Duration::ZERO);
        loop {
            let passed = Duration::from_nanos(clock.now().as_nanos());
            let Some(left) = limit.checked_sub(passed) else { return Ok(()) };
            if passed >= looked + LOOK_EVERY {
                looked = passed;
                if has_hung_up(to) {
                    return Ok(());
                }
            }
            match self.queue.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(noted) => {
                    buffer.clear();
                    noted.write(&mut buffer)?;
                    to.write_all(&buffer)?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }
}

impl Noted {
    fn write(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let captured = Captured {
            at_ns: self.at_ns,
            from: self.from,
            to: self.to,
            udp: self.udp,
            ecn: self.ecn,
            direction: Some(self.direction),
            comment: &self.comment,
            packet: &self.packet,
        };
        pcapng::write(out, &captured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(last: u8) -> Route {
        let [local, remote] = [1, last].map(|octet| IpAddr::from([192, 0, 2, octet]));
        Route { local, remote, carrier: Carrier::Udp { peer_port: 5000 } }
    }

    fn comments(ear: &Ear) -> Vec<String> {
        ear.queue.try_iter().map(|noted| noted.comment).collect()
    }

    #[test]
    fn only_the_first_packet_sent_by_the_new_path_tells_of_the_switch() {
        let (mut tap, ear) = pair(Time::ZERO, 9899);
        tap.note_switch(&route(2), &route(3));
        let packets = [(3, Direction::In), (2, Direction::Out), (3, Direction::Out), (3, Direction::Out)];
        for (last, direction) in packets {
            tap.note(Time::ZERO, &route(last), Ecn::NotEct, direction, b"packet");
        }
        let told = comments(&ear);
        assert_eq!(told.iter().map(String::is_empty).collect::<Vec<_>>(), [true, true, false, true]);
        assert!(told[2].contains("192.0.2.3; before: "), "{told:?}");
    }

    #[test]
    fn the_next_packet_reports_the_count_and_switch_comment_of_missing_packets() {
        let (mut tap, ear) = pair(Time::ZERO, 9899);
        let mut note = || tap.note(Time::ZERO, &route(2), Ecn::NotEct, Direction::Out, b"packet");
        (0..QUEUE_MAX).for_each(|_| note());
        tap.note_switch(&route(3), &route(2));
        let mut note = || tap.note(Time::ZERO, &route(2), Ecn::NotEct, Direction::Out, b"packet");
        (0..7).for_each(|_| note());
        assert!(comments(&ear).iter().all(String::is_empty));
        (0..2).for_each(|_| note());
        let told = comments(&ear);
        assert!(
            told[0].starts_with("sctpify: 7 packets before this one are missing\nsctpify: data now uses"),
            "{told:?}"
        );
        assert_eq!(told[1], "");
    }

    #[test]
    fn udp_ports_are_swapped_for_incoming_packets() {
        let (mut tap, ear) = pair(Time::ZERO, 9899);
        for direction in [Direction::Out, Direction::In] {
            tap.note(Time::ZERO, &route(2), Ecn::NotEct, direction, b"packet");
        }
        let ports: Vec<_> = ear.queue.try_iter().map(|noted| (noted.from, noted.udp)).collect();
        let expected = [(route(2).local, Some((9899, 5000))), (route(2).remote, Some((5000, 9899)))];
        assert_eq!(ports, expected);
    }
}
