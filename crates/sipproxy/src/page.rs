//! What goes on, for Prometheus and other programs, on 127.0.0.1 alone: [`control::Page`] serves it and says who may look.

use std::io;

use control::{Page, PageAnswer};

use crate::control_socket::Desk;
use crate::report;
use crate::words::{Answer, Question};

/// What there is.
const NAMES: &str = "/metrics, /status.json, /contacts.json and /dialogs.json";

/// Serves until the process ends.
pub(crate) fn run(page: Page, desk: Desk) {
    page.run(NAMES, move |path| {
        Some(match path {
            "/metrics" => match desk.look(Question::Status) {
                Ok(Answer::Status(status)) => PageAnswer::metrics(report::metrics(&status)),
                _ => PageAnswer::text("503 Service Unavailable", "the proxy is stopping or overloaded"),
            },
            "/status.json" => json(desk.look(Question::Status)),
            "/contacts.json" => json(desk.look(Question::Contacts)),
            "/dialogs.json" => json(desk.look(Question::Dialogs)),
            _ => return None,
        })
    });
}

/// The same line as on the control socket.
fn json(answer: io::Result<Answer>) -> PageAnswer {
    let mut body = Vec::new();
    match answer.map_err(control::FrameError::from).and_then(|a| control::write_line(&mut body, &a)) {
        Ok(()) => PageAnswer::file("application/json", body),
        Err(error) => PageAnswer::text("503 Service Unavailable", error),
    }
}
