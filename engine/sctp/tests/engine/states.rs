//! Hosts in each state, and chunks to send to them.

use std::time::Duration;

use sctp::{AssociationConfig, CloseReason, EndpointConfig, SendError, SendOptions, StateName};
use sim::{Accept, Close, Conversation, HostId, LinkConfig, chunk_names};
use wire::{
    Abort, Cause, Causes, ChecksumMode, Chunk, ChunkType, CookieEcho, Cwr, Data, Ecne, ErrorChunk, Heartbeat,
    Init, Packet, Parameter, Parameters, Ppid, Sack, Shutdown, ShutdownComplete, Ssn, StreamId, Tsn,
    UnknownChunk, VerificationTag,
};

use crate::support::{Two, drop_all, messages, sent_by, two_with};

/// All states. The first one is the state without an association.
pub(crate) const STATES: [StateName; 9] = [
    StateName::Closed,
    StateName::CookieWait,
    StateName::CookieEchoed,
    StateName::Accepting,
    StateName::Established,
    StateName::ShutdownPending,
    StateName::ShutdownSent,
    StateName::ShutdownReceived,
    StateName::ShutdownAckSent,
];

/// A host in a known state, whose packets are all dropped.
pub(crate) struct Subject {
    t: Two,
    host: HostId,
    pub(crate) own_tag: u32,
    pub(crate) peer_tag: u32,
    own_tsn: Tsn,
    peer_tsn: Tsn,
}

impl Subject {
    /// Creates a host in `state`. If both ends can be in that state, this is the opening host.
    pub(crate) fn in_state(state: StateName) -> Subject {
        Subject::in_state_with(state, &AssociationConfig::default())
    }

    /// Creates a host in `state`, where both ends have these settings.
    pub(crate) fn in_state_with(state: StateName, config: &AssociationConfig) -> Subject {
        let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
        let mut t = two_with(7, LinkConfig::default(), endpoint);
        t.world.recording = true;
        let host = if matches!(state, StateName::Closed | StateName::Accepting) { t.b } else { t.a };
        bring_to(&mut t, state, config);
        drop_all(&mut t.world, |_, _| true);
        let (own, peer) = inits(&t, host);
        let subject = Subject {
            t,
            host,
            own_tag: own.map_or(1, |i| i.0),
            peer_tag: peer.map_or(2, |i| i.0),
            own_tsn: own.map_or(Tsn(1), |i| i.1),
            peer_tsn: peer.map_or(Tsn(1), |i| i.1),
        };
        assert_eq!(subject.state(), state);
        subject
    }

    /// Returns the peer's initial TSN.
    pub(crate) fn peer_tsn(&self) -> Tsn {
        self.peer_tsn
    }

    /// Returns the subject's initial TSN.
    pub(crate) fn own_tsn(&self) -> Tsn {
        self.own_tsn
    }

    pub(crate) fn state(&self) -> StateName {
        let host = self.t.world.host(self.host);
        let id = host.endpoint.associations().next();
        id.and_then(|id| host.endpoint.state(id)).unwrap_or(StateName::Closed)
    }

    /// Returns the last packet that any host has sent.
    pub(crate) fn last_packet(&self) -> Vec<u8> {
        self.t.world.records.last().expect("a packet").packet.clone()
    }

    /// Sends a message from the subject's driver.
    pub(crate) fn send(&mut self) -> Result<(), SendError> {
        let (id, now) = (self.t.id(self.host), self.t.world.now());
        let endpoint = &mut self.t.world.host_mut(self.host).endpoint;
        endpoint.send(now, id, StreamId(0), Ppid(0), "late".into(), SendOptions::default())
    }

    /// Returns the virtual world of the subject.
    pub(crate) fn world(&mut self) -> &mut Two {
        &mut self.t
    }

    /// Returns the reason for which the subject's association ended.
    pub(crate) fn closed(&self) -> Option<CloseReason> {
        self.t.talk(self.host).closed.clone()
    }

    /// Delivers a packet with `tag` and one chunk to the subject. Returns the chunk names of the answers.
    pub(crate) fn answer_to(&mut self, tag: u32, chunk: &Chunk<'_>) -> Vec<String> {
        self.answer_to_all(tag, &[*chunk])
    }

    /// Delivers a packet with `tag` and several chunks to the subject. Returns the chunk names of the answers.
    pub(crate) fn answer_to_all(&mut self, tag: u32, chunks: &[Chunk<'_>]) -> Vec<String> {
        let before = self.t.world.records.len();
        let mut sender = "10.0.1.1";
        if self.host == self.t.b {
            sender = "10.0.1.2";
            self.t.inject_to_b(tag, chunks);
        } else {
            self.t.inject_to_a(tag, chunks);
        }
        self.t.world.run_for(Duration::from_micros(1));
        sent_by(&self.t.world, before, sender)
    }

    /// Returns the names of all chunks to test.
    pub(crate) fn chunks() -> impl Iterator<Item = &'static str> {
        let named = [
            "DATA",
            "INIT",
            "INIT ACK",
            "SACK",
            "HEARTBEAT",
            "HEARTBEAT ACK",
            "ABORT",
            "SHUTDOWN",
            "SHUTDOWN ACK",
            "ERROR",
            "ERROR stale cookie",
            "COOKIE ECHO forged",
            "COOKIE ACK",
            "ECNE",
            "CWR",
            "SHUTDOWN COMPLETE",
        ];
        named.into_iter().chain(["type 0x3f", "type 0x7f", "type 0xbf", "type 0xff"])
    }

