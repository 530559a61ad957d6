//! Trains that contain packets of several associations on the same route.
//!
//! Between two hosts with many associations, most packets without data are short and leave singly: handshakes, shutdowns,
//! SACKs, heartbeats. Each packet would cost a system call and a pass through both kernels. Packets with data are not joined,
//! because they depend on a window, a pace and ECN bits. Invariants: all packets of a train except the last have the same
//! length, and the last packet is not longer than the others. Begin with [`Endpoint::joined`].

use base::{Ecn, Route, Time};

use super::{AssociationId, Endpoint, Transmit};
use crate::association::Joining;
use crate::endpoint::slots::Slot;

/// Limit on the packets of one train (UDP_MAX_SEGMENTS of Linux before 6.9).
const PACKETS_MAX: usize = 64;

impl Endpoint {
    /// Appends packets without data for the same route to a train. The packets come from the replies, and from associations
    /// other than `sender`, which has sent the train. A train with ECN bits or an oversized packet stays unchanged.
    pub(super) fn joined(
        &mut self,
        now: Time,
        mut train: Transmit,
        sender: Option<AssociationId>,
        buf: &mut [u8],
    ) -> Transmit {
        if train.ecn != Ecn::NotEct || train.may_fragment {
            return train;
        }
        let mut packets = train.len / train.segment_size;
        while packets < PACKETS_MAX && train.len.is_multiple_of(train.segment_size) {
            let room = &mut buf[train.len..];
            let Some(len) = self.next_packet_by(now, &train.route, sender, room) else { break };
            if len <= train.segment_size {
                train.len += len;
            } else if packets == 1 {
                // This packet is longer than the packet of the train, so it must be the first.
                buf[..train.len + len].rotate_left(train.len);
                (train.len, train.segment_size) = (train.len + len, len);
            } else {
                self.replies.push_front(train.route, room[..len].to_vec());
                break;
            }
            packets += 1;
        }
        train
    }

    /// Writes the next packet of the replies or of the ready associations, if the packet has no data and uses this route.
    /// Returns its length.
    fn next_packet_by(
        &mut self,
        now: Time,
        route: &Route,
        sender: Option<AssociationId>,
        buf: &mut [u8],
    ) -> Option<usize> {
        if let Some(packet) = self.replies.pop_by(route, buf.len()) {
            buf[..packet.len()].copy_from_slice(&packet);
            return Some(packet.len());
        }
        while let Some(&id) = self.ready.front().filter(|id| Some(**id) != sender) {
            let joining = match self.slots.get_mut(id) {
                Some(Slot::Opening(opening)) => opening.poll_joining(route, buf),
                Some(Slot::Association(_)) => {
                    self.with(id, now, |a, ctx| a.poll_joining(route, buf, ctx)).unwrap_or(Joining::Nothing)
                }
                Some(Slot::Finished) | None => Joining::Nothing,
            };
            match joining {
                Joining::Packet(len) => {
                    self.ready.rotate_left(1);
                    return Some(len);
                }
                Joining::Other => return None,
                Joining::Nothing => self.end_turn(id),
            }
        }
        None
    }
}
