//! Fuzz target: calls of the engine's API in any order.
//!
//! Two engines communicate over a network that loses packets when the input requests it. A call may fail, but
//! the engine must not panic or stall. A call with an unknown id has no effect. No received message mixes
//! bytes of two messages. A message that is delivered as a whole has the length that was sent. After the
//! release of all associations, no association and no timer remains. Begin at [`run`].

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::time::Duration;

use base::{Route, Time};
use bytes::Bytes;
use sctp::{
    AbortCause, AssociationConfig, AssociationId, Connect, PathError, PathOptions, Ppid, Reliability,
    SendOptions, StreamId, Timing, Unreachable,
};

use crate::input::Input;
use crate::side::{PORTS, SCHEDULERS, Side, address, config, reconfigure};

/// Maximum number of steps in one run.
const STEPS_MAX: usize = 400;

/// Maximum number of attempts to open an association, over both sides.
const ASSOCIATIONS_MAX: usize = 8;

struct Story {
    sides: [Side; 2],
    /// Packets in flight to each side, oldest first.
    under_way: [VecDeque<(Route, Vec<u8>)>; 2],
    /// Ids of all associations of both sides so far. The script picks ids from this list, so a call may get
    /// an id of the other side or of an ended association.
    ids: Vec<AssociationId>,
    now: Time,
    config: AssociationConfig,
    opened: usize,
}

/// Interprets `data` as a script, and plays it.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let config = config(&mut input);
    let mut sides = [Side::new(1, &config), Side::new(2, &config)];
    // Gives each side a second address, so the path schedulers can choose between paths.
    sides.iter_mut().zip([4, 5]).for_each(|(side, last)| side.addresses.push(address(last)));
    let under_way = [VecDeque::new(), VecDeque::new()];
    let now = Time::from_millis(1);
    let mut story = Story { sides, under_way, ids: Vec::new(), now, config, opened: 0 };
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let step = input.byte();
        story.step(step, &mut input);
    }
    story.finish();
}

