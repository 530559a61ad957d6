//! Tests of a hostile peer that sends pieces of one octet. The engine must count the memory that the allocator gives, and keep this memory
//! within the configured limits.

use std::net::{IpAddr, Ipv4Addr};

use allocation_counter::measure;
use base::{Carrier, Ecn, Route, Time};
use bytes::Bytes;
use sctp::{
    AssociationConfig, AssociationId, Endpoint, EndpointConfig, Event, Extension, Extensions, IncomingInit,
    InitDecision, Limits, Listener, ReconfigPolicy,
};
use wire::{
    ChecksumMode, Chunk, CommonHeader, CookieEcho, Data, Fragment, Fsn, IData, Init, Mid, Packet,
    PacketWriter, Parameter, Parameters, Ppid, Ssn, StreamId, Tsn, VerificationTag,
};

/// Number of chunks in each packet.
const PER_PACKET: u32 = 48;
/// Number of chunks sent to an association, several times what its buffer holds.
const CHUNKS: u32 = 60_000;
/// Limits on the bytes of an association besides the received data: in general, and for the turns of 65,535 streams.
const FIXED: usize = 16 << 10;
const TURNS: usize = 400 << 10;
/// Bytes of the endpoint's own tables, which begin with room for several associations.
const TABLES: usize = 4 << 10;

struct AcceptAll;

impl Listener for AcceptAll {
    fn on_init(&mut self, _: &IncomingInit) -> InitDecision {
        InitDecision::Accept { local_addresses: Vec::new() }
    }
}

/// A host under attack, with counts of its allocations.
struct Victim {
    endpoint: Endpoint,
    now: Time,
    out: Vec<u8>,
    packet: Vec<u8>,
    bytes: i64,
    allocations: i64,
    /// Maximum of the allocated bytes at any time.
    peak: i64,
}

/// An association of the attacker.
#[derive(Clone, Copy)]
struct Attacker {
    id: AssociationId,
    route: Route,
    port: u16,
    tag: u32,
    streams: u32,
    tsn: u32,
}

impl Victim {
    fn new(association: AssociationConfig, limits: Limits) -> Victim {
        let config = EndpointConfig { association, limits, ..EndpointConfig::default() };
        Victim {
            endpoint: Endpoint::new(Time::ZERO, config, [7; 32]),
            now: Time::ZERO,
            out: vec![0; 65_536],
            packet: vec![0; 1_480],
            bytes: 0,
            allocations: 0,
            peak: 0,
        }
    }

