//! The world: hosts, links, and one queue of planned events.
//!
//! Invariants: time never goes back. Events at the same time happen in the order in which they were planned. A run depends only
//! on the seed and the calls. Begin at [`World::run_until`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use base::{Carrier, Ecn, Route, Time};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sctp::{
    AssociationConfig, AssociationId, Connect, Endpoint, EndpointConfig, PathError, ProtectionConfig,
    TraceRecord, Unreachable,
};

use crate::app::{App, Conversation};
use crate::host::Host;
use crate::link::{Coming, Direction, Link};
use crate::nat::{Nat, NatConfig};
use crate::{capture, clear};
use netem::DirectionConfig as LinkConfig;

/// Index of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub usize);

/// Index of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub usize);

/// Index of a NAT.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NatId(pub usize);

/// Port to which [`World::connect`] opens associations.
const SERVER_PORT: u16 = 7;

/// Length of the longest train of packets, in bytes.
const TRAIN_BYTES: usize = 65_536;

/// UDP port of every host's encapsulation.
pub(crate) const ENCAPSULATION_PORT: u16 = 9899;

/// Octets of a packet that ICMP quotes.
const QUOTED: usize = 64;

/// Delay of a NAT's answer to a packet without a mapping.
const NAT_ANSWER: Duration = Duration::from_millis(1);

/// Limit on the steps at one moment. Further steps show a fault, such as a timer loop without delay.
const INPUTS_AT_ONCE: usize = 100_000;

/// One packet, as it was sent.
#[derive(Clone, Debug)]
pub struct Record {
    /// Time at which the packet was sent.
    pub at: Time,
    /// Route from the sender's view.
    pub route: Route,
    /// The packet, from the SCTP header on.
    pub packet: Vec<u8>,
    /// ECN codepoint with which the packet was sent.
    pub ecn: Ecn,
    /// True unless the filter dropped the packet.
    pub arrives: bool,
}

/// Decision of a filter.
#[derive(Clone, Debug)]
pub enum Fate {
    /// The packet passes.
    Pass,
    /// The packet is lost.
    Drop,
    /// The packet passes this number of times.
    Copies(usize),
    /// The packet passes after this delay.
    Late(Duration),
    /// These bytes pass in place of the packet.
    Replace(Vec<u8>),
}

/// A change of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Cuts a direction of a link (true), or repairs it (false).
    Cut(LinkId, Direction, bool),
    /// Cuts both directions of a link (true), or repairs them (false).
    CutBoth(LinkId, bool),
    /// Sets the length of the longest IP packet in a direction, in bytes. The link's settings decide whether ICMP answers longer
    /// packets.
    Mtu(LinkId, Direction, usize),
    /// Changes the UDP port under which the NAT before this address shows its packets. Packets to the previous port are dropped.
    Rebind(IpAddr, u16),
    /// Clears all mappings of a NAT, as a restart of the NAT does.
    Forget(NatId),
    /// Makes an address unusable as a source (true), or usable again (false). If the engine sends from an unusable address, the
    /// host reports an error to the engine.
    Unroutable(IpAddr, bool),
    /// Starts (true) or stops (false) a host's SCTP. A stopped host answers all packets with ICMP port unreachable.
    Up(HostId, bool),
    /// Moves a host's clock forward, as after a sleep. All its timers are then late together.
    Jump(HostId, Duration),
    /// Moves a host's clock back, but not behind the world's clock.
    FallBack(HostId, Duration),
    /// Gives a host's processor to other programs for this time. Arrivals wait in the host's sockets, and its timers are late.
    /// Then the host takes all arrivals together, like a program that was not scheduled.
    Busy(HostId, Duration),
}

enum Happening {
    Arrival(HostId, Arrival),
    Send {
        route: Route,
        packet: Vec<u8>,
        sent: Sent,
    },
    /// The processor of a host may be free again.
    Wake(HostId),
    Change(Change),
}

/// An arrival at a host. Routes are the receiver's view.
enum Arrival {
    Packet { route: Route, packet: Vec<u8>, ecn: Ecn },
    Icmp { route: Route, error: PathError, quoted: Vec<u8> },
}

/// Sender's options for a packet.
#[derive(Clone, Copy)]
struct Sent {
    may_fragment: bool,
    ecn: Ecn,
}

type Filter = Box<dyn FnMut(&Record) -> Fate>;

