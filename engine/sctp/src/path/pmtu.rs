//! Search for the MTU of one path by probes (DPLPMTUD, RFC 8899 section 6.2). The state is the size in use, the next size to
//! try, and doubts about the size in use.
//!
//! This module neither sends nor reads packets. A *trial* is a probe of one size (HEARTBEAT and PAD), directly followed by a
//! short HEARTBEAT, its companion. If only the companion is answered, the probe was lost because of its size or by chance.
//! The companion's answer reports this loss without a long timer.
//!
//! If data was not acknowledged in time, but T3 has not expired, a companion leaves alone at first: the trial *asks*. If the
//! data waits in a long queue, the data is acknowledged before the companion is answered, and no probe takes room in the
//! queue.
//!
//! Trials do not affect congestion control. Sizes are bytes of an IP packet. Invariants: `least` ≤ `current` ≤ `ceiling`; at
//! most one trial is outstanding. Start at [`Pmtu::suspect`], [`Pmtu::poll`] and [`Pmtu::on_answer`]. ADR 0007 explains why
//! a path starts at its link's MTU.

use std::net::IpAddr;
use std::time::Duration;

use base::Time;

use crate::random::Random;

/// Limit on the initial size: the MTU of Ethernet. Larger sizes must be proven first.
const START_MAX: u16 = 1500;

/// Number of lost probes of one size after which this size counts as too large (RFC 8899 section 5.1.2).
const MAX_PROBES: u8 = 3;

/// Minimum time for a probe's answer. RFC 8899 section 5.1.1: "This value MUST NOT be smaller than 1 second".
const PROBE_TIMER_MIN: Duration = Duration::from_secs(1);

/// Pause of the search before larger sizes are tried again (RFC 8899 section 5.1.1).
//= rfc8899#5.1.1-2 5.2-1
const RAISE_TIMER: Duration = Duration::from_secs(600);

/// Longest pause between unanswered trials.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Number of lost probes after which the base size counts as too large. Two lost probes suffice, because a larger size has
/// just proven too large.
const BASE_PROBES: u8 = 2;

/// Number of T3 timeouts after which one lost probe is sufficient proof. An acknowledgement of a long packet restarts the
/// count.
const CERTAIN_TIMEOUTS: u8 = 2;

/// Number of T3 timeouts after which even a trusted size is doubted. A size is trusted for some time after it was proven.
const TIMEOUTS_AGAINST_TRUST: u8 = 2;

/// Number of consecutive needless doubts after which trust grows no further. At this number, a trust of two round trips has
/// become a trust of 128 round trips.
const NEEDLESS_MAX: u8 = 6;

/// Maximum duration of the trust in a size after a needless doubt.
const TRUST_MAX: Duration = Duration::from_secs(30);

/// Minimum grace time: the time by which a probe's answer may lag behind its companion's answer. The grace time is usually a
/// quarter of the round trip.
const GRACE_MIN: Duration = Duration::from_millis(5);

/// MTUs of usual links and tunnels, in ascending order. The search tries them before other sizes.
//= rfc8899#5.3.2-1
const USUAL: [u16; 18] = [
    1280, 1320, 1358, 1380, 1400, 1420, 1440, 1452, 1460, 1472, 1480, 1492, 1500, 2048, 4352, 8160, 9000,
    16_384,
];

/// Purpose of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aim {
    /// Test of a size that is larger than the size in use.
    Larger,
    /// Test of the size in use, which may not work any more. The size has failed after `patience` lost probes.
    Current { patience: u8 },
}

/// Trial: a probe and its companion, which are sent or about to be sent.
#[derive(Clone, Copy, Debug)]
struct Trial {
    aim: Aim,
    size: u16,
    /// Nonce of the probe. Each retransmission of the probe has this nonce, so a late answer counts.
    nonce: u64,
    /// Nonce of the companion.
    companion: u64,
    /// True if the companion leaves without the probe at first. The probe follows after the companion's answer.
    asks: bool,
    /// Time at which the probe is due or, once `is_sent`, counts as lost.
    at: Time,
    is_sent: bool,
    companion_answered: bool,
    /// Number of lost probes.
    lost: u8,
    /// Number of consecutive rounds without any answer.
    silent: u8,
}

