//! User-mode forwarding, as in slirp4netns and pasta. Gives a command in an enclosed network namespace the plain TCP and UDP of the host's
//! own namespace.
//!
//! All packets of the enclosed namespace lead to the daemon. A separate thread opens ordinary sockets for all traffic that SCTP does not
//! carry. A SYN is held until its destination has answered ([`Forwarder::open`]). The SYN is then released, or denied with the error that
//! the destination gave. The thread copies bytes ([`streams`]) and datagrams ([`datagrams`]).
//!
//! All destinations that the host itself can reach are allowed. Invariants: a connection inside is accepted only once it exists outside,
//! and a reset on one side resets the other side.

mod datagrams;
mod half;
mod streams;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use base::Time;
use intercept::{Arrival, DatagramListener, Denial, FourTuple, HeldSyn, Verdict};
use mio::{Events, Poll, Token, Waker};
use nix::errno::Errno;

use crate::clock::Clock;
use crate::commands::{Command, Handle};
use datagrams::Datagrams;
use streams::Streams;

const WAKER: Token = Token(0);
/// First token of the datagram listeners, one for each address family.
const LISTENERS: Token = Token(1);
const LISTENERS_MAX: usize = 2;
/// First token of the conversations. Each conversation has two tokens, one for each side.
const SIDES: usize = LISTENERS.0 + LISTENERS_MAX;
const EVENTS_PER_TURN: usize = 256;
/// Interval between two searches for expired conversations and connections.
const SWEEP: Duration = Duration::from_secs(1);

/// Side of a conversation: in the enclosed namespace, or outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Inside,
    Outside,
}

fn token_of(number: usize, side: Side) -> Token {
    Token(SIDES + 2 * number + usize::from(side == Side::Outside))
}

/// Orders from the shard to the thread.
enum Order {
    Open(FourTuple, SocketAddr),
    Claim(FourTuple, mio::net::TcpStream),
}

/// The shard's interface to the thread.
pub(crate) struct Forwarder {
    orders: Sender<Order>,
    waker: Arc<Waker>,
    /// SYNs whose destinations have not answered yet.
    waiting: BTreeMap<FourTuple, HeldSyn>,
    names: Names,
}

impl Forwarder {
    /// Starts the thread in the calling thread's network namespace. The thread serves `listeners`, and reports the outcome of connections
    /// to `shard`.
    pub(crate) fn start(names: Names, listeners: Vec<DatagramListener>, shard: Handle) -> Result<Forwarder> {
        let poll = Poll::new().context("cannot create an event loop")?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (orders, inbox) = channel();
        let datagrams = Datagrams::new(listeners, poll.registry(), names.clone())?;
        let desk = Desk { poll, inbox, shard, clock: Clock::start(), streams: Streams::default(), datagrams };
        std::thread::Builder::new().name("forwarding".to_owned()).spawn(move || desk.run())?;
        Ok(Forwarder { orders, waker, waiting: BTreeMap::new(), names })
    }

    /// Opens a plain TCP connection for a held SYN. [`Command::Opened`] reports the outcome. If the SYN of an earlier connection with the
    /// same addresses still waits, returns that SYN.
    pub(crate) fn open(&mut self, syn: HeldSyn) -> Option<HeldSyn> {
        self.order(Order::Open(syn.flow, self.names.resolve(syn.flow.remote())));
        self.waiting.insert(syn.flow, syn)
    }

    /// Replaces the waiting SYN by its retransmission `syn`, and returns the replaced SYN. Returns `None` if `syn` is another SYN.
    pub(crate) fn hold_again(&mut self, syn: HeldSyn) -> Option<HeldSyn> {
        let waiting = self.waiting.get_mut(&syn.flow).filter(|waiting| waiting.isn == syn.isn)?;
        Some(std::mem::replace(waiting, syn))
    }

    /// Removes and returns the SYN whose destination has answered, if this SYN still waits.
    pub(crate) fn settle(&mut self, flow: &FourTuple) -> Option<HeldSyn> {
        self.waiting.remove(flow)
    }

    /// Hands a released connection that has arrived over to the thread. The thread then copies the connection's bytes.
    pub(crate) fn claim(&mut self, arrival: Arrival) {
        self.order(Order::Claim(arrival.flow, arrival.stream));
    }

    /// Reports whether this address represents the host's name server.
    pub(crate) fn is_name_server(&self, ip: IpAddr) -> bool {
        self.names.server.is_some() && ip == control::STAND_IN_NAME_SERVER
    }

    fn order(&self, order: Order) {
        if self.orders.send(order).is_ok()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "the thread for plain connections cannot be woken");
        }
    }
}

