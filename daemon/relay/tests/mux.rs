//! Tests two ends of a shared association, with a relay for each end of each channel, under random interleavings. The association keeps the
//! order within each stream only. Both ends open channels, and streams are reused many times.
//!
//! The applications check the same properties as on a separate association: bytes arrive in order, and the end arrives exactly once. An
//! error must never appear as an end. No channel may get bytes of another channel.

mod ends;

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;

use bytes::Bytes;
use ends::{address, exchange, open_channel_to, pass};
use proptest::prelude::*;
use relay::mux::{ChannelEvent, ChannelId, Message, Mux, MuxFault, Received, Refusal, Side, WINDOW_START};
use relay::{Action, Closed, PPID_DATA, PPID_END, Peer, Relay, Role, UNWRITTEN_MAX};

/// A step. The numbers choose a side, one of its channels, a stream, or an amount.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open(usize),
    /// Puts the messages of a shared association onto the wire.
    Flush(usize),
    /// Delivers the first message of a stream.
    Deliver(usize, usize),
    Decide(usize, usize),
    AppToRelay(usize, usize, usize),
    RelayToChannel(usize, usize),
    ChannelToRelay(usize, usize),
    RelayToApp(usize, usize, usize),
    AppResets(usize, usize),
    /// Lets time pass: waiting bytes are copied.
    Keep(usize),
    SharedDies,
}

/// One end of a connection.
struct End {
    /// Number of the connection, which is also the first byte of all its data.
    number: usize,
    is_client: bool,
    relay: Relay,
    to_send: Bytes,
    sent: usize,
    eof_read: bool,
    received: Vec<u8>,
    ends_seen: usize,
    reset_seen: bool,
    closed_cleanly: bool,
    app_reset: bool,
    released: bool,
}

/// One host.
struct Host {
    mux: Mux,
    ends: BTreeMap<ChannelId, End>,
    /// Channels that this host opened and the peer has not answered.
    asking: BTreeMap<ChannelId, usize>,
    /// Channels that the peer offered and this host has not decided about.
    offered: BTreeMap<ChannelId, usize>,
    refused: Vec<usize>,
}

struct World {
    hosts: [Host; 2],
    /// `wire[i]` holds the messages to host `i`, by stream.
    wire: [BTreeMap<u16, VecDeque<(u32, Bytes)>>; 2],
    fragment: usize,
    length: usize,
    opened: usize,
    is_dead: bool,
}

impl World {
    fn new(fragment: usize, length: usize) -> World {
        let host = |side| Host {
            mux: Mux::new(side),
            ends: BTreeMap::new(),
            asking: BTreeMap::new(),
            offered: BTreeMap::new(),
            refused: Vec::new(),
        };
        let hosts = [host(Side::Initiator), host(Side::Acceptor)];
        World { hosts, wire: Default::default(), fragment, length, opened: 0, is_dead: false }
    }

    fn end(&self, number: usize, is_client: bool) -> End {
        let seed = number * 2 + usize::from(is_client);
        let body = (0..self.length * (seed % 3)).map(|n| u8::try_from((n * 7 + seed) % 251).unwrap());
        let to_send: Bytes = std::iter::once(u8::try_from(number % 251).unwrap()).chain(body).collect();
        End {
            number,
            is_client,
            relay: Relay::new(Peer::Shim, Role::Acceptor),
            to_send,
            sent: 0,
            eof_read: false,
            received: Vec::new(),
            ends_seen: 0,
            reset_seen: false,
            closed_cleanly: false,
            app_reset: false,
            released: false,
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Open(side) => self.open(side),
            Step::Flush(side) => self.flush(side),
            Step::Deliver(side, n) => self.deliver(side, n),
            Step::Decide(side, n) => self.decide(side, n),
            Step::AppToRelay(side, n, amount) => self.on_end(side, n, |end| end.app_to_relay(amount)),
            Step::RelayToChannel(side, n) => self.relay_to_channel(side, n),
            Step::ChannelToRelay(side, n) => self.channel_to_relay(side, n),
            Step::RelayToApp(side, n, amount) => self.relay_to_app(side, n, amount),
            Step::AppResets(side, n) => self.on_end(side, n, End::app_resets),
            Step::Keep(side) => self.keep(side),
            Step::SharedDies => self.die(),
        }
        for side in 0..2 {
            self.settle_ends(side);
            self.hosts[side].mux.check_invariants();
        }
    }

