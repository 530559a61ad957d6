//! `./x demo`: two hosts, two links between them, a daemon in each host, and six steps with unmodified programs. The demo ends with a table
//! of verdicts. The exit status is 0 only if every verdict is right.
//!
//! Verdicts come from outside the daemons: hashes of files, exit statuses, the servers' logs, and `tshark` on captures of both links. The
//! daemon's own data is judged only in two places: the output of `explain`, and the hits of `shimrules -L`. Begin with [`STEPS`].

mod picture;
mod refusals;
mod row;
mod rules;
mod sctp;
mod transfers;
mod world;

use std::process::Command;

use crate::{Outcome, optimised};
use anyhow::{Context, Result, bail};
use row::Row;
use testbed::process::now;
use world::World;

/// Function that runs the programs of a step and returns rows. An error becomes a row with a wrong verdict.
type Step = fn(&mut World) -> Result<Vec<Row>>;

/// The steps in order: number, description for the user, function.
const STEPS: &[(&str, &str, Step)] = &[
    ("1", "curl of 64 MiB from nginx, IPv4 and IPv6", transfers::curl_from_nginx),
    ("2", "ssh, and scp of 64 MiB both ways", transfers::ssh_and_scp),
    ("3", "a static Go program, and Python asyncio", transfers::go_and_python),
    ("4", "path 1 goes silent during scp", transfers::silent_path),
    ("5", "no daemon at the peer, a closed port, a disabled rule", refusals::all),
    ("6", "shimrules lists the rules and their hits", rules::listed),
];

/// Lists the steps, which need root. Then runs two engines in virtual time, without root.
fn without_root() -> Result<Outcome> {
    println!("demo: creating hosts requires root: run `sudo ./x demo` to see");
    STEPS.iter().for_each(|(number, what, _)| println!("  {number}. {what}"));
    println!("without root: two engines and two links in virtual time, path 1 goes silent during a transfer");
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--release", "-p", "sim", "--example", "silent_path"])
        .current_dir(crate::tools::root())
        .status()
        .context("cannot run cargo")?;
    Ok(if status.success() { Outcome::Good } else { Outcome::Bad })
}

/// Runs `./x demo [--picture FILE | --sctp]`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    let picture = match words {
        [] => None,
        [flag, file] if flag == "--picture" => Some(file),
        [flag] if flag == "--sctp" => return sctp::run(),
        _ => bail!("usage: ./x demo [--picture FILE | --sctp]"),
    };
    if !testbed::is_root() {
        return without_root();
    }
    let programs = optimised::daemon_and_commands()?;
    let start = now();
    println!("demo: creating hosts alpha and beta, two links, and the servers");
    let mut world = World::new(programs)?;
    let mut rows = rules::built(&mut world)?;
    for (number, what, step) in STEPS {
        println!("\n{number}. {what}");
        rows.extend(judged(number, what, step(&mut world)));
    }
    if let Some(file) = picture {
        let drawn = picture::draw(&mut world).context("no picture")?;
        std::fs::write(file, drawn).with_context(|| format!("cannot write {file}"))?;
    }
    println!("\ndemo: cleaning up");
    rows.push(nothing_left(world));
    row::print_table(&rows);
    let wrong = rows.iter().filter(|row| !row.is_right()).count();
    println!(
        "{} of {} verdicts right, in {:.0} s",
        rows.len() - wrong,
        rows.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(if wrong == 0 { Outcome::Good } else { Outcome::Bad })
}

/// Returns the rows of a step. An aborted step has one wrong row.
fn judged(number: &'static str, what: &str, rows: Result<Vec<Row>>) -> Vec<Row> {
    rows.unwrap_or_else(|error| {
        let row = Row::broken(number, what, &error);
        row.print();
        vec![row]
    })
}

fn nothing_left(world: World) -> Row {
    let mut row = Row::new("", "cleaning up");
    let left = world.clear_up();
    row.require(left.is_empty(), || format!("left behind: {}", left.join("; ")));
    row
}
