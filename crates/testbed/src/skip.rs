//! Tests that cannot run where they are, told to whoever counts: for the test harness each of them has passed.

use std::fs::OpenOptions;
use std::io::Write;

/// Variable of the environment with the path of the file to which [`skip`] adds a line; nothing is counted without it.
pub const SKIPPED_VARIABLE: &str = "SCTPIFY_TESTS_SKIPPED";

/// Tells that the running test cannot run here for want of something. The test returns then.
///
/// # Panics
/// When the file that counts cannot be written: a test that was not run would count as passed.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    let Some(file) = std::env::var_os(SKIPPED_VARIABLE) else { return };
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    let mut file = OpenOptions::new().append(true).open(&file).expect("the file of skipped tests opens");
    file.write_all(line.as_bytes()).expect("the file of skipped tests is written");
}
