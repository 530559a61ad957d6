//! Fuzz target: an honest pair over a network that loses, duplicates, delays and damages packets.
//!
//! The input decides the fate of each packet. No message may arrive twice. Ordered messages of a stream
//! must arrive in order. With full reliability, all messages must arrive. Both sides must shut down
//! gracefully. Begin at [`run`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::Carrier;
use bytes::Bytes;
use sctp::{
    AssociationConfig, AssociationId, CloseReason, CongestionAlgorithm, EndpointConfig, Event,
    ProtectionConfig, Reliability, Timing,
};
use sim::{Change, Close, Conversation, Fate, HostId, LinkConfig, LinkId, Outgoing, Reading, Record, World};

use crate::input::Input;
use crate::side::{MULTIPATHS, SCHEDULERS, WILLING, extensions, reconfigure};

/// Maximum number of steps in one run.
const STEPS_MAX: usize = 300;

/// Maximum number of packets that are lost or damaged in one run. After this number, the network passes
/// every packet.
const LOSSES_MAX: usize = 100;

/// Limit on the duration of the handshake, and on the time from the end of the faults to the end of the
/// association.
const PATIENCE: Duration = Duration::from_hours(2);

const LENGTHS: [usize; 8] = [4, 9, 100, 1400, 1452, 3000, 9000, 30_000];

/// The unread part of the input, reversed. The script and the network both remove bytes from the end of
/// this list.
type Story = Rc<RefCell<Vec<u8>>>;

struct Pair {
    world: World,
    hosts: [HostId; 2],
    links: Vec<LinkId>,
    reliability: Reliability,
    sent: [Vec<Outgoing>; 2],
}

/// Interprets `data` as a script, and plays it.
pub fn run(data: &[u8]) {
    play(data, None);
}

/// Interprets `data` as a script, and plays it with sealed packets.
pub fn run_sealed(data: &[u8]) {
    play(data, Some(sim::protection(true)));
}

fn play(data: &[u8], protection: Option<ProtectionConfig>) {
    let mut head = Input::new(data);
    let mut pair = Pair::new(&mut head, protection);
    let mut rest = head.bytes(data.len()).to_vec();
    rest.reverse();
    let story: Story = Rc::new(RefCell::new(rest));
    pair.world.set_filter(bad_network(&story));
    pair.open();
    for _ in 0..STEPS_MAX {
        let Some(step) = next(&story) else { break };
        pair.step(step, &story);
    }
    pair.world.clear_filter();
    pair.finish();
}

fn next(story: &Story) -> Option<u8> {
    story.borrow_mut().pop()
}

/// Decides the fate of each packet from the next byte of the input.
fn bad_network(story: &Story) -> impl FnMut(&Record) -> Fate + use<> {
    let story = Rc::clone(story);
    let mut losses = 0;
    move |record| {
        let Some(byte) = next(&story) else { return Fate::Pass };
        let fate = match byte {
            0..160 => Fate::Pass,
            160..200 => Fate::Drop,
            200..220 => Fate::Copies(2 + usize::from(byte & 1)),
            220..245 => Fate::Late(Duration::from_millis(1 << (byte % 11))),
            245.. => {
                let mut packet = record.packet.clone();
                let place = usize::from(next(&story).unwrap_or(0)) * 7 % packet.len();
                packet[place] ^= 1 << (byte % 8);
                Fate::Replace(packet)
            }
        };
        losses += usize::from(matches!(fate, Fate::Drop | Fate::Replace(_)));
        if losses > LOSSES_MAX { Fate::Pass } else { fate }
    }
}

fn config(input: &mut Input<'_>) -> AssociationConfig {
    AssociationConfig {
        timing: Timing {
            rto_initial: Duration::from_millis(200),
            rto_min: Duration::from_millis(100),
            rto_max: Duration::from_secs(2),
            sack_delay: Duration::from_millis(40),
            heartbeat_interval: Duration::from_secs(3),
            // The retransmission limits must not end the association, so they have their maximum.
            // [`LOSSES_MAX`] bounds the losses instead.
            association_max_retrans: u8::MAX,
            shutdown_guard: PATIENCE,
            ..Timing::default()
        },
        max_init_retransmits: u8::MAX,
        send_buffer: 60_000,
        receive_buffer: input.pick(&[60_000, 8000, 3000]),
        extensions: extensions(input.byte()),
        reconfig: WILLING,
        scheduler: input.pick(&SCHEDULERS),
        congestion: input.pick(&[
            CongestionAlgorithm::Cubic,
            CongestionAlgorithm::Rfc9260,
            CongestionAlgorithm::LossTolerant,
        ]),
        multipath: input.pick(&MULTIPATHS),
        ..AssociationConfig::default()
    }
}

