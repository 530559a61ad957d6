//! Random numbers with the distributions that a link needs.

use rand::RngExt;

use crate::config::{Distribution, Loss};

/// Upper limit of Pareto values, which begin at 1. Greater values are set to this limit.
const PARETO_MAX: f64 = 9.0;
/// Shape parameter of the Pareto distribution: the smallest whole number for which the variance is finite.
const PARETO_SHAPE: f64 = 3.0;
/// Mean of the limited values: 3/2 - 1/(2·9²).
const PARETO_MEAN: f64 = 1.493_827_160_493_827;
/// Standard deviation of the limited values: the square root of 3 - 2/9 - mean².
const PARETO_DEVIATION: f64 = 0.739_092_817_140_532;

/// Returns true with probability `p`. Draws no random number if `p` is zero.
pub(crate) fn chance(p: f64, rng: &mut impl RngExt) -> bool {
    p > 0.0 && rng.random::<f64>() < p
}

/// State of burst loss: good, or bad during a burst.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    is_bad: bool,
}

impl Weather {
    /// Decides whether the next packet is lost.
    pub(crate) fn loses(&mut self, loss: Loss, rng: &mut impl RngExt) -> bool {
        match loss {
            Loss::None => false,
            Loss::Uniform(p) => chance(p, rng),
            Loss::Bursts { begin, end } => self.turns(begin, end, rng),
            Loss::GilbertElliott { begin, end, bad, good } => {
                let p = if self.turns(begin, end, rng) { bad } else { good };
                chance(p, rng)
            }
        }
    }

    /// Chooses the state for the next packet. Returns true for the bad state.
    fn turns(&mut self, begin: f64, end: f64, rng: &mut impl RngExt) -> bool {
        let turns = chance(if self.is_bad { end } else { begin }, rng);
        self.is_bad ^= turns;
        self.is_bad
    }
}

/// Series of random values with one distribution. Each value correlates with the value before it.
///
/// The series maps correlated normal values to the distribution. The correlation therefore does not narrow the distribution.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wander {
    last: Option<f64>,
}

impl Wander {
    /// Returns the next value, with mean 0. Uniform values lie between -1 and 1. Other distributions have standard deviation 1.
    pub(crate) fn next(&mut self, shape: Distribution, correlation: f64, rng: &mut impl RngExt) -> f64 {
        let fresh = normal(rng);
        let value = self
            .last
            .map_or(fresh, |last| correlation * last + (1.0 - correlation * correlation).sqrt() * fresh);
        self.last = Some(value);
        match shape {
            Distribution::Normal => value,
            Distribution::Uniform => 2.0 * share_below(value) - 1.0,
            Distribution::Pareto => {
                let pareto = share_below(-value).max(f64::MIN_POSITIVE).powf(-1.0 / PARETO_SHAPE);
                (pareto.min(PARETO_MAX) - PARETO_MEAN) / PARETO_DEVIATION
            }
        }
    }
}

/// Returns a standard normal value (Box-Muller transform).
fn normal(rng: &mut impl RngExt) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// Returns the share of the standard normal distribution below `z`, with an error below 10⁻⁷ (Abramowitz and Stegun, 26.2.17).
fn share_below(z: f64) -> f64 {
    const TERMS: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let above = density * TERMS.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    if z < 0.0 { above } else { 1.0 - above }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::SeedableRng;

    /// Draws 100,000 values. Returns their mean, their standard deviation, and the correlation of consecutive values.
    fn moments(shape: Distribution, correlation: f64) -> [f64; 3] {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        let mut wander = Wander::default();
        let values: Vec<f64> = (0..100_000).map(|_| wander.next(shape, correlation, &mut rng)).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        let pairs = values.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum::<f64>() / count;
        [mean, variance.sqrt(), pairs / variance]
    }

    #[test]
    fn each_distribution_has_mean_0_and_its_deviation_also_if_values_correlate() {
        for (shape, deviation) in [
            (Distribution::Normal, 1.0),
            (Distribution::Uniform, 1.0 / 3.0_f64.sqrt()),
            (Distribution::Pareto, 1.0),
        ] {
            for correlation in [0.0, 0.7] {
                let [mean, found, _] = moments(shape, correlation);
                assert!(mean.abs() < 0.03, "{shape:?} at {correlation}: mean {mean}");
                assert!((found / deviation - 1.0).abs() < 0.05, "{shape:?} at {correlation}: {found}");
            }
        }
    }

    #[test]
    fn successive_values_have_the_requested_correlation() {
        for correlation in [0.0, 0.5, 0.9] {
            let [.., found] = moments(Distribution::Normal, correlation);
            assert!((found - correlation).abs() < 0.02, "{correlation} asked, {found} found");
        }
    }
}
