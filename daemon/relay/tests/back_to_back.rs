//! Tests two relays over an association that consists of two queues, with random interleavings.
//!
//! The applications check that bytes arrive in order, and that the end arrives exactly once. An error must never appear as an end.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;
use proptest::prelude::*;
use relay::{Action, Closed, Peer, Relay, Role, UNWRITTEN_MAX};

/// Limit on the messages in one direction of the association.
const QUEUE_MAX: usize = 5;

/// A step. The numbers give the side and the amount.
#[derive(Clone, Copy, Debug)]
enum Step {
    AppToRelay(usize, usize),
    RelayToQueue(usize),
    QueueToRelay(usize),
    RelayToApp(usize, usize),
    FinishShutdown,
    LearnOfLoss(usize),
    AppResets(usize),
    AssociationDies,
}

/// An application with its TCP socket and relay.
struct Host {
    relay: Relay,
    to_send: Bytes,
    sent: usize,
    eof_read: bool,
    received: Vec<u8>,
    ends_seen: usize,
    reset_seen: bool,
    closed_cleanly: bool,
    app_reset: bool,
}

struct World {
    hosts: [Host; 2],
    /// `queues[i]` leads to host `i`.
    queues: [VecDeque<(u32, Bytes)>; 2],
    fragment: usize,
    shutdown_asked: [bool; 2],
    down: bool,
    lost: [bool; 2],
}

impl World {
    fn new(peer: Peer, data: [Vec<u8>; 2], fragment: usize) -> World {
        let host = |role, data: &Vec<u8>| Host {
            relay: Relay::new(peer, role),
            to_send: Bytes::copy_from_slice(data),
            sent: 0,
            eof_read: false,
            received: Vec::new(),
            ends_seen: 0,
            reset_seen: false,
            closed_cleanly: false,
            app_reset: false,
        };
        World {
            hosts: [host(Role::Initiator, &data[0]), host(Role::Acceptor, &data[1])],
            queues: Default::default(),
            fragment,
            shutdown_asked: [false; 2],
            down: false,
            lost: [false; 2],
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::AppToRelay(side, n) => self.hosts[side].app_to_relay(n),
            Step::RelayToQueue(side) => self.relay_to_queue(side),
            Step::QueueToRelay(side) => self.queue_to_relay(side),
            Step::RelayToApp(side, n) => self.hosts[side].relay_to_app(n),
            Step::FinishShutdown => self.finish_shutdown(),
            Step::LearnOfLoss(side) => self.learn_of_loss(side),
            Step::AppResets(side) => self.app_resets(side),
            Step::AssociationDies => self.lose(),
        }
        for side in 0..2 {
            self.act(side);
        }
    }

    fn relay_to_queue(&mut self, side: usize) {
        if self.down || self.shutdown_asked[side] || self.queues[1 - side].len() >= QUEUE_MAX {
            return;
        }
        if let Some(message) = self.hosts[side].relay.next_message(self.fragment) {
            if self.shutdown_asked[1 - side] {
                return self.hosts[side].relay.on_send_refused();
            }
            self.hosts[side].relay.on_sent(message.bytes.len());
            self.queues[1 - side].push_back((message.ppid, message.bytes));
        }
    }

    fn queue_to_relay(&mut self, side: usize) {
        let relay = &mut self.hosts[side].relay;
        if !relay.wants_message(UNWRITTEN_MAX) {
            return;
        }
        match self.queues[side].pop_front() {
            Some((ppid, bytes)) => {
                let middle = bytes.len() / 2;
                relay.on_message(ppid, [bytes.slice(..middle), bytes.slice(middle..)]);
            }
            None => relay.on_no_message(),
        }
    }

    fn finish_shutdown(&mut self) {
        if !self.down && self.shutdown_asked != [false; 2] {
            self.down = true;
            for side in 0..2 {
                if self.shutdown_asked[1 - side] {
                    self.hosts[side].relay.on_peer_shutdown();
                }
                self.hosts[side].relay.on_closed(Closed::Gracefully);
            }
        }
    }

    fn lose(&mut self) {
        if !self.down {
            self.down = true;
            self.lost = [true; 2];
        }
    }

    fn app_resets(&mut self, side: usize) {
        let host = &mut self.hosts[side];
        if !host.relay.is_finished() {
            // A reset after the association was shut down does not affect the other application.
            host.app_reset |= !self.down;
            host.relay.on_tcp_error();
        }
    }

    fn learn_of_loss(&mut self, side: usize) {
        if std::mem::take(&mut self.lost[side]) {
            self.hosts[side].relay.on_closed(Closed::Lost);
        }
    }

    fn act(&mut self, side: usize) {
        while let Some(action) = self.hosts[side].relay.next_action() {
            let host = &mut self.hosts[side];
            match action {
                Action::EndTcp => host.ends_seen += 1,
                Action::ShutDownAssociation => self.shutdown_asked[side] = true,
                Action::AbortAssociation => self.lose(),
                Action::CloseTcp => host.closed_cleanly = true,
                Action::ResetTcp => host.reset_seen = true,
            }
        }
    }

