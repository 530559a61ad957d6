//! Counts tests that cannot run on this machine. Rust's test harness would count such tests as passed.

use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable with the path of a file. [`skip`] appends a line to this file. Without the variable,
/// skipped tests are not counted.
pub const SKIPPED_VARIABLE: &str = "SCTPIFY_TESTS_SKIPPED";

/// Records that the current test cannot run on this machine. `why` is the reason. The test must return after
/// this call.
///
/// # Panics
/// When the file cannot be written. Without the panic, a test that did not run would count as passed.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    let Some(file) = std::env::var_os(SKIPPED_VARIABLE) else { return };
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    let mut file = OpenOptions::new().append(true).open(&file).expect("the file of skipped tests opens");
    file.write_all(line.as_bytes()).expect("the file of skipped tests is written");
}
