//! The project's commands, run through the `./x` wrapper: test, check, demo, bench, doctor and others.
//!
//! The commands run other programs and judge their results. They contain no protocol. Begin with [`COMMANDS`], which has one row per
//! command.

#![forbid(unsafe_code)]

mod bench;
mod check;
mod cited;
mod compliance;
mod demo;
mod docs;
mod doctor;
mod fuzz;
mod lab;
mod layers;
mod links;
mod optimised;
mod package;
mod papers;
mod planted;
mod prose;
mod published;
mod reference;
mod results;
mod sealed;
mod seeds;
mod skipped;
mod sources;
mod test;
mod tools;
mod totals;
mod transparency;

use std::process::ExitCode;

/// Function that runs a command with the arguments after its name.
type Command = fn(&[String]) -> anyhow::Result<Outcome>;

/// Judgement of a command, which decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Everything is right: exit status 0.
    Good,
    /// A fault was found and printed: exit status 1.
    Bad,
}

/// Name, help line and function of each command.
const COMMANDS: &[(&str, &str, Command)] = &[
    (
        "demo",
        "run unmodified programs over SCTP between two hosts with two links, with a verdict for each; `--picture FILE`: draw the path's death as SVG; `--sctp`: SCTP programs on a kernel without SCTP",
        demo::run,
    ),
    (
        "test",
        "run check, then every test, with the namespace tests if root; `test --transparency [SUITE ...]`: run other projects' test \
         suites with all their connections over SCTP",
        test::run,
    ),
    (
        "check",
        "formatting, lints, layers, module docs, where unsafe stands, what docs/papers.md names, links, parts of docs/results that commands write, \
         licences, published crates; `--fast`: what needs no compiler",
        check::run,
    ),
    (
        "api",
        "compare the public API of the published crates with its listings; `--write` writes them",
        published::run_api,
    ),
    (
        "compliance",
        "write the tables of the RFCs' requirements; `--check`: only report errors in them",
        compliance::run,
    ),
    (
        "layers",
        "check the layers of the crates; `--write`: write their table in ARCHITECTURE.md",
        layers::run,
    ),
    (
        "bench",
        "`bench NAME ... [--write]`: measure speed, processor time and memory, beside peers in the same run; `bench` alone lists the benchmarks; \
         `--write`: full runs, written into the pages of docs/results",
        bench::run,
    ),
    (
        "lab",
        "`lab list | run ID [--quick | --full] | report [[ID ...] --write]`: the published experiments and ours beside them; `--write`: their full results, \
         into the pages of docs/results",
        lab::run,
    ),
    (
        "planted",
        "`planted [--sealed] [NAME ...]`: apply known bugs to a copy of the sources, one at a time: the engine's tests must catch each, also with sealed packets",
        planted::run,
    ),
    (
        "fuzz",
        "`fuzz [TARGET ...] [SECONDS]`: fuzz the engine; `fuzz keep`: choose the inputs to commit",
        fuzz::run,
    ),
    (
        "seeds",
        "`seeds N [FIRST]`: run N more seeds of each random world of the engine, from FIRST or from a random one",
        seeds::run,
    ),
    ("docs", "build a book of all documents in target/book (mdbook); fails on a broken link", docs::run),
    (
        "reference",
        "compare the pages of docs/reference with their sources; `--write` writes them",
        reference::run,
    ),
    ("deb", "`deb [--bins DIR]`: build a Debian package in target/deb", package::deb::run),
    (
        "release",
        "`release [--target TRIPLE]... [--twice | --bins DIR]`: build all files of a release in target/release-files",
        package::release::run,
    ),
    ("man", "write the manual pages of all programs to target/man", man),
    ("doctor", "report missing tools of this host, and how to get them", doctor::run),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = words.split_first() else { return help() };
    let Some((_, _, command)) = COMMANDS.iter().find(|(known, _, _)| known == name) else {
        if !matches!(name.as_str(), "help" | "-h" | "--help") {
            eprintln!("x: unknown command `{name}`");
            help();
            return ExitCode::from(2);
        }
        return help();
    };
    match command(rest) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("x {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Programs that write manual and reference pages. Each program also writes the pages of the other programs in its package.
const WRITERS: [&str; 4] = ["sctpify", "linkemu", "sctpify-router", "sctpify-sip"];

/// Runs `./x man`: makes the programs write their own manual pages.
fn man(_: &[String]) -> anyhow::Result<Outcome> {
    let programs = tools::built_programs()?;
    for program in WRITERS {
        let mut command = std::process::Command::new(programs.join(program));
        if !tools::succeeds(command.args(["man", "target/man"]).current_dir(tools::root()))? {
            println!("the manual pages of {program} and the programs of its package were not written");
            return Ok(Outcome::Bad);
        }
    }
    println!("manual pages: target/man");
    Ok(Outcome::Good)
}

fn help() -> ExitCode {
    println!(
        "usage: ./x COMMAND\n\n  setup      install the Debian or Ubuntu packages that the commands use (root)"
    );
    for (name, help, _) in COMMANDS {
        println!("  {name:<10} {help}");
    }
    ExitCode::SUCCESS
}
