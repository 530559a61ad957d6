//! Queues of key-handshake tasks that wait for the handshake thread.
//!
//! The thread holds up to [`IN_HAND_MAX`] tasks. Further tasks wait here. First handshakes of associations that this host has begun
//! alternate with all other tasks, renewals included. Among the other tasks, peers' hosts take turns, so a host with many tasks delays the
//! first task of another host by only one task.
//!
//! These tasks are refused:
//!
//! - first handshakes of a host that already has [`HOST_TASKS_MAX`] tasks;
//! - messages beyond [`HOST_BYTES_MAX`] of one host;
//! - messages beyond [`BYTES_MAX`] in total, unless the messages of their host stay within an equal share of [`BYTES_MAX`].
//!
//! Invariants: the tasks of an association keep their order, and a host is in `turns` if and only if it has a task. Begin at
//! [`Backlog::push`].

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::mpsc::Sender;

use base::Time;
use keying::Task;
use sctp::AssociationId;

use super::handshakes::Order;
use crate::addresses::host_part;

/// Number of waiting tasks of one host at which this host's first handshakes are refused. The thread performs this number of tasks in 0.1
/// s.
const HOST_TASKS_MAX: usize = 512;
/// Limit on the bytes of one host's waiting messages. The limit allows thousands of associations to renew their keys at once, because a
/// refused message ends its association.
const HOST_BYTES_MAX: usize = 4 << 20;
/// Limit on the bytes of all waiting messages.
const BYTES_MAX: usize = 64 << 20;
/// Limit on the tasks that the thread holds. These tasks keep the thread busy while the event loop runs a turn.
const IN_HAND_MAX: u32 = 8;

/// Error: too many tasks or bytes already wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooMuch;

/// The waiting tasks of one host.
#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Order>,
    /// Total length of the tasks' messages, in bytes.
    bytes: usize,
}

/// The waiting tasks, and the channel to the thread.
pub(super) struct Backlog {
    to_thread: Sender<Order>,
    /// Number of tasks that the thread holds.
    in_hand: u32,
    /// First handshakes of associations that this host has begun.
    own: VecDeque<Order>,
    /// True if the last task came from `own`.
    was_own: bool,
    /// All other tasks, by host.
    of_hosts: BTreeMap<IpAddr, Waiting>,
    /// Hosts that have tasks, in the order of their turns.
    turns: VecDeque<IpAddr>,
    /// Total length of all hosts' messages, in bytes.
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

    /// Adds a task for the first handshake of an association that this host has begun.
    pub(super) fn push_own(&mut self, order: Order) {
        self.own.push_back(order);
        self.feed();
    }

    /// Adds a task for an association with this peer. `is_up` is true if the association already has keys.
    ///
    /// # Errors
    /// Fails if too many tasks or bytes of the peer's host, or too many bytes of all hosts, wait.
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

    /// Makes the thread forget an ended association with this peer. `has_tasks` is true if some of its tasks may wait here.
    pub(super) fn forget(&mut self, now: Time, association: AssociationId, peer: IpAddr, has_tasks: bool) {
        if has_tasks {
            self.drop_tasks(association, peer);
        }
        // This task follows the tasks that the thread already holds. It has no outcome.
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

    /// Notes that the thread has performed a task.
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
        // If the thread has ended, the daemon also stops.
        let _ = self.to_thread.send(order);
    }
}

/// Returns the length of a task's message, in bytes.
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

    /// Returns the ids of `count` new associations.
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
    fn own_tasks_get_every_second_turn_and_hosts_share_the_others() {
        let (to_thread, thread) = channel();
        let (mut backlog, ids) = (Backlog::new(to_thread), ids(24));
        let (many, others) = ids.split_at(20);
        let (other, own) = (others[0], &others[1..]);
        for id in many {
            backlog.push(ip(1), false, renewal(*id)).unwrap();
        }
        backlog.push(ip(2), false, renewal(other)).unwrap();
        own.iter().for_each(|own| backlog.push_own(renewal(*own)));
        // The thread already holds the first tasks of the host 10.0.0.1. One more task of this host precedes the task of 10.0.0.2.
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
        // The eleven performed tasks include one task to forget each of the two ended associations.
        assert_eq!((performed.len(), backlog.bytes, backlog.turns.len()), (11, 0, 0));
    }
}
