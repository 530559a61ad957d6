//! The shimrules command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::shimrules_main()
}
