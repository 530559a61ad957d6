//! A peer that is heard from another UDP port than before: a NAT has given it a new one, or somebody else speaks.
//!
//! RFC 6951 section 5.4 stores the source port of any packet with the right tag. Here a HEARTBEAT must be answered from the
//! new port first, so that nobody who has seen a packet can turn a path away (RFC 9260 section 5.4 asks the same of new
//! addresses). Keeps one port to be proven; never sends. At most one HEARTBEAT leaves in each pause, whatever comes in.
//! Begin at [`Rebinding::on_packet`].

use std::time::Duration;

use base::Time;

use crate::random::Random;

/// HEARTBEATs to a new port that may stay unanswered.
const MAX_TRIES: u8 = 6;

/// Least pause between two HEARTBEATs to new ports.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// A port that the peer was heard from, and that is to be proven.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    port: u16,
    /// Kept when the HEARTBEAT is sent again, so that a late answer counts.
    nonce: u64,
    tries: u8,
    retry_at: Time,
    /// The packet that is being handled came from this port.
    is_source: bool,
}

/// The new port of a path's peer, if there may be one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rebinding(Option<Candidate>);

impl Rebinding {
    /// A packet came from `port`, while the path's is `known`. Returns the nonce of a HEARTBEAT that must be sent to it.
    pub(crate) fn on_packet(
        &mut self,
        port: u16,
        known: u16,
        pause: Duration,
        now: Time,
        random: &mut Random,
    ) -> Option<u64> {
        if let Some(candidate) = &mut self.0 {
            candidate.is_source = candidate.port == port;
        }
        let pauses = self.0.is_some_and(|c| now < c.retry_at);
        // Nobody can be answered at port 0.
        if port == known || port == 0 || pauses {
            return None;
        }
        let is_same = self.0.is_some_and(|c| c.port == port);
        if !is_same {
            let nonce = random.u64();
            self.0 = Some(Candidate { port, nonce, tries: 0, retry_at: now, is_source: true });
        }
        self.send(pause, now).map(|(_, nonce)| nonce)
    }

    /// A HEARTBEAT to the new port that is to be sent again: port and nonce.
    pub(crate) fn on_timeout(&mut self, pause: Duration, now: Time) -> Option<(u16, u64)> {
        let is_due = self.0.is_some_and(|c| c.retry_at <= now);
        if is_due { self.send(pause, now) } else { None }
    }

    fn send(&mut self, pause: Duration, now: Time) -> Option<(u16, u64)> {
        let candidate = self.0.as_mut()?;
        if candidate.tries >= MAX_TRIES {
            self.0 = None;
            return None;
        }
        candidate.retry_at = now + pause.max(PAUSE_MIN) * (1 << candidate.tries);
        candidate.tries += 1;
        Some((candidate.port, candidate.nonce))
    }

    /// A HEARTBEAT ACK with `nonce`: the port, if that proves it.
    pub(crate) fn on_answer(&mut self, nonce: u64) -> Option<u16> {
        let proven = self.0.filter(|c| c.nonce == nonce)?;
        self.0 = None;
        Some(proven.port)
    }

    /// The new port, if the packet that is being handled came from it.
    pub(crate) fn source(&self) -> Option<u16> {
        self.0.filter(|c| c.is_source).map(|c| c.port)
    }

    /// Whether a port is being proven.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Time {
        self.0.as_ref().map_or(Time::NEVER, |c| c.retry_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;
    const PAUSE: Duration = Duration::from_millis(20);

    #[test]
    fn only_the_answer_to_our_own_nonce_proves_a_port() {
        let (mut rebinding, mut random) = (Rebinding::default(), Random::new([1; 32]));
        let nonce = rebinding.on_packet(5000, 9899, PAUSE, MS(0), &mut random).unwrap();
        assert_eq!(rebinding.on_answer(nonce ^ 1), None);
        assert_eq!(rebinding.on_answer(nonce), Some(5000));
        assert_eq!(rebinding.on_answer(nonce), None);
    }

    #[test]
    fn packets_from_many_ports_bring_one_heartbeat_in_each_pause() {
        let (mut rebinding, mut random) = (Rebinding::default(), Random::new([1; 32]));
        let sent = (0..100u16).filter(|n| {
            let now = MS(u64::from(*n));
            rebinding.on_packet(5000 + n, 9899, PAUSE, now, &mut random).is_some()
        });
        assert_eq!(sent.count(), 5);
    }

    #[test]
    fn a_port_that_does_not_answer_is_asked_six_times_ever_more_seldom() {
        let (mut rebinding, mut random) = (Rebinding::default(), Random::new([1; 32]));
        rebinding.on_packet(5000, 9899, PAUSE, MS(0), &mut random).unwrap();
        let mut asked = Vec::new();
        while rebinding.is_under_way() {
            let at = rebinding.next_timeout();
            if rebinding.on_timeout(PAUSE, at).is_some() {
                asked.push(at.as_millis());
            }
        }
        assert_eq!(asked, [20, 60, 140, 300, 620]);
    }

    #[test]
    fn a_packet_from_the_known_port_asks_for_nothing() {
        let (mut rebinding, mut random) = (Rebinding::default(), Random::new([1; 32]));
        assert_eq!(rebinding.on_packet(9899, 9899, PAUSE, MS(0), &mut random), None);
        assert!(!rebinding.is_under_way());
    }
}
