//! Evidence that the peer is alive. Counts timeouts over all paths (RFC 9260 section 8.1), and limits the rate of
//! questions to a peer that another host may have replaced.

use std::time::Duration;

use base::Time;

/// Minimum interval between questions to the peer after INITs from other addresses than the peer's. An INIT is
/// retransmitted after 100 ms at the earliest.
const QUESTION_INTERVAL: Duration = Duration::from_millis(50);

/// The association's error count (RFC 9260 section 8.1), and the time of the next question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    /// Number of consecutive timeouts over all paths.
    errors: u8,
    /// Earliest time of the next question.
    next_question: Time,
    /// Time until which silence proves nothing, because the driver was late.
    put_off_until: Time,
}

impl Liveness {
    pub(crate) fn new(now: Time) -> Self {
        Liveness { errors: 0, next_question: now, put_off_until: Time::ZERO }
    }

    /// Records an answer of the peer.
    #[inline]
    pub(crate) fn on_answer(&mut self) {
        self.errors = 0;
    }

    /// Counts a timeout. Returns whether the count is `max` or less.
    //= rfc9260#8.1-1 8.1-3 8.1-4 9.2-4
    pub(crate) fn on_timeout(&mut self, max: u8) -> bool {
        self.errors = self.errors.saturating_add(1);
        self.errors <= max
    }

    /// Records that silence proves nothing until `until`.
    pub(crate) fn put_off(&mut self, until: Time) {
        self.put_off_until = until;
    }

    /// Reports whether the driver was late just now. Silence then proves nothing.
    pub(crate) fn was_late(&self, now: Time) -> bool {
        now < self.put_off_until
    }

    /// Reports whether the peer may be asked now. If so, the next interval begins.
    pub(crate) fn may_ask(&mut self, now: Time) -> bool {
        let may = now >= self.next_question;
        if may {
            self.next_question = now + QUESTION_INTERVAL;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_forgives_all_timeouts() {
        let mut liveness = Liveness::new(Time::ZERO);
        assert!(liveness.on_timeout(2) && liveness.on_timeout(2));
        liveness.on_answer();
        assert!(liveness.on_timeout(2) && liveness.on_timeout(2) && !liveness.on_timeout(2));
    }

    #[test]
    fn the_error_count_does_not_wrap() {
        let mut liveness = Liveness::new(Time::ZERO);
        assert!((0..300).all(|_| liveness.on_timeout(u8::MAX)));
    }

    #[test]
    fn a_liveness_check_is_repeated_only_after_its_interval() {
        let mut liveness = Liveness::new(Time::ZERO);
        assert!(liveness.may_ask(Time::ZERO));
        assert!(!liveness.may_ask(Time::ZERO + QUESTION_INTERVAL / 2));
        assert!(liveness.may_ask(Time::ZERO + QUESTION_INTERVAL));
    }
}
