//! Shared parts of the tests: two hosts, one or two links, and messages.

use std::net::IpAddr;
use std::time::Duration;

use base::{Carrier, Route, Time};
use bytes::Bytes;
use sctp::{
    AssociationConfig, AssociationId, AssociationInfo, CloseReason, EndpointConfig, Event, StateName,
};
use sim::{Close, Conversation, Fate, HostId, LinkConfig, LinkId, Outgoing, World, chunk_names, packet};
use wire::{ChecksumMode, Chunk, ChunkType, Packet};

pub(crate) const UDP: Carrier = Carrier::Udp { peer_port: 9899 };

/// Two hosts: `a` opens associations, `b` listens.
pub(crate) struct Two {
    pub(crate) world: World,
    pub(crate) a: HostId,
    pub(crate) b: HostId,
    pub(crate) links: Vec<LinkId>,
}

/// Creates two hosts with one IPv4 address each and one link.
pub(crate) fn two(seed: u64) -> Two {
    two_with(seed, LinkConfig::default(), EndpointConfig::default())
}

pub(crate) fn two_with(seed: u64, link: LinkConfig, config: EndpointConfig) -> Two {
    let mut world = World::new(seed);
    let a = world.add_host(&["10.0.1.1"], config.clone());
    let b = world.add_host(&["10.0.1.2"], config);
    let links = vec![world.add_link(link)];
    world.join(links[0], "10.0.1.1", "10.0.1.2");
    Two { world, a, b, links }
}

impl Two {
    /// Opens an association whose opening program runs `conversation`.
    pub(crate) fn connect(&mut self, conversation: Conversation) -> AssociationId {
        self.connect_with(AssociationConfig::default(), conversation)
    }

    pub(crate) fn connect_with(
        &mut self,
        config: AssociationConfig,
        conversation: Conversation,
    ) -> AssociationId {
        self.world.connect(self.a, self.b, Carrier::Ip, config, conversation)
    }

    /// Runs until the association is up at both ends. Returns false if the opening host gave up because random losses may have hit every
    /// INIT.
    pub(crate) fn comes_up(&mut self, config: &AssociationConfig) -> bool {
        let (a, b) = (self.a, self.b);
        let is_up = self.world.run_until(Time::ZERO + seconds(600), |w| is_up(w, a) && is_up(w, b));
        assert!(
            is_up || all_inits_were_lost(&self.world, a, &self.links, config),
            "not up after 600 s\n{}",
            describe(&self.world)
        );
        is_up
    }

    /// Runs until both programs have seen the end of their association, which must come within `limit` of virtual time.
    pub(crate) fn run_to_end(&mut self, limit: Duration) -> (CloseReason, CloseReason) {
        let (a, b) = (self.a, self.b);
        let ended = |w: &World, h| {
            let mut conversations = w.host(h).app.conversations.values();
            conversations.next().is_some_and(|c| c.closed.is_some())
        };
        let end = self.world.now() + limit;
        let done = self.world.run_until(end, |w| ended(w, a) && ended(w, b));
        assert!(done, "not over after {limit:?}: {}", describe(&self.world));
        let reason =
            |h| self.world.host(h).app.conversations.values().next().unwrap().closed.clone().unwrap();
        (reason(a), reason(b))
    }

    /// Returns the first conversation of a host.
    pub(crate) fn talk(&self, host: HostId) -> &Conversation {
        self.world.host(host).app.conversations.values().next().expect("a conversation")
    }

    /// Returns the first association of a host.
    pub(crate) fn id(&self, host: HostId) -> AssociationId {
        *self.world.host(host).app.conversations.keys().next().expect("a conversation")
    }

    /// Returns the events of a host's associations.
    pub(crate) fn events(&self, host: HostId) -> Vec<&Event> {
        self.world.host(host).app.log.iter().map(|(_, _, event)| event).collect()
    }
}

