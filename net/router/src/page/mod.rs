//! Pages for people and Prometheus, on 127.0.0.1 only, in a separate thread ([`ops::Page`] serves them).
//!
//! All commands share one page, which each command fills with its own script.

use ops::{Page, PageAnswer, PageRequest};

use crate::error::RouterError;

/// Script that draws the kernel's classes.
pub(crate) const CLASSES: &str = include_str!("classes.js");
/// Script that draws flows.
pub(crate) const FLOWS: &str = include_str!("flows.js");
/// Script that draws the queues of `sctpify-router run`.
pub(crate) const QUEUES: &str = include_str!("queues.js");

/// Serves a page with this script until the process ends. `answer` serves the other paths. The text `names` lists all paths. Does
/// nothing without a port.
///
/// # Errors
/// When the port cannot be opened.
pub(crate) fn serve(
    port: Option<u16>,
    names: &'static str,
    script: &'static str,
    answer: impl Fn(&PageRequest<'_>) -> Option<PageAnswer> + Clone + Send + 'static,
) -> Result<(), RouterError> {
    let Some(port) = port else { return Ok(()) };
    let page = Page::bind(port).map_err(|source| RouterError::Port { port, source })?;
    let answer = move |request: &PageRequest<'_>| match request.path() {
        "/" => Some(PageAnswer::html("sctpify-router", "router", include_str!("main.html"))),
        "/page.js" => Some(PageAnswer::script(script)),
        _ => answer(request),
    };
    std::thread::spawn(move || page.run(names, answer));
    Ok(())
}
