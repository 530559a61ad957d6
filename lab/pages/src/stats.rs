//! Medians, percentiles and means of a few samples.

/// Returns the percentile `percent` of the samples, by the nearest-rank method. Returns 0 if the list is
/// empty.
#[must_use]
pub fn percentile(samples: &[f64], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// Returns the trimmed mean: the mean without the smallest tenth and the greatest tenth of the samples.
/// Returns 0 if the list is empty. Unlike a median, the trimmed mean resolves fractions of the clock's
/// unit.
#[must_use]
pub fn middle_mean(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let tenth = sorted.len() / 10;
    let middle = &sorted[tenth..sorted.len() - tenth];
    if middle.is_empty() { 0.0 } else { middle.iter().sum::<f64>() / middle.len() as f64 }
}

/// Formats samples as "median (lowest-highest)".
#[must_use]
pub fn spread(samples: &[f64]) -> String {
    format!("{:.2} ({:.2}-{:.2})", percentile(samples, 50), percentile(samples, 0), percentile(samples, 100))
}

#[cfg(test)]
mod tests {
    use super::{middle_mean, percentile, spread};

    #[test]
    fn percentiles_are_samples_and_need_no_order() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!((percentile(&samples, 50), percentile(&samples, 99)), (50.0, 99.0));
        assert_eq!((percentile(&samples, 0), percentile(&samples, 100)), (1.0, 100.0));
    }

    #[test]
    fn the_middle_mean_knows_nothing_of_outliers() {
        let mut samples = vec![3.0; 4];
        samples.extend([4.0; 4]);
        samples.extend([0.0, 9_000.0]);
        assert_eq!((middle_mean(&samples), middle_mean(&[]), middle_mean(&[7.0])), (3.5, 0.0, 7.0));
    }

    #[test]
    fn the_spread_of_five_samples_has_the_middle_one_first() {
        assert_eq!(spread(&[5.0, 1.0, 3.0, 2.0, 4.0]), "3.00 (1.00-5.00)");
    }
}
