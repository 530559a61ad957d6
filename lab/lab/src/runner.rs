//! Measurement of an experiment's pending cells. If the experiment allows it, several cells are measured at
//! once.
//!
//! The outer loop runs over the repetitions, so the series alternate. Another load on the machine thus
//! affects all series about equally. If a run stops early, all points have about the same number of
//! measurements.

use crate::experiment::{Cell, Measures, Only, Planned, Point};
use crate::progress::Progress;
use crate::results::Done;
use crate::settings::FellBack;
use crate::store::Store;
use anyhow::{Result, ensure};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of consecutive failed cells after which an experiment ends, because the remaining cells would
/// probably fail as well.
const FAILURES_IN_A_ROW_MAX: usize = 5;

/// A run of one experiment.
pub(crate) struct Runner<'a> {
    pub(crate) points: &'a [Planned],
    /// Function that measures one cell.
    pub(crate) measure: &'a (dyn Fn(&Cell) -> Result<Measures> + Sync),
    pub(crate) seed: u64,
    pub(crate) jobs: u16,
    /// The selection of requested points.
    pub(crate) only: &'a Only,
}

/// State shared by the threads.
struct Work<'a> {
    queue: VecDeque<(Planned, Cell)>,
    store: &'a mut Store,
    failures: Vec<String>,
    failures_in_a_row: usize,
}

impl Runner<'_> {
    /// Measures all pending cells, and returns the failed cells with the reasons.
    ///
    /// # Errors
    /// Fails if a result cannot be stored.
    pub(crate) fn run(&self, id: &str, store: &mut Store) -> Result<Vec<String>> {
        let queue: VecDeque<_> = self
            .cells()
            .into_iter()
            .filter(|(_, cell)| self.only.wants(&cell.point) && !store.has(cell))
            .collect();
        let progress = Progress::new(id, queue.iter().map(|(planned, _)| planned.seconds).sum());
        let work = Mutex::new(Work { queue, store, failures: Vec::new(), failures_in_a_row: 0 });
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.jobs).map(|_| scope.spawn(|| self.take_turns(&work, &progress))).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a runner panicked")))
        })?;
        progress.finish();
        Ok(work.into_inner().unwrap_or_else(PoisonError::into_inner).failures)
    }

    fn cells(&self) -> Vec<(Planned, Cell)> {
        let points = self.points;
        let most = points.iter().map(|planned| planned.repetitions).max().unwrap_or(0);
        let turn = |repetition| points.iter().filter(move |planned| repetition < planned.repetitions);
        let cell = |planned: &Planned, repetition| {
            (planned.clone(), Cell::new(&planned.point, repetition, self.seed))
        };
        (0..most).flat_map(|n| turn(n).map(move |planned| cell(planned, n))).collect()
    }

    /// Measures a cell. Repeats the measurement after a fallback to TCP, up to [`AGAIN_MAX`] times. Also
    /// returns the number of repeats.
    fn attempt(&self, cell: &Cell, planned: &Planned) -> (Result<Measures>, u32) {
        let mut fallbacks = 0;
        loop {
            match (self.measure)(cell) {
                Err(error) if error.is::<FellBack>() && fallbacks < AGAIN_MAX => fallbacks += 1,
                outcome => return (outcome.and_then(|measures| as_planned(planned, measures)), fallbacks),
            }
        }
    }

    fn take_turns(&self, work: &Mutex<Work<'_>>, progress: &Progress) -> Result<()> {
        let next_cell = || next(&mut locked(work));
        while let Some((planned, cell)) = next_cell() {
            let name = format!("{}, {}", cell.point.key(), cell.repetition + 1);
            progress.begin(&name);
            let began = testbed::process::now();
            let (outcome, fallbacks) = self.attempt(&cell, &planned);
            let took_s = began.elapsed().as_secs_f64();
            let mut work = locked(work);
            match outcome {
                Ok(measures) => {
                    work.failures_in_a_row = 0;
                    work.store.keep(Done { fallbacks, ..done(cell, took_s, measures) })?;
                }
                Err(error) => {
                    let problem = format!("{name}: {error:#}");
                    progress.say(&format!("could not be measured: {problem}"));
                    work.failures.push(problem);
                    work.failures_in_a_row += 1;
                }
            }
            drop(work);
            progress.end(&planned);
        }
        Ok(())
    }
}

/// Maximum number of repeats of a cell whose connection fell back to TCP.
const AGAIN_MAX: u32 = 3;

/// Rejects measures that were not planned, because verdicts and plots find measures by their planned names.
fn as_planned(planned: &Planned, measures: Measures) -> Result<Measures> {
    let stray = measures.keys().find(|name| !planned.measures.contains(&name.as_str()));
    ensure!(stray.is_none(), "the runner returned an unplanned measure: {stray:?}");
    Ok(measures)
}

fn done(Cell { point, repetition, seed }: Cell, took_s: f64, measures: Measures) -> Done {
    let Point { panel, series, x } = point;
    Done { panel, series, x, repetition, seed, took_s, fallbacks: 0, measures }
}

