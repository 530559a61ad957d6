//! Counters of the router as a page and as metrics for Prometheus, on 127.0.0.1 only.

use std::sync::PoisonError;

use ops::{MetricsText, PageAnswer};

use super::Shared;
use super::report::{DirectionReport, RunReport};
use crate::error::RouterError;
use crate::page;

/// Serves the page, `/metrics` and `/report.json` in a thread, if a port is given.
pub(super) fn serve(port: Option<u16>, shared: &Shared) -> Result<(), RouterError> {
    let shared = shared.clone();
    page::serve(port, "/, /metrics and /report.json", page::QUEUES, move |request| {
        let report = || shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match request.path() {
            "/metrics" => Some(PageAnswer::metrics(metrics(&report()))),
            "/report.json" => Some(PageAnswer::file("application/json", report().json().to_string())),
            _ => None,
        }
    })
}

/// Returns the metrics of a report.
pub(crate) fn metrics(report: &RunReport) -> MetricsText {
    let mut out = MetricsText::default();
    out.one("sctpify_router_up_seconds", "gauge", "Time since the router started.", report.uptime_s);
    let mut family = |name: &str, kind, help, value: &dyn Fn(&DirectionReport) -> u64| {
        out.head(name, kind, help);
        for it in &report.directions {
            out.series(name, &[("from", &it.from), ("to", &it.to), ("policy", &it.policy)], value(it));
        }
    };
    family("sctpify_router_offered_packets_total", "counter", "Packets that arrived at the queue.", &|it| {
        it.offered
    });
    family("sctpify_router_sent_packets_total", "counter", "Packets sent.", &|it| it.sent);
    family("sctpify_router_sent_bytes_total", "counter", "Bytes sent, including IP headers.", &|it| {
        it.sent_bytes
    });
    family("sctpify_router_dropped_packets_total", "counter", "Packets dropped by the queue.", &|it| {
        it.dropped
    });
    family("sctpify_router_marked_packets_total", "counter", "Packets marked with ECN.", &|it| it.marked);
    family("sctpify_router_missed_packets_total", "counter", "Frames lost before the queue.", &|it| {
        it.missed
    });
    family("sctpify_router_waiting_packets", "gauge", "Packets in the queue.", &|it| it.waiting as u64);
    out
}
