//! Detection of a change of the peer's UDP port. Packets from a new port have one of two causes: a NAT has
//! assigned the port to the peer, or another host sends.
//!
//! According to RFC 6951 section 5.4, an endpoint adopts the source port of any packet with the right
//! verification tag. This module has further conditions. The new port must answer a HEARTBEAT (as RFC 9260
//! section 5.4 requires of new addresses), and the known port must be silent. The known port is probed too,
//! and any packet from the known port during the proof ends the attempt. As an exception, a port that the
//! path has left within [`RETURN_LIMIT`] only needs to answer.
//!
//! Therefore an attacker who has seen a packet and sends from another port of the peer's address cannot
//! divert the path while the peer answers.
//!
//! The module keeps one candidate port, and sends no packets. In each pause, the module requests at most one
//! HEARTBEAT to a new port, however many packets arrive. Start at [`Rebinding::on_packet`].

use std::time::Duration;

use base::Time;

use crate::memory::heap;
use crate::random::Random;

/// Maximum number of unanswered HEARTBEATs to a new port.
const MAX_TRIES: u8 = 6;

/// Minimum pause between two HEARTBEATs to new ports.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Number of repetitions of the HEARTBEAT to the known port, for each HEARTBEAT to the new port. Because of
/// them, one lost packet does not make the known port look silent.
const KNOWN_REPEATS: u8 = 2;

/// Divisor of the pause. The quotient is the interval between HEARTBEATs to the known port.
const KNOWN_REPEAT_PART: u32 = 8;

/// Time for which the port that the path has left can regain the path with only an answer to a HEARTBEAT.
const RETURN_LIMIT: Duration = Duration::from_secs(60);

/// Progress of the proof of a new port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Proof {
    /// The new port has not answered yet.
    Asked,
    /// The new port has answered; the known port may still answer.
    Answered,
    /// A packet has arrived from the known port, so the new port is refused.
    Denied,
}

/// Unproven port, from which packets of the association have arrived.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    port: u16,
    /// Nonce of the HEARTBEATs to this port. Each retransmission has this nonce, so a late answer counts.
    nonce: u64,
    /// Number of HEARTBEATs sent to this port.
    tries: u8,
    /// Time of the last HEARTBEAT to this port.
    sent_at: Time,
    /// Earliest time of the next HEARTBEAT to this port, or to another new port.
    retry_at: Time,
    /// True if the current packet came from this port.
    is_source: bool,
    /// True if a HEARTBEAT of the peer in the current packet was answered to this port.
    is_answered: bool,
    proof: Proof,
    /// Nonce of the HEARTBEATs to the known port.
    known_nonce: u64,
    /// Number of HEARTBEATs to the known port that may follow the last HEARTBEAT to the new port.
    known_repeats: u8,
    /// Time of the next HEARTBEAT to the known port.
    known_at: Time,
    /// Deadline for an answer from the known port.
    judge_at: Time,
    /// True if ICMP has reported that the known port is closed.
    is_known_gone: bool,
}

/// Candidate port of a path's peer, if any. The port is stored outside the path, because most paths never
/// have a candidate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rebinding(Option<Box<Ports>>);

/// Ports of the peer other than the known port.
#[derive(Clone, Debug, Default)]
struct Ports {
    candidate: Option<Candidate>,
    /// Port that the path has left, and the time until which an answer from this port suffices for its
    /// return.
    left: Option<(u16, Time)>,
}

/// HEARTBEATs that the caller must send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asks {
    /// HEARTBEAT to the new port: port and nonce.
    pub(crate) new: Option<(u16, u64)>,
    /// HEARTBEAT to the known port: nonce.
    pub(crate) known: Option<u64>,
}

/// Meaning of a HEARTBEAT ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The HEARTBEAT ACK answers no HEARTBEAT of this module.
    Strange,
    /// The new port has answered, but the known port may still answer, or has already answered.
    Waits,
    /// The known port has answered.
    Known,
    /// The path uses this port from now on.
    Proven(u16),
}

/// Waiting times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time to wait for an answer from a new port.
    pub(crate) pause: Duration,
    /// Time to wait for an answer from the known port; `None` if the known port is not proven itself.
    pub(crate) patience: Option<Duration>,
}

