//! Final report of a user agent.

use crate::experiment::Measures;
use anyhow::{Context, Result};
use serde_json::Value;
use testbed::process::Finished;

/// The JSON report of one `sctpify-ua`.
pub(super) struct AgentReport(Value);

impl AgentReport {
    /// Parses the output of a finished agent, even if some of its calls failed.
    pub(super) fn of(finished: &Finished) -> Result<Self> {
        let json = serde_json::from_str(&finished.stdout);
        Ok(Self(json.with_context(|| format!("{} reported nothing: {}", finished.name, finished.stderr))?))
    }

    /// Returns the number at a path in the report, such as `calls_answered/ms_p50`.
    pub(super) fn number(&self, path: &str) -> Result<f64> {
        let found = self.0.pointer(&format!("/{path}")).and_then(Value::as_f64);
        found.with_context(|| format!("no {path} in {}", self.0))
    }

    /// Returns measures from the report. Each pair in `wanted` has the name of a measure, and the path of
    /// its value in the report.
    pub(super) fn measures(&self, wanted: &[(&str, &str)]) -> Result<Measures> {
        wanted.iter().map(|(name, path)| Ok(((*name).to_owned(), self.number(path)?))).collect()
    }
}
