//! Table of SCTP flows. It contains each flow's traffic, its sender's advertisement, and the limit on its rate.
//!
//! The sender's advertisements and the receiver's SACKs determine the limit:
//! - application: at least half of the advertisements since the previous row report that no data waits. Without an advertisement
//!   since then, the last one counts.
//! - receiver: data waits, and the receiver's window was closed for more than half of the time since the previous row. A window
//!   is closed if it has no room for a chunk beyond the data in flight. The data in flight is estimated from the TSNs that pass
//!   here.
//! - network: data waits, and the receiver is not the limit.
//! - network or receiver: data waits, but the SACKs are encrypted and cannot be read.
//! - unknown: the sender has not advertised in the last ten seconds.
//!
//! Begin at [`FlowTable::note`] and [`FlowTable::tick`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use base::Time;
use ops::LimitedBy;
use sched::{Flow, Said, View};
use serde::Serialize;
use wire::{ChecksumMode, ChunkType, Packet};

/// Limit on remembered flows. While the table is full, new flows are ignored.
const FLOWS_MAX: usize = 65_536;
/// Time after which an idle flow is forgotten.
const MEMORY: Duration = Duration::from_secs(30);
/// Lifetime of an advertisement. The lifetime exceeds five seconds, the default interval at which senders repeat some forms of
/// advertisement.
const WORD_LIFETIME: Duration = Duration::from_secs(10);
/// Limit on the chunks that are read from a packet.
const CHUNKS_READ: usize = 64;
/// Chunk type of SACK.
const SACK: ChunkType = ChunkType(3);
/// Bytes of a DATA chunk between the chunk header and the user data.
const DATA_LEN: usize = 12;
/// Bytes of an I-DATA chunk between the chunk header and the user data.
const I_DATA_LEN: usize = 16;

/// A flow (one direction of an association) and its traffic since the previous row.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowRow {
    /// Sender.
    pub from: IpAddr,
    /// Sender's SCTP port.
    pub from_port: u16,
    /// Receiver.
    pub to: IpAddr,
    /// Receiver's SCTP port.
    pub to_port: u16,
    /// Rate in bits per second, counted from the IP headers on.
    pub bit_s: f64,
    /// Packets since the previous row.
    pub packets: u64,
    /// Advertised occupancy of the sender's buffer, in percent.
    pub occupancy: Option<u8>,
    /// Advertised bytes that wait in the sender's buffer, if the advertisement has this field.
    pub backlog: Option<u32>,
    /// Limit on the flow's rate.
    pub verdict: LimitedBy,
}

/// Observations of a flow.
#[derive(Debug, Default)]
struct Track {
    seen_at: Time,
    /// Bytes since the last report, counted from the IP headers on.
    bytes: u64,
    /// Packets since the last report.
    packets: u64,
    /// Advertisements since the last report.
    words: u64,
    /// Advertisements since the last report that reported waiting data.
    waiting: u64,
    room: Option<Room>,
    said: Option<(Said, Time)>,
    /// Highest TSN sent, and the user bytes of its chunk.
    highest: Option<(u32, u32)>,
    /// True if the flow's packets are encrypted.
    is_sealed: bool,
}

/// State of the receiver's window. The times count from the last report, or from the first SACK if the SACK came later.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Time of the last report, or of the first SACK.
    since: Time,
    /// True if the last SACK left no room for another chunk. The value stays true until the next SACK, because a receiver with a
    /// full buffer may send none.
    is_closed: bool,
    /// Time with a closed window, up to `counted_until`.
    closed_for: Duration,
    counted_until: Time,
}

/// All flows.
#[derive(Debug, Default)]
pub(super) struct FlowTable {
    flows: BTreeMap<Flow, Track>,
    ticked_at: Option<Time>,
}

