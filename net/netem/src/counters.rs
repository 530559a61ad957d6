//! Counters of a direction of a link: each packet's fate.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

use crate::direction::LossCause;

/// Counters of a direction of a link since its creation.
///
/// Each offered packet is lost for exactly one cause, or passes, perhaps with a copy. Invariant: `offered` is the sum of `passed`
/// and [`lost`](Counters::lost).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that were offered to the direction.
    pub offered: u64,
    /// Bytes of the offered packets, from the IP header on.
    pub offered_bytes: u64,
    /// Packets that passed, without copies.
    pub passed: u64,
    /// Bytes of the passed packets, from the IP header on, without copies.
    pub passed_bytes: u64,
    /// Packets lost by random loss.
    pub lost_by_chance: u64,
    /// Packets lost because the queue was full.
    pub lost_in_queue: u64,
    /// Packets lost because the link was cut.
    pub lost_by_cut: u64,
    /// Packets lost because they were longer than the MTU.
    pub lost_for_length: u64,
    /// Packets lost because they were ECN-capable and the link drops such packets.
    pub lost_for_ecn: u64,
    /// Packets lost because their line had no room ([`HELD_BYTES_MAX`](crate::HELD_BYTES_MAX)).
    pub lost_for_room: u64,
    /// Packets and copies with a flipped bit.
    pub corrupted: u64,
    /// Packets that were duplicated.
    pub duplicated: u64,
    /// Packets and copies that the setting `reorder` delayed.
    pub reordered: u64,
    /// Packets that passed with the mark CE (RFC 3168). This direction or an earlier router has set the mark.
    pub marked: u64,
}

impl Counters {
    /// Returns the number of packets lost, for all causes together.
    pub fn lost(&self) -> u64 {
        self.lost_by_chance
            + self.lost_in_queue
            + self.lost_by_cut
            + self.lost_for_length
            + self.lost_for_ecn
            + self.lost_for_room
    }

    /// Counts a packet of `length` bytes that the caller dropped before it reached the direction. The cause is a cut, the MTU, or
    /// the limit on held bytes.
    pub fn refuse(&mut self, length: usize, cause: LossCause) {
        self.on_offered(length);
        self.on_lost(cause);
    }

    /// Counts an offered packet of `length` bytes.
    pub(crate) fn on_offered(&mut self, length: usize) {
        self.offered += 1;
        self.offered_bytes += length as u64;
    }

    pub(crate) fn on_lost(&mut self, cause: LossCause) {
        *match cause {
            LossCause::Chance => &mut self.lost_by_chance,
            LossCause::Queue => &mut self.lost_in_queue,
            LossCause::Cut => &mut self.lost_by_cut,
            LossCause::Length => &mut self.lost_for_length,
            LossCause::Ecn => &mut self.lost_for_ecn,
            LossCause::Room => &mut self.lost_for_room,
        } += 1;
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        for (sum, more) in [
            (&mut self.offered, other.offered),
            (&mut self.offered_bytes, other.offered_bytes),
            (&mut self.passed, other.passed),
            (&mut self.passed_bytes, other.passed_bytes),
            (&mut self.lost_by_chance, other.lost_by_chance),
            (&mut self.lost_in_queue, other.lost_in_queue),
            (&mut self.lost_by_cut, other.lost_by_cut),
            (&mut self.lost_for_length, other.lost_for_length),
            (&mut self.lost_for_ecn, other.lost_for_ecn),
            (&mut self.lost_for_room, other.lost_for_room),
            (&mut self.corrupted, other.corrupted),
            (&mut self.duplicated, other.duplicated),
            (&mut self.reordered, other.reordered),
            (&mut self.marked, other.marked),
        ] {
            *sum += more;
        }
    }
}
