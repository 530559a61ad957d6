//! Ends long-running commands in an orderly way when a signal arrives.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::CliError;

/// Returns a flag that SIGINT (Ctrl-C), SIGTERM and SIGHUP (closed terminal) set instead of ending the process. A SIGHUP that this process was
/// started to ignore, by nohup(1), stays ignored.
///
/// # Errors
/// If the kernel refuses a handler.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let hangup = (!is_hangup_ignored()).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| CliError::Failed(format!("cannot catch signals: {error}")))?;
    }
    Ok(stop)
}

/// Reports whether this process ignores SIGHUP.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}