/// Describes the engines of both hosts, for failure messages.
pub(crate) fn describe(world: &World) -> String {
    let side = |h: usize| {
        let host = world.host(HostId(h));
        let infos: Vec<_> = host.endpoint.associations().map(|id| host.endpoint.info(id)).collect();
        format!("{infos:#?} next timeout {:?}\nlog {:?}\n", host.endpoint.next_timeout(), host.app.log)
    };
    format!("at {:?}\na: {}\nb: {}", world.now(), side(0), side(1))
}

/// Returns `count` messages of `length` bytes, which use `streams` streams in turn. Each has different content.
pub(crate) fn messages(count: usize, length: usize, streams: u16) -> Vec<Outgoing> {
    (0..count)
        .map(|n| Outgoing {
            stream: (n % usize::from(streams)) as u16,
            unordered: false,
            bytes: content(n, length),
        })
        .collect()
}

/// Returns `length` bytes of content, different for each `n`.
pub(crate) fn content(n: usize, length: usize) -> Bytes {
    let mut bytes: Vec<u8> = (0..length).map(|i| (i * 7 + n * 13) as u8).collect();
    for (place, byte) in bytes.iter_mut().zip((n as u32).to_be_bytes()) {
        *place = byte;
    }
    bytes.into()
}

pub(crate) fn sends(outgoing: Vec<Outgoing>) -> Conversation {
    Conversation { outgoing: outgoing.into(), ..Conversation::default() }
}

pub(crate) fn sends_then_closes(outgoing: Vec<Outgoing>) -> Conversation {
    Conversation { close: Close::After(0), ..sends(outgoing) }
}

/// Returns the seeds that a random world plays. With `SIM_SEED`, these are `SIM_SEEDS` seeds from `SIM_SEED` on, or only the seed
/// `SIM_SEED` if `SIM_SEEDS` is not set (`./x seeds` sets both). Otherwise they are the first `SIM_SEEDS` seeds (`usual` by default), and
/// the seeds that failed once (`kept`).
pub(crate) fn seeds(usual: u64, kept: impl IntoIterator<Item = u64>) -> Vec<u64> {
    match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(first), count) => (first..first + count.unwrap_or(1)).collect(),
        (None, count) => (0..count.unwrap_or(usual)).chain(kept).collect(),
    }
}

