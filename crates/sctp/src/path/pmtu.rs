//! The MTU of one path, found by probes (DPLPMTUD, RFC 8899 section 6.2): which size is used, which is tried next, and
//! when the size in use has to be doubted.
//!
//! Never sends and never reads packets. A *trial* is a probe of one size (HEARTBEAT and PAD) and, right behind it, a short
//! HEARTBEAT, its companion: if the companion is answered and the probe is not, the probe was lost for its size or by
//! chance, and nobody has to wait for a timer. Where there was silence only, a short HEARTBEAT *asks* first: in a long queue data is
//! acknowledged before it is answered, and no probe takes room there. Trials say nothing about congestion. Sizes are bytes of IP packet.
//! Invariants: `least` ≤ `current` ≤ `ceiling`; at most one trial is out. Begin at [`Pmtu::suspect`], [`Pmtu::poll`] and
//! [`Pmtu::on_answer`]; ADR 0007 says why a path starts at its link's MTU.

use std::net::IpAddr;
use std::time::Duration;

use base::Time;

use crate::random::Random;

/// A path starts with no more than this: what Ethernet carries. Larger sizes must be proven first.
const START_MAX: u16 = 1500;

/// Losses of probes of one size after which it counts as too large (RFC 8899 section 5.1.2).
const MAX_PROBES: u8 = 3;

/// RFC 8899 section 5.1.1: "This value MUST NOT be smaller than 1 second".
const PROBE_TIMER_MIN: Duration = Duration::from_secs(1);

/// How long a search rests before larger sizes are tried again (RFC 8899 section 5.1.1).
//= rfc8899#5.1.1-2 5.2-1
const RAISE_TIMER: Duration = Duration::from_secs(600);

/// Longest pause between trials that nobody answers.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Losses of probes of the base size after which that is too large, too: a larger one has just been found so.
const BASE_PROBES: u8 = 2;

/// Timeouts of T3 without anything long acknowledged in between after which one lost probe is proof enough.
const CERTAIN_TIMEOUTS: u8 = 2;

/// Such timeouts after which even a size is doubted that was doubted for nothing a moment ago.
const TIMEOUTS_AGAINST_TRUST: u8 = 2;

/// Doubts for nothing in a row after which trust in a proof grows no more: two round trips by then have become 128.
const NEEDLESS_MAX: u8 = 6;

/// Longest trust in a proof.
const TRUST_MAX: Duration = Duration::from_secs(30);

/// A companion's answer waits for the probe's by a quarter of the round trip, but at least by this.
const GRACE_MIN: Duration = Duration::from_millis(5);

/// MTUs of usual links and tunnels, ascending: the search tries these before others.
//= rfc8899#5.3.2-1
const USUAL: [u16; 18] = [
    1280, 1320, 1358, 1380, 1400, 1420, 1440, 1452, 1460, 1472, 1480, 1492, 1500, 2048, 4352, 8160, 9000,
    16_384,
];

/// What a trial is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aim {
    /// A larger size than the one in use may work.
    Larger,
    /// The size in use may not work any more; it has failed after so many lost probes.
    Current { patience: u8 },
}

/// A probe and its companion that are out, or about to be sent.
#[derive(Clone, Copy, Debug)]
struct Trial {
    aim: Aim,
    size: u16,
    /// Kept when the probe is sent again, so that a late answer counts.
    nonce: u64,
    companion: u64,
    /// Whether the companion goes alone, and the probe only when that was answered.
    asks: bool,
    /// When the probe is sent, or counts as lost.
    at: Time,
    is_sent: bool,
    companion_answered: bool,
    /// Probes lost.
    lost: u8,
    /// Rounds that neither answer came of.
    silent: u8,
}

impl Trial {
    /// The size in use is doubted again while it is tried. Who only asked so far, and was not answered, asks no more.
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

/// What [`Pmtu::poll`] wants sent: a probe, and right behind it a short HEARTBEAT; or that alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeProbe {
    /// Length of the probe's IP packet; `None`: only the short one is sent.
    pub(crate) size: Option<u16>,
    pub(crate) nonce: u64,
    pub(crate) companion: u64,
}

/// The MTU of one path.
#[derive(Clone, Debug)]
pub(crate) struct Pmtu {
    least: u16,
    base: u16,
    ceiling: u16,
    current: u16,
    /// Whether a packet of the size in use has been proven to arrive.
    is_proven: bool,
    /// The least size known not to work; 0 if none is.
    failed: u16,
    /// A size to be tried before others.
    hint: Option<u16>,
    trial: Option<Trial>,
    /// When the next trial of a larger size begins.
    next_at: Time,
    /// No doubts before this: the size in use was proven a moment ago.
    trusted_until: Time,
    /// Doubts of the size in use, one soon after the other, that a probe dispelled: losses here have other causes.
    needless: u8,
    /// Timeouts of T3 since anything long was acknowledged.
    timeouts: u8,
    /// The size in use has just fallen to the base, and nothing has shown yet that that is small enough.
    doubts_base: bool,
    /// Nothing shorter may be tried than what T3 expired for: short packets say nothing of the path.
    doubts_least: bool,
    pub(crate) probes_sent: u64,
    pub(crate) probes_lost: u64,
}

impl Pmtu {
    /// A path to `remote` over links that take packets of `ceiling` bytes.
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

