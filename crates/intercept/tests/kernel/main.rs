//! Interception on the running kernel: every test makes its own unnamed network namespaces and leaves nothing.
//!
//! Needs root, and iproute2 to build the tests' own network. Arguments: words that a test's name must contain.

mod client;
mod world;

use std::panic::catch_unwind;
use std::process::ExitCode;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&String> = words.iter().filter(|word| !word.starts_with("--")).collect();
    let tests: Vec<&Test> = client::TESTS
        .iter()
        .filter(|(name, _)| words.iter().all(|word| name.contains(word.as_str())))
        .collect();
    println!("\nrunning {} tests", tests.len());
    if !nix::unistd::geteuid().is_root() {
        return ignore(&tests);
    }
    let failed = tests.iter().filter(|test| !run(test)).count();
    let outcome = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {outcome}. {} passed; {failed} failed; 0 ignored", tests.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn ignore(tests: &[&Test]) -> ExitCode {
    for (name, _) in tests {
        println!("test {name} ... ignored, needs root");
    }
    println!("\nNOT RUN: interception can only be tested as root; run this again with sudo.");
    println!("test result: ok. 0 passed; 0 failed; {} ignored", tests.len());
    ExitCode::SUCCESS
}

fn run((name, test): &Test) -> bool {
    let passed = catch_unwind(test).is_ok();
    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    passed
}