/// Returns the next cell, or `None` after too many consecutive failures.
fn next(work: &mut Work<'_>) -> Option<(Planned, Cell)> {
    if work.failures_in_a_row >= FAILURES_IN_A_ROW_MAX {
        return None;
    }
    work.queue.pop_front()
}

/// Locks the work, even if another thread panicked while it held the lock. Such a panic leaves the work
/// consistent.
fn locked<'a, 'b>(work: &'a Mutex<Work<'b>>) -> MutexGuard<'a, Work<'b>> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Form, Manifest};
    use crate::store::Meta;
    use std::path::Path;

    fn store(dir: &Path) -> Store {
        let manifest = Manifest::read(include_str!("../experiments/handshake.toml")).unwrap();
        Store::open(dir, Meta::now(&manifest, Form::Quick), false).unwrap()
    }

    /// Runs two series with two repetitions each. One series cannot be measured.
    fn run(store: &mut Store, only: &[&str]) -> Vec<String> {
        let only = Only::of(only);
        let planned = |series| Planned {
            point: Point::new("p", series, 1.0),
            repetitions: 2,
            seconds: 1.0,
            measures: vec!["seconds"],
        };
        let measure = |cell: &Cell| -> Result<Measures> {
            anyhow::ensure!(cell.point.series == "good", "no such thing");
            Ok(Measures::from([("seconds".to_owned(), f64::from(cell.repetition))]))
        };
        let points = [planned("good"), planned("bad")];
        Runner { points: &points, measure: &measure, seed: 1, jobs: 2, only: &only }
            .run("fake", store)
            .unwrap()
    }

    #[test]
    fn cells_are_measured_concurrently_and_failed_cells_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = store(dir.path());
        let mut failures = run(&mut store, &[]);
        failures.sort();
        assert_eq!(failures, ["p/bad/1, 1: no such thing", "p/bad/1, 2: no such thing"]);
        assert_eq!(store.results.0.len(), 2);
    }

    #[test]
    fn a_run_goes_on_after_failures_here_and_there_and_ends_after_five_in_a_row() {
        let dir = tempfile::tempdir().unwrap();
        let point = Point::new("p", "s", 1.0);
        let points = [Planned { point, repetitions: 40, seconds: 1.0, measures: Vec::new() }];
        // Of the first 20 cells, one in four succeeds. All later cells fail.
        let measure = |cell: &Cell| -> Result<Measures> {
            anyhow::ensure!(cell.repetition.is_multiple_of(4) && cell.repetition < 20, "no such thing");
            Ok(Measures::new())
        };
        let mut store = store(dir.path());
        let runner = Runner { points: &points, measure: &measure, seed: 1, jobs: 1, only: &Only::default() };
        let failures = runner.run("fake", &mut store).unwrap();
        assert_eq!((store.results.0.len(), failures.len()), (5, 5 * 3 + 2));
    }

    #[test]
    fn a_cell_that_fell_back_to_tcp_is_measured_again_and_says_how_often() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = store(dir.path());
        let planned = |x| Planned {
            point: Point::new("p", "s", x),
            repetitions: 1,
            seconds: 1.0,
            measures: vec!["seconds"],
        };
        let points = [planned(0.0), planned(1.0)];
        let turns = Mutex::new(0);
        // The first cell falls back twice, the second one always.
        let measure = |cell: &Cell| {
            let mut turns = turns.lock().unwrap();
            *turns += 1;
            if cell.point.x > 0.0 || *turns < 3 {
                return Err(FellBack("no answer".to_owned()).into());
            }
            Ok(Measures::from([("seconds".to_owned(), 1.0)]))
        };
        let runner = Runner { points: &points, measure: &measure, seed: 1, jobs: 1, only: &Only::default() };
        let failures = runner.run("fake", &mut store).unwrap();
        assert_eq!((store.results.0.len(), store.results.0[0].fallbacks), (1, 2));
        assert!(failures.len() == 1 && failures[0].contains("no answer"), "{failures:?}");
    }

    #[test]
    fn a_measure_under_a_name_that_was_not_planned_is_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = store(dir.path());
        let point = Point::new("p", "s", 1.0);
        let points = [Planned { point, repetitions: 1, seconds: 1.0, measures: vec!["seconds"] }];
        let measure = |_: &Cell| Ok(Measures::from([("secs".to_owned(), 1.0)]));
        let runner = Runner { points: &points, measure: &measure, seed: 1, jobs: 1, only: &Only::default() };
        let failures = runner.run("fake", &mut store).unwrap();
        assert!(failures[0].contains("secs") && store.results.0.is_empty(), "{failures:?}");
    }

    #[test]
    fn measured_points_are_not_repeated_and_unwanted_ones_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = store(dir.path());
        assert!(run(&mut first, &["none", "good"]).is_empty());
        assert_eq!(first.results.0.len(), 2);
        let mut again = store(dir.path());
        assert!(run(&mut again, &["good"]).is_empty());
        assert_eq!(again.results.0.len(), 2);
    }
}