impl Rebinding {
    /// Handles a packet from `port`, while the path uses the port `known`.
    pub(crate) fn on_packet(
        &mut self,
        port: u16,
        known: u16,
        pace: Pace,
        now: Time,
        random: &mut Random,
    ) -> Asks {
        // No packet can be sent to port 0.
        if self.0.is_none() && (port == known || port == 0) {
            return Asks::default();
        }
        self.0.get_or_insert_default().on_packet(port, known, pace, now, random)
    }

    /// Returns the HEARTBEATs that are due again. If the wait for the known port has ended in silence,
    /// returns the new port of the path.
    pub(crate) fn on_timeout(&mut self, known: u16, pace: Pace, now: Time) -> (Asks, Option<u16>) {
        self.0.as_mut().map_or_else(Default::default, |ports| ports.on_timeout(known, pace, now))
    }

    /// Handles a HEARTBEAT ACK with `nonce`.
    pub(crate) fn on_answer(&mut self, nonce: u64, known: u16, now: Time) -> Answer {
        self.0.as_mut().map_or(Answer::Strange, |ports| ports.on_answer(nonce, known, now))
    }

    /// Handles an ICMP error about the known port. Anybody who has seen a packet can forge the error, so the
    /// error only shortens the wait for the known port. After the new port's answer, the wait lasts as long
    /// as the new port's answer took. A wait that follows from a measured round trip is mostly shorter
    /// already.
    pub(crate) fn on_known_gone(&mut self, now: Time) {
        if let Some(ports) = &mut self.0 {
            ports.on_known_gone(now);
        }
    }

    fn candidate(&self) -> Option<&Candidate> {
        self.0.as_ref()?.candidate.as_ref()
    }

    /// If the current packet came from the new port, returns the new port, unless the port is refused.
    pub(crate) fn source(&self) -> Option<u16> {
        self.candidate().filter(|c| c.is_source && c.proof != Proof::Denied).map(|c| c.port)
    }

    /// Reports whether this end must answer a HEARTBEAT of the current packet to the new port. Returns true
    /// only for the first HEARTBEAT of a packet.
    pub(crate) fn takes_answer(&mut self) -> bool {
        let candidate = self.0.as_mut().and_then(|ports| ports.candidate.as_mut());
        candidate.is_some_and(|c| c.is_source && !std::mem::replace(&mut c.is_answered, true))
    }

    /// Returns the number of heap bytes in use.
    pub(crate) fn memory(&self) -> usize {
        if self.0.is_some() { heap(size_of::<Ports>()) } else { 0 }
    }

    /// Returns whether the proof of a candidate port is still open, that is, not refused.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.candidate().is_some_and(|c| c.proof != Proof::Denied)
    }

    /// Returns whether no candidate port exists.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.candidate().is_none()
    }

    /// Returns the time at which [`on_timeout`](Self::on_timeout) is due.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Time {
        self.candidate().map_or(Time::NEVER, Candidate::next_timeout)
    }
}

impl Ports {
    fn on_packet(&mut self, port: u16, known: u16, pace: Pace, now: Time, random: &mut Random) -> Asks {
        let left = self.left;
        let may_return = |port| left.is_some_and(|(left, until)| left == port && now < until);
        if let Some(candidate) = &mut self.candidate {
            (candidate.is_source, candidate.is_answered) = (candidate.port == port, false);
            if port == known && pace.patience.is_some() && !may_return(candidate.port) {
                candidate.proof = Proof::Denied;
            }
        }
        // Packets from the path's present port cannot prevent the return of the port that the path has left.
        let gives_way = |c: &Candidate| may_return(port) && c.port != port;
        let pauses = |c: &Candidate| now < c.retry_at || c.proof == Proof::Answered;
        let pauses = self.candidate.as_ref().is_some_and(|c| pauses(c) && !gives_way(c));
        // No packet can be sent to port 0.
        if port == known || port == 0 || pauses {
            return Asks::default();
        }
        let goes_on = self.candidate.as_ref().is_some_and(|c| c.port == port && c.proof == Proof::Asked);
        if !goes_on {
            self.candidate = Some(Candidate {
                port,
                nonce: random.u64(),
                tries: 0,
                sent_at: now,
                retry_at: now,
                is_source: true,
                is_answered: false,
                proof: Proof::Asked,
                known_nonce: random.u64(),
                known_repeats: 0,
                known_at: Time::NEVER,
                judge_at: now + pace.patience.unwrap_or_default(),
                is_known_gone: false,
            });
        }
        self.send(pace, now)
    }

