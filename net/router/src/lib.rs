//! The program `sctpify-router`: routers that use advertised send buffers (SBA).
//!
//! - [`tc`] creates, shows, checks and removes the kernel's classes by occupancy (HTB, a classifier, fair leaves). It refuses to
//!   change a queueing discipline that it did not create.
//! - [`run()`](mod@run) forwards packets between two interfaces, like a cable with the queues of `sched`.
//! - [`flows`] shows the limit on each flow's rate.
//!
//! Begin with [`run`](fn@run) and [`Router`], the command line.

#![forbid(unsafe_code)]

mod args;
mod error;
mod flows;
mod look;
mod page;
mod policy;
mod run;
mod signals;
mod tc;

pub use args::{
    Command, Flags, FlowsArgs, Leaves, LookArgs, Matcher, Router, RunArgs, Shape, ShowArgs, TcCommand,
    parse_rate,
};
pub use error::RouterError;
pub use flows::FlowRow;
pub use policy::PolicyName;
pub use run::{DirectionReport, RunReport};
pub use tc::{Counted, Plan};

/// Runs the command of `router`. `out` is standard output.
///
/// # Errors
/// When the command fails.
pub fn run(router: &Router, out: &mut dyn std::io::Write) -> Result<(), RouterError> {
    match &router.command {
        Command::Tc(command) => tc::run(command, router.json, out),
        Command::Run(args) => run::run(args, router.json, out),
        Command::Flows(args) => flows::run(args, router.json, out),
        Command::Docs(docs) => Ok(docs.run(
            vec![<Router as clap::CommandFactory>::command()],
            &[("router-metrics.md", reference().into_bytes())],
            out,
        )?),
    }
}

/// Returns the reference page of the metrics of each command.
fn reference() -> String {
    let parts = [
        ("run", run::metrics(&RunReport::default())),
        ("flows", flows::metrics(&[])),
        ("tc show --every SECONDS", tc::metrics("", &[])),
    ];
    let mut page = "# Metrics of sctpify-router\n\nThe option `--metrics-port` opens `http://127.0.0.1:PORT/metrics`, in the text format of \
                    Prometheus.\n"
        .to_owned();
    for (command, metrics) in parts {
        page += &format!("\n## `sctpify-router {command}`\n\n{}", metrics.reference());
    }
    page
}
