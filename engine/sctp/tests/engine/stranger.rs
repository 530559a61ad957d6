//! An unknown host that sends hand-written packets, which may violate any rule.

use std::net::IpAddr;

use base::Route;
use sctp::AssociationId;
use sim::{HostId, World, chunk_names, packet};
use wire::{ChecksumMode, Chunk, CookieEcho, Init, Packet, Parameter, Parameters, Tsn, VerificationTag};

use crate::support::route;

/// An unknown host with one address, which sends to port 7 of one host.
#[derive(Clone, Copy)]
pub(crate) struct Stranger {
    pub(crate) port: u16,
    /// The route as the receiving host sees it.
    pub(crate) route: Route,
    pub(crate) to: HostId,
}

/// Contents of an INIT ACK.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) tag: u32,
    pub(crate) initial_tsn: u32,
    pub(crate) addresses: usize,
    pub(crate) cookie: Vec<u8>,
    pub(crate) length: usize,
}

impl Stranger {
    pub(crate) fn new(to: HostId, local: &str, address: &str, port: u16) -> Stranger {
        Stranger { port, route: route(local, address), to }
    }

    /// Returns the same host at another address.
    pub(crate) fn at(self, address: &str) -> Stranger {
        Stranger { route: Route { remote: address.parse().unwrap(), ..self.route }, ..self }
    }

    /// Sends a packet with these chunks. Returns the packets that any host sends at once.
    pub(crate) fn send(&self, world: &mut World, tag: u32, chunks: &[Chunk<'_>]) -> Vec<(Route, Vec<u8>)> {
        self.send_raw(world, &packet(self.port, 7, tag, chunks))
    }

    pub(crate) fn send_raw(&self, world: &mut World, packet: &[u8]) -> Vec<(Route, Vec<u8>)> {
        world.recording = true;
        let before = world.records.len();
        world.inject(self.to, self.route, packet);
        let own = world.records[before..].iter();
        own.map(|r| (r.route, r.packet.clone())).collect()
    }

    /// Requests an association. Returns `None` if no INIT ACK arrives.
    pub(crate) fn ask(&self, world: &mut World, parameters: &[Parameter<'_>]) -> Option<Answer> {
        self.send(world, 0, &[init(77, parameters)]).iter().find_map(|(_, p)| read(p))
    }

    /// Sends a COOKIE ECHO with the cookie. Returns the packets that any host sends at once.
    pub(crate) fn echo(&self, world: &mut World, answer: &Answer) -> Vec<(Route, Vec<u8>)> {
        self.send(world, answer.tag, &[Chunk::CookieEcho(CookieEcho { cookie: &answer.cookie })])
    }

    /// Opens an association and lists these addresses.
    pub(crate) fn open(&self, world: &mut World, listed: &[&str]) -> (AssociationId, Answer) {
        let parameters: Vec<_> = listed.iter().map(|a| address(a)).collect();
        let answer = self.ask(world, &parameters).expect("an INIT ACK");
        self.echo(world, &answer);
        let newest = world.host(self.to).endpoint.associations().max();
        (newest.expect("an association"), answer)
    }
}

pub(crate) fn init<'a>(tag: u32, parameters: &'a [Parameter<'a>]) -> Chunk<'a> {
    Chunk::Init(Init {
        tag: VerificationTag(tag),
        a_rwnd: 100_000,
        outbound_streams: 10,
        inbound_streams: 10,
        initial_tsn: Tsn(1),
        parameters: Parameters::from(parameters),
    })
}

pub(crate) fn address(text: &str) -> Parameter<'static> {
    match text.parse().unwrap() {
        IpAddr::V4(a) => Parameter::Ipv4Address(a),
        IpAddr::V6(a) => Parameter::Ipv6Address(a),
    }
}

/// Reads an INIT ACK.
pub(crate) fn read(packet: &[u8]) -> Option<Answer> {
    let parsed = Packet::parse(packet, ChecksumMode::Verify).ok()?;
    let Some(Ok(Chunk::InitAck(ack))) = parsed.chunks().next() else { return None };
    let parameters = || ack.parameters.iter().map_while(Result::ok);
    let cookie = parameters().find_map(|p| match p {
        Parameter::StateCookie(cookie) => Some(cookie.to_vec()),
        _ => None,
    });
    let is_address = |p: &Parameter<'_>| matches!(p, Parameter::Ipv4Address(_) | Parameter::Ipv6Address(_));
    Some(Answer {
        tag: ack.tag.0,
        initial_tsn: ack.initial_tsn.0,
        addresses: parameters().filter(is_address).count(),
        cookie: cookie?,
        length: packet.len(),
    })
}

/// Returns the chunk names of each packet.
pub(crate) fn names(packets: &[(Route, Vec<u8>)]) -> Vec<String> {
    packets.iter().map(|(_, p)| chunk_names(p)).collect()
}

/// Returns the chunk names of the packets to `address` since record `from`, and their total number of bytes.
pub(crate) fn sent_to(world: &World, from: usize, address: &str) -> (Vec<String>, usize) {
    let address: IpAddr = address.parse().unwrap();
    let sent: Vec<_> = world.records[from..].iter().filter(|r| r.route.remote == address).collect();
    (sent.iter().map(|r| chunk_names(&r.packet)).collect(), sent.iter().map(|r| r.packet.len()).sum())
}
