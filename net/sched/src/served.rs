//! Least served first, with a memory; and before that, if wanted, those that have little left.
//!
//! Each flow has a queue of its own, by its exact key. The fair part serves the flow that was served least, and drops from the
//! one of which most was served and waits; a flow that comes back after a pause is given a bounded credit, no more. Packets
//! without DATA have a queue of their own, served first up to a rate: an association can be set up over a full link.
//!
//! With [`Finish`], most of the link goes to the flow with the least left to send: what waits at its sender by its own word, and what waits
//! here. Served bytes are subtracted, so an advertisement in every eighth packet is as good as one in each. The longer a flow has had
//! something left, the less that counts, down to a half: who has most would wait behind newcomers for ever. When all is full,
//! the flow of which most waits loses its last packet. The word is audited: who was served much more than it ever claimed counts
//! by what it was served; who claims much is not preferred at all; and the rest of the link stays fair. So a lie gains
//! nothing that silence would not.
//!
//! It refuses weights: no claim makes a flow's fair part larger. O(log flows) a packet. Begin at [`Served::new`].

use std::time::Duration;

use base::Time;

use crate::fifo::Fifo;
use crate::flows::{Flows, Id, State};
use crate::pace::Pace;
use crate::packet::{Packet, Said};
use crate::queue::{Backlog, Counters, Queue};

/// Send buffer that percents are taken of, for the router does not know it, in bytes.
const BUFFER: u64 = 256 << 10;
/// Credit of a flow that comes back and said that data waits, in bytes.
const CREDIT: u64 = 65_536;
/// Credit of any other flow that comes back: a packet.
const LITTLE_CREDIT: u64 = 1514;
/// Lifetime of an advertisement.
const CLAIM_LIFETIME: Duration = Duration::from_secs(1);
/// Bytes that a flow may be served beyond its claims before it is audited: some retransmissions.
const TOLERANCE: f64 = 6000.0;
/// Time after which an idle flow is forgotten.
const MEMORY: Duration = Duration::from_secs(60);
/// A share of all, in parts.
const WHOLE: u32 = 1000;

/// Sizes, and what is preferred.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServedConfig {
    /// Most packets with DATA in all.
    pub packets: usize,
    /// Most of them of one flow.
    pub per_flow: usize,
    /// Most packets without DATA.
    pub control_packets: usize,
    /// Bits per second of packets without DATA that go before all others; 0: all.
    pub control_rate: u64,
    /// Flows remembered; beyond that the packets of new ones are dropped until one is idle.
    pub flows: usize,
    /// The flows preferred before the least served; `None`: none.
    pub finish: Option<Finish>,
}

impl ServedConfig {
    /// With a preference, and with room for a file of 400 kB of each flow that has to wait for its turn.
    pub fn finishing(finish: Finish) -> ServedConfig {
        ServedConfig { packets: 2000, per_flow: 300, finish: Some(finish), ..ServedConfig::default() }
    }
}

impl Default for ServedConfig {
    /// 1,000 packets, 64 of a flow, and no preference.
    fn default() -> Self {
        ServedConfig {
            packets: 1000,
            per_flow: 64,
            control_packets: 1000,
            control_rate: 10_000_000,
            flows: 65_536,
            finish: None,
        }
    }
}

/// A part of the link for those that end soon.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Finish {
    /// Its size, in thousandths.
    pub share: u32,
    /// The rule for flows that end soon.
    pub favour: Favour,
    /// Decay of the service count: to a third in this time.
    pub memory: Duration,
    /// Bytes by which less counts as left for each second that a flow has had some; half of it counts always.
    pub aging: u64,
}

/// The flows that [`Finish`] prefers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Favour {
    /// The flow served least recently, whatever it advertises.
    LeastServed,
    /// The flow with least left by its advertisement, unaudited. Only to show the effect of lies.
    LeastClaimed,
    /// The flow with least left by its advertisement, unless more than `trust` times its largest claim was served; claims of `cap` bytes
    /// or more are not preferred.
    Audited {
        /// Number of times that a claim may be served.
        trust: f64,
        /// Bytes.
        cap: u64,
    },
}

