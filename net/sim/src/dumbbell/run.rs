//! Runs a dumbbell. Its events are processed in the order of time, and after each event, the affected hosts work.
//!
//! Invariants: time never goes back. At each moment, packets pass the link first. Then events run in the order in which they were
//! planned, and then timers expire. Begin at [`run`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr};

use base::{Carrier, Ecn, Route, Time};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sched::{Pace, Packet, Queue, View};
use sctp::{
    AnswerRate, AssociationId, Connect, Endpoint, EndpointConfig, Event, IncomingInit, InitDecision, Limits,
    Listener,
};
use wire::{CommonHeader, SendBuffer};

use super::flow::Flow;
use super::plan::{Dumbbell, Load};
use super::report::DumbbellReport;

const SENDERS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const RECEIVERS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));
const PORT: u16 = 7;
/// The first flow's port at the senders; each further flow has the next port.
const FIRST_PORT: u16 = 1024;
/// Limit on the flows: each flow takes a port of the senders' address.
pub(super) const FLOWS_MAX: usize = (u16::MAX - FIRST_PORT) as usize;
/// Length of an IPv4 header, in bytes.
const IP_HEADER: usize = 20;
/// Length of the longest train, in bytes.
const TRAIN_BYTES: usize = 65_536;

enum Happening {
    Start(usize),
    Message(usize),
    OwnEnd(usize),
    /// A packet arrives: at the receivers if `to_receivers` is true, else at the senders.
    Packet {
        to_receivers: bool,
        packet: Vec<u8>,
        ecn: Ecn,
    },
    WindowBegins,
    WindowEnds,
    Sample,
}

/// A planned event. Events are ordered by time, then by the order in which they were planned.
struct Planned {
    at: Time,
    sequence: u64,
    what: Happening,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// A listener that accepts all associations.
struct Open;

impl Listener for Open {
    fn on_init(&mut self, _init: &IncomingInit) -> InitDecision {
        InitDecision::Accept { local_addresses: vec![RECEIVERS] }
    }
}

struct State<'a> {
    plan: &'a Dumbbell,
    now: Time,
    sequence: u64,
    happenings: BinaryHeap<Reverse<Planned>>,
    senders: Endpoint,
    receivers: Endpoint,
    flows: Vec<Flow>,
    by_sender: BTreeMap<AssociationId, usize>,
    by_receiver: BTreeMap<AssociationId, usize>,
    queue: Box<dyn Queue<Vec<u8>> + Send>,
    link: Pace,
    /// Number of flows whose sender's association has not ended.
    open: usize,
    report: DumbbellReport,
    buf: Vec<u8>,
}

/// Runs a dumbbell until all senders' associations have ended, or until its limit ([`Dumbbell::limit`]).
///
/// # Panics
/// If the plan has more than 64,511 flows, the number of ports for senders.
pub fn run(plan: &Dumbbell) -> DumbbellReport {
    assert!(plan.flows.len() <= FLOWS_MAX, "more flows than ports");
    let mut state = State::new(plan);
    let limit = Time::ZERO + plan.limit;
    while state.open > 0 {
        let next = state.next_time();
        if next > limit {
            break;
        }
        state.now = state.now.max(next);
        state.step();
    }
    state.finish()
}

/// Creates an engine whose own limits never take effect, because the measurement is about the router.
fn endpoint(plan: &Dumbbell, rng: &mut ChaCha12Rng) -> Endpoint {
    let rate = AnswerRate {
        per_second: 1_000_000,
        burst: 100_000,
        source_per_second: 1_000_000,
        source_burst: 100_000,
    };
    let limits = Limits {
        associations: 2 * FLOWS_MAX,
        inits: rate,
        stray_answers: rate,
        memory: 1 << 40,
        memory_of_host: 1 << 40,
        queued_replies: 100_000,
        ..Limits::default()
    };
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    let config =
        EndpointConfig { association: plan.association.clone(), limits, ..EndpointConfig::default() };
    Endpoint::new(Time::ZERO, config, seed)
}

