//! Fuzz target: a hostile peer that sends chunks of any content with correct ports, tag and checksum.
//!
//! The peer attacks an established association and its endpoint. The delivered data may be anything, but
//! the engine must not panic, stall, or exceed its limits. TSNs in the input are relative to the initial
//! TSNs, so short inputs reach meaningful states. Begin at [`run`].

use std::net::IpAddr;
use std::time::Duration;

use base::{Carrier, Route, Time};
use bytes::Bytes;
use sctp::{AssociationConfig, AssociationId, Ppid, SendOptions, StreamId};
use wire::{ChecksumMode, Chunk, Packet, VerificationTag};

use crate::input::Input;
use crate::side::{PORTS, Side, address, config};

/// Maximum number of steps in one run.
const STEPS_MAX: usize = 200;

/// Exclusive upper bound on the length of a chunk's value, in bytes. The input gives the length in one
/// byte, so the length is in fact 255 or less.
const VALUE_MAX: usize = 300;

/// Types of chunks whose value begins with a TSN of the peer's data: DATA, I-DATA, FORWARD-TSN,
/// I-FORWARD-TSN.
const COUNTED_BY_PEER: [u8; 4] = [0, 64, 192, 194];
/// Types of chunks whose value begins with a cumulative TSN of the engine's data: SACK and SHUTDOWN.
const COUNTED_BY_US: [u8; 2] = [3, 7];

const TYPES: [u8; 24] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 64, 128, 130, 132, 192, 193, 194, 63];

/// The engine under attack, and the attacker's knowledge.
struct Attack {
    side: Side,
    now: Time,
    id: AssociationId,
    config: AssociationConfig,
    peer: IpAddr,
    /// The port of the peer, and the port of the engine.
    ports: (u16, u16),
    tag: VerificationTag,
    /// Initial TSNs of the peer and of the engine.
    tsns: (u32, u32),
    /// The engine's latest cookie.
    cookie: Vec<u8>,
    /// Number of bytes from addresses other than the peer's address, and number of bytes that the engine
    /// sent to such addresses.
    strangers: (usize, usize),
}

/// Interprets `data` as a script, and plays it.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut attack = Attack::begin(&mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        attack.step(&mut input);
    }
    attack.wait(Duration::from_secs(100));
}

/// Exchanges packets until neither side has more to send.
fn exchange(a: &mut Side, b: &mut Side, now: Time, mut look: impl FnMut(usize, &[u8])) {
    loop {
        let (from_a, from_b) = (std::mem::take(&mut a.sent), std::mem::take(&mut b.sent));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        for (route, packet) in from_a {
            look(0, &packet);
            b.arrive(now, route, &packet);
        }
        for (route, packet) in from_b {
            look(1, &packet);
            a.arrive(now, route, &packet);
        }
    }
}