    fn on_timeout(&mut self, known: u16, pace: Pace, now: Time) -> (Asks, Option<u16>) {
        let Some(candidate) = &mut self.candidate else { return (Asks::default(), None) };
        match candidate.proof {
            Proof::Denied if candidate.retry_at <= now => self.candidate = None,
            Proof::Answered if candidate.judge_at <= now => {
                return (Asks::default(), Some(self.prove(known, now)));
            }
            Proof::Asked if candidate.retry_at <= now => return (self.send(pace, now), None),
            Proof::Asked | Proof::Answered if candidate.known_at <= now => {
                return (Asks { new: None, known: candidate.ask_known(pace, now) }, None);
            }
            Proof::Asked | Proof::Answered | Proof::Denied => {}
        }
        (Asks::default(), None)
    }

    /// Returns the next HEARTBEATs to the new port and the known port. After [`MAX_TRIES`] HEARTBEATs, ends
    /// the attempt instead.
    fn send(&mut self, pace: Pace, now: Time) -> Asks {
        let Some(candidate) = self.candidate.as_mut() else { return Asks::default() };
        if candidate.tries >= MAX_TRIES {
            self.candidate = None;
            return Asks::default();
        }
        candidate.sent_at = now;
        candidate.retry_at = now + pace.pause.max(PAUSE_MIN) * (1 << candidate.tries);
        candidate.tries += 1;
        candidate.known_repeats = 1 + KNOWN_REPEATS;
        let known = candidate.ask_known(pace, now);
        Asks { new: Some((candidate.port, candidate.nonce)), known }
    }

    fn on_answer(&mut self, nonce: u64, known: u16, now: Time) -> Answer {
        let Some(candidate) = &mut self.candidate else { return Answer::Strange };
        let comes_back = self.left.is_some_and(|(port, until)| port == candidate.port && now < until);
        if nonce == candidate.known_nonce {
            if !comes_back {
                candidate.proof = Proof::Denied;
            }
            return Answer::Known;
        }
        if nonce != candidate.nonce {
            return Answer::Strange;
        }
        if candidate.proof == Proof::Denied {
            return Answer::Waits;
        }
        if comes_back || candidate.judge_at <= now {
            return Answer::Proven(self.prove(known, now));
        }
        candidate.proof = Proof::Answered;
        if candidate.is_known_gone {
            candidate.judge_sooner(now);
        }
        Answer::Waits
    }

    fn on_known_gone(&mut self, now: Time) {
        let Some(candidate) = &mut self.candidate else { return };
        candidate.is_known_gone = true;
        if candidate.proof == Proof::Answered {
            candidate.judge_sooner(now);
        }
    }

    /// Ends the attempt with success; returns the new port. The port that the path leaves may return within
    /// [`RETURN_LIMIT`].
    fn prove(&mut self, known: u16, now: Time) -> u16 {
        let Some(candidate) = self.candidate.take() else { return known };
        self.left = match self.left.filter(|(_, until)| now < *until) {
            Some((port, _)) if port == candidate.port => None,
            Some(left) => Some(left),
            None => Some((known, now + RETURN_LIMIT)),
        };
        candidate.port
    }
}

impl Candidate {
    #[cold]
    fn next_timeout(&self) -> Time {
        match self.proof {
            Proof::Asked => self.retry_at.min(self.known_at),
            Proof::Answered => self.judge_at.min(self.known_at),
            Proof::Denied => self.retry_at,
        }
    }

    /// Returns the nonce of the next HEARTBEAT to the known port, if a HEARTBEAT remains.
    fn ask_known(&mut self, pace: Pace, now: Time) -> Option<u64> {
        self.known_at = Time::NEVER;
        pace.patience?;
        self.known_repeats = self.known_repeats.checked_sub(1)?;
        if self.known_repeats > 0 {
            self.known_at = now + pace.pause / KNOWN_REPEAT_PART;
        }
        Some(self.known_nonce)
    }

