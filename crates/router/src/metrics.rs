//! Pages for Prometheus, on 127.0.0.1 alone, in a thread of their own ([`control::Page`] serves them).

use control::{Page, PageAnswer};

use crate::error::RouterError;

/// Serves what `answer` has, until the process ends; nothing without a port.
///
/// # Errors
/// When the port is taken.
pub(crate) fn serve(
    port: Option<u16>,
    names: &'static str,
    answer: impl Fn(&str) -> Option<PageAnswer> + Clone + Send + 'static,
) -> Result<(), RouterError> {
    let Some(port) = port else { return Ok(()) };
    let page = Page::bind(port).map_err(|source| RouterError::Port { port, source })?;
    std::thread::spawn(move || page.run(names, answer));
    Ok(())
}
