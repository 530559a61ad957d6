//! Prints figures, and compares their medians with the goals.

use super::{Figures, Row};
use crate::bench::stats::{percentile, spread};

/// A figure, its unit, and the better direction.
struct Kind {
    name: &'static str,
    of: fn(&Figures) -> f64,
    more_is_better: bool,
}

/// Judged only over TCP: over UDP a registration's transaction is kept for 32 s (RFC 3261 timer J), which does
/// not belong to the user.
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
/// Required rate of our SCTP, as a share of our TCP's.
const SCTP_GOAL: f64 = 0.8;

/// Formats one round over one transport.
pub(super) fn line(row: &Row) -> String {
    let text = |figures: &Figures| {
        let numbers: Vec<String> = KINDS.iter().map(|kind| format!("{:.1}", (kind.of)(figures))).collect();
        format!("{}, p50 {:.2}, failed {}", numbers.join(" "), figures.half_p50_ms, figures.failed)
    };
    let theirs = row.theirs.as_ref().map(|theirs| format!(" | Kamailio {}", text(theirs)));
    format!("{}: ours {}{}", row.transport, text(&row.ours), theirs.unwrap_or_default())
}

/// Prints medians and verdicts; returns whether all goals are met.
pub(super) fn judge(rows: &[Row]) -> bool {
    let mut is_good = true;
    for transport in ["udp", "tcp"] {
        for kind in KINDS.iter().filter(|kind| transport == "tcp" || kind.name != USER_BYTES) {
            is_good &= beside(rows, transport, kind);
        }
    }
    let of = |transport: &str, of: fn(&Figures) -> f64| -> Vec<f64> {
        rows.iter().filter(|row| row.transport == transport).map(|row| of(&row.ours)).collect()
    };
    for (name, figure) in [
        ("registrations/s", (|it| it.registrations_per_s) as fn(&Figures) -> f64),
        ("calls/s", |it| it.calls_per_s),
    ] {
        let (sctp, tcp) = (of("sctp", figure), of("tcp", figure));
        let ratios: Vec<f64> = sctp.iter().zip(&tcp).map(|(sctp, tcp)| sctp / tcp).collect();
        let goal = percentile(&ratios, 50) >= SCTP_GOAL;
        println!(
            "{} sctp, {name}: {}; to our TCP {} (>= {SCTP_GOAL})",
            word(goal),
            spread(&sctp),
            spread(&ratios)
        );
        is_good &= goal;
    }
    let (sctp, tcp) = (of("sctp", |it| it.half_p99_ms), of("tcp", |it| it.half_p99_ms));
    let ratios: Vec<f64> = sctp.iter().zip(&tcp).map(|(sctp, tcp)| sctp / tcp).collect();
    println!(
        "       sctp, ms p99 of set-up at TCP's rate: {}; to our TCP {}",
        spread(&sctp),
        spread(&ratios)
    );
    let failed: f64 = rows.iter().map(|row| row.ours.failed).sum();
    println!("{} failed operations of sctpify-sip: {failed} (0)", word(failed == 0.0));
    is_good && failed == 0.0
}

/// Compares one of our figures with Kamailio's.
fn beside(rows: &[Row], transport: &str, kind: &Kind) -> bool {
    let rows = rows.iter().filter(|row| row.transport == transport);
    let pairs: Vec<(f64, f64)> =
        rows.filter_map(|row| Some(((kind.of)(&row.ours), (kind.of)(row.theirs.as_ref()?)))).collect();
    let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let ratios: Vec<f64> = pairs.iter().map(|(ours, theirs)| ours / theirs).collect();
    let ratio = percentile(&ratios, 50);
    let is_met = if kind.more_is_better { ratio >= 1.0 } else { ratio <= 1.0 };
    let sign = if kind.more_is_better { ">=" } else { "<=" };
    println!(
        "{} {transport}, {}: ours {}, Kamailio {}, ratio {} ({sign} 1)",
        word(is_met),
        kind.name,
        spread(&ours),
        spread(&theirs),
        spread(&ratios)
    );
    is_met
}

fn word(is_met: bool) -> &'static str {
    if is_met { "met   " } else { "MISSED" }
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

    #[test]
    fn goals_are_met_only_where_ours_is_as_good_and_sctp_near_tcp() {
        let good = [row("udp", 2.0, Some(1.0)), row("tcp", 2.0, Some(2.0)), row("sctp", 1.7, None)];
        assert!(judge(&good));
        let slower = [row("udp", 0.9, Some(1.0)), row("tcp", 2.0, Some(2.0)), row("sctp", 1.7, None)];
        assert!(!judge(&slower));
        let slow_sctp = [row("udp", 2.0, Some(1.0)), row("tcp", 2.0, Some(2.0)), row("sctp", 1.5, None)];
        assert!(!judge(&slow_sctp));
    }
}
