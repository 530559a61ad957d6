//! What the tests share: two hosts, one or two links, and messages.

use std::time::Duration;

use base::{Carrier, Time};
use bytes::Bytes;
use sctp::{AssociationConfig, AssociationId, CloseReason, EndpointConfig, Event};
use sim::{Close, Conversation, HostId, LinkConfig, LinkId, Outgoing, World};

pub(crate) const UDP: Carrier = Carrier::Udp { peer_port: 9899 };

/// Two hosts: `a` opens, `b` listens.
pub(crate) struct Two {
    pub(crate) world: World,
    pub(crate) a: HostId,
    pub(crate) b: HostId,
    pub(crate) links: Vec<LinkId>,
}

/// Two hosts with one IPv4 address each and one link.
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
    /// Opens an association that talks as `conversation` says.
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

    /// Runs until both programs have seen their association end, within `limit` of virtual time.
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

    /// The first conversation of a host.
    pub(crate) fn talk(&self, host: HostId) -> &Conversation {
        self.world.host(host).app.conversations.values().next().expect("a conversation")
    }

    /// The first association of a host.
    pub(crate) fn id(&self, host: HostId) -> AssociationId {
        *self.world.host(host).app.conversations.keys().next().expect("a conversation")
    }

    /// The events of a host's associations.
    pub(crate) fn events(&self, host: HostId) -> Vec<&Event> {
        self.world.host(host).app.log.iter().map(|(_, _, event)| event).collect()
    }
}

/// All engines in words, for failures.
pub(crate) fn describe(world: &World) -> String {
    let side = |h: usize| {
        let host = world.host(HostId(h));
        let infos: Vec<_> = host.endpoint.associations().map(|id| host.endpoint.info(id)).collect();
        format!("{infos:#?} next timeout {:?}\nlog {:?}\n", host.endpoint.next_timeout(), host.app.log)
    };
    format!("at {:?}\na: {}\nb: {}", world.now(), side(0), side(1))
}

/// `count` messages of `length` bytes on `streams` streams in turn, each with its own content.
pub(crate) fn messages(count: usize, length: usize, streams: u16) -> Vec<Outgoing> {
    (0..count)
        .map(|n| Outgoing {
            stream: (n % usize::from(streams)) as u16,
            unordered: false,
            bytes: content(n, length),
        })
        .collect()
}

/// `length` bytes that only message `n` has.
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

pub(crate) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn at_seconds(n: u64) -> Time {
    Time::ZERO + seconds(n)
}
