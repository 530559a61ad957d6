//! `sctpify-router tc`: creates, shows, checks and removes the kernel's classes through the program `tc`.
//!
//! - [`plan`] defines the classes, and writes the commands.
//! - [`program`] writes the classifiers as classic BPF.
//! - [`kernel`] runs `tc`, and reads the current state.
//! - [`counted`] parses the counters, and [`table`] prints them.
//! - [`check`] compares the current state with the plan.
//!
//! The commands change only a root queueing discipline with our handle.

mod check;
mod counted;
mod kernel;
mod plan;
mod program;
mod table;

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ops::PageAnswer;

use crate::args::{ShowArgs, TcCommand};
use crate::error::RouterError;
use crate::page;

pub use counted::Counted;
pub use plan::Plan;
pub(crate) use table::metrics;

/// Last counters, which the page reads.
type Shared = Arc<Mutex<Vec<table::Row>>>;

/// Runs a command of `sctpify-router tc`.
pub(crate) fn run(command: &TcCommand, json: bool, out: &mut dyn Write) -> Result<(), RouterError> {
    match command {
        TcCommand::Up { shape, dry_run } => {
            let plan = Plan::of(shape, kernel::resolve(shape.leaves)?);
            if *dry_run {
                return Ok(plan.commands().iter().try_for_each(|line| writeln!(out, "tc {line}"))?);
            }
            kernel::make(&plan)
        }
        TcCommand::Show(args) => show(args, json, out),
        TcCommand::Check { shape } => {
            let plan = Plan::of(shape, kernel::resolve(shape.leaves)?);
            check::check(&plan, &kernel::read(&shape.interface)?)?;
            Ok(writeln!(out, "{}: as requested", shape.interface)?)
        }
        TcCommand::Down { interface, dry_run: true } => Ok(writeln!(out, "tc {}", plan::removal(interface))?),
        TcCommand::Down { interface, dry_run: false } => kernel::remove(interface),
    }
}

/// Prints the table of classes, once or at an interval.
fn show(args: &ShowArgs, json: bool, out: &mut dyn Write) -> Result<(), RouterError> {
    let mut last = counted::of(&kernel::read(&args.interface)?);
    let rows = table::rows(&last, None);
    table::print(&rows, json, out)?;
    let Some(every_s) = args.every else { return Ok(()) };
    let shared: Shared = Arc::new(Mutex::new(rows));
    serve(args.metrics_port, &args.interface, every_s, &shared)?;
    let pause = Duration::from_secs(u64::from(every_s));
    let mut left = args.count.map_or(u32::MAX, |count| count - 1);
    while left > 0 {
        out.flush()?;
        std::thread::sleep(pause);
        let now = counted::of(&kernel::read(&args.interface)?);
        let rows = table::rows(&now, Some((&last, pause)));
        table::print(&rows, json, out)?;
        *shared.lock().unwrap_or_else(PoisonError::into_inner) = rows;
        last = now;
        left = left.saturating_sub(u32::from(args.count.is_some()));
    }
    Ok(())
}

/// Serves the page, `/metrics` and `/classes.json` in a thread, if a port is given.
fn serve(port: Option<u16>, interface: &str, every_s: u32, shared: &Shared) -> Result<(), RouterError> {
    let (interface, shared) = (interface.to_owned(), shared.clone());
    page::serve(port, "/, /metrics and /classes.json", page::CLASSES, move |request| {
        let rows = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match request.path() {
            "/metrics" => Some(PageAnswer::metrics(table::metrics(&interface, &rows))),
            "/classes.json" => {
                let mut report = table::json(&rows);
                (report["interface"], report["every_s"]) = (interface.as_str().into(), every_s.into());
                Some(PageAnswer::file("application/json", report.to_string()))
            }
            _ => None,
        }
    })
}