    /// Calls `work` with the packet tag and the chunk of this name, both valid for this subject.
    pub(crate) fn with_chunk<R>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Subject, u32, &Chunk<'_>) -> R,
    ) -> R {
        let cookie = [Parameter::StateCookie(&[1; 64])];
        let init = |tag, parameters| Init {
            tag: VerificationTag(tag),
            a_rwnd: 100_000,
            outbound_streams: 10,
            inbound_streams: 10,
            initial_tsn: Tsn(1),
            parameters,
        };
        let unknown = |kind| {
            Chunk::Unknown(UnknownChunk { chunk_type: ChunkType(kind), flags: 0, value: &[1, 2, 3, 4] })
        };
        let stale = [Cause::StaleCookie { staleness: 1000 }];
        let resource = [Cause::OutOfResource];
        let nothing_new = self.own_tsn.prev();
        let chunk = match name {
            "DATA" => Chunk::Data(Data {
                immediate: true,
                unordered: false,
                begin: true,
                end: true,
                tsn: self.peer_tsn,
                stream: StreamId(0),
                ssn: Ssn(0),
                ppid: Ppid(0),
                payload: b"data",
            }),
            "INIT" => Chunk::Init(init(77, Parameters::EMPTY)),
            "INIT ACK" => Chunk::InitAck(init(78, Parameters::from(&cookie[..]))),
            "SACK" => Chunk::Sack(Sack {
                cumulative_tsn: nothing_new,
                a_rwnd: 100_000,
                gaps: (&[][..]).into(),
                duplicates: (&[][..]).into(),
            }),
            "HEARTBEAT" => Chunk::Heartbeat(Heartbeat { info: b"abcdefgh" }),
            "HEARTBEAT ACK" => Chunk::HeartbeatAck(Heartbeat { info: b"abcdefghijkl" }),
            "ABORT" => Chunk::Abort(Abort { tag_reflected: false, causes: Causes::EMPTY }),
            "ABORT(T)" => Chunk::Abort(Abort { tag_reflected: true, causes: Causes::EMPTY }),
            "SHUTDOWN" => Chunk::Shutdown(Shutdown { cumulative_tsn: nothing_new }),
            "SHUTDOWN ACK" => Chunk::ShutdownAck,
            "ERROR" => Chunk::Error(ErrorChunk { causes: Causes::from(&resource[..]) }),
            "ERROR stale cookie" => Chunk::Error(ErrorChunk { causes: Causes::from(&stale[..]) }),
            "COOKIE ECHO forged" => Chunk::CookieEcho(CookieEcho { cookie: &[1; 64] }),
            "COOKIE ACK" => Chunk::CookieAck,
            "ECNE" => Chunk::Ecne(Ecne { lowest_tsn: nothing_new }),
            "CWR" => Chunk::Cwr(Cwr { lowest_tsn: nothing_new }),
            "SHUTDOWN COMPLETE" => Chunk::ShutdownComplete(ShutdownComplete { tag_reflected: false }),
            "SHUTDOWN COMPLETE(T)" => Chunk::ShutdownComplete(ShutdownComplete { tag_reflected: true }),
            "type 0x3f" => unknown(0x3f),
            "type 0x7f" => unknown(0x7f),
            "type 0xbf" => unknown(0xbf),
            "type 0xff" => unknown(0xff),
            other => panic!("no chunk is called {other}"),
        };
        let tag = if name == "INIT" { 0 } else { self.own_tag };
        work(self, tag, &chunk)
    }
}

/// Tag and initial TSN that a host announced.
type Announced = (u32, Tsn);

/// Returns the announcements of the host and of its peer.
fn inits(t: &Two, host: HostId) -> (Option<Announced>, Option<Announced>) {
    let find = |wanted: &str| {
        let record = t.world.records.iter().find(|r| chunk_names(&r.packet) == wanted)?;
        let packet = Packet::parse(&record.packet, ChecksumMode::Verify).ok()?;
        match packet.chunks().next() {
            Some(Ok(Chunk::Init(init) | Chunk::InitAck(init))) => Some((init.tag.0, init.initial_tsn)),
            _ => None,
        }
    };
    let (opener, listener) = (find("INIT"), find("INIT ACK"));
    if host == t.a { (opener, listener) } else { (listener, opener) }
}

fn bring_to(t: &mut Two, state: StateName, config: &AssociationConfig) {
    let pause = Duration::from_millis(500);
    let unwanted = match state {
        StateName::CookieWait => "INIT",
        StateName::CookieEchoed => "COOKIE ECHO",
        StateName::ShutdownPending | StateName::ShutdownReceived => "DATA",
        StateName::ShutdownSent | StateName::ShutdownAckSent => "SHUTDOWN",
        StateName::Accepting | StateName::Established | StateName::Closed => "nothing",
    };
    let opener = t.world.host(t.a).addresses[0];
    drop_all(&mut t.world, move |names, from| from == opener && names.contains(unwanted));
    if state == StateName::Accepting {
        t.world.host_mut(t.b).app.accept = Accept::Never;
    }
    let talks = matches!(state, StateName::ShutdownPending | StateName::ShutdownReceived);
    let outgoing = if talks { messages(1, 100, 1) } else { Vec::new() };
    let closes = matches!(state, StateName::ShutdownPending | StateName::ShutdownSent);
    let close = if closes { Close::After(0) } else { Close::Never };
    if state != StateName::Closed {
        let talk = Conversation { outgoing: outgoing.into(), close, ..Conversation::default() };
        t.connect_with(config.clone(), talk);
    }
    t.world.run_for(pause);
    if matches!(state, StateName::ShutdownReceived | StateName::ShutdownAckSent) {
        let (id, now) = (t.id(t.b), t.world.now());
        t.world.host_mut(t.b).endpoint.shutdown(now, id);
        t.world.run_for(Duration::from_millis(100));
    }
}
