//! Heartbeats of one path (RFC 9260 section 8.3): the time of the next heartbeat, and the heartbeat that
//! awaits its answer. Start at [`Path::poll_heartbeat`].

use std::time::Duration;

use base::Time;

use super::{Path, Returned, Vouching, watch};
use crate::config::{Heartbeats, Timing};
use crate::info::PathState;
use crate::random::Random;

/// Time for which nearly all NATs keep an idle UDP mapping, minus a margin. RFC 4787 section 4.3, REQ-5,
/// requires two minutes or more, but many NATs keep a mapping for only 30 s.
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

/// Number of retransmissions of one HEARTBEAT after which [`Path::repeat_heartbeat`] permits no further
/// retransmission. [`Path::poll_heartbeat`] has no such limit.
const REPEATS_MAX: u8 = 2;

impl Probe {
    /// Returns the time at which the heartbeat counts as lost.
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Returns the time of the heartbeat's next timer: the deadline. If a retransmission is due, returns a
    /// past time instead, so the timer expires at once.
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
    /// Returns the nonce of a heartbeat or of a retransmission that is due; `None` if neither is due.
    ///
    /// If `data_proves` is set and data is in flight on an active path, a due heartbeat is omitted, because
    /// acknowledgements of the data prove the path. In three cases, no heartbeat is omitted: the path is
    /// silent, the path is in doubt, or short packets do not prove the path ([`Path::doubt_least_mtu`]).
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
        // Timeouts of data in flight back the RTO off. On a silent path, the heartbeat's deadline ignores the
        // back-off, because the path may work again at any moment.
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

    /// Handles a HEARTBEAT ACK with `nonce`; returns whether the chunk answers this path's outstanding
    /// heartbeat.
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