    /// The size in use.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// Whether a packet of the size in use is known to arrive.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Whether the size in use is neither known to work nor being tried.
    #[inline]
    pub(crate) fn wants_proof(&self) -> bool {
        !self.is_proven && self.trial.is_none()
    }

    /// The least size that any path takes.
    pub(crate) fn least(&self) -> u16 {
        self.least
    }

    /// The size that is expected to work everywhere: what falls short of it raises no doubt.
    pub(crate) fn base(&self) -> u16 {
        self.base
    }

    /// Data about as long as the least size was lost with all else: the path has to be proven with packets of that size, until one
    /// arrives. Returns whether this is news.
    //= rfc8899#4.3-1
    pub(crate) fn doubt_least(&mut self) -> bool {
        self.current <= self.least && !std::mem::replace(&mut self.doubts_least, true)
    }

    /// The size that the path's own heartbeats must have to say anything.
    pub(crate) fn size_that_proves(&self) -> Option<u16> {
        self.doubts_least.then_some(self.current)
    }

    /// The path works again: a trial that went out before, and was lost with all else, need not wait for its timer.
    pub(crate) fn on_return(&mut self, now: Time) {
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.is_sent && !trial.companion_answered) {
            trial.is_sent = false;
            trial.silent = 0;
            trial.at = now;
        }
    }

    /// A packet of about the least size has arrived.
    pub(crate) fn on_least_proven(&mut self) {
        self.doubts_least = false;
    }

    /// When [`poll`](Self::poll) or [`on_timeout`](Self::on_timeout) has something to do.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Time {
        self.trial.as_ref().map_or(self.next_at, |trial| trial.at)
    }

    /// Packets may be vanishing for their length: the size in use is tried. `many`: so many at once as chance and full queues
    /// hardly take, so that even a size that was proven a moment ago is doubted.
    //= rfc8899#3-21
    pub(crate) fn suspect(&mut self, many: bool, now: Time, random: &mut Random) {
        if many || now >= self.trusted_until {
            self.doubt(MAX_PROBES, true, now, random);
        }
    }

    /// T3 expired, and what it lost was long. The second time in a row not even what was sent again came through: one lost
    /// probe is proof enough (black hole detection, RFC 8899 section 4.3). Where doubts were needless of late it takes more
    /// timeouts, and all probes: a full queue lets T3 expire, too, and probes would take the place of data in it.
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

    /// Data in a packet longer than the base size was acknowledged; `is_full`: as long as packets may be. That proves the
    /// size in use as a probe does (RFC 8899 section 4.1: the probe may be data), and answers a doubt of it.
    pub(crate) fn on_data_acknowledged(&mut self, is_full: bool, srtt: Option<Duration>, now: Time) {
        self.timeouts = 0;
        if !is_full {
            return;
        }
        self.is_proven = true;
        self.doubts_base = false;
        // Less than the time after which silence is noticed, so that a black hole is doubted at the first silence.
        self.trusted_until = self.trusted_until.max(now + srtt.unwrap_or_default());
        if self.trial.is_some_and(|trial| matches!(trial.aim, Aim::Current { .. })) {
            self.trial = None;
            self.trust(srtt, now);
        }
    }

    /// A doubt was needless. Each that follows soon doubles the time until the next: losses here have other causes.
    fn trust(&mut self, srtt: Option<Duration>, now: Time) {
        let trust = (srtt.unwrap_or(GRACE_MIN) * 2 * (1 << self.needless)).min(TRUST_MAX);
        let is_soon = self.trusted_until != Time::ZERO && now < self.trusted_until + trust;
        self.needless = if is_soon { (self.needless + 1).min(NEEDLESS_MAX) } else { 0 };
        self.trusted_until = now + trust;
    }

    /// The next probe, if one is due.
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

    /// A HEARTBEAT ACK with `nonce` came; returns whether it answers a trial.
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
            // Others arrive. Unless data is acknowledged in this moment, it is the turn of the probe.
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

    /// A probe is overdue.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        let Some(trial) = self.trial.as_mut().filter(|t| t.is_sent && t.at <= now) else { return };
        trial.is_sent = false;
        trial.at = now;
        self.probes_lost += u64::from(!trial.asks);
        //= rfc8899#3-7
        if !trial.companion_answered {
            // Short packets are lost, too: that is no question of size.
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

    /// Nobody answers: the path's own timers see to that.
    fn give_up(&mut self, now: Time) {
        if let Some(trial) = self.trial.take()
            && trial.aim == Aim::Larger
        {
            self.next_at = now + PAUSE_MAX;
        }
    }

    fn on_too_large(&mut self, size: u16, now: Time) {
        self.trial = None;
        self.failed = if self.failed == 0 { size } else { self.failed.min(size) };
        self.next_at = now;
    }

    /// The size in use does not work (any more). Its like is tried again at once, in case that probes were lost by chance.
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

    /// A router, or our own host, says that a packet was longer than `size`, its MTU. `nonce` is that of the probe that
    /// was too long, if it was one.
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
        // "BASE_PLPMTU <= PL_PTB_SIZE < PLPMTU": the size falls to the base and the reported one is probed. Below the base
        // it falls to the least. What is below the least, or not below the size in use, is not believed.
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

    /// Nothing larger is worth a try for now.
    fn rest(&mut self, now: Time) {
        self.failed = 0;
        self.next_at = if self.current < self.ceiling { now + RAISE_TIMER } else { Time::NEVER };
    }

    /// The next size to be tried: a hint, the largest, then by halves, usual sizes first.
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