impl<'a> State<'a> {
    fn new(plan: &'a Dumbbell) -> State<'a> {
        let mut rng = ChaCha12Rng::seed_from_u64(plan.seed);
        let mut state = State {
            plan,
            now: Time::ZERO,
            sequence: 0,
            happenings: BinaryHeap::new(),
            senders: endpoint(plan, &mut rng),
            receivers: endpoint(plan, &mut rng),
            flows: plan.flows.iter().cloned().map(Flow::new).collect(),
            by_sender: BTreeMap::new(),
            by_receiver: BTreeMap::new(),
            queue: plan.policy.queue(rng.next_u64()),
            link: Pace::new(plan.rate, plan.burst),
            open: plan.flows.len(),
            report: DumbbellReport::default(),
            buf: vec![0; TRAIN_BYTES],
        };
        for (n, flow) in plan.flows.iter().enumerate() {
            state.plan_for(Time::ZERO + flow.start, Happening::Start(n));
        }
        state.plan_for(Time::ZERO + plan.window.0, Happening::WindowBegins);
        state.plan_for(Time::ZERO + plan.window.1, Happening::WindowEnds);
        if let Some(every) = plan.sampling {
            state.plan_for(Time::ZERO + every, Happening::Sample);
        }
        state
    }

    fn plan_for(&mut self, at: Time, what: Happening) {
        self.sequence += 1;
        self.happenings.push(Reverse(Planned { at, sequence: self.sequence, what }));
    }

    /// Returns the time at which the link takes another packet; [`Time::NEVER`] if none waits.
    fn link_at(&self) -> Time {
        if self.queue.backlog().packets == 0 { Time::NEVER } else { self.link.ready_at(self.now) }
    }

    fn next_time(&self) -> Time {
        let planned = self.happenings.peek().map_or(Time::NEVER, |it| it.0.at);
        planned.min(self.link_at()).min(self.senders.next_timeout()).min(self.receivers.next_timeout())
    }

    fn step(&mut self) {
        if self.link_at() <= self.now {
            return self.pass_one();
        }
        if self.happenings.peek().is_some_and(|it| it.0.at <= self.now)
            && let Some(Reverse(planned)) = self.happenings.pop()
        {
            return self.happen(planned.what);
        }
        if self.senders.next_timeout() <= self.now {
            self.senders.handle_timeout(self.now);
            self.work_senders();
        }
        if self.receivers.next_timeout() <= self.now {
            self.receivers.handle_timeout(self.now);
            self.work_receivers();
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Start(n) => self.start(n),
            Happening::Message(n) => {
                if let Some(next) = self.flows[n].write_message(self.now, &mut self.senders) {
                    self.plan_for(next, Happening::Message(n));
                }
                self.work_senders();
            }
            Happening::OwnEnd(n) => {
                self.flows[n].on_own_end(&self.receivers);
                let buffer = self.plan.association.send_buffer;
                self.flows[n].write(self.now, &mut self.senders, buffer);
                self.work_senders();
            }
            Happening::Packet { to_receivers: true, packet, ecn } => {
                let route = route(RECEIVERS, SENDERS);
                self.receivers.handle_datagram(self.now, &route, ecn, &packet, &mut Open);
                self.work_receivers();
            }
            Happening::Packet { to_receivers: false, packet, ecn } => {
                let route = route(SENDERS, RECEIVERS);
                self.senders.handle_datagram(self.now, &route, ecn, &packet, &mut Open);
                self.work_senders();
            }
            Happening::WindowBegins => {
                self.flows.iter_mut().for_each(|it| it.on_window_begin(&self.receivers))
            }
            Happening::WindowEnds => self.flows.iter_mut().for_each(|it| it.on_window_end(&self.receivers)),
            Happening::Sample => {
                self.flows.iter_mut().for_each(|it| it.sample(self.now, &self.senders));
                let every = self.plan.sampling.unwrap_or_default();
                self.plan_for(self.now + every, Happening::Sample);
            }
        }
    }

    fn start(&mut self, n: usize) {
        let connect = Connect {
            local_port: FIRST_PORT + n as u16,
            remote_port: PORT,
            init_routes: vec![route(SENDERS, RECEIVERS)],
            local_addresses: vec![SENDERS],
            config: self.plan.association.clone(),
        };
        if let Ok(id) = self.senders.connect(self.now, connect) {
            self.flows[n].sender = Some(id);
            self.by_sender.insert(id, n);
        }
        self.work_senders();
    }

    /// Runs the senders' programs and engine until they have no more output.
    fn work_senders(&mut self) {
        loop {
            while let Some((id, event)) = self.senders.poll_event() {
                self.on_sender(id, &event);
            }
            let mut buf = std::mem::take(&mut self.buf);
            let mut has_sent = false;
            while let Some(train) = self.senders.poll_transmit(self.now, &mut buf) {
                has_sent = true;
                for packet in buf[..train.len].chunks(train.segment_size) {
                    self.offer(packet, train.ecn);
                }
            }
            self.buf = buf;
            if !has_sent {
                break;
            }
        }
    }

    fn on_sender(&mut self, id: AssociationId, event: &Event) {
        let Some(&n) = self.by_sender.get(&id) else { return };
        let buffer = self.plan.association.send_buffer;
        match event {
            Event::Established { .. } => {
                self.flows[n].report.established = Some(self.now);
                if let Some(end) = self.flows[n].own_end() {
                    self.plan_for(end, Happening::OwnEnd(n));
                }
                if matches!(self.flows[n].plan.load, Load::Messages { .. }) {
                    self.plan_for(self.now, Happening::Message(n));
                }
                self.flows[n].write(self.now, &mut self.senders, buffer);
            }
            Event::Writable => self.flows[n].write(self.now, &mut self.senders, buffer),
            Event::Closed(_) => {
                self.flows[n].count_sent(&self.senders);
                self.by_sender.remove(&id);
                self.senders.release(self.now, id);
                self.open -= 1;
            }
            _ => {}
        }
    }

    fn work_receivers(&mut self) {
        loop {
            while let Some((id, event)) = self.receivers.poll_event() {
                self.on_receiver(id, &event);
            }
            let mut buf = std::mem::take(&mut self.buf);
            let mut has_sent = false;
            while let Some(train) = self.receivers.poll_transmit(self.now, &mut buf) {
                has_sent = true;
                for packet in buf[..train.len].chunks(train.segment_size) {
                    self.back(packet, train.ecn);
                }
            }
            self.buf = buf;
            if !has_sent {
                break;
            }
        }
    }

    fn on_receiver(&mut self, id: AssociationId, event: &Event) {
        if let Event::Incoming { remote_port, .. } = event {
            let n = usize::from(remote_port - FIRST_PORT);
            self.flows[n].receiver = Some(id);
            self.by_receiver.insert(id, n);
            return self.receivers.accept(self.now, id);
        }
        let Some(&n) = self.by_receiver.get(&id) else { return };
        match event {
            Event::Readable => self.flows[n].read(self.now, &mut self.receivers),
            Event::Closed(_) => {
                self.flows[n].read(self.now, &mut self.receivers);
                self.flows[n].count_received(&self.receivers);
                self.flows[n].receiver = None;
                self.by_receiver.remove(&id);
                self.receivers.release(self.now, id);
            }
            _ => {}
        }
    }

    /// Handles the arrival of a sender's packet at the queue.
    fn offer(&mut self, packet: &[u8], ecn: Ecn) {
        self.report.packets += 1;
        let advertised = self.plan.association.advertisement.map_or(SendBuffer::TYPE, |it| it.chunk_type);
        let Some(mut view) = View::of_sctp(SENDERS, RECEIVERS, packet, advertised) else { return };
        if view.said.is_some() {
            self.report.advertisements += 1;
            let n = usize::from(view.flow.from_port - FIRST_PORT);
            view.said = self.flows[n].plan.lie.or(view.said);
        }
        let length = packet.len() + IP_HEADER;
        self.queue.enqueue(self.now, Packet { body: packet.to_vec(), length, view, ecn });
    }

    /// Moves the next packet from the queue to the link.
    fn pass_one(&mut self) {
        let Some(packet) = self.queue.dequeue(self.now) else { return };
        let sent = self.link.take(self.now, packet.length);
        let at = sent + self.flows[usize::from(packet.view.flow.from_port - FIRST_PORT)].plan.round_trip / 2;
        self.plan_for(at, Happening::Packet { to_receivers: true, packet: packet.body, ecn: packet.ecn });
    }

    /// Delivers a receiver's packet to its sender.
    fn back(&mut self, packet: &[u8], ecn: Ecn) {
        self.report.packets += 1;
        let Some(header) = CommonHeader::peek(packet) else { return };
        let n = usize::from(header.destination_port - FIRST_PORT);
        let at = self.now + self.flows[n].plan.round_trip / 2;
        self.plan_for(at, Happening::Packet { to_receivers: false, packet: packet.to_vec(), ecn });
    }

    fn finish(mut self) -> DumbbellReport {
        for flow in &mut self.flows {
            if flow.receiver.is_some() {
                flow.end_pause(self.now);
            }
            flow.count_sent(&self.senders);
            flow.count_received(&self.receivers);
        }
        self.report.flows = self.flows.into_iter().map(|flow| flow.report).collect();
        self.report.queue = self.queue.counters();
        self.report.ended = self.now;
        self.report
    }
}

fn route(local: IpAddr, remote: IpAddr) -> Route {
    Route { local, remote, carrier: Carrier::Ip }
}