    fn open(&mut self, side: usize) {
        if self.is_dead {
            return;
        }
        let (own, other) = if side == 0 { (1, 2) } else { (2, 1) };
        let host = &mut self.hosts[side];
        if let Ok(channel) = host.mux.open(address(own, 1000 + self.opened), address(other, 80)) {
            host.asking.insert(channel, self.opened);
            self.opened += 1;
        }
    }

    fn flush(&mut self, side: usize) {
        if self.is_dead {
            return;
        }
        self.hosts[side].mux.widen_windows();
        while let Some((stream, ppid, bytes)) = self.hosts[side].mux.next_out() {
            self.wire[1 - side].entry(stream).or_default().push_back((ppid, bytes));
            self.hosts[side].mux.on_out_sent();
        }
    }

    fn deliver(&mut self, side: usize, n: usize) {
        let waiting: Vec<u16> =
            self.wire[side].iter().filter(|(_, q)| !q.is_empty()).map(|(s, _)| *s).collect();
        let Some(stream) = waiting.get(n % waiting.len().max(1)).copied() else { return };
        let (ppid, bytes) = self.wire[side].get_mut(&stream).unwrap().pop_front().unwrap();
        let middle = bytes.len() / 2;
        let pieces = [bytes.slice(..middle), bytes.slice(middle..)];
        self.hosts[side].mux.on_message(stream, ppid, pieces, true).unwrap();
        while let Some((channel, event)) = self.hosts[side].mux.poll_event() {
            self.on_event(side, channel, event);
        }
    }

    fn on_event(&mut self, side: usize, channel: ChannelId, event: ChannelEvent) {
        match event {
            ChannelEvent::Offered { client, .. } => {
                self.hosts[side].offered.insert(channel, usize::from(client.port()) - 1000);
            }
            ChannelEvent::Accepted => {
                let number = self.hosts[side].asking.remove(&channel).expect("an answer to what was asked");
                let end = self.end(number, true);
                self.hosts[side].ends.insert(channel, end);
            }
            ChannelEvent::Refused(reason) => {
                assert_eq!(reason, Refusal::NotServed);
                let number = self.hosts[side].asking.remove(&channel).expect("an answer to what was asked");
                self.hosts[side].refused.push(number);
                self.hosts[side].mux.release(channel);
            }
            ChannelEvent::Reset => {
                let host = &mut self.hosts[side];
                if let Some(number) = host.asking.remove(&channel).or_else(|| host.offered.remove(&channel)) {
                    host.refused.push(number);
                    host.mux.release(channel);
                } else if let Some(end) = host.ends.get_mut(&channel) {
                    end.relay.on_closed(Closed::Lost);
                }
            }
            ChannelEvent::Readable | ChannelEvent::Writable => {}
        }
    }

    /// Decides about an offered channel. Refuses every fourth connection.
    fn decide(&mut self, side: usize, n: usize) {
        let Some(channel) = pick(&self.hosts[side].offered, n) else { return };
        let number = self.hosts[side].offered.remove(&channel).unwrap();
        if self.is_dead {
            return;
        }
        if number % 4 == 3 {
            self.hosts[side].mux.refuse(channel, Refusal::NotServed);
        } else {
            self.hosts[side].mux.accept(channel);
            let end = self.end(number, false);
            self.hosts[side].ends.insert(channel, end);
        }
    }

    fn on_end(&mut self, side: usize, n: usize, act: impl FnOnce(&mut End)) {
        if let Some(channel) = pick(&self.hosts[side].ends, n) {
            act(self.hosts[side].ends.get_mut(&channel).unwrap());
        }
    }

    fn relay_to_channel(&mut self, side: usize, n: usize) {
        let Some(channel) = pick(&self.hosts[side].ends, n) else { return };
        if self.is_dead {
            return;
        }
        self.flush(side);
        let Host { mux, ends, .. } = &mut self.hosts[side];
        let end = ends.get_mut(&channel).unwrap();
        let mut limit = self.fragment;
        if end.relay.unsent() > 0 {
            limit = limit.min(mux.send_room(channel));
            if limit == 0 {
                return mux.on_stopped(channel);
            }
        }
        let Some(message) = end.relay.next_message(limit) else { return };
        end.relay.on_sent(message.bytes.len());
        match message.ppid {
            PPID_END => mux.on_end_sent(channel),
            _ => mux.on_data_sent(channel, message.bytes.len()),
        }
        // A sent message is on the wire, although its stream may now be free.
        let stream = end.stream(mux, channel);
        self.wire[1 - side].entry(stream).or_default().push_back((message.ppid, message.bytes));
    }