impl Pair {
    fn new(input: &mut Input<'_>, protection: Option<ProtectionConfig>) -> Pair {
        let association = AssociationConfig { protection, ..config(input) };
        let endpoint = EndpointConfig { association, ..EndpointConfig::default() };
        let mut world = World::new(1);
        let paths = 1 + input.below(2);
        let hosts = [1, 2].map(|host| {
            let addresses: Vec<String> = (0..paths).map(|link| format!("10.0.{link}.{host}")).collect();
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            world.add_host(&addresses, endpoint.clone())
        });
        let links = (0..paths)
            .map(|link| {
                let rate = input.pick(&[10_000_000, 0, 1_000_000]);
                let id = world.add_link(LinkConfig { rate, ..LinkConfig::default() });
                world.join(id, &format!("10.0.{link}.1"), &format!("10.0.{link}.2"));
                id
            })
            .collect();
        let reliability = match input.below(6) {
            0 => Reliability::Retransmissions(0),
            1 => Reliability::Lifetime(Duration::from_millis(150)),
            2 => Reliability::Priority(3),
            _ => Reliability::Full,
        };
        world.host_mut(hosts[0]).app.template = Conversation { reliability, ..Conversation::default() };
        world.host_mut(hosts[1]).app.template = Conversation { reliability, ..Conversation::default() };
        let mut pair = Pair { world, hosts, links, reliability, sent: [Vec::new(), Vec::new()] };
        let conversation = Conversation { reliability, ..Conversation::default() };
        let carrier = if input.flag() { Carrier::Udp { peer_port: 9899 } } else { Carrier::Ip };
        pair.world.connect(pair.hosts[0], pair.hosts[1], carrier, endpoint.association, conversation);
        pair
    }

    /// Completes the handshake.
    fn open(&mut self) {
        let hosts = self.hosts;
        let up = |w: &World, h: HostId| {
            w.host(h).app.log.iter().any(|(_, _, event)| matches!(event, Event::Established { .. }))
        };
        let limit = self.world.now() + PATIENCE;
        assert!(self.world.run_until(limit, |w| hosts.iter().all(|&h| up(w, h))), "not up");
    }

    fn step(&mut self, step: u8, story: &Story) {
        let argument = next(story).unwrap_or(0);
        let side = usize::from(step >> 4 & 1);
        match step & 15 {
            0..5 => self.world.run_for(Duration::from_millis(1 << (argument % 12))),
            5..9 => self.hand_over(side, argument, step & 0x80 != 0),
            9 => self.cut(argument),
            10 => self.read(side, argument),
            11 => self.with(side, |w, host, id| {
                let now = w.now();
                let scheduler = SCHEDULERS[usize::from(argument) % SCHEDULERS.len()];
                w.host_mut(host).endpoint.set_scheduler(now, id, scheduler);
            }),
            12 => self.change_addresses(side, argument),
            13 if argument > 200 => self.with(side, |w, host, id| {
                let now = w.now();
                w.host_mut(host).endpoint.shutdown(now, id);
            }),
            14 => self.with(side, |w, host, id| {
                let now = w.now();
                reconfigure(&mut w.host_mut(host).endpoint, now, id, argument);
            }),
            _ => self.burst(side, argument),
        }
    }

    fn with(&mut self, side: usize, work: impl FnOnce(&mut World, HostId, AssociationId)) {
        let host = self.hosts[side];
        if let Some(&id) = self.world.host(host).app.conversations.keys().next() {
            work(&mut self.world, host, id);
        }
    }

    /// Queues a message for the program to send. The message starts with its number.
    fn hand_over(&mut self, side: usize, argument: u8, unordered: bool) {
        let stream = u16::from(argument >> 3 & 7);
        let length = LENGTHS[usize::from(argument & 7)];
        let number = u32::try_from(self.sent[side].len()).unwrap_or(u32::MAX);
        let fill = number.to_be_bytes()[3];
        let mut bytes = vec![fill; length];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let message = Outgoing { stream, unordered, bytes: Bytes::from(bytes) };
        self.sent[side].push(message.clone());
        let host = self.hosts[side];
        let talks = &mut self.world.host_mut(host).app.conversations;
        if let Some(talk) = talks.values_mut().next() {
            talk.outgoing.push_back(message);
        }
    }

