//! Heartbeats of one path (RFC 9260 section 8.3): the time of the next heartbeat, and the heartbeat that
//! awaits its answer. Start at [`Path::poll_heartbeat`].

use std::time::Duration;

use base::Time;

use super::{Path, Returned, Vouching, watch};
use crate::config::{Heartbeats, Timing};
use crate::info::PathState;
use crate::random::Random;

/// Time for which usual NATs keep a UDP mapping, minus a margin. RFC 4787 section 4.3, REQ-5, requires two
/// minutes, but NATs that keep a mapping for only half a minute are not rare.
const NAT_MEMORY: Duration = Duration::from_secs(25);

/// A heartbeat that was sent and not yet answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// Nonce of the first HEARTBEAT. Each retransmission before the deadline has the next number.
    nonce: u64,
    /// Time of the last transmission.
    sent_at: Time,
    /// Time at which the heartbeat counts as lost.
    deadline: Time,
    /// Number of retransmissions.
    repeats: u8,
    /// True if a retransmission is due.
    is_due_again: bool,
}

/// Number of retransmissions of one HEARTBEAT after which [`Path::repeat_heartbeat`] sends no further
/// retransmission.
const REPEATS_MAX: u8 = 2;

impl Probe {
    /// Returns the time at which the heartbeat counts as lost.
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Returns the time at which the heartbeat's retransmission is due or, without a due retransmission, the
    /// deadline.
    pub(super) fn next_timeout(&self) -> Time {
        if self.is_due_again { self.sent_at } else { self.deadline }
    }

    /// Records a retransmission and returns its nonce. The deadline does not change.
    fn repeat(&mut self, now: Time) -> u64 {
        self.is_due_again = false;
        self.repeats = self.repeats.saturating_add(1);
        self.sent_at = now;
        self.last_nonce()
    }

    fn last_nonce(&self) -> u64 {
        self.nonce.wrapping_add(self.repeats.into())
    }

    /// Returns whether one of the heartbeat's transmissions had the nonce `nonce`.
    fn has(&self, nonce: u64) -> bool {
        nonce.wrapping_sub(self.nonce) <= self.repeats.into()
    }
}

impl Path {
    /// Returns the nonce of a heartbeat that is due. If `data_proves` is set and data is in flight on an active
    /// path, acknowledgements of the data prove the path, and no heartbeat is due. A silent or doubted path
    /// still needs heartbeats, because data without acknowledgements proves nothing.
    //= rfc9260#8.3-1
    //= rfc7829#3.2-12
    //= rfc9260#8.3-1
    pub(crate) fn poll_heartbeat(
        &mut self,
        now: Time,
        data_proves: bool,
        timing: &Timing,
        random: &mut Random,
    ) -> Option<u64> {
        let is_silent = timing.doubts_silence && self.is_silent();
        // Timeouts of data in flight back the RTO off. A silent path may work again at any moment, so the
        // heartbeat's deadline ignores the back-off.
        let patience = if is_silent { self.rto_without_back_off(timing) } else { self.rto() };
        if let Some(probe) = &mut self.probe {
            if is_silent && probe.is_due_again {
                probe.deadline = now + patience;
            }
            return probe.is_due_again.then(|| probe.repeat(now));
        }
        if now < self.next_heartbeat {
            return None;
        }
        let is_certain = !is_silent && self.doubt.is_none() && self.pmtu.size_that_proves().is_none();
        if data_proves && self.t3.is_some() && self.state == PathState::Active && is_certain {
            self.schedule_heartbeat(now, timing, random);
            return None;
        }
        let (nonce, deadline) = (random.u64(), now + patience);
        self.probe = Some(Probe { nonce, sent_at: now, deadline, repeats: 0, is_due_again: false });
        Some(nonce)
    }

    /// Returns the time since the last transmission of the outstanding HEARTBEAT, if this transmission had the
    /// nonce `nonce`.
    pub(crate) fn round_trip(&self, nonce: u64, now: Time) -> Option<Duration> {
        self.probe.filter(|probe| probe.last_nonce() == nonce).map(|probe| now - probe.sent_at)
    }

