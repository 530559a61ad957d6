//! Explicit congestion notification (RFC 3168; RFC 4960 appendix A, which RFC 9260 leaves out but keeps reserved).
//!
//! New data leaves as ECT(0). A receiver that gets a packet marked CE says so in each SACK, by ECNE with the packet's lowest
//! TSN, until CWR answers; a sender reduces its window once per round trip and path, as for a loss. CWR needs no packet of its own:
//! it goes before the next new DATA (RFC 3168 section 6.1.2: "the first new data packet sent after the window reduction"), and
//! again when that was acknowledged and the echo goes on. Retransmissions and
//! probes of a closed window are never ECT (RFC 3168 sections 6.1.5 and 6.1.6). A path that lets nothing through that is
//! ECT is used without. Begin at [`Association::on_marked`] (receiver) and [`Association::on_ecne`] (sender).

use base::{Ecn, Time};
use smallvec::SmallVec;
use wire::{Chunk, Cwr, Ecne, PacketWriter, Tsn};

use super::{Association, WindowProbe};
use crate::extension::Extension;
use crate::path::PathIndex;
use crate::trace::TraceEvent;
use crate::tx::Seq;

/// Marked packets of different paths that may wait for CWR.
const MAX_ECHOES: usize = 8;

/// Marks that the peer has yet to answer by CWR: the path they came by, and the lowest TSN of the newest marked packet.
pub(super) type Echoes = SmallVec<[(PathIndex, Tsn); 1]>;

/// Octets of a CWR chunk.
const CWR_LEN: usize = 8;

/// What the peer is told of the marks that it echoes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Answer {
    /// The TSN that the next CWR answers.
    waiting: Option<Seq>,
    /// The TSN that the last CWR answered, and the new DATA that went with it.
    last: Option<(Seq, Seq)>,
}

impl Answer {
    /// The peer echoes `marked`, and DATA below `first` is acknowledged: does it not know yet, or did the last CWR not reach it?
    fn on_echo(&mut self, marked: Seq, first: Seq) {
        let is_under_way =
            self.last.is_some_and(|(answered, carrier)| marked <= answered && first <= carrier);
        if !is_under_way {
            self.waiting = self.waiting.max(Some(marked));
        }
    }

    /// Octets that the packet in hand has less for user data.
    pub(super) fn len(&self) -> usize {
        if self.waiting.is_some() { CWR_LEN } else { 0 }
    }
}

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
        self.answer.on_echo(seq, first);
    }

    /// CWR goes into a packet that has something already, or into which new DATA follows; whether it did.
    #[inline]
    pub(super) fn fill_answer(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>) -> bool {
        let Some(marked) = self.answer.waiting else { return false };
        if packet.is_empty() && self.next_new_length(path).is_none() {
            return false;
        }
        packet.push(&Chunk::Cwr(Cwr { lowest_tsn: marked.tsn(self.initial_tsn) })).is_ok()
    }

    /// The packet with the CWR is full; `carrier` was the next new DATA before.
    pub(super) fn on_answered(&mut self, carrier: Seq) {
        self.answer.last = self.answer.waiting.take().map(|marked| (marked, carrier));
    }

    /// How a train that carries new data, and nothing that was sent before, is to be marked.
    pub(super) fn ecn_of_new_data(&mut self, index: PathIndex) -> Ecn {
        if !self.has_ecn() || self.window_probe != WindowProbe::No {
            return Ecn::NotEct;
        }
        self.paths.get_mut(index).ecn.on_sent()
    }
}