impl Finish {
    /// The audited form: nine tenths, four times, 2 MB, 50 kB less each second.
    pub const AUDITED: Finish = Finish {
        share: 900,
        favour: Favour::Audited { trust: 4.0, cap: 2_000_000 },
        memory: Duration::from_secs(60),
        aging: 50_000,
    };

    /// Least attained service: what can be had without anybody's word.
    pub const LEAST_SERVED: Finish =
        Finish { share: 900, favour: Favour::LeastServed, memory: Duration::from_secs(20), aging: 0 };

    /// Returns the remaining share of service so long ago.
    fn fading(&self, passed: Duration) -> f64 {
        (-passed.as_secs_f64() / self.memory.as_secs_f64()).exp()
    }

    /// The lower, the sooner it is served.
    fn key<T>(&self, now: Time, state: &State<T>) -> u64 {
        let attained = state.attained as u64;
        let Some((left, _)) = state.left else { return attained };
        let credit = self.aging as f64 * now.since(state.busy_since).as_secs_f64();
        let left = left.saturating_sub(credit as u64).max(left / 2);
        match self.favour {
            Favour::LeastServed => attained,
            Favour::LeastClaimed => left,
            Favour::Audited { trust, .. } => {
                let is_credible = state.attained <= trust * state.claim_max + TOLERANCE;
                if is_credible { left } else { left.max(attained) }
            }
        }
    }

    fn cap(&self) -> u64 {
        match self.favour {
            Favour::Audited { cap, .. } => cap,
            Favour::LeastServed | Favour::LeastClaimed => u64::MAX,
        }
    }
}

/// Bytes that the sender has by its word, with this packet's; and whether something waits there.
fn claim_of(said: Said, length: usize) -> (u64, bool) {
    let by_percent = u64::from(said.occupancy) * BUFFER / 100;
    let backlog = said.backlog.map_or(by_percent, u64::from);
    (backlog + length as u64, backlog > 0)
}

/// The queue.
#[derive(Debug)]
pub struct Served<T> {
    config: ServedConfig,
    control: Fifo<T>,
    control_pace: Pace,
    flows: Flows<T>,
    /// The least bytes served of a flow that was fairly served last: where new ones enter.
    level: u64,
    /// Thousandths of a packet that the finish part has to its credit.
    turn: u32,
    backlog: Backlog,
    counters: Counters,
}

impl<T> Served<T> {
    /// An empty queue.
    pub fn new(config: ServedConfig) -> Served<T> {
        Served {
            control: Fifo::new(config.control_packets),
            control_pace: Pace::new(config.control_rate, 16 * 1514),
            flows: Flows::new(config.flows),
            level: 0,
            turn: 0,
            backlog: Backlog::default(),
            counters: Counters::default(),
            config,
        }
    }

    /// A packet's flow, with all that the packet tells of it.
    fn enter(&mut self, now: Time, packet: &Packet<T>) -> Option<Id> {
        self.flows.forget_idle(Time::ZERO + now.since(Time::ZERO).saturating_sub(MEMORY));
        let id = self.flows.find(now, packet.view.flow, self.level)?;
        let finish = self.config.finish;
        let state = self.flows.get_mut(id);
        if let Some(finish) = finish {
            let factor = finish.fading(now.since(state.faded_at));
            state.attained *= factor;
            state.claim_max *= factor;
        }
        state.faded_at = now;
        if let Some(said) = packet.view.said {
            let (claim, is_starved) = claim_of(said, packet.length);
            state.claim_max = state.claim_max.max(claim as f64);
            state.left = Some((claim + state.bytes as u64, now));
            state.is_starved = is_starved;
        } else if state.left.is_some_and(|(_, at)| now.since(at) > CLAIM_LIFETIME) {
            state.left = None;
            state.is_starved = false;
        }
        if state.packets.is_empty() {
            if now.since(state.idle_since) > CLAIM_LIFETIME {
                state.busy_since = now;
            }
            let credit = if state.is_starved { CREDIT } else { LITTLE_CREDIT };
            state.served = state.served.max(self.level.saturating_sub(credit));
        }
        Some(id)
    }

