//! HyStart++ (RFC 9406): leaves slow start when round trips grow, before the queue overflows.
//!
//! Considers only round trips; the window belongs to the controller. Start at [`HyStart::on_ack`].

use std::time::Duration;

use super::Ack;

/// Bounds of the increase in round trip that ends slow start (section 4.3).
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
/// Divisor of the round trip that yields the threshold between the bounds.
const MIN_RTT_DIVISOR: u32 = 8;
/// Number of samples that a round needs to be evaluated.
const N_RTT_SAMPLE: u32 = 8;
/// Divisor of growth in conservative slow start.
pub(super) const CSS_GROWTH_DIVISOR: usize = 4;
/// Number of conservative rounds before slow start ends.
const CSS_ROUNDS: u32 = 5;

/// The growth of slow start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// Normal.
    Full,
    /// At a quarter of the rate.
    Conservative,
    /// None: slow start has ended.
    Over,
}

/// The round trips of this round and the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyStart {
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u32,
    /// In conservative slow start: the round trip that triggered it, and the number of rounds so far.
    conservative: Option<(Duration, u32)>,
}

impl HyStart {
    /// Processes the sample of `ack`; returns the resulting growth.
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

    /// The shortest round trip of this round, if there were enough samples.
    fn judged(&self) -> Option<Duration> {
        self.current.filter(|_| self.samples >= N_RTT_SAMPLE)
    }

    /// The same if it clearly exceeds the last round's.
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

    /// A round of eight samples; the pace after the last.
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
    fn growth_by_an_eighth_makes_slow_start_conservative_and_less_does_not() {
        let mut h = HyStart::default();
        assert_eq!(round(&mut h, 80), Pace::Full);
        assert_eq!(round(&mut h, 89), Pace::Full);
        let mut h = HyStart::default();
        round(&mut h, 80);
        assert_eq!(round(&mut h, 90), Pace::Conservative);
    }

    #[test]
    fn growth_that_goes_away_was_noise() {
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