    fn channel_to_relay(&mut self, side: usize, n: usize) {
        let Some(channel) = pick(&self.hosts[side].ends, n) else { return };
        let Host { mux, ends, .. } = &mut self.hosts[side];
        let relay = &mut ends.get_mut(&channel).unwrap().relay;
        if !relay.wants_message(UNWRITTEN_MAX) {
            return;
        }
        match mux.recv(channel) {
            Some(Received::Data(bytes)) => relay.on_message(PPID_DATA, [bytes]),
            Some(Received::End) => relay.on_message(PPID_END, []),
            None => relay.on_no_message(),
        }
    }

    fn relay_to_app(&mut self, side: usize, n: usize, amount: usize) {
        let Some(channel) = pick(&self.hosts[side].ends, n) else { return };
        let Host { mux, ends, .. } = &mut self.hosts[side];
        let taken = ends.get_mut(&channel).unwrap().relay_to_app(amount);
        mux.on_consumed(channel, taken);
    }

    fn keep(&mut self, side: usize) {
        let Host { mux, ends, .. } = &mut self.hosts[side];
        for channel in mux.keep_what_waits() {
            ends.get_mut(&channel).into_iter().for_each(|end| end.relay.keep_unwritten());
        }
    }

    fn die(&mut self) {
        if std::mem::replace(&mut self.is_dead, true) {
            return;
        }
        self.wire = Default::default();
        for host in &mut self.hosts {
            host.ends.values_mut().for_each(|end| end.relay.on_closed(Closed::Lost));
            let open: Vec<(ChannelId, usize)> =
                host.asking.iter().chain(&host.offered).map(|(l, n)| (*l, *n)).collect();
            for (channel, number) in open {
                host.refused.push(number);
                host.mux.release(channel);
            }
            host.asking.clear();
            host.offered.clear();
        }
    }

    /// Performs the actions of relays. Releases channels whose relay has finished.
    fn settle_ends(&mut self, side: usize) {
        let is_dead = self.is_dead;
        let Host { mux, ends, .. } = &mut self.hosts[side];
        for (channel, end) in ends.iter_mut() {
            if end.relay.has_exchanged_ends() {
                end.relay.on_closed(Closed::Gracefully);
            }
            while let Some(action) = end.relay.next_action() {
                match action {
                    Action::EndTcp => end.ends_seen += 1,
                    Action::ShutDownAssociation => panic!("nobody shuts a shared association down"),
                    Action::AbortAssociation => mux.release(*channel),
                    Action::CloseTcp => end.closed_cleanly = true,
                    Action::ResetTcp => end.reset_seen = true,
                }
            }
            if end.relay.is_finished() && !std::mem::replace(&mut end.released, true) {
                mux.release(*channel);
            }
        }
        if is_dead {
            while mux.next_out().is_some() {
                mux.on_out_sent();
            }
        }
    }

