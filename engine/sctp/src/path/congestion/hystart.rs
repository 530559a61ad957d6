//! HyStart++ (RFC 9406): leaves slow start when round trips grow, before the queue overflows.
//!
//! This module considers only round trips; the window belongs to the controller. Start at [`HyStart::on_ack`].

use std::time::Duration;

use super::Ack;

/// Lower bound of the increase in round trip that makes slow start conservative (section 4.3).
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
/// Upper bound of the increase in round trip that makes slow start conservative.
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
/// Divisor of the last round's shortest round trip. The quotient, limited to the two bounds above, is the
/// increase that makes slow start conservative.
const MIN_RTT_DIVISOR: u32 = 8;
/// Minimum number of round-trip samples for the evaluation of a round.
const N_RTT_SAMPLE: u32 = 8;
/// Divisor of the window's growth in conservative slow start.
pub(super) const CSS_GROWTH_DIVISOR: usize = 4;
/// Number of conservative rounds before slow start ends.
const CSS_ROUNDS: u32 = 5;

/// Growth of the window in slow start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// Normal growth.
    Full,
    /// A quarter of the normal growth.
    Conservative,
    /// No growth: slow start has ended.
    Over,
}

/// Shortest round trips of the current round and of the round before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyStart {
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u32,
    /// Set in conservative slow start: the round trip that triggered conservative slow start, and the number
    /// of rounds since the trigger.
    conservative: Option<(Duration, u32)>,
}

impl HyStart {
    /// Processes the round trip of `ack`; returns the growth that results.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> Pace {
        if ack.round_over {
            self.last = self.current.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
            }
        }
        if let Some(rtt) = ack.rtt {
            self.current = Some(self.current.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        match self.conservative {
            Some((_, rounds)) if rounds >= CSS_ROUNDS => return Pace::Over,
            Some((baseline, _)) if self.judged().is_some_and(|rtt| rtt < baseline) => {
                self.conservative = None;
            }
            Some(_) => {}
            None => self.conservative = self.grown().map(|rtt| (rtt, 0)),
        }
        if self.conservative.is_some() { Pace::Conservative } else { Pace::Full }
    }

    /// Returns the shortest round trip of this round, if the round has enough samples.
    fn judged(&self) -> Option<Duration> {
        self.current.filter(|_| self.samples >= N_RTT_SAMPLE)
    }

    /// Returns the shortest round trip of this round, if it exceeds the last round's shortest round trip by
    /// the required increase.
    fn grown(&self) -> Option<Duration> {
        let last = self.last?;
        let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        self.judged().filter(|&rtt| rtt >= last + threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::full;
    use super::*;
    use base::Time;

    /// Feeds a round of eight samples; returns the growth after the last sample.
    fn round(h: &mut HyStart, millis: u64) -> Pace {
        let ack = |first| Ack {
            rtt: Some(Duration::from_millis(millis)),
            round_over: first,
            ..full(Time::ZERO, 1000)
        };
        h.on_ack(&ack(true));
        (0..7).map(|_| h.on_ack(&ack(false))).last().unwrap()
    }

    #[test]
    fn rtt_growth_by_an_eighth_makes_slow_start_conservative_and_less_growth_does_not() {
        let mut h = HyStart::default();
        assert_eq!(round(&mut h, 80), Pace::Full);
        assert_eq!(round(&mut h, 89), Pace::Full);
        let mut h = HyStart::default();
        round(&mut h, 80);
        assert_eq!(round(&mut h, 90), Pace::Conservative);
    }

    #[test]
    fn slow_start_resumes_at_full_pace_if_the_rtt_falls_again() {
        let mut h = HyStart::default();
        round(&mut h, 80);
        assert_eq!(round(&mut h, 100), Pace::Conservative);
        assert_eq!(round(&mut h, 99), Pace::Full);
    }

    #[test]
    fn after_five_conservative_rounds_slow_start_is_over() {
        let mut h = HyStart::default();
        round(&mut h, 80);
        (0..5).for_each(|_| assert_eq!(round(&mut h, 100), Pace::Conservative));
        assert_eq!(round(&mut h, 100), Pace::Over);
    }
}
