//! Numbers as Prometheus reads them.

use std::fmt::{Display, Write as _};

/// Numbers for Prometheus, in its text format 0.0.4.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MetricsText(pub String);

impl MetricsText {
    /// What comes before the series of a family.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A family of one series.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// A series.
    pub fn series(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(self.0, "{name}{{{}}} {value}", labels.join(","));
    }
}

/// The value of a label, as the format wants it.
fn escaped(value: &dyn Display) -> String {
    value.to_string().replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_backslashes_and_line_ends_do_not_end_a_label() {
        let mut out = MetricsText::default();
        out.series("a", &[("b", &"c"), ("d", &"\"e\\\n")], 7);
        assert_eq!(out.0, "a{b=\"c\",d=\"\\\"e\\\\\\n\"} 7\n");
    }
}
