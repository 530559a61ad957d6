//! The sending state of one path: window, recovery, pacing, and the timers of loss detection.
//!
//! This module combines a [`CongestionControl`] with proportional rate reduction, the undoing of spurious reductions,
//! pacing, and the tail-loss probe. This module sends nothing. The module `tx` counts the chunks. Start at
//! [`Sending::on_acks`] and [`Sending::allows`].

use std::time::Duration;

use base::Time;

use super::congestion::{Ack, CongestionControl, Coupling, controller, window_rate};
use super::pacer::Pacer;
use super::prr::Prr;
use crate::config::CongestionAlgorithm;
use crate::tx::{Losses, PathAcks};

/// Minimum time before a tail-loss probe. With a shorter time, delays of the processes on both hosts would look like
/// losses.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(10);

/// Divisor of the window. The quotient is the room that [`Sending::has_train_window`] requires for a train.
const TRAINS_IN_WINDOW: usize = 16;

/// State of a path at a SACK or at a loss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) now: Time,
    /// User bytes in flight on the path before the SACK or loss.
    pub(crate) flight_before: usize,
    /// User bytes in flight on the path after the SACK or loss.
    pub(crate) flight: usize,
    /// True if the cumulative TSN moved.
    pub(crate) cumulative_advanced: bool,
    pub(crate) srtt: Option<Duration>,
}

/// Result of a SACK or of a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// True if losses indicated new congestion, and the window was reduced.
    pub(crate) recovery_began: bool,
    /// True if the last recovery or timeout was spurious, and its reduction was undone.
    pub(crate) undone: bool,
}

/// State of the tail-loss probe of a silent path (RFC 8985 section 7). After a probe, the next probe is not sent before
/// data is acknowledged or a doubt about the path ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TailProbe {
    None,
    /// The probe has been sent, and no answer has arrived since.
    Unanswered,
    /// A HEARTBEAT was answered after the probe. Because of this answer, the next expiry of T3 does not count against
    /// the path.
    Heard,
    /// T3 has expired for the first time since the HEARTBEAT was answered.
    Expired,
}

/// Permission to send one packet regardless of the window (RFC 8985 section 7.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Credit {
    No,
    OnePacket,
    /// The packet is being written.
    InUse,
}

/// Sending state of one path.
#[derive(Debug)]
pub(crate) struct Sending {
    mtu: usize,
    /// Initial window in packets, if it is larger than the controller's initial window.
    initial_packets: u8,
    control: Box<dyn CongestionControl>,
    /// Number of bytes that may be in flight now: the controller's window or, during a reduction, the window of
    /// [`Prr`].
    window: usize,
    /// True if the data in flight may exceed the window by less than one packet.
    may_be_passed: bool,
    pacer: Pacer,
    takes_over: TakeOver,
    /// Ongoing reduction.
    prr: Option<Prr>,
    in_recovery: bool,
    /// Time at which congestion was last noticed; [`Time::NEVER`] before. Losses of data that was sent before this time
    /// indicate no new congestion.
    congested_at: Time,
    /// Number of chunks given up since `congested_at`.
    given_up: usize,
    /// Number of given-up chunks that proved to have arrived.
    spurious: usize,
    /// Number of round trips that have ended.
    round: u64,
    /// Last round in which the window limited the sending.
    full_in: Option<u64>,
    credit: Credit,
    probe: TailProbe,
    /// Time at which a tail-loss probe is due.
    pub(crate) probe_at: Option<Time>,
    /// Time at which a chunk that later chunks have overtaken counts as lost.
    pub(crate) reorder_at: Option<Time>,
}

/// Takeover of data by an idle path from another path, which carried the data before.
#[derive(Clone, Copy, Debug)]
enum TakeOver {
    No,
    /// The takeover begins with the next packet that is written.
    Begins,
    /// The even pace of the takeover lasts until this time.
    Until(Time),
}

