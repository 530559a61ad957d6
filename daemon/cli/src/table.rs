//! Formats aligned tables, and numbers for people.

use std::io::{self, Write};

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under headings; each column is as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Replaces control characters in cells by `?`. Otherwise, a name with a line end could imitate a line of the output.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let clean =
            |c: String| -> String { c.chars().map(|l| if l.is_control() { '?' } else { l }).collect() };
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn print(&self, out: &mut dyn Write, indent: &str) -> io::Result<()> {
        self.lines().iter().try_for_each(|line| writeln!(out, "{indent}{line}"))
    }

    /// Returns the headings and the rows, aligned.
    pub(crate) fn lines(&self) -> Vec<String> {
        let headings: Vec<String> = self.columns.iter().map(|(name, _)| (*name).into()).collect();
        let widths: Vec<usize> = (0..self.columns.len()).map(|i| self.width(i)).collect();
        let aligned = |row: &Vec<String>| {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                match align {
                    Align::Left => line.push_str(&format!("{cell:<width$}  ")),
                    Align::Right => line.push_str(&format!("{cell:>width$}  ")),
                }
            }
            line.trim_end().to_owned()
        };
        std::iter::once(&headings).chain(&self.rows).map(aligned).collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|r| r.get(column));
        let heading = self.columns[column].0.chars().count();
        cells.map(|c| c.chars().count()).max().unwrap_or(0).max(heading)
    }
}

/// Formats a number of bytes: `999 B`, `1.5 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Formats a number of seconds: `59 s`, `2 min 5 s`, `3 h 0 min`, `2 d 4 h`.
pub(crate) fn seconds(s: u64) -> String {
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

/// Formats a number of microseconds in milliseconds: `0.4 ms`, `12 ms`.
pub(crate) fn millis(us: u64) -> String {
    if us < 10_000 { format!("{:.1} ms", us as f64 / 1000.0) } else { format!("{} ms", us / 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("NAME", Align::Left), ("HITS", Align::Right)]);
        table.row(["a-long-name".into(), "7".into()]);
        table.row(["b".into(), "12345".into()]);
        let mut text = Vec::new();
        table.print(&mut text, " ").unwrap();
        let expected = " NAME          HITS\n a-long-name      7\n b            12345\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn bytes_step_up_at_1024() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
    }

    #[test]
    fn seconds_use_the_two_largest_units() {
        assert_eq!(seconds(59), "59 s");
        assert_eq!(seconds(60), "1 min 0 s");
        assert_eq!(seconds(3600), "1 h 0 min");
        assert_eq!(seconds(90000), "1 d 1 h");
    }
}
