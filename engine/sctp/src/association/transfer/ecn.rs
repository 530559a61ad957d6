//! The sender's reaction to echoes of congestion marks; [`ecn`](crate::association::ecn) is the receiver's part.
//!
//! New data leaves as ECT(0). Retransmissions and probes of a closed window leave without ECT (RFC 3168 sections 6.1.5
//! and 6.1.6). A path that drops all ECT packets is used without ECN.
//!
//! A sender reduces the window of a path once per round trip, as it does after a loss. CWR needs no separate packet:
//! the CWR chunk precedes the next new DATA (RFC 3168 section 6.1.2: "the first new data packet sent after the window
//! reduction"). CWR is repeated if the echo continues after that DATA was acknowledged. Start at [`Transfer::on_ecne`].

use base::{Ecn, Time};
use wire::{Chunk, Cwr, PacketWriter, Tsn};

use super::Transfer;
use crate::extension::Extension;
use crate::path::PathIndex;
use crate::trace::TraceEvent;
use crate::tx::Seq;

/// Octets of a CWR chunk.
const CWR_LEN: usize = 8;

/// State of the CWR chunks that answer the peer's echoes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answer {
    /// The marked TSN that the next CWR answers.
    waiting: Option<Seq>,
    /// The marked TSN that the last CWR answered, and the first new DATA sent with it.
    last: Option<(Seq, Seq)>,
}

impl Answer {
    /// Handles an echo of the marked TSN `marked`. `first` is the earliest DATA that is not acknowledged. Schedules a
    /// CWR, unless one for this mark is in transit.
    fn on_echo(&mut self, marked: Seq, first: Seq) {
        let is_under_way =
            self.last.is_some_and(|(answered, first_new)| marked <= answered && first <= first_new);
        if !is_under_way {
            self.waiting = self.waiting.max(Some(marked));
        }
    }

    /// Returns the octets that a CWR takes from the current packet's room for user data.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if self.waiting.is_some() { CWR_LEN } else { 0 }
    }

    /// Records that a packet with a CWR was written. `first_new` is the first new DATA that is sent with it.
    pub(crate) fn on_sent(&mut self, first_new: Seq) {
        self.last = self.waiting.take().map(|marked| (marked, first_new));
    }
}

impl Transfer {
    pub(crate) fn has_ecn(&self) -> bool {
        self.negotiated.has(Extension::Ecn)
    }

    /// Handles an ECNE chunk about one of our packets. The sender reacts as to a loss, but "at most once every window
    /// of data" (RFC 3168 section 6.1.2).
    pub(crate) fn on_ecne(&mut self, lowest: Tsn, now: Time) {
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

    /// Writes CWR into a packet that already has chunks, or that will get new DATA. Returns whether CWR was written.
    #[inline]
    pub(crate) fn fill_answer(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>) -> bool {
        let Some(marked) = self.tx.answer.waiting else { return false };
        if packet.is_empty() && self.next_new_length(path).is_none() {
            return false;
        }
        packet.push(&Chunk::Cwr(Cwr { lowest_tsn: marked.tsn(self.negotiated.initial_tsn()) })).is_ok()
    }

    /// Returns the ECN codepoint for a train of new data without retransmissions.
    pub(crate) fn ecn_of_new_data(&mut self, index: PathIndex) -> Ecn {
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
    fn a_repeated_echo_is_answered_again_once_the_data_sent_with_the_answer_is_acknowledged() {
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
