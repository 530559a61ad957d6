//! One direction of an emulated link.
//!
//! Takes frames from one interface, passes their packets through the [`Line`], and sends them as frames on the other interface.
//! Begin at [`Direction::take`] and [`Direction::give`].

use base::Time;
use netem::{Delivery, DirectionConfig, Line};
use netio::{Frame, FrameSocket};

use crate::lateness::{LATE, Lateness};
use crate::recent::{Recent, RecentReport};
use crate::report::{DirectionReport, FrameCounters};
use crate::too_long;
use bridge::packet::Layout;
use bridge::{Outbox, clock, finish};

/// Limit on the number of ICMP messages about the MTU per second. RFC 4443, section 2.4 (f), requires a limit on the rate of ICMPv6
/// errors.
const MTU_REPORTS_PER_SECOND: u32 = 1000;
/// A direction reports a warning if more than one packet in this number of packets was late.
const LATE_SHARE: u64 = 100;

/// A frame with the location of its packet.
#[derive(Clone, Debug)]
struct Held {
    bytes: Vec<u8>,
    layout: Layout,
}

/// One direction of a link.
pub(crate) struct Direction {
    line: Line<Held>,
    frames: FrameCounters,
    late: Lateness,
    recent: Recent,
    /// Latest arrival time of a packet so far. If a later packet has an earlier timestamp, its arrival time is raised to this time,
    /// because the line's clock must not go back.
    last: Time,
    /// Number of the current second, and the number of ICMP messages about the MTU that were sent in this second.
    reports: (u64, u32),
    outbox: Outbox,
}

impl Direction {
    pub(crate) fn new(config: DirectionConfig, seed: u64) -> Direction {
        Direction {
            line: Line::new(config, seed),
            frames: FrameCounters::default(),
            late: Lateness::new(),
            recent: Recent::default(),
            last: Time::ZERO,
            reports: (0, 0),
            outbox: Outbox::default(),
        }
    }

    pub(crate) fn config(&self) -> &DirectionConfig {
        self.line.config()
    }

    pub(crate) fn set_config(&mut self, config: DirectionConfig) {
        self.line.set_config(config);
    }

    pub(crate) fn next_wakeup(&self) -> Time {
        self.line.next_wakeup()
    }

    /// Handles a frame that arrived. ICMP messages to the frame's sender are sent through `back`, the opposite direction.
    pub(crate) fn take(&mut self, frame: &Frame<'_>, back: &mut Direction) {
        let at = clock::time_of(frame.seen_at);
        if finish(frame.bytes, frame.offload, |packet| self.put(at, packet, back)).is_err() {
            self.on_unfinishable();
        }
    }

    /// Counts a frame that was lost because the kernel or [`finish`] does not know its kind of offload (segmentation or checksum).
    pub(crate) fn on_unfinishable(&mut self) {
        self.frames.unfinishable += 1;
    }

    fn put(&mut self, at: Time, bytes: Vec<u8>, back: &mut Direction) {
        self.last = self.last.max(at);
        let layout = Layout::of(&bytes);
        let mtu = self.line.config().mtu;
        if layout.length <= mtu || self.line.config().cut {
            self.enqueue(bytes, layout);
            return;
        }
        let fragments = too_long::fragments(&bytes, &layout, mtu);
        self.frames.fragments += fragments.len() as u64;
        if fragments.is_empty() {
            self.report_mtu(&bytes, &layout, mtu, back);
            self.enqueue(bytes, layout);
        }
        for fragment in fragments {
            let layout = Layout::of(&fragment);
            self.enqueue(fragment, layout);
        }
    }

    fn enqueue(&mut self, bytes: Vec<u8>, layout: Layout) {
        let ecn = layout.ecn(&bytes);
        // An error means that the packet is lost. The line has counted this loss already.
        let _ = self.line.enqueue(self.last, layout.length, ecn, Held { bytes, layout });
    }