    /// Shortens the wait for the known port: from now on, the wait lasts as long as the new port's answer
    /// took, plus a small margin.
    fn judge_sooner(&mut self, now: Time) {
        self.judge_at = self.judge_at.min(now + (now - self.sent_at) + PAUSE_MIN / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;
    const PACE: Pace = Pace { pause: Duration::from_millis(20), patience: Some(Duration::from_millis(30)) };
    const KNOWN: u16 = 9899;

    fn asked(port: u16) -> (Rebinding, Asks, Random) {
        let (mut rebinding, mut random) = (Rebinding::default(), Random::new([1; 32]));
        let asks = rebinding.on_packet(port, KNOWN, PACE, MS(0), &mut random);
        (rebinding, asks, random)
    }

    /// Runs all timers up to `until`. Returns the requested HEARTBEATs with their times in milliseconds, and
    /// the resulting port of the path.
    fn run(rebinding: &mut Rebinding, until: Time) -> (Vec<(u64, Asks)>, Option<u16>) {
        let (mut all, mut proven) = (Vec::new(), None);
        while rebinding.next_timeout() <= until {
            let at = rebinding.next_timeout();
            let (asks, port) = rebinding.on_timeout(KNOWN, PACE, at);
            proven = proven.or(port);
            all.push((at.as_millis(), asks));
        }
        all.retain(|(_, asks)| *asks != Asks::default());
        (all, proven)
    }

    #[test]
    fn a_new_port_is_proven_only_by_our_nonce_and_after_the_known_port_stayed_silent() {
        let (mut rebinding, asks, _) = asked(5000);
        let (port, nonce) = asks.new.unwrap();
        assert_eq!(port, 5000);
        assert_eq!(rebinding.on_answer(nonce ^ 1, KNOWN, MS(10)), Answer::Strange);
        assert_eq!(rebinding.on_answer(nonce, KNOWN, MS(10)), Answer::Waits);
        assert_eq!(run(&mut rebinding, MS(29)).1, None);
        assert_eq!(run(&mut rebinding, MS(30)).1, Some(5000));
        assert_eq!(rebinding.on_answer(nonce, KNOWN, MS(30)), Answer::Strange);
    }

    #[test]
    fn an_answer_after_the_known_ports_waiting_time_proves_the_new_port_at_once() {
        let (mut rebinding, asks, _) = asked(5000);
        assert_eq!(rebinding.on_answer(asks.new.unwrap().1, KNOWN, MS(30)), Answer::Proven(5000));
    }

    #[test]
    fn any_packet_from_the_known_port_ends_the_attempt() {
        let (mut rebinding, asks, mut random) = asked(5000);
        let nonce = asks.new.unwrap().1;
        assert_eq!(rebinding.on_answer(nonce, KNOWN, MS(10)), Answer::Waits);
        assert_eq!(rebinding.on_packet(KNOWN, KNOWN, PACE, MS(11), &mut random), Asks::default());
        assert!(!rebinding.is_under_way());
        assert_eq!(rebinding.on_answer(nonce, KNOWN, MS(12)), Answer::Waits);
        assert_eq!(run(&mut rebinding, MS(1000)), (Vec::new(), None));

        let (mut rebinding, asks, _) = asked(5000);
        assert_eq!(rebinding.on_answer(asks.known.unwrap(), KNOWN, MS(10)), Answer::Known);
        assert_eq!(rebinding.on_answer(asks.new.unwrap().1, KNOWN, MS(40)), Answer::Waits);
    }

    #[test]
    fn the_known_port_is_asked_three_times_in_a_quarter_of_the_pause() {
        let (mut rebinding, asks, _) = asked(5000);
        let again = run(&mut rebinding, MS(19)).0;
        let known = again.iter().map(|(at, asks)| (*at, asks.known)).collect::<Vec<_>>();
        assert_eq!(known, [(2, asks.known), (5, asks.known)]);
        assert!(asks.known.is_some() && again.iter().all(|(_, asks)| asks.new.is_none()));
    }

    #[test]
    fn a_port_that_was_left_comes_back_by_its_answer_alone_for_a_minute() {
        for (after, expected) in [(59_000, Answer::Proven(KNOWN)), (61_000, Answer::Waits)] {
            let (mut rebinding, asks, mut random) = asked(5000);
            rebinding.on_answer(asks.new.unwrap().1, KNOWN, MS(30));
            let back = rebinding.on_packet(KNOWN, 5000, PACE, MS(after), &mut random);
            rebinding.on_packet(5000, 5000, PACE, MS(after), &mut random);
            let nonce = back.new.unwrap().1;
            assert_eq!(rebinding.on_answer(nonce, 5000, MS(after + 40)), expected, "after {after} ms");
        }
    }

    #[test]
    fn the_holder_of_the_path_cannot_keep_the_former_port_from_returning() {
        let (mut rebinding, asks, mut random) = asked(5000);
        rebinding.on_answer(asks.new.unwrap().1, KNOWN, MS(30));
        rebinding.on_packet(6000, 5000, PACE, MS(40), &mut random);
        let back = rebinding.on_packet(KNOWN, 5000, PACE, MS(41), &mut random);
        rebinding.on_packet(5000, 5000, PACE, MS(42), &mut random);
        rebinding.on_packet(6000, 5000, PACE, MS(43), &mut random);
        assert_eq!(rebinding.on_answer(back.known.unwrap(), 5000, MS(44)), Answer::Known);
        assert_eq!(rebinding.on_answer(back.new.unwrap().1, 5000, MS(60)), Answer::Proven(KNOWN));
    }

    #[test]
    fn a_known_port_that_is_not_proven_itself_is_neither_asked_nor_waited_for() {
        let (mut rebinding, mut random) = (Rebinding::default(), Random::new([1; 32]));
        let pace = Pace { patience: None, ..PACE };
        let asks = rebinding.on_packet(5000, KNOWN, pace, MS(0), &mut random);
        assert_eq!(asks.known, None);
        assert_eq!(rebinding.on_answer(asks.new.unwrap().1, KNOWN, MS(1)), Answer::Proven(5000));
    }

    #[test]
    fn icmp_about_the_known_port_shortens_a_long_wait_to_the_time_that_the_new_one_took() {
        let slow = Pace { patience: Some(Duration::from_secs(1)), ..PACE };
        let (mut rebinding, mut random) = (Rebinding::default(), Random::new([1; 32]));
        let asks = rebinding.on_packet(5000, KNOWN, slow, MS(0), &mut random);
        rebinding.on_known_gone(MS(9));
        assert_eq!(rebinding.on_answer(asks.new.unwrap().1, KNOWN, MS(10)), Answer::Waits);
        assert_eq!(run(&mut rebinding, MS(24)).1, None);
        assert_eq!(run(&mut rebinding, MS(25)).1, Some(5000));
    }

    #[test]
    fn packets_from_many_ports_bring_one_heartbeat_in_each_pause() {
        let (mut rebinding, mut random) = (Rebinding::default(), Random::new([1; 32]));
        let sent = (0..100u16).filter(|n| {
            let now = MS(u64::from(*n));
            rebinding.on_packet(5000 + n, KNOWN, PACE, now, &mut random).new.is_some()
        });
        assert_eq!(sent.count(), 5);
    }

    #[test]
    fn a_port_that_does_not_answer_is_asked_six_times_ever_more_seldom() {
        let (mut rebinding, _, _) = asked(5000);
        let asked = run(&mut rebinding, MS(10_000)).0;
        let new = asked.iter().filter(|(_, asks)| asks.new.is_some()).map(|(at, _)| *at);
        assert_eq!(new.collect::<Vec<_>>(), [20, 60, 140, 300, 620]);
        assert!(rebinding.is_idle());
    }

    #[test]
    fn a_packet_from_the_known_port_causes_no_heartbeat() {
        let (mut rebinding, mut random) = (Rebinding::default(), Random::new([1; 32]));
        assert_eq!(rebinding.on_packet(KNOWN, KNOWN, PACE, MS(0), &mut random), Asks::default());
        assert!(!rebinding.is_under_way());
    }
}
