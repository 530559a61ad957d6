//! The sctpify command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::sctpify_main()
}