impl Trial {
    /// Handles a further doubt about the size in use during a trial of this size. If `asks` is not set, a trial that only
    /// asks now sends the probe.
    fn press(&mut self, patience: u8, asks: bool, now: Time) {
        if let Aim::Current { patience: known } = &mut self.aim {
            *known = patience.min(*known);
        }
        if self.asks && !asks {
            self.asks = false;
            self.is_sent = false;
            self.at = now;
        }
    }
}

/// Request to send a probe and its companion, or the companion alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeProbe {
    /// Length of the probe's IP packet; `None` if only the companion is sent.
    pub(crate) size: Option<u16>,
    pub(crate) nonce: u64,
    pub(crate) companion: u64,
}

/// The MTU of one path.
#[derive(Clone, Debug)]
pub(crate) struct Pmtu {
    /// Least size that every path carries.
    least: u16,
    /// Size that is expected to work everywhere.
    base: u16,
    /// MTU of the link.
    ceiling: u16,
    /// Size in use.
    current: u16,
    /// True if packets of the size in use are known to reach the peer.
    is_proven: bool,
    /// Smallest size known not to work; 0 if no such size is known.
    failed: u16,
    /// Size to try first.
    hint: Option<u16>,
    trial: Option<Trial>,
    /// Time of the next trial of a larger size.
    next_at: Time,
    /// Time before which the size in use is not doubted, because it was proven recently.
    trusted_until: Time,
    /// Number of doubts in quick succession that proved needless. A number above 0 shows that losses on this path have
    /// causes other than size.
    needless: u8,
    /// T3 timeouts since the last acknowledgement of a long packet.
    timeouts: u8,
    /// True if the size in use has just fallen to the base size, which is not yet proven.
    doubts_base: bool,
    /// True if data in packets of about the least size or more was lost with T3, or more than once. While this is true,
    /// short packets prove nothing about the path.
    doubts_least: bool,
    pub(crate) probes_sent: u64,
    pub(crate) probes_lost: u64,
}

impl Pmtu {
    /// Creates the state for a path to `remote` over links with an MTU of `ceiling` bytes.
    //= rfc8899#3-8 3-19
    pub(crate) fn new(remote: IpAddr, ceiling: u16, now: Time) -> Pmtu {
        // RFC 8899 section 5.1.2: MIN_PLPMTU and BASE_PLPMTU.
        //= rfc8899#5.1.2-1
        let (least, base) = if remote.is_ipv4() { (576, 1200) } else { (1280, 1280) };
        let ceiling = ceiling.max(least);
        let current = ceiling.min(START_MAX);
        Pmtu {
            least,
            base,
            ceiling,
            current,
            is_proven: false,
            failed: 0,
            hint: None,
            trial: None,
            next_at: if ceiling > current { now } else { Time::NEVER },
            trusted_until: Time::ZERO,
            needless: 0,
            timeouts: 0,
            doubts_base: false,
            doubts_least: false,
            probes_sent: 0,
            probes_lost: 0,
        }
    }

    /// Returns the size in use.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// Returns whether packets of the size in use are known to reach the peer.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Returns whether the size in use is neither known to work nor under trial.
    #[inline]
    pub(crate) fn wants_proof(&self) -> bool {
        !self.is_proven && self.trial.is_none()
    }

    /// Returns the least size, which every path carries.
    pub(crate) fn least(&self) -> u16 {
        self.least
    }

    /// Returns the base size, which is expected to work everywhere. Losses of packets below the base size raise no doubt.
    pub(crate) fn base(&self) -> u16 {
        self.base
    }

    /// Handles a loss of data in packets of about the least size or more. From now on, only heartbeats of the least size
    /// prove the path. If both the size in use and the base size exceed the least size, the trial of the size in use handles
    /// the loss. This call then has no effect. Returns whether the requirement is new.
    //= rfc8899#4.3-1
    pub(crate) fn doubt_least(&mut self) -> bool {
        let is_least = self.current.min(self.base) <= self.least;
        is_least && !std::mem::replace(&mut self.doubts_least, true)
    }

