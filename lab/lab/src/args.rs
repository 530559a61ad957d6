//! The command line.

use crate::manifest::Form;
use crate::ttcp::Ttcp;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// The published experiments, run again, and beside them ours
///
/// Each experiment makes hosts of its own as network namespaces (so it takes root), measures, and keeps what it has measured:
/// a run that was interrupted goes on where it stopped.
///
/// Exit status: 0 all expectations are met, 1 something could not be measured or a negative control failed, 2 wrong usage,
/// 3 an expectation is missed.
#[derive(Parser, Debug)]
#[command(name = "sctpify-lab", version = version::FULL, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Lab {
    /// Directory of results and reports
    #[arg(long, global = true, value_name = "DIR", env = "SCTPIFY_LAB_DIR", default_value = "target/lab")]
    pub(crate) out: PathBuf,

    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// List the experiments
    List,
    /// Show an experiment's manifest
    Show {
        /// Its id
        id: String,
    },
    /// Run experiments, judge them, and write their report
    Run(Run),
    /// Write the report of all that has been measured: HTML, CSV, JSON
    Report(Report),
    /// Measure what a transport moves between two hosts, as ttcp did
    ///
    /// On one host: sctpify-lab ttcp -r -s; then on the other: sctpify-lab ttcp -t -s HOST. SCTP is our own stack. Rates have 1024
    /// for k, m and g, as ttcp has them.
    Ttcp(Ttcp),
}

#[derive(Args, Debug)]
pub(crate) struct Report {
    /// Ids of the experiments to write; all if absent
    #[arg(requires = "write")]
    pub(crate) ids: Vec<String>,
    /// Write full results into the pages of docs/results, too, between the experiments' markers
    #[arg(long)]
    pub(crate) write: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Ids of experiments
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<String>,
    /// All experiments
    #[arg(long)]
    pub(crate) all: bool,
    /// Few cells, in well under a minute each; the default
    #[arg(long)]
    pub(crate) quick: bool,
    /// All cells, as often as the paper measured them
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
    /// Cells measured at once, where an experiment allows it
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// Only cells whose "panel/series/x" has this in it, or what another --only names
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Put aside what was measured before, and begin anew
    #[arg(long)]
    pub(crate) fresh: bool,
}

impl Run {
    pub(crate) fn form(&self) -> Form {
        if self.full { Form::Full } else { Form::Quick }
    }
}
