//! Runs flows over one bottleneck: finds the next event, and lets the affected ends work.
//!
//! Invariants: time never goes back. Events at the same time happen in the order in which they were planned.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use base::{Ecn, Time};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sched::{Pace, Packet, Queue, View};

use super::config::{Bottleneck, KernelConfig};
use super::receiver::{Receiver, Sack};
use super::sender::{Buffer, Sender, Sent};

const PORT: u16 = 5201;

/// Result of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelFlow {
    /// User bytes received, without duplicates.
    pub received: u64,
    /// Longest time without new data at the receiver, from the flow's start to the end of the run.
    pub longest_pause: Duration,
    /// Number of expiries of T3.
    pub timeouts: u64,
    /// Samples of the sender's buffer, at the requested interval.
    pub buffers: Vec<Buffer>,
}

#[derive(Debug)]
enum Event {
    Start,
    AtRouter(Sent),
    AtReceiver(Sent),
    AtSender(Sack),
    Sample,
}

/// Both ends of a flow, and the state that keeps its packets in order.
struct Flow {
    sender: Sender,
    receiver: Receiver,
    has_started: bool,
    link: Pace,
    /// Time at which the flow's last packet arrives at the router.
    last_arrival: Time,
    buffers: Vec<Buffer>,
}

struct State<'a> {
    bottleneck: &'a Bottleneck,
    header: usize,
    now: Time,
    sequence: u64,
    planned: BTreeMap<(Time, u64), (usize, Event)>,
    flows: Vec<Flow>,
    queue: Box<dyn Queue<(usize, Sent)> + Send>,
    pace: Pace,
    sampling: Duration,
    chance: ChaCha12Rng,
}

/// Runs flows that begin at the times `starts` and send as much as they can until `end`. Samples their buffers at the interval
/// `sampling`. The same seed gives the same run.
pub fn run(
    config: &KernelConfig,
    bottleneck: &Bottleneck,
    starts: &[Duration],
    end: Duration,
    sampling: Duration,
    seed: u64,
) -> Vec<KernelFlow> {
    let mut state = State::new(config, bottleneck, starts, sampling, seed);
    let end = Time::ZERO + end;
    loop {
        let next = state.next_time();
        if next > end {
            break;
        }
        state.now = state.now.max(next);
        state.step();
    }
    let outcome = |mut flow: Flow| {
        flow.receiver.on_progress(end);
        KernelFlow {
            received: flow.receiver.received,
            longest_pause: flow.receiver.longest_pause,
            timeouts: flow.sender.timeouts,
            buffers: flow.buffers,
        }
    };
    state.flows.into_iter().map(outcome).collect()
}