impl Sending {
    pub(crate) fn new(algorithm: CongestionAlgorithm, mtu: usize) -> Sending {
        let control = controller(algorithm, mtu);
        Sending {
            mtu,
            initial_packets: 0,
            window: control.cwnd(),
            may_be_passed: control.may_be_passed(),
            control,
            pacer: Pacer::new(),
            takes_over: TakeOver::No,
            prr: None,
            in_recovery: false,
            congested_at: Time::NEVER,
            given_up: 0,
            spurious: 0,
            round: 0,
            full_in: None,
            credit: Credit::No,
            probe: TailProbe::None,
            probe_at: None,
            reorder_at: None,
        }
    }

    /// Sets the initial window in packets. The current window grows to this size if no round trip has ended, or if
    /// `is_to_come` reports that data is still to come. After congestion, the current window does not grow.
    pub(crate) fn begin_with(&mut self, packets: u8, is_to_come: bool) {
        self.initial_packets = packets;
        if (self.round == 0 || is_to_come) && self.congested_at == Time::NEVER {
            self.control.begin_with(usize::from(packets) * self.mtu);
            self.update_window();
        }
    }

    pub(crate) fn cwnd(&self) -> usize {
        self.control.cwnd()
    }

    pub(crate) fn ssthresh(&self) -> usize {
        self.control.ssthresh()
    }

    /// Sets the coupling after the windows of the association's other paths have changed.
    pub(crate) fn set_coupling(&mut self, coupling: Coupling) {
        self.control.set_coupling(coupling);
    }

    /// Recomputes the window after a change of the controller or of the reduction.
    fn update_window(&mut self) {
        self.window = self.prr.map_or_else(|| self.control.cwnd(), |prr| prr.window());
        self.may_be_passed = self.prr.is_some() || self.control.may_be_passed();
    }

    /// Returns whether the window has room for a packet, or a granted packet may exceed the window.
    pub(crate) fn has_window(&self, flight: usize) -> bool {
        //= rfc9260#6.1-10 6.1-11 6.1-12
        self.credit != Credit::No || self.has_room(flight)
    }

    /// Returns whether the window itself has room for a packet. If `may_be_passed` is set, room for a part of the
    /// packet suffices. This field is also set during a reduction, because proportional rate reduction counts bytes.
    fn has_room(&self, flight: usize) -> bool {
        if self.may_be_passed || flight == 0 {
            flight < self.window
        } else {
            flight.saturating_add(self.mtu) <= self.window
        }
    }

    /// Returns whether the window has room for a train. During a reduction, this is always true.
    pub(crate) fn has_train_window(&self, flight: usize) -> bool {
        self.prr.is_some() || self.has_window(flight + self.window / TRAINS_IN_WINDOW)
    }

    /// Returns whether the window and the pacer let data leave now.
    pub(crate) fn allows(&self, flight: usize) -> bool {
        self.credit != Credit::No || (self.has_room(flight) && self.pacer.allows())
    }

    /// Updates the pacer before packets are written on the path, whose round trip is `srtt`.
    pub(crate) fn refill(&mut self, srtt: Option<Duration>, now: Time) {
        match (self.takes_over, srtt) {
            (TakeOver::Begins, Some(srtt)) => {
                // A controller that models the path may have a lower rate than one window per round trip.
                let rate = window_rate(self.window, srtt, 100).min(self.pacing_rate(srtt));
                self.pacer.begin(rate, now);
                self.takes_over = TakeOver::Until(now + srtt);
            }
            (TakeOver::Until(end), Some(srtt)) if end <= now => {
                self.pacer.set_rate(self.pacing_rate(srtt), self.mtu, now);
                self.takes_over = TakeOver::No;
            }
            _ => {}
        }
        self.pacer.expire(now);
        self.pacer.refill(now);
    }

    /// Prepares an idle path to take over from a path that carried data. No acknowledgements clock the sending, so the
    /// window is spread over the round trip, packet by packet. If the whole window were sent at once, it would fill a
    /// queue of unknown length. The peer's program would then get no data for the rest of the round trip. The pacing
    /// rate of slow start would have a similar effect, because it sends the window in half a round trip.
    pub(crate) fn begin_evenly(&mut self) {
        self.takes_over = TakeOver::Begins;
    }

