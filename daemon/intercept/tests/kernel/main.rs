//! Tests of interception on the running kernel. Every test creates its own unnamed network namespaces and leaves nothing behind.
//!
//! The tests need root, and iproute2 to build their network. Some tests need Python or nft. Each argument is a word. The program
//! runs the tests whose names contain all words.

mod client;
mod guard;
mod holding;
mod lifecycle;
mod server;
mod world;

use std::panic::{catch_unwind, resume_unwind};
use std::process::ExitCode;

type Test = (&'static str, fn());

/// Panic payload of a test whose requirement is missing.
struct Ignored(&'static str);

/// Ends the running test as ignored, because `what` is missing.
fn ignore(what: &'static str) -> ! {
    resume_unwind(Box::new(Ignored(what)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Ignored,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    lifecycle::run_as_child(&words);
    let is_wanted =
        |name: &str| words.iter().filter(|word| !word.starts_with("--")).all(|word| name.contains(word));
    let tests = [client::TESTS, guard::TESTS, holding::TESTS, server::TESTS, lifecycle::TESTS].concat();
    let tests: Vec<Test> = tests.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    println!("\nrunning {} tests", tests.len());
    let outcomes: Vec<Outcome> = tests.iter().map(run).collect();
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let failed = count(Outcome::Failed);
    if count(Outcome::Ignored) > 0 {
        println!("\nNOT ALL WERE RUN: the reason stands beside each ignored test.");
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; {} ignored",
        if failed == 0 { "ok" } else { "FAILED" },
        count(Outcome::Passed),
        count(Outcome::Ignored)
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run((name, test): &Test) -> Outcome {
    let result = catch_unwind(|| {
        if !nix::unistd::geteuid().is_root() {
            ignore("root");
        }
        test();
    });
    let (outcome, text) = match result {
        Ok(()) => (Outcome::Passed, "ok".to_owned()),
        Err(cause) => match cause.downcast_ref::<Ignored>() {
            Some(Ignored(what)) => (Outcome::Ignored, format!("ignored, needs {what}")),
            None => (Outcome::Failed, "FAILED".to_owned()),
        },
    };
    println!("test {name} ... {text}");
    outcome
}
