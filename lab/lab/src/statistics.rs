//! Statistics of a point's measurements, with confidence intervals.

use crate::manifest::Statistic;
use serde::Serialize;
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

/// Confidence level of intervals.
const CONFIDENCE: f64 = 0.95;

/// The measurements of a point.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    sorted: Vec<f64>,
}

/// A figure and its 95 % confidence interval. The interval is absent for ratios, minima and maxima, and if
/// the measurements are too few.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    pub(crate) interval: Option<[f64; 2]>,
}

impl Sample {
    /// Creates a sample, or returns `None` if there are no measurements.
    pub(crate) fn new(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then_some(Self { sorted })
    }

    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns one statistic of the sample.
    pub(crate) fn figure(&self, statistic: Statistic) -> Figure {
        match statistic {
            Statistic::Mean => Figure { value: self.mean(), interval: self.mean_interval() },
            Statistic::Median => self.quantile(0.5),
            Statistic::P95 => self.quantile(0.95),
            Statistic::Min => Figure { value: self.sorted[0], interval: None },
            Statistic::Max => Figure { value: self.sorted[self.len() - 1], interval: None },
        }
    }

    fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.len() as f64
    }

    /// Returns the confidence interval of the mean, from Student's t-distribution.
    fn mean_interval(&self) -> Option<[f64; 2]> {
        let (n, mean) = (self.len() as f64, self.mean());
        let t = StudentsT::new(0.0, 1.0, n - 1.0).ok()?.inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
        let squares: f64 = self.sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let half = t * (squares / (n - 1.0) / n).sqrt();
        Some([mean - half, mean + half])
    }

    /// Returns the quantile of the measurements for `share` (0 to 1), by the nearest-rank method. The
    /// confidence interval follows from the binomial distribution, so it holds for any distribution of the
    /// measurements.
    fn quantile(&self, share: f64) -> Figure {
        let n = self.len();
        let rank = (n as f64 * share).ceil().max(1.0) as usize;
        Figure { value: self.sorted[rank - 1], interval: self.quantile_interval(share) }
    }

    fn quantile_interval(&self, share: f64) -> Option<[f64; 2]> {
        let n = self.len();
        let below = Binomial::new(share, n as u64).ok()?;
        let tail = (1.0 - CONFIDENCE) / 2.0;
        // The true quantile is below the k-th smallest measurement if fewer than k measurements are below the
        // quantile.
        let low = (1..=n).rev().find(|&k| below.cdf(k as u64 - 1) <= tail)?;
        let high = (low + 1..=n).find(|&k| 1.0 - below.cdf(k as u64 - 1) <= tail)?;
        Some([self.sorted[low - 1], self.sorted[high - 1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: impl IntoIterator<Item = i32>) -> Sample {
        Sample::new(values.into_iter().map(f64::from)).unwrap()
    }

    #[test]
    fn a_mean_has_students_interval() {
        let figure = sample([2, 4, 4, 4, 5, 5, 7, 9]).figure(Statistic::Mean);
        let [low, high] = figure.interval.unwrap();
        // t(7) = 2.3646, s = 2.1381
        assert_eq!(figure.value, 5.0);
        assert!((low - 3.2125).abs() < 1e-3 && (high - 6.7875).abs() < 1e-3, "{low} {high}");
    }

    #[test]
    fn the_interval_of_a_median_of_thirty_values_is_the_10th_to_the_21st_value() {
        let figure = sample(1..=30).figure(Statistic::Median);
        assert_eq!(figure, Figure { value: 15.0, interval: Some([10.0, 21.0]) });
    }

    #[test]
    fn one_measurement_has_no_interval_and_thirty_are_too_few_for_the_95th_percentile() {
        for statistic in [Statistic::Mean, Statistic::Median, Statistic::P95] {
            assert_eq!(sample([3]).figure(statistic), Figure { value: 3.0, interval: None });
        }
        assert_eq!(sample(1..=30).figure(Statistic::P95), Figure { value: 29.0, interval: None });
    }

    #[test]
    fn nothing_measured_is_no_sample() {
        assert!(Sample::new([]).is_none());
    }
}
