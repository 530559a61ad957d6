//! Serves the proxy's state to people, Prometheus and other programs, on 127.0.0.1 only. [`ops::Page`] is the HTTP server and controls
//! access.

use std::io;

use ops::{MetricsText, Page, PageAnswer, PageRequest, Part};

use crate::control_socket::Desk;
use crate::performance::Performance;
use crate::report;
use crate::words::{Answer, Question, Status};

/// The available paths.
const NAMES: &str = "/, /metrics, /status.json, /performance.json, and /contacts.json, /dialogs.json and /connections.json (?search=TEXT&count=NUMBER&after=NEXT)";

/// Serves requests until the process ends.
pub(crate) fn run(page: Page, desk: Desk) {
    page.run(NAMES, move |request| answer(&desk, request));
}

fn answer(desk: &Desk, request: &PageRequest<'_>) -> Option<PageAnswer> {
    let list = |question: fn(Part) -> Question| match Part::of(request) {
        Ok(part) => json(desk.look(question(part))),
        Err(problem) => PageAnswer::text("400 Bad Request", problem),
    };
    Some(match request.path() {
        "/" => PageAnswer::html("sctpify-sip", "proxy", include_str!("main.html")),
        "/page.js" => PageAnswer::script(include_str!("page.js")),
        "/metrics" => match (desk.look(Question::Status), desk.look(Question::Performance)) {
            (Ok(Answer::Status(status)), Ok(Answer::Performance(performance))) => {
                PageAnswer::metrics(metrics(&status, &performance))
            }
            _ => PageAnswer::text("503 Service Unavailable", "the proxy is stopping or overloaded"),
        },
        "/status.json" => json(desk.look(Question::Status)),
        "/performance.json" => json(desk.look(Question::Performance)),
        "/contacts.json" => list(Question::Contacts),
        "/dialogs.json" => list(Question::Dialogs),
        "/connections.json" => list(Question::Connections),
        _ => return None,
    })
}

fn metrics(status: &Status, performance: &Performance) -> MetricsText {
    let mut metrics = report::metrics(status);
    performance.add_to(&mut metrics);
    metrics
}

/// Returns the reference page of all metrics. Some of them exist only during a drain or with a shared store.
pub(crate) fn metrics_reference() -> String {
    let status = Status { transactions_left: Some(0), store_up: Some(true), ..Status::default() };
    format!(
        "# Metrics of the SIP proxy\n\nThe key `page_port` of the configuration opens `http://127.0.0.1:PORT/metrics`, in the text \
         format of Prometheus. The proxy counts from its start. `sctpify_sip_transactions_left` exists while the proxy drains, and \
         `sctpify_sip_store_up` and `sctpify_sip_store_waiting` where proxies share a store.\n\n{}",
        metrics(&status, &Performance::default()).reference()
    )
}

/// Returns an answer as the line of JSON that the control socket would send.
fn json(answer: io::Result<Answer>) -> PageAnswer {
    let answer = match answer {
        Ok(Answer::Refused { reason }) => return PageAnswer::text("400 Bad Request", reason),
        answer => answer,
    };
    let mut body = Vec::new();
    match answer.map_err(ops::LineError::from).and_then(|a| ops::write_line(&mut body, &a)) {
        Ok(()) => PageAnswer::file("application/json", body),
        Err(error) => PageAnswer::text("503 Service Unavailable", error),
    }
}