impl Attack {
    /// Sets up an association with an honest peer. The attacker then takes the peer's place.
    fn begin(input: &mut Input<'_>) -> Attack {
        let config = config(input);
        let opens = input.flag();
        let (mut opener, mut listener) = (Side::new(1, &config), Side::new(2, &config));
        let now = Time::from_millis(1);
        let opened = opener.connect(now, listener.address, &config);
        opener.settle(now);
        let mut inits = [(0, 0); 2];
        exchange(&mut opener, &mut listener, now, |side, packet| {
            let packet = Packet::parse(packet, ChecksumMode::Verify).expect("a packet of ours");
            if let Some(Ok(Chunk::Init(init) | Chunk::InitAck(init))) = packet.chunks().next() {
                inits[side] = (init.tag.0, init.initial_tsn.0);
            }
        });
        let accepted = listener.endpoint.associations().next().expect("an association");
        let (side, id, ours, theirs, peer, ports) = if opens {
            (opener, opened, inits[0], inits[1], listener.address, (PORTS.1, PORTS.0))
        } else {
            (listener, accepted, inits[1], inits[0], opener.address, PORTS)
        };
        assert!(side.endpoint.info(id).is_some(), "set up");
        let (tag, tsns) = (VerificationTag(ours.0), (theirs.1, ours.1));
        let (cookie, strangers) = (Vec::new(), (0, 0));
        Attack { side, now, id, config, peer, ports, tag, tsns, cookie, strangers }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0..8 => {
                let chunks = self.chunks(input);
                self.send(self.peer, self.ports, self.tag, &chunks);
            }
            8 => self.wait(Duration::from_millis(1 << input.below(18))),
            9 => self.transmit(input),
            10 => while self.side.endpoint.recv(self.now, self.id).is_some() {},
            11 => self.send(self.peer, self.ports, VerificationTag(0), &init(input)),
            12 => self.echo_cookie(input),
            13 => {
                // The tag and the port are arbitrary, so usually no association has them.
                let (from, port) = (address(3 + input.below(4)), u16::from(input.byte()));
                let tag = VerificationTag(u32::from(input.word()));
                let chunks = if input.flag() { init(input) } else { self.chunks(input) };
                self.send(from, (port, self.ports.1), tag, &chunks);
            }
            14 => self.side.endpoint.shutdown(self.now, self.id),
            _ => {
                let (from, tag) = (address(1 + input.below(4)), self.tag);
                let chunks = self.chunks(input);
                self.send(from, self.ports, tag, &chunks);
            }
        }
        self.side.settle(self.now);
        self.listen();
    }

    /// Returns one to three chunks.
    fn chunks(&self, input: &mut Input<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..=input.below(3) {
            let choice = input.byte();
            let kind =
                if choice & 0x80 == 0 { TYPES[usize::from(choice) % TYPES.len()] } else { input.byte() };
            let flags = input.byte();
            let length = usize::from(input.byte()) % VALUE_MAX;
            let mut value = input.bytes(length).to_vec();
            self.count(kind, &mut value);
            put_chunk(&mut out, kind, flags, &value, choice & 0x40 == 0);
        }
        out
    }

    /// Adds the initial TSN to the offset at the front of a chunk's value, so the value begins with a TSN
    /// near the initial one.
    fn count(&self, kind: u8, value: &mut [u8]) {
        let base = match kind {
            _ if COUNTED_BY_PEER.contains(&kind) => self.tsns.0,
            _ if COUNTED_BY_US.contains(&kind) => self.tsns.1.wrapping_sub(1),
            _ => return,
        };
        if let Some(place) = value.first_chunk_mut::<4>() {
            // Reduces most offsets to 16 bits. With 32 bits, nearly all TSNs would be far from the initial
            // TSN.
            let offset = u32::from_be_bytes(*place);
            let offset = if place[0] < 0xf0 { offset & 0xffff } else { offset };
            *place = base.wrapping_add(offset).to_be_bytes();
        }
    }

    fn send(&mut self, from: IpAddr, ports: (u16, u16), tag: VerificationTag, chunks: &[u8]) {
        let mut packet = Vec::with_capacity(12 + chunks.len());
        packet.extend_from_slice(&ports.0.to_be_bytes());
        packet.extend_from_slice(&ports.1.to_be_bytes());
        packet.extend_from_slice(&tag.0.to_be_bytes());
        packet.extend_from_slice(&[0; 4]);
        packet.extend_from_slice(chunks);
        let sum = wire::crc32c(&packet);
        packet[8..12].copy_from_slice(&sum.to_le_bytes());
        if from != self.peer {
            self.strangers.0 += packet.len();
        }
        let route = Route { local: from, remote: self.side.address, carrier: Carrier::Ip };
        self.side.arrive(self.now, route, &packet);
    }

    /// Returns the latest cookie to the engine, perhaps with one modified byte.
    fn echo_cookie(&mut self, input: &mut Input<'_>) {
        let mut cookie = self.cookie.clone();
        let place = usize::from(input.word());
        if let Some(byte) = cookie.get_mut(place) {
            *byte ^= input.byte();
        }
        let mut chunks = Vec::new();
        put_chunk(&mut chunks, 10, 0, &cookie, true);
        let tag = if input.flag() { self.tag } else { VerificationTag(0x0101_0101) };
        self.send(self.peer, self.ports, tag, &chunks);
    }

    /// Takes the engine's packets and answers none of them. Keeps the latest cookie, and checks the buffer
    /// limits.
    fn listen(&mut self) {
        for (route, bytes) in std::mem::take(&mut self.side.sent) {
            if route.remote != self.peer {
                self.strangers.1 += bytes.len();
            }
            let packet = Packet::parse(&bytes, ChecksumMode::AcceptZero).expect("a packet of ours");
            let Some(Ok(Chunk::InitAck(ack))) = packet.chunks().next() else { continue };
            for parameter in ack.parameters.iter().map_while(Result::ok) {
                if let wire::Parameter::StateCookie(cookie) = parameter {
                    self.cookie = cookie.to_vec();
                }
            }
        }
        let Some(info) = self.side.endpoint.info(self.id) else { return };
        assert!(info.receive_buffered <= 3 * self.config.receive_buffer + 2000, "{}", info.receive_buffered);
        assert!(info.send_buffered <= self.config.send_buffer, "{}", info.send_buffered);
    }

    fn transmit(&mut self, input: &mut Input<'_>) {
        let length = 1 + usize::from(input.word()) % 5000;
        let message = Bytes::from(vec![input.byte(); length]);
        let stream = StreamId(u16::from(input.below(4)));
        let options = SendOptions { unordered: input.flag(), ..SendOptions::default() };
        _ = self.side.endpoint.send(self.now, self.id, stream, Ppid(1), message, options);
    }

    /// Advances time by `duration`, and handles each timer when it is due.
    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        for _ in 0..1000 {
            let next = self.side.endpoint.next_timeout();
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.side.tick(self.now);
            self.listen();
        }
        self.now = end;
    }
}

/// Appends a chunk with the given value. If `honest` is false, the length field is the value's first byte
/// instead of the chunk's length.
fn put_chunk(out: &mut Vec<u8>, kind: u8, flags: u8, value: &[u8], honest: bool) {
    let length = if honest { 4 + value.len() } else { value.first().map_or(0, |b| usize::from(*b)) };
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Returns an INIT chunk with arbitrary parameters, and perhaps with one changed byte in the fixed fields.
fn init(input: &mut Input<'_>) -> Vec<u8> {
    let mut value = vec![1, 1, 1, 1, 0, 1, 0, 0, 0, 16, 0, 16, 0, 0, 0, 9];
    if input.flag() {
        let place = usize::from(input.below(16));
        value[place] = input.byte();
    }
    let length = usize::from(input.byte());
    value.extend_from_slice(input.bytes(length));
    let mut out = Vec::new();
    put_chunk(&mut out, 1, 0, &value, true);
    out
}
