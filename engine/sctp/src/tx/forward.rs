//! Advanced.Peer.Ack.Point (RFC 3758 section 3.5): the point up to which the peer need not wait for data. Decides when a FORWARD TSN with
//! this point is due.
//!
//! This module never sends. Invariant: `advanced` is not before the first outstanding chunk, and all chunks between these two positions are
//! abandoned. Start at [`Forward::follow`].

use std::collections::BTreeMap;
use std::time::Duration;

use base::Time;
use wire::StreamId;

use super::{Outstanding, Seq};
use crate::memory::tree;

/// Advanced.Peer.Ack.Point, and the last value of the point that was sent to the peer.
#[derive(Debug, Default)]
pub(crate) struct Forward {
    /// The first sequence that the peer must still wait for.
    advanced: Seq,
    /// The value of `advanced` in the last FORWARD TSN, and the time at which that chunk left.
    told: Option<(Seq, Time)>,
    due: bool,
    /// Time at which an unanswered FORWARD TSN is repeated. This timer replaces T3-rtx, which runs only for chunks in flight.
    timer: Option<Time>,
    /// Streams that were reset while some of their chunks were outstanding. Chunks before the sequence stored here have message numbers
    /// from before the reset. These numbers now denote other messages.
    renumbered: BTreeMap<StreamId, Seq>,
}

impl Forward {
    /// Returns the bytes of memory in use, without the struct itself.
    pub(crate) fn memory(&self) -> usize {
        tree(self.renumbered.len(), size_of::<(StreamId, Seq)>())
    }

    /// Updates the point after a SACK, after a timeout, or after chunks were abandoned. A FORWARD TSN becomes due if the point has moved,
    /// or if the last FORWARD TSN was sent at least `round_trip` ago and is unanswered. The point does not pass `end`.
    pub(crate) fn follow(
        &mut self,
        outstanding: &Outstanding,
        end: Option<Seq>,
        now: Time,
        round_trip: Duration,
    ) {
        //= rfc3758#section-3.5
        //# If (Advanced.Peer.Ack.Point < SackCumAck), then update Advanced.Peer.Ack.Point to be equal to SackCumAck.
        self.advanced = self.advanced.max(outstanding.first());
        //= rfc3758#section-3.5
        //# Try to further advance the "Advanced.Peer.Ack.Point" locally, that is, to move "Advanced.Peer.Ack.Point" up as
        //# long as the chunk next in the out-queue space is marked as "abandoned"
        while end.is_none_or(|end| self.advanced < end) && outstanding.is_abandoned(self.advanced) {
            self.advanced = self.advanced.next();
        }
        self.renumbered.retain(|_, begin| *begin > outstanding.first());
        if self.advanced == outstanding.first() {
            let renumbered = std::mem::take(&mut self.renumbered);
            *self = Forward { advanced: self.advanced, renumbered, ..Forward::default() };
            return;
        }
        //= rfc3758#section-3.5
        //# An implementation may wish to limit the number of duplicate FORWARD TSN chunks it sends by either only sending a
        //# duplicate FORWARD TSN every other SACK or waiting a full RTT before sending a duplicate FORWARD TSN.
        //= rfc3758#3.5-7 3.5-17
        self.due |= self.told.is_none_or(|(point, at)| self.advanced > point || now >= at + round_trip);
    }

    /// Handles the peer's reset of these streams (of all streams, if the list is empty). The peer has received or skipped all data sent on
    /// these streams so far, although its SACK may not have arrived yet. From now on, no FORWARD TSN may name message numbers from before
    /// the reset, because the peer would apply them to new messages.
    pub(crate) fn on_streams_reset(&mut self, streams: &[StreamId], outstanding: &Outstanding) {
        let is_reset = |stream: &StreamId| streams.is_empty() || streams.contains(stream);
        let old = outstanding.fragments().map(|fragment| fragment.stream).filter(is_reset);
        self.renumbered.extend(old.map(|stream| (stream, outstanding.next())));
    }

