//! The command line.

use crate::manifest::Form;
use crate::ttcp::Ttcp;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Reproduce the papers' experiments, and run the project's own
///
/// Each experiment creates its hosts as network namespaces, measures, and stores each result: an interrupted run continues
/// where it stopped. Requires root.
///
/// Exit status: 0 all expectations met, 1 a measurement or a negative control failed, 2 usage error, 3 an expectation
/// missed.
#[derive(Parser, Debug)]
#[command(name = "sctpify-lab", version = version::FULL, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Lab {
    /// Directory of results and reports
    #[arg(long, global = true, value_name = "DIR", env = "SCTPIFY_LAB_DIR", default_value = "target/lab")]
    pub(crate) out: PathBuf,

    /// Command to run
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// List the experiments
    List,
    /// Show an experiment's manifest
    Show {
        /// ID of the experiment
        id: String,
    },
    /// Run experiments, check their expectations, and write the report
    Run(Run),
    /// Write the report of all that has been measured: HTML, CSV, JSON
    Report(Report),
    /// Measure what a transport moves between two hosts, as ttcp did
    ///
    /// On one host: sctpify-lab ttcp -r -s; then on the other: sctpify-lab ttcp -t -s HOST. SCTP is this project's stack. In
    /// rates, k, m and g are powers of 1024, as in ttcp.
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
    /// IDs of experiments
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<String>,
    /// All experiments
    #[arg(long)]
    pub(crate) all: bool,
    /// Quick form: a few cells, each well under a minute; the default
    #[arg(long)]
    pub(crate) quick: bool,
    /// Full form: all cells, with the paper's number of repetitions
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
    /// Number of cells to measure concurrently, if the experiment allows it
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// Run only cells whose "panel/series/x" contains TEXT; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Set earlier measurements aside, and start again
    #[arg(long)]
    pub(crate) fresh: bool,
}

impl Run {
    pub(crate) fn form(&self) -> Form {
        if self.full { Form::Full } else { Form::Quick }
    }
}