    /// Reports whether the path is taking over data, so no acknowledgements clock the sending yet.
    pub(crate) fn takes_over(&self) -> bool {
        !matches!(self.takes_over, TakeOver::No)
    }

    /// Returns the number of bytes that the pacing rate yields in `time`.
    pub(crate) fn bytes_in(&self, time: Duration, srtt: Duration) -> usize {
        let bytes = u128::from(self.pacing_rate(srtt)) * time.as_nanos() / 1_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    fn pacing_rate(&self, srtt: Duration) -> u64 {
        self.control.pacing_rate(srtt.max(Duration::from_nanos(1)))
    }

    /// Records that data waits for the window or for the pacer, with `flight` bytes in flight.
    pub(crate) fn on_waiting(&mut self, flight: usize, now: Time) {
        if !self.has_room(flight) {
            self.note_full();
        } else {
            self.pacer.wait(now);
        }
    }

    /// Records that the window limited data in this round.
    pub(crate) fn note_full(&mut self) {
        self.full_in = Some(self.round);
    }

    /// Counts `bytes` of sent user data.
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.pacer.on_sent(bytes);
        if let Some(prr) = &mut self.prr {
            prr.on_sent(bytes);
        }
        if self.credit == Credit::OnePacket {
            self.credit = Credit::InUse;
        }
    }

    /// Ends the credit of a packet that has been written.
    pub(crate) fn end_packet(&mut self) {
        if self.credit == Credit::InUse {
            self.credit = Credit::No;
        }
    }

    /// Processes a SACK.
    pub(crate) fn on_acks(&mut self, acks: &PathAcks, seen: &Seen) -> Outcome {
        self.round += u64::from(acks.round_over);
        self.reorder_at = acks.lost.next_at;
        let undone = self.undo(acks);
        if acks.newest_sent_at.is_some_and(|newest| newest >= self.congested_at) {
            self.in_recovery = false;
            self.prr = None;
        }
        let in_recovery = self.in_recovery;
        let mut outcome = self.on_losses(&acks.lost, seen);
        outcome.undone = undone;
        if acks.probe_mended && !outcome.recovery_began && !self.in_recovery {
            outcome.recovery_began = self.congested(seen);
            self.given_up = 1;
        }
        if acks.bytes > 0 {
            self.probe = TailProbe::None;
            self.on_delivered(acks, seen, in_recovery);
        }
        self.update_window();
        outcome
    }

    fn on_delivered(&mut self, acks: &PathAcks, seen: &Seen, in_recovery: bool) {
        if let Some(prr) = &mut self.prr {
            prr.on_ack(acks.bytes, seen.flight);
        }
        let rtt = acks.newest.map(|n| n.1);
        let Some(srtt) = seen.srtt.or(rtt) else { return };
        self.control.on_ack(&Ack {
            now: seen.now,
            bytes: acks.bytes,
            flight: seen.flight,
            lost: acks.lost.bytes,
            window_was_full: self.full_in.is_some_and(|round| round + 1 >= self.round),
            in_recovery: in_recovery || self.in_recovery,
            cumulative_advanced: seen.cumulative_advanced,
            rtt,
            srtt,
            round_over: acks.round_over,
            rate: acks.rate,
        });
        // In the first round trip of a takeover, the acknowledged data had reached the peer on another path. Therefore
        // the acknowledgements must not change the pace.
        if !self.takes_over() {
            self.pacer.set_rate(self.pacing_rate(srtt), self.mtu, seen.now);
        }
    }

    /// Undoes the last reduction if all chunks that were given up have arrived, or if a timeout was spurious. The rules
    /// are those of RFC 5682, RFC 3522, and RFC 3708 (duplicates reported in SACKs).
    fn undo(&mut self, acks: &PathAcks) -> bool {
        self.spurious += acks.spurious;
        let all = self.given_up > 0 && self.spurious >= self.given_up;
        if !all && !acks.timeout_was_spurious {
            return false;
        }
        (self.given_up, self.spurious) = (0, 0);
        self.in_recovery = false;
        self.prr = None;
        self.control.on_spurious();
        true
    }

