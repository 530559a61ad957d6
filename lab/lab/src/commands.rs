//! The commands: list, show, run, report and ttcp.

use crate::args::{Command, Lab, Run};
use crate::experiment::{Environment, Only};
use crate::experiments::{self, Entry};
use crate::judge::{Judged, Outcome, Verdict, judge};
use crate::report;
use crate::runner::Runner;
use crate::store::{Meta, Store};
use crate::ttcp;
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::ExitCode;
use testbed::pair::Tools;

/// Exit status if no measurement and no control failed, but an expectation was missed.
const MISSED: u8 = 3;

/// The outcome of a run. The variants are in order, from the best to the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Ended {
    Good,
    Missed,
    Failed,
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Good => Self::SUCCESS,
            Ended::Missed => Self::from(MISSED),
            Ended::Failed => Self::FAILURE,
        }
    }
}

/// Runs the command that the user requested.
///
/// # Errors
/// Fails if an experiment is unknown or cannot start, or if a result cannot be written.
pub(crate) fn run(lab: Lab) -> Result<ExitCode> {
    match lab.command {
        Command::List => list(),
        Command::Show { id } => {
            print!("{}", experiments::one(&id)?.text);
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(run) => Ok(measure(&lab.out, &run)?.into()),
        Command::Ttcp(args) => ttcp::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Report(args) => {
            println!("{}", report::write(&lab.out)?.display());
            let is_done = !args.write || report::write_pages(&lab.out, &args.ids)? > 0;
            Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn list() -> Result<ExitCode> {
    for entry in experiments::all()? {
        println!("{:<22} {}", entry.manifest.id, entry.manifest.title);
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(out: &Path, run: &Run) -> Result<Ended> {
    ensure!(testbed::is_root(), "creating hosts requires root: run it with sudo");
    let entries = match &*run.ids {
        [] => experiments::all()?,
        ids => ids.iter().map(|id| experiments::one(id)).collect::<Result<_>>()?,
    };
    let environment = Environment { tools: Tools::find()? };
    let mut ends = Vec::new();
    for entry in &entries {
        ends.push((&*entry.manifest.id, one(out, run, entry, &environment)?));
    }
    println!("report: {}", report::write(out)?.display());
    for (id, end) in &ends {
        let word = match end {
            Ended::Good => "met",
            Ended::Missed => "missed",
            Ended::Failed => "failed",
        };
        println!("{word}: {id}");
    }
    Ok(ends.iter().map(|(_, end)| *end).max().unwrap_or(Ended::Good))
}

fn one(out: &Path, run: &Run, entry: &Entry, environment: &Environment) -> Result<Ended> {
    let (manifest, form) = (&entry.manifest, run.form());
    if let Some(missing) = manifest.missing() {
        let problem = format!("{}: {missing} is missing (scripts/setup.sh)", manifest.id);
        ensure!(run.all, problem);
        testbed::skip(&problem);
        return Ok(Ended::Good);
    }
    let experiment = entry.runner(form)?;
    let mut store = Store::open(out, Meta::now(manifest, form), run.fresh)?;
    println!("{}, {form}: {}", manifest.id, manifest.title);
    let (points, only) = (experiment.points(), Only::of(&run.only));
    let runner = Runner {
        points: &points,
        measure: &|cell| experiment.measure(environment, cell),
        seed: manifest.seed,
        jobs: if manifest.alone { 1 } else { run.jobs },
        only: &only,
    };
    let failures = runner.run(&manifest.id, &mut store)?;
    if only.is_all() && !store.has_drawings() {
        store.keep_drawings(&experiment.drawings(environment)?)?;
    }
    let verdicts = judge(&Judged { manifest, form, points: &points, only: &only }, &store.results);
    verdicts.iter().for_each(print);
    if !failures.is_empty() {
        println!("  {} cells could not be measured", failures.len());
    }
    Ok(ended(&failures, &verdicts))
}

fn print(verdict: &Verdict) {
    let value = verdict.value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let outcome = match (verdict.outcome, verdict.control) {
        (Outcome::Met, _) => "met",
        (Outcome::Missed, false) => "MISSED",
        (Outcome::Missed, true) => "CONTROL FAILED",
        (Outcome::Unmeasured, _) => "NOT MEASURED",
        (Outcome::LeftOut, _) => "left out",
    };
    println!("  {outcome:<14} {value:>9} ({})  {} ({})", verdict.band, verdict.what, verdict.at);
}

fn ended(failures: &[String], verdicts: &[Verdict]) -> Ended {
    let one = |it: &Verdict| match (it.outcome, it.control) {
        (Outcome::Unmeasured, _) | (Outcome::Missed, true) => Ended::Failed,
        (Outcome::Missed, false) => Ended::Missed,
        (Outcome::Met | Outcome::LeftOut, _) => Ended::Good,
    };
    let cells = if failures.is_empty() { Ended::Good } else { Ended::Failed };
    verdicts.iter().map(one).fold(cells, Ended::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(outcome: Outcome, control: bool) -> Verdict {
        Verdict {
            id: "e".into(),
            what: String::new(),
            at: String::new(),
            value: None,
            band: String::new(),
            outcome,
            control,
            source: String::new(),
        }
    }

    #[test]
    fn a_run_is_good_only_if_all_requested_expectations_are_measured_and_met() {
        let of = |outcome, control| ended(&[], &[verdict(Outcome::Met, true), verdict(outcome, control)]);
        assert_eq!([of(Outcome::Met, false), of(Outcome::LeftOut, true)], [Ended::Good; 2]);
        assert_eq!(of(Outcome::Missed, false), Ended::Missed);
        assert_eq!(of(Outcome::Missed, true), Ended::Failed);
        assert_eq!([of(Outcome::Unmeasured, false), of(Outcome::Unmeasured, true)], [Ended::Failed; 2]);
        assert_eq!(ended(&["a cell".to_owned()], &[]), Ended::Failed);
    }
}
