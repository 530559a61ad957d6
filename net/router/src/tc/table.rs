//! Output of the classes' counters: a table, JSON, and metrics for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use ops::MetricsText;
use serde::Serialize;

use crate::tc::counted::Counted;
use crate::tc::plan::{DEFAULT, MAJOR, WHOLE};

/// Row of one class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Row {
    /// Number of the class, as `tc` prints it.
    class: String,
    /// Occupancies of the class's packets.
    occupancy: String,
    /// Guaranteed rate.
    rate_bit_s: u64,
    /// Ceiling of the rate.
    ceil_bit_s: u64,
    packets: u64,
    bytes: u64,
    dropped: u64,
    waiting: u64,
    /// Rate since the previous table; `None` in the first table.
    passing_bit_s: Option<f64>,
}

/// Returns the occupancies of a class's packets as text.
fn occupancy(minor: u32) -> String {
    match minor {
        DEFAULT => "none said".to_owned(),
        0x100 => "90-100 %".to_owned(),
        WHOLE => "all".to_owned(),
        minor => format!("{}-{} %", (minor / 0x10 - 1) * 10, (minor / 0x10 - 1) * 10 + 9),
    }
}

/// Returns a row for each class. The field `passing_bit_s` is computed from the bytes since the counters in `last`, and from
/// the time in `last`.
pub(crate) fn rows(
    now: &BTreeMap<u32, Counted>,
    last: Option<(&BTreeMap<u32, Counted>, Duration)>,
) -> Vec<Row> {
    let passing = |minor: &u32, class: &Counted| {
        let (last, pause) = last?;
        let bytes = class.bytes.saturating_sub(last.get(minor)?.bytes);
        Some(8.0 * bytes as f64 / pause.as_secs_f64().max(1e-9))
    };
    let row = |(minor, class): (&u32, &Counted)| Row {
        class: format!("{MAJOR:x}:{minor:x}"),
        occupancy: occupancy(*minor),
        rate_bit_s: class.rate,
        ceil_bit_s: class.ceil,
        packets: class.packets,
        bytes: class.bytes,
        dropped: class.dropped,
        waiting: class.waiting,
        passing_bit_s: passing(minor, class),
    };
    now.iter().map(row).collect()
}

pub(crate) fn json(rows: &[Row]) -> serde_json::Value {
    serde_json::json!({"schema": 1, "classes": rows})
}

/// Prints a table, or a line of JSON.
pub(crate) fn print(rows: &[Row], is_json: bool, out: &mut dyn Write) -> io::Result<()> {
    if is_json {
        return writeln!(out, "{}", json(rows));
    }
    writeln!(
        out,
        "{:<8}  {:<9}  {:>10}  {:>12}  {:>15}  {:>9}  {:>7}  {:>11}",
        "CLASS", "OCCUPANCY", "GUARANTEED", "PACKETS", "BYTES", "DROPPED", "WAITING", "PASSING"
    )?;
    for row in rows {
        writeln!(
            out,
            "{:<8}  {:<9}  {:>10}  {:>12}  {:>15}  {:>9}  {:>7}  {:>11}",
            row.class,
            row.occupancy,
            netem::rate_text(row.rate_bit_s),
            row.packets,
            row.bytes,
            row.dropped,
            row.waiting,
            row.passing_bit_s.map_or("-".to_owned(), |rate| format!("{:.2} Mb/s", rate / 1e6))
        )?;
    }
    Ok(())
}

/// Returns the metrics of the classes.
pub(crate) fn metrics(interface: &str, rows: &[Row]) -> MetricsText {
    let mut out = MetricsText::default();
    let mut family = |name: &str, kind, help, value: &dyn Fn(&Row) -> u64| {
        out.head(name, kind, help);
        for row in rows {
            let labels: [(&str, &dyn Display); 3] =
                [("interface", &interface), ("class", &row.class), ("occupancy", &row.occupancy)];
            out.series(name, &labels, value(row));
        }
    };
    family("sctpify_tc_packets_total", "counter", "Packets forwarded.", &|row| row.packets);
    family("sctpify_tc_bytes_total", "counter", "Bytes forwarded, including link headers.", &|row| row.bytes);
    family("sctpify_tc_dropped_packets_total", "counter", "Packets dropped.", &|row| row.dropped);
    family("sctpify_tc_waiting_packets", "gauge", "Packets in the queue.", &|row| row.waiting);
    family("sctpify_tc_guaranteed_bits_per_second", "gauge", "Guaranteed rate of the class.", &|row| {
        row.rate_bit_s
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_and_the_metrics_name_the_occupancy_of_each_class_and_its_counts() {
        let class = Counted { rate: 1_785_000, bytes: 86, packets: 2, dropped: 3, ..Counted::default() };
        let [now, before] =
            [class, Counted { bytes: 0, ..class }].map(|class| BTreeMap::from([(0x10, class)]));
        let rows = rows(&now, Some((&before, Duration::from_micros(86))));
        let mut out = Vec::new();
        print(&rows, false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("0-9 %") && text.contains("1785kbit") && text.contains("8.00 Mb/s"), "{text}");
        assert_eq!([0x100, 0x90, 1].map(occupancy), ["90-100 %", "80-89 %", "none said"]);
        let metrics = metrics("eth1", &rows).0;
        let series =
            "sctpify_tc_dropped_packets_total{interface=\"eth1\",class=\"5ba:10\",occupancy=\"0-9 %\"} 3\n";
        assert!(metrics.contains(series), "{metrics}");
    }
}
