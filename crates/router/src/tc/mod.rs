//! The kernel's classes: made, shown, checked and removed by `tc`.
//!
//! [`plan`] says what there is to be, and writes the commands; [`program`] has the classifiers as classic BPF; [`kernel`] runs
//! `tc` and reads what is there; [`counted`] makes tables of it; [`check`] compares. Changes nothing but a root queueing discipline with our handle.

mod check;
mod counted;
mod kernel;
mod plan;
mod program;

use std::io::Write;
use std::time::Duration;

use crate::args::{ShowArgs, TcCommand};
use crate::error::RouterError;

pub use counted::Counted;
pub use plan::Plan;

/// Does what the command line says.
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
            Ok(writeln!(out, "{}: as asked for", shape.interface)?)
        }
        TcCommand::Down { interface, dry_run: true } => Ok(writeln!(out, "tc {}", plan::removal(interface))?),
        TcCommand::Down { interface, dry_run: false } => kernel::remove(interface),
    }
}

/// The table of classes, once or again and again.
fn show(args: &ShowArgs, json: bool, out: &mut dyn Write) -> Result<(), RouterError> {
    let mut last = counted::of(&kernel::read(&args.interface)?);
    counted::print(&last, None, json, out)?;
    let Some(pause) = args.every.map(|seconds| Duration::from_secs(u64::from(seconds))) else {
        return Ok(());
    };
    let mut left = args.count.map_or(u32::MAX, |count| count - 1);
    while left > 0 {
        std::thread::sleep(pause);
        let now = counted::of(&kernel::read(&args.interface)?);
        counted::print(&now, Some((&last, pause)), json, out)?;
        out.flush()?;
        last = now;
        left = left.saturating_sub(u32::from(args.count.is_some()));
    }
    Ok(())
}
