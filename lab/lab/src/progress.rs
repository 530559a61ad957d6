//! A progress bar for terminals, which shows the remaining time. Without a terminal, only messages about
//! failures appear.

use crate::experiment::Planned;
use indicatif::{ProgressBar, ProgressStyle};

/// The progress of an experiment. Each ended cell advances the progress by the cell's planned duration.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Starts the bar of an experiment whose cells take `seconds` in total.
    pub(crate) fn new(id: &str, seconds: f64) -> Self {
        let style = ProgressStyle::with_template("{prefix} {bar:30} {percent:>3} %, {eta} left  {wide_msg}");
        let bar = ProgressBar::new(milliseconds(seconds)).with_prefix(id.to_owned());
        Self(match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    /// Shows that a cell begins.
    pub(crate) fn begin(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    /// Advances the bar by a cell that has ended.
    pub(crate) fn end(&self, planned: &Planned) {
        self.0.inc(milliseconds(planned.seconds));
    }

    /// Prints a message above the bar.
    pub(crate) fn say(&self, text: &str) {
        self.0.suspend(|| eprintln!("{text}"));
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}
