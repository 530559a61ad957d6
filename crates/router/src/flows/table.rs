//! Flows as a table, as JSON and as numbers for Prometheus.

use std::fmt::Display;
use std::io::{self, Write};

use control::MetricsText;

use super::book::{FlowRow, Verdict};

/// Series of flows at most: a time series store likes no more.
const SERIES_MAX: usize = 512;

pub(super) fn json(rows: &[FlowRow]) -> serde_json::Value {
    serde_json::json!({"schema": 1, "flows": rows})
}

/// `top` flows as a table, or all as a line of JSON.
pub(super) fn print(rows: &[FlowRow], top: usize, is_json: bool, out: &mut dyn Write) -> io::Result<()> {
    if is_json {
        return writeln!(out, "{}", json(rows));
    }
    writeln!(
        out,
        "{:>11}  {:>8}  {:>5}  {:>12}  {:<11}  FLOW",
        "RATE", "PACKETS", "FULL", "BACKLOG", "LIMITED BY"
    )?;
    for row in rows.iter().take(top) {
        let number = |n: Option<u32>, unit: &str| n.map_or("-".to_owned(), |n| format!("{n}{unit}"));
        writeln!(
            out,
            "{:>11}  {:>8}  {:>5}  {:>12}  {:<11}  {} port {} to {} port {}",
            format!("{:.3} Mb/s", row.bit_s / 1e6),
            row.packets,
            number(row.occupancy.map(u32::from), " %"),
            number(row.backlog, " B"),
            row.verdict.word(),
            row.from,
            row.from_port,
            row.to,
            row.to_port
        )?;
    }
    if rows.len() > top {
        writeln!(out, "and {} more", rows.len() - top)?;
    }
    Ok(())
}

/// The page of metrics.
pub(super) fn metrics(rows: &[FlowRow]) -> MetricsText {
    let mut out = MetricsText::default();
    out.head("sctpify_flows", "gauge", "Flows seen lately, by what keeps them from sending more.");
    for verdict in [Verdict::Application, Verdict::Network, Verdict::Receiver, Verdict::Unknown] {
        let count = rows.iter().filter(|row| row.verdict == verdict).count();
        out.series("sctpify_flows", &[("limited_by", &verdict.word())], count);
    }
    let mut family = |name: &str, help, value: &dyn Fn(&FlowRow) -> Option<f64>| {
        out.head(name, "gauge", help);
        for row in rows.iter().take(SERIES_MAX) {
            let Some(value) = value(row) else { continue };
            let word = row.verdict.word();
            let labels: [(&str, &dyn Display); 5] = [
                ("from", &row.from),
                ("from_port", &row.from_port),
                ("to", &row.to),
                ("to_port", &row.to_port),
                ("limited_by", &word),
            ];
            out.series(name, &labels, value);
        }
    };
    family("sctpify_flow_bits_per_second", "Rate of a flow, from the IP headers on.", &|row| Some(row.bit_s));
    family("sctpify_flow_backlog_bytes", "What waits in its sender's buffer, as it says.", &|row| {
        row.backlog.map(f64::from)
    });
    family("sctpify_flow_occupancy_percent", "How full its sender's buffer is, as it says.", &|row| {
        row.occupancy.map(f64::from)
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_and_the_metrics_tell_rate_backlog_and_verdict() {
        let row = FlowRow {
            from: "10.0.0.1".parse().unwrap(),
            from_port: 7,
            to: "10.0.0.2".parse().unwrap(),
            to_port: 9,
            bit_s: 1.5e6,
            packets: 125,
            occupancy: Some(40),
            backlog: None,
            verdict: Verdict::Network,
        };
        let mut out = Vec::new();
        print(&[row.clone(), row.clone()], 1, false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = " 1.500 Mb/s       125   40 %             -  network      10.0.0.1 port 7 to 10.0.0.2 port 9\nand 1 more\n";
        assert!(text.ends_with(expected), "{text}");
        let metrics = metrics(&[row]).0;
        assert!(metrics.contains("sctpify_flows{limited_by=\"network\"} 1\n"), "{metrics}");
        assert!(metrics.contains("to_port=\"9\",limited_by=\"network\"} 1500000\n"), "{metrics}");
        assert!(!metrics.contains("backlog_bytes{"), "{metrics}");
    }
}