    fn burst(&mut self, side: usize, argument: u8) {
        for n in 0..argument % 32 {
            self.hand_over(side, argument.wrapping_mul(n | 1), false);
        }
    }

    fn cut(&mut self, argument: u8) {
        let link = self.links[usize::from(argument) % self.links.len()];
        let now = self.world.now();
        let end = now + Duration::from_millis(u64::from(argument) * 10);
        self.world.at(now, Change::CutBoth(link, true));
        self.world.at(end, Change::CutBoth(link, false));
    }

    fn read(&mut self, side: usize, argument: u8) {
        let reading = match argument % 3 {
            0 => Reading::AtOnce,
            1 => Reading::Never,
            _ => Reading::Every(Duration::from_millis(u64::from(argument))),
        };
        let host = self.hosts[side];
        let talks = &mut self.world.host_mut(host).app.conversations;
        talks.values_mut().for_each(|talk| talk.reading = reading);
    }

    /// Removes or adds a local address, or asks the peer to make the address its primary one. The engine
    /// may refuse the request.
    fn change_addresses(&mut self, side: usize, argument: u8) {
        let address = self.world.host(self.hosts[side]).addresses.last().copied();
        let Some(address) = address.filter(|_| self.links.len() > 1) else { return };
        self.with(side, |w, host, id| {
            let now = w.now();
            let endpoint = &mut w.host_mut(host).endpoint;
            _ = match argument % 3 {
                0 => endpoint.remove_local_address(now, id, address),
                1 => endpoint.add_local_address(now, id, address),
                _ => endpoint.set_peer_primary(now, id, address),
            };
        });
    }

    /// Repairs the network, and closes the association. Asserts that both sides end, and that the required
    /// messages have arrived.
    fn finish(&mut self) {
        self.read(0, 0);
        self.read(1, 0);
        let hosts = self.hosts;
        let now = self.world.now();
        self.links.iter().for_each(|&link| self.world.at(now, Change::CutBoth(link, false)));
        for talk in self.world.host_mut(hosts[0]).app.conversations.values_mut() {
            talk.close = Close::After(0);
        }
        let is_over =
            |w: &World, h: HostId| w.host(h).app.conversations.values().all(|talk| talk.closed.is_some());
        let over = self.world.run_until(now + PATIENCE, |w| hosts.iter().all(|&h| is_over(w, h)));
        assert!(over, "not over after {PATIENCE:?}: {}", self.describe());
        for side in 0..2 {
            self.judge(side);
        }
    }

    /// Asserts that `side` received the required messages of the other side, and that the association of
    /// `side` closed gracefully.
    fn judge(&self, side: usize) {
        let talks = &self.world.host(self.hosts[side]).app.conversations;
        assert_eq!(talks.len(), 1, "associations of one host");
        let talk = talks.values().next().expect("an association");
        assert_eq!(talk.closed, Some(CloseReason::Graceful), "{}", self.describe());
        let other = self.world.host(self.hosts[1 - side]).app.conversations.values().next();
        let kept_back = other.map_or(0, |talk| talk.outgoing.len());
        let sent = &self.sent[1 - side];
        let sent = &sent[..sent.len() - kept_back];
        let mut places: BTreeMap<u16, usize> = BTreeMap::new();
        let mut seen = vec![false; sent.len()];
        for message in &talk.received {
            let number = u32::from_be_bytes(message.bytes[..4].try_into().expect("four bytes")) as usize;
            let original = sent.get(number).expect("a message that was sent");
            assert_eq!((message.stream, &message.bytes), (original.stream, &original.bytes));
            assert!(!std::mem::replace(&mut seen[number], true), "message {number} came twice");
            if !original.unordered {
                let place = places.entry(message.stream).or_default();
                assert!(number + 1 > *place, "message {number} of stream {} came late", message.stream);
                *place = number + 1;
            }
        }
        if self.reliability == Reliability::Full {
            assert!(seen.iter().all(|seen| *seen), "missing: {seen:?}");
        }
    }

    fn describe(&self) -> String {
        let side = |host: HostId| {
            let host = self.world.host(host);
            let infos: Vec<_> = host.endpoint.associations().map(|id| host.endpoint.info(id)).collect();
            let last = host.app.log.len().saturating_sub(6);
            format!(
                "{infos:#?} next timeout {:?}, log {:?}",
                host.endpoint.next_timeout(),
                &host.app.log[last..]
            )
        };
        format!("at {:?}\na: {}\nb: {}", self.world.now(), side(self.hosts[0]), side(self.hosts[1]))
    }
}