    /// Handles chunks that were given up. Only chunks sent after congestion was last noticed indicate new congestion
    /// (RFC 9260 section 7.2.4).
    pub(crate) fn on_losses(&mut self, lost: &Losses, seen: &Seen) -> Outcome {
        if lost.chunks == 0 {
            return Outcome::default();
        }
        //= rfc9260#7.2.4-5
        let is_news = self.congested_at == Time::NEVER || lost.newest >= self.congested_at;
        let recovery_began = is_news && self.congested(seen);
        self.given_up += lost.chunks;
        self.update_window();
        Outcome { recovery_began, undone: false }
    }

    /// Reports new congestion to the controller. Returns whether the controller reduced its window.
    fn congested(&mut self, seen: &Seen) -> bool {
        self.congested_at = seen.now;
        (self.given_up, self.spurious) = (0, 0);
        let reduced = self.control.on_congestion(seen.now);
        if reduced {
            self.in_recovery = true;
            let flight = seen.flight_before.max(seen.flight);
            self.prr = Some(Prr::new(flight, seen.flight, self.control.cwnd(), self.mtu));
        }
        reduced
    }

    /// Handles expiry of T3. `given_up` is the number of chunks that this expiry gave up.
    pub(crate) fn on_timeout(&mut self, given_up: usize, now: Time) {
        self.control.on_timeout();
        self.congested_at = now;
        self.in_recovery = false;
        self.prr = None;
        (self.given_up, self.spurious) = (given_up, 0);
        self.update_window();
    }

    /// Stops the timers once nothing is in flight.
    pub(crate) fn stop_timers(&mut self) {
        self.probe_at = None;
        self.reorder_at = None;
        self.probe = TailProbe::None;
    }

    /// Arms the tail-loss probe after data was sent or acknowledged. The probe is due after two round trips (RFC 8985
    /// section 7.2). If only one packet is in flight, the peer's ack delay is added.
    pub(crate) fn arm_probe(
        &mut self,
        srtt: Option<Duration>,
        flight: usize,
        ack_delay: Duration,
        now: Time,
    ) {
        let Some(srtt) = srtt.filter(|_| flight > 0 && self.probe == TailProbe::None) else {
            self.probe_at = None;
            return;
        };
        let delay = if flight <= self.mtu { ack_delay } else { Duration::ZERO };
        self.probe_at = Some(now + (srtt * 2 + delay).max(MIN_PROBE_TIMEOUT));
    }

    /// Arms the timer for the repetition of a chunk on another path, which replaces the tail-loss probe. `at` is the
    /// time of expiry, or `None` if no data is in flight. If the cause of the call is that data was sent (`was_sent`),
    /// a running timer is not postponed.
    pub(crate) fn arm_doubt(&mut self, at: Option<Time>, was_sent: bool) {
        let at = at.filter(|_| self.probe == TailProbe::None);
        if at.is_none() || self.probe_at.is_none() || !was_sent {
            self.probe_at = at;
        }
    }

    /// Returns the silence after which a chunk is repeated on another path. The result is the longer of two times:
    /// twice the shortest round trip `least`, and one and a half smoothed round trips `srtt` plus the peer's ack delay.
    /// The half round trip allows for other delays. It is enough because a needless repetition costs only one packet.
    /// If the peer acknowledges single packets, `srtt` already includes the ack delay.
    pub(crate) fn patience(srtt: Duration, least: Duration, ack_delay: Duration) -> Duration {
        (least * 2).max(srtt * 3 / 2 + ack_delay).max(MIN_PROBE_TIMEOUT)
    }

    /// Permits the next tail-loss probe after an answer.
    pub(crate) fn on_probe_answered(&mut self) {
        self.probe = TailProbe::None;
    }

