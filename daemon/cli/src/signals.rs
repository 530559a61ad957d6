//! Ends long-running commands in an orderly way when a signal arrives.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::CliError;

/// Returns a flag that SIGINT (Ctrl-C) and SIGTERM set instead of ending the process.
///
/// # Errors
/// If the kernel refuses a handler.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| CliError::Failed(format!("cannot catch signals: {error}")))?;
    }
    Ok(stop)
}
