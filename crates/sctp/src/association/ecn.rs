//! Explicit congestion notification (RFC 3168; RFC 4960 appendix A, which RFC 9260 leaves out but keeps reserved).
//!
//! New data leaves as ECT(0). A receiver that gets a packet marked CE says so in each SACK, by ECNE with the packet's lowest
//! TSN, until CWR answers; a sender reduces its window once per round trip and path, as for a loss. Retransmissions and
//! probes of a closed window are never ECT (RFC 3168 sections 6.1.5 and 6.1.6). A path that lets nothing through that is
//! ECT is used without. Begin at [`Association::on_marked`] (receiver) and [`Association::on_ecne`] (sender).

use base::{Ecn, Time};
use smallvec::SmallVec;
use wire::{Chunk, Ecne, PacketWriter, Tsn};

use super::{Association, Control, WindowProbe};
use crate::extension::Extension;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Marked packets of different paths that may wait for CWR.
const MAX_ECHOES: usize = 8;

/// Marks that the peer has yet to answer by CWR: the path they came by, and the lowest TSN of the newest marked packet.
pub(super) type Echoes = SmallVec<[(PathIndex, Tsn); 1]>;

impl Association {
    fn has_ecn(&self) -> bool {
        self.extensions.has(Extension::Ecn)
    }

    /// A packet with DATA came by `path`; `lowest` is its lowest TSN.
    #[inline]
    pub(super) fn on_marked(&mut self, path: PathIndex, ecn: Ecn, lowest: Tsn) {
        if ecn != Ecn::Ce || !self.has_ecn() {
            return;
        }
        self.note(TraceEvent::MarkedReceived { tsn: lowest.0 });
        if let Some((_, tsn)) = self.echoes.iter_mut().find(|(p, _)| *p == path) {
            *tsn = lowest;
        } else if self.echoes.len() < MAX_ECHOES {
            self.echoes.push((path, lowest));
            // The sooner the sender knows, the shorter the queue.
            self.inbound.ack.on_irregular();
        }
    }

    /// ECNE goes before the SACK, so that the sender still knows the TSN's path.
    #[inline]
    pub(super) fn fill_echoes(&self, packet: &mut PacketWriter<'_>) {
        for &(_, lowest_tsn) in &self.echoes {
            if packet.push(&Chunk::Ecne(Ecne { lowest_tsn })).is_err() {
                break;
            }
        }
    }

    /// The sender has reacted.
    pub(super) fn on_cwr(&mut self, answered: Tsn) {
        self.echoes.retain(|(_, tsn)| tsn.is_after(answered));
    }

    /// A packet of ours was marked. RFC 3168 section 6.1.2: the reaction is that to a loss, "at most once every window of
    /// data".
    pub(super) fn on_ecne(&mut self, lowest: Tsn, now: Time) {
        let first = self.outstanding.first();
        let Some(seq) = first.nearest(self.initial_tsn, lowest).filter(|s| *s < self.outstanding.next())
        else {
            return;
        };
        self.note(TraceEvent::EchoReceived { tsn: lowest.0 });
        let index = self.outstanding.path_of(seq).unwrap_or_else(|| self.paths.current());
        let next = self.outstanding.next();
        let seen = self.seen(index, self.outstanding.flight(index), now);
        let path = self.paths.get_mut(index);
        if seq >= path.reduced_until {
            path.reduced_until = next;
            path.sending.on_marked(&seen);
            let route = path.route;
            self.note(TraceEvent::MarkObeyed { route });
        }
        self.control.retain(|(_, c)| !matches!(c, Control::Cwr(_)));
        self.control.push_back((index, Control::Cwr(lowest)));
    }

    /// How a train that carries new data, and nothing that was sent before, is to be marked.
    pub(super) fn ecn_of_new_data(&mut self, index: PathIndex) -> Ecn {
        if !self.has_ecn() || self.window_probe != WindowProbe::No {
            return Ecn::NotEct;
        }
        self.paths.get_mut(index).ecn.on_sent()
    }
}