    fn report_mtu(&mut self, bytes: &[u8], layout: &Layout, mtu: usize, back: &mut Direction) {
        let second = self.last.as_millis() / 1000;
        if second != self.reports.0 {
            self.reports = (second, 0);
        }
        if !self.line.config().reports_mtu || self.reports.1 >= MTU_REPORTS_PER_SECOND {
            return;
        }
        if let Some(answer) = too_long::answer(bytes, layout, mtu) {
            self.reports.1 += 1;
            self.frames.mtu_reports += 1;
            back.last = back.last.max(self.last);
            let layout = Layout::of(&answer);
            back.enqueue(answer, layout);
        }
    }

    /// Sends up to [`bridge::PACKETS_PER_TURN`] packets that are due. Returns the number of packets that were given to the
    /// interface, including packets that the interface refused.
    ///
    /// # Errors
    /// Returns an error if the interface is down or has been removed.
    pub(crate) fn give(&mut self, to: &mut FrameSocket) -> std::io::Result<usize> {
        let Direction { line, late, recent, outbox, .. } = self;
        outbox.give(to, |now| {
            let delivery = line.dequeue(now)?;
            let behind = now.since(delivery.due);
            late.note(behind);
            recent.note(now, behind);
            Some(finished(delivery))
        })
    }

    /// Returns the direction's report. `names` are the direction's source and destination. `from` is the socket that receives the
    /// direction's frames.
    pub(crate) fn report(&mut self, names: [&str; 2], from: &mut FrameSocket) -> DirectionReport {
        let now = clock::now();
        let missed = from.missed().unwrap_or(self.frames.missed);
        self.recent.note_missed(now, missed - self.frames.missed);
        self.frames.missed = missed;
        let (queue_packets, queue_bytes) = self.line.queue(self.last.max(now));
        DirectionReport {
            from: names[0].to_owned(),
            to: names[1].to_owned(),
            settings: netem::settings(self.line.config())
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            queue_packets,
            queue_bytes,
            held: self.line.held(),
            packets: *self.line.counters(),
            frames: FrameCounters { sent: self.outbox.sent(), refused: self.outbox.refused(), ..self.frames },
            late: self.late.report(),
            recent: self.recent.report(now),
        }
    }
}

/// Returns the outgoing frame. Sets the ECN codepoint and flips the bit that the line has chosen.
fn finished(delivery: Delivery<Held>) -> Vec<u8> {
    let Held { mut bytes, layout } = delivery.packet;
    if layout.ecn(&bytes) != delivery.ecn {
        layout.set_ecn(&mut bytes, delivery.ecn);
    }
    if let Some(bit) = delivery.flip
        && let Some(byte) = bytes.get_mut(layout.at + bit / 8)
    {
        *byte ^= 1 << (bit % 8);
    }
    bytes
}