/// Reports whether the user has chosen the seeds. They may be too few for an expectation that covers all seeds.
pub(crate) fn is_chosen() -> bool {
    number("SIM_SEED").is_some()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub(crate) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn at_seconds(n: u64) -> Time {
    Time::ZERO + seconds(n)
}

/// Drops the first `count` packets that contain a chunk with this name.
pub(crate) fn lose(world: &mut World, name: &'static str, count: usize) {
    let mut left = count;
    world.set_filter(move |record| {
        if left > 0 && chunk_names(&record.packet).contains(name) {
            left -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
}

/// Drops every packet that `unwanted` selects by its chunk names and its sender's address.
pub(crate) fn drop_all(world: &mut World, unwanted: impl Fn(&str, IpAddr) -> bool + 'static) {
    world.set_filter(move |record| {
        if unwanted(&chunk_names(&record.packet), record.route.local) { Fate::Drop } else { Fate::Pass }
    });
}

/// Returns the route from `remote` to `local` as `local` sees it, over IP.
pub(crate) fn route(local: &str, remote: &str) -> Route {
    Route { local: local.parse().unwrap(), remote: remote.parse().unwrap(), carrier: Carrier::Ip }
}

/// Returns the route of `two` as the listening host sees it.
pub(crate) fn b_route() -> Route {
    route("10.0.1.2", "10.0.1.1")
}

/// Returns the route of `two` as the opening host sees it.
pub(crate) fn a_route() -> Route {
    route("10.0.1.1", "10.0.1.2")
}

/// Returns the chunk names of each packet that `sender` has sent since record `from`.
pub(crate) fn sent_by(world: &World, from: usize, sender: &str) -> Vec<String> {
    let sender: IpAddr = sender.parse().unwrap();
    let own = world.records[from..].iter().filter(|r| r.route.local == sender);
    own.map(|r| chunk_names(&r.packet)).collect()
}

impl Two {
    /// Runs until the association is up at both ends.
    pub(crate) fn run_to_established(&mut self) {
        let (a, b) = (self.a, self.b);
        let up = |w: &World, h: HostId| {
            w.host(h).app.log.iter().any(|(_, _, e)| matches!(e, Event::Established { .. }))
        };
        let end = self.world.now() + seconds(400);
        assert!(self.world.run_until(end, |w| up(w, a) && up(w, b)), "{}", describe(&self.world));
    }

    pub(crate) fn state(&self, host: HostId) -> StateName {
        self.world.host(host).endpoint.state(self.id(host)).expect("an association")
    }

    pub(crate) fn info(&self, host: HostId) -> AssociationInfo {
        self.world.host(host).endpoint.info(self.id(host)).expect("an association")
    }

    /// Creates an association that is up at both ends, with no packet in flight.
    pub(crate) fn established(seed: u64) -> Two {
        let mut t = two(seed);
        t.connect(Conversation::default());
        t.run_to_established();
        t.world.run_for(seconds(1));
        t.world.recording = true;
        t
    }

    /// Delivers a packet with the right ports and this tag to the listening host.
    pub(crate) fn inject_to_b(&mut self, tag: u32, chunks: &[Chunk<'_>]) {
        self.world.inject(self.b, b_route(), &packet(40_000, 7, tag, chunks));
    }

    /// Delivers a packet with the right ports and this tag to the opening host.
    pub(crate) fn inject_to_a(&mut self, tag: u32, chunks: &[Chunk<'_>]) {
        self.world.inject(self.a, a_route(), &packet(7, 40_000, tag, chunks));
    }
}

/// Returns the packet without chunks of this type, or drops it if no chunk is left.
pub(crate) fn without(kind: ChunkType, packet: &[u8]) -> Fate {
    let parsed = Packet::parse(packet, ChecksumMode::Verify).unwrap();
    let mut rest = packet[..12].to_vec();
    rest[8..].fill(0);
    for raw in parsed.raw_chunks().map(Result::unwrap).filter(|raw| raw.chunk_type != kind) {
        rest.extend_from_slice(raw.bytes);
        rest.resize(rest.len().next_multiple_of(4), 0);
    }
    if rest.len() == 12 {
        return Fate::Drop;
    }
    let crc = wire::crc32c(&rest);
    rest[8..12].copy_from_slice(&crc.to_le_bytes());
    Fate::Replace(rest)
}

/// Reports whether the host's program has been told that its association is up.
pub(crate) fn is_up(world: &World, host: HostId) -> bool {
    let is_last = |event: &Event| match world.protection {
        None => matches!(event, Event::Established { .. }),
        Some(_) => matches!(event, Event::Protected { .. }),
    };
    world.host(host).app.log.iter().any(|(_, _, event)| is_last(event))
}

/// Reports whether the host's association ended in a world whose associations must seal their packets. The caller knows that the
/// association was not up, so it ended before its first keys were agreed on.
pub(crate) fn lacked_keys(world: &World, host: HostId) -> bool {
    let is_over = |event: &Event| matches!(event, Event::Closed(_));
    world.protection.is_some() && world.host(host).app.log.iter().any(|(_, _, event)| is_over(event))
}

/// Reports whether the opening host gave up, and random losses took at least as many packets as it sent INITs.
pub(crate) fn all_inits_were_lost(
    world: &World,
    opener: HostId,
    links: &[LinkId],
    config: &AssociationConfig,
) -> bool {
    let lost = |link: &LinkId| {
        let counters = &world.link(*link).counters;
        counters.lost_by_chance + counters.corrupted
    };
    let closed = world.host(opener).app.conversations.values().map(|c| c.closed.clone());
    let inits = 1 + u64::from(config.max_init_retransmits);
    closed.eq([Some(CloseReason::NoAnswer)]) && links.iter().map(lost).sum::<u64>() >= inits
}
