//! Forwards UDP for the enclosed namespace. Each conversation has two sockets. The inside socket uses the address of the destination as its
//! local address. The outside socket has an address of the host.
//!
//! Answers from other addresses than the destination are dropped. Invariant: the number of conversations is [`FLOWS_MAX`] or less. At the
//! limit, the conversation that has been silent for the longest time ends.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use base::Time;
use intercept::{Datagram, DatagramListener};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};

use super::{LISTENERS, LISTENERS_MAX, Names, Side, token_of};

/// Limit on concurrent conversations.
const FLOWS_MAX: usize = 1024;
/// Time of silence after which a conversation ends.
const SILENCE: Duration = Duration::from_secs(120);
/// Limit on the datagrams taken from one socket at one event. Further datagrams wait for the next event.
const DATAGRAMS_PER_EVENT: usize = 256;
/// Length of the longest datagram, in bytes.
const DATAGRAM_MAX: usize = 65_535;

/// All conversations. Their numbers are odd. The numbers of TCP connections are even.
pub(super) struct Datagrams {
    listeners: Vec<DatagramListener>,
    names: Names,
    all: BTreeMap<usize, Flow>,
    numbers: BTreeMap<(SocketAddr, SocketAddr), usize>,
    last: usize,
    scratch: Box<[u8]>,
}

struct Flow {
    key: (SocketAddr, SocketAddr),
    inside: UdpSocket,
    outside: UdpSocket,
    used: Time,
}

impl Datagrams {
    pub(super) fn new(
        mut listeners: Vec<DatagramListener>,
        registry: &Registry,
        names: Names,
    ) -> Result<Datagrams> {
        for (place, listener) in listeners.iter_mut().enumerate().take(LISTENERS_MAX) {
            registry.register(listener, Token(LISTENERS.0 + place), Interest::READABLE)?;
        }
        let scratch = vec![0; DATAGRAM_MAX].into();
        Ok(Datagrams { listeners, names, all: BTreeMap::new(), numbers: BTreeMap::new(), last: 1, scratch })
    }

    /// Takes the first datagrams of conversations from a listener.
    pub(super) fn take_new(&mut self, registry: &Registry, place: usize, now: Time) {
        for _ in 0..DATAGRAMS_PER_EVENT {
            match self.listeners.get(place).map(DatagramListener::recv) {
                Some(Ok(Some(datagram))) => {
                    if let Err(error) = self.begin(registry, place, &datagram, now) {
                        tracing::debug!(to = %datagram.to, %error, "a datagram is lost");
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "cannot receive a datagram");
                    return;
                }
                Some(Ok(None)) | None => return,
            }
        }
        // A new registration makes the poll report the remaining datagrams after the events of other sockets.
        let Some(listener) = self.listeners.get_mut(place) else { return };
        if let Err(error) = registry.reregister(listener, Token(LISTENERS.0 + place), Interest::READABLE) {
            tracing::warn!(%error, "new UDP flows stall");
        }
    }

    fn begin(&mut self, registry: &Registry, place: usize, first: &Datagram, now: Time) -> io::Result<()> {
        let key = (first.from, first.to);
        if let Some(flow) = self.numbers.get(&key).and_then(|number| self.all.get_mut(number)) {
            flow.used = now;
            return flow.outside.send(&first.bytes).map(|_| ());
        }
        self.make_room();
        let mut inside = self.listeners[place].answering(first.to, first.from)?;
        let mut outside = connected(self.names.resolve(first.to))?;
        self.last += 2;
        registry.register(&mut inside, token_of(self.last, Side::Inside), Interest::READABLE)?;
        registry.register(&mut outside, token_of(self.last, Side::Outside), Interest::READABLE)?;
        outside.send(&first.bytes)?;
        self.numbers.insert(key, self.last);
        self.all.insert(self.last, Flow { key, inside, outside, used: now });
        Ok(())
    }

    /// Forwards datagrams from one socket of a conversation to the other socket.
    pub(super) fn take(&mut self, registry: &Registry, number: usize, side: Side, now: Time) {
        let Some(flow) = self.all.get_mut(&number) else { return };
        flow.used = now;
        let (from, to) = match side {
            Side::Inside => (&mut flow.inside, &flow.outside),
            Side::Outside => (&mut flow.outside, &flow.inside),
        };
        for _ in 0..DATAGRAMS_PER_EVENT {
            match from.recv(&mut self.scratch) {
                // A datagram that cannot be forwarded is lost, which UDP permits.
                Ok(length) => drop(to.send(&self.scratch[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // This is the ICMP error of an earlier datagram.
                Err(_) => {}
            }
        }
        // A new registration makes the poll report the remaining datagrams of this socket after other sockets' datagrams.
        if let Err(error) = registry.reregister(from, token_of(number, side), Interest::READABLE) {
            tracing::warn!(%error, "a UDP flow stalls");
        }
    }

    /// Ends conversations that have been silent for too long.
    pub(super) fn sweep(&mut self, now: Time) {
        let is_over = |flow: &Flow| now.since(flow.used) >= SILENCE;
        let over: Vec<usize> =
            self.all.iter().filter(|(_, f)| is_over(f)).map(|(number, _)| *number).collect();
        over.into_iter().for_each(|number| self.end(number));
    }

    fn make_room(&mut self) {
        if self.all.len() >= FLOWS_MAX
            && let Some(number) = self.all.iter().min_by_key(|(_, flow)| flow.used).map(|(number, _)| *number)
        {
            self.end(number);
        }
    }

    fn end(&mut self, number: usize) {
        if let Some(flow) = self.all.remove(&number) {
            self.numbers.remove(&flow.key);
        }
    }
}

/// Opens an ordinary socket that exchanges datagrams only with `to`.
fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let unspecified: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((unspecified, 0).into())?;
    socket.connect(to)?;
    Ok(socket)
}
