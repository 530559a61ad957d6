//! Explicit congestion notification (ECN, RFC 3168; RFC 4960 appendix A, which RFC 9260 omits but keeps reserved).
//!
//! This is the receiver's part: for a packet marked CE it sends ECNE with the packet's lowest TSN alongside each SACK until CWR
//! arrives. `transfer::ecn` is the sender's part. Start at [`Association::on_marked`].

use base::Ecn;
use smallvec::SmallVec;
use wire::{Chunk, Ecne, PacketWriter, Tsn};

use super::Association;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Maximum number of paths with a mark that awaits CWR.
const MAX_ECHOES: usize = 8;

/// Marks not yet answered with CWR: the path of arrival, and the lowest TSN of the newest marked packet.
type Echoes = SmallVec<[(PathIndex, Tsn); 1]>;

/// Marks of the peer's packets that it has not reacted to.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The ECN mark of the current packet; taken by its first DATA.
    packet: Ecn,
    echoes: Echoes,
}

impl Marks {
    /// Begins a packet of the peer that carries `ecn`.
    #[inline]
    pub(super) fn begin_packet(&mut self, ecn: Ecn) {
        self.packet = ecn;
    }

    /// Returns the mark of the current packet, for its first DATA only.
    #[inline]
    pub(super) fn take(&mut self) -> Ecn {
        std::mem::take(&mut self.packet)
    }

    /// Notes a marked packet with `lowest` as its lowest TSN; returns whether no other awaits CWR on its path.
    fn on_marked(&mut self, path: PathIndex, lowest: Tsn) -> bool {
        if let Some((_, tsn)) = self.echoes.iter_mut().find(|(p, _)| *p == path) {
            *tsn = lowest;
            return false;
        }
        let has_room = self.echoes.len() < MAX_ECHOES;
        if has_room {
            self.echoes.push((path, lowest));
        }
        has_room
    }

    /// Writes ECNE before the SACK, while the sender still knows the TSN's path.
    #[inline]
    pub(super) fn fill_echoes(&self, packet: &mut PacketWriter<'_>) {
        for &(_, lowest_tsn) in &self.echoes {
            if packet.push(&Chunk::Ecne(Ecne { lowest_tsn })).is_err() {
                break;
            }
        }
    }

    /// Stops the echoes that the sender has answered.
    pub(super) fn on_cwr(&mut self, answered: Tsn) {
        self.echoes.retain(|(_, tsn)| tsn.is_after(answered));
    }
}

impl Association {
    /// Handles the ECN mark of a packet with DATA that arrived on `path`; `lowest` is its lowest TSN.
    #[inline]
    pub(super) fn on_marked(&mut self, path: PathIndex, ecn: Ecn, lowest: Tsn) {
        if ecn != Ecn::Ce || !self.transfer.has_ecn() {
            return;
        }
        self.transfer.out.note(TraceEvent::MarkedReceived { tsn: lowest.0 });
        if self.marks.on_marked(path, lowest) {
            // The sooner the sender knows, the shorter the queue.
            self.inbound.ack.on_irregular();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mark_of_each_path_is_echoed_until_cwr_answers_it() {
        let mut marks = Marks::default();
        assert!(marks.on_marked(PathIndex::new(0), Tsn(5)) && !marks.on_marked(PathIndex::new(0), Tsn(7)));
        assert!(marks.on_marked(PathIndex::new(1), Tsn(6)));
        marks.on_cwr(Tsn(6));
        assert_eq!(marks.echoes.as_slice(), [(PathIndex::new(0), Tsn(7))]);
    }
}
