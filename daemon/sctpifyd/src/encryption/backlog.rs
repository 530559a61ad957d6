//! The tasks of key handshakes that wait for their thread.
//!
//! The thread has a few tasks at a time, and the rest waits here. First handshakes of associations that this host has begun have every other turn. All
//! others, renewals included, share the rest by host: a host with many of them delays another host's first one by one task.
//!
//! Refused: first handshakes of a host that has [`HOST_TASKS_MAX`] tasks already, and messages beyond [`HOST_BYTES_MAX`] of one host. Beyond
//! [`BYTES_MAX`] in all, only a host with less than its share is served. Invariants: the tasks of an
//! association keep their order, and a host has a turn if and only if it has a task. Begin at [`Backlog::push`].

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::mpsc::Sender;

use base::Time;
use keying::Task;
use sctp::AssociationId;

use super::handshakes::Order;
use crate::addresses::host_part;

/// Limit on the tasks of one host that wait here when it begins one more handshake: the thread performs so many in a tenth of a second.
const HOST_TASKS_MAX: usize = 512;
/// Limit on the bytes of one host's messages that wait here: thousands of associations may renew their keys at once, and must not end.
const HOST_BYTES_MAX: usize = 4 << 20;
/// Limit on the bytes of all messages that wait here.
const BYTES_MAX: usize = 64 << 20;
/// Tasks that the thread has at a time: enough for it to work while the event loop takes its steps.
const IN_HAND_MAX: u32 = 8;

/// A task was refused: too much waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooMuch;

/// The tasks of one host.
#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Order>,
    /// Bytes of their messages.
    bytes: usize,
}

/// The tasks that wait, and the way to the thread.
pub(super) struct Backlog {
    to_thread: Sender<Order>,
    /// Tasks that the thread has.
    in_hand: u32,
    /// First handshakes of associations that this host has begun.
    own: VecDeque<Order>,
    /// True if the last task was one of these.
    was_own: bool,
    /// All others, by host.
    of_hosts: BTreeMap<IpAddr, Waiting>,
    /// The hosts that have tasks, in the order of their turns.
    turns: VecDeque<IpAddr>,
    /// Bytes of the messages of hosts.
    bytes: usize,
}