    /// Moves each deadline for an answer to `until`, if the deadline is earlier. The deadlines are T3, the
    /// end of a doubt, and the heartbeat's deadline. After a call has moved a deadline, further calls have no
    /// effect until the path answers.
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
        // While data is in flight, T3 backs the RTO off. A lost heartbeat must not back the RTO off as well.
        if self.t3.is_none() {
            self.rto.on_timeout(timing);
        }
        // After a lost heartbeat, the next heartbeat is due at once, so the path is probed once per RTO. RFC
        // 9260 section 5.4 and RFC 7829 section 3 require this pace for unconfirmed and potentially failed
        // paths. If the path has failed, or the error of this lost heartbeat makes it fail, the next heartbeat
        // waits for the regular interval.
        let is_off = self.options.heartbeats == Heartbeats::Off && self.confirmed;
        if is_off || matches!(self.state, PathState::Inactive) || self.errors >= self.max_retrans(timing) {
            self.schedule_heartbeat(now, timing, random);
        } else {
            //= rfc7829#3.2-11
            self.next_heartbeat = now;
        }
        true
    }

    /// Requests a heartbeat at once, unless a heartbeat is outstanding. Does nothing if the settings forbid
    /// heartbeats and the path is confirmed.
    pub(crate) fn probe_now(&mut self, now: Time) {
        if self.options.heartbeats != Heartbeats::Off || !self.confirmed {
            self.request_heartbeat(now);
        }
    }

    /// Does the same as [`probe_now`](Self::probe_now), but if a heartbeat is outstanding, requests its
    /// retransmission at once.
    pub(crate) fn probe_again(&mut self, now: Time) {
        self.ask_again_after(Duration::ZERO, now);
    }

    /// Handles the loss of data that may have left in a packet of about the least MTU or longer. From now on,
    /// only heartbeats of the least MTU prove the path. Therefore drops an outstanding heartbeat, and
    /// requests a new one. Does nothing if the settings forbid heartbeats, or if [`Pmtu`](crate::path::Pmtu)
    /// does not begin to doubt the least MTU.
    pub(crate) fn doubt_least_mtu(&mut self, now: Time) {
        if self.options.heartbeats != Heartbeats::Off && self.pmtu.doubt_least() {
            self.probe = None;
            self.probe_now(now);
        }
    }

    /// Does the same as [`ask_again_after`](Self::ask_again_after), with the RTO without back-off as the
    /// patience. After failures, the deadline of an outstanding heartbeat may be seconds away, because the
    /// deadline includes the back-off.
    pub(crate) fn ask_again(&mut self, now: Time, timing: &Timing) -> bool {
        self.ask_again_after(self.rto_without_back_off(timing), now)
    }

    /// Requests a heartbeat at once. If a heartbeat is outstanding, requests its retransmission instead,
    /// unless its last transmission was less than `patience` ago. Does nothing if the settings forbid
    /// heartbeats and the path is confirmed. Returns whether the call has made a heartbeat or a
    /// retransmission due.
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

    /// Requests a heartbeat at once, even if the settings forbid heartbeats. A retired path gets no
    /// heartbeat. If a heartbeat is outstanding, the request has no effect.
    pub(crate) fn request_heartbeat(&mut self, now: Time) {
        if !self.retired {
            self.next_heartbeat = self.next_heartbeat.min(now);
        }
    }

    /// Returns whether a transmission of the outstanding HEARTBEAT had the nonce `nonce`.
    pub(crate) fn is_asked(&self, nonce: u64) -> bool {
        self.probe.is_some_and(|p| p.has(nonce))
    }

    /// Records a retransmission of the outstanding HEARTBEAT, starts its deadline anew, and returns the
    /// retransmission's nonce. Returns `None` if no HEARTBEAT is outstanding, or if [`REPEATS_MAX`] permits
    /// no retransmission. A HEARTBEAT is repeated because the peer may not have had the path's remote address
    /// yet when the earlier transmissions arrived.
    pub(crate) fn repeat_heartbeat(&mut self, now: Time) -> Option<u64> {
        let deadline = now + self.rto();
        let probe = self.probe.as_mut().filter(|p| p.repeats < REPEATS_MAX)?;
        probe.deadline = deadline;
        Some(probe.repeat(now))
    }

    /// Starts a voucher: a second HEARTBEAT for this new path, which the caller sends on a confirmed path
    /// ([`Vouching`]). Returns the voucher's nonce. `by` is the confirmed path's RTO. After a pause, this
    /// path gets a new heartbeat.
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

    /// Requests a heartbeat at once, because the path's link has come up again. Drops an outstanding
    /// heartbeat, which may have been lost before the link came up. The back-off of the RTO ends.
    pub(crate) fn ask_anew(&mut self, now: Time, timing: &Timing) {
        self.probe = None;
        self.rto.on_new_timing(timing);
        self.request_heartbeat(now);
    }

    /// Returns whether NATs on the path can be assumed to have the path's mapping. A NAT without the mapping
    /// can answer in the peer's name. The path must be confirmed, and the age of the last packet that arrived
    /// on the path must be below a limit. The limit is the larger of [`NAT_MEMORY`] and two intervals between
    /// heartbeats. If no heartbeats are sent, the age does not matter.
    pub(crate) fn is_known_to_nats(&self, now: Time, timing: &Timing) -> bool {
        let rto = self.rto_without_back_off(timing);
        // A spare path may have a longer interval, which need not keep a mapping alive. The limit ignores it.
        let limit = self.usual_heartbeat_pause(timing).map(|pause| NAT_MEMORY.max(2 * (pause + rto)));
        self.confirmed && limit.is_none_or(|limit| now - self.heard < limit)
    }

    /// Returns the interval between heartbeats of an idle path, without the RTO. Returns `None` if no
    /// heartbeats are sent.
    pub(super) fn heartbeat_pause(&self, timing: &Timing) -> Option<Duration> {
        let pause = self.usual_heartbeat_pause(timing)?;
        let may_be_rare = self.is_spare && self.state == PathState::Active && !self.watch.is_on();
        Some(if may_be_rare { self.usage.heartbeat(pause) } else { pause })
    }

    /// Does the same as [`heartbeat_pause`](Self::heartbeat_pause), but ignores the longer interval that the
    /// uses of the addresses may give a spare path.
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

    /// Schedules the next heartbeat. The time from now is the interval plus the RTO with jitter. If no
    /// heartbeats are sent, schedules none.
    pub(super) fn schedule_heartbeat(&mut self, now: Time, timing: &Timing, random: &mut Random) {
        let pause = self.heartbeat_pause(timing);
        //= rfc9260#8.3-13
        self.next_heartbeat = pause.map_or(Time::NEVER, |pause| now + pause + random.jitter(self.rto()));
    }
}
