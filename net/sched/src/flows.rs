//! State of each flow, and the orderings of the flows.
//!
//! Invariants: a flow with packets is in all three orderings, and any other flow is in the idle set. The number of flows never
//! exceeds the limit: a new flow replaces the flow that was idle for the longest time. Begin at [`Flows::find`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Time;

use crate::packet::{Flow, Packet};

/// Index of a flow in the table.
pub(crate) type Id = usize;

/// State of one flow.
#[derive(Debug)]
pub(crate) struct State<T> {
    name: Flow,
    pub(crate) packets: VecDeque<Packet<T>>,
    pub(crate) bytes: usize,
    /// Bytes served, plus the level at which the flow entered. When the flow returns after a pause, the value becomes at least
    /// the current level less the flow's credit.
    pub(crate) served: u64,
    /// Bytes served recently. The value decays over time.
    pub(crate) attained: f64,
    /// Largest recent claim, in bytes. The value decays over time.
    pub(crate) claim_max: f64,
    /// Time of the last decay.
    pub(crate) faded_at: Time,
    /// Data left to send in bytes, and the time of the advertisement. The value is the sender's advertised backlog plus the
    /// flow's backlog in this queue, less the bytes served since the advertisement.
    pub(crate) left: Option<(u64, Time)>,
    /// True if the flow's last advertisement reported waiting data.
    pub(crate) is_starved: bool,
    pub(crate) idle_since: Time,
    /// Time since which the flow has had data to send. Pauses no longer than the lifetime of an advertisement are ignored.
    pub(crate) busy_since: Time,
    /// Keys in the orderings; `None` while the flow has no packets.
    order: Option<Order>,
}

/// A flow's keys in the three orderings.
#[derive(Clone, Copy, Debug)]
struct Order {
    served: u64,
    burden: u64,
    key: u64,
}

/// All flows.
#[derive(Debug)]
pub(crate) struct Flows<T> {
    limit: usize,
    table: Vec<State<T>>,
    free: Vec<Id>,
    names: BTreeMap<Flow, Id>,
    idle: BTreeSet<(Time, Id)>,
    by_served: BTreeSet<(u64, Id)>,
    by_burden: BTreeSet<(u64, Id)>,
    by_key: BTreeSet<(u64, Id)>,
}

impl<T> Flows<T> {
    pub(crate) fn new(limit: usize) -> Flows<T> {
        Flows {
            limit,
            table: Vec::new(),
            free: Vec::new(),
            names: BTreeMap::new(),
            idle: BTreeSet::new(),
            by_served: BTreeSet::new(),
            by_burden: BTreeSet::new(),
            by_key: BTreeSet::new(),
        }
    }

    /// Returns the flow with this name. A new flow enters at the level `served`. Returns `None` if the table is full and no flow
    /// is idle.
    pub(crate) fn find(&mut self, now: Time, name: Flow, served: u64) -> Option<Id> {
        if let Some(&id) = self.names.get(&name) {
            return Some(id);
        }
        if self.names.len() >= self.limit {
            self.forget_oldest()?;
        }
        let state = State {
            name,
            packets: VecDeque::new(),
            bytes: 0,
            served,
            attained: 0.0,
            claim_max: 0.0,
            faded_at: now,
            left: None,
            is_starved: false,
            idle_since: now,
            busy_since: now,
            order: None,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.table[id] = state;
                id
            }
            None => {
                self.table.push(state);
                self.table.len() - 1
            }
        };
        self.names.insert(name, id);
        self.idle.insert((now, id));
        Some(id)
    }

    fn forget_oldest(&mut self) -> Option<()> {
        let (_, id) = self.idle.pop_first()?;
        self.names.remove(&self.table[id].name);
        self.free.push(id);
        Some(())
    }

    /// Forgets up to two flows that have been idle since before `then`. Two per packet are enough, because a packet adds no more
    /// than one flow.
    pub(crate) fn forget_idle(&mut self, then: Time) {
        for _ in 0..2 {
            if self.idle.first().is_some_and(|(since, _)| *since < then) {
                self.forget_oldest();
            }
        }
    }

    pub(crate) fn get(&self, id: Id) -> &State<T> {
        &self.table[id]
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> &mut State<T> {
        &mut self.table[id]
    }

    /// Updates the position of a flow that has changed. `key` orders the flows for service, and `burden` orders them for drops.
    pub(crate) fn settle(&mut self, now: Time, id: Id, key: u64, burden: u64) {
        let state = &mut self.table[id];
        let order = (!state.packets.is_empty()).then_some(Order { served: state.served, burden, key });
        match std::mem::replace(&mut state.order, order) {
            Some(was) => {
                self.by_served.remove(&(was.served, id));
                self.by_burden.remove(&(was.burden, id));
                self.by_key.remove(&(was.key, id));
            }
            None => {
                self.idle.remove(&(state.idle_since, id));
            }
        }
        match order {
            Some(is) => {
                self.by_served.insert((is.served, id));
                self.by_burden.insert((is.burden, id));
                self.by_key.insert((is.key, id));
            }
            None => {
                state.idle_since = now;
                self.idle.insert((now, id));
            }
        }
    }

    /// Returns the flow with packets that was served least.
    pub(crate) fn least_served(&self) -> Option<Id> {
        self.by_served.first().map(|it| it.1)
    }

    /// Returns the flow with packets that has the greatest burden.
    pub(crate) fn heaviest(&self) -> Option<Id> {
        self.by_burden.last().map(|it| it.1)
    }

    /// Returns the least key of all flows with packets, and its flow.
    pub(crate) fn least_key(&self) -> Option<(u64, Id)> {
        self.by_key.first().copied()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}