    /// Handles a packet, and sends the answers. Returns the association that came up, and the length of the last packet sent.
    fn take(
        &mut self,
        attacker: (Route, u16),
        tag: u32,
        chunks: &[Chunk<'_>],
    ) -> (Option<AssociationId>, usize) {
        let (route, port) = attacker;
        let header = CommonHeader { source_port: port, destination_port: 7, tag: VerificationTag(tag) };
        let mut writer = PacketWriter::new(&mut self.packet, header);
        chunks.iter().for_each(|c| writer.push(c).expect("the chunks fit"));
        let length = writer.finish();
        self.now += std::time::Duration::from_micros(100);
        let (mut up, mut sent) = (None, 0);
        let Victim { endpoint, now, out, packet, .. } = self;
        let counted = measure(|| {
            endpoint.handle_datagram(*now, &route, Ecn::NotEct, &packet[..length], &mut AcceptAll);
            while let Some((id, event)) = endpoint.poll_event() {
                match event {
                    Event::Incoming { .. } => endpoint.accept(*now, id),
                    Event::Established { .. } => up = Some(id),
                    _ => {}
                }
            }
            while let Some(transmit) = endpoint.poll_transmit(*now, out) {
                sent = transmit.len;
            }
        });
        self.peak = self.peak.max(self.bytes + i64::try_from(counted.bytes_max).unwrap());
        self.bytes += counted.bytes_current;
        self.allocations += counted.count_current;
        (up, sent)
    }

    /// Opens an association from a host that offers these extensions. Returns `None` if it is refused.
    fn open(&mut self, address: IpAddr, port: u16, extensions: &[u8]) -> Option<Attacker> {
        let route =
            Route { local: [10, 0, 0, 1].into(), remote: address, carrier: Carrier::Udp { peer_port: 9899 } };
        let parameters = [Parameter::SupportedExtensions(extensions), Parameter::ForwardTsnSupported];
        let init = Chunk::Init(Init {
            tag: VerificationTag(77),
            a_rwnd: 100_000,
            outbound_streams: u16::MAX,
            inbound_streams: u16::MAX,
            initial_tsn: Tsn(1),
            parameters: Parameters::from(&parameters[..]),
        });
        let (_, length) = self.take((route, port), 0, &[init]);
        let answer = self.out[..length].to_vec();
        let parsed = Packet::parse(&answer, ChecksumMode::Verify).ok()?;
        let Some(Ok(Chunk::InitAck(ack))) = parsed.chunks().next() else { return None };
        let cookie = ack.parameters.iter().map_while(Result::ok).find_map(|p| match p {
            Parameter::StateCookie(cookie) => Some(cookie),
            _ => None,
        })?;
        let echo = Chunk::CookieEcho(CookieEcho { cookie });
        let (tag, streams) = (ack.tag.0, u32::from(ack.inbound_streams));
        let (id, _) = self.take((route, port), tag, &[echo]);
        Some(Attacker { id: id?, route, port, tag, streams, tsn: 1 })
    }

    fn send(&mut self, attacker: &mut Attacker, chunks: &[Chunk<'_>]) {
        self.take((attacker.route, attacker.port), attacker.tag, chunks);
    }

    /// Returns the minimum of bytes that the allocator gave to associations. The allocator adds 8 to 24 bytes to each allocation.
    fn least(&self) -> usize {
        usize::try_from(self.bytes + 8 * self.allocations).unwrap().saturating_sub(TABLES)
    }

    fn most(&self) -> usize {
        usize::try_from(self.bytes + 24 * self.allocations).unwrap()
    }
}

/// Function that returns the `n`th chunk of an attack on `streams` streams.
type Nth = fn(tsn: Tsn, n: u32, streams: u32) -> Chunk<'static>;

fn data(tsn: Tsn, stream: u32, ssn: u32, flags: &str) -> Chunk<'static> {
    Chunk::Data(Data {
        immediate: false,
        unordered: flags.contains('U'),
        begin: flags.contains('B'),
        end: flags.contains('E'),
        tsn,
        stream: StreamId(stream as u16),
        ssn: Ssn(ssn as u16),
        ppid: Ppid(0),
        payload: b"x",
    })
}

fn i_data(tsn: Tsn, stream: u32, mid: u32, fsn: u32, flags: &str) -> Chunk<'static> {
    Chunk::IData(IData {
        immediate: false,
        unordered: flags.contains('U'),
        end: flags.contains('E'),
        tsn,
        stream: StreamId(stream as u16),
        mid: Mid(mid),
        fragment: if fsn == 0 { Fragment::First(Ppid(0)) } else { Fragment::Later(Fsn(fsn)) },
        payload: b"x",
    })
}

const ATTACKS: [(&str, bool, Nth); 10] = [
    ("first fragments", true, |tsn, n, streams| i_data(tsn, n % streams, n / streams, 0, "")),
    ("unordered first fragments", true, |tsn, n, streams| i_data(tsn, n % streams, n / streams, 0, "U")),
    ("fragments with a gap between them", true, |tsn, n, streams| {
        i_data(tsn, n / 2 % streams, n / 2 / streams, 7 * (n % 2), "")
    }),
    ("one message without its beginning", true, |tsn, n, _| i_data(tsn, 0, 0, 1 + n, "")),
    ("messages before their turn", true, |tsn, n, streams| i_data(tsn, n % streams, 1 + n / streams, 0, "E")),
    ("messages that nobody reads", true, |tsn, n, streams| i_data(tsn, n % streams, n / streams, 0, "E")),
    ("first and middle fragments", false, |tsn, n, streams| {
        data(tsn, n % streams, n / streams, if n % 2 == 0 { "B" } else { "" })
    }),
    ("fragments of unordered messages", false, |tsn, n, _| {
        data(tsn, n, 0, if n % 2 == 0 { "BU" } else { "U" })
    }),
    ("messages before their turn", false, |tsn, n, streams| data(tsn, n % streams, 1 + n / streams, "BE")),
    ("messages that nobody reads", false, |tsn, n, streams| data(tsn, n % streams, n / streams, "BE")),
];