    /// Records that the tail-loss probe is due. The next probe follows only after an answer.
    pub(crate) fn on_probe_timeout(&mut self) {
        self.probe_at = None;
        self.probe = TailProbe::Unanswered;
    }

    /// Returns whether a tail-loss probe has been sent, and no answer has arrived since.
    pub(crate) fn is_probing(&self) -> bool {
        self.probe == TailProbe::Unanswered
    }

    /// Handles an answered HEARTBEAT. The answer proves that the path works, but the data in flight may still be lost.
    pub(crate) fn on_heartbeat_answered(&mut self) {
        if self.is_probing() {
            self.probe = TailProbe::Heard;
        }
    }

    /// Handles an expiry of T3. Returns whether a HEARTBEAT was answered after the tail-loss probe, and this is the
    /// first expiry since the answer.
    pub(crate) fn on_t3_after_heartbeat(&mut self) -> bool {
        let is_heard = self.probe == TailProbe::Heard;
        if is_heard {
            self.probe = TailProbe::Expired;
        }
        is_heard
    }

    /// Permits the next packet to exceed the window.
    pub(crate) fn grant_packet(&mut self) {
        self.credit = Credit::OnePacket;
    }

    /// Reduces the window because a packet was marked, or because a queue in this host is long. No chunk was given up,
    /// so the reduction is never undone.
    pub(crate) fn on_marked(&mut self, seen: &Seen) {
        self.control.on_mark(seen.now);
        if self.in_recovery {
            return;
        }
        self.congested(seen);
        self.update_window();
    }

    /// Undoes the last reduction, because the lost packets were too long for the path's MTU.
    pub(crate) fn on_black_hole(&mut self) {
        (self.given_up, self.spurious) = (0, 0);
        self.in_recovery = false;
        self.prr = None;
        self.control.on_spurious();
        self.update_window();
    }

    /// Handles a pause in sending that lasted `rtos` retransmission timeouts.
    pub(crate) fn on_idle(&mut self, rtos: u32) {
        self.control.on_idle(rtos, usize::from(self.initial_packets) * self.mtu);
        self.update_window();
    }

