//! The greatest rate without a failure, as RFC 7502 section 4.10 has it looked for.
//!
//! The rate grows by half until something fails, then it is halved between what went well and what did not; at the end the rate that was
//! found must go well once more and for longer, or it is taken back bit by bit. Two things are otherwise than in the RFC's listing: the
//! granularity is a part of the rate, for rates here differ by two orders of magnitude; and there is a rate beyond which nobody looks.

use anyhow::Result;

/// Step back when the last trial fails: the RFC's C.
const STEP_BACK: f64 = 0.05;
/// Trials in all; more show that what is measured is not steady.
const TRIALS_MAX: usize = 60;

/// Bounds of a search for a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// The first rate: the RFC's s.
    pub(super) first: f64,
    /// Distance of the result from a failure, as a part of the rate: the RFC's G.
    pub(super) granularity: f64,
    /// The last rate to try.
    pub(super) most: f64,
}

/// Length of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trial {
    /// To find out: the RFC's n.
    Short,
    /// To be sure: the RFC's N.
    Long,
}

impl Search {
    /// The rate that was found; 0 if there was none. `works` tells whether all went well at a rate.
    ///
    /// # Errors
    /// Those of `works`.
    pub(super) fn run(self, mut works: impl FnMut(f64, Trial) -> Result<bool>) -> Result<f64> {
        let mut rate = self.largest(|rate| works(rate, Trial::Short))?;
        for _ in 0..TRIALS_MAX {
            if rate < 1.0 {
                return Ok(0.0);
            }
            if works(rate, Trial::Long)? {
                return Ok(rate);
            }
            rate -= STEP_BACK * rate;
        }
        Ok(0.0)
    }

    fn largest(self, mut works: impl FnMut(f64) -> Result<bool>) -> Result<f64> {
        let (mut rate, mut good, mut bad) = (self.first.min(self.most), 0.0, None);
        for _ in 0..TRIALS_MAX {
            if works(rate)? {
                good = rate;
            } else {
                bad = Some(rate);
            }
            rate = match bad {
                Some(bad) if bad - good <= 2.0 * self.granularity * bad => return Ok(good),
                Some(bad) => good + (bad - good) / 2.0,
                None if rate >= self.most => return Ok(rate),
                None => (rate * 1.5).min(self.most),
            };
            // A trial that fails takes its time: nobody asks for fewer than that.
            if rate < 1.0 {
                return Ok(good);
            }
        }
        Ok(good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: Search = Search { first: 100.0, granularity: 0.01, most: 50_000.0 };

    #[test]
    fn a_limit_is_found_from_below_and_from_above() {
        for limit in [3.0, 99.0, 101.0, 2222.0, 49_000.0] {
            let found = SEARCH.run(|rate, _| Ok(rate <= limit)).unwrap();
            assert!(found <= limit && found > 0.95 * limit, "{found} of {limit}");
        }
    }

    #[test]
    fn nothing_beyond_the_last_rate_is_tried() {
        let found = SEARCH.run(|rate, _| {
            assert!(rate <= 50_000.0);
            Ok(true)
        });
        assert_eq!(found.unwrap(), 50_000.0);
    }

    #[test]
    fn a_rate_that_fails_the_long_trial_is_taken_back() {
        let found = SEARCH.run(|rate, trial| Ok(rate <= if trial == Trial::Long { 800.0 } else { 1000.0 }));
        let found = found.unwrap();
        assert!(found <= 800.0 && found > 750.0, "{found}");
    }

    #[test]
    fn where_nothing_works_nothing_is_found() {
        let mut trials = 0;
        let found = SEARCH.run(|_, _| {
            trials += 1;
            Ok(false)
        });
        assert_eq!(found.unwrap(), 0.0);
        assert!(trials < 10, "{trials} trials");
    }
}