/// Returns the host's own address for packets to `remote`, or `None` without a route.
pub(crate) fn source_of(remote: IpAddr) -> Option<IpAddr> {
    const ANY_PORT: u16 = 9;
    let unspecified: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((unspecified, 0)).ok()?;
    socket.connect((remote, ANY_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns the verdict on a SYN whose destination gave this answer.
pub(crate) fn verdict_on(outcome: &io::Result<()>) -> Verdict {
    let Err(error) = outcome else { return Verdict::Accept };
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED | Errno::ECONNRESET) => Verdict::Deny(Denial::Refused),
        Some(Errno::EHOSTUNREACH | Errno::EACCES | Errno::EPERM) => Verdict::Deny(Denial::HostUnreachable),
        // After the drop, the program's kernel retransmits the SYN, and reports the timeout to the program itself.
        Some(Errno::ETIMEDOUT) => Verdict::Drop,
        _ => Verdict::Deny(Denial::NetworkUnreachable),
    }
}

/// The address of the host's name server, if only the host's loopback interface reaches it.
#[derive(Clone)]
pub(crate) struct Names {
    server: Option<IpAddr>,
}

impl Names {
    /// Reads the host's configuration while the process can still access it.
    pub(crate) fn of_host() -> Names {
        let text = std::fs::read_to_string(ops::RESOLV_CONF).unwrap_or_default();
        Names { server: ops::loopback_name_server(&text) }
    }

    /// Returns the true destination of data sent to `to`.
    fn resolve(&self, to: SocketAddr) -> SocketAddr {
        match self.server {
            Some(server) if to.ip() == control::STAND_IN_NAME_SERVER => SocketAddr::new(server, to.port()),
            _ => to,
        }
    }
}

/// State of the forwarding thread.
struct Desk {
    poll: Poll,
    inbox: Receiver<Order>,
    shard: Handle,
    clock: Clock,
    streams: Streams,
    datagrams: Datagrams,
}

impl Desk {
    /// Runs until the process ends.
    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        loop {
            let pause = if self.streams.has_more() { Duration::ZERO } else { SWEEP };
            match self.poll.poll(&mut events, Some(pause)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    tracing::error!(%error, "plain connections have ended: polling failed");
                    self.shard.send(Command::Stop);
                    return;
                }
                _ => self.turn(&events),
            }
        }
    }

    fn turn(&mut self, events: &Events) {
        let now = self.clock.now();
        while let Ok(order) = self.inbox.try_recv() {
            self.obey(order);
        }
        for event in events {
            self.take(event, now);
        }
        self.streams.pump();
        self.streams.sweep(now);
        self.datagrams.sweep(now);
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Open(flow, to) => {
                if let Err(error) = self.streams.open(self.poll.registry(), flow, to) {
                    self.shard.send(Command::Opened(flow, Err(error)));
                }
            }
            Order::Claim(flow, stream) => self.streams.claim(self.poll.registry(), flow, stream),
        }
    }

    fn take(&mut self, event: &mio::event::Event, now: Time) {
        let Token(token) = event.token();
        match token.checked_sub(SIDES) {
            None if event.token() == WAKER => {}
            None => self.datagrams.take_new(self.poll.registry(), token - LISTENERS.0, now),
            Some(place) => {
                let side = if place % 2 == 1 { Side::Outside } else { Side::Inside };
                if let Some((flow, outcome)) = self.streams.take(place / 2, side, event, now) {
                    self.shard.send(Command::Opened(flow, outcome));
                }
                self.datagrams.take(self.poll.registry(), place / 2, side, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(errno: Errno) -> Verdict {
        verdict_on(&Err(io::Error::from_raw_os_error(errno as i32)))
    }

    #[test]
    fn an_application_gets_the_error_that_its_destination_gave() {
        assert_eq!(verdict_on(&Ok(())), Verdict::Accept);
        assert_eq!(verdict(Errno::ECONNREFUSED), Verdict::Deny(Denial::Refused));
        assert_eq!(verdict(Errno::EHOSTUNREACH), Verdict::Deny(Denial::HostUnreachable));
        assert_eq!(verdict(Errno::ENETUNREACH), Verdict::Deny(Denial::NetworkUnreachable));
        assert_eq!(verdict(Errno::ETIMEDOUT), Verdict::Drop);
    }

    #[test]
    fn the_name_server_address_of_the_private_namespace_is_the_stand_in() {
        assert_eq!(intercept::name_server(), control::STAND_IN_NAME_SERVER);
    }

    #[test]
    fn only_what_is_sent_to_the_stand_in_goes_to_the_name_server() {
        let names = Names { server: Some([127, 0, 0, 53].into()) };
        let stand_in = SocketAddr::new(control::STAND_IN_NAME_SERVER.into(), 53);
        assert_eq!(names.resolve(stand_in), ([127, 0, 0, 53], 53).into());
        assert_eq!(names.resolve(([10, 0, 0, 1], 53).into()), ([10, 0, 0, 1], 53).into());
        assert_eq!(Names { server: None }.resolve(stand_in), stand_in);
    }
}