/// Sends the chunks of `nth`, in order or behind a gap. Checks after each packet that the engine counts at least the allocated bytes.
fn attack(
    victim: &mut Victim,
    attacker: &mut Attacker,
    nth: Nth,
    chunks: u32,
    gap: bool,
) -> Result<(), String> {
    if gap {
        attacker.tsn += 1;
    }
    for first in (0..chunks).step_by(PER_PACKET as usize) {
        let tsn = attacker.tsn;
        let chunk = |n| nth(Tsn(tsn + n), first + n, attacker.streams);
        let all: Vec<Chunk<'_>> = (0..PER_PACKET).map(chunk).collect();
        attacker.tsn += PER_PACKET;
        victim.send(attacker, &all);
        let counted = victim.endpoint.counters().memory;
        if counted < victim.least() {
            return Err(format!("{counted} bytes counted of {}", victim.least()));
        }
    }
    victim.endpoint.check_invariants();
    Ok(())
}

fn extensions(interleaved: bool) -> &'static [u8] {
    // These are I-DATA, FORWARD-TSN, I-FORWARD-TSN and RE-CONFIG.
    if interleaved { &[64, 192, 194, 130] } else { &[192, 130] }
}

fn config(buffer: usize, streams: u16) -> AssociationConfig {
    AssociationConfig {
        receive_buffer: buffer,
        inbound_streams: streams,
        extensions: Extensions::NONE
            .with(Extension::PartialReliability)
            .with(Extension::Interleaving)
            .with(Extension::StreamReconfiguration),
        reconfig: ReconfigPolicy { reset_streams: true, ..ReconfigPolicy::default() },
        ..AssociationConfig::default()
    }
}