impl FlowTable {
    /// Records an SCTP packet. `packet` begins at the common header. `length` counts bytes from the IP header on.
    pub(super) fn note(
        &mut self,
        now: Time,
        from: IpAddr,
        to: IpAddr,
        packet: &[u8],
        length: usize,
        chunk_type: u8,
    ) {
        self.ticked_at.get_or_insert(now);
        let Some(View { flow, said, .. }) = View::of_sctp(from, to, packet, ChunkType(chunk_type)) else {
            return;
        };
        if let Some(track) = self.track(flow) {
            track.seen_at = now;
            track.bytes += length as u64;
            track.packets += 1;
            if let Some(said) = said {
                track.said = Some((said, now));
                track.words += 1;
                track.waiting += u64::from(said.backlog.map_or(said.occupancy > 0, |bytes| bytes > 0));
            }
        }
        self.read_chunks(now, flow, packet);
    }

    fn track(&mut self, flow: Flow) -> Option<&mut Track> {
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&flow) {
            return None;
        }
        Some(self.flows.entry(flow).or_default())
    }

    /// Reads the chunks. A DATA chunk gives the highest TSN of this flow. A SACK gives the receiver's window for the opposite
    /// flow.
    fn read_chunks(&mut self, now: Time, flow: Flow, packet: &[u8]) {
        let Ok(packet) = Packet::parse(packet, ChecksumMode::Ignore) else { return };
        let back = Flow { from: flow.to, to: flow.from, from_port: flow.to_port, to_port: flow.from_port };
        for chunk in packet.raw_chunks().take(CHUNKS_READ).map_while(Result::ok) {
            let word =
                |at: usize| chunk.value.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
            let header = match chunk.chunk_type {
                ChunkType::DATA => DATA_LEN,
                ChunkType::I_DATA => I_DATA_LEN,
                SACK => {
                    if let (Some(acked), Some(window), Some(track)) =
                        (word(0), word(4), self.flows.get_mut(&back))
                    {
                        track.on_sack(now, acked, window);
                    }
                    continue;
                }
                ChunkType::DTLS => {
                    if let Some(track) = self.flows.get_mut(&flow) {
                        track.is_sealed = true;
                    }
                    continue;
                }
                _ => continue,
            };
            if let (Some(tsn), Some(track)) = (word(0), self.flows.get_mut(&flow)) {
                track.on_data(tsn, chunk.value.len().saturating_sub(header));
            }
        }
    }

    /// Returns a row for each flow, the fastest first. A row covers the time since the last call. Forgets flows that were idle
    /// for [`MEMORY`].
    pub(super) fn tick(&mut self, now: Time) -> Vec<FlowRow> {
        self.flows.retain(|_, track| now.since(track.seen_at) < MEMORY);
        let passed = self.ticked_at.replace(now).map_or(Duration::ZERO, |at| now.since(at)).as_secs_f64();
        let row = |(flow, track): (&Flow, &mut Track)| track.row(*flow, now, passed.max(1e-3));
        let mut rows: Vec<FlowRow> = self.flows.iter_mut().map(row).collect();
        rows.sort_by(|a, b| b.bit_s.total_cmp(&a.bit_s));
        rows
    }
}

impl Track {
    fn on_data(&mut self, tsn: u32, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        // Serial numbers (RFC 1982): a TSN is newer if it is ahead by less than half the number space.
        if self.highest.is_none_or(|(highest, _)| tsn.wrapping_sub(highest) < 1 << 31) {
            self.highest = Some((tsn, bytes));
        }
    }

    /// Updates the state of the window from a SACK. The window is closed if it has no room for another chunk. All chunks are
    /// assumed to have the same length.
    fn on_sack(&mut self, now: Time, acked: u32, window: u32) {
        let Some((highest, bytes)) = self.highest else { return };
        let ahead = highest.wrapping_sub(acked);
        let in_flight = if ahead < 1 << 31 { u64::from(ahead) * u64::from(bytes) } else { 0 };
        let is_closed = in_flight + u64::from(bytes) > u64::from(window);
        let room = self.room.get_or_insert(Room::new(now, is_closed));
        *room = Room { is_closed, ..room.until(now) };
    }

    fn verdict(&self, now: Time) -> LimitedBy {
        let Some((said, at)) = self.said.filter(|(_, at)| now.since(*at) < WORD_LIFETIME) else {
            return LimitedBy::Unknown;
        };
        let waits = if self.words == 0 {
            said.backlog.map_or(said.occupancy > 0, |bytes| bytes > 0) && now.since(at) < WORD_LIFETIME
        } else {
            self.waiting * 2 > self.words
        };
        match (waits, self.room.is_some_and(|room| room.is_mostly_closed(now))) {
            (false, _) => LimitedBy::Application,
            (true, true) => LimitedBy::Receiver,
            (true, false) if self.is_sealed => LimitedBy::NetworkOrReceiver,
            (true, false) => LimitedBy::Network,
        }
    }

