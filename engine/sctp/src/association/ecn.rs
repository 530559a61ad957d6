//! Explicit congestion notification (ECN, RFC 3168). RFC 4960 appendix A defines it for SCTP; RFC 9260 only reserves
//! the chunk types.
//!
//! This module acts for the receiver of data. After a packet with the mark CE, an ECNE chunk precedes each SACK until a
//! CWR chunk arrives. The ECNE chunk has the lowest TSN of the marked packet. `transfer::ecn` acts for the sender of
//! data. Start at [`Association::on_marked`].

use base::Ecn;
use smallvec::SmallVec;
use wire::{Chunk, Ecne, PacketWriter, Tsn};

use super::Association;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Maximum number of paths with a mark that awaits CWR.
const MAX_ECHOES: usize = 8;

/// Marks that no CWR has answered. Each entry has the path of arrival, and the lowest TSN of the newest marked packet
/// on this path.
type Echoes = SmallVec<[(PathIndex, Tsn); 1]>;

/// Congestion marks on the peer's packets, until the peer has reacted to them.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The ECN field of the current packet, until the packet's first DATA chunk takes it.
    packet: Ecn,
    echoes: Echoes,
}

impl Marks {
    /// Stores the ECN field of the packet that is handled next.
    #[inline]
    pub(super) fn begin_packet(&mut self, ecn: Ecn) {
        self.packet = ecn;
    }

    /// Returns the ECN field of the current packet once, for the packet's first DATA chunk.
    #[inline]
    pub(super) fn take(&mut self) -> Ecn {
        std::mem::take(&mut self.packet)
    }

    /// Records a marked packet with the lowest TSN `lowest`. Returns true if no earlier mark on its path awaits CWR and
    /// the list had room.
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

    /// Writes the ECNE chunks. They must precede the SACK, because the peer forgets the path of a TSN once the TSN is
    /// acknowledged.
    #[inline]
    pub(super) fn fill_echoes(&self, packet: &mut PacketWriter<'_>) {
        for &(_, lowest_tsn) in &self.echoes {
            if packet.push(&Chunk::Ecne(Ecne { lowest_tsn })).is_err() {
                break;
            }
        }
    }

    /// Removes the marks that a CWR chunk for TSN `answered` covers.
    pub(super) fn on_cwr(&mut self, answered: Tsn) {
        self.echoes.retain(|(_, tsn)| tsn.is_after(answered));
    }
}

impl Association {
    /// Handles the ECN field of a packet with DATA that arrived on `path`. `lowest` is the packet's lowest TSN.
    #[inline]
    pub(super) fn on_marked(&mut self, path: PathIndex, ecn: Ecn, lowest: Tsn) {
        if ecn != Ecn::Ce || !self.transfer.has_ecn() {
            return;
        }
        self.transfer.out.note(TraceEvent::MarkedReceived { tsn: lowest.0 });
        if self.marks.on_marked(path, lowest) {
            // An immediate SACK lets the peer slow down sooner, which keeps the router's queue short.
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
