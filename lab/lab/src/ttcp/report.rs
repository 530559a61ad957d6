//! ttcp's output.

use anyhow::Result;
use clap::ValueEnum;
use nix::sys::resource::Usage;
use nix::sys::time::{TimeVal, TimeValLike};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::Duration;

/// Units of rates. As in ttcp, the prefixes k, m and g are powers of 1,024, for bytes and for bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Unit {
    /// Kbit
    #[value(name = "k")]
    Kbit,
    /// KB
    #[value(name = "K")]
    Kbyte,
    /// Mbit
    #[value(name = "m")]
    Mbit,
    /// MB
    #[value(name = "M")]
    Mbyte,
    /// Gbit
    #[value(name = "g")]
    Gbit,
    /// GB
    #[value(name = "G")]
    Gbyte,
}

impl Unit {
    /// Returns the number of bytes in the unit, and the unit's name.
    fn measure(self) -> (f64, &'static str) {
        match self {
            Self::Kbit => (1024.0 / 8.0, "Kbit"),
            Self::Kbyte => (1024.0, "KB"),
            Self::Mbit => (1024.0 * 1024.0 / 8.0, "Mbit"),
            Self::Mbyte => (1024.0 * 1024.0, "MB"),
            Self::Gbit => (1024.0 * 1024.0 * 1024.0 / 8.0, "Gbit"),
            Self::Gbyte => (1024.0 * 1024.0 * 1024.0, "GB"),
        }
    }

    fn rate(self, bytes: f64, seconds: f64) -> String {
        let (size, name) = self.measure();
        format!("{:.2} {name}", per(bytes / size, seconds))
    }
}

/// The traffic of one end, and its cost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Number of application bytes.
    pub(crate) bytes: u64,
    /// Number of buffers or messages that were sent or received.
    pub(crate) calls: u64,
    /// Wall-clock time, in seconds.
    pub(crate) real_s: f64,
    /// Processor time of the program itself, in seconds.
    pub(crate) user_s: f64,
    /// Processor time of the kernel for the program, in seconds.
    pub(crate) system_s: f64,
    max_rss_kib: i64,
    major_faults: i64,
    minor_faults: i64,
    voluntary_switches: i64,
    involuntary_switches: i64,
}

impl Report {
    /// Creates a report. The resource usage is the difference between two snapshots.
    pub(super) fn new(bytes: u64, calls: u64, real: Duration, before: &Usage, after: &Usage) -> Self {
        let seconds = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
        Self {
            bytes,
            calls,
            real_s: real.as_secs_f64(),
            user_s: seconds(after.user_time() - before.user_time()),
            system_s: seconds(after.system_time() - before.system_time()),
            max_rss_kib: after.max_rss(),
            major_faults: after.major_page_faults() - before.major_page_faults(),
            minor_faults: after.minor_page_faults() - before.minor_page_faults(),
            voluntary_switches: after.voluntary_context_switches() - before.voluntary_context_switches(),
            involuntary_switches: after.involuntary_context_switches()
                - before.involuntary_context_switches(),
        }
    }

    /// Formats the report as text, with `name` at the start of each line.
    pub(super) fn text(&self, name: &str, unit: Unit, verbose: bool) -> String {
        let (bytes, calls, cpu_s) = (self.bytes as f64, self.calls as f64, self.user_s + self.system_s);
        let rate = unit.rate(bytes, self.real_s);
        let mut text =
            format!("{name}: {} bytes in {:.3} real seconds = {rate}/sec +++\n", self.bytes, self.real_s);
        if verbose {
            let rate = unit.rate(bytes, cpu_s);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {} bytes in {cpu_s:.3} CPU seconds = {rate}/cpu sec", self.bytes);
        }
        let (each_ms, each_s) = (per(self.real_s * 1e3, calls), per(calls, self.real_s));
        let _ = writeln!(
            text,
            "{name}: {} I/O calls, msec/call = {each_ms:.3}, calls/sec = {each_s:.2}",
            self.calls
        );
        let share = 100.0 * per(cpu_s, self.real_s);
        let _ = writeln!(
            text,
            "{name}: {:.2}user {:.2}sys {}real {share:.0}% {}maxrss {}+{}pf {}+{}csw",
            self.user_s,
            self.system_s,
            clock(self.real_s),
            self.max_rss_kib,
            self.major_faults,
            self.minor_faults,
            self.voluntary_switches,
            self.involuntary_switches
        );
        text
    }

    /// Formats the report as a JSON object on one line.
    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// Formats a time as minutes and seconds.
fn clock(seconds: f64) -> String {
    let whole = seconds as u64;
    format!("{}:{:02}", whole / 60, whole % 60)
}

/// Returns `amount` divided by `many`, or 0 if `many` is 0.
fn per(amount: f64, many: f64) -> f64 {
    if many > 0.0 { amount / many } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: Report = Report {
        bytes: 16 << 20,
        calls: 2048,
        real_s: 2.0,
        user_s: 0.25,
        system_s: 0.75,
        max_rss_kib: 4000,
        major_faults: 0,
        minor_faults: 90,
        voluntary_switches: 12,
        involuntary_switches: 3,
    };

    #[test]
    fn the_report_has_the_format_of_ttcp() {
        let expected = "\
ttcp-t: 16777216 bytes in 2.000 real seconds = 64.00 Mbit/sec +++
ttcp-t: 2048 I/O calls, msec/call = 0.977, calls/sec = 1024.00
ttcp-t: 0.25user 0.75sys 0:02real 50% 4000maxrss 0+90pf 12+3csw
";
        assert_eq!(REPORT.text("ttcp-t", Unit::Mbit, false), expected);
    }

    #[test]
    fn a_full_report_also_has_the_rate_per_cpu_second() {
        let text = REPORT.text("ttcp-r", Unit::Kbyte, true);
        assert!(
            text.contains("ttcp-r: 16777216 bytes in 1.000 CPU seconds = 16384.00 KB/cpu sec\n"),
            "{text}"
        );
    }

    #[test]
    fn nothing_moved_in_no_time_is_no_division_by_zero() {
        let report = Report { bytes: 0, calls: 0, real_s: 0.0, ..REPORT };
        assert!(report.text("ttcp-r", Unit::Gbit, true).contains("= 0.00 Gbit/sec"));
    }
}
