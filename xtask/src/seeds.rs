//! `./x seeds`: runs further seeds of the engine's random worlds. Without this command, the tests always use the same seeds.

use crate::Outcome;
use crate::tools::{cargo, succeeds};
use anyhow::{Context, Result, bail};
use std::time::{SystemTime, UNIX_EPOCH};

/// Random worlds: tests that get their seeds from the variables SIM_SEED and SIM_SEEDS.
const WORLDS: [&str; 4] = [
    "seeds::hundreds_of_seeds",
    "reset_partial::messages_given_up_between_resets",
    "reconfig::streams_are_reset_and_added_at_random",
    "partial::bad_links_deliver_a_part",
];

/// Runs the worlds, one after the other. Prints each failure with the environment variables that reproduce it.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    let number = |word: &String| word.parse::<u64>().with_context(|| format!("invalid number {word:?}"));
    let (count, first) = match words {
        [count] => (number(count)?, fresh()?),
        [count, first] => (number(count)?, number(first)?),
        _ => bail!("usage: ./x seeds N [FIRST]"),
    };
    println!("seeds: {count} of each of {} worlds, from {first} on", WORLDS.len());
    let mut outcome = Outcome::Good;
    for world in WORLDS {
        let mut command = cargo(&["test", "--quiet", "--package", "sctp-engine", "--test", "engine", world]);
        command.env("SIM_SEED", first.to_string()).env("SIM_SEEDS", count.to_string());
        if !succeeds(&mut command)? {
            println!("seeds: {world} failed; SIM_SEED={first} SIM_SEEDS={count} reproduces it");
            outcome = Outcome::Bad;
        }
    }
    Ok(outcome)
}

/// Returns a first seed that was probably never used: the clock's microseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "a program that wants a number which nobody has chosen")]
fn fresh() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    u64::try_from(now.as_micros()).context("the clock is out of range")
}
