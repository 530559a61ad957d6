//! Audio over RTP (RFC 3550): a PCMU tone with 20 ms per packet. Incoming packets are counted, and not played.
//!
//! Invariant: up to [`SOURCES_MAX`] sources are distinguished.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;

/// Interval between two packets.
pub(super) const PACKET: Duration = Duration::from_millis(20);
/// Samples per packet, at 8,000 per second.
const SAMPLES: usize = 160;
/// Frequency of the tone, in Hz. A packet holds eight periods, so all packets have the same payload.
const PITCH: f64 = 400.0;
/// Bytes of the fixed header (RFC 3550 section 5.1).
const HEADER: usize = 12;
/// Limit on distinguished sources. Packets of other sources only count in the total.
const SOURCES_MAX: usize = 100_000;

/// Encodes a sample as a G.711 µ-law octet. The octet holds sign, exponent and mantissa of the biased sample, inverted.
fn mu_law(sample: i16) -> u8 {
    let magnitude = u32::from(sample.unsigned_abs()).min(32_635) + 132;
    let exponent = magnitude.ilog2().saturating_sub(7);
    let mantissa = (magnitude >> (exponent + 3)) & 0xf;
    let sign = if sample < 0 { 0x80 } else { 0 };
    !(sign | u8::try_from(exponent << 4 | mantissa).unwrap_or(0x7f))
}

/// Returns the payload of a packet of the tone.
pub(super) fn tone() -> [u8; SAMPLES] {
    std::array::from_fn(|at| {
        let angle = TAU * PITCH * at as f64 / 8000.0;
        mu_law((8000.0 * angle.sin()) as i16)
    })
}

/// The outgoing stream of one call.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) peer: SocketAddr,
    /// Time at which the next packet is due.
    pub(super) next: Time,
    source: u32,
    sequence: u16,
    timestamp: u32,
}

impl Sender {
    pub(super) fn new(now: Time, peer: SocketAddr, source: u32) -> Sender {
        Sender { peer, next: now, source, sequence: 0, timestamp: 0 }
    }

    /// Returns the packet that is due, and schedules the next one.
    pub(super) fn packet(&mut self, payload: &[u8; SAMPLES]) -> [u8; HEADER + SAMPLES] {
        let mut packet = [0; HEADER + SAMPLES];
        // Version 2, without padding, extension or contributing sources. The first packet is marked (RFC 3551 section 4.1). PCMU is type 0.
        packet[0] = 0x80;
        packet[1] = if self.sequence == 0 && self.timestamp == 0 { 0x80 } else { 0 };
        packet[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        packet[4..8].copy_from_slice(&self.timestamp.to_be_bytes());
        packet[8..12].copy_from_slice(&self.source.to_be_bytes());
        packet[12..].copy_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        self.timestamp = self.timestamp.wrapping_add(SAMPLES as u32);
        self.next += PACKET;
        packet
    }
}

/// Statistics of one source (RFC 3550 appendix A).
#[derive(Clone, Copy, Debug)]
struct Source {
    first: u32,
    highest: u32,
    received: u64,
    /// Arrival time minus timestamp of the last packet, in samples.
    transit: i64,
    /// Interarrival jitter, in samples.
    jitter: f64,
}

/// Statistics of all sources.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    sources: BTreeMap<u32, Source>,
    /// RTP packets received.
    pub(super) received: u64,
}

impl Receiver {
    /// Counts a packet, unless it is not RTP.
    pub(super) fn handle(&mut self, now: Time, packet: &[u8]) {
        if packet.len() < HEADER || packet[0] >> 6 != 2 {
            return;
        }
        let word =
            |at: usize| u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
        let (sequence, timestamp, source) = (u16::from_be_bytes([packet[2], packet[3]]), word(4), word(8));
        self.received += 1;
        if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&source) {
            return;
        }
        let arrival = i64::try_from(now.as_nanos() / 125_000).unwrap_or(i64::MAX);
        let transit = arrival - i64::from(timestamp);
        let known = self.sources.entry(source).or_insert(Source {
            first: u32::from(sequence),
            highest: u32::from(sequence),
            received: 0,
            transit,
            jitter: 0.0,
        });
        known.note(sequence, transit);
    }

    /// Returns the number of lost packets, summed over all sources. A packet counts as lost if it did not arrive, but lies between the
    /// first and the last packet of its source.
    pub(super) fn lost(&self) -> u64 {
        let lost = |s: &Source| u64::from(s.highest - s.first + 1).saturating_sub(s.received);
        self.sources.values().map(lost).sum()
    }

    /// Returns the greatest jitter of all sources, in ms.
    pub(super) fn jitter_ms_max(&self) -> f64 {
        self.sources.values().map(|source| source.jitter / 8.0).fold(0.0, f64::max)
    }
}

impl Source {
    fn note(&mut self, sequence: u16, transit: i64) {
        self.received += 1;
        let ahead = sequence.wrapping_sub(self.highest as u16);
        if ahead < 0x8000 {
            self.highest += u32::from(ahead);
        }
        // "J(i) = J(i-1) + (|D(i-1,i)| - J(i-1))/16" (RFC 3550 section 6.4.1).
        let difference = (transit - self.transit).unsigned_abs() as f64;
        self.transit = transit;
        self.jitter += (difference - self.jitter) / 16.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_the_octets_of_g_711() {
        // Zero and -1, the greatest and the least sample, and the beginnings of two segments.
        for (sample, octet) in
            [(0, 0xff), (-1, 0x7f), (32_767, 0x80), (-32_768, 0x00), (124, 0xef), (380, 0xdf)]
        {
            assert_eq!(mu_law(sample), octet, "{sample}");
        }
    }

    #[test]
    fn losses_are_counted_across_sequence_wrap_and_steady_packets_have_no_jitter() {
        let mut sender = Sender::new(Time::ZERO, "127.0.0.1:1".parse().unwrap(), 7);
        sender.sequence = 0xfffe;
        let (mut receiver, payload) = (Receiver::default(), tone());
        for number in 0..10 {
            let (due, packet) = (sender.next, sender.packet(&payload));
            if number != 3 && number != 5 {
                receiver.handle(due, &packet);
            }
        }
        assert_eq!((receiver.received, receiver.lost()), (8, 2));
        assert!(receiver.jitter_ms_max() < 0.001);
    }

    #[test]
    fn packets_that_are_not_rtp_are_not_counted() {
        let mut receiver = Receiver::default();
        receiver.handle(Time::ZERO, b"");
        receiver.handle(Time::ZERO, &[0; 172]);
        assert_eq!(receiver.received, 0);
    }
}