impl Backlog {
    pub(super) fn new(to_thread: Sender<Order>) -> Backlog {
        Backlog {
            to_thread,
            in_hand: 0,
            own: VecDeque::new(),
            was_own: false,
            of_hosts: BTreeMap::new(),
            turns: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Adds a task of the first handshake of an association that this host has begun.
    pub(super) fn push_own(&mut self, order: Order) {
        self.own.push_back(order);
        self.feed();
    }

    /// Adds a task of an association with this peer; it `is_up` if it has keys already.
    ///
    /// # Errors
    /// When too much of the peer's host, or of all hosts, waits.
    pub(super) fn push(&mut self, peer: IpAddr, is_up: bool, order: Order) -> Result<(), TooMuch> {
        let (host, length) = (host_part(peer), length_of(&order));
        let (count, bytes) = self.of_hosts.get(&host).map_or((0, 0), |w| (w.tasks.len(), w.bytes));
        let is_over_share = bytes + length > BYTES_MAX / (self.of_hosts.len() + 1);
        let is_refused = !is_up && count >= HOST_TASKS_MAX
            || bytes + length > HOST_BYTES_MAX
            || self.bytes + length > BYTES_MAX && is_over_share;
        if is_refused {
            return Err(TooMuch);
        }
        if count == 0 {
            self.turns.push_back(host);
        }
        let waiting = self.of_hosts.entry(host).or_default();
        waiting.tasks.push_back(order);
        waiting.bytes += length;
        self.bytes += length;
        self.feed();
        Ok(())
    }

    /// Lets the thread forget an association with this peer that has ended; `has_tasks` if any may wait here.
    pub(super) fn forget(&mut self, now: Time, association: AssociationId, peer: IpAddr, has_tasks: bool) {
        if has_tasks {
            self.drop_tasks(association, peer);
        }
        // It comes behind the tasks that the thread has, and has no outcome.
        self.send((now, association, Task::Forget));
    }

    fn drop_tasks(&mut self, association: AssociationId, peer: IpAddr) {
        let is_others = |order: &Order| order.1 != association;
        self.own.retain(is_others);
        let host = host_part(peer);
        if let Some(Waiting { tasks, bytes }) = self.of_hosts.get_mut(&host) {
            let dropped: usize = tasks.iter().filter(|order| !is_others(order)).map(length_of).sum();
            *bytes -= dropped;
            self.bytes -= dropped;
            tasks.retain(is_others);
            if tasks.is_empty() {
                self.of_hosts.remove(&host);
                self.turns.retain(|other| *other != host);
            }
        }
    }

    /// Takes note of a task that the thread has performed.
    pub(super) fn on_performed(&mut self) {
        self.in_hand = self.in_hand.saturating_sub(1);
        self.feed();
    }

    fn feed(&mut self) {
        while self.in_hand < IN_HAND_MAX
            && let Some(order) = self.next()
        {
            self.in_hand += 1;
            self.send(order);
        }
    }

    fn next(&mut self) -> Option<Order> {
        let is_for_hosts = self.was_own && !self.turns.is_empty();
        let own = (!is_for_hosts).then(|| self.own.pop_front()).flatten();
        self.was_own = own.is_some();
        own.or_else(|| self.next_of_hosts())
    }

    fn next_of_hosts(&mut self) -> Option<Order> {
        let host = self.turns.pop_front()?;
        let Waiting { tasks, bytes } = self.of_hosts.get_mut(&host)?;
        let order = tasks.pop_front()?;
        *bytes -= length_of(&order);
        self.bytes -= length_of(&order);
        if tasks.is_empty() {
            self.of_hosts.remove(&host);
        } else {
            self.turns.push_back(host);
        }
        Some(order)
    }

    fn send(&self, order: Order) {
        // Without the thread the daemon stops.
        let _ = self.to_thread.send(order);
    }
}

/// Returns the bytes that a task holds.
fn length_of((_, _, task): &Order) -> usize {
    match task {
        Task::Take { message, .. } => message.len(),
        Task::Begin { .. } | Task::Renew | Task::Forget => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use base::{Carrier, Route};
    use keying::METHOD;
    use sctp::{AssociationConfig, Connect, Endpoint, EndpointConfig, KeyRole, ProtectionTerms};

    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn renewal(id: AssociationId) -> Order {
        (Time::ZERO, id, Task::Renew)
    }

    fn message(id: AssociationId, length: usize) -> Order {
        let terms = ProtectionTerms { role: KeyRole::Server, method: METHOD, transcript: [0; 32] };
        let message = vec![0; length].into();
        (Time::ZERO, id, Task::Take { message, sealed: true, terms, psk: None })
    }

    /// Creates associations.
    fn ids(count: u16) -> Vec<AssociationId> {
        let mut engine = Endpoint::new(Time::ZERO, EndpointConfig::default(), [0; 32]);
        let route = Route { local: ip(1), remote: ip(2), carrier: Carrier::Ip };
        let mut connect = |local_port| {
            let connect = Connect {
                local_port,
                remote_port: 80,
                init_routes: vec![route],
                local_addresses: vec![ip(1)],
                config: AssociationConfig::default(),
            };
            engine.connect(Time::ZERO, connect).unwrap()
        };
        (1..=count).map(&mut connect).collect()
    }

    fn performed(backlog: &mut Backlog, thread: &Receiver<Order>) -> Vec<AssociationId> {
        let mut all = Vec::new();
        while let Ok((_, id, _)) = thread.try_recv() {
            all.push(id);
            backlog.on_performed();
        }
        all
    }

    #[test]
    fn hosts_take_turns_and_own_tasks_have_every_other_one() {
        let (to_thread, thread) = channel();
        let (mut backlog, ids) = (Backlog::new(to_thread), ids(24));
        let (many, others) = ids.split_at(20);
        let (other, own) = (others[0], &others[1..]);
        for id in many {
            backlog.push(ip(1), false, renewal(*id)).unwrap();
        }
        backlog.push(ip(2), false, renewal(other)).unwrap();
        own.iter().for_each(|own| backlog.push_own(renewal(*own)));
        // The thread has the first ones already. One more of that host goes before the other host's.
        let (first, rest) = many.split_at(IN_HAND_MAX as usize);
        let expected = [first, &own[..1], &rest[..1], &own[1..2], &[other], &own[2..], &rest[1..]].concat();
        assert_eq!(performed(&mut backlog, &thread), expected);
        assert!(backlog.of_hosts.is_empty() && backlog.turns.is_empty());
    }

    #[test]
    fn a_host_with_too_much_is_refused_and_another_is_not() {
        let (to_thread, _thread) = channel();
        let (mut backlog, ids) = (Backlog::new(to_thread), ids(3));
        for _ in 0..HOST_TASKS_MAX + IN_HAND_MAX as usize {
            backlog.push(ip(1), false, message(ids[0], 1)).unwrap();
        }
        assert_eq!(backlog.push(ip(1), false, message(ids[0], 1)), Err(TooMuch));
        backlog.push(ip(1), true, message(ids[0], HOST_BYTES_MAX - HOST_TASKS_MAX)).unwrap();
        assert_eq!(backlog.push(ip(1), true, message(ids[0], 1)), Err(TooMuch));
        for host in 2..=u8::try_from(BYTES_MAX / HOST_BYTES_MAX).unwrap() {
            backlog.push(ip(host), false, message(ids[1], HOST_BYTES_MAX)).unwrap();
        }
        backlog.push(ip(100), true, message(ids[2], HOST_BYTES_MAX / 2)).unwrap();
        assert_eq!(backlog.push(ip(100), true, message(ids[2], HOST_BYTES_MAX / 2)), Err(TooMuch));
    }

    #[test]
    fn waiting_messages_of_an_ended_association_are_dropped() {
        let (to_thread, thread) = channel();
        let (mut backlog, ids) = (Backlog::new(to_thread), ids(11));
        for id in &ids[..10] {
            backlog.push(ip(1), false, message(*id, 100)).unwrap();
        }
        backlog.push_own(renewal(ids[10]));
        backlog.forget(Time::ZERO, ids[9], ip(1), true);
        backlog.forget(Time::ZERO, ids[10], ip(2), true);
        assert_eq!((backlog.bytes, backlog.own.len()), (100, 0));
        let performed = performed(&mut backlog, &thread);
        // Those that the thread is to forget are among them, once each.
        assert_eq!((performed.len(), backlog.bytes, backlog.turns.len()), (11, 0, 0));
    }
}
