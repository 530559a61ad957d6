//! Tests this host's links to a peer: sends INITs from each of this host's addresses to each of the peer's addresses. Each INIT leaves
//! through the interface of its local address, like the daemon's packets. Begin with [`Links::open`].
//!
//! One thread for each pair of addresses sends an INIT and waits for the answer. If a pair cannot be tested, its result contains the
//! reason, and the other tests continue.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use control::{LinkTest, OwnAddress, RoundTrips};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Answer, INIT_LENGTH, Over, Question, exchange, fault_of};
use crate::private::is_behind_nat;

/// Tested sizes of IP packets, in bytes. They include the MTUs of Ethernet, PPPoE and WireGuard, and the minimum MTU of IPv6.
const SIZES: [u16; 5] = [1500, 1492, 1420, 1400, 1280];
/// Limit on the wait for the answer to a large packet.
const SIZE_PATIENCE: Duration = Duration::from_millis(500);
/// Number of attempts with each size.
const SIZE_TRIES: usize = 2;
/// Limit on the additional addresses of a peer that are tested. The limit is low, because a peer can list any address, including addresses
/// of other hosts.
const OFFERED_MAX: usize = 8;
/// Length of a UDP header, in bytes.
const UDP_HEADER: u16 = 8;

/// All pairs of this host's addresses and the peer's addresses.
pub(crate) struct Links {
    own: Vec<OwnAddress>,
    udp_port: u16,
    pairs: Vec<Pair>,
}

/// A pair of an address of this host and an address of the peer.
struct Pair {
    socket: io::Result<Socket>,
    test: LinkTest,
    sum_us: u64,
}

impl Links {
    /// Opens a socket from each of this host's addresses to one address of the peer. Sends nothing.
    pub(crate) fn open(own: &[OwnAddress], peer: IpAddr, udp_port: u16) -> Links {
        let mut links = Links { own: own.to_vec(), udp_port, pairs: Vec::new() };
        links.pairs = links.pairs_to(peer);
        links
    }

    fn pairs_to(&self, remote: IpAddr) -> Vec<Pair> {
        let own = self.own.iter().filter(|own| own.local.is_ipv4() == remote.is_ipv4());
        own.map(|own| Pair::open(own, SocketAddr::new(remote, self.udp_port))).collect()
    }

    /// Asks the peer for its other addresses, over the first link that answers. For each new address of the peer, adds a pair with each
    /// address of this host that has a route to the new address. Returns the new addresses.
    pub(crate) fn add_offered(&mut self) -> Vec<IpAddr> {
        let answered = self.pairs.iter().filter(|pair| pair.test.answered > 0);
        let mut offered = answered.filter_map(Pair::offered).next().unwrap_or_default();
        offered.retain(|remote| self.pairs.iter().all(|pair| pair.test.remote != *remote));
        offered.truncate(OFFERED_MAX);
        let others: Vec<Pair> = offered.iter().flat_map(|remote| self.pairs_to(*remote)).collect();
        self.pairs.extend(others.into_iter().filter(|pair| pair.socket.is_ok()));
        offered
    }

    /// Sends one INIT for `sctp_port` on all pairs in parallel, and waits up to `patience` for each answer.
    pub(crate) fn round(&mut self, sctp_port: u16, patience: Duration) {
        self.each(|pair| pair.round(sctp_port, patience));
    }

    /// Sends INITs on each pair until `count` INITs have been sent on the pair. Waits up to `patience` for each answer.
    pub(crate) fn complete(&mut self, count: u64, sctp_port: u16, patience: Duration) {
        self.each(|pair| (pair.test.sent..count).for_each(|_| pair.round(sctp_port, patience)));
    }

    /// For each pair that has had an answer, finds the largest packet size in `SIZES` that is answered.
    pub(crate) fn find_mtus(&mut self, sctp_port: u16) {
        self.each(|pair| pair.find_mtu(sctp_port));
    }

    /// Returns the results so far, in the order of this host's addresses.
    pub(crate) fn tests(&self) -> Vec<LinkTest> {
        self.pairs.iter().map(|pair| pair.test.clone()).collect()
    }

    fn each(&mut self, work: impl Fn(&mut Pair) + Sync) {
        thread::scope(|scope| {
            for pair in &mut self.pairs {
                scope.spawn(|| work(pair));
            }
        });
    }
}

impl Pair {
    fn open(own: &OwnAddress, remote: SocketAddr) -> Pair {
        let test = LinkTest {
            own: own.clone(),
            remote: remote.ip(),
            udp_port: remote.port(),
            sent: 0,
            answered: 0,
            rtt: None,
            mtu: None,
            nat: is_behind_nat(own.local, remote.ip()),
            fault: None,
        };
        Pair { socket: socket(own, remote), test, sum_us: 0 }
    }

    fn round(&mut self, sctp_port: u16, patience: Duration) {
        if self.test.own.is_down {
            self.test.fault = Some("the link is down".to_owned());
            return;
        }
        self.test.sent += 1;
        match self.answer(Question { sctp_port, padding: 0, adaptation: None }, patience) {
            Ok((rtt, _)) => self.count(rtt),
            Err(fault) => self.test.fault = Some(fault),
        }
    }

    /// Returns the addresses that the peer offers for a shared association; `None` without an answer.
    fn offered(&self) -> Option<Vec<IpAddr>> {
        self.answer(Question::SHARED, SIZE_PATIENCE).ok().map(|(_, addresses)| addresses)
    }

    fn count(&mut self, rtt: Duration) {
        let us = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
        self.test.answered += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        let (min_us, max_us) = self.test.rtt.map_or((us, us), |rtt| (rtt.min_us.min(us), rtt.max_us.max(us)));
        let mean_us = self.sum_us / self.test.answered;
        self.test.rtt = Some(RoundTrips { last_us: us, min_us, mean_us, max_us });
    }

    fn find_mtu(&mut self, sctp_port: u16) {
        if self.test.answered == 0 {
            return;
        }
        let headers = UDP_HEADER + if self.test.remote.is_ipv4() { 20 } else { 40 };
        let passes = |size: &u16| {
            let padding = usize::from(size - headers) - INIT_LENGTH;
            let question = Question { sctp_port, padding, adaptation: None };
            (0..SIZE_TRIES).any(|_| self.answer(question, SIZE_PATIENCE).is_ok())
        };
        self.test.mtu = SIZES.into_iter().find(passes);
    }

    /// Sends an INIT. Returns the round-trip time and the addresses in the answer, or the reason why no answer arrived.
    #[allow(clippy::disallowed_methods, reason = "it measures")]
    fn answer(&self, question: Question, patience: Duration) -> Result<(Duration, Vec<IpAddr>), String> {
        let socket = self.socket.as_ref().map_err(|error| fault_of(&Answer::of_error(error)))?;
        let began = Instant::now();
        let answer =
            socket.set_read_timeout(Some(patience)).and_then(|()| exchange(Over::Udp, socket, question));
        let rtt = began.elapsed();
        match answer.map_or_else(|error| Answer::of_error(&error), |answer| answer.unwrap_or(Answer::Silence))
        {
            Answer::Sctp { addresses, .. } => Ok((rtt, addresses)),
            other => Err(fault_of(&other)),
        }
    }
}

/// Opens a UDP socket that sends from this address through its interface. The kernel does not fragment the packets.
fn socket(own: &OwnAddress, remote: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(interface) = &own.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(&SocketAddr::new(own.local, 0).into())?;
    netio::forbid_fragments(socket.as_fd(), remote.is_ipv4())?;
    socket.connect(&remote.into())?;
    Ok(socket)
}
