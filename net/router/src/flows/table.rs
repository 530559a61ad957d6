//! Output of flows: a table, JSON, and metrics for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::IpAddr;

use ops::{LimitedBy, MetricsText, Part};

use super::flow_table::FlowRow;

/// Limit on the flows in the metrics. More series would burden a time-series database.
const SERIES_MAX: usize = 512;

pub(super) fn json(rows: &[FlowRow]) -> serde_json::Value {
    serde_json::json!({"schema": 1, "flows": rows})
}

/// Returns the requested part of the flows. The result also has the number of flows with each [`LimitedBy`], counted over all
/// flows.
///
/// # Errors
/// When the position after which the part begins is invalid. The error states the accepted form.
pub(super) fn part(rows: &[FlowRow], part: &Part) -> Result<serde_json::Value, String> {
    let before = part.number_after()?.map_or(Ok(0), usize::try_from).unwrap_or(usize::MAX);
    let following = rows.iter().enumerate().skip(before);
    let taken = part.take(following.map(|(n, row)| ((n + 1).to_string(), vec![row])), |row| {
        let end = |address: IpAddr, port: u16| format!("{address} port {port}");
        vec![end(row.from, row.from_port), end(row.to, row.to_port), row.verdict.word().to_owned()]
    });
    let mut report = json(&[]);
    report["flows"] = serde_json::json!(taken.rows);
    report["next"] = taken.next.into();
    report["known"] = rows.len().into();
    let limited_by: BTreeMap<&str, usize> =
        counts(rows).map(|(verdict, count)| (verdict.word(), count)).collect();
    report["limited_by"] = serde_json::json!(limited_by);
    Ok(report)
}

/// Counts flows by their limit.
fn counts(rows: &[FlowRow]) -> impl Iterator<Item = (LimitedBy, usize)> {
    LimitedBy::ALL
        .into_iter()
        .map(|verdict| (verdict, rows.iter().filter(|row| row.verdict == verdict).count()))
}

/// Prints up to `top` flows as a table, or all flows as a line of JSON.
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

/// Returns the metrics of the flows.
pub(crate) fn metrics(rows: &[FlowRow]) -> MetricsText {
    let mut out = MetricsText::default();
    out.head("sctpify_flows", "gauge", "Flows seen recently, by the limit on their rate.");
    for (verdict, count) in counts(rows) {
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
    family("sctpify_flow_bits_per_second", "Rate of a flow, including IP headers.", &|row| Some(row.bit_s));
    family("sctpify_flow_backlog_bytes", "Advertised backlog of its sender's buffer.", &|row| {
        row.backlog.map(f64::from)
    });
    family("sctpify_flow_occupancy_percent", "Advertised occupancy of its sender's buffer.", &|row| {
        row.occupancy.map(f64::from)
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> FlowRow {
        FlowRow {
            from: "10.0.0.1".parse().unwrap(),
            from_port: 7,
            to: "10.0.0.2".parse().unwrap(),
            to_port: 9,
            bit_s: 1.5e6,
            packets: 125,
            occupancy: Some(40),
            backlog: None,
            verdict: LimitedBy::Network,
        }
    }

    #[test]
    fn a_partial_flow_list_counts_all_flows_and_their_limits() {
        let rows: Vec<FlowRow> = (0..9).map(|n| FlowRow { from_port: 100 + n, ..flow() }).collect();
        let asked = |search: Option<&str>, after: Option<&str>, count| {
            let [search, after] = [search, after].map(|text| text.map(str::to_owned));
            part(&rows, &Part { search, after, count, ..Part::default() }).unwrap()
        };
        let ports = |report: &serde_json::Value| -> Vec<u64> {
            report["flows"].as_array().unwrap().iter().map(|row| row["from_port"].as_u64().unwrap()).collect()
        };
        let first = asked(None, None, Some(4));
        assert_eq!((ports(&first), &first["next"]), (vec![100, 101, 102, 103], &"4".into()));
        assert_eq!((&first["known"], &first["limited_by"]["network"]), (&9.into(), &9.into()));
        let last = asked(None, Some("4"), Some(9));
        assert_eq!((ports(&last), &last["next"]), (vec![104, 105, 106, 107, 108], &serde_json::Value::Null));
        assert_eq!(ports(&asked(Some("PORT 107"), None, None)), [107]);
        assert!(ports(&asked(None, Some("18446744073709551615"), Some(1))).is_empty());
        assert!(part(&rows, &Part { after: Some("x".to_owned()), ..Part::default() }).is_err());
    }

    #[test]
    fn the_table_and_the_metrics_show_rate_and_verdict_without_an_unknown_backlog() {
        let row = flow();
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