    /// Handles a HEARTBEAT ACK with `nonce`; returns whether it answers a heartbeat of this path.
    pub(crate) fn on_heartbeat_ack(
        &mut self,
        nonce: u64,
        now: Time,
        timing: &Timing,
        random: &mut Random,
    ) -> bool {
        if !self.is_asked(nonce) {
            return false;
        }
        if let Some(rtt) = self.round_trip(nonce, now) {
            //= rfc9260#8.3-12
            self.rto.on_sample(rtt, timing);
        }
        self.probe = None;
        self.pmtu.on_least_proven();
        self.schedule_heartbeat(now, timing, random);
        true
    }

    /// Postpones to `until` all deadlines for answers that lie before `until`. After a postponement, further
    /// calls have no effect until the path answers.
    pub(crate) fn put_off(&mut self, until: Time) {
        if self.is_put_off {
            return;
        }
        let t3 = self.t3.as_mut();
        let doubt = self.doubt.as_mut().map(|doubt| &mut doubt.judge_at);
        let probe = self.probe.as_mut().map(|probe| &mut probe.deadline);
        let early = [t3, doubt, probe].into_iter().flatten().filter(|at| **at < until);
        self.is_put_off = early.map(|at| *at = until).count() > 0;
    }

    /// Handles an overdue heartbeat; returns whether a heartbeat was overdue.
    pub(crate) fn expire_heartbeat(&mut self, now: Time, timing: &Timing, random: &mut Random) -> bool {
        if self.probe.is_none_or(|p| p.deadline > now) {
            return false;
        }
        self.probe = None;
        if self.returned != Returned::No {
            self.returned = Returned::AskedInVain;
        }
        // While data is in flight, T3 backs the RTO off. A heartbeat must not back the RTO off a second time.
        if self.t3.is_none() {
            self.rto.on_timeout(timing);
        }
        // Unconfirmed and potentially failed paths are probed once per RTO (RFC 9260 section 5.4, RFC 7829
        // section 3).
        let is_off = self.options.heartbeats == Heartbeats::Off && self.confirmed;
        if is_off || matches!(self.state, PathState::Inactive) || self.errors >= self.max_retrans(timing) {
            self.schedule_heartbeat(now, timing, random);
        } else {
            //= rfc7829#3.2-11
            self.next_heartbeat = now;
        }
        true
    }

    /// Requests a heartbeat at once because the path has become doubtful. Does nothing if the settings forbid
    /// heartbeats and the path is confirmed.
    pub(crate) fn probe_now(&mut self, now: Time) {
        if self.options.heartbeats != Heartbeats::Off || !self.confirmed {
            self.request_heartbeat(now);
        }
    }

    /// Requests a heartbeat at once. If a heartbeat is outstanding, it is repeated.
    pub(crate) fn probe_again(&mut self, now: Time) {
        self.ask_again_after(Duration::ZERO, now);
    }

    /// Handles loss of data in packets of about the least MTU or more. From now on, short heartbeats no longer
    /// prove the path, so an outstanding heartbeat is dropped.
    pub(crate) fn doubt_least_mtu(&mut self, now: Time) {
        if self.options.heartbeats != Heartbeats::Off && self.pmtu.doubt_least() {
            self.probe = None;
            self.probe_now(now);
        }
    }

    /// Requests a heartbeat at once. If the outstanding heartbeat has waited longer than the RTO without
    /// back-off, it is repeated, because its deadline may be seconds away after failures. Returns whether a
    /// heartbeat was requested or repeated.
    pub(crate) fn ask_again(&mut self, now: Time, timing: &Timing) -> bool {
        self.ask_again_after(self.rto_without_back_off(timing), now)
    }

    /// Requests a heartbeat at once. If an outstanding heartbeat was last transmitted at least `patience` ago,
    /// it is repeated. Returns whether a heartbeat was requested or repeated.
    pub(super) fn ask_again_after(&mut self, patience: Duration, now: Time) -> bool {
        if self.options.heartbeats == Heartbeats::Off && self.confirmed {
            return false;
        }
        match &mut self.probe {
            Some(probe) => {
                let is_late = !probe.is_due_again && now - probe.sent_at >= patience;
                probe.is_due_again |= is_late;
                is_late
            }
            None => {
                let is_early = self.next_heartbeat > now;
                self.request_heartbeat(now);
                is_early
            }
        }
    }

