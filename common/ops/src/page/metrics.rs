//! Writes metrics in the text format of Prometheus.

use std::fmt::{Display, Write as _};
use std::time::Duration;

/// Metrics in the Prometheus text format, version 0.0.4.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MetricsText(pub String);

impl MetricsText {
    /// Writes the HELP and TYPE lines of a metric family.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Returns a Markdown table of the metric families, for the reference documentation.
    pub fn reference(&self) -> String {
        let mut table = "| metric | type | meaning |\n|---|---|---|\n".to_owned();
        let mut helps = self.0.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
        let kinds = self.0.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        for (name, kind) in kinds {
            let help = helps.find(|(known, _)| *known == name).map_or("", |(_, help)| help);
            let _ = writeln!(table, "| `{name}` | {kind} | {help} |");
        }
        table
    }

    /// Writes a metric family that consists of one series without labels.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// Writes the current value of a series.
    pub fn series(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// Writes the series of a histogram of durations. `bounds` holds the upper bounds of all buckets except the last, which has no bound.
    /// `counts` holds the number of values in each bucket, without the values in lower buckets.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &dyn Display)],
        bounds: &[Duration],
        counts: &[u64],
        sum: Duration,
    ) {
        let bounds = bounds.iter().map(|bound| seconds(*bound));
        let mut all = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
            all += count;
            let labels = [labels, &[("le", &bound as &dyn Display)]].concat();
            self.series(&format!("{name}_bucket"), &labels, all);
        }
        self.series(&format!("{name}_sum"), labels, seconds(sum));
        self.series(&format!("{name}_count"), labels, all);
    }
}

/// Formats a duration in seconds, without trailing zeros.
fn seconds(time: Duration) -> String {
    let text = format!("{}.{:06}", time.as_secs(), time.subsec_micros());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Escapes the value of a label for the text format.
fn escaped(value: &dyn Display) -> String {
    value.to_string().replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_each_family_once() {
        let mut out = MetricsText::default();
        out.one("a", "gauge", "About a.", 1);
        out.head("b_total", "counter", "About b.");
        out.series("b_total", &[("c", &"d")], 7);
        let rows = "| `a` | gauge | About a. |\n| `b_total` | counter | About b. |\n";
        assert_eq!(out.reference(), format!("| metric | type | meaning |\n|---|---|---|\n{rows}"));
    }

    #[test]
    fn quotes_backslashes_and_line_ends_do_not_end_a_label() {
        let mut out = MetricsText::default();
        out.series("a", &[("b", &"c"), ("d", &"\"e\\\n")], 7);
        assert_eq!(out.0, "a{b=\"c\",d=\"\\\"e\\\\\\n\"} 7\n");
    }

    #[test]
    fn histogram_buckets_are_cumulative() {
        let mut out = MetricsText::default();
        out.histogram(
            "a",
            &[("b", &"c")],
            &[5, 2000].map(Duration::from_millis),
            &[1, 2, 4],
            Duration::from_millis(10_250),
        );
        let lines = [
            "a_bucket{b=\"c\",le=\"0.005\"} 1",
            "a_bucket{b=\"c\",le=\"2\"} 3",
            "a_bucket{b=\"c\",le=\"+Inf\"} 7",
            "a_sum{b=\"c\"} 10.25",
            "a_count{b=\"c\"} 7\n",
        ];
        assert_eq!(out.0, lines.join("\n"));
        let mut out = MetricsText::default();
        out.histogram("a", &[], &[Duration::from_millis(100)], &[0, 0], Duration::ZERO);
        assert_eq!(out.0, "a_bucket{le=\"0.1\"} 0\na_bucket{le=\"+Inf\"} 0\na_sum 0\na_count 0\n");
    }
}
