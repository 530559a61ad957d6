//! Samples of a world's memory and disk space, and the ratio that shows whether they grow.

use std::fmt;

/// Memory and counts of a world at one minute.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) minute: u32,
    /// Bytes allocated by the proxy and the phones together.
    pub(crate) live: f64,
    /// Resident memory of the process in bytes, including SQLite's cache.
    pub(crate) resident: f64,
    /// Size of the store's files in bytes.
    pub(crate) stored: f64,
    pub(crate) users: usize,
    pub(crate) standing: u32,
    pub(crate) dialogs: usize,
    pub(crate) transactions: usize,
}

const MIB: f64 = 1024.0 * 1024.0;

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: f64| bytes / MIB;
        write!(
            f,
            "minute {:2}: {:.2} MiB allocated, {:.2} resident, {:.2} on disk; {} users, {} calls stand, {} dialogs, {} transactions",
            self.minute,
            mib(self.live),
            mib(self.resident),
            mib(self.stored),
            self.users,
            self.standing,
            self.dialogs,
            self.transactions
        )
    }
}

/// Returns the ratio of a figure's mean over the last quarter of the samples to its mean over the second quarter. The ratio is 1 if the
/// figure does not grow.
pub(crate) fn growth(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    let quarter = samples.len() / 4;
    let mean = |part: &[Sample]| part.iter().map(of).sum::<f64>() / part.len().max(1) as f64;
    mean(&samples[samples.len() - quarter..]) / mean(&samples[quarter..2 * quarter])
}
