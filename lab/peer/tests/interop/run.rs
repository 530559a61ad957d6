//! Runs the cells concurrently, in as many networks of a guest and namespaces ([`World`]) as
//! `--test-threads` requests. The results have the format of Rust's own test harness, because `./x test`
//! counts them.

use crate::cell::{Cell, Stack};
use crate::world::{self, World};
use std::collections::{BTreeMap, BTreeSet};
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Flag with the number of concurrent cells.
const THREADS: &str = "--test-threads=";

/// The parsed command line; cargo's other flags are ignored.
#[derive(Default)]
struct Wanted {
    ignored: bool,
    list: bool,
    threads: Option<usize>,
    parts: Vec<String>,
}

impl Wanted {
    fn from_args(args: impl Iterator<Item = String>) -> Self {
        let mut wanted = Self::default();
        for arg in args {
            match arg.as_str() {
                "--ignored" | "--include-ignored" => wanted.ignored = true,
                "--list" => wanted.list = true,
                flag if flag.starts_with(THREADS) => wanted.threads = flag[THREADS.len()..].parse().ok(),
                flag if flag.starts_with('-') => {}
                part => wanted.parts.push(part.to_owned()),
            }
        }
        wanted
    }

    fn selects(&self, name: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|part| name.contains(part))
    }
}

/// Runs the selected cells, and returns the exit status.
pub(crate) fn all(matrix: &[Cell]) -> i32 {
    let wanted = Wanted::from_args(std::env::args().skip(1));
    let cells: Vec<&Cell> = matrix.iter().filter(|cell| wanted.selects(&cell.name())).collect();
    if wanted.list {
        cells.iter().for_each(|cell| println!("{}: test", cell.name()));
        return 0;
    }
    println!("\nrunning {} tests", cells.len());
    let why_not =
        if wanted.ignored { world::missing() } else { Some("needs root: run with --ignored".to_owned()) };
    if let Some(reason) = why_not {
        return skip(&cells, &reason);
    }
    let stacks: BTreeSet<Stack> = cells.iter().flat_map(|cell| cell.stacks()).collect();
    let lacks: BTreeMap<Stack, String> =
        stacks.iter().filter_map(|stack| Some((*stack, stack.lacks()?))).collect();
    let reason = |cell: &Cell| cell.stacks().iter().find_map(|stack| lacks.get(stack));
    let (cells, skipped): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| reason(cell).is_none());
    for cell in &skipped {
        ignore(cell, reason(cell).map_or("", String::as_str));
    }
    if cells.is_empty() {
        return report(0, 0, skipped.len());
    }
    let stacks: BTreeSet<Stack> = stacks.into_iter().filter(|stack| !lacks.contains_key(stack)).collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..wanted.threads.unwrap_or(1).clamp(1, cells.len()) {
            scope.spawn(|| run_in_a_world(&cells, &stacks, &next, &failed));
        }
    });
    let failed = failed.into_inner();
    report(cells.len() - failed, failed, skipped.len())
}

/// Sets up a [`World`], and runs cells in it until no cell is left.
fn run_in_a_world(cells: &[&Cell], stacks: &BTreeSet<Stack>, next: &AtomicUsize, failed: &AtomicUsize) {
    let mut world = up(stacks);
    while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
        if passes(cell, &world) {
            continue;
        }
        failed.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = world.in_guest("true") {
            println!("the guest has stopped, and another one is booted: {error:#}");
            drop(world);
            world = up(stacks);
        }
    }
}

fn up(stacks: &BTreeSet<Stack>) -> World {
    World::up(stacks).unwrap_or_else(|error| {
        println!("cannot set up the guests and namespaces: {error:#}");
        exit(101);
    })
}

fn passes(cell: &Cell, world: &World) -> bool {
    match cell.run(world) {
        Ok(remark) => {
            println!("test {} ... ok ({remark})", cell.name());
            true
        }
        Err(error) => {
            println!("test {} ... FAILED\n    {error:#}", cell.name());
            false
        }
    }
}

fn skip(cells: &[&Cell], reason: &str) -> i32 {
    cells.iter().for_each(|cell| ignore(cell, reason));
    report(0, 0, cells.len())
}

fn ignore(cell: &Cell, reason: &str) {
    println!("test {} ... ignored, {reason}", cell.name());
}

fn report(passed: usize, failed: usize, ignored: usize) -> i32 {
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out\n"
    );
    if failed == 0 { 0 } else { 101 }
}
