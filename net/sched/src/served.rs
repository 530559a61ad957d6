//! Queue that serves the least served flow first. It can prefer flows with little left to send.
//!
//! Each flow has its own queue, found by its exact key. The fair part of the link serves the flow with the least past service.
//! When the queue is full, the flow with the most bytes served and waiting loses a packet. A flow that returns after a pause gets
//! only a bounded credit. Packets without DATA have a separate queue, which is served first up to a rate. An association can
//! therefore be set up over a full link.
//!
//! [`Finish`] gives most of the link to the flow with the least data left. The data left is the advertised backlog of the flow's
//! sender plus the flow's backlog in this queue.
//! - Served bytes are subtracted from the data left. An advertisement in every eighth packet is therefore as good as one in every
//!   packet.
//! - The longer a flow has had data left, the less this data counts, down to half of its bytes. Otherwise the flow with the most
//!   data would wait behind newcomers for ever.
//! - When the queue is full, the flow with the most waiting bytes loses its last packet.
//! - Advertisements are audited. If a flow was served much more than its largest recent claim, the flow is ordered by its past
//!   service. A flow with 2 MB of data left or more is not preferred. The rest of the link stays fair. A false advertisement
//!   therefore gains nothing compared with no advertisement.
//!
//! Weights do not exist: no claim enlarges a flow's fair part. Each packet costs O(log flows). Begin at [`Served::new`].

use std::time::Duration;

use base::Time;

use crate::fifo::Fifo;
use crate::flows::{Flows, Id, State};
use crate::pace::Pace;
use crate::packet::{Packet, Said};
use crate::queue::{Backlog, Counters, Queue};

/// Assumed size of a send buffer in bytes, for advertisements in percent. A router does not know the real size.
const BUFFER: u64 = 256 << 10;
/// Credit of a returning flow whose sender advertised waiting data, in bytes.
const CREDIT: u64 = 65_536;
/// Credit of any other returning flow, in bytes: one packet.
const LITTLE_CREDIT: u64 = 1514;
/// Lifetime of an advertisement.
const CLAIM_LIFETIME: Duration = Duration::from_secs(1);
/// Bytes of service that the audit tolerates beyond `trust` times a flow's largest claim. The tolerance leaves room for some
/// retransmissions.
const TOLERANCE: f64 = 6000.0;
/// Time after which an idle flow is forgotten.
const MEMORY: Duration = Duration::from_secs(60);
/// The whole of a share, in thousandths.
const WHOLE: u32 = 1000;

/// Limits on packets and flows, and the preference for some flows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServedConfig {
    /// Limit on the packets with DATA of all flows together.
    pub packets: usize,
    /// Limit on the packets with DATA of one flow.
    pub per_flow: usize,
    /// Limit on the packets without DATA.
    pub control_packets: usize,
    /// Rate in bits per second up to which packets without DATA precede all others; 0 is unlimited.
    pub control_rate: u64,
    /// Limit on remembered flows. At the limit, packets of new flows are dropped until a flow is idle.
    pub flows: usize,
    /// Preference for flows that end soon; `None` means that only past service decides.
    pub finish: Option<Finish>,
}

impl ServedConfig {
    /// Returns settings with a preference. The limit per flow has room for a waiting file of 400 kB.
    pub fn finishing(finish: Finish) -> ServedConfig {
        ServedConfig { packets: 2000, per_flow: 300, finish: Some(finish), ..ServedConfig::default() }
    }
}

impl Default for ServedConfig {
    /// Returns limits of 1,000 packets in all and of 64 packets per flow, without a preference.
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

/// Part of the link that prefers flows that end soon.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Finish {
    /// Size of the part, in thousandths of the packets.
    pub share: u32,
    /// The rule for flows that end soon.
    pub favour: Favour,
    /// Time in which past service decays to 1/e (37 %) of its value.
    pub memory: Duration,
    /// Bytes subtracted from a flow's data left for each second since it became busy. At least half of the data left always
    /// counts.
    pub aging: u64,
}

/// Rule by which [`Finish`] selects a flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Favour {
    /// The flow with the fewest bytes served lately, whatever it advertises.
    LeastServed,
    /// The flow with the least data left by its advertisement, without an audit. This rule only shows the effect of false
    /// advertisements.
    LeastClaimed,
    /// The flow with the least data left by its advertisement, with an audit. The audit applies if a flow was served more than
    /// `trust` times its largest recent claim, plus 6,000 bytes. The flow is then ordered by its past service or by its data
    /// left, whichever is greater. Flows with `cap` bytes left or more are not preferred.
    Audited {
        /// Factor by which served bytes may exceed the largest claim.
        trust: f64,
        /// Data left, in bytes, from which on a flow is not preferred.
        cap: u64,
    },
}

impl Finish {
    /// The audited rule: nine tenths of the packets, a factor of 4, a cap of 2 MB, and an aging of 50 kB per second.
    pub const AUDITED: Finish = Finish {
        share: 900,
        favour: Favour::Audited { trust: 4.0, cap: 2_000_000 },
        memory: Duration::from_secs(60),
        aging: 50_000,
    };

    /// The rule of least attained service, which needs no advertisements.
    pub const LEAST_SERVED: Finish =
        Finish { share: 900, favour: Favour::LeastServed, memory: Duration::from_secs(20), aging: 0 };

    /// Returns the share of past service that still counts after the time `passed`.
    fn fading(&self, passed: Duration) -> f64 {
        (-passed.as_secs_f64() / self.memory.as_secs_f64()).exp()
    }

    /// Returns the key of a flow. The flow with the lowest key is served first.
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

/// Returns the bytes that the sender claims, including this packet, and whether data waits at the sender.
fn claim_of(said: Said, length: usize) -> (u64, bool) {
    let by_percent = u64::from(said.occupancy) * BUFFER / 100;
    let backlog = said.backlog.map_or(by_percent, u64::from);
    (backlog + length as u64, backlog > 0)
}

/// Queue that serves the least served flow first.
#[derive(Debug)]
pub struct Served<T> {
    config: ServedConfig,
    control: Fifo<T>,
    control_pace: Pace,
    flows: Flows<T>,
    /// Greatest count of served bytes that a flow had when the fair part chose it. New flows enter at this level.
    level: u64,
    /// Credit of the finish part, in thousandths of a packet.
    turn: u32,
    backlog: Backlog,
    counters: Counters,
}

impl<T> Served<T> {
    /// Creates an empty queue.
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

    /// Returns the flow of a packet, and updates the flow from the packet. Returns `None` if the table is full.
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
            // Past service does not count in the choice of the flow that loses a packet, because the flow served most may be
            // about to end. If its last packets were dropped, they would arrive one timeout later.
            Some(finish) => (finish.key(now, state), waiting),
            None => (0, state.served + waiting),
        };
        self.flows.settle(now, id, key, burden);
    }

    /// Drops the last packet of the flow with the most bytes served and waiting. If the settings have a preference, only waiting
    /// bytes count.
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

    /// Returns the flow to serve, and whether the fair part selected it.
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