#[test]
fn pieces_of_an_octet_take_no_more_than_three_times_the_receive_buffer() {
    let mut wrong = Vec::new();
    for (buffer, streams) in [(1 << 20, 2_048), (1 << 20, 65_535), (64 << 10, 2_048), (16 << 20, 1_024)] {
        for (name, interleaved, nth) in ATTACKS {
            for gap in [false, true] {
                let whole = config(buffer, streams);
                // A buffer of full size from the start is the harder case.
                let whole = AssociationConfig { buffer_start: buffer, ..whole };
                let mut victim = Victim::new(whole, Limits::default());
                let before = victim.endpoint.counters().memory;
                assert_eq!(before, 0);
                let mut attacker = victim.open([10, 0, 0, 2].into(), 5000, extensions(interleaved)).unwrap();
                let told = attack(&mut victim, &mut attacker, nth, CHUNKS, gap);
                let (counted, most) = (victim.endpoint.counters().memory, victim.most());
                let allowed = 3 * buffer + FIXED + TURNS;
                let peak = usize::try_from(victim.peak).unwrap();
                let row = format!(
                    "{name}, interleaved {interleaved}, gap {gap}, buffer {buffer}, {streams} streams: {counted} counted, \
                     {} to {most} taken, {peak} at the worst",
                    victim.least()
                );
                println!("{row}");
                if told.is_err() || peak.max(most) > allowed || counted > 3 * most + FIXED {
                    wrong.push(format!("{row} {told:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pieces_that_come_one_by_one_are_counted_as_they_come() {
    for (name, interleaved, nth) in ATTACKS {
        let mut victim = Victim::new(config(1 << 20, 2_048), Limits::default());
        let mut all = Vec::new();
        // Each association holds so little that most of its memory is counted by increments, not by a recount.
        for n in 0..100 {
            all.push(victim.open([10, 0, 0, 2].into(), 5000 + n, extensions(interleaved)).unwrap());
        }
        for n in 0..30 {
            for attacker in &mut all {
                let chunk = nth(Tsn(attacker.tsn), n, attacker.streams);
                attacker.tsn += 1;
                victim.send(attacker, &[chunk]);
            }
            let (counted, least) = (victim.endpoint.counters().memory, victim.least());
            let most = victim.most() + all.len() * 2 * FIXED;
            assert!((least..most).contains(&counted), "{name}, {n}: {counted} bytes counted of {least}");
        }
        victim.endpoint.check_invariants();
    }
}

/// Opens up to 200 associations from one host, and attacks on each. Returns the victim and the number of associations.
fn crowd(limits: Limits, interleaved: bool) -> (Victim, usize) {
    let mut victim = Victim::new(config(16 << 20, 1_024), limits);
    let (_, _, nth) = ATTACKS[if interleaved { 0 } else { 8 }];
    let mut up = 0;
    for n in 0..200 {
        let Some(mut attacker) = victim.open([10, 0, 0, 2].into(), 5000 + n, extensions(interleaved)) else {
            break;
        };
        attack(&mut victim, &mut attacker, nth, 18_000, false).unwrap();
        up += 1;
    }
    (victim, up)
}

#[test]
fn an_association_gets_no_room_for_pieces_of_an_octet_beyond_its_first_window() {
    for interleaved in [false, true] {
        let (victim, up) = crowd(Limits::default(), interleaved);
        assert_eq!(up, 200);
        let each = victim.most() / up;
        assert!(each < 3 * (64 << 10) + FIXED, "{each} bytes each, interleaved: {interleaved}");
    }
}

#[test]
fn one_host_cannot_use_up_the_memory_for_all_hosts() {
    let memory = 32 << 20;
    for interleaved in [false, true] {
        let limits = Limits { memory, memory_of_host: memory / 4, ..Limits::default() };
        let (mut victim, up) = crowd(limits, interleaved);
        let (counted, taken) = (victim.endpoint.counters().memory, victim.most());
        assert!(up < 200, "nobody was refused: {counted} bytes counted, {taken} taken");
        // Each association may exceed its share of the limit a little.
        assert!(
            counted.max(taken) < memory / 4 + up * (16 << 10),
            "{counted} bytes counted, {taken} taken, {up} up"
        );
        assert!(victim.open([10, 0, 0, 2].into(), 9000, &[]).is_none(), "the same host");
        let other = victim.open(Ipv4Addr::new(10, 0, 0, 3).into(), 5000, extensions(false));
        let mut other = other.expect("another host is served");
        for n in 0..1_000 {
            victim.send(&mut other, &[data(Tsn(1 + n), 0, n, "BE")]);
            let message = victim.endpoint.recv(victim.now, other.id).expect("a message");
            assert_eq!(message.into_bytes(), Bytes::from_static(b"x"));
        }
    }
}

#[test]
fn all_addresses_of_an_ipv6_network_share_the_memory_limit_of_one_host() {
    let memory = 32 << 20;
    let limits = Limits { memory, memory_of_host: memory / 4, ..Limits::default() };
    let mut victim = Victim::new(config(16 << 20, 1_024), limits);
    let address = |n: u16| -> IpAddr { [0x2001, 0xdb8, 0, 1, 0, 0, 0, n].into() };
    let open = |victim: &mut Victim, remote: IpAddr| {
        let mut attacker = victim.open(remote, 5000, extensions(true))?;
        attack(victim, &mut attacker, ATTACKS[0].2, 18_000, false).unwrap();
        Some(())
    };
    let up = (0..200).map_while(|n| open(&mut victim, address(n))).count();
    assert!((10..200).contains(&up), "{up} associations");
    assert!(open(&mut victim, [0x2001, 0xdb8, 0, 2, 0, 0, 0, 1].into()).is_some(), "the network beside");
}

#[test]
fn small_waiting_fragments_do_not_keep_the_memory_of_messages_already_read() {
    let mut victim = Victim::new(config(16 << 20, 1_024), Limits::default());
    let mut attacker = victim.open([10, 0, 0, 2].into(), 5000, extensions(true)).unwrap();
    let long = [7; 1_300];
    for n in 0..40_000u32 {
        // The first chunk is one octet of a message that never becomes complete. The second one is long and read at once.
        let tsn = 2 * n + 1;
        victim.send(&mut attacker, &[i_data(Tsn(tsn), 1, 0, n, "")]);
        let Chunk::IData(whole) = i_data(Tsn(tsn + 1), 0, n, 0, "E") else { unreachable!() };
        victim.send(&mut attacker, &[Chunk::IData(IData { payload: &long, ..whole })]);
        let Victim { endpoint, now, .. } = &mut victim;
        let read = measure(|| while endpoint.recv(*now, attacker.id).is_some() {});
        victim.bytes += read.bytes_current;
        victim.allocations += read.count_current;
        let (counted, least) = (victim.endpoint.counters().memory, victim.least());
        assert!(counted >= least, "{n}: {counted} bytes counted of {least}");
    }
    let most = victim.most();
    assert!(most < 2 << 20, "{most} bytes are kept");
}
