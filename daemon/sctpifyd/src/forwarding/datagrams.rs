//! UDP for the enclosed namespace: each conversation has a socket that speaks inside under its destination's name, and an
//! ordinary one outside.
//!
//! Answers from other addresses than the one asked are dropped. Invariant: at most [`FLOWS_MAX`] conversations; the one silent
//! for the longest time goes first.

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
/// Limit on the silence of a conversation.
const SILENCE: Duration = Duration::from_secs(120);
/// Limit on the datagrams taken from one socket at one event; the rest waits its turn.
const DATAGRAMS_PER_EVENT: usize = 256;
/// The longest datagram.
const DATAGRAM_MAX: usize = 65_535;

/// All conversations, by odd numbers.
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
        // Terminates: nothing else takes from the listener, and its buffer bounds what arrives meanwhile.
        loop {
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

    /// Takes datagrams from a conversation's socket.
    pub(super) fn take(&mut self, registry: &Registry, number: usize, side: Side, now: Time) {
        let Some(flow) = self.all.get_mut(&number) else { return };
        flow.used = now;
        let (from, to) = match side {
            Side::Inside => (&mut flow.inside, &flow.outside),
            Side::Outside => (&mut flow.outside, &flow.inside),
        };
        for _ in 0..DATAGRAMS_PER_EVENT {
            match from.recv(&mut self.scratch) {
                // A datagram that cannot be sent on is lost, as any may be.
                Ok(length) => drop(to.send(&self.scratch[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The ICMP error of an earlier datagram.
                Err(_) => {}
            }
        }
        // The rest is reported anew, after the others' datagrams.
        if let Err(error) = registry.reregister(from, token_of(number, side), Interest::READABLE) {
            tracing::warn!(%error, "a UDP flow stalls");
        }
    }

    /// Ends conversations that were silent for too long.
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

/// Opens an ordinary socket that speaks only with `to`.
fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let unspecified: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((unspecified, 0).into())?;
    socket.connect(to)?;
    Ok(socket)
}
