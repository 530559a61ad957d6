//! Explicit congestion notification (RFC 3168; RFC 4960 appendix A, which RFC 9260 omits but keeps reserved).
//!
//! New data leaves as ECT(0). A receiver of a packet marked CE sends ECNE with the packet's lowest TSN
//! alongside each SACK until CWR arrives; a sender reduces its window once per round trip and path, as for a
//! loss. CWR needs no packet of its own: it precedes the next new DATA (RFC 3168 section 6.1.2: "the first
//! new data packet sent after the window reduction"), and is repeated if the echo continues after that DATA
//! was acknowledged. Retransmissions and probes of a closed window are never ECT (RFC 3168 sections 6.1.5 and
//! 6.1.6). A path that drops all ECT packets is used without ECN. Start at [`Association::on_marked`]
//! (receiver) and [`Association::on_ecne`] (sender).

use base::{Ecn, Time};
use smallvec::SmallVec;
use wire::{Chunk, Cwr, Ecne, PacketWriter, Tsn};

use super::Association;
use crate::extension::Extension;
use crate::path::PathIndex;
use crate::trace::TraceEvent;
use crate::tx::Seq;

/// Maximum number of paths with a mark that awaits CWR.
const MAX_ECHOES: usize = 8;

/// Marks not yet answered with CWR: the path of arrival, and the lowest TSN of the newest marked packet.
type Echoes = SmallVec<[(PathIndex, Tsn); 1]>;

/// Octets of a CWR chunk.
const CWR_LEN: usize = 8;

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

/// Our answers to the peer's echoes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    /// The TSN that the next CWR answers.
    waiting: Option<Seq>,
    /// The TSN that the last CWR answered, and the new DATA sent with it.
    last: Option<(Seq, Seq)>,
}

impl Answer {
    /// Handles an echo of `marked` when DATA below `first` is acknowledged; repeats the CWR unless one is
    /// under way.
    fn on_echo(&mut self, marked: Seq, first: Seq) {
        let is_under_way =
            self.last.is_some_and(|(answered, carrier)| marked <= answered && first <= carrier);
        if !is_under_way {
            self.waiting = self.waiting.max(Some(marked));
        }
    }

    /// Octets by which the answer reduces the current packet's room for user data.
    #[inline]
    pub(super) fn len(&self) -> usize {
        if self.waiting.is_some() { CWR_LEN } else { 0 }
    }

    /// Records the CWR of a finished packet; `carrier` was the next new DATA before it.
    pub(super) fn on_sent(&mut self, carrier: Seq) {
        self.last = self.waiting.take().map(|marked| (marked, carrier));
    }
}

impl Association {
    fn has_ecn(&self) -> bool {
        self.negotiated.has(Extension::Ecn)
    }

    /// Handles the ECN mark of a packet with DATA that arrived on `path`; `lowest` is its lowest TSN.
    #[inline]
    pub(super) fn on_marked(&mut self, path: PathIndex, ecn: Ecn, lowest: Tsn) {
        if ecn != Ecn::Ce || !self.has_ecn() {
            return;
        }
        self.out.note(TraceEvent::MarkedReceived { tsn: lowest.0 });
        if self.marks.on_marked(path, lowest) {
            // The sooner the sender knows, the shorter the queue.
            self.inbound.ack.on_irregular();
        }
    }

    /// Handles an echo for a packet of ours. RFC 3168 section 6.1.2: the reaction is the one to a loss, "at
    /// most once every window of data".
    pub(super) fn on_ecne(&mut self, lowest: Tsn, now: Time) {
        let first = self.tx.outstanding.first();
        let Some(seq) =
            first.nearest(self.negotiated.initial_tsn(), lowest).filter(|s| *s < self.tx.outstanding.next())
        else {
            return;
        };
        self.out.note(TraceEvent::EchoReceived { tsn: lowest.0 });
        let index = self.tx.outstanding.path_of(seq).unwrap_or_else(|| self.paths.current());
        let next = self.tx.outstanding.next();
        let seen = self.seen(index, self.tx.outstanding.flight(index), now);
        let path = self.paths.get_mut(index);
        if seq >= path.reduced_until {
            path.reduced_until = next;
            path.sending.on_marked(&seen);
            let route = path.route;
            self.out.note(TraceEvent::MarkObeyed { route });
        }
        self.tx.answer.on_echo(seq, first);
    }

    /// Writes CWR into a packet that is not empty or that new DATA will follow into; returns whether it did.
    #[inline]
    pub(super) fn fill_answer(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>) -> bool {
        let Some(marked) = self.tx.answer.waiting else { return false };
        if packet.is_empty() && self.next_new_length(path).is_none() {
            return false;
        }
        packet.push(&Chunk::Cwr(Cwr { lowest_tsn: marked.tsn(self.negotiated.initial_tsn()) })).is_ok()
    }

    /// The ECN codepoint for a train of new data without retransmissions.
    pub(super) fn ecn_of_new_data(&mut self, index: PathIndex) -> Ecn {
        if !self.has_ecn() || self.tx.window.is_probed() {
            return Ecn::NotEct;
        }
        self.paths.get_mut(index).ecn.on_sent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mark_of_each_path_is_echoed_until_cwr_answers_it() {
        let mut marks = Marks::default();
        assert!(marks.on_marked(PathIndex(0), Tsn(5)) && !marks.on_marked(PathIndex(0), Tsn(7)));
        assert!(marks.on_marked(PathIndex(1), Tsn(6)));
        marks.on_cwr(Tsn(6));
        assert_eq!(marks.echoes.as_slice(), [(PathIndex(0), Tsn(7))]);
    }

    #[test]
    fn a_repeated_echo_is_answered_again_once_the_data_beside_the_answer_has_arrived() {
        let mut answer = Answer::default();
        answer.on_echo(Seq(3), Seq(0));
        assert_eq!(answer.len(), CWR_LEN);
        answer.on_sent(Seq(10));
        answer.on_echo(Seq(3), Seq(10));
        assert_eq!(answer.len(), 0, "the answer is under way");
        answer.on_echo(Seq(3), Seq(11));
        assert_eq!(answer.len(), CWR_LEN);
    }
}
