//! Serves the web page and the metrics: the daemon's activity, for people and for Prometheus.
//!
//! The page and the metrics are served on 127.0.0.1. With the setting `metrics_listen`, other hosts also get the metrics.
//! [`ops::Page`] answers HTTP requests and checks access. Begin with [`run`] and [`run_metrics`]; [`control::metrics`] writes
//! the numbers.

use control::{Request, Response};

use ops::{Page, PageAnswer, PageRequest};

use crate::control_server::Desk;

/// Names of all paths, for the answer to a request for an unknown path.
const NAMES: &str = "/, /metrics, /status.json, /history.json and /rules.json";

/// Serves the page and the metrics until the process ends.
pub(crate) fn run(page: Page, desk: Desk) {
    page.run(NAMES, move |request| answer(&desk, request));
}

/// Serves the metrics alone until the process ends.
pub(crate) fn run_metrics(listener: Page, desk: Desk) {
    listener.run("/metrics", move |request| (request.path() == "/metrics").then(|| metrics(&desk)));
}

fn metrics(desk: &Desk) -> PageAnswer {
    match desk.look(Request::Status) {
        Response::Status(status) => PageAnswer::metrics(control::metrics(&status)),
        _ => PageAnswer::text("503 Service Unavailable", "the daemon is stopping or overloaded"),
    }
}

fn answer(desk: &Desk, request: &PageRequest<'_>) -> Option<PageAnswer> {
    Some(match request.path() {
        "/" => PageAnswer::html("sctpify", "daemon", include_str!("main.html")),
        "/page.js" => PageAnswer::script(include_str!("page.js")),
        "/status.json" => json(&desk.look(Request::Status)),
        "/history.json" => json(&desk.look(Request::History)),
        "/rules.json" => json(&desk.look(Request::RulesList { chain: None, policy: None })),
        "/metrics" => metrics(desk),
        _ => return None,
    })
}

/// Formats a response as the JSON that the control socket also sends.
fn json(response: &Response) -> PageAnswer {
    let mut body = Vec::new();
    match control::write_response(&mut body, response) {
        Ok(()) => PageAnswer::file("application/json", body),
        Err(error) => PageAnswer::text("500 Internal Server Error", error),
    }
}
