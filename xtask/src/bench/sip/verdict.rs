//! Shows figures, and compares their medians with the goals.

use super::{Figures, Row};
use crate::bench::report::Report;
use pages::stats::spread;
use pages::{Limit, Table};

/// A figure: its name with the unit, its value, and the better direction.
struct Kind {
    name: &'static str,
    of: fn(&Figures) -> f64,
    more_is_better: bool,
}

/// Name of the figure for memory per user. This figure is shown and judged only over TCP. Over UDP, the proxy keeps the transaction of a
/// registration for 32 s (RFC 3261 timer J), and this memory does not belong to the user.
const USER_BYTES: &str = "bytes for a registered user";

const KINDS: [Kind; 6] = [
    Kind { name: "registrations/s", of: |it| it.registrations_per_s, more_is_better: true },
    Kind { name: "us of processor for a registration", of: |it| it.registration_us, more_is_better: false },
    Kind { name: USER_BYTES, of: |it| it.user_bytes, more_is_better: false },
    Kind { name: "calls/s", of: |it| it.calls_per_s, more_is_better: true },
    Kind { name: "us of processor for a call", of: |it| it.call_us, more_is_better: false },
    Kind {
        name: "ms p99 of set-up at half of the lower rate",
        of: |it| it.half_p99_ms,
        more_is_better: false,
    },
];
/// Required rates of our proxy over SCTP, as a share of its rates over TCP.
const SCTP_GOAL: f64 = 0.8;

/// Formats one round over one transport as a line.
pub(super) fn line(row: &Row) -> String {
    let text = |figures: &Figures| {
        let numbers: Vec<String> = KINDS.iter().map(|kind| format!("{:.1}", (kind.of)(figures))).collect();
        format!("{}, p50 {:.2}, failed {}", numbers.join(" "), figures.half_p50_ms, figures.failed)
    };
    let theirs = row.theirs.as_ref().map(|theirs| format!(" | Kamailio {}", text(theirs)));
    format!("{}: ours {}{}", row.transport, text(&row.ours), theirs.unwrap_or_default())
}

/// Shows medians and judges their ratios.
pub(super) fn judge(rows: &[Row], report: &mut Report) {
    let head = ["figure", "ours", "Kamailio", "ratio in a round"];
    let mut table = Table::new("Medians (least-greatest)", head);
    for transport in ["udp", "tcp"] {
        for kind in KINDS.iter().filter(|kind| transport == "tcp" || kind.name != USER_BYTES) {
            beside(rows, transport, kind, &mut table, report);
        }
    }
    report.show(table);
    let head = ["figure", "SCTP", "to our TCP in a round"];
    let mut table = Table::new("Our SCTP and our TCP, medians (least-greatest)", head);
    for (name, figure) in [
        ("registrations/s", (|it| it.registrations_per_s) as fn(&Figures) -> f64),
        ("calls/s", |it| it.calls_per_s),
        ("ms p99 of set-up at TCP's rate", |it| it.half_p99_ms),
    ] {
        let of = |transport: &str| -> Vec<f64> {
            rows.iter().filter(|row| row.transport == transport).map(|row| figure(&row.ours)).collect()
        };
        let (sctp, tcp) = (of("sctp"), of("tcp"));
        let ratios: Vec<f64> = sctp.iter().zip(&tcp).map(|(sctp, tcp)| sctp / tcp).collect();
        table.row([name.to_owned(), spread(&sctp), spread(&ratios)]);
        if name.ends_with("/s") {
            report.judge(format!("sctp, {name}, by our TCP's"), &ratios, Limit::AtLeast(SCTP_GOAL));
        }
    }
    report.show(table);
    let failed: f64 = rows.iter().map(|row| row.ours.failed).sum();
    report.judge("operations of ours that failed", &[failed], Limit::AtMost(0.0));
}

/// Compares one of our figures with Kamailio's figure.
fn beside(rows: &[Row], transport: &str, kind: &Kind, table: &mut Table, report: &mut Report) {
    let rows = rows.iter().filter(|row| row.transport == transport);
    let pairs: Vec<(f64, f64)> =
        rows.filter_map(|row| Some(((kind.of)(&row.ours), (kind.of)(row.theirs.as_ref()?)))).collect();
    let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let ratios: Vec<f64> = pairs.iter().map(|(ours, theirs)| ours / theirs).collect();
    let figure = format!("{transport}, {}", kind.name);
    table.row([figure.clone(), spread(&ours), spread(&theirs), spread(&ratios)]);
    let limit = if kind.more_is_better { Limit::AtLeast(1.0) } else { Limit::AtMost(1.0) };
    report.judge(format!("{figure}, by Kamailio's"), &ratios, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(transport: &'static str, ours: f64, theirs: Option<f64>) -> Row {
        let figures = |calls_per_s| Figures {
            calls_per_s,
            registrations_per_s: calls_per_s,
            registration_us: 1.0 / calls_per_s,
            user_bytes: 1.0 / calls_per_s,
            call_us: 1.0 / calls_per_s,
            half_p99_ms: 1.0 / calls_per_s,
            ..Figures::default()
        };
        Row { transport, ours: figures(ours), theirs: theirs.map(figures) }
    }

    fn is_good(rows: &[Row]) -> bool {
        let mut report = Report::default();
        judge(rows, &mut report);
        report.verdict()
    }

    #[test]
    fn goals_are_met_only_where_ours_is_as_good_and_sctp_near_tcp() {
        let good = [row("udp", 2.0, Some(1.0)), row("tcp", 2.0, Some(2.0)), row("sctp", 1.7, None)];
        assert!(is_good(&good));
        let slower = [row("udp", 0.9, Some(1.0)), row("tcp", 2.0, Some(2.0)), row("sctp", 1.7, None)];
        assert!(!is_good(&slower));
        let slow_sctp = [row("udp", 2.0, Some(1.0)), row("tcp", 2.0, Some(2.0)), row("sctp", 1.5, None)];
        assert!(!is_good(&slow_sctp));
    }
}