impl<'a> State<'a> {
    fn new(
        config: &KernelConfig,
        bottleneck: &'a Bottleneck,
        starts: &[Duration],
        sampling: Duration,
        seed: u64,
    ) -> State<'a> {
        let mut chance = ChaCha12Rng::seed_from_u64(seed);
        let flow = |start: &Duration| Flow {
            sender: Sender::new(config),
            receiver: Receiver::new(config, Time::ZERO + *start),
            has_started: false,
            link: Pace::new(bottleneck.host_rate, 0),
            last_arrival: Time::ZERO,
            buffers: Vec::new(),
        };
        let mut state = State {
            bottleneck,
            header: config.header,
            now: Time::ZERO,
            sequence: 0,
            planned: BTreeMap::new(),
            flows: starts.iter().map(flow).collect(),
            queue: bottleneck.policy.queue(chance.next_u64()),
            pace: Pace::new(bottleneck.rate, bottleneck.burst),
            sampling,
            chance,
        };
        for (n, start) in starts.iter().enumerate() {
            state.plan(Time::ZERO + *start, n, Event::Start);
        }
        state.plan(Time::ZERO + sampling, 0, Event::Sample);
        state
    }

    fn plan(&mut self, at: Time, flow: usize, event: Event) {
        self.sequence += 1;
        self.planned.insert((at, self.sequence), (flow, event));
    }

    /// Returns the time at which the bottleneck takes another packet; [`Time::NEVER`] if none waits.
    fn link_at(&self) -> Time {
        if self.queue.backlog().packets == 0 { Time::NEVER } else { self.pace.ready_at(self.now) }
    }

    fn next_time(&self) -> Time {
        let planned = self.planned.first_key_value().map_or(Time::NEVER, |it| it.0.0);
        let timers =
            self.flows.iter().map(|flow| flow.sender.next_timeout().min(flow.receiver.next_timeout()));
        timers.fold(planned.min(self.link_at()), Time::min)
    }

    fn step(&mut self) {
        if self.link_at() <= self.now {
            return self.pass_one();
        }
        if let Some(entry) = self.planned.first_entry().filter(|it| it.key().0 <= self.now) {
            let (n, event) = entry.remove();
            return self.happen(n, event);
        }
        for n in 0..self.flows.len() {
            let flow = &mut self.flows[n];
            if flow.sender.next_timeout() <= self.now {
                let sent = flow.sender.on_timeout(self.now);
                self.send(n, sent);
            }
            let flow = &mut self.flows[n];
            if flow.receiver.next_timeout() <= self.now {
                let sack = flow.receiver.sack();
                self.answer(n, sack);
            }
        }
    }

    fn happen(&mut self, n: usize, event: Event) {
        match event {
            Event::Start => {
                self.flows[n].has_started = true;
                self.work(n);
            }
            Event::AtRouter(sent) => self.offer(n, sent),
            Event::AtReceiver((tsn, length)) => {
                if let Some(sack) = self.flows[n].receiver.on_data(self.now, tsn, length) {
                    self.answer(n, sack);
                }
            }
            Event::AtSender(sack) => {
                self.flows[n].sender.on_sack(self.now, &sack);
                self.work(n);
            }
            Event::Sample => {
                for flow in self.flows.iter_mut().filter(|it| it.has_started) {
                    let buffer = flow.sender.buffer(self.now);
                    flow.buffers.push(buffer);
                }
                self.plan(self.now + self.sampling, 0, Event::Sample);
            }
        }
    }

    /// Sends the chunks that a sender may send.
    fn work(&mut self, n: usize) {
        let sent = self.flows[n].sender.poll(self.now);
        self.send(n, sent);
    }

    /// Sends chunks over the host's own link to the router.
    fn send(&mut self, n: usize, sent: Vec<Sent>) {
        for (tsn, length) in sent {
            let late = self.late();
            let flow = &mut self.flows[n];
            let out = flow.link.take(self.now, length + self.header) + late;
            flow.last_arrival = flow.last_arrival.max(out);
            let at = flow.last_arrival;
            self.plan(at, n, Event::AtRouter((tsn, length)));
        }
    }

    /// Returns a random delay up to the jitter.
    fn late(&mut self) -> Duration {
        let share = (self.chance.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        self.bottleneck.jitter.mul_f64(share)
    }

    fn offer(&mut self, n: usize, sent: Sent) {
        let host = |side| IpAddr::V4(Ipv4Addr::new(10, side, (n >> 8) as u8, n as u8));
        let flow = sched::Flow { from: host(0), to: host(1), from_port: PORT, to_port: PORT };
        let view = View { flow, has_data: true, said: None };
        let length = sent.1 + self.header;
        self.queue.enqueue(self.now, Packet { body: (n, sent), length, view, ecn: Ecn::NotEct });
    }

    fn pass_one(&mut self) {
        let Some(packet) = self.queue.dequeue(self.now) else { return };
        let at = self.pace.take(self.now, packet.length) + self.bottleneck.round_trip / 2;
        let (n, sent) = packet.body;
        self.plan(at, n, Event::AtReceiver(sent));
    }

    /// Sends a SACK back to the sender.
    fn answer(&mut self, n: usize, sack: Sack) {
        self.plan(self.now + self.bottleneck.round_trip / 2, n, Event::AtSender(sack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::{Policy, SfqConfig};

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const END: Duration = Duration::from_secs(300);

    fn bottleneck(policy: Policy) -> Bottleneck {
        Bottleneck {
            host_rate: 100_000_000,
            rate: 1_000_000,
            burst: 0,
            policy,
            round_trip: MS(2),
            jitter: Duration::from_micros(500),
        }
    }

    fn two(config: &KernelConfig, policy: Policy, seed: u64) -> [KernelFlow; 2] {
        let flows = run(config, &bottleneck(policy), &[MS(0), MS(300)], END, MS(1000), seed);
        flows.try_into().expect("two flows")
    }

    fn ratio([one, other]: &[KernelFlow; 2]) -> f64 {
        let (one, other) = (one.received as f64, other.received as f64);
        one.max(other) / one.min(other)
    }

    #[test]
    fn a_flow_alone_fills_the_link_and_no_byte_comes_twice() {
        for packets in [8, 50] {
            let link = bottleneck(Policy::Fifo(packets));
            let flows = run(&KernelConfig::linux_4_6(), &link, &[MS(0)], END, MS(1000), 1);
            let most = 1e6 / 8.0 * 300.0 * 1448.0 / 1500.0;
            let used = flows[0].received as f64 / most;
            assert!((0.97..=1.0).contains(&used), "{used} of the link with {packets} packets");
            assert_eq!(flows[0].buffers.len(), 300);
        }
    }

    #[test]
    fn behind_sfq_two_flows_get_the_same() {
        let flows = two(&KernelConfig::linux_4_6(), Policy::Sfq(SfqConfig::default()), 1);
        assert!(ratio(&flows) < 1.02, "{}", ratio(&flows));
    }

    #[test]
    fn room_for_four_packets_locks_one_of_two_flows_out_for_a_minute_and_room_for_fifty_does_not() {
        let config = KernelConfig::linux_4_6();
        let locked_out = |packets| {
            let is_out = |seed: &u64| {
                let flows = two(&config, Policy::Fifo(packets), *seed);
                flows.iter().any(|it| it.longest_pause > Duration::from_secs(55))
            };
            (0..10).filter(is_out).count()
        };
        let (short, long) = (locked_out(4), locked_out(50));
        assert!(short >= 5 && long == 0, "{short} and {long} of 10 runs");
    }

    #[test]
    fn with_a_greatest_t3_of_five_seconds_no_flow_stands_still_for_a_minute() {
        let config = KernelConfig { rto_max: Duration::from_secs(5), ..KernelConfig::linux_4_6() };
        for seed in 0..10 {
            let flows = two(&config, Policy::Fifo(4), seed);
            let longest = flows.iter().map(|it| it.longest_pause).max().unwrap();
            assert!(longest < Duration::from_secs(55), "{longest:?}");
        }
    }

    #[test]
    fn one_seed_gives_one_run() {
        let once = |seed| two(&KernelConfig::linux_4_6(), Policy::Fifo(4), seed);
        assert!(once(1) == once(1) && once(1) != once(2));
    }
}
