//! Search for the highest rate without a failure, by the method of RFC 7502 section 4.10.
//!
//! The rate grows by half until a trial fails. From then on, the search tries the middle between the last
//! rate that succeeded and the last rate that failed. In the end, a long trial must confirm the rate that the
//! short trials have found. After each failed long trial, the search reduces the rate by the fraction
//! [`STEP_BACK`], and repeats the long trial.
//!
//! The search differs from the RFC's listing in two points. First, the granularity is a fraction of the
//! rate, because the measured rates differ by two orders of magnitude. Second, the search has a maximum
//! rate.

use anyhow::Result;

/// Fraction by which the rate is reduced after a failed long trial: the RFC's C.
const STEP_BACK: f64 = 0.05;
/// Maximum number of trials of each length. A search would need more trials only if the measured quantity
/// is unsteady.
const TRIALS_MAX: usize = 60;

/// Bounds of a search for a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// The first rate: the RFC's s.
    pub(super) first: f64,
    /// The RFC's G, as a fraction of the rate. The search stops when the lowest failed rate exceeds the
    /// highest successful rate by up to twice this fraction of the failed rate.
    pub(super) granularity: f64,
    /// The maximum rate to try.
    pub(super) most: f64,
}

/// Length of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trial {
    /// A trial during the search. Its duration is the RFC's n.
    Short,
    /// A trial that confirms the result. Its duration is the RFC's N.
    Long,
}

impl Search {
    /// Returns the rate that was found, or 0 if no rate of one operation per second or more works. `works`
    /// reports whether all operations of a trial succeed at a rate.
    ///
    /// # Errors
    /// Returns the first error of `works`.
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
            // A trial at a low rate takes long, so rates below one per second are not tried.
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
    fn the_search_finds_a_limit_within_five_percent() {
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
    fn if_every_rate_fails_the_search_returns_zero() {
        let mut trials = 0;
        let found = SEARCH.run(|_, _| {
            trials += 1;
            Ok(false)
        });
        assert_eq!(found.unwrap(), 0.0);
        assert!(trials < 10, "{trials} trials");
    }
}