    /// Handles a change of the maximum packet length to `mtu` bytes.
    pub(crate) fn on_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.control.on_mtu(mtu);
        self.update_window();
    }

    /// If the pacer's wait has reached its end, ends the wait.
    pub(crate) fn expire_pacing(&mut self, now: Time) {
        self.pacer.expire(now);
    }

    /// Returns the time of the next timer expiry of this path.
    pub(crate) fn next_timeout(&self) -> Time {
        let or_never = |at: Option<Time>| at.unwrap_or(Time::NEVER);
        or_never(self.probe_at).min(or_never(self.reorder_at)).min(or_never(self.pacer.release_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 1000;
    const MS: fn(u64) -> Time = Time::from_millis;

    fn sending() -> Sending {
        Sending::new(CongestionAlgorithm::Rfc9260, MTU)
    }

    fn seen(now: u64, flight_before: usize, flight: usize) -> Seen {
        let srtt = Some(Duration::from_millis(100));
        Seen { now: MS(now), flight_before, flight, cumulative_advanced: true, srtt }
    }

    fn losses(chunks: usize, newest: u64) -> Losses {
        Losses { chunks, bytes: chunks * MTU, again: 0, newest: MS(newest), next_at: None }
    }

    #[test]
    fn the_initial_window_can_be_raised_but_not_lowered_and_not_after_congestion() {
        for algorithm in
            [CongestionAlgorithm::Rfc9260, CongestionAlgorithm::Cubic, CongestionAlgorithm::LossTolerant]
        {
            let mut s = Sending::new(algorithm, MTU);
            let first = s.window;
            s.begin_with(1, false);
            assert_eq!(s.window, first, "{algorithm:?}");
            s.begin_with(10, false);
            assert_eq!(s.window, 10 * MTU, "{algorithm:?}");
            s.on_timeout(1, MS(1000));
            s.begin_with(10, true);
            assert_eq!(s.window, MTU, "{algorithm:?}");
        }
    }

    #[test]
    //= rfc9260#7.2.4-5
    fn only_losses_of_data_sent_after_a_recovery_began_begin_another_recovery() {
        let mut s = sending();
        assert!(s.on_losses(&losses(1, 50), &seen(100, 4000, 3000)).recovery_began);
        assert!(!s.on_losses(&losses(3, 99), &seen(150, 3000, 1000)).recovery_began);
        assert!(s.on_losses(&losses(1, 100), &seen(200, 3000, 1000)).recovery_began);
    }

    #[test]
    fn a_recovery_is_undone_when_all_that_was_given_up_has_arrived_and_not_before() {
        let mut s = sending();
        let before = s.cwnd();
        s.control.on_ack(&super::super::congestion::testing::full(MS(0), 20_000));
        s.full_in = Some(0);
        let grown = s.cwnd().max(before);
        s.on_losses(&losses(2, 50), &seen(100, 10_000, 8000));
        assert!(s.cwnd() <= grown);
        let reduced = s.cwnd();
        let one = PathAcks { spurious: 1, ..PathAcks::default() };
        assert!(!s.on_acks(&one, &seen(110, 8000, 8000)).undone);
        assert_eq!(s.cwnd(), reduced);
        assert!(s.on_acks(&one, &seen(120, 8000, 8000)).undone);
        assert_eq!((s.cwnd(), s.window), (grown, grown));
    }

    #[test]
    fn a_tail_loss_probe_is_due_after_two_srtt_plus_the_sack_delay_if_one_packet_is_out() {
        let (srtt, delay) = (Some(Duration::from_millis(100)), Duration::from_millis(200));
        let mut s = sending();
        s.arm_probe(srtt, MTU + 1, delay, MS(0));
        assert_eq!(s.probe_at, Some(MS(200)));
        s.arm_probe(srtt, MTU, delay, MS(0));
        assert_eq!(s.probe_at, Some(MS(400)));
        s.arm_probe(srtt, 0, delay, MS(0));
        assert_eq!(s.probe_at, None);
        s.arm_probe(None, MTU, delay, MS(0));
        assert_eq!(s.probe_at, None, "the first round trip is not known");
    }

    #[test]
    fn there_is_no_second_probe_before_something_is_heard() {
        let (srtt, delay) = (Some(Duration::from_millis(100)), Duration::ZERO);
        let mut s = sending();
        s.on_probe_timeout();
        s.arm_probe(srtt, MTU, delay, MS(0));
        assert_eq!(s.probe_at, None);
        s.on_acks(&PathAcks { bytes: 1, ..PathAcks::default() }, &seen(10, MTU, MTU));
        s.arm_probe(srtt, MTU, delay, MS(10));
        assert_eq!(s.probe_at, Some(MS(210)));
    }

    #[test]
    //= rfc9260#6.1-11
    fn after_a_loss_a_packet_may_exceed_the_window_in_part_except_with_cubic() {
        for (algorithm, may_be_passed) in
            [(CongestionAlgorithm::Rfc9260, true), (CongestionAlgorithm::Cubic, false)]
        {
            let mut s = Sending::new(algorithm, MTU);
            s.on_losses(&losses(1, 50), &seen(100, 4000, 3000));
            s.prr = None;
            s.update_window();
            s.window = 4 * MTU;
            assert!(s.has_window(3 * MTU));
            assert_eq!(s.has_window(3 * MTU + 1), may_be_passed, "{algorithm:?}");
            assert!(!s.has_window(4 * MTU));
            s.window = MTU - 1;
            assert!(s.has_window(0));
        }
    }

    #[test]
    //= rfc9260#6.1-10 6.1-17
    fn a_granted_packet_passes_a_full_window_and_the_next_one_does_not() {
        let mut s = sending();
        let full = s.cwnd();
        assert!(!s.allows(full));
        s.grant_packet();
        assert!(s.allows(full));
        s.on_sent(500);
        assert!(s.allows(full), "the packet may hold more chunks");
        s.end_packet();
        assert!(!s.allows(full));
    }
}