impl Story {
    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        let side = usize::from(step & 1);
        let now = self.now;
        match step >> 1 & 31 {
            0..4 => self.carry(side, 1 + usize::from(step >> 6)),
            4 => self.wait(Duration::from_millis(1 << input.below(17))),
            5 => self.open(side, input),
            6 => _ = self.under_way[side].pop_front(),
            7 => self.sides[side].accepts ^= true,
            8 => self.on_id(input, |s, id| s.endpoint.accept(now, id), side),
            9 => self.on_id(input, |s, id| s.endpoint.refuse(now, id, AbortCause::user("no")), side),
            10..14 => self.send(side, input),
            14 | 15 => self.receive(side, input),
            16 => self.on_id(input, |s, id| s.endpoint.shutdown(now, id), side),
            17 => self.on_id(input, |s, id| s.endpoint.abort(now, id, AbortCause::default()), side),
            18 => self.on_id(input, |s, id| s.endpoint.release(now, id), side),
            19..22 => self.set(side, input),
            22 => self.change_addresses(side, input),
            23 => self.keys(side, input),
            24 => self.path_error(side, input),
            25 => {
                let choice = input.byte();
                self.on_id(input, |s, id| reconfigure(&mut s.endpoint, now, id, choice), side);
            }
            _ => self.look(side, input),
        }
        self.settle();
    }

    fn id(&self, input: &mut Input<'_>) -> Option<AssociationId> {
        if self.ids.is_empty() { None } else { Some(input.pick(&self.ids)) }
    }

    fn on_id(&mut self, input: &mut Input<'_>, call: impl FnOnce(&mut Side, AssociationId), side: usize) {
        if let Some(id) = self.id(input) {
            call(&mut self.sides[side], id);
        }
    }

    /// Collects the packets and events of both sides.
    fn settle(&mut self) {
        for side in 0..2 {
            self.sides[side].settle(self.now);
            self.collect(side);
        }
    }

    fn collect(&mut self, side: usize) {
        let packets = std::mem::take(&mut self.sides[side].sent);
        self.under_way[1 - side].extend(packets);
        for id in self.sides[side].endpoint.associations() {
            if !self.ids.contains(&id) {
                self.ids.push(id);
            }
        }
    }

    /// Delivers up to `packets` packets to `side`.
    fn carry(&mut self, side: usize, packets: usize) {
        for _ in 0..packets {
            let Some((route, packet)) = self.under_way[side].pop_front() else { break };
            self.sides[side].arrive(self.now, route, &packet);
            self.collect(side);
        }
    }

    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        for _ in 0..1000 {
            let next = self.sides.iter().map(|s| s.endpoint.next_timeout()).min().unwrap_or(Time::NEVER);
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            for side in 0..2 {
                self.sides[side].tick(self.now);
                self.collect(side);
            }
        }
        self.now = end;
    }

    fn open(&mut self, side: usize, input: &mut Input<'_>) {
        if self.opened >= ASSOCIATIONS_MAX {
            return;
        }
        self.opened += 1;
        let (local, remote) = (self.sides[side].address, self.sides[1 - side].address);
        let connect = Connect {
            local_port: input.pick(&[PORTS.0, PORTS.1, 1]),
            remote_port: input.pick(&[PORTS.1, PORTS.0]),
            init_routes: vec![Route { local, remote, carrier: base::Carrier::Ip }],
            local_addresses: self.sides[side].addresses.clone(),
            config: self.config.clone(),
        };
        _ = self.sides[side].endpoint.connect(self.now, connect);
    }

    fn send(&mut self, side: usize, input: &mut Input<'_>) {
        let Some(id) = self.id(input) else { return };
        let length = usize::from(input.word()) * usize::from(input.pick(&[1u8, 1, 2]));
        let reliability = match input.below(8) {
            0 => Reliability::Retransmissions(input.below(3).into()),
            1 => Reliability::Lifetime(Duration::from_millis(input.byte().into())),
            2 => Reliability::Priority(input.byte().into()),
            _ => Reliability::Full,
        };
        let stream = StreamId(u16::from(input.byte() & 0x9f));
        let options = SendOptions { unordered: input.flag(), reliability, ..SendOptions::default() };
        // All bytes of a message have the same value, which depends on the message's length. A receiver can
        // thus detect mixed messages.
        let message = Bytes::from(vec![fill(length); length]);
        _ = self.sides[side].endpoint.send(self.now, id, stream, Ppid(0), message, options);
    }

    fn receive(&mut self, side: usize, input: &mut Input<'_>) {
        let Some(id) = self.id(input) else { return };
        while let Some(message) = self.sides[side].endpoint.recv(self.now, id) {
            let whole = message.begin && message.end && !message.aborted;
            let length = message.len();
            let bytes = message.into_bytes();
            let first = bytes.first().copied();
            assert!(bytes.iter().all(|byte| Some(*byte) == first), "messages were mixed");
            assert!(!whole || first == Some(fill(length)), "a message of {length} bytes was cut or made up");
            if input.flag() {
                break;
            }
        }
    }

    fn set(&mut self, side: usize, input: &mut Input<'_>) {
        let Some(id) = self.id(input) else { return };
        let endpoint = &mut self.sides[side].endpoint;
        let stream = StreamId(u16::from(input.byte() & 0x4f));
        match input.below(5) {
            0 => endpoint.set_scheduler(self.now, id, input.pick(&SCHEDULERS)),
            1 => _ = endpoint.set_stream_priority(self.now, id, stream, input.byte().into()),
            2 => {
                let weight = NonZeroU16::new(input.word()).unwrap_or(NonZeroU16::MIN);
                _ = endpoint.set_stream_weight(self.now, id, stream, weight);
            }
            3 => {
                let options = PathOptions { weight: NonZeroU16::new(input.word()), ..PathOptions::default() };
                let remote = address(1 + input.below(5));
                _ = endpoint.set_path_options(self.now, id, remote, options);
            }
            _ => {
                let rto = Duration::from_millis(1 + u64::from(input.byte()));
                let heartbeat_interval = Duration::from_millis(50 + u64::from(input.word()));
                let timing =
                    Timing { rto_initial: rto, rto_min: rto, heartbeat_interval, ..Timing::default() };
                endpoint.set_timing(self.now, id, timing);
            }
        }
    }

    fn change_addresses(&mut self, side: usize, input: &mut Input<'_>) {
        let Some(id) = self.id(input) else { return };
        let address = address(1 + input.below(5));
        let endpoint = &mut self.sides[side].endpoint;
        _ = match input.below(3) {
            0 => endpoint.add_local_address(self.now, id, address),
            1 => endpoint.remove_local_address(self.now, id, address),
            _ => endpoint.set_peer_primary(self.now, id, address),
        };
    }

    fn keys(&mut self, side: usize, input: &mut Input<'_>) {
        let Some(id) = self.id(input) else { return };
        let (number, now) = (u16::from(input.below(4)), self.now);
        let endpoint = &mut self.sides[side].endpoint;
        _ = match input.below(4) {
            0 => endpoint.set_auth_key(now, id, number, &[1, 2, 3]),
            1 => endpoint.activate_auth_key(now, id, number),
            2 => endpoint.deactivate_auth_key(now, id, number),
            _ => endpoint.delete_auth_key(now, id, number),
        };
    }

    /// Reports an ICMP error or a local error to `side`. The error is about the oldest packet in flight
    /// from `side`.
    fn path_error(&mut self, side: usize, input: &mut Input<'_>) {
        let Some((route, packet)) = self.under_way[1 - side].front() else { return };
        let error = match input.below(6) {
            0 => PathError::Unreachable(Unreachable::Host),
            1 => PathError::Unreachable(Unreachable::Protocol),
            2 => PathError::Unreachable(Unreachable::Port),
            3 => PathError::NoRoute,
            4 => PathError::LocalQueue { bytes: usize::from(input.word()) << 8 },
            _ => PathError::TooBig { mtu: input.word() },
        };
        let quoted = &packet[..packet.len().min(8 + usize::from(input.below(32)))];
        self.sides[side].endpoint.handle_path_error(self.now, route, error, quoted);
    }

    /// Calls the getters, and asserts that they agree on whether the association exists.
    fn look(&mut self, side: usize, input: &mut Input<'_>) {
        let Some(id) = self.id(input) else { return };
        let endpoint = &self.sides[side].endpoint;
        let known = endpoint.associations().any(|other| other == id);
        assert_eq!(endpoint.state(id).is_some(), known, "a state just of those that are there");
        assert!(endpoint.send_capacity(id) <= self.config.send_buffer);
        assert!(known || (endpoint.info(id).is_none() && endpoint.fragment_size(id) == 0));
    }

    /// Releases all associations. Asserts that no association remains and that no timer runs.
    fn finish(&mut self) {
        self.wait(Duration::from_secs(1));
        for side in &mut self.sides {
            let ids: Vec<_> = side.endpoint.associations().collect();
            ids.iter().for_each(|&id| side.endpoint.release(self.now, id));
            side.settle(self.now);
            assert_eq!(side.endpoint.associations().count(), 0, "released");
            assert_eq!(side.endpoint.next_timeout(), Time::NEVER, "a timer of nobody");
        }
    }
}

fn fill(length: usize) -> u8 {
    (length % 251).to_le_bytes()[0]
}