    fn settle(&mut self, now: Time, id: Id) {
        let state = self.flows.get(id);
        let waiting = state.bytes as u64;
        let (key, burden) = match self.config.finish {
            // The flow served most may be about to end: its last packets would come a timeout later.
            Some(finish) => (finish.key(now, state), waiting),
            None => (0, state.served + waiting),
        };
        self.flows.settle(now, id, key, burden);
    }

    /// The flow of which most was served and waits loses its last packet; where some are preferred, that of which most waits.
    fn drop_one(&mut self, now: Time) {
        let Some(id) = self.flows.heaviest() else { return };
        let state = self.flows.get_mut(id);
        if let Some(packet) = state.packets.pop_back() {
            state.bytes -= packet.length;
            self.backlog.remove(packet.length);
            self.counters.on_dropped(&packet);
        }
        self.settle(now, id);
    }

    /// Returns the flow to serve, and whether the fair share decided.
    fn choose(&mut self) -> Option<(Id, bool)> {
        let fair = self.flows.least_served()?;
        let Some(finish) = self.config.finish else { return Some((fair, true)) };
        self.turn += finish.share;
        if self.turn < WHOLE {
            return Some((fair, true));
        }
        match self.flows.least_key() {
            Some((key, id)) if key < finish.cap() => {
                self.turn -= WHOLE;
                Some((id, false))
            }
            _ => {
                self.turn = WHOLE;
                Some((fair, true))
            }
        }
    }

    fn serve(&mut self, now: Time) -> Option<Packet<T>> {
        let (id, is_fair) = self.choose()?;
        let finish = self.config.finish;
        let state = self.flows.get_mut(id);
        if is_fair {
            self.level = self.level.max(state.served);
        }
        let packet = state.packets.pop_front()?;
        state.bytes -= packet.length;
        state.served += packet.length as u64;
        if let Some((left, _)) = &mut state.left {
            *left = left.saturating_sub(packet.length as u64);
        }
        if let Some(finish) = finish {
            let factor = finish.fading(now.since(state.faded_at));
            state.claim_max *= factor;
            state.attained = state.attained * factor + packet.length as f64;
            state.faded_at = now;
        }
        self.backlog.remove(packet.length);
        self.counters.sent += 1;
        self.settle(now, id);
        Some(packet)
    }
}

impl<T> Queue<T> for Served<T> {
    fn enqueue(&mut self, now: Time, packet: Packet<T>) {
        if !packet.view.has_data {
            return self.control.enqueue(now, packet);
        }
        self.counters.offered += 1;
        let Some(id) = self.enter(now, &packet) else { return self.counters.on_dropped(&packet) };
        let state = self.flows.get_mut(id);
        if state.packets.len() >= self.config.per_flow {
            self.counters.on_dropped(&packet);
            return self.settle(now, id);
        }
        state.bytes += packet.length;
        self.backlog.add(packet.length);
        state.packets.push_back(packet);
        self.settle(now, id);
        if self.backlog.packets > self.config.packets {
            self.drop_one(now);
        }
    }

    fn dequeue(&mut self, now: Time) -> Option<Packet<T>> {
        let may_lead = self.control_pace.ready_at(now) <= now || self.backlog.packets == 0;
        if may_lead && let Some(packet) = self.control.dequeue(now) {
            self.control_pace.take(now, packet.length);
            return Some(packet);
        }
        self.serve(now).or_else(|| self.control.dequeue(now))
    }

    fn backlog(&self) -> Backlog {
        self.backlog + self.control.backlog()
    }

    fn counters(&self) -> Counters {
        self.counters + self.control.counters()
    }
}

#[cfg(test)]
mod tests;
