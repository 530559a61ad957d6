//! One direction of `sctpify-router run`: receives frames, queues their packets, and sends the packets at the link's rate.

use base::{Ecn, Time};
use bridge::packet::Layout;
use bridge::{Outbox, clock, finish};
use netio::{Frame, FrameSocket};
use sched::{Pace, Packet, Queue};

use crate::args::RunArgs;
use crate::look::Look;
use crate::run::report::DirectionReport;

/// Divisor of the rate in bytes per second. The quotient is the burst: the bytes that the rate allows in 1/500 s (2 ms).
const BURST_PER_SECOND: u64 = 500;
/// Least burst in bytes: two packets.
const BURST_MIN: u64 = 2 * 1514;

/// A frame, and the layout of its packet.
struct Held {
    bytes: Vec<u8>,
    layout: Layout,
}

/// State of one direction.
pub(super) struct Direction {
    queue: Box<dyn Queue<Held> + Send>,
    pace: Pace,
    rate: u64,
    policy: String,
    look: Look,
    /// Time of the last arrival or departure. The queue's time never goes back.
    last: Time,
    sent_bytes: u64,
    missed: u64,
    unfinishable: u64,
    outbox: Outbox,
}

impl Direction {
    pub(super) fn new(args: &RunArgs, rate: u64, seed: u64) -> Direction {
        let burst = (rate / 8 / BURST_PER_SECOND).max(BURST_MIN);
        Direction {
            queue: args.policy().queue(args.seed.unwrap_or_else(|| fastrand::u64(..)).wrapping_add(seed)),
            pace: Pace::new(rate, usize::try_from(burst).unwrap_or(usize::MAX)),
            rate,
            policy: args.policy.to_string(),
            look: args.look(),
            last: Time::ZERO,
            sent_bytes: 0,
            missed: 0,
            unfinishable: 0,
            outbox: Outbox::default(),
        }
    }

    /// Returns the time at which the next packet may leave.
    pub(super) fn next(&self) -> Time {
        if self.queue.backlog().packets == 0 { Time::NEVER } else { self.pace.ready_at(self.last) }
    }

    /// Puts the packets of a received frame into the queue.
    pub(super) fn take(&mut self, frame: &Frame<'_>) {
        self.last = self.last.max(clock::time_of(frame.seen_at));
        if finish(frame.bytes, frame.offload, |bytes| self.put(bytes)).is_err() {
            self.on_unfinishable();
        }
    }

    /// Counts a frame that is lost because its offload is of an unknown kind.
    pub(super) fn on_unfinishable(&mut self) {
        self.unfinishable += 1;
    }

    fn put(&mut self, bytes: Vec<u8>) {
        let layout = Layout::of(&bytes);
        let (length, ecn) = (layout.length, layout.ecn(&bytes));
        let view = self.look.view(&bytes, &layout);
        self.queue.enqueue(self.last, Packet { body: Held { bytes, layout }, length, view, ecn });
    }

    /// Sends packets that may leave, up to [`bridge::PACKETS_PER_TURN`]. Returns the number of sent packets.
    ///
    /// # Errors
    /// When the interface is down or was removed.
    pub(super) fn give(&mut self, to: &mut FrameSocket) -> std::io::Result<usize> {
        let Direction { queue, pace, last, sent_bytes, outbox, .. } = self;
        outbox.give(to, |now| {
            *last = now.max(*last);
            if pace.ready_at(*last) > *last {
                return None;
            }
            let packet = queue.dequeue(*last)?;
            pace.take(*last, packet.length);
            *sent_bytes += packet.length as u64;
            Some(finished(packet.body, packet.ecn))
        })
    }

    /// Returns the report. `from` is the socket that receives this direction's frames.
    pub(super) fn report(&mut self, names: [&str; 2], from: &mut FrameSocket) -> DirectionReport {
        // If the count cannot be read, the previous count stays.
        self.missed = from.missed().unwrap_or(self.missed);
        let (counters, backlog) = (self.queue.counters(), self.queue.backlog());
        DirectionReport {
            from: names[0].to_owned(),
            to: names[1].to_owned(),
            policy: self.policy.clone(),
            rate_bit_s: self.rate,
            offered: counters.offered,
            sent: self.outbox.sent(),
            sent_bytes: self.sent_bytes,
            dropped: counters.dropped,
            dropped_control: counters.dropped_control,
            marked: counters.marked,
            waiting: backlog.packets,
            waiting_bytes: backlog.bytes,
            missed: self.missed,
            refused: self.outbox.refused(),
            unfinishable: self.unfinishable,
        }
    }
}

/// Returns the frame with the ECN codepoint that the queue set.
fn finished(held: Held, ecn: Ecn) -> Vec<u8> {
    let Held { mut bytes, layout } = held;
    if layout.ecn(&bytes) != ecn {
        layout.set_ecn(&mut bytes, ecn);
    }
    bytes
}