    fn row(&mut self, flow: Flow, now: Time, passed_s: f64) -> FlowRow {
        let said = self.said.filter(|(_, at)| now.since(*at) < WORD_LIFETIME).map(|(said, _)| said);
        let row = FlowRow {
            from: flow.from,
            from_port: flow.from_port,
            to: flow.to,
            to_port: flow.to_port,
            bit_s: 8.0 * self.bytes as f64 / passed_s,
            packets: self.packets,
            occupancy: said.map(|said| said.occupancy),
            backlog: said.and_then(|said| said.backlog),
            verdict: self.verdict(now),
        };
        (self.bytes, self.packets, self.words, self.waiting) = (0, 0, 0, 0);
        self.room = self.room.map(|room| Room::new(now, room.is_closed));
        row
    }
}

impl Room {
    fn new(now: Time, is_closed: bool) -> Room {
        Room { since: now, is_closed, counted_until: now, closed_for: Duration::ZERO }
    }

    /// Returns the state with `closed_for` counted up to `now`.
    fn until(self, now: Time) -> Room {
        let last = if self.is_closed { now.since(self.counted_until) } else { Duration::ZERO };
        Room { counted_until: now, closed_for: self.closed_for + last, ..self }
    }

    /// Reports whether the window was closed for more than half of the time since the last report. A count of SACKs would
    /// mislead. If a program reads rarely, but much at once, the window is open only briefly, and most SACKs leave during these
    /// brief times.
    fn is_mostly_closed(self, now: Time) -> bool {
        let closed_for = self.until(now).closed_for;
        closed_for > Duration::ZERO && closed_for * 2 > now.since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const MS: fn(u64) -> Time = Time::from_millis;

    fn packet(ports: [u16; 2], chunks: &[&[u8]]) -> Vec<u8> {
        let [from, to] = ports.map(u16::to_be_bytes);
        [&from[..], &to, &[0; 8], &chunks.concat()].concat()
    }

    fn data(tsn: u32) -> Vec<u8> {
        let mut chunk = vec![0, 3, 0, 116];
        chunk.extend(tsn.to_be_bytes());
        chunk.resize(116, 0);
        chunk
    }

    fn sack(tsn: u32, window: u32) -> Vec<u8> {
        [&[3, 0, 0, 16][..], &tsn.to_be_bytes(), &window.to_be_bytes(), &[0; 4]].concat()
    }

    /// Returns the row of a flow that sends ten 100-byte chunks in one second. Each packet carries the advertisement `word`. Half
    /// of the chunks are acknowledged, with the window `window`.
    fn verdict(word: &[u8], window: u32) -> FlowRow {
        let mut flows = FlowTable::default();
        for n in 0..10u32 {
            flows.note(
                MS(u64::from(n) * 100),
                A,
                B,
                &packet([1, 2], &[word, &data((u32::MAX - 4).wrapping_add(n))]),
                150,
                150,
            );
            if n >= 5 {
                let acked = u32::MAX.wrapping_sub(4).wrapping_add(n - 5);
                flows.note(
                    MS(u64::from(n) * 100 + 1),
                    B,
                    A,
                    &packet([2, 1], &[&sack(acked, window)]),
                    48,
                    150,
                );
            }
        }
        let rows = flows.tick(MS(1000));
        assert_eq!((rows.len(), rows[1].verdict), (2, LimitedBy::Unknown));
        rows[0].clone()
    }

    #[test]
    fn a_flow_with_nothing_waiting_is_limited_by_its_application() {
        assert_eq!(verdict(&[150, 0, 0, 4], 9000).verdict, LimitedBy::Application);
        assert_eq!(verdict(&[150, 0, 0, 8, 0, 0, 0, 0], 100).verdict, LimitedBy::Application);
    }

    #[test]
    fn a_flow_with_backlog_is_limited_by_its_full_receiver_or_by_the_network() {
        let row = verdict(&[150, 60, 0, 8, 0, 0, 1, 0], 9000);
        assert_eq!((row.verdict, row.occupancy, row.backlog), (LimitedBy::Network, Some(60), Some(256)));
        assert!((row.bit_s - 12_000.0).abs() < 1.0 && row.packets == 10, "{row:?}");
        // Five chunks of 100 bytes are in flight.
        assert_eq!(verdict(&[150, 60, 0, 4], 500).verdict, LimitedBy::Receiver);
        assert_eq!(verdict(&[150, 60, 0, 4], 600).verdict, LimitedBy::Network);
    }

    #[test]
    fn an_encrypted_flow_with_backlog_is_limited_by_network_or_receiver() {
        let (mut flows, sealed) = (FlowTable::default(), [&[65, 0, 0, 8][..], &[7; 4]].concat());
        flows.note(MS(0), A, B, &packet([1, 2], &[&[150, 60, 0, 4], &sealed]), 48, 150);
        assert_eq!(flows.tick(MS(1000))[0].verdict, LimitedBy::NetworkOrReceiver);
        flows.note(MS(1100), A, B, &packet([1, 2], &[&[150, 0, 0, 4], &sealed]), 48, 150);
        assert_eq!(flows.tick(MS(2000))[0].verdict, LimitedBy::Application);
    }

    #[test]
    fn a_receiver_with_a_closed_window_stays_the_limit_until_it_advertises_room() {
        let mut flows = FlowTable::default();
        flows.note(MS(0), A, B, &packet([1, 2], &[&[150, 60, 0, 4], &data(1)]), 150, 150);
        flows.note(MS(1), B, A, &packet([2, 1], &[&sack(1, 0)]), 48, 150);
        let verdict = |flows: &mut FlowTable, at: u64| {
            let rows = flows.tick(MS(at));
            rows.iter().find(|row| row.from_port == 1).unwrap().verdict
        };
        assert_eq!(verdict(&mut flows, 1000), LimitedBy::Receiver);
        assert_eq!(verdict(&mut flows, 2000), LimitedBy::Receiver, "no packet");
        // A burst of SACKs that advertise room changes nothing if the window was closed for most of the time.
        for at in 2500..2520 {
            flows.note(MS(at), B, A, &packet([2, 1], &[&sack(1, 9000)]), 48, 150);
        }
        flows.note(MS(2520), B, A, &packet([2, 1], &[&sack(1, 0)]), 48, 150);
        assert_eq!(verdict(&mut flows, 3000), LimitedBy::Receiver);
        flows.note(MS(3100), B, A, &packet([2, 1], &[&sack(1, 9000)]), 48, 150);
        assert_eq!(verdict(&mut flows, 4000), LimitedBy::Network);
    }

    #[test]
    fn a_flow_without_advertisements_has_no_verdict_and_old_ones_expire() {
        assert_eq!(verdict(&[], 100).verdict, LimitedBy::Unknown);
        let mut flows = FlowTable::default();
        flows.note(MS(0), A, B, &packet([1, 2], &[&[150, 9, 0, 4], &data(1)]), 150, 150);
        assert_eq!(flows.tick(MS(1000))[0].verdict, LimitedBy::Network);
        let row = &flows.tick(MS(9000))[0];
        assert_eq!((row.verdict, row.packets), (LimitedBy::Network, 0));
        assert_eq!(flows.tick(MS(10_001))[0].verdict, LimitedBy::Unknown);
        assert!(flows.tick(MS(30_001)).is_empty(), "forgotten");
    }

    #[test]
    fn the_flow_table_is_bounded_and_no_truncated_packet_causes_a_panic() {
        let mut flows = FlowTable::default();
        for port in 0..=u16::MAX {
            flows.note(MS(0), A, B, &packet([port, 2], &[&data(1)]), 150, 150);
            flows.note(MS(0), B, A, &packet([2, port], &[]), 32, 150);
        }
        assert_eq!(flows.flows.len(), FLOWS_MAX);
        let whole = packet([1, 2], &[&sack(1, 1), &data(1)]);
        (0..whole.len()).for_each(|length| flows.note(MS(1), A, B, &whole[..length], length, 150));
    }
}
