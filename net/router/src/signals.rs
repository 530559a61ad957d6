//! The end, asked for by a signal.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::RouterError;

/// Set when the process is asked to end.
///
/// # Errors
/// When the kernel refuses to tell of signals.
pub(crate) fn stop() -> Result<Arc<AtomicBool>, RouterError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(RouterError::Signals)?;
    }
    Ok(stop)
}