    /// Runs all steps that are still possible.
    fn settle(&mut self) {
        for _ in 0..20_000 {
            for side in 0..2 {
                self.run(Step::LearnOfLoss(side));
                self.run(Step::AppToRelay(side, 1000));
                self.run(Step::RelayToQueue(side));
                self.run(Step::QueueToRelay(side));
                self.run(Step::RelayToApp(side, 1000));
            }
            self.run(Step::FinishShutdown);
            if self.hosts.iter().all(|host| host.relay.is_finished()) {
                return;
            }
        }
    }

    fn check(&self) {
        for side in 0..2 {
            let (host, other) = (&self.hosts[side], &self.hosts[1 - side]);
            assert!(host.relay.is_finished(), "side {side} hangs: {:?}", host.relay);
            assert!(other.to_send.starts_with(&host.received), "side {side}: bytes out of order");
            assert!(host.ends_seen <= 1, "side {side}: the end came {} times", host.ends_seen);
            if host.ends_seen == 1 {
                assert_eq!(host.received.len(), other.to_send.len(), "side {side}: cut, yet a clean end");
                assert!(!other.app_reset || other.eof_read, "side {side}: a reset turned into a clean end");
            }
            assert!(host.reset_seen || host.closed_cleanly);
            assert!(!(host.reset_seen && host.closed_cleanly));
            assert!(!host.closed_cleanly || host.ends_seen == 1);
        }
    }
}

impl Host {
    fn app_to_relay(&mut self, n: usize) {
        if !self.relay.wants_bytes() || self.app_reset || self.eof_read {
            return;
        }
        let n = n.min(self.to_send.len() - self.sent);
        if n == 0 {
            self.eof_read = true;
            return self.relay.on_eof();
        }
        self.relay.on_bytes(self.to_send.slice(self.sent..self.sent + n));
        self.sent += n;
    }

    fn relay_to_app(&mut self, n: usize) {
        if !self.relay.has_unwritten() {
            return;
        }
        let mut slices = [IoSlice::new(&[]); 4];
        let filled = self.relay.unwritten(&mut slices);
        let bytes: Vec<u8> = slices[..filled].iter().flat_map(|s| s.iter().copied()).take(n).collect();
        assert_eq!(self.ends_seen, 0, "bytes after the end");
        self.received.extend_from_slice(&bytes);
        if bytes.is_empty() { self.relay.on_tcp_full() } else { self.relay.on_written(bytes.len()) }
    }
}

fn steps(faults: bool) -> impl Strategy<Value = Vec<Step>> {
    let side = 0..2usize;
    let fault_weight = u32::from(faults);
    let step = prop_oneof![
        20 => (side.clone(), 1..200usize).prop_map(|(s, n)| Step::AppToRelay(s, n)),
        30 => side.clone().prop_map(Step::RelayToQueue),
        30 => side.clone().prop_map(Step::QueueToRelay),
        30 => (side.clone(), 0..200usize).prop_map(|(s, n)| Step::RelayToApp(s, n)),
        3 => Just(Step::FinishShutdown),
        3 => side.clone().prop_map(Step::LearnOfLoss),
        fault_weight => side.prop_map(Step::AppResets),
        fault_weight => Just(Step::AssociationDies),
    ];
    proptest::collection::vec(step, 0..200)
}

fn data() -> impl Strategy<Value = [Vec<u8>; 2]> {
    let one = || proptest::collection::vec(any::<u8>(), 0..2000);
    (one(), one()).prop_map(|(a, b)| [a, b])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn between_shims_all_bytes_arrive_in_order_and_both_ends_are_clean(
        steps in steps(false), data in data(), fragment in 1..300usize,
    ) {
        let mut world = World::new(Peer::Shim, data, fragment);
        steps.into_iter().for_each(|step| world.run(step));
        world.settle();
        world.check();
        for host in &world.hosts {
            prop_assert!(host.closed_cleanly && host.eof_read);
        }
    }

    #[test]
    fn between_shims_no_reset_and_no_lost_association_looks_like_a_clean_end(
        steps in steps(true), data in data(), fragment in 1..300usize,
    ) {
        let mut world = World::new(Peer::Shim, data, fragment);
        steps.into_iter().for_each(|step| world.run(step));
        world.settle();
        world.check();
    }

    #[test]
    fn with_native_peers_the_first_end_closes_both_ways_and_cuts_nothing_silently(
        steps in steps(true), data in data(), fragment in 1..300usize,
    ) {
        // With native peers, the first end closes both directions. In this test, therefore, one side sends bytes, and the other side only
        // ends its stream.
        let mut world = World::new(Peer::Native, [data[0].clone(), Vec::new()], fragment);
        let faulty = steps.iter().any(|s| matches!(s, Step::AppResets(_) | Step::AssociationDies));
        for step in steps.into_iter().filter(|s| !matches!(s, Step::AppToRelay(1, _))) {
            world.run(step);
        }
        world.hold_back_second_app();
        world.settle();
        world.check();
        prop_assert!(faulty || world.hosts[0].closed_cleanly);
    }
}

impl World {
    /// Makes the first application send all its bytes and end its stream before the second application ends.
    fn hold_back_second_app(&mut self) {
        for _ in 0..5_000 {
            for step in [
                Step::LearnOfLoss(0),
                Step::LearnOfLoss(1),
                Step::AppToRelay(0, 1000),
                Step::RelayToQueue(0),
                Step::QueueToRelay(1),
                Step::RelayToApp(1, 1000),
            ] {
                self.run(step);
            }
        }
    }
}
