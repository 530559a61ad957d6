//! Flag that a signal sets to stop the program.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::RouterError;

/// Returns a flag that becomes true when a signal (SIGINT or SIGTERM) arrives.
///
/// # Errors
/// When a signal handler cannot be installed.
pub(crate) fn stop() -> Result<Arc<AtomicBool>, RouterError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(RouterError::Signals)?;
    }
    Ok(stop)
}