    /// Returns the size that heartbeats need to prove the path; `None` if any size proves it.
    pub(crate) fn size_that_proves(&self) -> Option<u16> {
        self.doubts_least.then_some(self.least)
    }

    /// Repeats an unanswered trial at once, because the path has recovered.
    pub(crate) fn on_return(&mut self, now: Time) {
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.is_sent && !trial.companion_answered) {
            trial.is_sent = false;
            trial.silent = 0;
            trial.at = now;
        }
    }

    /// Records that a packet of about the least size has arrived.
    pub(crate) fn on_least_proven(&mut self) {
        self.doubts_least = false;
    }

    /// Returns the time at which [`poll`](Self::poll) or [`on_timeout`](Self::on_timeout) is due.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Time {
        self.trial.as_ref().map_or(self.next_at, |trial| trial.at)
    }

    /// Starts a trial of the size in use, because packets may vanish due to their length. `many` is true if more packets
    /// vanished at once than chance or full queues explain. In this case, even a recently proven size is doubted.
    //= rfc8899#3-21
    pub(crate) fn suspect(&mut self, many: bool, now: Time, random: &mut Random) {
        if many || now >= self.trusted_until {
            self.doubt(MAX_PROBES, true, now, random);
        }
    }

    /// Handles an expiry of T3 that declares long packets lost. At the second consecutive expiry, retransmissions have
    /// failed too, so one lost probe is sufficient proof of a black hole (RFC 8899 section 4.3).
    ///
    /// While the size is trusted, two expiries must precede a trial. After needless doubts, the size fails only after
    /// [`MAX_PROBES`] lost probes. The reason: a full queue causes T3 timeouts too, and probes would displace data in the
    /// queue.
    //= rfc8899#4.3-1
    pub(crate) fn on_data_timeout(&mut self, many: bool, now: Time, random: &mut Random) {
        self.timeouts = self.timeouts.saturating_add(1);
        let is_trusted = now < self.trusted_until && !many;
        if is_trusted && self.timeouts < TIMEOUTS_AGAINST_TRUST {
            return;
        }
        let is_certain = !is_trusted && self.needless == 0 && self.timeouts >= CERTAIN_TIMEOUTS;
        self.doubt(if is_certain { 1 } else { MAX_PROBES }, false, now, random);
    }

    fn doubt(&mut self, patience: u8, asks: bool, now: Time, random: &mut Random) {
        if self.current <= self.least {
            return;
        }
        match &mut self.trial {
            Some(trial @ Trial { aim: Aim::Current { .. }, .. }) => trial.press(patience, asks, now),
            _ => self.begin(Aim::Current { patience }, asks, self.current, now, random),
        }
    }

    /// Handles acknowledged data in a packet longer than the base size. `is_full` is true for a packet of maximum length.
    /// Such a packet proves the size in use like an answered probe (RFC 8899 section 4.1: the probe may be data). The proof
    /// ends a doubt.
    pub(crate) fn on_data_acknowledged(&mut self, is_full: bool, srtt: Option<Duration>, now: Time) {
        self.timeouts = 0;
        if !is_full {
            return;
        }
        self.is_proven = true;
        self.doubts_base = false;
        // The trust lasts one round trip, which is shorter than the time after which silence is noticed. Therefore the first
        // silence in a black hole raises a doubt.
        self.trusted_until = self.trusted_until.max(now + srtt.unwrap_or_default());
        if self.trial.is_some_and(|trial| matches!(trial.aim, Aim::Current { .. })) {
            self.trial = None;
            self.trust(srtt, now);
        }
    }

    /// Extends the trust in the size in use after a needless doubt. If a further doubt soon proves needless, the trust
    /// doubles, because losses on this path have causes other than size.
    fn trust(&mut self, srtt: Option<Duration>, now: Time) {
        let trust = (srtt.unwrap_or(GRACE_MIN) * 2 * (1 << self.needless)).min(TRUST_MAX);
        let is_soon = self.trusted_until != Time::ZERO && now < self.trusted_until + trust;
        self.needless = if is_soon { (self.needless + 1).min(NEEDLESS_MAX) } else { 0 };
        self.trusted_until = now + trust;
    }

    /// Returns the next probe, if a probe is due.
    //= rfc9260#7.3-1
    //= rfc6951#5.6-3
    //= rfc9260#7.3-1
    pub(crate) fn poll(&mut self, now: Time, rto: Duration, random: &mut Random) -> Option<SizeProbe> {
        if self.trial.is_none() && std::mem::take(&mut self.doubts_base) {
            let aim = Aim::Current { patience: BASE_PROBES };
            self.begin(aim, false, self.current, now, random);
        }
        if self.trial.is_none() && self.next_at <= now {
            match self.candidate() {
                Some(size) => self.begin(Aim::Larger, false, size, now, random),
                None => self.rest(now),
            }
        }
        let trial = self.trial.as_mut().filter(|t| !t.is_sent && t.at <= now)?;
        trial.is_sent = true;
        trial.companion_answered = false;
        trial.companion = random.u64();
        //= rfc8899#3-12 5.1.1-1
        let patience = rto.max(PROBE_TIMER_MIN) * (1 << trial.silent.min(6));
        trial.at = now + patience.min(PAUSE_MAX);
        let size = (!trial.asks).then_some(trial.size);
        self.probes_sent += u64::from(size.is_some());
        Some(SizeProbe { size, nonce: trial.nonce, companion: trial.companion })
    }

    /// Handles a HEARTBEAT ACK with `nonce`; returns whether it answers a trial.
    //= rfc8899#3-22 3-23
    pub(crate) fn on_answer(&mut self, nonce: u64, srtt: Option<Duration>, now: Time) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        if nonce == trial.nonce {
            let trial = *trial;
            self.on_proven(trial, srtt, now);
            return true;
        }
        if nonce != trial.companion || !trial.is_sent {
            return false;
        }
        let grace = srtt.map_or(GRACE_MIN, |srtt| (srtt / 4).max(GRACE_MIN));
        if std::mem::take(&mut trial.asks) {
            // Short packets reach the peer. If no data is acknowledged within the grace time, the probe follows.
            trial.is_sent = false;
            trial.silent = 0;
            trial.at = now + grace;
            return true;
        }
        trial.companion_answered = true;
        trial.at = trial.at.min(now + grace);
        true
    }

    fn on_proven(&mut self, trial: Trial, srtt: Option<Duration>, now: Time) {
        self.trial = None;
        self.is_proven = true;
        self.timeouts = 0;
        self.doubts_least = false;
        self.trust(srtt, now);
        if trial.aim == Aim::Larger {
            self.current = trial.size.clamp(self.least, self.ceiling);
            self.next_at = now;
        }
        if self.current >= self.ceiling {
            self.next_at = Time::NEVER;
        }
    }

    /// Handles a probe whose answer is overdue.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        let Some(trial) = self.trial.as_mut().filter(|t| t.is_sent && t.at <= now) else { return };
        trial.is_sent = false;
        trial.at = now;
        self.probes_lost += u64::from(!trial.asks);
        //= rfc8899#3-7
        if !trial.companion_answered {
            // Short packets are lost too, so their size is not the cause.
            trial.silent = trial.silent.saturating_add(1);
            if trial.silent >= MAX_PROBES {
                self.give_up(now);
            }
            return;
        }
        trial.lost += 1;
        let trial = *trial;
        match trial.aim {
            Aim::Larger if trial.lost >= MAX_PROBES => self.on_too_large(trial.size, now),
            Aim::Current { patience } if trial.lost >= patience => self.on_black_hole(None, now),
            Aim::Larger | Aim::Current { .. } => {}
        }
    }

    /// Ends a trial without any answer. The path's own timers handle the silence.
    fn give_up(&mut self, now: Time) {
        if let Some(trial) = self.trial.take()
            && trial.aim == Aim::Larger
        {
            self.next_at = now + PAUSE_MAX;
        }
    }

    /// Ends a trial of `size` bytes, because this size is too large. The search continues with smaller sizes.
    fn on_too_large(&mut self, size: u16, now: Time) {
        self.trial = None;
        self.failed = if self.failed == 0 { size } else { self.failed.min(size) };
        self.next_at = now;
    }

    /// Lowers the size in use, because it does not work or works no longer. The size `reported` or, without a report, the
    /// old size is tried next, because the probes may have been lost by chance.
    //= rfc8899#section-4.3
    //# When the method detects that the current PLPMTU is not supported, DPLPMTUD sets a lower PLPMTU and a lower MPS.
    fn on_black_hole(&mut self, reported: Option<u16>, now: Time) {
        self.hint = Some(reported.unwrap_or(self.current));
        let floor_holds = reported.is_none_or(|size| size >= self.base);
        self.current = if floor_holds && self.current > self.base { self.base } else { self.least };
        self.doubts_base = reported.is_none() && self.current > self.least;
        self.trial = None;
        self.is_proven = false;
        self.failed = 0;
        self.next_at = now;
    }

    /// Handles a report, from a router or from this host, that a packet exceeded the MTU `size`. If the packet was a probe,
    /// `nonce` is the probe's nonce.
    //= rfc8899#section-4.6.2
    //# PTB messages that have been validated MAY be utilized by the DPLPMTUD algorithm but MUST NOT be used directly to set
    //# the PLPMTU.
    //= rfc9260#10-6
    //= rfc8899#4.6.2-1
    //= rfc9260#10-6
    pub(crate) fn on_too_big(&mut self, size: u16, nonce: Option<u64>, now: Time) {
        let searching = self.trial.filter(|t| t.aim == Aim::Larger);
        if let Some(trial) = searching.filter(|t| nonce == Some(t.nonce) || size >= self.current) {
            // "PLPMTU < PL_PTB_SIZE < PROBED_SIZE": the reported size is "the next search point".
            //= rfc8899#3-11 6.2.1.4-2
            if size < trial.size {
                self.probes_lost += u64::from(trial.is_sent);
                self.on_too_large(trial.size.min(size.max(self.current) + 1), now);
                self.hint = (size > self.current).then_some(size);
            }
            return;
        }
        // "BASE_PLPMTU <= PL_PTB_SIZE < PLPMTU": the size in use falls to the base, and the reported size is probed. If the
        // reported size is below the base size, the size in use falls to the least size. A reported size below the least
        // size, or not below the size in use, is ignored.
        if (self.least..self.current).contains(&size) {
            //= rfc8899#4.6.2-2
            self.on_black_hole(Some(size), now);
        }
    }

    fn begin(&mut self, aim: Aim, asks: bool, size: u16, now: Time, random: &mut Random) {
        //= rfc8899#4.1-2
        let (nonce, companion) = (random.u64(), random.u64());
        self.trial = Some(Trial {
            aim,
            size,
            nonce,
            companion,
            asks,
            at: now,
            is_sent: false,
            companion_answered: false,
            lost: 0,
            silent: 0,
        });
    }

    /// Pauses the search, because no larger size remains that is worth a probe.
    fn rest(&mut self, now: Time) {
        self.failed = 0;
        self.next_at = if self.current < self.ceiling { now + RAISE_TIMER } else { Time::NEVER };
    }

    /// Returns the next size to try: first the hint, then the MTU of the link, then usual sizes by bisection, and at last
    /// any size by bisection.
    fn candidate(&mut self) -> Option<u16> {
        let top =
            if self.failed == 0 { self.ceiling + u16::from(self.ceiling < u16::MAX) } else { self.failed };
        let within = |size: &u16| *size > self.current && *size < top;
        if let Some(hint) = self.hint.take().filter(within) {
            return Some(hint);
        }
        if self.failed == 0 {
            return Some(self.ceiling).filter(within);
        }
        let usual: smallvec::SmallVec<[u16; 18]> = USUAL.iter().copied().filter(within).collect();
        if let Some(&middle) = usual.get(usual.len() / 2) {
            return Some(middle);
        }
        // A few bytes are not worth a probe.
        let worth = if self.current < START_MAX { 16 } else { self.current / 2 };
        (top - self.current > worth).then(|| self.current + (top - self.current) / 2)
    }
}

#[cfg(test)]
mod tests;