/// Returns the warnings of a direction: about packets that were sent late, and about packets that were lost for other reasons than
/// the link's settings. Late packets and missed frames are counted over the last 10 to 20 seconds. The other counts cover the
/// link's lifetime.
pub(crate) fn warnings(direction: &DirectionReport) -> Vec<String> {
    let DirectionReport { from, to, frames, recent, packets, .. } = direction;
    let RecentReport { seconds, packets: left, late: behind, max_us, missed } = *recent;
    let cases = [
        (
            behind * LATE_SHARE > left,
            format!(
                "cannot keep up: in the last {seconds} s, {behind} of {left} packets were sent more than {} ms late (up to \
                 {max_us} us): this host is too busy or too slow",
                LATE.as_millis()
            ),
        ),
        (missed > 0, format!("cannot keep up: {missed} frames arrived too fast recently and were lost")),
        (
            frames.refused > 0,
            format!(
                "{} packets were refused by {to}: its MTU is smaller, or its queue was full",
                frames.refused
            ),
        ),
        (
            frames.unfinishable > 0,
            format!(
                "{} segments of an unknown kind were lost: disable offloads of {from}",
                frames.unfinishable
            ),
        ),
        (
            packets.lost_for_room > 0,
            format!("{} packets were lost because the buffer was full", packets.lost_for_room),
        ),
    ];
    let said = cases.into_iter().filter(|(is_so, _)| *is_so);
    said.map(|(_, text)| format!("{from} to {to}: {text}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lateness::LatenessReport;
    use netem::{Counters, Spec};
    use netio::Offload;
    use std::collections::BTreeMap;

    fn direction(settings: &str) -> Direction {
        Direction::new(Spec::parse(settings).unwrap().apply(&DirectionConfig::TRANSPARENT).unwrap(), 1)
    }

    /// Returns a frame with an IPv4 packet of 1,000 bytes. `flags` is the first byte of the header's flags and fragment offset.
    fn frame(flags: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend([0x45, 2, 0x03, 0xe8, 0, 7, flags, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.resize(14 + 1000, 0);
        frame
    }

    fn take(there: &mut Direction, back: &mut Direction, bytes: &[u8]) {
        there.take(&Frame { bytes, seen_at: None, offload: Offload::default() }, back);
    }

    #[test]
    fn a_packet_too_long_is_reported_to_its_sender_or_vanishes() {
        for (settings, reports) in [("mtu=900", 1), ("mtu=900 mtu-report=no", 0)] {
            let (mut there, mut back) = (direction(settings), direction(""));
            take(&mut there, &mut back, &frame(0x40));
            assert_eq!((there.line.held(), back.line.held()), (0, reports), "{settings}");
            assert_eq!(there.line.counters().lost_for_length, 1);
        }
    }

    #[test]
    fn a_packet_too_long_that_may_be_fragmented_passes_in_fragments() {
        let (mut there, mut back) = (direction("mtu=900"), direction(""));
        take(&mut there, &mut back, &frame(0));
        assert_eq!((there.line.held(), back.line.held(), there.frames.fragments), (2, 0, 2));
    }

    #[test]
    fn a_link_is_reported_as_too_slow_only_while_recent_packets_are_late() {
        let recent = RecentReport { seconds: 12, packets: 100, late: 2, max_us: 1500, missed: 0 };
        let mut direction = DirectionReport {
            from: "a".to_owned(),
            to: "b".to_owned(),
            settings: BTreeMap::new(),
            queue_packets: 0,
            queue_bytes: 0,
            held: 0,
            packets: Counters::default(),
            frames: FrameCounters::default(),
            late: LatenessReport { packets: 1000, late: 500, ..LatenessReport::default() },
            recent,
        };
        let report = warnings(&direction);
        assert!(
            report[0].starts_with("a to b: cannot keep up: in the last 12 s, 2 of 100 packets"),
            "{report:?}"
        );
        direction.recent.late = 1;
        assert_eq!(warnings(&direction), [""; 0]);
    }

    #[test]
    fn messages_about_the_mtu_have_a_limit() {
        let (mut there, mut back) = (direction("mtu=900"), direction(""));
        for _ in 0..MTU_REPORTS_PER_SECOND + 500 {
            take(&mut there, &mut back, &frame(0x40));
        }
        // If a second ends during the loop, the next second allows further messages.
        assert!(there.frames.mtu_reports <= u64::from(MTU_REPORTS_PER_SECOND) + 499, "{:?}", there.frames);
    }

    #[test]
    fn a_frame_leaves_with_its_mark_and_its_flipped_bit() {
        let bytes = frame(0x40);
        let layout = Layout::of(&bytes);
        let delivery = Delivery {
            packet: Held { bytes: bytes.clone(), layout },
            due: Time::ZERO,
            ecn: base::Ecn::Ce,
            flip: Some(8 * 100 + 3),
        };
        let left = finished(delivery);
        assert_eq!((left[15], left[114]), (3, 8));
        assert_eq!(bridge::checksum::sum(&left[14..34], 0), 0xffff);
    }
}
