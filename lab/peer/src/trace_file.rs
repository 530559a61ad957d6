//! Writes the engine's trace to a file (`--trace FILE`) as JSON, with one record per line, for `jq` and plots.
//!
//! Each line has `us` (microseconds since the start), `event`, and the fields that `sctp::TraceEvent`
//! documents. If the record concerns an association, the line also has `association` (the association's
//! number).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use sctp::{Endpoint, TraceEvent, TraceRecord};
use serde::Serialize;

/// File that receives the trace records.
pub(crate) struct TraceFile(BufWriter<File>);

#[derive(Serialize)]
struct Line<'a> {
    us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    association: Option<u64>,
    #[serde(flatten)]
    event: &'a TraceEvent,
}

impl TraceFile {
    /// Creates the file, or truncates it.
    ///
    /// # Errors
    /// Those of open(2).
    pub(crate) fn create(path: &Path) -> Result<TraceFile> {
        let file = File::create(path).with_context(|| format!("--trace {}", path.display()))?;
        Ok(TraceFile(BufWriter::new(file)))
    }

    /// Writes the trace records that the engine has produced since the last call.
    ///
    /// # Errors
    /// Those of write(2).
    pub(crate) fn take_from(&mut self, engine: &mut Endpoint) -> Result<()> {
        while let Some(TraceRecord { at, association, event }) = engine.poll_trace() {
            let association = association.map(|id| id.number());
            let line = Line { us: at.as_nanos() / 1000, association, event: &event };
            serde_json::to_writer(&mut self.0, &line).context("--trace")?;
            writeln!(self.0).context("--trace")?;
        }
        Ok(())
    }
}
