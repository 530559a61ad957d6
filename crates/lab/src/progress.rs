//! A bar with the time left, on a terminal; nothing elsewhere, but what could not be measured.

use crate::experiment::Planned;
use indicatif::{ProgressBar, ProgressStyle};

/// How much of an experiment has been measured, weighed by how long its cells take.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Of an experiment whose cells take so many seconds in all.
    pub(crate) fn new(id: &str, seconds: f64) -> Self {
        let style = ProgressStyle::with_template("{prefix} {bar:30} {percent:>3} %, {eta} left  {wide_msg}");
        let bar = ProgressBar::new(milliseconds(seconds)).with_prefix(id.to_owned());
        Self(match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    /// A cell begins.
    pub(crate) fn begin(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    /// A cell has ended.
    pub(crate) fn end(&self, planned: &Planned) {
        self.0.inc(milliseconds(planned.seconds));
    }

    /// Says something above the bar.
    pub(crate) fn say(&self, text: &str) {
        self.0.suspend(|| eprintln!("{text}"));
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}
