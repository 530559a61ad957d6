//! The command line.

use crate::manifest::Form;
use crate::ttcp::Ttcp;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Reproduce the papers' experiments, and run the project's own experiments
///
/// Each experiment creates its hosts as network namespaces, and stores each result after its measurement.
/// After an interrupted run, the next run continues with the missing measurements. Root is required for the
/// command "run", and for "ttcp" with SCTP over IP.
///
/// Exit status: 0 if all judged expectations were met; 1 on an error, or if a measurement or a control failed;
/// 2 on a usage error; 3 if an expectation was missed.
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
    /// Write the report of all results as HTML, CSV and JSON
    Report(Report),
    /// Measure the throughput of a transport between two hosts, as the program ttcp does
    ///
    /// Start the receiver on one host: sctpify-lab ttcp -r -s. Then start the sender on the other host:
    /// sctpify-lab ttcp -t -s HOST. SCTP uses this project's stack, not the kernel's. In rates, k, m and g are
    /// powers of 1024, as in ttcp.
    Ttcp(Ttcp),
}

#[derive(Args, Debug)]
pub(crate) struct Report {
    /// IDs of the experiments to write into the pages; without IDs, all experiments that have full results
    #[arg(requires = "write")]
    pub(crate) ids: Vec<String>,
    /// Also write full results into the pages of docs/results, between the experiments' markers
    #[arg(long)]
    pub(crate) write: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// IDs of the experiments to run
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<String>,
    /// Run all experiments
    #[arg(long)]
    pub(crate) all: bool,
    /// Run the quick form (the default): a few cells, each of which takes less than a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run the full form: all cells, with the paper's number of repetitions
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
    /// Number of cells to measure concurrently; some experiments measure one cell at a time in any case
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// Measure only cells whose "panel/series/x" contains TEXT; repeat the option to select more cells
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Move all earlier results of the experiment to another directory, and measure all selected cells
    /// again
    #[arg(long)]
    pub(crate) fresh: bool,
}

impl Run {
    pub(crate) fn form(&self) -> Form {
        if self.full { Form::Full } else { Form::Quick }
    }
}
