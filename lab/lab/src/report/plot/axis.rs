//! An axis, which maps values to coordinates and places ticks.

use pages::grouped;

/// Approximate number of ticks on an axis.
const TICKS: f64 = 5.0;
/// Minimum length, in decades, of a logarithmic axis that shows only powers of ten.
const DECADES: f64 = 3.0;
/// Maximum length, in decades, of a logarithmic axis with the ticks of a linear axis. The numbers 1, 2 and 5 times a
/// power of ten would give a shorter axis one tick or none.
const SHORT: f64 = 0.7;

/// A numeric axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    /// Length of the axis, in units of the picture.
    length: f64,
}

impl Axis {
    /// Creates an axis from `low` to `high`. An empty range is widened. A logarithmic axis begins above 0,
    /// even if `low` is 0 or less.
    pub(super) fn new(low: f64, high: f64, is_log: bool, length: f64) -> Self {
        let low = if is_log { low.max(f64::MIN_POSITIVE) } else { low };
        let (low, high) = match (high > low, is_log) {
            (true, _) => (low, high),
            (false, true) => (low / 2.0, low * 2.0),
            (false, false) => (low - 0.5, low + 0.5),
        };
        Self { low, high, is_log, length }
    }

    /// Returns the distance of a value from the start of the axis. A value outside the axis is moved to its
    /// nearest end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (low, high) = (scale(self.low), scale(self.high));
        ((scale(value) - low) / (high - low)).clamp(0.0, 1.0) * self.length
    }

    /// Returns the smallest value of the axis.
    pub(super) fn low(&self) -> f64 {
        self.low
    }

    /// Returns the ticks, each as a value and its text.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let is_short = self.high.log10() - self.low.log10() < SHORT;
        if self.is_log && !is_short { self.log_ticks() } else { self.linear_ticks() }
    }

    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let least = (self.high - self.low) / TICKS;
        let decade = 10_f64.powf(least.log10().floor());
        // The comparison excludes the factor 10, because a rounding error may make ten times `decade`
        // slightly less than `least`.
        let step = decade * [1.0, 2.0, 5.0].into_iter().find(|it| it * decade >= least).unwrap_or(10.0);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let tick = |n: i64| {
            let value = n as f64 * step;
            (value, grouped(&format!("{value:.decimals$}")))
        };
        (first..=last).map(tick).collect()
    }

    fn log_ticks(&self) -> Vec<(f64, String)> {
        let (low, high) = (self.low.log10(), self.high.log10());
        let factors: &[f64] = if high - low >= DECADES { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = low.floor() as i32..=high.ceil() as i32;
        let all = decades.flat_map(|decade| factors.iter().map(move |it| (decade, it * 10_f64.powi(decade))));
        all.filter(|(_, value)| (self.low * 0.999..=self.high * 1.001).contains(value))
            .map(|(decade, value)| (value, grouped(&format!("{value:.0$}", (-decade).max(0) as usize))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        assert_eq!(texts(Axis::new(0.0, 1.3, false, 100.0)), ["0.0", "0.5", "1.0"]);
        assert_eq!(texts(Axis::new(0.0, 1.0, false, 100.0)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(Axis::new(0.0, 52_000.0, false, 100.0)).last().unwrap(), "40,000");
        assert_eq!(texts(Axis::new(0.004, 90.0, true, 100.0)), ["0.01", "0.1", "1", "10"]);
        assert_eq!(texts(Axis::new(3.1, 3.6, true, 100.0)), ["3.1", "3.2", "3.3", "3.4", "3.5", "3.6"]);
        assert_eq!(
            texts(Axis::new(15.0, 2100.0, true, 100.0)),
            ["20", "50", "100", "200", "500", "1000", "2000"]
        );
    }

    #[test]
    fn values_are_where_the_scale_puts_them_and_none_is_outside() {
        let (linear, log) = (Axis::new(0.0, 10.0, false, 100.0), Axis::new(1.0, 100.0, true, 100.0));
        assert_eq!((linear.at(5.0), linear.at(20.0), linear.at(-1.0)), (50.0, 100.0, 0.0));
        assert!((log.at(10.0) - 50.0).abs() < 1e-9 && log.at(0.0) == 0.0);
        assert_eq!(Axis::new(3.0, 3.0, false, 100.0).at(3.0), 50.0);
    }
}
