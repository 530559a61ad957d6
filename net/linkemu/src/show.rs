//! Human-readable form of reports.

use std::fmt::Write;

use crate::report::{DirectionReport, Report};

/// Returns the report of a link as lines of text.
pub(crate) fn text(report: &Report) -> String {
    let scheduling =
        if report.realtime { "real-time" } else { "ordinary (no permission for real-time scheduling)" };
    let mut out = format!(
        "link {}: {} - {}, process {}, {scheduling}, seed {}, up {:.0} s\n",
        report.name, report.a, report.b, report.pid, report.seed, report.uptime_s
    );
    report.directions.iter().for_each(|direction| add_direction(&mut out, direction));
    for warning in &report.warnings {
        let _ = writeln!(out, "  WARNING: {warning}");
    }
    out
}

fn add_direction(out: &mut String, direction: &DirectionReport) {
    let settings: Vec<String> =
        direction.settings.iter().map(|(key, value)| format!("{key} {value}")).collect();
    let settings = if settings.is_empty() { "as a cable".to_owned() } else { settings.join(", ") };
    let (packets, frames, late) = (&direction.packets, &direction.frames, &direction.late);
    let _ = writeln!(out, "  {} -> {}: {settings}", direction.from, direction.to);
    let _ = writeln!(
        out,
        "    in {} packets ({} bytes), passed {}, lost {}{}",
        packets.offered,
        packets.offered_bytes,
        packets.passed,
        packets.lost(),
        causes(direction)
    );
    let _ = writeln!(
        out,
        "    waiting {} packets ({} bytes), {} in transit, sent {}; corrupted {}, duplicated {}, reordered {}, marked {}",
        direction.queue_packets,
        direction.queue_bytes,
        direction.held.saturating_sub(direction.queue_packets),
        frames.sent,
        packets.corrupted,
        packets.duplicated,
        packets.reordered,
        packets.marked
    );
    let _ = writeln!(
        out,
        "    sent late by: p50 up to {} us, p99 up to {} us, maximum {} us",
        late.p50_us, late.p99_us, late.max_us
    );
}

/// Returns the causes of packet loss with their counts, or an empty text if no packet was lost.
fn causes(direction: &DirectionReport) -> String {
    let p = &direction.packets;
    let causes = [
        (p.lost_by_chance, "by chance"),
        (p.lost_in_queue, "queue full"),
        (p.lost_by_cut, "cut"),
        (p.lost_for_length, "too long"),
        (p.lost_for_ecn, "for their ECN bits"),
        (p.lost_for_room, "no room"),
    ];
    let causes: Vec<String> =
        causes.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{why} {count}")).collect();
    if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) }
}
