//! Counts tests that cannot run on this machine, because the test harness counts them as passed.

use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable with the path of the file to which [`skip`] appends a line. Without the variable,
/// nothing is counted.
pub const SKIPPED_VARIABLE: &str = "SCTPIFY_TESTS_SKIPPED";

/// Records that the current test cannot run on this machine, for the reason `why`. The test must then return.
///
/// # Panics
/// When the file cannot be written, because a test that did not run would then count as passed.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    let Some(file) = std::env::var_os(SKIPPED_VARIABLE) else { return };
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    let mut file = OpenOptions::new().append(true).open(&file).expect("the file of skipped tests opens");
    file.write_all(line.as_bytes()).expect("the file of skipped tests is written");
}