/// Hosts and links in virtual time.
pub struct World {
    now: Time,
    sequence: u64,
    queue: BTreeMap<(Time, u64), Happening>,
    hosts: Vec<Host>,
    links: Vec<Link>,
    owners: BTreeMap<IpAddr, HostId>,
    directions: BTreeMap<(IpAddr, IpAddr), (LinkId, Direction)>,
    /// UDP ports that NATs show, by the address behind each NAT.
    ports: BTreeMap<IpAddr, u16>,
    nats: Vec<Nat>,
    /// NATs before inner addresses, with the address that each NAT shows.
    behind: BTreeMap<IpAddr, (NatId, IpAddr)>,
    /// NATs by the addresses that they show.
    outer: BTreeMap<IpAddr, NatId>,
    /// Addresses from which a host cannot send.
    unroutable: BTreeSet<IpAddr>,
    /// Arrivals at hosts whose processor is busy.
    waiting: BTreeMap<HostId, Vec<Arrival>>,
    rng: ChaCha12Rng,
    filter: Option<Filter>,
    trace: u64,
    packets: u64,
    /// Buffer for the engines' trains.
    buf: Vec<u8>,
    /// True if every engine checks its invariants after each input, which is the default. The checks take time with large
    /// windows.
    pub checks: bool,
    /// True if packets for the links wait in the sending hosts. The hosts then report the length of this queue to their engines
    /// on request.
    pub queues_are_local: bool,
    /// Protection that is offered if an association's settings have none ([`InTheClear`](crate::InTheClear)).
    pub protection: Option<ProtectionConfig>,
    /// True if packets are recorded in [`records`](Self::records), and the engines' traces in [`traces`](Self::traces).
    pub recording: bool,
    /// Packets as they were sent, if `recording` is set.
    pub records: Vec<Record>,
    /// Traces of the engines, if `recording` is set.
    pub traces: Vec<(HostId, TraceRecord)>,
}

impl World {
    /// Creates an empty world at time zero. The same seed and the same calls give the same run.
    pub fn new(seed: u64) -> World {
        World {
            now: Time::ZERO,
            sequence: 0,
            queue: BTreeMap::new(),
            hosts: Vec::new(),
            links: Vec::new(),
            owners: BTreeMap::new(),
            directions: BTreeMap::new(),
            ports: BTreeMap::new(),
            nats: Vec::new(),
            behind: BTreeMap::new(),
            outer: BTreeMap::new(),
            unroutable: BTreeSet::new(),
            waiting: BTreeMap::new(),
            rng: ChaCha12Rng::seed_from_u64(seed),
            filter: None,
            trace: 0xcbf2_9ce4_8422_2325,
            packets: 0,
            buf: vec![0; TRAIN_BYTES],
            checks: true,
            queues_are_local: false,
            protection: clear::offer(),
            recording: false,
            records: Vec::new(),
            traces: Vec::new(),
        }
    }

    /// Adds a host with these addresses.
    pub fn add_host(&mut self, addresses: &[&str], mut config: EndpointConfig) -> HostId {
        config.association.protection = config.association.protection.or(self.protection);
        let addresses: Vec<IpAddr> = addresses.iter().map(|a| a.parse().expect("an IP address")).collect();
        let id = HostId(self.hosts.len());
        for &address in &addresses {
            assert!(self.owners.insert(address, id).is_none(), "{address} belongs to another host");
        }
        let endpoint = self.new_endpoint(config);
        self.hosts.push(Host {
            app: App::new(addresses.clone()),
            addresses,
            endpoint,
            is_up: true,
            ahead: Duration::ZERO,
            busy_until: Time::ZERO,
        });
        id
    }

    fn new_endpoint(&mut self, config: EndpointConfig) -> Endpoint {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        Endpoint::new(self.now, config, seed)
    }

    /// Restarts a host's SCTP, which loses all its state, as after a crash.
    pub fn restart(&mut self, host: HostId, config: EndpointConfig) {
        let endpoint = self.new_endpoint(config);
        let host = &mut self.hosts[host.0];
        host.endpoint = endpoint;
        host.app.conversations.clear();
    }

    /// Adds a link.
    pub fn add_link(&mut self, config: LinkConfig) -> LinkId {
        self.links.push(Link::new(config));
        LinkId(self.links.len() - 1)
    }

    /// Connects two addresses through `link`. Addresses that are not joined cannot reach each other.
    pub fn join(&mut self, link: LinkId, one: &str, other: &str) {
        let [one, other]: [IpAddr; 2] = [one, other].map(|a| a.parse().expect("an IP address"));
        self.directions.insert((one, other), (link, Direction::Forward));
        self.directions.insert((other, one), (link, Direction::Backward));
    }