    /// Reports whether this chunk's message number was assigned before a reset of its stream.
    pub(crate) fn has_old_number(&self, stream: StreamId, seq: Seq) -> bool {
        self.renumbered.get(&stream).is_some_and(|begin| seq < *begin)
    }

    /// Reports whether a FORWARD TSN is due.
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Returns the first sequence that the peer must still wait for.
    pub(crate) fn advanced(&self) -> Seq {
        self.advanced
    }

    /// Records that a FORWARD TSN left.
    //= rfc3758#section-3.5
    //# If a FORWARD TSN is sent, the sender MUST assure that at least one T3-rtx timer is running.
    //= rfc3758#3.5-13
    pub(crate) fn on_sent(&mut self, now: Time, rto: Duration) {
        self.due = false;
        self.told = Some((self.advanced, now));
        self.timer = Some(now + rto);
    }

    pub(crate) fn next_timeout(&self) -> Time {
        self.timer.unwrap_or(Time::NEVER)
    }

    /// Handles the timer. Returns true if the timer has expired without an answer. Then the FORWARD TSN is due again.
    pub(crate) fn on_timeout(&mut self, now: Time) -> bool {
        let expired = self.timer.is_some_and(|at| at <= now);
        if expired {
            self.timer = None;
            self.due = true;
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathIndex;
    use crate::tx::Fragment;
    use bytes::Bytes;
    use wire::{Fsn, Mid, Ppid, StreamId};

    const RTT: Duration = Duration::from_millis(100);

    fn sent(n: u64) -> Outstanding {
        let mut o = Outstanding::default();
        for mid in 0..n {
            let fragment = Fragment {
                payload: Bytes::from_static(b"x"),
                stream: StreamId(0),
                mid: Mid(mid as u32),
                fsn: Fsn(0),
                ppid: Ppid(0),
                unordered: false,
                begin: true,
                end: true,
            };
            o.push(fragment, PathIndex::new(0), Time::ZERO);
        }
        o
    }

    #[test]
    fn the_point_moves_over_abandoned_chunks_and_stops_at_the_first_other_one() {
        let (mut o, mut f) = (sent(5), Forward::default());
        for n in [1, 2, 4] {
            o.abandon(Seq(n));
        }
        f.follow(&o, None, Time::ZERO, RTT);
        assert!(!f.is_due());
        o.on_sack(Seq(1), &[], Time::ZERO).unwrap();
        f.follow(&o, None, Time::ZERO, RTT);
        assert_eq!((f.advanced(), f.is_due()), (Seq(3), true));
        o.check_invariants();
    }

    #[test]
    //= rfc3758#3.5-7
    fn forward_tsn_is_not_repeated_before_a_round_trip_has_passed() {
        let (mut o, mut f) = (sent(3), Forward::default());
        o.abandon(Seq(0));
        f.follow(&o, None, Time::ZERO, RTT);
        f.on_sent(Time::ZERO, 3 * RTT);
        f.follow(&o, None, Time::from_millis(99), RTT);
        assert!(!f.is_due());
        f.follow(&o, None, Time::from_millis(100), RTT);
        assert!(f.is_due());
        f.on_sent(Time::from_millis(100), 3 * RTT);
        o.abandon(Seq(1));
        f.follow(&o, None, Time::from_millis(101), RTT);
        assert!(f.is_due(), "the point has moved");
    }

    #[test]
    fn an_unanswered_forward_tsn_is_due_again_after_the_timeout_and_an_answered_one_never() {
        let (mut o, mut f) = (sent(1), Forward::default());
        o.abandon(Seq(0));
        f.follow(&o, None, Time::ZERO, RTT);
        f.on_sent(Time::ZERO, 3 * RTT);
        assert_eq!(f.next_timeout(), Time::from_millis(300));
        assert!(!f.on_timeout(Time::from_millis(299)));
        assert!(f.on_timeout(Time::from_millis(300)) && f.is_due());
        o.on_sack(Seq(1), &[], Time::ZERO).unwrap();
        f.follow(&o, None, Time::ZERO, RTT);
        assert_eq!((f.is_due(), f.next_timeout()), (false, Time::NEVER));
    }
}