    /// Runs all steps that are still possible.
    fn settle(&mut self) {
        for _ in 0..4_000 {
            for side in 0..2 {
                self.run(Step::Flush(side));
                for n in 0..8 {
                    self.run(Step::Deliver(side, n));
                    self.run(Step::Decide(side, n));
                }
                for n in 0..self.hosts[side].ends.len() {
                    self.run(Step::AppToRelay(side, n, 5000));
                    self.run(Step::RelayToChannel(side, n));
                    self.run(Step::ChannelToRelay(side, n));
                    self.run(Step::RelayToApp(side, n, 5000));
                }
            }
            let is_idle = |host: &Host| {
                host.ends.values().all(|end| end.released)
                    && host.asking.is_empty()
                    && host.offered.is_empty()
            };
            let is_quiet = self.wire.iter().flat_map(BTreeMap::values).all(VecDeque::is_empty);
            if is_quiet && self.hosts.iter().all(|host| is_idle(host) && !host.mux.has_out()) {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    fn check(&self) {
        for side in 0..2 {
            let (host, other) = (&self.hosts[side], &self.hosts[1 - side]);
            assert!(self.is_dead || host.mux.channels() == 0, "channels are left");
            for end in host.ends.values() {
                let far =
                    other.ends.values().find(|e| e.number == end.number && e.is_client != end.is_client);
                match far {
                    Some(far) => check_pair(end, far),
                    None => assert!(end.reset_seen && end.received.is_empty()),
                }
            }
        }
    }
}

fn check_pair(end: &End, far: &End) {
    assert!(far.to_send.starts_with(&end.received), "connection {}: bytes of another", end.number);
    assert!(end.ends_seen <= 1);
    if end.ends_seen == 1 {
        assert_eq!(end.received.len(), far.to_send.len(), "connection {}: cut, yet a clean end", end.number);
        assert!(!far.app_reset || far.eof_read, "a reset turned into a clean end");
    }
    assert!(end.reset_seen != end.closed_cleanly);
    assert!(!end.closed_cleanly || end.ends_seen == 1);
}

fn pick<T>(from: &BTreeMap<ChannelId, T>, n: usize) -> Option<ChannelId> {
    from.keys().nth(n % from.len().max(1)).copied()
}

impl End {
    fn stream(&self, mux: &Mux, channel: ChannelId) -> u16 {
        mux.stream(channel).expect("a channel that is not released")
    }

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

    /// Returns the number of bytes that the application took.
    fn relay_to_app(&mut self, n: usize) -> usize {
        if !self.relay.has_unwritten() {
            return 0;
        }
        let mut slices = [IoSlice::new(&[]); 4];
        let filled = self.relay.unwritten(&mut slices);
        let bytes: Vec<u8> = slices[..filled].iter().flat_map(|s| s.iter().copied()).take(n).collect();
        assert_eq!(self.ends_seen, 0, "bytes after the end");
        self.received.extend_from_slice(&bytes);
        if bytes.is_empty() {
            self.relay.on_tcp_full()
        } else {
            self.relay.on_written(bytes.len())
        }
        bytes.len()
    }

    fn app_resets(&mut self) {
        if !self.relay.is_finished() {
            self.app_reset = true;
            self.relay.on_tcp_error();
        }
    }
}

fn steps(faults: bool) -> impl Strategy<Value = Vec<Step>> {
    let (side, n) = (0..2usize, 0..8usize);
    let weight = u32::from(faults);
    let step = prop_oneof![
        6 => side.clone().prop_map(Step::Open),
        15 => prop_oneof![2 => side.clone().prop_map(Step::Flush), 1 => side.clone().prop_map(Step::Keep)],
        40 => (side.clone(), n.clone()).prop_map(|(s, n)| Step::Deliver(s, n)),
        10 => (side.clone(), n.clone()).prop_map(|(s, n)| Step::Decide(s, n)),
        20 => (side.clone(), n.clone(), 1..5000usize).prop_map(|(s, n, a)| Step::AppToRelay(s, n, a)),
        30 => (side.clone(), n.clone()).prop_map(|(s, n)| Step::RelayToChannel(s, n)),
        30 => (side.clone(), n.clone()).prop_map(|(s, n)| Step::ChannelToRelay(s, n)),
        30 => (side.clone(), n.clone(), 0..5000usize).prop_map(|(s, n, a)| Step::RelayToApp(s, n, a)),
        3 * weight => (side, n).prop_map(|(s, n)| Step::AppResets(s, n)),
        u32::from(weight > 0) => Just(Step::SharedDies),
    ];
    proptest::collection::vec(step, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn all_bytes_of_all_channels_arrive_in_order_and_all_ends_are_clean(
        steps in steps(false), fragment in 16..3000usize, length in 0..3000usize,
    ) {
        let mut world = World::new(fragment, length);
        steps.into_iter().for_each(|step| world.run(step));
        world.settle();
        world.check();
        for end in world.hosts.iter().flat_map(|host| host.ends.values()) {
            prop_assert!(end.closed_cleanly && end.eof_read);
        }
    }

    #[test]
    fn resets_and_lost_associations_are_no_clean_end_and_channels_mix_no_bytes(
        steps in steps(true), fragment in 16..3000usize, length in 0..3000usize,
    ) {
        let mut world = World::new(fragment, length);
        steps.into_iter().for_each(|step| world.run(step));
        world.settle();
        world.check();
    }

    #[test]
    fn messages_of_a_hostile_peer_keep_invariants_or_end_the_shared_association(
        messages in proptest::collection::vec(message(), 0..200),
    ) {
        let mut mux = Mux::new(Side::Acceptor);
        let mut offered = Vec::new();
        for (n, (stream, message)) in messages.into_iter().enumerate() {
            let (ppid, bytes) = message.write();
            if mux.on_message(stream, ppid, [bytes], true).is_err() {
                break;
            }
            while let Some((channel, event)) = mux.poll_event() {
                match event {
                    ChannelEvent::Offered { .. } => offered.push(channel),
                    ChannelEvent::Readable => drop(mux.recv(channel)),
                    _ => {}
                }
            }
            match (n % 4, pick_from(&offered, n)) {
                (0, Some(channel)) => mux.accept(channel),
                (1, Some(channel)) => mux.refuse(channel, Refusal::Busy),
                (2, _) => drop(mux.open(address(1, 1), address(2, 2))),
                _ => mux.widen_windows(),
            }
            mux.check_invariants();
        }
    }
}

fn pick_from(all: &[ChannelId], n: usize) -> Option<ChannelId> {
    all.get(n * 7 % all.len().max(1)).copied()
}

fn message() -> impl Strategy<Value = (u16, Message)> {
    use relay::mux::Generation;
    let generation = (0..3u32).prop_map(Generation);
    let kind = prop_oneof![
        any::<u16>().prop_map(|channels| Message::Hello { version: 1, channels }),
        (generation.clone(), any::<u32>()).prop_map(|(generation, window)| Message::Open {
            generation,
            window,
            client: address(1, 1000),
            server: address(2, 80),
        }),
        (generation.clone(), any::<u32>())
            .prop_map(|(generation, window)| Message::Accepted { generation, window }),
        generation.clone().prop_map(|generation| Message::Refused { generation, reason: Refusal::Busy }),
        (0..2000usize).prop_map(|n| Message::Data(vec![1; n].into())),
        Just(Message::End),
        (generation.clone(), any::<u64>())
            .prop_map(|(generation, limit)| Message::Credit { generation, limit }),
        (generation.clone(), any::<u64>())
            .prop_map(|(generation, limit)| Message::Blocked { generation, limit }),
        generation.prop_map(|generation| Message::Reset { generation }),
    ];
    (0..6u16, kind)
}

fn open_channel() -> (Mux, ChannelId, Mux, ChannelId) {
    open_channel_to(Mux::new(Side::Acceptor))
}

/// Sends `bytes` bytes on a channel of `from`, and delivers them to `to`.
fn send(from: &mut Mux, channel: ChannelId, to: &mut Mux, bytes: usize) -> Result<(), MuxFault> {
    from.on_data_sent(channel, bytes);
    to.on_message(from.stream(channel).unwrap(), PPID_DATA, [Bytes::from(vec![0; bytes])], true)
}

#[test]
fn a_reader_that_does_not_read_stops_its_sender_after_one_window() {
    let (mut a, channel, mut b, _) = open_channel();
    assert_eq!(a.send_room(channel), WINDOW_START);
    send(&mut a, channel, &mut b, WINDOW_START).unwrap();
    a.on_stopped(channel);
    exchange(&mut a, &mut b);
    b.widen_windows();
    exchange(&mut a, &mut b);
    assert_eq!(a.send_room(channel), 0);
}

#[test]
fn a_window_that_stops_the_sender_doubles_up_to_the_spare_memory() {
    let (mut a, channel, mut b, theirs) = open_channel();
    b.set_spare(WINDOW_START + 100);
    let mut room = Vec::new();
    for _ in 0..3 {
        let bytes = a.send_room(channel);
        room.push(bytes);
        send(&mut a, channel, &mut b, bytes).unwrap();
        a.on_stopped(channel);
        pass(&mut a, &mut b);
        while b.recv(theirs).is_some() {}
        b.on_consumed(theirs, bytes);
        b.widen_windows();
        exchange(&mut a, &mut b);
    }
    assert_eq!(room, [WINDOW_START, 2 * WINDOW_START, 2 * WINDOW_START + 100]);
}

#[test]
fn a_false_blocked_message_does_not_widen_the_window() {
    let (mut a, channel, mut b, _) = open_channel();
    let before = b.windows();
    for _ in 0..10 {
        let blocked = Message::Blocked { generation: relay::mux::Generation(1), limit: u64::MAX }.write();
        b.on_message(a.stream(channel).unwrap(), blocked.0, [blocked.1], true).unwrap();
        send(&mut a, channel, &mut b, 1000).unwrap();
        b.widen_windows();
        assert_eq!(b.windows(), before);
    }
}

#[test]
fn waiting_data_of_a_slow_channel_releases_its_receive_blocks() {
    let (mut a, channel, mut b, theirs) = open_channel();
    let stream = a.stream(channel).unwrap();
    let blocks: Vec<Bytes> = (0..20).map(|_| Bytes::from(vec![0; 60_000])).collect();
    let mut deliver = |b: &mut Mux, block: &Bytes, length: usize| {
        a.on_data_sent(channel, length);
        b.on_message(stream, PPID_DATA, [block.slice(..length)], true).unwrap();
    };
    let shared = |blocks: &[Bytes]| blocks.iter().filter(|block| !block.is_unique()).count();
    // Bytes that the program reads before the second call of `keep_what_waits` are not copied.
    for block in &blocks[..10] {
        deliver(&mut b, block, 1400);
        assert_eq!((b.keep_what_waits(), shared(&blocks)), (vec![], 1));
        b.recv(theirs).unwrap();
        b.on_consumed(theirs, 1400);
    }
    // The bytes of a program that does not read for a while are copied.
    blocks[10..15].iter().for_each(|block| deliver(&mut b, block, 1400));
    assert_eq!((b.keep_what_waits(), shared(&blocks)), (vec![], 5));
    let read = b.recv(theirs).unwrap();
    deliver(&mut b, &blocks[15], 1400);
    assert_eq!((b.keep_what_waits(), shared(&blocks)), (vec![theirs], 1), "the driver holds one");
    drop(read);
    deliver(&mut b, &blocks[16], 1400);
    assert_eq!((shared(&blocks), b.waiting()), (0, 7 * 1400), "what comes then waits, too");
    // After the program has caught up, its bytes are not copied until memory is short.
    while b.recv(theirs).is_some() {}
    b.on_consumed(theirs, 7 * 1400);
    blocks[17..].iter().for_each(|block| deliver(&mut b, block, 1400));
    assert_eq!(shared(&blocks), 3);
    b.keep(theirs);
    assert_eq!((shared(&blocks), b.waiting()), (0, 3 * 1400));
    b.check_invariants();
}

#[test]
fn a_released_channel_grants_no_window_and_discards_late_data() {
    let (mut a, channel, mut b, theirs) = open_channel();
    let room = a.send_room(channel);
    send(&mut a, channel, &mut b, 1000).unwrap();
    b.release(theirs);
    b.release(theirs);
    assert_eq!((b.windows(), b.waiting()), (0, 0));
    // The peer may still send the bytes that it was granted. This end discards these bytes.
    b.on_consumed(theirs, 1000);
    send(&mut a, channel, &mut b, room - 1000).unwrap();
    assert_eq!((b.windows(), b.waiting()), (0, 0));
    b.check_invariants();
    let mut resets = 0;
    while b.next_out().is_some_and(|(_, ppid, bytes)| {
        resets += usize::from(matches!(Message::parse(ppid, bytes), Ok(Message::Reset { .. })));
        true
    }) {
        b.on_out_sent();
    }
    assert_eq!(resets, 1);
}

#[test]
fn messages_that_the_peer_does_not_take_count_as_memory() {
    let (_, _, mut b, theirs) = open_channel();
    b.release(theirs);
    assert!(b.memory() >= size_of::<Message>());
}

#[test]
fn messages_that_were_taken_leave_no_memory_behind() {
    let (mut a, mut b) = (Mux::new(Side::Initiator), Mux::new(Side::Acceptor));
    exchange(&mut a, &mut b);
    let before = b.memory();
    for n in 0..1000 {
        a.open(address(1, 1000 + n), address(2, 80)).unwrap();
    }
    exchange(&mut a, &mut b);
    while let Some((channel, _)) = b.poll_event() {
        b.refuse(channel, Refusal::Busy);
    }
    assert!(b.memory() >= 1000 * size_of::<Message>());
    exchange(&mut a, &mut b);
    assert!(b.memory() <= before.max(64 * size_of::<(u16, Message)>()), "{}", b.memory());
}

proptest! {
    /// `reads` lists the parts of a window that are read at once, in 16ths. Each entry also decides whether the peer's BLOCKED is handled
    /// after this read.
    #[test]
    fn a_window_that_cannot_grow_is_granted_again_as_it_is_read(
        reads in prop::collection::vec((1..=16usize, any::<bool>()), 8..40),
    ) {
        let (mut a, channel, mut b, theirs) = open_channel();
        b.set_spare(0);
        let mut reads = reads.into_iter().peekable();
        while reads.peek().is_some() {
            let mut unread = a.send_room(channel);
            prop_assert!(unread > 0, "all was read, and nothing may be sent");
            send(&mut a, channel, &mut b, unread).unwrap();
            a.on_stopped(channel);
            exchange(&mut a, &mut b);
            while b.recv(theirs).is_some() {}
            while unread > 0 {
                let (part, looks) = reads.next().unwrap_or((16, false));
                let bytes = unread.min(part * WINDOW_START / 16);
                b.on_consumed(theirs, bytes);
                unread -= bytes;
                if looks {
                    b.widen_windows();
                }
                exchange(&mut a, &mut b);
            }
        }
    }
}

#[test]
fn more_bytes_than_were_granted_are_a_fault() {
    let (mut a, channel, mut b, _) = open_channel();
    let fault = send(&mut a, channel, &mut b, WINDOW_START + 1).unwrap_err();
    assert_eq!(fault, MuxFault::Overrun { stream: 1, granted: WINDOW_START as u64 });
}

#[test]
fn a_late_reset_of_a_reused_stream_is_ignored() {
    let (mut a, channel, mut b, theirs) = open_channel();
    let reset = Message::Reset { generation: relay::mux::Generation(1) }.write();
    let stream = a.stream(channel).unwrap();
    for (mux, channel) in [(&mut a, channel), (&mut b, theirs)] {
        mux.on_end_sent(channel);
    }
    a.on_message(stream, PPID_END, [Bytes::from_static(&[0])], true).unwrap();
    b.on_message(stream, PPID_END, [Bytes::from_static(&[0])], true).unwrap();
    a.release(channel);
    b.release(theirs);
    while a.poll_event().is_some() || b.poll_event().is_some() {}
    let again = a.open(address(1, 1001), address(2, 80)).unwrap();
    assert_eq!(a.stream(again), Some(stream));
    a.on_message(stream, reset.0, [reset.1], true).unwrap();
    assert_eq!(a.poll_event(), None);
    exchange(&mut a, &mut b);
    assert!(matches!(b.poll_event(), Some((_, ChannelEvent::Offered { .. }))));
}

#[test]
fn no_channel_is_opened_before_the_greeting_nor_beyond_what_the_peer_allows() {
    use relay::mux::OpenError;
    let mut mux = Mux::new(Side::Initiator);
    assert_eq!(mux.open(address(1, 1), address(2, 2)), Err(OpenError::NotReady));
    let (ppid, hello) = Message::Hello { version: 1, channels: 1 }.write();
    mux.on_message(0, ppid, [hello], true).unwrap();
    mux.open(address(1, 1), address(2, 2)).unwrap();
    assert_eq!(mux.open(address(1, 1), address(2, 2)), Err(OpenError::TooMany(1)));
}

#[test]
fn another_version_a_second_greeting_and_an_unexpected_stream_are_faults() {
    let mut mux = Mux::new(Side::Initiator);
    let mut say = |stream, message: Message| {
        let (ppid, bytes) = message.write();
        mux.on_message(stream, ppid, [bytes], true)
    };
    assert_eq!(say(0, Message::Hello { version: 2, channels: 1 }), Err(MuxFault::Version(2)));
    say(0, Message::Hello { version: 1, channels: 1 }).unwrap();
    let hello = Message::Hello { version: 1, channels: 1 };
    assert_eq!(say(0, hello), Err(MuxFault::Unexpected { stream: 0, kind: "a greeting" }));
    let open = Message::Open {
        generation: relay::mux::Generation(1),
        window: 1,
        client: address(1, 1),
        server: address(2, 2),
    };
    let kind = "the opening of a connection";
    assert_eq!(say(1, open.clone()), Err(MuxFault::Unexpected { stream: 1, kind }), "a stream of ours");
    assert_eq!(say(2, open.clone()), Ok(()));
    // This is the peer's first stream beyond the agreed number.
    let beyond = relay::mux::SHARED_STREAMS + 1;
    assert_eq!(say(beyond - 2, open.clone()), Ok(()), "the last");
    assert_eq!(say(beyond, open), Err(MuxFault::Unexpected { stream: beyond, kind }), "one stream more");
    assert_eq!(say(4, Message::End), Err(MuxFault::Unexpected { stream: 4, kind: "an end" }));
}