    /// Adds a NAT at the far end of these inner addresses' links. The NAT shows these addresses as `outer`, and carries only UDP.
    /// Hosts outside cannot reach an inner address directly.
    pub fn add_nat(&mut self, config: NatConfig, outer: &str, inner: &[&str]) -> NatId {
        let (id, parsed) = (NatId(self.nats.len()), |a: &str| a.parse::<IpAddr>().expect("an IP address"));
        let outer = parsed(outer);
        self.nats.push(Nat::new(config));
        self.outer.insert(outer, id);
        self.behind.extend(inner.iter().map(|address| (parsed(address), (id, outer))));
        id
    }

    /// Sets the filter, which sees every packet that is sent and decides its fate. The new filter replaces the previous one.
    pub fn set_filter(&mut self, filter: impl FnMut(&Record) -> Fate + 'static) {
        self.filter = Some(Box::new(filter));
    }

    /// Removes the filter, so every packet passes.
    pub fn clear_filter(&mut self) {
        self.filter = None;
    }

    /// Returns a host.
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0]
    }

    /// Returns a host, which may be changed.
    pub fn host_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0]
    }

    /// Returns a link.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0]
    }

    /// Returns a link, which may be changed.
    pub fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.0]
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the number of packets sent so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns a hash over every packet sent, its time and its route. Equal hashes mean equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.trace
    }

    /// Opens an association from the first address of `from` to the first address of `to`. The host `from` announces all its
    /// addresses.
    pub fn connect(
        &mut self,
        from: HostId,
        to: HostId,
        carrier: Carrier,
        config: AssociationConfig,
        conversation: Conversation,
    ) -> AssociationId {
        let local_port = 40_000 + u16::try_from(self.hosts[from.0].app.conversations.len()).unwrap_or(0);
        let remote = self.hosts[to.0].addresses[0];
        let host = &mut self.hosts[from.0];
        let local = host.addresses[0];
        let connect = Connect {
            local_port,
            remote_port: SERVER_PORT,
            init_routes: vec![Route { local, remote, carrier }],
            local_addresses: host.addresses.clone(),
            config: AssociationConfig { protection: config.protection.or(self.protection), ..config },
        };
        let now = self.now + host.ahead;
        let id = host.endpoint.connect(now, connect).expect("a new association");
        host.app.keying.begin(now, id, &mut host.endpoint);
        host.app.conversations.insert(id, conversation);
        self.work(from);
        id
    }

    /// Plans a change at a time.
    pub fn at(&mut self, time: Time, change: Change) {
        self.plan(time, Happening::Change(change));
    }

    /// Delivers a forged packet to `to` now. `route` is the receiver's view.
    pub fn inject(&mut self, to: HostId, route: Route, packet: &[u8]) {
        self.deliver(to, route, packet, Ecn::NotEct);
        self.work(to);
    }

    /// Delivers an ICMP error to `to` now.
    pub fn inject_path_error(&mut self, to: HostId, route: Route, error: PathError, quoted: &[u8]) {
        self.tell_error(to, route, error, quoted);
        self.work(to);
    }

    /// Runs the world for a duration.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.run_until(end, |_| false);
    }

    /// Runs the world until `done` returns true, or until `limit`. Returns whether `done` returned true.
    pub fn run_until(&mut self, limit: Time, mut done: impl FnMut(&World) -> bool) -> bool {
        (0..self.hosts.len()).for_each(|h| self.work(HostId(h)));
        let mut inputs_now = 0;
        loop {
            if done(self) {
                return true;
            }
            let next = self.next_time();
            if next > limit {
                self.now = self.now.max(limit);
                return false;
            }
            inputs_now = if next > self.now { 0 } else { inputs_now + 1 };
            assert!(inputs_now < INPUTS_AT_ONCE, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn next_time(&self) -> Time {
        let planned = self.queue.first_key_value().map_or(Time::NEVER, |(key, _)| key.0);
        self.hosts.iter().map(Host::next_timeout).fold(planned, Time::min)
    }

    fn step(&mut self) {
        if let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= self.now
        {
            let happening = entry.remove();
            return self.happen(happening);
        }
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            if host.next_timeout() > self.now {
                continue;
            }
            let now = self.now + host.ahead;
            host.endpoint.note_lateness(now.since(host.endpoint.next_timeout()));
            host.endpoint.handle_timeout(now);
            let next = host.endpoint.next_timeout();
            assert!(next > now, "a timer of host {index} stays in the past: {next:?} at {now:?}");
            self.work(HostId(index));
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrival(to, arrival) if self.is_busy(to) => {
                self.waiting.entry(to).or_default().push(arrival);
            }
            Happening::Arrival(to, arrival) => {
                self.take(to, arrival);
                self.work(to);
            }
            Happening::Send { route, packet, sent } => self.carry(route, packet, sent),
            Happening::Wake(host) => self.wake(host),
            Happening::Change(Change::Cut(link, direction, cut)) => {
                self.links[link.0].set_cut(direction, cut);
            }
            Happening::Change(Change::CutBoth(link, cut)) => {
                self.links[link.0].set_cut(Direction::Forward, cut);
                self.links[link.0].set_cut(Direction::Backward, cut);
            }
            Happening::Change(Change::Mtu(link, direction, mtu)) => {
                self.links[link.0].set_mtu(direction, mtu);
            }
            Happening::Change(Change::Rebind(address, port)) => {
                self.ports.insert(address, port);
            }
            Happening::Change(Change::Forget(nat)) => self.nats[nat.0].forget(),
            Happening::Change(Change::Unroutable(address, true)) => {
                self.unroutable.insert(address);
            }
            Happening::Change(Change::Unroutable(address, false)) => {
                self.unroutable.remove(&address);
            }
            Happening::Change(Change::Jump(host, by)) => {
                self.hosts[host.0].ahead += by;
                self.work(host);
            }
            Happening::Change(Change::FallBack(host, by)) => {
                let host = &mut self.hosts[host.0];
                host.ahead = host.ahead.saturating_sub(by);
            }
            Happening::Change(Change::Up(host, up)) => {
                self.hosts[host.0].is_up = up;
                self.work(host);
            }
            Happening::Change(Change::Busy(host, duration)) => {
                let until = self.hosts[host.0].busy_until.max(self.now + duration);
                self.hosts[host.0].busy_until = until;
                self.plan(until, Happening::Wake(host));
            }
        }
    }

    /// Reports whether a host's processor is busy, or whether arrivals still wait for it.
    fn is_busy(&self, host: HostId) -> bool {
        self.now < self.hosts[host.0].busy_until || self.waiting.contains_key(&host)
    }

    /// Takes all arrivals that waited in a host's sockets, before the host answers any.
    fn wake(&mut self, host: HostId) {
        if self.now < self.hosts[host.0].busy_until {
            return;
        }
        for arrival in self.waiting.remove(&host).unwrap_or_default() {
            self.take(host, arrival);
        }
        self.work(host);
    }

    fn plan(&mut self, at: Time, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), happening);
    }

    /// Handles an arrival at a host.
    fn take(&mut self, to: HostId, arrival: Arrival) {
        match arrival {
            Arrival::Packet { route, packet, ecn } if self.hosts[to.0].is_up => {
                self.deliver(to, route, &packet, ecn);
            }
            Arrival::Packet { route, packet, .. } => {
                let error = PathError::Unreachable(Unreachable::Port);
                let seen = self.seen_by_receiver(route, self.now);
                self.send_icmp(route, seen, error, &packet);
            }
            Arrival::Icmp { route, error, quoted } => self.tell_error(to, route, error, &quoted),
        }
    }

    fn deliver(&mut self, to: HostId, route: Route, packet: &[u8], ecn: Ecn) {
        let host = &mut self.hosts[to.0];
        host.endpoint.handle_datagram(self.now + host.ahead, &route, ecn, packet, &mut host.app);
    }

    fn tell_error(&mut self, to: HostId, route: Route, error: PathError, quoted: &[u8]) {
        let host = &mut self.hosts[to.0];
        host.endpoint.handle_path_error(self.now + host.ahead, &route, error, quoted);
    }

    /// Sends an ICMP error about `packet` to its sender, with the delay of the route `back`. `route` is the sender's view.
    fn send_icmp(&mut self, back: Route, route: Route, error: PathError, packet: &[u8]) {
        let found = self.directions.get(&(back.local, back.remote));
        let (Some(&to), Some(&(link, direction))) = (self.owners.get(&route.local), found) else { return };
        let link = &self.links[link.0];
        if !link.is_cut(direction) {
            let quoted = packet[..packet.len().min(QUOTED)].to_vec();
            let at = self.now + link.config.delay;
            self.plan(at, Happening::Arrival(to, Arrival::Icmp { route, error, quoted }));
        }
    }

    /// Lets the program and the engine of a host work until they have no more output.
    fn work(&mut self, id: HostId) {
        let now = self.now + self.hosts[id.0].ahead;
        if !self.hosts[id.0].is_up || self.is_busy(id) {
            return;
        }
        let mut buf = std::mem::take(&mut self.buf);
        loop {
            let host = &mut self.hosts[id.0];
            host.app.work(now, &mut host.endpoint);
            let mut sent = false;
            while let Some(train) = self.hosts[id.0].endpoint.poll_transmit(now, &mut buf) {
                sent = true;
                if self.unroutable.contains(&train.route.local) {
                    let first = &buf[..train.len.min(train.segment_size)];
                    self.tell_error(id, train.route, PathError::NoRoute, first);
                    continue;
                }
                for packet in buf[..train.len].chunks(train.segment_size) {
                    let sent = Sent { may_fragment: train.may_fragment, ecn: train.ecn };
                    self.send(train.route, packet.to_vec(), sent);
                }
                if train.asks_for_queue && self.queues_are_local {
                    self.tell_queue(id, train.route, &buf[..train.len]);
                }
            }
            if !sent {
                break;
            }
        }
        self.buf = buf;
        if self.recording {
            let endpoint = &mut self.hosts[id.0].endpoint;
            endpoint.set_tracing(true);
            self.traces.extend(std::iter::from_fn(|| endpoint.poll_trace()).map(|record| (id, record)));
        }
        if self.checks {
            self.hosts[id.0].endpoint.check_invariants();
        }
    }

    /// Reports the length of a link's queue to a host's engine. The link is the one on which the host has just sent the train.
    fn tell_queue(&mut self, host: HostId, route: Route, train: &[u8]) {
        if let Some(&(link, direction)) = self.directions.get(&(route.local, route.remote)) {
            let bytes = self.links[link.0].waiting(self.now, direction);
            self.tell_error(host, route, PathError::LocalQueue { bytes }, train);
        }
    }

    fn send(&mut self, route: Route, packet: Vec<u8>, sent: Sent) {
        self.packets += 1;
        self.note(route, &packet);
        let mut record = Record { at: self.now, route, packet, ecn: sent.ecn, arrives: true };
        let fate = self.filter.as_mut().map_or(Fate::Pass, |filter| filter(&record));
        let packet = record.packet.clone();
        match fate {
            Fate::Pass => self.carry(route, packet, sent),
            Fate::Drop => record.arrives = false,
            Fate::Copies(n) => (0..n).for_each(|_| self.carry(route, packet.clone(), sent)),
            Fate::Replace(other) => self.carry(route, other, sent),
            Fate::Late(delay) => self.plan(self.now + delay, Happening::Send { route, packet, sent }),
        }
        if self.recording {
            self.records.push(record);
        }
    }

    /// Puts a packet on its link. A packet that is too long passes only if IP may fragment it. All its fragments then share one
    /// fate.
    fn carry(&mut self, route: Route, packet: Vec<u8>, sent: Sent) {
        let Some(inner) = self.behind_nats(route, &packet) else { return };
        let (Some(&(link, direction)), Some(&to)) =
            (self.directions.get(&(inner.local, inner.remote)), self.owners.get(&inner.remote))
        else {
            return;
        };
        if matches!(inner.carrier, Carrier::Udp { peer_port } if peer_port != self.port_of(inner.remote)) {
            return;
        }
        let length = packet.len() + overhead(&route);
        let link = &mut self.links[link.0];
        let mtu = link.mtu(direction);
        if length > mtu && !sent.may_fragment {
            link.refuse(length);
            if link.config.reports_mtu {
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                self.send_icmp(turned(inner), route, PathError::TooBig { mtu }, &packet);
            }
            return;
        }
        let comings: Vec<Coming> = link.offer(self.now, direction, length, sent.ecn, &mut self.rng).collect();
        for Coming { arrival, ecn } in comings {
            let mut copy = packet.clone();
            if let Some(bit) = arrival.flip.filter(|bit| bit / 8 < copy.len()) {
                copy[bit / 8] ^= 1 << (bit % 8);
            }
            let seen = self.seen_by_receiver(inner, arrival.at);
            self.plan(arrival.at, Happening::Arrival(to, Arrival::Packet { route: seen, packet: copy, ecn }));
        }
    }

    /// Returns the route with the inner address in place of the address that a NAT shows. Returns `None` if the packet goes no
    /// further. In this case, the NAT may answer, or an outside host that also has the inner address.
    fn behind_nats(&mut self, route: Route, packet: &[u8]) -> Option<Route> {
        let side = |address: IpAddr| self.behind.get(&address).map(|(nat, _)| *nat);
        let (here, there) = (side(route.local), side(route.remote));
        let is_udp = matches!(route.carrier, Carrier::Udp { .. });
        let (nat, found) = match (self.outer.get(&route.remote), route.carrier) {
            (Some(&nat), Carrier::Udp { peer_port }) => {
                let found = self.nats[nat.0].receive(self.now, route.local, peer_port);
                let carrier = Carrier::Udp { peer_port: ENCAPSULATION_PORT };
                (nat, found.map(|inner| Route { remote: inner, carrier, ..route }))
            }
            (None, _) if here.is_none() && there.is_none() => return Some(route),
            (None, _) if there.is_none() && is_udp => return Some(route),
            _ => (here.or(there)?, None),
        };
        if found.is_none() && is_udp && self.nats[nat.0].answers(there.is_some()) {
            let (to, quoted) = (*self.owners.get(&route.local)?, packet[..packet.len().min(QUOTED)].to_vec());
            let error = PathError::Unreachable(Unreachable::Port);
            let icmp = Arrival::Icmp { route, error, quoted };
            self.plan(self.now + NAT_ANSWER, Happening::Arrival(to, icmp));
        }
        found
    }

    /// Returns the UDP port under which the world sees an address: the port of its encapsulation, or of its NAT.
    fn port_of(&self, address: IpAddr) -> u16 {
        self.ports.get(&address).copied().unwrap_or(ENCAPSULATION_PORT)
    }

    /// Returns the receiver's view of a packet's route. The packet passes its link and NAT at the time `at`.
    fn seen_by_receiver(&mut self, route: Route, at: Time) -> Route {
        match (route.carrier, self.behind.get(&route.local)) {
            (Carrier::Udp { .. }, Some(&(nat, outer))) => {
                let peer_port = self.nats[nat.0].send(at, route.local, route.remote);
                Route { carrier: Carrier::Udp { peer_port }, local: route.remote, remote: outer }
            }
            (Carrier::Udp { .. }, None) => {
                let carrier = Carrier::Udp { peer_port: self.port_of(route.local) };
                Route { carrier, ..turned(route) }
            }
            (Carrier::Ip, _) => turned(route),
        }
    }

    /// Adds the time, the route and the bytes of a packet to the trace hash.
    fn note(&mut self, route: Route, packet: &[u8]) {
        self.mix(self.now.as_nanos());
        for address in [route.local, route.remote] {
            match address {
                IpAddr::V4(a) => self.mix(u64::from(a.to_bits())),
                IpAddr::V6(a) => self.mix((a.to_bits() >> 64) as u64 ^ a.to_bits() as u64),
            }
        }
        self.mix(u64::from(matches!(route.carrier, Carrier::Udp { .. })));
        for word in packet.chunks(8) {
            self.mix(word.iter().fold(word.len() as u64, |sum, byte| sum << 8 ^ u64::from(*byte)));
        }
    }

    /// Mixes a word into the trace hash: FNV-1a, with the high bits folded down.
    fn mix(&mut self, word: u64) {
        let mixed = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        self.trace = mixed ^ mixed >> 29;
    }

    /// Writes the recorded packets as a pcapng file into the temporary directory, and the engines' traces as text next to it
    /// (`.trace`). Returns the path of the pcapng file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write_capture(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = std::env::temp_dir().join(format!("{name}-{}.pcapng", std::process::id()));
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
        capture::write(&mut file, &self.records)?;
        let mut file = std::io::BufWriter::new(std::fs::File::create(path.with_extension("trace"))?);
        for (HostId(host), TraceRecord { at, association, event }) in &self.traces {
            let number = association.map_or_else(|| "-".into(), |id| id.number().to_string());
            writeln!(file, "{at:?} host {host} association {number} {event:?}")?;
        }
        Ok(path)
    }
}

/// Returns the same route from the other end. The UDP port stays, because both sides encapsulate from the same port.
fn turned(route: Route) -> Route {
    Route { local: route.remote, remote: route.local, carrier: route.carrier }
}

/// Returns the bytes of the IP and UDP headers.
fn overhead(route: &Route) -> usize {
    let ip = if route.remote.is_ipv4() { 20 } else { 40 };
    ip + if matches!(route.carrier, Carrier::Udp { .. }) { 8 } else { 0 }
}