    /// Requests a heartbeat at once, whatever the settings are.
    pub(crate) fn request_heartbeat(&mut self, now: Time) {
        if !self.retired {
            self.next_heartbeat = self.next_heartbeat.min(now);
        }
    }

    /// Returns whether a transmission of the outstanding HEARTBEAT had the nonce `nonce`.
    pub(crate) fn is_asked(&self, nonce: u64) -> bool {
        self.probe.is_some_and(|p| p.has(nonce))
    }

    /// Returns the nonce for a repetition of the outstanding HEARTBEAT, if the limit [`REPEATS_MAX`] permits
    /// one. The repetition serves a peer that could not answer the earlier transmissions.
    pub(crate) fn repeat_heartbeat(&mut self, now: Time) -> Option<u64> {
        let deadline = now + self.rto();
        let probe = self.probe.as_mut().filter(|p| p.repeats < REPEATS_MAX)?;
        probe.deadline = deadline;
        Some(probe.repeat(now))
    }

    /// Starts a request to a confirmed path to vouch for this path; returns the request's nonce. `by` is the
    /// confirmed path's RTO. If no answer arrives, this path gets a new heartbeat after a pause.
    pub(crate) fn ask_voucher(
        &mut self,
        by: Duration,
        now: Time,
        timing: &Timing,
        random: &mut Random,
    ) -> u64 {
        let (nonce, tries) = self.vouching.ask(random);
        let pause = Vouching::pause(tries, self.rto().max(by), timing.heartbeat_interval);
        self.next_heartbeat = now + pause;
        nonce
    }

    /// Requests a heartbeat at once. Drops an outstanding heartbeat, because the peer could not answer that
    /// heartbeat.
    pub(crate) fn ask_anew(&mut self, now: Time, timing: &Timing) {
        self.probe = None;
        self.rto.on_new_timing(timing);
        self.request_heartbeat(now);
    }

    /// Returns whether NATs on the path still have its mapping. A NAT without the mapping can answer in the
    /// peer's name. The path must be confirmed, and its last packet must have arrived within a limit. The limit
    /// is [`NAT_MEMORY`] or, if they are longer, two intervals between heartbeats. If no heartbeats are sent,
    /// the age of the last packet does not matter.
    pub(crate) fn is_known_to_nats(&self, now: Time, timing: &Timing) -> bool {
        let rto = self.rto_without_back_off(timing);
        // The limit ignores the longer interval of a spare path, which may be too long to keep a mapping alive.
        let limit = self.usual_heartbeat_pause(timing).map(|pause| NAT_MEMORY.max(2 * (pause + rto)));
        self.confirmed && limit.is_none_or(|limit| now - self.heard < limit)
    }

    /// Returns the interval between heartbeats of an idle path, without the RTO; `None` if no heartbeats are
    /// sent.
    pub(super) fn heartbeat_pause(&self, timing: &Timing) -> Option<Duration> {
        let pause = self.usual_heartbeat_pause(timing)?;
        let may_be_rare = self.is_spare && self.state == PathState::Active && !self.watch.is_on();
        Some(if may_be_rare { self.usage.heartbeat(pause) } else { pause })
    }

    /// Returns the interval between heartbeats of an idle path, without regard to the uses of the path's
    /// addresses.
    fn usual_heartbeat_pause(&self, timing: &Timing) -> Option<Duration> {
        let pause = match self.options.heartbeats {
            Heartbeats::AsAssociation => timing.heartbeat_interval,
            Heartbeats::Every(interval) => interval,
            //= rfc7829#3.2-13
            Heartbeats::Off if self.confirmed => return None,
            Heartbeats::Off => timing.heartbeat_interval,
        };
        Some(if self.watch.is_on() { pause / watch::PACE } else { pause })
    }

    /// Schedules the next heartbeat, after the interval and the RTO with jitter.
    pub(super) fn schedule_heartbeat(&mut self, now: Time, timing: &Timing, random: &mut Random) {
        let pause = self.heartbeat_pause(timing);
        //= rfc9260#8.3-13
        self.next_heartbeat = pause.map_or(Time::NEVER, |pause| now + pause + random.jitter(self.rto()));
    }
}
